"""Install what is in dist/ into a fresh environment of every supported Python that is here, and use it from outside.

The newest of them also plays the installed suite against an installed server, and looks at what the archives hold.
Needs the package index for what the wheel depends on. A version that is not on this machine is named, not failed;
none at all is a failure.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
IMPORTS = "import pheby, pheby.cli, pheby_conformance, pheby_hermes, pheby_protocol, pheby_server.aiohttp_transport"
LOADS = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("hermes_plugins.pheby", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert callable(module.register)
"""
MINUTES = 10


def main() -> int:
    """The exit code."""
    pythons = {version: find(version) for version in VERSIONS}
    here = [version for version, python in pythons.items() if python is not None]
    if not here:
        print("No Python that is supported is here", file=sys.stderr)
        return 1
    # Two at a time, for most of it is waiting for the index and for servers; the one with the suite first.
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda version: tried(version, pythons[version], version == here[-1]), VERSIONS[::-1]))
    print(*said[::-1], sep="\n")
    return 0


def tried(version: str, python: str | None, newest: bool) -> str:
    """What came of one Python."""
    if python is None:
        return f"Python {version} is not here"
    with tempfile.TemporaryDirectory(prefix="pheby-wheel-") as name:
        folder = Path(name)
        try_with(python, folder)
        if newest:
            said = try_suite(folder)
            try_archives(folder)
        try_sdist(folder)
    return f"Python {version}: wheel and sdist installed, imported, an exchange" + (
        f"; the suite: {said}" if newest else ""
    )


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


def released(pattern: str) -> Path:
    """The one file of dist/ that this names."""
    (found,) = (ROOT / "dist").glob(pattern)
    return found


def program(folder: Path, name: str) -> str:
    """A program of the environment there."""
    return str(folder / "env" / "bin" / name)


def try_with(python: str, folder: Path) -> None:
    """What somebody does who has just got the wheel."""
    done(folder, python, "-m", "venv", "env")
    done(folder, *pip(folder), "install", f"pheby[cli] @ {released('*.whl').as_uri()}")
    done(folder, *pip(folder), "check")
    assert "conformance" in done(folder, program(folder, "pheby"), "--help")
    done(folder, program(folder, "python"), "-W", "error", "-c", IMPORTS)
    said = done(folder, program(folder, "pheby"), "demo", "--simulated", "--say", "say hello")
    assert "Hello! You asked me to say: hello" in said, said


def pip(folder: Path) -> tuple[str, ...]:
    return (program(folder, "python"), "-m", "pip", "--disable-pip-version-check", "--quiet")


def try_sdist(folder: Path) -> None:
    """The same code once more, built where it is installed."""
    sources = f"pheby @ {released('pheby-*.tar.gz').as_uri()}"
    done(folder, *pip(folder), "install", "--force-reinstall", "--no-deps", sources)
    done(folder, program(folder, "python"), "-W", "error", "-c", IMPORTS)


def try_suite(folder: Path) -> str:
    """The suite for servers against a server, both from the wheel; its last line. Every check must pass."""
    command = [program(folder, "pheby"), "demo", "--simulated", "--serve"]
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, env=clean(), stdout=subprocess.PIPE, stderr=log, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            at = json.loads(server.stdout.readline())
            suite = (program(folder, "pheby"), "conformance", "server", "--scripted", "--url", at["url"])
            return done(folder, *suite, secret=at["secret"]).splitlines()[-1]
        finally:
            server.terminate()


def try_archives(folder: Path) -> None:
    """The plugin's folder can be loaded beside the package; the suite's data are those that the manifest names."""
    with zipfile.ZipFile(released("pheby-plugin-*.zip")) as plugin:
        plugin.extractall(folder / "plugins")
    done(folder, program(folder, "python"), "-W", "error", "-c", LOADS, "plugins/pheby/__init__.py")
    with zipfile.ZipFile(released("pheby-conformance-*.zip")) as suite:
        suite.extractall(folder / "suite")
    (manifest,) = (folder / "suite").rglob("manifest.json")
    for version in json.loads(manifest.read_text())["versions"].values():
        for name, checksum in version["files"].items():
            found = hashlib.sha256((manifest.parent / name).read_bytes()).hexdigest()
            assert found == checksum, name


def clean() -> dict[str, str]:
    """Variables with nothing of the checkout among them."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PHEBY", "VIRTUAL"))}


def done(folder: Path, *command: str, secret: str | None = None) -> str:
    """Run a command there; what it printed."""
    variables = clean() | ({} if secret is None else {"PHEBY_SECRET": secret})
    result = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=MINUTES * 60
    )
    if result.returncode:
        raise SystemExit(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
