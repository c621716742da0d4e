"""Clarifications."""

from __future__ import annotations

import re
from typing import Any

from ..check import SCRIPTED, check, check_each, expect, same
from ..phone import Frame, Phone
from ..scene import Scene

_NEEDS = (SCRIPTED, "clarifications")


async def _asked(scene: Scene, words: str = "ask Which colour?|red|green") -> tuple[Phone, str, Frame]:
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    return phone, conversation_id, await scene.question(phone, conversation_id, words)


def _ids(question: Frame, *labels: str) -> list[str]:
    return [choice["choice_id"] for choice in question["choices"] if choice["label"] in labels]


async def _respond(phone: Phone, question: Frame, **answer: Any) -> Frame:
    fields = {"choice_ids": []} | answer
    return await phone.request("clarification.respond", clarification_id=question["clarification_id"], **fields)


async def _answered(scene: Scene, phone: Phone, question: Frame, **answer: Any) -> str:
    """Answer, wait for the run's end; what the agent said of it."""
    result = await _respond(phone, question, **answer)
    same(result["type"], "clarification.respond.result", "answer")
    await scene.ended(phone, question["run_id"])
    text: str = phone.events(question["conversation_id"], "message.completed")[-1]["message"]["text"]
    return text


def _picked(said: str, *labels: str) -> list[str]:
    """The labels that were picked: some agents repeat the others, too."""
    counts = [len(re.findall(rf"\b{label}\b", said)) for label in labels]
    return [label for label, count in zip(labels, counts, strict=True) if count > min(counts)]


async def _open(phone: Phone, question: Frame) -> bool:
    page = await phone.ask("conversation.history", conversation_id=question["conversation_id"])
    name = question["clarification_id"]
    return any(item["status"] == "pending" for item in page["clarifications"] if item["clarification_id"] == name)


@check("clarifications/asked", "P-CLAR-4", needs=_NEEDS)
async def asked(scene: Scene) -> None:
    """A question comes with its choices, each with an id and a label; the run waits."""
    phone, _, question = await _asked(scene)
    same((question["status"], question["question"]), ("pending", "Which colour?"), "question")
    same([choice["label"] for choice in question["choices"]], ["red", "green"], "labels")
    same(len({choice["choice_id"] for choice in question["choices"]}), 2, "number of different ids")
    await phone.seen("run.updated", run_id=question["run_id"], status="waiting")
    await _answered(scene, phone, question, choice_ids=_ids(question, "red"))


@check("clarifications/choice", "P-CLAR-1", needs=_NEEDS)
async def choice(scene: Scene) -> None:
    """The picked choice reaches the tool, and every device learns who answered."""
    phone, _, question = await _asked(scene)
    other = await scene.in_step()
    said = await _answered(scene, phone, question, choice_ids=_ids(question, "green"))
    expect(_picked(said, "red", "green") == ["green"], f"the tool got: {said}")
    for each in (phone, other):
        found = await each.seen("clarification.resolved", clarification_id=question["clarification_id"])
        same(found["clarification"]["status"], "resolved", "status")
        same(found["clarification"]["answered_by"].get("device_id"), phone.device_id, "answered_by")
        same(found["clarification"]["answer"]["choice_ids"], _ids(question, "green"), "answer")


@check("clarifications/text", "P-CLAR-1", needs=_NEEDS)
async def text(scene: Scene) -> None:
    """Words reach the tool where they are allowed."""
    phone, _, question = await _asked(scene)
    if question["free_text"]:
        said = await _answered(scene, phone, question, text="pink with dots")
        expect("pink with dots" in said, f"the tool got: {said}")
    else:
        same((await _respond(phone, question, text="pink")).get("code"), "invalid_choice", "answer")


@check("clarifications/open-question", "P-CLAR-1", needs=_NEEDS)
async def open_question(scene: Scene) -> None:
    """A question without choices is answered in words."""
    phone, _, question = await _asked(scene, "ask What is your name?")
    same((question["choices"], question["free_text"]), ([], True), "choices and free_text")
    expect("Ada" in await _answered(scene, phone, question, text="Ada"), "the words did not reach the tool")


@check("clarifications/several", "P-CLAR-1", needs=_NEEDS)
async def several(scene: Scene) -> None:
    """Every picked choice reaches the tool, where several are allowed."""
    phone, _, question = await _asked(scene, "choose Which colours?|red|green|blue")
    picked = ("red", "blue") if question["multiple"] else ("blue",)
    said = await _answered(scene, phone, question, choice_ids=_ids(question, *picked))
    expect(_picked(said, "red", "green", "blue") == list(picked), f"the tool got: {said}")


@check("clarifications/skip", "P-CLAR-3", needs=_NEEDS)
async def skip(scene: Scene) -> None:
    """A question is skipped where that is allowed, else it stays open."""
    phone, _, question = await _asked(scene)
    answer = await _respond(phone, question, skip=True)
    if question["skippable"]:
        same(answer["type"], "clarification.respond.result", "answer")
        await scene.ended(phone, question["run_id"])
    else:
        same(answer.get("code"), "invalid_choice", "answer")
        expect(await _open(phone, question), "it is open no longer")


