"""A peer in a process of its own that is spoken to in JSON Lines: one object a line, in and out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from .check import ConformanceError

LINE_BYTES = 2**25
_STOP_SECONDS = 3.0


class Peer(Protocol):
    """What is under test."""

    async def tell(self, line: dict[str, Any]) -> None:
        """Write one line."""

    async def hear(self, patience: float) -> dict[str, Any]:
        """The next line. Raises ConformanceError when none comes."""


class ProcessPeer:
    """A peer's own process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def tell(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        try:
            await self._process.stdin.drain()
        except ConnectionError:
            raise ConformanceError(f"the process has ended ({self._process.returncode})") from None

    async def hear(self, patience: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(patience):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise ConformanceError(f"the process has written no line within {patience:g} s") from None
        if not line:
            raise ConformanceError("the process has closed its output")
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
            env={**os.environ, **(env or {})},
            limit=LINE_BYTES,
        )
    except (OSError, ValueError) as failure:
        raise ConformanceError(f"prerequisite: the command cannot be started: {failure}") from None
    try:
        yield ProcessPeer(process)
    finally:
        await _end(process)


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
