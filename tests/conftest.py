"""Options of the whole suite."""

from __future__ import annotations

import pytest

from pheby_server.logs import refusals, repeats

LINES = ("simulated", "0.19", "0.22", "0.19-defaults", "0.22-defaults")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--line",
        action="append",
        choices=LINES,
        help="what the end-to-end tests run on (several times for several); default: simulated",
    )
    parser.addoption("--schedules", type=int, default=200, help="how many random schedules are played")
    parser.addoption("--kills", type=int, default=12, help="how many sends are cut or killed on each line")
    parser.addoption("--operations", type=int, default=60, help="what two devices do together on each line")
    parser.addoption("--cutting", type=int, default=20, help="for how many seconds a line is cut again and again")
    parser.addoption("--matrix", action="store_true", help="play every scenario on every broken client")
    parser.addoption("--record", action="store_true", help="write the stored sequences of the scenarios anew")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    lines = metafunc.config.getoption("--line") or ["simulated"]
    if "stack" in metafunc.fixturenames:
        metafunc.parametrize("stack", lines, indirect=True, scope="session")
    if "own_stack" in metafunc.fixturenames:
        metafunc.parametrize("own_stack", lines, indirect=True)


@pytest.fixture(autouse=True)
def _every_line_is_news() -> None:
    """What another test has logged a moment ago is not left out here."""
    repeats.forget()
    refusals.forget()
