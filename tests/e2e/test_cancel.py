"""Cancelling (R-C4, C1, C3, C4, C7, C8): at every moment, quiet, what was said is kept, the next one in its place."""

from __future__ import annotations

import time

import pytest
from plain_client import PlainClient, fold, settle

pytestmark = pytest.mark.asyncio(loop_scope="session")

WITHIN = 3.5
"""Seconds from the cancel to the end on the wire; the contract's two and what a busy machine needs."""


async def cancelled(client: PlainClient, receipt: dict, **fields) -> dict:
    """Cancel a run and wait for its end; the run."""
    began = time.monotonic()
    answer = await client.request("run.cancel", run_id=receipt["run_id"], **fields)
    assert answer["type"] == "run.cancel.result", answer
    run = await client.run_end(receipt["run_id"])
    assert time.monotonic() - began < WITHIN
    return run


async def assert_quiet_and_usable(client: PlainClient, conversation_id: str, name: str, said: list[str]) -> None:
    """Nothing but the owner's words and the agent's; one end; the next is answered; history is what was live."""
    run = await client.exchange(conversation_id, "say next", f"next-{name}")
    assert run["status"] == "completed"
    await settle(client)
    events = client.of(conversation_id)
    ended = [event["run"]["run_id"] for event in events if event["type"] == "run.ended"]
    assert len(ended) == len(set(ended))
    messages = await client.history(conversation_id)
    assert [m["role"] for m in messages if m["role"] == "notice"] == []
    assert [m["text"] for m in messages if m["role"] == "user"] == [*said, "say next"]
    live = sorted(fold(events).values(), key=lambda m: m["position"])
    assert [(m["message_id"], m["text"], m["status"]) for m in messages] == [
        (m["message_id"], m["text"], m["status"]) for m in live
    ]


async def test_in_mid_stream(stack, client, name):
    """C4: what was said stays, marked cancelled."""
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, "slow 100", f"m-{name}")
    if next(frame for frame in client.frames if frame["type"] == "welcome")["capabilities"]["streaming"]:
        while sum(event["type"] == "message.delta" for event in client.of(conversation_id)) < 5:
            await client.receive()
    else:
        await client.run_started(receipt["run_id"])
    run = await cancelled(client, receipt)
    assert (run["status"], run["reason"]) == ("cancelled", "requested")
    partial = [m for m in fold(client.of(conversation_id)).values() if m["role"] == "assistant"]
    assert all(m["status"] == "cancelled" and m["text"].startswith("w1") for m in partial)
    await assert_quiet_and_usable(client, conversation_id, name, ["slow 100"])


async def test_before_the_first_token(stack, client, name):
    """C3: bound to the run; nothing of it shows up later."""
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, "wait 6", f"m-{name}")
    await client.run_started(receipt["run_id"])
    run = await cancelled(client, receipt)
    assert (run["status"], run["reason"]) == ("cancelled", "requested")
    await assert_quiet_and_usable(client, conversation_id, name, ["wait 6"])


async def test_at_once(stack, client, name):
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, "slow 40", f"m-{name}")
    run = await cancelled(client, receipt)
    assert run["status"] == "cancelled"
    await assert_quiet_and_usable(client, conversation_id, name, ["slow 40"])


async def test_while_queued_and_by_client_message_id(stack, client, name):
    """A run that waits ends at once, and the one before it goes on."""
    conversation_id = await client.create(name)
    first = await client.say(conversation_id, "slow 10", f"1-{name}")
    second = await client.say(conversation_id, "say never", f"2-{name}")
    answer = await client.request("run.cancel", client_message_id=f"2-{name}")
    assert answer["run"]["run_id"] == second["run_id"]
    assert (answer["run"]["status"], answer["run"]["reason"]) == ("cancelled", "requested")
    assert (await client.run_end(first["run_id"]))["status"] == "completed"
    messages = {m["text"]: m for m in await client.history(conversation_id) if m["role"] == "user"}
    assert messages["say never"]["status"] == "cancelled"
    assert messages["say never"]["delivery"] == "done"
    assert not [m for m in await client.history(conversation_id) if "never" in m["text"] and m["role"] == "assistant"]


