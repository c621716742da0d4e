"""The adapter between a stand-in for Hermes and a real core: life and death, and one message's whole way."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import aiohttp
import pytest
from pheby_hermes import _hermes
from pheby_hermes.hooks import HookRelay

from pheby_server.lockout import FREE_FAILURES
from pheby_server.logs import log_of
from pheby_server.server import Phase
from pheby_server.stores import Store, StoreUnavailableError
from pheby_server.testing import MemoryTransport
from tests.plugin import fake_hermes
from tests.plugin.fake_hermes import FakeApprovals, FakeHermes, ProcessingOutcome

SECRET = "0123456789abcdef" * 2
WEAK = "not-so-long-secret"


@pytest.fixture(params=["old", "new"])
def hermes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHermes:
    hermes = fake_hermes.install(monkeypatch, tmp_path, shape=request.param)
    hermes.secrets["PHEBY_SECRET"] = SECRET
    return hermes


@pytest.fixture
def module(hermes: FakeHermes) -> Iterator[ModuleType]:
    """The adapter's module, made on the stand-in."""
    _hermes._typed_event_class.cache_clear()
    sys.modules.pop("pheby_hermes.adapter", None)
    yield importlib.import_module("pheby_hermes.adapter")
    sys.modules.pop("pheby_hermes.adapter", None)
    _hermes._typed_event_class.cache_clear()


Make = Callable[..., Any]


@pytest.fixture
async def make(module: ModuleType) -> AsyncIterator[Make]:
    """Makes adapters, as Hermes does; what is left open at the end is closed."""
    made = []
    hooks = HookRelay()

    def make(**extra: Any) -> Any:
        config = SimpleNamespace(extra={"port": 0, **extra}, gateway_restart_notification=True)
        adapter = module.PhebyAdapter(config, hooks)
        adapter.gateway_runner = fake_hermes.Runner()
        adapter._message_handler = object()
        made.append(adapter)
        return adapter

    yield make
    for adapter in made:
        await adapter.disconnect()


@pytest.fixture
def port() -> int:
    """A free one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def health(port: int) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/healthz") as answer:
        return answer.status


# Settings


@pytest.mark.parametrize(
    ("extra", "secret"),
    [
        ({}, ""),
        ({}, WEAK),
        ({"host": "example.org"}, SECRET),
        ({"storage": "bad\0folder"}, SECRET),
        ({"port": "9" * 5_000}, SECRET),
    ],
)
async def test_bad_settings_are_fatal_and_nothing_listens(
    make: Make, hermes: FakeHermes, port: int, caplog: pytest.LogCaptureFixture, extra: dict[str, Any], secret: str
) -> None:
    """K2: closed, told, not tried again."""
    caplog.set_level(logging.DEBUG)
    hermes.secrets["PHEBY_SECRET"] = secret
    adapter = make(**({"port": port} | extra))
    assert await adapter.connect() is False
    code, text, retryable = adapter.fatal
    assert (code, retryable, adapter.connected) == ("pheby_config", False, False)
    assert "PHEBY_SECRET" in text or "platforms.pheby.extra" in text
    assert not is_listening(port)
    assert not secret or secret not in text + caplog.text
    assert list(hermes.home.iterdir()) == []
    await adapter.disconnect()


async def test_settings_are_read_when_the_adapter_is_made(make: Make, hermes: FakeHermes, tmp_path: Path) -> None:
    """In a gateway for several profiles only then are these the right ones."""
    adapter = make()
    hermes.secrets.clear()
    hermes.home = tmp_path / "profiles" / "work"
    assert await adapter.connect() is True
    assert (tmp_path / "pheby").is_dir()
    assert not (tmp_path / "profiles").exists()


def test_settings_that_are_missing_are_defaults(module: ModuleType) -> None:
    config = SimpleNamespace(extra=None)
    adapter = module.PhebyAdapter(config, HookRelay())
    assert (adapter._settings.host, adapter._settings.port) == ("127.0.0.1", 8786)
    assert config.gateway_restart_notification is False


def test_hermess_own_key_is_in_no_line(make: Make, hermes: FakeHermes, caplog: pytest.LogCaptureFixture) -> None:
    """R-L1."""
    hermes.secrets["API_SERVER_KEY"] = "hermes-own-0123456789"
    make()
    log_of("pheby_hermes.test").error("spool.not_left", extra={"error": "hermes-own-0123456789"})
    assert "0123456789" not in caplog.text
    assert "***" in caplog.text


def test_nothing_of_an_adapter_shows_its_secret(make: Make) -> None:
    """J12."""
    adapter = make()
    assert SECRET not in repr(adapter) + repr(vars(adapter))


# Life and death


async def test_it_connects_and_lets_go_of_the_port_again_and_again(make: Make, port: int) -> None:
    """L7: Hermes makes a new adapter to reconnect; both ways must do."""
    for adapter in (make(port=port), make(port=port)):
        for _ in range(2):
            assert await adapter.connect(is_reconnect=True) is True
            assert adapter.connected
            assert await health(port) == 200
            await adapter.disconnect()
            assert not adapter.connected
            assert not is_listening(port)


async def test_connecting_twice_leaves_nothing_open(make: Make, port: int) -> None:
    adapter = make(port=port)
    assert await adapter.connect() is True
    assert await adapter.connect() is True
    assert await health(port) == 200
    await adapter.disconnect()
    assert not is_listening(port)


async def test_a_port_in_use_is_tried_again(make: Make, port: int, caplog: pytest.LogCaptureFixture) -> None:
    """L7."""
    adapter = make(port=port)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert await adapter.connect() is False
    assert adapter.fatal == ("pheby_listen", f"cannot start on 127.0.0.1:{port} (OSError EADDRINUSE)", True)
    assert await adapter.connect() is True
    assert await health(port) == 200
    assert SECRET not in caplog.text


async def test_a_store_in_use_is_tried_again(make: Make, tmp_path: Path) -> None:
    adapter = make()
    other = Store(str(tmp_path / "pheby"), lambda: 0)
    await other.open()
    assert await adapter.connect() is False
    code, text, retryable = adapter.fatal
    assert (code, retryable) == ("pheby_listen", True)
    assert str(tmp_path) not in text
    await other.close()
    assert await adapter.connect() is True


async def test_an_adapter_that_never_connected_disconnects(make: Make) -> None:
    adapter = make()
    await adapter.disconnect()
    await adapter.disconnect()
    assert not adapter.connected


async def test_whatever_hangs_at_the_end_the_port_is_free(
    make: Make, module: ModuleType, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hermes cuts a disconnect off after five seconds, and may want the port for the next adapter."""
    monkeypatch.setattr(module, "STOP_SECONDS", 0.05)
    adapter = make(port=port)
    await adapter.connect()
    server = adapter._server
    with monkeypatch.context() as stuck:
        stuck.setattr(server, "stop", asyncio.Event().wait)
        await adapter.disconnect()
    assert not is_listening(port)
    await server.stop()


