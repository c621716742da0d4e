"""ALL state tables of the protocol. Exported as they are; the diagrams in the documents are drawn from them.

States that also travel on the wire are open enumerations; a table covers the known values.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from .machine import IGNORE, REFUSE, Table, table
from .open_enum import OpenEnum


class ConnectionState(StrEnum):
    """Of one connection, the same on both sides."""

    AWAITING_HELLO = "awaiting_hello"
    SYNCING = "syncing"
    READY = "ready"
    DRAINING = "draining"
    CLOSING = "closing"
    CLOSED = "closed"


class ConnectionEvent(StrEnum):
    """What happens to a connection."""

    HELLO = "hello"
    SYNCED = "synced"
    DRAIN = "drain"
    CLOSE = "close"
    LOST = "lost"


C, CE = ConnectionState, ConnectionEvent
CONNECTION: Final = table(
    "connection",
    ConnectionState,
    ConnectionEvent,
    (C.AWAITING_HELLO,),
    {
        # A draining server takes nobody in: who is not in step yet is closed.
        C.AWAITING_HELLO: ({CE.HELLO: C.SYNCING, CE.CLOSE: C.CLOSING, CE.LOST: C.CLOSED, CE.DRAIN: C.CLOSING}, REFUSE),
        C.SYNCING: ({CE.SYNCED: C.READY, CE.CLOSE: C.CLOSING, CE.LOST: C.CLOSED, CE.DRAIN: C.CLOSING}, REFUSE),
        C.READY: ({CE.CLOSE: C.CLOSING, CE.LOST: C.CLOSED, CE.DRAIN: C.DRAINING}, REFUSE),
        C.DRAINING: ({CE.CLOSE: C.CLOSING, CE.LOST: C.CLOSED, CE.DRAIN: IGNORE}, REFUSE),
        C.CLOSING: ({CE.LOST: C.CLOSED}, IGNORE),
        C.CLOSED: ({}, IGNORE),
    },
)


class RunState(OpenEnum):
    """Of one run, one turn of the agent."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunEvent(StrEnum):
    """What happens to a run."""

    START = "start"
    WAIT = "wait"
    CONTINUE = "continue"
    CANCEL = "cancel"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCELLED = "cancelled"


R, RE = RunState, RunEvent
_RUN_ENDS: Final = {RE.COMPLETE: R.COMPLETED, RE.FAIL: R.FAILED, RE.CANCELLED: R.CANCELLED}
RUN: Final = table(
    "run",
    RunState,
    RunEvent,
    (R.QUEUED,),
    {
        # A queued run that is cancelled ends at once: Hermes has never seen it.
        R.QUEUED: ({RE.START: R.RUNNING, RE.CANCELLED: R.CANCELLED, RE.FAIL: R.FAILED}, REFUSE),
        R.RUNNING: (
            {RE.WAIT: R.WAITING, RE.CANCEL: R.CANCELLING, RE.START: IGNORE, RE.CONTINUE: IGNORE, **_RUN_ENDS},
            REFUSE,
        ),
        R.WAITING: (
            {RE.CONTINUE: R.RUNNING, RE.CANCEL: R.CANCELLING, RE.WAIT: IGNORE, RE.START: IGNORE, **_RUN_ENDS},
            REFUSE,
        ),
        # A cancel can lose the race to success.
        R.CANCELLING: (dict(_RUN_ENDS), IGNORE),
        R.COMPLETED: ({}, IGNORE),
        R.FAILED: ({}, IGNORE),
        R.CANCELLED: ({}, IGNORE),
    },
)


class MessageState(OpenEnum):
    """Of one chat message."""

    QUEUED = "queued"
    STREAMING = "streaming"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class MessageEvent(StrEnum):
    """What happens to a chat message."""

    CHANGE = "change"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


M, ME = MessageState, MessageEvent
_MESSAGE_ENDS: Final = {ME.COMPLETE: M.COMPLETED, ME.FAIL: M.FAILED, ME.CANCEL: M.CANCELLED}
MESSAGE: Final = table(
    "message",
    MessageState,
    MessageEvent,
    (M.STREAMING, M.QUEUED),
    {
        M.QUEUED: (dict(_MESSAGE_ENDS), REFUSE),
        M.STREAMING: ({ME.CHANGE: M.STREAMING, **_MESSAGE_ENDS}, REFUSE),
        M.COMPLETED: ({}, IGNORE),
        M.FAILED: ({}, IGNORE),
        M.CANCELLED: ({}, IGNORE),
    },
)


class ToolCallState(OpenEnum):
    """Of one tool call."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ToolCallEvent(StrEnum):
    """What happens to a tool call."""

    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


T, TE = ToolCallState, ToolCallEvent
TOOL_CALL: Final = table(
    "tool_call",
    ToolCallState,
    ToolCallEvent,
    (T.RUNNING,),
    {
        T.RUNNING: ({TE.COMPLETE: T.COMPLETED, TE.FAIL: T.FAILED, TE.CANCEL: T.CANCELLED}, REFUSE),
        T.COMPLETED: ({}, IGNORE),
        T.FAILED: ({}, IGNORE),
        T.CANCELLED: ({}, IGNORE),
    },
)


class ApprovalState(StrEnum):
    """Of one approval. QUEUED and RESOLVING are the server's own; on the wire both are `pending`."""

    QUEUED = "queued"
    PENDING = "pending"
    RESOLVING = "resolving"
    RESOLVED = "resolved"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class ApprovalEvent(StrEnum):
    """What happens to an approval."""

    PROMOTE = "promote"
    ANSWER = "answer"
    ANSWER_FAILED = "answer_failed"
    RESOLVE = "resolve"
    EXPIRE = "expire"
    CANCEL = "cancel"


