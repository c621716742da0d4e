"""What waits for one client is bounded and keeps its order (R-M2, K7)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pheby_protocol.codec import encode
from pheby_protocol.errors import CloseCode
from pheby_protocol.ids import ConversationId, Index, MessageId, RunId, Seq, Time
from pheby_protocol.messages._base import Event
from pheby_protocol.messages.conversation import ConversationDeleted
from pheby_protocol.messages.message import MessageDelta, MessageReplaced
from pheby_protocol.messages.run import RunProgress
from pheby_server.outbox import BATCH_CHARS, JOIN_FRAMES, PACE_BYTES, Close, Outbox, Queued, batches, size_of

NAME = ConversationId("conv_1")


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
    size = size_of("12345")
    outbox = Outbox(100, 2 * size)
    assert outbox.put_live("12345")
    assert outbox.put_live("12345")
    assert not outbox.put_live("1")
    assert (outbox.live_bytes, outbox.peak_bytes) == (2 * size, 2 * size)


async def test_a_character_counts_as_what_it_takes_in_memory() -> None:
    """R-M2: a text with one emoji takes four bytes a character."""
    plain, wide = "x" * 1_000, "x" * 999 + "😀"
    outbox = Outbox(100, 3 * size_of(plain))
    assert outbox.put_live(plain)
    assert not outbox.put_live(wide)


async def test_one_frame_always_fits_however_large() -> None:
    outbox = Outbox(100, 10)
    assert outbox.put_live("x" * 1_000)
    assert not outbox.put_live("y")
    outbox = Outbox(100, 10)
    assert outbox.put_answer("x" * 1_000)
    assert not outbox.put_answer("y")


async def test_answers_have_half_the_bound_of_live_events_and_errors_some_more_room() -> None:
    """R-M2: who asks and never reads is told so, then closed."""
    outbox = Outbox(100, 4 * size_of("answer"))
    assert outbox.put_answer("answer")
    assert outbox.put_answer("answer")
    assert not outbox.put_answer("answer")
    assert outbox.put_answer("failed", is_error=True)
    assert outbox.put_live("event")
    assert await outbox.get() == "answer"
    assert await outbox.get() == "answer"
    assert outbox.put_answer("answer")
    outbox = Outbox(1, 1_000)
    assert outbox.put_answer("answer")
    assert not outbox.put_answer("failed", is_error=True)


def delta(index: int, text: str, message: str = "msg_1") -> MessageDelta:
    return MessageDelta(
        conversation_id=ConversationId("conv_1"), message_id=MessageId(message), index=Index(index), text=text
    )


def behind(outbox: Outbox) -> None:
    for number in range(JOIN_FRAMES):
        outbox.put_live(f"before {number}", RunProgress(conversation_id=NAME, run_id=RunId("run_1"), text="x"))


async def read_all(outbox: Outbox) -> list[Any]:
    """Everything that waits, without what `behind` has put."""
    found = []
    while outbox.live_frames:
        frame = await outbox.get()
        assert isinstance(frame, str)
        found.append(frame if frame[0] != "{" else json.loads(frame))
    return [frame for frame in found if not str(frame).startswith("before")]


def put(outbox: Outbox, *events: Event) -> None:
    for event in events:
        assert outbox.put_live(encode(event), event)


async def test_what_is_appended_to_one_message_is_one_frame_when_the_client_is_behind() -> None:
    """K7: other messages between do not matter, each keeps its order."""
    outbox = Outbox(100, 100_000)
    behind(outbox)
    put(outbox, delta(3, "a"), delta(0, "x", "msg_2"), delta(4, "b"), delta(5, "c"), delta(1, "y", "msg_2"))
    one, other = await read_all(outbox)
    assert (one["message_id"], one["index"], one["last_index"], one["text"]) == ("msg_1", 3, 5, "abc")
    assert (other["message_id"], other["index"], other["last_index"], other["text"]) == ("msg_2", 0, 1, "xy")
    assert (outbox.live_frames, outbox.live_bytes, outbox.bytes) == (0, 0, 0)


async def test_a_client_that_keeps_up_gets_each_as_it_was_encoded_for_all() -> None:
    outbox = Outbox(100, 100_000)
    put(outbox, delta(0, "a"), delta(1, "b"))
    assert [frame["index"] for frame in await read_all(outbox)] == [0, 1]


@pytest.mark.parametrize(
    "between",
    [
        MessageReplaced(
            conversation_id=ConversationId("conv_1"), message_id=MessageId("msg_1"), index=Index(1), text="new"
        ),
        ConversationDeleted(conversation_id=ConversationId("conv_2"), seq=Seq(1), time=Time(1)),
    ],
)
async def test_nothing_is_appended_to_what_stands_before_a_replacement_or_a_logged_event(between: Event) -> None:
    """R-S4: nothing is told before what came before it."""
    outbox = Outbox(100, 100_000)
    behind(outbox)
    put(outbox, delta(0, "a"), between, delta(2, "b"))
    assert [frame.get("index", frame.get("seq")) for frame in await read_all(outbox)] == [0, 1, 2]


async def test_what_was_taken_is_not_appended_to() -> None:
    outbox = Outbox(100, 100_000)
    put(outbox, delta(0, "a"))
    assert isinstance(await outbox.get(), str)
    behind(outbox)
    put(outbox, delta(1, "b"))
    assert [frame["text"] for frame in await read_all(outbox)] == ["b"]


async def test_a_joined_frame_is_bounded() -> None:
    outbox = Outbox(1_000, 10_000_000)
    behind(outbox)
    put(outbox, *(delta(number, "x" * 1_000) for number in range(100)))
    frames = await read_all(outbox)
    assert "".join(frame["text"] for frame in frames) == "x" * 100_000
    assert 4 <= len(frames) <= 5


async def test_everything_that_waits_for_all_is_bounded_together() -> None:
    full = []
    queued = Queued(3 * size_of("12345"), lambda: full.append(queued.bytes))
    one, other = Outbox(10, 1_000, queued), Outbox(10, 1_000, queued)
    one.put("12345")
    one.put_answer("12345")
    other.put_live("12345")
    assert not full
    other.put_live("12345")
    assert full == [4 * size_of("12345")]
    one.close(CloseCode.TOO_SLOW, discard=True)
    assert queued.bytes == other.bytes == 2 * size_of("12345")
    await taken(other, 2)
    assert queued.bytes == 0


async def test_a_replay_waits_until_little_is_left() -> None:
    outbox = Outbox(10, 1_000)
    outbox.put("x" * PACE_BYTES)
    waiting = asyncio.create_task(outbox.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await outbox.get()
    assert await waiting
    outbox.put("x" * PACE_BYTES)
    waiting = asyncio.create_task(outbox.room())
    await asyncio.sleep(0)
    outbox.close(CloseCode.GOING_AWAY)
    assert not await waiting


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
    assert outbox.bytes == 0


async def test_discard_behind_a_close_drops_what_waits_before_it() -> None:
    outbox = Outbox(10, 1_000)
    outbox.put("one")
    outbox.close(CloseCode.GOING_AWAY)
    outbox.close(CloseCode.NORMAL, discard=True)
    assert await outbox.get() == Close(CloseCode.GOING_AWAY, "")
    assert outbox.bytes == 0


def test_events_are_joined_as_far_as_a_frame_is_to_hold_them() -> None:
    """R-J2: in their order, and one that is alone is no batch."""
    small, half, large = '{"a":1}', json.dumps("x" * (BATCH_CHARS // 2)), json.dumps("x" * BATCH_CHARS)
    assert batches([]) == []
    assert batches([small]) == [small]
    assert batches([small, half, half, large, small, small]) == [
        f'{{"type":"batch","events":[{small},{half}]}}',
        half,
        large,
        f'{{"type":"batch","events":[{small},{small}]}}',
    ]
