"""The commands as an owner meets them: questions, refusals, and what is shown on a terminal alone."""

from __future__ import annotations

import builtins
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pheby import cli
from pheby.install import output, pairing
from tests.install.conftest import Pheby, tree
from tests.install.test_steps import secret_of


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Somebody who is there; the answers that he will give, in order."""
    answers: list[str] = []
    monkeypatch.setattr(output, "interactive", lambda: True)

    def answer(_: str) -> str:
        return answers.pop(0)

    monkeypatch.setattr(builtins, "input", answer)
    return answers


@pytest.mark.parametrize("answer", ["", "n", "no", "what", "Y e s"])
def test_without_a_yes_nothing_is_done(answer: str, terminal: list[str], home: Path, pheby: Pheby) -> None:
    """R-S1."""
    before = tree(home)
    terminal += ["n", answer]
    assert pheby("install") == 1
    assert tree(home) == before
    assert terminal == []


def test_on_a_terminal_two_questions_are_asked(terminal: list[str], home: Path, pheby: Pheby) -> None:
    """R-S1: the setting for all platforms has a question of its own; it is not asked again."""
    terminal += ["y", "yes"]
    assert pheby("install") == 0
    assert "streaming:\n  enabled: true\n" in (home / "config.yaml").read_text()
    assert pheby("install") == 0
    assert terminal == []


def test_with_json_nobody_is_asked(
    terminal: list[str], home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1: also on a terminal: a question would stand in the object."""
    before = tree(home)
    terminal += ["y", "y"]
    assert pheby("install", "--json") == 1
    assert capsys.readouterr().out == ""
    assert (tree(home), terminal) == (before, ["y", "y"])


def test_the_target_is_asked_for_before_all_else(capsys: pytest.CaptureFixture[str]) -> None:
    """R-S1: every command that needs a home names both ways to say it."""
    for words in (["install"], ["status"], ["doctor"], ["update"], ["uninstall"], ["secret", "rotate"]):
        assert cli.main(words) == 1
        assert "--home PATH or --profile NAME" in capsys.readouterr().err


def test_a_profile_gets_a_port_that_no_other_has(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1, R-A8: where none is named; one that does not use Pheby takes none."""
    monkeypatch.setenv("HERMES_HOME", str(home))
    ports = {}
    for name in ("default", "other", "play", "work"):
        folder = home if name == "default" else home / "profiles" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text("platforms: {pheby: {enabled: false}}\n" if name == "other" else "a: 1\n")
        if name != "other":
            assert cli.main(["install", "--profile", name, "--yes", "--no-pip"]) == 0
            ports[name] = yaml.safe_load((folder / "config.yaml").read_text())["platforms"]["pheby"]["extra"]["port"]
    assert ports == {"default": 8786, "play": 8787, "work": 8788}


def test_a_profile_can_be_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1, R-A8: its home is what changes, and not the first one's."""
    work = home / "profiles" / "work"
    work.mkdir(parents=True)
    (work / "config.yaml").touch()
    monkeypatch.setenv("HERMES_HOME", str(home))
    assert cli.main(["install", "--profile", "work", "--yes", "--no-pip"]) == 0
    assert (work / ".env").exists()
    assert not (home / ".env").exists()
    assert cli.main(["status", "--profile", "work", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))["home"] == str(work)


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1", "8786.0"])
def test_a_bad_port_is_refused(port: str, pheby: Pheby) -> None:
    """R-K1."""
    with pytest.raises(SystemExit) as ended:
        pheby("install", "--port", port)
    assert ended.value.code == 2


def test_status_says_what_is_there(home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]) -> None:
    """R-S1: before and after, without a secret; looking changes nothing."""
    assert pheby("status", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["installed_version"], said["enabled"], said["gateway_running"]) == (None, False, False)
    assert pheby("install", "--yes", "--port", "9003") == 0
    before = tree(home)
    capsys.readouterr()
    assert pheby("status", "--json") == 0
    out = capsys.readouterr().out
    said = json.loads(out)
    assert (said["installed_version"], said["enabled"], said["port"]) == (said["version"], True, 9003)
    assert said["listening"] is False
    assert pheby("status") == 0
    assert secret_of(home) not in out + capsys.readouterr().out
    assert tree(home) == before


def test_a_secret_is_only_shown_on_a_terminal(home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]) -> None:
    """R-L1, R-M1: not into a pipe, not as JSON."""
    assert pheby("install", "--yes") == 0
    capsys.readouterr()
    assert pheby("pair", "--show") == 1
    assert secret_of(home) not in "".join(capsys.readouterr())


def test_a_secret_is_only_shown_when_asked_for(
    home: Path, pheby: Pheby, terminal: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """R-L1: by a question, or by --show."""
    assert pheby("install", "--yes") == 0
    capsys.readouterr()
    terminal += ["n"]
    assert pheby("pair") == 1
    assert secret_of(home) not in capsys.readouterr().out
    assert pheby("pair", "--show", "--json") == 1
    terminal += ["y"]
    assert pheby("pair") == 0
    assert pheby("pair", "--show") == 0
    shown = capsys.readouterr().out
    assert shown.count(secret_of(home)) == 2
    assert "ws://127.0.0.1:8786/v1/ws" in shown
    assert "█" in shown


@pytest.mark.parametrize(
    ("extra", "url"),
    [
        ("", "ws://127.0.0.1:8786/v1/ws"),
        ("host: '::1', path_prefix: /pheby, ", "ws://[::1]:8786/pheby/v1/ws"),
        ("public_url: 'https://pheby.example.org', ", "wss://pheby.example.org/v1/ws"),
        ("public_url: 'http://192.0.2.1:81/pheby/', ", "ws://192.0.2.1:81/pheby/v1/ws"),
    ],
)
def test_where_the_app_connects_to(extra: str, url: str, home: Path, pheby: Pheby) -> None:
    """R-A4, R-K1: the public address where there is one."""
    assert pheby("install", "--yes") == 0
    text = (home / "config.yaml").read_text()
    (home / "config.yaml").write_text(text.replace("extra: {", "extra: {" + extra))
    found = pairing.pairing(home)
    assert json.loads(found.as_code()) == {"pheby": 1, "url": url, "secret": secret_of(home)}
    assert secret_of(home) not in repr(found)


def test_without_the_library_for_the_picture_there_is_text(
    home: Path, pheby: Pheby, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-S1: the command says how to get it."""
    assert pheby("install", "--yes") == 0
    monkeypatch.setitem(sys.modules, "segno", None)
    assert "pheby[cli]" in pairing.pairing(home).as_text()


BARE = """
import sys
for name in ("yaml", "segno", "prompt_toolkit"):
    sys.modules[name] = None
from pheby.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", [["install", "--yes"], ["doctor"], ["demo", "--say", "hello"], ["chat"]])
def test_without_the_extra_it_says_what_is_missing(words: list[str], home: Path) -> None:
    """R-S1: the package alone brings no YAML; the plugin runs all the same, and the command is no traceback."""
    bare = [sys.executable, "-c", BARE, *words, "--home", str(home)]
    done = subprocess.run(bare, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2)
    assert f"{sys.executable} -m pip install 'pheby[cli]'" in done.stderr
    assert [path.name for path in home.iterdir()] == ["config.yaml"]


def test_colours_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-S1: and for those who want them."""

    class Screen:
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert re.fullmatch("\x1b\\[31mx\x1b\\[0m", output.coloured("x", "error", Screen()))  # type: ignore[arg-type]
    assert output.coloured("x", "error", sys.stdout) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.coloured("x", "error", Screen()) == "x"  # type: ignore[arg-type]
