"""What approvals and clarifications have in common: the first answer wins, and Hermes is asked once for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import attrs

from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import ConversationId, DeviceId, Position, RunId, ToolCallId
from pheby_protocol.machine import Table
from pheby_protocol.messages.approval import Approval, DecidedBy, DecisionSource, PromptStatus
from pheby_protocol.messages.clarification import Clarification
from pheby_protocol.messages.connection import ErrorDetails
from pheby_protocol.states import ClarificationEvent as Event
from pheby_protocol.states import ClarificationState as State

from .boundary import RequestError
from .logs import log_of
from .ports import Clock, HermesPort, IdSource
from .sequencer import Change, Sequencer
from .stores import Statement, Store

log = log_of(__name__)

P = TypeVar("P", Approval, Clarification)
A = TypeVar("A")

_STATUS: Final[Mapping[str, PromptStatus]] = {
    State.RESOLVED: PromptStatus.RESOLVED,
    State.EXPIRED: PromptStatus.EXPIRED,
    State.CANCELLED: PromptStatus.CANCELLED,
}


class Places(Protocol):
    """Where a prompt stands in the history."""

    def next_position(self, conversation_id: ConversationId) -> Position: ...


class Conversations(Protocol):
    """What a desk needs to know of conversations."""

    def item_added(self, conversation_id: ConversationId, position: Position) -> Change: ...


class Tools(Protocol):
    """What a desk needs to know of tool calls."""

    def named(self, run_id: RunId, call_id: str) -> ToolCallId | None: ...


@attrs.define
class OpenPrompt(Generic[P]):
    """One that nobody has decided. `key` is Hermes's name for it."""

    key: str
    state: Any
    prompt: P
    device: DecidedBy | None = None
    """Whose answer is on its way to Hermes."""


