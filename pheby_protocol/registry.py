"""Every protocol message by its type tag."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from inspect import get_annotations
from typing import Any, Final, get_args, get_type_hints

import attrs

from .errors import ErrorCode
from .ids import SCALARS
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
    """One row of the registry.

    `result` is the type tag that answers a request, `errors` what else may answer it (beside COMMON_ERRORS);
    `since` the protocol version.
    """

    cls: type[Message]
    kind: Kind
    direction: Direction
    since: int
    result: str | None
    errors: tuple[ErrorCode, ...] = ()

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


COMMON_ERRORS: Final = (
    ErrorCode.INVALID_MESSAGE,
    ErrorCode.NOT_READY,
    ErrorCode.FORBIDDEN,
    ErrorCode.RATE_LIMITED,
    ErrorCode.UNAVAILABLE,
    ErrorCode.INTERNAL,
)
"""What any request may be answered with."""


def _spec(
    cls: type[Message], result: type[Message] | None = None, errors: tuple[ErrorCode, ...] = (), since: int = 1
) -> MessageSpec:
    kind = _kind(cls)
    direction = Direction.CLIENT_TO_SERVER if kind is Kind.REQUEST else Direction.SERVER_TO_CLIENT
    return MessageSpec(cls, kind, direction, since, result.type if result else None, errors)


E = ErrorCode
_ROWS: Final[tuple[MessageSpec, ...]] = (
    _spec(connection.Hello, connection.Welcome, (E.UNSUPPORTED_VERSION,)),
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
    _spec(conversation.ConversationGet, conversation.ConversationGetResult, (E.NOT_FOUND,)),
    _spec(conversation.ConversationGetResult),
    _spec(history.ConversationHistory, history.ConversationHistoryResult, (E.NOT_FOUND,)),
    _spec(history.ConversationHistoryResult),
    _spec(conversation.ConversationCreate, conversation.ConversationCreateResult, (E.NOT_FOUND, E.INVALID_TITLE)),
    _spec(conversation.ConversationCreateResult),
    _spec(
        conversation.ConversationRename,
        conversation.ConversationRenameResult,
        (E.NOT_FOUND, E.INVALID_TITLE, E.TITLE_CONFLICT),
    ),
    _spec(conversation.ConversationRenameResult),
    _spec(conversation.ConversationDelete, conversation.ConversationDeleteResult),
    _spec(conversation.ConversationDeleteResult),
    _spec(conversation.ConversationCreated),
    _spec(conversation.ConversationUpdated),
    _spec(conversation.ConversationDeleted),
    _spec(conversation.HistoryChanged),
    _spec(message.MessageSend, message.MessageSendResult, (E.NOT_FOUND, E.CONFLICT, E.BUSY, E.TOO_LARGE)),
    _spec(message.MessageSendResult),
    _spec(message.MessageReceipt, message.MessageReceiptResult, (E.NOT_FOUND,)),
    _spec(message.MessageReceiptResult),
    _spec(message.MessageText, message.MessageTextResult, (E.NOT_FOUND,)),
    _spec(message.MessageTextResult),
    _spec(message.MessageCreated),
    _spec(message.MessageUpdated),
    _spec(message.MessageCompleted),
    _spec(message.MessageDelta),
    _spec(message.MessageReplaced),
    _spec(run.RunCancel, run.RunCancelResult, (E.NOT_FOUND,)),
    _spec(run.RunCancelResult),
    _spec(run.RunStarted),
    _spec(run.RunUpdated),
    _spec(run.RunEnded),
    _spec(run.RunProgress),
    _spec(tool.ToolStarted),
    _spec(tool.ToolCompleted),
    _spec(
        approval.ApprovalRespond,
        approval.ApprovalRespondResult,
        (E.EXPIRED, E.ALREADY_RESOLVED, E.INVALID_CHOICE, E.NOT_ANSWERABLE, E.TOO_LARGE),
    ),
    _spec(approval.ApprovalRespondResult),
    _spec(approval.ApprovalRequested),
    _spec(approval.ApprovalUpdated),
    _spec(approval.ApprovalResolved),
    _spec(
        clarification.ClarificationRespond,
        clarification.ClarificationRespondResult,
        (E.EXPIRED, E.ALREADY_RESOLVED, E.INVALID_CHOICE, E.TOO_LARGE),
    ),
    _spec(clarification.ClarificationRespondResult),
    _spec(clarification.ClarificationRequested),
    _spec(clarification.ClarificationResolved),
    _spec(attachment.AttachmentGet, attachment.AttachmentGetResult, (E.NOT_FOUND,)),
    _spec(attachment.AttachmentGetResult),
    _spec(attachment.AttachmentCreated),
    _spec(attachment.AttachmentExpired),
    _spec(model.ModelList, model.ModelListResult, (E.NOT_FOUND,)),
    _spec(model.ModelListResult),
    _spec(model.ModelSelect, model.ModelSelectResult, (E.NOT_FOUND, E.BUSY, E.INVALID_MODEL)),
    _spec(model.ModelSelectResult),
    _spec(model.ReasoningList, model.ReasoningListResult, (E.NOT_FOUND,)),
    _spec(model.ReasoningListResult),
    _spec(model.ReasoningSelect, model.ReasoningSelectResult, (E.NOT_FOUND, E.BUSY, E.INVALID_EFFORT)),
    _spec(model.ReasoningSelectResult),
    _spec(model.ModelChanged),
    _spec(model.ReasoningChanged),
)

REGISTRY: Final[dict[str, MessageSpec]] = {spec.type: spec for spec in _ROWS}


def _parts(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    parts = get_args(annotation)
    if not parts:
        yield annotation
    for part in parts:
        yield from _parts(part)


def _describe(found: Any) -> tuple[list[str], list[Any]]:
    """What a type allows, in words that do not depend on the Python version, and the types that it holds."""
    if attrs.has(found):
        # The annotations as written: cattrs replaces those that attrs keeps.
        written = {name: text for base in reversed(found.__mro__) for name, text in get_annotations(base).items()}
        hints = get_type_hints(found)
        fields = attrs.fields(found)
        lines = [f"{found.__module__}.{found.__name__}"]
        for field in fields:
            default = "required" if field.default is attrs.NOTHING else repr(field.default)
            lines.append(f" {field.name}: {written[field.name]} = {default}")
        return lines, [part for field in fields for part in _parts(hints[field.name])]
    if isinstance(found, type) and issubclass(found, StrEnum):
        return [f"{found.__module__}.{found.__name__}: {', '.join(found)}"], []
    rule = SCALARS.get(found)
    return ([] if rule is None else [str(attrs.evolve(rule, description=""))]), []


@cache
def schema_digest() -> str:
    """A short digest of every message's fields, however deep: equal digests mean equal messages."""
    lines = []
    waiting: list[Any] = [spec.cls for spec in _ROWS]
    seen = set()
    while waiting:
        found = waiting.pop()
        if found not in seen:
            seen.add(found)
            described, held = _describe(found)
            lines.append("\n".join(described))
            waiting += held
    lines.sort()
    return hashlib.sha256("\n".join([*REGISTRY, *lines]).encode()).hexdigest()[:16]
