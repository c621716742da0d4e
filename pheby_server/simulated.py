"""A Hermes without Hermes: a scripted HermesPort for demonstrations, tests and the conformance suite.

It stands at the port and behaves there as recorded gateways do: one run at a time in a conversation, the owner's row
stored when the run begins, a text's row when the text is whole, nothing stored of a failed answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs

from pheby_protocol.ids import ConversationId, MessageId
from pheby_protocol.messages.approval import ApprovalKind, DecisionSource
from pheby_protocol.messages.conversation import TitleSource
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_protocol.messages.model import Model, ModelChoice, Provider
from pheby_protocol.messages.run import RunErrorCode, RunReason

from .boundary import sendable
from .logs import log_of
from .ports import (
    AgentFile,
    ApprovalPrompt,
    Bound,
    ClarificationPrompt,
    Clock,
    EffortOffer,
    GatewayEvents,
    HandOver,
    HermesConversation,
    HermesFeatures,
    HermesMessage,
    LiveMessage,
    ModelOffer,
    Outcome,
    RunResult,
    SubagentStart,
    TitleTaken,
    ToolResult,
    ToolStart,
    Unavailable,
)

log = log_of(__name__)


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


@attrs.define(eq=False)
class Begin:
    """A tool call begins; what was said before it is whole. It lasts until its End, or its run's."""

    name: str
    arguments: Mapping[str, object]
    call_id: str = ""
    """Given when it begins."""


@attrs.frozen
class End:
    """A tool call that began is over."""

    call: Begin
    result: str
    outcome: Outcome = Outcome.COMPLETED


@attrs.define
class Approve:
    """Ask the owner whether a call may run; the script goes on when `decision` is there."""

    call: Begin
    description: str
    command: str
    decision: str | None = None


@attrs.define
class Ask:
    """Ask the owner; the script goes on with `answers`, empty when there is none (skipped, or it ran out)."""

    call: Begin
    question: str
    labels: tuple[str, ...] = ()
    multiple: bool = False
    answers: tuple[str, ...] = ()


@attrs.frozen
class Delegate:
    """Hand work to a subagent. It goes on by itself; when it is done, the conversation gets a run with the report."""

    call: Begin
    goal: str
    steps: Iterable[Step]
    report: Iterable[Step]


@attrs.frozen
class Deliver:
    """Hand a file over: behind the run's texts, as Hermes does."""

    path: str


@attrs.frozen
class Fail:
    """The run fails here."""

    code: RunErrorCode


Step: TypeAlias = "Say | Pause | Segment | Begin | End | Approve | Ask | Delegate | Deliver | Fail"
Respond = Callable[[str], Iterable[Step]]


SIMULATED_MODELS = ("scripted-1", "scripted-2")
SIMULATED_PROVIDER = "scripted"
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
DEFAULT_EFFORT = "medium"


@attrs.frozen
class Asked:
    """What a message that was handed over asked of the provider."""

    message_id: MessageId
    model: str
    effort: str


def echo(text: str) -> Iterable[Step]:
    """The answer where no other script is given."""
    for word in f"You said: {text}".split(" "):
        yield Say(word + " ")


