"""Runs: one turn of the agent each."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..ids import ClientMessageId, ConversationId, Count, RunId, Seq, Time, ToolCallId
from ..open_enum import OpenEnum
from ..states import RunState
from ._base import LoggedEvent, Request, Result, TransientEvent
from .message import Origin


class RunReason(OpenEnum):
    """Why a run ended as it did, where the status alone does not say."""

    REQUESTED = "requested"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    SHUTDOWN = "shutdown"
    MAX_ITERATIONS = "max_iterations"
    GUARDRAIL = "guardrail"


class RunErrorCode(OpenEnum):
    """Why a run failed."""

    PROVIDER_ERROR = "provider_error"
    PROVIDER_AUTH = "provider_auth"
    PROVIDER_RATE_LIMITED = "provider_rate_limited"
    EMPTY_RESPONSE = "empty_response"
    CONTEXT_OVERFLOW = "context_overflow"
    INTERRUPTED_BY_RESTART = "interrupted_by_restart"
    TIMED_OUT = "timed_out"
    INTERNAL = "internal"


@attrs.frozen(kw_only=True)
class RunError:
    """Why a run failed: a stable code and a sentence for people, never the provider's own text."""

    code: RunErrorCode
    message: str


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens, as far as the provider counted them."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_tokens: Count | None = None


@attrs.frozen(kw_only=True)
class Run:
    """One turn of the agent. It ends exactly once."""

    run_id: RunId
    conversation_id: ConversationId
    origin: Origin
    status: RunState
    reason: RunReason | None = None
    error: RunError | None = None
    usage: Usage | None = None
    parent_run_id: RunId | None = None
    parent_tool_call_id: ToolCallId | None = None
    description: str | None = None
    created_at: Time
    started_at: Time | None = None
    ended_at: Time | None = None


@attrs.frozen(kw_only=True)
class RunCancel(Request):
    """Cancel a run, named by its id or by the send that caused it. An ended run is answered as it is."""

    type: ClassVar[str] = "run.cancel"
    run_id: RunId | None = None
    client_message_id: ClientMessageId | None = None
    drop_queued: bool = False


@attrs.frozen(kw_only=True)
class RunCancelResult(Result):
    """The run as it is now."""

    type: ClassVar[str] = "run.cancel.result"
    run: Run
    as_of_seq: Seq


@attrs.frozen(kw_only=True)
class RunStarted(LoggedEvent):
    """The agent works on it."""

    type: ClassVar[str] = "run.started"
    conversation_id: ConversationId
    run: Run


@attrs.frozen(kw_only=True)
class RunUpdated(LoggedEvent):
    """A run is queued, waits for the owner, goes on, or is being cancelled."""

    type: ClassVar[str] = "run.updated"
    conversation_id: ConversationId
    run: Run


@attrs.frozen(kw_only=True)
class RunEnded(LoggedEvent):
    """The one terminal event of a run."""

    type: ClassVar[str] = "run.ended"
    conversation_id: ConversationId
    run: Run


@attrs.frozen(kw_only=True)
class RunProgress(TransientEvent):
    """A phrase about what goes on, for a status line; not part of the transcript."""

    type: ClassVar[str] = "run.progress"
    conversation_id: ConversationId
    run_id: RunId
    text: str
