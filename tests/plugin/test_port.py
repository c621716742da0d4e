"""What the core asks Hermes, on a gateway and a database of the test's own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pheby_hermes import port as port_module
from pheby_hermes.pickers import EffortPicker, ModelPicker
from pheby_hermes.port import HermesSide

from pheby_protocol.ids import ConversationId, MessageId, RunId
from pheby_protocol.messages.conversation import TitleSource
from pheby_protocol.messages.message import MessageRole
from pheby_server.ports import HandOver, HermesFeatures, LiveMessage, TitleTaken, Unavailable

CHAT = "1000000000000001"
CONVERSATION = ConversationId(f"conv_{CHAT}")
CALL = {"id": "c1", "function": {"name": "read", "arguments": "{}"}}
FEATURES = HermesFeatures(version="0.0", streaming=False)

Row = dict[str, Any]
Session = tuple[Row, list[Row]]


class FakeGateway:
    """A gateway whose gate and guard the test moves; it says when it was asked."""

    def __init__(self) -> None:
        self.open = True
        self.busy: set[str] = set()
        self.delivered: list[tuple[str, str, str]] = []
        self.asked = asyncio.Event()
        self.wishes: list[tuple[object, ...]] = []
        self.takes = True
        self.resets: list[str] = []
        self.pickers: dict[str, ModelPicker | EffortPicker] = {}
        """What a command opens."""
        self.hangs = False

    def is_open(self) -> bool:
        self.asked.set()
        return self.open

    def is_free(self, chat_id: str) -> bool:
        self.asked.set()
        return chat_id not in self.busy

    async def deliver(self, chat_id: str, text: str, message_id: str, context: str | None) -> None:
        self.delivered.append((chat_id, text, message_id))

    async def reset(self, chat_id: str) -> None:
        self.resets.append(chat_id)

    async def open_picker(self, chat_id: str, command: str) -> ModelPicker | EffortPicker | None:
        self.wishes.append(("picker", chat_id, command))
        if self.hangs:
            await asyncio.Event().wait()
        return self.pickers.get(command)

    async def interrupt(self, chat_id: str) -> None:
        self.wishes.append(("interrupt", chat_id))

    def resolve_approval(self, key: str, choice: str, reason: str | None) -> bool:
        self.wishes.append(("approval", key, choice, reason))
        return self.takes

    def resolve_clarification(self, key: str, chosen: tuple[int, ...], text: str | None, *, skip: bool) -> bool:
        self.wishes.append(("clarification", key, chosen, text, skip))
        return self.takes

    def interrupt_subagent(self, key: str) -> bool:
        self.wishes.append(("subagent", key))
        return self.takes

    async def was_asked(self) -> None:
        self.asked.clear()
        await self.asked.wait()


class FakeDatabase:
    """Sessions of a profile with their rows, as the reader gives them."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.threads: list[str] = []
        self._numbers = iter(range(1, 10_000))
        self.titles: dict[str, str] = {}
        self.taken: str | None = None
        self.deleted: list[str] = []
        self.comes_back = 0
        """So many times a late row brings the session back."""

    def session(self, chat_id: str = CHAT, **fields: Any) -> list[Row]:
        rows: list[Row] = []
        self.sessions.append(({"id": f"s{len(self.sessions)}", "chat_id": chat_id, **fields}, rows))
        return rows

    def row(self, rows: list[Row], role: str, content: str, **fields: Any) -> None:
        number = next(self._numbers)
        rows.append({"id": number, "role": role, "content": content, "timestamp": 1_000.0 + number, **fields})

    def read(self, chat_id: str | None) -> list[Session]:
        self.threads.append(threading.current_thread().name)
        return [
            (dict(session), [] if chat_id is None else list(rows))
            for session, rows in self.sessions
            if chat_id in (None, session["chat_id"])
        ]

    def set_title(self, chat_id: str, title: str) -> bool:
        if title == self.taken:
            return False
        self.titles[chat_id] = title
        return True

    def delete(self, chat_id: str) -> bool:
        self.deleted.append(chat_id)
        if self.comes_back:
            self.comes_back -= 1
            return False
        self.sessions = [found for found in self.sessions if found[0]["chat_id"] != chat_id]
        return True


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def database() -> FakeDatabase:
    return FakeDatabase()


