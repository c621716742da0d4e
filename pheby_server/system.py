"""The real clock and the real source of ids."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

from .ports import Timer


class SystemClock:
    """Clock of the machine and timers of the running loop."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(delay, call)


class RandomIds:
    """Ids from the machine's source of chance."""

    def __init__(self) -> None:
        self._last_number = 0

    def token(self) -> str:
        return secrets.token_hex(12)

    def conversation_number(self) -> str:
        # Milliseconds first keeps numbers apart across restarts and readable in Hermes's own lists.
        number = time.time_ns() // 1_000_000 * 10_000 + secrets.randbelow(10_000)
        self._last_number = max(number, self._last_number + 1)
        return f"{self._last_number:017d}"
