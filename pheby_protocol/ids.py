"""Identifiers and other bounded scalars: NewTypes, with the rule of each for the codec and the exports."""

from __future__ import annotations

import re
from typing import Any, Final, NewType

import attrs

from .limits import MAX_ID_CHARS, MAX_INTEGER

RequestId = NewType("RequestId", str)
ConversationId = NewType("ConversationId", str)
MessageId = NewType("MessageId", str)
RunId = NewType("RunId", str)
ToolCallId = NewType("ToolCallId", str)
ApprovalId = NewType("ApprovalId", str)
ClarificationId = NewType("ClarificationId", str)
AttachmentId = NewType("AttachmentId", str)
ClientMessageId = NewType("ClientMessageId", str)
ClientConversationId = NewType("ClientConversationId", str)
DeviceId = NewType("DeviceId", str)
ConnectionId = NewType("ConnectionId", str)
Epoch = NewType("Epoch", str)
HistoryId = NewType("HistoryId", str)
ChoiceId = NewType("ChoiceId", str)
ListCursor = NewType("ListCursor", str)

Seq = NewType("Seq", int)
Position = NewType("Position", int)
Index = NewType("Index", int)
Count = NewType("Count", int)
Millis = NewType("Millis", int)
"""A length of time in milliseconds."""
Time = NewType("Time", int)
"""Milliseconds since 1970-01-01 UTC."""


@attrs.frozen
class StringRule:
    """What a string type allows: length in code points, and a pattern that must match the whole."""

    name: str
    min_length: int
    max_length: int
    pattern: str | None
    description: str


@attrs.frozen
class IntegerRule:
    """What an integer type allows, both ends included."""

    name: str
    minimum: int
    maximum: int
    description: str


ID_PATTERN: Final = "[A-Za-z0-9_-]{1,64}"


def _id(name: str, description: str) -> StringRule:
    return StringRule(name, 1, MAX_ID_CHARS, ID_PATTERN, description)


SCALARS: Final[dict[Any, StringRule | IntegerRule]] = {
    RequestId: StringRule("RequestId", 1, MAX_ID_CHARS, None, "The client's, unique among its open requests."),
    ConversationId: _id("ConversationId", "Opaque, stable for ever; starts with conv_."),
    MessageId: _id("MessageId", "Opaque; starts with msg_."),
    RunId: _id("RunId", "Opaque; starts with run_."),
    ToolCallId: _id("ToolCallId", "Opaque; starts with tool_."),
    ApprovalId: _id("ApprovalId", "Opaque; starts with appr_."),
    ClarificationId: _id("ClarificationId", "Opaque; starts with clar_."),
    AttachmentId: _id("AttachmentId", "Opaque; starts with att_."),
    ClientMessageId: _id("ClientMessageId", "Minted by the client, one per message that its user sends."),
    ClientConversationId: _id("ClientConversationId", "Minted by the client, one per conversation that it creates."),
    DeviceId: _id("DeviceId", "Per installation of the app; not part of backups."),
    ConnectionId: _id("ConnectionId", "One per connection, for logs on both sides."),
    Epoch: _id("Epoch", "Names one unbroken event log; a cursor is worth nothing in another epoch."),
    HistoryId: _id("HistoryId", "Changes when finished history was changed, removed or re-ordered."),
    ChoiceId: _id("ChoiceId", "One choice of one clarification."),
    ListCursor: StringRule("ListCursor", 1, 512, None, "Opaque; from an earlier answer's next."),
    Seq: IntegerRule(
        "Seq", 0, MAX_INTEGER, "Place in the event log; strictly increasing in an epoch, gaps are normal."
    ),
    Position: IntegerRule("Position", 0, MAX_INTEGER, "Display order within a conversation; gaps are normal."),
    Index: IntegerRule("Index", -1, MAX_INTEGER, "Number of the last change that a streamed text includes; -1: none."),
    Count: IntegerRule("Count", 0, MAX_INTEGER, "A number of things."),
    Millis: IntegerRule("Millis", 0, MAX_INTEGER, "A length of time in milliseconds."),
    Time: IntegerRule("Time", 0, MAX_INTEGER, "Milliseconds since 1970-01-01 UTC."),
}

_ID = re.compile(ID_PATTERN)


def is_id(text: str) -> bool:
    """Whether the text is a well-formed opaque identifier."""
    return _ID.fullmatch(text) is not None
