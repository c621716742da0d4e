"""Which turns an owner's chat has, and how each one ends: Hermes's callbacks and hooks in, `TurnEvent`s out.

Hermes has no single signal for the end of a turn: it reports SUCCESS after an error, gives a failed turn no end hook,
and may run several turns between one `on_processing_start` and its `on_processing_complete` (an *envelope*), or start
one unasked. `TurnTable` holds the rules that were seen to hold on real gateways of both lines. It does no I/O, knows
no time, never raises on odd input, and must be fed from one thread in the order in which Hermes called.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Generic, Literal, TypeAlias, TypeVar

from attrs import define, field, frozen

MAX_SESSIONS = 4096
MAX_GHOSTS = 1024
MAX_GHOST_CHATS = 256
MAX_GHOST_TEXTS = 8
MAX_OPEN_ENVELOPES = 64
MAX_EARLY_INTERRUPTS = 256
# Texts are compared by their beginning: enough to tell two messages apart, and a 100 kB text is not kept for it.
COMPARED_CHARS = 200

Outcome: TypeAlias = Literal["completed", "failed", "cancelled"]
Reason: TypeAlias = Literal["requested", "superseded", "shutdown", "max_iterations", "guardrail"]
ErrorCode: TypeAlias = Literal[
    "provider_error",
    "provider_auth",
    "provider_rate_limited",
    "empty_response",
    "context_overflow",
    "timed_out",
    "internal",
]


@frozen
class Usage:
    """Tokens of one turn, summed over its model requests; `None` where the provider said nothing."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


@frozen
class TurnStarted:
    """An owner's turn began. `message_id` is the message that asked for it, None if Hermes began it by itself."""

    chat_id: str
    turn_id: str
    session_id: str
    message_id: str | None
    user_message: str
    anew: bool = False
    """In another session than the chat's last turn, and no compaction was seen to change it."""


@frozen
class TurnEnded:
    """The one end of a started turn. `session_id` is the newest: a compaction may change it inside the turn."""

    chat_id: str
    turn_id: str
    session_id: str
    outcome: Outcome
    reason: Reason | None = None
    error_code: ErrorCode | None = None
    final_text: str | None = None
    usage: Usage | None = None


@frozen
class EnvelopeEnded:
    """Hermes finished handling one event. Without a turn it was a command, the start-up gate, or cancelled too early.

    `outcome` is Hermes's own word (SUCCESS, FAILURE, CANCELLED) and says little: errors are SUCCESS too.
    """

    chat_id: str
    message_id: str | None
    outcome: str
    had_turn: bool


@frozen
class GhostTurn:
    """A turn of a message that was reported as cancelled: Hermes runs it all the same, and nobody may see it."""

    chat_id: str
    turn_id: str


TurnEvent: TypeAlias = TurnStarted | TurnEnded | EnvelopeEnded | GhostTurn

V = TypeVar("V")