@pytest.fixture
def port(gateway: FakeGateway, database: FakeDatabase) -> HermesSide:
    return HermesSide(gateway, lambda: FEATURES, database)


def message(text: str = "hello") -> HandOver:
    return HandOver(conversation_id=CONVERSATION, message_id=MessageId("msg_1"), run_id=RunId("run_1"), text=text)


# Handing over


async def test_an_open_gateway_and_a_free_chat_are_ready_at_once(port: HermesSide) -> None:
    await port.ready(CONVERSATION)


@pytest.mark.parametrize("shut", ["gate", "guard", "both"])
async def test_ready_waits_for_gate_and_guard(port: HermesSide, gateway: FakeGateway, shut: str) -> None:
    """C6: a message that is handed over too early is lost on the older line."""
    gateway.open = shut == "guard"
    gateway.busy = {CHAT} if shut != "gate" else set()
    ready = asyncio.create_task(port.ready(CONVERSATION))
    await gateway.was_asked()
    assert not ready.done()
    gateway.open = True
    if shut == "both":
        await gateway.was_asked()
        assert not ready.done()
    gateway.busy.clear()
    await ready


async def test_another_chats_guard_is_not_waited_for(port: HermesSide, gateway: FakeGateway) -> None:
    gateway.busy = {"1000000000000002"}
    await port.ready(CONVERSATION)


async def test_a_wait_can_be_given_up(port: HermesSide, gateway: FakeGateway) -> None:
    gateway.open = False
    ready = asyncio.create_task(port.ready(CONVERSATION))
    await gateway.was_asked()
    ready.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ready


async def test_a_message_is_delivered_to_its_chat(port: HermesSide, gateway: FakeGateway) -> None:
    await port.hand_over(message("/etc/hosts what is it?"))
    assert gateway.delivered == [(CHAT, "/etc/hosts what is it?", "msg_1")]


@pytest.mark.parametrize("shut", ["gate", "guard"])
async def test_a_chat_that_is_not_free_after_all_is_unavailable(
    port: HermesSide, gateway: FakeGateway, shut: str
) -> None:
    gateway.open, gateway.busy = shut != "gate", {CHAT} if shut == "guard" else set()
    with pytest.raises(Unavailable):
        await port.hand_over(message())
    assert gateway.delivered == []


async def test_an_escaped_chat_gets_its_messages(port: HermesSide, gateway: FakeGateway) -> None:
    conversation_id = port_module.conversation_of("my chat!")
    await port.hand_over(
        HandOver(conversation_id=conversation_id, message_id=MessageId("msg_1"), run_id=RunId("run_1"), text="x")
    )
    assert gateway.delivered == [("my chat!", "x", "msg_1")]


@pytest.mark.parametrize("takes", [True, False])
async def test_wishes_go_to_the_gateway_and_its_word_comes_back(
    port: HermesSide, gateway: FakeGateway, takes: bool
) -> None:
    gateway.takes = takes
    await port.interrupt(CONVERSATION)
    assert await port.resolve_approval(CONVERSATION, "k1", "deny", "no") is takes
    assert await port.resolve_clarification(CONVERSATION, "q1", (2, 0), "and", skip=False) is takes
    assert await port.resolve_clarification(CONVERSATION, "q1", (), None, skip=True) is takes
    assert await port.interrupt_subagent(CONVERSATION, "s1") is takes
    assert gateway.wishes == [
        ("interrupt", CHAT),
        ("approval", "k1", "deny", "no"),
        ("clarification", "q1", (2, 0), "and", False),
        ("clarification", "q1", (), None, True),
        ("subagent", "s1"),
    ]


