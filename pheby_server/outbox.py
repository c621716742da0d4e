"""What waits to be written to one client: bounded, so that a client that does not read costs bounded memory."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from pheby_protocol.codec import encode
from pheby_protocol.errors import CloseCode
from pheby_protocol.ids import Index, MessageId
from pheby_protocol.messages._base import Event, LoggedEvent
from pheby_protocol.messages.message import MessageDelta

PACE_FRAMES: Final = 16
"""So many frames of a replay wait to be written at most."""
PACE_BYTES: Final = 131_072
JOIN_FRAMES: Final = 16
"""With so many frames waiting a client is behind: what is appended to one message is told in one frame."""
MAX_JOINED_BYTES: Final = 32_768
TEXT_BYTES: Final = 64
"""That a text takes however short it is."""
ERROR_RESERVE: Final = 262_144
"""Beyond the bound for answers, so that it can still be said that one did not fit."""

BATCH_CHARS: Final = 65_536
"""Of live events in one frame; at most four times as many bytes, which fit the smallest frame limit."""


def batch(frames: Sequence[str]) -> str:
    """Encoded events as one frame: spliced in, not encoded again."""
    return f'{{"type":"batch","events":[{",".join(frames)}]}}'


def batches(frames: Sequence[str]) -> list[str]:
    """Encoded events in as few frames as hold them; one that is alone stays as it is."""
    groups: list[list[str]] = []
    room = 0
    for frame in frames:
        if len(frame) > room:
            groups.append([])
            room = BATCH_CHARS
        groups[-1].append(frame)
        room -= len(frame)
    return [batch(group) if len(group) > 1 else group[0] for group in groups]


@attrs.frozen
class Close:
    """The last thing to write: a close frame."""

    code: CloseCode
    reason: str


@attrs.define(eq=False)
class _Held:
    """What waits of one kind."""

    frames: int = 0
    bytes: int = 0


@attrs.define(eq=False)
class _Frame:
    held: _Held
    text: str
    size: int
    delta: MessageDelta | None = None
    """What it says, while more may be appended."""
    more: list[str] = attrs.field(factory=list)
    last_index: Index | None = None

    def append(self, delta: MessageDelta) -> None:
        # The text alone is kept: a short one takes less room than the event around it.
        self.more.append(delta.text)
        self.last_index = delta.index if delta.last_index is None else delta.last_index

    def written(self) -> str:
        if self.delta is None or not self.more:
            return self.text
        text = "".join((self.delta.text, *self.more))
        return encode(attrs.evolve(self.delta, last_index=self.last_index, text=text))


@attrs.define
class Queued:
    """What waits for all clients together. `on_full` makes room when it is too much."""

    max_bytes: int
    on_full: Callable[[], None] = lambda: None
    bytes: int = 0


class Outbox:
    """FIFO of frames for one connection. Live events have a bound, answers half of it; state is paced by its sender.

    One task takes (`get`), and one at a time paces what it puts (`room`).
    """

    def __init__(self, max_frames: int, max_bytes: int, queued: Queued | None = None) -> None:
        self._frames: deque[_Frame] = deque()
        self._close: Close | None = None
        # Futures, since an asyncio.Event holds most of a kilobyte, in each of a thousand idle connections.
        self._reader: asyncio.Future[None] | None = None
        self._sender: asyncio.Future[None] | None = None
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._queued = queued or Queued(sys.maxsize)
        self._state, self._answers, self._live = _Held(), _Held(), _Held()
        self._last_delta: dict[MessageId, _Frame] = {}
        """Frames that wait and that more may be appended to."""
        self.peak_bytes = 0

    @property
    def live_frames(self) -> int:
        return self._live.frames

    @property
    def live_bytes(self) -> int:
        return self._live.bytes

    @property
    def has_room(self) -> bool:
        """Whether answers may come: half of their bound is free, and somebody there."""
        return self._close is None and self._answers.bytes <= self._max_bytes // 4

    @property
    def is_behind(self) -> bool:
        """Whether so much waits that what is appended to one message is told in one frame."""
        return len(self._frames) >= JOIN_FRAMES

    @property
    def bytes(self) -> int:
        """Of everything that waits."""
        return self._state.bytes + self._answers.bytes + self._live.bytes

    def put(self, text: str) -> None:
        """Queue a part of the state. Ignored, as everything is, once the connection is closing."""
        if self._close is None:
            self._put(_Frame(self._state, text, size_of(text)))

    def put_answer(self, text: str, *, is_error: bool = False) -> bool:
        """Queue an answer; False when too many wait already (nothing was queued). Errors have some more room."""
        if self._close is not None:
            return True
        frame = _Frame(self._answers, text, size_of(text))
        if not self._fits(frame, self._max_bytes // 2 + (ERROR_RESERVE if is_error else 0)):
            return False
        self._put(frame)
        return True

    def put_live(self, text: str, event: Event | None = None) -> bool:
        """Queue a live event; False when the client is too far behind (nothing was queued)."""
        if self._close is not None or (isinstance(event, MessageDelta) and self._join(event)):
            return True
        frame = _Frame(self._live, text, size_of(text))
        if not self._fits(frame, self._max_bytes):
            return False
        self._put(frame)
        if self._last_delta or isinstance(event, MessageDelta):
            self._note(frame, event)
        return True

    def _fits(self, frame: _Frame, room: int) -> bool:
        # One always does, however large: else it would never come.
        held = frame.held
        return not held.frames or (held.frames < self._max_frames and held.bytes + frame.size <= room)

    def _join(self, delta: MessageDelta) -> bool:
        """Append to a frame that waits, if the client is behind and there is one."""
        frame = self._last_delta.get(delta.message_id)
        if frame is None or not self.is_behind:
            return False
        more = size_of(delta.text) + TEXT_BYTES
        if frame.size + more > MAX_JOINED_BYTES or self.live_bytes + more > self._max_bytes:
            return False
        frame.append(delta)
        frame.size += more
        self._count(self._live, 0, more)
        return True

    def _note(self, frame: _Frame, event: Event | None) -> None:
        if isinstance(event, MessageDelta):
            frame.delta = event
            self._last_delta[event.message_id] = frame
        elif isinstance(event, LoggedEvent) or event is None:
            # Nothing is told before what came before it: only among themselves may transient events change places.
            self._last_delta.clear()
        else:
            self._last_delta.pop(getattr(event, "message_id", MessageId("")), None)

    def _put(self, frame: _Frame) -> None:
        self._frames.append(frame)
        _wake(self._reader)
        self._count(frame.held, 1, frame.size)
        if self._queued.bytes > self._queued.max_bytes:
            self._queued.on_full()

    def _count(self, held: _Held, frames: int, size: int) -> None:
        held.frames += frames
        held.bytes += size
        self._queued.bytes += size
        if held is self._live and held.bytes > self.peak_bytes:
            self.peak_bytes = held.bytes

    def close(self, code: CloseCode, reason: str = "", *, discard: bool = False) -> None:
        """Queue the close; nothing is queued behind it. With discard what waits is not written any more."""
        if discard:
            self._discard()
        if self._close is not None:
            return
        self._close = Close(code, reason)
        _wake(self._reader)
        _wake(self._sender)

    def _discard(self) -> None:
        for frame in self._frames:
            self._count(frame.held, -1, -frame.size)
        self._frames.clear()
        self._last_delta.clear()

    async def room(self) -> bool:
        """Returns when the client has read most of what waits, so that a replay comes at its pace; False: closing."""
        while self._close is None and (len(self._frames) >= PACE_FRAMES or self._state.bytes >= PACE_BYTES):
            self._sender = asyncio.get_running_loop().create_future()
            await self._sender
        return self._close is None

    async def get(self) -> str | Close:
        """The next thing to write; Close is the last."""
        while not self._frames:
            if self._close is not None:
                return self._close
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        frame = self._frames.popleft()
        _wake(self._sender)
        self._count(frame.held, -1, -frame.size)
        if frame.delta is not None and self._last_delta.get(frame.delta.message_id) is frame:
            del self._last_delta[frame.delta.message_id]
        return frame.written()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def size_of(text: str) -> int:
    """What a text takes in memory, without a look at each character: one that is wide makes all of them wide."""
    return len(text) if text.isascii() else 4 * len(text)
