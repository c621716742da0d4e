"""Each finding of `pheby doctor`, provoked in a home that `pheby install` has made, and mended by the command it names.

What is of Hermes's own environment is provoked in a real one, in tests/installed/test_mends.py. Whatever only the owner
can do has an advice in the place of a command, and is mended as that says.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from pheby import cli
from pheby.install import doctor, package
from pheby.install.doctor import Finding
from tests.install.terminal import typed
from tests.install.test_doctor import PROBE, a_clock_that_went_back, free_port, not_enabled, set_port
from tests.install.test_gateway import answering

Doing = Callable[["House"], None]

IN_HERMES_ENVIRONMENT = {"aiohttp", "hermes-version", "package-missing", "seam-missing", "seam-optional"}
"""See tests/installed/test_mends.py."""


@attrs.define
class House:
    """A home with Pheby, as an owner has it, and the shell in which he types."""

    home: Path
    bin: Path
    """Comes first on PATH."""
    patch: pytest.MonkeyPatch
    probe: dict[str, Any] | None = attrs.field(factory=PROBE.copy)
    python: Path | None = None
    """What is named to `doctor`; else the one that was used at the installation."""

    def findings(self) -> list[Finding]:
        """What is not well."""
        self.patch.setattr(package, "probe", lambda _: self.probe)
        return [finding for finding in doctor.examine(self.home, self.python) if finding.severity != "ok"]

    def shell(self, command: str) -> None:
        """Type it."""
        path = os.pathsep.join([str(self.bin), str(Path(sys.executable).parent), "/usr/bin:/bin"])
        code, shown = typed(command, {"PATH": path, "HOME": str(self.home.parent), "TERM": "dumb"})
        assert code == 0, shown

    def stand_in(self, name: str, script: str) -> None:
        """A command that is not here, or must not be used here."""
        file = self.bin / name
        file.write_text(f"#!/bin/sh\nset -e\n{script}\n")
        file.chmod(0o755)

    def config(self, before: str, after: str) -> None:
        text = (self.home / "config.yaml").read_text()
        assert before in text
        (self.home / "config.yaml").write_text(text.replace(before, after))

    def environment(self, text: str) -> None:
        (self.home / ".env").write_text(text)

    def gateway(self, state: str) -> None:
        """Hermes's record of a gateway, which is this very process."""
        (self.home / "gateway_state.json").write_text(record(state))


def record(state: str) -> str:
    return json.dumps({"pid": os.getpid(), "gateway_state": "running", "platforms": {"pheby": {"state": state}}})


