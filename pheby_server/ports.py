"""The seams of the core: what it asks Hermes, what Hermes tells it, and the clock and ids that it is given."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import attrs

from pheby_protocol.ids import ConversationId, MessageId, RunId
from pheby_protocol.messages.approval import ApprovalKind, DecisionSource
from pheby_protocol.messages.conversation import TitleSource
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_protocol.messages.model import ModelChoice, Provider
from pheby_protocol.messages.run import RunErrorCode, RunReason, Usage
from pheby_protocol.messages.tool import ToolErrorCode


class Unavailable(Exception):  # noqa: N818 - names what is the case, not a fault
    """Hermes cannot do that now; the caller may try again."""


class TitleTaken(Exception):  # noqa: N818 - names what is the case, not a fault
    """Another conversation of Hermes's has that title."""


@attrs.frozen(kw_only=True)
class HermesFeatures:
    """What this Hermes can do, as probed; becomes the capabilities in `welcome`."""

    version: str
    streaming: bool
    cancel: bool = False
    tools: bool = False
    approvals: bool = False
    clarifications: bool = False
    subagents: bool = False
    steer: bool = False
    rename: bool = False
    delete: bool = False
    attachments: bool = False
    models: bool = False
    reasoning: bool = False


@attrs.frozen(kw_only=True)
class HandOver:
    """One message of the owner for the agent. `message_id` comes back in `GatewayEvents.run_started`.

    `context` is what the owner was shown meanwhile and the agent does not know yet; "" for nothing.
    """

    conversation_id: ConversationId
    message_id: MessageId
    run_id: RunId
    text: str
    context: str = ""


@attrs.frozen(kw_only=True)
class HermesConversation:
    """A conversation as Hermes has it. Times in milliseconds since 1970 UTC."""

    conversation_id: ConversationId
    title: str
    title_source: TitleSource
    created_at: int
    last_activity_at: int


@attrs.frozen(kw_only=True)
class HermesMessage:
    """A message as Hermes stores it, already cleaned for display.

    `key` names its row for ever; `also` are further names under which it may have been known. No synthetic rows.
    """

    key: str
    also: tuple[str, ...] = ()
    role: MessageRole
    text: str
    created_at: int


@attrs.frozen(kw_only=True)
class ModelOffer:
    """The models that a conversation may use, and the one that it uses: names and prices, no address and no key."""

    providers: tuple[Provider, ...]
    current: ModelChoice


@attrs.frozen(kw_only=True)
class EffortOffer:
    """The reasoning efforts that a conversation may use. `known` is false where Hermes does not say it per model."""

    efforts: tuple[str, ...]
    current: str | None
    known: bool


@attrs.frozen(kw_only=True)
class LiveMessage:
    """A message that was seen live and is to be found among Hermes's rows."""

    message_id: MessageId
    role: MessageRole
    text: str


@attrs.frozen(kw_only=True)
class Bound:
    """This live message is that row."""

    message_id: MessageId
    key: str


