"""Whether a client is still there: pinged when it is silent, cut off when it stays so.

aiohttp has a heartbeat of its own. It goes on where something comes behind the close, and keeps for a whole heartbeat
what a client that is gone has sent: whoever comes again and again would fill the memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self


class Pulse:
    """While it is entered, a client that is silent for so long is pinged, and cut off after half as long again."""

    def __init__(self, seconds: float, ping: Callable[[], Awaitable[None]], cut: Callable[[], None]) -> None:
        self._seconds = seconds
        self._ping = ping
        self._cut = cut
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._pinging: asyncio.Task[None] | None = None

    def heard(self) -> None:
        """Something came from there."""
        self._heard = self._loop.time()

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()

    def _look(self) -> None:
        rest = self._heard + self._seconds - self._loop.time()
        if rest > 0:
            self._timer = self._loop.call_later(rest, self._look)
            return
        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.create_task(self._send(), name="pheby-ping")
        # From now, not from when it was due: the loop may have stood still, and nobody could answer.
        self._timer = self._loop.call_later(self._seconds / 2, self._expect, self._heard)

    def _expect(self, before: float) -> None:
        if self._heard == before:
            self._cut()
        else:
            self._look()

    async def _send(self) -> None:
        # Whoever reads nothing holds up the ping; the time runs all the same.
        with contextlib.suppress(ConnectionError):
            await self._ping()
