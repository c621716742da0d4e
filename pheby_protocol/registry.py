"""Every protocol message by its type tag."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Final

import attrs

from .messages import approval, attachment, clarification, connection, conversation, history, message, model, run, tool
from .messages._base import LoggedEvent, Message, Request, Result, TransientEvent


class Kind(StrEnum):
    """The part that a message plays in the exchange."""

    REQUEST = "request"
    RESULT = "result"
    ERROR = "error"
    LOGGED_EVENT = "logged_event"
    TRANSIENT_EVENT = "transient_event"
    SYNC = "sync"


class Direction(StrEnum):
    """Who sends it."""

    CLIENT_TO_SERVER = "client_to_server"
    SERVER_TO_CLIENT = "server_to_client"


@attrs.frozen
class MessageSpec:
    """One row of the registry. `result` is the type tag that answers a request; `since` the protocol version."""

    cls: type[Message]
    kind: Kind
    direction: Direction
    since: int
    result: str | None

    @property
    def type(self) -> str:
        return self.cls.type


def _kind(cls: type[Message]) -> Kind:
    for base, kind in (
        (Request, Kind.REQUEST),
        (Result, Kind.RESULT),
        (LoggedEvent, Kind.LOGGED_EVENT),
        (TransientEvent, Kind.TRANSIENT_EVENT),
        (connection.Error, Kind.ERROR),
    ):
        if issubclass(cls, base):
            return kind
    return Kind.SYNC


def _spec(cls: type[Message], result: type[Message] | None = None, since: int = 1) -> MessageSpec:
    kind = _kind(cls)
    direction = Direction.CLIENT_TO_SERVER if kind is Kind.REQUEST else Direction.SERVER_TO_CLIENT
    return MessageSpec(cls, kind, direction, since, result.type if result else None)


_ROWS: Final[tuple[MessageSpec, ...]] = (
    _spec(connection.Hello, connection.Welcome),
    _spec(connection.Welcome),
    _spec(connection.Snapshot),
    _spec(connection.SyncCompleted),
    _spec(connection.Batch),
    _spec(connection.Ping, connection.Pong),
    _spec(connection.Pong),
    _spec(connection.Error),
    _spec(connection.ServerDraining),
    _spec(conversation.ConversationList, conversation.ConversationListResult),
    _spec(conversation.ConversationListResult),
    _spec(conversation.ConversationGet, conversation.ConversationGetResult),
    _spec(conversation.ConversationGetResult),
    _spec(history.ConversationHistory, history.ConversationHistoryResult),
    _spec(history.ConversationHistoryResult),
    _spec(conversation.ConversationCreate, conversation.ConversationCreateResult),
    _spec(conversation.ConversationCreateResult),
    _spec(conversation.ConversationRename, conversation.ConversationRenameResult),
    _spec(conversation.ConversationRenameResult),
    _spec(conversation.ConversationDelete, conversation.ConversationDeleteResult),
    _spec(conversation.ConversationDeleteResult),
    _spec(conversation.ConversationCreated),
    _spec(conversation.ConversationUpdated),
    _spec(conversation.ConversationDeleted),
    _spec(conversation.HistoryChanged),
    _spec(message.MessageSend, message.MessageSendResult),
    _spec(message.MessageSendResult),
    _spec(message.MessageReceipt, message.MessageReceiptResult),
    _spec(message.MessageReceiptResult),
    _spec(message.MessageText, message.MessageTextResult),
    _spec(message.MessageTextResult),
    _spec(message.MessageCreated),
    _spec(message.MessageUpdated),
    _spec(message.MessageCompleted),
    _spec(message.MessageDelta),
    _spec(message.MessageReplaced),
    _spec(run.RunCancel, run.RunCancelResult),
    _spec(run.RunCancelResult),
    _spec(run.RunStarted),
    _spec(run.RunUpdated),
    _spec(run.RunEnded),
    _spec(run.RunProgress),
    _spec(tool.ToolStarted),
    _spec(tool.ToolCompleted),
    _spec(approval.ApprovalRespond, approval.ApprovalRespondResult),
    _spec(approval.ApprovalRespondResult),
    _spec(approval.ApprovalRequested),
    _spec(approval.ApprovalUpdated),
    _spec(approval.ApprovalResolved),
    _spec(clarification.ClarificationRespond, clarification.ClarificationRespondResult),
    _spec(clarification.ClarificationRespondResult),
    _spec(clarification.ClarificationRequested),
    _spec(clarification.ClarificationResolved),
    _spec(attachment.AttachmentGet, attachment.AttachmentGetResult),
    _spec(attachment.AttachmentGetResult),
    _spec(attachment.AttachmentCreated),
    _spec(attachment.AttachmentExpired),
    _spec(model.ModelList, model.ModelListResult),
    _spec(model.ModelListResult),
    _spec(model.ModelSelect, model.ModelSelectResult),
    _spec(model.ModelSelectResult),
    _spec(model.ReasoningList, model.ReasoningListResult),
    _spec(model.ReasoningListResult),
    _spec(model.ReasoningSelect, model.ReasoningSelectResult),
    _spec(model.ReasoningSelectResult),
    _spec(model.ModelChanged),
    _spec(model.ReasoningChanged),
)

REGISTRY: Final[dict[str, MessageSpec]] = {spec.type: spec for spec in _ROWS}


def schema_digest() -> str:
    """A short digest of every message's fields: equal digests mean equal messages."""
    lines = [
        f"{spec.type} {field.name}: {field.type} = {field.default}"
        for spec in _ROWS
        for field in attrs.fields(spec.cls)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
