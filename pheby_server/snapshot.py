"""The server's state as frames that each fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from pheby_protocol.codec import encode_object
from pheby_protocol.ids import Count, ListCursor, Seq
from pheby_protocol.messages.approval import Approval
from pheby_protocol.messages.clarification import Clarification
from pheby_protocol.messages.connection import Snapshot
from pheby_protocol.messages.conversation import Conversation
from pheby_protocol.messages.message import Message
from pheby_protocol.messages.run import Run
from pheby_protocol.messages.tool import ToolCall


def snapshot_parts(
    seq: Seq,
    room: int,
    conversations: Sequence[Conversation],
    conversations_next: ListCursor | None,
    runs: Sequence[Run],
    messages: Sequence[Message],
    tool_calls: Sequence[ToolCall],
    approvals: Sequence[Approval],
    clarifications: Sequence[Clarification],
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
    objects = {
        "conversations": conversations,
        "runs": runs,
        "messages": messages,
        "tool_calls": tool_calls,
        "approvals": approvals,
        "clarifications": clarifications,
    }
    filled = [attrs.evolve(empty, **part) for part in _filled(objects, room)]
    filled[-1] = attrs.evolve(filled[-1], last=True, conversations_next=conversations_next)
    return [attrs.evolve(part, part=Count(number)) for number, part in enumerate(filled)]


def _filled(objects: Mapping[str, Sequence[Any]], room: int) -> list[dict[str, Any]]:
    """Objects by kind, in order, as few parts as they fit in; one part at least."""
    parts: list[dict[str, list[Any]]] = [{}]
    size = 0
    for name, items in objects.items():
        for item in items:
            length = len(encode_object(item).encode())
            if size and size + length > room:
                parts.append({})
                size = 0
            parts[-1].setdefault(name, []).append(item)
            size += length
    return [{name: tuple(found) for name, found in part.items()} for part in parts]