class _Recent(Generic[V]):
    """A map that keeps the `limit` most recently written keys."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: OrderedDict[str, V] = OrderedDict()

    def get(self, key: str) -> V | None:
        return self._items.get(key)

    def put(self, key: str, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        while len(self._items) > self._limit:
            self._items.popitem(last=False)

    def pop(self, key: str) -> V | None:
        return self._items.pop(key, None)

    def __len__(self) -> int:
        return len(self._items)


@define(eq=False)
class _Envelope:
    key: int
    message_id: str | None
    text: str
    internal: bool
    turns: int = 0
    cancel_requested: bool = False
    interrupted_early: bool = False


@define
class _ApiFailure:
    reason: str
    status: int | None
    kind: str


@define
class _SessionEnd:
    completed: bool
    interrupted: bool
    failed: bool
    exit_reason: str


@define(eq=False)
class _Turn:
    turn_id: str
    session_id: str
    envelope: _Envelope
    cancel_requested: bool
    interrupted_early: bool
    end: _SessionEnd | None = None
    failure: _ApiFailure | None = None  # only while it is the newest word of the provider
    reply_was_empty: bool = False
    final_text: str | None = None
    usage: Usage | None = None


@define
class _Chat:
    envelopes: list[_Envelope] = field(factory=list)
    turn: _Turn | None = None

    @property
    def idle(self) -> bool:
        return not self.envelopes and self.turn is None


@frozen
class _Verdict:
    outcome: Outcome
    reason: Reason | None = None
    error_code: ErrorCode | None = None


def is_owner_turn(turn_id: str) -> bool:
    """Whether a turn id belongs to an owner's turn: its first two parts are equal (`S:S:hash`).

    A subagent has its own id in the middle, a background review a uuid. Never compare with the hook's `session_id`:
    that one changes when a compaction rotates the session inside the turn.
    """
    parts = turn_id.split(":", 2)
    return len(parts) == 3 and parts[0] != "" and parts[0] == parts[1]


class TurnTable:
    """The run decision table of one gateway connection: every started turn gets exactly one end."""

    def __init__(self, platform: str = "pheby") -> None:
        self._platform = platform
        self._chats: dict[str, _Chat] = {}
        self._turn_chats: dict[str, str] = {}  # open turns only
        self._session_chats: _Recent[str] = _Recent(MAX_SESSIONS)
        self._chat_sessions: _Recent[str] = _Recent(MAX_SESSIONS)
        self._parents: _Recent[str] = _Recent(MAX_SESSIONS)
        self._ghosts: _Recent[str] = _Recent(MAX_GHOSTS)
        self._ghost_texts: _Recent[list[str]] = _Recent(MAX_GHOST_CHATS)
        self._early_interrupts: _Recent[bool] = _Recent(MAX_EARLY_INTERRUPTS)
        self._shutting_down = False

    # -- questions -----------------------------------------------------------------------------------------------

    def open_turn(self, chat_id: str) -> str | None:
        """The turn id of the chat's open turn."""
        chat = self._chats.get(chat_id)
        return chat.turn.turn_id if chat and chat.turn else None

    def open_envelopes(self, chat_id: str) -> int:
        """How many events of the chat Hermes is handling now."""
        chat = self._chats.get(chat_id)
        return len(chat.envelopes) if chat else 0

    def session_chat(self, session_id: str) -> str | None:
        """The chat of a Hermes session, a subagent's session included (see `parent_session`)."""
        return self._session_chats.get(session_id)

    def parent_session(self, session_id: str) -> str | None:
        """The session that started this subagent's session; None for an owner's own session."""
        return self._parents.get(session_id)

    def is_ghost(self, turn_id: str) -> bool:
        """Whether output of this turn must be suppressed."""
        return self._ghosts.get(turn_id) is not None

    # -- the adapter's callbacks ---------------------------------------------------------------------------------

    def processing_started(
        self, chat_id: str, envelope: int, message_id: str | None, text: str, internal: bool
    ) -> list[TurnEvent]:
        """Hermes took up an event; `envelope` is the `id()` of its event object."""
        chat = self._chats.setdefault(chat_id, _Chat())
        if all(known.key != envelope for known in chat.envelopes):
            new = _Envelope(envelope, message_id, _compared(text), internal)
            new.interrupted_early = self._early_interrupts.pop(chat_id) or False
            chat.envelopes.append(new)
        # Only a lost on_processing_complete gets a chat this far; the oldest can no longer be anyone's.
        del chat.envelopes[:-MAX_OPEN_ENVELOPES]
        return []

    def processing_completed(self, chat_id: str, envelope: int, outcome: str) -> list[TurnEvent]:
        """Hermes is done with an event: ends the envelope's open turn, then the envelope."""
        chat = self._chats.get(chat_id)
        done = next((known for known in reversed(chat.envelopes) if known.key == envelope), None) if chat else None
        if chat is None or done is None:
            return [EnvelopeEnded(chat_id, None, outcome, had_turn=False)]
        events: list[TurnEvent] = []
        chat.envelopes.remove(done)
        if chat.turn and self._ends_with(chat, chat.turn, done):
            events.append(self._close(chat_id, chat, stopped=outcome == "CANCELLED"))
        if outcome == "CANCELLED" and not done.turns and done.text:
            self._expect_ghost(chat_id, done.text)
        events.append(EnvelopeEnded(chat_id, done.message_id, outcome, had_turn=done.turns > 0))
        self._drop_idle(chat_id, chat)
        return events

    def interrupt_requested(self, chat_id: str) -> list[TurnEvent]:
        """Someone asked to stop what the chat is doing (also called by Hermes for a typed `/stop`)."""
        chat = self._chats.get(chat_id)
        if chat and chat.turn:
            chat.turn.cancel_requested = True
        elif chat and chat.envelopes:
            # The agent is not there yet: the turn that this envelope is about to start is the one that was meant.
            chat.envelopes[-1].cancel_requested = True
        else:
            # Perhaps of a message that Hermes has been given and not taken up yet (it is cancelled all the same),
            # perhaps of nothing: so this explains an interruption later, and never makes a failure a cancel.
            self._early_interrupts.put(chat_id, True)
        return []

    def shutting_down(self) -> list[TurnEvent]:
        """From now on an interruption that nobody asked for is the gateway's shutdown."""
        self._shutting_down = True
        return []

    def abandon_all(self) -> list[TurnEvent]:
        """Ends everything still open, for a connection after which Hermes will call no more."""
        self._shutting_down = True
        events: list[TurnEvent] = []
        for chat_id, chat in list(self._chats.items()):
            if chat.turn:
                events.append(self._close(chat_id, chat, stopped=True))
            events += [EnvelopeEnded(chat_id, e.message_id, "CANCELLED", e.turns > 0) for e in reversed(chat.envelopes)]
            del self._chats[chat_id]
        return events

    # -- the hooks -----------------------------------------------------------------------------------------------

    def hook(self, name: str, facts: Mapping[str, object], chat_id: str) -> list[TurnEvent]:
        """One hook call: its keyword arguments and the chat of the session context variable ("" when unset)."""
        if name == "subagent_start":
            self._subagent_started(facts)
            return []
        turn_id = _text(facts, "turn_id")
        if name == "pre_llm_call":
            return self._turn_begins(turn_id, facts, chat_id)
        known = self._turn_chats.get(turn_id)
        chat = self._chats.get(known) if known is not None else None
        if known is None or chat is None or chat.turn is None:
            return []
        self._note_session(chat.turn, known, _text(facts, "session_id"))
        _record(chat.turn, name, facts)
        return []

    def _turn_begins(self, turn_id: str, facts: Mapping[str, object], chat_id: str) -> list[TurnEvent]:
        # No chat in the context: a `/background` turn of 0.19, whose result comes by a plain send.
        if facts.get("platform") != self._platform or not chat_id or not is_owner_turn(turn_id):
            return []
        if turn_id in self._turn_chats or self.is_ghost(turn_id):
            return []  # announced already
        session_id, user_message = _text(facts, "session_id"), _text(facts, "user_message")
        chat = self._chats.get(chat_id)
        if chat is None or not chat.envelopes or self._is_expected_ghost(chat_id, chat, user_message):
            self._ghosts.put(turn_id, chat_id)
            return [GhostTurn(chat_id, turn_id)]
        events: list[TurnEvent] = []
        if chat.turn:
            events.append(self._close(chat_id, chat, by_next_turn=True))
        envelope = chat.envelopes[-1]
        envelope.turns += 1
        asked = envelope.turns == 1 and not envelope.internal
        chat.turn = _Turn(turn_id, session_id, envelope, envelope.cancel_requested, envelope.interrupted_early)
        envelope.cancel_requested = envelope.interrupted_early = False
        self._turn_chats[turn_id] = chat_id
        anew = self._chat_sessions.get(chat_id) not in (None, session_id)
        self._note_session(chat.turn, chat_id, session_id)
        message_id = envelope.message_id if asked else None
        return [*events, TurnStarted(chat_id, turn_id, session_id, message_id, user_message, anew)]

    def _subagent_started(self, facts: Mapping[str, object]) -> None:
        child, parent = _text(facts, "child_session_id"), _text(facts, "parent_session_id")
        chat_id = self._session_chats.get(parent)
        if child and chat_id is not None:
            self._parents.put(child, parent)
            self._session_chats.put(child, chat_id)

    # -- ghosts --------------------------------------------------------------------------------------------------

    def _expect_ghost(self, chat_id: str, text: str) -> None:
        texts = self._ghost_texts.get(chat_id) or []
        self._ghost_texts.put(chat_id, [*texts, text][-MAX_GHOST_TEXTS:])

    def _is_expected_ghost(self, chat_id: str, chat: _Chat, user_message: str) -> bool:
        """Whether this is the turn of a message that was cancelled before its turn began; forgets that message."""
        texts = self._ghost_texts.get(chat_id)
        if not texts:
            return False
        said = _compared(user_message)
        cancelled = next((text for text in texts if _same_start(said, text)), None)
        newest = chat.envelopes[-1]
        # The same words said again are the newer message's own turn.
        if cancelled is None or (newest.turns == 0 and _same_start(said, newest.text)):
            return False
        texts.remove(cancelled)
        if not texts:
            self._ghost_texts.pop(chat_id)
        return True

    # -- closing -------------------------------------------------------------------------------------------------

    def _ends_with(self, chat: _Chat, turn: _Turn, done: _Envelope) -> bool:
        """A turn ends with its own envelope, with any once Hermes has ended it, at the latest with the chat's last."""
        return turn.envelope is done or turn.end is not None or not chat.envelopes

    def _close(self, chat_id: str, chat: _Chat, *, by_next_turn: bool = False, stopped: bool = False) -> TurnEnded:
        turn = chat.turn
        assert turn is not None
        chat.turn = None
        self._turn_chats.pop(turn.turn_id, None)
        verdict = self._judge(turn, by_next_turn, stopped)
        # A failed turn's text is the provider's or Hermes's own complaint; after the iteration limit it is a summary.
        told = verdict.outcome == "completed" or verdict.reason == "max_iterations"
        return TurnEnded(
            chat_id,
            turn.turn_id,
            turn.session_id,
            verdict.outcome,
            verdict.reason,
            verdict.error_code,
            turn.final_text if told else None,
            turn.usage,
        )

    def _judge(self, turn: _Turn, by_next_turn: bool, stopped: bool) -> _Verdict:
        if turn.end is None:
            return self._judge_without_end(turn, by_next_turn, stopped)
        # First: 0.19 says completed=True as well when a turn was interrupted before or in its text.
        if turn.end.interrupted:
            return _Verdict("cancelled", self._why_interrupted(turn, by_next_turn))
        if turn.end.failed or not turn.end.completed:
            return _judge_incomplete(turn, turn.end)
        return _judge_completed(turn, turn.end)

    def _judge_without_end(self, turn: _Turn, by_next_turn: bool, stopped: bool) -> _Verdict:
        """Hermes gives neither a failed turn nor one cancelled while it waits to retry an `on_session_end`."""
        if turn.cancel_requested or stopped or self._shutting_down:
            return _Verdict("cancelled", self._why_interrupted(turn, by_next_turn))
        return _Verdict("failed", None, _failure_code(turn.failure) if turn.failure else "internal")

    def _why_interrupted(self, turn: _Turn, by_next_turn: bool) -> Reason:
        if turn.cancel_requested:
            return "requested"
        if by_next_turn:
            return "superseded"
        exit_reason = turn.end.exit_reason if turn.end else ""
        if self._shutting_down or "shutdown" in exit_reason:
            return "shutdown"
        if turn.interrupted_early:
            return "requested"
        # 0.22 says who interrupted. 0.19 does not: with no request of ours and no turn after it, only the gateway's own
        # stop is left, which it announces to the adapter after the turn.
        return "requested" if exit_reason or turn.end is None else "shutdown"

    def _note_session(self, turn: _Turn, chat_id: str, session_id: str) -> None:
        if session_id:
            turn.session_id = session_id
            self._session_chats.put(session_id, chat_id)
            self._chat_sessions.put(chat_id, session_id)

    def _drop_idle(self, chat_id: str, chat: _Chat) -> None:
        if chat.idle:
            self._chats.pop(chat_id, None)


