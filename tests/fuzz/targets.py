"""What must hold for any bytes at all. One promise each; `python -m tests.fuzz NAME` looks for bytes that break it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from pheby_protocol.codec import DecodeError, UnknownMessage, decode, encode
from pheby_protocol.connection import Connection, ProtocolError, Role
from pheby_protocol.errors import ERRORS
from pheby_protocol.messages.connection import Error
from pheby_server.aiohttp_transport.client_address import client_address, networks
from pheby_server.aiohttp_transport.ranges import Asked, plan
from pheby_server.auth import Authenticator
from pheby_server.lockout import Lockout
from pheby_server.masked import masked

_TRUSTED: Final = networks(["127.0.0.1"])
_NOBODY: Final = Authenticator(())


def _text(data: bytes) -> str:
    # As aiohttp hands over a text frame: valid UTF-8, whatever else it is.
    return data.decode("utf-8", "ignore")


def codec(data: bytes) -> None:
    """A frame is a message that comes back the same from its own encoding, or a DecodeError."""
    try:
        message = decode(_text(data))
    except DecodeError:
        return
    if not isinstance(message, UnknownMessage):
        assert decode(encode(message)) == message


def _replies(role: Role, text: str) -> list[Error | None]:
    """What each line that is refused is answered."""
    connection, found = Connection(role), []
    for piece in text.split("\n"):
        try:
            connection.receive_text(piece)
        except ProtocolError as refused:
            found.append(refused.reply)
    return found


def server_connection(data: bytes) -> None:
    """Whatever frames come, a server's side takes each or answers with an error that is one of the table's."""
    for reply in _replies(Role.SERVER, _text(data)):
        assert reply is None or (reply.code in ERRORS and decode(encode(reply)) == reply)


def client_connection(data: bytes) -> None:
    """Whatever a server sends, a client's side takes it or refuses it without an answer."""
    assert set(_replies(Role.CLIENT, _text(data))) <= {None}


def log_mask(data: bytes) -> None:
    """A frame that is shown without its content is one line of text."""
    assert "\n" not in masked(_text(data))


def authorization(data: bytes) -> None:
    """No header opens a server without secrets, and none makes the comparison raise."""
    assert _NOBODY.credential(data.decode("utf-8", "surrogateescape").split("\n")) is None


def forwarded_for(data: bytes) -> None:
    """Whatever a client puts into X-Forwarded-For, it is held to the address that the trusted proxy added."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    assert client_address("127.0.0.1", [*lines, "198.51.100.1"], _TRUSTED) == "198.51.100.1"
    assert client_address("192.0.2.1", lines, _TRUSTED) == "192.0.2.1"
    Lockout(lambda: 0.0, max_addresses=1).failed(client_address("127.0.0.1", lines, _TRUSTED))


def ranges(data: bytes) -> None:
    """Whatever range is asked for, what is sent lies within the file."""
    fields = (data.decode("latin-1").split("\n") + [""] * 5)[:5]
    asked = Asked(range=fields[0], if_range=fields[1], if_match=fields[2] or None, if_none_match=fields[3] or None)
    for size in (0, 1, 1_000):
        found = plan(asked, is_get=True, etag='"x"', modified=0, size=size)
        assert 0 <= found.start <= found.start + found.length <= size


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target
    for target in (codec, server_connection, client_connection, log_mask, authorization, forwarded_for, ranges)
}
SEEDS: Final = (
    b"",
    b"Bearer x",
    b"bytes=0-5,-7",
    b"127.0.0.1, ::1",
    json.dumps({"type": "ping", "id": "a", "x": [{"y": None}]}).encode(),
    b'{"type":"hello","id":"1","protocol_versions":[1],"client":{"name":"","version":"","device_id":"d"}}\n{}',
)