class Outcome(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@attrs.frozen(kw_only=True)
class ToolStart:
    """A tool call that began: redacted and bounded already. `call_id` is Hermes's, unique within the run."""

    call_id: str
    name: str
    description: str | None
    arguments: Mapping[str, object]
    arguments_truncated: bool


@attrs.frozen(kw_only=True)
class ToolResult:
    """How a tool call ended; the preview is redacted and bounded. `error` only with the outcome failed."""

    call_id: str
    outcome: Outcome
    duration_ms: int | None = None
    preview: str | None = None
    truncated: bool = False
    error: ToolErrorCode | None = None


@attrs.frozen(kw_only=True)
class ApprovalPrompt:
    """Hermes asks whether it may: redacted and bounded. `key` names the question towards Hermes.

    `pattern` is what the choices session and always would approve. `answerable` is false while another question must be
    answered first.
    """

    key: str
    kind: ApprovalKind
    description: str
    command: str
    command_truncated: bool
    pattern: str | None
    choices: tuple[str, ...]
    call_id: str | None
    answerable: bool
    expires_at: int | None


@attrs.frozen(kw_only=True)
class ClarificationPrompt:
    """Hermes asks for an answer: redacted and bounded. `key` names the question towards Hermes."""

    key: str
    question: str
    labels: tuple[str, ...]
    multiple: bool
    free_text: bool
    skippable: bool
    call_id: str | None
    expires_at: int | None


@attrs.frozen(kw_only=True)
class SubagentStart:
    """A subagent began. `key` names it towards Hermes; `parent` another subagent, None: the active run started it.

    `call_id` is the parent's tool call that did; `goal` is redacted and bounded.
    """

    key: str
    parent: str | None
    call_id: str | None
    goal: str


@attrs.frozen(kw_only=True)
class AgentFile:
    """A file of the agent, to be copied at once; Hermes's own rule has allowed it. `name` is for people.

    `path` never leaves the core; without one the file could not be read. `spooled`: it is the spool's own copy.
    """

    path: str | None
    name: str
    spooled: bool = False


@attrs.frozen(kw_only=True)
class Delivery:
    """What reaches the owner outside of any run: a text, files, or both. Time in milliseconds since 1970 UTC.

    `key` names it for ever: told twice, it is shown once. `for_model`: the agent does not know of it yet.
    """

    text: str
    origin: Origin
    role: MessageRole
    key: str | None = None
    time: int | None = None
    files: tuple[AgentFile, ...] = ()
    for_model: bool = False


@attrs.frozen(kw_only=True)
class RunResult:
    """How a run ended and why. `final_text` is what Hermes declares to be the answer, cleaned; None: not declared."""

    outcome: Outcome
    reason: RunReason | None = None
    error: RunErrorCode | None = None
    final_text: str | None = None
    usage: Usage | None = None


class HermesPort(Protocol):
    """What the core asks Hermes. Every call is made on the loop and never blocks it."""

    @property
    def features(self) -> HermesFeatures: ...

    async def ready(self, conversation_id: ConversationId) -> None:
        """Returns when Hermes takes messages and this conversation is free for the next one."""

    async def hand_over(self, message: HandOver) -> None:
        """Give Hermes one message; returns when Hermes has it.

        Raises Unavailable when the conversation is not free after all: Hermes has not seen the message.
        """

    async def steer(self, message: HandOver) -> bool:
        """Give the active run the owner's words behind the tool that it is using. False: nothing was given."""

    async def interrupt(self, conversation_id: ConversationId) -> None:
        """Stop what Hermes does in this conversation. Harmless when it does nothing; the end is told as any other."""

    async def resolve_approval(
        self, conversation_id: ConversationId, key: str, choice: str, reason: str | None
    ) -> bool:
        """Decide exactly this question, by a choice that was offered. False: not taken, nothing was decided."""

    async def resolve_clarification(
        self, conversation_id: ConversationId, key: str, chosen: tuple[int, ...], text: str | None, *, skip: bool
    ) -> bool:
        """Answer exactly this question: by its labels' numbers from 0, by words, or not at all. False: not taken."""

    async def interrupt_subagent(self, conversation_id: ConversationId, key: str) -> bool:
        """Stop one subagent; its end is told as any other. False: it does not run any more, or cannot be stopped."""

    async def conversations(self) -> Sequence[HermesConversation]:
        """All of this platform's conversations that Hermes has stored."""

    async def conversation(self, conversation_id: ConversationId) -> HermesConversation | None:
        """One conversation, or None when Hermes has stored nothing of it yet."""

    async def rename(self, conversation_id: ConversationId, title: str) -> None:
        """Give a conversation a title; nothing where Hermes has stored nothing of it yet. Raises TitleTaken."""

    async def delete(self, conversation_id: ConversationId) -> None:
        """Stop what goes on in a conversation and forget all of it; again is harmless. Raises Unavailable: not yet."""

    async def models(self, conversation_id: ConversationId) -> ModelOffer:
        """What may be chosen in a conversation that is free. Raises Unavailable."""

    async def select_model(self, conversation_id: ConversationId, provider: str, model: str) -> None:
        """Choose one that is on offer, for this conversation alone; whether it holds is asked behind it.

        Raises Unavailable.
        """

    async def efforts(self, conversation_id: ConversationId) -> EffortOffer:
        """What may be chosen in a conversation that is free. Raises Unavailable."""

    async def select_effort(self, conversation_id: ConversationId, effort: str) -> None:
        """Choose one that is on offer, for this conversation alone; as `select_model`."""

    async def history(self, conversation_id: ConversationId) -> Sequence[HermesMessage]:
        """The messages that exist for the owner, oldest first, over all of Hermes's sessions of the conversation."""

    async def bind(
        self, conversation_id: ConversationId, live: Sequence[LiveMessage], bound: Container[str]
    ) -> Sequence[Bound]:
        """Find live messages among the rows whose keys are not bound yet."""


class GatewayEvents(Protocol):
    """What Hermes tells the core, about one conversation at a time. Every call is made on the loop, in order."""

    def run_started(self, conversation_id: ConversationId, message_id: MessageId | None, origin: Origin) -> RunId:
        """A turn began: that of a message that was handed over, or (None) one that Hermes started by itself."""

    def message_started(self, conversation_id: ConversationId, text: str) -> MessageId:
        """The agent began a text in the active run; later changes name the id."""

    def message_appended(self, message_id: MessageId, text: str) -> None:
        """The text grew at its end."""

    def message_replaced(self, message_id: MessageId, text: str) -> None:
        """The text is this one now."""

    def message_ended(self, message_id: MessageId, *, interim: bool) -> None:
        """The text is whole. Interim: more of this run follows."""

    def tool_started(self, conversation_id: ConversationId, tool: ToolStart, subagent: str | None = None) -> None:
        """The active run, or one of its subagents, calls a tool."""

    def tool_ended(self, conversation_id: ConversationId, result: ToolResult, subagent: str | None = None) -> None:
        """A tool call ended. One that never ends is ended with its run."""

    def subagent_started(self, conversation_id: ConversationId, start: SubagentStart) -> None:
        """A subagent works from now on, perhaps longer than the run that started it."""

    def subagent_ended(self, conversation_id: ConversationId, key: str, result: RunResult) -> None:
        """A subagent is done."""

    def approval_requested(self, conversation_id: ConversationId, prompt: ApprovalPrompt) -> None:
        """Hermes waits for the owner's decision."""

    def approval_answerable(self, conversation_id: ConversationId, key: str) -> None:
        """A question that had to wait for another one can be answered now."""

    def approval_closed(
        self, conversation_id: ConversationId, key: str, decision: str | None, by: DecisionSource
    ) -> None:
        """A question is over, whoever decided it."""

    def clarification_requested(self, conversation_id: ConversationId, prompt: ClarificationPrompt) -> None:
        """Hermes waits for the owner's answer."""

    def clarification_closed(self, conversation_id: ConversationId, key: str, by: DecisionSource) -> None:
        """A question is over without an answer of the owner: it ran out, or its run did."""

    def run_progress(self, conversation_id: ConversationId, text: str) -> None:
        """A phrase about what goes on; not part of the transcript."""

    def run_ended(self, conversation_id: ConversationId, result: RunResult) -> None:
        """The active run ended. What is still open in it is closed first."""

    def run_lost(self, conversation_id: ConversationId, message_id: MessageId) -> None:
        """A message that was handed over will get no run: Hermes did something else with it."""

    async def deliver(self, conversation_id: ConversationId, delivery: Delivery) -> MessageId:
        """Something outside of any run: a notice, a scheduled job's result. Returns when it is stored.

        Raises StoreError when it was not: nobody has seen it.
        """

    async def attach(
        self, conversation_id: ConversationId, file: AgentFile, message_id: MessageId | None = None
    ) -> bool:
        """A file of the active run, or one that belongs to a message delivered before. False: refused, with a notice.

        What goes on is not told in between: the agent waits until the file is copied.
        """

    def not_attached(self, conversation_id: ConversationId, name: str) -> None:
        """Hermes itself has not delivered a file of the active run."""

    def began_anew(self, conversation_id: ConversationId) -> None:
        """Hermes goes on in another session of its own: what was chosen for the conversation may be forgotten there."""

    async def settled(self) -> None:
        """Returns when everything told so far is stored."""


class Timer(Protocol):
    """A call to come."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time for the core."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970 UTC. May jump."""

    def monotonic(self) -> float:
        """Seconds of a clock that never jumps."""

    def call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        """Call once on the loop after a delay in seconds."""


class IdSource(Protocol):
    """Names for new things; unique across restarts."""

    def token(self) -> str:
        """At least 96 bits of chance in `[A-Za-z0-9_-]`."""

    def conversation_number(self) -> str:
        """16 to 18 digits, never used before: the one form of a chat id that every Hermes line can address."""
