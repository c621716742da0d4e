"""Which Hermes home is meant, and which Python runs its Hermes. The home is named, never guessed."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from .errors import InstallError
from .files import read_text

_PROFILE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_STARTS_PYTHON: Final = re.compile(r"#!\s*(/\S*python[0-9.]*)\s*$|^'''exec' \"?(/[^\"\n]*?python[0-9.]*)\"? ", re.M)


def find_home(home: Path | None, profile: str | None, environment: Mapping[str, str]) -> Path:
    """The Hermes home that was named, by its path or as a profile. Raises InstallError."""
    if (home is None) == (profile is None):
        raise InstallError("Say which Hermes home is meant: --home PATH or --profile NAME, one of them.")
    found = home.expanduser().absolute() if home is not None else profile_home(profile or "", environment)
    if not (found / "config.yaml").is_file():
        raise InstallError(
            f"{found} is not a Hermes home: it has no config.yaml. If Hermes is installed, run `hermes setup` first."
        )
    return found


def profile_home(profile: str, environment: Mapping[str, str]) -> Path:
    """Where Hermes keeps a profile; `default` is the first one."""
    if not _PROFILE.fullmatch(profile):
        raise InstallError("A profile's name consists of a to z, 0 to 9, - and _, and begins with a letter or digit.")
    root = first_home(Path(environment.get("HERMES_HOME") or "~/.hermes").expanduser().absolute())
    return root if profile == "default" else root / "profiles" / profile


def first_home(home: Path) -> Path:
    """The home of the profile `default`, in whose folder the others are."""
    return home.parent.parent if home.parent.name == "profiles" else home


def profile_of(home: Path) -> str:
    """The name of the profile with this home."""
    return home.name if home.parent.name == "profiles" else "default"


def other_profiles(home: Path) -> list[Path]:
    """The homes of the other profiles of the same Hermes."""
    first = first_home(home)
    homes = [first, *sorted((first / "profiles").glob("*"))]
    return [other for other in homes if other != home and (other / "config.yaml").is_file()]


def find_python(named: Path | None, recorded: str | None, home: Path) -> Path:
    """The Python of the environment that Hermes is installed in. Raises InstallError."""
    if named is not None:
        # Not resolved: a link is how an environment of its own is told from the one that it was made of.
        named = named.expanduser().absolute()
        if not os.access(named, os.X_OK) or named.is_dir():
            raise InstallError(f"{named} is no program. Name the Python that runs Hermes.")
        return named
    for candidate in _candidates(recorded, home):
        if os.access(candidate, os.X_OK) and candidate.is_file():
            return candidate
    raise InstallError("The Python that runs Hermes was not found. Name it: --hermes-python PATH")


def _candidates(recorded: str | None, home: Path) -> Iterator[Path]:
    """What was used at the installation, what the gateway last ran, this very Python, the command on PATH."""
    if recorded:
        yield Path(recorded)
    for record in gateway_records(home):
        argv = record.get("argv")
        if isinstance(argv, list) and argv and isinstance(argv[0], str):
            yield from _python_of(Path(argv[0]))
    if find_spec("hermes_cli") is not None:
        yield Path(sys.executable)
    command = shutil.which("hermes")
    if command is not None:
        yield from _python_of(Path(command))


def _python_of(command: Path) -> Iterator[Path]:
    """The Python of a script, or of the environment that a module is in."""
    if not command.is_absolute():
        return
    try:
        with command.open("rb") as script:
            head = script.read(2_000).decode(errors="replace")
    except OSError:
        return
    named = _STARTS_PYTHON.search(head)
    if head.startswith("#!") and named is not None:
        yield Path(named[1] or named[2])
    for folder in command.parents:
        if folder.name in ("site-packages", "dist-packages"):
            yield folder.parents[2] / "bin" / "python"


def gateway_records(home: Path) -> Iterator[dict[str, Any]]:
    """What the gateways that may serve a home last wrote about themselves: its own, and one for several profiles."""
    yield _record(home)
    first = first_home(home)
    if first != home:
        shared = _record(first)
        served = shared.get("served_profiles")
        if isinstance(served, list) and profile_of(home) in served:
            yield shared


def _record(home: Path) -> dict[str, Any]:
    """Empty if there is nothing readable."""
    try:
        said = json.loads(read_text(home / "gateway_state.json") or "{}")
    except (InstallError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
