"""Requests as bytes: nothing between a test and the server tidies up a path or a header."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Sequence

import attrs

HOST = "127.0.0.1"


@attrs.frozen
class Answer:
    """What came back until the server closed the connection."""

    status: int
    headers: dict[str, str]
    body: bytes


@attrs.frozen
class Origin:
    """Where requests go: a port of this machine, perhaps behind TLS."""

    port: int
    trust: ssl.SSLContext | None = None
    name: str = "localhost"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        server_name = self.name if self.trust else None
        return await asyncio.open_connection(
            HOST, self.port, ssl=self.trust, server_hostname=server_name, limit=1 << 22
        )

    def request(self, method: str, target: str, lines: Sequence[str]) -> bytes:
        head = [f"{method} {target} HTTP/1.1", f"Host: {self.name}:{self.port}", "Connection: close", *lines, "", ""]
        return "\r\n".join(head).encode("latin-1")

    async def ask(self, method: str, target: str, lines: Sequence[str] = ()) -> Answer:
        reader, writer = await self.connect()
        try:
            writer.write(self.request(method, target, lines))
            async with asyncio.timeout(30):
                return parsed(await reader.read())
        finally:
            await closed(writer)

    async def first_bytes(self, target: str, lines: Sequence[str], count: int) -> bytes:
        """So much of a body, then the line is cut."""
        reader, writer = await self.connect()
        try:
            writer.write(self.request("GET", target, lines))
            async with asyncio.timeout(30):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.split()[1] in (b"200", b"206"), head
                return await reader.readexactly(count)
        finally:
            writer.transport.abort()


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


def parsed(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = unchunked(body)
    return Answer(int(first.split()[1]), headers, body)


def unchunked(body: bytes) -> bytes:
    whole = bytearray()
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        whole += rest[:length]
        body = rest[length + 2 :] if length else b""
    return bytes(whole)
