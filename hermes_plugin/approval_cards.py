"""Which of Hermes's questions is which: hooks and cards joined; an oldest-first Hermes answers only the oldest.

Hermes tells of a question twice, by a hook (with the call and the pattern) and by a card (with what may be chosen), and
of its end once. Questions of one session come from several threads: a card is joined to the hook about its command.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final

import attrs

MAX_OPEN: Final = 64
_NOBODY: Final = ("cli", "smart", "transport:")
"""Surfaces of questions that come without a card: a terminal, a model that judges, a program."""


@attrs.frozen
class Asked:
    """What the hook told of a question."""

    number: int
    """In the order in which Hermes asked."""
    command: str
    patterns: tuple[str, ...]
    """All that `session` and `always` would allow."""
    call_id: str | None


@attrs.define(eq=False)
class Card:
    """One open question, from its card on."""

    key: str
    chat_id: str
    session_key: str
    asked: Asked | None
    question: object = None
    """Hermes's id of it, a text; or the question itself, on a Hermes that answers oldest first; None: not known."""
    answered: bool = False
    """Hermes has taken an answer and has not told of the end yet."""

    @property
    def number(self) -> float:
        return float("inf") if self.asked is None else self.asked.number


class ApprovalCards:
    """The open questions of all sessions of one platform."""

    def __init__(
        self, new_key: Callable[[], str], on_card: Callable[[str], str] = str, platform: str = "pheby"
    ) -> None:
        self._new_key = new_key
        self._on_card = on_card
        """A command as a card shows it."""
        self._platform = f":{platform}:"
        self._numbers = itertools.count()
        self._asked: dict[str, list[Asked]] = {}
        """Told by a hook, no card yet; by session key."""
        self._cards: dict[str, list[Card]] = {}
        """By session key, in the order in which Hermes asked."""

    def asked(self, facts: Mapping[str, object]) -> None:
        """`pre_approval_request`: always before the card."""
        session_key = _text(facts, "session_key")
        # One that waits for the answer to another of the same command has no card.
        if self._platform not in session_key or facts.get("coalesced") or _text(facts, "surface").startswith(_NOBODY):
            return
        waiting = self._asked.setdefault(session_key, [])
        waiting.append(
            Asked(next(self._numbers), _text(facts, "command"), _patterns(facts), _text(facts, "tool_call_id") or None)
        )
        del waiting[:-MAX_OPEN]

    def shown(self, chat_id: str, session_key: str, command: str) -> Card:
        """A card: of the oldest question about this command that has none."""
        waiting = self._asked.get(session_key, [])
        asked = next((asked for asked in waiting if self._on_card(asked.command) == command), None)
        if asked is not None:
            waiting.remove(asked)
        card = Card(self._new_key(), chat_id, session_key, asked)
        cards = self._cards.setdefault(session_key, [])
        cards.append(card)
        cards.sort(key=lambda card: card.number)
        self._tidy(session_key)
        return card

    def taken(self, session_key: str) -> list[object]:
        """The questions of Hermes's that have their card."""
        return [card.question for card in self._cards.get(session_key, ())]

    def over(self, facts: Mapping[str, object]) -> Card | None:
        """`post_approval_response`: the card of the question that is over."""
        session_key, command = _text(facts, "session_key"), _text(facts, "command")
        call_id = _text(facts, "tool_call_id") or None
        if facts.get("coalesced"):
            return None
        cards = [
            card
            for card in self._cards.get(session_key, ())
            if card.asked is not None and (card.asked.command, card.asked.call_id) == (command, call_id)
        ]
        over = next((card for card in cards if card.answered), cards[0] if cards else None)
        if over is not None:
            # Of two alike, the end is that of the one that was answered.
            self._cards[session_key].remove(over)
        else:
            for waiting in self._asked.get(session_key, ()):
                if (waiting.command, waiting.call_id) == (command, call_id):
                    # It was over before its card came.
                    self._asked[session_key].remove(waiting)
                    break
        self._tidy(session_key)
        return over

    def named(self, key: str) -> Card | None:
        """The open question with this key."""
        return next((card for cards in self._cards.values() for card in cards if card.key == key), None)

    def answerable(self, card: Card) -> bool:
        """Whether an answer now would reach exactly this question: by its id always, else only the oldest."""
        if card.answered or card.question is None:
            return False
        if isinstance(card.question, str):
            return True
        waiting = self._asked.get(card.session_key, ())
        return self.oldest(card.session_key) is card and all(asked.number > card.number for asked in waiting)

    def oldest(self, session_key: str) -> Card | None:
        """The session's oldest question without an answer."""
        return next((card for card in self._cards.get(session_key, ()) if not card.answered), None)

    def forget(self, chat_id: str) -> list[Card]:
        """Nothing runs in a chat any more: its questions, which nobody waits for now."""
        over = [card for cards in self._cards.values() for card in cards if card.chat_id == chat_id]
        for session_key in {card.session_key for card in over}:
            del self._cards[session_key]
        for session_key in [key for key in self._asked if key.endswith(f":{chat_id}")]:
            del self._asked[session_key]
        return over

    def _tidy(self, session_key: str) -> None:
        for table in (self._asked, self._cards):
            if not table.get(session_key):
                table.pop(session_key, None)


def _patterns(facts: Mapping[str, object]) -> tuple[str, ...]:
    keys = facts.get("pattern_keys")
    if isinstance(keys, list | tuple) and keys:
        return tuple(str(key) for key in keys)
    one = _text(facts, "pattern_key")
    return (one,) if one else ()


def _text(facts: Mapping[str, object], name: str) -> str:
    value = facts.get(name)
    return value if isinstance(value, str) else ""
