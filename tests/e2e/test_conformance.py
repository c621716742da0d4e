"""The whole conformance suite, on each line: the server is what the protocol says, in front of a real Hermes, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Stack
from pheby_conformance.report import Verdict
from pheby_conformance.server import Options, check_server

PATIENCE = 90.0
"""Hermes 0.22 asks a model that says nothing again, for most of a minute."""


@pytest.mark.asyncio(loop_scope="session")
async def test_the_server_passes_the_conformance_suite(own_stack: Stack, tmp_path: Path) -> None:
    """R-J4: on a stack of its own, since wrong secrets from one address are counted."""
    if getattr(own_stack, "hermes_defaults", False):
        pytest.skip("without streaming a scripted answer is over at once, and nothing is busy for long enough")
    options = Options(url=own_stack.url, secret=own_stack.secret, scripted=True, files=tmp_path, patience=PATIENCE)
    report = await check_server(options)
    assert {result.id: result.detail for result in report.results if result.verdict is Verdict.FAILED} == {}
    assert report.passed >= 300
    assert sum(result.level == "MUST" and result.verdict is Verdict.PASSED for result in report.results) >= 120
