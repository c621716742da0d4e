"""A conversation's history, page by page."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..ids import ConversationId, Count, HistoryId, Position, Seq
from ._base import Request, Result
from .approval import Approval
from .clarification import Clarification
from .message import Message
from .run import Run
from .tool import ToolCall


@attrs.frozen(kw_only=True)
class ConversationHistory(Request):
    """Ask for a page of history: before or after a position (exclusive), or the newest page."""

    type: ClassVar[str] = "conversation.history"
    conversation_id: ConversationId
    limit: Count | None = None
    before: Position | None = None
    after: Position | None = None


@attrs.frozen(kw_only=True)
class ConversationHistoryResult(Result):
    """A page of history, each list ascending by position; the newest page ends with the queued messages.

    `before` and `after` are the first and last position of the page: the cursors for the pages around it.
    """

    type: ClassVar[str] = "conversation.history.result"
    conversation_id: ConversationId
    messages: tuple[Message, ...]
    tool_calls: tuple[ToolCall, ...]
    runs: tuple[Run, ...]
    approvals: tuple[Approval, ...]
    clarifications: tuple[Clarification, ...]
    before: Position | None = None
    after: Position | None = None
    has_more: bool
    history_id: HistoryId
    as_of_seq: Seq