@check_each(
    "clarifications/unfit",
    "P-CLAR-3",
    needs=_NEEDS,
    cases={
        "unknown-choice": {"choice_ids": ["no-such-choice"]},
        "nothing": {},
        "empty-text": {"text": ""},
        "skip-and-text": {"skip": True, "text": "x"},
    },
)
async def unfit(scene: Scene, answer: dict[str, Any]) -> None:
    """An answer that does not fit is invalid_choice, and the question stays open"""
    phone, _, question = await _asked(scene)
    error = await _respond(phone, question, **answer)
    same((error["type"], error.get("code")), ("error", "invalid_choice"), "answer")
    expect(await _open(phone, question), "it is open no longer")
    await _answered(scene, phone, question, choice_ids=_ids(question, "red"))


@check("clarifications/two-where-one", "P-CLAR-3", needs=_NEEDS)
async def two_where_one(scene: Scene) -> None:
    """Two choices where one is allowed are invalid_choice."""
    phone, _, question = await _asked(scene)
    error = await _respond(phone, question, choice_ids=_ids(question, "red", "green"))
    same((error["type"], error.get("code")), ("error", "invalid_choice"), "answer")
    expect(await _open(phone, question), "it is open no longer")


@check("clarifications/too-large", "P-ERR-4", needs=_NEEDS)
async def too_large(scene: Scene) -> None:
    """More than 10,000 characters are too_large, and the question stays open."""
    phone, _, question = await _asked(scene, "ask What is your name?")
    error = await _respond(phone, question, text="x" * 10_001)
    same((error["type"], error.get("code")), ("error", "too_large"), "answer")
    expect(await _open(phone, question), "it is open no longer")


@check("clarifications/second-answer", "P-CLAR-4", needs=_NEEDS)
async def second_answer(scene: Scene) -> None:
    """A later answer of another device is already_resolved, with the question as answered."""
    phone, _, question = await _asked(scene)
    other = await scene.in_step()
    await _answered(scene, phone, question, choice_ids=_ids(question, "red"))
    error = await _respond(other, question, choice_ids=_ids(question, "green"))
    same((error["type"], error.get("code")), ("error", "already_resolved"), "answer")
    found = error.get("details", {}).get("clarification", {})
    same(found.get("answer", {}).get("choice_ids"), _ids(question, "red"), "details.clarification")


@check("clarifications/at-once", "P-CLAR-4", needs=_NEEDS)
async def at_once(scene: Scene) -> None:
    """Two devices answer differently at the same time: one wins."""
    phone, _, question = await _asked(scene)
    other = await scene.in_step()
    name = {"clarification_id": question["clarification_id"]}
    asked = [
        (phone, await phone.send("clarification.respond", choice_ids=_ids(question, "red"), **name)),
        (other, await other.send("clarification.respond", choice_ids=_ids(question, "green"), **name)),
    ]
    answers = [await each.answer(request_id) for each, request_id in asked]
    same(
        sorted(str(answer.get("code", answer["type"])) for answer in answers),
        ["already_resolved", "clarification.respond.result"],
        "answers",
    )


@check("clarifications/unknown", "P-CLAR-4", needs=("clarifications",))
async def unknown(scene: Scene) -> None:
    """An unknown question is expired."""
    phone = await scene.in_step()
    await phone.refused("expired", "clarification.respond", clarification_id="clar_0", choice_ids=[], text="x")


@check("clarifications/words", "P-CLAR-6", needs=(*_NEEDS, "cancel"))
async def words(scene: Scene) -> None:
    """A chat message is no answer: it waits, and the question stays open."""
    phone, conversation_id, question = await _asked(scene)
    receipt = await scene.say(phone, conversation_id, "green")
    same(receipt["disposition"], "queued", "disposition")
    expect(await _open(phone, question), "it is open no longer")
    await phone.request("run.cancel", run_id=question["run_id"], drop_queued=True)


@check("clarifications/cancelled", "P-CLAR-5", needs=(*_NEEDS, "cancel"))
async def cancelled(scene: Scene) -> None:
    """With its run an open question is cancelled; none stays open."""
    phone, _, question = await _asked(scene)
    await phone.ask("run.cancel", run_id=question["run_id"])
    found = await phone.seen("clarification.resolved", clarification_id=question["clarification_id"])
    same(found["clarification"]["status"], "cancelled", "status")
    await scene.ended(phone, question["run_id"], "cancelled")
    error = await _respond(phone, question, text="late")
    same((error["type"], error.get("code")), ("error", "expired"), "late answer")


@check("clarifications/snapshot", "P-CLAR-5", needs=_NEEDS)
async def snapshot(scene: Scene) -> None:
    """An open question is in the snapshot of a device that comes later, which can answer it."""
    _, _, question = await _asked(scene)
    other = await scene.in_step()
    found = [
        item for item in other.in_snapshot("clarifications") if item["clarification_id"] == question["clarification_id"]
    ]
    same(len(found), 1, "how often it is in the snapshot")
    await _answered(scene, other, question, choice_ids=_ids(question, "red"))
    later = await scene.in_step()
    expect(
        question["clarification_id"] not in [item["clarification_id"] for item in later.in_snapshot("clarifications")],
        "it is in the snapshot after it was answered",
    )
