"""Which subagents work for whom (R-D2): by their own sessions, whatever else the hooks say."""

from __future__ import annotations

from typing import Any

import pytest
from pheby_hermes.subagents import MAX_GOAL_CHARS, MAX_OPEN, Subagent, Subagents

from pheby_protocol.messages.run import RunErrorCode, RunReason
from pheby_server.ports import Outcome, RunResult, SubagentStart

CHAT, PARENT = "100", "s1"


@pytest.fixture
def team() -> Subagents:
    return Subagents(lambda text: text.replace("hunter2", "***"))


def start(team: Subagents, child: object, parent: object = PARENT, **more: Any) -> SubagentStart | None:
    facts = {"child_session_id": child, "parent_session_id": parent, "child_subagent_id": f"h-{child}"}
    return team.started({**facts, "child_goal": "look", **more}, CHAT)


def stop(team: Subagents, child: object, status: object = "completed") -> tuple[Subagent, RunResult] | None:
    return team.stopped({"child_session_id": child, "child_status": status})


def call(team: Subagents, name: str, call_id: str, session: object = PARENT, tool: str = "delegate_task") -> None:
    team.tool_hook(name, {"tool_name": tool, "session_id": session, "tool_call_id": call_id})


def call_of(found: SubagentStart | None) -> str | None:
    assert found is not None
    return found.call_id


def test_a_subagent_works_from_its_start_to_its_stop(team: Subagents) -> None:
    found = start(team, "k1", child_goal="use hunter2")
    assert found == SubagentStart(key="k1", parent=None, call_id=None, goal="use ***")
    worker = Subagent("k1", CHAT, "h-k1")
    assert stop(team, "k2") is None
    assert (team.of("k1"), team.hermes_id("k1")) == (worker, "h-k1")
    assert stop(team, "k1") == (worker, RunResult(outcome=Outcome.COMPLETED))
    assert (team.of("k1"), team.hermes_id("k1"), stop(team, "k1")) == (None, None, None)


def test_the_call_that_delegates_is_that_of_the_parents_session(team: Subagents) -> None:
    """R-D2."""
    call(team, "pre_tool_call", "c1")
    call(team, "pre_tool_call", "c2", "another")
    call(team, "pre_tool_call", "c3", tool="terminal")
    assert call_of(start(team, "k1")) == "c1"
    assert call_of(start(team, "k2", "another")) == "c2"
    assert call_of(start(team, "k3", "a third")) is None
    call(team, "post_tool_call", "c3", tool="terminal")
    call(team, "post_tool_call", "c2")
    assert call_of(start(team, "k4")) == "c1"
    call(team, "post_tool_call", "c1")
    assert call_of(start(team, "k5")) is None
    assert call_of(start(team, "k6", "another")) == "c2"


def test_a_subagents_subagent_has_it_for_a_parent(team: Subagents) -> None:
    """R-D2."""
    start(team, "k1")
    call(team, "pre_tool_call", "c9", "k1")
    nested = start(team, "k2", "k1")
    assert nested is not None
    assert (nested.parent, nested.call_id) == ("k1", "c9")
    stop(team, "k1")
    late = start(team, "k3", "k1")
    assert late is not None
    assert late.parent is None


def test_a_start_that_is_told_again_is_none(team: Subagents) -> None:
    start(team, "k1")
    assert start(team, "k1", "another", child_subagent_id="other") is None
    assert team.hermes_id("k1") == "h-k1"
    stop(team, "k1")
    # Nothing would ever end it again.
    assert start(team, "k1") is None


@pytest.mark.parametrize("child", [None, "", 7])
def test_a_subagent_without_a_session_is_none(team: Subagents, child: object) -> None:
    assert start(team, child) is None
    assert (team.of(child), stop(team, child), team.abandon()) == (None, None, [])


def test_there_are_bounds(team: Subagents) -> None:
    first = start(team, "k0", child_goal="x" * (MAX_GOAL_CHARS - 3) + "hunter2" + "y" * 100)
    assert first is not None
    assert first.goal == "x" * (MAX_GOAL_CHARS - 3) + "***"
    for number in range(1, MAX_OPEN):
        assert start(team, f"k{number}") is not None
    assert start(team, "one more") is None
    stop(team, "k0")
    assert start(team, "one more") is not None


@pytest.mark.parametrize(
    ("status", "outcome", "error"),
    [
        *((status, Outcome.COMPLETED, None) for status in ("completed", "Complete", "success", "OK", "", None)),
        *((status, Outcome.CANCELLED, None) for status in ("interrupted", "cancelled", "Canceled")),
        ("timeout", Outcome.FAILED, RunErrorCode.TIMED_OUT),
        ("timed_out", Outcome.FAILED, RunErrorCode.TIMED_OUT),
        ("error", Outcome.FAILED, RunErrorCode.INTERNAL),
        ("something new", Outcome.FAILED, RunErrorCode.INTERNAL),
    ],
)
def test_how_it_ended(team: Subagents, status: object, outcome: Outcome, error: RunErrorCode | None) -> None:
    start(team, "k1")
    ended = stop(team, "k1", status)
    assert ended is not None
    assert ended[1] == RunResult(outcome=outcome, error=error)


def test_all_at_work_end_with_the_gateway(team: Subagents) -> None:
    for child in ("k1", "k2", "k3"):
        start(team, child)
    stop(team, "k2")
    over = RunResult(outcome=Outcome.CANCELLED, reason=RunReason.SHUTDOWN)
    assert team.abandon() == [(Subagent(name, CHAT, f"h-{name}"), over) for name in ("k1", "k3")]
    assert (team.of("k1"), stop(team, "k1"), team.abandon()) == (None, None, [])