@pytest.fixture
def house(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    (tmp_path / "bin").mkdir()
    words = ["install", "--yes", "--hermes-python", sys.executable, "--port", str(free_port()), "--home", str(home)]
    assert cli.main(words) == 0
    made = House(home, tmp_path / "bin", monkeypatch)
    assert made.findings() == []
    return made


CASES: list[tuple[str, Doing]] = []


def provokes(code: str) -> Callable[[Doing], Doing]:
    """A fault that `doctor` finds under this code, and that the command it names puts right."""

    def noted(doing: Doing) -> Doing:
        CASES.append((code, doing))
        return doing

    return noted


@provokes("plugin-disabled")
def not_in_the_list(house: House) -> None:
    not_enabled(house.home)


@provokes("plugin-disabled")
def switched_off(house: House) -> None:
    house.config("enabled: true", "enabled: false")


@provokes("plugin-missing")
def no_folder(house: House) -> None:
    # With the record of which Python it was: it has to be named.
    shutil.rmtree(house.home / "plugins/pheby")
    house.python = Path(sys.executable)
    assert house.probe is not None
    house.probe["entry_point"] = False


@provokes("stale-copy")
def a_folder_of_an_older_version(house: House) -> None:
    """As an older Pheby has put it there, and noted it down."""
    shutil.rmtree(house.home / "plugins/pheby")
    with pytest.MonkeyPatch.context() as older:
        older.setattr(package, "manifest", lambda: "name: pheby\nversion: 0.0.1\n")
        assert cli.main(["install", "--yes", "--hermes-python", sys.executable, "--home", str(house.home)]) == 0


@provokes("secret")
def no_secret(house: House) -> None:
    house.environment("PHEBY_ALLOWED_USERS=owner\n")


@provokes("secret")
def a_weak_secret(house: House) -> None:
    house.environment("PHEBY_SECRET=abc\nPHEBY_ALLOWED_USERS=owner\n")


@provokes("secret")
def the_key_of_the_api_server(house: House) -> None:
    key = "0123456789abcdef" * 4
    house.environment(f"PHEBY_SECRET={key}\nAPI_SERVER_KEY={key}\nPHEBY_ALLOWED_USERS=owner\n")


@provokes("secret")
def a_weak_secret_from_before(house: House) -> None:
    house.environment((house.home / ".env").read_text() + "PHEBY_SECRET_PREVIOUS=abc\n")


@provokes("setting")
def nobody_is_allowed(house: House) -> None:
    house.environment("".join((house.home / ".env").read_text().splitlines(keepends=True)[:1]))


@provokes("setting")
def a_port_that_is_none(house: House) -> None:
    set_port(house.home, 99_999)


@provokes("port")
def another_one_at_each_start(house: House) -> None:
    set_port(house.home, 0)


@provokes("clock")
def a_clock_that_is_behind(house: House) -> None:
    a_clock_that_went_back(house.home)
    # Setting the clock of this machine is not for a test: the files' times are what is compared with it.
    house.stand_in("timedatectl", f'[ "$*" = "set-ntp true" ]\ntouch "{house.home}/state.db"')


@provokes("permissions")
def a_file_of_secrets_that_others_read(house: House) -> None:
    (house.home / ".env").chmod(0o644)


@provokes("permissions")
def conversations_that_others_read(house: House) -> None:
    (house.home / "pheby").mkdir()
    (house.home / "pheby").chmod(0o755)


@provokes("plugin-not-connected")
def a_gateway_without_pheby(house: House) -> None:
    port = answering_port(house)
    house.gateway("fatal")
    restarts(house, port)


@provokes("secret-in-use")
def a_secret_that_the_gateway_does_not_know_yet(house: House) -> None:
    port = answering_port(house)
    set_port(house.home, answering_port(house, "the-one-from-before"))
    house.gateway("connected")
    restarts(house, port)


@provokes("port")
def a_gateway_that_does_not_listen(house: House) -> None:
    house.gateway("connected")
    restarts(house, answering_port(house))


@provokes("profile-port")
def a_profile_on_the_same_port(house: House) -> None:
    a_profile_like_this_one(house, "PHEBY_SECRET=" + "fedcba9876543210" * 4)


@provokes("profile-secret")
def a_profile_with_the_same_secret(house: House) -> None:
    other = a_profile_like_this_one(house, (house.home / ".env").read_text())
    set_port(other, free_port())


def a_profile_like_this_one(house: House, environment: str) -> Path:
    """As `hermes profile create --clone` makes one."""
    other = house.home / "profiles" / "other"
    other.mkdir(parents=True)
    shutil.copy(house.home / "config.yaml", other)
    (other / ".env").write_text(environment + "\n")
    return other


def restarts(house: House, port: int) -> None:
    """A `hermes` whose gateway, once restarted in this home, is connected and answers."""
    said = house.home.parent / "said.json"
    said.write_text(record("connected"))
    script = f'[ "$HERMES_HOME" = "{house.home}" ] && [ "$*" = "gateway restart" ]\n'
    script += f'cp "{said}" "{house.home}/gateway_state.json"\n'
    script += f"sed -i 's/port: [0-9]*/port: {port}/' \"{house.home}/config.yaml\""
    house.stand_in("hermes", script)


_answering: list[Any] = []


def answering_port(house: House, secret: str | None = None) -> int:
    server = answering(200, '{"status":"ok"}', secret)
    _answering.append(server)
    port = server.__enter__()
    if not (house.home / "gateway_state.json").exists():
        set_port(house.home, free_port())
    return port


@pytest.fixture(autouse=True)
def _no_server_is_left() -> Iterator[None]:
    yield
    while _answering:
        _answering.pop().__exit__(None, None, None)


@pytest.mark.parametrize(("code", "provoke"), CASES, ids=[f"{code}-{doing.__name__}" for code, doing in CASES])
def test_a_finding_is_mended_by_its_command(code: str, provoke: Doing, house: House) -> None:
    """R-S1: that finding and no other; the command as it stands, in an owner's shell; then all is well."""
    provoke(house)
    (found,) = {each.code: each for each in house.findings() if each.code != "port" or code == "port"}.values()
    assert (found.code, bool(found.mend)) == (code, True)
    house.shell(found.mend)
    assert house.findings() == []


def test_a_port_that_is_taken_is_left_to_who_has_it(house: House) -> None:
    """R-S1: the command names one that is free."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        set_port(house.home, taken.getsockname()[1])
        (found,) = house.findings()
        assert found.code == "port"
        house.shell(found.mend)
        assert house.findings() == []


# What only the owner can do


def test_hermes_that_is_not_found_is_named(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    """R-S1: hermes-missing: as its advice says."""
    marker = house.home / "plugins/pheby/.pheby-install.json"
    marker.write_text(marker.read_text().replace(sys.executable, str(house.home / "gone")))
    (found,) = house.findings()
    assert (found.code, found.mend) == ("hermes-missing", "")
    command = found.advice.removeprefix("Say where it is: ").replace("PATH", sys.executable)
    assert cli.main(command.split()[1:]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("version", ["3.10.12", "3.15.0"])
def test_a_python_that_does_not_fit_needs_another_installation(house: House, version: str) -> None:
    """R-S1: python-version."""
    house.probe = PROBE | {"python": version}
    (found,) = house.findings()
    assert (found.code, found.mend) == ("python-version", "")
    assert "Install Hermes anew" in found.advice


def test_a_key_that_nobody_knows_is_taken_out(house: House) -> None:
    """R-S1, R-K1: setting-unknown: it may be one of a newer Hermes, so Pheby does not touch it."""
    house.config("extra: {", "extra: {zzz: 1, ")
    (found,) = house.findings()
    assert (found.code, found.severity, found.mend) == ("setting-unknown", "warning", "")
    assert str(house.home / "config.yaml") in found.advice
    house.config("zzz: 1, ", "")
    assert house.findings() == []


def test_a_setting_that_only_the_owner_can_choose_has_its_place_named(house: House) -> None:
    """R-S1, R-K1: setting."""
    house.config("extra: {", "extra: {retention_days: 0, ")
    (found,) = house.findings()
    assert (found.code, found.mend) == ("setting", "")
    assert str(house.home) in found.advice


def test_trusted_proxies_are_set_as_the_advice_says(house: House) -> None:
    """R-S1, R-A4: proxy-untrusted."""
    house.config("extra: {", "extra: {public_url: 'https://pheby.example.org', trusted_proxies: [], ")
    (found,) = house.findings()
    assert (found.code, found.mend) == ("proxy-untrusted", "")
    house.config("trusted_proxies: []", found.advice.partition("config.yaml: ")[2])
    assert house.findings() == []


def test_a_proxy_that_leads_elsewhere_has_a_page(house: House) -> None:
    """R-S1, R-A4: proxy."""
    port = answering_port(house)
    set_port(house.home, port)
    house.gateway("connected")
    with answering(404, "nothing") as elsewhere:
        house.config("extra: {", f"extra: {{public_url: 'http://127.0.0.1:{elsewhere}', ")
        (found,) = house.findings()
    assert (found.code, found.mend) == ("proxy", "")
    assert (Path(__file__).parents[2] / found.advice.split()[0]).is_file()
    house.config(f"127.0.0.1:{elsewhere}", f"127.0.0.1:{port}")
    assert house.findings() == []


def test_a_full_disk_needs_room_or_another_place(house: House, tmp_path: Path) -> None:
    """R-S1, R-M4: disk."""
    full, usage = house.home / "pheby", shutil.disk_usage("/")
    (tmp_path / "roomy").mkdir(mode=0o700)
    house.patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**20 if full.parent == path else 2**40))
    (found,) = house.findings()
    assert (found.code, found.mend) == ("disk", "")
    assert "platforms.pheby.extra.storage" in found.advice
    house.config("extra: {", f"extra: {{storage: {tmp_path / 'roomy'}, ")
    assert house.findings() == []


def test_a_file_that_is_somebody_elses_has_an_advice(house: House) -> None:
    """R-S1: permissions: who may not read it cannot change that."""
    house.patch.setattr(os, "access", lambda path, mode: path != house.home / ".env")
    found = {each.code: each for each in house.findings()}["permissions"]
    assert (found.severity, found.mend, bool(found.advice)) == ("error", "", True)


ADVISED = {
    *("disk", "hermes-missing", "permissions", "proxy", "proxy-untrusted", "python-version", "setting"),
    "setting-unknown",
}
"""Those that the tests above are about."""


def test_every_finding_is_provoked() -> None:
    """R-S1: a code that is new in `doctor` needs a fault and its mending here, or in tests/installed/test_mends.py."""
    found = set()
    for node in ast.walk(ast.parse(Path(doctor.__file__).read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
            # The kinds of a wrong setting are told apart in a function of their own.
            first, severity = node.args[0], node.args[1] if len(node.args) > 1 else None
            if isinstance(first, ast.Constant) and not (isinstance(severity, ast.Constant) and severity.value == "ok"):
                found.add(first.value)
        if isinstance(node, ast.FunctionDef) and node.name == "_kind":
            found |= {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)} & {"secret", "setting"}
    assert {"disk", "port", "secret"} <= found
    assert found == {code for code, _ in CASES} | ADVISED | IN_HERMES_ENVIRONMENT
    there = Path(__file__).parents[1] / "installed" / "test_mends.py"
    assert all(f'"{code}"' in there.read_text() for code in IN_HERMES_ENVIRONMENT)
