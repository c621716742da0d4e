"""Pheby's code in Hermes's own Python environment: what is there, and how it gets there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from pheby.demo.lines import checkout

from .errors import InstallError

SHIM: Final = (
    '"""Pheby as a folder plugin: the code is the installed package."""\n\nfrom pheby_hermes import register\n\n'
    '__all__ = ["register"]\n'
)
_LOG_LINES_SHOWN: Final = 15
_PIP_SECONDS: Final = 600
_PROBE_SECONDS: Final = 120


def version() -> str:
    """The version of the Pheby that this command belongs to."""
    return importlib.metadata.version("pheby")


def manifest() -> str:
    """plugin.yaml, as it is placed into a home. Raises InstallError."""
    spec = importlib.util.find_spec("pheby_hermes")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        file = Path(place) / "plugin.yaml"
        if file.is_file():
            return file.read_text(encoding="utf-8")
    raise InstallError("The plugin's manifest is missing from this installation of Pheby. Install Pheby again.")


def requirement(wheel: Path | None) -> str:
    """What to install: the wheel that was named, the checkout that this runs from, or this version from the index."""
    if wheel is not None:
        wheel = wheel.expanduser().absolute()
        if not wheel.is_file() or wheel.suffix != ".whl":
            raise InstallError(f"{wheel} is not a wheel.")
        return f"pheby[cli] @ {wheel.as_uri()}"
    root = checkout()
    return f"pheby[cli] @ {root.as_uri()}" if root is not None else f"pheby[cli]=={version()}"


def runs_here(python: Path) -> bool:
    """Whether this very process is of Hermes's environment."""
    return python.parent == Path(sys.executable).parent


def install(python: Path, wanted: str) -> None:
    """Install into Hermes's environment. Raises InstallError with the end of what pip said."""
    # The same version may have other content, as from a checkout.
    _pip(python, "install", "--upgrade", "--force-reinstall", "--no-deps", wanted)
    _pip(python, "install", wanted)


def remove(python: Path) -> None:
    """Take the package out of Hermes's environment. Raises InstallError."""
    _pip(python, "uninstall", "--yes", "pheby")


def _pip(python: Path, action: str, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", action, *arguments]
    if not _has_pip(python):
        uv = shutil.which("uv")
        if uv is None:
            raise InstallError(
                f"{python} has no pip, and there is no uv on PATH. Install Pheby there yourself, then use --no-pip."
            )
        # Environments that uv made have no pip of their own.
        left_out = ("--force-reinstall",) if action == "install" else ("--yes",)
        kept = [each for each in arguments if each not in left_out]
        command = [uv, "pip", action, "--python", str(python), *kept]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise InstallError(f"pip could not be run: {type(failure).__name__}.") from None
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).splitlines()[-_LOG_LINES_SHOWN:]
        raise InstallError("pip failed in Hermes's environment. It ended with:\n" + "\n".join(f"    {x}" for x in tail))


def _has_pip(python: Path) -> bool:
    try:
        found = subprocess.run(
            [str(python), "-c", "import pip"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise InstallError(f"{python} cannot be run: {type(failure).__name__}.") from None
    return found.returncode == 0


def probe(python: Path) -> dict[str, Any] | None:
    """What `pheby_hermes.probe` says in Hermes's environment; None if Pheby is not there or cannot be run."""
    with tempfile.TemporaryDirectory(prefix="pheby-probe-") as folder:
        # Hermes's modules make folders in the home that they find: not in the owner's.
        environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "HERMES_HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [str(python), "-m", "pheby_hermes.probe"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PROBE_SECONDS,
                cwd=folder,
                env=environment,
                check=False,
            )
            said = json.loads(done.stdout.splitlines()[-1])
        except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
            return None
    return said if isinstance(said, dict) else None
