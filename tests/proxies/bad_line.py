"""A line to a port of this machine that breaks without a word, as a phone's does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.proxies.conftest import HOST

DOWN = 0.5
"""Seconds in which nobody gets through after a cut: long enough for something to be missed."""


class BadLine:
    """Passes bytes on as they are, so TLS is between the ends."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open: set[asyncio.StreamWriter] = set()
        self._down = False
        self.port = 0
        self.cuts = 0
        self.most_bytes: int | None = None
        """A line breaks when it has brought so much to the client."""

    def cut(self) -> None:
        """Every line breaks now."""
        self.cuts += bool(self._open)
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    @asynccontextmanager
    async def cut_every(self, seconds: float) -> AsyncIterator[None]:
        """While this is entered, every line breaks again and again."""
        task = asyncio.create_task(self._cut_every(seconds))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self._down = False

    async def _cut_every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds - DOWN)
            self._down = True
            self.cut()
            await asyncio.sleep(DOWN)
            self._down = False

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on until either end has left."""
        if self._down:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(HOST, self._target)
        self._open |= {writer, back}
        try:
            await asyncio.gather(self._pass(reader, back, None), self._pass(there, writer, self.most_bytes))
        except OSError:
            pass  # it broke
        finally:
            self._open -= {writer, back}
            writer.close()
            back.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None) -> None:
        passed = 0
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
            passed += len(data)
            if most is not None and passed > most:
                self.cut()
        if writer.can_write_eof() and not writer.is_closing():
            writer.write_eof()


@asynccontextmanager
async def bad_line(target: int) -> AsyncIterator[BadLine]:
    line = BadLine(target)
    server = await asyncio.start_server(line.join, HOST, 0)
    line.port = server.sockets[0].getsockname()[1]
    async with server:
        yield line
        server.close()
        line.cut()
