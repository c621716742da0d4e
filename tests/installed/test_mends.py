"""What `pheby doctor` finds in Hermes's own environment: provoked in a copy of a real one, mended by what it names."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pheby import cli
from pheby.demo.lines import HermesEnvironment
from pheby.install import doctor, package
from pheby.install.doctor import Finding
from tests.install.terminal import typed
from tests.installed.conftest import NO_SOURCES, ROOT

NEWER = "0.99.0"
LESS = "tools.slash_confirm:resolve"
MUCH = "gateway.platforms.base:BasePlatformAdapter._mark_disconnected"


def packages(hermes: HermesEnvironment) -> Path:
    (found,) = hermes.folder.glob("lib/python3*/site-packages")
    return found


def rewrite(file: Path, before: str, after: str) -> None:
    """The file is a link that another environment has, too."""
    text = file.read_text()
    assert before in text, before
    file.unlink()
    file.write_text(text.replace(before, after))


def set_version(hermes: HermesEnvironment, distribution: str, version: str) -> None:
    (metadata,) = packages(hermes).glob(f"{distribution.replace('-', '_')}-[0-9]*.dist-info/METADATA")
    (line,) = (line for line in metadata.read_text().splitlines() if line.startswith("Version: "))
    rewrite(metadata, f"\n{line}\n", f"\nVersion: {version}\n")


def findings(hermes: HermesEnvironment, home: Path) -> list[Finding]:
    """What is not well."""
    return [each for each in doctor.examine(home, hermes.python) if each.severity != "ok"]


def types(hermes: HermesEnvironment, home: Path, command: str, **more: str) -> str:
    """In the owner's shell."""
    path = os.pathsep.join([str(home.parent / "bin"), str(hermes.folder / "bin"), "/usr/bin:/bin"])
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    code, shown = typed(command, kept | {"PATH": path, "HOME": str(home.parent), "TERM": "dumb"} | more, 300)
    assert code == 0, shown
    return shown


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of the owner's: pip leaves what it builds in it."""
    copy = tmp_path / "a checkout"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NO_SOURCES))
    monkeypatch.setattr(package, "checkout", lambda: copy)
    return copy


@pytest.fixture
def put_in(home: Path, hermes: HermesEnvironment, wheel: Path) -> Path:
    """The home, by `pheby install`, and the package in Hermes's environment."""
    words = ["install", "--yes", "--hermes-python", str(hermes.python), "--wheel", str(wheel), "--home", str(home)]
    assert cli.main(words) == 0
    assert findings(hermes, home) == []
    return home


def test_one_after_the_other(put_in: Path, hermes: HermesEnvironment, sources: Path) -> None:
    """R-S1: "package-missing", "aiohttp", "hermes-version": each alone, and mended."""
    types(hermes, put_in, shlex.join([str(hermes.python), "-m", "pip", "uninstall", "--yes", "pheby"]))
    mended(hermes, put_in, "package-missing", "error")
    set_version(hermes, "aiohttp", "3.14.3")
    mended(hermes, put_in, "aiohttp", "warning")
    # Hermes's own command is stood in for: it would fetch whatever is the newest.
    set_version(hermes, hermes.line.distribution, "0.18.9")
    (metadata,) = packages(hermes).glob(f"{hermes.line.distribution.replace('-', '_')}-[0-9]*.dist-info/METADATA")
    stand_in = put_in.parent / "bin" / "hermes"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f'#!/bin/sh\n[ "$HERMES_HOME $*" = "{put_in} update" ] && sed -i "s/^Version: .*/Version: {hermes.version}/" '
        f'"{metadata}"\n'
    )
    stand_in.chmod(0o755)
    mended(hermes, put_in, "hermes-version", "error")


def mended(hermes: HermesEnvironment, home: Path, code: str, severity: str) -> None:
    """That is found, alone; then the command that it names is typed."""
    # A Hermes that calls itself an older one is missed what only the older ones have.
    of_another_line = {"seam-optional"} if code == "hermes-version" else set()
    (found,) = (each for each in findings(hermes, home) if each.code not in of_another_line)
    assert (found.code, found.severity) == (code, severity)
    types(hermes, home, found.mend)
    assert findings(hermes, home) == []


def test_a_hermes_that_only_a_newer_pheby_knows(put_in: Path, hermes: HermesEnvironment, sources: Path) -> None:
    """R-S1, R-A7: "hermes-version", "seam-optional", "seam-missing": the newer one is got by the command of each."""
    set_version(hermes, hermes.line.distribution, "0.23.0")
    rewrite(packages(hermes) / "tools" / "slash_confirm.py", "async def resolve(", "async def resolve_renamed(")
    base = packages(hermes) / "gateway" / "platforms" / "base.py"
    rewrite(base, "def _mark_disconnected(", "def _mark_disconnected_renamed(")
    found = findings(hermes, put_in)
    # Names that only 0.22 has are missed in a 0.19 that says it is 0.23.
    assert {each.code for each in found} == {"hermes-version", "seam-optional", "seam-missing"}
    assert all(any(symbol in each.text for each in found) for symbol in (LESS, MUCH))
    (mend,) = {each.mend for each in found}
    # A Pheby of the future: it knows this Hermes, and needs nothing of what is gone.
    rewrite(sources / "pyproject.toml", 'version = "0.1.0"', f'version = "{NEWER}"')
    doctor_file, seams = sources / "pheby" / "install" / "doctor.py", sources / "hermes_plugin" / "seams.py"
    rewrite(doctor_file, "NEWEST_HERMES: Final = (0, 22)", "NEWEST_HERMES: Final = (0, 23)")
    rewrite(seams, f'"{LESS}"', 'f"{_ADAPTER}send_typing"')
    rewrite(seams, "_mark_connected _mark_disconnected", "_mark_connected")
    rewrite(seams, 'LINES: Final = ("0.19", "0.22")', f'LINES: Final = ("{hermes.line.name}",)')
    rewrite(sources / "hermes_plugin" / "plugin.yaml", "0.1.0", NEWER)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(sources.parent / "index"), str(sources)], check=True, timeout=300)
    types(hermes, put_in, mend, PIP_FIND_LINKS=(sources.parent / "index").as_uri())
    types(hermes, put_in, f"pheby update --no-pip --home {shlex.quote(str(put_in))}")
    assert "All is well." in types(hermes, put_in, f"pheby doctor --home {shlex.quote(str(put_in))}")
