"""`pheby doctor`: each fault that it knows, made for real where that can be done, and what mends it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pheby.install import doctor, package
from pheby.install.doctor import Finding
from tests.install.conftest import Pheby, tree
from tests.install.test_gateway import answering

PROBE: dict[str, Any] = {
    "python": "3.11.7",
    "hermes": "0.19.0",
    "pheby": package.version(),
    "aiohttp": "3.14.5",
    "entry_point": True,
    "missing": [],
    "adapter": True,
}


def gone(symbol: str, *, needed: bool = False) -> dict[str, Any]:
    """What the probe says of a symbol that is missing."""
    return {"symbol": symbol, "needed": needed, "parts": [{"name": "models", "without": "none can be chosen"}]}


Look = Callable[..., dict[str, Finding]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def look(home: Path, pheby: Pheby, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Install, then look; what is not ok, by its code. Hermes's environment says what it is told to."""
    assert pheby("install", "--yes", "--port", str(free_port())) == 0

    def look(**said: Any) -> dict[str, Finding]:
        probe = None if said.get("probe", True) is None else PROBE | said
        monkeypatch.setattr(package, "probe", lambda _: probe)
        found = doctor.examine(home, Path(sys.executable))
        return {finding.code: finding for finding in found if finding.severity != "ok"}

    return look


def test_profiles_have_ports_and_secrets_of_their_own(home: Path, pheby: Pheby, look: Look) -> None:
    """R-S1, R-A8: a profile that is made as a copy of another has both from there."""
    assert "profile-port" not in look()
    copy = home / "profiles" / "copy"
    copy.mkdir(parents=True)
    for name in ("config.yaml", ".env"):
        shutil.copy(home / name, copy / name)
    found = look()
    assert set(found) == {"profile-port", "profile-secret"}
    assert " install --port " in found["profile-port"].mend
    assert "secret rotate" in found["profile-secret"].mend
    assert pheby("secret", "rotate", "--yes") == 0
    assert pheby("install", "--yes", "--port", str(free_port())) == 0
    assert look() == {}
    # One that does not use Pheby may say what it likes.
    (copy / "config.yaml").write_text("platforms: {pheby: {enabled: false}}\n")
    shutil.copy(home / ".env", copy / ".env")
    assert look() == {}


def running(home: Path, state: str) -> None:
    record = {
        "pid": os.getpid(),
        "start_time": None,
        "gateway_state": "running",
        "platforms": {"pheby": {"state": state}},
    }
    (home / "gateway_state.json").write_text(json.dumps(record))


def set_port(home: Path, port: int) -> None:
    text = (home / "config.yaml").read_text()
    head, _, tail = text.partition("port: ")
    (home / "config.yaml").write_text(f"{head}port: {port}{tail[tail.index('}') :]}")


def test_all_is_well_after_an_installation(look: Look, home: Path) -> None:
    """R-S1: and looking changes nothing."""
    before = tree(home)
    assert look() == {}
    assert tree(home) == before


@pytest.mark.parametrize(
    ("said", "code", "severity"),
    [
        ({"hermes": "0.18.9"}, "hermes-version", "error"),
        ({"hermes": "0.23.0"}, "hermes-version", "warning"),
        ({"hermes": "unknown"}, "hermes-version", "error"),
        ({"python": "3.10.12"}, "python-version", "error"),
        ({"python": "3.15.0"}, "python-version", "error"),
        ({"aiohttp": "3.14.3"}, "aiohttp", "warning"),
        ({"aiohttp": None}, "aiohttp", "error"),
        ({"missing": [gone("gateway.config:Platform", needed=True)]}, "seam-missing", "error"),
        ({"missing": [gone("gateway.config:Platform", needed=True)], "adapter": False}, "seam-missing", "error"),
        ({"adapter": False}, "seam-missing", "error"),
        ({"missing": [gone("hermes_cli.model_switch:resolve")]}, "seam-optional", "warning"),
        ({"pheby": "0.0.9"}, "stale-copy", "warning"),
        ({"probe": None}, "package-missing", "error"),
    ],
)
def test_what_is_wrong_with_hermes_s_environment(said: dict[str, Any], code: str, severity: str, look: Look) -> None:
    """R-S1, R-A7: that, and nothing else, is found."""
    found = look(**said)
    assert {name: finding.severity for name, finding in found.items()} == {code: severity}


@pytest.mark.parametrize(
    "said", [{"hermes": "0.22.2.post1"}, {"python": "3.14.0"}, {"aiohttp": "3.14.4"}, {"aiohttp": "4.0"}]
)
def test_what_is_right_with_it(said: dict[str, Any], look: Look) -> None:
    """R-A7: both lines, and every Python from 3.11 to 3.14."""
    assert look(**said) == {}


def test_a_seam_is_named(look: Look) -> None:
    """R-A7: by its own name, and the owner learns what does not work without it."""
    text = look(missing=[gone("hermes_cli.model_switch:resolve")])["seam-optional"].text
    assert all(word in text for word in ("hermes_cli.model_switch:resolve", "models", "none can be chosen"))


def test_without_hermes_it_says_how_to_name_it(home: Path, pheby: Pheby) -> None:
    """R-S1."""
    assert pheby("install", "--yes", "--port", str(free_port())) == 0
    found = {finding.code: finding for finding in doctor.examine(home, None) if finding.severity != "ok"}
    assert list(found) == ["hermes-missing"]
    assert "--hermes-python" in found["hermes-missing"].advice


def not_enabled(home: Path) -> None:
    text = (home / "config.yaml").read_text()
    (home / "config.yaml").write_text(text.replace("[pheby]", "[]"))


