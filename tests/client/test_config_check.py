"""`pheby config check`: what is set, from where, and what is wrong, without a secret's value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pheby import cli, config_check

SECRET = "check-0123456789abcdef-0123456789abcdef"
GOOD: dict[str, Any] = {
    "plugins": {"enabled": ["other", "pheby"]},
    "platforms": {"pheby": {"enabled": True, "extra": {"port": 9_000, "limits": {"heartbeat_ms": 5_000}}}},
}
ENVIRONMENT = f"# mine\nexport PHEBY_SECRET={SECRET}\nPHEBY_ALLOWED_USERS=someone, owner\n\nnonsense\n"


def home(tmp_path: Path, config: object = GOOD, environment: str = ENVIRONMENT) -> Path:
    (tmp_path / "config.yaml").write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    (tmp_path / ".env").write_text(environment)
    return tmp_path


def settings(report: config_check.Report) -> dict[str, tuple[object, str]]:
    return {setting.name: (setting.value, setting.source) for setting in report.settings}


def test_every_setting_is_told_with_where_it_comes_from(tmp_path: Path) -> None:
    """R-K1: what is not set, too."""
    report = config_check.check(home(tmp_path), {})
    found = settings(report)
    assert report.problems == ()
    assert found["platforms.pheby.enabled"] == (True, "config.yaml")
    assert found["platforms.pheby.extra.port"] == (9_000, "config.yaml")
    assert found["platforms.pheby.extra.host"] == ("127.0.0.1", "default")
    assert found["platforms.pheby.extra.storage"] == (f"{tmp_path}/pheby", "default")
    assert found["platforms.pheby.extra.trusted_proxies"] == (["127.0.0.1/32", "::1/128"], "default")
    assert found["platforms.pheby.extra.limits.heartbeat_ms"] == (5_000, "config.yaml")
    assert found["platforms.pheby.extra.limits.max_text_chars"] == (100_000, "default")
    assert found["PHEBY_SECRET"] == ("set", ".env")
    assert found["PHEBY_SECRET_MANAGE"] == ("not set", "default")


@pytest.mark.parametrize(
    ("config", "environment", "named"),
    [
        (GOOD, "PHEBY_ALLOWED_USERS=owner", "PHEBY_SECRET is not set"),
        (GOOD, f"PHEBY_SECRET={SECRET}", "PHEBY_ALLOWED_USERS"),
        (GOOD, ENVIRONMENT + f"PHEBY_SECRET='{SECRET}'", "PHEBY_SECRET in .env must stand bare"),
        (GOOD, ENVIRONMENT + f"PHEBY_SECRET={SECRET} # mine", "PHEBY_SECRET in .env must stand bare"),
        ({}, ENVIRONMENT, "platforms.pheby is not set"),
        ("a: b", ENVIRONMENT, "plugins.enabled"),
        ("[1, 2]", ENVIRONMENT, "plugins.enabled"),
        (GOOD | {"platforms": {"pheby": {"enabled": "yes"}}}, ENVIRONMENT, "platforms.pheby.enabled"),
        (GOOD | {"platforms": {"pheby": {"enabled": True, "port": 1}}}, ENVIRONMENT, "platforms.pheby.port belongs"),
        (GOOD | {"platforms": {"pheby": {"enabled": True, "extra": [1]}}}, ENVIRONMENT, "platforms.pheby.extra must"),
        (f"a: {SECRET}\nb: [", ENVIRONMENT, "config.yaml is not YAML near line 2"),
        ("a: !!python/object:os.system x", ENVIRONMENT, "config.yaml is not YAML near line 1"),
    ],
)
def test_what_is_wrong_is_named_and_no_secret_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: object, environment: str, named: str
) -> None:
    """R-K1, R-L1."""
    arguments = ["config", "check", "--home", str(home(tmp_path, config, environment))]
    for more in ([], ["--json"]):
        assert cli.main([*arguments, *more]) == 1
        printed = capsys.readouterr().out
        assert named in printed
        assert SECRET not in printed


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    extra = {"prot": 1, "port": -1, "host": "0.0.0.0", "limits": {"heartbeat_ms": 1, "max_text": 2}}
    report = config_check.check(home(tmp_path, {"platforms": {"pheby": {"extra": extra}}}, ""), {})
    for named in (
        "extra.prot is unknown: did you mean port?",
        "extra.port must",
        "public_bind",
        "limits.heartbeat_ms must be an integer from 1000 to 600000",
        "limits.max_text is unknown: did you mean max_text_chars?",
        "platforms.pheby.enabled",
        "plugins.enabled",
        "PHEBY_SECRET",
        "PHEBY_ALLOWED_USERS",
    ):
        assert any(named in problem for problem in report.problems), named


@pytest.mark.parametrize("name", ["PHEBY_SECRET", "API_SERVER_KEY"])
def test_a_secret_in_the_place_of_a_setting_is_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """R-L1."""
    config = {"platforms": {"pheby": {"enabled": True, "extra": {"storage": f"/x/{SECRET}", SECRET: SECRET}}}}
    for more in ([], ["--json"]):
        arguments = ["config", "check", "--home", str(home(tmp_path, config, f"{name}={SECRET}")), *more]
        assert cli.main(arguments) == 1
        printed = capsys.readouterr().out
        assert SECRET not in printed
        assert "/x/***" in printed


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "check", "--home", str(home(tmp_path)), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["home"], said["home_from"], said["problems"]) == (True, str(tmp_path), "--home", [])
    assert {"name": "platforms.pheby.extra.port", "value": 9_000, "source": "config.yaml"} in said["settings"]


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "check", "--home", str(home(tmp_path))]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"Hermes home: {tmp_path} (--home)\n")
    assert "No problem was found." in printed


def test_a_home_that_was_named_is_all_that_counts(tmp_path: Path) -> None:
    """R-A8: the environment is another process's."""
    named = home(tmp_path, environment="")
    report = config_check.check(named, {"PHEBY_SECRET": SECRET, "HERMES_HOME": "/nowhere"})
    assert settings(report)["PHEBY_HOME_CONVERSATION"][1] == "default"
    assert any("PHEBY_SECRET is not set" in problem for problem in report.problems)


