"""Deleting a conversation: everything in it ends, it is gone, nothing brings it back (R-B4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.approval import ApprovalKind, DecisionSource
from pheby_protocol.messages.conversation import TitleSource
from pheby_protocol.messages.message import Origin
from pheby_server import deletion
from pheby_server.ports import (
    ApprovalPrompt,
    ClarificationPrompt,
    HandOver,
    HermesConversation,
    Outcome,
    RunResult,
    SubagentStart,
    ToolResult,
    ToolStart,
)
from pheby_server.runs import CANCEL_SECONDS
from pheby_server.sequencer import Change
from pheby_server.server import Server
from pheby_server.stores import StoreUnavailableError
from pheby_server.testing import FakeClock, ManualHermes, MemoryTransport, deliver_text, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)
CANCELLED = RunResult(outcome=Outcome.CANCELLED)


class Hermes(ManualHermes):
    """Every time it is asked to forget a conversation is in `asked`."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: asyncio.Queue[ConversationId] = asyncio.Queue()

    async def delete(self, conversation_id: ConversationId) -> None:
        self.asked.put_nowait(conversation_id)
        await super().delete(conversation_id)


class Rig:
    """A conversation, a client that is in step, and the gateway's part in the test's hands."""

    def __init__(
        self, server: Server, hermes: Hermes, client: MemoryTransport, name: ConversationId, clock: FakeClock
    ) -> None:
        self.server, self.hermes, self.client, self.name, self.clock = server, hermes, client, name, clock
        self.events = server.events

    async def delete(self) -> dict[str, Any]:
        return await self.client.request("conversation.delete", conversation_id=self.name)

    def begin(self) -> None:
        """Ask for the deletion and do not wait for it."""
        self.client.send({"type": "conversation.delete", "id": "deletion", "conversation_id": self.name})

    async def deleted(self) -> list[dict[str, Any]]:
        """What was told of the conversation since it was asked to go."""
        answer = await self.client.until("conversation.delete.result")
        assert answer["id"] == "deletion"
        return self.told()

    def told(self) -> list[dict[str, Any]]:
        return [frame for frame in self.client.seen if frame.get("conversation_id") == self.name and "id" not in frame]

    async def send(self, client_message_id: str) -> dict[str, Any]:
        answer = await self.client.request(
            "message.send", conversation_id=self.name, client_message_id=client_message_id, text="secret"
        )
        return answer.get("receipt") or answer

    async def handed_over(self) -> HandOver:
        async with asyncio.timeout(2):
            return await self.hermes.handed_over.get()

    async def started(self, client_message_id: str = "m1") -> HandOver:
        await self.send(client_message_id)
        message = await self.handed_over()
        self.events.run_started(self.name, message.message_id, Origin.CHAT)
        return message

    async def interrupted(self) -> ConversationId:
        async with asyncio.timeout(2):
            return await self.hermes.interrupted.get()

    async def asked(self) -> ConversationId:
        """Hermes is asked to forget; what comes of that is stored."""
        async with asyncio.timeout(2):
            name = await self.hermes.asked.get()
        await self.events.settled()
        return name

    def ask(self, key: str) -> None:
        self.events.approval_requested(
            self.name,
            ApprovalPrompt(
                key=key,
                kind=ApprovalKind.COMMAND,
                description="recursive delete",
                command="rm secret",
                command_truncated=False,
                pattern=None,
                choices=("once", "deny"),
                call_id=None,
                answerable=True,
                expires_at=None,
            ),
        )

    def clarify(self, key: str) -> None:
        self.events.clarification_requested(
            self.name,
            ClarificationPrompt(
                key=key,
                question="Which secret?",
                labels=("a",),
                multiple=False,
                free_text=True,
                skippable=True,
                call_id=None,
                expires_at=None,
            ),
        )

    def tool(self, call_id: str, subagent: str | None = None) -> None:
        tool = ToolStart(call_id=call_id, name="terminal", description=None, arguments={}, arguments_truncated=False)
        self.events.tool_started(self.name, tool, subagent)

    def delegate(self, key: str) -> None:
        self.events.subagent_started(self.name, SubagentStart(key=key, parent=None, call_id=None, goal="secret"))

    async def stored(self) -> dict[str, list[str]]:
        """Rows that name the conversation or say anything of it, by table."""

        def read(database: Any) -> dict[str, list[str]]:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            found = {name: list(map(repr, database.execute(f"SELECT * FROM {name}"))) for (name,) in tables}
            return {
                name: named
                for name, rows in found.items()
                if (named := [r for r in rows if self.name in r or "secr" in r])
            }

        return await self.server._store.read(read)

    async def snapshot(self) -> dict[str, list[Any]]:
        """All that a new client is given, by kind."""
        other = MemoryTransport(self.server)
        await other.hello(device_id="looker")
        parts = [frame for frame in other.seen if frame["type"] == "snapshot"]
        kinds = ("conversations", "runs", "messages", "tool_calls", "approvals", "clarifications")
        return {kind: found for kind in kinds if (found := [item for part in parts for item in part[kind]])}

    async def is_gone(self) -> None:
        """Nothing is stored of it but that it is gone, nobody is shown anything of it, and it was the last word."""
        await self.events.settled()
        assert (await self.client.request("ping"))["type"] == "pong"
        assert self.told()[-1]["type"] == "conversation.deleted"
        stored = await self.stored()
        assert {table: len(rows) for table, rows in stored.items()} == {"events": 1, "tombstones": 1}
        assert '"conversation.deleted"' in stored["events"][0]
        assert await self.snapshot() == {}