def _record(turn: _Turn, name: str, facts: Mapping[str, object]) -> None:
    if name == "api_request_error":
        turn.failure = _api_failure(facts)
    elif name == "pre_api_request":
        turn.reply_was_empty = False
    elif name == "post_api_request":
        turn.failure = None
        turn.reply_was_empty = (
            _count(facts.get("assistant_content_chars")) == 0 and _count(facts.get("assistant_tool_call_count")) == 0
        )
        turn.usage = _add_usage(turn.usage, facts)
    elif name == "post_llm_call":
        turn.final_text = _text(facts, "assistant_response")
    elif name == "on_session_end":
        turn.end = _SessionEnd(
            completed=facts.get("completed") is not False,
            interrupted=bool(facts.get("interrupted")),
            failed=bool(facts.get("failed")),
            exit_reason=_text(facts, "turn_exit_reason"),
        )


def _judge_incomplete(turn: _Turn, end: _SessionEnd) -> _Verdict:
    exit_reason = end.exit_reason
    if exit_reason.startswith(("max_iterations", "budget_exhausted")):
        return _Verdict("failed", "max_iterations", "internal")
    if exit_reason.startswith("empty_response"):
        return _Verdict("failed", None, "empty_response")
    if exit_reason.startswith(("context_", "ollama_runtime_context")):
        return _Verdict("failed", None, "context_overflow")
    if turn.failure:
        return _Verdict("failed", None, _failure_code(turn.failure))
    # 0.19 names no exit reason, and reports no other turn as incomplete and yet neither interrupted nor failed.
    if not exit_reason and not end.failed:
        return _Verdict("failed", "max_iterations", "internal")
    return _Verdict("failed", None, "internal")


