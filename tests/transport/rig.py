"""A server on a port of its own, and clients for it: a well-behaved one, and one that writes what it likes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import WSMsgType

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.connection import AccessMode
from pheby_server.aiohttp_transport import Listener
from pheby_server.auth import Authenticator
from pheby_server.config import ServerConfig
from pheby_server.server import Server
from pheby_server.simulated import Say, SimulatedHermes
from pheby_server.system import SystemClock
from pheby_server.testing import TEST_SECRET

HOST = "127.0.0.1"
NAME = ConversationId("conv_1")
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Peer:
    """A client that is aiohttp's, as a client should be."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.seen: list[dict[str, Any]] = []

    async def send(self, **frame: Any) -> None:
        await self.socket.send_str(json.dumps(frame, ensure_ascii=False))

    async def receive(self) -> dict[str, Any]:
        frame: dict[str, Any] = await self.socket.receive_json(timeout=2)
        self.seen.append(frame)
        return frame

    async def until(self, type_: str) -> dict[str, Any]:
        while (frame := await self.receive())["type"] != type_:
            pass
        return frame

    async def hello(self, device_id: str = "device") -> None:
        client = {"name": "t", "version": "1", "device_id": device_id}
        await self.send(type="hello", id="hello", protocol_versions=[1], client=client)
        await self.until("sync.completed")

    async def ping(self) -> None:
        await self.send(type="ping", id="ping")
        await self.until("pong")

    async def close_code(self) -> int | None:
        """Read on until the server closes."""
        while (message := await self.socket.receive(timeout=2)).type is WSMsgType.TEXT:
            self.seen.append(json.loads(message.data))
        assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED)
        return self.socket.close_code


class RawPeer:
    """A client that writes what it likes and answers nothing."""

    patience = 2.0
    """Seconds to wait for a frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def frame(self, opcode: int, content: bytes, *, final: bool = True, reserved: int = 0) -> None:
        head = bytes([(0x80 if final else 0) | reserved << 4 | opcode])
        size = len(content)
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65_536:
            head += bytes([0x80 | 126]) + struct.pack(">H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", size)
        self.writer.write(head + b"\0\0\0\0" + content)

    def text(self, **frame: Any) -> None:
        self.frame(TEXT, json.dumps(frame).encode())

    def hello(self, device_id: str = "raw") -> None:
        client = {"name": "t", "version": "1", "device_id": device_id}
        self.text(type="hello", id="hello", protocol_versions=[1], client=client)

    async def read(self) -> tuple[int, bytes]:
        """One frame of the server: opcode and content."""
        async with asyncio.timeout(self.patience):
            first, second = await self.reader.readexactly(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
            return first & 0x0F, await self.reader.readexactly(size)

    async def until_text(self, type_: str) -> None:
        while True:
            opcode, content = await self.read()
            if opcode == TEXT and json.loads(content)["type"] == type_:
                return

    async def close_code(self) -> int:
        while True:
            opcode, content = await self.read()
            if opcode == CLOSE:
                code: int = struct.unpack(">H", content[:2])[0]
                return code

    async def cut(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Rig:
    def __init__(
        self, server: Server, listener: Listener, http: aiohttp.ClientSession, hermes: SimulatedHermes
    ) -> None:
        self.server = server
        self.listener = listener
        self.http = http
        self.hermes = hermes
        self.port = listener.port
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that has said nothing yet."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        self._writers.append(writer)
        return reader, writer

    async def cut_all(self) -> None:
        """End every connection that was made here."""
        for writer in self._writers:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def peer(self, device_id: str | None = "device", **options: Any) -> Peer:
        socket = await self.http.ws_connect(
            f"http://{HOST}:{self.listener.port}/v1/ws",
            headers={"Authorization": f"Bearer {TEST_SECRET}"},
            max_msg_size=0,
            **options,
        )
        peer = Peer(socket)
        if device_id is not None:
            await peer.hello(device_id)
        return peer

    async def raw(self) -> RawPeer:
        reader, writer = await self.connect()
        writer.write(
            (
                "GET /v1/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                f"Authorization: Bearer {TEST_SECRET}\r\n\r\n"
            ).encode()
        )
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101")
        return RawPeer(reader, writer)

    async def sessions(self, count: int) -> None:
        """Returns when the server has so many sessions."""
        async with asyncio.timeout(2):
            while self.server.session_count != count:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def rigged(folder: Path, *, listening: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Rig]:
    hermes = SimulatedHermes(SystemClock(), lambda text: [Say("echo "), Say(text)])
    config = ServerConfig(storage=str(folder), **settings)
    server = Server(config, hermes, Authenticator(((AccessMode.FULL, TEST_SECRET),)))
    await server.start()
    hermes.start(server.events)
    listener = Listener(server, HOST, 0, **listening or {})
    await listener.start()
    try:
        async with aiohttp.ClientSession() as http:
            rig = Rig(server, listener, http, hermes)
            try:
                yield rig
            finally:
                await rig.cut_all()
    finally:
        await server.stop()
        await listener.stop()
        await hermes.stop()
