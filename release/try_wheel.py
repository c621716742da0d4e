"""Install the wheel of dist/ into a fresh environment of every supported Python that is here, and use it from outside.

Needs the package index for what the wheel depends on. A version that is not on this machine is named, not failed;
none at all is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
IMPORTS = "import pheby, pheby.cli, pheby_conformance, pheby_hermes, pheby_protocol, pheby_server.aiohttp_transport"
MINUTES = 10


def main() -> int:
    """The exit code."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    tried = 0
    for version in VERSIONS:
        python = find(version)
        if python is None:
            print(f"Python {version} is not here")
            continue
        with tempfile.TemporaryDirectory(prefix="pheby-wheel-") as folder:
            try_with(python, wheel, Path(folder))
        print(f"Python {version}: installed, imported, an exchange")
        tried += 1
    return 0 if tried else 1


def find(version: str) -> str | None:
    """A Python of this version: from PATH, or of pyenv's."""
    found = shutil.which(f"python{version}")
    if found is not None and runs(found, version):
        return found
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for python in sorted(installed.glob(f"{version}.*/bin/python")):
        if runs(str(python), version):
            return str(python)
    return None


def runs(python: str, version: str) -> bool:
    """Whether it is one: pyenv has names on PATH that lead nowhere. It must be able to make environments."""
    code = f"import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def try_with(python: str, wheel: Path, folder: Path) -> None:
    """What somebody does who has just got the wheel."""
    done(folder, python, "-m", "venv", "env")
    inside = str(folder / "env" / "bin" / "python")
    pip = (inside, "-m", "pip", "--disable-pip-version-check", "--quiet")
    done(folder, *pip, "install", f"pheby[cli] @ {wheel.as_uri()}")
    done(folder, *pip, "check")
    pheby = str(folder / "env" / "bin" / "pheby")
    assert "conformance" in done(folder, pheby, "--help")
    done(folder, inside, "-W", "error", "-c", IMPORTS)
    said = done(folder, pheby, "demo", "--simulated", "--say", "say hello")
    assert "Hello! You asked me to say: hello" in said, said


def done(folder: Path, *command: str) -> str:
    """Run a command there, with nothing of the checkout on its path; what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PHEBY", "VIRTUAL"))}
    result = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=MINUTES * 60
    )
    if result.returncode:
        raise SystemExit(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