def _judge_completed(turn: _Turn, end: _SessionEnd) -> _Verdict:
    # Both lines call an empty reply completed; only 0.22 has a word for it.
    empty = end.exit_reason.startswith("empty_response") if end.exit_reason else turn.reply_was_empty
    if empty:
        return _Verdict("failed", None, "empty_response")
    return _Verdict("completed", "guardrail" if end.exit_reason.startswith("guardrail") else None)


_CODES: Mapping[str, ErrorCode] = {
    "auth": "provider_auth",
    "auth_permanent": "provider_auth",
    "rate_limit": "provider_rate_limited",
    "upstream_rate_limit": "provider_rate_limited",
    "context_overflow": "context_overflow",
    "payload_too_large": "context_overflow",
}
_STATUS_CODES: Mapping[int, ErrorCode] = {
    401: "provider_auth",
    408: "timed_out",
    413: "context_overflow",
    429: "provider_rate_limited",
    504: "timed_out",
}


def _failure_code(failure: _ApiFailure) -> ErrorCode:
    """Hermes's own classification first; its `timeout` covers refused connections too, which are no time-out."""
    code = _CODES.get(failure.reason)
    if code:
        return code
    if failure.reason == "timeout":
        return "provider_error" if failure.kind.endswith("ConnectionError") else "timed_out"
    if failure.status is not None:
        return _STATUS_CODES.get(failure.status, "provider_error")
    return "provider_error"


