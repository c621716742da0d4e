"""Pheby on a real listener, and servers of other makes beside it or in front of it. A tool that is missing fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from pheby_protocol.messages.connection import AccessMode
from pheby_server import server as server_module
from pheby_server.aiohttp_transport import Listener
from pheby_server.auth import Authenticator
from pheby_server.config import ServerConfig
from pheby_server.server import Server
from pheby_server.testing import TEST_SECRET, ManualHermes
from tests.transport.fake_files import NOW_MS, FakeFiles

# The devices of the end-to-end tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

HOST = "127.0.0.1"


@attrs.frozen
class Pheby:
    """A server on a port of its own, with files that the test adds."""

    files: FakeFiles
    listener: Listener

    @property
    def port(self) -> int:
        return self.listener.port


@pytest.fixture
async def pheby(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pheby]:
    monkeypatch.setattr(server_module, "DRAIN_SECONDS", 0.3)
    authenticator = Authenticator(((AccessMode.FULL, TEST_SECRET),))
    server = Server(ServerConfig(storage=str(tmp_path / "storage")), ManualHermes(), authenticator)
    monkeypatch.setattr(server.clock, "now_ms", lambda: NOW_MS)
    await server.start()
    folder = tmp_path / "files"
    folder.mkdir()
    files = FakeFiles(folder)
    files.serve_for(server)
    listener = Listener(server, HOST, 0)
    await listener.start()
    yield Pheby(files, listener)
    await server.stop()
    await listener.stop()


@asynccontextmanager
async def running(command: Sequence[str], port: int, folder: Path) -> AsyncIterator[Path]:
    """A server of another make, until it listens on the port; what it prints is in the file that comes back."""
    # Debian has some servers where only an administrator's path leads.
    program = shutil.which(command[0], path=os.environ["PATH"] + ":/usr/sbin")
    assert program, f"{command[0]} is not installed: make tools"
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
    printed = folder / "printed.log"
    with printed.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            program, *command[1:], stdout=output, stderr=output, env=os.environ | home
        )
    try:
        await _listens(port, process, printed)
        yield printed
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(20):
            await process.wait()


async def _listens(port: int, process: asyncio.subprocess.Process, printed: Path) -> None:
    async with asyncio.timeout(20):
        while True:
            assert process.returncode is None, printed.read_text()
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            return


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, each another."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]
