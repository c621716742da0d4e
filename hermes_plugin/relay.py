"""What Hermes calls an adapter with, told to the core: which text belongs to which run, and what is no text at all.

Hermes-free and without I/O, so that recordings of real gateways can be played through it.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import attrs

from pheby_protocol.ids import ConversationId, Count, MessageId
from pheby_protocol.messages.approval import ApprovalKind, DecisionSource
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_protocol.messages.run import RunErrorCode, RunReason, Usage
from pheby_server.boundary import sendable
from pheby_server.ports import ApprovalPrompt, Delivery, GatewayEvents, Outcome, RunResult

from .approval_cards import ApprovalCards, Card
from .chats import conversation_of
from .drafts import Append, DraftTail, Replace, clean_text, media_paths, whole_characters
from .questions import MAX_CHOICES, Question, prompt
from .subagents import Subagents
from .tool_calls import Redact, completed_all_the_same, redactor, tool_result, tool_start
from .turns import EnvelopeEnded, GhostTurn, TurnEnded, TurnEvent, TurnStarted, TurnTable

MAX_COMMAND_CHARS: Final = 8_000
MAX_DESCRIPTION_CHARS: Final = 1_000
_DECISIONS: Final = ("once", "session", "always", "deny")
MAX_DELIVERED: Final = 1_024
LOST_SECONDS: Final = 5.0
"""An event that ended without a turn may still be replayed this soon after; later it is lost."""

PROVIDER_FAILS: Final = "The model provider reports an error; Hermes may try again."

_PATTERNS_ONLY: Final = redactor(str)

Later = Callable[[float, Callable[[], None]], object]


@attrs.define(eq=False)
class _Segment:
    """One text of a run as Hermes streams it: the first `send` and the edits that name its id."""

    conversation_id: ConversationId
    tail: DraftTail
    message_id: MessageId | None = None
    """The core's id, from the first visible character on."""
    whole: bool = False
    """Hermes has said that this text is finished."""
    over: bool = False
    """Ended here; what Hermes still sends for it is late."""


@attrs.define(eq=False)
class _Run:
    """What was said in the active run of one chat."""

    chat_id: str
    conversation_id: ConversationId
    segment: _Segment | None = None
    tool_follows: bool = False
    """The model asked for a tool after the current text: more of this run will come."""
    held: str | None = None
    """The last text that came whole: the answer, the complaint of a run that is about to fail, an acknowledgement."""
    said: str = ""
    """The last text that was shown whole."""
    on_its_way: str = ""
    """What the model said with its last request for a tool. Where nothing streams, Hermes sends it without a mark."""
    clarifying: str | None = None
    """The tool call that asks the owner."""
    withdrawn: bool = False
    """Its question was closed without an answer, because the run is being stopped."""
    provider_fails: bool = False
    """The provider's last word was an error; what Hermes says of it may quote the provider."""
    answered: bool = False
    """The model has given its answer: what Hermes delivers now is this run's."""
    files: list[str] = attrs.field(factory=list)
    """The files that Hermes has delivered."""
    promised: list[str] = attrs.field(factory=list)
    """The files that the agent named in what was shown."""

    @property
    def shown(self) -> str:
        """The newest text that was shown."""
        return self.segment.tail.text if self.segment is not None else self.said

    def has_said(self, answer: str | None) -> bool:
        """Whether the newest text is the declared answer (Hermes may have put a footer behind it)."""
        said = "".join(clean_text(answer or "").split())
        return said != "" and "".join(self.shown.split()).startswith(said)


@attrs.frozen
class FilePlace:
    """Where a file belongs: to the active run, or to a message that was delivered before."""

    conversation_id: ConversationId
    message_id: MessageId | None


