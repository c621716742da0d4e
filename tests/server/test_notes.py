"""What the owner was shown outside of any run reaches the agent with their next words, once (R-I1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_server import runs
from pheby_server.ports import Bound, Delivery, HandOver, HermesMessage, Outcome, RunResult, Unavailable
from pheby_server.runs import MAX_NOTES, NOTE_CHARS
from pheby_server.server import Server
from pheby_server.testing import FakeClock, ManualHermes, MemoryTransport, running_server

NAME = ConversationId("conv_1000000000000000")
DONE = RunResult(outcome=Outcome.COMPLETED)


class Hermes(ManualHermes):
    """Refuses hand-overs while `refuses` is above 0, and reads its rows only when `rows_open` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = 0
        self.rows_open, self.asked = asyncio.Event(), asyncio.Event()
        self.rows_open.set()
        self.broken = False

    async def hand_over(self, message: HandOver) -> None:
        if self.refuses:
            self.refuses -= 1
            raise Unavailable
        await super().hand_over(message)

    async def bind(self, *args: Any) -> Sequence[Bound]:
        self.asked.set()
        await self.rows_open.wait()
        if self.broken:
            raise OSError("no rows")
        return await super().bind(*args)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder, self.hermes, self.clock = folder, Hermes(), FakeClock()
        self.server: Server
        self.client: MemoryTransport
        self.count = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with running_server(str(self.folder), self.hermes, clock=self.clock) as self.server:
            self.client = MemoryTransport(self.server)
            await self.client.hello()
            yield

    async def deliver(self, text: str) -> None:
        delivery = Delivery(text=text, origin=Origin.CRON, role=MessageRole.ASSISTANT, for_model=True)
        await self.server.events.deliver(NAME, delivery)

    async def say(self, text: str = "hello") -> str:
        self.count += 1
        name = f"m{self.count}"
        answer = await self.client.request("message.send", conversation_id=NAME, client_message_id=name, text=text)
        assert answer["type"] == "message.send.result"
        return name

    async def handed_over(self) -> HandOver:
        async with asyncio.timeout(3):
            return await self.hermes.handed_over.get()

    async def told(self) -> str:
        """What the agent is told before the owner's next words; their run begins and ends."""
        name = await self.say()
        message = await self.handed_over()
        assert message.message_id == (await self.receipt(name))["message_id"]
        self.run(message)
        await self.server.events.settled()
        return message.context

    def run(self, message: HandOver) -> None:
        self.server.events.run_started(NAME, message.message_id, Origin.CHAT)
        self.server.events.run_ended(NAME, DONE)

    async def receipt(self, name: str) -> dict[str, Any]:
        answer = await self.client.request("message.receipt", client_message_id=name)
        found: dict[str, Any] = answer["receipt"]
        return found

    def row(self, text: str, role: MessageRole = MessageRole.ASSISTANT) -> None:
        rows = self.hermes.rows[NAME]
        rows.append(HermesMessage(key=f"row{len(rows)}", role=role, text=text, created_at=len(rows)))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(runs, "RETRY_SECONDS", 0.001)
    return Rig(tmp_path)


async def test_it_is_told_once_in_its_order(rig: Rig) -> None:
    async with rig.running():
        await rig.deliver("one")
        await rig.deliver("two")
        assert await rig.told() == "one\n\ntwo"
        assert await rig.told() == ""
        await rig.deliver("three")
        assert await rig.told() == "three"


async def test_it_is_told_after_a_restart(rig: Rig) -> None:
    async with rig.running():
        await rig.deliver("one")
    async with rig.running():
        assert await rig.told() == "one"
    async with rig.running():
        assert await rig.told() == ""


async def test_what_hermes_has_told_by_itself_is_not_told_again(rig: Rig) -> None:
    async with rig.running():
        await rig.deliver("mirrored")
        await rig.deliver("only here")
        rig.row("mirrored")
        assert await rig.told() == "only here"
        assert await rig.told() == ""


