"""Tool calls: one start, one end, whatever becomes of the run (R-D1, F1, F2, F3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.message import Origin
from pheby_protocol.messages.tool import ToolErrorCode
from pheby_server.ports import Outcome, RunResult, ToolResult, ToolStart
from pheby_server.server import Server
from pheby_server.testing import ManualHermes, MemoryTransport, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)


class Rig:
    def __init__(self, server: Server, client: MemoryTransport, name: ConversationId) -> None:
        self.server, self.client, self.name, self.events = server, client, name, server.events

    def start(self, call_id: str, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "name": "terminal",
            "description": "ls",
            "arguments": {"command": "ls"},
            "arguments_truncated": False,
        }
        self.events.tool_started(self.name, ToolStart(call_id=call_id, **fields | changes))

    def end(self, call_id: str, outcome: Outcome = Outcome.COMPLETED, **fields: Any) -> None:
        self.events.tool_ended(self.name, ToolResult(call_id=call_id, outcome=outcome, **fields))

    async def seen(self, *types: str) -> list[dict[str, Any]]:
        await self.events.settled()
        await self.client.request("ping")
        return [frame for frame in self.client.seen if frame["type"] in types]

    async def history(self, **fields: Any) -> dict[str, Any]:
        return await self.client.request("conversation.history", conversation_id=self.name, **fields)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = MemoryTransport(server)
        await client.hello()
        made = await client.request("conversation.create", client_conversation_id="c1")
        name = ConversationId(made["conversation"]["conversation_id"])
        server.events.run_started(name, None, Origin.BACKGROUND)
        yield Rig(server, client, name)


async def test_a_call_begins_and_ends_with_what_the_contract_names(rig: Rig) -> None:
    rig.start("call_1", arguments_truncated=True)
    rig.end("call_1", preview="file", truncated=True, duration_ms=7)
    (started,) = await rig.seen("tool.started")
    (ended,) = await rig.seen("tool.completed")
    call = started["tool_call"]
    assert (call["hermes_call_id"], call["name"], call["description"]) == ("call_1", "terminal", "ls")
    assert (call["arguments"], call["arguments_truncated"], call["status"]) == ({"command": "ls"}, True, "running")
    after = ended["tool_call"]
    assert (after["tool_call_id"], after["status"], after["duration_ms"]) == (call["tool_call_id"], "completed", 7)
    assert (after["result_preview"], after["truncated"]) == ("file", True)
    assert "error" not in after


async def test_calls_that_run_at_once_are_told_apart_by_their_id(rig: Rig) -> None:
    """F3: not by name, and ends come in any order."""
    rig.start("one")
    rig.start("two")
    rig.end("two", preview="2")
    rig.end("one", preview="1")
    ended = {frame["tool_call"]["hermes_call_id"]: frame["tool_call"] for frame in await rig.seen("tool.completed")}
    assert {name: call["result_preview"] for name, call in ended.items()} == {"one": "1", "two": "2"}
    assert len({call["tool_call_id"] for call in ended.values()}) == 2


async def test_a_call_that_is_told_twice_is_one_call(rig: Rig) -> None:
    """F2."""
    for _ in range(2):
        rig.start("one")
    for _ in range(2):
        rig.end("one")
    rig.end("never began")
    assert len(await rig.seen("tool.started")) == len(await rig.seen("tool.completed")) == 1


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (Outcome.COMPLETED, "failed", "indeterminate"),
        (Outcome.FAILED, "failed", "indeterminate"),
        (Outcome.CANCELLED, "cancelled", None),
    ],
)
async def test_what_a_run_leaves_open_ends_before_it(rig: Rig, outcome: Outcome, status: str, code: str | None) -> None:
    """F1."""
    rig.start("one")
    rig.events.run_ended(rig.name, RunResult(outcome=outcome))
    rig.end("one")
    types = [frame["type"] for frame in await rig.seen("tool.completed", "run.ended")]
    assert types == ["tool.completed", "run.ended"]
    call = (await rig.seen("tool.completed"))[0]["tool_call"]
    assert (call["status"], call.get("error", {}).get("code")) == (status, code)


async def test_an_error_is_a_code_and_a_sentence_of_ours(rig: Rig) -> None:
    rig.start("one")
    rig.end("one", Outcome.FAILED, error=ToolErrorCode.TIMED_OUT, preview="raw")
    error = (await rig.seen("tool.completed"))[0]["tool_call"]["error"]
    assert error == {"code": "timed_out", "message": "It took too long."}


async def test_calls_without_a_run_are_not_told(rig: Rig) -> None:
    rig.events.run_ended(rig.name, DONE)
    rig.start("late")
    assert await rig.seen("tool.started") == []


async def test_history_has_calls_in_their_place_among_the_messages(rig: Rig) -> None:
    """B3: text, tool, text; each page counts both."""
    rig.events.message_ended(rig.events.message_started(rig.name, "before"), interim=True)
    rig.start("one")
    rig.end("one")
    rig.events.message_started(rig.name, "after")
    rig.events.run_ended(rig.name, DONE)
    page = await rig.history()
    items = sorted(page["messages"] + page["tool_calls"], key=lambda item: item["position"])
    assert [item.get("text") or item["name"] for item in items] == ["before", "terminal", "after"]
    assert page["tool_calls"][0]["status"] == "completed"
    assert page["runs"]
    newest = await rig.history(limit=2)
    assert [len(newest["messages"]), len(newest["tool_calls"]), newest["has_more"]] == [1, 1, True]
    older = await rig.history(limit=2, before=newest["before"])
    assert ([m["text"] for m in older["messages"]], older["tool_calls"], older["has_more"]) == (["before"], [], False)
    forward = await rig.history(after=older["after"])
    assert [len(forward["messages"]), len(forward["tool_calls"])] == [1, 1]


async def test_a_running_call_is_in_the_snapshot_and_moves_the_head(rig: Rig) -> None:
    rig.start("one")
    await rig.events.settled()
    other = MemoryTransport(rig.server)
    await other.hello("other")
    parts = [frame for frame in other.seen if frame["type"] == "snapshot"]
    (call,) = [call for part in parts for call in part["tool_calls"]]
    (conversation,) = [found for part in parts for found in part["conversations"]]
    assert conversation["history_head"] == call["position"]
    other.cut()


async def test_what_a_dead_process_left_running_is_ended_at_the_start(tmp_path: Path) -> None:
    """R-M4: nothing stays running."""
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = MemoryTransport(server)
        await client.hello()
        made = await client.request("conversation.create", client_conversation_id="c1")
        first = Rig(server, client, ConversationId(made["conversation"]["conversation_id"]))
        first.events.run_started(first.name, None, Origin.BACKGROUND)
        first.start("one")
        await first.events.settled()
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = MemoryTransport(server)
        await client.hello()
        assert [call for f in client.seen if f["type"] == "snapshot" for call in f["tool_calls"]] == []
        again = Rig(server, client, first.name)
        page = await again.history()
        assert [call["status"] for call in page["tool_calls"]] == ["failed"]
        assert [run["status"] for run in page["runs"]] == ["failed"]
