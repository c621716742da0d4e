"""Approvals."""

from __future__ import annotations

from typing import Any

from ..check import SCRIPTED, check, check_each, expect, same
from ..phone import Frame, Phone
from ..scene import Scene

_NEEDS = (SCRIPTED, "approvals")


async def _asked(scene: Scene) -> tuple[Phone, str, Frame]:
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    return phone, conversation_id, await scene.approval(phone, conversation_id)


async def _respond(phone: Phone, approval: Frame, choice: str, **fields: Any) -> Frame:
    return await phone.request("approval.respond", approval_id=approval["approval_id"], choice=choice, **fields)


async def _open(phone: Phone, approval: Frame) -> bool:
    """Whether it is open for somebody who comes now."""
    page = await phone.ask("conversation.history", conversation_id=approval["conversation_id"])
    found = next(item for item in page["approvals"] if item["approval_id"] == approval["approval_id"])
    return bool(found["status"] == "pending")


@check("approvals/asked", "P-APPR-6", needs=_NEEDS)
async def asked(scene: Scene) -> None:
    """An approval is asked with its call, its command and its choices; the run waits."""
    phone, _, approval = await _asked(scene)
    same((approval["status"], approval["answerable"]), ("pending", True), "status")
    expect("deny" in approval["choices"], "it cannot be denied")
    expect(approval["command"].startswith("rm -rf "), "the command is not shown")
    expect("tool_call_id" in approval, "the call is not named")
    await phone.seen("run.updated", run_id=approval["run_id"], status="waiting")
    await _respond(phone, approval, "deny")


@check_each("approvals/decide", "P-APPR-6", needs=_NEEDS, cases={"once": "once", "deny": "deny"})
async def decide(scene: Scene, choice: str) -> None:
    """The decision reaches every device, with who decided, and the run goes on"""
    phone, conversation_id, approval = await _asked(scene)
    other = await scene.in_step()
    answer = await phone.ask("approval.respond", approval_id=approval["approval_id"], choice=choice)
    same(answer["approval"]["decision"], choice, "decision in the result")
    for each in (phone, other):
        found = (await each.seen("approval.resolved", approval_id=approval["approval_id"]))["approval"]
        same((found["status"], found["decision"]), ("resolved", choice), "approval")
        same(
            (found["decided_by"]["kind"], found["decided_by"].get("device_id")),
            ("device", phone.device_id),
            "decided_by",
        )
        await scene.ended(each, approval["run_id"])
    texts = [event["message"]["text"] for event in phone.events(conversation_id, "message.completed")]
    same(texts[-1], "It is gone." if choice == "once" else "You did not allow it.", "what the agent said")


@check_each("approvals/invalid-choice", "P-APPR-3", needs=_NEEDS, cases={"unknown": "maybe", "empty": "", "yes": "yes"})
async def invalid_choice(scene: Scene, choice: str) -> None:
    """A choice that was not offered is invalid_choice, and the approval stays open"""
    phone, _, approval = await _asked(scene)
    error = await _respond(phone, approval, choice)
    same((error["type"], error.get("code")), ("error", "invalid_choice"), "answer")
    same(error.get("details", {}).get("choices"), approval["choices"], "details.choices")
    expect(await _open(phone, approval), "it is open no longer")
    await phone.ask("approval.respond", approval_id=approval["approval_id"], choice="deny")


@check("approvals/second-answer", "P-APPR-5", needs=_NEEDS)
async def second_answer(scene: Scene) -> None:
    """A later answer of another device is already_resolved, with the approval as decided."""
    phone, _, approval = await _asked(scene)
    other = await scene.in_step()
    await phone.ask("approval.respond", approval_id=approval["approval_id"], choice="deny")
    error = await _respond(other, approval, "once")
    same((error["type"], error.get("code")), ("error", "already_resolved"), "answer")
    found = error.get("details", {}).get("approval", {})
    same((found.get("decision"), found.get("decided_by", {}).get("device_id")), ("deny", phone.device_id), "details")


