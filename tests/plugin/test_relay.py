"""What the relay tells the core, for everything that Hermes calls an adapter with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import define, field
from pheby_hermes.chats import conversation_of
from pheby_hermes.relay import LOST_SECONDS, MAX_DELIVERED, PROVIDER_FAILS, FilePlace, Relay

from pheby_protocol.ids import ConversationId, MessageId, RunId
from pheby_protocol.messages.approval import DecisionSource
from pheby_protocol.messages.message import Origin
from pheby_protocol.messages.run import RunErrorCode, RunReason
from pheby_server.ports import (
    AgentFile,
    ApprovalPrompt,
    ClarificationPrompt,
    Delivery,
    Outcome,
    RunResult,
    SubagentStart,
    ToolResult,
    ToolStart,
)

CHAT, OTHER = "1000000000000001", "1000000000000002"
CONVERSATION = conversation_of(CHAT)
STREAMED = {"expect_edits": True}
WHOLE = {"notify": True}

Call = tuple[Any, ...]


@define
class Told:
    """A GatewayEvents that writes down what it is told. Ids are `a1`, `a2`, … in the order of the texts."""

    calls: list[Call] = field(factory=list)
    _numbers: itertools.count[int] = field(factory=lambda: itertools.count(1))

    def take(self) -> list[Call]:
        """What was told since the last time."""
        calls, self.calls = self.calls, []
        return calls

    def run_started(self, conversation_id: ConversationId, message_id: MessageId | None, origin: Origin) -> RunId:
        self.calls.append(("run_started", conversation_id, message_id, origin))
        return RunId("run")

    def message_started(self, conversation_id: ConversationId, text: str) -> MessageId:
        message_id = MessageId(f"a{next(self._numbers)}")
        self.calls.append(("started", message_id, text))
        return message_id

    def message_appended(self, message_id: MessageId, text: str) -> None:
        self.calls.append(("appended", message_id, text))

    def message_replaced(self, message_id: MessageId, text: str) -> None:
        self.calls.append(("replaced", message_id, text))

    def message_ended(self, message_id: MessageId, *, interim: bool) -> None:
        self.calls.append(("ended", message_id, interim))

    def tool_started(self, conversation_id: ConversationId, tool: ToolStart, subagent: str | None = None) -> None:
        self.calls.append(("tool_started", conversation_id, tool, *([subagent] if subagent else ())))

    def tool_ended(self, conversation_id: ConversationId, result: ToolResult, subagent: str | None = None) -> None:
        self.calls.append(("tool_ended", conversation_id, result, *([subagent] if subagent else ())))

    def subagent_started(self, conversation_id: ConversationId, start: SubagentStart) -> None:
        self.calls.append(("subagent_started", conversation_id, start))

    def subagent_ended(self, conversation_id: ConversationId, key: str, result: RunResult) -> None:
        self.calls.append(("subagent_ended", conversation_id, key, result))

    def approval_requested(self, conversation_id: ConversationId, prompt: ApprovalPrompt) -> None:
        self.calls.append(("approval_requested", conversation_id, prompt))

    def approval_answerable(self, conversation_id: ConversationId, key: str) -> None:
        self.calls.append(("approval_answerable", conversation_id, key))

    def approval_closed(
        self, conversation_id: ConversationId, key: str, decision: str | None, by: DecisionSource
    ) -> None:
        self.calls.append(("approval_closed", conversation_id, key, decision, by))

    def clarification_requested(self, conversation_id: ConversationId, prompt: ClarificationPrompt) -> None:
        self.calls.append(("clarification_requested", conversation_id, prompt))

    def clarification_closed(self, conversation_id: ConversationId, key: str, by: DecisionSource) -> None:
        self.calls.append(("clarification_closed", conversation_id, key, by))

    def run_progress(self, conversation_id: ConversationId, text: str) -> None:
        self.calls.append(("progress", conversation_id, text))

    def run_ended(self, conversation_id: ConversationId, result: RunResult) -> None:
        self.calls.append(("run_ended", conversation_id, result))

    def run_lost(self, conversation_id: ConversationId, message_id: MessageId) -> None:
        self.calls.append(("run_lost", conversation_id, message_id))

    def notice(self, conversation_id: ConversationId, text: str, origin: Origin) -> MessageId:
        """What the adapter does with what is outside of any run."""
        self.calls.append(("notice", conversation_id, text, origin))
        return MessageId(f"n{next(self._numbers)}")

    def not_attached(self, conversation_id: ConversationId, name: str) -> None:
        self.calls.append(("not_attached", name))

    async def deliver(self, conversation_id: ConversationId, delivery: Delivery) -> MessageId:
        raise AssertionError("the relay waits for nothing")

    async def attach(
        self, conversation_id: ConversationId, file: AgentFile, message_id: MessageId | None = None
    ) -> bool:
        raise AssertionError("the relay waits for nothing")

    def began_anew(self, conversation_id: ConversationId) -> None:
        self.calls.append(("began_anew", conversation_id))

    async def settled(self) -> None:
        raise AssertionError("the relay waits for nothing")


class Gateway:
    """Plays Hermes: the adapter's calls and the hooks of one turn at a time in each chat."""

    def __init__(self) -> None:
        self.told = Told()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self._ids = (f"h{number}" for number in itertools.count(1))
        self._turns = itertools.count(1)
        self._turn: dict[str, str] = {}
        self.relay = Relay(self.told, lambda: next(self._ids), lambda delay, call: self.timers.append((delay, call)))

    def begin(self, chat: str = CHAT, message_id: str | None = "m1", text: str = "hello", key: int = 1) -> None:
        self.relay.processing_started(chat, key, message_id, text, internal=message_id is None)
        self.turn(chat, text)

    def turn(self, chat: str = CHAT, text: str = "hello", session: str = "") -> None:
        session = session or f"s{chat[-1]}"
        self._turn[chat] = f"{session}:{session}:{next(self._turns)}"
        self.hook("pre_llm_call", chat=chat, platform="pheby", session_id=session, user_message=text)

    def hook(self, name: str, chat: str = CHAT, **facts: Any) -> None:
        self.relay.hook(name, {"turn_id": self._turn[chat], **facts}, chat)

    def answered(self, text: str = "", *, calls: int = 0, chat: str = CHAT) -> None:
        """A response of the model arrived."""
        message = {"content": text, "tool_calls": ["<dict>"] * calls}
        counts = {"assistant_content_chars": len(text), "assistant_tool_call_count": calls}
        self.hook("post_api_request", chat=chat, response={"assistant_message": message}, **counts)

    def send(self, text: str, marks: Mapping[str, object] | None = None, chat: str = CHAT) -> str:
        delivery = self.relay.outside(chat, text, marks)
        if delivery is None:
            return self.relay.send(chat, text, marks)
        message_id = self.told.notice(conversation_of(chat), delivery.text, delivery.origin)
        self.relay.delivered(chat, message_id)
        return message_id

    def complete(self, final: str | None = None, *, chat: str = CHAT, key: int = 1, **end: Any) -> None:
        if final is not None:
            self.hook("post_llm_call", chat=chat, assistant_response=final)
        self.hook("on_session_end", chat=chat, **({"completed": True, "interrupted": False} | end))
        self.relay.processing_completed(chat, key, "SUCCESS")

    def ask(self, key: str = "q1", chat: str = CHAT) -> None:
        """A clarification of Hermes's."""
        fixed: dict[str, Any] = {"multiple": False, "skip_answer": None, "undecorated": str, "expires_at": None}
        self.relay.clarification(chat, f"key of {chat}", key, "Which?", ["red", "green"], **fixed)

    def fail(self, *, chat: str = CHAT, key: int = 1) -> None:
        """Hermes gives a failed run no hook for its end, and calls it a success."""
        self.relay.processing_completed(chat, key, "SUCCESS")

    def fire(self) -> None:
        """The timers that are set now come due."""
        timers, self.timers = self.timers, []
        for _, call in timers:
            call()


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
def running(gateway: Gateway) -> Gateway:
    """A run has begun, and that has been told."""
    gateway.begin()
    gateway.told.take()
    return gateway


