"""The log of events: what was committed, under which seq, in which epoch, and how far back it reaches."""

from __future__ import annotations

from typing import Final

import attrs

from pheby_protocol.ids import Epoch, Seq, Time
from pheby_protocol.messages.connection import Cursor

from .ports import IdSource
from .stores import Store, Write, boot_id, open_log, prune_events

KEEP_EVENTS: Final = 100_000
KEEP_MS: Final = 7 * 24 * 3_600_000
PRUNE_EVERY: Final = 1_000
"""Events between two looks at what is too much or too old."""


@attrs.define
class EventLog:
    """Epoch, floor and head of the log. The sequencer moves the head and writes the events."""

    epoch: Epoch
    floor: int
    """Events above it are all there."""
    head: Seq
    started_at: Time
    """When the store began; nothing that was sent before is known here."""
    is_new: bool
    """Its epoch begins with this start."""
    keep_events: int
    keep_ms: int
    _unpruned: int = PRUNE_EVERY

    @classmethod
    async def load(
        cls, store: Store, ids: IdSource, now_ms: int, keep_events: int = KEEP_EVENTS, keep_ms: int = KEEP_MS
    ) -> EventLog:
        """Take the log into use; a new store starts a new epoch, and so does one that may have lost commits."""
        # Durable: a power cut must not take the mark along with the events that it guards.
        epoch = ids.token()
        state = await store.transact(open_log(epoch, now_ms, boot_id()), durable=True)
        return cls(
            Epoch(state.epoch),
            state.floor,
            Seq(state.head),
            Time(state.started_at),
            state.epoch == epoch,
            keep_events,
            keep_ms,
        )

    def reaches(self, cursor: Cursor | None) -> bool:
        """Whether everything behind a client's cursor can be told from the log."""
        return cursor is not None and cursor.epoch == self.epoch and self.floor <= cursor.seq <= self.head

    def grown(self, events: int) -> bool:
        """Count new events; whether it is time to prune."""
        self._unpruned += events
        if self._unpruned < PRUNE_EVERY:
            return False
        self._unpruned = 0
        return True

    def prune(self, now_ms: int) -> Write:
        """Forget what is too much or too old."""
        # Should the commit fail, a floor that is too high costs a client a snapshot and nothing else.
        return prune_events(self.keep_events, now_ms - self.keep_ms, self._floor_is)

    def _floor_is(self, floor: int) -> None:
        self.floor = floor
