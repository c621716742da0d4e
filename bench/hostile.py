"""Clients that mean harm: each does its worst until it is done or cut off, and reads only what it must."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final

from .loading import HOST, IN_STEP, Line

PATIENCE: Final = 5.0
"""Seconds that one waits for a server that has stopped to read from it."""
LARGE: Final = 64 * 2**20
HEADS: Final = 16
"""That one leaves without an end."""


def frame(content: bytes, *, opcode: int = 1, final: bool = True) -> bytes:
    """One masked frame; the mask is all zeros."""
    size = len(content)
    if size < 126:
        head = bytes((0x80 | size,))
    elif size < 65_536:
        head = struct.pack("!BH", 0xFE, size)
    else:
        head = struct.pack("!BQ", 0xFF, size)
    return bytes(((0x80 if final else 0) | opcode,)) + head + bytes(4) + content


def in_step(port: int, token: str, number: int) -> Line:
    line = Line(port, token)
    line.socket.settimeout(PATIENCE)
    line.upgraded()
    line.hello(number, False, None)
    _read_until(line, IN_STEP)
    return line


def _read_until(line: Line, mark: bytes) -> None:
    seen = b""
    while mark not in seen:
        new = line.socket.recv(65_536)
        if not new:
            raise ConnectionError
        seen = seen[-64:] + new


def calm(line: Line, rounds: int) -> None:
    for _ in range(10):
        line.send({"type": "ping", "id": "p"})
        _read_until(line, b'"pong"')


def flood(line: Line, rounds: int) -> None:
    hundred = frame(b'{"type":"ping","id":"p"}') * 100
    for _ in range(0, rounds, 100):
        line.socket.sendall(hundred)


MALFORMED: Final = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"type":7}',
    b'{"type":"ping","id":"p","id":"p"}',
    b'{"type":"ping","id":NaN}',
    b'{"type":"ping","id":"\\ud800"}',
    b'{"type":"ping","id":"\\u0000"}',
    b'{"type":"ping","id":' + b"9" * 5_000 + b"}",
)


def malformed(line: Line, rounds: int) -> None:
    for number in range(rounds):
        line.socket.sendall(frame(MALFORMED[number % len(MALFORMED)]))


def nested(line: Line, rounds: int) -> None:
    deep = frame(b"[" * 500_000)
    for _ in range(0, rounds, 100):
        line.socket.sendall(deep)


def large_frame(line: Line, rounds: int) -> None:
    line.socket.sendall(frame(bytes(LARGE)))


def fragments(line: Line, rounds: int) -> None:
    piece = bytes(LARGE // 1_000)
    for number in range(1_000):
        line.socket.sendall(frame(piece, opcode=0 if number else 1, final=number == 999))


def unread(line: Line, rounds: int) -> None:
    wish = {"type": "conversation.history", "id": "h", "conversation_id": "conv_12345678901234567", "limit": 200}
    asked = frame(json.dumps(wish).encode()) * 20
    for _ in range(0, rounds, 500):
        line.socket.sendall(asked)


BY_FRAMES: Final[dict[str, Callable[[Line, int], None]]] = {
    "calm": calm,
    "flood": flood,
    "malformed": malformed,
    "nested": nested,
    "large-frame": large_frame,
    "fragments": fragments,
    "unread": unread,
}


def _connected(port: int, token: str, number: int, kind: str, rounds: int) -> None:
    line = in_step(port, token, number)
    with line.socket, contextlib.suppress(OSError):
        BY_FRAMES[kind](line, rounds)


def slow_heads(port: int, token: str, number: int, kind: str, rounds: int) -> None:
    """As much of a head as one may have, without its end."""
    start = f"GET /v1/ws HTTP/1.1\r\nHost: {HOST}\r\n".encode()
    field = b"X-Filler: " + b"x" * 4_000 + b"\r\n"
    lines = [socket.create_connection((HOST, port), PATIENCE) for _ in range(HEADS)]
    for line in lines:
        with contextlib.suppress(OSError):
            line.sendall(start + field * 7)
    for line in lines:
        line.close()


def wrong_secrets(port: int, token: str, number: int, kind: str, rounds: int) -> None:
    """Each from another address, as it claims."""
    for guess in range(rounds // 10):
        address = f"10.{number}.{guess >> 8 & 255}.{guess & 255}"
        with socket.create_connection((HOST, port), PATIENCE) as line, contextlib.suppress(OSError):
            line.sendall(
                f"GET /v1/ws HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-For: {address}\r\n"
                f"Authorization: Bearer {guess:040d}\r\nConnection: close\r\n\r\n".encode()
            )
            line.recv(1_000)


BY_HEADS: Final = {"slow-heads": slow_heads, "wrong-secrets": wrong_secrets}


def attack(port: int, token: str, clients: int, kind: str, rounds: int) -> None:
    """So many at once, until the last is done."""
    does = BY_HEADS.get(kind, _connected)
    threads = [
        threading.Thread(target=does, args=(port, token, number, kind, rounds)) for number in range(100, 100 + clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
