"""The server's state as frames that each fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import attrs

from pheby_protocol.codec import encode_object
from pheby_protocol.ids import Count, ListCursor, Seq
from pheby_protocol.messages.connection import Snapshot
from pheby_protocol.messages.conversation import Conversation
from pheby_protocol.messages.message import Message
from pheby_protocol.messages.run import Run

T = TypeVar("T")


def snapshot_parts(
    seq: Seq,
    room: int,
    conversations: Sequence[Conversation],
    conversations_next: ListCursor | None,
    runs: Sequence[Run],
    messages: Sequence[Message],
) -> list[Snapshot]:
    """The parts of a snapshot, each with at most `room` bytes of objects, or one object that is larger."""
    empty = Snapshot(
        part=Count(0),
        last=False,
        seq=seq,
        conversations=(),
        runs=(),
        messages=(),
        tool_calls=(),
        approvals=(),
        clarifications=(),
    )
    parts = [
        *(attrs.evolve(empty, conversations=some) for some in _chunks(conversations, room)),
        *(attrs.evolve(empty, runs=some) for some in _chunks(runs, room)),
        *(attrs.evolve(empty, messages=some) for some in _chunks(messages, room)),
    ] or [empty]
    parts[-1] = attrs.evolve(parts[-1], last=True, conversations_next=conversations_next)
    return [attrs.evolve(part, part=Count(number)) for number, part in enumerate(parts)]


def _chunks(items: Iterable[T], room: int) -> Iterator[tuple[T, ...]]:
    chunk: list[T] = []
    size = 0
    for item in items:
        length = len(encode_object(item).encode())
        if chunk and size + length > room:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(item)
        size += length
    if chunk:
        yield tuple(chunk)
