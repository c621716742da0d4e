"""`pheby config check`: what a Hermes home sets for Pheby, where each value comes from, and what is wrong with it."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from pheby_hermes.config import (
    KEYS,
    PLATFORM_KEYS,
    SECRET_NAMES,
    SECTION,
    Examined,
    Setting,
    examine,
    harmless,
    unknown,
)

from pheby_server.logs import secrets

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_LINE: Final = re.compile(r"\s*(?:export\s+)?(\w+)\s*=(.*)")
_ALLOWED: Final = ("PHEBY_ALLOWED_USERS", "GATEWAY_ALLOWED_USERS")


@attrs.frozen
class Report:
    """The answer. It holds no secret."""

    home: str
    home_from: str
    settings: tuple[Setting, ...]
    problems: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    """Keys that neither Pheby nor Hermes knows; Pheby starts all the same."""

    def as_json(self) -> str:
        return json.dumps(attrs.asdict(self) | {"ok": not self.problems}, indent=2, ensure_ascii=False)

    def as_text(self) -> str:
        width = max(len(setting.name) for setting in self.settings)
        lines = [f"Hermes home: {self.home} ({self.home_from})", ""]
        for setting in self.settings:
            value = setting.value if isinstance(setting.value, str) else json.dumps(setting.value)
            lines.append(f"  {setting.name:{width}}  {value or '(empty)'}  [{setting.source}]")
        lines += ["", *(f"NOT KNOWN: {told}" for told in self.ignored)]
        lines += [f"PROBLEM: {problem}" for problem in self.problems]
        return "\n".join(lines if self.problems else [*lines, "No problem was found."])


def add_parser(subparsers: Subparsers) -> None:
    """Add `config` to the command line; the parsed arguments carry `run`."""
    parser = subparsers.add_parser("config", help="look at the settings of a Hermes home")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    check = actions.add_parser("check", help="print every setting with where it comes from, and what is wrong")
    check.add_argument(
        "--home",
        type=Path,
        metavar="PATH",
        help="the Hermes home; only its files count then. Without it: $HERMES_HOME or ~/.hermes, and the environment",
    )
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    try:
        report = check(args.home, os.environ)
    except ImportError:
        print("pheby: this needs PyYAML: pip install 'pheby[cli]'", file=sys.stderr)
        return 1
    # Even one that was put where another value belongs.
    print(secrets.mask(report.as_json() if args.json else report.as_text()))
    return 1 if report.problems else 0


def check(home: Path | None, environment: Mapping[str, str]) -> Report:
    """Read the files of a home, nothing else; the environment only if no home was named."""
    if home is not None:
        home, home_from = home.expanduser(), "--home"
        environment = {}
    elif environment.get("HERMES_HOME"):
        home, home_from = Path(environment["HERMES_HOME"]).expanduser(), "HERMES_HOME"
    else:
        home, home_from = Path("~/.hermes").expanduser(), "default"
    home = home.absolute()
    problems: list[str] = []
    ignored: list[str] = []
    block, enabled_plugins = _pheby_block(_config(home / "config.yaml", problems), problems, ignored)
    own = _environment_file(home / ".env", problems)
    examined = _examined(block, home, own, environment, problems)
    found = [
        Setting("platforms.pheby.enabled", block.get("enabled") is True, "config.yaml" if block else "default"),
        Setting("plugins.enabled", "pheby" in enabled_plugins, "config.yaml"),
        *examined.settings,
    ]
    return Report(str(home), home_from, tuple(found), (*problems, *examined.problems), (*ignored, *examined.ignored))


def _examined(
    block: Mapping[str, Any], home: Path, own: Mapping[str, str], environment: Mapping[str, str], problems: list[str]
) -> Examined:
    def value_of(name: str) -> str | None:
        # As in Hermes: its own file counts more.
        return own.get(name) or environment.get(name)

    extra = block.get("extra", {})
    if not isinstance(extra, Mapping):
        problems.append(f"{SECTION} must be a mapping")
        extra = {}
    _check_owner(value_of, problems)
    secrets.keep(value_of(name) for name in SECRET_NAMES)
    return examine(extra, str(home), value_of, lambda name: ".env" if own.get(name) else "environment")


def _check_owner(value_of: Callable[[str], str | None], problems: list[str]) -> None:
    named = {user.strip() for name in _ALLOWED for user in (value_of(name) or "").split(",")}
    if not named & {"owner", "*"} and (value_of("GATEWAY_ALLOW_ALL_USERS") or "").lower() not in ("true", "1", "yes"):
        problems.append("PHEBY_ALLOWED_USERS must hold owner: else Hermes does not listen to you")


# Files


def _config(file: Path, problems: list[str]) -> Mapping[str, Any]:
    import yaml

    try:
        read = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append("config.yaml is not there")
        return {}
    except (OSError, UnicodeDecodeError) as failure:
        problems.append(f"config.yaml cannot be read: {type(failure).__name__}")
        return {}
    except (yaml.YAMLError, ValueError, RecursionError) as failure:
        # What YAML says of it holds a piece of the file.
        mark = getattr(failure, "problem_mark", None)
        place = f" near line {mark.line + 1}" if mark is not None else ""
        problems.append(f"config.yaml is not YAML{place}")
        return {}
    return read if isinstance(read, Mapping) else {}


def _pheby_block(
    config: Mapping[str, Any], problems: list[str], ignored: list[str]
) -> tuple[Mapping[str, Any], list[Any]]:
    platforms, plugins = config.get("platforms"), config.get("plugins")
    block = platforms.get("pheby") if isinstance(platforms, Mapping) else None
    enabled = plugins.get("enabled") if isinstance(plugins, Mapping) else None
    if not isinstance(block, Mapping):
        problems.append("platforms.pheby is not set")
        block = {}
    elif block.get("enabled") is not True:
        problems.append("platforms.pheby.enabled must be true")
    for key in block:
        if key in KEYS:
            problems.append(f"platforms.pheby.{key} belongs under {SECTION}: not every Hermes reads it here")
        elif key not in PLATFORM_KEYS:
            (ignored if harmless(key) else problems).append(unknown("platforms.pheby", key, KEYS))
    if not isinstance(enabled, list) or "pheby" not in enabled:
        problems.append("plugins.enabled must hold pheby: else Hermes does not load it")
        enabled = []
    return block, enabled


def _environment_file(file: Path, problems: list[str]) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as failure:
        problems.append(f".env cannot be read: {type(failure).__name__}")
        return {}
    found = {}
    for line in lines:
        matched = _LINE.fullmatch(line)
        if matched is not None:
            name, value = matched[1], matched[2].strip()
            if name.startswith("PHEBY_") and (value[:1] in ("'", '"') or " #" in value):
                problems.append(f"{name} in .env must stand bare: not every Hermes takes quotes and comments away")
                value = value.split(" #")[0].strip().strip("'\"")
            found[name] = value
    return found
