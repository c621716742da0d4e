"""Events into the log, 64 a transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from pheby_protocol.codec import encode
from pheby_protocol.ids import ConversationId, Seq, Time
from pheby_protocol.messages.model import ModelChanged, ModelChoice
from pheby_server.event_log import EventLog
from pheby_server.sequencer import Change, Sequencer
from pheby_server.stores import LoggedFrame, Store, append_events
from pheby_server.system import RandomIds, SystemClock

from .measuring import Samples, interleaved, pin, repeats, server_core

ROWS = ("append", "append-sequenced")
GROUP = 64
NAME = ConversationId("conv_12345678901234567")
MAKER = partial(ModelChanged, conversation_id=NAME, current=ModelChoice(provider="provider", model="x" * 62))
FRAME = encode(MAKER(seq=Seq(1), time=Time(1_796_050_000_000)))

Work = Callable[[str, int], Awaitable[None]]


async def into_store(folder: str, events: int) -> None:
    """Frames that are encoded already."""
    store = Store(folder, lambda: 0)
    await store.open()
    for first in range(1, events, GROUP):
        frames = [LoggedFrame(Seq(seq), Time(0), NAME, FRAME) for seq in range(first, first + GROUP)]
        await store.transact(append_events(frames))
    await store.close()


async def through_sequencer(folder: str, events: int) -> None:
    """Events as a desk makes them."""
    store, clock = Store(folder, lambda: 0), SystemClock()
    await store.open()
    log = await EventLog.load(store, RandomIds(), clock.now_ms())
    sequencer = Sequencer(store, log, clock, lambda _: None)
    sequencer.start()
    for _ in range(1, events, GROUP):
        for _ in range(GROUP):
            sequencer.log(Change((MAKER,)))
        await sequencer.settled()
    await sequencer.stop()
    await store.close()


async def bare(folder: str, events: int) -> None:
    database = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute(
        "CREATE TABLE events"
        " (seq INTEGER PRIMARY KEY, conversation_id TEXT NOT NULL, frame TEXT NOT NULL, time INTEGER NOT NULL)"
    )
    database.execute("CREATE INDEX events_of_conversation ON events (conversation_id)")
    for first in range(1, events, GROUP):
        rows = [(seq, NAME, FRAME, 0) for seq in range(first, first + GROUP)]
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        database.execute("COMMIT")
    database.close()


def rate(work: Work, events: int) -> float:
    """Events per second."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        asyncio.run(work(folder, events))  # type: ignore[arg-type]
        return events / (time.perf_counter() - start)


def measure(quick: bool) -> Samples:
    pin(server_core())
    events = GROUP * (20 if quick else 1_000)

    def pheby() -> dict[str, float]:
        return {"append": rate(into_store, events), "append-sequenced": rate(through_sequencer, events)}

    def theirs() -> dict[str, float]:
        return dict.fromkeys(ROWS, rate(bare, events))

    return interleaved(repeats(quick), pheby, theirs)
