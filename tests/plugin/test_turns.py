"""The run decision table: every started turn ends once, and as what it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pheby_hermes import turns
from pheby_hermes.turns import (
    EnvelopeEnded,
    GhostTurn,
    TurnEnded,
    TurnEvent,
    TurnStarted,
    TurnTable,
    Usage,
    is_owner_turn,
)

S = "20260101_000000_aaaaaaaa"
T1, T2 = f"{S}:{S}:00000001", f"{S}:{S}:00000002"
E1, E2 = 1001, 1002


class Play:
    """A table, and a short way to say what Hermes does with it."""

    def __init__(self, chat: str = "42") -> None:
        self.table = TurnTable()
        self.chat = chat
        self.events: list[TurnEvent] = []

    def start(self, envelope: int = E1, text: str = "hi", mid: str | None = "m1", internal: bool = False) -> Play:
        self.events += self.table.processing_started(self.chat, envelope, mid, text, internal)
        return self

    def complete(self, envelope: int = E1, outcome: str = "SUCCESS") -> Play:
        self.events += self.table.processing_completed(self.chat, envelope, outcome)
        return self

    def hook(self, name: str, turn: str = T1, /, chat: str | None = None, **facts: Any) -> Play:
        known = {"turn_id": turn, "session_id": S, "platform": "pheby"}
        self.events += self.table.hook(name, known | facts, self.chat if chat is None else chat)
        return self

    def turn(self, turn: str = T1, text: str = "hi", **facts: Any) -> Play:
        return self.hook("pre_llm_call", turn, user_message=text, **facts)

    def end(self, turn: str = T1, **facts: Any) -> Play:
        return self.hook("on_session_end", turn, **({"completed": True, "interrupted": False} | facts))

    def error(self, turn: str = T1, **facts: Any) -> Play:
        return self.hook("api_request_error", turn, **facts)

    def interrupt(self) -> Play:
        self.events += self.table.interrupt_requested(self.chat)
        return self

    @property
    def ends(self) -> list[TurnEnded]:
        return [event for event in self.events if isinstance(event, TurnEnded)]

    @property
    def verdicts(self) -> list[tuple[str, str | None, str | None]]:
        return [(end.outcome, end.reason, end.error_code) for end in self.ends]


def test_a_plain_turn() -> None:
    play = Play().start().turn().hook("post_llm_call", assistant_response="Hello.").end().complete()
    assert play.events == [
        TurnStarted("42", T1, S, "m1", "hi"),
        TurnEnded("42", T1, S, "completed", final_text="Hello."),
        EnvelopeEnded("42", "m1", "SUCCESS", had_turn=True),
    ]


def test_an_open_turn_can_be_asked_for() -> None:
    play = Play().start().turn()
    assert play.table.open_turn("42") == T1
    assert play.table.open_envelopes("42") == 1
    assert play.table.session_chat(S) == "42"
    play.complete()
    assert play.table.open_turn("42") is None
    assert play.table.open_envelopes("42") == 0
    assert play.table.session_chat(S) == "42"


def test_nothing_is_kept_for_an_idle_chat() -> None:
    play = Play().start().turn().end().complete()
    assert play.table._chats == {}
    assert play.table._turn_chats == {}


def test_an_envelope_without_a_turn_is_a_command_or_the_start_up_gate() -> None:
    play = Play().start(text="/help").complete()
    assert play.events == [EnvelopeEnded("42", "m1", "SUCCESS", had_turn=False)]


def test_a_turn_that_hermes_starts_by_itself_has_no_message() -> None:
    play = Play().start(text="", mid=None, internal=True).turn(text="")
    assert play.events == [TurnStarted("42", T1, S, None, "")]


def test_an_internal_event_has_no_message_even_with_an_id() -> None:
    play = Play().start(text="[IMPORTANT: ...", mid="m9", internal=True).turn()
    assert [event.message_id for event in play.events if isinstance(event, TurnStarted)] == [None]


def test_only_the_first_turn_of_an_envelope_has_its_message() -> None:
    play = Play().start().turn().end().turn(T2, "more").end(T2).complete()
    started = [event for event in play.events if isinstance(event, TurnStarted)]
    assert [event.message_id for event in started] == ["m1", None]
    assert play.verdicts == [("completed", None, None)] * 2
    assert [event.had_turn for event in play.events if isinstance(event, EnvelopeEnded)] == [True]


def test_a_turn_that_interrupts_another_supersedes_it() -> None:
    play = Play().start().turn().end(interrupted=True).turn(T2).end(T2).complete()
    assert play.verdicts == [("cancelled", "superseded", None), ("completed", None, None)]


def test_nested_envelopes() -> None:
    play = Play().start().turn().end().start(E2, "two", "m2").turn(T2, "two").end(T2).complete(E2).complete(E1)
    assert play.events == [
        TurnStarted("42", T1, S, "m1", "hi"),
        TurnEnded("42", T1, S, "completed"),
        TurnStarted("42", T2, S, "m2", "two"),
        TurnEnded("42", T2, S, "completed"),
        EnvelopeEnded("42", "m2", "SUCCESS", had_turn=True),
        EnvelopeEnded("42", "m1", "SUCCESS", had_turn=True),
    ]


def test_a_command_inside_an_envelope_does_not_end_its_turn() -> None:
    play = Play().start().turn().start(E2, "/status", "m2").complete(E2)
    assert play.ends == []
    play.end().complete()
    assert play.verdicts == [("completed", None, None)]


def test_chats_do_not_mix() -> None:
    table = TurnTable()
    other = "20260101_000000_bbbbbbbb"
    for chat, envelope, session in (("1", E1, S), ("2", E2, other)):
        table.processing_started(chat, envelope, f"m{chat}", "hi", False)
        facts = {"turn_id": f"{session}:{session}:1", "session_id": session, "platform": "pheby", "user_message": "hi"}
        table.hook("pre_llm_call", facts, chat)
    table.interrupt_requested("1")
    assert table.session_chat(S) == "1"
    assert table.session_chat(other) == "2"
    ended = table.processing_completed("2", E2, "SUCCESS") + table.processing_completed("1", E1, "SUCCESS")
    assert [e.outcome for e in ended if isinstance(e, TurnEnded)] == ["failed", "cancelled"]


# -- filters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn_id", "expected"),
    [
        (T1, True),
        (f"{S}:sa-0-abcdef:1", False),  # a subagent
        (f"{S}:1f6c0f0e-0000-4000-8000-000000000000:1", False),  # a background review
        (f"{S}:{S}", False),
        ("", False),
        ("::", False),
        (S, False),
    ],
)
def test_owner_turns_are_told_by_the_turn_id(turn_id: str, expected: bool) -> None:
    assert is_owner_turn(turn_id) is expected


@pytest.mark.parametrize(
    "facts",
    [
        {"platform": "subagent"},
        {"platform": "telegram"},
        {"platform": None},
        {"turn_id": f"{S}:sa-0-abcdef:1"},
        {"turn_id": 7},
        {"chat": ""},
    ],
)
def test_what_is_no_owners_turn_is_ignored(facts: dict[str, Any]) -> None:
    play = Play().start().turn(**facts)
    assert play.events == []


def test_other_hooks_of_a_subagent_do_not_touch_the_parents_turn() -> None:
    child = "20260101_000001_cccccc"
    play = Play().start().turn()
    play.hook("subagent_start", parent_session_id=S, child_session_id=child)
    play.error(f"{child}:sa-0-x:1", session_id=child, reason="auth", status_code=401)
    play.end(f"{child}:sa-0-x:1", session_id=child, completed=False, interrupted=True)
    assert play.table.session_chat(child) == "42"
    assert play.table.parent_session(child) == S
    assert play.table.parent_session(S) is None
    play.end().complete()
    assert play.verdicts == [("completed", None, None)]


def test_a_subagent_of_an_unknown_session_is_not_placed() -> None:
    play = Play().hook("subagent_start", parent_session_id="?", child_session_id="c")
    assert play.table.session_chat("c") is None


def test_a_turn_in_another_session_begins_anew() -> None:
    """R-H1: what was chosen for the one before is forgotten there; a session that rotated is still the same."""
    table = TurnTable()

    def turn(session: str, number: int, ends_in: str) -> TurnStarted:
        known = {"turn_id": f"{session}:{session}:{number}", "platform": "pheby", "user_message": "hi"}
        table.processing_started("42", number, "m", "hi", False)
        (started,) = table.hook("pre_llm_call", known | {"session_id": session}, "42")
        table.hook("on_session_end", known | {"session_id": ends_in, "completed": True, "interrupted": False}, "42")
        table.processing_completed("42", number, "SUCCESS")
        assert isinstance(started, TurnStarted)
        return started

    assert [
        turn("s1", 1, "s1").anew,
        turn("s1", 2, "s2").anew,
        turn("s2", 3, "s2").anew,
        turn("s3", 4, "s3").anew,
        turn("s3", 5, "s3").anew,
    ] == [False, False, False, True, False]


def test_the_session_may_rotate_inside_a_turn() -> None:
    play = Play().start().turn().end(session_id="rotated").complete()
    assert play.ends == [TurnEnded("42", T1, "rotated", "completed")]
    assert play.table.session_chat("rotated") == "42"


def test_a_repeated_start_hook_is_one_turn() -> None:
    play = Play().start().turn().turn().end().complete()
    assert len(play.ends) == 1
    assert sum(isinstance(event, TurnStarted) for event in play.events) == 1


def test_hooks_after_the_end_change_nothing() -> None:
    play = Play().start().turn().interrupt().complete(outcome="CANCELLED").end(interrupted=True)
    assert play.verdicts == [("cancelled", "requested", None)]


# -- ghosts ------------------------------------------------------------------------------------------------------


def test_a_turn_without_an_envelope_is_a_ghost() -> None:
    play = Play().turn()
    assert play.events == [GhostTurn("42", T1)]
    assert play.table.is_ghost(T1)
    assert not play.table.is_ghost(T2)
    assert play.end().ends == []


def test_a_message_cancelled_before_its_turn_leaves_a_ghost() -> None:
    play = Play().start(text="slow one").complete(outcome="CANCELLED")
    assert play.events == [EnvelopeEnded("42", "m1", "CANCELLED", had_turn=False)]
    play.start(E2, "next", "m2").turn(T1, "slow one")
    assert play.events[-1] == GhostTurn("42", T1)
    play.turn(T2, "next").end(T2).complete(E2)
    assert play.verdicts == [("completed", None, None)]
    started = [event for event in play.events if isinstance(event, TurnStarted)]
    assert [(event.turn_id, event.message_id) for event in started] == [(T2, "m2")]


def test_the_same_words_said_again_are_no_ghost() -> None:
    play = Play().start(text="again").complete(outcome="CANCELLED").start(E2, "again", "m2").turn(T2, "again")
    assert isinstance(play.events[-1], TurnStarted)


def test_a_ghost_is_found_behind_a_note_of_hermes() -> None:
    play = Play().start(text="slow one").complete(outcome="CANCELLED").start(E2, "next", "m2")
    assert isinstance(play.turn(T1, "[Note: model was just switched]\n\nslow one").events[-1], GhostTurn)


def test_an_empty_text_expects_no_ghost() -> None:
    play = Play().start(text="", mid=None, internal=True).complete(outcome="CANCELLED")
    play.start(E2, "next", "m2").turn(T2, "next")
    assert isinstance(play.events[-1], TurnStarted)


# -- cancelled ---------------------------------------------------------------------------------------------------


def test_interrupted_counts_before_completed() -> None:
    play = Play().start().turn().interrupt().end(completed=True, interrupted=True).complete()
    assert play.verdicts == [("cancelled", "requested", None)]


def test_a_cancel_in_the_retry_wait_has_no_session_end() -> None:
    play = Play().start().turn().error(reason="server_error", status_code=500).interrupt().complete()
    assert play.verdicts == [("cancelled", "requested", None)]


def test_a_cancel_may_lose_the_race() -> None:
    play = Play().start().turn().interrupt().end().complete()
    assert play.verdicts == [("completed", None, None)]


def test_a_cancel_before_the_agent_is_there() -> None:
    play = Play().start().interrupt().turn().end(interrupted=True).complete()
    assert play.verdicts == [("cancelled", "requested", None)]


def test_a_cancel_counts_for_one_turn() -> None:
    play = Play().start().interrupt().turn().end(interrupted=True).turn(T2).error(T2, reason="auth").complete()
    assert play.verdicts == [("cancelled", "requested", None), ("failed", None, "provider_auth")]


def test_a_cancel_before_hermes_takes_the_message_up() -> None:
    play = Play().interrupt().start().turn().end(interrupted=True).complete()
    assert play.verdicts == [("cancelled", "requested", None)]


def test_an_interrupt_of_nothing_does_not_turn_a_failure_into_a_cancel() -> None:
    play = Play().interrupt().start().turn().error(reason="auth", status_code=401).complete()
    assert play.verdicts == [("failed", None, "provider_auth")]


def test_hermes_own_cancel() -> None:
    assert Play().start().turn().complete(outcome="CANCELLED").verdicts == [("cancelled", "requested", None)]


def test_the_newer_line_says_that_it_shut_down() -> None:
    play = Play().start().turn()
    play.end(completed=False, interrupted=True, turn_exit_reason="interrupted_by_system(gateway_shutdown)").complete()
    assert play.verdicts == [("cancelled", "shutdown", None)]


def test_the_newer_line_says_that_somebody_interrupted() -> None:
    play = Play().start().turn().end(completed=False, interrupted=True, turn_exit_reason="interrupted_by_user")
    assert play.complete().verdicts == [("cancelled", "requested", None)]


def test_the_older_line_does_not_say_why() -> None:
    play = Play().start().turn().end(completed=False, interrupted=True).complete()
    assert play.verdicts == [("cancelled", "shutdown", None)]


def test_a_turn_without_an_end_at_shutdown() -> None:
    play = Play().start().turn()
    assert play.table.shutting_down() == []
    assert play.complete().verdicts == [("cancelled", "shutdown", None)]


def test_a_request_is_the_reason_even_at_shutdown() -> None:
    play = Play().start().turn().interrupt()
    play.table.shutting_down()
    assert play.end(interrupted=True).complete().verdicts == [("cancelled", "requested", None)]


def test_abandoning_ends_everything_once() -> None:
    play = Play().start().turn().start(E2, "x", "m2")
    assert play.table.abandon_all() == [
        TurnEnded("42", T1, S, "cancelled", "shutdown"),
        EnvelopeEnded("42", "m2", "CANCELLED", had_turn=False),
        EnvelopeEnded("42", "m1", "CANCELLED", had_turn=True),
    ]
    assert play.table.abandon_all() == []


# -- failed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"reason": "auth", "status_code": 401}, "provider_auth"),
        ({"reason": "auth_permanent", "status_code": 403}, "provider_auth"),
        ({"reason": "rate_limit", "status_code": 429}, "provider_rate_limited"),
        ({"reason": "upstream_rate_limit", "status_code": 429}, "provider_rate_limited"),
        ({"reason": "server_error", "status_code": 500}, "provider_error"),
        ({"reason": "format_error", "status_code": 400}, "provider_error"),
        ({"reason": "billing", "status_code": 402}, "provider_error"),
        ({"reason": "upstream_blocked", "status_code": 403}, "provider_error"),
        ({"reason": "context_overflow", "status_code": 400}, "context_overflow"),
        ({"reason": "payload_too_large", "status_code": 413}, "context_overflow"),
        ({"reason": "timeout", "error": {"type": "APITimeoutError"}}, "timed_out"),
        ({"reason": "timeout", "error": {"type": "APIConnectionError"}}, "provider_error"),
        ({"reason": "unknown", "status_code": 401}, "provider_auth"),
        ({"reason": "something new", "status_code": None}, "provider_error"),
        ({}, "provider_error"),
        ({"reason": 5, "status_code": "401", "error": "x"}, "provider_error"),
    ],
)
def test_no_session_end_after_an_api_error_is_a_failure(facts: dict[str, Any], code: str) -> None:
    assert Play().start().turn().error(**facts).complete().verdicts == [("failed", None, code)]


def test_an_error_that_a_retry_healed_is_forgotten() -> None:
    play = Play().start().turn().error(reason="rate_limit", status_code=429)
    play.hook("post_api_request", assistant_content_chars=5, assistant_tool_call_count=0).end().complete()
    assert play.verdicts == [("completed", None, None)]


def test_no_end_and_no_error_is_a_failure_of_our_own_kind() -> None:
    assert Play().start().turn().complete().verdicts == [("failed", None, "internal")]


def test_the_text_of_a_failure_is_not_the_models() -> None:
    play = Play().start().turn().hook("post_llm_call", assistant_response="No reply: ...")
    play.hook("post_api_request", assistant_content_chars=0, assistant_tool_call_count=0).end().complete()
    assert play.ends == [TurnEnded("42", T1, S, "failed", None, "empty_response", None, None)]


def test_an_empty_reply_of_the_newer_line() -> None:
    play = Play().start().turn().end(failed=False, turn_exit_reason="empty_response_exhausted").complete()
    assert play.verdicts == [("failed", None, "empty_response")]


def test_a_reply_of_tool_calls_alone_is_not_empty() -> None:
    play = Play().start().turn().hook("post_api_request", assistant_content_chars=0, assistant_tool_call_count=1)
    assert play.end().complete().verdicts == [("completed", None, None)]


def test_the_exit_reason_is_believed_where_there_is_one() -> None:
    play = Play().start().turn().hook("post_api_request", assistant_content_chars=0, assistant_tool_call_count=0)
    play.end(turn_exit_reason="text_response(finish_reason=stop)").complete()
    assert play.verdicts == [("completed", None, None)]


@pytest.mark.parametrize("exit_reason", [None, "", "max_iterations_reached(4/4)", "budget_exhausted"])
def test_the_iteration_limit(exit_reason: str | None) -> None:
    play = Play().start().turn().hook("post_llm_call", assistant_response="So far: ...")
    play.end(completed=False, turn_exit_reason=exit_reason).complete()
    assert play.verdicts == [("failed", "max_iterations", "internal")]
    assert play.ends[0].final_text == "So far: ..."


def test_a_guardrail_completes() -> None:
    play = Play().start().turn().end(turn_exit_reason="guardrail_halt").complete()
    assert play.verdicts == [("completed", "guardrail", None)]


@pytest.mark.parametrize(
    ("exit_reason", "code"),
    [
        ("context_compression_exhausted", "context_overflow"),
        ("empty_response_exhausted", "empty_response"),
        ("all_retries_exhausted_no_response", "internal"),
        ("local_processing_error(KeyError)", "internal"),
    ],
)
def test_a_failed_session_end_is_told_by_its_reason(exit_reason: str, code: str) -> None:
    play = Play().start().turn().end(failed=True, completed=False, turn_exit_reason=exit_reason).complete()
    assert play.verdicts == [("failed", None, code)]


def test_a_failed_session_end_after_an_api_error() -> None:
    play = Play().start().turn().error(reason="auth").end(failed=True, completed=False).complete()
    assert play.verdicts == [("failed", None, "provider_auth")]


# -- usage -------------------------------------------------------------------------------------------------------


def test_usage_is_summed() -> None:
    usage = {
        "input_tokens": 60,
        "cache_read_tokens": 40,
        "prompt_tokens": 100,
        "output_tokens": 10,
        "total_tokens": 110,
    }
    play = Play().start().turn()
    play.hook("post_api_request", usage=usage).hook("post_api_request", response={"usage": usage})
    play.hook("post_api_request", usage=None, response={"usage": None}).end().complete()
    assert play.ends[0].usage == Usage(200, 20, 220)


@pytest.mark.parametrize("usage", [None, 5, "x", [], object()])
def test_no_usage(usage: object) -> None:
    play = Play().start().turn().hook("post_api_request", usage=usage).end().complete()
    assert play.ends[0].usage is None


def test_a_part_of_the_usage() -> None:
    play = Play().start().turn().hook("post_api_request", usage={"input_tokens": 7, "output_tokens": True})
    play.hook("post_api_request", usage={"output_tokens": 3, "total_tokens": -1}).end().complete()
    assert play.ends[0].usage == Usage(7, 3, None)


# -- odd input, bounds -------------------------------------------------------------------------------------------


def test_an_unknown_envelope() -> None:
    play = Play().start().turn().complete(E2)
    assert play.events[-1] == EnvelopeEnded("42", None, "SUCCESS", had_turn=False)
    assert play.table.open_turn("42") == T1


def test_an_envelope_started_twice_is_one() -> None:
    play = Play().start().start().turn().end().complete()
    assert play.table.open_envelopes("42") == 0
    assert len(play.ends) == 1


def test_lost_completions_do_not_pile_up() -> None:
    play = Play()
    for envelope in range(turns.MAX_OPEN_ENVELOPES + 10):
        play.start(envelope)
    assert play.table.open_envelopes("42") == turns.MAX_OPEN_ENVELOPES


def test_maps_are_bounded() -> None:
    table = TurnTable()
    for number in range(turns.MAX_SESSIONS + 50):
        session = f"s{number}"
        table.processing_started("1", number, None, "x", True)
        facts = {"turn_id": f"{session}:{session}:1", "session_id": session, "platform": "pheby", "user_message": ""}
        table.hook("pre_llm_call", facts, "1")
        table.processing_completed("1", number, "SUCCESS")
        table.hook("pre_llm_call", facts | {"turn_id": f"{session}:{session}:ghost"}, "1")
        table.processing_started(f"c{number}", number, None, f"text {number}", False)
        table.processing_completed(f"c{number}", number, "CANCELLED")
        table.interrupt_requested(f"i{number}")
    assert len(table._session_chats) == turns.MAX_SESSIONS
    assert len(table._chat_sessions) <= turns.MAX_SESSIONS
    assert len(table._ghosts) == turns.MAX_GHOSTS
    assert len(table._ghost_texts) == turns.MAX_GHOST_CHATS
    assert len(table._early_interrupts) == turns.MAX_EARLY_INTERRUPTS
    assert table._chats == {}
    assert table.session_chat("s0") is None


CHATS, ENVELOPES = st.sampled_from(["1", "2"]), st.integers(1, 4)
TURN_IDS = st.sampled_from([f"{s}:{m}:{h}" for s in "AB" for m in ("A", "B", "sa-0") for h in "123"])
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-1, 500), st.sampled_from(["", "A", "hi", "auth", "pheby"]))
FIELDS = [
    "session_id",
    "user_message",
    "completed",
    "interrupted",
    "failed",
    "turn_exit_reason",
    "reason",
    "status_code",
    "error",
    "usage",
    "assistant_content_chars",
    "assistant_tool_call_count",
    "assistant_response",
    "parent_session_id",
    "child_session_id",
]
FACTS = st.fixed_dictionaries(
    {"turn_id": TURN_IDS, "platform": st.sampled_from(["pheby", "pheby", "subagent"])},
    optional=dict.fromkeys(FIELDS, VALUES),
)
HOOKS = st.sampled_from(
    [
        "pre_llm_call",
        "pre_llm_call",
        "pre_api_request",
        "post_api_request",
        "api_request_error",
        "post_llm_call",
        "on_session_end",
        "subagent_start",
        "something_else",
    ]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), CHATS, ENVELOPES, st.sampled_from(["", "hi", "yo"]), st.booleans()),
        st.tuples(st.just("complete"), CHATS, ENVELOPES, st.sampled_from(["SUCCESS", "FAILURE", "CANCELLED", "?"])),
        st.tuples(st.just("hook"), HOOKS, FACTS, st.sampled_from(["", "1", "2"])),
        st.tuples(st.just("interrupt"), CHATS),
        st.tuples(st.just("shutdown")),
    ),
    max_size=60,
)


@given(STEPS)
def test_any_order_of_calls_ends_each_turn_once(steps: list[tuple[Any, ...]]) -> None:
    table = TurnTable()
    open_turns: dict[str, str] = {}
    seen: set[str] = set()
    for kind, *arguments in steps:
        events: list[TurnEvent]
        if kind == "start":
            chat, envelope, text, internal = arguments
            events = table.processing_started(chat, envelope, "m", text, internal)
        elif kind == "complete":
            events = table.processing_completed(*arguments)
        elif kind == "hook":
            events = table.hook(*arguments)
        elif kind == "interrupt":
            events = table.interrupt_requested(*arguments)
        else:
            events = table.shutting_down()
        for event in events:
            if isinstance(event, TurnStarted):
                assert event.chat_id not in open_turns
                assert not table.is_ghost(event.turn_id)
                open_turns[event.chat_id] = event.turn_id
                seen.add(event.turn_id)
            elif isinstance(event, TurnEnded):
                assert open_turns.pop(event.chat_id) == event.turn_id
                assert (event.outcome == "failed") == (event.error_code is not None)
                assert event.outcome != "cancelled" or event.reason in ("requested", "superseded", "shutdown")
        for chat in ("1", "2"):
            assert table.open_turn(chat) == open_turns.get(chat)
            assert table.open_envelopes(chat) or chat not in open_turns
    ended = {event.turn_id for event in table.abandon_all() if isinstance(event, TurnEnded)}
    assert ended == set(open_turns.values())
    assert table._chats == {}
    assert table._turn_chats == {}
