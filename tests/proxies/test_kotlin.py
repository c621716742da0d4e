"""The Kotlin client as a program: one exchange, and an owner's day with real gateways behind a real Caddy."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from device import Device

from pheby.demo.simulated import SimulatedStack
from pheby.demo.stack import DemoStack
from pheby_protocol.client_state import digest, shown
from tests.proxies.bad_line import BadLine, bad_line
from tests.proxies.caddy import in_front_of

RUN = Path(__file__).parents[2] / "conformance" / "kotlin" / "run.sh"
BUILDING = 600


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    """What takes a minute is no part of any test."""
    subprocess.run([RUN, "codec"], stdin=subprocess.DEVNULL, check=True, timeout=BUILDING)


@pytest.fixture
async def simulated() -> AsyncIterator[SimulatedStack]:
    async with SimulatedStack() as stack:
        yield stack


async def say(*arguments: str, secret: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and error output."""
    process = await asyncio.create_subprocess_exec(
        RUN,
        "say",
        *arguments,
        env={**os.environ, "SECRET": secret, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), error.decode()


async def test_one_exchange_prints_the_answer(simulated: SimulatedStack) -> None:
    """R-P1: and nothing else, in any locale."""
    options = ["--url", simulated.url, "--secret-env", "SECRET"]
    answer = await say(*options, "say grüß dich ✓", secret=simulated.secret, LC_ALL="C")
    assert answer == (0, "Grüß dich ✓! You asked me to say: grüß dich ✓\n", "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fail 401", "The model provider refused the credentials."),
        ("danger /nowhere", "the agent asks something that only its owner can answer"),
        ("ask Which?|a|b", "the agent asks something that only its owner can answer"),
    ],
)
async def test_what_has_no_answer_fails_and_says_why(simulated: SimulatedStack, text: str, told: str) -> None:
    """R-P1."""
    options = ["--url", simulated.url, "--secret-env", "SECRET"]
    assert await say(*options, text, secret=simulated.secret) == (1, "", f"say: {told}\n")


async def test_a_wrong_secret_stops_it_at_once(simulated: SimulatedStack) -> None:
    """R-A5."""
    options = ["--url", simulated.url, "--secret-env", "SECRET"]
    code, out, error = await say(*options, "say hello", secret=simulated.secret[::-1])
    assert (code, out) == (1, "")
    assert error.splitlines()[-1] == "say: the client has stopped: SECRET_REFUSED"


async def test_what_is_typed_wrongly_is_answered_by_what_can_be_typed() -> None:
    """R-P1."""
    code, out, error = await say("--url", "ws://localhost/v1/ws", "--secret", "x", "say hello", secret="x")
    assert (code, out) == (2, "")
    assert "--secret-env NAME" in error


# With real gateways, through TLS


class Phone:
    """The Kotlin client as a process that is told what to do."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def tell(self, what: str, **fields: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **fields}).encode() + b"\n")

    async def seen(self, cursor: int) -> dict[str, Any]:
        """What it shows once it has heard of this event, and what it has noticed on the way."""
        self.tell("seen", cursor=cursor)
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return found


@asynccontextmanager
async def phone_at(url: str, secret: str, certificates: Path) -> AsyncIterator[Phone]:
    process = await asyncio.create_subprocess_exec(
        RUN,
        "client",
        "--ca",
        certificates,
        url,
        env={**os.environ, "PHEBY_SECRET": secret},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**25,
    )
    try:
        yield Phone(process)
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@attrs.frozen
class Day:
    """A phone behind Caddy and a bad line, and a desk beside the gateway that hears of everything."""

    stack: DemoStack
    line: BadLine
    phone: Phone
    desk: Device
    conversation_id: str
    beside: str

    def say(self, text: str, conversation_id: str | None = None) -> None:
        self.phone.tell("send", conversation_id=conversation_id or self.conversation_id, text=text)

    async def run_of(self, text: str) -> str:
        """The run of the owner's words, once the desk has heard of them."""
        while True:
            for message in self.desk.state.messages.values():
                if message.role.value == "user" and message.text == text and message.run_id is not None:
                    return message.run_id
            await self.desk.hear()

    async def end_of(self, text: str) -> str:
        """What the agent has said in the run of these words."""
        run_id = await self.run_of(text)
        while (run := self.desk.state.runs.get(run_id)) is None or run.ended_at is None:
            await self.desk.hear()
        assert run.status.value == "completed"
        told = [message for message in self.desk.state.messages.values() if message.run_id == run_id]
        return "\n".join(message.text for message in told if message.role.value == "assistant")

    async def pending(self, kind: str) -> Any:
        """The approval or clarification that waits for the owner."""
        while True:
            for item in getattr(self.desk.state, kind).values():
                if item.status.value == "pending":
                    return item
            await self.desk.hear()


