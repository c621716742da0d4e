"""Every state table: total, reachable, able to end, and as the architecture and the wire contract name its states."""

from __future__ import annotations

from typing import Any

import pytest

from pheby_protocol import states
from pheby_protocol.machine import IGNORE, RefusedTransition, Table, Verdict
from pheby_protocol.messages.approval import PromptStatus
from pheby_protocol.states import (
    APPROVAL,
    ATTACHMENT,
    CLARIFICATION,
    CONNECTION,
    RECEIPT,
    RUN,
    TABLES,
    TOOL_CALL,
    ApprovalEvent,
    ApprovalState,
    ClarificationEvent,
    ClarificationState,
    ConnectionEvent,
    ConnectionState,
    ReceiptEvent,
    ReceiptState,
    RunEvent,
    RunState,
)

from .examples import words

# name: (states that something passes, states that end it)
DOCUMENTED = {
    "connection": ("awaiting_hello ready draining closing", "closed"),
    "run": ("queued running waiting cancelling", "completed failed cancelled"),
    "message": ("queued streaming", "completed failed cancelled"),
    "tool_call": ("running", "completed failed cancelled"),
    "approval": ("queued pending resolving", "resolved expired cancelled"),
    "clarification": ("pending resolving", "resolved expired cancelled"),
    "attachment": ("available", "expired"),
    "receipt": ("admitted dispatched", "done indeterminate expired"),
}
"""As the architecture lists them."""

each_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


def reachable(table: Table[Any, Any], start: set[Any]) -> set[Any]:
    found: set[Any] = set()
    waiting = list(start)
    while waiting:
        state = waiting.pop()
        if state not in found:
            found.add(state)
            waiting += [table.next(state, event) for event in table.events if table.allows(state, event)]
    return found


def test_every_documented_table_is_there() -> None:
    assert [table.name for table in TABLES] == list(DOCUMENTED)


def test_no_table_is_left_out() -> None:
    assert {id(value) for value in vars(states).values() if isinstance(value, Table)} == set(map(id, TABLES))


@each_table
def test_the_documented_states_and_ends(table: Table[Any, Any]) -> None:
    passing, ends = map(set, map(words, DOCUMENTED[table.name]))
    assert {state.value for state in table.states} >= passing | ends
    assert {state.value for state in table.final} == ends


@each_table
def test_a_table_is_total(table: Table[Any, Any]) -> None:
    assert set(table.cells) == {(state, event) for state in table.states for event in table.events}
    for cell in table.cells.values():
        assert isinstance(cell, Verdict | table.states)


@each_table
def test_every_state_is_reachable(table: Table[Any, Any]) -> None:
    assert reachable(table, set(table.born)) == set(table.states)


@each_table
def test_a_second_state_to_begin_in_is_one_that_nothing_leads_to(table: Table[Any, Any]) -> None:
    assert not set(table.born[1:]) & reachable(table, {table.initial})


@each_table
def test_every_state_can_end(table: Table[Any, Any]) -> None:
    assert table.final
    for state in table.states:
        assert reachable(table, {state}) & table.final, state


@each_table
def test_a_final_state_ignores_everything(table: Table[Any, Any]) -> None:
    for state in table.final:
        assert all(table.cells[state, event] is IGNORE for event in table.events)


@each_table
def test_every_event_moves_something(table: Table[Any, Any]) -> None:
    for event in table.events:
        assert any(table.allows(state, event) for state in table.states), event


@each_table
def test_allows_agrees_with_next(table: Table[Any, Any]) -> None:
    for state in table.states:
        for event in table.events:
            try:
                after = table.next(state, event)
            except RefusedTransition:
                assert not table.allows(state, event)
            else:
                assert table.allows(state, event) or after is state


@each_table
def test_states_that_a_client_sees_are_open(table: Table[Any, Any]) -> None:
    """M10. What a client sees is an open enumeration; approvals and clarifications show a PromptStatus."""
    closed = {CONNECTION.name, APPROVAL.name, CLARIFICATION.name}
    assert issubclass(table.states, states.OpenEnum) != (table.name in closed)


@pytest.mark.parametrize("table", [APPROVAL, CLARIFICATION], ids=lambda table: table.name)
def test_the_ends_of_a_prompt_are_what_its_status_shows(table: Table[Any, Any]) -> None:
    assert {state.value for state in table.final} | {"pending"} == {status.value for status in PromptStatus}


# -- connection


def test_a_connection_goes_from_hello_to_closed() -> None:
    state = CONNECTION.initial
    seen = [state]
    for event in ("hello", "synced", "drain", "close", "lost"):
        state = CONNECTION.next(state, ConnectionEvent(event))
        seen.append(state)
    assert tuple(seen) == words("awaiting_hello syncing ready draining closing closed")


@pytest.mark.parametrize("state", ConnectionState)
def test_a_line_can_be_lost_at_any_time(state: ConnectionState) -> None:
    assert CONNECTION.next(state, ConnectionEvent.LOST) is ConnectionState.CLOSED


