"""Hermes's clarifications: what is asked, cleaned for display, and an answer as Hermes takes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from pheby_server.ports import ClarificationPrompt

from .drafts import whole_characters
from .tool_calls import Redact

MAX_QUESTION_CHARS: Final = 8_000
MAX_LABEL_CHARS: Final = 1_000
MAX_CHOICES: Final = 64


@attrs.frozen
class Question:
    """One that waits for an answer. `choices` as Hermes gave them."""

    clarify_id: str
    chat_id: str
    session_key: str
    choices: tuple[str, ...]
    multiple: bool
    skip_answer: str | None
    """What skips it; None: it cannot be skipped."""
    call_id: str | None
    """The tool call that asks."""


def prompt(
    question: Question, text: str, redact: Redact, undecorated: Callable[[str], str], expires_at: int | None
) -> ClarificationPrompt:
    """What the owner sees of a question."""
    if question.skip_answer is not None:
        # A Hermes that knows skipping says how, in the last line: the owner has a button for it.
        text = text.rpartition("\n")[0] or text
    labels = [_bounded(redact(undecorated(choice)), MAX_LABEL_CHARS) for choice in question.choices]
    return ClarificationPrompt(
        key=question.clarify_id,
        question=_bounded(redact(text), MAX_QUESTION_CHARS),
        labels=tuple(label or f"({number})" for number, label in enumerate(labels, 1)),
        multiple=question.multiple,
        free_text=True,
        skippable=question.skip_answer is not None,
        call_id=question.call_id,
        expires_at=expires_at,
    )


def answer(
    question: Question, chosen: Sequence[int], text: str | None, *, skip: bool, undecorated: Callable[[str], str]
) -> str | None:
    """What Hermes is told; None when it would be something else than what the owner meant."""
    if skip:
        return question.skip_answer
    said = [undecorated(question.choices[number]) for number in chosen]
    said += [text] if text is not None else []
    if question.multiple:
        return json.dumps(said, ensure_ascii=False)
    # NUL begins Hermes's own words for skipped and cancelled; nothing at all counts as a timeout.
    return said[0] if len(said) == 1 and said[0].strip() and not said[0].startswith("\0") else None


def _bounded(text: str, size: int) -> str:
    text = whole_characters(text).replace("\0", "�").strip()
    return text if len(text) <= size else text[:size] + "…"