async def test_what_is_not_for_the_agent_is_not_told(rig: Rig) -> None:
    async with rig.running():
        await rig.deliver("makes it")
        await rig.told()
        notice = Delivery(text="notice", origin=Origin.SYSTEM, role=MessageRole.NOTICE)
        await rig.server.events.deliver(NAME, notice)
        assert await rig.told() == ""


async def test_only_the_newest_are_told_and_older_ones_not_later(rig: Rig) -> None:
    """R-M2: later they would come in the wrong order."""
    async with rig.running():
        for number in range(MAX_NOTES + 3):
            await rig.deliver(f"{number}" + "x" * NOTE_CHARS)
        told = (await rig.told()).split("\n\n")
        assert [each[0] for each in told] == [str(number) for number in range(3, MAX_NOTES + 3)]
        assert {len(each) for each in told} == {NOTE_CHARS}
        assert await rig.told() == ""


async def test_a_hermes_that_is_not_free_after_all_is_told_when_it_is(rig: Rig) -> None:
    """R-M4: also what came meanwhile."""
    async with rig.running():
        await rig.deliver("one")
        rig.hermes.refuses = 3
        assert await rig.told() == "one"
        assert await rig.told() == ""


@pytest.mark.parametrize("reached", [True, False])
async def test_a_death_between_the_hand_over_and_the_run(rig: Rig, reached: bool) -> None:
    """R-M4, R-C2: told again only where Hermes has not got it."""
    async with rig.running():
        await rig.deliver("one")
        await rig.say("question")
        message = await rig.handed_over()
        assert message.context == "one"
    if reached:
        rig.row("question", MessageRole.USER)
    async with rig.running():
        if not reached:
            again = await rig.handed_over()
            assert (again.message_id, again.context) == (message.message_id, "one")
            rig.run(again)
        assert await rig.told() == ""


async def test_rows_that_cannot_be_read_hold_up_nobody(rig: Rig) -> None:
    """R-M4: better late than twice."""
    async with rig.running():
        await rig.deliver("one")
        rig.hermes.broken = True
        assert await rig.told() == ""
        rig.hermes.broken = False
        assert await rig.told() == "one"


async def test_a_send_that_is_cancelled_while_rows_are_read_is_never_handed_over(rig: Rig) -> None:
    """R-C4, R-C3: its run has ended."""
    async with rig.running():
        await rig.deliver("one")
        rig.hermes.rows_open.clear()
        name = await rig.say()
        await rig.hermes.asked.wait()
        answer = await rig.client.request("run.cancel", client_message_id=name)
        assert answer["run"]["status"] == "cancelled"
        rig.hermes.rows_open.set()
        assert await rig.told() == "one"
        assert rig.hermes.handed_over.empty()
        assert (await rig.receipt(name))["state"] == "done"


async def test_a_conversation_that_is_deleted_while_rows_are_read_hands_nothing_over(rig: Rig) -> None:
    """R-B4."""
    async with rig.running():
        await rig.deliver("one")
        rig.hermes.rows_open.clear()
        await rig.say()
        await rig.hermes.asked.wait()
        answer = await rig.client.request("conversation.delete", conversation_id=NAME)
        assert answer["type"] == "conversation.delete.result"
        rig.hermes.rows_open.set()
        await rig.server.events.settled()
        while any("_hand_over" in repr(task) for task in asyncio.all_tasks()):
            await asyncio.sleep(0)
        assert rig.hermes.handed_over.empty()


async def test_a_run_of_hermess_own_that_begins_while_rows_are_read_comes_first(rig: Rig) -> None:
    """R-C5."""
    async with rig.running():
        await rig.deliver("one")
        rig.hermes.rows_open.clear()
        await rig.say()
        await rig.hermes.asked.wait()
        rig.server.events.run_started(NAME, None, Origin.BACKGROUND)
        rig.hermes.rows_open.set()
        await rig.server.events.settled()
        while any("_hand_over" in repr(task) for task in asyncio.all_tasks()):
            await asyncio.sleep(0)
        assert rig.hermes.handed_over.empty()
        rig.server.events.run_ended(NAME, DONE)
        assert (await rig.handed_over()).context == "one"
