"""Each fault is noticed by its own check: without that check exactly this fault would slip through.

What every check says of every fault is kept in `matrix.json`; `matrix.py` says how it is found. Here it is read, and a
part of it is played.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import broken_servers
import pytest
from broken_servers import PEERS
from good_server import GoodServer
from matrix import HALVES, catches, inputs, noticed, stored
from pheby_conformance.check import CHECKS
from playing import failed, played
from proxy import broken_server

MATRIX: Final = stored()
NOTICED, STRAYS = noticed(MATRIX["halves"])
LONE: Final = {name: row[0] for name, row in NOTICED.items() if len(row) == 1}
"""Faults that exactly one check notices, of all that there are."""
PLAYED: Final = [name for name, check in LONE.items() if CHECKS[check].play is not None][::16]


def test_the_matrix_is_whole_and_of_the_present_suite() -> None:
    """R-J4."""
    assert MATRIX["inputs"] == inputs(), "checks or faults have changed: `make matrix` plays them again"
    assert set(MATRIX["halves"]) == set(HALVES)


def test_every_fault_is_noticed_by_its_own_checks_and_by_no_other() -> None:
    """R-J4: the whole suite was played."""
    assert STRAYS == []
    assert [name for name, row in NOTICED.items() if not row] == []
    others = {name: [each for each in row if not catches(PEERS[name], each)] for name, row in NOTICED.items()}
    assert {name: row for name, row in others.items() if row} == {}


def test_alone_a_fault_is_noticed_by_the_same_checks() -> None:
    """R-J4: the whole suite was played on each of these."""
    assert len([name for name in MATRIX["alone"] if name in LONE]) >= 25
    assert {name: row for name, row in MATRIX["alone"].items() if set(row) != set(NOTICED[name])} == {}


def test_without_one_check_exactly_its_fault_slips_through() -> None:
    """R-J4."""
    assert len(LONE) > 100
    for fault, check in LONE.items():
        assert [name for name, row in NOTICED.items() if set(row) <= {check}] == [fault]


def test_what_fits_to_no_fault_or_to_several_is_found() -> None:
    first, second, *_ = PEERS
    of_both = {half: ["a/both"] for half, names in HALVES.items() if {first, second} & set(names)}
    of_none = {"0:0": ["a/none"]}
    of_one = {half: ["a/one"] for half, names in HALVES.items() if second in names}
    assert noticed(of_both)[1] == ["a/both"]
    assert noticed(of_none)[1] == ["a/none"]
    rows, strays = noticed(of_one)
    assert (rows[second], strays) == (["a/one"], [])


async def failing(fault: str, server: GoodServer, files: Path, only: list[str]) -> list[str]:
    """Which of these checks fail on a server with the fault."""
    async with broken_server(server.url, PEERS[fault]) as url:
        report = await played(url, server, files, jobs=4, only=only)
    assert report.passed + report.failed > 0
    return list(failed(report))


@pytest.mark.asyncio(loop_scope="session")
async def test_played_again_it_is_the_same(server: GoodServer, tmp_path: Path) -> None:
    """R-J4: some faults, on all checks of their area: their own fails, and without it all would pass."""
    broken_servers.FOLDER[:] = [str(tmp_path)]
    assert len(PLAYED) >= 8
    turns = asyncio.Semaphore(4)

    async def one(fault: str) -> tuple[str, list[str]]:
        area = LONE[fault].partition("/")[0]
        async with turns:
            return fault, await failing(fault, server, tmp_path, [f"{area}/*"])

    found = await asyncio.gather(*map(one, PLAYED))
    assert found == [(fault, [LONE[fault]]) for fault in PLAYED]
