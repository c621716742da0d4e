"""RFC 6455 by kosoku's cases (they are Autobahn's): what fails that bare aiohttp passes."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from aiohttp import WSMsgType, web

from pheby_protocol.errors import CloseCode
from pheby_protocol.messages.connection import AccessMode
from pheby_server.aiohttp_transport.websocket import serve_socket
from pheby_server.auth import Credential
from pheby_server.outbox import Close
from pheby_server.testing import TEST_SECRET

from .measuring import NotInstalledError, Sample, Samples

ROWS = ("rfc6455",)
LARGEST: Final = 17 * 2**20
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
    """Pheby's transport, and nothing behind it."""
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
async def _served(handler: Handler) -> AsyncIterator[int]:
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
    async with _served(handler) as port:
        arguments = ["-m", "fuzzingclient", "-x", "12.*", "-x", "13.*", "-o", str(folder), f"127.0.0.1:{port}"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            *arguments,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(120):
            await process.wait()
    found: dict[str, str] = {}
    for agent in json.loads((folder / "index.json").read_text()).values():
        found |= {case: result["behavior"] for case, result in agent.items()}
    return found


def failed(found: dict[str, str]) -> set[str]:
    return {case for case, verdict in found.items() if verdict == "FAILED"}


def measure(quick: bool) -> Samples:
    if find_spec("kosoku") is None:
        raise NotInstalledError("kosoku, which is there for Linux on x86-64")
    with tempfile.TemporaryDirectory() as folder:
        theirs = failed(asyncio.run(verdicts(bare, Path(folder, "bare"))))
        mine = failed(asyncio.run(verdicts(ours, Path(folder, "ours"))))
    # What both fail is aiohttp's, and no case of ours.
    return {"rfc6455": [Sample(float(len(mine - theirs)), float(len(theirs)))]}