@asynccontextmanager
async def rigged(folder: Path, hermes: Hermes | None = None) -> AsyncIterator[Rig]:
    hermes, clock = hermes or Hermes(), FakeClock()
    async with running_server(str(folder), hermes, clock=clock) as server:
        client = MemoryTransport(server)
        await client.hello()
        made = await client.request("conversation.create", client_conversation_id="c1")
        yield Rig(server, hermes, client, ConversationId(made["conversation"]["conversation_id"]), clock)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(tmp_path) as made:
        yield made


def full_disk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def transact(work: Any, *, durable: bool = False) -> Any:
        raise StoreUnavailableError("disk full")

    monkeypatch.setattr(rig.server._store, "transact", transact)


# What ends, and in which order


async def test_an_idle_one_is_gone_before_the_answer(rig: Rig) -> None:
    await deliver_text(rig.events, rig.name, "secret", Origin.CRON)
    other = MemoryTransport(rig.server)
    await other.hello("other")
    answer = await rig.delete()
    assert answer["type"] == "conversation.delete.result"
    assert [frame["type"] for frame in rig.client.seen[-2:]] == ["conversation.deleted", "conversation.delete.result"]
    assert (await other.until("conversation.deleted"))["conversation_id"] == rig.name
    assert await rig.asked() == rig.name
    assert rig.hermes.interrupted.empty()
    await rig.is_gone()


