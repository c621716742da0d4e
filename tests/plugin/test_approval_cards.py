"""Which of Hermes's questions is which: an answer reaches the question that was meant or none (R-E2, D3)."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pheby_hermes.approval_cards import MAX_OPEN, ApprovalCards, Card

CHAT, SESSION, OTHER = "100", "agent:main:pheby:dm:100", "agent:main:pheby:dm:200"


def cards(redact: Any = str) -> ApprovalCards:
    numbers = itertools.count(1)
    return ApprovalCards(lambda: f"k{next(numbers)}", redact)


def facts(command: str, call_id: str = "c1", session_key: str = SESSION, **more: Any) -> dict[str, Any]:
    return {
        "command": command,
        "tool_call_id": call_id,
        "session_key": session_key,
        "pattern_key": "recursive delete",
        "surface": "gateway",
        **more,
    }


def ask(desk: ApprovalCards, command: str, call_id: str = "c1", question: object = None) -> Card:
    """On a Hermes without ids, unless `question` is one."""
    desk.asked(facts(command, call_id))
    card = desk.shown(CHAT, SESSION, command)
    card.question = question or object()
    return card


def test_a_card_knows_the_call_and_the_pattern_that_the_hook_told() -> None:
    card = ask(cards(), "rm a", "c7")
    assert card.asked is not None
    assert (card.asked.call_id, card.asked.patterns) == ("c7", ("recursive delete",))


def test_a_card_without_a_hook_is_a_card() -> None:
    """D3."""
    desk = cards()
    card = desk.shown(CHAT, SESSION, "rm a")
    assert (card.asked, desk.named(card.key)) == (None, card)
    assert not desk.answerable(card)
    card.question = object()
    assert desk.answerable(card)


def test_two_threads_whose_cards_come_the_other_way_round() -> None:
    """Two agents of one session ask at once: the hooks in one order, the cards in the other."""
    desk = cards()
    desk.asked(facts("rm a", "c1"))
    desk.asked(facts("rm b", "c2"))
    second, first = desk.shown(CHAT, SESSION, "rm b"), desk.shown(CHAT, SESSION, "rm a")
    assert [card.asked and card.asked.call_id for card in (first, second)] == ["c1", "c2"]
    first.question = second.question = object()
    assert desk.oldest(SESSION) is first
    assert (desk.answerable(first), desk.answerable(second)) == (True, False)


def test_a_card_takes_no_question_about_another_command() -> None:
    desk = cards()
    desk.asked(facts("rm a"))
    assert desk.shown(CHAT, SESSION, "rm b").asked is None


def test_all_patterns_are_known() -> None:
    """`session` allows them all."""
    desk = cards()
    desk.asked(facts("rm a", pattern_keys=["recursive delete", "delete in root path"]))
    asked = desk.shown(CHAT, SESSION, "rm a").asked
    assert asked is not None
    assert asked.patterns == ("recursive delete", "delete in root path")


def test_a_card_shows_its_command_masked() -> None:
    desk = cards(lambda text: text.replace("hunter2", "***"))
    desk.asked(facts("rm a", "c1"))
    desk.asked(facts("curl hunter2", "c2"))
    card = desk.shown(CHAT, SESSION, "curl ***")
    assert card.asked is not None
    assert (card.asked.command, card.asked.call_id) == ("curl hunter2", "c2")


def test_only_the_oldest_is_answerable_where_hermes_has_no_ids() -> None:
    desk = cards()
    first, second = ask(desk, "rm a", "c1"), ask(desk, "rm b", "c2")
    assert (desk.answerable(first), desk.answerable(second)) == (True, False)
    assert desk.over(facts("rm a", "c1")) is first
    assert desk.answerable(second)


def test_nothing_is_answerable_while_an_older_question_has_no_card_yet() -> None:
    desk = cards()
    desk.asked(facts("rm a", "c1"))
    second = ask(desk, "rm b", "c2")
    assert not desk.answerable(second)
    first = desk.shown(CHAT, SESSION, "rm a")
    first.question = object()
    assert (desk.answerable(first), desk.answerable(second)) == (True, False)


def test_with_ids_every_question_is_answerable_until_it_was_answered() -> None:
    desk = cards()
    first, second = ask(desk, "rm a", "c1"), ask(desk, "rm b", "c2")
    first.question, second.question = "r1", "r2"
    assert desk.answerable(second)
    second.answered = True
    assert (desk.answerable(first), desk.answerable(second)) == (True, False)


def test_the_next_is_the_oldest_once_the_first_was_answered() -> None:
    """Before Hermes's thread has told of the first one's end."""
    desk = cards()
    first, second = ask(desk, "rm a", "c1"), ask(desk, "rm a", "c1")
    first.answered = True
    assert desk.oldest(SESSION) is second
    assert desk.over(facts("rm a", "c1")) is first
    assert desk.named(second.key) is second


def test_of_two_alike_the_end_is_that_of_the_answered_one() -> None:
    desk = cards()
    first, second = ask(desk, "rm a", ""), ask(desk, "rm a", "")
    first.question, second.question = "r1", "r2"
    second.answered = True
    assert desk.over(facts("rm a", "")) is second
    assert desk.over(facts("rm a", "")) is first
    assert desk.over(facts("rm a", "")) is None


def test_a_question_that_was_over_before_its_card() -> None:
    desk = cards()
    desk.asked(facts("rm a"))
    assert desk.over(facts("rm a")) is None
    card = ask(desk, "rm b", "c2")
    assert desk.answerable(card)


def test_the_end_of_an_unknown_question_ends_no_other() -> None:
    desk = cards()
    card = ask(desk, "rm a", "c1")
    assert desk.over(facts("rm b", "c2")) is None
    assert desk.over(facts("rm a", "c1", OTHER)) is None
    assert desk.named(card.key) is card


def test_a_question_that_only_a_model_judges_is_none() -> None:
    desk = cards()
    desk.asked(facts("rm a", surface="smart"))
    desk.asked(facts("rm a", surface="cli"))
    desk.asked(facts("rm a", surface="transport:x"))
    desk.asked(facts("rm a", coalesced=True))
    desk.asked(facts("rm a", session_key="agent:main:telegram:dm:100"))
    desk.asked(facts("rm a", session_key=""))
    assert desk.shown(CHAT, SESSION, "rm a").asked is None


def test_a_chat_where_nothing_runs_has_no_questions() -> None:
    desk = cards()
    card = ask(desk, "rm a")
    assert desk.forget("another") == []
    assert desk.forget(CHAT) == [card]
    assert desk.named(card.key) is None
    assert desk.forget(CHAT) == []


def test_a_question_of_an_outside_tool_is_one_too() -> None:
    desk = cards()
    desk.asked(facts("Send it?", surface="mcp-elicitation"))
    card = desk.shown(CHAT, SESSION, "Send it?")
    assert desk.over(facts("Send it?", surface="mcp-elicitation", choice="timeout")) is card


def test_one_that_waits_for_the_answer_to_another_ends_none() -> None:
    desk = cards()
    card = ask(desk, "rm a", "")
    assert desk.over(facts("rm a", "", coalesced=True)) is None
    assert desk.named(card.key) is card


def test_questions_without_a_card_are_forgotten_too() -> None:
    desk = cards()
    desk.asked(facts("rm a"))
    assert desk.forget(CHAT) == []
    assert desk.shown(CHAT, SESSION, "rm a").asked is None


def test_hooks_without_cards_are_bounded() -> None:
    desk = cards()
    for number in range(MAX_OPEN + 10):
        desk.asked(facts(f"rm {number}"))
    found = [desk.shown(CHAT, SESSION, f"rm {number}").asked is not None for number in range(MAX_OPEN + 10)]
    assert found == [False] * 10 + [True] * MAX_OPEN


@given(st.lists(st.sampled_from(["ask", "answer", "end"]), max_size=30), st.data())
def test_whatever_happens_at_most_the_oldest_is_answerable_and_it_is_hermess_oldest(
    steps: list[str], data: st.DataObject
) -> None:
    """R-E2, on an oldest-first Hermes: a model of its queue beside it."""
    desk = cards()
    queue: list[Card] = []
    ending: list[Card] = []
    for number, step in enumerate(steps):
        if step == "ask":
            queue.append(ask(desk, f"rm {number}", f"c{number}"))
        elif step == "answer" and queue:
            queue[0].answered = True
            ending.append(queue.pop(0))
        elif step == "end" and ending:
            over = ending.pop(data.draw(st.integers(0, len(ending) - 1)))
            assert over.asked is not None
            assert desk.over(facts(over.asked.command, over.asked.call_id or "")) is over
        answerable = [card for card in [*queue, *ending] if desk.answerable(card)]
        assert answerable == queue[:1]
