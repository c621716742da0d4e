"""The desk for approvals: exactly the one that was tapped is decided, once, by a choice that was offered."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import ApprovalId, ConversationId, DeviceId, RunId, Time
from pheby_protocol.messages.approval import (
    Approval,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalUpdated,
    DecidedBy,
    DecisionSource,
    PromptStatus,
)
from pheby_protocol.messages.connection import ErrorDetails
from pheby_protocol.states import APPROVAL, ApprovalEvent, ApprovalState

from .boundary import RequestError, sendable
from .ports import ApprovalPrompt
from .prompts import OpenPrompt, PromptDesk
from .sequencer import Change
from .stores import Statement, read_approval, read_open_approvals, save_approval

MAX_REASON_CHARS: Final = 1_000


@attrs.frozen
class Decision:
    """What the owner decided; the reason goes to Hermes only."""

    choice: str
    reason: str | None = None


class ApprovalDesk(PromptDesk[Approval, Decision]):
    """Open approvals."""

    table = APPROVAL

    def requested(self, conversation_id: ConversationId, run_id: RunId | None, prompt: ApprovalPrompt) -> Change:
        """Hermes asks. `prompt.key` is its name for the question."""
        approval = Approval(
            approval_id=ApprovalId(f"appr_{self._ids.token()}"),
            kind=prompt.kind,
            conversation_id=conversation_id,
            run_id=run_id,
            tool_call_id=self._tool_call(run_id, prompt.call_id),
            position=self._places.next_position(conversation_id),
            description=sendable(prompt.description),
            command=sendable(prompt.command),
            command_truncated=prompt.command_truncated,
            pattern=None if prompt.pattern is None else sendable(prompt.pattern),
            choices=_offered(prompt),
            answerable=prompt.answerable,
            status=PromptStatus.PENDING,
            created_at=Time(self._clock.now_ms()),
            expires_at=None if prompt.expires_at is None else Time(prompt.expires_at),
        )
        state = ApprovalState.PENDING if prompt.answerable else ApprovalState.QUEUED
        self._open[approval.approval_id] = OpenPrompt(prompt.key, state, approval)
        event = partial(ApprovalRequested, conversation_id=conversation_id, approval=approval)
        change = Change((event,), (save_approval(approval),))
        return change + self._conversations.item_added(conversation_id, approval.position)

    def answerable(self, key: str) -> Change:
        """A question that had to wait for another can be answered now."""
        entry = self._named(key)
        if entry is None or entry.state is not ApprovalState.QUEUED:
            return Change()
        self._move(entry, ApprovalEvent.PROMOTE)
        entry.prompt = attrs.evolve(entry.prompt, answerable=True)
        event = partial(ApprovalUpdated, conversation_id=entry.prompt.conversation_id, approval=entry.prompt)
        return Change((event,), (save_approval(entry.prompt),))

    def closed(self, key: str, decision: str | None, by: DecisionSource) -> Change:
        """Hermes's own word that a question is over. Who answered here is known; else it was as `by` says."""
        entry = self._named(key)
        if entry is None:
            return Change()
        if by is DecisionSource.TIMEOUT:
            return self._close(entry, ApprovalEvent.EXPIRE, None, DecidedBy(kind=by))
        if by is DecisionSource.RUN_END:
            return self._close(entry, ApprovalEvent.CANCEL, None, DecidedBy(kind=by))
        decided_by = entry.device or DecidedBy(kind=by)
        answer = None if decision is None else Decision(decision)
        return self._close(entry, ApprovalEvent.RESOLVE, answer, decided_by)

    async def respond(
        self, approval_id: ApprovalId, choice: str, reason: str | None, device_id: DeviceId | None, client_name: str
    ) -> Approval:
        """Decide one approval. Raises RequestError."""
        if reason is not None and len(reason) > MAX_REASON_CHARS:
            raise RequestError(ErrorCode.TOO_LARGE, f"A reason has at most {MAX_REASON_CHARS} characters.")
        return await self._respond(approval_id, Decision(choice, reason), device_id, client_name)

    # For PromptDesk

    def _read_open(self) -> Statement[list[Approval]]:
        return read_open_approvals()

    def _id(self, prompt: Approval) -> str:
        return prompt.approval_id

    def _read(self, prompt_id: str) -> Statement[Approval | None]:
        return read_approval(ApprovalId(prompt_id))

    def _details(self, prompt: Approval) -> ErrorDetails:
        return ErrorDetails(approval=prompt)

    def _check(self, prompt: Approval, answer: Decision) -> None:
        if answer.choice not in prompt.choices:
            # Hermes takes any word that it does not know for a yes: none reaches it.
            raise RequestError(ErrorCode.INVALID_CHOICE, details=ErrorDetails(choices=prompt.choices))

    async def _tell_hermes(self, entry: OpenPrompt[Approval], answer: Decision) -> bool:
        conversation_id = entry.prompt.conversation_id
        return await self._port.resolve_approval(conversation_id, entry.key, answer.choice, answer.reason)

    def _ended(self, prompt: Approval, status: PromptStatus, answer: Decision | None, by: DecidedBy) -> Approval:
        decision = None if answer is None else answer.choice
        return attrs.evolve(prompt, status=status, answerable=False, decision=decision, decided_by=by)

    def _is_answer_of(self, prompt: Approval, answer: Decision, device_id: DeviceId | None) -> bool:
        mine = prompt.decided_by is not None and prompt.decided_by.device_id == device_id
        return mine and prompt.decision == answer.choice

    def _announce_end(self, prompt: Approval) -> Change:
        event = partial(ApprovalResolved, conversation_id=prompt.conversation_id, approval=prompt)
        return Change((event,), (save_approval(prompt),))


def _offered(prompt: ApprovalPrompt) -> tuple[str, ...]:
    """Exactly what may be chosen: nothing but no for a command that cannot be read to its end."""
    if prompt.command_truncated:
        return tuple(choice for choice in prompt.choices if choice == "deny")
    with_pattern = prompt.pattern is not None
    return tuple(choice for choice in prompt.choices if with_pattern or choice not in ("session", "always"))
