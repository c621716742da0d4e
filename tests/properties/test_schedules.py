"""Any order of events, cuts, duplicates, slow readers and restarts: clients end with what the server has (R-S5, G1).

`--schedules N` sets how many are played; `make soak` plays 10,000.
"""

from __future__ import annotations

import asyncio
import random
import tempfile

import pytest

from pheby_protocol.client_state import shown
from pheby_protocol.ids import ConversationId, MessageId
from pheby_protocol.messages.approval import ApprovalKind, DecisionSource
from pheby_protocol.messages.message import Origin
from pheby_server.auth import Authenticator
from pheby_server.config import ServerConfig
from pheby_server.ports import (
    ApprovalPrompt,
    ClarificationPrompt,
    Outcome,
    RunResult,
    SubagentStart,
    ToolResult,
    ToolStart,
)
from pheby_server.server import Server
from pheby_server.testing import CountedIds, FakeClock, ManualHermes
from tests.properties.phone import Phone

KINDS = ("messages", "runs", "tool_calls", "approvals", "clarifications", "conversations")


class World:
    """One server with its Hermes, in which anything may happen."""

    def __init__(self, seed: int, folder: str) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.clock, self.ids, self.hermes = FakeClock(), CountedIds(), ManualHermes()
        self.phones = [Phone("one"), Phone("two")]
        self.names: list[ConversationId] = []
        self.running: dict[ConversationId, list[MessageId]] = {}
        self.calls: dict[ConversationId, list[str]] = {}
        self.children: dict[ConversationId, list[str]] = {}
        self.keys: dict[ConversationId, list[tuple[str, str]]] = {}
        self.number = 0

    async def start(self) -> None:
        config = ServerConfig(storage=self.folder)
        self.server = Server(config, self.hermes, Authenticator(()), clock=self.clock, ids=self.ids)
        await self.server.start()
        self.running, self.calls, self.children, self.keys = {}, {}, {}, {}

    async def restart(self) -> None:
        for phone in self.phones:
            if phone.line is not None:
                phone.cut()
        if self.chance.random() < 0.5:
            await self.server.stop()
        else:
            await self.server.runs.stop()
            await self.server._sequencer.stop()
            await self.server._store.close()
        await self.start()

    def next(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}"

    async def step(self) -> None:
        steps = [self.create, self.begin, self.say, self.end, self.tool, self.prompt, self.child, self.send]
        steps += [self.connect, self.cut, self.read, self.read, self.say, self.restart]
        await self.chance.choice(steps)()
        self.clock.move(self.chance.choice([0.0, 0.01, 1.5]))
        if self.chance.random() < 0.5:
            await self.server.events.settled()

    async def create(self) -> None:
        made = await self.server.conversations.create(self.next("c"), None)  # type: ignore[arg-type]
        self.names.append(made.conversation_id)

    def somewhere(self, *, busy: bool) -> ConversationId | None:
        found = [name for name in self.names if (name in self.running) is busy]
        return self.chance.choice(found) if found else None

    async def begin(self) -> None:
        name = self.somewhere(busy=False)
        if name is not None and not self.server.runs.is_busy(name):
            self.server.events.run_started(name, None, Origin.BACKGROUND)
            self.running[name], self.calls[name], self.keys[name] = [], [], []

    async def say(self) -> None:
        name = self.somewhere(busy=True)
        if name is None:
            return
        texts, events = self.running[name], self.server.events
        if not texts or self.chance.random() < 0.3:
            texts.append(events.message_started(name, "a"))
        elif self.chance.random() < 0.2:
            events.message_ended(texts[-1], interim=True)
        elif self.chance.random() < 0.2:
            events.message_replaced(texts[-1], "changed")
        else:
            events.message_appended(texts[-1], self.next(" w"))

    async def end(self) -> None:
        name = self.somewhere(busy=True)
        if name is not None:
            del self.running[name]
            outcome = self.chance.choice(list(Outcome))
            self.server.events.run_ended(name, RunResult(outcome=outcome))

    async def tool(self) -> None:
        name = self.somewhere(busy=True)
        if name is None:
            return
        if self.calls[name] and self.chance.random() < 0.5:
            result = ToolResult(call_id=self.calls[name].pop(), outcome=self.chance.choice(list(Outcome)))
            self.server.events.tool_ended(name, result)
            return
        call_id = self.next("call")
        self.calls[name].append(call_id)
        start = ToolStart(call_id=call_id, name="t", description=None, arguments={}, arguments_truncated=False)
        self.server.events.tool_started(name, start)

    async def prompt(self) -> None:
        name = self.somewhere(busy=True)
        if name is None:
            return
        events, by = self.server.events, self.chance.choice([DecisionSource.TIMEOUT, DecisionSource.RUN_END])
        if self.keys[name] and self.chance.random() < 0.5:
            kind, key = self.keys[name].pop()
            if kind == "approval":
                events.approval_closed(name, key, None, by)
            else:
                events.clarification_closed(name, key, by)
            return
        key = self.next("key")
        if self.chance.random() < 0.5:
            self.keys[name].append(("approval", key))
            events.approval_requested(
                name,
                ApprovalPrompt(
                    key=key,
                    kind=ApprovalKind.COMMAND,
                    description="d",
                    command="c",
                    command_truncated=False,
                    pattern=None,
                    choices=("once", "deny"),
                    call_id=None,
                    answerable=True,
                    expires_at=None,
                ),
            )
        else:
            self.keys[name].append(("clarification", key))
            events.clarification_requested(
                name,
                ClarificationPrompt(
                    key=key,
                    question="q",
                    labels=("a", "b"),
                    multiple=False,
                    free_text=True,
                    skippable=True,
                    call_id=None,
                    expires_at=None,
                ),
            )

    async def child(self) -> None:
        name = self.chance.choice(self.names) if self.names else None
        if name is None:
            return
        open_ones = self.children.setdefault(name, [])
        if open_ones and self.chance.random() < 0.6:
            self.server.events.subagent_ended(name, open_ones.pop(), RunResult(outcome=Outcome.COMPLETED))
        elif name in self.running:
            key = self.next("child")
            open_ones.append(key)
            self.server.events.subagent_started(name, SubagentStart(key=key, parent=None, call_id=None, goal="look"))

    async def send(self) -> None:
        phone = self.chance.choice(self.phones)
        if phone.line is not None and phone.state.in_step and self.names:
            name = self.chance.choice(self.names)
            request = {"conversation_id": name, "client_message_id": self.next("m"), "text": "hello"}
            phone.line.send({"type": "message.send", "id": self.next("r"), **request})
            await asyncio.sleep(0)
            # A Hermes that takes what it is given, and works on it later or never.
            while not self.hermes.handed_over.empty():
                taken = self.hermes.handed_over.get_nowait()
                if taken.conversation_id not in self.running and self.chance.random() < 0.7:
                    self.server.events.run_started(taken.conversation_id, taken.message_id, Origin.CHAT)
                    where = taken.conversation_id
                    self.running[where], self.calls[where], self.keys[where] = [], [], []

    async def connect(self) -> None:
        phone = self.chance.choice(self.phones)
        if phone.line is not None:
            phone.cut()
        await phone.connect(self.server, self.chance)

    async def cut(self) -> None:
        phone = self.chance.choice(self.phones)
        if phone.line is not None:
            phone.cut()

    async def read(self) -> None:
        phone = self.chance.choice(self.phones)
        if phone.line is not None:
            await phone.read(self.chance.randrange(12), self.chance)