class Relay:
    """Fed by the adapter, on the loop, in Hermes's order. Returns the message ids that Hermes keeps."""

    def __init__(
        self,
        events: GatewayEvents,
        new_id: Callable[[], str],
        later: Later,
        *,
        cursor: str = " ▉",
        platform: str = "pheby",
        redact: Redact = _PATTERNS_ONLY,
        command_on_card: Callable[[str], str] = str,
        canonical: Callable[[str], str] = str,
    ) -> None:
        self._events = events
        self._canonical = canonical
        """A path as it is without links and abbreviations."""
        self._redact = redact
        self._new_id = new_id
        self._later = later
        self._cursor = cursor
        self.turns = TurnTable(platform)
        self.cards = ApprovalCards(new_id, command_on_card, platform)
        self.subagents = Subagents(redact)
        self._questions: dict[str, Question] = {}
        """Clarifications that wait, by Hermes's id."""
        self._runs: dict[str, _Run] = {}
        self._segments: dict[str, _Segment] = {}
        """By the id that Hermes was given; those of the active runs only."""
        self._delivered: dict[str, MessageId] = {}
        """By chat, the last text that was delivered outside of its runs; files may follow it."""
        self._stopping: set[str] = set()
        """Chats in which something was interrupted and has not ended: what Hermes says about that is chatter."""
        self._over = False
        """Shut down: nothing is told any more."""

    # The adapter's callbacks

    def processing_started(
        self, chat_id: str, envelope: int, message_id: str | None, text: str, internal: bool
    ) -> None:
        self._act(self.turns.processing_started(chat_id, envelope, message_id, text, internal))

    def processing_completed(self, chat_id: str, envelope: int, outcome: str) -> None:
        self._act(self.turns.processing_completed(chat_id, envelope, outcome))

    def interrupted(self, chat_id: str) -> None:
        if self.turns.open_envelopes(chat_id):
            self._stopping.add(chat_id)
        self._act(self.turns.interrupt_requested(chat_id))

    def hook(self, name: str, facts: Mapping[str, object], chat_id: str) -> None:
        """One hook call; `chat_id` is that of the thread which made it."""
        if self._over:
            return
        if name == "pre_approval_request":
            self.cards.asked(facts)
        elif name == "post_approval_response":
            self._approval_over(facts)
        self._act(self.turns.hook(name, facts, chat_id))
        self._subagent(name, facts)
        run = self._run_of(facts)
        if run is None:
            return
        self._tool(run, name, facts)
        if name == "api_request_error":
            run.provider_fails = True
        elif name == "post_llm_call":
            run.answered = True
        elif name == "post_api_request":
            run.provider_fails = False
            run.on_its_way = clean_text(_said_with_tools(facts))
        if name == "pre_tool_call" or (name == "post_api_request" and run.on_its_way):
            run.tool_follows, run.held = True, None
            self._show_whole(run)
            self._end_segment_if_done(run)

    def shut_down(self) -> None:
        """Hermes is going down: what is still open ends here."""
        self._act(self.turns.shutting_down())
        self._act(self.turns.abandon_all())
        for subagent, result in self.subagents.abandon():
            self._events.subagent_ended(conversation_of(subagent.chat_id), subagent.session_id, result)
        self._over = True

    def outside(self, chat_id: str, content: str, metadata: Mapping[str, object] | None) -> Delivery | None:
        """What a text from Hermes is when it belongs to no run; None: it does, or it is chatter (then see `send`)."""
        marks = metadata or {}
        job = marks.get("job_id") is not None
        if chat_id in self._runs and not job:
            return None
        # A late text of a run that has ended, or chatter.
        chatter = marks.get("expect_edits") or marks.get("_interim_send") or chat_id in self._stopping
        text = clean_text(content)
        if not text or (chatter and not job):
            return None
        if job:
            return Delivery(text=text, origin=Origin.CRON, role=MessageRole.ASSISTANT, for_model=True)
        return Delivery(text=text, origin=Origin.SYSTEM, role=MessageRole.NOTICE)

    def in_run(self, chat_id: str) -> bool:
        """Whether a run is active in a chat."""
        return chat_id in self._runs

    def delivered(self, chat_id: str, message_id: MessageId) -> None:
        """Something outside of any run was delivered: the files that follow belong to it."""
        self._delivered[chat_id] = message_id
        if len(self._delivered) > MAX_DELIVERED:
            del self._delivered[next(iter(self._delivered))]

    def send(self, chat_id: str, content: str, metadata: Mapping[str, object] | None) -> str:
        """A text from Hermes in a run; the id under which Hermes may edit it."""
        marks = metadata or {}
        run = self._runs.get(chat_id)
        if run is None or marks.get("job_id"):
            return self._new_id()
        if marks.get("expect_edits"):
            return self._stream(chat_id, run, content)
        if marks.get("notify") is True and not marks.get("_interim_send"):
            self._hold(run, clean_text(content))
        elif run.on_its_way and clean_text(content) == run.on_its_way:
            self._say(chat_id, run, run.on_its_way)
        # Anything else in a run is chatter about it: tool bubbles, heartbeats, acknowledgements.
        return self._new_id()

    def file_place(self, chat_id: str, path: str) -> FilePlace | None:
        """Where a file goes that Hermes delivers; None: nowhere, it was delivered already or its run is stopped."""
        run = self._runs.get(chat_id)
        conversation_id = conversation_of(chat_id)
        if run is None or not run.answered:
            # Files of a run follow its answer.
            return None if chat_id in self._stopping else FilePlace(conversation_id, self._delivered.get(chat_id))
        path = self._canonical(path)
        if path in run.files or chat_id in self._stopping:
            return None
        run.files.append(path)
        if run.held is not None and not run.has_said(run.held):
            self._end_segment(run, interim=True)
            run.said = run.held
            self._events.message_started(conversation_id, run.held)
        run.held = None
        return FilePlace(conversation_id, None)

    def edit(self, message_id: str, content: str, *, final: bool) -> None:
        """The whole text of something sent before, again."""
        segment = self._segments.get(message_id)
        if segment is None or segment.over:
            return
        self._show(segment, content, final=final)
        run = next((run for run in self._runs.values() if run.segment is segment), None)
        if final and run is not None:
            segment.whole = True
            self._end_segment_if_done(run)

    def status(self, chat_id: str, text: str) -> None:
        """What Hermes calls a status: it is about the run, not part of it."""
        run = self._runs.get(chat_id)
        if run is not None:
            self._events.run_progress(
                conversation_of(chat_id), PROVIDER_FAILS if run.provider_fails else whole_characters(text)
            )

    # Tools

    def _tool(self, run: _Run, name: str, facts: Mapping[str, object]) -> None:
        call_id = facts.get("tool_call_id")
        stopped = run.chat_id in self._stopping
        if name == "pre_tool_call" and facts.get("tool_name") == "clarify" and isinstance(call_id, str):
            run.clarifying = call_id
        elif name == "post_tool_call" and call_id is not None and call_id == run.clarifying:
            for question in [asked for asked in self._questions.values() if asked.chat_id == run.chat_id]:
                if question.call_id == call_id:
                    self.clarification_over(question.clarify_id)
            # One that was answered before the stop has its answer.
            stopped = run.withdrawn
            run.clarifying, run.withdrawn = None, False
        else:
            stopped = stopped and not completed_all_the_same(facts)
        self._tool_of(run.conversation_id, name, facts, stopped=stopped)

    def _tool_of(
        self,
        conversation_id: ConversationId,
        name: str,
        facts: Mapping[str, object],
        subagent: str | None = None,
        *,
        stopped: bool = False,
    ) -> None:
        if name == "pre_tool_call" and (start := tool_start(facts, self._redact)) is not None:
            self._events.tool_started(conversation_id, start, subagent)
        elif name == "post_tool_call" and (result := tool_result(facts, self._redact)) is not None:
            if stopped:
                result = attrs.evolve(result, outcome=Outcome.CANCELLED, error=None)
            self._events.tool_ended(conversation_id, result, subagent)

    # Subagents

    def _subagent(self, name: str, facts: Mapping[str, object]) -> None:
        if name == "subagent_start":
            self._subagent_started(facts)
        elif name == "subagent_stop" and (stopped := self.subagents.stopped(facts)) is not None:
            subagent, result = stopped
            self._events.subagent_ended(conversation_of(subagent.chat_id), subagent.session_id, result)
        elif name in ("pre_tool_call", "post_tool_call"):
            self.subagents.tool_hook(name, facts)
            worker = self.subagents.of(facts.get("session_id"))
            if worker is not None:
                self._tool_of(conversation_of(worker.chat_id), name, facts, worker.session_id)

    def _subagent_started(self, facts: Mapping[str, object]) -> None:
        parent = str(facts.get("parent_session_id"))
        chat_id = self.turns.session_chat(parent)
        # One that a ghost's own subagent starts is as little to be seen.
        hidden = self.turns.parent_session(parent) is not None and self.subagents.of(parent) is None
        if chat_id is None or hidden or self.turns.is_ghost(str(facts.get("parent_turn_id"))):
            return
        start = self.subagents.started(facts, chat_id)
        if start is not None:
            self._events.subagent_started(conversation_of(chat_id), start)

    # Approvals

    def approval(
        self,
        chat_id: str,
        session_key: str,
        command: str,
        description: str,
        choices: tuple[str, ...],
        find: Callable[[str, str, Collection[object]], object],
        expires_at: int | None,
    ) -> str:
        """The card of a question; the id under which Hermes may speak of it.

        `find`: Hermes's oldest question of a session about a command, without those that are taken.
        """
        taken = self.cards.taken(session_key)
        card = self.cards.shown(chat_id, session_key, command)
        card.question = find(session_key, command, taken)
        command = sendable(self._redact(command))
        patterns = card.asked.patterns if card.asked is not None else ()
        pattern = sendable(self._redact(", ".join(patterns)))
        self._events.approval_requested(
            conversation_of(chat_id),
            ApprovalPrompt(
                key=card.key,
                kind=ApprovalKind.COMMAND,
                description=sendable(self._redact(description))[:MAX_DESCRIPTION_CHARS],
                command=command[:MAX_COMMAND_CHARS],
                command_truncated=len(command) > MAX_COMMAND_CHARS,
                # A pattern that is not shown to its end cannot be agreed to.
                pattern=pattern if 0 < len(pattern) <= MAX_DESCRIPTION_CHARS else None,
                choices=choices,
                call_id=card.asked.call_id if card.asked is not None else None,
                answerable=self.cards.answerable(card),
                expires_at=expires_at,
            ),
        )
        # It may be about an older question than those that have waited for it.
        self._promote(session_key)
        return card.key

    def may_answer(self, card: Card, choice: str) -> bool:
        """Whether an answer now would reach exactly this question, and be what it says."""
        # What is being stopped can still be refused; a yes would come too late, or run what the owner has stopped.
        return self.cards.answerable(card) and (choice == "deny" or card.chat_id not in self._stopping)

    def approval_answered(self, card: Card) -> None:
        """Hermes has taken the owner's answer: the next question of the session may be the oldest now."""
        card.answered = True
        self._promote(card.session_key)

    def _approval_over(self, facts: Mapping[str, object]) -> None:
        card = self.cards.over(facts)
        if card is not None:
            choice, decision = facts.get("choice"), None
            if card.chat_id in self._stopping:
                by = DecisionSource.RUN_END
            elif isinstance(choice, str) and choice in _DECISIONS:
                by, decision = DecisionSource.OTHER_SURFACE, choice
            else:
                by = DecisionSource.TIMEOUT if choice == "timeout" else DecisionSource.RUN_END
            self._events.approval_closed(conversation_of(card.chat_id), card.key, decision, by)
        session_key = facts.get("session_key")
        if isinstance(session_key, str):
            self._promote(session_key)

    def _promote(self, session_key: str) -> None:
        oldest = self.cards.oldest(session_key)
        if oldest is not None and self.cards.answerable(oldest):
            self._events.approval_answerable(conversation_of(oldest.chat_id), oldest.key)

    # Clarifications

    def clarification(
        self,
        chat_id: str,
        session_key: str,
        clarify_id: str,
        text: str,
        choices: Sequence[str],
        *,
        multiple: bool,
        skip_answer: str | None,
        undecorated: Callable[[str], str],
        expires_at: int | None,
    ) -> None:
        """Hermes asks the owner a question."""
        run = self._runs.get(chat_id)
        asked = Question(
            clarify_id,
            chat_id,
            session_key,
            tuple(choices[:MAX_CHOICES]),
            multiple,
            skip_answer,
            run.clarifying if run is not None else None,
        )
        self._questions[clarify_id] = asked
        conversation_id = conversation_of(chat_id)
        self._events.clarification_requested(
            conversation_id, prompt(asked, text, self._redact, undecorated, expires_at)
        )

    def may_clarify(self, clarify_id: str) -> Question | None:
        """The question that an answer would reach now; None when it is over, or being stopped."""
        question = self._questions.get(clarify_id)
        return None if question is None or question.chat_id in self._stopping else question

    def clarification_answered(self, clarify_id: str) -> None:
        """Hermes has taken the owner's answer."""
        self._questions.pop(clarify_id, None)

    def clarification_over(self, clarify_id: str) -> None:
        """Hermes waits no more for an answer that did not come."""
        question = self._questions.pop(clarify_id, None)
        if question is not None:
            stopped, run = question.chat_id in self._stopping, self._runs.get(question.chat_id)
            if stopped and run is not None:
                run.withdrawn = True
            by = DecisionSource.RUN_END if stopped else DecisionSource.TIMEOUT
            self._events.clarification_closed(conversation_of(question.chat_id), clarify_id, by)

    def waiting_questions(self, chat_id: str | None = None) -> list[str]:
        """Hermes's ids of the clarifications that wait, of one chat or of all."""
        return [asked.clarify_id for asked in self._questions.values() if chat_id in (None, asked.chat_id)]

    # Texts

    def _stream(self, chat_id: str, run: _Run, content: str) -> str:
        run.held = None
        self._end_segment(run, interim=True)
        segment = _Segment(conversation_of(chat_id), DraftTail(self._cursor))
        run.segment, run.tool_follows = segment, False
        hermes_id = self._new_id()
        self._segments[hermes_id] = segment
        self._show(segment, content, final=False)
        return hermes_id

    def _show(self, segment: _Segment, content: str, *, final: bool) -> None:
        change = segment.tail.update(content, final=final)
        if change is None:
            return
        if segment.message_id is None:
            segment.message_id = self._events.message_started(segment.conversation_id, change.text)
        elif isinstance(change, Append):
            self._events.message_appended(segment.message_id, change.text)
        elif isinstance(change, Replace):
            self._events.message_replaced(segment.message_id, change.text)

    def _show_whole(self, run: _Run) -> None:
        """The model has told what it says before its tool: no need to wait for Hermes's last edit, which comes late."""
        segment, said = run.segment, run.on_its_way
        if segment is None or segment.whole or not said:
            return
        # What is shown and more: Hermes has put a remark of its own behind it.
        if said.startswith(segment.tail.text) or segment.tail.text.startswith(said):
            self._show(segment, said, final=True)
            segment.whole = True

    def _end_segment_if_done(self, run: _Run) -> None:
        if run.tool_follows and run.segment is not None and run.segment.whole:
            self._end_segment(run, interim=True)

    def _end_segment(self, run: _Run, *, interim: bool) -> None:
        segment, run.segment = run.segment, None
        if segment is None:
            return
        segment.over = True
        run.said = segment.tail.text
        run.promised += segment.tail.media
        if segment.message_id is not None:
            self._events.message_ended(segment.message_id, interim=interim)

    def _hold(self, run: _Run, text: str) -> None:
        # Behind a file it is Hermes's complaint about that file, of which the owner has a notice.
        if text and text != run.shown and not run.files:
            # Else the answer that was streamed already, or a repeated send.
            run.held = text

    def _say(self, chat_id: str, run: _Run, text: str) -> None:
        """Show a whole text of the agent on its way."""
        if text == run.shown:
            return
        self._end_segment(run, interim=True)
        run.said = text
        self._events.message_ended(self._events.message_started(conversation_of(chat_id), text), interim=True)

    # Turns

    def _act(self, turn_events: list[TurnEvent]) -> None:
        for event in turn_events:
            match event:
                case TurnStarted():
                    self._begin(event)
                case TurnEnded():
                    self._end(event)
                case EnvelopeEnded():
                    self._envelope_ended(event)
                case GhostTurn():
                    pass

    def _begin(self, event: TurnStarted) -> None:
        self._delivered.pop(event.chat_id, None)
        self._runs[event.chat_id] = _Run(event.chat_id, conversation_of(event.chat_id))
        message_id = MessageId(event.message_id) if event.message_id is not None else None
        origin = Origin.BACKGROUND if message_id is None else Origin.CHAT
        if event.anew:
            self._events.began_anew(conversation_of(event.chat_id))
        self._events.run_started(conversation_of(event.chat_id), message_id, origin)

    def _end(self, event: TurnEnded) -> None:
        run = self._runs.pop(event.chat_id, None)
        if run is not None:
            self._close(run, event)
        usage = event.usage
        self._events.run_ended(
            conversation_of(event.chat_id),
            RunResult(
                outcome=Outcome(event.outcome),
                reason=RunReason(event.reason) if event.reason is not None else None,
                error=RunErrorCode(event.error_code) if event.error_code is not None else None,
                final_text=clean_text(event.final_text) if event.final_text is not None else None,
                usage=None
                if usage is None
                else Usage(
                    input_tokens=_count(usage.input_tokens),
                    output_tokens=_count(usage.output_tokens),
                    total_tokens=_count(usage.total_tokens),
                ),
            ),
        )

    def _close(self, run: _Run, event: TurnEnded) -> None:
        """Show what was held of a run that went well; a failed one's is the provider's own complaint."""
        streams = run.segment is not None and not run.segment.whole and not run.tool_follows
        if run.held is not None and event.outcome == "completed" and not streams and not run.has_said(event.final_text):
            self._end_segment(run, interim=True)
            self._events.message_started(conversation_of(event.chat_id), run.held)
        if run.segment is not None:
            run.segment.over = True
            run.promised += run.segment.tail.media
        if event.outcome == "completed":
            self._tell_undelivered(run, event.final_text or "")
        self._segments = {key: segment for key, segment in self._segments.items() if not segment.over}

    def _tell_undelivered(self, run: _Run, answer: str) -> None:
        """Hermes drops a file that is missing or not allowed without a word."""
        promised = dict.fromkeys(map(self._canonical, [*run.promised, *media_paths(answer)]))
        # Hermes may have looked for one elsewhere, as in a container.
        others = [os.path.basename(path) for path in run.files if path not in promised]
        for path in promised:
            name = os.path.basename(path)
            if path in run.files:
                continue
            if name in others:
                others.remove(name)
            else:
                self._events.not_attached(run.conversation_id, name)

    def handed_over(self, chat_id: str, message_id: str) -> None:
        """Hermes was given a message of the owner: if nothing comes of it, say so."""
        self._look_later(chat_id, MessageId(message_id))

    def _envelope_ended(self, event: EnvelopeEnded) -> None:
        if not self.turns.open_envelopes(event.chat_id):
            self._stopping.discard(event.chat_id)
            for card in self.cards.forget(event.chat_id):
                conversation_id = conversation_of(card.chat_id)
                self._events.approval_closed(conversation_id, card.key, None, DecisionSource.RUN_END)
            for question in [asked for asked in self._questions.values() if asked.chat_id == event.chat_id]:
                del self._questions[question.clarify_id]
                conversation_id = conversation_of(question.chat_id)
                self._events.clarification_closed(conversation_id, question.clarify_id, DecisionSource.RUN_END)
        if not event.had_turn and event.message_id is not None:
            self._look_later(event.chat_id, MessageId(event.message_id))

    def _look_later(self, chat_id: str, message_id: MessageId) -> None:
        def look() -> None:
            if self._over:
                return
            if self.turns.open_envelopes(chat_id):
                # Perhaps the one of this message, perhaps its replay, perhaps something else.
                self._later(LOST_SECONDS, look)
            else:
                self._events.run_lost(conversation_of(chat_id), message_id)

        self._later(LOST_SECONDS, look)

    def _run_of(self, facts: Mapping[str, object]) -> _Run | None:
        """The run that a hook speaks of, when it is an owner's open turn."""
        turn_id = facts.get("turn_id")
        if not isinstance(turn_id, str):
            return None
        return next((run for chat_id, run in self._runs.items() if self.turns.open_turn(chat_id) == turn_id), None)


def _said_with_tools(facts: Mapping[str, object]) -> str:
    """What the model said in a response that asks for a tool; "" for any other response."""
    response = facts.get("response")
    message = response.get("assistant_message") if isinstance(response, Mapping) else None
    if not isinstance(message, Mapping) or not message.get("tool_calls"):
        return ""
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _count(value: int | None) -> Count | None:
    return None if value is None or value < 0 else Count(value)
