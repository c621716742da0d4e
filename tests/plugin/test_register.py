"""What Hermes's processes get by loading the plugin: its registrations, and nothing that most of them never need."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pheby_hermes import PLATFORM, register
from pheby_hermes.hooks import HOOKS

from tests.plugin import fake_hermes
from tests.plugin.fake_hermes import FakeHermes, PlatformEntry, field_names

SECRET = "0123456789abcdef" * 2

LIGHT = """
import sys
from dataclasses import make_dataclass
from types import ModuleType

def stand_in(name, **names):
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(names)

stand_in("gateway")
stand_in("gateway.platform_registry", PlatformEntry=make_dataclass("PlatformEntry", ["emoji", "is_connected"]))
stand_in("hermes_cli")
stand_in("hermes_cli.plugins", VALID_HOOKS={"pre_llm_call"})

class Context:
    calls = []
    def register_platform(self, **options):
        self.calls.append(("platform", sorted(options)))
    def register_hook(self, name, callback):
        self.calls.append(("hook", name))

before = set(sys.modules)
import pheby_hermes
pheby_hermes.register(Context())
assert [call[0] for call in Context.calls] == ["platform", "hook"], Context.calls
heavy = "aiohttp asyncio attrs cattrs gateway.platforms pheby_hermes.adapter pheby_protocol pheby_server".split()
loaded = set(sys.modules) - before
print(sorted(name for name in loaded if any(f"{name}.".startswith(f"{each}.") for each in heavy)))
"""


class Context:
    """What Hermes gives a plugin to register with."""

    def __init__(self) -> None:
        self.platforms: list[dict[str, Any]] = []
        self.hooks: dict[str, Callable[..., None]] = {}

    def register_platform(self, **options: Any) -> None:
        self.platforms.append(options)

    def register_hook(self, name: str, callback: Callable[..., None]) -> None:
        self.hooks[name] = callback


@pytest.fixture
def hermes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHermes:
    return fake_hermes.install(monkeypatch, tmp_path)


@pytest.fixture
def options(hermes: FakeHermes) -> dict[str, Any]:
    """What the platform is registered with."""
    context = Context()
    register(context)
    (options,) = context.platforms
    return options


def test_loading_the_plugin_is_light() -> None:
    """Every Hermes process does it: a prompt, a status display, a cron tick."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_platform_is_registered_once(options: dict[str, Any]) -> None:
    assert options["name"] == PLATFORM == "pheby"
    assert options["required_env"] == ["PHEBY_SECRET"]
    assert options["allowed_users_env"] == "PHEBY_ALLOWED_USERS"
    assert options["max_message_length"] == 0


def test_only_options_that_this_hermes_knows_are_given(options: dict[str, Any]) -> None:
    """Any other raises TypeError there."""
    assert set(options) <= field_names(PlatformEntry)
    PlatformEntry(**options)


def test_only_hooks_that_this_hermes_has_are_registered(hermes: FakeHermes) -> None:
    context = Context()
    register(context)
    assert set(context.hooks) == {"pre_llm_call", "on_session_end"}


def test_registering_opens_and_reads_nothing(hermes: FakeHermes, tmp_path: Path) -> None:
    def asked(name: str) -> str:
        raise AssertionError(name)

    hermes.modules["agent.secret_scope"].get_secret = asked  # type: ignore[attr-defined]
    register(Context())
    assert list(tmp_path.iterdir()) == []


def test_everything_that_is_needed_is_installed_here(options: dict[str, Any]) -> None:
    assert options["check_fn"]() is True


def test_setting_up_takes_the_command_s_steps(
    options: dict[str, Any], hermes: FakeHermes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-S1, R-A8: `hermes gateway setup` in the profile that it works for; on its terminal, so that it can ask."""
    called: list[tuple[list[str], dict[str, Any]]] = []
    monkeypatch.setattr(subprocess, "run", lambda words, **more: called.append((words, more)))
    hermes.home = tmp_path / "profiles" / "work"
    options["setup_fn"]()
    words = [sys.executable, "-m", "pheby", "install", "--home", str(hermes.home), "--no-pip"]
    assert called == [(words, {"check": False})]


def test_a_missing_library_is_told_quietly(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "aiohttp" else name)
    assert options["check_fn"]() is False


def test_connected_means_that_a_secret_is_set(options: dict[str, Any], hermes: FakeHermes) -> None:
    assert options["is_connected"](None) is False
    hermes.secrets["PHEBY_SECRET"] = SECRET
    assert options["is_connected"](None) is True


@pytest.mark.parametrize(
    ("named", "chat_id"), [(None, "1000000000000000"), ("conv_123", "123"), ("conv_x-bXkgY2hhdCE", "my chat!")]
)
def test_what_belongs_to_no_conversation_has_a_home(hermes: FakeHermes, named: str | None, chat_id: str) -> None:
    """Without one Hermes complains in the owner's first conversation."""
    from pheby_hermes import _seed

    assert _seed() is None
    hermes.secrets |= {"PHEBY_SECRET": SECRET} | ({"PHEBY_HOME_CONVERSATION": named} if named else {})
    assert _seed() == {"home_channel": {"chat_id": chat_id, "name": "Pheby"}}


def test_the_manifest_says_what_the_code_does() -> None:
    """The same settings, the same hooks, the same name."""
    package = importlib.import_module("pheby_hermes")
    assert package.__file__ is not None
    manifest = yaml.safe_load(Path(package.__file__).with_name("plugin.yaml").read_text(encoding="utf-8"))
    assert manifest["name"] == PLATFORM
    assert manifest["kind"] == "platform"
    assert manifest["provides_hooks"] == list(HOOKS)
    assert [each["name"] for each in manifest["requires_env"]] == ["PHEBY_SECRET"]
