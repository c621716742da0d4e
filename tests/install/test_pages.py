"""R-P1: the commands that the pages show to owners are carried out, as they stand there, on a home of this moment."""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pheby import Client, cli
from pheby.demo.simulated import SimulatedStack
from pheby.install import output
from tests.architecture.test_blocks import BLOCKS, commands_of
from tests.install.conftest import CONFIG

WITHOUT = {
    # What needs a server, a model or a test of its own (tests/installed, tests/conformance, tests/demo).
    *("chat", "conformance", "demo", "pair"),
}


def commands() -> list[tuple[str, list[str]]]:
    """Every command of ours in a block, with where it stands."""
    found = [(str(block), words) for block in BLOCKS if block.language == "sh" for words in commands_of(block)]
    return [(where, words[1:]) for where, words in found if Path(words[0]).name == "pheby" and words[1] not in WITHOUT]


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The home of somebody at a terminal who says yes; it is where everybody's is, with a profile beside it."""
    home = tmp_path / ".hermes"
    for folder in (home, home / "profiles" / "work"):
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(CONFIG)
    # So the pages call a home that is named.
    (tmp_path / "PATH").symlink_to(home)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HERMES_HOME", raising=False)
    monkeypatch.setattr(output, "interactive", lambda: True)
    monkeypatch.setattr(builtins, "input", lambda _: "yes")
    return home


def home_of(words: list[str], owner: Path) -> Path:
    return owner / "profiles" / "work" if "work" in words else owner


@pytest.mark.parametrize(("where", "words"), commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_command_of_ours_does_what_it_is_shown_for(
    where: str, words: list[str], owner: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-P1, R-S1: each succeeds, and what changes a home has changed it."""
    home = home_of(words, owner)
    # Hermes itself is not here: whether the package gets into its environment is tried by tests/installed.
    without = ["--no-pip"] if words[0] in ("install", "update") else []
    if words[0] != "install":
        named = ["--profile", "work"] if home != owner else ["--home", str(home)]
        assert cli.main(["install", *named, "--yes", "--no-pip"]) == 0
    before = (home / ".env").read_text() if (home / ".env").exists() else ""
    capsys.readouterr()
    code = cli.main([*words, *without])
    said = capsys.readouterr()
    if words[0] == "doctor":
        assert "[hermes-missing]" in said.out
        assert "[profiles]" in said.out
    else:
        assert (code, said.err) == (0, "")
    if "--json" in words:
        json.loads(said.out)
    now = (home / ".env").read_text() if (home / ".env").exists() else ""
    assert ("PHEBY_SECRET=" in now) is (words[0] != "uninstall")
    assert (now != before) is (words[0] in ("install", "uninstall", "secret")), where


async def test_a_backup_is_made_as_the_page_says(tmp_path: Path) -> None:
    """R-P1: its lines in a shell, while a server runs; what they leave is whole."""
    (block,) = [found for found in BLOCKS if found.page.name == "upgrade-and-backup.md" and ".backup" in found.text]
    home, backup = tmp_path / ".hermes", tmp_path / "backup"
    home.mkdir()
    async with SimulatedStack() as stack:
        assert stack.home is not None
        (home / "pheby").symlink_to(stack.home / "pheby")
        (home / "pheby" / "files").mkdir(exist_ok=True)
        (home / "pheby" / "files" / "one").write_text("a file")
        with contextlib.closing(sqlite3.connect(home / "state.db")) as hermes:
            hermes.execute("CREATE TABLE messages (id)")
        async with Client(stack.url, stack.secret) as client:
            conversation = await client.create_conversation()
            # Not every machine has the command.
            text = block.text if shutil.which("sqlite3", path=os.defpath) else _by_python(block.text)
            subprocess.run(["bash", "-euc", text], check=True, env={"HOME": str(tmp_path), "PATH": os.defpath})
    assert (backup / "files" / "one").read_text() == "a file"
    for name, query, found in (
        ("pheby.db", "SELECT conversation_id FROM conversations", [(conversation.conversation_id,)]),
        ("state.db", "SELECT name FROM sqlite_master", [("messages",)]),
    ):
        with contextlib.closing(sqlite3.connect(backup / name)) as copy:
            assert copy.execute(query).fetchall() == found


def _by_python(text: str) -> str:
    """The same lines with Python's library in the place of the command."""
    copies = f"{shlex.quote(sys.executable)} -c " + shlex.quote(
        "import sqlite3, sys; source, command = sys.argv[1:]; copy = sqlite3.connect(command.split(maxsplit=1)[1]); "
        "sqlite3.connect(source).backup(copy)"
    )
    return re.sub(r"^sqlite3 ", lambda _: f"{copies} ", text, flags=re.M)