def completed(final: str | None = None) -> Call:
    return ("run_ended", CONVERSATION, RunResult(outcome=Outcome.COMPLETED, final_text=final))


# Runs


def test_a_turn_is_a_run_of_its_message(gateway: Gateway) -> None:
    gateway.begin(message_id="m7")
    gateway.complete("done")
    assert gateway.told.calls == [("run_started", CONVERSATION, "m7", Origin.CHAT), completed("done")]


def test_a_turn_that_hermes_starts_by_itself_has_no_message(gateway: Gateway) -> None:
    gateway.begin(message_id=None, text="[ASYNC DELEGATION BATCH COMPLETE]")
    assert gateway.told.calls == [("run_started", CONVERSATION, None, Origin.BACKGROUND)]


def test_the_result_says_why_and_what_it_took(running: Gateway) -> None:
    usage = {"prompt_tokens": 7, "output_tokens": 5, "total_tokens": 12}
    running.hook("post_api_request", usage=usage, assistant_content_chars=0, assistant_tool_call_count=1)
    running.complete(completed=False, turn_exit_reason="max_iterations_reached(4/4)")
    ((_, _, result),) = running.told.calls
    assert (result.outcome, result.reason, result.error) == (
        Outcome.FAILED,
        RunReason.MAX_ITERATIONS,
        RunErrorCode.INTERNAL,
    )
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.total_tokens) == (7, 5, 12)


def test_the_declared_answer_is_cleaned(running: Gateway) -> None:
    """B4: no reasoning, no tag, no half character."""
    running.complete("<think>secret</think>Here: \ud83d\nMEDIA:/a/b.png\nThat was it.")
    assert running.told.calls == [("not_attached", "b.png"), completed("Here: \ufffd\nThat was it.")]


def test_a_turn_that_takes_over_ends_the_one_before(running: Gateway) -> None:
    """Two turns in one envelope: the first is over before the second begins, and its text with it."""
    first = running.send("Let me", STREAMED)
    running.turn(text="and now this")
    running.relay.edit(first, "Let me think", final=True)
    calls = running.told.take()
    assert [call[0] for call in calls] == ["started", "run_ended", "run_started"]
    assert calls[1][2] == RunResult(outcome=Outcome.FAILED, error=RunErrorCode.INTERNAL)


def test_an_interrupted_turn_is_cancelled(running: Gateway) -> None:
    running.relay.interrupted(CHAT)
    running.complete(interrupted=True)
    assert running.told.calls == [
        ("run_ended", CONVERSATION, RunResult(outcome=Outcome.CANCELLED, reason=RunReason.REQUESTED))
    ]


def test_chats_do_not_mix(gateway: Gateway) -> None:
    gateway.begin(CHAT, "m1", key=1)
    gateway.begin(OTHER, "m2", key=2)
    gateway.told.take()
    here, there = gateway.send("here", STREAMED, CHAT), gateway.send("there", STREAMED, OTHER)
    gateway.relay.edit(there, "there!", final=False)
    gateway.relay.edit(here, "here!", final=True)
    gateway.hook("pre_tool_call", chat=OTHER)
    gateway.complete("here!", chat=CHAT, key=1)
    assert gateway.told.calls == [
        ("started", "a1", "here"),
        ("started", "a2", "there"),
        ("appended", "a2", "!"),
        ("appended", "a1", "!"),
        completed("here!"),
    ]


# Streamed texts


def test_a_streamed_text_grows(running: Gateway) -> None:
    message = running.send("Hel ▉", STREAMED)
    running.relay.edit(message, "Hello ▉", final=False)
    running.relay.edit(message, "Hello", final=False)
    running.complete("Hello")
    assert running.told.calls == [("started", "a1", "Hel"), ("appended", "a1", "lo"), completed("Hello")]


def test_the_core_hears_of_a_text_when_there_is_something_to_see(running: Gateway) -> None:
    message = running.send("\n\n<thi", STREAMED)
    running.relay.edit(message, "\n\n<think>secret", final=False)
    assert running.told.calls == []
    running.relay.edit(message, "\n\n<think>secret</think>Hi", final=False)
    assert running.told.calls == [("started", "a1", "Hi")]