@pytest.mark.parametrize("works", [True, False], ids=["hermes ends it", "hermes does not"])
async def test_everything_ends_then_it_is_deleted_then_nothing(rig: Rig, works: bool) -> None:
    await rig.started()
    await rig.send("m2")
    text = rig.events.message_started(rig.name, "secret")
    rig.tool("call_1")
    rig.delegate("child")
    rig.tool("call_1", "child")
    rig.ask("k1")
    rig.clarify("q1")
    await rig.events.settled()
    rig.begin()
    assert await rig.interrupted() == rig.name
    assert "conversation.deleted" not in [frame["type"] for frame in rig.told()]
    if works:
        rig.events.run_ended(rig.name, CANCELLED)
    else:
        rig.clock.move(CANCEL_SECONDS)
    told = await rig.deleted()
    ended = [frame["run"] for frame in told if frame["type"] == "run.ended"]
    assert len({run["run_id"] for run in ended}) == len(ended) == 3
    assert {(run["status"], run["reason"]) for run in ended} == {("cancelled", "deleted")}
    for type_, kind, number in (
        ("tool.completed", "tool_call", 2),
        ("approval.resolved", "approval", 1),
        ("clarification.resolved", "clarification", 1),
        ("message.completed", "message", 1),
    ):
        assert [frame[kind]["status"] for frame in told if frame["type"] == type_] == ["cancelled"] * number
    assert [frame["type"] for frame in told].count("conversation.deleted") == 1
    assert rig.hermes.stopped_subagents == ["child"]
    assert await rig.asked() == rig.name

    rig.events.message_appended(text, "late")
    rig.events.message_replaced(text, "late")
    rig.events.message_ended(text, interim=False)
    rig.events.tool_ended(rig.name, ToolResult(call_id="call_1", outcome=Outcome.COMPLETED))
    rig.events.tool_ended(rig.name, ToolResult(call_id="call_1", outcome=Outcome.COMPLETED), "child")
    rig.events.subagent_ended(rig.name, "child", DONE)
    rig.events.approval_closed(rig.name, "k1", "once", DecisionSource.OTHER_SURFACE)
    rig.events.clarification_closed(rig.name, "q1", DecisionSource.TIMEOUT)
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="late"))
    rig.clock.move(10)
    assert rig.hermes.handed_over.empty()
    await rig.is_gone()


async def test_what_hermes_has_never_seen_is_dropped_at_once(rig: Rig) -> None:
    rig.hermes.is_ready.clear()
    for name in ("m1", "m2", "m3"):
        await rig.send(name)
    assert (await rig.delete())["type"] == "conversation.delete.result"
    ended = [frame["run"] for frame in rig.told() if frame["type"] == "run.ended"]
    assert [(run["status"], run["reason"]) for run in ended] == [("cancelled", "deleted")] * 3
    assert rig.hermes.interrupted.empty()
    # Hermes forgets when it is ready to, and not before.
    assert rig.hermes.asked.empty()
    rig.hermes.is_ready.set()
    assert await rig.asked() == rig.name
    assert rig.hermes.handed_over.empty()
    await rig.is_gone()


@pytest.mark.parametrize("begins", [True, False])
async def test_a_send_that_hermes_has_and_has_not_begun_ends_too(rig: Rig, begins: bool) -> None:
    await rig.send("m1")
    message = await rig.handed_over()
    rig.begin()
    assert await rig.interrupted() == rig.name
    if begins:
        rig.events.run_started(rig.name, message.message_id, Origin.CHAT)
        assert await rig.interrupted() == rig.name
        rig.events.run_ended(rig.name, CANCELLED)
    else:
        rig.clock.move(CANCEL_SECONDS)
    told = await rig.deleted()
    (ended,) = [frame["run"] for frame in told if frame["type"] == "run.ended"]
    assert (ended["run_id"], ended["status"], ended["reason"]) == (message.run_id, "cancelled", "deleted")
    rig.events.run_started(rig.name, message.message_id, Origin.CHAT)
    assert await rig.interrupted() == rig.name
    await rig.is_gone()


async def test_another_conversation_keeps_all_that_it_has(rig: Rig) -> None:
    made = await rig.client.request("conversation.create", client_conversation_id="c2")
    other = ConversationId(made["conversation"]["conversation_id"])
    sent = {"conversation_id": other, "client_message_id": "n1", "text": "mine"}
    await rig.client.request("message.send", **sent)
    rig.events.run_started(other, (await rig.handed_over()).message_id, Origin.CHAT)
    rig.events.message_started(other, "streams")
    rig.events.subagent_started(other, SubagentStart(key="theirs", parent=None, call_id=None, goal="stays"))
    await rig.started()
    rig.begin()
    await rig.interrupted()
    rig.events.run_ended(rig.name, CANCELLED)
    await rig.deleted()
    found = await rig.snapshot()
    assert [len(found[kind]) for kind in ("conversations", "runs", "messages")] == [1, 2, 1]
    page = await rig.client.request("conversation.history", conversation_id=other)
    assert [message["text"] for message in page["messages"]] == ["mine", "streams"]
    assert (await rig.client.request("message.send", **sent))["receipt"]["duplicate"] is True
    assert rig.hermes.stopped_subagents == []


