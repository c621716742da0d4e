"""The chat's terminal: what is typed while something is written."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from typing import Any

import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from pheby.terminal import EditingTerminal, PlainTerminal, open_terminal


async def all_of(terminal: Any) -> list[str]:
    async with asyncio.timeout(5):
        return [line async for line in terminal.typed()]


def piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.parametrize(
    ("text", "lines"),
    [("", []), ("one\n", ["one"]), ("one\n\n two ", ["one", "", " two "]), ("漢字\r\n", ["漢字\r"])],
)
async def test_lines_come_as_they_were_piped(monkeypatch: pytest.MonkeyPatch, text: str, lines: list[str]) -> None:
    piped(monkeypatch, text)
    assert await all_of(PlainTerminal()) == lines


async def test_the_loop_goes_on_while_nothing_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = threading.Event()

    class Slow(io.StringIO):
        def __iter__(self) -> Any:
            typed.wait(5)
            return iter(["late\n"])

    monkeypatch.setattr("sys.stdin", Slow())
    reading = asyncio.create_task(all_of(PlainTerminal()))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reading.done()
    typed.set()
    assert await reading == ["late"]


def test_what_is_typed_after_the_end_is_dropped_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chat is over while its reader still waits for a line."""
    typed, complaints = threading.Event(), []
    monkeypatch.setattr(threading, "excepthook", complaints.append)

    class Slow(io.StringIO):
        def __iter__(self) -> Any:
            yield "first\n"
            typed.wait(5)
            yield "late\n"

    monkeypatch.setattr("sys.stdin", Slow())

    async def read_one() -> str:
        lines = PlainTerminal().typed()
        line = await anext(lines)
        await lines.aclose()
        return line

    assert asyncio.run(read_one()) == "first"
    typed.set()
    for thread in threading.enumerate():
        if thread.name == "pheby-input":
            thread.join(5)
    assert complaints == []


def test_a_line_grows_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = PlainTerminal()
    terminal.unfinished("hermes: He")
    terminal.unfinished("hermes: Hello")
    terminal.line("hermes: Hello.")
    terminal.line("next")
    assert capsys.readouterr().out == "hermes: Hello.\nnext\n"


def test_another_line_does_not_join_the_unfinished_one(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = PlainTerminal()
    terminal.unfinished("hermes: He")
    terminal.line("… thinking")
    terminal.unfinished("one")
    terminal.unfinished("two")
    terminal.line("two")
    assert capsys.readouterr().out == "hermes: He\n… thinking\none\ntwo\n"


def test_a_pipe_gets_the_plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, "")
    with open_terminal() as terminal:
        assert isinstance(terminal, PlainTerminal)


@pytest.mark.parametrize("editor", [True, False])
def test_a_person_gets_an_editor_where_it_is_installed(monkeypatch: pytest.MonkeyPatch, editor: bool) -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Tty())
    monkeypatch.setattr("sys.stdout", Tty())
    if not editor:
        monkeypatch.setitem(sys.modules, "prompt_toolkit.patch_stdout", None)
        with open_terminal() as terminal:
            assert isinstance(terminal, PlainTerminal)
        return
    monkeypatch.setattr("prompt_toolkit.PromptSession", lambda: PromptSession(output=DummyOutput()))
    with open_terminal() as terminal:
        assert isinstance(terminal, EditingTerminal)


async def test_edited_lines_until_the_end_of_input() -> None:
    with create_pipe_input() as keys:
        session: PromptSession[str] = PromptSession(input=keys, output=DummyOutput())
        keys.send_text("hellp\x7fo\r/etc/hosts\r\x04")
        assert await all_of(EditingTerminal(session)) == ["hello", "/etc/hosts"]


async def test_an_interrupt_leaves() -> None:
    with create_pipe_input() as keys:
        session: PromptSession[str] = PromptSession(input=keys, output=DummyOutput())
        keys.send_text("half a line\x03")
        assert await all_of(EditingTerminal(session)) == []


def test_whole_lines_stand_above_the_editor(capsys: pytest.CaptureFixture[str]) -> None:
    session: PromptSession[str] = PromptSession(output=DummyOutput())
    terminal = EditingTerminal(session)
    terminal.unfinished("hermes: He")
    terminal.line("hermes: Hello")
    assert capsys.readouterr().out == "hermes: Hello\n"
