"""Chat messages, sends and their receipts."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import attrs

from ..ids import (
    ClientMessageId,
    ConversationId,
    Index,
    ListCursor,
    MessageId,
    Position,
    RunId,
    Time,
)
from ..open_enum import OpenEnum
from ..states import MessageState, ReceiptState
from ._base import LoggedEvent, Request, Result, TransientEvent
from .attachment import Attachment


class MessageRole(OpenEnum):
    """Whose words a message holds. `notice` is the system's, about the conversation."""

    USER = "user"
    ASSISTANT = "assistant"
    NOTICE = "notice"


class Origin(OpenEnum):
    """What caused a message or run."""

    CHAT = "chat"
    CRON = "cron"
    BACKGROUND = "background"
    SYSTEM = "system"


class IfBusy(StrEnum):
    """What a send asks for while a run is active. The receipt says what was done."""

    QUEUE = "queue"
    STEER = "steer"
    INTERRUPT = "interrupt"
    REJECT = "reject"


class Disposition(OpenEnum):
    """What was done with a send."""

    STARTED = "started"
    QUEUED = "queued"
    STEERED = "steered"
    INTERRUPTED = "interrupted"


@attrs.frozen(kw_only=True)
class Message:
    """One chat message. A streaming message carries the `index` of the last change that its `text` includes.

    `position` is absent while a message is queued. `delivery` follows the receipt of a send. `interim` marks what the
    agent says on its way, `final` the answer itself.
    """

    message_id: MessageId
    conversation_id: ConversationId
    position: Position | None = None
    role: MessageRole
    origin: Origin
    status: MessageState
    text: str
    text_truncated: bool
    index: Index | None = None
    interim: bool = False
    final: bool = False
    run_id: RunId | None = None
    client_message_id: ClientMessageId | None = None
    delivery: ReceiptState | None = None
    attachments: tuple[Attachment, ...]
    created_at: Time
    completed_at: Time | None = None


@attrs.frozen(kw_only=True)
class Receipt:
    """What became of a send. `duplicate` is true when this answer repeats an earlier one."""

    client_message_id: ClientMessageId
    message_id: MessageId
    conversation_id: ConversationId
    disposition: Disposition
    state: ReceiptState
    run_id: RunId
    duplicate: bool


@attrs.frozen(kw_only=True)
class MessageSend(Request):
    """Send the owner's words. Safe to repeat with the same client id and content: nothing runs twice."""

    type: ClassVar[str] = "message.send"
    conversation_id: ConversationId
    client_message_id: ClientMessageId
    text: str
    if_busy: IfBusy = IfBusy.QUEUE


@attrs.frozen(kw_only=True)
class MessageSendResult(Result):
    """The send is durable; the receipt says what was done with it."""

    type: ClassVar[str] = "message.send.result"
    receipt: Receipt


@attrs.frozen(kw_only=True)
class MessageReceipt(Request):
    """Ask what became of a send; `not_found` means it was never admitted."""

    type: ClassVar[str] = "message.receipt"
    client_message_id: ClientMessageId


@attrs.frozen(kw_only=True)
class MessageReceiptResult(Result):
    """What became of a send."""

    type: ClassVar[str] = "message.receipt.result"
    receipt: Receipt


@attrs.frozen(kw_only=True)
class MessageText(Request):
    """Ask for a message's whole text, in parts when it is long."""

    type: ClassVar[str] = "message.text"
    message_id: MessageId
    cursor: ListCursor | None = None


@attrs.frozen(kw_only=True)
class MessageTextResult(Result):
    """A part of a message's text; `index` is the last change that the whole includes."""

    type: ClassVar[str] = "message.text.result"
    text: str
    next: ListCursor | None = None
    index: Index
    status: MessageState


@attrs.frozen(kw_only=True)
class MessageCreated(LoggedEvent):
    """A message exists. Created in a final status it gets no `message.completed`."""

    type: ClassVar[str] = "message.created"
    conversation_id: ConversationId
    message: Message


@attrs.frozen(kw_only=True)
class MessageUpdated(LoggedEvent):
    """Something about a message changed, its text's end apart."""

    type: ClassVar[str] = "message.updated"
    conversation_id: ConversationId
    message: Message


@attrs.frozen(kw_only=True)
class MessageCompleted(LoggedEvent):
    """A message has ended, see its status; it carries the whole text."""

    type: ClassVar[str] = "message.completed"
    conversation_id: ConversationId
    message: Message


@attrs.frozen(kw_only=True)
class MessageDelta(TransientEvent):
    """Text was appended. Skipped when `last_index` (or `index`) is not above the receiver's own index."""

    type: ClassVar[str] = "message.delta"
    conversation_id: ConversationId
    run_id: RunId | None = None
    message_id: MessageId
    index: Index
    last_index: Index | None = None
    text: str


@attrs.frozen(kw_only=True)
class MessageReplaced(TransientEvent):
    """The whole text so far is this one now."""

    type: ClassVar[str] = "message.replaced"
    conversation_id: ConversationId
    run_id: RunId | None = None
    message_id: MessageId
    index: Index
    text: str