def _api_failure(facts: Mapping[str, object]) -> _ApiFailure:
    status, error = facts.get("status_code"), facts.get("error")
    kind = _text(error, "type") if isinstance(error, Mapping) else ""
    return _ApiFailure(_text(facts, "reason"), status if isinstance(status, int) else None, kind)


def _add_usage(so_far: Usage | None, facts: Mapping[str, object]) -> Usage | None:
    usage, response = facts.get("usage"), facts.get("response")
    if not isinstance(usage, Mapping) and isinstance(response, Mapping):
        usage = response.get("usage")
    if not isinstance(usage, Mapping):
        return so_far
    # `prompt_tokens` holds the cached part too, `input_tokens` does not; the total is made of the former.
    read = _count(usage.get("prompt_tokens"))
    read = read if read is not None else _count(usage.get("input_tokens"))
    new = Usage(read, _count(usage.get("output_tokens")), _count(usage.get("total_tokens")))
    old = so_far or Usage()
    return Usage(
        _sum(old.input_tokens, new.input_tokens),
        _sum(old.output_tokens, new.output_tokens),
        _sum(old.total_tokens, new.total_tokens),
    )


def _sum(left: int | None, right: int | None) -> int | None:
    return right if left is None else left + (right or 0)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(facts: Mapping[str, object], key: str) -> str:
    value = facts.get(key)
    return value if isinstance(value, str) else ""


def _compared(text: str) -> str:
    return text.strip()[:COMPARED_CHARS].rstrip()


def _same_start(said: str, text: str) -> bool:
    """Equal, or equal up to a note that Hermes puts on a line of its own before or after the words."""
    return bool(text) and (said == text or said.startswith(text + "\n") or said.endswith("\n\n" + text))
