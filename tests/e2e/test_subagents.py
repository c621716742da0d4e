"""Subagents on real gateways: runs of their own, their tools with their parents (R-D2)."""

from __future__ import annotations

import pytest
from plain_client import Frame, PlainClient

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def runs_started(client: PlainClient, conversation_id: str) -> list[Frame]:
    return [event["run"] for event in client.of(conversation_id) if event["type"] == "run.started"]


async def child_of(client: PlainClient, conversation_id: str, run_id: str) -> Frame:
    """The run of the subagent that a run started."""
    while True:
        for run in await runs_started(client, conversation_id):
            if run.get("parent_run_id") == run_id:
                return run
        await client.until("run.started", conversation_id=conversation_id)


async def test_a_subagent_with_two_tools(stack, client, name):
    """Its run outlives its parent's; what Hermes starts with the result is a third run without a user message."""
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, "delegate tools", f"m-{name}")
    assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
    child = await child_of(client, conversation_id, receipt["run_id"])
    assert (child["origin"], child["status"], child["description"]) == ("background", "running", "tools")
    assert (await client.run_end(child["run_id"]))["status"] == "completed"
    events = client.of(conversation_id)
    calls = [event["tool_call"] for event in events if event["type"] == "tool.started"]
    (delegating,) = [call for call in calls if call["name"] == "delegate_task"]
    assert child["parent_tool_call_id"] == delegating["tool_call_id"]
    inner = [call for call in calls if call["run_id"] == child["run_id"]]
    assert [call["name"] for call in inner] == ["read_file", "read_file"]
    assert {call["parent_tool_call_id"] for call in inner} == {delegating["tool_call_id"]}
    ended = [event["tool_call"] for event in events if event["type"] == "tool.completed"]
    assert len({call["tool_call_id"] for call in ended}) == len(ended) == len(calls)
    # The report comes as a run that nobody asked for.
    while len(started := await runs_started(client, conversation_id)) < 3:
        await client.until("run.started", conversation_id=conversation_id)
    report = started[-1]
    assert report["origin"] == "background"
    assert "parent_run_id" not in report
    assert (await client.run_end(report["run_id"]))["status"] == "completed"
    history = await client.request("conversation.history", conversation_id=conversation_id)
    assert [message["role"] for message in history["messages"]].count("user") == 1
    assert history["messages"][-1]["text"] == "The delegated work is done."
    assert {run["run_id"] for run in history["runs"]} >= {receipt["run_id"], child["run_id"], report["run_id"]}


async def test_a_subagent_makes_nothing_busy_and_can_be_stopped(stack, client, name):
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, "delegate run sleep 20", f"m-{name}")
    assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
    child = await child_of(client, conversation_id, receipt["run_id"])
    got = await client.request("conversation.get", conversation_id=conversation_id)
    assert "active_run_id" not in got["conversation"]
    assert (await client.exchange(conversation_id, "say meanwhile", f"n-{name}"))["status"] == "completed"
    await client.request("run.cancel", run_id=child["run_id"])
    over = await client.run_end(child["run_id"])
    assert (over["status"], over["reason"]) == ("cancelled", "requested")
    assert [e["run"]["run_id"] for e in client.of(conversation_id) if e["type"] == "run.ended"].count(
        child["run_id"]
    ) == 1
    run = await client.exchange(conversation_id, "say next", f"next-{name}")
    assert run["status"] == "completed"


async def test_a_restart_ends_it(stack, name):
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        conversation_id = await client.create(name)
        receipt = await client.say(conversation_id, "delegate run sleep 20", f"m-{name}")
        await client.run_end(receipt["run_id"])
        child = await child_of(client, conversation_id, receipt["run_id"])
    await stack.restart(kill=True)
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        assert child["run_id"] not in [run["run_id"] for run in client.snapshot("runs")]
        answer = await client.request("run.cancel", run_id=child["run_id"])
        assert answer["run"]["status"] in ("failed", "cancelled")
