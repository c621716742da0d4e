"""Which row of Hermes's database is which message that was seen live.

The rows decide which messages a conversation has, the live messages had their ids first. After a run both are put side
by side, in order. What finds no partner stays unbound: a notice that Hermes never stored, a row that nobody saw.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Literal, TypeAlias

from attrs import frozen

from .history import HistoryRow

# Above this many comparisons a run is so long that the first equal row in order is good enough.
MAX_COMPARISONS = 250_000
MAX_JOINED_MESSAGES = 16
MAX_SKIPPED_MESSAGES = 64


@frozen
class LiveMessage:
    """A message as it was shown; a user's `message_id` is the one that Hermes was given with it."""

    message_id: str
    role: Literal["user", "assistant"]
    text: str


@frozen
class Bound:
    """Message `message_id` is the row `key`. Several messages may be one row that was shown in parts."""

    message_id: str
    key: str


Pair: TypeAlias = tuple[int, int]


def bind(live: Sequence[LiveMessage], rows: Sequence[HistoryRow], bound: Container[str]) -> list[Bound]:
    """Binds the messages of one run to the rows that are not bound yet, in order; leftovers on both sides stay."""
    free = [row for row in rows if not any(key in bound for key in row.keys)]
    pairs = _bind_users([m for m in live if m.role == "user"], [row for row in free if row.role == "user"])
    replies = [row for row in free if row.role == "assistant" and row.text]
    pairs += _bind_replies([m for m in live if m.role == "assistant"], replies)
    order = {message.message_id: number for number, message in reversed(list(enumerate(live)))}
    return sorted(pairs, key=lambda pair: order[pair.message_id])


def _bind_users(live: Sequence[LiveMessage], rows: Sequence[HistoryRow]) -> list[Bound]:
    """By the id where Hermes stores it; else in order, by the text, which Hermes may have put something in front of."""
    by_id = {row.message_id: row for row in reversed(rows) if row.message_id}
    found = [
        Bound(message.message_id, by_id[message.message_id].key) for message in live if message.message_id in by_id
    ]
    known, taken = {pair.message_id for pair in found}, {pair.key for pair in found}
    rest = [row for row in rows if row.key not in taken and row.message_id is None]
    for message in live:
        said = _bare(message.text)
        if message.message_id in known or not said:
            continue
        at = next((i for i, row in enumerate(rest) if _bare(row.text).endswith(said)), None)
        if at is not None:
            found.append(Bound(message.message_id, rest[at].key))
            rest = rest[at + 1 :]
    return found


def _bind_replies(live: Sequence[LiveMessage], rows: Sequence[HistoryRow]) -> list[Bound]:
    shown, stored = [_bare(message.text) for message in live], [_bare(row.text) for row in rows]
    equal = _equal_in_order(shown, stored)
    pairs: list[Pair] = []
    start = (0, 0)
    # What is equal is certain; what only resembles is looked for between two certain pairs.
    for anchor in [*equal, (len(shown), len(stored))]:
        pairs += _similar_in_order(shown, stored, rows, start, anchor)
        start = (anchor[0] + 1, anchor[1] + 1)
    return [Bound(live[i].message_id, rows[j].key) for i, j in sorted([*equal, *pairs])]


def _equal_in_order(left: Sequence[str], right: Sequence[str]) -> list[Pair]:
    """The longest sequence of equal, not empty texts that keeps the order on both sides."""
    if len(left) * len(right) > MAX_COMPARISONS:
        return _first_equal(left, right)
    lengths = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in reversed(range(len(left))):
        for j in reversed(range(len(right))):
            same = left[i] != "" and left[i] == right[j]
            lengths[i][j] = lengths[i + 1][j + 1] + 1 if same else max(lengths[i + 1][j], lengths[i][j + 1])
    pairs: list[Pair] = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] != "" and left[i] == right[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _first_equal(left: Sequence[str], right: Sequence[str]) -> list[Pair]:
    places: dict[str, list[int]] = {}
    for j in reversed(range(len(right))):
        places.setdefault(right[j], []).append(j)
    pairs: list[Pair] = []
    behind = 0
    for i, text in enumerate(left):
        candidates = places.get(text, []) if text else []
        while candidates and candidates[-1] < behind:
            candidates.pop()
        if candidates:
            pairs.append((i, candidates.pop()))
            behind = pairs[-1][1] + 1
    return pairs


def _similar_in_order(
    shown: Sequence[str], stored: Sequence[str], rows: Sequence[HistoryRow], start: Pair, stop: Pair
) -> list[Pair]:
    pairs: list[Pair] = []
    at = start[0]
    for j in range(start[1], stop[1]):
        for i in range(at, min(stop[0], at + MAX_SKIPPED_MESSAGES)):
            if taken := _resembles(shown[i : min(stop[0], i + MAX_JOINED_MESSAGES)], stored[j], rows[j]):
                pairs += [(i + k, j) for k in range(taken)]
                at = i + taken
                break
    return pairs


def _resembles(shown: Sequence[str], stored: str, row: HistoryRow) -> int:
    """How many messages from the first on are the row; 0 for none."""
    first = shown[0]
    if not first or not stored:
        return 0
    if first.startswith(stored):
        return 1  # a footer that is shown and not stored
    if row.mark == "interrupted" and stored.startswith(first):
        return 1  # more had come than was shown
    together = ""
    for count, text in enumerate(shown, 1):
        together += text
        if together == stored:
            return count
        if not stored.startswith(together):
            break
    return 0


_NOT_COMPARED = re.compile(r"MEDIA:\S*|\s+")


def _bare(text: str) -> str:
    """What of a text is compared: no white space, of which Hermes adds and takes, and no MEDIA tag."""
    return _NOT_COMPARED.sub("", text)
