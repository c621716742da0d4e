"""Clarifications on real gateways: an answer reaches the tool call that asked, and no other way does (R-F1, R-F2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from patience import short_patience
from plain_client import Frame, PlainClient, settle

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUESTION = "ask Which colour?|red|green|blue"


async def asked(client: PlainClient, conversation_id: str, text: str, name: str) -> tuple[str, Frame]:
    """Have the agent ask; the run's id and the clarification."""
    receipt = await client.say(conversation_id, text, name)
    frame = await client.until("clarification.requested", conversation_id=conversation_id)
    return receipt["run_id"], frame["clarification"]


async def respond(client: PlainClient, clarification: Frame, *labels: str, **fields: Any) -> Frame:
    ids = {choice["label"]: choice["choice_id"] for choice in clarification["choices"]}
    return await client.request(
        "clarification.respond",
        clarification_id=clarification["clarification_id"],
        choice_ids=[ids[label] for label in labels],
        **fields,
    )


def resolved(client: PlainClient, conversation_id: str) -> list[Frame]:
    return [event["clarification"] for event in client.of(conversation_id) if event["type"] == "clarification.resolved"]


async def last_words(client: PlainClient, conversation_id: str) -> str:
    """What the agent said at last: it repeats what came back from the tool."""
    said = [message["text"] for message in await client.history(conversation_id) if message["role"] == "assistant"]
    assert said[-1].startswith("Thank you. The answer came back as: ")
    text: str = said[-1]
    return text


async def test_by_choice(stack, client, name):
    """R-F1: what is asked, clean of decorations; the choice reaches the pending tool call."""
    conversation_id = await client.create(name)
    run_id, clarification = await asked(client, conversation_id, QUESTION, f"m-{name}")
    assert clarification["question"] == "Which colour?"
    assert [choice["label"] for choice in clarification["choices"]] == ["red", "green", "blue"]
    assert (clarification["multiple"], clarification["free_text"]) == (False, True)
    assert (clarification["status"], clarification["run_id"]) == ("pending", run_id)
    (call,) = [event["tool_call"] for event in client.of(conversation_id) if event["type"] == "tool.started"]
    assert (call["name"], clarification["tool_call_id"]) == ("clarify", call["tool_call_id"])
    answer = await respond(client, clarification, "red")
    assert answer["type"] == "clarification.respond.result", answer
    answered = answer["clarification"]
    assert (answered["status"], answered["answered_by"]["device_id"]) == ("resolved", "plain-device")
    assert (await client.run_end(run_id))["status"] == "completed"
    words = await last_words(client, conversation_id)
    assert "red" in words
    assert "Recommended" not in words.replace("choices_offered", "")
    assert resolved(client, conversation_id) == [answered]
    statuses = [event["run"]["status"] for event in client.of(conversation_id) if event["type"] == "run.updated"]
    assert [status for status in statuses if status in ("waiting", "running")] == ["waiting", "running"]
    history = await client.request("conversation.history", conversation_id=conversation_id)
    assert history["clarifications"] == [answered]


async def test_by_text(stack, client, name):
    """R-F1: something that is not among the choices."""
    conversation_id = await client.create(name)
    run_id, clarification = await asked(client, conversation_id, QUESTION, f"m-{name}")
    await respond(client, clarification, text="[A] pink, über 漢字")
    assert (await client.run_end(run_id))["status"] == "completed"
    words = await last_words(client, conversation_id)
    assert "[A] pink" in words
    assert "漢字" in words


async def test_an_open_question(stack, client, name):
    conversation_id = await client.create(name)
    run_id, clarification = await asked(client, conversation_id, "ask What is your name?", f"m-{name}")
    assert (clarification["question"], clarification["choices"]) == ("What is your name?", [])
    assert clarification["free_text"]
    await respond(client, clarification, text="skip")
    assert (await client.run_end(run_id))["status"] == "completed"
    assert "skip" in await last_words(client, conversation_id)