def test_without_a_name_it_is_hermess_home_and_the_environment(tmp_path: Path) -> None:
    other = {"HERMES_HOME": str(home(tmp_path)), "PHEBY_SECRET": "x", "PHEBY_SECRET_MANAGE": SECRET[::-1]}
    report = config_check.check(None, other)
    assert (report.home, report.home_from, report.problems) == (str(tmp_path), "HERMES_HOME", ())
    # Hermes's own file counts more.
    assert settings(report)["PHEBY_SECRET"] == ("set", ".env")
    assert settings(report)["PHEBY_SECRET_MANAGE"] == ("set", "environment")


def test_the_usual_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    report = config_check.check(None, {})
    assert (report.home, report.home_from) == (str(tmp_path / ".hermes"), "default")
    assert "config.yaml is not there" in report.problems


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    (tmp_path / ".env").write_bytes(b"\xff\xfe")
    problems = config_check.check(tmp_path, {}).problems
    assert "config.yaml cannot be read: IsADirectoryError" in problems
    assert ".env cannot be read: UnicodeDecodeError" in problems


def test_only_reading(tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in home(tmp_path).iterdir()}
    config_check.check(tmp_path, {})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_key_that_nobody_knows_is_told_and_no_problem(tmp_path: Path) -> None:
    """R-K1, R-A7: beside `extra` as in it, since 0.22 takes both; what was meant to be one of Pheby's is a problem."""
    text = "plugins: {enabled: [pheby]}\nplatforms: {pheby: {enabled: true, send_read_receipts: true, %s: 1, "
    text += "extra: {%s: 1}}}\n"
    (tmp_path / ".env").write_text(f"PHEBY_SECRET={'0123456789abcdef' * 2}\nPHEBY_ALLOWED_USERS=owner\n")
    (tmp_path / "config.yaml").write_text(text % ("zzz", "yyy"))
    report = config_check.check(tmp_path, {})
    assert report.problems == ()
    assert [told.split(" is ")[0] for told in report.ignored] == ["platforms.pheby.zzz", "platforms.pheby.extra.yyy"]
    assert "NOT KNOWN: platforms.pheby.zzz" in report.as_text()
    (tmp_path / "config.yaml").write_text(text % ("prot", "hots"))
    assert len(config_check.check(tmp_path, {}).problems) == 2