def test_a_text_that_shrinks_is_replaced(running: Gateway) -> None:
    message = running.send("one two", STREAMED)
    running.relay.edit(message, "one 2", final=True)
    assert running.told.calls == [("started", "a1", "one two"), ("replaced", "a1", "one 2")]


@pytest.mark.parametrize(
    ("streamed", "change"),
    [
        ("I look.", []),
        ("I lo ▉", [("appended", "a1", "ok.")]),
        ("I look.\n\n(300 tokens)", [("replaced", "a1", "I look.")]),
    ],
)
def test_a_text_ends_before_its_tool_by_the_models_response(
    running: Gateway, streamed: str, change: list[Call]
) -> None:
    """Hermes's last edit comes late, and a remark of its own behind the text is none of the model's."""
    message = running.send(streamed, STREAMED)
    running.told.take()
    running.answered("I look.", calls=1)
    assert running.told.take() == [*change, ("ended", "a1", True)]
    running.hook("pre_tool_call", tool_name="read_file", tool_call_id="c1")
    assert [call[0] for call in running.told.take()] == ["tool_started"]
    running.relay.edit(message, streamed + " LATE", final=True)
    assert running.told.calls == []


def test_a_text_that_is_something_else_waits_for_hermess_last_edit(running: Gateway) -> None:
    message = running.send("Another", STREAMED)
    running.answered("I look.", calls=1)
    running.hook("pre_tool_call", tool_name="read_file")
    assert running.told.take() == [("started", "a1", "Another")]
    running.relay.edit(message, "Another one.", final=True)
    assert running.told.calls == [("appended", "a1", " one."), ("ended", "a1", True)]


def test_each_send_is_a_text_of_its_own(running: Gateway) -> None:
    """B3: text, tool, text: what was said on the way stays."""
    first = running.send("I look.", STREAMED)
    running.answered("I look.", calls=1)
    running.relay.edit(first, "I look.", final=True)
    running.hook("pre_tool_call", tool_name="read_file")
    second = running.send("\n\nFound", STREAMED)
    running.answered("Found it.")
    running.relay.edit(second, "Found it.", final=True)
    running.complete("Found it.")
    assert running.told.calls == [
        ("started", "a1", "I look."),
        ("ended", "a1", True),
        ("started", "a2", "Found"),
        ("appended", "a2", " it."),
        completed("Found it."),
    ]


def test_a_text_ends_late_where_nothing_but_the_next_text_tells(running: Gateway) -> None:
    running.send("One.", STREAMED)
    running.send("Two.", STREAMED)
    assert running.told.calls == [("started", "a1", "One."), ("ended", "a1", True), ("started", "a2", "Two.")]


def test_a_text_that_is_whole_when_the_tool_begins_ends_there(running: Gateway) -> None:
    message = running.send("I look.", STREAMED)
    running.relay.edit(message, "I look.", final=True)
    assert running.told.take() == [("started", "a1", "I look.")]
    running.hook("pre_tool_call")
    assert running.told.calls == [("ended", "a1", True)]


def test_a_text_that_says_it_is_whole_twice_ends_once(running: Gateway) -> None:
    message = running.send("I look.", STREAMED)
    running.hook("pre_tool_call")
    running.relay.edit(message, "I look.", final=True)
    running.relay.edit(message, "I look.", final=True)
    assert running.told.calls == [("started", "a1", "I look."), ("ended", "a1", True)]


def test_an_answer_is_not_on_its_way_because_an_earlier_text_was(running: Gateway) -> None:
    """B1: the stream of the answer breaks and goes on. Ended as interim, the answer would be shown again."""
    running.answered("I look.", calls=1)
    running.hook("pre_tool_call")
    message = running.send("Here", STREAMED)
    running.hook("api_request_error", reason="timeout")
    running.hook("pre_api_request")
    running.relay.edit(message, "Here it is", final=True)
    running.answered("it is.")
    running.relay.edit(message, "Here it is.", final=True)
    running.complete("Here it is.")
    assert running.told.calls == [
        ("started", "a1", "Here"),
        ("appended", "a1", " it is"),
        ("appended", "a1", "."),
        completed("Here it is."),
    ]


def test_nothing_is_said_for_a_run_after_its_end(running: Gateway) -> None:
    """C3: late output of a run is in no other run."""
    message = running.send("Hel", STREAMED)
    running.complete("Hello")
    running.told.take()
    running.relay.edit(message, "Hello", final=True)
    running.send("Hello again", STREAMED)
    running.begin(message_id="m2", key=2)
    running.relay.edit(message, "Hello LATE", final=False)
    assert running.told.calls == [("run_started", CONVERSATION, "m2", Origin.CHAT)]


def test_an_edit_of_nothing_known_is_nothing(running: Gateway) -> None:
    running.relay.edit("h99", "Approval expired", final=True)
    assert running.told.calls == []


def test_finished_texts_are_forgotten(running: Gateway) -> None:
    """No growth with the number of runs."""
    for number in range(50):
        running.send(f"text {number}", STREAMED)
    running.complete("done")
    assert running.relay._segments == {}
    assert running.relay._runs == {}


# Whole texts


def test_a_whole_answer_is_shown_when_the_run_went_well(running: Gateway) -> None:
    running.send("The answer.", WHOLE)
    assert running.told.take() == []
    running.complete("The answer.")
    assert running.told.calls == [("started", "a1", "The answer."), completed("The answer.")]


def test_a_whole_text_of_a_failed_run_is_swallowed(running: Gateway) -> None:
    """B6: it is the provider's own complaint; the run says that it failed."""
    running.hook("api_request_error", reason="auth", status_code=401)
    running.send("custom rejected your API key. Provider said: raw provider text", WHOLE)
    running.fail()
    assert running.told.calls == [
        ("run_ended", CONVERSATION, RunResult(outcome=Outcome.FAILED, error=RunErrorCode.PROVIDER_AUTH))
    ]


def test_a_whole_text_of_a_cancelled_run_is_swallowed(running: Gateway) -> None:
    running.relay.interrupted(CHAT)
    running.send("Operation interrupted: retrying API call after error (retry 1/3).", WHOLE)
    running.fail()
    assert [call[0] for call in running.told.calls] == ["run_ended"]


