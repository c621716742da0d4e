"""Epoch, head and rows of the event log."""

from __future__ import annotations

from pathlib import Path

import pytest

from pheby_protocol.ids import Epoch, Seq, Time
from pheby_protocol.messages.connection import Cursor
from pheby_server.event_log import EventLog
from pheby_server.stores import LoggedFrame, Store, append_events, close_log, read_events
from pheby_server.testing import CountedIds, FakeClock


async def opened(folder: Path) -> Store:
    store = Store(str(folder), FakeClock().now_ms)
    await store.open()
    return store


async def test_a_new_store_starts_an_epoch_at_zero(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    log = await EventLog.load(store, CountedIds(7), 1_234)
    assert (log.epoch, log.head, log.started_at) == (f"{7:024d}", 0, 1_234)
    await store.close()


async def test_epoch_start_and_head_outlive_a_restart(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    log = await EventLog.load(store, CountedIds(), 1_234)
    frames = [LoggedFrame(Seq(seq), Time(seq), "conv_1", f"frame {seq}") for seq in (3, 4, 9)]
    await store.transact(append_events(frames))
    await store.close()

    store = await opened(tmp_path)
    again = await EventLog.load(store, CountedIds(500), 9_999)
    assert (again.epoch, again.head, again.started_at) == (log.epoch, 9, 1_234)
    rows = await store.read(lambda database: database.execute("SELECT * FROM events ORDER BY seq").fetchall())
    assert rows == [(seq, "conv_1", f"frame {seq}", seq) for seq in (3, 4, 9)]
    await store.close()


async def test_a_lost_store_is_another_epoch(tmp_path: Path) -> None:
    first = await opened(tmp_path / "first")
    second = await opened(tmp_path / "second")
    ids = CountedIds()
    assert (await EventLog.load(first, ids, 1)).epoch != (await EventLog.load(second, ids, 1)).epoch
    await first.close()
    await second.close()


async def test_a_seq_is_never_written_twice(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    twice = [LoggedFrame(Seq(1), Time(1), "conv_1", "a"), LoggedFrame(Seq(1), Time(1), "conv_1", "b")]
    with pytest.raises(Exception, match="UNIQUE"):
        await store.transact(append_events(twice))
    assert await store.read(lambda database: database.execute("SELECT count(*) FROM events").fetchone()) == (0,)
    await store.close()


async def filled(folder: Path, *seqs: int) -> tuple[Store, EventLog]:
    """A log with these events; the time of each is its seq."""
    store = await opened(folder)
    log = await EventLog.load(store, CountedIds(), 1)
    await store.transact(append_events([LoggedFrame(Seq(seq), Time(seq), "c", f"frame {seq}") for seq in seqs]))
    log.head = Seq(max(seqs))
    return store, log


async def test_it_reaches_back_to_its_floor_and_not_ahead_of_its_head(tmp_path: Path) -> None:
    """R-S1, G3."""
    store, log = await filled(tmp_path, 3, 4, 9)
    log.floor = 4

    def reaches(seq: int, epoch: str | None = None) -> bool:
        return log.reaches(Cursor(epoch=log.epoch if epoch is None else epoch, seq=seq))

    assert [reaches(seq) for seq in (3, 4, 5, 9, 10)] == [False, True, True, True, False]
    assert not reaches(5, "another")
    assert not log.reaches(None)
    await store.close()


async def test_what_is_too_much_or_too_old_is_forgotten_and_the_head_stays(tmp_path: Path) -> None:
    store, log = await filled(tmp_path, *range(1, 11))
    log.keep_events, log.keep_ms = 4, 1_000
    await store.transact(log.prune(1_000))
    assert log.floor == 6
    assert await store.read(read_events(5, 10_000)) is None
    assert [seq for seq, _ in await store.read(read_events(6, 10_000)) or []] == [7, 8, 9, 10]
    await store.transact(log.prune(1_009))
    assert log.floor == 8
    await store.transact(log.prune(99_999))
    assert log.floor == 10
    await store.transact(close_log())
    await store.close()
    store = await opened(tmp_path)
    again = await EventLog.load(store, CountedIds(500), 9_999)
    assert (again.epoch, again.floor, again.head) == (log.epoch, 10, 10)
    await store.close()


async def test_a_look_for_what_is_too_much_or_too_old_does_not_read_the_log(tmp_path: Path) -> None:
    """R-M2: every thousand events, on the thread that live events wait for."""

    async def steps(events: int) -> int:
        store, log = await filled(tmp_path / str(events), *range(1, events + 1))
        log.keep_events, log.keep_ms = events, 1_000
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        await store.read(lambda database: database.set_progress_handler(step, 1))
        await store.transact(log.prune(1_001))
        await store.read(lambda database: database.set_progress_handler(None, 0))
        assert log.floor == 0
        await store.close()
        return count

    assert await steps(1_000) == await steps(10) > 0


async def test_events_are_read_as_far_as_the_bytes_allow_and_at_least_one(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path, 1, 2, 3)
    assert [seq for seq, _ in await store.read(read_events(0, 14)) or []] == [1, 2]
    assert [seq for seq, _ in await store.read(read_events(1, 1)) or []] == [2]
    assert await store.read(read_events(3, 14)) == []
    await store.close()


@pytest.mark.parametrize(
    ("stopped", "other_boot", "goes_on"), [(True, True, True), (False, False, True), (False, True, False)]
)
async def test_after_a_power_cut_no_number_is_given_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool, other_boot: bool, goes_on: bool
) -> None:
    """G4: a killed process loses no commit, a machine that went down may have."""
    store, log = await filled(tmp_path, 1, 2, 3)
    if stopped:
        await store.transact(close_log())
    await store.close()
    if other_boot:
        monkeypatch.setattr("pheby_server.event_log.boot_id", lambda: "another boot")
    store = await opened(tmp_path)
    again = await EventLog.load(store, CountedIds(500), 9_999)
    assert (again.epoch == log.epoch) is goes_on
    assert again.head == 3
    assert again.reaches(Cursor(epoch=log.epoch, seq=2)) is goes_on
    assert again.reaches(Cursor(epoch=Epoch(again.epoch), seq=3))
    await store.close()