# Afterwards


async def test_it_is_not_there_for_any_request(rig: Rig) -> None:
    message = await rig.started()
    rig.events.run_ended(rig.name, DONE)
    assert (await rig.delete())["type"] == "conversation.delete.result"
    for _ in range(2):
        assert (await rig.delete())["type"] == "conversation.delete.result"
    for type_, fields in (
        ("conversation.get", {"conversation_id": rig.name}),
        ("conversation.history", {"conversation_id": rig.name}),
        ("conversation.rename", {"conversation_id": rig.name, "title": "t"}),
        ("conversation.create", {"client_conversation_id": "c1"}),
        ("message.send", {"conversation_id": rig.name, "client_message_id": "m1", "text": "secret"}),
        ("message.send", {"conversation_id": rig.name, "client_message_id": "m9", "text": "x"}),
        ("message.receipt", {"client_message_id": "m1"}),
        ("message.text", {"message_id": message.message_id}),
        ("run.cancel", {"run_id": message.run_id}),
        ("run.cancel", {"client_message_id": "m1"}),
    ):
        refused = await rig.client.request(type_, **fields)
        assert (refused["type"], refused["code"]) == ("error", "not_found"), type_
    assert (await rig.client.request("conversation.list"))["conversations"] == []
    assert [frame["type"] for frame in rig.told()].count("conversation.deleted") == 1
    await rig.is_gone()


async def test_while_it_goes_nobody_can_ask_for_it(rig: Rig) -> None:
    await rig.started()
    rig.begin()
    await rig.interrupted()
    for type_, fields in (
        ("conversation.get", {}),
        ("conversation.rename", {"title": "t"}),
        ("message.send", {"client_message_id": "m2", "text": "x"}),
    ):
        refused = await rig.client.request(type_, conversation_id=rig.name, **fields)
        assert refused["code"] == "not_found", type_
    rig.events.run_ended(rig.name, CANCELLED)
    await rig.deleted()


async def test_what_never_was_cannot_be_deleted(rig: Rig) -> None:
    refused = await rig.client.request("conversation.delete", conversation_id="conv_1")
    assert refused["code"] == "not_found"
    assert rig.hermes.asked.empty()


async def test_whoever_asked_and_goes_away_does_not_leave_it_half_deleted(rig: Rig) -> None:
    await rig.started()
    asking = asyncio.create_task(rig.server.deletions.delete(rig.name))
    await rig.interrupted()
    asking.cancel()
    await asyncio.wait([asking])
    rig.events.run_ended(rig.name, CANCELLED)
    assert (await rig.client.until("conversation.deleted"))["conversation_id"] == rig.name
    assert await rig.asked() == rig.name
    await rig.is_gone()


async def test_hermess_late_words_are_not_told_and_its_run_is_stopped(rig: Rig) -> None:
    """A8: a late word never brings it back."""
    await rig.delete()
    seq = rig.server.published_seq
    await deliver_text(rig.events, rig.name, "secret", Origin.SYSTEM)
    rig.ask("k1")
    rig.clarify("q1")
    rig.delegate("child")
    rig.tool("call_1", "child")
    assert rig.hermes.interrupted.empty()
    rig.events.run_started(rig.name, None, Origin.BACKGROUND)
    assert await rig.interrupted() == rig.name
    text = rig.events.message_started(rig.name, "secret")
    rig.events.message_appended(text, "secret")
    rig.events.message_ended(text, interim=True)
    rig.events.run_progress(rig.name, "secret")
    rig.tool("call_1")
    rig.events.subagent_ended(rig.name, "child", DONE)
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="secret"))
    assert rig.server.conversations.ensure(rig.name) == Change()
    await rig.is_gone()
    assert rig.server.published_seq == seq


