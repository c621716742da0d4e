"""What Hermes's environment says of itself: each seam on its own, and no more than looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pheby_hermes import _hermes, probe, seams
from pheby_hermes.hooks import HOOKS

from tests.plugin import fake_hermes
from tests.plugin.fake_hermes import BasePlatformAdapter, FakeHermes


@pytest.fixture(params=["old", "new"])
def hermes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHermes:
    """A Hermes that has all, of either line."""
    hermes = fake_hermes.install(monkeypatch, tmp_path, shape=request.param)
    monkeypatch.setattr(hermes.modules["hermes_cli.plugins"], "VALID_HOOKS", set(HOOKS))
    monkeypatch.setattr(_hermes, "version", lambda: "0.19.0" if request.param == "old" else "0.22.2.post1")
    return hermes


def missing() -> dict[str, list[str]]:
    """What is missing, by what is lost."""
    return {each["symbol"]: [part["name"] for part in each["parts"]] for each in probe.examine()["missing"]}


def test_a_hermes_that_has_all_misses_nothing(hermes: FakeHermes, tmp_path: Path) -> None:
    """R-A7: and looking leaves nothing in its home."""
    assert missing() == {}
    assert list(tmp_path.iterdir()) == []
    assert probe.examine()["adapter"] is True


@pytest.mark.parametrize(
    ("module", "name", "parts"),
    [
        ("gateway.platform_registry", "PlatformEntry", ["Pheby itself", "comforts of Hermes's own commands"]),
        ("hermes_constants", "get_hermes_home", ["Pheby itself"]),
        ("tools.clarify_gateway", "get_clarify_timeout", ["time of a clarification"]),
        ("gateway.platforms.base", "validate_media_delivery_path", ["attachments"]),
        ("hermes_cli.model_switch", "resolve_persist_behavior", ["models"]),
        ("agent.secret_scope", "get_secret", ["profiles"]),
        ("agent.redact", None, ["redaction"]),
        ("hermes_cli.plugins", "VALID_HOOKS", ["list of hooks"]),
    ],
)
def test_a_seam_that_is_gone_is_named(
    module: str, name: str | None, parts: list[str], hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7: the outermost of what is gone, with all that is lost; the others are still seen."""
    hermes.without(monkeypatch, module, name)
    assert missing() == {module if name is None else f"{module}:{name}": parts}


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_is_not_fired_any_more_is_named(
    hook: str, hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7: a callback would be registered and never be called."""
    monkeypatch.setattr(hermes.modules["hermes_cli.plugins"], "VALID_HOOKS", set(HOOKS) - {hook})
    assert list(missing()) == [f"hermes_cli.plugins:VALID_HOOKS[{hook}]"]


@pytest.mark.parametrize("name", ["handle_message", "_mark_connected"])
def test_a_method_of_the_adapter_that_is_gone_is_named(
    name: str, hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7: and Pheby does not start without it."""
    monkeypatch.delattr(BasePlatformAdapter, name)
    (found,) = probe.examine()["missing"]
    assert (found["symbol"], found["needed"]) == (f"gateway.platforms.base:BasePlatformAdapter.{name}", True)
    assert _hermes.indispensable() == (found["symbol"],)


def test_a_name_of_another_line_is_not_missed(hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-A7: what only a newer Hermes has is a difference, not a fault."""
    monkeypatch.setattr(_hermes, "version", lambda: "0.21.3")
    new = hermes.clarifications.new
    assert ("tools.clarify_gateway:SKIPPED" in seams.named("0.22"), "tools.clarify_gateway:SKIPPED" in missing()) == (
        True,
        False,
    )
    monkeypatch.setattr(_hermes, "version", lambda: "unknown")
    assert ("tools.clarify_gateway:SKIPPED" in missing()) is not new


@pytest.mark.parametrize(
    ("version", "line"),
    [("0.18.9", "0.19"), ("0.19.0", "0.19"), ("0.21.4", "0.19"), ("0.22.2.post1", "0.22"), ("1.0", "0.22")],
)
def test_the_line_of_a_version(version: str, line: str) -> None:
    assert seams.line_of(version) == line


def test_an_error_that_nobody_expects_is_a_seam_that_is_gone(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7: a changed Hermes raises what it likes."""

    class Broken:
        def __contains__(self, name: object) -> bool:
            raise RuntimeError("not any more")

    monkeypatch.setattr(hermes.modules["hermes_cli.plugins"], "VALID_HOOKS", Broken())
    assert set(missing()) == {f"hermes_cli.plugins:VALID_HOOKS[{hook}]" for hook in HOOKS}


def test_without_hermes_all_is_missing_and_said_in_one_line() -> None:
    """R-A7: as a command, in an environment that has none; nothing stands before its line."""
    done = subprocess.run([sys.executable, "-m", "pheby_hermes.probe"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    said = json.loads(line)
    assert {"gateway.platforms.base", "tools.approval", "hermes_state"} <= {each["symbol"] for each in said["missing"]}
    assert said["adapter"] is False
    assert (said["entry_point"], said["aiohttp"] is None) == (True, False)
