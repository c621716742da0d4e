"""Subagents: runs of their own, with their parents, that make nothing busy (R-D2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.message import Origin
from pheby_protocol.messages.run import RunErrorCode
from pheby_server.ports import Outcome, RunResult, SubagentStart, ToolResult, ToolStart
from pheby_server.runs import CANCEL_SECONDS
from pheby_server.server import Server
from pheby_server.subagents import MAX_OPEN
from pheby_server.testing import FakeClock, ManualHermes, MemoryTransport, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)


class Rig:
    def __init__(
        self, server: Server, hermes: ManualHermes, client: MemoryTransport, name: ConversationId, clock: FakeClock
    ) -> None:
        self.server, self.hermes, self.client, self.name, self.clock = server, hermes, client, name, clock
        self.events = server.events

    def delegate(self, key: str = "child", parent: str | None = None, call_id: str | None = "call_1") -> None:
        start = SubagentStart(key=key, parent=parent, call_id=call_id, goal="look around")
        self.events.subagent_started(self.name, start)

    def tool(self, call_id: str, subagent: str | None = None) -> None:
        tool = ToolStart(call_id=call_id, name="terminal", description=None, arguments={}, arguments_truncated=False)
        self.events.tool_started(self.name, tool, subagent)

    async def seen(self, *types: str) -> list[dict[str, Any]]:
        await self.events.settled()
        await self.client.request("ping")
        return [frame for frame in self.client.seen if frame["type"] in types]

    async def runs(self, *types: str) -> list[dict[str, Any]]:
        return [frame["run"] for frame in await self.seen(*types)]

    async def open_runs(self) -> list[dict[str, Any]]:
        other = MemoryTransport(self.server)
        await other.hello(device_id="looker")
        return [run for frame in other.seen if frame["type"] == "snapshot" for run in frame["runs"]]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    hermes, clock = ManualHermes(), FakeClock()
    async with running_server(str(tmp_path), hermes, clock=clock) as server:
        client = MemoryTransport(server)
        await client.hello()
        made = await client.request("conversation.create", client_conversation_id="c1")
        name = ConversationId(made["conversation"]["conversation_id"])
        server.events.run_started(name, None, Origin.BACKGROUND)
        yield Rig(server, hermes, client, name, clock)


async def test_it_is_a_run_with_a_parent_and_tools_with_theirs(rig: Rig) -> None:
    rig.tool("call_1")
    rig.delegate()
    rig.events.tool_ended(rig.name, ToolResult(call_id="call_1", outcome=Outcome.COMPLETED))
    rig.events.run_ended(rig.name, DONE)
    rig.tool("call_1", "child")  # its own numbers may be those of its parent
    rig.tool("call_2", "child")
    rig.events.tool_ended(rig.name, ToolResult(call_id="call_1", outcome=Outcome.COMPLETED), "child")
    rig.events.subagent_ended(rig.name, "child", DONE)
    parent, child = await rig.runs("run.started")
    calls = [frame["tool_call"] for frame in await rig.seen("tool.started")]
    assert (child["origin"], child["status"], child["description"]) == ("background", "running", "look around")
    assert (child["parent_run_id"], child["parent_tool_call_id"]) == (parent["run_id"], calls[0]["tool_call_id"])
    assert [call["run_id"] for call in calls] == [parent["run_id"], child["run_id"], child["run_id"]]
    assert [call.get("parent_tool_call_id") for call in calls] == [None, *[calls[0]["tool_call_id"]] * 2]
    ended = [frame["run"] for frame in await rig.seen("run.ended")]
    assert [(run["run_id"], run["status"]) for run in ended] == [
        (parent["run_id"], "completed"),
        (child["run_id"], "completed"),
    ]
    statuses = [frame["tool_call"]["status"] for frame in await rig.seen("tool.completed")]
    assert statuses == ["completed", "completed", "failed"]  # whether call_2 was executed is not known
    order = [frame["type"] for frame in await rig.seen("tool.completed", "run.ended")]
    assert order == ["tool.completed", "run.ended", "tool.completed", "tool.completed", "run.ended"]


async def test_it_makes_nothing_busy(rig: Rig) -> None:
    rig.tool("call_1")
    rig.delegate()
    rig.events.run_ended(rig.name, DONE)
    (child,) = await rig.open_runs()
    assert child["origin"] == "background"
    got = await rig.client.request("conversation.get", conversation_id=rig.name)
    assert "active_run_id" not in got["conversation"]
    sent = await rig.client.request(
        "message.send", conversation_id=rig.name, client_message_id="m1", text="hello", if_busy="reject"
    )
    assert sent["receipt"]["disposition"] == "started"


async def test_a_subagent_of_a_subagent_names_it(rig: Rig) -> None:
    rig.tool("call_1")
    rig.delegate("child")
    rig.tool("call_9", "child")
    rig.delegate("grandchild", parent="child", call_id="call_9")
    _, child, grandchild = await rig.runs("run.started")
    assert grandchild["parent_run_id"] == child["run_id"]
    inner = [frame["tool_call"] for frame in await rig.seen("tool.started")][1]
    assert grandchild["parent_tool_call_id"] == inner["tool_call_id"]


@pytest.mark.parametrize("works", [True, False])
async def test_a_cancel_stops_it_or_ends_it_for_the_clients(rig: Rig, works: bool) -> None:
    rig.tool("call_1")
    rig.delegate()
    _, child = await rig.runs("run.started")
    answer = await rig.client.request("run.cancel", run_id=child["run_id"])
    assert answer["run"]["status"] == "cancelling"
    assert rig.hermes.stopped_subagents == ["child"]
    if works:
        rig.events.subagent_ended(rig.name, "child", RunResult(outcome=Outcome.CANCELLED))
    rig.clock.move(CANCEL_SECONDS)
    rig.events.subagent_ended(rig.name, "child", DONE)
    (ended,) = await rig.runs("run.ended")
    assert (ended["run_id"], ended["status"], ended["reason"]) == (child["run_id"], "cancelled", "requested")
    again = await rig.client.request("run.cancel", run_id=child["run_id"])
    assert again["run"] == ended


async def test_a_failure_is_a_failure(rig: Rig) -> None:
    rig.delegate(call_id=None)
    rig.events.subagent_ended(rig.name, "child", RunResult(outcome=Outcome.FAILED, error=RunErrorCode.TIMED_OUT))
    (ended,) = await rig.runs("run.ended")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "timed_out")


async def test_there_is_a_bound(rig: Rig) -> None:
    for number in range(MAX_OPEN + 3):
        rig.delegate(f"child-{number}")
        rig.tool("call_7", f"child-{number}")
    assert len(await rig.open_runs()) == MAX_OPEN + 1
    assert len(await rig.seen("tool.started")) == MAX_OPEN


async def test_those_of_a_dead_process_are_ended(tmp_path: Path) -> None:
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client = MemoryTransport(server)
        await client.hello()
        made = await client.request("conversation.create", client_conversation_id="c1")
        name = ConversationId(made["conversation"]["conversation_id"])
        server.events.run_started(name, None, Origin.BACKGROUND)
        Rig(server, hermes, client, name, FakeClock()).delegate()
        server.events.run_ended(name, DONE)
        await server.events.settled()
    async with running_server(str(tmp_path), hermes) as server:
        client = MemoryTransport(server)
        await client.hello()
        assert [run for frame in client.seen if frame["type"] == "snapshot" for run in frame["runs"]] == []
