"""The demo without Hermes: a real server on a simulated one that answers as the scripted model does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pheby import AuthenticationError, Client, Connected, Disconnected
from pheby.demo import simulated as simulated_module
from pheby.demo.scripts import SCRIPTS, THINKING, checksum_holds
from pheby.demo.simulated import SimulatedStack, respond
from pheby_protocol.messages.run import Run, RunEnded, RunErrorCode
from pheby_protocol.states import RunState
from pheby_server.simulated import Fail, Pause, Say, Segment, Step


def said(steps: list[Step]) -> list[str]:
    """The texts that the steps add up to."""
    texts = [""]
    for step in steps:
        if isinstance(step, Segment):
            texts.append("")
        elif isinstance(step, Say):
            texts[-1] += step.text
    return texts


# The script


@pytest.mark.parametrize(
    ("typed", "texts"),
    [
        ("say hello", ["Hello! You asked me to say: hello"]),
        ("  say hello\n", ["Hello! You asked me to say: hello"]),
        ("think", ["Hi after thinking."]),
        ("midthink", ["Visible start visible end."]),
        ("media /srv/x.png", ["Here is the file.\nThat was it."]),
        ("run echo hi", ["Let me run that.", "The command has ended."]),
        ("tools a|b", ["I will read 2 files.", "I have read 2 files."]),
        ("danger /srv/x", ["This needs your approval.", "You did not allow it."]),
        ("surrogate", ["Half a pair: \ufffd and on."]),
        ("drop", ["This reply breaks off"]),
        ("empty", [""]),
        ("wait 0", ["I waited 0 seconds."]),
    ],
)
def test_a_script_is_what_a_client_would_see_of_it(typed: str, texts: list[str]) -> None:
    assert said(list(respond(typed))) == texts


def test_anything_else_is_repeated() -> None:
    (text,) = said(list(respond("what is this?")))
    assert "what is this?" in text


def test_a_code_block_is_left_as_it_is() -> None:
    (text,) = said(list(respond("markdown")))
    fenced = text.split("```")[1]
    assert fenced.startswith("text\nfirst line\nMEDIA:/")


def test_a_long_text_is_whole() -> None:
    """B9."""
    (text,) = said(list(respond("long 100000")))
    assert len(text) == 100_000
    assert checksum_holds(text)


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("fail 401", RunErrorCode.PROVIDER_AUTH),
        ("fail 403", RunErrorCode.PROVIDER_AUTH),
        ("fail 429", RunErrorCode.PROVIDER_RATE_LIMITED),
        ("fail 500", RunErrorCode.PROVIDER_ERROR),
        ("fail 9999", RunErrorCode.PROVIDER_ERROR),
    ],
)
def test_a_refusing_provider_fails_the_run(typed: str, code: RunErrorCode) -> None:
    assert [step for step in respond(typed) if isinstance(step, Fail)] == [Fail(code)]


def test_pauses_are_kept() -> None:
    assert next(step for step in respond("wait 7") if isinstance(step, Pause)) == Pause(7)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_every_script_comes_to_an_end_and_shows_nothing_hidden(name: str) -> None:
    """B4: each piece is visible as it comes."""
    for argument in ("", " 3", " /srv/a b.txt", " one|two"):
        steps = list(respond(f"{name}{argument}"))
        assert len(steps) < 1_000
        for step in steps:
            if isinstance(step, Say):
                assert step.text
                assert THINKING not in step.text
                step.text.encode()


# The stack


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts type as people read; tests do not."""
    real = simulated_module.respond

    def at_once(text: str, *more: Any) -> Iterator[Step]:
        return (step for step in real(text, *more) if not isinstance(step, Pause))

    monkeypatch.setattr(simulated_module, "respond", at_once)


async def exchange(client: Client, text: str) -> tuple[Run, list[str]]:
    """The run of one message in a conversation of its own, and what stands there afterwards."""
    conversation_id = (await client.create_conversation()).conversation_id
    receipt = await client.send(conversation_id, text)
    async with asyncio.timeout(5):
        async for happening in client.happenings():
            if isinstance(happening, RunEnded) and happening.run.run_id == receipt.run_id:
                page = await client.history(conversation_id)
                return happening.run, [message.text for message in page.messages]
    raise AssertionError("no end")


async def test_a_stack_is_ready_and_leaves_nothing() -> None:
    async with SimulatedStack() as stack:
        assert (stack.hermes_version, stack.model_url, stack.gateway_pid) == ("simulated", None, 0)
        assert len(stack.secret) == 64
        home = stack.home
        assert isinstance(home, Path)
        async with Client(stack.url, stack.secret) as client:
            assert client.welcome is not None
            assert client.welcome.server.hermes_version == "simulated"
            run, texts = await exchange(client, "run echo hi")
    assert run.status is RunState.COMPLETED
    assert texts == ["run echo hi", "Let me run that.", "The command has ended."]
    assert not home.exists()
    port = int(stack.url.removeprefix("ws://127.0.0.1:").partition("/")[0])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize(("typed", "code"), [("fail 401", "provider_auth"), ("empty", "empty_response")])
async def test_a_failed_run_keeps_what_was_asked(typed: str, code: str) -> None:
    """B6, B8."""
    async with SimulatedStack() as stack, Client(stack.url, stack.secret) as client:
        run, texts = await exchange(client, typed)
    assert (run.status, run.error and run.error.code) == (RunState.FAILED, code)
    assert texts == [typed]


@pytest.mark.parametrize("kill", [False, True])
async def test_a_restart_keeps_address_secret_and_history(kill: bool) -> None:
    """B8."""
    async with SimulatedStack() as stack:
        url, secret = stack.url, stack.secret
        async with Client(url, secret) as client:
            await exchange(client, "say hello")
        await stack.restart(kill=kill)
        assert (stack.url, stack.secret) == (url, secret)
        async with Client(url, secret) as client:
            (conversation,) = (await client.conversations()).conversations
            page = await client.history(conversation.conversation_id)
    assert [message.text for message in page.messages] == ["say hello", "Hello! You asked me to say: hello"]


async def test_a_connected_client_sees_the_restart_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(delay: float) -> None:
        await real_sleep(0)

    real_sleep = asyncio.sleep
    async with SimulatedStack() as stack, Client(stack.url, stack.secret) as client:
        monkeypatch.setattr("pheby.client.asyncio.sleep", at_once)
        await stack.restart()
        seen = []
        async with asyncio.timeout(5):
            async for happening in client.happenings():
                if isinstance(happening, Connected | Disconnected):
                    seen.append(happening)
                if len(seen) == 3:
                    break
        monkeypatch.undo()
    assert [type(each) for each in seen] == [Connected, Disconnected, Connected]
    assert seen[1] == Disconnected(1001, final=False)


async def test_a_port_can_be_given() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with SimulatedStack(port=port) as stack:
        assert stack.url == f"ws://127.0.0.1:{port}/v1/ws"


async def test_each_stack_has_a_secret_of_its_own() -> None:
    async with SimulatedStack() as one, SimulatedStack() as other:
        assert one.secret != other.secret
        assert one.url != other.url
        with pytest.raises(AuthenticationError):
            await Client(one.url, other.secret).__aenter__()


def test_nothing_is_opened_before_it_is_entered() -> None:
    stack = SimulatedStack()
    assert stack.home is None
