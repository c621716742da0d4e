"""The log of events: what was committed, under which seq, in which epoch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import attrs

from pheby_protocol.ids import Epoch, Seq, Time

from .ports import IdSource
from .stores import Store


@attrs.frozen
class LoggedFrame:
    """An event as it is sent, with its place."""

    seq: Seq
    conversation_id: str
    frame: str


@attrs.define
class EventLog:
    """Epoch and head of the log, and the statements that write it. The sequencer decides when."""

    epoch: Epoch
    head: Seq
    started_at: Time
    """When the store began; nothing that was sent before is known here."""

    @classmethod
    async def load(cls, store: Store, ids: IdSource, now_ms: int) -> EventLog:
        """Read the epoch and the head; a new store starts a new epoch."""

        def work(database: sqlite3.Connection) -> EventLog:
            database.execute("INSERT OR IGNORE INTO meta VALUES ('epoch', ?), ('started_at', ?)", (ids.token(), now_ms))
            meta = dict(database.execute("SELECT key, value FROM meta").fetchall())
            head = database.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
            return cls(Epoch(meta["epoch"]), Seq(head), Time(int(meta["started_at"])))

        return await store.transact(work)

    @staticmethod
    def append(database: sqlite3.Connection, frames: Iterable[LoggedFrame]) -> None:
        """Write events; within the caller's transaction."""
        database.executemany(
            "INSERT INTO events VALUES (?, ?, ?)", [(entry.seq, entry.conversation_id, entry.frame) for entry in frames]
        )
