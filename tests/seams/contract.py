"""What is held against a Hermes, real or changed: its own interpreter says what is there."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from pheby_hermes import seams

from pheby.demo.lines import HermesEnvironment
from tests.seams.scratch import installed

START = Path(__file__).with_name("start.py")


def ask(line: str, environment: HermesEnvironment, home: Path, *more: str, **variables: str) -> dict[str, Any]:
    """What `start.py` says."""
    done = subprocess.run(
        [str(environment.python), str(START), line, *more],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=home,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "HERMES_HOME": str(home), **variables},
        check=False,
    )
    assert done.stdout, done.stderr[-3_000:]
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@cache
def table(line: str, home: Path) -> dict[str, bool]:
    """What the real Hermes of a line has."""
    there: dict[str, bool] = ask(line, installed(line), home)["there"]
    return there


def holds(symbol: str, there: dict[str, bool]) -> bool:
    """The contract of one symbol: it is there, or what it stands in is not, which has a contract of its own."""
    return there[symbol] or not all(there[holder] for holder in seams.holders(symbol))
