"""The desk for approvals: exactly the one that was tapped is decided, once, by a choice that was offered."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final, Protocol

import attrs

from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import ApprovalId, ConversationId, DeviceId, Position, RunId, Time, ToolCallId
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

from .boundary import RequestError
from .ports import ApprovalPrompt, Clock, HermesPort, IdSource
from .sequencer import Change, Sequencer
from .stores import Store, read_approval, read_open_approvals, save_approval

log = logging.getLogger(__name__)

MAX_REASON_CHARS: Final = 1_000

_STATUS: Final[Mapping[ApprovalState, PromptStatus]] = {
    ApprovalState.QUEUED: PromptStatus.PENDING,
    ApprovalState.PENDING: PromptStatus.PENDING,
    ApprovalState.RESOLVING: PromptStatus.PENDING,
    ApprovalState.RESOLVED: PromptStatus.RESOLVED,
    ApprovalState.EXPIRED: PromptStatus.EXPIRED,
    ApprovalState.CANCELLED: PromptStatus.CANCELLED,
}


class Places(Protocol):
    """Where an approval stands in the history."""

    def next_position(self, conversation_id: ConversationId) -> Position: ...


class Conversations(Protocol):
    """What this desk needs to know of conversations."""

    def item_added(self, conversation_id: ConversationId, position: Position) -> Change: ...


class Tools(Protocol):
    """What this desk needs to know of tool calls."""

    def named(self, run_id: RunId, call_id: str) -> ToolCallId | None: ...


@attrs.define
class _Open:
    key: str
    state: ApprovalState
    approval: Approval


class ApprovalDesk:
    """Open approvals. Hermes is asked exactly once for each answer, and what it says afterwards is what counts."""

    def __init__(
        self,
        store: Store,
        sequencer: Sequencer,
        port: HermesPort,
        conversations: Conversations,
        places: Places,
        tools: Tools,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._store = store
        self._sequencer = sequencer
        self._port = port
        self._conversations = conversations
        self._places = places
        self._tools = tools
        self._clock = clock
        self._ids = ids
        self._open: dict[ApprovalId, _Open] = {}

    async def load(self) -> None:
        """Approvals of a dead process are dead: Hermes has forgotten them, so nobody can grant them any more."""
        change = Change()
        for approval in await self._store.read(read_open_approvals()):
            entry = _Open("", ApprovalState.PENDING, approval)
            change += self._close(entry, ApprovalEvent.CANCEL, None, DecidedBy(kind=DecisionSource.RUN_END))
        if change != Change():
            await self._sequencer.log(change)

    def open(self) -> tuple[Approval, ...]:
        """All approvals that wait for a decision."""
        return tuple(entry.approval for entry in self._open.values())

    def requested(self, conversation_id: ConversationId, run_id: RunId | None, prompt: ApprovalPrompt) -> Change:
        """Hermes asks. `prompt.key` is its name for the question."""
        tool_call_id = None
        if run_id is not None and prompt.call_id is not None:
            tool_call_id = self._tools.named(run_id, prompt.call_id)
        approval = Approval(
            approval_id=ApprovalId(f"appr_{self._ids.token()}"),
            kind=prompt.kind,
            conversation_id=conversation_id,
            run_id=run_id,
            tool_call_id=tool_call_id,
            position=self._places.next_position(conversation_id),
            description=prompt.description,
            command=prompt.command,
            command_truncated=prompt.command_truncated,
            pattern=prompt.pattern,
            choices=_offered(prompt),
            answerable=prompt.answerable,
            status=PromptStatus.PENDING,
            created_at=Time(self._clock.now_ms()),
            expires_at=None if prompt.expires_at is None else Time(prompt.expires_at),
        )
        state = ApprovalState.PENDING if prompt.answerable else ApprovalState.QUEUED
        self._open[approval.approval_id] = _Open(prompt.key, state, approval)
        event = partial(ApprovalRequested, conversation_id=conversation_id, approval=approval)
        change = Change((event,), (save_approval(approval),))
        return change + self._conversations.item_added(conversation_id, approval.position)

    def answerable(self, key: str) -> Change:
        """A question that had to wait for another can be answered now."""
        entry = self._named(key)
        if entry is None or entry.state is not ApprovalState.QUEUED:
            return Change()
        entry.state = APPROVAL.next(entry.state, ApprovalEvent.PROMOTE)
        entry.approval = attrs.evolve(entry.approval, answerable=True)
        event = partial(ApprovalUpdated, conversation_id=entry.approval.conversation_id, approval=entry.approval)
        return Change((event,), (save_approval(entry.approval),))

    def closed(self, key: str, decision: str | None, by: DecisionSource) -> Change:
        """Hermes's own word that a question is over. Who answered here is known; else it was as `by` says."""
        entry = self._named(key)
        if entry is None:
            return Change()
        decided_by = entry.approval.decided_by or DecidedBy(kind=by)
        if by is DecisionSource.TIMEOUT:
            return self._close(entry, ApprovalEvent.EXPIRE, None, DecidedBy(kind=by))
        if by is DecisionSource.RUN_END:
            return self._close(entry, ApprovalEvent.CANCEL, None, DecidedBy(kind=by))
        return self._close(entry, ApprovalEvent.RESOLVE, decision, decided_by)

    def run_ended(self, run_id: RunId) -> Change:
        """Nobody can decide for a run that is over."""
        change = Change()
        for entry in [entry for entry in self._open.values() if entry.approval.run_id == run_id]:
            change += self._close(entry, ApprovalEvent.CANCEL, None, DecidedBy(kind=DecisionSource.RUN_END))
        return change

    def waits(self, run_id: RunId) -> bool:
        """Whether a run waits for a decision."""
        return any(entry.approval.run_id == run_id for entry in self._open.values())

    async def respond(
        self, approval_id: ApprovalId, choice: str, reason: str | None, device_id: DeviceId | None, client_name: str
    ) -> Approval:
        """Decide one approval. First answer wins; the same answer of the same device again is the same result."""
        if reason is not None and len(reason) > MAX_REASON_CHARS:
            raise RequestError(ErrorCode.TOO_LARGE, f"A reason has at most {MAX_REASON_CHARS} characters.")
        entry = self._open.get(approval_id)
        if entry is None:
            return await self._decided_already(approval_id, choice, device_id)
        if entry.state is ApprovalState.RESOLVING:
            await self._sequencer.settled()
            raise RequestError(ErrorCode.ALREADY_RESOLVED, details=ErrorDetails(approval=entry.approval))
        if entry.state is not ApprovalState.PENDING:
            raise RequestError(ErrorCode.NOT_ANSWERABLE, details=ErrorDetails(approval=entry.approval))
        if choice not in entry.approval.choices:
            # Hermes takes any word that it does not know for a yes: none reaches it.
            raise RequestError(ErrorCode.INVALID_CHOICE, details=ErrorDetails(choices=entry.approval.choices))
        entry.state = APPROVAL.next(entry.state, ApprovalEvent.ANSWER)
        device = DecidedBy(kind=DecisionSource.DEVICE, device_id=device_id, client_name=client_name)
        before = entry.approval
        entry.approval = attrs.evolve(entry.approval, decided_by=device)
        accepted = await self._ask(entry, choice, reason)
        if approval_id not in self._open:
            # Hermes has told of the end already; what it said counts.
            await self._sequencer.settled()
            return await self._stored(approval_id) or entry.approval
        if not accepted:
            entry.approval = before
            entry.state = APPROVAL.next(entry.state, ApprovalEvent.ANSWER_FAILED)
            await self._sequencer.settled()
            if approval_id not in self._open:
                # Over in the meantime, as Hermes has told now.
                return await self._decided_already(approval_id, choice, device_id)
            raise RequestError(ErrorCode.NOT_ANSWERABLE, details=ErrorDetails(approval=before))
        await self._sequencer.log(self._close(entry, ApprovalEvent.RESOLVE, choice, device))
        return entry.approval

    async def _ask(self, entry: _Open, choice: str, reason: str | None) -> bool:
        try:
            return await self._port.resolve_approval(entry.approval.conversation_id, entry.key, choice, reason)
        except Exception as failure:
            log.error("approval.not_resolved", exc_info=failure)
            return False

    async def _decided_already(self, approval_id: ApprovalId, choice: str, device_id: DeviceId | None) -> Approval:
        await self._sequencer.settled()
        approval = await self._stored(approval_id)
        if approval is None or approval.status is not PromptStatus.RESOLVED:
            details = None if approval is None else ErrorDetails(approval=approval)
            raise RequestError(ErrorCode.EXPIRED, details=details)
        mine = approval.decided_by is not None and approval.decided_by.device_id == device_id
        if mine and approval.decision == choice:
            return approval
        raise RequestError(ErrorCode.ALREADY_RESOLVED, details=ErrorDetails(approval=approval))

    async def _stored(self, approval_id: ApprovalId) -> Approval | None:
        return await self._store.read(read_approval(approval_id))

    def _named(self, key: str) -> _Open | None:
        return next((entry for entry in self._open.values() if entry.key == key), None)

    def _close(self, entry: _Open, event: ApprovalEvent, decision: str | None, decided_by: DecidedBy) -> Change:
        entry.state = APPROVAL.next(entry.state, event)
        entry.approval = attrs.evolve(
            entry.approval,
            status=_STATUS[entry.state],
            answerable=False,
            decision=decision,
            decided_by=decided_by,
        )
        self._open.pop(entry.approval.approval_id, None)
        resolved = partial(ApprovalResolved, conversation_id=entry.approval.conversation_id, approval=entry.approval)
        return Change((resolved,), (save_approval(entry.approval),))


def _offered(prompt: ApprovalPrompt) -> tuple[str, ...]:
    """Exactly what may be chosen: nothing but no for a command that cannot be read to its end."""
    if prompt.command_truncated:
        return tuple(choice for choice in prompt.choices if choice == "deny")
    with_pattern = prompt.pattern is not None
    return tuple(choice for choice in prompt.choices if with_pattern or choice not in ("session", "always"))
