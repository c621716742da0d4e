"""One connection's protocol, without I/O: what may come in which state, and what to answer when it may not."""

from __future__ import annotations

import json
from enum import Enum

import attrs

from .codec import DecodeError, UnknownMessage, decode, encode, loosely, parse
from .errors import ERRORS, CloseCode, ErrorCode
from .ids import Millis, RequestId
from .limits import MAX_FRAME_BYTES, MAX_SERVER_FRAME_BYTES, MAX_UNDECODABLE_FRAMES
from .machine import RefusedTransition
from .messages._base import Message, Request, Result
from .messages.connection import Error, ErrorDetails, Hello, SyncCompleted, Welcome
from .registry import REGISTRY, Direction
from .states import CONNECTION, ConnectionEvent, ConnectionState


class Role(Enum):
    """Which side of the connection this is."""

    SERVER = "server"
    CLIENT = "client"


class ProtocolError(Exception):
    """The peer broke a rule. `reply` is the frame to send it (a server's), `close` the code to close with, if any."""

    def __init__(self, text: str, reply: Error | None = None, close: CloseCode | None = None) -> None:
        super().__init__(text)
        self.reply = reply
        self.close = close


class SendError(Exception):
    """This side asked for something that the protocol does not allow now."""


def error(
    code: ErrorCode,
    request_id: RequestId | None = None,
    *,
    message: str | None = None,
    retry_after_ms: int | None = None,
    retryable: bool | None = None,
    details: ErrorDetails | None = None,
) -> Error:
    """An error frame with the table's text and advice unless another is given."""
    row = ERRORS[code]
    return Error(
        id=request_id,
        code=code,
        message=message or row.message,
        retryable=row.retryable if retryable is None else retryable,
        retry_after_ms=None if retry_after_ms is None else Millis(max(0, retry_after_ms)),
        details=details,
    )


