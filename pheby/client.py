"""A client for Python: one connection that is kept up, requests with typed answers, events as they come."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import aiohttp
import attrs

from pheby_protocol.capabilities import BATCH
from pheby_protocol.codec import UnknownMessage
from pheby_protocol.connection import Connection, ProtocolError, Role
from pheby_protocol.errors import CLOSES, AfterClose, CloseCode, ErrorCode
from pheby_protocol.ids import (
    ApprovalId,
    ChoiceId,
    ClarificationId,
    ClientConversationId,
    ClientMessageId,
    ConversationId,
    Count,
    DeviceId,
    ListCursor,
    Position,
    RequestId,
    RunId,
)
from pheby_protocol.limits import MAX_SERVER_FRAME_BYTES
from pheby_protocol.messages._base import Event, LoggedEvent, Request, Result
from pheby_protocol.messages.approval import Approval, ApprovalRespond, ApprovalRespondResult
from pheby_protocol.messages.attachment import Attachment
from pheby_protocol.messages.clarification import Clarification, ClarificationRespond, ClarificationRespondResult
from pheby_protocol.messages.connection import (
    Batch,
    ClientInfo,
    Cursor,
    Error,
    ErrorDetails,
    Hello,
    ServerDraining,
    SyncCompleted,
    Welcome,
)
from pheby_protocol.messages.conversation import (
    Conversation,
    ConversationCreate,
    ConversationCreateResult,
    ConversationDelete,
    ConversationDeleteResult,
    ConversationList,
    ConversationListResult,
    ConversationRename,
    ConversationRenameResult,
)
from pheby_protocol.messages.history import ConversationHistory, ConversationHistoryResult
from pheby_protocol.messages.message import IfBusy, MessageSend, MessageSendResult, Receipt
from pheby_protocol.messages.model import (
    ModelChoice,
    ModelList,
    ModelListResult,
    ModelSelect,
    ModelSelectResult,
    ReasoningList,
    ReasoningListResult,
    ReasoningSelect,
    ReasoningSelectResult,
)
from pheby_protocol.messages.run import Run, RunCancel, RunCancelResult
from pheby_protocol.version import SUPPORTED_VERSIONS

from .download import download

FIRST_DELAY: Final = 0.25
LONGEST_DELAY: Final = 30.0
LONGEST_ANNOUNCED: Final = 3600.0
"""No server keeps a client away for longer."""
CONNECT_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 30.0
MOST_TRIES: Final = 5
"""So often the server may put off a message."""

R = TypeVar("R", bound=Result)


class AuthenticationError(Exception):
    """The server refused the secret. Trying again with the same one is of no use."""


class ConnectionLostError(Exception):
    """The connection went away before the answer came. Whether the request was carried out is unknown."""


class SendInDoubtError(ConnectionLostError):
    """The server has forgotten since whether it had the message; its owner decides whether to send it again."""


class RequestFailedError(Exception):
    """The server answered with an error. Decide by the code."""

    def __init__(self, failure: Error) -> None:
        super().__init__(f"{failure.code.value}: {failure.message}")
        self.code: ErrorCode = failure.code
        self.retryable = failure.retryable
        self.retry_after_ms = failure.retry_after_ms
        self.details: ErrorDetails | None = failure.details


@attrs.frozen
class Connected:
    """In step with the server; what it sent since is in the events."""

    welcome: Welcome


@attrs.frozen
class Disconnected:
    """The connection is gone. `final` says that the client will not come back by itself."""

    code: int | None
    final: bool


Happening = Event | UnknownMessage | Connected | Disconnected


class Client:
    """`async with Client(url, secret) as client:` is connected and in step, and reconnects by itself.

    `happenings()` yields every event in order, and the coming and going of the connection between them. One reader.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        name: str = "pheby-python",
        version: str = "0.1.0",
        device_id: str | None = None,
    ) -> None:
        self._url = url
        self._secret = secret
        self._info = ClientInfo(name=name, version=version, device_id=DeviceId(device_id or secrets.token_hex(8)))
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._connection: Connection | None = None
        self._answers: dict[RequestId, asyncio.Future[Result]] = {}
        self._numbers = itertools.count(1)
        self._happenings: asyncio.Queue[Happening] = asyncio.Queue()
        self._in_step = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._announced_delay = 0.0
        """The server goes down or takes nobody now, and has said for how long."""
        self._cursor: Cursor | None = None
        """Where a new connection goes on; None: from a snapshot."""
        self.welcome: Welcome | None = None
        self._welcomed_at = 0.0
        self.trouble = ""
        """Why the last attempt to connect failed, in a few words; "" if it did not."""

    async def __aenter__(self) -> Self:
        # The time is that of the upgrade; a connection that stands is watched by its heartbeat.
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CONNECT_SECONDS))
        self._task = asyncio.create_task(self._keep_up(), name="pheby-client")
        try:
            await self.connected()
        except BaseException:
            with contextlib.suppress(asyncio.CancelledError, AuthenticationError, ConnectionLostError):
                await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(asyncio.CancelledError, AuthenticationError, ConnectionLostError):
            await self._leave()

    async def _leave(self) -> None:
        assert self._task is not None
        assert self._http is not None
        if not self._task.done():
            self._task.cancel()
        try:
            await self._task
        finally:
            if self._task.cancelled():
                self._lost(None, final=True)
            await self._http.close()

    # What a user of the library asks

    async def happenings(self) -> AsyncIterator[Happening]:
        """Every event in order, with Connected and Disconnected between; ends behind a final Disconnected."""
        while True:
            happening = await self._happenings.get()
            yield happening
            if isinstance(happening, Disconnected) and happening.final:
                return

    async def connected(self) -> None:
        """Returns when in step with the server. Raises what keeps the client from coming back by itself."""
        assert self._task is not None
        ready = asyncio.create_task(self._in_step.wait())
        try:
            await asyncio.wait([self._task, ready], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._task.cancelled():
            raise ConnectionLostError("the client was closed")
        if self._task.done():
            self._task.result()

    async def create_conversation(self, title: str | None = None) -> Conversation:
        """A new conversation."""
        client_id = ClientConversationId(secrets.token_hex(12))
        while True:
            try:
                result = await self.request(
                    ConversationCreate(id=self._next_id(), client_conversation_id=client_id, title=title),
                    ConversationCreateResult,
                )
                return result.conversation
            except ConnectionLostError:
                await self.connected()

    async def conversations(self, limit: int | None = None, cursor: ListCursor | None = None) -> ConversationListResult:
        """A page of the list, newest activity first."""
        asked = ConversationList(id=self._next_id(), limit=None if limit is None else Count(limit), cursor=cursor)
        return await self.request(asked, ConversationListResult)

    async def rename(self, conversation_id: ConversationId, title: str) -> Conversation:
        """Give a conversation a title."""
        asked = ConversationRename(id=self._next_id(), conversation_id=conversation_id, title=title)
        return (await self.request(asked, ConversationRenameResult)).conversation

    async def delete(self, conversation_id: ConversationId) -> None:
        """Delete a conversation, for good and everywhere."""
        asked = ConversationDelete(id=self._next_id(), conversation_id=conversation_id)
        await self.request(asked, ConversationDeleteResult)

    async def history(
        self, conversation_id: ConversationId, limit: int | None = None, before: Position | None = None
    ) -> ConversationHistoryResult:
        """A page of history, the newest one where no position is given."""
        asked = ConversationHistory(
            id=self._next_id(),
            conversation_id=conversation_id,
            limit=None if limit is None else Count(limit),
            before=before,
        )
        return await self.request(asked, ConversationHistoryResult)

    async def send(self, conversation_id: ConversationId, text: str, *, if_busy: IfBusy = IfBusy.QUEUE) -> Receipt:
        """Send the owner's words once, however often the connection goes away or the server puts it off meanwhile.

        Raises SendInDoubtError where only the owner can decide whether to send them again.
        """
        client_message_id = ClientMessageId(secrets.token_hex(12))
        first_sent: int | None = None
        for tries in itertools.count(1):
            if first_sent is not None and self.welcome is not None and first_sent < self.welcome.receipts_since:
                raise SendInDoubtError("the server cannot tell any more whether it had that message")
            first_sent = first_sent or self._server_now()
            try:
                result = await self.request(
                    MessageSend(
                        id=self._next_id(),
                        conversation_id=conversation_id,
                        client_message_id=client_message_id,
                        text=text,
                        if_busy=if_busy,
                    ),
                    MessageSendResult,
                )
                return result.receipt
            except ConnectionLostError:
                await self.connected()
            except RequestFailedError as failure:
                pause = _again_after(failure, tries)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
                await self.connected()
        raise AssertionError("counting has no end")

    def _server_now(self) -> int | None:
        """The server's time in milliseconds; None while not in step."""
        if self.welcome is None or not self._in_step.is_set():
            return None
        return self.welcome.server_time + int((time.monotonic() - self._welcomed_at) * 1_000)

    async def cancel(self, run_id: RunId, *, drop_queued: bool = False) -> Run:
        """Cancel a run; the run as it is then. It may yet be faster than the cancel."""
        asked = RunCancel(id=self._next_id(), run_id=run_id, drop_queued=drop_queued)
        return (await self.request(asked, RunCancelResult)).run

    async def decide(self, approval_id: ApprovalId, choice: str, reason: str | None = None) -> Approval:
        """Decide an approval by one of its choices."""
        asked = ApprovalRespond(id=self._next_id(), approval_id=approval_id, choice=choice, reason=reason)
        return (await self.request(asked, ApprovalRespondResult)).approval

    async def answer(
        self,
        clarification_id: ClarificationId,
        choice_ids: Sequence[ChoiceId] = (),
        *,
        text: str | None = None,
        skip: bool = False,
    ) -> Clarification:
        """Answer a clarification: by its choices, in words, or not at all."""
        asked = ClarificationRespond(
            id=self._next_id(),
            clarification_id=clarification_id,
            choice_ids=tuple(choice_ids),
            text=text,
            skip=skip,
        )
        return (await self.request(asked, ClarificationRespondResult)).clarification

    async def download(self, attachment: Attachment, target: Path) -> None:
        """Fetch a file into a new one, however often the line breaks. Raises DownloadError, FileExistsError."""
        await download(self._url, self._secret, attachment, target)

    async def list_models(self, conversation_id: ConversationId) -> ModelListResult:
        """The models that a conversation may use, and the one that it uses."""
        return await self.request(ModelList(id=self._next_id(), conversation_id=conversation_id), ModelListResult)

    async def select_model(self, conversation_id: ConversationId, provider: str, model: str) -> ModelChoice:
        """Choose the model for the next runs of a conversation."""
        asked = ModelSelect(id=self._next_id(), conversation_id=conversation_id, provider=provider, model=model)
        return (await self.request(asked, ModelSelectResult)).current

    async def list_efforts(self, conversation_id: ConversationId) -> ReasoningListResult:
        """The reasoning efforts that a conversation may use, and the one that it uses, where that is known."""
        asked = ReasoningList(id=self._next_id(), conversation_id=conversation_id)
        return await self.request(asked, ReasoningListResult)

    async def select_effort(self, conversation_id: ConversationId, effort: str) -> str:
        """Choose the reasoning effort for the next runs of a conversation."""
        asked = ReasoningSelect(id=self._next_id(), conversation_id=conversation_id, effort=effort)
        return (await self.request(asked, ReasoningSelectResult)).current

    async def request(self, request: Request, result: type[R]) -> R:
        """Send any request and return its result. Raises RequestFailedError, ConnectionLostError or TimeoutError."""
        connection, socket = self._connection, self._socket
        if connection is None or socket is None or not self._in_step.is_set():
            raise ConnectionLostError("not connected")
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        frame = connection.send(request)
        self._answers[request.id] = answer
        try:
            await socket.send_str(frame)
            async with asyncio.timeout(REQUEST_SECONDS):
                found = await answer
        except (ConnectionError, aiohttp.ClientError) as failure:
            raise ConnectionLostError("the connection went away") from failure
        finally:
            self._answers.pop(request.id, None)
        if not isinstance(found, result):
            raise TypeError(f"{request.type} is not answered by {result.type}")
        return found

    def _next_id(self) -> RequestId:
        return RequestId(f"c{next(self._numbers)}")

    # The connection

    async def _keep_up(self) -> None:
        delay = 0.0
        while True:
            jittered = delay * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
            await asyncio.sleep(max(jittered, self._announced_delay))
            self._announced_delay = 0.0
            code: int | None = None
            try:
                code = await self._connect_once()
            except aiohttp.WSServerHandshakeError as failure:
                if failure.status == 401:
                    self._lost(401, final=True)
                    raise AuthenticationError("the server refused the secret") from None
                self._announced_delay = _retry_after(failure)
                self.trouble = f"the answer there is HTTP {failure.status}"
            except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
                self._lost(None, final=True)
                raise ConnectionLostError("that is not the address of a server") from None
            except (aiohttp.ClientError, OSError, TimeoutError, ProtocolError) as failure:
                self.trouble = _trouble(failure)
            was_in_step = self._in_step.is_set()
            final = _is_final(code)
            self._lost(code, final=final)
            if final:
                raise ConnectionLostError(f"closed with {code}")
            delay = FIRST_DELAY if was_in_step else min(max(delay * 2, FIRST_DELAY), LONGEST_DELAY)

    def _lost(self, code: int | None, *, final: bool) -> None:
        was_in_step = self._in_step.is_set()
        self._in_step.clear()
        self._socket = self._connection = None
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError("the connection went away"))
        self._answers.clear()
        if was_in_step or final:
            self._happenings.put_nowait(Disconnected(code, final))

    async def _connect_once(self) -> int | None:
        """One connection from its start to its end; the close code."""
        assert self._http is not None
        async with self._http.ws_connect(
            self._url,
            headers={"Authorization": f"Bearer {self._secret}"},
            heartbeat=20.0,
            max_msg_size=MAX_SERVER_FRAME_BYTES + 1,
            timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
        ) as socket:
            self._socket, self._connection = socket, Connection(Role.CLIENT)
            hello = Hello(
                id=self._next_id(),
                protocol_versions=SUPPORTED_VERSIONS,
                client=self._info,
                capabilities=(BATCH,),
                resume=self._cursor,
            )
            await socket.send_str(self._connection.send(hello))
            async for message in socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._receive(self._connection.receive_text(message.data))
            return socket.close_code

    def _receive(self, message: object) -> None:
        match message:
            case Welcome():
                self.welcome, self._welcomed_at = message, time.monotonic()
                if not message.resumed:
                    self._cursor = None
            case Error() | Result():
                self._take_answer(message)
            case SyncCompleted(seq=seq):
                assert self.welcome is not None
                self._cursor = Cursor(epoch=self.welcome.epoch, seq=seq)
                self._in_step.set()
                self.trouble = ""
                self._happenings.put_nowait(Connected(self.welcome))
            case Batch(events=events):
                for event in events:
                    self._receive(event)
            case ServerDraining(reconnect_after_ms=announced):
                self._announced_delay = min(announced / 1_000, LONGEST_ANNOUNCED)
                self._happenings.put_nowait(message)
            case LoggedEvent(seq=int(seq)) | UnknownMessage(seq=int(seq)):
                if self._cursor is not None:
                    self._cursor = attrs.evolve(self._cursor, seq=max(seq, self._cursor.seq))
                self._happenings.put_nowait(message)
            case Event() | UnknownMessage():
                self._happenings.put_nowait(message)

    def _take_answer(self, message: Error | Result) -> None:
        answer = self._answers.get(message.id) if message.id is not None else None
        if answer is None or answer.done():
            # Whoever asked has given up.
            return
        if isinstance(message, Error):
            answer.set_exception(RequestFailedError(message))
        else:
            answer.set_result(message)


