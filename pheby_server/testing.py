"""PUBLIC: what a test of something built on the core needs. No socket, no waiting for real time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pheby_protocol.errors import CloseCode
from pheby_protocol.ids import ConversationId, MessageId
from pheby_protocol.messages.connection import AccessMode
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_protocol.messages.model import Model, ModelChoice, Provider

from .auth import Authenticator
from .config import ServerConfig
from .outbox import Close
from .ports import (
    Bound,
    Delivery,
    EffortOffer,
    GatewayEvents,
    HandOver,
    HermesConversation,
    HermesFeatures,
    HermesMessage,
    HermesPort,
    LiveMessage,
    ModelOffer,
    Timer,
    TitleTaken,
    Unavailable,
)
from .server import Server
from .simulated import Respond, SimulatedHermes, echo
from .system import SystemClock

TEST_SECRET = "test-0123456789abcdef-0123456789abcdef"  # noqa: S105 - for tests only, and named so


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ms: int = 1_796_050_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0
        self._timers: list[tuple[float, int, _FakeTimer]] = []
        self._count = itertools.count()

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        timer = _FakeTimer(call)
        heapq.heappush(self._timers, (self._monotonic + delay, next(self._count), timer))
        return timer

    def move(self, seconds: float) -> None:
        """Let time pass; timers that come due are called in order."""
        end = self._monotonic + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self._now_ms += round((due - self._monotonic) * 1_000)
            self._monotonic = due
            timer.fire()
        self._now_ms += round((end - self._monotonic) * 1_000)
        self._monotonic = end

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward or back, as an operator or a time server does."""
        self._now_ms += milliseconds


