"""Each name of Hermes's renamed, one at a time: `make seams LINE=0.19`. Minutes, so it is not part of `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pheby_hermes import seams

from pheby import cli
from pheby.demo.stack import free_port
from pheby.install import doctor, package
from tests.seams import contract
from tests.seams.scratch import scratch

SECRET = "of-a-scratch-environment-0123456789"


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that `pheby install` has put Pheby into; the gateway is never started in it."""
    home = tmp_path_factory.mktemp("hermes")
    home.chmod(0o700)
    (home / "config.yaml").write_text("model:\n  default: m\n")
    assert cli.main(["install", "--yes", "--no-pip", "--port", str(free_port()), "--home", str(home)]) == 0
    return home


def test_a_name_that_is_renamed_costs_what_it_is_for(
    line: str, symbol: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7: exactly its contract fails, `doctor` finds exactly that, and Pheby goes on without that one thing."""
    environment = scratch(line, tmp_path / "environment", symbol)
    said = contract.ask(line, environment, home, "--start", RENAMED=symbol, PHEBY_SECRET=SECRET)
    broken = [each for each in said["there"] if not contract.holds(each, said["there"])]
    assert broken == [symbol]

    # What `pheby_hermes.probe` says there; that `doctor` asks it in a process of its own is tested with real gateways.
    monkeypatch.setattr(package, "probe", lambda _: said["probe"])
    found = [finding for finding in doctor.examine(home, environment.python) if finding.severity != "ok"]
    assert [finding.code for finding in found if symbol in finding.text] == [found[0].code]
    assert len(found) == 1

    parts = seams.named(line)[symbol]
    if any(part.needed for part in parts):
        assert found[0].code == "seam-missing"
        assert said["features"] == {}
        assert any("Pheby cannot start" in text and symbol in text for text in said["said"]), said["said"]
    else:
        assert found[0].code == "seam-optional"
        lost = {name for part in parts for name in part.capabilities}
        assert {name for name, offered in said["features"].items() if not offered} == lost
        assert said["features"]
