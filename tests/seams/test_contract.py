"""R-A2, R-A7: one test for each name of Hermes's that Pheby uses, asked of each line's own interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
from pheby_hermes import seams

from tests.seams import contract
from tests.seams.scratch import installed


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hermes's modules make folders in the home that they find."""
    return tmp_path_factory.mktemp("home")


def test_a_line_has_only_its_own(line: str, empty_home: Path) -> None:
    """R-A2: what the page about limitations says a line has not, it has not."""
    expected = seams.named(line)
    others = {symbol for part in seams.PARTS if not part.on(line) for symbol in part.on(seams.LINES[-1])}
    assert not others & expected.keys()
    there = contract.ask(line, installed(line), empty_home, *sorted(others))["asked"]
    assert there == dict.fromkeys(sorted(others), False)


def test_hermes_has(line: str, symbol: str, empty_home: Path) -> None:
    """R-A7: the name as Pheby uses it."""
    assert contract.holds(symbol, contract.table(line, empty_home)), symbol