@check("approvals/answered-again", "P-APPR-5", needs=_NEEDS)
async def answered_again(scene: Scene) -> None:
    """Repeating the same choice from the same device gives the same result."""
    phone, _, approval = await _asked(scene)
    first = await phone.ask("approval.respond", approval_id=approval["approval_id"], choice="deny")
    again = await phone.ask("approval.respond", approval_id=approval["approval_id"], choice="deny")
    same(again["approval"], first["approval"], "approval")


@check("approvals/at-once", "P-APPR-5", needs=_NEEDS)
async def at_once(scene: Scene) -> None:
    """Two devices answer differently at the same time: one wins, the other learns of it."""
    phone, _, approval = await _asked(scene)
    other = await scene.in_step()
    fields = {"approval_id": approval["approval_id"]}
    asked = [
        (phone, await phone.send("approval.respond", choice="deny", **fields)),
        (other, await other.send("approval.respond", choice="once", **fields)),
    ]
    answers = [await each.answer(request_id) for each, request_id in asked]
    same(
        sorted(str(answer.get("code", answer["type"])) for answer in answers),
        ["already_resolved", "approval.respond.result"],
        "answers",
    )


@check("approvals/unknown", "P-APPR-5", needs=("approvals",))
async def unknown(scene: Scene) -> None:
    """An unknown approval is expired."""
    await (await scene.in_step()).refused("expired", "approval.respond", approval_id="appr_0", choice="deny")


@check("approvals/only-the-named", "P-APPR-1", needs=_NEEDS)
async def only_the_named(scene: Scene) -> None:
    """Deciding one approval leaves another one open."""
    phone, _, first = await _asked(scene)
    second = await scene.approval(phone, await scene.conversation(phone))
    await phone.ask("approval.respond", approval_id=second["approval_id"], choice="deny")
    expect(await _open(phone, first), "the other one is open no longer")
    expect(not await _open(phone, second), "the one that was named is still open")
    await phone.ask("approval.respond", approval_id=first["approval_id"], choice="deny")


@check_each("approvals/words", "P-APPR-10", needs=(*_NEEDS, "cancel"), cases={"once": "once", "approve": "/approve"})
async def words(scene: Scene, text: str) -> None:
    """A chat message is no answer: it waits, and the approval stays open"""
    phone, conversation_id, approval = await _asked(scene)
    receipt = await scene.say(phone, conversation_id, text)
    same(receipt["disposition"], "queued", "disposition")
    expect(await _open(phone, approval), "it is open no longer")
    await phone.request("run.cancel", run_id=approval["run_id"], drop_queued=True)


@check("approvals/cancelled", "P-APPR-7", needs=(*_NEEDS, "cancel"))
async def cancelled(scene: Scene) -> None:
    """With its run an open approval is cancelled; none stays open."""
    phone, _, approval = await _asked(scene)
    await phone.ask("run.cancel", run_id=approval["run_id"])
    found = (await phone.seen("approval.resolved", approval_id=approval["approval_id"]))["approval"]
    same((found["status"], found["decided_by"]["kind"]), ("cancelled", "run_end"), "approval")
    await scene.ended(phone, approval["run_id"], "cancelled")
    error = await _respond(phone, approval, "once")
    same((error["type"], error.get("code")), ("error", "expired"), "late answer")


@check("approvals/snapshot", "P-APPR-7", needs=_NEEDS)
async def snapshot(scene: Scene) -> None:
    """An open approval is in the snapshot of a device that comes later, which can decide it; then it is in none."""
    phone, _, approval = await _asked(scene)
    other = await scene.in_step()
    found = [item for item in other.in_snapshot("approvals") if item["approval_id"] == approval["approval_id"]]
    same(len(found), 1, "how often it is in the snapshot")
    await other.ask("approval.respond", approval_id=approval["approval_id"], choice="deny")
    await scene.ended(phone, approval["run_id"])
    later = await scene.in_step()
    expect(
        approval["approval_id"] not in [item["approval_id"] for item in later.in_snapshot("approvals")],
        "it is in the snapshot after it was decided",
    )