@attrs.define
class _Rows:
    title: str
    created_at: int
    title_source: TitleSource = TitleSource.GENERATED
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
        self._features = HermesFeatures(
            version=version,
            streaming=True,
            cancel=True,
            tools=True,
            approvals=True,
            clarifications=True,
            subagents=True,
            steer=True,
            rename=True,
            delete=True,
            attachments=True,
            models=True,
            reasoning=True,
        )
        self._rows: dict[ConversationId, _Rows] = {}
        self._running: dict[ConversationId, asyncio.Task[None]] = {}
        self._open = asyncio.Event()
        self._calls = 0
        self._questions: dict[str, asyncio.Future[str]] = {}
        self._asked: dict[str, asyncio.Future[tuple[str, ...]]] = {}
        self._labels: dict[str, tuple[str, ...]] = {}
        self._subagents: dict[str, asyncio.Task[None]] = {}
        self.prompt_seconds: float | None = None
        """So long the owner may take to answer."""
        self.steered: list[HandOver] = []
        """Every message that was given to a run on its way, in order."""
        self.handed_over: list[HandOver] = []
        """Every message that was handed over, in order."""
        self._models: dict[ConversationId, str] = {}
        self._efforts: dict[ConversationId, str] = {}
        """What was chosen; forgotten when the gateway goes down, as real ones do."""
        self.asked: list[Asked] = []
        """The model and the effort of every message that was handed over, in order."""

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
        running = [*self._running.values(), *self._subagents.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._running.clear()
        self._subagents.clear()
        self._efforts.clear()

    async def ready(self, conversation_id: ConversationId) -> None:
        await self._open.wait()
        running = self._running.get(conversation_id)
        if running is not None:
            await asyncio.wait([running])

    async def hand_over(self, message: HandOver) -> None:
        if not self._open.is_set() or message.conversation_id in self._running:
            raise Unavailable
        self.handed_over.append(message)
        effort = self._efforts.get(message.conversation_id, DEFAULT_EFFORT)
        self.asked.append(Asked(message.message_id, self._model(message.conversation_id), effort))
        self._begin(message.conversation_id, message)

    def _begin(self, conversation_id: ConversationId, message: HandOver | None, steps: Iterable[Step] = ()) -> None:
        run = self._run(conversation_id, message, steps if message is None else self._respond(message.text))
        self._running[conversation_id] = asyncio.create_task(run, name="pheby-simulated-run")

    async def steer(self, message: HandOver) -> bool:
        if message.conversation_id not in self._running:
            return False
        self._store(message.conversation_id, MessageRole.USER, message.text)
        self.steered.append(message)
        return True

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

    async def resolve_clarification(
        self, conversation_id: ConversationId, key: str, chosen: tuple[int, ...], text: str | None, *, skip: bool
    ) -> bool:
        question = self._asked.get(key)
        if question is None or question.done():
            return False
        said = [self._labels[key][number] for number in chosen] + ([] if text is None else [text])
        question.set_result(tuple(said))
        return True

    async def interrupt_subagent(self, conversation_id: ConversationId, key: str) -> bool:
        task = self._subagents.get(key)
        return task is not None and task.cancel()

    async def conversations(self) -> Sequence[HermesConversation]:
        return [self._described(conversation_id, rows) for conversation_id, rows in self._rows.items()]

    async def conversation(self, conversation_id: ConversationId) -> HermesConversation | None:
        rows = self._rows.get(conversation_id)
        return None if rows is None else self._described(conversation_id, rows)

    async def rename(self, conversation_id: ConversationId, title: str) -> None:
        if any(rows.title == title and name != conversation_id for name, rows in self._rows.items()):
            raise TitleTaken
        if conversation_id in self._rows:
            rows = self._rows[conversation_id]
            rows.title, rows.title_source = title, TitleSource.MANUAL

    async def delete(self, conversation_id: ConversationId) -> None:
        await self.interrupt(conversation_id)
        await self.ready(conversation_id)
        self._rows.pop(conversation_id, None)
        self._models.pop(conversation_id, None)
        self._efforts.pop(conversation_id, None)

    async def models(self, conversation_id: ConversationId) -> ModelOffer:
        self._must_be_free(conversation_id)
        models = tuple(Model(model=name, name=name) for name in SIMULATED_MODELS)
        provider = Provider(provider=SIMULATED_PROVIDER, name="Scripted", models=models)
        current = ModelChoice(provider=SIMULATED_PROVIDER, model=self._model(conversation_id))
        return ModelOffer(providers=(provider,), current=current)

    async def select_model(self, conversation_id: ConversationId, provider: str, model: str) -> None:
        self._must_be_free(conversation_id)
        # As real ones: any model is taken, and no unknown provider.
        if provider == SIMULATED_PROVIDER:
            self._models[conversation_id] = model

    async def efforts(self, conversation_id: ConversationId) -> EffortOffer:
        self._must_be_free(conversation_id)
        return EffortOffer(efforts=EFFORTS, current=self._efforts.get(conversation_id, DEFAULT_EFFORT), known=False)

    async def select_effort(self, conversation_id: ConversationId, effort: str) -> None:
        self._must_be_free(conversation_id)
        if effort in EFFORTS:
            self._efforts[conversation_id] = effort

    def begin_anew(self, conversation_id: ConversationId) -> None:
        """The next run is in another session, in which nothing is chosen."""
        self._models.pop(conversation_id, None)
        self._efforts.pop(conversation_id, None)
        if self._events is not None:
            self._events.began_anew(conversation_id)

    def _must_be_free(self, conversation_id: ConversationId) -> None:
        if not self._open.is_set() or conversation_id in self._running:
            raise Unavailable

    def _model(self, conversation_id: ConversationId) -> str:
        return self._models.get(conversation_id, SIMULATED_MODELS[0])

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
            title_source=rows.title_source,
            created_at=rows.created_at,
            last_activity_at=rows.messages[-1].created_at if rows.messages else rows.created_at,
        )

    def _store(self, conversation_id: ConversationId, role: MessageRole, text: str) -> None:
        now = self._clock.now_ms()
        rows = self._rows.setdefault(conversation_id, _Rows(" ".join(text.split())[:40], now))
        key = f"{conversation_id}:{len(rows.messages)}"
        rows.messages.append(HermesMessage(key=key, role=role, text=text, created_at=now))

    async def _run(self, conversation_id: ConversationId, message: HandOver | None, steps: Iterable[Step]) -> None:
        events = self._events
        assert events is not None
        if message is None:
            events.run_started(conversation_id, None, Origin.BACKGROUND)
        else:
            events.run_started(conversation_id, message.message_id, Origin.CHAT)
            self._store(conversation_id, MessageRole.USER, message.text)
        speech = _Speech()
        try:
            result = await self._speak(events, conversation_id, steps, speech)
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

    def _new_name(self, kind: str) -> str:
        self._calls += 1
        return f"{kind}_{self._calls}"

    async def _approve(self, events: GatewayEvents, conversation_id: ConversationId, step: Approve) -> None:
        key = self._new_name("question")
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._questions[key] = answer
        prompt = ApprovalPrompt(
            key=key,
            kind=ApprovalKind.COMMAND,
            description=step.description,
            command=step.command,
            command_truncated=False,
            pattern=step.description,
            choices=("once", "session", "always", "deny"),
            call_id=step.call.call_id,
            answerable=True,
            expires_at=self._prompt_end(),
        )
        events.approval_requested(conversation_id, prompt)
        by = DecisionSource.OTHER_SURFACE
        try:
            async with asyncio.timeout(self.prompt_seconds):
                step.decision = await answer
        except TimeoutError:
            by = DecisionSource.TIMEOUT
        except asyncio.CancelledError:
            if self._events is not None:
                events.approval_closed(conversation_id, key, None, DecisionSource.RUN_END)
            raise
        finally:
            del self._questions[key]
        events.approval_closed(conversation_id, key, step.decision, by)

    def _prompt_end(self) -> int | None:
        return None if self.prompt_seconds is None else self._clock.now_ms() + int(self.prompt_seconds * 1_000)

    async def _ask(self, events: GatewayEvents, conversation_id: ConversationId, step: Ask) -> None:
        key = self._new_name("question")
        answer: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        self._asked[key], self._labels[key] = answer, step.labels
        prompt = ClarificationPrompt(
            key=key,
            question=step.question,
            labels=step.labels,
            multiple=step.multiple,
            free_text=True,
            skippable=True,
            call_id=step.call.call_id,
            expires_at=self._prompt_end(),
        )
        events.clarification_requested(conversation_id, prompt)
        try:
            async with asyncio.timeout(self.prompt_seconds):
                step.answers = await answer
        except TimeoutError:
            events.clarification_closed(conversation_id, key, DecisionSource.TIMEOUT)
        except asyncio.CancelledError:
            if self._events is not None:
                events.clarification_closed(conversation_id, key, DecisionSource.RUN_END)
            raise
        finally:
            del self._asked[key], self._labels[key]

    def _delegate(self, events: GatewayEvents, conversation_id: ConversationId, step: Delegate) -> None:
        key = self._new_name("subagent")
        start = SubagentStart(key=key, parent=None, call_id=step.call.call_id, goal=step.goal)
        events.subagent_started(conversation_id, start)
        work = self._work(events, conversation_id, key, step)
        self._subagents[key] = asyncio.create_task(work, name="pheby-simulated-subagent")

    async def _work(self, events: GatewayEvents, conversation_id: ConversationId, key: str, step: Delegate) -> None:
        result = RunResult(outcome=Outcome.COMPLETED)
        try:
            for inner in step.steps:
                match inner:
                    case Pause(seconds):
                        await asyncio.sleep(seconds)
                    case Begin() | End():
                        self._tool(events, conversation_id, inner, key)
                    case Fail(code):
                        result = RunResult(outcome=Outcome.FAILED, error=code)
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._events is None:
                raise
            result = RunResult(outcome=Outcome.CANCELLED, reason=RunReason.REQUESTED)
        events.subagent_ended(conversation_id, key, result)
        await self.ready(conversation_id)
        del self._subagents[key]
        self._begin(conversation_id, None, step.report)

    def _tool(
        self, events: GatewayEvents, conversation_id: ConversationId, step: Begin | End, subagent: str | None = None
    ) -> None:
        if isinstance(step, End):
            result = ToolResult(call_id=step.call.call_id, outcome=step.outcome, preview=step.result)
            events.tool_ended(conversation_id, result, subagent)
            return
        step.call_id = self._new_name("call")
        start = ToolStart(
            call_id=step.call_id,
            name=step.name,
            description=next((value for value in step.arguments.values() if isinstance(value, str)), None),
            arguments=step.arguments,
            arguments_truncated=False,
        )
        events.tool_started(conversation_id, start, subagent)

    async def _speak(
        self, events: GatewayEvents, conversation_id: ConversationId, steps: Iterable[Step], speech: _Speech
    ) -> RunResult:
        files: list[str] = []
        for step in steps:
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
                case Begin() | End():
                    self._tool(events, conversation_id, step)
                case Approve():
                    await self._approve(events, conversation_id, step)
                case Ask():
                    await self._ask(events, conversation_id, step)
                case Delegate():
                    self._delegate(events, conversation_id, step)
                case Deliver(path):
                    files.append(path)
                case Fail(code):
                    return RunResult(outcome=Outcome.FAILED, error=code)
            # As a real gateway, which serves its other conversations between two pieces.
            await asyncio.sleep(0)
        if not speech.shown and not files:
            return RunResult(outcome=Outcome.FAILED, error=RunErrorCode.EMPTY_RESPONSE)
        if speech.shown:
            self._store(conversation_id, MessageRole.ASSISTANT, speech.shown)
        for path in dict.fromkeys(files):
            await events.attach(conversation_id, AgentFile(path=path, name=path.rpartition("/")[2]))
        return RunResult(outcome=Outcome.COMPLETED, final_text=speech.shown)
