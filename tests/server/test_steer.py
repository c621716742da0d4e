"""Words for a run on its way: into it, or queued, and the receipt says which (R-C2, R-C5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_server.ports import (
    ClarificationPrompt,
    HandOver,
    HermesMessage,
    Outcome,
    RunResult,
    ToolResult,
    ToolStart,
)
from pheby_server.runs import HAND_OVER_WITHIN_MS
from pheby_server.server import Server
from pheby_server.stores import StoreUnavailableError
from pheby_server.testing import FakeClock, ManualHermes, MemoryTransport, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)


class Rig:
    def __init__(self, server: Server, hermes: ManualHermes, client: MemoryTransport, name: ConversationId) -> None:
        self.server, self.hermes, self.client, self.name = server, hermes, client, name
        self.events = server.events

    def tool(self, call_id: str = "c1") -> None:
        tool = ToolStart(call_id=call_id, name="t", description=None, arguments={}, arguments_truncated=False)
        self.events.tool_started(self.name, tool)

    async def steer(self, name: str = "s1") -> dict[str, Any]:
        return await self.client.request(
            "message.send", conversation_id=self.name, client_message_id=name, text="words", if_busy="steer"
        )

    async def receipt(self, name: str = "s1") -> dict[str, Any]:
        return (await self.client.request("message.receipt", client_message_id=name))["receipt"]

    async def messages(self) -> list[tuple[str, str]]:
        page = await self.client.request("conversation.history", conversation_id=self.name)
        return [(message["text"], message["delivery"]) for message in page["messages"] if message["role"] == "user"]


async def rigged(server: Server, hermes: ManualHermes) -> Rig:
    client = MemoryTransport(server)
    await client.hello()
    made = await client.request("conversation.create", client_conversation_id="c1")
    return Rig(server, hermes, client, ConversationId(made["conversation"]["conversation_id"]))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        made = await rigged(server, hermes)
        server.events.run_started(made.name, None, Origin.BACKGROUND)
        yield made


async def test_into_a_run_that_uses_a_tool(rig: Rig) -> None:
    (active,) = rig.server.runs.open_runs()
    rig.tool()
    receipt = (await rig.steer())["receipt"]
    assert (receipt["disposition"], receipt["state"], receipt["run_id"]) == ("steered", "dispatched", active.run_id)
    assert [given.text for given in rig.hermes.steered] == ["words"]
    assert rig.hermes.handed_over.empty()
    rig.events.run_ended(rig.name, DONE)
    await rig.events.settled()
    assert (await rig.receipt())["state"] == "done"
    assert await rig.messages() == [("words", "done")]


@pytest.mark.parametrize("why", ["no tool", "tool over", "asks", "cancelled", "others wait", "not offered"])
async def test_where_it_would_not_arrive_it_waits(rig: Rig, why: str) -> None:
    (active,) = rig.server.runs.open_runs()
    if why != "no tool":
        rig.tool()
    if why == "tool over":
        rig.events.tool_ended(rig.name, ToolResult(call_id="c1", outcome=Outcome.COMPLETED))
    if why == "asks":
        fields: dict[str, Any] = {"labels": (), "multiple": False, "free_text": True, "skippable": False}
        prompt = ClarificationPrompt(key="k", question="?", call_id=None, expires_at=None, **fields)
        rig.events.clarification_requested(rig.name, prompt)
    if why == "cancelled":
        await rig.client.request("run.cancel", run_id=active.run_id)
    if why == "others wait":
        await rig.client.request("message.send", conversation_id=rig.name, client_message_id="m0", text="first")
    if why == "not offered":
        rig.hermes.features = type(rig.hermes.features)(version="manual", streaming=True, cancel=True)
    receipt = (await rig.steer())["receipt"]
    assert (receipt["disposition"], receipt["state"]) == ("queued", "admitted")
    assert receipt["run_id"] != active.run_id
    assert rig.hermes.steered == []


async def test_what_hermes_does_not_take_runs_by_itself_afterwards(rig: Rig) -> None:
    (active,) = rig.server.runs.open_runs()
    rig.tool()
    rig.hermes.takes_steering = False
    receipt = (await rig.steer())["receipt"]
    assert receipt["disposition"] == "queued"
    assert receipt["run_id"] != active.run_id
    rig.events.run_ended(rig.name, DONE)
    taken = await rig.hermes.handed_over.get()
    assert (taken.text, taken.run_id) == ("words", receipt["run_id"])
    rig.events.run_started(rig.name, taken.message_id, Origin.CHAT)
    rig.events.run_ended(rig.name, DONE)
    await rig.events.settled()
    assert (await rig.receipt())["state"] == "done"
    assert await rig.messages() == [("words", "done")]


async def test_a_refused_admission_leaves_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.tool()
    await rig.events.settled()

    async def transact(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("full")

    with monkeypatch.context() as patched:
        patched.setattr(rig.server._store, "transact", transact)
        assert (await rig.steer())["code"] == "unavailable"
    assert rig.hermes.steered == []
    assert await rig.messages() == []
    assert (await rig.steer())["receipt"]["disposition"] == "steered"


async def test_again_is_the_same_and_other_words_are_a_conflict(rig: Rig) -> None:
    rig.tool()
    first = (await rig.steer())["receipt"]
    again = (await rig.steer())["receipt"]
    assert again == first | {"duplicate": True}
    other = await rig.client.request(
        "message.send", conversation_id=rig.name, client_message_id="s1", text="other", if_busy="steer"
    )
    assert other["code"] == "conflict"
    assert len(rig.hermes.steered) == 1


@pytest.mark.parametrize(
    ("given", "stored", "late", "state"),
    [
        (True, True, False, "done"),
        (True, False, False, "indeterminate"),
        (False, False, False, "admitted"),
        (False, False, True, "expired"),
    ],
)
async def test_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool, stored: bool, late: bool, state: str
) -> None:
    """Given and among Hermes's rows: as its run. Given and not found: nobody knows. Never given: by itself, if soon."""
    hermes, clock = ManualHermes(), FakeClock()
    async with running_server(str(tmp_path), hermes, clock=clock) as server:
        rig = await rigged(server, hermes)
        server.events.run_started(rig.name, None, Origin.BACKGROUND)
        rig.tool()
        if not given:

            async def dies(*_: Any) -> None:
                """The process does, between the admission and the hand-over."""

            monkeypatch.setattr(server.runs, "_give", dies)
        await rig.steer()
        await server.events.settled()
        rig.client.cut()
        server.runs._lanes.clear()
    hermes = ManualHermes()
    hermes.is_ready.clear()
    if stored:
        hermes.rows[rig.name].append(HermesMessage(key="r1", role=MessageRole.USER, text="words", created_at=1))
    if late:
        clock.jump(HAND_OVER_WITHIN_MS + 60_000)
    async with running_server(str(tmp_path), hermes, clock=clock) as server:
        rig = await rigged(server, hermes)
        receipt = await rig.receipt()
        assert receipt["state"] == state
        assert (await rig.messages()) == [("words", state)]
        hermes.is_ready.set()
        if state == "admitted":
            taken = await hermes.handed_over.get()
            assert (taken.text, receipt["disposition"], receipt["run_id"]) == ("words", "queued", taken.run_id)
        else:
            await rig.client.request("ping")
            assert hermes.handed_over.empty()