def test_a_repeated_whole_text_is_one(running: Gateway) -> None:
    """B1: Hermes sends once more after a time-out."""
    running.send("Hello", WHOLE)
    running.send("Hello", WHOLE)
    running.complete("Hello")
    assert running.told.calls == [("started", "a1", "Hello"), completed("Hello")]


def test_a_streamed_answer_that_is_sent_again_whole_is_one(running: Gateway) -> None:
    """B1."""
    message = running.send("Hello", STREAMED)
    running.relay.edit(message, "Hello", final=True)
    running.send("Hello", WHOLE)
    running.complete("Hello")
    assert running.told.calls == [("started", "a1", "Hello"), completed("Hello")]


def test_a_text_that_was_said_on_the_way_and_is_sent_again_whole_is_one(running: Gateway) -> None:
    message = running.send("I look.", STREAMED)
    running.hook("pre_tool_call")
    running.relay.edit(message, "I look.", final=True)
    running.send("I look.", WHOLE)
    assert running.told.calls == [("started", "a1", "I look."), ("ended", "a1", True)]


def test_of_several_whole_texts_the_last_is_the_answer(running: Gateway) -> None:
    """What comes whole before the end of a run acknowledges something; Hermes marks it like an answer."""
    running.send("Queued for the next turn.", WHOLE)
    running.send("The answer.", WHOLE)
    running.complete("The answer.")
    assert running.told.calls == [("started", "a1", "The answer."), completed("The answer.")]


def test_an_acknowledgement_does_not_end_a_stream(running: Gateway) -> None:
    """B1, B3: the stream goes on in its message."""
    message = running.send("w1 w2", STREAMED)
    running.send("Queued for the next turn.", WHOLE)
    running.relay.edit(message, "w1 w2 w3", final=True)
    running.complete("w1 w2 w3")
    assert running.told.calls == [("started", "a1", "w1 w2"), ("appended", "a1", " w3"), completed("w1 w2 w3")]


def test_a_whole_answer_in_an_open_stream_is_left_to_the_core(running: Gateway) -> None:
    """It is declared as well, and the core puts it in the place of what was streamed of it."""
    running.send("The ans", STREAMED)
    running.send("The answer.", WHOLE)
    running.complete("The answer.")
    assert running.told.calls == [("started", "a1", "The ans"), completed("The answer.")]


@pytest.mark.parametrize("footer", ["", "\n\n(300 tokens)"])
def test_an_acknowledgement_after_the_answer_is_dropped(running: Gateway, footer: str) -> None:
    message = running.send("The answer.", STREAMED)
    running.relay.edit(message, "The answer." + footer, final=True)
    running.send("Queued for the next turn.", WHOLE)
    running.complete("The answer.")
    assert [call[0] for call in running.told.calls if call[0] != "appended"] == ["started", "run_ended"]


@pytest.mark.parametrize("said_whole", [True, False])
def test_a_whole_answer_after_a_text_on_the_way_is_another(running: Gateway, said_whole: bool) -> None:
    message = running.send("Streamed.", STREAMED)
    running.hook("pre_tool_call")
    if said_whole:
        running.relay.edit(message, "Streamed.", final=True)
    running.send("Whole.", WHOLE)
    running.complete("Whole.")
    assert running.told.calls == [
        ("started", "a1", "Streamed."),
        ("ended", "a1", True),
        ("started", "a2", "Whole."),
        completed("Whole."),
    ]


def test_a_whole_text_is_no_answer_when_a_tool_follows(running: Gateway) -> None:
    running.send("⏩ Steer queued — arrives after the next tool call", WHOLE)
    running.hook("pre_tool_call")
    running.complete("Done.")
    assert running.told.calls == [completed("Done.")]


def test_a_whole_text_is_no_answer_when_a_stream_follows(running: Gateway) -> None:
    running.send("⏩ Steer queued — arrives after the next tool call", WHOLE)
    running.send("Found", STREAMED)
    running.complete("Found")
    assert running.told.calls == [("started", "a1", "Found"), completed("Found")]


@pytest.mark.parametrize("text", ["", "\n\n", "<think>secret</think>", "MEDIA:/srv/x.png"])
def test_a_whole_text_without_anything_to_see_is_none(running: Gateway, text: str) -> None:
    running.send(text, WHOLE)
    running.complete("Hello")
    assert running.told.calls == [completed("Hello")]


# Texts without a mark, where nothing streams


def test_what_is_said_on_the_way_is_known_by_the_models_response(running: Gateway) -> None:
    running.answered("Let me run that.", calls=1)
    running.send("Let me run that.")
    running.hook("pre_tool_call")
    running.answered("The command has ended.")
    running.send("The command has ended.", WHOLE)
    running.complete("The command has ended.")
    assert running.told.calls == [
        ("started", "a1", "Let me run that."),
        ("ended", "a1", True),
        ("started", "a2", "The command has ended."),
        completed("The command has ended."),
    ]


def test_what_is_said_on_the_way_is_compared_cleaned(running: Gateway) -> None:
    running.answered("<think>secret</think>Let me run that.", calls=1)
    running.send("Let me run that.")
    assert running.told.calls == [("started", "a1", "Let me run that."), ("ended", "a1", True)]


def test_it_is_shown_once(running: Gateway) -> None:
    running.answered("Let me run that.", calls=1)
    running.send("Let me run that.")
    running.send("Let me run that.")
    assert len(running.told.calls) == 2


def test_a_response_without_tools_announces_nothing(running: Gateway) -> None:
    running.answered("The answer.")
    running.send("The answer.")
    assert running.told.calls == []


@pytest.mark.parametrize("response", [None, "text", {}, {"assistant_message": None}, {"assistant_message": {}}])
def test_any_response_is_read(running: Gateway, response: object) -> None:
    running.hook("post_api_request", response=response)
    running.hook("post_api_request", response={"assistant_message": {"tool_calls": [1], "content": [1]}})
    running.send("chatter")
    assert running.told.calls == []


