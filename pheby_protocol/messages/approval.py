"""Approvals: the agent asks before it does something dangerous."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..ids import ApprovalId, ConversationId, DeviceId, Position, RunId, Seq, Time, ToolCallId
from ..open_enum import OpenEnum
from ._base import LoggedEvent, Request, Result


class ApprovalKind(OpenEnum):
    """What is asked about."""

    COMMAND = "command"
    CONFIRMATION = "confirmation"


class PromptStatus(OpenEnum):
    """Of an approval or a clarification, as clients see it."""

    PENDING = "pending"
    RESOLVED = "resolved"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class DecisionSource(OpenEnum):
    """Where a decision came from."""

    DEVICE = "device"
    TIMEOUT = "timeout"
    RUN_END = "run_end"
    OTHER_SURFACE = "other_surface"


@attrs.frozen(kw_only=True)
class DecidedBy:
    """Who decided a prompt."""

    kind: DecisionSource
    device_id: DeviceId | None = None
    client_name: str | None = None


@attrs.frozen(kw_only=True)
class Approval:
    """A question that only the owner may answer. Offer exactly `choices`, and none that the client does not know.

    `session` and `always` approve the `pattern`, not this command alone. A truncated command can only be denied.
    """

    approval_id: ApprovalId
    kind: ApprovalKind
    conversation_id: ConversationId
    run_id: RunId | None = None
    tool_call_id: ToolCallId | None = None
    position: Position
    description: str
    command: str
    command_truncated: bool
    pattern: str | None = None
    choices: tuple[str, ...]
    answerable: bool
    status: PromptStatus
    decision: str | None = None
    decided_by: DecidedBy | None = None
    created_at: Time
    expires_at: Time | None = None


@attrs.frozen(kw_only=True)
class ApprovalRespond(Request):
    """Decide one approval. A choice that was not offered is refused and the approval stays open."""

    type: ClassVar[str] = "approval.respond"
    approval_id: ApprovalId
    choice: str
    reason: str | None = None


@attrs.frozen(kw_only=True)
class ApprovalRespondResult(Result):
    """The approval as decided."""

    type: ClassVar[str] = "approval.respond.result"
    approval: Approval
    as_of_seq: Seq


@attrs.frozen(kw_only=True)
class ApprovalRequested(LoggedEvent):
    """The agent waits for the owner's decision."""

    type: ClassVar[str] = "approval.requested"
    conversation_id: ConversationId
    approval: Approval


@attrs.frozen(kw_only=True)
class ApprovalUpdated(LoggedEvent):
    """Something about an open approval changed, for example that it can be answered now."""

    type: ClassVar[str] = "approval.updated"
    conversation_id: ConversationId
    approval: Approval


@attrs.frozen(kw_only=True)
class ApprovalResolved(LoggedEvent):
    """An approval is closed: decided, expired or cancelled."""

    type: ClassVar[str] = "approval.resolved"
    conversation_id: ConversationId
    approval: Approval