class Slow(ManualHermes):
    """A Hermes that takes its time for an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answer = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def steer(self, message: HandOver) -> bool:
        self.asked.set()
        taken: bool = await self.answer
        return taken


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Rig]:
    hermes = Slow()
    async with running_server(str(tmp_path), hermes) as server:
        made = await rigged(server, hermes)
        server.events.run_started(made.name, None, Origin.BACKGROUND)
        made.tool()
        send = {"conversation_id": made.name, "client_message_id": "s1", "text": "words", "if_busy": "steer"}
        made.client.send({"type": "message.send", "id": "steer", **send})
        await hermes.asked.wait()
        yield made


async def test_refused_after_its_run_has_ended_it_runs_under_the_promised_id(slow: Rig) -> None:
    slow.events.run_ended(slow.name, DONE)
    other = await slow.client.request("message.send", conversation_id=slow.name, client_message_id="m2", text="later")
    assert other["receipt"]["disposition"] == "queued"
    slow.hermes.answer.set_result(False)
    taken = await slow.hermes.handed_over.get()
    receipt = await slow.receipt()
    assert (taken.text, taken.run_id, receipt["disposition"]) == ("words", receipt["run_id"], "queued")
    assert slow.events.run_started(slow.name, taken.message_id, Origin.CHAT) == receipt["run_id"]
    slow.events.run_ended(slow.name, DONE)
    assert (await slow.hermes.handed_over.get()).text == "later"
    assert (await slow.receipt())["state"] == "done"


@pytest.mark.parametrize("taken", [True, False])
async def test_a_deletion_waits_for_words_that_are_on_their_way(slow: Rig, taken: bool) -> None:
    slow.client.send({"type": "conversation.delete", "id": "d", "conversation_id": slow.name})
    await asyncio.sleep(0)
    slow.events.run_ended(slow.name, RunResult(outcome=Outcome.CANCELLED))
    slow.hermes.answer.set_result(taken)
    await slow.client.until("conversation.delete.result")
    await slow.client.request("ping")
    told = [frame["type"] for frame in slow.client.seen if frame.get("conversation_id") == slow.name]
    assert told[-1] == "conversation.deleted"
    assert slow.hermes.handed_over.empty()


async def test_a_cancel_of_words_that_are_refused_then_drops_them(slow: Rig) -> None:
    slow.client.send({"type": "run.cancel", "id": "c", "client_message_id": "s1"})
    await slow.client.until("run.cancel.result")
    slow.hermes.answer.set_result(False)
    slow.events.run_ended(slow.name, RunResult(outcome=Outcome.CANCELLED))
    await slow.events.settled()
    assert slow.hermes.handed_over.empty()
    assert (await slow.receipt())["state"] == "done"


async def test_what_may_have_reached_the_run_is_never_sent_again(slow: Rig) -> None:
    slow.hermes.answer.set_exception(ConnectionError())
    answer = await slow.client.until("message.send.result")
    assert answer["receipt"]["state"] == "indeterminate"
    slow.events.run_ended(slow.name, DONE)
    await slow.client.request("ping")
    assert slow.hermes.handed_over.empty()


async def test_taken_after_another_run_began_it_ends_no_other(slow: Rig) -> None:
    slow.events.run_ended(slow.name, DONE)
    slow.events.run_started(slow.name, None, Origin.BACKGROUND)
    slow.hermes.answer.set_result(True)
    await slow.client.until("message.send.result")
    assert (await slow.receipt())["state"] == "done"
    assert len(slow.server.runs.open_runs()) == 1