@pytest.mark.parametrize("state", [state for state in ConnectionState if state is not ConnectionState.CLOSED])
def test_a_side_can_close_at_any_time(state: ConnectionState) -> None:
    assert CONNECTION.next(state, ConnectionEvent.CLOSE) is ConnectionState.CLOSING


def test_nothing_is_in_step_before_hello() -> None:
    with pytest.raises(RefusedTransition):
        CONNECTION.next(ConnectionState.AWAITING_HELLO, ConnectionEvent.SYNCED)


@pytest.mark.parametrize("state", [ConnectionState.SYNCING, ConnectionState.READY, ConnectionState.DRAINING])
def test_hello_comes_once(state: ConnectionState) -> None:
    with pytest.raises(RefusedTransition):
        CONNECTION.next(state, ConnectionEvent.HELLO)


# -- run


@pytest.mark.parametrize("end", [RunEvent.COMPLETE, RunEvent.FAIL, RunEvent.CANCELLED])
def test_a_cancel_can_lose_the_race(end: RunEvent) -> None:
    assert RUN.next(RunState.CANCELLING, end) in RUN.final


@pytest.mark.parametrize("late", [RunEvent.START, RunEvent.WAIT, RunEvent.CONTINUE, RunEvent.CANCEL])
def test_a_run_that_is_being_cancelled_stays_so_until_it_ends(late: RunEvent) -> None:
    assert RUN.next(RunState.CANCELLING, late) is RunState.CANCELLING


def test_a_run_waits_and_goes_on() -> None:
    waiting = RUN.next(RunState.RUNNING, RunEvent.WAIT)
    assert waiting is RunState.WAITING
    assert RUN.next(waiting, RunEvent.CONTINUE) is RunState.RUNNING


def test_a_queued_run_is_cancelled_at_once() -> None:
    assert RUN.next(RunState.QUEUED, RunEvent.CANCELLED) is RunState.CANCELLED


@pytest.mark.parametrize("event", [RunEvent.WAIT, RunEvent.CONTINUE, RunEvent.COMPLETE])
def test_a_queued_run_has_not_begun(event: RunEvent) -> None:
    with pytest.raises(RefusedTransition):
        RUN.next(RunState.QUEUED, event)


def test_an_unknown_run_state_is_no_state_of_the_table() -> None:
    """M10. It is never taken for an end."""
    assert RunState("paused") not in RUN.final


# -- prompts


@pytest.mark.parametrize(
    ("table", "state", "event"),
    [
        (APPROVAL, ApprovalState.RESOLVING, ApprovalEvent.ANSWER),
        (CLARIFICATION, ClarificationState.RESOLVING, ClarificationEvent.ANSWER),
    ],
)
def test_the_first_answer_wins(table: Table[Any, Any], state: Any, event: Any) -> None:
    with pytest.raises(RefusedTransition):
        table.next(state, event)


def test_a_failed_answer_leaves_the_prompt_open() -> None:
    assert APPROVAL.next(ApprovalState.RESOLVING, ApprovalEvent.ANSWER_FAILED) is ApprovalState.PENDING
    assert CLARIFICATION.next(ClarificationState.RESOLVING, ClarificationEvent.ANSWER_FAILED).value == "pending"


def test_a_queued_approval_cannot_be_answered_before_its_turn() -> None:
    with pytest.raises(RefusedTransition):
        APPROVAL.next(ApprovalState.QUEUED, ApprovalEvent.ANSWER)
    assert APPROVAL.next(ApprovalState.QUEUED, ApprovalEvent.PROMOTE) is ApprovalState.PENDING


@pytest.mark.parametrize("state", [ApprovalState.QUEUED, ApprovalState.PENDING, ApprovalState.RESOLVING])
@pytest.mark.parametrize("event", [ApprovalEvent.RESOLVE, ApprovalEvent.EXPIRE, ApprovalEvent.CANCEL])
def test_an_open_approval_can_be_decided_elsewhere(state: ApprovalState, event: ApprovalEvent) -> None:
    assert APPROVAL.next(state, event) in APPROVAL.final


# -- the rest


def test_a_receipt_takes_the_ways_of_the_contract_and_no_other() -> None:
    moves = {(state.value, cell.value) for (state, _), cell in RECEIPT.cells.items() if isinstance(cell, ReceiptState)}
    assert moves == {
        ("admitted", "dispatched"),
        ("admitted", "expired"),
        # Cancelled while it waited.
        ("admitted", "done"),
        ("dispatched", "done"),
        ("dispatched", "indeterminate"),
    }


def test_what_was_handed_over_never_lapses() -> None:
    with pytest.raises(RefusedTransition):
        RECEIPT.next(ReceiptState.DISPATCHED, ReceiptEvent.LAPSE)


def test_what_was_not_handed_over_is_never_indeterminate() -> None:
    with pytest.raises(RefusedTransition):
        RECEIPT.next(ReceiptState.ADMITTED, ReceiptEvent.LOSE_SIGHT)


@pytest.mark.parametrize("table", [TOOL_CALL, ATTACHMENT], ids=lambda table: table.name)
def test_what_has_one_open_state_ends_with_any_event(table: Table[Any, Any]) -> None:
    assert {table.next(table.initial, event) for event in table.events} == table.final
