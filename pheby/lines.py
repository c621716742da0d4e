"""The lines that a person types, without stopping what is written meanwhile."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator


async def typed_lines(prompt: str) -> AsyncIterator[str]:
    """Lines from the terminal until Ctrl-D, or from whatever standard input is."""
    if sys.stdin.isatty():
        async for line in _edited_lines(prompt):
            yield line
    else:
        async for line in _piped_lines():
            yield line


async def _edited_lines(prompt: str) -> AsyncIterator[str]:
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.patch_stdout import patch_stdout
    except ImportError:
        async for line in _piped_lines():
            yield line
        return
    session: PromptSession[str] = PromptSession()
    # Output appears above the line that is being typed.
    with patch_stdout(raw=True):
        while True:
            try:
                yield await session.prompt_async(prompt)
            except (EOFError, KeyboardInterrupt):
                return


async def _piped_lines() -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(queue.put_nowait, line.rstrip("\n"))
        loop.call_soon_threadsafe(queue.put_nowait, None)

    # A daemon: a blocked read must not keep the process alive.
    threading.Thread(target=read, daemon=True, name="pheby-input").start()
    while (line := await queue.get()) is not None:
        yield line