async def test_a_list_of_hermess_that_still_has_it_does_not_bring_it_back(tmp_path: Path) -> None:
    hermes = Hermes()
    async with rigged(tmp_path, hermes) as rig:
        await rig.delete()
        hermes.listed = [
            HermesConversation(
                conversation_id=rig.name,
                title="secret",
                title_source=TitleSource.MANUAL,
                created_at=1,
                last_activity_at=1,
            )
        ]
        await rig.server.conversations.refresh(force=True)
        await rig.server.conversations.refresh_title(rig.name)
        await rig.is_gone()
    async with running_server(str(tmp_path), hermes) as server:
        client = MemoryTransport(server)
        await client.hello()
        assert (await client.request("conversation.list"))["conversations"] == []
        assert (await client.request("conversation.delete", conversation_id=rig.name))["type"].endswith(".result")
        assert (await client.request("conversation.create", client_conversation_id="c1"))["code"] == "not_found"
        await deliver_text(server.events, rig.name, "secret", Origin.CRON)
        assert (await client.request("conversation.get", conversation_id=rig.name))["code"] == "not_found"
        await server.events.settled()
        assert [frame["type"] for frame in client.seen if frame.get("conversation_id") == rig.name] == []


async def test_who_was_away_hears_only_that_it_is_deleted(rig: Rig) -> None:
    """G5."""
    away = MemoryTransport(rig.server)
    welcome = await away.hello("away")
    away.cut()
    await rig.started()
    rig.events.message_started(rig.name, "secret")
    rig.events.run_ended(rig.name, DONE)
    await rig.events.settled()
    await rig.delete()
    back = MemoryTransport(rig.server)
    resumed = await back.hello("away", resume={"epoch": welcome["epoch"], "seq": welcome["seq"]})
    assert resumed["resumed"] is True
    assert [frame["type"] for frame in back.seen] == ["welcome", "conversation.deleted", "sync.completed"]
    assert back.seen[1]["conversation_id"] == rig.name


# A store or a Hermes that does not take it


