"""A tiny interpreter for state tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Generic, TypeVar

import attrs

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class Verdict(Enum):
    """What a cell of a table says when it names no next state."""

    IGNORE = "ignore"
    """The event is late or doubled; the state stays."""
    REFUSE = "refuse"
    """The event may not happen here; asking for it is the caller's mistake."""


IGNORE = Verdict.IGNORE
REFUSE = Verdict.REFUSE


class RefusedTransition(Exception):  # noqa: N818 - names what happened, as the tables do
    """The table refuses this event in this state."""

    def __init__(self, table: str, state: str, event: str) -> None:
        super().__init__(f"{table}: {event} is refused in {state}")


@attrs.frozen
class Table(Generic[S, E]):
    """One state machine: every state has a cell for every event."""

    name: str
    states: type[S]
    events: type[E]
    cells: Mapping[tuple[S, E], S | Verdict]
    born: tuple[S, ...]
    """The states in which a thing may begin; the first one is the initial."""

    @property
    def initial(self) -> S:
        return self.born[0]

    def next(self, state: S, event: E) -> S:
        """The state after the event; the same state when the event is ignored; RefusedTransition when it is refused."""
        cell = self.cells[state, event]
        if isinstance(cell, Verdict):
            if cell is REFUSE:
                raise RefusedTransition(self.name, state, event)
            return state
        return cell

    def allows(self, state: S, event: E) -> bool:
        """Whether the event moves this state."""
        return not isinstance(self.cells[state, event], Verdict)

    @property
    def final(self) -> frozenset[S]:
        """States that no event leaves."""
        leaving = {state for (state, _), cell in self.cells.items() if not isinstance(cell, Verdict) and cell != state}
        return frozenset(self.states) - leaving


def table(
    name: str,
    states: type[S],
    events: type[E],
    born: tuple[S, ...],
    rows: Mapping[S, tuple[Mapping[E, S | Verdict], Verdict]],
) -> Table[S, E]:
    """Build a table from rows: state -> (cells by event, verdict for every other event)."""
    cells: dict[tuple[S, E], S | Verdict] = {}
    for state in states:
        row, otherwise = rows[state]
        for event in events:
            cells[state, event] = row.get(event, otherwise)
    return Table(name, states, events, cells, born)
