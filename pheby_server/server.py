"""The core as one object: its desks, its sessions, its start and its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from enum import StrEnum

from pheby_protocol.capabilities import SERVER_CAPABILITIES
from pheby_protocol.codec import encode
from pheby_protocol.errors import CloseCode, ErrorCode
from pheby_protocol.ids import ConnectionId, DeviceId, Millis, Seq, Time
from pheby_protocol.messages._base import Request, Result
from pheby_protocol.messages.approval import Approval
from pheby_protocol.messages.clarification import Clarification
from pheby_protocol.messages.connection import (
    AccessMode,
    Hello,
    ServerDraining,
    ServerInfo,
    Snapshot,
    SyncCompleted,
    Welcome,
)
from pheby_protocol.messages.history import ConversationHistory
from pheby_protocol.messages.message import Message, MessageText
from pheby_protocol.messages.run import Run
from pheby_protocol.registry import schema_digest
from pheby_protocol.states import ConnectionState

from . import handlers
from .approvals import ApprovalDesk
from .attachments import AttachmentDesk
from .auth import Authenticator, Credential
from .boundary import RequestError
from .clarifications import ClarificationDesk
from .config import ServerConfig
from .conversations import ConversationDesk
from .deletion import DeletionDesk
from .event_log import EventLog
from .file_store import FileStore
from .logs import log_of, secrets
from .metrics import Measure, Metrics, measures
from .models import ModelDesk
from .observer import observe
from .outbox import Queued, batch, batches
from .ports import Clock, GatewayEvents, HermesFeatures, HermesPort, IdSource
from .runs import RunDesk
from .sequencer import Published, Sequencer
from .session import BUSY_RETRY_MS, Session
from .snapshot import snapshot_parts
from .spool import SpoolDesk
from .stores import Store, close_log, read_events
from .subagents import SubagentDesk
from .system import RandomIds, SystemClock
from .tools import ToolDesk
from .transcript import Transcript

log = log_of(__name__)

DRAIN_SECONDS = 2.0
MAX_REPLAYS = 8
"""So many clients read from the log at the same time."""
MAX_READINGS = 8
"""So many clients have texts read for them at the same time."""
REPLAY_BYTES = 131_072
"""Of events that are read at once, and of one batch."""
MAX_QUEUED_BYTES = 48 * 2**20
"""May wait for all clients together; then the one that has most of it is closed."""
RECONNECT_AFTER_MS = 2_000
CUT_SECONDS = 0.5
"""For the end of connections that were cut."""
_SNAPSHOT_SHARE = 0.8
_ABNORMAL = 1006
"""What RFC 6455 calls a connection that ended without a close frame."""


class Phase(StrEnum):
    """Whether the server takes connections."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"


