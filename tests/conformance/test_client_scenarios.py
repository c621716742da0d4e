"""The scenarios for clients: the right one passes all, each broken one fails exactly those that are about it."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import broken_clients
import pytest
from broken_clients import CLIENTS, BrokenClient, RightClient, start
from pheby_conformance.check import ConformanceError
from pheby_conformance.client import Stage, check_client, otherwise, stored_scenarios
from pheby_conformance.process import process_peer
from pheby_conformance.report import Report, Verdict

import pheby.client
from pheby.cli import main

ALL = [scenario["id"] for scenario in stored_scenarios()]
QUICK = tuple(name for name in ALL if name != "close/heartbeat")
SAMPLE = ("connect/no-cursor", "resume/cut-in-replay", "state/replaced", "close/1001")
"""What every broken client but those that it is about can still do."""


def failed(report: Report) -> dict[str, str]:
    return {result.id: result.detail for result in report.results if result.verdict is Verdict.FAILED}


async def test_the_right_client_passes_everything() -> None:
    """R-J4, R-J1."""
    report = await check_client("right", start(RightClient), only=QUICK, patience=10, jobs=16)
    assert failed(report) == {}
    assert report.passed == len(QUICK)


@pytest.mark.parametrize("options", [["--read-only"], ["--without", "send"]])
def test_what_a_client_cannot_do_is_not_asked_of_it(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """R-J4: and that is said."""
    command = f"{sys.executable} {broken_clients.SCRIPT}"
    only = ["--only", "send/receipt", "--only", "connect/secret"]
    assert main(["conformance", "client", "--command", command, *options, *only]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == ["1 not checked: the client is said to be without: send", "1 passed, 0 failed"]


async def test_a_client_in_a_process_of_its_own() -> None:
    """R-J4: as the command line starts it."""
    command = f"{sys.executable} {broken_clients.SCRIPT}"
    report = await check_client(
        command,
        lambda url, env: process_peer(command, url, env=env),
        only=("connect/secret", "state/turn", "send/receipt"),
    )
    assert failed(report) == {}
    assert report.passed == 3


async def noticed(cls: type[BrokenClient], request: pytest.FixtureRequest) -> str:
    """What is wrong with what was noticed, "" for nothing."""
    only = QUICK if request.config.getoption("--matrix") else tuple({*cls.caught, *SAMPLE})
    found = failed(await check_client(cls.__name__, start(cls), only=only, patience=8, jobs=16))
    return "" if set(found) == set(cls.caught) else f"{cls.__name__}: {found}"


async def test_broken_clients_are_noticed(request: pytest.FixtureRequest) -> None:
    """R-J4: by the scenarios that are about them and by no others; all others are played with --matrix."""
    clients = [cls for cls in CLIENTS.values() if not cls.patches]
    assert len(clients) > 25
    flaws = await asyncio.gather(*(noticed(cls, request) for cls in clients))
    assert [flaw for flaw in flaws if flaw] == []


@pytest.mark.parametrize("name", [name for name, cls in CLIENTS.items() if cls.patches])
async def test_a_broken_client_is_noticed(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-J4: likewise, one after the other, since these change what all clients have in common."""
    for attribute, value in CLIENTS[name].patches.items():
        monkeypatch.setattr(pheby.client, attribute, value)
    assert await noticed(CLIENTS[name], request) == ""


async def test_a_command_that_cannot_be_started_is_a_failure() -> None:
    """R-J4: a missing prerequisite is no pass."""
    report = await check_client(
        "none", lambda url, env: process_peer("/nowhere/no-such-client", url, env=env), only=("connect/secret",)
    )
    assert list(failed(report)) == ["connect/secret"]
    assert "prerequisite" in failed(report)["connect/secret"]
    assert report.exit_code == 1


CRASHES = "raise SystemExit('no such module')"


async def played(program: str, *steps: dict[str, Any], patience: float) -> None:
    """Take steps of a scenario with a program as the client."""
    async with process_peer(f"{sys.executable} -c {shlex.quote(program)}") as peer:
        stage = Stage({"steps": list(steps)}, patience)
        stage.peer = peer
        for step in steps:
            await stage.take(step)


async def test_a_client_that_crashes_is_told_at_once_and_how() -> None:
    """R-J4: with the end of its error output, long before its time is over."""
    with pytest.raises(ConformanceError, match=r"ended by itself \(1\)\n\| no such module$"):
        async with asyncio.timeout(60):
            await played(CRASHES, {"connect": {}}, patience=600)


async def test_a_client_may_end_where_nothing_is_wanted_of_it() -> None:
    """R-J4: after 4401, say."""
    await played(CRASHES, {"no_connect_ms": 1_000}, patience=600)


def test_what_is_shown_otherwise_is_told_by_its_place() -> None:
    """R-J4: and by the digests where a client tells no more."""
    wanted = {"digest": "1", "state": {"cursor": 4, "epoch": "e_1", "messages": {}}}
    digests = "the digest is '0' instead of '1'"
    assert otherwise(wanted, {"digest": "0"}) == f"what is shown is another: {digests}"
    found = {"cursor": 5, "epoch": "e_1", "more": {"x": 1}}
    assert otherwise(wanted, {"digest": "0", "state": found}).splitlines() == [
        "what is shown is another:",
        "cursor: wanted 4, got 5",
        "messages: wanted {}, got nothing",
        'more: wanted nothing, got {"x": 1}',
    ]
    right = otherwise(wanted, {"digest": "0", "state": wanted["state"]})
    assert right == f"the state is right, and its JSON is not as the digest wants it: {digests}"


def test_every_scenario_has_a_form() -> None:
    for scenario in stored_scenarios():
        assert set(scenario) == {"id", "title", "rules", "since", "steps"}
        assert scenario["title"]
        assert scenario["steps"]
    assert not [name for cls in CLIENTS.values() for name in cls.caught if name not in ALL]
    assert Path(broken_clients.SCRIPT).is_file()
