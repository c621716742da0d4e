"""Whatever happens, in whatever order, a table stays within itself and ends once."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pheby_protocol.machine import RefusedTransition, Table
from pheby_protocol.open_enum import OpenEnum
from pheby_protocol.states import CONNECTION, RUN, TABLES, ConnectionEvent, ConnectionState, RunState

# A slow machine is no flaw.
unhurried = settings(deadline=None)

tables = st.sampled_from(TABLES)


@st.composite
def lives(draw: st.DrawFn) -> tuple[Table[Any, Any], list[Any]]:
    """A table, a state to begin in, and what happens then: [state before, event, state after, …]."""
    table = draw(tables)
    state = draw(st.sampled_from(list(table.states)))
    path = [state]
    for event in draw(st.lists(st.sampled_from(list(table.events)), max_size=30)):
        try:
            state = table.next(state, event)
        except RefusedTransition:
            assert not table.allows(state, event)
        path += [event, state]
    return table, path


@unhurried
@given(lives())
def test_a_state_stays_within_its_table(life: tuple[Table[Any, Any], list[Any]]) -> None:
    table, path = life
    assert all(state in set(table.states) for state in path[::2])


@unhurried
@given(lives())
def test_what_has_ended_stays_as_it_ended(life: tuple[Table[Any, Any], list[Any]]) -> None:
    table, path = life
    ends = [state for state in path[::2] if state in table.final]
    assert len(set(ends)) <= 1


@unhurried
@given(lives())
def test_only_what_is_allowed_moves(life: tuple[Table[Any, Any], list[Any]]) -> None:
    table, path = life
    for before, event, after in zip(path[::2], path[1::2], path[2::2], strict=False):
        assert before == after or table.allows(before, event)


@unhurried
@given(lives())
def test_any_life_can_still_end(life: tuple[Table[Any, Any], list[Any]]) -> None:
    table, path = life
    seen, waiting = set(), [path[-1]]
    while waiting:
        state = waiting.pop()
        if state not in seen:
            seen.add(state)
            waiting += [table.next(state, event) for event in table.events if table.allows(state, event)]
    assert seen & table.final


@unhurried
@given(st.lists(st.sampled_from(list(ConnectionEvent))))
def test_a_lost_connection_is_closed_whatever_came_before(events: list[ConnectionEvent]) -> None:
    state = CONNECTION.initial
    for event in events:
        if CONNECTION.allows(state, event):
            state = CONNECTION.next(state, event)
    assert CONNECTION.next(state, ConnectionEvent.LOST) is ConnectionState.CLOSED


@unhurried
@given(tables.filter(lambda table: issubclass(table.states, OpenEnum)), st.text())
def test_a_state_from_a_later_version_is_never_taken_for_an_end(table: Table[Any, Any], text: str) -> None:
    """M10."""
    state = table.states(text)
    assert state == text
    assert state.known == (text in {known.value for known in table.states})
    assert state.known or state not in table.final


@unhurried
@given(st.permutations(["complete", "fail", "cancelled", "cancel", "start"]))
def test_a_run_ends_once_however_its_ends_race(order: list[str]) -> None:
    state = RunState.RUNNING
    ends = []
    for event in order:
        after = RUN.next(state, RUN.events(event))
        if after in RUN.final and after is not state:
            ends.append(after)
        state = after
    assert len(ends) == 1
    assert state is ends[0]
