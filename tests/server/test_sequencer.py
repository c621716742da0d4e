"""One FIFO: stored first, then told, in the order in which it happened."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId, RunId, Seq
from pheby_protocol.messages.conversation import ConversationDeleted
from pheby_protocol.messages.run import RunProgress
from pheby_server.event_log import EventLog
from pheby_server.sequencer import Change, Published, Sequencer
from pheby_server.stores import Store, StoreError, StoreUnavailableError
from pheby_server.testing import CountedIds, FakeClock


def event(name: str) -> Change:
    return Change((partial(ConversationDeleted, conversation_id=ConversationId(name)),))


def write(name: str) -> Callable[[sqlite3.Connection], object]:
    return lambda database: database.execute("INSERT INTO meta VALUES (?, 'x')", (name,))


def progress(text: str) -> RunProgress:
    return RunProgress(conversation_id=ConversationId("conv_1"), run_id=RunId("run_1"), text=text)


class Rig:
    def __init__(self, store: Store, log: EventLog) -> None:
        self.store = store
        self.told: list[Published] = []
        self.committed_before_told = True
        self.log = log
        self.sequencer = Sequencer(store, log, FakeClock(), self.told.extend)

    def names(self) -> list[str]:
        return [getattr(item.event, "text", None) or getattr(item.event, "conversation_id", "") for item in self.told]

    async def meta(self) -> set[str]:
        rows = await self.store.read(lambda database: database.execute("SELECT key FROM meta").fetchall())
        return {row[0] for row in rows} - {"epoch", "started_at", "pruned_to", "in_use"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    store = Store(str(tmp_path), FakeClock().now_ms)
    await store.open()
    made = Rig(store, await EventLog.load(store, CountedIds(), 1))
    made.sequencer.start()
    yield made
    await made.sequencer.stop()
    await store.close()


def fail_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rig.store.transact
    failures = [sqlite3.OperationalError("disk full")]

    async def transact(work: Any, *, durable: bool = False) -> Any:
        if failures:
            raise failures.pop()
        return await real(work, durable=durable)

    monkeypatch.setattr(rig.store, "transact", transact)


async def test_logged_and_transient_events_keep_their_common_order(rig: Rig) -> None:
    rig.sequencer.log(event("a"))
    rig.sequencer.tell(progress("b"))
    rig.sequencer.log(event("c"))
    rig.sequencer.tell(progress("d"))
    await rig.sequencer.settled()
    assert rig.names() == ["a", "b", "c", "d"]


async def test_seq_strictly_increases_and_transient_events_have_none(rig: Rig) -> None:
    for name in "abc":
        rig.sequencer.log(event(name))
        rig.sequencer.tell(progress("text"))
    await rig.sequencer.settled()
    seqs = [getattr(item.event, "seq", None) for item in rig.told]
    assert seqs[1::2] == [None, None, None]
    logged = [seq for seq in seqs if seq is not None]
    assert logged == sorted(set(logged))
    assert rig.sequencer.published_seq == logged[-1]


async def test_an_event_is_committed_before_it_is_told(rig: Rig, tmp_path: Path) -> None:
    stored: list[int] = []

    def publish(published: Published) -> None:
        reader = sqlite3.connect(tmp_path / "pheby.db")
        stored.append(reader.execute("SELECT count(*) FROM events").fetchone()[0])
        reader.close()

    rig.sequencer._publish = publish
    await rig.sequencer.log(event("a"))
    await rig.sequencer.log(event("b"))
    assert stored == [1, 2]


async def test_the_log_holds_the_very_frames_that_were_told(rig: Rig) -> None:
    await rig.sequencer.log(event("a") + event("b"))
    frames = await rig.store.read(lambda database: database.execute("SELECT frame FROM events ORDER BY seq").fetchall())
    assert [row[0] for row in frames] == [item.frame for item in rig.told]


async def test_the_future_ends_only_after_the_events_were_told(rig: Rig) -> None:
    await rig.sequencer.log(event("a"), durable=True)
    assert rig.names() == ["a"]


async def test_a_change_that_cannot_be_stored_is_not_told_and_fails_its_waiter(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(rig, monkeypatch)
    with pytest.raises(sqlite3.OperationalError):
        await rig.sequencer.log(event("lost") + Change(writes=(write("lost"),)))
    assert rig.told == []
    assert rig.sequencer.published_seq == 0

    await rig.sequencer.log(event("kept") + Change(writes=(write("kept"),)))
    assert rig.names() == ["kept"]
    assert await rig.meta() == {"kept"}
    assert rig.sequencer.published_seq == rig.told[0].event.seq  # type: ignore[union-attr]


async def test_writes_and_events_of_a_change_are_stored_together_or_not_at_all(rig: Rig) -> None:
    def broken(database: sqlite3.Connection) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await rig.sequencer.log(event("a") + Change(writes=(write("a"), broken)))
    assert await rig.meta() == set()
    assert rig.told == []


async def test_an_event_that_cannot_be_encoded_fails_alone(rig: Rig) -> None:
    bad = rig.sequencer.log(event("\ud800") + Change(writes=(write("bad"),)))
    good = rig.sequencer.log(event("good") + Change(writes=(write("good"),)))
    with pytest.raises(Exception, match="surrogate"):
        await bad
    await good
    assert rig.names() == ["good"]
    assert await rig.meta() == {"good"}


async def test_a_transient_event_that_cannot_be_encoded_is_dropped_alone(rig: Rig) -> None:
    rig.sequencer.tell(progress("\ud800"))
    rig.sequencer.tell(progress("fine"))
    await rig.sequencer.settled()
    assert rig.names() == ["fine"]


async def test_a_call_at_this_point_stands_between_what_was_before_and_what_came_after(rig: Rig) -> None:
    seen: list[tuple[Seq, list[str]]] = []
    rig.sequencer.log(event("before"))
    rig.sequencer.at_this_point(lambda seq: seen.append((seq, rig.names())))
    rig.sequencer.log(event("after"))
    await rig.sequencer.settled()
    assert seen == [(rig.told[0].event.seq, ["before"])]  # type: ignore[union-attr]
    assert rig.names() == ["before", "after"]


async def test_settled_waits_for_everything_before(rig: Rig) -> None:
    for number in range(50):
        rig.sequencer.log(event(f"e{number}"))
    await rig.sequencer.settled()
    assert rig.names() == [f"e{number}" for number in range(50)]


async def test_stop_commits_and_tells_what_waits(rig: Rig) -> None:
    futures = [rig.sequencer.log(event(name)) for name in "abc"]
    await rig.sequencer.stop()
    assert rig.names() == ["a", "b", "c"]
    assert all(future.done() and future.exception() is None for future in futures)


async def test_after_the_stop_nobody_waits_for_ever(rig: Rig) -> None:
    await rig.sequencer.stop()
    async with asyncio.timeout(1):
        with pytest.raises(StoreError):
            await rig.sequencer.settled()
        with pytest.raises(StoreError):
            await rig.sequencer.log(event("late"))
    rig.sequencer.tell(progress("late"))
    assert rig.told == []


async def test_seq_goes_on_where_the_log_ends(rig: Rig) -> None:
    await rig.sequencer.log(event("a"))
    head = rig.sequencer.published_seq
    log = await EventLog.load(rig.store, CountedIds(), 1)
    told: list[Published] = []
    again = Sequencer(rig.store, log, FakeClock(), told.extend)
    again.start()
    await again.log(event("b"))
    assert told[0].event.seq > head  # type: ignore[union-attr]
    await again.stop()


@contextlib.contextmanager
def outage(rig: Rig) -> Iterator[None]:
    """While it lasts, nothing can be stored."""
    transact = rig.store.transact

    async def refuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("full")

    rig.store.transact = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        rig.store.transact = transact  # type: ignore[method-assign]


async def test_while_nothing_can_be_stored_hermess_events_wait_and_clients_are_refused(rig: Rig) -> None:
    """G6: the disk is full, or something else holds the database."""
    with outage(rig):
        first = rig.sequencer.log(event("conv_1") + Change(writes=(write("one"),)))
        refused = rig.sequencer.log(event("conv_2") + Change(writes=(write("two"),)), durable=True)
        with pytest.raises(StoreUnavailableError):
            await asyncio.wait_for(refused, 2)
        late = rig.sequencer.log(event("conv_3") + Change(writes=(write("three"),)), durable=True)
        with pytest.raises(StoreUnavailableError):
            await asyncio.wait_for(late, 2)
        assert not first.done()
        assert rig.told == []
    last = rig.sequencer.log(event("conv_4"))
    await asyncio.wait_for(first, 5)
    await asyncio.wait_for(last, 5)
    assert rig.names() == ["conv_1", "conv_4"]
    assert await rig.meta() == {"one"}


async def test_a_stop_in_an_outage_ends(rig: Rig) -> None:
    with outage(rig):
        first = rig.sequencer.log(event("conv_1"))
        await asyncio.sleep(0)
        await asyncio.wait_for(rig.sequencer.stop(), 5)
        with pytest.raises(StoreUnavailableError):
            await first


async def test_one_bad_write_takes_no_other_with_it(rig: Rig) -> None:
    ill = Change(writes=(lambda _: 1 / 0,))
    futures = [rig.sequencer.log(change) for change in (event("conv_1"), ill, event("conv_2"))]
    await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(futures[1].exception(), ZeroDivisionError)
    assert rig.names() == ["conv_1", "conv_2"]


async def test_what_was_stored_one_by_one_is_told_though_a_later_one_has_to_wait(rig: Rig) -> None:
    """After a bad write in its group; a client hears `unavailable` only of what is not stored."""
    real, calls = rig.store.transact, 0

    async def transact(work: Any, *, durable: bool = False) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise StoreUnavailableError("full")
        return await real(work, durable=durable)

    rig.store.transact = transact  # type: ignore[method-assign]
    ill = Change(writes=(lambda _: 1 / 0,))
    changes = [event("conv_1"), event("conv_2"), ill]
    futures = [rig.sequencer.log(change, durable=True) for change in changes]
    await asyncio.gather(*futures, return_exceptions=True)
    assert futures[0].exception() is None
    assert isinstance(futures[1].exception(), StoreUnavailableError)
    assert rig.names() == ["conv_1"]
