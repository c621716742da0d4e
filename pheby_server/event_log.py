"""The log of events: what was committed, under which seq, in which epoch."""

from __future__ import annotations

import attrs

from pheby_protocol.ids import Epoch, Seq, Time

from .ports import IdSource
from .stores import Store, read_log


@attrs.define
class EventLog:
    """Epoch and head of the log. The sequencer moves the head and writes the events."""

    epoch: Epoch
    head: Seq
    started_at: Time
    """When the store began; nothing that was sent before is known here."""

    @classmethod
    async def load(cls, store: Store, ids: IdSource, now_ms: int) -> EventLog:
        """Read the epoch and the head; a new store starts a new epoch."""
        epoch, head, started_at = await store.transact(read_log(ids.token(), now_ms))
        return cls(Epoch(epoch), Seq(head), Time(started_at))
