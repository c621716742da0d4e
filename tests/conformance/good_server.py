"""The server that is right: the core on a simulated Hermes, with less to wait for at the handshake."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs

from pheby.demo.simulated import respond
from pheby_protocol.messages.connection import AccessMode
from pheby_server import Server, ServerConfig
from pheby_server.aiohttp_transport import Listener
from pheby_server.auth import Authenticator
from pheby_server.lockout import Lockout
from pheby_server.simulated import SimulatedHermes
from pheby_server.system import SystemClock


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

    with tempfile.TemporaryDirectory(prefix="pheby-conformance-") as folder:
        hermes = SimulatedHermes(SystemClock(), lambda text: respond(text, allowed))
        config = ServerConfig(storage=folder, heartbeat_ms=4_000, hello_deadline_ms=5_000)
        modes = ((AccessMode.FULL, full), (AccessMode.READ_ONLY, read_only))
        server = Server(config, hermes, Authenticator(modes))
        await server.start()
        listener = Listener(server, "127.0.0.1", 0)
        # Many whole runs come from this one address.
        listener._lockout = Lockout(server.clock.monotonic, free_failures=1_000_000)
        await listener.start()
        hermes.start(server.events)
        try:
            yield GoodServer(f"ws://127.0.0.1:{listener.port}/v1/ws", full, read_only)
        finally:
            await hermes.stop()
            await server.stop()
            await listener.stop()
