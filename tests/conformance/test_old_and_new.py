"""Old and new beside each other: what version 1 does not know hinders nobody, and a later version is no fault."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from broken_clients import RightClient, start
from good_server import GoodServer
from pheby_conformance.client import check_client, stored_scenarios
from pheby_conformance.newer import as_newer
from playing import failed, played
from proxy import Frame, Link, Peer, broken_server

pytestmark = pytest.mark.asyncio(loop_scope="session")


def _speaks_2(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "welcome" and 2 in link.hello["protocol_versions"]:
        frame["protocol_version"] = 2
    if frame["type"] == "error" and frame["code"] == "unsupported_version":
        frame["details"]["supported"] = [1, 2]
    yield from as_newer(frame)


NEWER = Peer(name="newer", caught=(), down=_speaks_2)


async def test_a_client_of_version_1_is_right_beside_a_server_of_version_2() -> None:
    """R-J1, R-J4: every scenario, with unknown fields, capabilities, limits and events in it."""
    names = [scenario["id"] for scenario in stored_scenarios() if scenario["id"] != "close/heartbeat"]
    report = await check_client("right", start(RightClient), only=names, patience=10, jobs=16, newer=True)
    assert failed(report) == {}
    assert report.passed == len(names)


async def test_a_server_of_version_2_is_right_for_a_suite_of_version_1(server: GoodServer, tmp_path: Path) -> None:
    """R-J1, R-J4: the suite is a client of version 1: what it does not know it ignores."""
    async with broken_server(server.url, NEWER) as url:
        report = await played(url, server, tmp_path, jobs=24)
    assert failed(report) == {}
    assert report.passed > 300


async def test_what_a_newer_server_adds_is_in_every_object_and_in_no_arguments() -> None:
    welcome = {"type": "welcome", "capabilities": {"batch": True}, "limits": {"max_text_chars": 1}}
    (found,) = as_newer(welcome)
    assert found["capabilities"]["from_a_later_version"] is True
    assert found["limits"]["from_a_later_version"] == 7
    event = {"type": "tool.started", "seq": 1, "time": 2, "tool_call": {"arguments": {"a": [{}]}}}
    another, changed = as_newer(event)
    assert "from_a_later_version" in changed
    assert "from_a_later_version" in changed["tool_call"]
    assert changed["tool_call"]["arguments"] == {"a": [{}]}
    assert "seq" not in another
