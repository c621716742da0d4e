"""The load generator: sockets that read as fast as one core can, and know no more of WebSocket than they must.

Asked by lines of JSON on standard input, one answer a line (see workers.py).
"""

from __future__ import annotations

import base64
import json
import os
import re
import selectors
import socket
import struct
import sys
import time
from typing import Any, Final

HOST: Final = "127.0.0.1"
STAMP: Final = re.compile(rb"@(\d{6,20})@")
"""When an event was made, in nanoseconds of the clock that all processes of a machine share."""
IN_STEP: Final = b'"sync.completed"'
_AT_ONCE: Final = 1 << 18
_LIMIT_SECONDS: Final = 120.0


class Line:
    """One client's end of a WebSocket."""

    def __init__(self, port: int, token: str) -> None:
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            (
                f"GET /v1/ws HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nAuthorization: Bearer {token}\r\n\r\n"
            ).encode()
        )

    def upgraded(self) -> None:
        """Read the server's answer to the upgrade."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.socket.recv(1)
        if not head.startswith(b"HTTP/1.1 101"):
            raise RuntimeError(head.decode("latin-1"))

    def send(self, frame: dict[str, Any]) -> None:
        """One masked text frame; the mask is all zeros, which masks nothing."""
        body = json.dumps(frame).encode()
        head = bytes((0x81, 0x80 | len(body))) if len(body) < 126 else struct.pack("!BBH", 0x81, 0xFE, len(body))
        self.socket.sendall(head + bytes(4) + body)

    def hello(self, number: int, batches: bool, resume: dict[str, Any] | None) -> None:
        frame: dict[str, Any] = {
            "type": "hello",
            "id": "hello",
            "protocol_versions": [1],
            "client": {"name": "bench", "version": "1", "device_id": f"device_{number}"},
            "capabilities": ["batch"] if batches else [],
        }
        self.send(frame if resume is None else frame | {"resume": resume})


def share(values: list[int], part: float) -> float:
    """The value below which this part of all lies; 0 of none."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else 0.0


class Load:
    """Everything that can be asked."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._frozen: list[Line] = []
        self._selector = selectors.DefaultSelector()

    def connect(
        self,
        port: int,
        clients: int,
        *,
        token: str = "",
        hello: bool = False,
        batches: bool = False,
        resume: dict[str, Any] | None = None,
        frozen: bool = False,
    ) -> dict[str, Any]:
        """Connect clients; with hello, until each is in step. Frozen ones read nothing from then on."""
        first = len(self._lines) + len(self._frozen)
        lines = []
        for number in range(first, first + clients):
            line = Line(port, token)
            line.upgraded()
            lines.append(line)
            if hello:
                line.hello(number, batches, resume)
        if hello:
            self._read(lines, IN_STEP)
        (self._frozen if frozen else self._lines).extend(lines)
        return {"clients": len(lines)}

    def resume(self, resume: dict[str, Any], batches: bool = True) -> dict[str, Any]:
        """Every connected client says hello with a cursor; how long until all are in step."""
        start = time.perf_counter_ns()
        for number, line in enumerate(self._lines):
            line.hello(number, batches, resume)
        found = self._read(self._lines, IN_STEP)
        return {"seconds": (found["end"] - start) / 1e9, "bytes": found["bytes"]}

    def storm(self, port: int, clients: int, token: str, resume: dict[str, Any] | None, until: str) -> dict[str, Any]:
        """Connect all at once; how long until each has read the mark."""
        start = time.perf_counter_ns()
        lines = [Line(port, token) for _ in range(clients)]
        for number, line in enumerate(lines):
            line.upgraded()
            if resume is not None:
                line.hello(number, True, resume)
        self._lines.extend(lines)
        found = self._read(lines, until.encode())
        return {"seconds": (found["end"] - start) / 1e9, "bytes": found["bytes"]}

    def collect(self, until: str) -> dict[str, Any]:
        """Read until every client has read the mark."""
        return self._read(self._lines, until.encode())

    def download(self, port: int, path: str, size: int, token: str = "") -> dict[str, Any]:
        """GET a file; how long its bytes took."""
        line = socket.create_connection((HOST, port))
        buffer = bytearray(1 << 20)
        with line:
            start = time.perf_counter()
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            count = line.recv_into(buffer)
            head, _, rest = bytes(buffer[:count]).partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode("latin-1"))
            left = size - len(rest)
            while left:
                count = line.recv_into(buffer)
                if count == 0:
                    raise RuntimeError("cut off")
                left -= count
            return {"seconds": time.perf_counter() - start}

    def attack(self, port: int, token: str, clients: int, kind: str, rounds: int) -> dict[str, Any]:
        """Clients that mean harm, until the last is done; then each connected client is served once more."""
        from .hostile import attack

        attack(port, token, clients, kind, rounds)
        for line in self._lines:
            line.send({"type": "ping", "id": "p"})
        return self._read(self._lines, b'"pong"')

    def close(self) -> dict[str, Any]:
        """Close every connection."""
        for line in self._lines + self._frozen:
            line.socket.close()
        self._lines, self._frozen = [], []
        return {}

    def _read(self, lines: list[Line], until: bytes) -> dict[str, Any]:
        selector = self._selector
        rest = {line.socket: b"" for line in lines}
        for each in rest:
            selector.register(each, selectors.EVENT_READ)
        latencies: list[int] = []
        count, open_lines, end = 0, len(lines), 0
        limit = time.monotonic() + _LIMIT_SECONDS
        while open_lines:
            if time.monotonic() > limit:
                raise RuntimeError(f"{open_lines} clients have not read {until!r}")
            for key, _ in selector.select(1.0):
                one: socket.socket = key.fileobj  # type: ignore[assignment]
                new = one.recv(_AT_ONCE)
                if not new:
                    raise RuntimeError("a client was cut off")
                end = time.perf_counter_ns()
                count += len(new)
                seen = rest[one] + new
                used = 0
                for stamp in STAMP.finditer(seen):
                    latencies.append(end - int(stamp[1]))
                    used = stamp.end()
                if until in seen:
                    selector.unregister(one)
                    open_lines -= 1
                rest[one] = seen[max(used, len(seen) - 64) :]
        return {
            "end": end,
            "bytes": count,
            "stamps": len(latencies),
            "p50": share(latencies, 0.5) / 1e3,
            "p99": share(latencies, 0.99) / 1e3,
        }


def main() -> None:
    load = Load()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(load, asked.pop("do"))(**asked)), flush=True)


if __name__ == "__main__":
    main()
