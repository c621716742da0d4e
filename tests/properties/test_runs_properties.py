"""Sends, Hermes's events, restarts and reconnects in any order: what must hold always (R-C3, R-B3, G1, G7).

Every run gets exactly one end and nothing of it follows; seq strictly increases; what a client folded from live events
is what history and a newcomer's snapshot say; positions are unique and increasing; nothing is handed over twice.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pheby_protocol.client_state import ClientState, apply, apply_answer
from pheby_protocol.codec import decode
from pheby_protocol.ids import ConversationId, MessageId
from pheby_protocol.messages.history import ConversationHistory, ConversationHistoryResult
from pheby_protocol.messages.message import Message, MessageRole, Origin
from pheby_protocol.messages.run import RunErrorCode
from pheby_protocol.states import MessageState, ReceiptState
from pheby_server import transcript
from pheby_server.auth import Authenticator
from pheby_server.config import ServerConfig
from pheby_server.ports import GatewayEvents, HandOver, HermesMessage, Outcome, RunResult
from pheby_server.runs import HAND_OVER_WITHIN_MS
from pheby_server.server import Server
from pheby_server.testing import CountedIds, FakeClock, ManualHermes, MemoryTransport, deliver_text

CONVERSATIONS = st.sampled_from(["a", "b"])
TEXT = st.text("ab /\n\ud800\x00é😀", max_size=6)
SAID = st.text("ab /é😀", min_size=1, max_size=6).filter(str.strip)
OPEN = (MessageState.STREAMING, MessageState.QUEUED)
AFTER_END = {"message.updated", "conversation.updated", "history.changed"}


class Gateway:
    """Hermes's part in one conversation: what it took, what runs, what it wrote."""

    def __init__(self) -> None:
        self.taken: list[HandOver] = []
        self.running = False
        self.text: MessageId | None = None
        self.old_texts: list[MessageId] = []


