"""Tool calls of the agent."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..ids import ConversationId, Millis, Position, RunId, Time, ToolCallId
from ..open_enum import OpenEnum
from ..states import ToolCallState
from ._base import JsonObject, LoggedEvent


class ToolErrorCode(OpenEnum):
    """Why a tool call failed."""

    FAILED = "failed"
    DENIED = "denied"
    TIMED_OUT = "timed_out"
    APPROVAL_UNAVAILABLE = "approval_unavailable"
    INDETERMINATE = "indeterminate"
    """Nobody knows whether it was executed: what ran it is gone."""


@attrs.frozen(kw_only=True)
class ToolError:
    """Why a tool call failed: a stable code and a safe sentence."""

    code: ToolErrorCode
    message: str


@attrs.frozen(kw_only=True)
class ToolCall:
    """One tool call; exactly one end per start. Arguments and preview are redacted and bounded."""

    tool_call_id: ToolCallId
    hermes_call_id: str | None = None
    parent_tool_call_id: ToolCallId | None = None
    conversation_id: ConversationId
    run_id: RunId
    position: Position
    name: str
    description: str | None = None
    arguments: JsonObject
    arguments_truncated: bool
    status: ToolCallState
    started_at: Time
    ended_at: Time | None = None
    duration_ms: Millis | None = None
    result_preview: str | None = None
    truncated: bool
    error: ToolError | None = None


@attrs.frozen(kw_only=True)
class ToolStarted(LoggedEvent):
    """A tool call began."""

    type: ClassVar[str] = "tool.started"
    conversation_id: ConversationId
    tool_call: ToolCall


@attrs.frozen(kw_only=True)
class ToolCompleted(LoggedEvent):
    """A tool call ended, see its status."""

    type: ClassVar[str] = "tool.completed"
    conversation_id: ConversationId
    tool_call: ToolCall