async def test_a_connect_that_is_cut_off_leaves_nothing_open(
    make: Make, module: ModuleType, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hermes gives a connect its time and then disconnects."""
    reached = asyncio.Event()

    class Stuck(module.Listener):  # type: ignore[name-defined,misc]
        async def start(self) -> None:
            await super().start()
            reached.set()
            await asyncio.Event().wait()

    adapter, next_one = make(port=port), make(port=port)
    monkeypatch.setattr(module, "Listener", Stuck)
    connecting = asyncio.create_task(adapter.connect())
    await reached.wait()
    connecting.cancel()
    await asyncio.wait([connecting])
    await adapter.disconnect()
    assert not is_listening(port)
    monkeypatch.setattr(module, "Listener", Stuck.__base__)
    assert await next_one.connect() is True


# One message's way


class Conversation:
    """A client in step, one conversation, and the gateway's side of it."""

    def __init__(self, adapter: Any, client: MemoryTransport, conversation_id: str) -> None:
        self.adapter, self.client, self.conversation_id = adapter, client, conversation_id
        self.chat_id = conversation_id.removeprefix("conv_")
        self.turn_id = "s:s:1"

    async def say(self, text: str) -> Any:
        """The owner says something; the event that Hermes is handed."""
        answer = await self.client.request(
            "message.send", conversation_id=self.conversation_id, client_message_id="mine", text=text
        )
        assert answer["type"] == "message.send.result", answer
        async with asyncio.timeout(5):
            return await self.adapter.handled.get()

    def hook(self, name: str, **facts: Any) -> None:
        """A hook from a thread of Hermes's."""
        thread = threading.Thread(
            target=self.adapter.take_hook, args=(name, {"turn_id": self.turn_id, **facts}, self.chat_id)
        )
        thread.start()
        thread.join()

    async def hooks_taken(self) -> None:
        """Returns when the loop has taken what the threads left."""
        done = asyncio.Event()
        asyncio.get_running_loop().call_soon(done.set)
        await done.wait()

    async def begin(self, event: Any) -> None:
        await self.adapter.on_processing_start(event)
        self.hook("pre_llm_call", session_id="s", platform="pheby", user_message=event.text)
        await self.hooks_taken()

    async def complete(self, event: Any, final: str) -> None:
        self.hook("post_llm_call", assistant_response=final)
        self.hook("on_session_end", completed=True, interrupted=False)
        await self.hooks_taken()
        await self.adapter.on_processing_complete(event, ProcessingOutcome.SUCCESS)


@pytest.fixture
async def talk(make: Make) -> AsyncIterator[Conversation]:
    adapter = make()
    await adapter.connect()
    client = MemoryTransport(adapter._server)
    await client.hello()
    created = await client.request("conversation.create", client_conversation_id="c1")
    yield Conversation(adapter, client, created["conversation"]["conversation_id"])
    client.cut()


async def test_a_message_goes_all_the_way(talk: Conversation) -> None:
    event = await talk.say("hello")
    assert event.source.chat_id == talk.chat_id
    assert event.source.chat_type == "dm"
    assert event.source.user_id == "owner"
    await talk.begin(event)
    sent = await talk.adapter.send(talk.chat_id, "Hi ▉", "m1", {"expect_edits": True})
    assert sent.success
    edited = await talk.adapter.edit_message(talk.chat_id, sent.message_id, "Hi there.", finalize=True)
    assert (edited.success, edited.message_id) == (True, sent.message_id)
    status = await talk.adapter.send_or_update_status(talk.chat_id, "lifecycle", "thinking", metadata=None)
    assert (status.success, status.message_id) == (True, "lifecycle")
    await talk.complete(event, "Hi there.")
    ended = await talk.client.until("run.ended")
    assert ended["run"]["status"] == "completed"
    seen = [frame["type"] for frame in talk.client.seen]
    assert seen.count("run.started") == seen.count("run.ended") == 1
    assert "run.progress" in seen
    (completed,) = [frame["message"] for frame in talk.client.seen if frame["type"] == "message.completed"]
    assert (completed["text"], completed["final"]) == ("Hi there.", True)


async def test_a_reference_is_made_harmless_for_hermes_alone(talk: Conversation) -> None:
    """B10: the words reach the model as they were typed, and stand in the chat as they were typed."""
    event = await talk.say("@file:/etc/passwd /stop")
    assert event.text == "@\u2060file:/etc/passwd /stop"
    assert fake_hermes.command_words(event) == (False, None)
    (mine,) = [frame["message"]["text"] for frame in talk.client.seen if frame["type"] == "message.created"]
    assert mine == "@file:/etc/passwd /stop"


async def test_a_message_waits_for_gate_envelope_and_guard(talk: Conversation) -> None:
    """C6."""
    adapter, chat_id = talk.adapter, talk.chat_id
    assert adapter.is_open()
    assert adapter.is_free(chat_id)
    adapter.gateway_runner._startup_restore_in_progress = True
    assert not adapter.is_open()
    adapter.gateway_runner._startup_restore_in_progress = False
    event = await talk.say("hello")
    await adapter.on_processing_start(event)
    assert not adapter.is_free(chat_id)
    assert adapter.is_free("200")
    await talk.begin(event)
    adapter._active_sessions[f"agent:main:pheby:dm:{chat_id}"] = object()
    await talk.complete(event, "Done.")
    assert not adapter.is_free(chat_id)
    adapter._active_sessions.clear()
    assert adapter.is_free(chat_id)


async def test_nothing_is_handed_over_where_nobody_sees_what_becomes_of_it(make: Make) -> None:
    """Starting and stopping: the run would be Hermes's alone."""
    adapter = make()
    assert not adapter.is_open()
    await adapter.connect()
    assert adapter.is_open()
    await adapter.disconnect()
    assert not adapter.is_open()


async def test_what_waits_behind_a_run_is_not_handed_over_at_the_end(talk: Conversation) -> None:
    """It is stored as admitted and goes to Hermes after the restart, not into a gateway that goes down."""
    event = await talk.say("one")
    await talk.begin(event)
    queued = await talk.client.request(
        "message.send", conversation_id=talk.conversation_id, client_message_id="two", text="two"
    )
    assert queued["receipt"]["disposition"] == "queued"
    stopping = asyncio.create_task(talk.adapter.disconnect())
    ended = await talk.client.until("run.ended")
    assert (ended["run"]["status"], ended["run"]["reason"]) == ("cancelled", "shutdown")
    with pytest.raises(ConnectionError):
        await talk.client.until("never")
    await stopping
    assert talk.adapter.handled.empty()
    assert await talk.adapter.connect() is True
    async with asyncio.timeout(5):
        assert (await talk.adapter.handled.get()).text == "two"


async def test_an_interrupt_is_noted_and_passed_on(talk: Conversation) -> None:
    event = await talk.say("hello")
    await talk.begin(event)
    await talk.adapter.interrupt_session_activity("key", talk.chat_id)
    talk.hook("on_session_end", completed=True, interrupted=True)
    await talk.hooks_taken()
    await talk.adapter.on_processing_complete(event, ProcessingOutcome.SUCCESS)
    ended = await talk.client.until("run.ended")
    assert (ended["run"]["status"], ended["run"]["reason"]) == ("cancelled", "requested")
    assert talk.adapter.interrupts == [("key", talk.chat_id)]


# Approvals

KEY = "agent:main:pheby:dm:100"


async def ask(talk: Conversation, approvals: FakeApprovals, command: str, call_id: str, **flags: Any) -> Any:
    """A thread of Hermes's asks; what the client has of it."""
    approvals.ask(KEY, command, f"id-{call_id}")
    talk.hook(
        "pre_approval_request",
        command=command,
        tool_call_id=call_id,
        session_key=KEY,
        pattern_key="recursive delete",
        surface="gateway",
    )
    await talk.hooks_taken()
    sent = await talk.adapter.send_exec_approval(talk.chat_id, command, KEY, "recursive delete", None, **flags)
    assert sent.success
    frame = await talk.client.until("approval.requested")
    return frame["approval"]


async def test_an_answer_goes_to_the_question_that_was_tapped(talk: Conversation, hermes: FakeHermes) -> None:
    """R-E1, R-E2: a Hermes with ids takes any, one without the oldest alone."""
    await talk.begin(await talk.say("hello"))
    first = await ask(talk, hermes.approvals, "rm a", "c1")
    second = await ask(talk, hermes.approvals, "rm b", "c2")
    assert first["choices"] == ["once", "session", "always", "deny"]
    assert (first["description"], first["pattern"]) == ("recursive delete", "recursive delete")
    by_id = hermes.approvals.by_id
    assert (first["answerable"], second["answerable"]) == (True, by_id)
    answer = await talk.client.request("approval.respond", approval_id=second["approval_id"], choice="once")
    if by_id:
        assert answer["approval"]["decision"] == "once"
        assert hermes.approvals.resolved == [("rm b", "once", None)]
        return
    assert answer["code"] == "not_answerable"
    await talk.client.request("approval.respond", approval_id=first["approval_id"], choice="deny")
    assert hermes.approvals.resolved == [("rm a", "deny", None)]
    updated = next(frame for frame in talk.client.seen if frame["type"] == "approval.updated")
    assert updated["approval"] == {**second, "answerable": True}


@pytest.mark.parametrize(
    ("flags", "choices"),
    [
        ({"allow_permanent": False}, ["once", "session", "deny"]),
        ({"allow_session": False}, ["once", "deny"]),
        ({"smart_denied": True}, ["once", "deny"]),
        ({"something_new": True}, ["once", "session", "always", "deny"]),
    ],
)
async def test_what_is_offered_is_what_hermes_allows(
    talk: Conversation, hermes: FakeHermes, flags: dict[str, Any], choices: list[str]
) -> None:
    """D5."""
    await talk.begin(await talk.say("hello"))
    assert (await ask(talk, hermes.approvals, "rm a", "c1", **flags))["choices"] == choices


async def test_a_question_that_ran_out_a_moment_ago_is_not_the_next_one(talk: Conversation, hermes: FakeHermes) -> None:
    """R-E2: Hermes's thread has dropped it and has not told of it yet."""
    await talk.begin(await talk.say("hello"))
    first = await ask(talk, hermes.approvals, "rm a", "c1")
    await ask(talk, hermes.approvals, "rm b", "c2")
    hermes.approvals.queues[KEY].pop(0)
    answer = await talk.client.request("approval.respond", approval_id=first["approval_id"], choice="once")
    assert answer["code"] == "not_answerable"
    assert hermes.approvals.resolved == []
    talk.hook("post_approval_response", command="rm a", tool_call_id="c1", session_key=KEY, choice="timeout")
    await talk.hooks_taken()
    resolved = (await talk.client.until("approval.resolved"))["approval"]
    assert (resolved["approval_id"], resolved["status"]) == (first["approval_id"], "expired")


async def test_what_is_being_stopped_can_only_be_refused(talk: Conversation, hermes: FakeHermes) -> None:
    """C3: a yes after the cancel would run what the owner has stopped."""
    await talk.begin(await talk.say("hello"))
    approval = await ask(talk, hermes.approvals, "rm a", "c1")
    await talk.adapter.interrupt_session_activity("key", talk.chat_id)
    answer = await talk.client.request("approval.respond", approval_id=approval["approval_id"], choice="once")
    assert answer["code"] == "not_answerable"
    assert hermes.approvals.resolved == []
    answer = await talk.client.request("approval.respond", approval_id=approval["approval_id"], choice="deny")
    assert answer["approval"]["decision"] == "deny"


async def test_a_damaged_store_is_left_behind_by_a_new_start(talk: Conversation) -> None:
    """G6: Hermes need not do anything about it."""
    before = talk.adapter._server
    before.on_damaged()
    await asyncio.gather(*talk.adapter._restarts)
    assert talk.adapter._server is not before
    assert talk.adapter._server.phase == "serving"
    assert talk.adapter.fatal is None


async def test_no_card_of_a_gateway_that_is_shut(make: Make) -> None:
    adapter = make()
    assert not (await adapter.send_exec_approval("100", "rm a", KEY)).success
    assert adapter.resolve_approval("k1", "once", None) is False


# Clarifications, confirmations, subagents


async def clarify(talk: Conversation, hermes: FakeHermes, text: str = "Which?", **asked: Any) -> dict[str, Any]:
    """A thread of Hermes's asks in a tool call; what the client has of it."""
    hermes.clarifications.ask(KEY, "q1", **asked)
    talk.hook("pre_tool_call", tool_name="clarify", tool_call_id="c1")
    await talk.hooks_taken()
    choices = ["red (Recommended)", "green"]
    sent = await talk.adapter.send_clarify(talk.chat_id, text, choices, "q1", KEY, metadata=None, new_option=1)
    assert (sent.success, sent.message_id) == (True, "q1")
    clarification: dict[str, Any] = (await talk.client.until("clarification.requested"))["clarification"]
    return clarification


async def respond(talk: Conversation, asked: dict[str, Any], *numbers: int, **fields: Any) -> dict[str, Any]:
    ids = [asked["choices"][number]["choice_id"] for number in numbers]
    answer: dict[str, Any] = await talk.client.request(
        "clarification.respond", clarification_id=asked["clarification_id"], choice_ids=ids, **fields
    )
    return answer


async def test_a_clarification_goes_to_the_owner_and_back(talk: Conversation, hermes: FakeHermes) -> None:
    """R-F1: on the newer line with several choices and skipping, on the older one with neither."""
    new = hermes.clarifications.new
    await talk.begin(await talk.say("hello"))
    asked = await clarify(talk, hermes, "Which?\nReply skip to skip.", several=True)
    tool = next(frame["tool_call"] for frame in talk.client.seen if frame["type"] == "tool.started")
    assert asked["tool_call_id"] == tool["tool_call_id"]
    assert asked["question"] == ("Which?" if new else "Which?\nReply skip to skip.")
    assert [choice["label"] for choice in asked["choices"]] == ["red" if new else "red (Recommended)", "green"]
    assert (asked["multiple"], asked["skippable"], asked["free_text"]) == (new, new, True)
    assert asked["expires_at"] - asked["created_at"] == pytest.approx(600_000, abs=60_000)
    if new:
        answer = await respond(talk, asked, 1, 0, text="and pink")
    else:
        assert (await respond(talk, asked, skip=True))["code"] == "invalid_choice"
        answer = await respond(talk, asked, 0)
    assert answer["clarification"]["status"] == "resolved", answer
    said = '["green", "red", "and pink"]' if new else "red (Recommended)"
    assert hermes.clarifications.answers == [("q1", said)]
    assert talk.adapter._relay.waiting_questions() == []
    assert (await respond(talk, asked, 1))["code"] == "already_resolved"
    await talk.adapter.retire_clarify_card("q1", "expired")
    await talk.adapter._server.events.settled()
    ends = [frame for frame in talk.client.seen if frame["type"] == "clarification.resolved"]
    assert len(ends) == len(hermes.clarifications.answers) == 1


async def test_an_answer_that_hermes_does_not_take_leaves_the_end_to_hermes(
    talk: Conversation, hermes: FakeHermes
) -> None:
    """R-F2: it has waited long enough a moment ago, and tells it then."""
    await talk.begin(await talk.say("hello"))
    asked = await clarify(talk, hermes)
    hermes.clarifications.entries.clear()
    assert (await respond(talk, asked, 0))["code"] == "not_answerable"
    await talk.adapter.retire_clarify_card("q1", notice="expired", something_new=1)
    ended = (await talk.client.until("clarification.resolved"))["clarification"]
    assert (ended["status"], ended["answered_by"]["kind"]) == ("expired", "timeout")


@pytest.mark.parametrize("stop", ["disconnect", "interrupt"])
async def test_a_stop_releases_what_waits(
    talk: Conversation, hermes: FakeHermes, module: ModuleType, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """R-F2: on the older line its thread would hold the gateway."""
    monkeypatch.setattr(module, "INTERRUPT_SECONDS", 0)
    await talk.begin(await talk.say("hello"))
    monkeypatch.setattr(_hermes, "session_key", lambda adapter, suffix: KEY)
    for key, clarify_id in (("another", "q0"), (KEY, "q1")):
        hermes.clarifications.ask(key, clarify_id)
    await talk.adapter.send_clarify(talk.chat_id, "Which?", None, "q1", KEY)
    if stop == "interrupt":
        await talk.adapter.interrupt(talk.chat_id)
        assert talk.adapter.resolve_clarification("q1", (), "late", skip=False) is False
    else:
        stopping = asyncio.create_task(talk.adapter.disconnect())
        ended = (await talk.client.until("clarification.resolved"))["clarification"]
        assert (ended["status"], ended["answered_by"]["kind"]) == ("cancelled", "run_end")
        await stopping
    word = "\0cancelled" if hermes.clarifications.new else "[cancelled]"
    assert hermes.clarifications.answers == [("q1", word)]


async def test_no_clarification_of_a_gateway_that_is_shut(make: Make, hermes: FakeHermes) -> None:
    adapter = make()
    hermes.clarifications.ask(KEY, "q1")
    sent = await adapter.send_clarify("100", "Which?", None, "q1", KEY)
    assert (sent.success, sent.error) == (False, "not connected")
    await adapter.retire_clarify_card("q1")
    assert adapter.resolve_clarification("q1", (), "red", skip=False) is False
    assert adapter.interrupt_subagent("k1") is False
    assert hermes.clarifications.answers == []


async def test_a_confirmation_is_refused_and_not_shown(
    talk: Conversation, hermes: FakeHermes, caplog: pytest.LogCaptureFixture
) -> None:
    """B10: text of the owner is never a command, so nobody has asked for it."""
    sent = await talk.adapter.send_slash_confirm(talk.chat_id, "Reload?", "secret words", KEY, "k1", metadata=None)
    assert sent.success
    assert hermes.confirmed == [(KEY, "k1", "cancel")]
    assert "secret words" not in caplog.text
    page = await talk.client.request("conversation.history", conversation_id=talk.conversation_id)
    assert (page["messages"], page["approvals"]) == ([], [])


@pytest.mark.parametrize("fails", [False, True])
async def test_a_chat_is_reset_by_hermess_own_command(talk: Conversation, hermes: FakeHermes, fails: bool) -> None:
    """R-B4: only what this asks for is confirmed, in its chat and while it is on its way."""
    events: list[Any] = []

    async def confirm(chat_id: str, confirm_id: str) -> None:
        await talk.adapter.send_slash_confirm(chat_id, "New?", "words", KEY, confirm_id, metadata=None)

    async def handler(event: Any) -> str:
        events.append(event)
        await confirm(talk.chat_id, "k1")
        await confirm("200", "k2")
        if fails:
            raise RuntimeError("no")
        return "A new session has begun."

    talk.adapter.set_message_handler(handler)
    await confirm(talk.chat_id, "k0")
    if fails:
        with pytest.raises(RuntimeError):
            await talk.adapter.reset(talk.chat_id)
    else:
        await talk.adapter.reset(talk.chat_id)
    await confirm(talk.chat_id, "k3")
    answers = [("k0", "cancel"), ("k1", "once"), ("k2", "cancel"), ("k3", "cancel")]
    assert hermes.confirmed == [(KEY, *answer) for answer in answers]
    (event,) = events
    assert fake_hermes.command_words(event) == (True, "new")
    assert (event.text, event.source.chat_id, event.source.user_id) == ("/new", talk.chat_id, "owner")
    # By the handler alone: there is no turn, and nobody is told what it answers.
    assert talk.adapter.handled.empty()
    assert talk.adapter.is_free(talk.chat_id)
    page = await talk.client.request("conversation.history", conversation_id=talk.conversation_id)
    assert page["messages"] == []


ROWS = [
    {"slug": "moa", "name": "Several", "is_current": False, "models": ["default"]},
    {"slug": "one", "name": "One", "is_current": True, "models": ["m1", "m2"], "api_url": f"https://x/{WEAK}"},
]


async def test_models_and_efforts_through_hermess_pickers(
    talk: Conversation, hermes: FakeHermes, caplog: pytest.LogCaptureFixture
) -> None:
    """R-H1, R-H2, I6: own commands open them, their callbacks choose, and nothing else of them leaves."""
    caplog.set_level(logging.DEBUG)
    events: list[Any] = []
    use = {"model": "m1", "effort": "medium"}

    async def choose_model(chat_id: str, model: str, provider: str) -> str:
        assert (chat_id, provider) == (talk.chat_id, "one")
        use["model"] = model
        return f"Switched by {WEAK}"

    async def choose_effort(chat_id: str, effort: str) -> str:
        use["effort"] = effort
        return "Set."

    async def handler(event: Any) -> None:
        events.append(event)
        about = {"chat_id": event.source.chat_id, "session_key": KEY, "metadata": None, "of_a_later_hermes": 1}
        if event.text == "/model --session":
            sent = await talk.adapter.send_model_picker(
                providers=ROWS,
                current_model=use["model"],
                current_provider="custom",
                on_model_selected=choose_model,
                **about,
            )
        else:
            choices = [{"value": v, "label": v, "is_current": v == use["effort"]} for v in ("low", "medium", "show")]
            sent = await talk.adapter.send_choice_picker(
                title="Effort", choices=choices, on_choice_selected=choose_effort, **about
            )
        assert sent.success

    talk.adapter.set_message_handler(handler)
    fields = {"conversation_id": talk.conversation_id}
    answer = await talk.client.request("model.list", **fields)
    assert [entry["provider"] for entry in answer["providers"]] == ["one"]
    assert answer["current"] == {"provider": "one", "model": "m1"}
    answer = await talk.client.request("model.select", provider="one", model="m2", **fields)
    assert answer["current"] == {"provider": "one", "model": "m2"}
    answer = await talk.client.request("reasoning.list", **fields)
    assert answer["efforts"] == ["low", "medium"]
    answer = await talk.client.request("reasoning.select", effort="show", **fields)
    assert answer["code"] == "invalid_effort"
    answer = await talk.client.request("reasoning.select", effort="low", **fields)
    assert answer["current"] == "low"
    assert use == {"model": "m2", "effort": "low"}
    assert {fake_hermes.command_words(event) for event in events} == {(True, "model"), (True, "reasoning")}
    assert {event.source.chat_id for event in events} == {talk.chat_id}
    assert talk.adapter.handled.empty()
    page = await talk.client.request("conversation.history", **fields)
    assert page["messages"] == []
    assert WEAK not in str(talk.client.seen) + caplog.text
    stored = b"".join(file.read_bytes() for file in (hermes.home / "pheby").rglob("*") if file.is_file())
    assert WEAK.encode() not in stored


async def test_a_picker_that_nobody_asked_for(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    """I6: it neither hangs nor becomes a text, which would name addresses."""
    caplog.set_level(logging.DEBUG)

    async def never(*_: str) -> str:
        raise AssertionError("nobody chose")

    for sent in (
        await talk.adapter.send_model_picker(talk.chat_id, ROWS, "m1", "one", KEY, never),
        await talk.adapter.send_choice_picker(talk.chat_id, WEAK, [{"value": WEAK}], KEY, never),
    ):
        assert sent.success
    page = await talk.client.request("conversation.history", conversation_id=talk.conversation_id)
    assert page["messages"] == []
    assert WEAK not in str(talk.client.seen) + caplog.text


async def test_the_handler_is_the_one_that_hermes_sets_last(make: Make) -> None:
    adapter, heard = make(), []

    def handler(name: str) -> Any:
        async def handle(event: Any) -> None:
            heard.append((name, event.text, event.message_id))

        return handle

    for name in ("first", "second"):
        adapter.set_message_handler(handler(name))
        assert adapter._message_handler is adapter._handler
        await adapter.reset("100")
    assert [found[:2] for found in heard] == [("first", "/new"), ("second", "/new")]
    assert heard[0][2] != heard[1][2]


async def test_a_subagent_is_stopped_by_hermess_name_for_it(talk: Conversation, hermes: FakeHermes) -> None:
    hermes.subagents.add("h-1")
    await talk.begin(await talk.say("hello"))
    for child, name in (("k1", "h-1"), ("k2", "h-2"), ("k3", None)):
        talk.hook("subagent_start", parent_session_id="s", child_session_id=child, child_subagent_id=name)
    await talk.hooks_taken()
    assert [talk.adapter.interrupt_subagent(key) for key in ("k1", "k2", "k3", "h-1")] == [True, False, False, False]


async def test_a_text_of_hermes_is_stored_before_hermes_hears_that_it_was_sent(talk: Conversation) -> None:
    """H4: logged as delivered and never seen."""
    sent = await talk.adapter.send(talk.chat_id, "report", None, {"job_id": "job-1"})
    assert sent.success
    page = await talk.client.request("conversation.history", conversation_id=talk.conversation_id)
    assert [(found["message_id"], found["text"]) for found in page["messages"]] == [(sent.message_id, "report")]


# Files


async def in_run(talk: Conversation, answer: str) -> Any:
    """A run whose answer was given."""
    event = await talk.say("hello")
    await talk.begin(event)
    talk.hook("post_llm_call", assistant_response=answer)
    await talk.hooks_taken()
    await talk.adapter.send(talk.chat_id, answer, None, {"notify": True})
    return event


async def finish(talk: Conversation, event: Any) -> list[dict[str, Any]]:
    """The run ends; what was told since."""
    talk.hook("on_session_end", completed=True, interrupted=False)
    await talk.hooks_taken()
    await talk.adapter.on_processing_complete(event, ProcessingOutcome.SUCCESS)
    await talk.client.until("run.ended")
    return talk.client.seen


def of(frames: list[dict[str, Any]], type_: str, noun: str) -> list[dict[str, Any]]:
    return [frame[noun] for frame in frames if frame["type"] == type_]


KINDS = {
    "send_document": "file_path",
    "send_image_file": "image_path",
    "send_video": "video_path",
    "send_voice": "audio_path",
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_is_there_when_hermes_hears_that_it_was_sent(
    talk: Conversation, tmp_path: Path, kind: str
) -> None:
    """R-G1, R-G2, H4: with its answer, whatever becomes of the original."""
    file = tmp_path / "a b.pdf"
    file.write_bytes(b"%PDF-1.7 x")
    answer = f"Here.\nMEDIA:{file}"
    event = await in_run(talk, answer)
    sent = await getattr(talk.adapter, kind)(talk.chat_id, **{KINDS[kind]: str(file)}, caption="ignored")
    assert sent.success
    file.unlink()
    frames = await finish(talk, event)
    (attachment,) = of(frames, "attachment.created", "attachment")
    assert (attachment["file_name"], attachment["size"]) == ("a b.pdf", 10)
    completed = of(frames, "message.completed", "message")[-1]
    assert (completed["text"], completed["attachments"]) == ("Here.", [attachment])
    opened = await talk.adapter._server.attachments.open(attachment["attachment_id"])
    with opened.file as opened_file:
        assert opened_file.read() == b"%PDF-1.7 x"
    assert str(tmp_path) not in str(frames[1:])


async def test_several_pictures_come_in_order_and_each_once(talk: Conversation, tmp_path: Path) -> None:
    """J4: also by a file's address."""
    names = ["a b.gif", "c%20d.gif", "e.gif"]
    for name in names:
        (tmp_path / name).write_bytes(b"GIF89a\x07\0\x09\0\0\0\0;")
    event = await in_run(talk, "Here.")
    images = [
        (f"file://{tmp_path}/a%20b.gif", ""),
        (f"file://{tmp_path}/c%2520d.gif", "x"),
        (f"file://{tmp_path}/e.gif", ""),
    ]
    sent = await talk.adapter.send_multiple_images(talk.chat_id, [*images, images[0], ("https://x.org/1.png", "")])
    assert sent.success
    frames = await finish(talk, event)
    assert [each["file_name"] for each in of(frames, "attachment.created", "attachment")] == names
    assert of(frames, "message.completed", "message")[-1]["text"] == "Here."


@pytest.mark.parametrize("which", ["missing", "denied", "folder", "a NUL", "own database", "a link out"])
async def test_a_file_that_is_refused_is_told_to_the_owner_and_to_hermes(
    talk: Conversation, hermes: FakeHermes, tmp_path: Path, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R-G2, J1, J6: one notice, also where the answer names it, without a path."""
    caplog.set_level(logging.DEBUG, "pheby_server")
    file = tmp_path / "secret.pdf"
    file.write_bytes(b"secret")
    path = str(file)
    if which == "missing":
        file.unlink()
    elif which == "denied":
        hermes.denied.add(path)
    elif which == "folder":
        path = str(tmp_path)
    elif which == "a NUL":
        path = f"{tmp_path}/a\0b.pdf"
    elif which == "own database":
        path = str(tmp_path / "pheby" / "pheby.db")
    else:
        hermes.denied.add(path)
        path = str(tmp_path / "link.pdf")
        (tmp_path / "link.pdf").symlink_to(file)
    event = await in_run(talk, f"Here.\nMEDIA:{path}")
    sent = await talk.adapter.send_document(talk.chat_id, path)
    assert (sent.success, sent.error) == (False, "file refused")
    # What Hermes says of that is no answer.
    await talk.adapter.send(talk.chat_id, "I could not send the file.", None, {"notify": True})
    frames = await finish(talk, event)
    assert of(frames, "attachment.created", "attachment") == []
    notices = [m for m in of(frames, "message.created", "message") if m["role"] == "notice"]
    assert len(notices) == 1
    assert str(tmp_path) not in str(frames[1:]) + caplog.text + sent.error


async def test_a_path_that_is_none_does_not_keep_a_run_from_its_end(talk: Conversation) -> None:
    """C3, J6: a model may write anything."""
    event = await in_run(talk, "Here.\nMEDIA:/tmp/a\0b.png")
    frames = await finish(talk, event)
    assert [m["role"] for m in of(frames, "message.created", "message")] == ["user", "assistant", "notice"]


async def test_a_file_outside_of_any_run_follows_its_caption(talk: Conversation, tmp_path: Path) -> None:
    """R-I1."""
    file = tmp_path / "a.pdf"
    file.write_bytes(b"%PDF-1.7")
    sent = await talk.adapter.send_document(talk.chat_id, str(file), caption="Look.", file_name="shown.pdf")
    assert sent.success
    page = await talk.client.request("conversation.history", conversation_id=talk.conversation_id)
    (message,) = page["messages"]
    assert message["text"] == "Look."
    assert [each["file_name"] for each in message["attachments"]] == ["shown.pdf"]


async def test_a_picture_by_its_address_is_not_fetched(talk: Conversation) -> None:
    """Outside of a run its address is told."""
    sent = await talk.adapter.send_image(talk.chat_id, "https://x.org/1.png", "Look.")
    assert sent.success
    page = await talk.client.request("conversation.history", conversation_id=talk.conversation_id)
    assert [message["text"] for message in page["messages"]] == ["![Look.](https://x.org/1.png)"]
    assert page["messages"][0]["attachments"] == []


async def test_a_file_that_cannot_be_stored_is_not_sent(
    talk: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4, J6: and told when it can be."""
    file = tmp_path / "a.pdf"
    file.write_bytes(b"%PDF-1.7")
    transact = Store.transact

    async def full(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("full")

    monkeypatch.setattr(Store, "transact", full)
    sent = await talk.adapter.send_document(talk.chat_id, str(file))
    assert not sent.success
    monkeypatch.setattr(Store, "transact", transact)
    frame = await talk.client.until("message.created")
    assert "a.pdf" in frame["message"]["text"]


async def test_without_a_connection_no_file_is_sent(make: Make) -> None:
    adapter = make()
    for kind, name in KINDS.items():
        sent = await getattr(adapter, kind)("100", **{name: "/etc/hostname"})
        assert (sent.success, sent.error) == (False, "not connected")
    assert not (await adapter.send_multiple_images("100", [("file:///etc/hostname", "")])).success
    assert (await adapter.send_multiple_images("100", [])).success


def test_files_are_offered_where_hermes_has_a_rule_for_them(
    make: Make, hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A7, R-G2."""
    assert make()._features().attachments is True
    hermes.without(monkeypatch, "gateway.platforms.base", "validate_media_delivery_path")
    assert make()._features().attachments is False


async def test_what_the_owner_was_shown_meanwhile_goes_before_their_words(talk: Conversation) -> None:
    """R-I1: to the agent, not into the chat."""
    await talk.adapter.send(talk.chat_id, "result @file:/etc/passwd", None, {"job_id": "job-1"})
    event = await talk.say("and now?")
    assert event.text == "and now?"
    assert "result @\u2060file:/etc/passwd" in event.channel_context


# What Hermes starts by itself


async def test_an_empty_event_of_hermess_own_is_declined(make: Make) -> None:
    """After a restart it would run the model again where the owner did not ask for it."""
    adapter = make()
    await adapter.handle_message(SimpleNamespace(internal=True, text="", message_id=None))
    assert adapter.handled.empty()


@pytest.mark.parametrize(("internal", "text"), [(True, "[ASYNC DELEGATION BATCH COMPLETE]"), (False, ""), (False, "x")])
async def test_any_other_event_is_hermess_to_handle(make: Make, internal: bool, text: str) -> None:
    adapter = make()
    event = SimpleNamespace(internal=internal, text=text, message_id=None)
    await adapter.handle_message(event)
    assert adapter.handled.get_nowait() is event


# Not connected


async def test_without_a_connection_nothing_is_sent(make: Make) -> None:
    adapter = make()
    sent = await adapter.send("100", "hello")
    assert (sent.success, sent.message_id, sent.error) == (False, None, "not connected")


async def test_a_text_that_can_no_longer_be_stored_is_not_sent(talk: Conversation) -> None:
    talk.client.cut()
    await talk.adapter._server.stop()
    sent = await talk.adapter.send(talk.chat_id, "report", None, {"job_id": "job-1"})
    assert (sent.success, sent.error) == (False, "not stored")


async def test_calls_without_a_connection_are_harmless(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Hermes goes on calling an adapter that it has disconnected."""
    adapter = make()
    await adapter.connect()
    await adapter.disconnect()
    event = SimpleNamespace(source=SimpleNamespace(chat_id="100"), message_id="m1", text="x", internal=False)
    await adapter.on_processing_start(event)
    await adapter.on_processing_complete(event, ProcessingOutcome.CANCELLED)
    await adapter.on_processing_complete(event, "an outcome without a name")
    await adapter.edit_message("100", "h1", "x")
    await adapter.send_or_update_status("100", "lifecycle", "x")
    await adapter.send_typing("100")
    await adapter.interrupt_session_activity("key", "100")
    adapter.take_hook("pre_llm_call", {"turn_id": "s:s:1"}, "100")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_hooks_after_the_loops_end_are_harmless(module: ModuleType) -> None:
    """Worker threads outlive the loop at shutdown."""
    adapter = module.PhebyAdapter(SimpleNamespace(extra={"port": 0}), HookRelay())
    adapter.take_hook("pre_llm_call", {}, "100")

    async def life() -> None:
        assert await adapter.connect()
        await adapter.disconnect()

    asyncio.run(life())
    adapter.take_hook("pre_llm_call", {}, "100")


async def test_hooks_are_taken_in_the_order_in_which_they_came(talk: Conversation) -> None:
    taken: list[str] = []
    talk.adapter._relay.hook = lambda name, facts, chat_id: taken.append(f"{name}{facts['n']}")
    for number in range(20):
        talk.hook("pre_api_request", n=number)
    assert taken == []
    await talk.hooks_taken()
    assert taken == [f"pre_api_request{number}" for number in range(20)]


async def test_adapters_of_two_profiles_do_not_take_each_others_turns(make: Make, tmp_path: Path) -> None:
    """A hook reaches every adapter of the process; a turn is the one's whose event Hermes is handling."""
    one, other = make(), make(storage=str(tmp_path / "other"))
    for adapter in (one, other):
        await adapter.connect()
    event = SimpleNamespace(source=SimpleNamespace(chat_id="100"), message_id="m1", text="hello", internal=False)
    await one.on_processing_start(event)
    for adapter in (one, other):
        adapter._hook("pre_llm_call", {"turn_id": "s:s:1", "session_id": "s", "platform": "pheby"}, "100")
    assert one._relay.turns.open_turn("100") == "s:s:1"
    assert other._relay.turns.open_turn("100") is None
    assert other._relay.turns.is_ghost("s:s:1")


async def test_two_profiles_of_one_process_share_nothing(
    make: Make, hermes: FakeHermes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R-A8, R-M1, R-K1: secrets, lockouts, counters, stores, what is verbose; one stops without the other."""
    caplog.set_level(logging.INFO)
    environment = dict(os.environ)
    profiles: list[tuple[Any, str]] = []
    for number in range(2):
        hermes.home, secret = tmp_path / f"profile{number}", f"{number}-{SECRET}"
        hermes.secrets["PHEBY_SECRET"] = secret
        profiles.append((make(metrics=True, verbose=number == 0), secret))
    hermes.secrets.clear()
    hermes.home = tmp_path / "nobody"
    for adapter, _ in profiles:
        assert await adapter.connect() is True
    (one, first), (other, second) = profiles
    ids = []
    for adapter, _ in profiles:
        client = MemoryTransport(adapter._server)
        await client.hello()
        created = await client.request("conversation.create", client_conversation_id="same")
        listed = await client.request("conversation.list")
        ids += [found["conversation_id"] for found in listed["conversations"]]
        assert created["conversation"]["conversation_id"] in ids
        client.cut()
    assert len(set(ids)) == 2
    assert {adapter._server.phase for adapter, _ in profiles} == {Phase.SERVING}
    for number in range(60):
        status = await asked(one, second)
        assert status == (401 if number < FREE_FAILURES else 429)
    assert await asked(other, first) == 401
    assert await asked(one, first) == await asked(other, second) == 200
    counts = [adapter._server.metrics.authentication_failures for adapter, _ in profiles]
    assert counts == [60, 1]
    shown = [record for record in caplog.records if getattr(record, "event", "").startswith("frame.")]
    assert shown
    assert all(ids[1] not in record.getMessage() for record in shown)
    assert any(ids[0] in record.getMessage() for record in shown)
    # What is masked is masked in all lines of the process.
    log_of("pheby_hermes.test").info("x", extra={"first": first, "second": second})
    assert SECRET not in caplog.text
    for number in range(2):
        assert (tmp_path / f"profile{number}" / "pheby" / "pheby.db").is_file()
    assert not (tmp_path / "nobody").exists()
    assert dict(os.environ) == environment
    await one.disconnect()
    assert await asked(other, second) == 200


async def asked(adapter: Any, secret: str) -> int:
    """What a client with this secret is answered."""
    url = f"http://127.0.0.1:{adapter._listener.port}/v1/metrics"
    async with aiohttp.ClientSession() as http, http.get(url, headers={"Authorization": f"Bearer {secret}"}) as answer:
        return answer.status


async def test_small_questions(make: Make) -> None:
    adapter = make()
    assert adapter.streaming_overflow_limit() == adapter.MAX_MESSAGE_LENGTH == 1_000_000
    assert await adapter.get_chat_info("100") == {"name": "Pheby 100", "type": "dm", "chat_id": "100"}
    features = adapter._features()
    assert (features.version, features.streaming) == (_hermes.version(), False)


@pytest.mark.parametrize(
    ("feature", "hooks", "lost"),
    [
        ("tools", {"pre_tool_call", "post_tool_call"}, None),
        ("approvals", {"pre_approval_request", "post_approval_response"}, "tools.approval"),
        ("subagents", {"subagent_start", "subagent_stop"}, None),
        ("clarifications", set(), "tools.clarify_gateway"),
    ],
)
def test_features_are_probed(
    make: Make, hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, feature: str, hooks: set[str], lost: str | None
) -> None:
    adapter, plugins = make(), hermes.modules["hermes_cli.plugins"]
    for named in [*(hooks - {hook} for hook in hooks), hooks]:
        monkeypatch.setattr(plugins, "VALID_HOOKS", named)
        assert getattr(adapter._features(), feature) is (named == hooks)
    if lost is not None:
        hermes.without(monkeypatch, lost)
        assert getattr(adapter._features(), feature) is False
