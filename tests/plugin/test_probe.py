"""What Hermes's environment says of itself: each seam on its own, and no more than looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pheby_hermes import _hermes, probe

from tests.plugin import fake_hermes
from tests.plugin.fake_hermes import BasePlatformAdapter, FakeHermes, Runner

HOOKS = "pre_tool_call post_tool_call pre_llm_call post_llm_call on_session_end api_request_error subagent_start"
HOOKS += " subagent_stop pre_approval_request post_approval_response"


class Sessions:
    """Hermes's store, as far as it is looked at."""

    list_sessions_rich = get_messages = set_session_title = delete_session = close = None


@pytest.fixture
def hermes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHermes:
    """A Hermes that has all."""
    hermes = fake_hermes.install(monkeypatch, tmp_path)
    for name in ("connect", "disconnect", "send", "edit_message", "get_chat_info", "send_document"):
        monkeypatch.setattr(BasePlatformAdapter, name, None, raising=False)
    base = hermes.modules["gateway.platforms.base"]
    monkeypatch.setattr(base, "validate_media_delivery_path", str, raising=False)
    monkeypatch.setattr(hermes.modules["hermes_state"], "SessionDB", Sessions)
    monkeypatch.setattr(hermes.modules["hermes_cli.plugins"], "VALID_HOOKS", set(HOOKS.split()))
    runner = SimpleNamespace(GatewayRunner=Runner)
    monkeypatch.setitem(sys.modules, "gateway.run", runner)  # type: ignore[arg-type]
    monkeypatch.setattr(hermes.modules["gateway"], "run", runner, raising=False)
    return hermes


def missing() -> list[str]:
    said = probe.examine()
    return [name for part in ("needed", "optional") for name, there in said[part].items() if not there]


def test_a_hermes_that_has_all_misses_nothing(hermes: FakeHermes, tmp_path: Path) -> None:
    """R-A7: and looking leaves nothing in its home."""
    assert missing() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "name", "seam"),
    [
        ("gateway.platform_registry", "PlatformEntry", "platform registry"),
        ("hermes_state", "SessionDB", "sessions"),
        ("hermes_constants", "get_hermes_home", "Hermes home"),
        ("tools.approval", None, "approvals"),
        ("tools.clarify_gateway", None, "clarifications"),
        ("gateway.platforms.base", "validate_media_delivery_path", "attachments"),
        ("hermes_cli.model_switch", "resolve_persist_behavior", "models"),
        ("agent.secret_scope", "get_secret", "profiles"),
        ("agent.redact", "redact_sensitive_text", "redaction"),
    ],
)
def test_a_seam_that_is_gone_is_named(
    module: str, name: str | None, seam: str, hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7: that one alone; the others are still seen."""
    hermes.without(monkeypatch, module, name)
    assert missing() == [seam]


@pytest.mark.parametrize(
    ("hook", "seam"),
    [
        ("post_tool_call", "tools"),
        ("on_session_end", "runs"),
        ("subagent_stop", "subagents"),
        ("pre_approval_request", "approvals"),
    ],
)
def test_a_hook_that_is_not_fired_any_more_is_named(
    hook: str, seam: str, hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7: a callback would be registered and never be called."""
    plugins = hermes.modules["hermes_cli.plugins"]
    monkeypatch.setattr(plugins, "VALID_HOOKS", set(HOOKS.split()) - {hook})
    assert missing() == [seam]


@pytest.mark.parametrize("name", ["handle_message", "_mark_connected", "edit_message"])
def test_a_method_of_the_adapter_that_is_gone_is_named(
    name: str, hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7: also one that only Pheby's own class would have by then."""
    monkeypatch.delattr(BasePlatformAdapter, name)
    assert missing() == ["adapter base class"]


@pytest.mark.parametrize(
    ("name", "seams"),
    [("_handle_model_command", ["models"]), ("_handle_reasoning_command", ["reasoning effort"])],
)
def test_a_picker_that_is_gone_is_named(
    name: str, seams: list[str], hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7."""
    monkeypatch.delattr(Runner, name)
    assert missing() == seams


def test_a_gateway_of_another_name_costs_the_pickers(hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-A7."""
    monkeypatch.setitem(sys.modules, "gateway.run", None)
    assert _hermes.gateway_class() is None
    assert missing() == ["models", "reasoning effort"]


def test_an_error_that_nobody_expects_is_a_seam_that_is_gone(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7: a changed Hermes raises what it likes."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("not any more")

    monkeypatch.setattr(hermes.modules["hermes_constants"], "get_hermes_home", broken)
    assert missing() == ["Hermes home"]


def test_without_hermes_all_is_missing_and_said_in_one_line() -> None:
    """R-A7: as a command, in an environment that has none; nothing stands before its line."""
    done = subprocess.run([sys.executable, "-m", "pheby_hermes.probe"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    said = json.loads(line)
    assert not any(said["needed"].values())
    assert (said["entry_point"], said["aiohttp"] is None) == (True, False)
