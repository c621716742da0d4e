"""A peer in a process of its own that is spoken to in JSON Lines: one object a line, in and out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from .check import ConformanceError

LINE_BYTES = 2**25
_STOP_SECONDS = 3.0
_LAST_LINES = 10
_LONGEST_LINE = 500


class Peer(Protocol):
    """What is under test."""

    async def tell(self, line: dict[str, Any]) -> None:
        """Write one line."""

    async def hear(self, patience: float) -> dict[str, Any]:
        """The next line. Raises ConformanceError when none comes."""

    async def ended(self) -> str:
        """Waits until it has ended by itself; how."""


class ProcessPeer:
    """A peer's own process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._complaints: deque[bytes] = deque(maxlen=_LAST_LINES)
        self._listening = asyncio.create_task(self._listen(), name="conformance-stderr")

    async def _listen(self) -> None:
        """Read the error output, so that the process never waits for a reader, and keep its end."""
        assert self._process.stderr is not None
        rest = b""
        while piece := await self._process.stderr.read(2**16):
            *lines, rest = (rest + piece).split(b"\n")
            self._complaints.extend(lines)
            rest = rest[-_LONGEST_LINE:]
        if rest:
            self._complaints.append(rest)

    async def close(self) -> None:
        """Read no more of it."""
        self._listening.cancel()
        await asyncio.wait([self._listening])

    @property
    def complaints(self) -> str:
        """The last lines of its error output, each behind a line break."""
        return "".join(f"\n| {line.decode(errors='replace')[:_LONGEST_LINE]}" for line in self._complaints)

    async def ended(self) -> str:
        code = await self._process.wait()
        # Whoever has inherited its error output may keep it open.
        await asyncio.wait([self._listening], timeout=_STOP_SECONDS)
        return f"the process has ended by itself ({code}){self.complaints}"

    async def tell(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        try:
            await self._process.stdin.drain()
        except ConnectionError:
            raise ConformanceError(await self.ended()) from None

    async def hear(self, patience: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(patience):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise ConformanceError(f"the process has written no line within {patience:g} s") from None
        if not line:
            raise ConformanceError(f"the process has closed its output{self.complaints}")
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConformanceError(f"the process has written a line that is no JSON object: {line[:200]!r}")
        return found


@asynccontextmanager
async def process_peer(command: str, *more: str, env: Mapping[str, str] | None = None) -> AsyncIterator[ProcessPeer]:
    """Start a command with more arguments and more environment; it is ended with the context."""
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command),
            *more,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(env or {})},
            limit=LINE_BYTES,
        )
    except (OSError, ValueError) as failure:
        raise ConformanceError(f"prerequisite: the command cannot be started: {failure}") from None
    peer = ProcessPeer(process)
    try:
        yield peer
    finally:
        await _end(process)
        await peer.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Its input is closed; if that is not enough, it is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
