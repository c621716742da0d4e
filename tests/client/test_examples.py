"""R-P1: the programs of docs/examples do what the pages say of them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pheby import Client
from pheby.demo.simulated import SimulatedStack
from pheby_protocol.errors import CloseCode
from pheby_protocol.ids import RunId
from pheby_protocol.messages.message import MessageDelta
from pheby_protocol.messages.run import RunEnded
from pheby_protocol.states import RunState
from pheby_server.ports import HermesPort
from pheby_server.simulated import Say, Step
from tests.client.house import SECRET, House

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
async def demo() -> AsyncIterator[SimulatedStack]:
    async with SimulatedStack() as demo:
        yield demo


def test_every_example_has_a_test() -> None:
    named = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f'example("{path.stem}")' in named, path


async def test_the_first_chat(demo: SimulatedStack, capsys: pytest.CaptureFixture[str]) -> None:
    await example("first_chat").main(demo.url, demo.secret)
    assert capsys.readouterr().out == "Hello! You asked me to say: hello\n"


async def test_an_answer_that_streams_and_a_decision(demo: SimulatedStack, capsys: pytest.CaptureFixture[str]) -> None:
    """R-E1: the decision is the one that was given."""
    asked = []

    def deny(approval: Any) -> str:
        asked.append(approval.command)
        return "deny"

    ended = await example("streaming_client").say(demo.url, demo.secret, "danger /srv/x", deny)
    assert ended == "completed"
    assert len(asked) == 1
    out = capsys.readouterr().out
    assert "This needs your approval." in out
    assert "[terminal]" in out
    assert out.endswith("You did not allow it.\n")


async def test_the_plain_client_gets_its_answer(demo: SimulatedStack) -> None:
    assert await example("plain_client").say(demo.url, demo.secret, "say hello") == "Hello! You asked me to say: hello"


@pytest.mark.parametrize("cuts", [1, 3])
async def test_the_plain_client_goes_on_where_its_line_broke(tmp_path: Path, cuts: int) -> None:
    """R-I2, G7: nothing is missing and nothing runs twice."""
    runs = []

    def respond(text: str) -> Iterator[Step]:
        runs.append(text)
        for number in range(10):
            yield Say(f"{number} ")
            if number in range(2, 2 + 2 * cuts, 2):
                house.drop(CloseCode.GOING_AWAY)

    house = House(str(tmp_path / "store"), respond)
    await house.open()
    try:
        async with asyncio.timeout(20):
            answer = await example("plain_client").say(house.url, SECRET, "count")
    finally:
        await house.close()
    assert answer.split() == [str(number) for number in range(10)]
    assert runs == ["count"]


async def test_the_plain_client_ends_with_a_wrong_secret(demo: SimulatedStack) -> None:
    """K3."""
    with pytest.raises(SystemExit, match="does not want"):
        await example("plain_client").say(demo.url, "x" * 40, "say hello")


async def test_an_agent_of_ones_own(tmp_path: Path) -> None:
    """R-A1: the core without any Hermes: answers stream, a failure and a cancel are told as such, history is there."""
    module = example("own_agent")
    port: HermesPort = module.CountingAgent()
    assert not port.features.tools
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    serving = asyncio.create_task(module.serve(str(tmp_path / "store"), SECRET, 0, listening, stop))
    try:
        async with asyncio.timeout(20), Client(f"ws://127.0.0.1:{await listening}/v1/ws", SECRET) as client:
            assert client.welcome is not None
            assert client.welcome.server.hermes_version == "counting-1.0"
            conversation = (await client.create_conversation("Countdown")).conversation_id
            happenings = client.happenings()

            async def ended(run_id: RunId, *, cancel: bool = False) -> str:
                async for happening in happenings:
                    if isinstance(happening, MessageDelta) and cancel:
                        await client.cancel(run_id)
                        cancel = False
                    if isinstance(happening, RunEnded) and happening.run.run_id == run_id:
                        return happening.run.status.value
                raise AssertionError

            counted = await client.send(conversation, "2")
            assert await ended(counted.run_id) == RunState.COMPLETED.value
            failed = await client.send(conversation, "how are you?")
            assert await ended(failed.run_id) == RunState.FAILED.value
            cancelled = await client.send(conversation, "100000")
            assert await ended(cancelled.run_id, cancel=True) == RunState.CANCELLED.value
            page = await client.history(conversation)
            assert [message.text.strip() for message in page.messages[:3]] == ["2", "2 1 0", "how are you?"]
    finally:
        stop.set()
        await serving


async def test_a_backup_that_was_put_back_gives_no_number_twice(tmp_path: Path) -> None:
    """R-M4, R-I2: by the command that the page names; without it the log would go on under the same epoch."""
    page = (EXAMPLES.parent / "howto" / "upgrade-and-backup.md").read_text(encoding="utf-8")
    (statement,) = re.findall(r'pheby\.db "(INSERT [^"]*)"', page)

    async def epoch() -> str:
        house = House(str(tmp_path / "store"))
        await house.open()
        try:
            async with Client(house.url, SECRET) as client:
                await client.create_conversation()
                assert client.welcome is not None
                return client.welcome.epoch
        finally:
            await house.close()

    first = await epoch()
    backup = (tmp_path / "store" / "pheby.db").read_bytes()
    assert await epoch() == first
    (tmp_path / "store" / "pheby.db").write_bytes(backup)
    with contextlib.closing(sqlite3.connect(tmp_path / "store" / "pheby.db")) as database:
        database.execute(statement)
        database.commit()
    second = await epoch()
    assert second != first
    assert await epoch() == second
