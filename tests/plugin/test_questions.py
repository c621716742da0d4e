"""What the owner sees of a clarification, and what Hermes is told (R-F1)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pheby_hermes.questions import MAX_LABEL_CHARS, MAX_QUESTION_CHARS, Question, answer, prompt

from pheby_server.ports import ClarificationPrompt

SKIP = "\0skipped"
COLOURS = ("red (Recommended)", "green", "blue")


def question(*choices: str, multiple: bool = False, skip_answer: str | None = None) -> Question:
    return Question("q1", "100", "agent:main:pheby:dm:100", choices, multiple, skip_answer, "c1")


def undecorated(label: str) -> str:
    return label.removesuffix(" (Recommended)")


def shown(text: str, *choices: str, redact: Any = str, **fields: Any) -> ClarificationPrompt:
    return prompt(question(*choices, **fields), text, redact, undecorated, None)


def told(asked: Question, *chosen: int, text: str | None = None, skip: bool = False) -> str | None:
    return answer(asked, chosen, text, skip=skip, undecorated=undecorated)


# What is shown


@pytest.mark.parametrize("multiple", [True, False])
def test_a_question_as_the_owner_sees_it(multiple: bool) -> None:
    asked = question(*COLOURS, multiple=multiple)
    assert prompt(asked, "Which colour?", str, undecorated, 9_000) == ClarificationPrompt(
        key="q1",
        question="Which colour?",
        labels=("red", "green", "blue"),
        multiple=multiple,
        free_text=True,
        skippable=False,
        call_id="c1",
        expires_at=9_000,
    )


@pytest.mark.parametrize(
    ("text", "skip_answer", "seen"),
    [
        ("Which?\nReply skip to skip.", SKIP, "Which?"),
        ("Which?\nOr none?\nReply skip to skip.", SKIP, "Which?\nOr none?"),
        ("Which?", SKIP, "Which?"),
        ("Which?\nOr none?", None, "Which?\nOr none?"),
    ],
)
def test_the_line_about_skipping_is_cut_where_there_is_skipping(text: str, skip_answer: str | None, seen: str) -> None:
    found = shown(text, skip_answer=skip_answer)
    assert (found.question, found.skippable) == (seen, skip_answer is not None)


def test_a_secret_does_not_escape_by_losing_its_end() -> None:
    """R-D3."""
    secret = "hunter2-" * 4

    def redact(text: str) -> str:
        return text.replace(secret, "***")

    found = shown(
        "x" * (MAX_QUESTION_CHARS - 8) + secret, "y" * (MAX_LABEL_CHARS - 8) + secret, f"is {secret}", redact=redact
    )
    assert "hunter2" not in repr(found)
    assert found.labels[1] == "is ***"


@pytest.mark.parametrize(("more", "cut"), [(0, False), (1, True)])
def test_long_texts_are_cut(more: int, cut: bool) -> None:
    end = "…" if cut else ""
    found = shown("x" * (MAX_QUESTION_CHARS + more), "y" * (MAX_LABEL_CHARS + more))
    assert found.question == "x" * MAX_QUESTION_CHARS + end
    assert found.labels == ("y" * MAX_LABEL_CHARS + end,)


def test_a_choice_without_a_label_has_its_number() -> None:
    assert shown("Which?", "red", "", " \n").labels == ("red", "(2)", "(3)")


def test_what_no_frame_can_carry_is_replaced() -> None:
    found = shown(" a\0b \ud83d\ude00 \ud83d ", "c\0d", "\udc00")
    assert (found.question, found.labels) == ("a\ufffdb 😀 \ufffd", ("c\ufffdd", "\ufffd"))


# What is answered


@pytest.mark.parametrize(
    ("chosen", "text", "said"),
    [([0], None, "red"), ([2], None, "blue"), ([], "[A] pink, über 漢字\nor so", "[A] pink, über 漢字\nor so")],
)
def test_one_answer_is_told_as_it_is(chosen: list[int], text: str | None, said: str) -> None:
    assert told(question(*COLOURS), *chosen, text=text) == said


@pytest.mark.parametrize(
    ("chosen", "text", "said"),
    [([2, 0], None, ["blue", "red"]), ([1], "and über 漢字", ["green", "and über 漢字"]), ([], "pink", ["pink"])],
)
def test_several_answers_are_an_array(chosen: list[int], text: str | None, said: list[str]) -> None:
    """Every pick and the text."""
    found = told(question(*COLOURS, multiple=True), *chosen, text=text)
    assert found is not None
    assert json.loads(found) == said
    assert "\\u" not in found


@pytest.mark.parametrize("multiple", [True, False])
@pytest.mark.parametrize("skip_answer", [SKIP, None])
def test_a_skip_is_hermess_own_word(multiple: bool, skip_answer: str | None) -> None:
    """Where Hermes has none, nothing else is told."""
    assert told(question(*COLOURS, multiple=multiple, skip_answer=skip_answer), skip=True) == skip_answer


@pytest.mark.parametrize("text", [SKIP, "\0cancelled", "\0", "", " ", "\n\t"])
def test_words_are_never_hermess_own_word_or_nothing(text: str) -> None:
    """Neither the owner's nor a choice's."""
    assert told(question(skip_answer=SKIP), text=text) is None
    assert told(question(text, skip_answer=SKIP), 0) is None
    array = told(question(multiple=True, skip_answer=SKIP), text=text)
    assert array is not None
    assert array.startswith("[")
    assert json.loads(array) == [text]


@pytest.mark.parametrize(("chosen", "text"), [([], None), ([0, 1], None), ([0], "and this")])
def test_no_answer_or_two_are_none(chosen: list[int], text: str | None) -> None:
    assert told(question(*COLOURS), *chosen, text=text) is None