class PromptDesk(ABC, Generic[P, A]):
    """Open prompts of one kind; A is what their answers say. What Hermes says of an end is what counts."""

    table: ClassVar[Table[Any, Any]]
    """Has the states and events of CLARIFICATION, and perhaps more."""

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
        self._open: dict[str, OpenPrompt[P]] = {}
        """By the prompt's id."""
        self.go_on: Callable[[ConversationId], Change] = lambda _: Change()
        """What an answer changes about the run that waited; the desk for runs says so."""

    # What the kinds differ in

    @abstractmethod
    def _read_open(self) -> Statement[list[P]]:
        """The prompts that a dead process left open."""

    @abstractmethod
    def _id(self, prompt: P) -> str:
        """The prompt's id."""

    @abstractmethod
    def _read(self, prompt_id: str) -> Statement[P | None]:
        """One prompt."""

    @abstractmethod
    def _details(self, prompt: P) -> ErrorDetails:
        """The prompt, for an error about it."""

    @abstractmethod
    def _check(self, prompt: P, answer: A) -> None:
        """Raises RequestError for an answer that must not reach Hermes."""

    @abstractmethod
    async def _tell_hermes(self, entry: OpenPrompt[P], answer: A) -> bool:
        """Give Hermes the answer; False when it did not take it."""

    @abstractmethod
    def _ended(self, prompt: P, status: PromptStatus, answer: A | None, by: DecidedBy) -> P:
        """The prompt as it ended."""

    @abstractmethod
    def _is_answer_of(self, prompt: P, answer: A, device_id: DeviceId | None) -> bool:
        """Whether it was this device that ended the prompt by this answer."""

    @abstractmethod
    def _announce_end(self, prompt: P) -> Change:
        """The event and the write of a prompt that ended."""

    # From Hermes

    async def load(self) -> None:
        """Read what a dead process left open: it ends with its runs, since Hermes has forgotten it."""
        for prompt in await self._store.read(self._read_open()):
            self._open[self._id(prompt)] = OpenPrompt("", self.table.initial, prompt)

    def open(self) -> Sequence[P]:
        """All prompts that wait."""
        return tuple(entry.prompt for entry in self._open.values())

    def run_ended(self, run_id: RunId) -> Change:
        """Nobody can answer for a run that is over."""
        return self._cancel([entry for entry in self._open.values() if entry.prompt.run_id == run_id])

    def conversation_ended(self, conversation_id: ConversationId) -> Change:
        """Nobody can answer in a conversation that goes away."""
        return self._cancel([e for e in self._open.values() if e.prompt.conversation_id == conversation_id])

    def abandon(self) -> Change:
        """Nobody can answer what has outlived its process."""
        return self._cancel(list(self._open.values()))

    def _cancel(self, entries: Sequence[OpenPrompt[P]]) -> Change:
        change = Change()
        for entry in entries:
            change += self._close(entry, Event.CANCEL, None, DecidedBy(kind=DecisionSource.RUN_END))
        return change

    def waits(self, run_id: RunId) -> bool:
        """Whether a run waits for an answer."""
        return any(entry.prompt.run_id == run_id for entry in self._open.values())

    def _named(self, key: str) -> OpenPrompt[P] | None:
        return next((entry for entry in self._open.values() if entry.key == key), None)

    def _tool_call(self, run_id: RunId | None, call_id: str | None) -> ToolCallId | None:
        return None if run_id is None or call_id is None else self._tools.named(run_id, call_id)

    # From clients

    async def _respond(self, prompt_id: str, answer: A, device_id: DeviceId | None, client_name: str) -> P:
        """Answer one prompt. First answer wins; the same answer of the same device again is the same result."""
        entry = self._open.get(prompt_id)
        if entry is None:
            return await self._ended_already(prompt_id, answer, device_id)
        if entry.state == State.RESOLVING:
            await self._sequencer.settled()
            if prompt_id not in self._open:
                return await self._ended_already(prompt_id, answer, device_id)
            raise RequestError(ErrorCode.ALREADY_RESOLVED, details=self._details(entry.prompt))
        if entry.state != State.PENDING:
            raise RequestError(ErrorCode.NOT_ANSWERABLE, details=self._details(entry.prompt))
        self._check(entry.prompt, answer)
        self._move(entry, Event.ANSWER)
        device = DecidedBy(kind=DecisionSource.DEVICE, device_id=device_id, client_name=client_name)
        entry.device = device
        accepted = await self._ask(entry, answer)
        if prompt_id not in self._open:
            # Hermes has told of the end already; what it said counts.
            return await self._ended_already(prompt_id, answer, device_id)
        if not accepted:
            entry.device = None
            self._move(entry, Event.ANSWER_FAILED)
            await self._sequencer.settled()
            if prompt_id not in self._open:
                # Over in the meantime, as Hermes has told now.
                return await self._ended_already(prompt_id, answer, device_id)
            raise RequestError(ErrorCode.NOT_ANSWERABLE, details=self._details(entry.prompt))
        closed = self._close(entry, Event.RESOLVE, answer, device)
        await self._sequencer.log(closed + self.go_on(entry.prompt.conversation_id))
        return entry.prompt

    async def _ask(self, entry: OpenPrompt[P], answer: A) -> bool:
        try:
            return await self._tell_hermes(entry, answer)
        except Exception as failure:
            log.error("prompt.not_resolved", exc_info=failure)
            return False

    async def _ended_already(self, prompt_id: str, answer: A, device_id: DeviceId | None) -> P:
        await self._sequencer.settled()
        prompt = await self._store.read(self._read(prompt_id))
        if prompt is None or prompt.status is not PromptStatus.RESOLVED:
            raise RequestError(ErrorCode.EXPIRED, details=None if prompt is None else self._details(prompt))
        if self._is_answer_of(prompt, answer, device_id):
            return prompt
        raise RequestError(ErrorCode.ALREADY_RESOLVED, details=self._details(prompt))

    # Ends

    def _move(self, entry: OpenPrompt[P], event: str) -> None:
        entry.state = self.table.next(entry.state, self.table.events(event))

    def _close(self, entry: OpenPrompt[P], event: str, answer: A | None, by: DecidedBy) -> Change:
        self._move(entry, event)
        entry.prompt = self._ended(entry.prompt, _STATUS[entry.state], answer, by)
        self._open = {key: other for key, other in self._open.items() if other is not entry}
        return self._announce_end(entry.prompt)
