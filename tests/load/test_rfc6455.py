"""RFC 6455 by kosoku's cases (they are Autobahn's): the transport fails none that bare aiohttp passes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from pheby_protocol.messages.connection import AccessMode
from pheby_server.aiohttp_transport.websocket import serve_socket
from pheby_server.auth import Credential
from pheby_server.outbox import Close
from pheby_server.session import CloseCode
from pheby_server.testing import TEST_SECRET

kosoku = pytest.importorskip("kosoku")

LARGEST = 17 * 2**20
FEWEST = 200
"""Cases that must have been run, or nothing was shown."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class EchoSession:
    """Stands for a session: gives every text back; binary frames are refused, as the protocol has it."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[str | Close] = asyncio.Queue()
        self.abort: Callable[[], None] = lambda: None

    def receive_text(self, text: str) -> None:
        self._frames.put_nowait(text)

    def receive_binary(self) -> None:
        self._frames.put_nowait(Close(CloseCode.UNSUPPORTED_DATA, ""))

    def receive_ping(self) -> bool:
        return True

    def lost(self) -> None:
        self._frames.put_nowait(Close(CloseCode.NORMAL, ""))

    async def next_frame(self) -> str | Close:
        return await self._frames.get()


async def ours(request: web.Request) -> web.StreamResponse:
    server: Any = SimpleNamespace(
        config=SimpleNamespace(heartbeat_ms=600_000, max_frame_bytes=LARGEST),
        open_session=lambda *_: EchoSession(),
        closed=lambda *_: None,
    )
    return await serve_socket(server, Credential(AccessMode.FULL, TEST_SECRET), request)


async def bare(request: web.Request) -> web.StreamResponse:
    """The same by aiohttp alone."""
    socket = web.WebSocketResponse(max_msg_size=LARGEST + 1, compress=False)
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.close(code=1003)
    return socket


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[int]:
    application = web.Application()
    application.router.add_get("/", handler)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def verdicts(handler: Handler, folder: Path) -> dict[str, str]:
    """Of each case what it said of the server."""
    program = "import sys; from kosoku._cli import main; sys.exit(main())"
    async with served(handler) as port:
        arguments = ["-m", "fuzzingclient", "-x", "12.*", "-x", "13.*", "-o", str(folder), f"127.0.0.1:{port}"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, *arguments, stdout=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(120):
            await process.wait()
    found: dict[str, str] = {}
    for agent in json.loads((folder / "index.json").read_text()).values():
        found |= {case: result["behavior"] for case, result in agent.items()}
    return found


async def test_nothing_that_bare_aiohttp_passes_fails(tmp_path: Path) -> None:
    """R-J1, R-M2."""
    theirs, mine = await verdicts(bare, tmp_path / "bare"), await verdicts(ours, tmp_path / "ours")
    assert len(mine) >= FEWEST
    assert mine.keys() == theirs.keys()
    passed = [case for case, verdict in theirs.items() if verdict != "FAILED"]
    assert len(passed) >= FEWEST / 2
    assert [case for case in passed if mine[case] == "FAILED"] == []