async def test_several_choices_where_hermes_has_them(stack, client, name):
    conversation_id = await client.create(name)
    text = QUESTION.replace("ask", "choose", 1)
    run_id, clarification = await asked(client, conversation_id, text, f"m-{name}")
    if not clarification["multiple"]:
        assert stack.hermes_version.startswith("0.19")
        refused = await respond(client, clarification, "red", "blue")
        assert refused["code"] == "invalid_choice"
        await respond(client, clarification, "red")
        await client.run_end(run_id)
        return
    await respond(client, clarification, "red", "blue")
    assert (await client.run_end(run_id))["status"] == "completed"
    words = await last_words(client, conversation_id)
    answer = words.partition("user_response")[2] or words
    assert "red" in answer
    assert "blue" in answer
    assert "green" not in answer


async def test_a_question_is_skipped_where_hermes_has_that(stack, client, name):
    conversation_id = await client.create(name)
    run_id, clarification = await asked(client, conversation_id, QUESTION, f"m-{name}")
    answer = await respond(client, clarification, skip=True)
    if not clarification["skippable"]:
        assert stack.hermes_version.startswith("0.19")
        assert answer["code"] == "invalid_choice"
        await respond(client, clarification, "red")
    else:
        assert answer["clarification"]["answer"]["skipped"] is True
    assert (await client.run_end(run_id))["status"] == "completed"
    assert "\\u0000" not in await last_words(client, conversation_id)


async def test_two_questions_at_once_come_one_after_the_other(stack, client, name):
    """The newer line asks several questions in one call."""
    conversation_id = await client.create(name)
    run_id, first = await asked(client, conversation_id, "ask First?|a|b&&Second?|c|d", f"m-{name}")
    await respond(client, first, "b")
    if stack.hermes_version.startswith("0.22"):
        frame = await client.until("clarification.requested", conversation_id=conversation_id)
        second = frame["clarification"]
        assert (first["question"], second["question"]) == ("First?", "Second?")
        assert second["tool_call_id"] == first["tool_call_id"]
        await respond(client, second, "c")
    assert (await client.run_end(run_id))["status"] == "completed"


async def test_an_answer_that_does_not_fit_leaves_it_open(stack, client, name):
    conversation_id = await client.create(name)
    run_id, clarification = await asked(client, conversation_id, QUESTION, f"m-{name}")
    for fields in ({}, {"text": "  "}, {"text": "\0skipped"}, {"choice_ids": ["choice_17"]}):
        request = {"choice_ids": []} | fields
        refused = await client.request(
            "clarification.respond", clarification_id=clarification["clarification_id"], **request
        )
        assert refused["type"] == "error", refused
        assert refused["code"] in ("invalid_choice", "invalid_message")
    await settle(client)
    assert resolved(client, conversation_id) == []
    await respond(client, clarification, "green")
    assert (await client.run_end(run_id))["status"] == "completed"
    assert "green" in await last_words(client, conversation_id)


async def test_what_the_owner_types_while_asked_is_no_answer(stack, client, name):
    """E4: it waits for its turn, in every form that Hermes would take for an answer."""
    conversation_id = await client.create(name)
    run_id, clarification = await asked(client, conversation_id, QUESTION, f"m-{name}")
    typed = [
        await client.say(conversation_id, text, f"{number}-{name}") for number, text in enumerate(("2", "green", "no"))
    ]
    await settle(client)
    assert resolved(client, conversation_id) == []
    await respond(client, clarification, "blue")
    assert (await client.run_end(run_id))["status"] == "completed"
    for receipt in typed:
        assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
    words = [m["text"] for m in await client.history(conversation_id) if m["text"].startswith("Thank you")]
    assert len(words) == 1
    assert "blue" in words[0]


async def test_the_first_answer_wins_on_two_devices(stack, client, name):
    conversation_id = await client.create(name)
    async with PlainClient(client.url, stack.secret, "second-device") as second:
        await second.hello()
        run_id, clarification = await asked(client, conversation_id, QUESTION, f"m-{name}")
        seen = (await second.until("clarification.requested", conversation_id=conversation_id))["clarification"]
        assert seen == clarification
        first = await respond(client, clarification, "red")
        late = await respond(second, clarification, "green")
        assert (late["type"], late["code"]) == ("error", "already_resolved")
        assert late["details"]["clarification"] == first["clarification"]
        again = await respond(client, clarification, "red")
        assert again["clarification"] == first["clarification"]
        await client.run_end(run_id)


