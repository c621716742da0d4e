"""Connections that have not brought a whole request yet: each has a deadline, and only so much is held for them.

aiohttp has no time limit of its own for the head of a request, and no bound for how many such connections there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs

MAX_HELD_BYTES: Final = 16 * 2**20
"""Of heads that are not complete, all connections together; beyond it whoever sends a large one is cut off."""
LARGE_HEAD_BYTES: Final = 32_768


@attrs.define
class _Waiting:
    timer: asyncio.TimerHandle
    held: int = 0


class Gate:
    """Cuts off whoever is late; when too many wait, the one that has waited longest, so that a newcomer gets in."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._waiting: dict[asyncio.Transport, _Waiting] = {}
        self._hearing: dict[asyncio.Transport, Callable[[int], None]] = {}
        self._held = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def watched(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """A factory of the same protocols, each behind the gate."""
        return lambda: _Watched(make(), self)

    def wait(self, transport: asyncio.Transport) -> None:
        """A request is to come from there, in time."""
        if len(self._waiting) >= self._most:
            self._cut(next(iter(self._waiting)))
        timer = asyncio.get_running_loop().call_later(self._seconds, self._cut, transport)
        self._waiting[transport] = _Waiting(timer)

    def took(self, transport: asyncio.Transport, size: int) -> None:
        """So many bytes more came from there."""
        waiting = self._waiting.get(transport)
        if waiting is None:
            if (heard := self._hearing.get(transport)) is not None:
                heard(size)
            return
        waiting.held += size
        self._held += size
        if self._held > MAX_HELD_BYTES and waiting.held > LARGE_HEAD_BYTES:
            self._cut(transport)

    def leave(self, transport: asyncio.Transport) -> None:
        """Nothing is awaited from there any more."""
        waiting = self._waiting.pop(transport, None)
        if waiting is not None:
            waiting.timer.cancel()
            self._held -= waiting.held

    @contextmanager
    def serving(self, transport: asyncio.Transport | None) -> Iterator[None]:
        """A request has come and is being answered; the next one has a time limit again."""
        if transport is not None:
            self.leave(transport)
        try:
            yield
        finally:
            if transport is not None and not transport.is_closing():
                self.wait(transport)

    @contextmanager
    def hearing(self, transport: asyncio.Transport, heard: Callable[[int], None]) -> Iterator[None]:
        """How many bytes come from there meanwhile is told."""
        self._hearing[transport] = heard
        try:
            yield
        finally:
            del self._hearing[transport]

    def _cut(self, transport: asyncio.Transport) -> None:
        self.leave(transport)
        transport.abort()


class _Watched(asyncio.Protocol):
    """Aiohttp's protocol of one connection; the gate sees what passes."""

    def __init__(self, inner: asyncio.Protocol, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._gate.wait(transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._gate.took(self._transport, len(data))
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.leave(self._transport)
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
