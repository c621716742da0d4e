"""Hermes homes to install into. The real one of whoever runs the tests is out of reach."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pheby import cli

CONFIG = "# mine\nmodel:\n  default: m   # the good one\n  api_key: sk-the-owners-own-key\n"

Pheby = Callable[..., int]


@pytest.fixture(autouse=True)
def _no_real_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("HOME", str(elsewhere))
    monkeypatch.setenv("HERMES_HOME", str(elsewhere / "none"))
    monkeypatch.setenv("PATH", str(elsewhere))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_bytes(CONFIG.encode())
    return home


@pytest.fixture
def pheby(home: Path) -> Pheby:
    """Run a command for the home; the exit code. Where packages go is tested elsewhere."""

    def run(*words: str) -> int:
        pip = ["--no-pip"] if words[0] in ("install", "update") and "--wheel" not in words else []
        return cli.main([*words, "--home", str(home), *pip])

    return run


def tree(folder: Path) -> dict[str, str]:
    """Everything in a folder: contents, kinds and modes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = f"{stat.S_IMODE(path.lstat().st_mode):o}"
        if path.is_symlink():
            what = f"-> {path.readlink()}"
        else:
            what = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[str(path.relative_to(folder))] = f"{mode} {what}"
    return found