@pytest.mark.parametrize(
    "chatter",
    ['💻 terminal: "echo hi"', "⏳ Still working… (3 min)", "⚡ Interrupting current task.", "Let me"],
)
def test_chatter_in_a_run_is_dropped(running: Gateway, chatter: str) -> None:
    """Tool bubbles, heartbeats, acknowledgements: an id for Hermes, nothing for the core."""
    running.answered("Let me run that.", calls=1)
    bubble = running.send(chatter)
    running.relay.edit(bubble, chatter + " (2)", final=True)
    running.send(chatter, {"notify": True, "_interim_send": True})
    assert running.told.calls == []


def test_every_send_has_an_id_of_its_own(running: Gateway) -> None:
    """B1: Hermes keeps the id; two sends with one would be one message to it."""
    ids = [running.send("x", marks) for marks in (STREAMED, WHOLE, None, {"_interim_send": True})]
    assert len(set(ids)) == 4


# Status


def test_a_status_is_progress(running: Gateway) -> None:
    running.relay.status(CHAT, "Empty response from model — retrying (1/3) \ud83d")
    assert running.told.calls == [("progress", CONVERSATION, "Empty response from model — retrying (1/3) \ufffd")]


def test_while_the_provider_fails_a_status_is_a_fixed_sentence(running: Gateway) -> None:
    running.hook("api_request_error", reason="server_error", status_code=500)
    running.relay.status(CHAT, "HTTP 500: raw provider text")
    running.answered("fine now")
    running.relay.status(CHAT, "going on")
    assert running.told.calls == [("progress", CONVERSATION, PROVIDER_FAILS), ("progress", CONVERSATION, "going on")]


def test_a_status_without_a_run_is_nothing(gateway: Gateway) -> None:
    gateway.relay.status(CHAT, "compressing")
    assert gateway.told.calls == []


def test_a_failing_provider_of_one_run_says_nothing_about_the_next(running: Gateway) -> None:
    running.hook("api_request_error", reason="auth")
    running.fail()
    running.begin(message_id="m2", key=2)
    running.told.take()
    running.relay.status(CHAT, "going on")
    assert running.told.calls == [("progress", CONVERSATION, "going on")]


# Outside of runs


def test_a_text_without_a_run_is_a_notice_with_the_cores_id(gateway: Gateway) -> None:
    assert gateway.send("📖 **Hermes Commands**", WHOLE) == "n1"
    assert gateway.told.calls == [("notice", CONVERSATION, "📖 **Hermes Commands**", Origin.SYSTEM)]


def test_a_scheduled_jobs_text_says_so(gateway: Gateway) -> None:
    """H: what cron delivers is a message of the agent, whole."""
    text = "word " * 20_000 + "end"
    gateway.send(text, {"job_id": "job-1"})
    assert gateway.told.calls == [("notice", CONVERSATION, text, Origin.CRON)]


@pytest.mark.parametrize("marks", [{"job_id": "job-1"}, {"job_id": "job-1", "notify": True}])
def test_a_scheduled_jobs_text_is_not_the_runs(running: Gateway, marks: dict[str, object]) -> None:
    """H3: neither dropped as chatter nor held as the answer of the run that is active."""
    message = running.send("Let me", STREAMED)
    running.send("report", marks)
    running.relay.edit(message, "Let me see", final=True)
    assert running.told.calls == [
        ("started", "a1", "Let me"),
        ("notice", CONVERSATION, "report", Origin.CRON),
        ("appended", "a1", " see"),
    ]


def test_a_job_needs_no_digits_for_its_chat(gateway: Gateway) -> None:
    gateway.send("report", {"job_id": "job-1"}, chat="my chat!")
    assert gateway.told.calls == [("notice", conversation_of("my chat!"), "report", Origin.CRON)]


@pytest.mark.parametrize("marks", [STREAMED, {"_interim_send": True}])
def test_late_streams_and_chatter_are_no_notices(gateway: Gateway, marks: dict[str, object]) -> None:
    gateway.send("Gateway shutting down", marks)
    assert gateway.told.calls == []


@pytest.mark.parametrize("text", ["", " \n", "<think>secret</think>", "MEDIA:/srv/x.png"])
def test_an_empty_notice_is_none(gateway: Gateway, text: str) -> None:
    """H7."""
    gateway.send(text, {"job_id": "job-1"})
    assert gateway.told.calls == []


def test_a_notice_is_cleaned(gateway: Gateway) -> None:
    gateway.send("<think>secret</think>Half: \udc00")
    assert gateway.told.calls == [("notice", CONVERSATION, "Half: \ufffd", Origin.SYSTEM)]


# Tools, clarifications


def tool(gateway: Gateway, call_id: str, name: str = "terminal", chat: str = CHAT, **facts: Any) -> None:
    gateway.hook("pre_tool_call", chat=chat, tool_name=name, tool_call_id=call_id, **facts)


def tool_over(gateway: Gateway, call_id: str, chat: str = CHAT, **facts: Any) -> None:
    gateway.hook("post_tool_call", chat=chat, tool_call_id=call_id, **facts)


def outcomes(gateway: Gateway) -> list[tuple[str, Outcome, bool]]:
    """Of the tools that ended: which, how, and whether with an error."""
    ended = [call[2] for call in gateway.told.calls if call[0] == "tool_ended"]
    return [(result.call_id, result.outcome, result.error is not None) for result in ended]


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ({"status": "success", "result": '{"output": "", "exit_code": 130}'}, Outcome.CANCELLED),
        ({"status": "error", "result": "interrupted", "error_type": "tool_error"}, Outcome.CANCELLED),
        ({"status": "success", "result": '{"output": "done", "exit_code": 0}'}, Outcome.COMPLETED),
        ({"status": "success", "result": '{"output": "1300", "exit_code": 1300}'}, Outcome.COMPLETED),
        ({"status": "success", "result": {"n": 1}}, Outcome.COMPLETED),
    ],
)
def test_a_tool_of_a_run_that_is_being_stopped_is_cancelled_unless_it_was_done(
    running: Gateway, facts: dict[str, object], outcome: Outcome
) -> None:
    tool(running, "c1")
    running.relay.interrupted(CHAT)
    tool_over(running, "c1", **facts)
    assert outcomes(running) == [("c1", outcome, False)]


