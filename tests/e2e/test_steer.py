"""Words for a run on its way: they reach it behind the tool that it is using, once (R-C5)."""

from __future__ import annotations

import json

import pytest
from plain_client import Frame, PlainClient, fold, settle

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def steer(client: PlainClient, conversation_id: str, text: str, name: str) -> Frame:
    answer = await client.request(
        "message.send", conversation_id=conversation_id, client_message_id=name, text=text, if_busy="steer"
    )
    assert answer["type"] == "message.send.result", answer
    receipt: Frame = answer["receipt"]
    return receipt


async def test_words_for_a_run_that_uses_a_tool(stack, client, name):
    """Steered in: the same run, no other one, and the model has read them."""
    conversation_id = await client.create(name)
    first = await client.say(conversation_id, "run sleep 3", f"m-{name}")
    await client.until("tool.started", conversation_id=conversation_id)
    receipt = await steer(client, conversation_id, f"say steered {name}", f"s-{name}")
    assert (receipt["disposition"], receipt["state"]) == ("steered", "dispatched")
    assert receipt["run_id"] == first["run_id"]
    assert (await client.run_end(first["run_id"]))["status"] == "completed"
    await settle(client, 2.0)
    known = (await client.request("message.receipt", client_message_id=f"s-{name}"))["receipt"]
    assert known["state"] == "done"
    again = await steer(client, conversation_id, f"say steered {name}", f"s-{name}")
    assert (again["duplicate"], again["message_id"]) == (True, receipt["message_id"])
    started = [event["run"]["run_id"] for event in client.of(conversation_id) if event["type"] == "run.started"]
    assert started == [first["run_id"]]
    if stack.hermes_version != "simulated":
        asked = [request for request in stack.model.requests if not request.auxiliary]
        about = [request for request in asked if f"steered {name}" in json.dumps(request.messages)]
        assert len(about) == 1
    history = await client.history(conversation_id)
    texts = [message["text"] for message in history if message["role"] == "user"]
    assert texts == ["run sleep 3", f"say steered {name}"]
    folded = fold(client.of(conversation_id))
    assert {message["message_id"]: message["text"] for message in history} == {
        key: message["text"] for key, message in folded.items()
    }
    assert (await client.exchange(conversation_id, "say next", f"n-{name}"))["status"] == "completed"


@pytest.mark.parametrize("text", ["slow 30", "ask Which?|a|b"])
async def test_where_words_would_not_reach_it_they_wait(stack, client, name, text):
    """While it talks nothing carries them, while it asks they must not look like an answer: queued, and said so."""
    conversation_id = await client.create(name)
    first = await client.say(conversation_id, text, f"m-{name}")
    await client.run_started(first["run_id"])
    if text.startswith("ask"):
        asked = (await client.until("clarification.requested", conversation_id=conversation_id))["clarification"]
    receipt = await steer(client, conversation_id, "say later", f"s-{name}")
    assert receipt["disposition"] == "queued"
    assert receipt["run_id"] != first["run_id"]
    if text.startswith("ask"):
        await settle(client)
        await client.request(
            "clarification.respond",
            clarification_id=asked["clarification_id"],
            choice_ids=[asked["choices"][0]["choice_id"]],
        )
    assert (await client.run_end(first["run_id"]))["status"] == "completed"
    assert (await client.run_end(receipt["run_id"]))["status"] == "completed"


async def test_nothing_runs_it_is_a_send_like_any_other(stack, client, name):
    conversation_id = await client.create(name)
    receipt = await steer(client, conversation_id, "say hello", f"s-{name}")
    assert receipt["disposition"] == "started"
    assert (await client.run_end(receipt["run_id"]))["status"] == "completed"


async def test_a_kill_after_the_words_were_given(stack, name):
    """R-C2: they share the fate of the run that they were given to."""
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        conversation_id = await client.create(name)
        first = await client.say(conversation_id, "run sleep 20", f"m-{name}")
        await client.until("tool.started", conversation_id=conversation_id)
        receipt = await steer(client, conversation_id, "say steered", f"s-{name}")
        assert receipt["run_id"] == first["run_id"]
    await stack.restart(kill=True)
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        known = (await client.request("message.receipt", client_message_id=f"s-{name}"))["receipt"]
        # 0.19 stores no row of them: then it is not known whether the run had read them.
        assert known["state"] in ("done", "indeterminate")
        assert known["disposition"] == "steered"
        answer = await client.request("conversation.history", conversation_id=conversation_id)
        (run,) = [run for run in answer["runs"] if run["run_id"] == first["run_id"]]
        assert run["error"]["code"] == "interrupted_by_restart"
        assert [m["text"] for m in answer["messages"] if m["role"] == "user"] == ["run sleep 20", "say steered"]
        assert (await client.exchange(conversation_id, "say next", f"n-{name}"))["status"] == "completed"
