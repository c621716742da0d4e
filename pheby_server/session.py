"""One authenticated connection: handshake, requests in, answers and live events out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from pheby_protocol import limits
from pheby_protocol.capabilities import BATCH
from pheby_protocol.codec import encode
from pheby_protocol.connection import Connection, ProtocolError, Role, SendError, error
from pheby_protocol.errors import CloseCode, ErrorCode
from pheby_protocol.ids import ConnectionId, DeviceId, RequestId
from pheby_protocol.messages._base import Event, Message, Request, Result
from pheby_protocol.messages.connection import AccessMode, Error, ErrorDetails, Hello
from pheby_protocol.states import ConnectionState
from pheby_protocol.version import SUPPORTED_VERSIONS, choose

from .auth import Credential
from .boundary import to_error
from .config import ServerConfig
from .logs import log_of
from .masked import masked
from .metrics import Metrics
from .outbox import Close, Outbox, Queued
from .ports import Clock, Timer
from .rate import TokenBucket, Verdict

log = log_of(__name__)

CLOSE_SECONDS = 5.0
"""So long a client may take to read what comes before its close; then the line is cut."""
BUSY_RETRY_MS = 1_000


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
        queued: Queued | None = None,
    ) -> None:
        self._host = host
        self._config = config
        self._clock = clock
        self._bucket = TokenBucket(clock.monotonic, config.max_requests_per_second, config.request_burst)
        self._connection = Connection(Role.SERVER, config.max_frame_bytes)
        self._outbox = Outbox(config.outbox_frames, config.outbox_bytes, queued)
        self._metrics = metrics or Metrics()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hello_timer: Timer | None = clock.call_later(config.hello_deadline_ms / 1_000, self._hello_missed)
        self._cut_timer: Timer | None = None
        self.reading = asyncio.Lock()
        """Held while something large is read for this client."""
        self.abort: Callable[[], None] = lambda: None
        """Cuts the line; the transport's."""
        self.connection_id = connection_id
        self.access_mode = access_mode
        self.credential: Credential | None = None
        """What it was opened with."""
        self.device_id: DeviceId | None = None
        self.client_name = ""
        self.takes_batches = False
        self.close_code: CloseCode | None = None
        """What this side closed with."""

    @property
    def state(self) -> ConnectionState:
        return self._connection.state

    @property
    def outbox_bytes(self) -> int:
        """The most that has waited for this client."""
        return self._outbox.peak_bytes

    @property
    def has_room(self) -> bool:
        """Whether a large answer may be made for this client."""
        return self._outbox.has_room

    @property
    def takes_live_batches(self) -> bool:
        """Whether live events may come joined. For one who is behind, deltas of one message are joined instead."""
        return self.takes_batches and not self._outbox.is_behind

    @property
    def queued_bytes(self) -> int:
        """What waits to be written to this client."""
        return self._outbox.bytes

    # From the transport

    def receive_text(self, text: str) -> None:
        """Take one text frame."""
        size = self._metrics.frame("in", text)
        if self._config.verbose:
            log.info("frame.received", extra=self._about(text, size))
        verdict = self._came()
        if verdict is Verdict.CLOSE:
            return
        try:
            message = self._connection.receive_text(text)
        except ProtocolError as failure:
            # Its text names fields and expectations, never a value.
            log.info("frame.refused", extra={"connection_id": self.connection_id, "cause": str(failure)})
            if failure.reply is not None:
                # The connection may be closing already: the error announces it.
                self._refuse(failure.reply)
            if failure.close is not None:
                self._end(failure.close)
            return
        if isinstance(message, Hello):
            self._greet(message)
        elif isinstance(message, Request):
            self._serve(message, verdict)

    def receive_ping(self) -> bool:
        """Take a WebSocket ping; whether it is to be answered."""
        return self._came() is Verdict.SERVE

    def receive_pong(self) -> None:
        """Take a WebSocket pong: the answer to a ping, or one of a flood."""
        self._came()

    def receive_binary(self) -> None:
        """Take a binary frame: the protocol has none."""
        self.close(CloseCode.UNSUPPORTED_DATA)

    def lost(self) -> None:
        """The line is gone. What was asked for goes on; its answer is dropped."""
        self._stop_timers()
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

    def send_live(self, event: Event | None, frame: str) -> None:
        """Queue a live event, or (None) a batch of them, encoded once for all sessions.

        A client too far behind is closed and resumes later.
        """
        if not self._outbox.put_live(frame, event):
            self.too_slow()

    def too_slow(self) -> None:
        """Close a client that does not read what waits for it; it loses nothing of the log by that."""
        log.warning("client.too_slow: it is cut off, and resumes", extra={"connection_id": self.connection_id})
        self._end(CloseCode.TOO_SLOW, discard=True)

    def close(self, code: CloseCode, reason: str = "", *, discard: bool = False) -> None:
        """Close after what is queued; with discard, instead of it."""
        if self.state not in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            self._connection.close()
            self._end(code, reason, discard=discard)

    # Inside

    def _about(self, frame: str, size: int) -> dict[str, object]:
        shown = frame if self._config.log_content else masked(frame)
        return {"connection_id": self.connection_id, "bytes": size, "frame": shown}

    def _end(self, code: CloseCode, reason: str = "", *, discard: bool = False) -> None:
        if self.state is not ConnectionState.CLOSED:
            self._connection.close()
        self._stop_timers()
        self._cut_timer = self._clock.call_later(CLOSE_SECONDS, self._cut)
        self.close_code = self.close_code or code
        self._outbox.close(code, reason[: limits.MAX_CLOSE_REASON_BYTES // 4], discard=discard)
        self._host.gone(self)

    def _hello_missed(self) -> None:
        self._hello_timer = None
        if self.state is ConnectionState.AWAITING_HELLO:
            self.close(CloseCode.HELLO_TIMEOUT)

    def _cut(self) -> None:
        # Who reads nothing would hold its place for ever.
        self._cut_timer = None
        self.abort()

    def _stop_timers(self) -> None:
        for timer in (self._hello_timer, self._cut_timer):
            if timer is not None:
                timer.cancel()
        self._hello_timer = self._cut_timer = None

    def _came(self) -> Verdict:
        """Something came. Who goes on when too much has come is closed."""
        if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            return Verdict.CLOSE
        verdict = self._bucket.take()
        if verdict is Verdict.CLOSE:
            log.warning("client.flood: it is cut off", extra={"connection_id": self.connection_id})
            self.close(CloseCode.TOO_MANY_REQUESTS, discard=True)
        return verdict

    def _greet(self, hello: Hello) -> None:
        self._stop_timers()
        version = choose(hello.protocol_versions)
        if version is None:
            self.send(
                error(ErrorCode.UNSUPPORTED_VERSION, hello.id, details=ErrorDetails(supported=SUPPORTED_VERSIONS))
            )
            self.close(CloseCode.NO_COMMON_VERSION)
            return
        self.device_id, self.client_name = hello.client.device_id, hello.client.name
        self.takes_batches = BATCH in hello.capabilities
        self._host.greet(self, hello, version)

    def _serve(self, request: Request, verdict: Verdict) -> None:
        if verdict is Verdict.REFUSE:
            self._too_many(request, max(self._bucket.retry_after_ms(), 1))
            return
        if self._connection.open_requests > self._config.max_pending_requests:
            self._too_many(request, BUSY_RETRY_MS)
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
        if not self._outbox.put_answer(frame, is_error=isinstance(answer, Error)):
            self._too_many_answers(answer, request_id)

    def _too_many(self, request: Request, retry_after_ms: int) -> None:
        refusal = error(ErrorCode.RATE_LIMITED, request.id, retry_after_ms=retry_after_ms)
        self._connection.sent(refusal)
        self._refuse(refusal)

    def _too_many_answers(self, answer: Message, request_id: RequestId) -> None:
        """The client does not read the answers that it has. Whatever it asked for may be asked for again."""
        if isinstance(answer, Error):
            self.too_slow()
        else:
            self._refuse(error(ErrorCode.RATE_LIMITED, request_id, retry_after_ms=BUSY_RETRY_MS))

    def _refuse(self, refusal: Error) -> None:
        if not self._outbox.put_answer(encode(refusal), is_error=True):
            self.too_slow()
