"""RFC 6455 by kosoku's cases (they are Autobahn's): the transport fails none that bare aiohttp passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.rfc6455 import bare, failed, ours, verdicts

pytest.importorskip("kosoku")

FEWEST = 200
"""Cases that must have been run, or nothing was shown."""


async def test_nothing_that_bare_aiohttp_passes_fails(tmp_path: Path) -> None:
    """R-J1, R-M2."""
    theirs, mine = await verdicts(bare, tmp_path / "bare"), await verdicts(ours, tmp_path / "ours")
    assert len(mine) >= FEWEST
    assert mine.keys() == theirs.keys()
    assert len(failed(theirs)) < FEWEST / 2
    assert failed(mine) - failed(theirs) == set()
