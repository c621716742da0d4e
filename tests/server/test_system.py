"""The real clock and ids."""

from __future__ import annotations

import asyncio
import re
import time

from pheby_protocol.ids import is_id
from pheby_server.system import RandomIds, SystemClock


def test_wall_time_is_in_milliseconds_since_1970() -> None:
    before = int(time.time() * 1_000)
    assert before - 1 <= SystemClock().now_ms() <= before + 1_000


def test_the_monotonic_clock_never_goes_back() -> None:
    clock = SystemClock()
    times = [clock.monotonic() for _ in range(100)]
    assert times == sorted(times)


async def test_a_timer_calls_once_and_a_cancelled_one_never() -> None:
    clock = SystemClock()
    called: list[str] = []
    clock.call_later(0.0, lambda: called.append("cancelled")).cancel()
    done = asyncio.Event()
    clock.call_later(0.001, done.set)
    clock.call_later(0.0, lambda: called.append("kept"))
    await done.wait()
    assert called == ["kept"]


def test_tokens_are_well_formed_and_never_the_same() -> None:
    ids = RandomIds()
    tokens = {ids.token() for _ in range(10_000)}
    assert len(tokens) == 10_000
    assert all(is_id(f"conv_{token}") and len(token) >= 16 for token in tokens)


def test_conversation_numbers_are_digits_and_never_the_same_however_fast_they_are_made() -> None:
    ids = RandomIds()
    numbers = [ids.conversation_number() for _ in range(20_000)]
    assert len(set(numbers)) == 20_000
    assert all(re.fullmatch(r"[0-9]{16,18}", number) for number in numbers)


def test_conversation_numbers_of_two_processes_differ() -> None:
    assert RandomIds().conversation_number() != RandomIds().conversation_number()
