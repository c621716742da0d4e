"""The lines that were asked for: `--line 0.19`. Without one there is nothing to hold the contracts against."""

from __future__ import annotations

import pytest
from pheby_hermes import seams


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every symbol of every line that was asked for, or every line."""
    asked = metafunc.config.getoption("--line") or []
    lines = [line for line in seams.LINES if line in asked]
    if "symbol" in metafunc.fixturenames and "line" in metafunc.fixturenames:
        each = [(line, symbol) for line in lines for symbol in seams.named(line)]
        metafunc.parametrize(("line", "symbol"), each, ids=[f"{line}-{symbol}" for line, symbol in each])
    elif "line" in metafunc.fixturenames:
        metafunc.parametrize("line", lines)
