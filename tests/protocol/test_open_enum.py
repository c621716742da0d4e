"""Enumerations that keep values they do not know (M10)."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from pheby_protocol.open_enum import OpenEnum
from pheby_protocol.states import RunState

from .examples import ALL_CLASSES

OPEN_ENUMS = sorted(
    (kind for kind in ALL_CLASSES if issubclass(kind, OpenEnum)),
    key=lambda kind: kind.__name__,
)


def test_a_known_value_is_its_member() -> None:
    assert RunState("running") is RunState.RUNNING
    assert RunState.RUNNING.known


@pytest.mark.parametrize("value", ["paused", "", "RUNNING", "running ", "UNKNOWN", "unknown", "😀", "\ud800"])
def test_an_unknown_value_keeps_its_text(value: str) -> None:
    state = RunState(value)
    assert isinstance(state, RunState)
    assert not state.known
    assert state == value
    assert state.value == value
    assert str(state) == value
    assert hash(state) == hash(value)


def test_an_unknown_value_equals_itself_and_nothing_known() -> None:
    assert RunState("paused") == RunState("paused")
    assert RunState("paused") != RunState("stopped")
    assert all(RunState("paused") != known for known in RunState)
    assert RunState("paused") not in set(RunState)


def test_an_unknown_value_leaves_no_trace() -> None:
    """A hostile peer costs no memory."""
    before = list(RunState)
    for number in range(1_000):
        RunState(f"hostile{number}")
    assert list(RunState) == before
    assert len(RunState._value2member_map_) == len(before)
    assert RunState("hostile1") is not RunState("hostile1")


@pytest.mark.parametrize("value", [None, 1, True, 1.0, b"running", ["running"], {}, object()])
def test_what_is_no_string_is_no_value(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        RunState(value)


def test_an_unknown_value_survives_copying_and_pickling() -> None:
    state = RunState("paused")
    copies = (copy.copy(state), copy.deepcopy(state), pickle.loads(pickle.dumps(state)))
    assert all(made == state and type(made) is RunState and not made.known for made in copies)


def test_it_is_written_as_its_text() -> None:
    assert json.dumps([RunState.RUNNING, RunState("paused")]) == '["running", "paused"]'
    assert f"{RunState('paused')}" == "paused"


@pytest.mark.parametrize("kind", OPEN_ENUMS, ids=lambda kind: kind.__name__)
def test_every_open_enumeration_of_the_protocol_keeps_the_unknown(kind: type[OpenEnum]) -> None:
    assert kind("future-value") == "future-value"
    assert not kind("future-value").known
    assert all(member.known for member in kind)