def test_features_are_probed_each_time(gateway: FakeGateway) -> None:
    probed = iter([FEATURES, HermesFeatures(version="0.0", streaming=True)])
    port = HermesSide(gateway, lambda: next(probed), FakeDatabase())
    assert [port.features.streaming, port.features.streaming] == [False, True]


# Conversations


async def test_no_sessions_are_no_conversations(port: HermesSide) -> None:
    assert await port.conversations() == []
    assert await port.conversation(CONVERSATION) is None
    assert await port.history(CONVERSATION) == []


async def test_a_session_is_a_conversation(port: HermesSide, database: FakeDatabase) -> None:
    database.session(started_at=1.0, last_active=2.5, title="Groceries")
    (found,) = await port.conversations()
    assert found == await port.conversation(CONVERSATION)
    assert (found.conversation_id, found.title, found.title_source) == (
        CONVERSATION,
        "Groceries",
        TitleSource.GENERATED,
    )
    assert (found.created_at, found.last_activity_at) == (1_000, 2_500)


async def test_generations_of_a_chat_are_one_conversation(port: HermesSide, database: FakeDatabase) -> None:
    """A9: a reset or a compaction starts a new session of the same chat."""
    database.session(started_at=5.0, last_active=6.0, title="First")
    database.session("1000000000000002", started_at=5.5)
    database.session(started_at=7.0, title="Second", title_source="user")
    database.session(started_at=8.0, last_active=9.0, title=None)
    here, there = await port.conversations()
    assert there.conversation_id == "conv_1000000000000002"
    assert (here.title, here.title_source) == ("Second", TitleSource.MANUAL)
    assert (here.created_at, here.last_activity_at) == (5_000, 9_000)


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({"title": "Mine", "title_source": "user"}, TitleSource.MANUAL),
        ({"title": "Made", "title_source": "auto"}, TitleSource.GENERATED),
        ({"title": "Made"}, TitleSource.GENERATED),
        ({"title": ""}, TitleSource.NONE),
        ({"title": None, "title_source": "user"}, TitleSource.NONE),
        ({}, TitleSource.NONE),
    ],
)
async def test_titles_say_where_they_are_from(
    port: HermesSide, database: FakeDatabase, fields: Row, source: TitleSource
) -> None:
    """A6."""
    database.session(**fields)
    found = await port.conversation(CONVERSATION)
    assert found is not None
    assert (found.title, found.title_source) == (fields.get("title") or "", source)


@pytest.mark.parametrize("time", [None, "yesterday", {}])
async def test_a_strange_time_is_none(port: HermesSide, database: FakeDatabase, time: object) -> None:
    database.session(started_at=time, last_active=time)
    (found,) = await port.conversations()
    assert (found.created_at, found.last_activity_at) == (0, 0)


async def test_a_chat_with_any_id_is_listed(port: HermesSide, database: FakeDatabase) -> None:
    """Cron and other processes choose the ids."""
    database.session("my chat!")
    (found,) = await port.conversations()
    assert (await port.conversation(found.conversation_id)) == found


# History


async def test_history_is_what_was_said(port: HermesSide, database: FakeDatabase) -> None:
    rows = database.session()
    database.row(rows, "user", "read @\u2060file:/srv/x please", platform_message_id="msg_1")
    database.row(rows, "assistant", "I look.", tool_calls=[CALL])
    database.row(rows, "tool", "contents", tool_call_id="c1")
    database.row(rows, "assistant", "<think>secret</think>Found \ud83d it.", finish_reason="stop")
    database.row(rows, "session_meta", "")
    found = await port.history(CONVERSATION)
    assert [(each.role, each.text) for each in found] == [
        (MessageRole.USER, "read @file:/srv/x please"),
        (MessageRole.ASSISTANT, "I look."),
        (MessageRole.ASSISTANT, "Found \ufffd it."),
    ]
    assert len({each.key for each in found}) == 3
    assert [each.created_at for each in found] == [1_001_000, 1_002_000, 1_004_000]