def test_what_a_tool_of_another_run_says_is_believed(running: Gateway) -> None:
    running.begin(OTHER, "m2", key=2)
    running.relay.interrupted(OTHER)
    for number, status in enumerate(("success", "error")):
        tool(running, f"c{number}")
        tool_over(running, f"c{number}", status=status, result='{"exit_code": 130}')
    assert outcomes(running) == [("c0", Outcome.COMPLETED, False), ("c1", Outcome.FAILED, True)]


def closed(key: str, by: DecisionSource, conversation_id: ConversationId = CONVERSATION) -> Call:
    return ("clarification_closed", conversation_id, key, by)


def test_a_clarification_is_joined_to_the_call_that_asks(running: Gateway) -> None:
    """R-F1."""
    running.ask("q0")
    tool(running, "c0")
    tool(running, "c1", "clarify")
    running.begin(OTHER, "m2", key=2)
    for key, chat in (("q1", CHAT), ("q2", OTHER)):
        running.ask(key, chat)
    tool_over(running, "c1")
    running.ask("q3")
    asked = [call[1:] for call in running.told.calls if call[0] == "clarification_requested"]
    assert [(chat, prompt.key, prompt.call_id) for chat, prompt in asked] == [
        (CONVERSATION, "q0", None),
        (CONVERSATION, "q1", "c1"),
        (conversation_of(OTHER), "q2", None),
        (CONVERSATION, "q3", None),
    ]
    assert asked[1][1].labels == ("red", "green")


def test_a_clarification_that_hermes_waits_for_no_more_has_run_out(running: Gateway) -> None:
    """R-F2: the end of the call tells it where nothing else does."""
    tool(running, "c1", "clarify")
    running.ask("q1")
    running.told.take()
    tool_over(running, "c0")
    assert running.relay.may_clarify("q1") is not None
    tool_over(running, "c1", status="success")
    assert outcomes(running)[1:] == [("c1", Outcome.COMPLETED, False)]
    assert [call for call in running.told.take() if call[0] != "tool_ended"] == [closed("q1", DecisionSource.TIMEOUT)]
    assert (running.relay.may_clarify("q1"), running.relay.waiting_questions()) == (None, [])
    running.relay.clarification_over("q1")
    assert running.told.calls == []


def test_several_questions_of_one_call(running: Gateway) -> None:
    tool(running, "c1", "clarify")
    for key in ("q1", "q2", "q3"):
        running.ask(key)
    running.told.take()
    running.relay.clarification_answered("q1")
    running.relay.clarification_over("q2")
    tool_over(running, "c1", status="success")
    assert running.told.calls[:2] == [closed("q2", DecisionSource.TIMEOUT), closed("q3", DecisionSource.TIMEOUT)]
    assert outcomes(running) == [("c1", Outcome.COMPLETED, False)]


@pytest.mark.parametrize("retired", [True, False])
def test_a_clarification_of_a_run_that_is_being_stopped_ends_with_it(running: Gateway, retired: bool) -> None:
    """R-F2: no answer reaches it any more, and its tool was cancelled, whatever Hermes calls that."""
    tool(running, "c1", "clarify")
    running.ask("q1")
    running.told.take()
    running.relay.interrupted(CHAT)
    assert running.relay.may_clarify("q1") is None
    assert running.relay.waiting_questions(CHAT) == ["q1"]
    if retired:
        running.relay.clarification_over("q1")
    tool_over(running, "c1", status="success", result='{"outcome": "cancelled"}')
    assert running.told.calls[:-1] == [closed("q1", DecisionSource.RUN_END)]
    assert outcomes(running) == [("c1", Outcome.CANCELLED, False)]


def test_two_chats_whose_calls_have_the_same_name(running: Gateway) -> None:
    """Some models number their calls in each run: the end of one ends no question of another chat."""
    running.begin(OTHER, "m2", key=2)
    for key, chat in (("q1", CHAT), ("q2", OTHER)):
        tool(running, "call_0", "clarify", chat=chat)
        running.ask(key, chat)
    running.relay.clarification_answered("q1")
    tool_over(running, "call_0")
    assert running.relay.waiting_questions() == ["q2"]
    running.hook("post_tool_call", tool_name="other", status="success", result="")
    assert running.relay.waiting_questions() == ["q2"]


def test_a_clarification_that_was_answered_before_the_stop_has_its_answer(running: Gateway) -> None:
    tool(running, "c1", "clarify")
    running.ask("q1")
    running.relay.clarification_answered("q1")
    running.relay.interrupted(CHAT)
    tool_over(running, "c1", status="success")
    assert outcomes(running) == [("c1", Outcome.COMPLETED, False)]


def test_what_waits_is_forgotten_with_the_chats_last_envelope(running: Gateway) -> None:
    """R-F2."""
    running.relay.processing_started(CHAT, 2, "m2", "and", internal=False)
    running.begin(OTHER, "m3", key=3)
    for key, chat in (("q1", CHAT), ("q2", OTHER)):
        running.ask(key, chat)
    running.told.take()
    running.complete()
    assert [call[0] for call in running.told.take()] == ["run_ended"]
    running.relay.processing_completed(CHAT, 2, "SUCCESS")
    assert running.told.take() == [closed("q1", DecisionSource.RUN_END)]
    assert running.relay.waiting_questions() == ["q2"]
    running.relay.shut_down()
    assert closed("q2", DecisionSource.RUN_END, conversation_of(OTHER)) in running.told.calls


# Subagents


def subagent(gateway: Gateway, child: str, parent: str = "s1", parent_turn: str = "") -> None:
    facts = {"parent_session_id": parent, "parent_turn_id": parent_turn, "child_session_id": child}
    gateway.relay.hook("subagent_start", facts | {"child_subagent_id": f"h-{child}", "child_goal": "look"}, "")