class _FakeTimer:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self._call = None

    def fire(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


class CountedIds:
    """Ids that are the same in every run of a test."""

    def __init__(self, start: int = 1) -> None:
        self._count = itertools.count(start)

    def token(self) -> str:
        return f"{next(self._count):024d}"

    def conversation_number(self) -> str:
        return f"{next(self._count):017d}"


class ManualHermes:
    """A HermesPort that does nothing by itself: the test takes what was handed over and plays the gateway."""

    def __init__(self) -> None:
        self.features = HermesFeatures(
            version="manual",
            streaming=True,
            cancel=True,
            approvals=True,
            clarifications=True,
            subagents=True,
            steer=True,
            rename=True,
            delete=True,
            attachments=True,
            models=True,
            reasoning=True,
        )
        self.handed_over: asyncio.Queue[HandOver] = asyncio.Queue()
        self.is_ready = asyncio.Event()
        """Cleared: nothing is handed over."""
        self.is_ready.set()
        self.listed: list[HermesConversation] = []
        self.rows: dict[ConversationId, list[HermesMessage]] = defaultdict(list)
        self.resolved: list[tuple[str, str, str | None]] = []
        """Every approval that was decided here: key, choice, reason."""
        self.clarified: list[tuple[str, tuple[int, ...], str | None, bool]] = []
        """Every clarification that was answered here: key, choices, text, whether it was skipped."""
        self.steered: list[HandOver] = []
        self.takes_steering = True
        self.stopped_subagents: list[str] = []
        self.titles: dict[ConversationId, str] = {}
        """Every title that was given here; no two may be the same."""
        self.deleted: list[ConversationId] = []
        self.refuses_deletion = False
        self.resolves = True
        """False: Hermes does not take the answer."""
        self.interrupted: asyncio.Queue[ConversationId] = asyncio.Queue()
        self.offered = ("m1", "m2")
        """The models of the provider `p`; the first is the default."""
        self.models_in_use: dict[ConversationId, str] = {}
        self.efforts_in_use: dict[ConversationId, str] = {}
        self.takes_choices = True
        """False: Hermes says nothing and does nothing."""
        self.refuses_pickers = False
        self.effort_of_model: dict[str, str] = {}
        """The effort that comes with a model, as the owner's settings of Hermes may say."""
        self.chosen: list[str] = []
        """Every choice that Hermes was asked for, in order."""
        self.asked_for = 0
        """So often an offer was asked for."""
        self.answers_pickers = asyncio.Event()
        """Cleared: pickers do not open."""
        self.answers_pickers.set()

    async def ready(self, conversation_id: ConversationId) -> None:
        await self.is_ready.wait()

    async def hand_over(self, message: HandOver) -> None:
        self.handed_over.put_nowait(message)

    async def steer(self, message: HandOver) -> bool:
        self.steered.append(message)
        return self.takes_steering

    async def interrupt(self, conversation_id: ConversationId) -> None:
        self.interrupted.put_nowait(conversation_id)

    async def resolve_approval(
        self, conversation_id: ConversationId, key: str, choice: str, reason: str | None
    ) -> bool:
        self.resolved.append((key, choice, reason))
        return self.resolves

    async def resolve_clarification(
        self, conversation_id: ConversationId, key: str, chosen: tuple[int, ...], text: str | None, *, skip: bool
    ) -> bool:
        self.clarified.append((key, chosen, text, skip))
        return self.resolves

    async def interrupt_subagent(self, conversation_id: ConversationId, key: str) -> bool:
        self.stopped_subagents.append(key)
        return self.resolves

    async def conversations(self) -> Sequence[HermesConversation]:
        return list(self.listed)

    async def conversation(self, conversation_id: ConversationId) -> HermesConversation | None:
        return next((found for found in self.listed if found.conversation_id == conversation_id), None)

    async def rename(self, conversation_id: ConversationId, title: str) -> None:
        if any(title == given and name != conversation_id for name, given in self.titles.items()):
            raise TitleTaken
        self.titles[conversation_id] = title

    async def delete(self, conversation_id: ConversationId) -> None:
        if self.refuses_deletion:
            raise Unavailable
        self.deleted.append(conversation_id)
        self.rows.pop(conversation_id, None)

    async def models(self, conversation_id: ConversationId) -> ModelOffer:
        await self._picker()
        models = tuple(Model(model=name, name=name.upper()) for name in self.offered)
        current = self.models_in_use.get(conversation_id, "m1")
        provider = Provider(provider="p", name="P", models=models)
        return ModelOffer(providers=(provider,), current=ModelChoice(provider="p", model=current))

    async def select_model(self, conversation_id: ConversationId, provider: str, model: str) -> None:
        await self._picker()
        self.chosen.append(model)
        if self.takes_choices:
            self.models_in_use[conversation_id] = model
            if model in self.effort_of_model:
                self.efforts_in_use[conversation_id] = self.effort_of_model[model]

    async def efforts(self, conversation_id: ConversationId) -> EffortOffer:
        await self._picker()
        current = self.efforts_in_use.get(conversation_id, "medium")
        return EffortOffer(efforts=("low", "medium", "high"), current=current, known=False)

    async def select_effort(self, conversation_id: ConversationId, effort: str) -> None:
        await self._picker()
        self.chosen.append(effort)
        if self.takes_choices:
            self.efforts_in_use[conversation_id] = effort

    async def _picker(self) -> None:
        self.asked_for += 1
        # As real ones, which open in a moment.
        await asyncio.sleep(0)
        await self.answers_pickers.wait()
        if self.refuses_pickers:
            raise Unavailable

    async def history(self, conversation_id: ConversationId) -> Sequence[HermesMessage]:
        return list(self.rows[conversation_id])

    async def bind(
        self, conversation_id: ConversationId, live: Sequence[LiveMessage], bound: Container[str]
    ) -> Sequence[Bound]:
        """Equal text of the same role is the same message, oldest first."""
        free = [row for row in self.rows[conversation_id] if row.key not in bound]
        pairs = []
        for message in live:
            found = next((row for row in free if (row.role, row.text) == (message.role, message.text)), None)
            if found is not None:
                free.remove(found)
                pairs.append(Bound(message_id=message.message_id, key=found.key))
        return pairs


async def deliver_text(
    events: GatewayEvents, conversation_id: ConversationId, text: str, origin: Origin = Origin.CRON
) -> MessageId:
    """A text outside of any run, stored on return; its message."""
    role = MessageRole.NOTICE if origin is Origin.SYSTEM else MessageRole.ASSISTANT
    return await events.deliver(conversation_id, Delivery(text=text, origin=origin, role=role))


class MemoryTransport:
    """A client's end of a session without a socket: JSON objects in, JSON objects out."""

    def __init__(self, server: Server, access_mode: AccessMode = AccessMode.FULL) -> None:
        self._server = server
        self._ids = itertools.count(1)
        self.session = server.open_session(access_mode)
        self.closed: CloseCode | None = None
        self.seen: list[dict[str, Any]] = []
        """Every frame that was received."""

    def send(self, frame: dict[str, Any]) -> None:
        """Send one frame."""
        self.session.receive_text(json.dumps(frame, ensure_ascii=False))

    def send_text(self, text: str) -> None:
        """Send anything."""
        self.session.receive_text(text)

    async def receive(self, within: float = 5.0) -> dict[str, Any]:
        """The next frame. Raises ConnectionError when the server has closed, TimeoutError when nothing comes."""
        async with asyncio.timeout(within):
            frame = await self.session.next_frame()
        if isinstance(frame, Close):
            self.closed = frame.code
            self.session.lost()
            self._server.closed(self.session)
            raise ConnectionError(frame.code)
        read: dict[str, Any] = json.loads(frame)
        self.seen.append(read)
        return read

    async def until(self, wanted: str, **fields: Any) -> dict[str, Any]:
        """Receive until a frame of this type, with these fields."""
        while True:
            frame = await self.receive()
            if frame["type"] == wanted and all(frame.get(name) == value for name, value in fields.items()):
                return frame

    async def request(self, type_: str, **fields: Any) -> dict[str, Any]:
        """Send a request; its result or error. Events that come before it are in `seen`."""
        request_id = f"r{next(self._ids)}"
        self.send({"type": type_, "id": request_id, **fields})
        while True:
            frame = await self.receive()
            if frame.get("id") == request_id:
                return frame

    async def hello(self, device_id: str = "device", **fields: Any) -> dict[str, Any]:
        """Shake hands and wait until in step; the welcome."""
        client = {"name": "test", "version": "1", "device_id": device_id}
        welcome = await self.request("hello", protocol_versions=[1], client=client, **fields)
        if welcome["type"] == "welcome":
            await self.until("sync.completed")
        return welcome

    def cut(self) -> None:
        """The line breaks."""
        self.session.lost()
        self._server.closed(self.session)


@asynccontextmanager
async def running_server(
    storage: str, port: HermesPort, *, clock: Any = None, ids: Any = None, **settings: Any
) -> AsyncIterator[Server]:
    """A started server on a port of your own. Who is still connected at the end is cut off, so nothing is awaited."""
    server = Server(
        ServerConfig(storage=storage, **settings),
        port,
        Authenticator(((AccessMode.FULL, TEST_SECRET),)),
        clock=clock,
        ids=ids,
    )
    await server.start()
    try:
        yield server
    finally:
        for session in list(server._sessions):
            session.lost()
            server.closed(session)
        await server.stop()


@asynccontextmanager
async def client_and_server(
    storage: str, respond: Respond = echo, **settings: Any
) -> AsyncIterator[tuple[MemoryTransport, Server, SimulatedHermes]]:
    """A server on a simulated Hermes, and a client that is in step with it."""
    hermes = SimulatedHermes(SystemClock(), respond)
    async with running_server(storage, hermes, **settings) as server:
        hermes.start(server.events)
        client = MemoryTransport(server)
        await client.hello()
        try:
            yield client, server, hermes
        finally:
            client.cut()
            await hermes.stop()