async def test_what_is_no_message_is_left_out(port: HermesSide, database: FakeDatabase) -> None:
    """A4: failed turns, notes, calls without words."""
    rows = database.session()
    database.row(rows, "user", "hello")
    database.row(rows, "assistant", "", tool_calls=[CALL])
    database.row(rows, "user", "[ASYNC DELEGATION BATCH COMPLETE — deleg_1]")
    database.row(rows, "assistant", "API call failed: raw provider text", display_kind="failed_turn")
    database.row(rows, "assistant", "(empty)")
    assert [each.text for each in await port.history(CONVERSATION)] == ["hello"]


async def test_history_goes_through_all_generations_in_order(port: HermesSide, database: FakeDatabase) -> None:
    old, new = database.session(started_at=1.0), database.session(started_at=2.0)
    database.row(old, "user", "one")
    database.row(new, "user", "three")
    database.row(old, "assistant", "late of the old session", finish_reason="stop")
    database.session("1000000000000002")
    assert [each.text for each in await port.history(CONVERSATION)] == ["one", "three", "late of the old session"]


async def test_live_messages_are_bound_to_rows(port: HermesSide, database: FakeDatabase) -> None:
    rows = database.session()
    database.row(rows, "user", "hello")
    database.row(rows, "assistant", "Hi there.", finish_reason="stop")
    asked, answered = await port.history(CONVERSATION)
    live = [
        LiveMessage(message_id=MessageId("msg_1"), role=MessageRole.USER, text="hello"),
        LiveMessage(message_id=MessageId("msg_2"), role=MessageRole.ASSISTANT, text="Hi there."),
        LiveMessage(message_id=MessageId("msg_3"), role=MessageRole.ASSISTANT, text="Nobody stored this."),
    ]
    found = await port.bind(CONVERSATION, live, set())
    assert [(bound.message_id, bound.key) for bound in found] == [("msg_1", asked.key), ("msg_2", answered.key)]
    assert await port.bind(CONVERSATION, live, {asked.key, answered.key}) == []


async def test_reads_do_not_block_the_loop(port: HermesSide, database: FakeDatabase) -> None:
    database.session()
    await port.conversations()
    await port.conversation(CONVERSATION)
    await port.history(CONVERSATION)
    await port.bind(CONVERSATION, [], set())
    assert len(database.threads) == 4
    assert threading.main_thread().name not in database.threads


async def test_a_read_that_fails_says_so(gateway: FakeGateway) -> None:
    class Locked(FakeDatabase):
        def read(self, chat_id: str | None) -> list[Session]:
            raise OSError("locked")

    port = HermesSide(gateway, lambda: FEATURES, Locked())
    for call in (port.conversations, lambda: port.history(CONVERSATION)):
        with pytest.raises(OSError, match="locked"):
            await call()


# Titles and deletion


async def test_a_title_that_another_chat_has_is_taken(port: HermesSide, database: FakeDatabase) -> None:
    database.session()
    await port.rename(CONVERSATION, "Mine")
    assert database.titles == {CHAT: "Mine"}
    database.taken = "Theirs"
    with pytest.raises(TitleTaken):
        await port.rename(CONVERSATION, "Theirs")


