"""Two devices and operations of every kind on one gateway: both end with what is there (R-B3, R-B5, G1, G5).

`--operations N` sets how many. The same on the core alone, a thousand: tests/properties/test_two_clients.py.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from device import Device, level

from pheby_protocol.client_state import digest, shown

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXTS = ("say {}", "say {}", "slow 8", "tools /etc/hosts|/etc/hostname")
KINDS = {"send": 8, "cancel": 3, "rename": 3, "history": 3, "list": 1, "create": 1, "delete": 1}
"""With how often each comes."""
MOST_CONVERSATIONS = 5
MOST_RUNS = 4
"""Beyond so many open ones the next send waits: it is not about the length of a queue."""
BETWEEN_CUTS = 12


async def test_two_devices_agree_with_each_other_and_with_one_that_only_reads(stack, name, request):
    if stack.hermes_defaults:
        return  # settings of the display change nothing about it
    chance = random.Random(11)
    devices = [Device(stack, f"first-{name}"), Device(stack, f"second-{name}")]
    for device in devices:
        await device.connect()
        await device.walk()
    before = set(devices[0].state.conversations)
    for number in range(request.config.getoption("--operations")):
        if number % BETWEEN_CUTS == BETWEEN_CUTS - 1:
            away, here = devices if number // BETWEEN_CUTS % 2 else devices[::-1]
            await away.cut()
            await operate(here, before, f"{number}-{name}", chance)
            await away.connect()
        else:
            await operate(chance.choice(devices), before, f"{number}-{name}", chance)
    await one_cancels_what_the_other_sent(*devices, name)
    for device in devices:
        while open_runs(device, before):
            await device.hear()
    reader = Device(stack, f"reader-{name}")
    await reader.connect()
    await reader.walk()
    for conversation_id in sorted(set(reader.state.conversations) - before):
        await reader.history(conversation_id)
    async with asyncio.timeout(60):
        await level(*devices, reader)
    first, second, read = (shown(device.state) for device in (*devices, reader))
    assert first == second
    assert digest(devices[0].state) == digest(devices[1].state)
    assert first["conversations"] == read["conversations"]
    for kind in ("messages", "runs", "tool_calls"):
        assert ours(first[kind], before) == ours(read[kind], before), kind
    assert {run["status"] for run in ours(read["runs"], before).values()} >= {"completed", "cancelled"}
    # Each came back to where it had been.
    assert all(all(device.resumed[1:]) for device in devices)
    for device in (*devices, reader):
        await device.cut()


async def operate(device: Device, before: set[str], name: str, chance: random.Random) -> None:
    """One thing that an owner does; whatever the answer, it is applied."""
    conversations = sorted(set(device.state.conversations) - before)
    conversation_id = chance.choice(conversations) if conversations else None
    (kind,) = chance.choices(list(KINDS), list(KINDS.values()))
    if conversation_id is None or (kind == "create" and len(conversations) < MOST_CONVERSATIONS):
        await device.ask("conversation.create", client_conversation_id=f"c-{name}")
        return
    match kind:
        case "send":
            while len(open_runs(device, before)) >= MOST_RUNS:
                await device.hear()
            text = chance.choice(TEXTS).format(name)
            await device.ask("message.send", conversation_id=conversation_id, client_message_id=f"m-{name}", text=text)
        case "cancel" if runs := open_runs(device, before):
            await device.ask("run.cancel", run_id=chance.choice(runs), drop_queued=chance.random() < 0.3)
        case "rename":
            await device.ask("conversation.rename", conversation_id=conversation_id, title=f"Title {name}")
        case "delete" if len(conversations) > 2:
            await device.ask("conversation.delete", conversation_id=conversation_id)
        case "history":
            await device.history(conversation_id)
        case _:
            await device.walk()


async def one_cancels_what_the_other_sent(one: Device, other: Device, name: str) -> None:
    """What comes of chance may have left no cancelled run, and no completed one."""
    made = await one.ask("conversation.create", client_conversation_id=f"last-{name}")
    where = {"conversation_id": made["conversation"]["conversation_id"]}
    await one.ask("message.send", **where, client_message_id=f"said-{name}", text="say something")
    sent = await one.ask("message.send", **where, client_message_id=f"last-{name}", text="slow 100")
    run_id = sent["receipt"]["run_id"]
    while one.state.runs[run_id].started_at is None:
        await one.hear()
    assert (await other.ask("run.cancel", run_id=run_id))["type"] == "run.cancel.result"


def open_runs(device: Device, before: set[str]) -> list[str]:
    """The runs that the device knows as not ended, outside of conversations that were there before."""
    return sorted(
        run.run_id for run in device.state.runs.values() if run.ended_at is None and run.conversation_id not in before
    )


def ours(items: dict[str, Any], before: set[str]) -> dict[str, Any]:
    return {key: item for key, item in items.items() if item["conversation_id"] not in before}