def switched_off(home: Path) -> None:
    text = (home / "config.yaml").read_text()
    (home / "config.yaml").write_text(text.replace("enabled: true", "enabled: false"))


def no_secret(home: Path) -> None:
    (home / ".env").write_text("PHEBY_ALLOWED_USERS=owner\n")


def weak_secret(home: Path) -> None:
    (home / ".env").write_text("PHEBY_SECRET=abc\nPHEBY_ALLOWED_USERS=owner\n")


def the_api_servers_key(home: Path) -> None:
    key = "0123456789abcdef" * 4
    (home / ".env").write_text(f"PHEBY_SECRET={key}\nAPI_SERVER_KEY={key}\nPHEBY_ALLOWED_USERS=owner\n")


def nobody_allowed(home: Path) -> None:
    (home / ".env").write_text("".join((home / ".env").read_text().splitlines(keepends=True)[:1]))


def a_bad_setting(home: Path) -> None:
    set_port(home, 99_999)


def an_old_folder(home: Path) -> None:
    (home / "plugins/pheby/plugin.yaml").write_text("name: pheby\nversion: 0.0.1\n")


def a_broken_folder(home: Path) -> None:
    (home / "plugins/pheby/plugin.yaml").write_text("[")


def readable_secrets(home: Path) -> None:
    (home / ".env").chmod(0o640)


def readable_conversations(home: Path) -> None:
    (home / "pheby").mkdir(mode=0o755)
    (home / "pheby").chmod(0o755)


def a_clock_that_went_back(home: Path) -> None:
    later = time.time() + 3_600
    (home / "state.db").touch()
    os.utime(home / "state.db", (later, later))


def not_connected(home: Path) -> None:
    running(home, "fatal")


def no_listener(home: Path) -> None:
    running(home, "connected")


def no_proxies(home: Path) -> None:
    text = (home / "config.yaml").read_text()
    (home / "config.yaml").write_text(
        text.replace("extra: {", "extra: {public_url: 'https://pheby.example.org', trusted_proxies: [], ")
    )


@pytest.mark.parametrize(
    ("fault", "code", "severity"),
    [
        (not_enabled, "plugin-disabled", "error"),
        (switched_off, "plugin-disabled", "error"),
        (no_secret, "secret", "error"),
        (weak_secret, "secret", "error"),
        (the_api_servers_key, "secret", "error"),
        (nobody_allowed, "setting", "error"),
        (a_bad_setting, "setting", "error"),
        (an_old_folder, "stale-copy", "warning"),
        (a_broken_folder, "stale-copy", "warning"),
        (readable_secrets, "permissions", "warning"),
        (readable_conversations, "permissions", "warning"),
        (a_clock_that_went_back, "clock", "warning"),
        (no_proxies, "proxy-untrusted", "warning"),
    ],
)
def test_what_is_wrong_in_a_home(
    fault: Callable[[Path], None], code: str, severity: str, look: Look, home: Path
) -> None:
    """R-S1, R-A5, R-K1: that, and nothing else, is found, with what mends it."""
    fault(home)
    found = look()
    found.pop("port", None) if fault is a_bad_setting else None
    assert {name: finding.severity for name, finding in found.items()} == {code: severity}
    assert found[code].mend or found[code].advice


def test_a_gateway_without_pheby_is_found(look: Look, home: Path) -> None:
    """R-S1, L7: that something answers on the port is not enough."""
    not_connected(home)
    assert look()["plugin-not-connected"].severity == "error"
    no_listener(home)
    assert list(look()) == ["port"]


def test_a_gateway_with_pheby_is_well(look: Look, home: Path) -> None:
    """R-S1: its own record and the port say so."""
    running(home, "connected")
    with answering(200, '{"status":"ok"}') as port:
        set_port(home, port)
        assert look() == {}


def test_a_port_of_another_is_found(look: Look, home: Path) -> None:
    """R-S1, L7: another program's, one that says nothing in HTTP, and another home's Pheby."""
    for text, told in (("hello", "another program"), ('{"status":"ok"}', "another home's Pheby")):
        with answering(200, text) as port:
            set_port(home, port)
            found = look()
            assert list(found) == ["port"]
            assert told in found["port"].text
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        set_port(home, taken.getsockname()[1])
        assert list(look()) == ["port"]


def test_a_public_address_is_asked(look: Look, home: Path) -> None:
    """R-S1, R-A4: that it leads here, and not to another."""
    running(home, "connected")
    text = (home / "config.yaml").read_text()
    for said, expected in (('{"status":"ok"}', []), ("welcome to nginx", ["proxy"])):
        with answering(200, '{"status":"ok"}') as port, answering(200, said) as public:
            (home / "config.yaml").write_text(
                text.replace("extra: {", f"extra: {{public_url: 'http://127.0.0.1:{public}', ")
            )
            set_port(home, port)
            assert list(look()) == expected
    with answering(200, '{"status":"ok"}') as port:
        set_port(home, port)
        assert list(look()) == ["proxy"]


@pytest.mark.parametrize(("free", "severity"), [(2**20, "error"), (2**29, "warning")])
def test_a_full_disk_is_found(free: int, severity: str, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-S1, R-M4: before it is full."""
    usage = shutil.disk_usage("/")._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert look()["disk"].severity == severity


def test_the_exit_code_and_json(
    look: Look, home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-S1: 0 if all is well, 1 if anything was found; each finding with its five words."""
    look()
    capsys.readouterr()
    assert pheby("doctor", "--hermes-python", sys.executable, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is True
    assert all(set(finding) == {"code", "severity", "text", "mend", "advice"} for finding in said["findings"])
    weak_secret(home)
    assert pheby("doctor", "--hermes-python", sys.executable) == 1
    assert "[secret]" in capsys.readouterr().out
