"""Two clients and a thousand operations of every kind: both end with what is there (R-B3, R-B5, G7)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pheby_protocol.client_state import digest, shown
from pheby_protocol.ids import ConversationId
from pheby_server.auth import Authenticator
from pheby_server.config import ServerConfig
from pheby_server.server import Server
from pheby_server.simulated import Approve, Ask, Begin, End, Pause, Say, Segment, SimulatedHermes, Step
from pheby_server.system import RandomIds, SystemClock
from tests.properties.phone import Phone

OPERATIONS = 1_000


def script(text: str) -> Iterable[Step]:
    """Talks, uses a tool, asks whether it may, or asks back."""
    kind = int(text.split()[0]) % 4
    yield Say("I think ")
    if kind:
        yield Segment()
        call = Begin("tool", {"command": text})
        yield call
        if kind == 2:
            yield Approve(call, "delete", "rm")
        if kind == 3:
            yield Ask(call, "Which?", ("a", "b"), multiple=True)
        yield End(call, "done")
    yield Pause(0.001)
    yield Say(f"about {text}")


async def test_two_clients_agree_after_a_thousand_operations(tmp_path: Path) -> None:
    chance = random.Random(5)
    hermes = SimulatedHermes(SystemClock(), script)
    server = Server(
        ServerConfig(storage=str(tmp_path)), hermes, Authenticator(()), clock=SystemClock(), ids=RandomIds()
    )
    await server.start()
    hermes.start(server.events)
    phones = [Phone("one"), Phone("two")]
    for phone in phones:
        await phone.connect(server, chance)
        await phone.in_step(chance)
    for number in range(OPERATIONS):
        phone = chance.choice(phones)
        await operate(phone, number, chance)
        if chance.random() < 0.02:
            phone.cut()
            await phone.connect(server, chance)
            await phone.in_step(chance)
    hermes.prompt_seconds = 0.0
    for phone in phones:
        await answer_all(phone)
    async with asyncio.timeout(60):
        while server.runs.open_runs():
            await asyncio.sleep(0.01)
            for phone in phones:
                await phone.in_step(chance)
                await answer_all(phone)
    reader = Phone("reader")
    await reader.connect(server, chance)
    await reader.in_step(chance)
    for name in reader.state.conversations:
        await reader.whole_history(name)
    everybody = (*phones, reader)
    while {phone.state.cursor for phone in everybody} != {server.published_seq}:
        for phone in everybody:
            await phone.in_step(chance)
    assert digest(phones[0].state) == digest(phones[1].state)
    for kind in ("messages", "runs", "tool_calls", "approvals", "clarifications"):
        assert shown(phones[0].state)[kind] == shown(reader.state)[kind]
    assert {found.reasoning_effort for found in reader.state.conversations.values()} >= {"low", "high"}
    statuses = {run.status.value for run in reader.state.runs.values()}
    assert statuses >= {"completed", "cancelled"}
    for phone in everybody:
        phone.cut()
    await hermes.stop()
    await server.stop()


async def operate(phone: Phone, number: int, chance: random.Random) -> None:
    """One thing that an owner does; whatever the answer, it is applied."""
    names = sorted(phone.state.conversations)
    name = chance.choice(names) if names else None
    runs = sorted(run.run_id for run in phone.state.runs.values() if run.ended_at is None)
    what = chance.random()
    if name is None or (what < 0.06 and len(names) < 12):
        await phone.ask("conversation.create", client_conversation_id=f"c{number}")
    elif what < 0.5:
        busy = chance.choice(["queue", "queue", "interrupt", "reject", "steer", "steer"])
        fields: dict[str, Any] = {"client_message_id": f"m{number}", "text": f"{number} words", "if_busy": busy}
        await phone.ask("message.send", conversation_id=name, **fields)
    elif what < 0.6 and runs:
        await phone.ask("run.cancel", run_id=chance.choice(runs), drop_queued=chance.random() < 0.3)
    elif what < 0.8:
        await answer_all(phone)
    elif what < 0.85:
        await phone.ask("conversation.rename", conversation_id=name, title=f"Title {number % 7}")
    elif what < 0.88 and len(names) > 4:
        await phone.ask("conversation.delete", conversation_id=name)
    elif what < 0.91:
        model, effort = f"scripted-{chance.randint(1, 2)}", chance.choice(["low", "high"])
        await phone.ask("model.select", conversation_id=name, provider="scripted", model=model)
        await phone.ask("reasoning.select", conversation_id=name, effort=effort)
    elif what < 0.95:
        await phone.whole_history(ConversationId(name))
    else:
        await phone.ask("conversation.list")


async def answer_all(phone: Phone) -> None:
    """Answer what waits; the other client may have been faster."""
    for approval in [found for found in phone.state.approvals.values() if found.status == "pending"]:
        await phone.ask("approval.respond", approval_id=approval.approval_id, choice="once")
    for asked in [found for found in phone.state.clarifications.values() if found.status == "pending"]:
        chosen = [choice.choice_id for choice in asked.choices[:1]]
        await phone.ask("clarification.respond", clarification_id=asked.clarification_id, choice_ids=chosen)