def test_a_subagents_tools_are_its_own_though_hermes_names_no_chat(running: Gateway) -> None:
    """R-D2."""
    tool(running, "c1", "delegate_task", session_id="s1")
    running.told.take()
    subagent(running, "k1")
    subagent(running, "k2", "k1")
    subagent(running, "k3", "a session of nobody's")
    assert running.told.take() == [
        ("subagent_started", CONVERSATION, SubagentStart(key="k1", parent=None, call_id="c1", goal="look")),
        ("subagent_started", CONVERSATION, SubagentStart(key="k2", parent="k1", call_id=None, goal="look")),
    ]
    facts = {"turn_id": "k1:t:1", "session_id": "k1", "tool_call_id": "c2", "tool_name": "terminal"}
    running.relay.hook("pre_tool_call", facts, "")
    running.complete("Later.")
    running.relay.hook("post_tool_call", {**facts, "status": "error"}, "")
    running.relay.hook("subagent_stop", {"child_session_id": "k1", "child_status": "completed"}, "")
    running.relay.hook("pre_tool_call", {**facts, "tool_call_id": "c3"}, "")
    started, run_over, over, gone = running.told.calls
    assert (started[0], started[2].call_id, started[3]) == ("tool_started", "c2", "k1")
    assert run_over == completed("Later.")
    assert (over[0], over[2].outcome, over[3]) == ("tool_ended", Outcome.FAILED, "k1")
    assert gone == ("subagent_ended", CONVERSATION, "k1", RunResult(outcome=Outcome.COMPLETED))


def test_a_ghosts_subagents_are_not_seen(running: Gateway) -> None:
    running.complete("done")
    running.turn(text="LATE")
    running.told.take()
    subagent(running, "k1", parent_turn=running._turn[CHAT])
    running.relay.hook("pre_tool_call", {"session_id": "k1", "tool_call_id": "c1", "tool_name": "terminal"}, "")
    subagent(running, "k2", parent="k1", parent_turn="k1:t:1")
    running.relay.hook("subagent_stop", {"child_session_id": "k1"}, "")
    assert running.told.calls == []


def test_a_shutdown_ends_the_subagents(running: Gateway) -> None:
    for child in ("k1", "k2"):
        subagent(running, child)
    running.relay.hook("subagent_stop", {"child_session_id": "k1"}, "")
    running.told.take()
    running.relay.shut_down()
    running.relay.shut_down()
    over = RunResult(outcome=Outcome.CANCELLED, reason=RunReason.SHUTDOWN)
    assert running.told.calls == [("run_ended", CONVERSATION, over), ("subagent_ended", CONVERSATION, "k2", over)]


# Ghosts, lost messages, shutdown


def test_a_ghost_is_not_seen(gateway: Gateway) -> None:
    """C3: Hermes runs a message that it has reported as cancelled."""
    gateway.relay.processing_started(CHAT, 1, "m1", "hello", internal=False)
    gateway.relay.processing_completed(CHAT, 1, "CANCELLED")
    gateway.turn(text="hello")
    ghost = gateway.send("LATE", STREAMED)
    gateway.relay.edit(ghost, "LATE text", final=True)
    gateway.answered("LATE text", calls=1)
    gateway.hook("post_llm_call", assistant_response="LATE text")
    gateway.hook("on_session_end", completed=True)
    assert gateway.told.calls == []


def test_a_ghosts_hooks_do_not_touch_the_run_that_is_open(gateway: Gateway) -> None:
    gateway.relay.processing_started(CHAT, 1, "m1", "hello", internal=False)
    gateway.relay.processing_completed(CHAT, 1, "CANCELLED")
    gateway.turn(text="hello")
    ghost = {"turn_id": gateway._turn[CHAT]}
    gateway.begin(message_id="m2", text="other", key=2)
    gateway.relay.hook("api_request_error", ghost, CHAT)
    gateway.relay.hook("post_llm_call", ghost | {"assistant_response": "LATE"}, CHAT)
    gateway.relay.status(CHAT, "going on")
    gateway.complete("Mine", key=2)
    assert gateway.told.calls == [
        ("run_started", CONVERSATION, "m2", Origin.CHAT),
        ("progress", CONVERSATION, "going on"),
        completed("Mine"),
    ]


def test_a_message_without_a_turn_is_lost_after_a_while(gateway: Gateway) -> None:
    """B6: also what Hermes answers without a run gets its one end."""
    gateway.relay.processing_started(CHAT, 1, "m1", "hello", internal=False)
    gateway.relay.processing_completed(CHAT, 1, "SUCCESS")
    assert gateway.told.calls == []
    assert [delay for delay, _ in gateway.timers] == [LOST_SECONDS]
    gateway.fire()
    assert gateway.told.calls == [("run_lost", CONVERSATION, "m1")]


def test_a_message_that_is_replayed_meanwhile_is_looked_at_again_later(gateway: Gateway) -> None:
    gateway.relay.processing_started(CHAT, 1, "m1", "hello", internal=False)
    gateway.relay.processing_completed(CHAT, 1, "SUCCESS")
    gateway.begin(message_id=None, key=2)
    gateway.told.take()
    gateway.fire()
    assert gateway.told.calls == []
    gateway.complete(key=2)
    gateway.told.take()
    gateway.fire()
    assert gateway.told.calls == [("run_lost", CONVERSATION, "m1")]
    assert gateway.timers == []


@pytest.mark.parametrize("message_id", [None, "m1"])
def test_what_had_a_turn_or_no_message_is_not_lost(gateway: Gateway, message_id: str | None) -> None:
    if message_id is None:
        gateway.relay.processing_started(CHAT, 1, None, "", internal=True)
        gateway.relay.processing_completed(CHAT, 1, "SUCCESS")
    else:
        gateway.begin(message_id=message_id)
        gateway.complete("done")
    gateway.relay.processing_completed(CHAT, 77, "SUCCESS")
    assert gateway.timers == []


def test_a_shutdown_ends_what_is_open(gateway: Gateway) -> None:
    gateway.begin(CHAT, "m1", key=1)
    gateway.begin(OTHER, "m2", key=2)
    gateway.send("Hel", STREAMED)
    gateway.told.take()
    gateway.relay.shut_down()
    gateway.relay.shut_down()
    result = RunResult(outcome=Outcome.CANCELLED, reason=RunReason.SHUTDOWN)
    assert gateway.told.calls == [("run_ended", CONVERSATION, result), ("run_ended", conversation_of(OTHER), result)]


