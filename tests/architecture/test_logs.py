"""Every line of the log begins with an event that stays and that is documented, and comes from a guarded logger."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("pheby_server", "hermes_plugin")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.name != "logs.py"
]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
EVENT = re.compile(r"(?P<event>[a-z_]+\.[a-z_]+)(?:: [^\n]+)?")
PAGE = ROOT / "docs" / "howto" / "debugging.md"
TAKEN = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "event"}


def said(path: Path) -> Iterator[ast.Call]:
    """Every call that writes to the log."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in LEVELS:
            continue
        by = node.func.value
        if ast.unparse(by) in ("log", "_http_log", "log_of(__name__)", "logger", "logging"):
            yield node


LINES = [(path, call) for path in SOURCES for call in said(path)]


def name(case: object) -> str:
    return f"{case.name}" if isinstance(case, Path) else ast.unparse(case)[:60] if isinstance(case, ast.AST) else ""


@pytest.mark.parametrize(("path", "call"), LINES, ids=name)
def test_an_event_is_a_constant_and_the_rest_are_fields(path: Path, call: ast.Call) -> None:
    """R-L1: what comes from elsewhere is never a part of the message."""
    assert len(call.args) == 1
    message = call.args[0]
    assert isinstance(message, ast.Constant)
    assert EVENT.fullmatch(message.value)
    assert {keyword.arg for keyword in call.keywords} <= {"extra", "exc_info"}
    for keyword in call.keywords:
        for part in ast.walk(keyword.value):
            if isinstance(part, ast.Dict):
                keys = {key.value for key in part.keys if isinstance(key, ast.Constant)}
                assert not keys & TAKEN


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_logger_is_guarded(path: Path) -> None:
    """R-D3: a logger that was got in another way would mask nothing."""
    assert "getLogger" not in path.read_text(encoding="utf-8")


def test_every_event_is_documented_and_no_other() -> None:
    """R-P1."""
    found = {EVENT.fullmatch(call.args[0].value)["event"] for _, call in LINES}  # type: ignore[attr-defined,index]
    documented = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert len(documented) == len(set(documented))
    assert set(documented) == found
    assert len(found) > 40