class OnLoop:
    """Hermes's events, each told on the loop."""

    def __init__(self, events: GatewayEvents, do: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._events = events
        self._do = do

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            told = getattr(self._events, name)(*args, **kwargs)
            return await told if inspect.isawaitable(told) else told

        return lambda *args, **kwargs: self._do(call(*args, **kwargs))


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.ids = CountedIds()
        self.hermes = ManualHermes()
        self.names: dict[str, ConversationId] = {}
        self.sends: dict[str, dict[str, Any]] = {}
        self.order: dict[str, list[str]] = defaultdict(list)
        self.handed: dict[str, list[str]] = defaultdict(list)
        self.state = ClientState()
        self.frames: list[dict[str, Any]] = []
        self.quick = patch.object(transcript, "_REREAD_SECONDS", 0.0)
        self.quick.start()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    # Life

    @initialize()
    def begin(self) -> None:
        self.do(self.start())
        for name in "ab":
            made = self.do(self.client.request("conversation.create", client_conversation_id=name))
            self.names[name] = ConversationId(made["conversation"]["conversation_id"])
        self.do(self.settle())

    async def start(self) -> None:
        self.gateways = {name: Gateway() for name in "ab"}
        self.hermes.handed_over = asyncio.Queue()
        config = ServerConfig(storage=self.folder.name)
        self.server = Server(config, self.hermes, Authenticator(()), clock=self.clock, ids=self.ids)
        await self.server.start()
        self.events = OnLoop(self.server.events, self.do)
        await self.connect()

    async def connect(self) -> None:
        """A client without a cache: the snapshot, then all of history."""
        self.state = ClientState()
        self.client = MemoryTransport(self.server)
        self.read = 0
        await self.client.hello("observer")
        for name in self.names.values():
            for page in await self.pages(name):
                asked = ConversationHistory(id=page.id, conversation_id=name)
                self.fold()
                self.state = apply_answer(self.state, asked, page)

    async def die(self) -> None:
        """As kill -9: nothing more is written or told."""
        worker = self.server._sequencer._worker
        assert worker is not None
        tasks = [*self.server.runs._tasks, worker]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.server._store.close()

    async def settle(self) -> None:
        """Let everything that was caused happen, and fold what the client was told."""
        for _ in range(3):
            await self.server.events.settled()
            async with asyncio.timeout(5):
                while self.server.runs._tasks:
                    await asyncio.gather(*self.server.runs._tasks)
        await self.client.request("ping")
        self.fold()
        while not self.hermes.handed_over.empty():
            message = self.hermes.handed_over.get_nowait()
            name = next(name for name, found in self.names.items() if found == message.conversation_id)
            self.gateways[name].taken.append(message)
            self.handed[name].append(message.message_id)

    def fold(self) -> None:
        for frame in self.client.seen[self.read :]:
            self.state = apply(self.state, decode(json.dumps(frame)))
            if frame["type"] not in ("welcome", "snapshot", "sync.completed", "pong") and "id" not in frame:
                self.frames.append(frame)
        self.read = len(self.client.seen)

    def teardown(self) -> None:
        try:
            if self.names:
                self.restart(clean=False, old=False)
                self.holds_at_the_end()
                self.client.cut()
                self.do(self.server.stop())
        finally:
            self.quick.stop()
            self.loop.close()
            self.folder.cleanup()

    # What happens

    @rule(name=CONVERSATIONS, text=SAID, wish=st.sampled_from(["queue", "queue", "reject", "steer"]))
    def send(self, name: str, text: str, wish: str) -> None:
        client_id = f"m{len(self.sends)}-{len(self.frames)}"
        answer = self.do(
            self.client.request(
                "message.send",
                conversation_id=self.names[name],
                client_message_id=client_id,
                text=text,
                if_busy=wish,
            )
        )
        if answer["type"] == "error":
            assert (answer["code"], wish) == ("busy", "reject")
        else:
            assert answer["receipt"]["duplicate"] is False
            self.sends[client_id] = {"name": name, "text": text, **answer["receipt"]}
            self.order[name].append(answer["receipt"]["message_id"])
        self.do(self.settle())

    @precondition(lambda self: self.sends)
    @rule(data=st.data(), other=st.booleans())
    def send_again(self, data: st.DataObject, *, other: bool) -> None:
        client_id = data.draw(st.sampled_from(sorted(self.sends)))
        known = self.sends[client_id]
        answer = self.do(
            self.client.request(
                "message.send",
                conversation_id=known["conversation_id"],
                client_message_id=client_id,
                text=known["text"] + ("x" if other else ""),
            )
        )
        receipt = answer["details"]["receipt"] if other else answer["receipt"]
        assert (answer.get("code") == "conflict") is other
        assert receipt["duplicate"] is True
        for field in ("message_id", "run_id", "conversation_id", "disposition"):
            assert receipt[field] == known[field]
        self.do(self.settle())

    @rule(name=CONVERSATIONS)
    def hermes_takes_up_what_it_was_given(self, name: str) -> None:
        gateway = self.gateways[name]
        if gateway.taken and not gateway.running:
            message = gateway.taken.pop(0)
            assert self.events.run_started(self.names[name], message.message_id, Origin.CHAT) == message.run_id
            self.hermes.rows[self.names[name]].append(self.row(name, MessageRole.USER, message.text))
            gateway.running = True
        self.do(self.settle())

    @rule(name=CONVERSATIONS, origin=st.sampled_from([Origin.CHAT, Origin.BACKGROUND, Origin.CRON]))
    def hermes_begins_by_itself(self, name: str, origin: Origin) -> None:
        """Also while another run is open: that one ends first."""
        gateway = self.gateways[name]
        if gateway.text:
            gateway.old_texts.append(gateway.text)
        self.events.run_started(self.names[name], None, origin)
        gateway.running, gateway.text = True, None
        self.do(self.settle())

    @rule(name=CONVERSATIONS, text=TEXT)
    def hermes_begins_a_text(self, name: str, text: str) -> None:
        """Also without a run: then it is dropped."""
        gateway = self.gateways[name]
        if gateway.text:
            gateway.old_texts.append(gateway.text)
        gateway.text = self.events.message_started(self.names[name], text)
        self.do(self.settle())

    @rule(
        name=CONVERSATIONS, text=TEXT, late=st.booleans(), how=st.sampled_from(["append", "replace", "end", "interim"])
    )
    def hermes_changes_a_text(self, name: str, text: str, how: str, *, late: bool) -> None:
        """Also one that has ended: then nothing happens."""
        gateway = self.gateways[name]
        target = gateway.old_texts[-1] if late and gateway.old_texts else gateway.text
        if target is None:
            return
        match how:
            case "append":
                self.events.message_appended(target, text)
            case "replace":
                self.events.message_replaced(target, text)
            case _:
                self.events.message_ended(target, interim=how == "interim")
        self.do(self.settle())

    @rule(
        name=CONVERSATIONS,
        outcome=st.sampled_from(list(Outcome)),
        final=st.none() | TEXT,
        stored=st.booleans(),
        unseen=st.booleans(),
    )
    def hermes_ends_the_run(
        self, name: str, outcome: Outcome, final: str | None, *, stored: bool, unseen: bool
    ) -> None:
        """Also when there is none. Some rows are stored, and some that were never seen live."""
        gateway = self.gateways[name]
        error = RunErrorCode.PROVIDER_ERROR if outcome is Outcome.FAILED else None
        rows = self.hermes.rows[self.names[name]]
        if unseen:
            rows.append(self.row(name, MessageRole.ASSISTANT, f"unseen {len(rows)}"))
        if stored and gateway.text:
            text = self.server.transcript.open.get(gateway.text)
            rows += [self.row(name, MessageRole.ASSISTANT, text.text)] if text else []
        self.events.run_ended(self.names[name], RunResult(outcome=outcome, error=error, final_text=final))
        if gateway.text:
            gateway.old_texts.append(gateway.text)
        gateway.running, gateway.text = False, None
        self.do(self.settle())

    @rule(name=CONVERSATIONS)
    def hermes_loses_a_message(self, name: str) -> None:
        gateway = self.gateways[name]
        if gateway.taken and not gateway.running:
            self.events.run_lost(self.names[name], gateway.taken.pop(0).message_id)
        self.do(self.settle())

    @rule(name=CONVERSATIONS, text=TEXT, origin=st.sampled_from([Origin.CRON, Origin.SYSTEM]))
    def a_notice_comes(self, name: str, text: str, origin: Origin) -> None:
        self.do(deliver_text(self.server.events, self.names[name], text, origin))
        self.events.run_progress(self.names[name], text)
        self.do(self.settle())

    @rule(seconds=st.sampled_from([0.1, 1.0, 60.0]), jump=st.sampled_from([0, 0, -5_000, 5_000]))
    def time_passes(self, seconds: float, jump: int) -> None:
        async def move() -> None:
            self.clock.jump(jump)
            self.clock.move(seconds)

        self.do(move())
        self.do(self.settle())

    @rule(quiet=st.booleans())
    def the_line_breaks(self, *, quiet: bool) -> None:
        """With something going on meanwhile, or not."""
        self.client.cut()
        if not quiet:
            self.do(deliver_text(self.server.events, self.names["a"], "while away", Origin.CRON))
        self.do(self.connect())
        self.do(self.settle())

    @rule(clean=st.booleans(), old=st.booleans())
    def restart(self, *, clean: bool, old: bool) -> None:
        self.client.cut()
        self.do(self.server.stop() if clean else self.die())
        for name, gateway in self.gateways.items():
            # What Hermes had not begun died with it, without a row: it may be given to it again.
            lost = {message.message_id for message in gateway.taken}
            self.handed[name] = [message_id for message_id in self.handed[name] if message_id not in lost]
        if old:
            self.clock.jump(HAND_OVER_WITHIN_MS + 1_000)
        self.do(self.start())
        self.do(self.settle())

    def row(self, name: str, role: MessageRole, text: str) -> HermesMessage:
        rows = self.hermes.rows[self.names[name]]
        return HermesMessage(key=f"{name}{len(rows)}", role=role, text=text, created_at=self.clock.now_ms())

    # What must hold

    @invariant()
    def seq_strictly_increases(self) -> None:
        seqs = [frame["seq"] for frame in self.frames if "seq" in frame]
        assert seqs == sorted(set(seqs))

    @invariant()
    def a_run_ends_once_and_nothing_follows(self) -> None:
        if not self.names:
            return
        ended: set[str] = set()
        streaming: dict[str, str] = {}
        for frame in self.frames:
            item = frame.get("run") or frame.get("message") or frame
            run_id = item.get("run_id")
            if frame["type"] == "run.ended":
                assert run_id not in ended
                assert run_id not in streaming.values()
                ended.add(run_id)
                continue
            assert run_id not in ended or frame["type"] in AFTER_END
            if frame["type"] == "message.created" and item["status"] == "streaming":
                streaming[item["message_id"]] = run_id
            elif frame["type"] == "message.completed":
                streaming.pop(item["message_id"], None)

    @invariant()
    def the_client_shows_what_history_says(self) -> None:
        if not self.names:
            return
        for name in self.names.values():
            found = {item.message_id: item for item in self.history(name)}
            shown = [item for item in self.state.messages.values() if item.conversation_id == name]
            for item in shown:
                assert found[item.message_id] == item
            placed = [item for item in found.values() if item.position is not None]
            positions = [item.position for item in placed]
            assert positions == sorted(set(positions), key=lambda position: position or 0)
            assert all(item.status is MessageState.QUEUED for item in found.values() if item.position is None)
            conversation = self.state.conversations[name]
            assert conversation.history_head == max([0, *(position or 0 for position in positions)])
            # What was never shown is one of Hermes's rows, or was dropped by history.changed to be fetched again.
            texts = {row.text for row in self.hermes.rows[name]}
            start = self.state.needs_history.get(name)
            for item in found.values():
                if item.message_id not in self.state.messages and (start is None or (item.position or start) < start):
                    assert item.run_id is None
                    assert item.text in texts

    @invariant()
    def a_newcomer_sees_the_same_open_things(self) -> None:
        if not self.names:
            return

        async def look() -> ClientState:
            newcomer = MemoryTransport(self.server)
            await newcomer.hello("newcomer")
            newcomer.cut()
            state = ClientState()
            for frame in newcomer.seen:
                state = apply(state, decode(json.dumps(frame)))
            return state

        fresh = self.do(look())
        open_runs = {key: run for key, run in self.state.runs.items() if run.ended_at is None}
        open_messages = {key: item for key, item in self.state.messages.items() if item.status in OPEN}
        # A run that is about to be handed over is announced by its start.
        for key, run in fresh.runs.items():
            assert open_runs.get(key, run) == run
        assert set(open_runs) <= set(fresh.runs)
        assert fresh.messages == open_messages
        assert fresh.conversations == self.state.conversations

    @invariant()
    def nothing_is_handed_over_twice_or_out_of_order(self) -> None:
        for name, handed in self.handed.items():
            assert len(handed) == len(set(handed))
            assert handed == [message_id for message_id in self.order[name] if message_id in handed]

    @invariant()
    def every_admitted_send_has_its_receipt(self) -> None:
        for client_id, known in self.sends.items():
            receipt = self.server.runs.receipt(client_id)  # type: ignore[arg-type]
            assert (receipt.message_id, receipt.run_id) == (known["message_id"], known["run_id"])
            item = self.state.messages.get(receipt.message_id)
            assert item is None or item.delivery == receipt.state

    def history(self, name: ConversationId) -> list[Message]:
        pages = self.do(self.pages(name))
        self.do(self.settle())
        return [item for page in reversed(pages) for item in page.messages]

    async def pages(self, name: ConversationId) -> list[ConversationHistoryResult]:
        """All of history, the newest page first."""
        pages: list[ConversationHistoryResult] = []
        cursor: dict[str, Any] = {}
        while True:
            answer = await self.client.request("conversation.history", conversation_id=name, limit=3, **cursor)
            page = decode(json.dumps(answer))
            assert isinstance(page, ConversationHistoryResult)
            pages.append(page)
            if not page.has_more:
                return pages
            cursor = {"before": page.before}

    def holds_at_the_end(self) -> None:
        """After one more restart no run is open but those of sends that Hermes has not seen."""
        rows = self.do(
            self.server._store.read(
                lambda database: database.execute("SELECT frame FROM events ORDER BY seq").fetchall()
            )
        )
        events = [json.loads(row[0]) for row in rows]
        told = {event["run"]["run_id"] for event in events if "run" in event}
        ended = [event["run"]["run_id"] for event in events if event["type"] == "run.ended"]
        assert len(ended) == len(set(ended))
        waiting = {run.run_id for run in self.server.runs.open_runs()}
        assert told - set(ended) <= waiting
        assert waiting <= {known["run_id"] for known in self.sends.values()}
        states = {client_id: self.server.runs.receipt(client_id).state for client_id in self.sends}  # type: ignore[arg-type]
        for client_id, known in self.sends.items():
            assert (known["run_id"] in waiting) == (
                states[client_id] in (ReceiptState.ADMITTED, ReceiptState.DISPATCHED)
            )


Machine.TestCase.settings = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRuns = Machine.TestCase
