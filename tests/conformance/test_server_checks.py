"""The checks for servers: a right one passes them all; each fault is noticed by the check that is there for it."""

from __future__ import annotations

from pathlib import Path

import broken_servers
import pytest
from broken_servers import PEERS
from good_server import GoodServer
from matrix import catches
from pheby_conformance.check import CHECKS
from pheby_conformance.report import Report, Verdict
from playing import failed, played
from proxy import broken_server

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS = 24


async def checked(url: str, server: GoodServer, files: Path, patience: float) -> Report:
    broken_servers.FOLDER[:] = [str(files)]
    return await played(url, server, files, patience=patience, jobs=JOBS)


async def test_a_right_server_passes_everything(server: GoodServer, tmp_path: Path) -> None:
    """R-J4."""
    report = await checked(server.url, server, tmp_path, 30)
    assert failed(report) == {}
    assert report.passed > 300
    assert report.exit_code == 0
    assert {result.detail for result in report.results if result.verdict is Verdict.NOT_OFFERED} <= {
        "the server does not offer models"
    }


async def test_every_fault_is_noticed_by_its_own_check_and_by_no_other(server: GoodServer, tmp_path: Path) -> None:
    """R-J4: all faults at once, each narrow; what fails is exactly what they say."""
    async with broken_server(server.url, *PEERS.values()) as url:
        found = failed(await checked(url, server, tmp_path, 30))
    assert {name: detail for name, detail in found.items() if not any(catches(p, name) for p in PEERS.values())} == {}
    assert [peer.name for peer in PEERS.values() if not any(catches(peer, name) for name in found)] == []


async def test_no_two_faults_share_a_check() -> None:
    """R-J4: and each names checks that exist; so no check can stand in for another."""
    owners: dict[str, list[str]] = {}
    for peer in PEERS.values():
        mine = [name for name in CHECKS if catches(peer, name)]
        assert mine, peer.name
        for name in mine:
            owners.setdefault(name, []).append(peer.name)
    assert {name: peers for name, peers in owners.items() if len(peers) > 1} == {}
    assert len(PEERS) > 150


def families() -> set[str]:
    """Checks without their cases."""
    return {name.partition(".")[0] for name in CHECKS}


WITHOUT_A_FAULT = {
    # Nothing could be checked of a server that fails it.
    "http/right-secret",
    # What a proxy would have to break for them breaks the checks beside them, too.
    "approvals/at-once",
    "clarifications/asked",
    "clarifications/at-once",
    "clarifications/skip",
    "conversations/delete",
    "frames/bad-id",
    "hello/read-only-reads",
    "hello/twice",
    "runs/cancel-at-once",
    "runs/cancel-before-the-first-word",
    "runs/cancel-from-another-device",
    "runs/cancel-queued",
    "snapshot/conversations",
    "snapshot/nothing-that-ended",
    "snapshot/streaming-message",
    "sync/batches",
    "sync/live-after-replay",
    "sync/long-replay",
    "sync/nothing-missed",
    "sync/while-it-goes-on",
    "tools/parallel",
}


async def test_every_other_check_has_a_fault_that_it_notices() -> None:
    """R-J4."""
    noticed = {name.partition(".")[0] for name in CHECKS for peer in PEERS.values() if catches(peer, name)}
    assert families() - noticed == WITHOUT_A_FAULT