async def test_a_cancel_ends_the_question_with_the_run(stack, client, name):
    """R-F2. Hermes itself releases no question when it is stopped: the next message would be its answer."""
    conversation_id = await client.create(name)
    run_id, clarification = await asked(client, conversation_id, QUESTION, f"m-{name}")
    await client.request("run.cancel", run_id=run_id)
    assert (await client.run_end(run_id))["status"] == "cancelled"
    (over,) = resolved(client, conversation_id)
    assert (over["status"], over.get("answer")) == ("cancelled", None)
    late = await respond(client, clarification, "red")
    assert (late["type"], late["code"]) == ("error", "expired")
    run = await client.exchange(conversation_id, "say next", f"next-{name}")
    assert run["status"] == "completed"
    said = [message["text"] for message in await client.history(conversation_id) if message["role"] == "assistant"]
    assert said[-1] == "Next! You asked me to say: next"


async def test_an_interrupting_message_ends_the_question_too(stack, client, name):
    """R-F2: it is the next message, and no answer."""
    conversation_id = await client.create(name)
    run_id, _ = await asked(client, conversation_id, QUESTION, f"m-{name}")
    answer = await client.request(
        "message.send",
        conversation_id=conversation_id,
        client_message_id=f"next-{name}",
        text="say red",
        if_busy="interrupt",
    )
    assert answer["receipt"]["disposition"] == "interrupted"
    assert (await client.run_end(run_id))["reason"] == "superseded"
    (over,) = resolved(client, conversation_id)
    assert over["status"] == "cancelled"
    assert (await client.run_end(answer["receipt"]["run_id"]))["status"] == "completed"


async def test_after_hermess_own_time_it_is_expired(stack, client, name):
    """E5: it expires when it said, and the run goes on without an answer."""
    async with short_patience(stack, 3):
        conversation_id = await client.create(name)
        run_id, clarification = await asked(client, conversation_id, QUESTION, f"m-{name}")
        assert abs(clarification["expires_at"] - clarification["created_at"] - 3_000) <= 500
        frame = await client.until("clarification.resolved", conversation_id=conversation_id)
        over = frame["clarification"]
        assert (over["status"], over["answered_by"]["kind"]) == ("expired", "timeout")
        late = await respond(client, clarification, "red")
        assert (late["type"], late["code"], late["details"]["clarification"]) == ("error", "expired", over)
        assert (await client.run_end(run_id))["status"] == "completed"


async def test_a_question_that_nobody_saw_waits_in_the_snapshot(stack, name):
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        conversation_id = await client.create(name)
        receipt = await client.say(conversation_id, QUESTION, f"m-{name}")
    async with PlainClient(stack.url, stack.secret) as back:
        await back.hello()
        found = [item for item in back.snapshot("clarifications") if item["conversation_id"] == conversation_id]
        if not found:
            found = [(await back.until("clarification.requested", conversation_id=conversation_id))["clarification"]]
        await respond(back, found[0], "green")
        assert (await back.run_end(receipt["run_id"]))["status"] == "completed"


async def test_a_restart_ends_the_question(stack, name):
    """R-F2: an orderly stop does not wait for an answer; afterwards it is over."""
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        conversation_id = await client.create(name)
        _, clarification = await asked(client, conversation_id, QUESTION, f"m-{name}")
    async with asyncio.timeout(60):
        await stack.restart()
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        assert client.snapshot("clarifications") == []
        late = await respond(client, clarification, "red")
        assert (late["code"], late["details"]["clarification"]["status"]) == ("expired", "cancelled")
        run = await client.exchange(conversation_id, "say next", f"next-{name}")
        assert run["status"] == "completed"
