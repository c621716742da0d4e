"""Epoch, head and rows of the event log."""

from __future__ import annotations

from pathlib import Path

import pytest

from pheby_protocol.ids import Seq
from pheby_server.event_log import EventLog
from pheby_server.stores import LoggedFrame, Store, append_events
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
    frames = [LoggedFrame(Seq(seq), "conv_1", f"frame {seq}") for seq in (3, 4, 9)]
    await store.transact(append_events(frames))
    await store.close()

    store = await opened(tmp_path)
    again = await EventLog.load(store, CountedIds(500), 9_999)
    assert (again.epoch, again.head, again.started_at) == (log.epoch, 9, 1_234)
    rows = await store.read(lambda database: database.execute("SELECT * FROM events ORDER BY seq").fetchall())
    assert rows == [(3, "conv_1", "frame 3"), (4, "conv_1", "frame 4"), (9, "conv_1", "frame 9")]
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
    twice = [LoggedFrame(Seq(1), "conv_1", "a"), LoggedFrame(Seq(1), "conv_1", "b")]
    with pytest.raises(Exception, match="UNIQUE"):
        await store.transact(append_events(twice))
    assert await store.read(lambda database: database.execute("SELECT count(*) FROM events").fetchone()) == (0,)
    await store.close()
