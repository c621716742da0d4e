"""One authenticated connection: handshake, requests in, answers and live events out."""

from __future__ import annotations

import asyncio
from typing import Protocol

from pheby_protocol import limits
from pheby_protocol.codec import encode
from pheby_protocol.connection import Connection, ProtocolError, Role, SendError, error
from pheby_protocol.errors import CloseCode, ErrorCode
from pheby_protocol.ids import ConnectionId, DeviceId, RequestId
from pheby_protocol.messages._base import Event, Message, Request, Result
from pheby_protocol.messages.connection import AccessMode, ErrorDetails, Hello
from pheby_protocol.states import ConnectionState
from pheby_protocol.version import SUPPORTED_VERSIONS, choose

from .boundary import to_error
from .config import ServerConfig
from .logs import log_of
from .masked import masked
from .metrics import Metrics
from .outbox import Close, Outbox
from .ports import Clock, Timer

log = log_of(__name__)


class Host(Protocol):
    """What a session needs of the server."""

    def greet(self, session: Session, hello: Hello, version: int) -> None:
        """Take the session in: welcome, state and live events follow in order."""

    async def answer(self, session: Session, request: Request) -> Result:
        """The result of a request. Raises what the boundary turns into an error."""

    def gone(self, session: Session) -> None:
        """The session has ended."""


class Session:
    """Fed by a transport: `receive_text`, `receive_binary`, `lost`; drained by it with `next_frame`."""

    def __init__(
        self,
        host: Host,
        config: ServerConfig,
        clock: Clock,
        connection_id: ConnectionId,
        access_mode: AccessMode,
        metrics: Metrics | None = None,
    ) -> None:
        self._host = host
        self._config = config
        self._connection = Connection(Role.SERVER, config.max_frame_bytes)
        self._outbox = Outbox(config.outbox_frames, config.outbox_bytes)
        self._metrics = metrics or Metrics()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hello_timer: Timer | None = clock.call_later(config.hello_deadline_ms / 1_000, self._hello_missed)
        self.connection_id = connection_id
        self.access_mode = access_mode
        self.device_id: DeviceId | None = None
        self.client_name = ""
        self.close_code: CloseCode | None = None
        """What this side closed with."""

    @property
    def state(self) -> ConnectionState:
        return self._connection.state

    @property
    def outbox_bytes(self) -> int:
        """The most that has waited for this client."""
        return self._outbox.peak_bytes

    # From the transport

    def receive_text(self, text: str) -> None:
        """Take one text frame."""
        size = self._metrics.frame("in", text)
        if self._config.verbose:
            log.info("frame.received", extra=self._about(text, size))
        if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            return
        try:
            message = self._connection.receive_text(text)
        except ProtocolError as failure:
            # Its text names fields and expectations, never a value.
            log.info("frame.refused", extra={"connection_id": self.connection_id, "cause": str(failure)})
            if failure.reply is not None:
                # The connection may be closing already: the error announces it.
                self._outbox.put(encode(failure.reply))
            if failure.close is not None:
                self._end(failure.close)
            return
        if isinstance(message, Hello):
            self._greet(message)
        elif isinstance(message, Request):
            self._serve(message)

    def receive_binary(self) -> None:
        """Take a binary frame: the protocol has none."""
        self.close(CloseCode.UNSUPPORTED_DATA)

    def lost(self) -> None:
        """The line is gone. What was asked for goes on; its answer is dropped."""
        self._stop_hello_timer()
        self._connection.lost()
        self._outbox.close(CloseCode.NORMAL, discard=True)
        self._host.gone(self)

    async def next_frame(self) -> str | Close:
        """The next frame to write; Close is the last."""
        frame = await self._outbox.get()
        if not isinstance(frame, Close):
            size = self._metrics.frame("out", frame)
            if self._config.verbose:
                log.info("frame.sent", extra=self._about(frame, size))
        return frame

    # From the server

    def send(self, message: Message) -> None:
        """Queue an answer or a part of the state."""
        try:
            self._outbox.put(self._connection.send(message))
        except SendError:
            log.debug("answer.dropped", extra={"connection_id": self.connection_id})

    async def send_paced(self, frame: str) -> bool:
        """Queue a frame of a replay when the client has read those before it; False: the connection is closing."""
        if not await self._outbox.room():
            return False
        self._outbox.put(frame)
        return True

    def send_live(self, event: Event, frame: str) -> None:
        """Queue a live event, encoded once for all sessions; a client too far behind is closed and resumes later."""
        if not self._outbox.put_live(frame):
            log.warning("client.too_slow: it is cut off, and resumes", extra={"connection_id": self.connection_id})
            self._end(CloseCode.TOO_SLOW, discard=True)
        else:
            self._connection.sent(event)

    def close(self, code: CloseCode, reason: str = "") -> None:
        """Close after what is queued."""
        if self.state not in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            self._connection.close()
            self._end(code, reason)

    # Inside

    def _about(self, frame: str, size: int) -> dict[str, object]:
        shown = frame if self._config.log_content else masked(frame)
        return {"connection_id": self.connection_id, "bytes": size, "frame": shown}

    def _end(self, code: CloseCode, reason: str = "", *, discard: bool = False) -> None:
        if self.state is not ConnectionState.CLOSED:
            self._connection.close()
        self._stop_hello_timer()
        self.close_code = self.close_code or code
        self._outbox.close(code, reason[: limits.MAX_CLOSE_REASON_BYTES // 4], discard=discard)
        self._host.gone(self)

    def _hello_missed(self) -> None:
        self._hello_timer = None
        if self.state is ConnectionState.AWAITING_HELLO:
            self.close(CloseCode.HELLO_TIMEOUT)

    def _stop_hello_timer(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None

    def _greet(self, hello: Hello) -> None:
        self._stop_hello_timer()
        version = choose(hello.protocol_versions)
        if version is None:
            self.send(
                error(ErrorCode.UNSUPPORTED_VERSION, hello.id, details=ErrorDetails(supported=SUPPORTED_VERSIONS))
            )
            self.close(CloseCode.NO_COMMON_VERSION)
            return
        self.device_id, self.client_name = hello.client.device_id, hello.client.name
        self._host.greet(self, hello, version)

    def _serve(self, request: Request) -> None:
        if self._connection.open_requests > self._config.max_pending_requests:
            self.send(error(ErrorCode.RATE_LIMITED, request.id, retry_after_ms=1_000))
            return
        # Tasks start in the order in which they were made: requests start in arrival order.
        task = asyncio.create_task(self._answer(request), name=f"pheby-{request.type}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Request) -> None:
        answer: Message
        try:
            answer = await self._host.answer(self, request)
        except Exception as failure:  # noqa: BLE001 - the boundary
            answer = to_error(failure, request.id)
            refused = {"connection_id": self.connection_id, "request": request.type, "code": answer.code.value}
            log.info("request.refused", extra=refused)
        self._send_answer(answer, request.id)

    def _send_answer(self, answer: Message, request_id: RequestId) -> None:
        try:
            frame = self._connection.send(answer)
            if len(frame.encode()) > self._config.max_server_frame_bytes:
                raise ValueError("the answer does not fit a frame")
        except SendError:
            return
        except Exception as failure:  # noqa: BLE001 - an answer that cannot be sent is still one answer
            answer = to_error(failure, request_id)
            frame = encode(answer)
            self._connection.sent(answer)
        self._outbox.put(frame)
