"""The outbox, whatever is put, read and closed in whatever order: FIFO, bounded, one end (R-M2)."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from pheby_protocol.errors import CloseCode
from pheby_server.outbox import Close, Outbox, size_of

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
LARGEST = size_of("😀" * 20)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), TEXT),
        st.tuples(st.just("live"), TEXT),
        st.tuples(st.just("get"), st.just("")),
        st.tuples(st.just("close"), st.sampled_from(["keep", "discard"])),
    ),
    max_size=60,
)


async def play(steps: list[tuple[str, str]], max_frames: int, max_bytes: int) -> None:
    outbox = Outbox(max_frames, max_bytes)
    expected: list[tuple[str, bool]] = []
    closed = False
    for step, text in steps:
        waiting = [found for found, live in expected if live]
        match step:
            case "put":
                outbox.put(text)
                expected += [] if closed else [(text, False)]
            case "live":
                fits = not waiting or (
                    len(waiting) < max_frames and sum(map(size_of, waiting)) + size_of(text) <= max_bytes
                )
                assert outbox.put_live(text) is (fits or closed)
                expected += [(text, True)] if fits and not closed else []
            case "get" if expected or closed:
                got = await outbox.get()
                assert got == (expected.pop(0)[0] if expected else Close(CloseCode.GOING_AWAY, ""))
            case "close":
                if text == "discard":
                    expected.clear()
                    outbox.close(CloseCode.GOING_AWAY, discard=True)
                else:
                    outbox.close(CloseCode.GOING_AWAY if not closed else CloseCode.INTERNAL)
                closed = True
        live = [found for found, is_live in expected if is_live]
        if not closed:
            assert (outbox.live_frames, outbox.live_bytes) == (len(live), sum(map(size_of, live)))
        assert outbox.live_frames <= max_frames
        assert outbox.live_bytes <= outbox.peak_bytes <= max(max_bytes, LARGEST)
    outbox.close(CloseCode.GOING_AWAY)
    rest = []
    while not isinstance(found := await outbox.get(), Close):
        rest.append(found)
    assert rest == [text for text, _ in expected]
    assert found.code is CloseCode.GOING_AWAY


@given(STEPS, st.integers(1, 5), st.integers(20, 200))
def test_any_use_of_an_outbox(steps: list[tuple[str, str]], max_frames: int, max_bytes: int) -> None:
    asyncio.run(play(steps, max_frames, max_bytes))


@given(st.lists(TEXT, max_size=40), st.integers(0, 5))
def test_a_reader_that_is_always_there_gets_everything_in_order(texts: list[str], pauses: int) -> None:
    async def run() -> list[str]:
        outbox = Outbox(64, 10_000)
        got: list[str] = []

        async def read() -> None:
            while not isinstance(frame := await outbox.get(), Close):
                got.append(frame)

        reader = asyncio.create_task(read())
        for number, text in enumerate(texts):
            assert outbox.put_live(text)
            if pauses and number % pauses == 0:
                await asyncio.sleep(0)
        outbox.close(CloseCode.GOING_AWAY)
        await reader
        return got

    assert asyncio.run(run()) == texts
