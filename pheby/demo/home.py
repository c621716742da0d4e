"""A Hermes home for the demo and the tests: one folder that holds everything a gateway needs."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from pheby.demo.errors import BrokenHomeError, DemoError, ForeignHomeError
from pheby.install.package import SHIM

Plugin = Literal["folder", "entry_point"]

MARKER = ".pheby-demo.json"
# Another plugin in Pheby's place needs a name of its own: under Pheby's, the older line takes the installed Pheby.
STAND_IN = "pheby-stand-in"
_FORMAT = 1


@dataclass(frozen=True)
class DemoHome:
    """A prepared Hermes home."""

    path: Path
    secret: str
    port: int

    def __repr__(self) -> str:
        return f"DemoHome(path={str(self.path)!r}, port={self.port})"


def prepare_home(
    path: Path,
    *,
    model_url: str,
    model_name: str = "scripted-1",
    api_key: str,
    port: int,
    secret: str | None = None,
    hermes_defaults: bool = False,
    plugin: Plugin = "folder",
    plugin_source: Path | None = None,
    extra: Mapping[str, Any] | None = None,
) -> DemoHome:
    """Make a home, or take one the demo made earlier: then only the model's address and the port change."""
    path = path.expanduser().resolve()
    if secret is not None and not re.fullmatch(r"[\x21-\x7e]+", secret):
        raise ValueError("a secret is one word of printable ASCII")
    known = _claim(path)
    config_file = path / "config.yaml"
    # A home is marked before it is filled: one that was killed in between is simply filled now.
    config = _read_config(config_file) if known and config_file.exists() else None
    if config is None:
        config = _fresh_config(path, hermes_defaults)
    _point_at(config, model_url=model_url, port=port)
    if not known or known.get("model") != model_name:
        config["model"].update({"default": model_name, "api_key": api_key})
    # Where this is there 0.19, too, offers all of the server's models. Under another name it would send them no effort.
    named = {"name": "Demo", "base_url": model_url, "api_key": config["model"].get("api_key") or api_key}
    _merge(config, {"providers": {"custom": named}})
    _enable(config, "pheby" if plugin_source is None else STAND_IN)
    _merge(config, extra or {})
    _write_private(config_file, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    (path / "work").mkdir(exist_ok=True)
    (path / "logs").mkdir(exist_ok=True)
    kept_secret = _write_environment(path / ".env", secret)
    _place_plugin(path / "plugins", plugin, plugin_source)
    _write_marker(path, model_name)
    return DemoHome(path, kept_secret, port)


def _claim(path: Path) -> dict[str, Any]:
    """What the marker of a reused home says; empty for a new home. Refuses what the demo did not make."""
    marker = path / MARKER
    if marker.exists():
        try:
            said = json.loads(marker.read_text())
        except (OSError, ValueError):
            said = None
        if not isinstance(said, dict) or said.get("format") != _FORMAT:
            raise ForeignHomeError(
                f"{path} was made by another version of the demo. Choose another folder, or remove it."
            )
        return said
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ForeignHomeError(
            f"{path} is not empty and was not made by the Pheby demo, so it is left alone. "
            "Choose a folder that is empty or does not exist yet. "
            "To add Pheby to a Hermes home of your own, use: pheby install"
        )
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    _write_marker(path, None)
    return {}


def _write_marker(path: Path, model_name: str | None) -> None:
    said = {"made_by": "pheby demo", "format": _FORMAT, "model": model_name}
    _write_private(path / MARKER, json.dumps(said) + "\n")


def _fresh_config(path: Path, hermes_defaults: bool) -> dict[str, Any]:
    config: dict[str, Any] = {
        # The length is given so that Hermes does not ask the model server around for it.
        "model": {"provider": "custom", "context_length": 200_000},
        "platforms": {"pheby": {"enabled": True, "extra": {}}},
        "terminal": {"backend": "local", "cwd": str(path / "work")},
        # Hermes's own "smart" mode asks the model, and a scripted model judges nothing.
        "approvals": {"mode": "manual", "timeout": 300},
        "compression": {"enabled": False},
        "memory": {"memory_enabled": False, "user_profile_enabled": False},
        "onboarding": {"profile_build": "off"},
        "skills": {"creation_nudge_interval": 0},
        # Else the first turn installs packages, and 0.19 downloads a scanner.
        "security": {"allow_lazy_installs": False, "tirith_enabled": False},
    }
    if not hermes_defaults:
        config["streaming"] = {
            "enabled": True,
            "transport": "auto",
            "edit_interval": 0.25,
            "buffer_threshold": 1,
            "cursor": "",
        }
        config["display"] = {
            "platforms": {
                "pheby": {
                    "tool_progress": "off",
                    "streaming": True,
                    "interim_assistant_messages": True,
                    "long_running_notifications": False,
                    "busy_ack_detail": False,
                    "busy_steer_ack_enabled": False,
                }
            }
        }
    return config


def _read_config(file: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        config = None
    if not isinstance(config, dict):
        raise BrokenHomeError(
            f"{file} is not readable as YAML any more. Repair it, or remove the folder {file.parent}."
        )
    return config


def _point_at(config: dict[str, Any], *, model_url: str, port: int) -> None:
    _merge(config, {"model": {"base_url": model_url}, "platforms": {"pheby": {"extra": {"port": port}}}})


def _merge(target: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping):
            inner = target.get(key)
            if not isinstance(inner, dict):
                inner = target[key] = {}
            _merge(inner, value)
        else:
            target[key] = value


def _write_environment(file: Path, secret: str | None) -> str:
    """Write the secret and the owner's name into .env, keeping every other line; the secret now in force."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    entries = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
    kept = secret or entries.get("PHEBY_SECRET") or secrets.token_hex(32)
    wanted = {"PHEBY_SECRET": kept, "PHEBY_ALLOWED_USERS": entries.get("PHEBY_ALLOWED_USERS", "owner")}
    others = [line for line in lines if line.split("=", 1)[0] not in wanted]
    # Bare, without quotes: 0.19 keeps quotes and comments as a part of the value.
    _write_private(file, "".join(f"{line}\n" for line in [*others, *(f"{k}={v}" for k, v in wanted.items())]))
    return kept


def _enable(config: dict[str, Any], name: str) -> None:
    plugins = config.get("plugins")
    enabled = plugins.get("enabled") if isinstance(plugins, dict) else None
    others = [other for other in enabled if other not in ("pheby", STAND_IN)] if isinstance(enabled, list) else []
    _merge(config, {"plugins": {"enabled": [*others, name]}})


def _place_plugin(plugins: Path, plugin: Plugin, source: Path | None) -> None:
    # The folders are copies of something that may have changed since, so they are made anew each time.
    for folder in (plugins / "pheby", plugins / STAND_IN):
        if folder.exists():
            shutil.rmtree(folder)
    if source is not None:
        shutil.copytree(source, plugins / STAND_IN, ignore=shutil.ignore_patterns("__pycache__"))
        manifest = plugins / STAND_IN / "plugin.yaml"
        said = yaml.safe_load(manifest.read_text(encoding="utf-8"))
        manifest.write_text(yaml.safe_dump({**said, "name": STAND_IN}, sort_keys=False), encoding="utf-8")
    elif plugin == "folder":
        (plugins / "pheby").mkdir(parents=True)
        shutil.copyfile(_manifest(), plugins / "pheby" / "plugin.yaml")
        (plugins / "pheby" / "__init__.py").write_text(SHIM, encoding="utf-8")


def _manifest() -> Path:
    spec = importlib.util.find_spec("pheby_hermes")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        if (Path(place) / "plugin.yaml").is_file():
            return Path(place) / "plugin.yaml"
    raise DemoError("The plugin's manifest is missing from this installation of Pheby. Install Pheby again.")


def _write_private(file: Path, text: str) -> None:
    unfinished = file.with_name(f"{file.name}.new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    unfinished.replace(file)