def test_after_a_shutdown_nothing_is_told(gateway: Gateway) -> None:
    gateway.relay.processing_started(CHAT, 1, "m1", "hello", internal=False)
    gateway.relay.processing_completed(CHAT, 1, "SUCCESS")
    gateway.relay.processing_started(OTHER, 2, "m2", "hello", internal=False)
    gateway.relay.shut_down()
    gateway.fire()
    assert gateway.told.calls == []
    assert gateway.timers == []


def test_a_turn_in_another_session_is_told_before_its_run() -> None:
    """R-H1: what was chosen for the conversation may be forgotten there."""
    gateway = Gateway()
    gateway.begin()
    gateway.complete("Done.")
    gateway.told.take()
    gateway.relay.processing_started(CHAT, 2, "m2", "hello", False)
    gateway.turn(session="another")
    assert [call[0] for call in gateway.told.take()] == ["began_anew", "run_started"]


# Files and what is outside of any run


def places(gateway: Gateway, *paths: str, chat: str = CHAT) -> list[FilePlace | None]:
    return [gateway.relay.file_place(chat, path) for path in paths]


IN_RUN = FilePlace(CONVERSATION, None)


def answer_with(gateway: Gateway, text: str) -> None:
    """The answer, held back by Hermes until the run's end, and said to be the answer."""
    gateway.hook("post_llm_call", assistant_response=text)
    gateway.send(text, WHOLE)


def test_files_of_a_run_follow_its_answer(running: Gateway) -> None:
    """J4: each real file once, in order."""
    answer_with(running, "Here.\nMEDIA:/c/My Doc/a b.md\nMEDIA:/c/1.png")
    assert places(running, "/c/My Doc/a b.md", "/c/1.png", "/c/My Doc/a b.md") == [IN_RUN, IN_RUN, None]
    running.complete("Here.\nMEDIA:/c/My Doc/a b.md\nMEDIA:/c/1.png")
    told = running.told.take()
    assert [call for call in told if call[0] == "started"] == [("started", "a1", "Here.")]
    assert [call for call in told if call[0] == "not_attached"] == []


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ("MEDIA:/c/My Doc/a b.md", ["a b.md"]),
        ("MEDIA:/c/1.pngMEDIA:/c/2.png", ["1.png", "2.png"]),
        ("MEDIA:/c/1.png<|eos|>", ["1.png"]),
        ("MEDIA:/etc/passwd.txt and MEDIA:/etc/passwd.txt", ["passwd.txt"]),
        ("MEDIA:/a/x.png MEDIA:/b/x.png", ["x.png", "x.png"]),
        ("```\nMEDIA:/c/1.png\n```", []),
        ("`MEDIA:/c/1.png`", []),
        ("No file.", []),
    ],
)
def test_a_file_that_hermes_drops_without_a_word_is_told(running: Gateway, answer: str, names: list[str]) -> None:
    """J3, J4, J6: before the run's end, once for each, without its path."""
    answer_with(running, answer)
    running.complete(answer)
    told = running.told.take()
    assert [call[1] for call in told if call[0] == "not_attached"] == names
    assert told[-1][0] == "run_ended"


def test_of_two_files_with_one_name_the_missing_one_is_told(running: Gateway) -> None:
    """J6."""
    answer = "MEDIA:/a/x.png\nMEDIA:/b/x.png"
    answer_with(running, answer)
    places(running, "/a/x.png")
    running.complete(answer)
    assert [call[1] for call in running.told.take() if call[0] == "not_attached"] == ["x.png"]


def test_a_file_that_hermes_found_elsewhere_is_not_told_to_be_missing(running: Gateway) -> None:
    """J6: as in a container."""
    answer = "MEDIA:/container/x.png"
    answer_with(running, answer)
    places(running, "/host/volume/x.png")
    running.complete(answer)
    assert [call for call in running.told.take() if call[0] == "not_attached"] == []


def test_nothing_is_told_of_a_run_that_failed_or_was_stopped(running: Gateway) -> None:
    running.hook("post_llm_call", assistant_response="MEDIA:/c/1.png")
    running.relay.interrupted(CHAT)
    assert places(running, "/c/1.png") == [None]
    running.complete(interrupted=True, completed=False)
    assert [call for call in running.told.take() if call[0] == "not_attached"] == []


@pytest.mark.parametrize("text", ["", "  \n", "\n\n", "<think>only thoughts</think>"])
@pytest.mark.parametrize("marks", [None, {"job_id": "j"}])
def test_nothing_is_no_message(gateway: Gateway, text: str, marks: dict[str, object] | None) -> None:
    """H7."""
    assert gateway.relay.outside(CHAT, text, marks) is None
    gateway.send(text, marks)
    assert gateway.told.take() == []


def test_a_jobs_result_is_the_jobs_also_during_a_run(running: Gateway) -> None:
    """H3."""
    running.send("talking", STREAMED)
    delivery = running.relay.outside(CHAT, "result", {"job_id": "j"})
    assert delivery is not None
    assert (delivery.text, delivery.origin, delivery.for_model) == ("result", Origin.CRON, True)
    assert delivery.role == "assistant"


def test_a_file_behind_something_that_was_delivered_belongs_to_it(gateway: Gateway) -> None:
    """R-I1: until the next run, and to that chat alone."""
    gateway.send("result", {"job_id": "j"})
    place = FilePlace(CONVERSATION, MessageId("n1"))
    assert places(gateway, "/c/1.png", "/c/2.png") == [place, place]
    assert places(gateway, "/c/1.png", chat=OTHER) == [FilePlace(conversation_of(OTHER), None)]
    gateway.begin()
    gateway.complete("done")
    assert places(gateway, "/c/3.png") == [FilePlace(CONVERSATION, None)]


def test_what_was_delivered_is_not_remembered_without_end(gateway: Gateway) -> None:
    """S4."""
    for number in range(MAX_DELIVERED + 10):
        gateway.relay.delivered(f"{number}", MessageId(f"n{number}"))
    assert len(gateway.relay._delivered) == MAX_DELIVERED