async def play(seed: int) -> None:
    """One schedule; afterwards two clients that came and went and one that only reads agree about everything."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(seed, folder)
        await world.start()
        for _ in range(world.chance.randrange(5, 40)):
            await world.step()
        for phone in world.phones:
            if phone.line is None:
                await phone.connect(world.server, world.chance)
        await world.server.events.settled()
        reader = Phone("reader")
        await reader.connect(world.server, world.chance)
        for phone in (*world.phones, reader):
            await phone.in_step(world.chance)
        for name in world.names:
            for phone in (*world.phones, reader):
                await phone.whole_history(name)
        clients = (*world.phones, reader)
        # What waited for Hermes may be handed over meanwhile.
        while {phone.state.cursor for phone in clients} != {world.server.published_seq}:
            for phone in clients:
                await phone.in_step(world.chance)
        told = [{kind: shown(phone.state)[kind] for kind in KINDS} for phone in (*world.phones, reader)]
        assert told[0] == told[2], f"seed {seed}: the first client"
        assert told[1] == told[2], f"seed {seed}: the second client"
        for phone in (*world.phones, reader):
            phone.cut()
        await world.server.stop()


@pytest.mark.parametrize("part", range(10))
def test_clients_end_with_what_the_server_has(part: int, request: pytest.FixtureRequest) -> None:
    """G1, G7, R-S5."""
    schedules: int = request.config.getoption("--schedules")
    for seed in range(part, schedules, 10):
        asyncio.run(asyncio.wait_for(play(seed), 30))