def _trouble(failure: Exception) -> str:
    if isinstance(failure, aiohttp.ClientConnectorError):
        return "nobody listens there"
    return "no answer came" if isinstance(failure, TimeoutError) else "what is there does not speak this protocol"


def _again_after(failure: RequestFailedError, tries: int) -> float | None:
    """The seconds after which a message that the server did not take is sent again; None for never."""
    # Whoever sends with `reject` wants to know that it is busy; what went wrong in the server may do so again.
    most = {ErrorCode.BUSY: 0, ErrorCode.INTERNAL: 1}.get(failure.code, MOST_TRIES)
    if not failure.retryable or tries > most:
        return None
    announced = failure.retry_after_ms
    return FIRST_DELAY * 2**tries if announced is None else min(announced / 1_000, LONGEST_ANNOUNCED)


def _retry_after(failure: aiohttp.WSServerHandshakeError) -> float:
    """The seconds that a server which takes nobody now asks to wait for."""
    if failure.headers is None or failure.status not in (429, 503):
        return 0.0
    given = failure.headers.get("Retry-After", "")
    return min(float(given), LONGEST_ANNOUNCED) if given.isascii() and given.isdigit() else 0.0


def _is_final(code: int | None) -> bool:
    """Whether the close table says that coming back by itself is of no use."""
    try:
        after = CLOSES[CloseCode(code or 0)].client
    except ValueError:
        return False
    return after not in (AfterClose.RECONNECT, AfterClose.RECONNECT_AFTER_DELAY)
