"""The state tables as data and as diagrams: exactly what the interpreter runs on."""

from __future__ import annotations

import json

import pytest

from pheby_protocol.export.tables import mermaid, states
from pheby_protocol.machine import IGNORE, REFUSE, Verdict
from pheby_protocol.states import ATTACHMENT, TABLES

EXPORTED = {table["name"]: table for table in states()["tables"]}


def test_every_table_in_its_order() -> None:
    assert list(EXPORTED) == [table.name for table in TABLES]
    assert json.loads(json.dumps(states())) == states()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_says_what_the_interpreter_does(table) -> None:  # type: ignore[no-untyped-def]
    found = EXPORTED[table.name]
    assert found["initial"] == table.initial.value
    assert found["born"] == [state.value for state in table.born]
    assert found["states"] == [state.value for state in table.states]
    assert found["events"] == [event.value for event in table.events]
    assert set(found["final"]) == {state.value for state in table.final}
    assert set(found["cells"]) == set(found["states"])
    for state in table.states:
        assert set(found["cells"][state.value]) == set(found["events"])
        for event in table.events:
            cell, written = table.cells[state, event], found["cells"][state.value][event.value]
            assert written == ({"verdict": cell.value} if isinstance(cell, Verdict) else {"next": cell.value})


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_diagram_shows_every_move_and_nothing_else(table) -> None:  # type: ignore[no-untyped-def]
    lines = mermaid(table).splitlines()
    moves = {
        f"    {state.value} --> {cell.value}: {event.value}"
        for (state, event), cell in table.cells.items()
        if cell not in (IGNORE, REFUSE)
    }
    begins = [f"    [*] --> {state.value}" for state in table.born]
    ends = {f"    {state.value} --> [*]" for state in table.final}
    assert lines[: 1 + len(begins)] == ["stateDiagram-v2", *begins]
    assert set(lines[1 + len(begins) :]) == moves | ends
    assert len(lines) == 1 + len(begins) + len(moves) + len(ends)


def test_a_small_diagram_whole() -> None:
    assert mermaid(ATTACHMENT) == (
        "stateDiagram-v2\n    [*] --> available\n    available --> expired: expire\n    expired --> [*]\n"
    )
