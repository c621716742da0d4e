"""Which of Hermes's questions is which: hooks and cards joined; an oldest-first Hermes answers only the oldest.

Hermes tells of a question twice, by a hook (with the call and the pattern) and by a card (with what may be chosen), and
of its end once. On 0.19 an answer goes to the oldest question of the session, whichever was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

MAX_OPEN: Final = 64


@attrs.frozen
class Asked:
    """What the hook told of a question."""

    command: str
    pattern: str | None
    call_id: str | None


@attrs.define(eq=False)
class Card:
    """One open question, from its card on."""

    key: str
    chat_id: str
    session_key: str
    asked: Asked | None
    request_id: str | None = None
    """Hermes's own id of the question, on a Hermes that answers by id."""
    answered: bool = False
    """Hermes has taken an answer and has not told of the end yet."""


class ApprovalCards:
    """The open questions of all sessions, oldest first in each."""

    def __init__(self, new_key: Callable[[], str], redact: Callable[[str], str] = str) -> None:
        self._new_key = new_key
        self._redact = redact
        self._asked: dict[str, list[Asked]] = {}
        """Told by a hook, no card yet."""
        self._cards: dict[str, list[Card]] = {}

    def asked(self, facts: Mapping[str, object]) -> None:
        """`pre_approval_request`: always before the card."""
        session_key, command = _text(facts, "session_key"), _text(facts, "command")
        # A judging model that approves by itself ("smart") asks nobody.
        if not session_key or _text(facts, "surface") not in ("", "gateway"):
            return
        waiting = self._asked.setdefault(session_key, [])
        waiting.append(Asked(command, _text(facts, "pattern_key") or None, _text(facts, "tool_call_id") or None))
        del waiting[:-MAX_OPEN]

    def shown(self, chat_id: str, session_key: str, command: str) -> Card:
        """A card: of the oldest question about this command that has none, else of the oldest question at all."""
        waiting = self._asked.get(session_key, [])
        # Hermes masks secrets on cards, not in hooks.
        shown = self._redact(command)
        about = [asked for asked in waiting if self._redact(asked.command) == shown] or waiting
        asked = about[0] if about else None
        if asked is not None:
            self._asked[session_key] = [other for other in waiting if other is not asked]
        card = Card(self._new_key(), chat_id, session_key, asked)
        self._cards.setdefault(session_key, []).append(card)
        return card

    def over(self, facts: Mapping[str, object]) -> Card | None:
        """`post_approval_response`: the card of the question that is over."""
        session_key, command = _text(facts, "session_key"), _text(facts, "command")
        call_id = _text(facts, "tool_call_id") or None
        cards = [
            card
            for card in self._cards.get(session_key, ())
            if card.asked is not None and (card.asked.command, card.asked.call_id) == (command, call_id)
        ]
        if cards:
            # Of two alike, the end is that of the one that was answered.
            over = next((card for card in cards if card.answered), cards[0])
            self._cards[session_key].remove(over)
            return over
        for waiting in self._asked.get(session_key, ()):
            if (waiting.command, waiting.call_id) == (command, call_id):
                # It was over before its card came.
                self._asked[session_key].remove(waiting)
                break
        return None

    def named(self, key: str) -> Card | None:
        """The open question with this key."""
        return next((card for cards in self._cards.values() for card in cards if card.key == key), None)

    def answerable(self, card: Card) -> bool:
        """Whether an answer now would reach exactly this question.

        By its request id always; else only the oldest, and only while every question that Hermes told of has its card.
        """
        if card.answered:
            return False
        if card.request_id is not None:
            return True
        return self.oldest(card.session_key) is card and not self._asked.get(card.session_key)

    def oldest(self, session_key: str) -> Card | None:
        """The session's oldest question without an answer."""
        return next((card for card in self._cards.get(session_key, ()) if not card.answered), None)

    def forget(self, chat_id: str) -> list[Card]:
        """Nothing runs in a chat any more: its questions, which nobody waits for now."""
        over = [card for cards in self._cards.values() for card in cards if card.chat_id == chat_id]
        for session_key in {card.session_key for card in over}:
            del self._cards[session_key]
            self._asked.pop(session_key, None)
        return over


def _text(facts: Mapping[str, object], name: str) -> str:
    value = facts.get(name)
    return value if isinstance(value, str) else ""
