"""Run all measurements or some, print a table, write bench/out.json.

Usage: python -m bench.run [--quick] [--only NAME]... [--out FILE]; NAME is a row or a file of bench/.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import multiprocessing
import os
import platform
import sqlite3
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .measuring import Goal, NotInstalledError, Row, Samples, cores, noise_between, read_goals, table, ticks

ATTEMPTS = 2
"""A measurement that was disturbed is made once more, unless the machine was busy from the start."""


def chosen(goals: Iterable[Goal], only: Sequence[str]) -> dict[str, list[Goal]]:
    """The wanted rows by the file that measures them. Raises ValueError for a name that is none."""
    goals = list(goals)
    unknown = set(only) - {goal.name for goal in goals} - {goal.module for goal in goals}
    if unknown:
        raise ValueError(f"no row and no file of bench/: {', '.join(sorted(unknown))}")
    found: dict[str, list[Goal]] = {}
    for goal in goals:
        if not only or goal.name in only or goal.module in only:
            found.setdefault(goal.module, []).append(goal)
    return found


def _measure(module: str, quick: bool) -> Samples | str:
    """In a process of its own, so that none inherits another's core, memory or warmth."""
    try:
        found: Samples = importlib.import_module(f"bench.{module}").measure(quick)
    except NotInstalledError as missing:
        return str(missing)
    except Exception as failure:  # noqa: BLE001 - the other files are measured all the same
        traceback.print_exception(failure)
        return f"failed: {failure}"
    return found


def measure(module: str, goals: list[Goal], quick: bool, load: float) -> list[Row]:
    """All rows of one file."""
    rows: list[Row] = []
    for _ in range(1 if quick else ATTEMPTS):
        before = ticks()
        pool = multiprocessing.get_context("spawn").Pool(1)
        found = pool.apply(_measure, (module, quick))
        pool.close()
        pool.join()
        noise = noise_between(before, ticks(), load, len(cores()))
        if isinstance(found, str):
            return [Row(goal, [], missing=found) for goal in goals]
        rows = [Row(goal, found[goal.name], noise) for goal in goals]
        if not noise.reason or load > len(cores()):
            break
    return rows


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    processor = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": processor[0] if processor else platform.machine(),
        "cores": len(cores()),
        "load": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    } | {name: _version(name) for name in ("aiohttp", "cattrs", "orjson", "pydantic")}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; says only that it works")
    parser.add_argument("--only", action="append", default=[], help="a row or a file of bench/")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("out.json"))
    arguments = parser.parse_args()
    try:
        wanted = chosen(read_goals().values(), arguments.only)
    except ValueError as unknown:
        parser.error(str(unknown))
    about = machine()
    rows: list[Row] = []
    for module, goals in wanted.items():
        print(f"measuring {module} ...", file=sys.stderr, flush=True)
        rows += measure(module, goals, arguments.quick, about["load"])
        # After each, so that nothing is lost of a run that is broken off.
        result = {"machine": about, "quick": arguments.quick, "rows": [row.as_json() for row in rows]}
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
