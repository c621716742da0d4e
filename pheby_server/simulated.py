"""A Hermes without Hermes: a scripted HermesPort for demonstrations, tests and the conformance suite.

It stands at the port and behaves there as recorded gateways do: one run at a time in a conversation, the owner's row
stored when the run begins, a text's row when the text is whole, nothing stored of a failed answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import attrs

from pheby_protocol.ids import ConversationId, MessageId
from pheby_protocol.messages.approval import ApprovalKind, DecisionSource
from pheby_protocol.messages.conversation import TitleSource
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_protocol.messages.run import RunErrorCode, RunReason

from .boundary import sendable
from .ports import (
    ApprovalPrompt,
    Bound,
    Clock,
    GatewayEvents,
    HandOver,
    HermesConversation,
    HermesFeatures,
    HermesMessage,
    LiveMessage,
    Outcome,
    RunResult,
    ToolResult,
    ToolStart,
    Unavailable,
)

log = logging.getLogger(__name__)


@attrs.frozen
class Say:
    """The next piece of the answer."""

    text: str


@attrs.frozen
class Pause:
    """Silence, in seconds."""

    seconds: float


@attrs.frozen
class Segment:
    """The text before is whole; another one follows in the same run."""


@attrs.frozen
class Tool:
    """A tool call that takes no time; what was said before it is whole."""

    name: str
    arguments: Mapping[str, object]
    result: str


@attrs.define
class Approve:
    """Ask the owner; the script goes on when `decision` is there."""

    description: str
    command: str
    decision: str | None = None


@attrs.frozen
class Fail:
    """The run fails here."""

    code: RunErrorCode


Step = Say | Pause | Segment | Tool | Approve | Fail
Respond = Callable[[str], Iterable[Step]]


def echo(text: str) -> Iterable[Step]:
    """The answer where no other script is given."""
    for word in f"You said: {text}".split(" "):
        yield Say(word + " ")


@attrs.define
class _Rows:
    title: str
    created_at: int
    messages: list[HermesMessage] = attrs.field(factory=list)


@attrs.define
class _Speech:
    """The text that a run is writing."""

    message_id: MessageId | None = None
    shown: str = ""


class SimulatedHermes:
    """Answers each message by a script. What it stored outlives `stop`, as Hermes's database outlives the gateway."""

    def __init__(self, clock: Clock, respond: Respond = echo, *, version: str = "simulated") -> None:
        self._clock = clock
        self._respond = respond
        self._events: GatewayEvents | None = None
        self._features = HermesFeatures(version=version, streaming=True, cancel=True, tools=True, approvals=True)
        self._rows: dict[ConversationId, _Rows] = {}
        self._running: dict[ConversationId, asyncio.Task[None]] = {}
        self._open = asyncio.Event()
        self._calls = 0
        self._questions: dict[str, asyncio.Future[str]] = {}
        self.handed_over: list[HandOver] = []
        """Every message that was handed over, in order."""

    @property
    def features(self) -> HermesFeatures:
        return self._features

    def start(self, events: GatewayEvents) -> None:
        """The gateway is up: messages are taken from now on."""
        self._events = events
        self._open.set()

    async def stop(self) -> None:
        """The gateway goes down as if it were killed: runs just stop."""
        self._open.clear()
        self._events = None
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._running.clear()

    async def ready(self, conversation_id: ConversationId) -> None:
        await self._open.wait()
        running = self._running.get(conversation_id)
        if running is not None:
            await asyncio.wait([running])

    async def hand_over(self, message: HandOver) -> None:
        if not self._open.is_set() or message.conversation_id in self._running:
            raise Unavailable
        self.handed_over.append(message)
        task = asyncio.create_task(self._run(message), name="pheby-simulated-run")
        self._running[message.conversation_id] = task

    async def interrupt(self, conversation_id: ConversationId) -> None:
        task = self._running.get(conversation_id)
        if task is not None:
            # Behind its first step: a task that is cancelled before it never tells of anything.
            asyncio.get_running_loop().call_soon(task.cancel)

    async def resolve_approval(
        self, conversation_id: ConversationId, key: str, choice: str, reason: str | None
    ) -> bool:
        question = self._questions.get(key)
        if question is None or question.done():
            return False
        question.set_result(choice)
        return True

    async def conversations(self) -> Sequence[HermesConversation]:
        return [self._described(conversation_id, rows) for conversation_id, rows in self._rows.items()]

    async def conversation(self, conversation_id: ConversationId) -> HermesConversation | None:
        rows = self._rows.get(conversation_id)
        return None if rows is None else self._described(conversation_id, rows)

    async def history(self, conversation_id: ConversationId) -> Sequence[HermesMessage]:
        rows = self._rows.get(conversation_id)
        return [] if rows is None else list(rows.messages)

    async def bind(
        self, conversation_id: ConversationId, live: Sequence[LiveMessage], bound: Container[str]
    ) -> Sequence[Bound]:
        free = [row for row in await self.history(conversation_id) if row.key not in bound]
        pairs = []
        for message in live:
            found = next((row for row in free if row.role == message.role and row.text == message.text), None)
            if found is not None:
                pairs.append(Bound(message_id=message.message_id, key=found.key))
                free.remove(found)
        return pairs

    def _described(self, conversation_id: ConversationId, rows: _Rows) -> HermesConversation:
        return HermesConversation(
            conversation_id=conversation_id,
            title=rows.title,
            title_source=TitleSource.GENERATED,
            created_at=rows.created_at,
            last_activity_at=rows.messages[-1].created_at if rows.messages else rows.created_at,
        )

    def _store(self, conversation_id: ConversationId, role: MessageRole, text: str) -> None:
        now = self._clock.now_ms()
        rows = self._rows.setdefault(conversation_id, _Rows(" ".join(text.split())[:40], now))
        key = f"{conversation_id}:{len(rows.messages)}"
        rows.messages.append(HermesMessage(key=key, role=role, text=text, created_at=now))

    async def _run(self, message: HandOver) -> None:
        events = self._events
        assert events is not None
        conversation_id = message.conversation_id
        events.run_started(conversation_id, message.message_id, Origin.CHAT)
        self._store(conversation_id, MessageRole.USER, message.text)
        speech = _Speech()
        try:
            result = await self._speak(events, message, speech)
        except asyncio.CancelledError:
            if self._events is None:
                raise
            result = RunResult(outcome=Outcome.CANCELLED, reason=RunReason.REQUESTED)
            if speech.shown:
                self._store(conversation_id, MessageRole.ASSISTANT, speech.shown)
        except Exception as failure:
            log.error("script.failed", exc_info=failure)
            result = RunResult(outcome=Outcome.FAILED, error=RunErrorCode.INTERNAL)
        del self._running[conversation_id]
        events.run_ended(conversation_id, result)

    async def _ask(self, events: GatewayEvents, conversation_id: ConversationId, step: Approve) -> str:
        self._calls += 1
        key = f"question_{self._calls}"
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._questions[key] = answer
        events.approval_requested(
            conversation_id,
            ApprovalPrompt(
                key=key,
                kind=ApprovalKind.COMMAND,
                description=step.description,
                command=step.command,
                command_truncated=False,
                pattern=step.description,
                choices=("once", "session", "always", "deny"),
                call_id=None,
                answerable=True,
                expires_at=None,
            ),
        )
        try:
            choice = await answer
        finally:
            del self._questions[key]
        events.approval_closed(conversation_id, key, choice, DecisionSource.OTHER_SURFACE)
        return choice

    async def _speak(self, events: GatewayEvents, message: HandOver, speech: _Speech) -> RunResult:
        conversation_id = message.conversation_id
        for step in self._respond(message.text):
            match step:
                case Say(text=text):
                    piece = sendable(text if speech.shown else text.lstrip())
                    speech.shown += piece
                    if speech.message_id is not None:
                        events.message_appended(speech.message_id, piece)
                    elif piece:
                        speech.message_id = events.message_started(conversation_id, piece)
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case Segment() if speech.message_id is not None:
                    events.message_ended(speech.message_id, interim=True)
                    self._store(conversation_id, MessageRole.ASSISTANT, speech.shown)
                    speech.message_id, speech.shown = None, ""
                case Tool(name=name, arguments=arguments, result=result):
                    self._calls += 1
                    call_id = f"call_{self._calls}"
                    events.tool_started(
                        conversation_id,
                        ToolStart(
                            call_id=call_id,
                            name=name,
                            description=next((str(value) for value in arguments.values()), None),
                            arguments=arguments,
                            arguments_truncated=False,
                        ),
                    )
                    done = ToolResult(call_id=call_id, outcome=Outcome.COMPLETED, preview=result)
                    events.tool_ended(conversation_id, done)
                case Approve():
                    step.decision = await self._ask(events, conversation_id, step)
                case Fail(code):
                    return RunResult(outcome=Outcome.FAILED, error=code)
            # As a real gateway, which serves its other conversations between two pieces.
            await asyncio.sleep(0)
        if not speech.shown:
            return RunResult(outcome=Outcome.FAILED, error=RunErrorCode.EMPTY_RESPONSE)
        self._store(conversation_id, MessageRole.ASSISTANT, speech.shown)
        return RunResult(outcome=Outcome.COMPLETED, final_text=speech.shown)
