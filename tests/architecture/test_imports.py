"""Who may import whom, and what no file of the repository may name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.application import use_cases
from importlinter.configuration import configure

ROOT = Path(__file__).resolve().parents[2]
GENERATED = (".egg-info", ".pyc", ".lock")
SKIPPED = {"build", "target", "node_modules", "__pycache__", "venv"}
BINARY = {".gz", ".png", ".ico", ".jar", ".db"}
# Put together here, so that this file does not name what it looks for.
HOSTS = (
    *(
        host.replace("_", ".")
        for host in (
            "pypi_org",
            "pythonhosted_org",
            "registry_npmjs_org",
            "repo_maven_apache_org",
            "repo1_maven_org",
            "plugins_gradle_org",
            "proxy_golang_org",
            "index_crates_io",
        )
    ),
    "arti" + "factory",
)
# Where a person or a build has its files; the persons of documents and tests have none.
MACHINE = re.compile(
    r"(?<![\w.])/(?:home|Users)/(?!(?:owner|user|me|you)\b)[a-z]\w*"
    r"|(?<![\w./])/(?:root|work|workspace)/(?!\.hermes\b)\w+"
    r"|\b[A-Z]:\\Users\b"
)
# Not in quotes of its own: a check may look for the word.
UNFINISHED = re.compile(r"(?<![\"'`])\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def own_files() -> list[Path]:
    """Every text file that is or may become part of the repository."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        files = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    else:
        # Unpacked from an archive.
        files = [path for path in ROOT.rglob("*") if not _is_skipped(path.relative_to(ROOT))]
    return sorted(path for path in files if path.is_file() and path.suffix not in BINARY)


def _is_skipped(path: Path) -> bool:
    return any(part in SKIPPED or part.startswith(".") or part.endswith(GENERATED) for part in path.parts)


FILES = own_files()


def found(pattern: re.Pattern[str]) -> list[str]:
    """Where a pattern stands, as `file:line`."""
    places = []
    for path in FILES:
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.split("\n"), 1):
            if pattern.search(line):
                places.append(f"{path.relative_to(ROOT)}:{number}")
    return places


def test_every_contract_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    passed = use_cases.lint_imports(config_filename=str(ROOT / "pyproject.toml"), is_debug_mode=False, cache_dir=None)
    assert passed == use_cases.SUCCESS, capsys.readouterr().out


def test_the_protocol_needs_neither_a_server_nor_hermes() -> None:
    """What is imported, not only what is written: a client of another make may take the protocol alone."""
    code = "import sys, pheby_protocol.registry, pheby_protocol.connection; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"aiohttp", "asyncio", "sqlite3", "pheby_server", "pheby_hermes", "pheby", "gateway"}


def test_there_are_files_to_look_through() -> None:
    names = {str(path.relative_to(ROOT)) for path in FILES}
    assert {"pyproject.toml", "README.md", "hermes_plugin/relay.py", "tests/architecture/test_imports.py"} <= names


@pytest.mark.parametrize("line", ["/ho" + "me/jane/x", '"/wo' + 'rk/main"', "path=/Us" + "ers/joe", "/ro" + "ot/code"])
def test_a_machine_would_be_found(line: str) -> None:
    assert MACHINE.search(line)


@pytest.mark.parametrize("line", ["/home/owner/.hermes", "https://x.example/home/jane", "a/root/b", "network/x"])
def test_other_paths_are_not_taken_for_one(line: str) -> None:
    assert not MACHINE.search(line)


def test_no_package_registry_is_named() -> None:
    """Where packages come from is the business of whoever builds."""
    assert found(re.compile("|".join(re.escape(host) for host in HOSTS))) == []


def test_no_machine_is_named() -> None:
    assert found(MACHINE) == []


def test_nothing_is_left_for_later() -> None:
    assert found(UNFINISHED) == []
