"""Messages that have not come to their end: all sockets together may have sent so much of them.

aiohttp bounds one message, and holds the beginning of one for as long as its client likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs

MAX_BYTES: Final = 16 * 2**20
"""Beyond it whoever began first is cut off; it comes again."""
LARGE_BYTES: Final = 65_536
"""Who has sent less is left alone."""
_MAX_HEADER_BYTES: Final = 14
"""Of one frame, with its mask."""


@attrs.define(eq=False)
class Incoming:
    """What one client has sent, without the messages that were read."""

    _all: Unfinished
    cut: Callable[[], None]
    held: int = 0

    def came(self, size: int) -> None:
        """So many bytes more."""
        self._all.changed(self, size)

    def read(self, content: str | bytes) -> None:
        """A message was complete."""
        if isinstance(content, str) and not content.isascii():
            content = content.encode("utf-8", "surrogatepass")
        size = len(content)
        self._all.changed(self, -min(self.held, size + _MAX_HEADER_BYTES))


class Unfinished:
    """What all clients have sent of messages that are not complete."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._bytes = 0
        self._incoming: dict[Incoming, None] = {}
        """In the order in which they began."""

    @contextmanager
    def of(self, cut: Callable[[], None]) -> Iterator[Incoming]:
        """Of one client, while it is here."""
        incoming = Incoming(self, cut)
        try:
            yield incoming
        finally:
            self._forget(incoming)

    def changed(self, incoming: Incoming, size: int) -> None:
        """So much more, or less, of one client."""
        incoming.held += size
        self._bytes += size
        if not incoming.held:
            self._incoming.pop(incoming, None)
            return
        self._incoming.setdefault(incoming)
        if self._bytes > self._most:
            self._make_room()

    def _make_room(self) -> None:
        first = next((each for each in self._incoming if each.held > LARGE_BYTES), None)
        if first is not None:
            self._forget(first)
            first.cut()

    def _forget(self, incoming: Incoming) -> None:
        self._bytes -= incoming.held
        incoming.held = 0
        self._incoming.pop(incoming, None)
