"""Coming back: what was missed is told in order, once, and then the client is in step (R-S1, R-S5, G1, G3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.client_state import ClientState, apply, digest, lost
from pheby_protocol.codec import structure
from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.message import Origin
from pheby_server.outbox import PACE_FRAMES
from pheby_server.ports import Outcome, RunResult, SubagentStart
from pheby_server.server import MAX_REPLAYS, Server
from pheby_server.testing import ManualHermes, MemoryTransport, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)


class Phone:
    """A client that keeps its state over its connections, as the reducer says."""

    def __init__(self, server: Server, name: str = "phone") -> None:
        self.server, self.name = server, name
        self.state = ClientState()
        self.line: MemoryTransport | None = None
        self._applied = 0

    async def connect(self, **fields: Any) -> dict[str, Any]:
        """Come back from the stored cursor; the welcome."""
        self.line, self._applied = MemoryTransport(self.server), 0
        if self.state.cursor is not None and "resume" not in fields:
            fields["resume"] = {"epoch": self.state.epoch, "seq": self.state.cursor}
        welcome = await self.line.hello(device_id=self.name, **fields)
        self.take()
        return welcome

    def take(self) -> None:
        """Apply what has come."""
        assert self.line is not None
        for frame in self.line.seen[self._applied :]:
            if "id" not in frame or frame["type"] == "welcome":
                self.state = apply(self.state, structure(frame))
        self._applied = len(self.line.seen)

    async def catch_up(self) -> None:
        """Apply everything up to now."""
        assert self.line is not None
        await self.server.events.settled()
        await self.line.request("ping")
        self.take()

    def cut(self) -> None:
        assert self.line is not None
        self.take()
        self.line.cut()
        self.state = lost(self.state)


class Rig:
    def __init__(self, server: Server) -> None:
        self.server, self.events = server, server.events

    async def create(self, name: str = "c1") -> ConversationId:
        line = MemoryTransport(self.server)
        await line.hello(device_id="maker")
        made = await line.request("conversation.create", client_conversation_id=name)
        line.cut()
        return ConversationId(made["conversation"]["conversation_id"])

    def run(self, where: ConversationId, *texts: str) -> None:
        """A run that says these texts."""
        self.events.run_started(where, None, Origin.BACKGROUND)
        for text in texts:
            self.events.message_ended(self.events.message_started(where, text), interim=True)
        self.events.run_ended(where, DONE)

    async def fresh(self) -> Phone:
        """A client that was never here before."""
        phone = Phone(self.server, "fresh")
        await phone.connect()
        return phone


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        yield Rig(server)


def types(phone: Phone) -> list[str]:
    assert phone.line is not None
    return [frame["type"] for frame in phone.line.seen]


async def test_what_was_missed_is_told_in_order_and_then_what_comes(rig: Rig) -> None:
    where = await rig.create()
    phone = Phone(rig.server)
    await phone.connect()
    phone.cut()
    rig.run(where, "one", "two")
    welcome = await phone.connect()
    assert welcome["resumed"] is True
    assert "snapshot" not in types(phone)
    assert types(phone)[-1] == "sync.completed"
    assert phone.line is not None
    seqs = [frame["seq"] for frame in phone.line.seen[1:-1]]
    assert seqs == sorted(seqs)
    assert phone.line.seen[-1]["seq"] == seqs[-1] == rig.server.published_seq
    rig.run(where, "three")
    await phone.catch_up()
    assert [message.text for message in phone.state.messages.values()] == ["one", "two", "three"]


async def test_nothing_missed_is_nothing_told(rig: Rig) -> None:
    phone = Phone(rig.server)
    await rig.create()
    await phone.connect()
    phone.cut()
    await phone.connect()
    assert types(phone) == ["welcome", "sync.completed"]


async def test_a_text_that_still_streams_is_as_it_is_now(rig: Rig) -> None:
    """C5: the deltas that were missed are not in the log."""
    where = await rig.create()
    phone = Phone(rig.server)
    await phone.connect()
    rig.events.run_started(where, None, Origin.BACKGROUND)
    message_id = rig.events.message_started(where, "Hel")
    await phone.catch_up()
    phone.cut()
    rig.events.message_appended(message_id, "lo, ")
    await phone.connect()
    assert types(phone)[-2:] == ["message.replaced", "sync.completed"]
    rig.events.message_appended(message_id, "world")
    await phone.catch_up()
    (message,) = phone.state.messages.values()
    assert message.text == "Hello, world"
    assert phone.state.needs_text == frozenset()


async def test_a_text_that_ended_meanwhile_is_whole(rig: Rig) -> None:
    where = await rig.create()
    phone = Phone(rig.server)
    await phone.connect()
    rig.events.run_started(where, None, Origin.BACKGROUND)
    message_id = rig.events.message_started(where, "Hel")
    await phone.catch_up()
    phone.cut()
    rig.events.message_appended(message_id, "lo")
    rig.events.message_ended(message_id, interim=False)
    rig.events.run_ended(where, DONE)
    await phone.connect()
    (message,) = phone.state.messages.values()
    assert (message.text, message.status) == ("Hello", "completed")


@pytest.mark.parametrize(
    "resume",
    [
        {"epoch": "another", "seq": 1},
        {"seq": 10**9},
        {"seq": -1},
        {"seq": "many"},
        {"epoch": 5, "seq": 1},
        {"seq": None},
        {"seq": 2**60},
        {"seq": 1.5},
        "nonsense",
        [],
    ],
)
async def test_any_other_cursor_gets_a_snapshot_on_the_same_socket(rig: Rig, resume: Any) -> None:
    where = await rig.create()
    rig.run(where, "one")
    phone = Phone(rig.server)
    await phone.connect()
    epoch = phone.state.epoch
    phone.cut()
    given = {"epoch": epoch} | resume if isinstance(resume, dict) else resume
    welcome = await phone.connect(resume=given)
    assert welcome["resumed"] is False
    assert "snapshot" in types(phone)
    assert types(phone)[-1] == "sync.completed"


async def test_below_what_is_kept_there_is_a_snapshot(tmp_path: Path) -> None:
    """G3: pruned."""
    async with running_server(str(tmp_path), ManualHermes(), log_events=100) as server:
        rig = Rig(server)
        where = await rig.create()
        phone = Phone(server)
        await phone.connect()
        phone.cut()
        for number in range(600):
            rig.run(where, f"text {number}")
        await server.events.settled()
        welcome = await phone.connect()
        assert welcome["resumed"] is False
        # From the snapshot on it can be resumed again.
        phone.cut()
        rig.run(where, "last")
        assert (await phone.connect())["resumed"] is True


async def test_a_slow_client_is_told_at_its_own_pace_and_counts_for_nothing(rig: Rig) -> None:
    """G5: a replay waits in the store, not in memory, and no other client waits for it."""
    where = await rig.create()
    phone, other = Phone(rig.server), Phone(rig.server, "other")
    await phone.connect()
    await other.connect()
    phone.cut()
    for number in range(300):
        rig.run(where, f"text {number}")
    await rig.events.settled()
    slow = MemoryTransport(rig.server)
    hello = {"name": "slow", "version": "1", "device_id": "slow"}
    resume = {"epoch": phone.state.epoch, "seq": phone.state.cursor}
    slow.send({"type": "hello", "id": "1", "protocol_versions": [1], "client": hello, "resume": resume})
    await other.catch_up()
    waiting = slow.session._outbox
    assert len(waiting._frames) <= PACE_FRAMES + 1
    assert waiting.live_frames == 0
    rig.run(where, "meanwhile")
    await slow.until("sync.completed")
    said = [frame["message"]["text"] for frame in slow.seen if frame["type"] == "message.completed"]
    assert said == [f"text {number}" for number in range(300)] + ["meanwhile"]


async def test_batches_for_those_who_offered(rig: Rig) -> None:
    where = await rig.create()
    phone = Phone(rig.server)
    await phone.connect()
    phone.cut()
    for number in range(100):
        rig.run(where, f"text {number}")
    await rig.events.settled()
    await phone.connect(capabilities=["batch"])
    assert types(phone) == ["welcome", *["batch"] * (len(types(phone)) - 2), "sync.completed"]
    assert len(phone.state.messages) == 100


async def test_what_is_told_together_is_one_frame_for_those_who_offered(rig: Rig) -> None:
    """R-J2: and the same events, one by one, for the others."""
    where = await rig.create()
    joined, single = Phone(rig.server, "joined"), Phone(rig.server, "single")
    await joined.connect(capabilities=["batch"])
    await single.connect()
    for phone in (joined, single):
        await phone.catch_up()
        assert phone.line is not None
        phone.line.seen.clear()
        phone._applied = 0
    rig.run(where, "all of it at once")
    for phone in (joined, single):
        await phone.catch_up()
    assert types(joined)[0] == "batch"
    assert joined.line is not None
    events = [event for frame in joined.line.seen for event in frame.get("events", [frame])]
    assert [event["type"] for event in events if event["type"] != "pong"] == [
        kind for kind in types(single) if kind != "pong"
    ]
    assert digest(joined.state) == digest(single.state)


async def test_many_come_back_at_once(rig: Rig) -> None:
    where = await rig.create()
    phones = [Phone(rig.server, f"phone-{number}") for number in range(3 * MAX_REPLAYS)]
    for phone in phones:
        await phone.connect()
        phone.cut()
    for number in range(50):
        rig.run(where, f"text {number}")
    await asyncio.gather(*(phone.connect() for phone in phones))
    fresh = (await rig.fresh()).state.cursor
    assert {phone.state.cursor for phone in phones} == {fresh}
    assert len({digest(phone.state) for phone in phones}) == 1


async def test_a_line_that_breaks_in_the_replay_goes_on_from_there(rig: Rig) -> None:
    where = await rig.create()
    phone, control = Phone(rig.server), Phone(rig.server, "control")
    await phone.connect()
    await control.connect()
    phone.cut()
    for number in range(40):
        rig.run(where, f"text {number}")
    await control.catch_up()
    for _ in range(60):
        line = phone.line = MemoryTransport(rig.server)
        phone._applied = 0
        resume = {"epoch": phone.state.epoch, "seq": phone.state.cursor}
        client = {"name": "phone", "version": "1", "device_id": "phone"}
        line.send({"type": "hello", "id": "1", "protocol_versions": [1], "client": client, "resume": resume})
        for _ in range(9):
            if (await line.receive())["type"] == "sync.completed":
                break
        phone.take()
        if line.seen[-1]["type"] == "sync.completed":
            break
        phone.cut()
    assert digest(phone.state) == digest(control.state)


async def test_a_stop_in_a_replay_ends(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        rig = Rig(server)
        where = await rig.create()
        phone = Phone(server)
        await phone.connect()
        phone.cut()
        for number in range(200):
            rig.run(where, f"text {number}")
        await server.events.settled()
        line = MemoryTransport(server)
        client = {"name": "phone", "version": "1", "device_id": "phone"}
        resume = {"epoch": phone.state.epoch, "seq": phone.state.cursor}
        line.send({"type": "hello", "id": "1", "protocol_versions": [1], "client": client, "resume": resume})
        await line.receive()


async def test_clients_that_read_nothing_hold_up_nobody(rig: Rig) -> None:
    """R-M2: more of them than are told at the same time."""
    where = await rig.create()
    phone = Phone(rig.server)
    await phone.connect()
    old = {"epoch": phone.state.epoch, "seq": phone.state.cursor}
    for number in range(400):
        rig.run(where, f"text {number} " + "x" * 500)
    await rig.events.settled()
    for number in range(MAX_REPLAYS + 2):
        client = {"name": "idle", "version": "1", "device_id": f"idle-{number}"}
        idle = MemoryTransport(rig.server)
        idle.send({"type": "hello", "id": "1", "protocol_versions": [1], "client": client, "resume": old})
    await asyncio.sleep(0)
    phone.cut()
    await asyncio.wait_for(phone.connect(), 5)
    assert phone.state.in_step


async def test_a_newcomer_sees_a_text_that_fits_no_frame_in_the_end(rig: Rig) -> None:
    """C5: what is shown of it is said to be behind, so that it is asked for."""
    where = await rig.create()
    rig.events.run_started(where, None, Origin.BACKGROUND)
    message_id = rig.events.message_started(where, "x" * 600_000)
    rig.events.message_appended(message_id, "y" * 600_000)
    await rig.events.settled()
    phone = await rig.fresh()
    rig.events.message_appended(message_id, "END")
    await phone.catch_up()
    assert phone.state.needs_text == {message_id}


async def test_runs_without_an_item_never_make_a_page_too_large(rig: Rig) -> None:
    where = await rig.create()
    rig.run(where, "one")
    for number in range(600):
        start = SubagentStart(key=f"k{number}", parent=None, call_id=None, goal="你" * 500)
        rig.events.subagent_started(where, start)
        rig.events.subagent_ended(where, f"k{number}", DONE)
    await rig.events.settled()
    line = MemoryTransport(rig.server)
    await line.hello()
    page = await line.request("conversation.history", conversation_id=where)
    assert page["type"] == "conversation.history.result", page
    assert [message["text"] for message in page["messages"]] == ["one"]
    assert len(page["runs"]) > 50
