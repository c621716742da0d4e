"""The `pheby` command: what is called with what, and what it says when it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pheby import cli

SECRET = "cli-0123456789abcdef-0123456789abcdef"


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the command does, instead of doing it."""
    called: list[tuple[Any, ...]] = []

    async def chat(*given: Any) -> int:
        called.append(("chat", *given))
        return 3

    async def say(*given: Any) -> int:
        called.append(("say", *given))
        return 4

    monkeypatch.setattr("pheby.chat.chat", chat)
    monkeypatch.setattr("pheby.chat.say", say)
    monkeypatch.setenv("PHEBY_SECRET", SECRET)
    return called


def test_chat(called: list[tuple[Any, ...]]) -> None:
    assert cli.main(["chat"]) == 3
    assert called == [("chat", "ws://127.0.0.1:8786/v1/ws", SECRET)]


def test_say(called: list[tuple[Any, ...]]) -> None:
    assert cli.main(["chat", "--url", "wss://example.org/pheby/v1/ws", "--say", "/etc/hosts"]) == 4
    assert called == [("say", "wss://example.org/pheby/v1/ws", SECRET, "/etc/hosts")]


def test_a_home_gives_address_and_secret(called: list[tuple[Any, ...]], tmp_path: Path) -> None:
    """R-A8: what the owner would have to copy otherwise."""
    (tmp_path / "config.yaml").write_text("platforms: {pheby: {enabled: true, extra: {port: 9001}}}\n")
    (tmp_path / ".env").write_text("PHEBY_SECRET=home-0123456789abcdef-0123456789abcdef\n")
    assert cli.main(["chat", "--home", str(tmp_path)]) == 3
    assert called == [("chat", "ws://127.0.0.1:9001/v1/ws", "home-0123456789abcdef-0123456789abcdef")]


def test_a_home_without_a_secret_is_told(
    called: list[tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one in the environment may be another server's."""
    (tmp_path / "config.yaml").write_text("")
    assert cli.main(["chat", "--home", str(tmp_path)]) == 2
    assert "PHEBY_SECRET" in capsys.readouterr().err
    assert called == []


def test_who_has_read_enough_is_no_traceback() -> None:
    """As `| head` does."""
    with subprocess.Popen(
        [sys.executable, "-m", "pheby", "conformance", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.close()
        assert listing.stderr.read() == ""
        assert listing.wait(timeout=30) == 141


def test_nothing_is_still_something_to_say(called: list[tuple[Any, ...]]) -> None:
    assert cli.main(["chat", "--say", ""]) == 4


def test_ctrl_c_is_no_traceback(called: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*given: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("pheby.chat.chat", interrupted)
    assert cli.main(["chat"]) == 130


@pytest.mark.parametrize("secret", [None, ""])
def test_without_a_secret_it_says_how_to_give_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], secret: str | None
) -> None:
    if secret is None:
        monkeypatch.delenv("PHEBY_SECRET", raising=False)
    else:
        monkeypatch.setenv("PHEBY_SECRET", secret)
    assert cli.main(["chat", "--say", "hello"]) == 2
    assert "PHEBY_SECRET" in capsys.readouterr().err


@pytest.mark.parametrize("given", [[], ["nonsense"], ["chat", "--secret", "x"], ["chat", "hello"]])
def test_a_wrong_call_is_explained(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A secret on the command line would be in every process list."""
    with pytest.raises(SystemExit) as ended:
        cli.main(given)
    assert ended.value.code == 2
    assert "usage: pheby" in capsys.readouterr().err


def test_help_names_the_variable_and_not_its_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHEBY_SECRET", SECRET)
    with pytest.raises(SystemExit) as ended:
        cli.main(["chat", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "PHEBY_SECRET" in out
    assert SECRET not in out


def test_the_whole_command_without_hermes() -> None:
    """`python -m pheby demo --simulated --say …`: both sides, exit code 0, no secret, nothing on the side."""
    done = subprocess.run(
        [sys.executable, "-m", "pheby", "demo", "--simulated", "--say", "say hello"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "you: say hello\nhermes: Hello! You asked me to say: hello\n")
    assert "Traceback" not in done.stderr
