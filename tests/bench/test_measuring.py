"""The measurements' own arithmetic, and that goals and files name the same rows. What they measure is not tested."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from bench.measuring import (
    Goal,
    Noise,
    Row,
    Sample,
    interleaved,
    median_ratio,
    noise_between,
    parse_ticks,
    per_second,
    read_goals,
    table,
)
from bench.run import chosen

GOALS = read_goals()
MODULES = sorted({goal.module for goal in GOALS.values()})
QUIET = Noise(steal=0.0, others=0.0, load=0.5, cores=2)


def row(value: float, peer: float, noise: Noise = QUIET, **bounds: float) -> Row:
    goal = Goal(name="a", module="m", what="w", peer="p", unit="ms", **bounds)
    return Row(goal, [Sample(value, peer)], noise)


@pytest.mark.parametrize("module", MODULES)
def test_a_file_measures_the_rows_that_the_goals_name(module: str) -> None:
    rows = importlib.import_module(f"bench.{module}").ROWS
    assert sorted(rows) == sorted(goal.name for goal in GOALS.values() if goal.module == module)


def test_every_file_with_rows_is_named_by_the_goals() -> None:
    folder = Path(__file__).parents[2] / "bench"
    assert sorted(path.stem for path in folder.glob("*.py") if "\nROWS = " in path.read_text()) == MODULES


def test_the_median_of_the_ratios_counts_and_not_the_ratio_of_the_medians() -> None:
    samples = [Sample(1, 1), Sample(10, 5), Sample(30, 10)]
    assert median_ratio(samples) == 2.0
    assert (Sample(0, 0).ratio, Sample(1, 0).ratio) == (1.0, None)
    assert median_ratio([Sample(1, 0), Sample(2, 1)]) == 2.0
    assert median_ratio([Sample(1, 0)]) is None


def test_both_sides_are_measured_in_turn() -> None:
    order: list[str] = []

    def side(name: str, value: float) -> dict[str, float]:
        order.append(name)
        return {"a": value}

    found = interleaved(3, lambda: side("ours", 2), lambda: side("theirs", 1))
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert found == {"a": [Sample(2, 1)] * 3}


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (row(3, 2, at_most=1.5), "met"),
        (row(3.1, 2, at_most=1.5), "not met"),
        (row(3, 2, at_least=1.5), "met"),
        (row(2.9, 2, at_least=1.5), "not met"),
        (row(3, 2, at_most=1.5, value_at_most=3), "met"),
        (row(3, 2, at_most=1.5, value_at_most=2.9), "not met"),
        (row(3, 2), "-"),
        (row(3, 0, at_most=1.5), "not met"),
        (row(3, 0, value_at_most=3), "met"),
        (row(3, 2, Noise(0.03, 0, 0.5, 2), at_most=1.5), "noisy"),
        (row(3, 2, Noise(0, 0.06, 0.5, 2), at_most=1.5), "noisy"),
        (row(3, 2, Noise(0, 0, 2.1, 2), at_most=1.5), "noisy"),
        (row(3, 2, Noise(0, 0, 0.1, 1), at_most=1.5), "noisy"),
        (Row(Goal(name="a", module="m", what="w", peer="p", unit="ms"), [], missing="nginx"), "not run"),
    ],
)
def test_a_verdict(found: Row, verdict: str) -> None:
    assert found.verdict == verdict
    assert found.as_json()["verdict"] == verdict
    assert verdict in table([found])


def test_the_share_of_steal_and_of_other_processes() -> None:
    before = parse_ticks("cpu  100 0 50 1000 10 5 5 10 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n", own=40.0)
    after = parse_ticks("cpu  160 0 70 1090 10 5 15 20 0 0\n", own=100.0)
    noise = noise_between(before, after, load=0.5, cores=2)
    # Of 190 ticks 10 were stolen; programs had 80, the measurement 60 of them.
    assert noise.steal == pytest.approx(10 / 190)
    assert noise.others == pytest.approx(20 / 190)


def test_rows_are_chosen_by_their_name_or_their_file() -> None:
    assert chosen(GOALS.values(), []).keys() == set(MODULES)
    assert [goal.name for goal in chosen(GOALS.values(), ["decode"])["codec"]] == ["decode"]
    assert {goal.module for goals in chosen(GOALS.values(), ["codec"]).values() for goal in goals} == {"codec"}
    with pytest.raises(ValueError, match="nonsense"):
        chosen(GOALS.values(), ["nonsense"])


def test_a_rate_is_of_cpu_time() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    assert per_second(call, 0.001) > 1_000
    assert calls > 0


def test_the_page_has_every_row_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE) == list(GOALS)
