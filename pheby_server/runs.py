"""The desk for runs: it holds the owner's sends, hands them to Hermes one at a time, and says how each run went."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import attrs

from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import ClientMessageId, ConversationId, Count, Index, MessageId, Position, RunId, Time
from pheby_protocol.messages.approval import DecisionSource
from pheby_protocol.messages.connection import ErrorDetails
from pheby_protocol.messages.conversation import Conversation
from pheby_protocol.messages.message import (
    Disposition,
    IfBusy,
    Message,
    MessageDelta,
    MessageReplaced,
    MessageRole,
    Origin,
    Receipt,
)
from pheby_protocol.messages.run import (
    Run,
    RunEnded,
    RunError,
    RunErrorCode,
    RunProgress,
    RunReason,
    RunStarted,
    RunUpdated,
)
from pheby_protocol.states import (
    MESSAGE,
    RECEIPT,
    RUN,
    MessageEvent,
    MessageState,
    ReceiptEvent,
    ReceiptState,
    RunEvent,
    RunState,
)

from .attachments import Taken, not_attached
from .boundary import RequestError, sendable
from .file_store import FileRefusedError, Refusal
from .logs import log_of
from .ports import (
    AgentFile,
    ApprovalPrompt,
    ClarificationPrompt,
    Clock,
    Delivery,
    HandOver,
    HermesPort,
    IdSource,
    Outcome,
    RunResult,
    SubagentStart,
    Timer,
    ToolResult,
    ToolStart,
    Unavailable,
)
from .sequencer import Change, Sequencer
from .stores import (
    Store,
    StoredSend,
    StoreError,
    add_note,
    admit_send,
    forget_notes,
    forget_older_notes,
    give_notes,
    notes_were_read,
    read_notes,
    read_open_runs,
    read_open_sends,
    read_receipts,
    read_runs,
    save_run,
    update_receipt,
)

T = TypeVar("T")

log = log_of(__name__)

CHECKPOINT_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 0.25
CANCEL_SECONDS: Final = 1.8
"""When Hermes has not ended a cancelled run by then, it is ended for the clients; what still comes is fenced off."""
STEER_SECONDS: Final = 10.0
"""So long Hermes may take to say whether it takes words for a run; then that is not known."""
HAND_OVER_WITHIN_MS: Final = 15 * 60 * 1_000
"""After a restart an older send is not handed over any more: the owner has moved on."""

MAX_NOTES: Final = 5
NOTE_CHARS: Final = 4_000
"""Of what the owner was shown meanwhile the agent is told this much."""

ERROR_TEXTS: Final[dict[RunErrorCode, str]] = {
    RunErrorCode.PROVIDER_ERROR: "The model provider reported an error.",
    RunErrorCode.PROVIDER_AUTH: "The model provider refused the credentials.",
    RunErrorCode.PROVIDER_RATE_LIMITED: "The model provider is over its limit; try again later.",
    RunErrorCode.EMPTY_RESPONSE: "The model gave an empty answer.",
    RunErrorCode.CONTEXT_OVERFLOW: "The conversation is too long for the model.",
    RunErrorCode.INTERRUPTED_BY_RESTART: "Hermes was restarted while it worked on this.",
    RunErrorCode.TIMED_OUT: "It took too long.",
    RunErrorCode.INTERNAL: "Something went wrong in Hermes.",
}

_FENCED: Final = 256

_RUN_EVENT: Final = {
    Outcome.COMPLETED: RunEvent.COMPLETE,
    Outcome.FAILED: RunEvent.FAIL,
    Outcome.CANCELLED: RunEvent.CANCELLED,
}
_MESSAGE_EVENT: Final = {
    Outcome.COMPLETED: MessageEvent.COMPLETE,
    Outcome.FAILED: MessageEvent.FAIL,
    Outcome.CANCELLED: MessageEvent.CANCEL,
}


class Conversations(Protocol):
    """What this desk needs to know of conversations."""

    def get(self, conversation_id: ConversationId) -> Conversation: ...
    def ensure(self, conversation_id: ConversationId) -> Change: ...
    def is_going(self, conversation_id: ConversationId) -> bool: ...
    def reachable(self, conversation_id: ConversationId) -> ConversationId: ...
    def message_withdrawn(self, message: Message, before: Conversation) -> None: ...
    def message_added(self, message: Message) -> Change: ...
    def message_ended(self, message: Message) -> Change: ...
    def run_active(self, conversation_id: ConversationId, run_id: RunId | None) -> Change: ...
    async def refresh_title(self, conversation_id: ConversationId) -> None: ...


class Messages(Protocol):
    """What this desk needs to know of chat messages."""

    open: dict[MessageId, Message]

    def new_message_id(self) -> MessageId: ...
    def next_position(self, conversation_id: ConversationId) -> Position: ...
    def created(self, message: Message) -> Change: ...
    def withdrawn(self, message: Message) -> None: ...
    def updated(self, message: Message) -> Change: ...
    def completed(self, message: Message) -> Change: ...
    def changed(self, message: Message) -> None: ...
    def checkpoint(self, message: Message) -> Change: ...
    def parts(self, text: str) -> Sequence[str]: ...
    async def find(self, message_id: MessageId) -> Message | None: ...
    async def is_stored(self, message: Message) -> bool: ...
    async def run_ended(self, conversation_id: ConversationId) -> None: ...


class Attachments(Protocol):
    """What this desk needs to know of attachments."""

    changing: asyncio.Lock

    async def take(self, file: AgentFile) -> Taken: ...
    async def drop(self, taken: Sequence[Taken]) -> None: ...
    def attached(self, message: Message, taken: Sequence[Taken]) -> tuple[Message, Change]: ...


class Tools(Protocol):
    """What this desk needs to know of tool calls."""

    def started(self, conversation_id: ConversationId, run_id: RunId, tool: ToolStart) -> Change: ...
    def ended(self, run_id: RunId, result: ToolResult) -> Change: ...
    def run_ended(self, run_id: RunId, outcome: Outcome) -> Change: ...
    def running(self, run_id: RunId) -> bool: ...


class Subagents(Protocol):
    """What this desk needs to know of subagents."""

    def open(self) -> tuple[Run, ...]: ...
    def named(self, key: str) -> Run | None: ...
    def of(self, conversation_id: ConversationId) -> list[tuple[str, Run]]: ...
    def key_of(self, run_id: RunId) -> str | None: ...
    def started(self, conversation_id: ConversationId, start: SubagentStart, active: Run | None) -> Change: ...
    def tool_started(self, key: str, tool: ToolStart) -> Change: ...
    def tool_ended(self, key: str, result: ToolResult) -> Change: ...
    def cancelling(self, key: str) -> Change: ...
    def take(self, key: str, result: RunResult) -> tuple[Run, RunResult, Change] | None: ...


class Approvals(Protocol):
    """What this desk needs to know of approvals."""

    def requested(self, conversation_id: ConversationId, run_id: RunId | None, prompt: ApprovalPrompt) -> Change: ...
    def answerable(self, key: str) -> Change: ...
    def closed(self, key: str, decision: str | None, by: DecisionSource) -> Change: ...
    def run_ended(self, run_id: RunId) -> Change: ...
    def conversation_ended(self, conversation_id: ConversationId) -> Change: ...
    def abandon(self) -> Change: ...
    def waits(self, run_id: RunId) -> bool: ...


class Clarifications(Protocol):
    """What this desk needs to know of clarifications."""

    def requested(
        self, conversation_id: ConversationId, run_id: RunId | None, prompt: ClarificationPrompt
    ) -> Change: ...
    def closed(self, key: str, by: DecisionSource) -> Change: ...
    def run_ended(self, run_id: RunId) -> Change: ...
    def conversation_ended(self, conversation_id: ConversationId) -> Change: ...
    def abandon(self) -> Change: ...
    def waits(self, run_id: RunId) -> bool: ...


@attrs.define
class _Send:
    """One send of the owner, from admission to the end of its run."""

    receipt: Receipt
    text: str
    content_digest: str
    created_at: Time
    message: Message
    run: Run


@attrs.define
class _Lane:
    """One conversation's way to Hermes: what waits, what was handed over, what runs."""

    conversation_id: ConversationId
    waiting: deque[_Send] = attrs.field(factory=deque)
    handed: _Send | None = None
    """Given to Hermes, or about to be; its turn has not begun."""
    run: Run | None = None
    send: _Send | None = None
    """The send whose run is active; None when Hermes began it by itself."""
    steered: list[_Send] = attrs.field(factory=list)
    """Sends that were given to the active run on its way."""
    steering: _Send | None = None
    """The send that is on its way into the active run."""
    steering_cancelled: bool = False
    reserved: int = 0
    """So much is being settled with Hermes; what comes meanwhile waits."""
    streaming: MessageId | None = None
    spoke: Message | None = None
    """The last text of the active run."""
    holds_files: MessageId | None = None
    """The message of the active run that was made for its files."""
    cancel: RunReason | None = None
    """Why the run that is active, or about to be, was cancelled."""
    watch: Timer | None = None
    """Ends a cancelled run that Hermes does not end."""

    @property
    def busy(self) -> bool:
        return self.handed is not None or self.run is not None or self.steering is not None or bool(self.waiting)


