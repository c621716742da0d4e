"""What waits for one client is bounded and keeps its order (R-M2, K7)."""

from __future__ import annotations

import asyncio

from pheby_protocol.errors import CloseCode
from pheby_server.outbox import Close, Outbox


async def taken(outbox: Outbox, count: int) -> list[str | Close]:
    return [await outbox.get() for _ in range(count)]


async def test_frames_leave_in_the_order_in_which_they_came() -> None:
    outbox = Outbox(64, 1_000)
    outbox.put("answer")
    assert outbox.put_live("event")
    outbox.put("answer 2")
    assert await taken(outbox, 3) == ["answer", "event", "answer 2"]


async def test_a_reader_waits_and_is_woken() -> None:
    outbox = Outbox(64, 1_000)
    reader = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    assert not reader.done()
    outbox.put("now")
    assert await reader == "now"


async def test_a_waiting_reader_is_woken_by_the_close() -> None:
    outbox = Outbox(64, 1_000)
    reader = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    outbox.close(CloseCode.GOING_AWAY, "bye")
    assert await reader == Close(CloseCode.GOING_AWAY, "bye")


async def test_live_frames_are_bounded_in_number() -> None:
    outbox = Outbox(3, 1_000)
    assert [outbox.put_live("x") for _ in range(5)] == [True, True, True, False, False]
    assert outbox.live_frames == 3


async def test_live_frames_are_bounded_in_size() -> None:
    outbox = Outbox(100, 10)
    assert outbox.put_live("12345")
    assert outbox.put_live("12345")
    assert not outbox.put_live("1")
    assert (outbox.live_bytes, outbox.peak_bytes) == (10, 10)


async def test_reading_makes_room() -> None:
    outbox = Outbox(1, 1_000)
    assert outbox.put_live("first")
    assert not outbox.put_live("second")
    assert await outbox.get() == "first"
    assert (outbox.live_frames, outbox.live_bytes) == (0, 0)
    assert outbox.put_live("second")


async def test_what_was_asked_for_never_counts() -> None:
    outbox = Outbox(1, 10)
    for number in range(100):
        outbox.put(f"snapshot part {number}")
    assert outbox.put_live("event")
    assert len(await taken(outbox, 101)) == 101


async def test_close_comes_behind_what_waits_and_nothing_behind_it() -> None:
    outbox = Outbox(10, 1_000)
    outbox.put("one")
    outbox.close(CloseCode.REPLACED)
    outbox.put("two")
    outbox.put_live("three")
    assert await taken(outbox, 3) == ["one", Close(CloseCode.REPLACED, ""), Close(CloseCode.REPLACED, "")]


async def test_the_first_close_counts() -> None:
    outbox = Outbox(10, 1_000)
    outbox.close(CloseCode.TOO_SLOW)
    outbox.close(CloseCode.GOING_AWAY)
    assert await outbox.get() == Close(CloseCode.TOO_SLOW, "")


async def test_discard_drops_what_waits() -> None:
    outbox = Outbox(10, 1_000)
    outbox.put("one")
    outbox.put_live("two")
    outbox.close(CloseCode.TOO_SLOW, discard=True)
    assert await outbox.get() == Close(CloseCode.TOO_SLOW, "")
