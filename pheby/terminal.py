"""The terminal of the chat: lines that a person types, and text that is written meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


class Terminal(Protocol):
    """Where the chat is shown and typed."""

    def line(self, text: str) -> None:
        """Write a whole line; it takes the place of the unfinished one that it begins with."""

    def unfinished(self, text: str) -> None:
        """Show a line that still grows."""

    def typed(self) -> AsyncIterator[str]:
        """Lines that are typed, until the end of input."""


class PlainTerminal:
    """Standard output as it comes; lines from standard input, whatever that is."""

    def __init__(self) -> None:
        self._shown = ""

    def line(self, text: str) -> None:
        if not text.startswith(self._shown):
            self._write("\n")
            self._shown = ""
        self._write(text[len(self._shown) :] + "\n")
        self._shown = ""

    def unfinished(self, text: str) -> None:
        if not text.startswith(self._shown):
            self._write("\n")
            self._shown = ""
        self._write(text[len(self._shown) :])
        self._shown = text

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    async def typed(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str | None] = asyncio.Queue()

        def read() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits for the rest
                reconfigure = getattr(sys.stdin, "reconfigure", None)
                if reconfigure is not None:
                    reconfigure(errors="replace")
                for line in sys.stdin:
                    loop.call_soon_threadsafe(queue.put_nowait, line.rstrip("\n"))
                loop.call_soon_threadsafe(queue.put_nowait, None)

        # A daemon: a blocked read must not keep the process alive.
        threading.Thread(target=read, daemon=True, name="pheby-input").start()
        while (line := await queue.get()) is not None:
            yield line


class EditingTerminal:
    """A line editor below, everything else above it. The unfinished line stands in the prompt until it is whole."""

    def __init__(self, session: PromptSession[str]) -> None:
        self._session = session
        self._growing = ""

    def line(self, text: str) -> None:
        self._growing = ""
        print(text)

    def unfinished(self, text: str) -> None:
        self._growing = text
        if self._session.app.is_running:
            self._session.app.invalidate()

    async def typed(self) -> AsyncIterator[str]:
        while True:
            try:
                yield await self._session.prompt_async(lambda: f"{self._growing}\n> " if self._growing else "> ")
            except (EOFError, KeyboardInterrupt):
                return


@contextlib.contextmanager
def open_terminal() -> Iterator[Terminal]:
    """The best terminal that can be had here."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        try:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.patch_stdout import patch_stdout
        except ImportError:
            pass
        else:
            session: PromptSession[str] = PromptSession()
            with patch_stdout(raw=True):
                yield EditingTerminal(session)
            return
    yield PlainTerminal()