async def test_a_deletion_that_cannot_be_stored_changes_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-M4: full disk."""
    with monkeypatch.context() as patched:
        full_disk(rig, patched)
        refused = await rig.delete()
        assert (refused["code"], refused["retryable"]) == ("unavailable", True)
    got = await rig.client.request("conversation.get", conversation_id=rig.name)
    assert got["conversation"]["conversation_id"] == rig.name
    assert (await rig.client.request("conversation.list"))["conversations"] == [got["conversation"]]
    again = await rig.client.request("conversation.create", client_conversation_id="c1")
    assert again["conversation"] == got["conversation"]
    await rig.started()
    rig.events.run_ended(rig.name, DONE)
    await rig.events.settled()
    assert "conversation.deleted" not in [frame["type"] for frame in rig.told()]
    assert rig.hermes.interrupted.empty()
    assert rig.hermes.asked.empty()
    assert (await rig.delete())["type"] == "conversation.delete.result"
    assert await rig.asked() == rig.name
    await rig.is_gone()


async def test_hermes_is_asked_until_it_has_forgotten(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "FIRST_RETRY_SECONDS", 0.0)
    rig.hermes.refuses_deletion = True
    assert (await rig.delete())["type"] == "conversation.delete.result"
    for _ in range(3):
        assert await rig.asked() == rig.name
    assert rig.server.conversations.unforgotten() == [rig.name]
    rig.hermes.refuses_deletion = False
    while not rig.hermes.deleted:
        await rig.asked()
    await rig.events.settled()
    assert rig.server.conversations.unforgotten() == []
    assert rig.hermes.deleted == [rig.name]


async def test_what_hermes_has_not_forgotten_is_asked_for_after_a_restart(tmp_path: Path) -> None:
    first = Hermes()
    first.refuses_deletion = True
    async with rigged(tmp_path, first) as rig:
        await rig.delete()
        await rig.asked()
    for times in (1, 0):
        hermes = Hermes()
        async with running_server(str(tmp_path), hermes, clock=FakeClock()) as server:
            client = MemoryTransport(server)
            await client.hello()
            await server.events.settled()
            assert hermes.deleted == [rig.name] * times


# Not so yet


async def test_a_run_that_hermes_begins_while_it_goes_ends_with_it(rig: Rig) -> None:
    await rig.started()
    rig.begin()
    await rig.interrupted()
    rig.events.run_ended(rig.name, CANCELLED)
    rig.events.run_started(rig.name, None, Origin.BACKGROUND)
    assert await rig.interrupted() == rig.name
    rig.clock.move(CANCEL_SECONDS)
    await rig.deleted()
    rig.events.message_started(rig.name, "secret")
    rig.events.run_ended(rig.name, DONE)
    await rig.is_gone()


async def test_a_subagent_that_begins_while_it_goes_ends_with_it(rig: Rig) -> None:
    await rig.started()
    rig.begin()
    await rig.interrupted()
    rig.delegate("child")
    rig.events.run_ended(rig.name, CANCELLED)
    await rig.deleted()
    rig.events.subagent_ended(rig.name, "child", DONE)
    await rig.is_gone()


async def test_questions_outside_of_any_run_end_with_it(rig: Rig) -> None:
    rig.ask("k1")
    rig.clarify("q1")
    await rig.delete()
    await rig.is_gone()
    rig.events.approval_closed(rig.name, "k1", "once", DecisionSource.OTHER_SURFACE)
    rig.events.clarification_closed(rig.name, "q1", DecisionSource.TIMEOUT)
    await rig.is_gone()


async def test_what_hermes_says_at_the_last_moment_is_not_in_the_log(rig: Rig) -> None:
    rig.begin()
    while not rig.server.conversations.is_deleted(rig.name):
        await deliver_text(rig.events, rig.name, "secret", Origin.SYSTEM)
        await asyncio.sleep(0)
    await rig.deleted()
    await rig.is_gone()


async def test_a_creation_at_the_same_instant_makes_no_second_one(rig: Rig) -> None:
    other = MemoryTransport(rig.server)
    await other.hello("other")
    rig.begin()
    await asyncio.sleep(0)
    await other.request("conversation.create", client_conversation_id="c1")
    await rig.deleted()
    assert (await rig.client.request("conversation.list"))["conversations"] == []


async def test_two_deletions_at_once_both_succeed(rig: Rig) -> None:
    other = MemoryTransport(rig.server)
    await other.hello("other")
    await rig.started()
    rig.begin()
    await rig.interrupted()
    other.send({"type": "conversation.delete", "id": "second", "conversation_id": rig.name})
    await other.request("ping")
    rig.events.run_ended(rig.name, CANCELLED)
    await rig.deleted()
    await other.request("ping")
    assert [frame["type"] for frame in other.seen if frame.get("id") == "second"] == ["conversation.delete.result"]


async def test_a_full_disk_is_told_also_where_a_run_was_active(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.started()
    with monkeypatch.context() as patched:
        full_disk(rig, patched)
        rig.begin()
        await rig.interrupted()
        rig.events.run_ended(rig.name, CANCELLED)
        while (answer := await rig.client.receive(within=0.5)).get("id") != "deletion":
            pass
        assert answer["code"] == "unavailable"


async def test_a_send_that_is_on_its_way_to_a_full_disk_is_unavailable(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        full_disk(rig, patched)
        message = {"type": "message.send", "conversation_id": rig.name, "client_message_id": "m1", "text": "secret"}
        rig.client.send({**message, "id": "sending"})
        rig.begin()
        while (answer := await rig.client.receive()).get("id") != "sending":
            pass
        assert answer["code"] == "unavailable"


async def test_deleted_while_its_history_is_read(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """R-B4: what is looked up after a run comes to nothing, and is no failure for the log."""
    asked, go_on = asyncio.Event(), asyncio.Event()
    read = rig.hermes.history

    async def slowly(conversation_id: ConversationId) -> Any:
        asked.set()
        await go_on.wait()
        return await read(conversation_id)

    await rig.started()
    rig.hermes.history = slowly  # type: ignore[method-assign]
    rig.events.run_ended(rig.name, DONE)
    await asyncio.wait_for(asked.wait(), 5)
    assert (await rig.delete())["type"] == "conversation.delete.result"
    go_on.set()
    await asyncio.gather(*rig.server.runs._tasks)
    assert "history.not_reconciled" not in caplog.text
