"""What waits to be written to one client: bounded, so that a client that does not read costs bounded memory."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import attrs

from pheby_protocol.errors import CloseCode

PACE_FRAMES: Final = 16
"""So many frames of a replay wait to be written at most."""


@attrs.frozen
class Close:
    """The last thing to write: a close frame."""

    code: CloseCode
    reason: str


class Outbox:
    """FIFO of frames for one connection. Only live events count against the bound; the rest was asked for."""

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        self._frames: deque[tuple[str, int]] = deque()
        self._close: Close | None = None
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self.live_frames = 0
        self.live_bytes = 0
        self.peak_bytes = 0

    def put(self, text: str) -> None:
        """Queue an answer or a part of a snapshot. Ignored once the connection is closing."""
        self._put(text, 0)

    def put_live(self, text: str) -> bool:
        """Queue a live event; False when the client is too far behind (nothing was queued)."""
        size = len(text)
        if self.live_frames >= self._max_frames or self.live_bytes + size > self._max_bytes:
            return False
        self._put(text, size)
        return True

    def _put(self, text: str, size: int) -> None:
        if self._close is not None:
            return
        self._frames.append((text, size))
        if size:
            self.live_frames += 1
            self.live_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self._wake.set()

    def close(self, code: CloseCode, reason: str = "", *, discard: bool = False) -> None:
        """Queue the close; nothing is queued behind it. With discard what waits is not written any more."""
        if self._close is not None:
            return
        if discard:
            self._frames.clear()
            self.live_frames = self.live_bytes = 0
        self._close = Close(code, reason)
        self._wake.set()
        self._taken.set()

    async def room(self) -> bool:
        """Returns when the client has read most of what waits, so that a replay comes at its pace; False: closing."""
        while len(self._frames) >= PACE_FRAMES and self._close is None:
            self._taken.clear()
            await self._taken.wait()
        return self._close is None

    async def get(self) -> str | Close:
        """The next thing to write; Close is the last."""
        while not self._frames:
            if self._close is not None:
                return self._close
            self._wake.clear()
            await self._wake.wait()
        text, size = self._frames.popleft()
        self._taken.set()
        if size:
            self.live_frames -= 1
            self.live_bytes -= size
        return text
