"""A real server on a port of this machine, with a simulated Hermes behind it, that a test may stop and disturb."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pheby_protocol.errors import CloseCode
from pheby_protocol.messages.connection import AccessMode
from pheby_server import Server, ServerConfig
from pheby_server.aiohttp_transport import Listener
from pheby_server.auth import Authenticator
from pheby_server.simulated import Respond, SimulatedHermes, echo
from pheby_server.system import SystemClock

SECRET = "client-0123456789abcdef-0123456789abcdef"
READ_ONLY_SECRET = "reader-0123456789abcdef-0123456789abcdef"


class House:
    """Keeps its storage and its port over a restart."""

    def __init__(self, storage: str, respond: Respond = echo) -> None:
        self._storage = storage
        self._port = 0
        self.hermes = SimulatedHermes(SystemClock(), respond)
        self.server: Server | None = None
        self._listener: Listener | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self._port}/v1/ws"

    async def open(self) -> None:
        secrets = ((AccessMode.FULL, SECRET), (AccessMode.READ_ONLY, READ_ONLY_SECRET))
        self.server = Server(ServerConfig(storage=self._storage), self.hermes, Authenticator(secrets))
        await self.server.start()
        self._listener = Listener(self.server, "127.0.0.1", self._port)
        await self._listener.start()
        self._port = self._listener.port
        self.hermes.start(self.server.events)

    async def close(self) -> None:
        if self.server is not None and self._listener is not None:
            server, listener, self.server, self._listener = self.server, self._listener, None, None
            await self.hermes.stop()
            await server.stop()
            await listener.stop()

    def drop(self, code: CloseCode) -> None:
        """Close every connection with this code."""
        assert self.server is not None
        for session in list(self.server._sessions):
            session.close(code)

    def whisper(self, frame: str) -> None:
        """Send a frame of the test's own to every client."""
        assert self.server is not None
        for session in list(self.server._live):
            session._outbox.put(frame)


class FastTime:
    """`asyncio` for the client, with a sleep that writes its length down and takes none."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.may_go_on: Callable[[], bool] = lambda: True
        self.paused = asyncio.Event()
        """The client sleeps, and `may_go_on` says no."""
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay: float) -> None:
        self.delays.append(delay)
        if not self.may_go_on():
            self.paused.set()
            await self.go_on.wait()
        await asyncio.sleep(0)


NO_JITTER = SimpleNamespace(uniform=lambda low, high: high)