class RunDesk:
    """Implements GatewayEvents; one lane per conversation."""

    def __init__(
        self,
        store: Store,
        sequencer: Sequencer,
        port: HermesPort,
        conversations: Conversations,
        messages: Messages,
        tools: Tools,
        subagents: Subagents,
        approvals: Approvals,
        clarifications: Clarifications,
        attachments: Attachments,
        clock: Clock,
        ids: IdSource,
        max_text_chars: int,
    ) -> None:
        self._store = store
        self._sequencer = sequencer
        self._port = port
        self._conversations = conversations
        self._messages = messages
        self._tools = tools
        self._subagents = subagents
        self._approvals = approvals
        self._clarifications = clarifications
        self._attachments = attachments
        self._clock = clock
        self._ids = ids
        self._max_text_chars = max_text_chars
        self._lanes: dict[ConversationId, _Lane] = {}
        self._receipts: dict[ClientMessageId, tuple[str, Receipt]] = {}
        """Content digest and receipt of every send."""
        self._fenced: deque[MessageId] = deque(maxlen=_FENCED)
        """Sends whose runs were ended before Hermes began them: what it says of them is not told."""
        self._idle: dict[ConversationId, asyncio.Event] = {}
        """Who waits for a lane to be free."""
        self._dirty: set[MessageId] = set()
        self._checkpoint_timer: Timer | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.prepare: Callable[[ConversationId], Awaitable[None]] = _nothing
        """Settles with Hermes what must hold before a message is handed over; never raises."""
        self.on_began_anew: Callable[[ConversationId], None] = lambda _: None

    # Start and stop

    async def load(self) -> None:
        """Read what is stored, end what a dead process left open, and take up sends that Hermes has never seen."""
        self._receipts = {
            receipt.client_message_id: (digest, receipt) for digest, receipt in await self._store.read(read_receipts())
        }
        open_sends = await self._store.read(read_open_sends())
        open_runs = await self._store.read(read_open_runs())
        change = Change()
        steered = [send for send in open_sends if send.receipt.disposition is Disposition.STEERED]
        open_sends = [send for send in open_sends if send.receipt.disposition is not Disposition.STEERED]
        waiting = {send.receipt.run_id: send for send in open_sends}
        # What was admitted into a run came before all that waited behind it.
        taken_up = Change()
        for given in reversed(steered):
            taken_up = await self._settle_steered(given) + taken_up
        # In the order of their admission; what has none comes first.
        place = {send.receipt.run_id: number for number, send in enumerate(open_sends)}
        for run in sorted(open_runs, key=lambda run: place.get(run.run_id, -1)):
            send = waiting.pop(run.run_id, None)
            if send is not None and await self._may_hand_over(send, run):
                change += self._take_up(send, run)
            elif send is not None and run.started_at is None and await self._reached_hermes(send):
                # Its turn began, and this process did not live to hear of it.
                change += self._end_left_over(attrs.evolve(run, started_at=send.created_at), send)
                change += Change(writes=(notes_were_read(send.receipt.message_id),))
            else:
                change += self._end_left_over(run, send)
        for send in waiting.values():
            change += self._settle_receipt(send.receipt, send.digest, ReceiptEvent.FINISH)
        change += taken_up
        change += self._approvals.abandon() + self._clarifications.abandon()
        if change != Change():
            await self._sequencer.log(change, durable=True)

    def start(self) -> None:
        """Begin to hand over what waits."""
        for lane in list(self._lanes.values()):
            self._next(lane)

    async def stop(self) -> None:
        """Stop handing over and store the texts that still stream."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
        self._checkpoint()

    async def _settle_steered(self, stored: StoredSend) -> Change:
        """A send that was meant for a run which died with its process: given to it, never given, or not known."""
        message = stored.message
        if message is None:
            return self._settle_receipt(stored.receipt, stored.digest, ReceiptEvent.FINISH)
        if stored.receipt.state is not ReceiptState.ADMITTED:
            # An older Hermes stores no row of it, so that none proves nothing.
            found = await self._reached_hermes(stored)
            event = ReceiptEvent.FINISH if found else ReceiptEvent.LOSE_SIGHT
            change = self._settle_receipt(stored.receipt, stored.digest, event)
            return change + self._delivery(message, RECEIPT.next(stored.receipt.state, event))
        lane = self._lane(message.conversation_id)
        own = Run(
            run_id=stored.receipt.run_id,
            conversation_id=message.conversation_id,
            origin=Origin.CHAT,
            status=RunState.QUEUED,
            created_at=stored.created_at,
        )
        send = _Send(stored.receipt, stored.text, stored.digest, stored.created_at, message, own)
        change = self._wait_for_its_own(lane, send)
        if self._clock.now_ms() - stored.created_at > HAND_OVER_WITHIN_MS:
            lane.waiting.remove(send)
            change += self._drop(send, ReceiptEvent.LAPSE)
        return change

    async def _may_hand_over(self, stored: StoredSend, run: Run) -> bool:
        """Whether Hermes has certainly never seen a send: not given to it, or given and not among its rows."""
        if stored.receipt.state is ReceiptState.ADMITTED:
            return True
        too_late = self._clock.now_ms() - stored.created_at > HAND_OVER_WITHIN_MS
        return run.started_at is None and not too_late and await self._reached_hermes(stored) is False

    async def _reached_hermes(self, stored: StoredSend) -> bool | None:
        """Whether Hermes has stored a send, which it does before anything comes of it; None: that cannot be told."""
        if stored.message is None:
            return None
        try:
            return await self._messages.is_stored(stored.message)
        except Exception as failure:
            log.warning("send.not_found_out", exc_info=failure)
            return None

    def _take_up(self, stored: StoredSend, run: Run) -> Change:
        # Taken out and put back, so that what waits is listed in the order of admission.
        message = self._messages.open.pop(stored.receipt.message_id, stored.message)
        if message is None:
            return self._end_left_over(run, stored)
        self._messages.changed(message)
        send = _Send(stored.receipt, stored.text, stored.digest, stored.created_at, message, run)
        if self._clock.now_ms() - stored.created_at > HAND_OVER_WITHIN_MS:
            return self._drop(send, ReceiptEvent.LAPSE)
        self._lane(run.conversation_id).waiting.append(send)
        return Change()

    def _end_left_over(self, run: Run, stored: StoredSend | None) -> Change:
        change = self._conversations.ensure(run.conversation_id) + self._tools.run_ended(run.run_id, Outcome.FAILED)
        change += self._approvals.run_ended(run.run_id) + self._clarifications.run_ended(run.run_id)
        for message in list(self._messages.open.values()):
            if message.run_id == run.run_id and message.role is not MessageRole.USER:
                change += self._end_message(message, Outcome.FAILED, final=False)
        result = RunResult(outcome=Outcome.FAILED, error=RunErrorCode.INTERRUPTED_BY_RESTART)
        change += self._end_run(run, result)[1]
        change += self._conversations.run_active(run.conversation_id, None)
        if stored is not None:
            # A run that had begun was cut off. One that had not: whether Hermes got it is not known, so it is never
            # run again on its own.
            event = ReceiptEvent.LOSE_SIGHT if run.started_at is None else ReceiptEvent.FINISH
            change += self._settle_receipt(stored.receipt, stored.digest, event)
            if stored.message is not None:
                change += self._delivery(stored.message, RECEIPT.next(stored.receipt.state, event))
        return change

    # What clients ask

    async def send(
        self, conversation_id: ConversationId, client_message_id: ClientMessageId, text: str, if_busy: IfBusy
    ) -> Receipt:
        """Admit a send: durable before it returns, handed to Hermes as soon as the conversation is free."""
        self._conversations.get(conversation_id)
        digest = hashlib.sha256(f"{conversation_id}\n{text}".encode()).hexdigest()
        while client_message_id in self._receipts:
            # Its admission may still be on its way to the store, and may fail there.
            await self._sequencer.settled()
            if client_message_id in self._receipts:
                return self._repeated(client_message_id, digest)
        self._check_text(text)
        lane = self._lane(conversation_id)
        if if_busy is IfBusy.STEER and self._can_steer(lane):
            return await self._steer(lane, client_message_id, text, digest)
        if lane.busy and if_busy is IfBusy.REJECT:
            raise RequestError(ErrorCode.BUSY, details=ErrorDetails(conversation_id=conversation_id))
        current = self._current_run(lane) if if_busy is IfBusy.INTERRUPT and self._port.features.cancel else None
        before = self._conversations.get(conversation_id)
        send, change = self._admit(lane, client_message_id, text, digest, first=current is not None)
        admitted = send.receipt
        try:
            await self._sequencer.log(change, durable=True)
        except Exception:
            self._forget(lane, send)
            self._conversations.message_withdrawn(send.message, before)
            raise
        if current is not None and (now := self._current_run(lane)) is not None and now.run_id == current.run_id:
            self._cancel(lane, current.run_id, RunReason.SUPERSEDED)
        self._next(lane)
        return admitted

    def _can_steer(self, lane: _Lane) -> bool:
        """Whether words reach the active run before it ends: behind a tool they do, and nothing may be overtaken."""
        run = lane.run
        if run is None or not self._port.features.steer or lane.cancel is not None or lane.waiting or lane.steering:
            return False
        return run.status is RunState.RUNNING and self._tools.running(run.run_id)

    async def _steer(self, lane: _Lane, client_message_id: ClientMessageId, text: str, digest: str) -> Receipt:
        """Admit a send into the active run; where Hermes does not take it after all, it waits for its own."""
        assert lane.run is not None
        run, now = lane.run, Time(self._clock.now_ms())
        before = self._conversations.get(lane.conversation_id)
        message = self._user_message(lane, run, client_message_id, text, now, queued=False)
        receipt = Receipt(
            client_message_id=client_message_id,
            message_id=message.message_id,
            conversation_id=lane.conversation_id,
            disposition=Disposition.STEERED,
            state=ReceiptState.ADMITTED,
            run_id=run.run_id,
            duplicate=False,
        )
        # While it is on its way the lane is busy, and whatever comes waits behind it.
        send = lane.steering = _Send(receipt, text, digest, now, message, run)
        self._receipts[client_message_id] = (digest, receipt)
        change = self._messages.created(message) + self._conversations.message_added(message)
        try:
            await self._sequencer.log(change + Change(writes=(admit_send(receipt, digest, text, now),)), durable=True)
        except Exception:
            lane.steering = None
            self._forget(lane, send)
            self._conversations.message_withdrawn(message, before)
            raise
        # In a task of its own: a client that goes away does not leave it half given.
        await asyncio.shield(self._spawn(self._give(lane, send)))
        with contextlib.suppress(Unavailable):
            # Its admission is durable; what became of it since is told as soon as it can be.
            await self._sequencer.settled()
        return send.receipt

    async def _give(self, lane: _Lane, send: _Send) -> None:
        """Give an admitted send to the active run, and settle what became of that."""
        try:
            taken = await self._take_in(lane, send)
        except Exception as failure:
            # It may have reached the run: never sent again by itself.
            log.error("send.steering_failed", exc_info=failure, extra=_about(send))
            taken = None
        cancelled, lane.steering, lane.steering_cancelled = lane.steering_cancelled, None, False
        if taken is None:
            change = self._move_receipt(send, ReceiptEvent.LOSE_SIGHT)
            change += self._delivery(send.message, send.receipt.state)
        elif taken:
            lane.steered.append(send)
            change = Change() if self._is_active(lane, send.run) else self._finish_steered(lane, send)
        else:
            change = self._wait_for_its_own(lane, send)
            if cancelled:
                lane.waiting.remove(send)
                change += self._drop(send, ReceiptEvent.FINISH, RunReason.REQUESTED)
        self._sequencer.log(change)
        self._next(lane)

    @staticmethod
    def _is_active(lane: _Lane, run: Run) -> bool:
        return lane.run is not None and lane.run.run_id == run.run_id

    async def _take_in(self, lane: _Lane, send: _Send) -> bool:
        """Whether Hermes took the words. Raises when that is not known."""
        lane.steering = None
        still = self._can_steer(lane) and self._is_active(lane, send.run)
        lane.steering = send
        if not still or self._conversations.is_going(lane.conversation_id):
            return False
        # Noted before Hermes gets it.
        before = send.receipt, send.message
        change = self._move_receipt(send, ReceiptEvent.HAND_OVER)
        send.message = attrs.evolve(send.message, delivery=send.receipt.state)
        try:
            await self._sequencer.log(self._messages.updated(send.message) + change, durable=True)
        except Exception as failure:
            log.warning("send.not_steered", exc_info=failure, extra=_about(send))
            self._not_given(send, *before)
            return False
        words = HandOver(
            conversation_id=lane.conversation_id,
            message_id=send.message.message_id,
            run_id=send.run.run_id,
            text=send.text,
        )
        if self._is_active(lane, send.run):
            async with asyncio.timeout(STEER_SECONDS):
                if await self._port.steer(words):
                    return True
        self._not_given(send, *before)
        return False

    def _not_given(self, send: _Send, receipt: Receipt, message: Message) -> None:
        """Hermes has certainly not got it: it is as before."""
        send.receipt, send.message = receipt, message
        self._receipts[receipt.client_message_id] = (send.content_digest, receipt)

    def _wait_for_its_own(self, lane: _Lane, send: _Send) -> Change:
        """A send that was meant for the active run gets a run of its own, before all that came after it."""
        send.run = Run(
            run_id=RunId(f"run_{self._ids.token()}"),
            conversation_id=lane.conversation_id,
            origin=Origin.CHAT,
            status=RunState.QUEUED,
            created_at=Time(self._clock.now_ms()),
        )
        send.receipt = attrs.evolve(send.receipt, run_id=send.run.run_id, disposition=Disposition.QUEUED)
        send.message = attrs.evolve(send.message, run_id=send.run.run_id, delivery=send.receipt.state)
        lane.waiting.appendleft(send)
        change = self._store_receipt(send.receipt, send.content_digest) + self._messages.updated(send.message)
        event = partial(RunUpdated, conversation_id=lane.conversation_id, run=send.run)
        return change + Change((event,), (save_run(send.run),))

    def _finish_steered(self, lane: _Lane, *sends: _Send) -> Change:
        """End sends that were given to a run which is over."""
        change = Change()
        for send in sends:
            lane.steered.remove(send)
            change += self._move_receipt(send, ReceiptEvent.FINISH)
            change += self._delivery(send.message, send.receipt.state)
        return change

    async def cancel(
        self, run_id: RunId | None, client_message_id: ClientMessageId | None, *, drop_queued: bool
    ) -> Run:
        """Cancel a run, named by its id or by its send, and return it as it is then; an ended one stays as it is.

        It ends as any other, and may yet be faster than the cancel. Raises RequestError not_found.
        """
        if run_id is None:
            if client_message_id is None:
                raise RequestError(ErrorCode.INVALID_MESSAGE, "Name a run or a message.")
            # Its admission may still be on its way to the store, and may fail there.
            await self._sequencer.settled()
            run_id = self.receipt(client_message_id).run_id
            for steers in self._lanes.values():
                if steers.steering is not None and steers.steering.receipt.client_message_id == client_message_id:
                    # Should Hermes not take it after all, it is dropped.
                    steers.steering_cancelled = True
        subagent = self._subagents.key_of(run_id)
        if subagent is not None:
            return await self._cancel_subagent(subagent)
        lane = next((lane for lane in self._lanes.values() if run_id in self._runs_of(lane)), None)
        if lane is None:
            await self._sequencer.settled()
            found = await self._store.read(read_runs([run_id]))
            if not found:
                raise RequestError(ErrorCode.NOT_FOUND, "There is no such run.")
            return found[0]
        if drop_queued:
            for send in [send for send in lane.waiting if send.run.run_id != run_id]:
                self._cancel(lane, send.run.run_id, RunReason.REQUESTED)
        run = self._cancel(lane, run_id, RunReason.REQUESTED)
        await self._sequencer.settled()
        return run

    async def _cancel_subagent(self, key: str) -> Run:
        run = self._subagents.named(key)
        assert run is not None
        self._sequencer.log(self._subagents.cancelling(key))
        cancelled = RunResult(outcome=Outcome.CANCELLED)
        # What Hermes does not end in time is ended for the clients.
        self._clock.call_later(CANCEL_SECONDS, lambda: self.subagent_ended(run.conversation_id, key, cancelled))
        await self._stop_subagent(run.conversation_id, key)
        await self._sequencer.settled()
        return self._subagents.named(key) or (await self._store.read(read_runs([run.run_id])))[0]

    async def end_all(self, conversation_id: ConversationId) -> None:
        """End everything of a conversation, because it is deleted; returns when nothing is open there."""
        while (lane := self._lanes.get(conversation_id)) is not None and (lane.busy or lane.reserved):
            idle = self._idle.setdefault(conversation_id, asyncio.Event())
            for run_id in list(self._runs_of(lane)):
                if run_id in self._runs_of(lane):
                    self._cancel(lane, run_id, RunReason.DELETED)
            await idle.wait()
        for key, _ in self._subagents.of(conversation_id):
            self._spawn(self._stop_subagent(conversation_id, key))
            over = RunResult(outcome=Outcome.CANCELLED, reason=RunReason.DELETED)
            self.subagent_ended(conversation_id, key, over)
        self._sequencer.log(
            self._approvals.conversation_ended(conversation_id)
            + self._clarifications.conversation_ended(conversation_id)
        )

    def forget(self, conversation_id: ConversationId) -> None:
        """Forget the sends of a conversation that was deleted."""
        self._receipts = {
            name: known for name, known in self._receipts.items() if known[1].conversation_id != conversation_id
        }

    async def _stop_subagent(self, conversation_id: ConversationId, key: str) -> None:
        try:
            await self._port.interrupt_subagent(conversation_id, key)
        except Exception as failure:
            log.error("interrupt.failed", exc_info=failure, extra={"conversation_id": conversation_id})

    def receipt(self, client_message_id: ClientMessageId) -> Receipt:
        """What became of a send. Raises RequestError not_found when it was never admitted."""
        known = self._receipts.get(client_message_id)
        if known is None:
            raise RequestError(ErrorCode.NOT_FOUND, "That message was never admitted.")
        return known[1]

    def is_busy(self, conversation_id: ConversationId) -> bool:
        """Whether a run is active or about to be."""
        lane = self._lanes.get(conversation_id)
        return lane is not None and lane.busy

    @contextlib.contextmanager
    def reserved(self, conversation_id: ConversationId) -> Iterator[None]:
        """Nothing is handed to Hermes in this conversation meanwhile. Raises RequestError busy."""
        lane = self._lane(conversation_id)
        if lane.busy:
            raise RequestError(ErrorCode.BUSY, details=ErrorDetails(conversation_id=conversation_id))
        lane.reserved += 1
        try:
            yield
        finally:
            lane.reserved -= 1
            self._next(lane)

    def open_runs(self) -> tuple[Run, ...]:
        """All runs that have not ended."""
        runs: list[Run] = []
        for lane in self._lanes.values():
            runs += [lane.run] if lane.run is not None else []
            runs += [lane.handed.run] if lane.handed is not None else []
            runs += [send.run for send in lane.waiting]
        return (*runs, *self._subagents.open())

    def _runs_of(self, lane: _Lane) -> dict[RunId, Run]:
        current = self._current_run(lane)
        return {run.run_id: run for run in [*([current] if current else []), *(send.run for send in lane.waiting)]}

    @staticmethod
    def _current_run(lane: _Lane) -> Run | None:
        """The run that is active or about to be."""
        return lane.run if lane.run is not None else lane.handed.run if lane.handed is not None else None

    def _cancel(self, lane: _Lane, run_id: RunId, reason: RunReason) -> Run:
        """The run as it is after the cancel: ended when Hermes has never seen it, else on its way to its end."""
        unseen = [send for send in lane.waiting if send.run.run_id == run_id]
        if lane.handed is not None and lane.handed.receipt.state is ReceiptState.ADMITTED:
            unseen += [lane.handed] if lane.handed.run.run_id == run_id else []
        for send in unseen:
            if lane.handed is send:
                lane.handed = None
            else:
                lane.waiting.remove(send)
            change = self._drop(send, ReceiptEvent.FINISH, reason)
            self._sequencer.log(change)
            self._next(lane)
            return send.run
        run = self._current_run(lane)
        assert run is not None
        if lane.cancel is None:
            lane.cancel = reason
            lane.watch = self._clock.call_later(CANCEL_SECONDS, partial(self._give_up, lane, run_id))
            self._interrupt(lane)
        return self._current_run(lane) or run

    def _interrupt(self, lane: _Lane) -> None:
        if lane.run is not None and lane.run.status is not RunState.CANCELLING:
            lane.run = attrs.evolve(lane.run, status=RUN.next(lane.run.status, RunEvent.CANCEL))
            event = partial(RunUpdated, conversation_id=lane.conversation_id, run=lane.run)
            self._sequencer.log(Change((event,), (save_run(lane.run),)))
        self._spawn(self._ask_to_stop(lane.conversation_id))

    async def _ask_to_stop(self, conversation_id: ConversationId) -> None:
        try:
            await self._port.interrupt(conversation_id)
        except Exception as failure:
            # The run is ended for the clients all the same.
            log.error("interrupt.failed", exc_info=failure, extra={"conversation_id": conversation_id})

    def _give_up(self, lane: _Lane, run_id: RunId) -> None:
        """Hermes does not end a cancelled run: end it for the clients. The lane is free when Hermes is."""
        lane.watch = None
        run = self._current_run(lane)
        if run is None or run.run_id != run_id:
            return
        log.warning("run.cancel_slow: ended for the clients, Hermes goes on", extra={"run_id": run_id})
        if lane.run is not None:
            self.run_ended(lane.conversation_id, RunResult(outcome=Outcome.CANCELLED))
        elif lane.handed is not None:
            self._fenced.append(lane.handed.message.message_id)
            self.run_lost(lane.conversation_id, lane.handed.message.message_id)

    def _forget(self, lane: _Lane, send: _Send) -> None:
        """Undo an admission that could not be stored."""
        del self._receipts[send.receipt.client_message_id]
        self._messages.withdrawn(send.message)
        if lane.handed is send:
            lane.handed = None
        elif send in lane.waiting:
            lane.waiting.remove(send)
        self._next(lane)

    def _repeated(self, client_message_id: ClientMessageId, digest: str) -> Receipt:
        known_digest, receipt = self._receipts[client_message_id]
        repeated = attrs.evolve(receipt, duplicate=True)
        if known_digest != digest:
            raise RequestError(ErrorCode.CONFLICT, details=ErrorDetails(receipt=repeated))
        return repeated

    def _check_text(self, text: str) -> None:
        if len(text) > self._max_text_chars:
            raise RequestError(
                ErrorCode.TOO_LARGE,
                f"A text has at most {self._max_text_chars} characters.",
                details=ErrorDetails(limit=Count(self._max_text_chars)),
            )
        if not text.strip():
            raise RequestError(ErrorCode.INVALID_MESSAGE, "The text is empty.")

    def _admit(
        self, lane: _Lane, client_message_id: ClientMessageId, text: str, digest: str, *, first: bool = False
    ) -> tuple[_Send, Change]:
        """Take a send in; `first`: before all others that wait, since it takes the place of the active run."""
        now = Time(self._clock.now_ms())
        queued = lane.busy
        run = Run(
            run_id=RunId(f"run_{self._ids.token()}"),
            conversation_id=lane.conversation_id,
            origin=Origin.CHAT,
            status=RunState.QUEUED,
            created_at=now,
        )
        message = self._user_message(lane, run, client_message_id, text, now, queued=queued)
        receipt = Receipt(
            client_message_id=client_message_id,
            message_id=message.message_id,
            conversation_id=lane.conversation_id,
            disposition=Disposition.INTERRUPTED if first else Disposition.QUEUED if queued else Disposition.STARTED,
            state=ReceiptState.ADMITTED,
            run_id=run.run_id,
            duplicate=False,
        )
        send = _Send(receipt, text, digest, now, message, run)
        self._receipts[client_message_id] = (digest, receipt)
        if first:
            lane.waiting.appendleft(send)
        else:
            lane.waiting.append(send)
        change = self._messages.created(message)
        if queued:
            change += Change((partial(RunUpdated, conversation_id=lane.conversation_id, run=run),), (save_run(run),))
        else:
            change += Change(writes=(save_run(run),)) + self._conversations.message_added(message)
        change += Change(writes=(admit_send(receipt, digest, text, now),))
        return send, change

    def _user_message(
        self, lane: _Lane, run: Run, client_message_id: ClientMessageId, text: str, now: Time, *, queued: bool
    ) -> Message:
        return Message(
            message_id=self._messages.new_message_id(),
            conversation_id=lane.conversation_id,
            position=None if queued else self._messages.next_position(lane.conversation_id),
            role=MessageRole.USER,
            origin=Origin.CHAT,
            status=MessageState.QUEUED if queued else MessageState.COMPLETED,
            text=text,
            text_truncated=False,
            run_id=run.run_id,
            client_message_id=client_message_id,
            delivery=ReceiptState.ADMITTED,
            attachments=(),
            created_at=now,
            completed_at=None if queued else now,
        )

    # Towards Hermes

    def _lane(self, conversation_id: ConversationId) -> _Lane:
        return self._lanes.setdefault(conversation_id, _Lane(conversation_id))

    def _next(self, lane: _Lane) -> None:
        """Hand over the next send when the lane is free for it."""
        if self._conversations.is_going(lane.conversation_id):
            for send in list(lane.waiting):
                lane.waiting.remove(send)
                self._sequencer.log(self._drop(send, ReceiptEvent.FINISH, RunReason.DELETED))
        if lane.steering is not None or lane.reserved:
            return
        if lane.run is None and lane.handed is None and lane.waiting:
            send = lane.handed = lane.waiting.popleft()
            self._spawn(self._hand_over(lane, send))
        elif not lane.busy:
            if self._lanes.get(lane.conversation_id) is lane:
                # Else another one has taken its place meanwhile.
                del self._lanes[lane.conversation_id]
            if (idle := self._idle.pop(lane.conversation_id, None)) is not None:
                idle.set()

    async def _hand_over(self, lane: _Lane, send: _Send) -> None:
        try:
            while lane.handed is send:
                try:
                    # Its admission may still be on its way to the store, and may fail there.
                    await self._sequencer.settled()
                except Unavailable:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                await self._port.ready(lane.conversation_id)
                if lane.handed is send and lane.run is None:
                    await self.prepare(lane.conversation_id)
                try:
                    notes = await self._unknown_to_model(lane.conversation_id)
                except Unavailable:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if lane.handed is not send:
                    return
                if lane.run is not None:
                    # Hermes began something by itself meanwhile; its end brings us back.
                    lane.handed = None
                    lane.waiting.appendleft(send)
                    return
                try:
                    await self._dispatch(lane, send, notes)
                    await self._port.hand_over(
                        HandOver(
                            conversation_id=lane.conversation_id,
                            message_id=send.message.message_id,
                            run_id=send.run.run_id,
                            text=send.text,
                            context="\n\n".join(note.text[:NOTE_CHARS] for note in notes),
                        )
                    )
                    log.info("send.handed_over", extra=_about(send))
                    return
                except Unavailable:
                    await asyncio.sleep(RETRY_SECONDS)
        except Exception as failure:
            log.error("hand_over.failed", exc_info=failure, extra=_about(send))
            self.run_lost(lane.conversation_id, send.message.message_id)

    async def _unknown_to_model(self, conversation_id: ConversationId) -> list[Message]:
        """What the owner was shown and the agent does not know; Hermes may have told it by itself meanwhile."""
        found = await self._store.read(read_notes(conversation_id, MAX_NOTES + 1))
        if len(found) > MAX_NOTES:
            # Told later they would come in the wrong order.
            await self._store.transact(forget_older_notes(conversation_id, MAX_NOTES))
            found = found[-MAX_NOTES:]
        try:
            known = [note for note in found if await self._messages.is_stored(note)]
        except Exception as failure:
            # Next time: better late than twice.
            log.warning("notes.not_compared", exc_info=failure)
            return []
        if known:
            await self._store.transact(forget_notes([note.message_id for note in known]))
        return [note for note in found if note not in known]

    async def _dispatch(self, lane: _Lane, send: _Send, notes: Sequence[Message]) -> None:
        """Note that Hermes is about to get the send, before it does."""
        given = Change(writes=(give_notes([note.message_id for note in notes], send.message.message_id),))
        if send.receipt.state is not ReceiptState.ADMITTED:
            if notes:
                await self._sequencer.log(given, durable=True)
            return
        before = send.receipt, send.message
        change = given + self._move_receipt(send, ReceiptEvent.HAND_OVER)
        change += self._place(send, MessageEvent.COMPLETE)
        try:
            await self._sequencer.log(self._delivery(send.message, send.receipt.state) + change, durable=True)
        except Exception:
            if lane.handed is send:
                # Not noted, so not handed over. One that was ended meanwhile stays so.
                send.receipt, send.message = before
                self._receipts[send.receipt.client_message_id] = (send.content_digest, send.receipt)
                self._messages.changed(send.message)
            raise

    def _move_receipt(self, send: _Send, event: ReceiptEvent) -> Change:
        send.receipt = attrs.evolve(send.receipt, state=RECEIPT.next(send.receipt.state, event))
        return self._store_receipt(send.receipt, send.content_digest)

    def _settle_receipt(self, receipt: Receipt, digest: str, event: ReceiptEvent) -> Change:
        return self._store_receipt(attrs.evolve(receipt, state=RECEIPT.next(receipt.state, event)), digest)

    def _store_receipt(self, receipt: Receipt, digest: str) -> Change:
        self._receipts[receipt.client_message_id] = (digest, receipt)
        return Change(writes=(update_receipt(receipt),))

    def _delivery(self, message: Message, state: ReceiptState) -> Change:
        return self._messages.updated(attrs.evolve(message, delivery=state))

    def _drop(self, send: _Send, event: ReceiptEvent, reason: RunReason | None = None) -> Change:
        """End a send that Hermes has never seen."""
        send.run, change = self._end_run(send.run, RunResult(outcome=Outcome.CANCELLED, reason=reason))
        change += self._move_receipt(send, event) + self._place(send, MessageEvent.CANCEL)
        return change + self._delivery(send.message, send.receipt.state)

    def _place(self, send: _Send, event: MessageEvent) -> Change:
        """Give a message that waited its place in the history, and its end; any other stays as it is."""
        message = send.message
        if message.status is not MessageState.QUEUED:
            return Change()
        send.message = attrs.evolve(
            message,
            position=self._messages.next_position(message.conversation_id),
            status=MESSAGE.next(message.status, event),
            completed_at=Time(self._clock.now_ms()),
        )
        return self._conversations.message_added(send.message)

    # From Hermes (GatewayEvents)

    def run_started(self, conversation_id: ConversationId, message_id: MessageId | None, origin: Origin) -> RunId:
        handed = self._lanes[conversation_id].handed if conversation_id in self._lanes else None
        expected = handed is not None and handed.message.message_id == message_id
        if message_id in self._fenced or (self._conversations.is_going(conversation_id) and not expected):
            self._spawn(self._ask_to_stop(conversation_id))
            return RunId(f"run_{self._ids.token()}")
        change = self._conversations.ensure(conversation_id)
        lane = self._lane(conversation_id)
        if lane.run is not None:
            log.warning("run.overlap: the run before is ended", extra={"run_id": lane.run.run_id})
            self.run_ended(conversation_id, RunResult(outcome=Outcome.CANCELLED))
            lane = self._lane(conversation_id)
        now = Time(self._clock.now_ms())
        send = lane.handed if message_id is not None else None
        if send is not None and send.message.message_id == message_id:
            lane.handed, lane.send, run = None, send, send.run
            change += Change(writes=(notes_were_read(send.message.message_id),))
        else:
            run = Run(
                run_id=RunId(f"run_{self._ids.token()}"),
                conversation_id=conversation_id,
                origin=origin,
                status=RunState.QUEUED,
                created_at=now,
            )
        run = attrs.evolve(run, status=RUN.next(run.status, RunEvent.START), started_at=now)
        lane.run = run
        change += Change((partial(RunStarted, conversation_id=conversation_id, run=run),), (save_run(run),))
        self._sequencer.log(change + self._conversations.run_active(conversation_id, run.run_id))
        if lane.cancel is not None:
            # Cancelled between its hand-over and its turn: what was asked then may have met nobody.
            self._interrupt(lane)
        return run.run_id

    def message_started(self, conversation_id: ConversationId, text: str) -> MessageId:
        message_id = self._messages.new_message_id()
        lane = self._lanes.get(conversation_id)
        if lane is None or lane.run is None:
            log.warning("text.late: a text without a run is dropped", extra={"conversation_id": conversation_id})
            return message_id
        if lane.streaming is not None:
            self.message_ended(lane.streaming, interim=True)
        message = Message(
            message_id=message_id,
            conversation_id=conversation_id,
            position=self._messages.next_position(conversation_id),
            role=MessageRole.ASSISTANT,
            origin=lane.run.origin,
            status=MessageState.STREAMING,
            text="",
            text_truncated=False,
            index=Index(-1),
            run_id=lane.run.run_id,
            attachments=(),
            created_at=Time(self._clock.now_ms()),
        )
        lane.streaming = message_id
        self._sequencer.log(self._messages.created(message) + self._conversations.message_added(message))
        if text:
            self.message_appended(message_id, text)
        return message_id

    def message_appended(self, message_id: MessageId, text: str) -> None:
        for part in self._messages.parts(sendable(text)):
            self._append(message_id, part)

    def _append(self, message_id: MessageId, text: str) -> None:
        message = self._grow(message_id, lambda old: old + text)
        if message is not None:
            self._sequencer.tell(
                MessageDelta(
                    conversation_id=message.conversation_id,
                    run_id=message.run_id,
                    message_id=message_id,
                    index=message.index or Index(0),
                    text=text,
                )
            )

    def message_replaced(self, message_id: MessageId, text: str) -> None:
        first, *rest = self._messages.parts(sendable(text))
        message = self._grow(message_id, lambda _: first)
        if message is not None:
            self._sequencer.tell(
                MessageReplaced(
                    conversation_id=message.conversation_id,
                    run_id=message.run_id,
                    message_id=message_id,
                    index=message.index or Index(0),
                    text=first,
                )
            )
        for part in rest:
            self._append(message_id, part)

    def _grow(self, message_id: MessageId, change: Callable[[str], str]) -> Message | None:
        message = self._messages.open.get(message_id)
        if message is None or message.status is not MessageState.STREAMING:
            return None
        message = attrs.evolve(
            message,
            text=change(message.text),
            index=Index((message.index if message.index is not None else -1) + 1),
            status=MESSAGE.next(message.status, MessageEvent.CHANGE),
        )
        self._messages.changed(message)
        self._dirty.add(message_id)
        if self._checkpoint_timer is None:
            self._checkpoint_timer = self._clock.call_later(CHECKPOINT_SECONDS, self._checkpoint)
        return message

    def message_ended(self, message_id: MessageId, *, interim: bool) -> None:
        message = self._messages.open.get(message_id)
        if message is None or message.status is not MessageState.STREAMING:
            return
        lane = self._lane(message.conversation_id)
        lane.spoke = attrs.evolve(message, interim=interim)
        lane.streaming = None
        self._sequencer.log(self._end_message(lane.spoke, Outcome.COMPLETED, final=False))

    def tool_started(self, conversation_id: ConversationId, tool: ToolStart, subagent: str | None = None) -> None:
        lane = self._lanes.get(conversation_id)
        if subagent is not None:
            self._sequencer.log(self._subagents.tool_started(subagent, tool))
        elif lane is not None and lane.run is not None:
            self._sequencer.log(self._tools.started(conversation_id, lane.run.run_id, tool))

    def tool_ended(self, conversation_id: ConversationId, result: ToolResult, subagent: str | None = None) -> None:
        lane = self._lanes.get(conversation_id)
        if subagent is not None:
            self._sequencer.log(self._subagents.tool_ended(subagent, result))
        elif lane is not None and lane.run is not None:
            self._sequencer.log(self._tools.ended(lane.run.run_id, result))

    def subagent_started(self, conversation_id: ConversationId, start: SubagentStart) -> None:
        if self._conversations.is_going(conversation_id):
            return
        lane = self._lanes.get(conversation_id)
        change = self._conversations.ensure(conversation_id)
        active = lane.run if lane is not None else None
        self._sequencer.log(change + self._subagents.started(conversation_id, start, active))

    def subagent_ended(self, conversation_id: ConversationId, key: str, result: RunResult) -> None:
        taken = self._subagents.take(key, result)
        if taken is not None:
            run, result, change = taken
            self._sequencer.log(change + self._end_run(run, result)[1])

    def approval_requested(self, conversation_id: ConversationId, prompt: ApprovalPrompt) -> None:
        if self._conversations.is_going(conversation_id):
            return
        lane = self._lane(conversation_id)
        change = self._conversations.ensure(conversation_id)
        change += self._approvals.requested(conversation_id, lane.run.run_id if lane.run else None, prompt)
        self._sequencer.log(change + self._wait_or_go_on(lane))

    def approval_answerable(self, conversation_id: ConversationId, key: str) -> None:
        self._sequencer.log(self._approvals.answerable(key))

    def approval_closed(
        self, conversation_id: ConversationId, key: str, decision: str | None, by: DecisionSource
    ) -> None:
        change = self._approvals.closed(key, decision, by)
        self._sequencer.log(change + self._wait_or_go_on(self._lane(conversation_id)))

    def clarification_requested(self, conversation_id: ConversationId, prompt: ClarificationPrompt) -> None:
        if self._conversations.is_going(conversation_id):
            return
        lane = self._lane(conversation_id)
        change = self._conversations.ensure(conversation_id)
        change += self._clarifications.requested(conversation_id, lane.run.run_id if lane.run else None, prompt)
        self._sequencer.log(change + self._wait_or_go_on(lane))

    def clarification_closed(self, conversation_id: ConversationId, key: str, by: DecisionSource) -> None:
        change = self._clarifications.closed(key, by)
        self._sequencer.log(change + self._wait_or_go_on(self._lane(conversation_id)))

    def go_on(self, conversation_id: ConversationId) -> Change:
        """A device has answered: the run goes on, unless it waits for another answer."""
        lane = self._lanes.get(conversation_id)
        return Change() if lane is None else self._wait_or_go_on(lane)

    def _wait_or_go_on(self, lane: _Lane) -> Change:
        """The active run waits as long as one of its questions is open."""
        if lane.run is None:
            return Change()
        run_id = lane.run.run_id
        waits = self._approvals.waits(run_id) or self._clarifications.waits(run_id)
        event = RunEvent.WAIT if waits else RunEvent.CONTINUE
        status = RUN.next(lane.run.status, event)
        if status is lane.run.status:
            return Change()
        lane.run = attrs.evolve(lane.run, status=status)
        updated = partial(RunUpdated, conversation_id=lane.conversation_id, run=lane.run)
        return Change((updated,), (save_run(lane.run),))

    def run_progress(self, conversation_id: ConversationId, text: str) -> None:
        lane = self._lanes.get(conversation_id)
        if lane is not None and lane.run is not None and text.strip():
            self._sequencer.tell(
                RunProgress(conversation_id=conversation_id, run_id=lane.run.run_id, text=sendable(text)[:500])
            )

    def run_ended(self, conversation_id: ConversationId, result: RunResult) -> None:
        lane = self._lanes.get(conversation_id)
        if lane is None or lane.run is None:
            return
        run, send = lane.run, lane.send
        if result.outcome is Outcome.CANCELLED and lane.cancel is not None:
            result = attrs.evolve(result, reason=lane.cancel)
        change = self._tools.run_ended(run.run_id, result.outcome)
        change += self._approvals.run_ended(run.run_id) + self._clarifications.run_ended(run.run_id)
        change += self._close_texts(lane, run, result)
        change += self._end_run(run, result)[1]
        change += self._conversations.run_active(conversation_id, None)
        if send is not None:
            change += self._move_receipt(send, ReceiptEvent.FINISH)
            change += self._delivery(send.message, send.receipt.state)
        change += self._finish_steered(lane, *lane.steered)
        lane.run = lane.send = lane.streaming = lane.spoke = lane.holds_files = None
        self._cancel_is_over(lane)
        self._sequencer.log(change)
        self._spawn(self._after_run(conversation_id))
        self._next(lane)

    def _cancel_is_over(self, lane: _Lane) -> None:
        lane.cancel = None
        if lane.watch is not None:
            lane.watch.cancel()
            lane.watch = None

    def _close_texts(self, lane: _Lane, run: Run, result: RunResult) -> Change:
        """End the text that still streams; where Hermes declared an answer that nobody has seen, show it."""
        tells = result.outcome is Outcome.COMPLETED or result.reason is RunReason.MAX_ITERATIONS
        answer = sendable(result.final_text or "") if tells else ""
        streaming = self._messages.open.get(lane.streaming) if lane.streaming is not None else None
        if streaming is not None:
            declared = _declared(streaming.text, answer) if answer else streaming.text
            if declared != streaming.text:
                # Told like any other change: what a client has shown never changes by itself.
                if declared.startswith(streaming.text):
                    self.message_appended(streaming.message_id, declared[len(streaming.text) :])
                else:
                    self.message_replaced(streaming.message_id, declared)
                streaming = self._messages.open[streaming.message_id]
            return self._end_message(streaming, result.outcome, final=result.outcome is Outcome.COMPLETED)
        if answer and (lane.spoke is None or lane.spoke.interim):
            message = self._whole_message(lane.conversation_id, MessageRole.ASSISTANT, run.origin, answer, run)
            message = attrs.evolve(message, final=True)
            return self._messages.created(message) + self._conversations.message_added(message)
        return Change()

    def _end_message(self, message: Message, outcome: Outcome, *, final: bool) -> Change:
        message = attrs.evolve(
            message,
            status=MESSAGE.next(message.status, _MESSAGE_EVENT[outcome]),
            final=final,
            completed_at=Time(self._clock.now_ms()),
        )
        self._dirty.discard(message.message_id)
        return self._messages.completed(message) + self._conversations.message_ended(message)

    def _end_run(self, run: Run, result: RunResult) -> tuple[Run, Change]:
        code = result.error
        run = attrs.evolve(
            run,
            status=RUN.next(run.status, _RUN_EVENT[result.outcome]),
            reason=result.reason,
            error=None if code is None else RunError(code=code, message=ERROR_TEXTS.get(code, ERROR_TEXTS[_INTERNAL])),
            usage=result.usage,
            ended_at=Time(self._clock.now_ms()),
        )
        return run, Change((partial(RunEnded, conversation_id=run.conversation_id, run=run),), (save_run(run),))

    def run_lost(self, conversation_id: ConversationId, message_id: MessageId) -> None:
        lane = self._lanes.get(conversation_id)
        if lane is None or lane.handed is None or lane.handed.message.message_id != message_id:
            return
        send = lane.handed
        lane.handed = None
        result = RunResult(outcome=Outcome.FAILED, error=RunErrorCode.INTERNAL)
        if lane.cancel is not None:
            result = RunResult(outcome=Outcome.CANCELLED, reason=lane.cancel)
        change = self._end_run(send.run, result)[1] + self._move_receipt(send, ReceiptEvent.FINISH)
        change += self._place(send, _MESSAGE_EVENT[result.outcome])
        self._cancel_is_over(lane)
        self._sequencer.log(change + self._delivery(send.message, send.receipt.state))
        self._next(lane)

    def not_attached(self, conversation_id: ConversationId, name: str) -> None:
        self._notice(conversation_id, not_attached(name, None))

    async def attach(
        self, conversation_id: ConversationId, file: AgentFile, message_id: MessageId | None = None
    ) -> bool:
        # In a task of its own: a caller who waits no longer does not leave it half done.
        return await asyncio.shield(self._spawn(self._attach(conversation_id, file, message_id)))

    async def _attach(self, conversation_id: ConversationId, file: AgentFile, message_id: MessageId | None) -> bool:
        lane = self._lanes.get(conversation_id)
        run = lane.run if lane is not None and message_id is None else None
        if lane is not None and run is not None:
            message_id = lane.streaming
        elif message_id is None:
            conversation_id = self._conversations.reachable(conversation_id)
        try:
            if message_id is not None and (message := await self._messages.find(message_id)) is not None:
                # It may have been delivered elsewhere, because its conversation was deleted.
                conversation_id = message.conversation_id
            taken = await self._attachments.take(file)
        except (FileRefusedError, StoreError) as failure:
            self._notice(conversation_id, not_attached(file.name, _reason(failure)))
            return False
        try:
            await self._put(conversation_id, run, message_id, taken)
        except StoreError as failure:
            await self._attachments.drop([taken])
            self._notice(conversation_id, not_attached(file.name, _reason(failure)))
            return False
        return True

    async def _put(
        self, conversation_id: ConversationId, run: Run | None, message_id: MessageId | None, taken: Taken
    ) -> None:
        """Attach a file to its message, or to one that is made for it."""
        async with self._attachments.changing:
            alone = message_id is None
            lane = self._lanes.get(conversation_id)
            if alone and lane is not None and run is not None and self._is_active(lane, run):
                message_id = lane.holds_files
            message = None if message_id is None else await self._messages.find(message_id)
            if self._conversations.is_going(conversation_id) or (message is None and not alone):
                await self._attachments.drop([taken])
            elif message is not None:
                message, change = self._attachments.attached(message, [taken])
                await self._sequencer.log(self._messages.updated(message) + change)
            else:
                await self._sequencer.log(self._files_alone(conversation_id, run, taken))

    def _files_alone(self, conversation_id: ConversationId, run: Run | None, taken: Taken) -> Change:
        """A file that belongs to no text gets a message without one."""
        lane = self._lanes.get(conversation_id)
        in_run = lane is not None and run is not None and self._is_active(lane, run)
        origin = run.origin if run is not None else Origin.SYSTEM
        change = self._conversations.ensure(conversation_id)
        message = self._whole_message(conversation_id, MessageRole.ASSISTANT, origin, "", run if in_run else None)
        if lane is not None and in_run:
            lane.holds_files = message.message_id
            message = attrs.evolve(message, final=True)
        message, files = self._attachments.attached(message, [taken])
        return change + self._messages.created(message) + self._conversations.message_added(message) + files

    async def deliver(self, conversation_id: ConversationId, delivery: Delivery) -> MessageId:
        return await asyncio.shield(self._spawn(self._deliver(conversation_id, delivery)))

    async def _deliver(self, conversation_id: ConversationId, delivery: Delivery) -> MessageId:
        message_id = self._messages.new_message_id()
        if delivery.key is not None:
            message_id = MessageId(f"msg_{hashlib.sha256(delivery.key.encode()).hexdigest()[:24]}")
            if await self._messages.find(message_id) is not None:
                return message_id
        if delivery.role is MessageRole.NOTICE and self._conversations.is_going(conversation_id):
            # It is about that conversation alone.
            return message_id
        if not delivery.text and not delivery.files:
            return message_id
        taken, refused = await self._take_all(delivery.files)
        conversation_id = self._conversations.reachable(conversation_id)
        change = self._conversations.ensure(conversation_id)
        before = self._conversations.get(conversation_id)
        messages, more = self._delivered(conversation_id, message_id, delivery, taken, refused)
        for message in messages:
            change += self._messages.created(message) + self._conversations.message_added(message)
        try:
            await self._sequencer.log(change + more, durable=True)
        except Exception:
            for message in reversed(messages):
                self._messages.withdrawn(message)
            self._conversations.message_withdrawn(messages[-1], before)
            await self._attachments.drop(taken)
            raise
        return message_id

    async def _take_all(self, files: Sequence[AgentFile]) -> tuple[list[Taken], list[str]]:
        """The copies of a delivery's files, and what the owner is told of those that were not taken."""
        taken: list[Taken] = []
        refused: list[str] = []
        try:
            for file in files:
                try:
                    taken.append(await self._attachments.take(file))
                except FileRefusedError as failure:
                    refused.append(not_attached(file.name, failure.reason))
        except StoreError:
            await self._attachments.drop(taken)
            raise
        return taken, refused

    def _delivered(
        self,
        conversation_id: ConversationId,
        message_id: MessageId,
        delivery: Delivery,
        taken: Sequence[Taken],
        refused: Sequence[str],
    ) -> tuple[list[Message], Change]:
        """A delivery's message and a notice for each file that was not taken; the first of all has its name."""
        messages: list[Message] = []
        more = Change()
        text = sendable(delivery.text)
        if text or taken:
            message = self._whole_message(conversation_id, delivery.role, delivery.origin, text)
            created = Time(delivery.time) if delivery.time is not None else message.created_at
            message = attrs.evolve(message, message_id=message_id, created_at=created)
            message, more = self._attachments.attached(message, taken)
            messages.append(message)
            if delivery.for_model and text:
                more += Change(writes=(add_note(message),))
        for said in refused:
            notice = self._whole_message(conversation_id, MessageRole.NOTICE, Origin.SYSTEM, said)
            messages.append(notice if messages else attrs.evolve(notice, message_id=message_id))
        return messages, more

    def _notice(self, conversation_id: ConversationId, text: str) -> None:
        """Say something about the conversation, in its active run or outside of any."""
        if self._conversations.is_going(conversation_id):
            return
        lane = self._lanes.get(conversation_id)
        change = self._conversations.ensure(conversation_id)
        run = lane.run if lane is not None else None
        message = self._whole_message(conversation_id, MessageRole.NOTICE, Origin.SYSTEM, sendable(text), run)
        change += self._messages.created(message)
        self._sequencer.log(change + self._conversations.message_added(message))

    def _whole_message(
        self, conversation_id: ConversationId, role: MessageRole, origin: Origin, text: str, run: Run | None = None
    ) -> Message:
        now = Time(self._clock.now_ms())
        return Message(
            message_id=self._messages.new_message_id(),
            conversation_id=conversation_id,
            position=self._messages.next_position(conversation_id),
            role=role,
            origin=origin,
            status=MessageState.COMPLETED,
            text=text,
            text_truncated=False,
            run_id=run.run_id if run is not None else None,
            attachments=(),
            created_at=now,
            completed_at=now,
        )

    def began_anew(self, conversation_id: ConversationId) -> None:
        self.on_began_anew(conversation_id)

    async def settled(self) -> None:
        await self._sequencer.settled()

    # Inside

    def _checkpoint(self) -> None:
        self._checkpoint_timer = None
        change = Change()
        for message_id in self._dirty:
            message = self._messages.open.get(message_id)
            if message is not None:
                change += self._messages.checkpoint(message)
        self._dirty.clear()
        if change != Change():
            self._sequencer.log(change)

    async def _after_run(self, conversation_id: ConversationId) -> None:
        try:
            await self._messages.run_ended(conversation_id)
            await self._conversations.refresh_title(conversation_id)
        except Exception as failure:
            log.warning("history.not_reconciled", exc_info=failure)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


_INTERNAL: Final = RunErrorCode.INTERNAL


async def _nothing(_: ConversationId) -> None:
    """What there is to prepare by default."""


def _about(send: _Send) -> dict[str, object]:
    return {"conversation_id": send.message.conversation_id, "message_id": send.message.message_id}


def _reason(failure: FileRefusedError | StoreError) -> Refusal:
    return failure.reason if isinstance(failure, FileRefusedError) else Refusal.FAILED


def _declared(shown: str, answer: str) -> str:
    """What the final text says: Hermes's answer, unless what was shown has it and more (a footer, an earlier part)."""
    bare_shown, bare_answer = "".join(shown.split()), "".join(answer.split())
    return shown if bare_shown.startswith(bare_answer) or bare_shown.endswith(bare_answer) else answer