A, AE = ApprovalState, ApprovalEvent
_APPROVAL_ENDS: Final = {AE.RESOLVE: A.RESOLVED, AE.EXPIRE: A.EXPIRED, AE.CANCEL: A.CANCELLED}
APPROVAL: Final = table(
    "approval",
    ApprovalState,
    ApprovalEvent,
    (A.PENDING, A.QUEUED),
    {
        # Queued: not the oldest on a Hermes that answers oldest first. It may still be decided elsewhere.
        A.QUEUED: ({AE.PROMOTE: A.PENDING, **_APPROVAL_ENDS}, REFUSE),
        A.PENDING: ({AE.ANSWER: A.RESOLVING, AE.PROMOTE: IGNORE, **_APPROVAL_ENDS}, REFUSE),
        # First answer wins: a second one meets REFUSE and is told who was first.
        A.RESOLVING: ({AE.ANSWER_FAILED: A.PENDING, AE.PROMOTE: IGNORE, **_APPROVAL_ENDS}, REFUSE),
        A.RESOLVED: ({}, IGNORE),
        A.EXPIRED: ({}, IGNORE),
        A.CANCELLED: ({}, IGNORE),
    },
)


class ClarificationState(StrEnum):
    """Of one clarification. RESOLVING is the server's own; on the wire it is `pending`."""

    PENDING = "pending"
    RESOLVING = "resolving"
    RESOLVED = "resolved"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class ClarificationEvent(StrEnum):
    """What happens to a clarification."""

    ANSWER = "answer"
    ANSWER_FAILED = "answer_failed"
    RESOLVE = "resolve"
    EXPIRE = "expire"
    CANCEL = "cancel"


L, LE = ClarificationState, ClarificationEvent
_CLARIFICATION_ENDS: Final = {LE.RESOLVE: L.RESOLVED, LE.EXPIRE: L.EXPIRED, LE.CANCEL: L.CANCELLED}
CLARIFICATION: Final = table(
    "clarification",
    ClarificationState,
    ClarificationEvent,
    (L.PENDING,),
    {
        L.PENDING: ({LE.ANSWER: L.RESOLVING, **_CLARIFICATION_ENDS}, REFUSE),
        L.RESOLVING: ({LE.ANSWER_FAILED: L.PENDING, **_CLARIFICATION_ENDS}, REFUSE),
        L.RESOLVED: ({}, IGNORE),
        L.EXPIRED: ({}, IGNORE),
        L.CANCELLED: ({}, IGNORE),
    },
)


class AttachmentState(OpenEnum):
    """Of one attachment."""

    AVAILABLE = "available"
    EXPIRED = "expired"


class AttachmentEvent(StrEnum):
    """What happens to an attachment."""

    EXPIRE = "expire"


ATTACHMENT: Final = table(
    "attachment",
    AttachmentState,
    AttachmentEvent,
    (AttachmentState.AVAILABLE,),
    {
        AttachmentState.AVAILABLE: ({AttachmentEvent.EXPIRE: AttachmentState.EXPIRED}, REFUSE),
        AttachmentState.EXPIRED: ({}, IGNORE),
    },
)


class ReceiptState(OpenEnum):
    """Of one send, from its durable admission on."""

    ADMITTED = "admitted"
    DISPATCHED = "dispatched"
    DONE = "done"
    EXPIRED = "expired"
    INDETERMINATE = "indeterminate"


class ReceiptEvent(StrEnum):
    """What happens to a send."""

    HAND_OVER = "hand_over"
    FINISH = "finish"
    LAPSE = "lapse"
    LOSE_SIGHT = "lose_sight"


P, PE = ReceiptState, ReceiptEvent
RECEIPT: Final = table(
    "receipt",
    ReceiptState,
    ReceiptEvent,
    (P.ADMITTED,),
    {
        # FINISH from ADMITTED: cancelled while it waited, Hermes has never seen it.
        P.ADMITTED: ({PE.HAND_OVER: P.DISPATCHED, PE.FINISH: P.DONE, PE.LAPSE: P.EXPIRED}, REFUSE),
        P.DISPATCHED: ({PE.FINISH: P.DONE, PE.LOSE_SIGHT: P.INDETERMINATE, PE.HAND_OVER: IGNORE}, REFUSE),
        P.DONE: ({}, IGNORE),
        P.EXPIRED: ({}, IGNORE),
        P.INDETERMINATE: ({}, IGNORE),
    },
)

TABLES: Final[tuple[Table[Any, Any], ...]] = (
    CONNECTION,
    RUN,
    MESSAGE,
    TOOL_CALL,
    APPROVAL,
    CLARIFICATION,
    ATTACHMENT,
    RECEIPT,
)