@pytest.fixture(params=[("0.19", "own host"), ("0.22", "path of a host")], ids=["0.19", "0.22"])
async def day(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Day]:
    hermes, site = request.param
    async with DemoStack(hermes, progress=lambda _: None) as stack:
        port = int(stack.url.split(":")[2].split("/")[0])
        async with in_front_of(port, tmp_path / "caddy") as caddy, bad_line(caddy.sites[site].origin.port) as line:
            url = f"wss://localhost:{line.port}{caddy.sites[site].prefix}/v1/ws"
            async with phone_at(url, stack.secret, caddy.root) as phone:
                async with asyncio.timeout(30):
                    # In step before anything happens, so that it hears of everything.
                    await phone.seen(0)
                desk = Device(stack, "desk")
                await desk.connect()
                made = [await desk.ask("conversation.create", client_conversation_id=f"c-{n}") for n in range(2)]
                yield Day(stack, line, phone, desk, *(one["conversation"]["conversation_id"] for one in made))
                await desk.cut()


async def same_everywhere(day: Day) -> dict[str, Any]:
    """What the phone has seen, once it shows what the desk shows and what the server tells a device that is new."""
    reader = Device(day.stack, "reader")
    await reader.connect()
    await reader.walk()
    for conversation_id in sorted(reader.state.conversations):
        await reader.history(conversation_id)
    while True:
        # What a fetch finds out may be told to all.
        await day.desk.in_step()
        await reader.in_step()
        seen = await day.phone.seen(day.desk.state.cursor)
        if seen["state"]["cursor"] == day.desk.state.cursor == reader.state.cursor:
            break
    await reader.cut()
    assert seen["state"] == shown(day.desk.state) == shown(reader.state)
    assert seen["digest"] == digest(day.desk.state) == digest(reader.state)
    # Of the log nothing is missing, and nothing came twice.
    assert seen["seqs"] == list(range(seen["seqs"][0], day.desk.state.cursor + 1))
    return seen


async def test_a_phone_behind_caddy_does_what_an_owner_does(day: Day, tmp_path: Path) -> None:
    """R-A4, R-E1, R-F1, R-G3, R-N1: streams, approves, answers, fetches a file over a line that breaks."""
    async with asyncio.timeout(120):
        day.say("say grüß dich ✓")
        assert await day.end_of("say grüß dich ✓") == "Grüß dich ✓! You asked me to say: grüß dich ✓"

        doomed = tmp_path / "doomed"
        doomed.mkdir()
        day.say(f"danger {doomed}")
        approval = await day.pending("approvals")
        day.phone.tell("approve", approval_id=approval.approval_id, choice="once")
        await day.end_of(f"danger {doomed}")
        assert not doomed.exists()

        question = "ask Which colour?|red|green"
        day.say(question)
        asked = await day.pending("clarifications")
        green = [choice.choice_id for choice in asked.choices if choice.label == "green"]
        day.phone.tell("answer", clarification_id=asked.clarification_id, choice_ids=green)
        assert "green" in await day.end_of(question)

        file, copy = day.stack.home / "work" / "film.bin", tmp_path / "copy.bin"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(os.urandom(8_000_000))
        day.say(f"media {file}")
        await day.end_of(f"media {file}")
        (attachment,) = day.desk.state.attachments.values()
        await day.phone.seen(day.desk.state.cursor)
        day.line.most_bytes = 3_000_000
        day.phone.tell("download", attachment_id=attachment.attachment_id, file=str(copy))
        while not copy.exists() or copy.stat().st_size < attachment.size:
            await asyncio.sleep(0.05)
        assert day.line.cuts >= 2
        assert hashlib.sha256(copy.read_bytes()).hexdigest() == attachment.sha256
        day.line.most_bytes = None
        assert (await same_everywhere(day))["rewritten"] == []


async def test_a_line_that_is_cut_every_five_seconds_loses_and_doubles_nothing(
    day: Day, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-I2, R-M4, R-N1: while one answer streams and words are sent beside it. `--cutting` sets for how long."""
    seconds: int = request.config.getoption("--cutting")
    words = [f"say {number}" for number in range(seconds // 3)]
    async with asyncio.timeout(seconds + 100):
        async with day.line.cut_every(5):
            day.say(f"slow {seconds * 10}")
            said = asyncio.create_task(say_each(day, words, 3))
            streamed = await day.end_of(f"slow {seconds * 10}")
            for text in words:
                assert await day.end_of(text) == f"{text[4:]}! You asked me to say: {text[4:]}"
            await said
        seen = await same_everywhere(day)
    assert streamed == " ".join(f"w{number}" for number in range(1, seconds * 10 + 1))
    assert seen["rewritten"] == []
    assert seconds // 5 <= seen["in_step"] <= day.line.cuts + 1
    owner = [message["text"] for message in seen["state"]["messages"].values() if message["role"] == "user"]
    assert sorted(owner) == sorted([f"slow {seconds * 10}", *words])
    with capsys.disabled():
        told = f"{day.line.cuts} cuts in {seconds} s, {len(seen['seqs'])} events, {len(streamed)} characters streamed"
        print(f"\nHermes {day.stack.hermes_version}: {told}, digest {seen['digest'][:16]} three times")


async def say_each(day: Day, words: list[str], seconds: float) -> None:
    for text in words:
        day.say(text, day.beside)
        await asyncio.sleep(seconds)
