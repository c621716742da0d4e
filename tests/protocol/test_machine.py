"""The interpreter of state tables."""

from __future__ import annotations

from enum import StrEnum

import pytest

from pheby_protocol.machine import IGNORE, REFUSE, RefusedTransition, Table, table


class Lamp(StrEnum):
    OFF = "off"
    ON = "on"
    BROKEN = "broken"


class Hand(StrEnum):
    PRESS = "press"
    TURN = "turn"
    DROP = "drop"


@pytest.fixture
def lamp() -> Table[Lamp, Hand]:
    return table(
        "lamp",
        Lamp,
        Hand,
        (Lamp.OFF,),
        {
            Lamp.OFF: ({Hand.PRESS: Lamp.ON, Hand.DROP: Lamp.BROKEN}, REFUSE),
            Lamp.ON: ({Hand.PRESS: Lamp.OFF, Hand.TURN: Lamp.ON, Hand.DROP: Lamp.BROKEN}, IGNORE),
            Lamp.BROKEN: ({}, IGNORE),
        },
    )


def test_an_event_moves_the_state(lamp: Table[Lamp, Hand]) -> None:
    assert lamp.next(Lamp.OFF, Hand.PRESS) is Lamp.ON
    assert lamp.next(Lamp.ON, Hand.PRESS) is Lamp.OFF


def test_an_ignored_event_leaves_the_state(lamp: Table[Lamp, Hand]) -> None:
    assert all(lamp.next(Lamp.BROKEN, event) is Lamp.BROKEN for event in Hand)


def test_a_refused_event_says_what_was_refused_where(lamp: Table[Lamp, Hand]) -> None:
    with pytest.raises(RefusedTransition, match="lamp: turn is refused in off"):
        lamp.next(Lamp.OFF, Hand.TURN)


def test_allowed_is_what_names_a_next_state(lamp: Table[Lamp, Hand]) -> None:
    assert lamp.allows(Lamp.OFF, Hand.PRESS)
    assert lamp.allows(Lamp.ON, Hand.TURN)
    assert not lamp.allows(Lamp.OFF, Hand.TURN)
    assert not lamp.allows(Lamp.BROKEN, Hand.PRESS)


def test_a_final_state_is_one_that_no_event_leaves(lamp: Table[Lamp, Hand]) -> None:
    assert lamp.final == {Lamp.BROKEN}


def test_a_state_that_only_moves_to_itself_is_final() -> None:
    rows = {Lamp.OFF: ({Hand.PRESS: Lamp.ON}, REFUSE), Lamp.ON: ({Hand.TURN: Lamp.ON}, REFUSE)}
    assert table("t", Lamp, Hand, (Lamp.OFF,), rows | {Lamp.BROKEN: ({}, IGNORE)}).final == {Lamp.ON, Lamp.BROKEN}


def test_every_state_has_a_cell_for_every_event(lamp: Table[Lamp, Hand]) -> None:
    assert set(lamp.cells) == {(state, event) for state in Lamp for event in Hand}
    assert lamp.cells[Lamp.OFF, Hand.TURN] is REFUSE
    assert lamp.cells[Lamp.ON, Hand.TURN] is Lamp.ON
    assert lamp.cells[Lamp.BROKEN, Hand.TURN] is IGNORE


def test_a_table_with_a_state_left_out_cannot_be_built() -> None:
    with pytest.raises(KeyError):
        table("t", Lamp, Hand, (Lamp.OFF,), {Lamp.OFF: ({}, IGNORE)})