async def test_a_chat_is_reset_before_its_sessions_go_and_looked_at_again(
    port: HermesSide, database: FakeDatabase, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted alone, 0.19 would send the old conversation to the model with the next message."""
    monkeypatch.setattr("pheby_hermes.port.RECHECK_SECONDS", 0)
    database.session()
    database.comes_back = 1
    await port.delete(CONVERSATION)
    assert gateway.resets == [CHAT, CHAT]
    assert database.deleted == [CHAT, CHAT]
    await port.delete(CONVERSATION)
    assert gateway.resets == [CHAT, CHAT]


async def test_a_chat_that_is_not_free_is_deleted_later(
    port: HermesSide, database: FakeDatabase, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pheby_hermes.port.RECHECK_SECONDS", 0)
    database.session()
    gateway.busy.add(CHAT)
    with pytest.raises(Unavailable):
        await port.delete(CONVERSATION)
    gateway.busy.clear()
    database.comes_back = 99
    with pytest.raises(Unavailable):
        await port.delete(CONVERSATION)


# Models and efforts


class Picks:
    """Hermes's callbacks, written down."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, ...]] = []
        self.hangs = False

    async def __call__(self, *picked: str) -> str:
        if self.hangs:
            await asyncio.Event().wait()
        self.taken.append(picked)
        return "Switched. Secret words."


@pytest.fixture
def picks(gateway: FakeGateway) -> Picks:
    picks = Picks()
    row = {"slug": "one", "name": "One", "is_current": True, "models": ["m1", "m2"], "api_url": "http://secret"}
    gateway.pickers = {
        "/model --session": ModelPicker([row], "m1", "one", picks),
        "/reasoning": EffortPicker([{"value": "low", "is_current": True}, {"value": "show"}], picks),
    }
    return picks


async def test_what_a_picker_offers(port: HermesSide, gateway: FakeGateway, picks: Picks) -> None:
    """R-H1, R-H2, I3: opened by commands that keep every choice out of Hermes's settings."""
    offer = await port.models(CONVERSATION)
    assert ([model.model for model in offer.providers[0].models], offer.current.model) == (["m1", "m2"], "m1")
    assert (await port.efforts(CONVERSATION)).efforts == ("low",)
    assert gateway.wishes == [("picker", CHAT, "/model --session"), ("picker", CHAT, "/reasoning")]
    assert picks.taken == []


async def test_a_choice_is_made_by_the_pickers_callback(port: HermesSide, picks: Picks) -> None:
    """R-H1: the chat, the model, then the provider."""
    await port.select_model(CONVERSATION, "one", "m2")
    await port.select_effort(CONVERSATION, "low")
    assert picks.taken == [(CHAT, "m2", "one"), (CHAT, "low")]


@pytest.mark.parametrize("word", ["show", "hide", "on", "off", "reset", ""])
async def test_what_is_no_effort_never_reaches_hermes(port: HermesSide, picks: Picks, word: str) -> None:
    """I3: it would change Hermes's settings."""
    await port.select_effort(CONVERSATION, word)
    assert picks.taken == []


@pytest.mark.parametrize("why", ["closed", "busy", "refused", "other", "hangs", "hangs later"])
async def test_pickers_that_cannot_be_had_now(
    port: HermesSide, gateway: FakeGateway, picks: Picks, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """R-H1: nothing of it hangs, and no command meets a turn."""
    monkeypatch.setattr(port_module, "PICKER_SECONDS", 0.01)
    gateway.open = why != "closed"
    gateway.busy = {CHAT} if why == "busy" else set()
    gateway.hangs, picks.hangs = why == "hangs", why == "hangs later"
    models, efforts = gateway.pickers.values()
    if why == "refused":
        gateway.pickers.clear()
    elif why == "other":
        gateway.pickers = {"/model --session": efforts, "/reasoning": models}
    for work in (port.select_model(CONVERSATION, "one", "m2"), port.select_effort(CONVERSATION, "low")):
        with pytest.raises(Unavailable):
            await work
    if why != "hangs later":
        for ask in (port.models(CONVERSATION), port.efforts(CONVERSATION)):
            with pytest.raises(Unavailable):
                await ask
    if why in ("closed", "busy"):
        assert gateway.wishes == []
    assert picks.taken == []


async def test_the_catalogue_is_asked_beside_the_loop(
    gateway: FakeGateway, database: FakeDatabase, picks: Picks
) -> None:
    threads: list[str] = []

    def facts(provider: str, models: Any) -> dict[str, dict[str, Any]]:
        threads.append(threading.current_thread().name)
        return {"m1": {"context_length": 5}}

    offer = await HermesSide(gateway, lambda: FEATURES, database, facts).models(CONVERSATION)
    assert offer.providers[0].models[0].context_length == 5
    assert threads != [threading.main_thread().name]
