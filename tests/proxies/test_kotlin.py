"""The Kotlin client as a program: what it prints for one exchange."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pheby.demo.simulated import SimulatedStack

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
