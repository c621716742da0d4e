"""The server that is right: the core on a simulated Hermes, with less to wait for than people need."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import attrs

from pheby.demo.simulated import respond
from pheby_protocol.messages.connection import AccessMode
from pheby_server import Server, ServerConfig
from pheby_server.aiohttp_transport import Listener
from pheby_server.auth import Authenticator
from pheby_server.simulated import Pause, SimulatedHermes, Step
from pheby_server.system import SystemClock

HASTE = 4.0
"""So much faster than in the demo the scripts speak."""


@attrs.frozen
class GoodServer:
    """Where it is, and the secrets that it takes."""

    url: str
    secret: str
    read_only_secret: str


@asynccontextmanager
async def good_server() -> AsyncIterator[GoodServer]:
    """A server for the time of a test."""
    full, read_only = secrets.token_hex(32), secrets.token_hex(32)
    allowed: set[str] = set()

    def quickly(text: str) -> Iterator[Step]:
        for step in respond(text, allowed):
            yield Pause(step.seconds / HASTE) if isinstance(step, Pause) else step

    with tempfile.TemporaryDirectory(prefix="pheby-conformance-") as folder:
        hermes = SimulatedHermes(SystemClock(), quickly)
        config = ServerConfig(storage=folder, heartbeat_ms=2_000, hello_deadline_ms=1_000)
        modes = ((AccessMode.FULL, full), (AccessMode.READ_ONLY, read_only))
        server = Server(config, hermes, Authenticator(modes))
        await server.start()
        listener = Listener(server, "127.0.0.1", 0)
        await listener.start()
        hermes.start(server.events)
        try:
            yield GoodServer(f"ws://127.0.0.1:{listener.port}/v1/ws", full, read_only)
        finally:
            await hermes.stop()
            await server.stop()
            await listener.stop()
