"""What every measurement shares: samples beside their peer's, verdicts, and how quiet the machine was."""

from __future__ import annotations

import os
import resource
import statistics
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

GOALS: Final = Path(__file__).with_name("goals.toml")
REPEATS: Final = 7
QUICK_REPEATS: Final = 2
MOST_STEAL: Final = 0.02
MOST_OTHERS: Final = 0.05
"""Of all cores' time, for processes that are not the measurement's."""


class NotInstalledError(Exception):
    """A peer is not there. The text says what to install."""


@attrs.frozen
class Goal:
    """One row, and what it is held against."""

    name: str
    module: str
    what: str
    peer: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    value_at_most: float | None = None

    @property
    def bound(self) -> str:
        """The bound in words; "" for a row that has none."""
        parts = []
        if self.at_most is not None:
            parts.append(f"<= {self.at_most:g}x")
        if self.at_least is not None:
            parts.append(f">= {self.at_least:g}x")
        if self.value_at_most is not None:
            parts.append(f"<= {self.value_at_most:g} {self.unit}")
        return ", ".join(parts)

    def is_met(self, value: float, ratio: float | None) -> bool:
        return (
            (self.at_most is None or (ratio is not None and ratio <= self.at_most))
            and (self.at_least is None or (ratio is not None and ratio >= self.at_least))
            and (self.value_at_most is None or value <= self.value_at_most)
        )


def read_goals(path: Path = GOALS) -> dict[str, Goal]:
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: Goal(name=name, **row) for name, row in rows.items()}


@attrs.frozen
class Sample:
    """One repeat: Pheby's value and the peer's, measured one after the other."""

    measured: float
    peer: float

    @property
    def ratio(self) -> float | None:
        """None: there is none, the peer's value is nothing."""
        if self.measured == self.peer:
            return 1.0
        return self.measured / self.peer if self.peer else None


Samples = dict[str, list[Sample]]


def median_ratio(samples: Sequence[Sample]) -> float | None:
    """The median of the ratios, not the ratio of the medians: what troubles one repeat troubles both of its sides."""
    ratios = [sample.ratio for sample in samples if sample.ratio is not None]
    return statistics.median(ratios) if ratios else None


def interleaved(
    repeats: int, measured: Callable[[], Mapping[str, float]], peer: Callable[[], Mapping[str, float]]
) -> Samples:
    """Both sides in turn, the first of them alternating; each names its rows."""
    found: Samples = {}
    for number in range(repeats):
        if number % 2:
            theirs = peer()
            ours = measured()
        else:
            ours = measured()
            theirs = peer()
        for name, value in ours.items():
            found.setdefault(name, []).append(Sample(value, theirs[name]))
    return found


def repeats(quick: bool) -> int:
    return QUICK_REPEATS if quick else REPEATS


@attrs.frozen
class Ticks:
    """The machine's clock ticks since it started, and this process's with its ended children."""

    total: int
    steal: int
    programs: int
    own: float


@attrs.frozen
class Noise:
    """What disturbed a measurement; shares of all cores' time."""

    steal: float
    others: float
    load: float
    """The load average over a minute before the first measurement: later ones hold the measurements themselves."""
    cores: int

    @property
    def reason(self) -> str:
        """Why a measurement proves nothing; "" when it does."""
        if self.steal > MOST_STEAL:
            return f"steal {self.steal:.1%}"
        if self.load > self.cores:
            return f"load {self.load:.1f} on {self.cores} cores"
        if self.others > MOST_OTHERS:
            return f"other processes {self.others:.0%}"
        return "server and load on one core" if self.cores < 2 else ""


def parse_ticks(stat: str, own: float) -> Ticks:
    """Read the first line of /proc/stat."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, stat.split("\n", 1)[0].split()[1:9])
    # Interrupts serve the measurement's own sockets, too, and are nobody's.
    return Ticks(user + nice + system + idle + iowait + irq + softirq + steal, steal, user + nice + system, own)


def noise_between(before: Ticks, after: Ticks, load: float, cores: int) -> Noise:
    total = max(1, after.total - before.total)
    others = (after.programs - before.programs) - (after.own - before.own)
    return Noise((after.steal - before.steal) / total, max(0.0, others) / total, load, cores)


def ticks() -> Ticks:
    """Now. Children count when they have ended and were waited for."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in spent)
    return parse_ticks(Path("/proc/stat").read_text(encoding="ascii"), seconds * os.sysconf("SC_CLK_TCK"))


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def server_core() -> int:
    return cores()[-1]


def load_core() -> int:
    return cores()[0]


def pin(core: int) -> None:
    """Keep this process and its threads on one core."""
    os.sched_setaffinity(0, {core})


def memory() -> int:
    """What this process holds of the machine's memory, in bytes."""
    return _of_status("VmRSS")


def peak_memory() -> int:
    """The most that it held since `forget_peak`."""
    return _of_status("VmHWM")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _of_status(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1_024
    raise RuntimeError("the system does not say how much memory is used")


def per_second(call: Callable[[], Any], seconds: float) -> float:
    """How often a call can be made a second of this process's CPU time."""
    count = 1
    while True:
        start = time.process_time()
        for _ in range(count):
            call()
        spent = time.process_time() - start
        if spent >= seconds:
            return count / spent
        count = max(count * 2, int(count * seconds / spent * 1.1) if spent > 0.001 else 0)


@attrs.frozen
class Row:
    """A finished row."""

    goal: Goal
    samples: list[Sample]
    noise: Noise | None = None
    missing: str = ""
    """Why it was not measured."""

    @property
    def value(self) -> float:
        return statistics.median(sample.measured for sample in self.samples)

    @property
    def ratio(self) -> float | None:
        return median_ratio(self.samples)

    @property
    def verdict(self) -> str:
        """met, not met, noisy, not run, or "-" where there is no bound."""
        if self.missing or not self.samples:
            return "not run"
        if self.noise is not None and self.noise.reason:
            return "noisy"
        if not self.goal.bound:
            return "-"
        return "met" if self.goal.is_met(self.value, self.ratio) else "not met"

    def as_json(self) -> dict[str, Any]:
        found = attrs.asdict(self)
        if self.samples:
            found |= {
                "measured": self.value,
                "peer_measured": statistics.median(sample.peer for sample in self.samples),
                "ratio": self.ratio,
                "ratios": [sample.ratio for sample in self.samples],
            }
        return found | {"bound": self.goal.bound, "verdict": self.verdict}


COLUMNS: Final = ("row", "what", "peer", "measured", "peer's", "ratio", "bound", "")


def table(rows: Sequence[Row]) -> str:
    """The rows as text, as wide as they need to be."""
    lines = [COLUMNS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    goal = row.goal
    if not row.samples:
        return (goal.name, goal.what, goal.peer, "", "", "", goal.bound, f"not run: {row.missing}")
    theirs = statistics.median(sample.peer for sample in row.samples)
    reason = row.noise.reason if row.noise is not None else ""
    verdict = f"noisy: {reason}" if reason else row.verdict
    measured = f"{_number(row.value)} {goal.unit}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return (goal.name, goal.what, goal.peer, measured, _number(theirs), ratio, goal.bound, verdict)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
