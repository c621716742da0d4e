"""One running stack per line and test session; each test takes conversations of its own."""

from __future__ import annotations

import itertools
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent))

from plain_client import PlainClient

from pheby.demo.home import prepare_home
from pheby.demo.simulated import SimulatedStack
from pheby.demo.stack import DemoStack

Stack = SimulatedStack | DemoStack


@asynccontextmanager
async def running(line: str) -> AsyncIterator[Stack]:
    """A simulated server, or a real gateway of one Hermes line.

    With Hermes's default display settings the plugin is found by its entry point alone, else by its folder too.
    """
    if line == "simulated":
        async with SimulatedStack() as simulated:
            yield simulated
        return
    name, _, variant = line.partition("-")
    options = {"hermes_defaults": True, "plugin": "entry_point"} if variant else {}
    async with DemoStack(name, progress=lambda _: None, **options) as real:  # type: ignore[arg-type]
        yield real


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack(request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """The server under test, one for all tests."""
    async with running(request.param) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def own_stack(request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """A server for one test, which does to it what others must not find."""
    async with running(request.param) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def client(stack: Stack) -> AsyncIterator[PlainClient]:
    """A client that is in step with the stack."""
    async with PlainClient(stack.url, stack.secret) as plain:
        await plain.hello()
        yield plain


FAULTY: dict[str, Any] = {
    "plugins": {"enabled": ["pheby", "fault"]},
    "platforms": {
        "pheby": {
            "extra": {
                "metrics": True,
                # Short, for what is to happen within them.
                "limits": {"heartbeat_ms": 8_000, "header_deadline_ms": 4_000, "outbox_bytes": 2_097_152},
            }
        }
    },
}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def faulty(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DemoStack | None]:
    """A gateway of its own, with all secrets and a plugin that brings faults about; None where there is no gateway.

    It has `manage_secret` and `watch_secret`, too.
    """
    if isinstance(stack, SimulatedStack) or stack.hermes_defaults:
        yield None
        return
    line = "0.19" if stack.hermes_version.startswith("0.19") else "0.22"
    folder = tmp_path_factory.mktemp("faulty") / "home"
    prepare_home(folder, model_url="http://127.0.0.1:1/v1", api_key="none", port=1)
    plugin = Path(__file__).parent / "fault_plugin"
    shutil.copytree(plugin, folder / "plugins" / "fault", ignore=shutil.ignore_patterns("__pycache__"))
    found = DemoStack(line, home=folder, extra_config=FAULTY, progress=lambda _: None)
    found.manage_secret, found.watch_secret = secrets.token_hex(32), secrets.token_hex(32)
    others = f"PHEBY_SECRET_MANAGE={found.manage_secret}\nPHEBY_SECRET_READ_ONLY={found.watch_secret}\n"
    with (folder / ".env").open("a") as file:
        file.write(others)
    async with found:
        yield found


_numbers = itertools.count(1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return f"{abs(hash(request.node.nodeid)) % 10**8}-{next(_numbers)}"
