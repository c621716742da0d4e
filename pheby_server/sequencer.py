"""One FIFO for everything that changes: stored first, then told to the clients, in the order in which it happened."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs

from pheby_protocol.codec import encode
from pheby_protocol.ids import Seq, Time
from pheby_protocol.messages._base import LoggedEvent, TransientEvent

from .event_log import EventLog
from .logs import log_of
from .ports import Clock
from .stores import (
    LoggedFrame,
    Store,
    StoreDamagedError,
    StoreError,
    StoreUnavailableError,
    Write,
    all_of,
    append_events,
)

log = log_of(__name__)

FIRST_RETRY_SECONDS: Final = 0.1
LONGEST_RETRY_SECONDS: Final = 2.0
MAX_WAITING: Final = 10_000
"""Beyond so many, as when nothing can be stored, transient events are dropped: clients ask for what they miss."""


class EventMaker(Protocol):
    """Makes an event once its place is known; usually a `partial` of the event's class."""

    def __call__(self, *, seq: Seq, time: Time) -> LoggedEvent: ...


@attrs.frozen
class Published:
    """An event on its way to the clients; encoded once for all of them. Transient events have no seq."""

    event: LoggedEvent | TransientEvent
    frame: str


@attrs.frozen
class Change:
    """Events and the writes that belong to them: committed together, or not at all."""

    events: tuple[EventMaker, ...] = ()
    writes: tuple[Write, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.events and not self.writes

    def __add__(self, other: Change) -> Change:
        return Change(self.events + other.events, self.writes + other.writes)


_NOTHING: Final = Change()


@attrs.define
class _Entry:
    change: Change = _NOTHING
    transient: TransientEvent | None = None
    durable: bool = False
    alone: bool = False
    call: Callable[[Seq], None] | None = None
    done: asyncio.Future[None] | None = None


class Sequencer:
    """Takes changes on the loop, commits them in groups on the store's thread, publishes them in FIFO order."""

    def __init__(
        self, store: Store, event_log: EventLog, clock: Clock, publish: Callable[[Sequence[Published]], None]
    ) -> None:
        self._store = store
        self._log = event_log
        self._clock = clock
        self._publish = publish
        self._waiting: deque[_Entry] = deque()
        self._group: list[_Prepared] = []
        """What is being stored."""
        self._told: list[Published] = []
        """What is stored and goes to the clients now."""
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._stopping = False
        self._last_seq = event_log.head

    @property
    def published_seq(self) -> Seq:
        """The seq of the last event that clients were told."""
        return self._log.head

    def start(self) -> None:
        self._worker = asyncio.create_task(self._work(), name="pheby-sequencer")

    async def stop(self) -> None:
        """Commit and publish what waits, then end."""
        self._stopping = True
        self._wake.set()
        if self._worker is not None:
            await self._worker

    def log(self, change: Change, *, durable: bool = False, alone: bool = False) -> asyncio.Future[None]:
        """Commit a change, then publish its events. The future ends when they are published.

        Durable: it also survives a power cut, not only the death of the process. Alone: in a transaction of its own.
        """
        done = asyncio.get_running_loop().create_future()
        # Most callers do not wait; a failure is logged where it happens.
        done.add_done_callback(_retrieve)
        self._append(_Entry(change, durable=durable, alone=alone, done=done))
        return done

    def tell(self, event: TransientEvent) -> None:
        """Publish a transient event behind everything before it."""
        self._append(_Entry(transient=event))

    def at_this_point(self, call: Callable[[Seq], None]) -> None:
        """Call when everything before has been published and nothing after it, with the seq published so far."""
        self._append(_Entry(call=call))

    async def settled(self) -> None:
        """Returns when everything before is published."""
        await self.log(_NOTHING)

    def _append(self, entry: _Entry) -> None:
        if self._worker is not None and self._worker.done():
            if entry.done is not None:
                entry.done.set_exception(StoreError("the server has stopped"))
            return
        if entry.transient is not None and len(self._waiting) >= MAX_WAITING:
            return
        self._waiting.append(entry)
        self._wake.set()

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                if self._stopping:
                    return
                self._wake.clear()
                await self._wake.wait()
            entries = [self._waiting.popleft()]
            while self._waiting and not entries[-1].alone and not self._waiting[0].alone:
                entries.append(self._waiting.popleft())
            await self._commit_and_publish(entries)

    async def _commit_and_publish(self, entries: list[_Entry]) -> None:
        time = Time(self._clock.now_ms())
        prepared = [_Prepared(entry) for entry in entries]
        for item in prepared:
            self._prepare(item, time)
        good = [item for item in prepared if item.failure is None and not item.entry.change.is_empty]
        grown = self._log.grown(sum(len(item.frames) for item in good))
        self._group = prepared
        await self._store_all(good, (self._log.prune(time),) if grown else ())
        for item in prepared:
            if not item.finished:
                self._finish(item)
        self._tell()

    async def _store_all(self, items: list[_Prepared], more: tuple[Write, ...] = ()) -> None:
        """Store changes in one transaction; where it cannot be had, one after the other, or as soon as it can."""
        delay = FIRST_RETRY_SECONDS
        while items or more:
            writes = [write for item in items for write in item.entry.change.writes]
            frames = [frame for item in items for frame in item.frames]
            durable = any(item.entry.durable for item in items)
            try:
                await self._store.transact(all_of(*writes, append_events(frames), *more), durable=durable)
                for item in items:
                    item.stored = True
                if delay > FIRST_RETRY_SECONDS:
                    log.info("store.available")
                return
            except StoreUnavailableError as failure:
                if delay == FIRST_RETRY_SECONDS:
                    log.error("store.unavailable: what was told by Hermes waits", exc_info=failure)
                items, more = self._refuse(items, failure), ()
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_RETRY_SECONDS)
            except StoreDamagedError as failure:
                log.error("store.damaged", exc_info=failure)
                for item in items:
                    item.failure = failure
                return
            except Exception as failure:
                log.error("store.commit_failed", exc_info=failure)
                if len(items) == 1:
                    items[0].failure = failure
                else:
                    # One bad write must not take the others with it.
                    for item in items:
                        await self._store_all([item])
                return

    def _refuse(self, items: list[_Prepared], failure: Exception) -> list[_Prepared]:
        """While nothing can be stored, what a client asked for fails at once; all else waits. What still waits."""
        for item in items:
            if self._stopping and not item.finished:
                item.failure = failure
                self._finish(item)
        for item in self._group:
            self._waits(item, failure)
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if self._waits(_Prepared(entry), failure) and (entry.transient is None or len(waiting) < MAX_WAITING):
                self._waiting.append(entry)
        return [item for item in items if not item.finished]

    def _waits(self, item: _Prepared, failure: Exception) -> bool:
        """Whether an entry waits for the store; else it is finished."""
        entry = item.entry
        if item.finished or item.stored:
            return False
        asked = entry.change.is_empty and entry.transient is None
        if entry.call is None and (entry.durable or asked):
            item.failure = failure
        # A newcomer gets what was told so far; the rest comes to it as to the others.
        if entry.call is not None or item.failure is not None:
            self._finish(item)
        return not item.finished

    def _prepare(self, item: _Prepared, time: Time) -> None:
        try:
            for maker in item.entry.change.events:
                self._last_seq = Seq(self._last_seq + 1)
                event = maker(seq=self._last_seq, time=time)
                frame = encode(event)
                item.frames.append(LoggedFrame(self._last_seq, time, getattr(event, "conversation_id", ""), frame))
                item.published.append(Published(event, frame))
            if item.entry.transient is not None:
                item.published.append(Published(item.entry.transient, encode(item.entry.transient)))
        except Exception as failure:
            log.error("event.not_encodable", exc_info=failure)
            item.failure = failure

    def _finish(self, item: _Prepared) -> None:
        entry, item.finished = item.entry, True
        if item.failure is None:
            self._told += item.published
            if item.frames:
                self._log.head = item.frames[-1].seq
            if entry.call is not None:
                self._tell()
                entry.call(self._log.head)
        if entry.done is not None and not entry.done.done():
            if item.failure is None:
                entry.done.set_result(None)
            else:
                entry.done.set_exception(item.failure)

    def _tell(self) -> None:
        told, self._told = self._told, []
        if told:
            self._publish(told)


@attrs.define
class _Prepared:
    """An entry on its way through one group commit."""

    entry: _Entry
    frames: list[LoggedFrame] = attrs.field(factory=list)
    published: list[Published] = attrs.field(factory=list)
    failure: Exception | None = None
    stored: bool = False
    finished: bool = False


def _retrieve(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