class Server:
    """Sessions of one owner's devices with one Hermes. Made, started, given to a transport, stopped."""

    conversations: ConversationDesk
    transcript: Transcript
    tools: ToolDesk
    approvals: ApprovalDesk
    clarifications: ClarificationDesk
    runs: RunDesk
    deletions: DeletionDesk
    attachments: AttachmentDesk
    models: ModelDesk

    def __init__(
        self,
        config: ServerConfig,
        port: HermesPort,
        authenticator: Authenticator,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self.config = config
        self.authenticator = authenticator
        secrets.keep(authenticator.values())
        self.metrics = Metrics()
        self.clock: Clock = clock or SystemClock()
        self.phase = Phase.STARTING
        self._port = port
        self._ids: IdSource = ids or RandomIds()
        self._store = Store(config.storage, self.clock.now_ms)
        self._store.on_damaged = self._damaged
        self._sessions: set[Session] = set()
        self._live: dict[Session, None] = {}
        self._queued = Queued(MAX_QUEUED_BYTES, self._make_room)
        self.on_damaged: Callable[[], None] = lambda: None
        """Called once when the store is found damaged: stop this server, which puts it aside, and start another."""
        self._is_damaged = False
        self._replays: set[asyncio.Task[None]] = set()
        self._replay_turns = asyncio.Semaphore(MAX_REPLAYS)
        self._readings = asyncio.Semaphore(MAX_READINGS)
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    @property
    def events(self) -> GatewayEvents:
        """What Hermes's side calls."""
        return self.runs

    @property
    def features(self) -> HermesFeatures:
        return self._port.features

    @property
    def published_seq(self) -> Seq:
        return self._sequencer.published_seq

    @property
    def session_count(self) -> int:
        return len(self._sessions)

    async def start(self) -> None:
        """Open the store and put what a dead process left in order. Raises StoreError."""
        async with AsyncExitStack() as undo:
            await self._store.open()
            undo.push_async_callback(self._store.close)
            await self._load(undo)
            undo.pop_all()
        self.runs.start()
        self.deletions.start()
        self.attachments.start()
        self.spool.start()
        self.phase = Phase.SERVING
        log.info("server.started", extra={"epoch": self._log.epoch, "seq": self._log.head})

    async def _load(self, undo: AsyncExitStack) -> None:
        config = self.config
        self._log = await EventLog.load(self._store, self._ids, self.clock.now_ms(), config.log_events, config.log_ms)
        self._sequencer = Sequencer(self._store, self._log, self.clock, self._publish)
        self._sequencer.start()
        undo.push_async_callback(self._sequencer.stop)
        self.conversations = ConversationDesk(
            self._store, self._sequencer, self._port, self.clock, self._ids, config.home_conversation
        )
        self.transcript = Transcript(
            self._store,
            self._sequencer,
            self._port,
            self.conversations,
            self.clock,
            self._ids,
            self.config.max_server_frame_bytes,
        )
        self.attachments = AttachmentDesk(
            self._store,
            FileStore(config.storage, config.max_file_bytes),
            self._sequencer,
            self.conversations,
            self.transcript,
            self.clock,
            self._ids,
            config.retention_ms,
            config.max_files_bytes,
            self.metrics,
        )
        undo.push_async_callback(self.attachments.stop)
        self.tools = ToolDesk(self._store, self.conversations, self.transcript, self.clock, self._ids)
        about_prompts = (
            self._store,
            self._sequencer,
            self._port,
            self.conversations,
            self.transcript,
            self.tools,
            self.clock,
            self._ids,
        )
        self.approvals = ApprovalDesk(*about_prompts)
        self.clarifications = ClarificationDesk(*about_prompts)
        self.runs = RunDesk(
            self._store,
            self._sequencer,
            self._port,
            self.conversations,
            self.transcript,
            self.tools,
            SubagentDesk(self.tools, self.clock, self._ids),
            self.approvals,
            self.clarifications,
            self.attachments,
            self.clock,
            self._ids,
            self.config.max_text_chars,
        )
        self.deletions = DeletionDesk(self._port, self.conversations, self.runs, self.transcript, self.attachments)
        self.spool = SpoolDesk(config.storage, self.runs.deliver, self.clock, self.metrics)
        self.transcript.take_in = self.spool.take_in
        self.models = ModelDesk(self._sequencer, self._port, self.conversations, self.runs, self.clock)
        self.runs.prepare, self.runs.on_began_anew = self.models.prepare, self.models.began_anew
        self.transcript.is_busy = self.runs.is_busy
        self.approvals.go_on = self.clarifications.go_on = self.runs.go_on
        await self.conversations.load(new_log=self._log.is_new)
        await self.transcript.load()
        await self.tools.load()
        await self.approvals.load()
        await self.clarifications.load()
        await self.runs.load()
        await self.attachments.load()
        await self.spool.take_in()

    async def stop(self) -> None:
        """Tell the clients, close their connections, store everything, close the store."""
        if self.phase is not Phase.SERVING:
            return
        self.phase = Phase.DRAINING
        notice = ServerDraining(reconnect_after_ms=Millis(RECONNECT_AFTER_MS))
        for session in list(self._sessions):
            if session in self._live:
                session.send_live(notice, encode(notice))
            session.close(CloseCode.GOING_AWAY)
        try:
            await self._until_all_are_gone()
            await self._close()
        except BaseException:
            # Cut off: the next server of this process needs the store.
            self._store.abandon()
            raise
        self.phase = Phase.STOPPED
        log.info("server.stopped")

    async def _close(self) -> None:
        """End the desks and store everything."""
        for task in self._replays:
            task.cancel()
        await self.conversations.stop()
        await self.deletions.stop()
        await self.spool.stop()
        await self.runs.stop()
        await self.attachments.stop()
        await self._sequencer.stop()
        with contextlib.suppress(Exception):
            await self._store.transact(close_log())
        await self._store.close()

    async def _until_all_are_gone(self) -> None:
        """Returns when they are, soon: whoever does not answer is cut off."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._all_gone.wait()
            return
        log.warning("server.clients_left_open", extra={"count": len(self._sessions)})
        for session in list(self._sessions):
            session.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CUT_SECONDS):
                await self._all_gone.wait()

    def _make_room(self) -> None:
        max(self._sessions, key=lambda session: session.queued_bytes).too_slow()

    def _damaged(self) -> None:
        # One that does not start, or stops already, puts it aside without being asked.
        if self.phase is Phase.SERVING and not self._is_damaged:
            self._is_damaged = True
            self.on_damaged()

    # For a transport

    def open_session(self, access_mode: AccessMode, credential: Credential | None = None) -> Session:
        """A session for a connection whose secret was right."""
        connection_id = ConnectionId(self._ids.token())
        session = Session(self, self.config, self.clock, connection_id, access_mode, self.metrics, self._queued)
        session.credential = credential
        self.metrics.connections += 1
        self._sessions.add(session)
        self._all_gone.clear()
        log.info("client.connected", extra={"connection_id": session.connection_id, "access_mode": access_mode.value})
        # The upgrade may have taken until after a stop, or after the secret was replaced.
        if self.phase is not Phase.SERVING:
            session.close(CloseCode.DRAINING)
        elif not self._is_valid(session):
            session.close(CloseCode.CREDENTIAL_INVALID)
        return session

    def replace_secrets(self, authenticator: Authenticator) -> None:
        """Other secrets from now on. Whoever came in with one that is not among them is out at once (4401)."""
        secrets.keep(authenticator.values())
        self.authenticator = authenticator
        for session in list(self._sessions):
            if not self._is_valid(session):
                session.close(CloseCode.CREDENTIAL_INVALID, discard=True)

    def _is_valid(self, session: Session) -> bool:
        return session.credential is None or self.authenticator.holds(session.credential)

    def refused(self, peer: str | None, *, log_it: bool = True) -> None:
        """A request did not have the secret."""
        self.metrics.authentication_failures += 1
        if log_it:
            log.warning("authentication.failed", extra={"peer": peer})

    def closed(self, session: Session, close_code: int | None = None) -> None:
        """The transport has written a session's last frame; the code that the client closed with, if it did."""
        if session not in self._sessions:
            return
        self._sessions.discard(session)
        code = session.close_code or close_code or _ABNORMAL
        self.metrics.closes[code] += 1
        self.metrics.outbox_bytes = max(self.metrics.outbox_bytes, session.outbox_bytes)
        log.info("client.disconnected", extra={"connection_id": session.connection_id, "close_code": code})
        if not self._sessions:
            self._all_gone.set()

    def measures(self) -> Sequence[Measure]:
        """What was counted, and how things are now."""
        waiting = max((session.outbox_bytes for session in self._sessions), default=0)
        return measures(self.metrics, open_connections=len(self._sessions), outbox_bytes=waiting)

    # For sessions

    def greet(self, session: Session, hello: Hello, version: int) -> None:
        log.info(
            "client.hello",
            extra={
                "connection_id": session.connection_id,
                "device_id": hello.client.device_id,
                "client": hello.client.name,
                "client_version": hello.client.version,
                "protocol_version": version,
            },
        )
        self._replace(hello.client.device_id, session)
        self._sequencer.at_this_point(lambda seq: self._take_in(session, hello, version, seq))

    def gone(self, session: Session) -> None:
        self._live.pop(session, None)

    async def answer(self, session: Session, request: Request) -> Result:
        if not isinstance(request, ConversationHistory | MessageText):
            return await handlers.answer(self, session, request)
        # Large: of one client one at a time, and none for who has not read those before.
        async with session.reading, self._readings:
            if not session.has_room:
                raise RequestError(ErrorCode.RATE_LIMITED, retry_after_ms=BUSY_RETRY_MS)
            return await handlers.answer(self, session, request)

    # Inside

    def _replace(self, device_id: DeviceId, newcomer: Session) -> None:
        for session in list(self._sessions):
            if session is not newcomer and session.device_id == device_id:
                session.close(CloseCode.REPLACED)

    def _publish(self, told: Sequence[Published]) -> None:
        for each in told:
            observe(each.event, self.metrics)
        joined = batches([each.frame for each in told]) if len(told) > 1 else []
        for session in list(self._live):
            if joined and session.takes_live_batches:
                for frame in joined:
                    session.send_live(None, frame)
            else:
                for each in told:
                    session.send_live(each.event, each.frame)

    def _take_in(self, session: Session, hello: Hello, version: int, seq: Seq) -> None:
        if session.state is not ConnectionState.SYNCING:
            # Lost or replaced before its turn came.
            return
        try:
            self._welcome(session, hello, version, seq)
        except Exception as failure:
            # One client's start must not stop the events of all.
            log.error("welcome.failed", exc_info=failure)
            session.close(CloseCode.INTERNAL)

    def _welcome(self, session: Session, hello: Hello, version: int, seq: Seq) -> None:
        features = self._port.features
        resumed = self._log.reaches(hello.resume)
        self.metrics.resumes["replay" if resumed else "snapshot"] += 1
        session.send(
            Welcome(
                id=hello.id,
                protocol_version=version,
                connection_id=session.connection_id,
                server=ServerInfo(name="pheby", version=self.config.server_version, hermes_version=features.version),
                server_time=Time(self.clock.now_ms()),
                capabilities=dict.fromkeys(SERVER_CAPABILITIES, False)
                | {
                    "batch": True,
                    "resume": True,
                    "streaming": features.streaming,
                    "tools": features.tools,
                    "approvals": features.approvals,
                    "clarifications": features.clarifications,
                    "subagents": features.subagents,
                    "steer": features.steer,
                    "rename": features.rename,
                    "delete": features.delete,
                    "attachments": features.attachments,
                    "cancel": features.cancel,
                    "interrupt": features.cancel,
                    "models": features.models,
                    "reasoning": features.reasoning,
                },
                access_mode=session.access_mode,
                limits=self.config.wire_limits(),
                heartbeat_ms=Millis(self.config.heartbeat_ms),
                schema_digest=schema_digest(),
                epoch=self._log.epoch,
                seq=seq,
                resumed=resumed,
                receipts_since=self._log.started_at,
            )
        )
        if resumed and hello.resume is not None:
            replay = asyncio.create_task(self._replay(session, Seq(hello.resume.seq)))
            self._replays.add(replay)
            replay.add_done_callback(self._replays.discard)
            return
        for part in self._snapshot(seq):
            session.send(part)
        session.send(SyncCompleted(seq=seq))
        self._live[session] = None

    async def _replay(self, session: Session, cursor: Seq) -> None:
        """Tell a client what it has missed, at its own pace, until it is in step with the others."""
        try:
            while not await self._in_step(session, cursor):
                async with self._replay_turns:
                    events = await self._store.read(read_events(cursor, REPLAY_BYTES))
                if events is None:
                    # So slow that the log has gone on without it: its next connection gets a snapshot.
                    session.close(CloseCode.TOO_SLOW)
                    return
                # Outside of its turn: whoever reads slowly holds up nobody.
                for frame in _joined([frame for _, frame in events], session.takes_batches):
                    if not await session.send_paced(frame):
                        return
                cursor = events[-1][0] if events else cursor
        except Exception as failure:
            log.error("replay.failed", exc_info=failure)
            session.close(CloseCode.INTERNAL)

    async def _in_step(self, session: Session, cursor: Seq) -> bool:
        """Make the session a live one when there is nothing behind its cursor (or it is gone); whether that is done."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def join(seq: Seq) -> None:
            if done.cancelled():
                return
            if seq > cursor:
                done.set_result(False)
                return
            try:
                if session.state is ConnectionState.SYNCING:
                    for replaced in self.transcript.streaming_as_replaced():
                        session.send(replaced)
                    session.send(SyncCompleted(seq=seq))
                    self._live[session] = None
                done.set_result(True)
            except Exception as failure:  # noqa: BLE001 - one client's start must not stop the events of all
                done.set_exception(failure)

        self._sequencer.at_this_point(join)
        return await done

    def _snapshot(self, seq: Seq) -> list[Snapshot]:
        page, after = self.conversations.page(None, None)
        runs = self.runs.open_runs()
        messages = self.transcript.open_as_sent()
        listed = {conversation.conversation_id for conversation in page}
        approvals, clarifications = self.approvals.open(), self.clarifications.open()
        items: tuple[Run | Message | Approval | Clarification, ...] = (*runs, *messages, *approvals, *clarifications)
        named = dict.fromkeys(item.conversation_id for item in items)
        others = self.conversations.some(found for found in named if found not in listed)
        room = int(self.config.max_server_frame_bytes * _SNAPSHOT_SHARE)
        return snapshot_parts(
            seq, room, (*page, *others), after, runs, messages, self.tools.open(), approvals, clarifications
        )


def _joined(frames: Sequence[str], in_batches: bool) -> Iterable[str]:
    """Events as they are, or in one batch."""
    return [batch(frames)] if in_batches and len(frames) > 1 else frames