async def test_with_everything_that_waits(stack, client, name):
    """drop_queued."""
    conversation_id = await client.create(name)
    receipts = [await client.say(conversation_id, "slow 60", f"0-{name}")]
    receipts += [await client.say(conversation_id, f"say {n}", f"{n}-{name}") for n in (1, 2)]
    await client.run_started(receipts[0]["run_id"])
    await cancelled(client, receipts[0], drop_queued=True)
    for receipt in receipts[1:]:
        assert (await client.run_end(receipt["run_id"]))["status"] == "cancelled"
    assert (await client.exchange(conversation_id, "say on", f"9-{name}"))["status"] == "completed"


async def test_inside_a_tool(stack, client, name):
    """C1: the tool is stopped with the run."""
    if stack.hermes_version == "simulated":
        return  # its tools take no time
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, "run sleep 30", f"m-{name}")
    await client.run_started(receipt["run_id"])
    requests = len(stack.model.requests)
    while not any(
        request.script == "run" and request.finished for request in list(stack.model.requests)[requests - 1 :]
    ):
        await client.request("ping")
    run = await cancelled(client, receipt)
    assert run["status"] == "cancelled"
    assert (await client.exchange(conversation_id, "say after", f"n-{name}"))["status"] == "completed"


async def test_an_ended_run_is_answered_as_it_is(stack, client, name):
    conversation_id = await client.create(name)
    run = await client.exchange(conversation_id, "say done", f"m-{name}")
    answer = await client.request("run.cancel", run_id=run["run_id"])
    assert answer["run"] == run
    missing = await client.request("run.cancel", run_id="run_unknown")
    assert (missing["type"], missing["code"]) == ("error", "not_found")
    nothing = await client.request("run.cancel")
    assert nothing["code"] == "invalid_message"


async def test_from_another_device(stack, client, name):
    """C7: a reconnected client knows what runs and can stop it."""
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, "slow 100", f"m-{name}")
    await client.run_started(receipt["run_id"])
    async with PlainClient(stack.url, stack.secret, "the-other") as other:
        await other.hello()
        assert receipt["run_id"] in [run["run_id"] for run in other.snapshot("runs")]
        assert (await cancelled(other, receipt))["status"] == "cancelled"
    assert (await client.run_end(receipt["run_id"]))["status"] == "cancelled"


async def test_a_message_that_interrupts(stack, client, name):
    """if_busy: interrupt. The running run is superseded, the new one goes before what waits."""
    conversation_id = await client.create(name)
    first = await client.say(conversation_id, "slow 100", f"1-{name}")
    await client.run_started(first["run_id"])
    waiting = await client.say(conversation_id, "say waiting", f"2-{name}")
    answer = await client.request(
        "message.send",
        conversation_id=conversation_id,
        client_message_id=f"3-{name}",
        text="say urgent",
        if_busy="interrupt",
    )
    assert answer["receipt"]["disposition"] == "interrupted"
    run = await client.run_end(first["run_id"])
    assert (run["status"], run["reason"]) == ("cancelled", "superseded")
    for receipt in (answer["receipt"], waiting):
        assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
    order = [event["run"]["run_id"] for event in client.of(conversation_id) if event["type"] == "run.started"]
    assert order == [first["run_id"], answer["receipt"]["run_id"], waiting["run_id"]]


async def test_the_next_message_sees_what_was_said_before(stack, client, name):
    """C8: all turns, the cancelled one's message and its partial text included."""
    if stack.hermes_version == "simulated":
        return  # no model that could be asked what it was told
    conversation_id = await client.create(name)
    await client.exchange(conversation_id, f"say first {name}", f"1-{name}")
    receipt = await client.say(conversation_id, "slow 100", f"2-{name}")
    await client.run_started(receipt["run_id"])
    while len(client.of(conversation_id)) < 16 and not any(
        e["type"] == "message.delta" for e in client.of(conversation_id)
    ):
        if not next(f for f in client.frames if f["type"] == "welcome")["capabilities"]["streaming"]:
            break
        await client.receive()
    await cancelled(client, receipt)
    await client.exchange(conversation_id, f"say what now {name}", f"3-{name}")
    asked = [request for request in stack.model.requests if not request.auxiliary][-1]
    told = repr(asked.messages)
    for piece in (f"say first {name}", "slow 100", f"say what now {name}"):
        assert piece in told, piece