@attrs.define
class Connection:
    """Either side of a connection: `receive_text()` for what comes, `send()` for what goes, `lost()` for a dead line.

    It knows which requests are open, so that each gets one answer. Nothing is buffered.
    """

    role: Role
    max_receive_bytes: int = attrs.field()
    state: ConnectionState = CONNECTION.initial
    _open: dict[RequestId, str] = attrs.field(factory=dict)
    """Requests without an answer yet: id to type."""
    _undecodable: int = 0

    @max_receive_bytes.default
    def _limit(self) -> int:
        return MAX_FRAME_BYTES if self.role is Role.SERVER else MAX_SERVER_FRAME_BYTES

    @property
    def open_requests(self) -> int:
        return len(self._open)

    def receive_text(self, text: str) -> Message | UnknownMessage:
        """Take one text frame. Raises ProtocolError with the reply to send and the close code where it ends there."""
        if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            raise ProtocolError("the connection is closing")
        if len(text) > self.max_receive_bytes or (
            len(text) * 4 > self.max_receive_bytes and len(text.encode("utf-8", "replace")) > self.max_receive_bytes
        ):
            self._move(ConnectionEvent.CLOSE)
            raise ProtocolError("frame too large", close=CloseCode.TOO_BIG)
        try:
            message = self._decode(text)
        except DecodeError as flaw:
            raise self._count_undecodable(flaw) from None
        self._undecodable = 0
        if self.role is Role.SERVER:
            return self._receive_as_server(message)
        return self._receive_as_client(message)

    def _decode(self, text: str) -> Message | UnknownMessage:
        try:
            return decode(text)
        except DecodeError as flaw:
            # A malformed cursor costs the client a snapshot, not the connection (wire contract, section 3).
            frame = loosely(text, flaw.flaw)
            if flaw.path == "$.resume" or flaw.path.startswith("$.resume."):
                frame = parse(text)
            if frame.get("type") != Hello.type or "resume" not in frame:
                raise
            del frame["resume"]
            return decode(json.dumps(frame, ensure_ascii=False))

    def _count_undecodable(self, flaw: DecodeError) -> ProtocolError:
        if self.role is Role.CLIENT:
            return ProtocolError(str(flaw))
        self._undecodable += 1
        reply = error(
            ErrorCode.INVALID_MESSAGE, self._answerable(flaw.request_id), message=f"The frame is not valid: {flaw}."
        )
        if self._undecodable >= MAX_UNDECODABLE_FRAMES:
            self._move(ConnectionEvent.CLOSE)
            return ProtocolError(str(flaw), reply, CloseCode.PROTOCOL_ERROR)
        return ProtocolError(str(flaw), reply)

    def _answerable(self, request_id: RequestId | None) -> RequestId | None:
        """An id that is not that of another open request, whose one answer this would seem to be."""
        return None if request_id in self._open else request_id

    def _receive_as_server(self, message: Message | UnknownMessage) -> Message | UnknownMessage:
        if self.state is ConnectionState.AWAITING_HELLO and not isinstance(message, Hello):
            request_id = message.id if isinstance(message, Request) else None
            self._move(ConnectionEvent.CLOSE)
            raise ProtocolError(
                "no hello first",
                error(ErrorCode.INVALID_MESSAGE, request_id, message="The first frame must be hello."),
                CloseCode.PROTOCOL_ERROR,
            )
        if isinstance(message, UnknownMessage):
            request_id = self._answerable(message.request_id)
            raise ProtocolError("unknown type", error(ErrorCode.UNKNOWN_TYPE, request_id))
        if not isinstance(message, Request):
            raise ProtocolError(
                "not a request", error(ErrorCode.INVALID_MESSAGE, message="That type is not one for a client to send.")
            )
        if message.id in self._open:
            raise ProtocolError(
                "id in use",
                error(ErrorCode.INVALID_MESSAGE, message="Another open request of this connection has that id."),
            )
        if isinstance(message, Hello):
            if self.state is not ConnectionState.AWAITING_HELLO:
                raise ProtocolError(
                    "hello again", error(ErrorCode.INVALID_MESSAGE, message.id, message="The handshake is done.")
                )
            self._move(ConnectionEvent.HELLO)
        elif self.state is ConnectionState.SYNCING:
            raise ProtocolError("not in step yet", error(ErrorCode.NOT_READY, message.id))
        self._open[message.id] = message.type
        return message

    def _receive_as_client(self, message: Message | UnknownMessage) -> Message | UnknownMessage:
        if isinstance(message, UnknownMessage):
            return message
        if REGISTRY[message.type].direction is not Direction.SERVER_TO_CLIENT:
            raise ProtocolError("not a message for a client")
        if isinstance(message, Result) or (isinstance(message, Error) and message.id is not None):
            asked = self._open.pop(message.id, None)  # type: ignore[arg-type]
            if asked is None:
                raise ProtocolError("an answer to nothing")
            if isinstance(message, Result) and REGISTRY[asked].result != message.type:
                raise ProtocolError("an answer of another type")
        try:
            if isinstance(message, Welcome):
                self._move(ConnectionEvent.HELLO)
            elif isinstance(message, SyncCompleted):
                self._move(ConnectionEvent.SYNCED)
        except RefusedTransition:
            raise ProtocolError("out of order") from None
        return message

    def send(self, message: Message) -> str:
        """The text frame for a message of this side. Raises SendError when it may not be sent in this state."""
        if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            raise SendError("the connection is closing")
        if self.role is Role.CLIENT:
            if not isinstance(message, Request):
                raise SendError("a client sends requests")
            if message.id in self._open:
                raise SendError("that id is in use")
            awaiting = self.state is ConnectionState.AWAITING_HELLO
            if isinstance(message, Hello) != awaiting or (awaiting and self._open):
                raise SendError("hello comes first, and once")
            text = encode(message)
            self._open[message.id] = message.type
            return text
        text = encode(message)
        self.sent(message)
        return text

    def sent(self, message: Message) -> None:
        """Note a server's frame whose text was encoded elsewhere (one encoding serves all clients)."""
        if isinstance(message, Result) or (isinstance(message, Error) and message.id is not None):
            self._open.pop(message.id, None)  # type: ignore[arg-type]
        elif isinstance(message, SyncCompleted):
            self._move(ConnectionEvent.SYNCED)

    def drain(self) -> None:
        """The server is about to go."""
        self._move(ConnectionEvent.DRAIN)

    def close(self) -> None:
        """This side closes."""
        self._move(ConnectionEvent.CLOSE)

    def lost(self) -> None:
        """The line is gone."""
        self._move(ConnectionEvent.LOST)

    def _move(self, event: ConnectionEvent) -> None:
        self.state = CONNECTION.next(self.state, event)
