"""The state tables as data, and as diagrams."""

from __future__ import annotations

from typing import Any

from pheby_protocol.machine import Table, Verdict
from pheby_protocol.states import TABLES


def states() -> dict[str, Any]:
    """Every table: states, events, initial and final ones, and for each state and event the next state or a verdict."""
    return {"tables": [_table(table) for table in TABLES]}


def mermaid(table: Table[Any, Any]) -> str:
    """A state diagram of one table; late and refused events are left out."""
    lines = ["stateDiagram-v2", *(f"    [*] --> {state.value}" for state in table.born)]
    for (state, event), cell in table.cells.items():
        if not isinstance(cell, Verdict):
            lines.append(f"    {state.value} --> {cell.value}: {event.value}")
    lines += [f"    {state.value} --> [*]" for state in table.states if state in table.final]
    return "\n".join(lines) + "\n"


def _table(table: Table[Any, Any]) -> dict[str, Any]:
    return {
        "name": table.name,
        "initial": table.initial.value,
        "born": [state.value for state in table.born],
        "states": [state.value for state in table.states],
        "final": [state.value for state in table.states if state in table.final],
        "events": [event.value for event in table.events],
        "cells": {
            state.value: {event.value: _cell(table.cells[state, event]) for event in table.events}
            for state in table.states
        },
    }


def _cell(cell: Any) -> dict[str, str]:
    return {"verdict": cell.value} if isinstance(cell, Verdict) else {"next": cell.value}
