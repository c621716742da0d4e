"""One running stack per line and test session; each test takes conversations of its own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent))

from plain_client import PlainClient

from pheby.demo.simulated import SimulatedStack
from pheby.demo.stack import DemoStack

Stack = SimulatedStack | DemoStack


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack(request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """The server under test: a simulated one, or a real gateway of one Hermes line.

    With Hermes's default display settings the plugin is found by its entry point alone, else by its folder too.
    """
    line: str = request.param
    if line == "simulated":
        async with SimulatedStack() as simulated:
            yield simulated
        return
    name, _, variant = line.partition("-")
    options = {"hermes_defaults": True, "plugin": "entry_point"} if variant else {}
    async with DemoStack(name, progress=lambda _: None, **options) as real:  # type: ignore[arg-type]
        yield real


@pytest_asyncio.fixture(loop_scope="session")
async def client(stack: Stack) -> AsyncIterator[PlainClient]:
    """A client that is in step with the stack."""
    async with PlainClient(stack.url, stack.secret) as plain:
        await plain.hello()
        yield plain


_numbers = itertools.count(1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return f"{abs(hash(request.node.nodeid)) % 10**8}-{next(_numbers)}"
