"""`pheby demo` as a person or a script uses it, with a stand-in for Hermes."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pheby.demo import command
from pheby.demo import stack as stack_module
from pheby.demo.errors import EnvironmentFailedError
from pheby.demo.home import prepare_home
from pheby.demo.lines import HermesEnvironment

Alive = Callable[[int], bool]


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers(required=True))
    return parser.parse_args(["demo", *words])


@pytest.fixture
def chats(
    environment: HermesEnvironment, plugin_source: Path, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, ...]]:
    """What the stand-ins of the chat client were asked to do, on a stack with the stand-in of Hermes."""
    asked: list[tuple[str, ...]] = []

    async def say(url: str, secret: str, text: str) -> int:
        asked.append(("say", url, secret, text))
        return 7

    async def chat(url: str, secret: str) -> int:
        asked.append(("chat", url, secret))
        return 0

    client = types.ModuleType("pheby.chat")
    client.__dict__.update(say=say, chat=chat)
    monkeypatch.setitem(sys.modules, "pheby.chat", client)
    monkeypatch.setattr(command, "ensure", lambda line, progress: environment)
    monkeypatch.setattr(stack_module, "ensure", lambda line, progress: environment)

    def prepare(path: Path, **more: Any) -> Any:
        return prepare_home(path, **{**more, "plugin_source": plugin_source})

    monkeypatch.setattr(stack_module, "prepare_home", prepare)
    return asked


def test_the_options_have_defaults() -> None:
    args = parse()
    assert args.run is command.run
    del args.run
    assert vars(args) == {
        "say": None,
        "serve": False,
        "hermes": "0.19",
        "model_url": None,
        "model": None,
        "home": None,
        "port": None,
        "simulated": False,
        "hermes_defaults": False,
    }


@pytest.mark.parametrize(
    "words", [["--port", "0"], ["--port", "x"], ["--port", "70000"], ["--hermes", "0.1"], ["--say", "a", "--serve"]]
)
def test_impossible_options_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(*words)
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_say_hands_the_text_to_the_client_and_returns_its_code(
    chats: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(parse("--say", "hello")) == 7
    ((what, url, secret, text),) = chats
    assert (what, text) == ("say", "hello")
    assert url.startswith("ws://127.0.0.1:")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert secret not in printed.err


def test_without_an_action_there_is_a_chat(chats: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(parse()) == 0
    assert [entry[0] for entry in chats] == ["chat"]
    assert "Ready: Hermes 0.19.0" in capsys.readouterr().err


def test_options_reach_the_stack(chats: list[tuple[str, ...]], tmp_path: Path) -> None:
    port = stack_module.free_port()
    words = ["--home", str(tmp_path / "mine"), "--port", str(port), "--hermes-defaults", "--model", "scripted-2"]
    assert command.run(parse("--say", "x", *words)) == 7
    assert chats[0][1] == f"ws://127.0.0.1:{port}/v1/ws"
    text = (tmp_path / "mine" / "config.yaml").read_text()
    assert "default: scripted-2" in text
    assert "display" not in text


def test_a_known_failure_is_one_sentence(
    chats: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    assert command.run(parse("--home", str(tmp_path))) == 1
    assert "left alone" in capsys.readouterr().err

    def fails(line: object, progress: object) -> HermesEnvironment:
        raise EnvironmentFailedError("no room on the disk")

    monkeypatch.setattr(command, "ensure", fails)
    assert command.run(parse("--say", "x")) == 1
    assert capsys.readouterr().err == "no room on the disk\n"
    assert chats == []


def test_an_interrupted_preparation_is_no_traceback(
    chats: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(line: object, progress: object) -> HermesEnvironment:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "ensure", interrupted)
    assert command.run(parse()) == 130
    assert command.run(parse("--serve")) == 0


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("manners", ["", "immortal"])
def test_serve_prints_one_line_of_json_and_runs_until_told_to_end(
    environment: HermesEnvironment,
    plugin_source: Path,
    alive: Alive,
    tmp_path: Path,
    sign: signal.Signals,
    manners: str,
) -> None:
    code = textwrap.dedent(f"""
        import argparse, sys
        from pathlib import Path
        from pheby.demo import command, home, stack
        from pheby.demo.lines import LINES, HermesEnvironment

        environment = HermesEnvironment(LINES["0.19"], Path({str(environment.folder)!r}),
            Path({str(environment.python)!r}), Path({str(environment.hermes)!r}), "0.19.0")
        command.ensure = stack.ensure = lambda line, progress: environment
        stack.prepare_home = lambda path, **more: home.prepare_home(
            path, **{{**more, "plugin_source": Path({str(plugin_source)!r})}})
        parser = argparse.ArgumentParser()
        command.add_parser(parser.add_subparsers())
        args = parser.parse_args(["demo", "--serve"])
        raise SystemExit(args.run(args))
    """)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path), "FAKE_MODE": manners},
        **pipes,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told = json.loads(process.stdout.readline())
        assert set(told) == {"url", "secret", "home", "hermes_version", "model_url", "gateway_pid"}
        assert alive(told["gateway_pid"])
        assert Path(told["home"]).is_dir()
        process.send_signal(sign)
        if manners == "immortal":
            time.sleep(0.3)
            assert process.poll() is None
            process.send_signal(sign)
        rest, errors = process.communicate(timeout=10)
    assert (process.returncode, rest) == (0, "")
    assert "Traceback" not in errors
    assert told["secret"] not in errors
    assert not alive(told["gateway_pid"])
    assert not Path(told["home"]).exists()
