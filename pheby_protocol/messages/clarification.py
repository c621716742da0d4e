"""Clarifications: the agent asks the owner a question."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..ids import ChoiceId, ClarificationId, ConversationId, Position, RunId, Seq, Time, ToolCallId
from ._base import LoggedEvent, Request, Result
from .approval import DecidedBy, PromptStatus


@attrs.frozen(kw_only=True)
class ClarificationChoice:
    """One answer on offer; the label is never empty."""

    choice_id: ChoiceId
    label: str


@attrs.frozen(kw_only=True)
class ClarificationAnswer:
    """What the owner answered."""

    choice_ids: tuple[ChoiceId, ...]
    text: str | None = None
    skipped: bool = False


@attrs.frozen(kw_only=True)
class Clarification:
    """A question of the agent, with or without choices."""

    clarification_id: ClarificationId
    conversation_id: ConversationId
    run_id: RunId | None = None
    tool_call_id: ToolCallId | None = None
    position: Position
    question: str
    choices: tuple[ClarificationChoice, ...]
    multiple: bool
    free_text: bool
    skippable: bool
    status: PromptStatus
    answer: ClarificationAnswer | None = None
    answered_by: DecidedBy | None = None
    created_at: Time
    expires_at: Time | None = None


@attrs.frozen(kw_only=True)
class ClarificationRespond(Request):
    """Answer a clarification. An answer that does not fit is refused and the question stays open."""

    type: ClassVar[str] = "clarification.respond"
    clarification_id: ClarificationId
    choice_ids: tuple[ChoiceId, ...] = ()
    text: str | None = None
    skip: bool = False


@attrs.frozen(kw_only=True)
class ClarificationRespondResult(Result):
    """The clarification as answered."""

    type: ClassVar[str] = "clarification.respond.result"
    clarification: Clarification
    as_of_seq: Seq


@attrs.frozen(kw_only=True)
class ClarificationRequested(LoggedEvent):
    """The agent waits for the owner's answer."""

    type: ClassVar[str] = "clarification.requested"
    conversation_id: ConversationId
    clarification: Clarification


@attrs.frozen(kw_only=True)
class ClarificationResolved(LoggedEvent):
    """A clarification is closed: answered, expired or cancelled."""

    type: ClassVar[str] = "clarification.resolved"
    conversation_id: ConversationId
    clarification: Clarification
