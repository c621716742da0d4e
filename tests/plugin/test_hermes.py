"""The one file that knows Hermes: what it asks for, and what it does where that is missing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pheby_hermes import _hermes

from tests.plugin.fake_hermes import (
    BasePlatformAdapter,
    FakeHermes,
    NewMessageEvent,
    OldMessageEvent,
    PlatformEntry,
    command_words,
    field_names,
    install,
)

COMMANDS = ["/stop", "/new", "/restart", "/model x", "/unknown a b", "/etc/hosts what is it?", "/", "restart gateway"]


@pytest.fixture
def hermes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHermes:
    return install(monkeypatch, tmp_path)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """The shape of an event is looked up once per process."""
    _hermes._typed_event_class.cache_clear()
    yield
    _hermes._typed_event_class.cache_clear()


# Names


def test_hermes_names_come_when_they_are_asked_for(hermes: FakeHermes) -> None:
    assert _hermes.BasePlatformAdapter is BasePlatformAdapter
    with pytest.raises(AttributeError):
        _ = _hermes.NoSuchName  # type: ignore[attr-defined]


def test_platform(hermes: FakeHermes) -> None:
    assert _hermes.platform("pheby").value == "pheby"


def test_platform_options_are_those_of_the_entry(hermes: FakeHermes) -> None:
    assert _hermes.platform_options() == field_names(PlatformEntry)


def test_hook_names(hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _hermes.hook_names() == {"pre_llm_call", "on_session_end", "on_stream_delta"}
    hermes.without(monkeypatch, "hermes_cli.plugins", "VALID_HOOKS")
    assert _hermes.hook_names() is None


def test_hooks_that_are_not_named_are_believed_in(hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _hermes.fires("pre_llm_call", "on_session_end")
    assert not _hermes.fires("pre_llm_call", "subagent_start")
    hermes.without(monkeypatch, "hermes_cli.plugins", "VALID_HOOKS")
    assert _hermes.fires("subagent_start")


@pytest.mark.parametrize(("value", "read"), [("100", "100"), (None, ""), ("", ""), (7, "7")])
def test_session_values(hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, value: object, read: str) -> None:
    monkeypatch.setattr(hermes.modules["gateway.session_context"], "get_session_env", {"x": 1}.get)
    monkeypatch.setattr(
        hermes.modules["gateway.session_context"],
        "get_session_env",
        {"HERMES_SESSION_CHAT_ID": value, "HERMES_SESSION_PLATFORM": value}.__getitem__,
    )
    assert (_hermes.session_chat_id(), _hermes.session_platform()) == (read, read)


def test_without_a_session_context_there_is_no_chat(hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch) -> None:
    hermes.without(monkeypatch, "gateway.session_context")
    assert (_hermes.session_chat_id(), _hermes.session_platform()) == ("", "")


def test_version_is_a_text() -> None:
    assert _hermes.version()


def test_home(hermes: FakeHermes, tmp_path: Path) -> None:
    assert _hermes.home() == tmp_path


# Secrets


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("PHEBY_SECRET", "of the process")
    monkeypatch.delenv("HERMES_HOME", raising=False)
    return monkeypatch


def test_a_secret_is_the_profiles(hermes: FakeHermes, environment: pytest.MonkeyPatch) -> None:
    hermes.secrets["PHEBY_SECRET"] = "of the profile"
    assert _hermes.read_secret("PHEBY_SECRET") == "of the profile"


def test_a_profile_without_a_secret_has_none(hermes: FakeHermes, environment: pytest.MonkeyPatch) -> None:
    """In a gateway for several profiles the process's environment is another one's."""
    assert _hermes.read_secret("PHEBY_SECRET") is None


def test_a_hermes_without_scopes_has_one_environment(hermes: FakeHermes, environment: pytest.MonkeyPatch) -> None:
    hermes.without(environment, "agent.secret_scope")
    assert _hermes.read_secret("PHEBY_SECRET") == "of the process"


def test_the_processs_own_profile_is_read_from_its_environment(
    hermes: FakeHermes, environment: pytest.MonkeyPatch
) -> None:
    """Whether or not HERMES_HOME is set: `hermes gateway run` without a profile does not set it."""
    hermes.unscoped = True
    assert _hermes.read_secret("PHEBY_SECRET") == "of the process"


def test_another_profile_is_never_read_from_the_environment(
    hermes: FakeHermes, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hermes.unscoped, hermes.home = True, tmp_path / "profiles" / "work"
    assert _hermes.read_secret("PHEBY_SECRET") is None


@pytest.mark.parametrize(("named", "expected"), [(True, "of the process"), (False, None)])
def test_where_hermes_does_not_name_the_processs_home_its_variable_does(
    hermes: FakeHermes, environment: pytest.MonkeyPatch, tmp_path: Path, named: bool, expected: str | None
) -> None:
    hermes.unscoped = True
    hermes.without(environment, "hermes_constants", "get_process_hermes_home")
    if named:
        environment.setenv("HERMES_HOME", f"{tmp_path}/../{tmp_path.name}")
    assert _hermes.read_secret("PHEBY_SECRET") == expected


# Events


@pytest.mark.parametrize("shape", ["old", "new"])
@pytest.mark.parametrize("text", [*COMMANDS, "hello", "", "yes", "line1\n/stop"])
def test_what_the_owner_types_is_never_a_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shape: str, text: str
) -> None:
    """B10."""
    install(monkeypatch, tmp_path, shape=shape)
    event: Any = _hermes.typed_event(text, SimpleNamespace(chat_id="100"), "msg_1")
    assert command_words(event) == (False, None)
    assert (event.text, event.message_id, event.source.chat_id, event.internal) == (text, "msg_1", "100", False)
    assert isinstance(event, NewMessageEvent if shape == "new" else OldMessageEvent)


def test_prose_is_not_rewritten_into_a_restart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The older line turns `restart gateway` into the command on the way in."""
    install(monkeypatch, tmp_path, shape="old")
    event: Any = _hermes.typed_event("restart gateway", None, "msg_1")
    event.text = "/restart"
    assert event.text == "restart gateway"
    event.text = "restart gateway, please"
    assert event.text == "restart gateway, please"
    assert event.get_command_args() == "restart gateway, please"


def test_a_typed_restart_is_a_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, shape="old")
    event: Any = _hermes.typed_event("/restart", None, "msg_1")
    assert (event.text, event.get_command()) == ("/restart", None)


# Gate and guard


def adapter(**attributes: Any) -> Any:
    return SimpleNamespace(**attributes)


@pytest.mark.parametrize(
    ("runner", "handler", "is_open"),
    [
        (None, True, False),
        (SimpleNamespace(_running=True, _startup_restore_in_progress=False), None, False),
        (SimpleNamespace(_running=False, _startup_restore_in_progress=True), True, False),
        (SimpleNamespace(_running=True, _startup_restore_in_progress=True), True, False),
        (SimpleNamespace(_running=False, _startup_restore_in_progress=False), True, False),
        (SimpleNamespace(_running=True, _startup_restore_in_progress=False), True, True),
        (SimpleNamespace(_running=True), True, True),
        (SimpleNamespace(other=1), True, True),
    ],
)
def test_the_gate(runner: Any, handler: Any, is_open: bool) -> None:
    assert _hermes.gateway_open(adapter(gateway_runner=runner, _message_handler=handler)) is is_open


def test_an_adapter_that_nobody_has_set_up_is_shut() -> None:
    assert not _hermes.gateway_open(adapter())


@pytest.mark.parametrize(
    ("active", "busy"),
    [
        ({}, False),
        (None, False),
        ({"agent:main:pheby:dm:100": 1}, True),
        ({"agent:work:pheby:dm:100": 1}, True),
        ({"agent:main:pheby:dm:1100": 1, "agent:main:telegram:dm:100": 1}, False),
    ],
)
def test_the_guard(active: Any, busy: bool) -> None:
    assert _hermes.session_busy(adapter(_active_sessions=active), ":pheby:dm:100") is busy


def test_without_a_guard_no_session_is_busy() -> None:
    assert not _hermes.session_busy(adapter(), ":pheby:dm:100")


# Streaming


class NewAdapter(SimpleNamespace):
    supports_exec_approval_buttons = True


def streaming(**settings: Any) -> Any:
    return SimpleNamespace(config=SimpleNamespace(streaming=SimpleNamespace(**settings)))


@pytest.mark.parametrize("make", [SimpleNamespace, NewAdapter])
def test_the_global_switch_streams_on_both_lines(hermes: FakeHermes, make: Any) -> None:
    assert _hermes.streaming_enabled(make(gateway_runner=streaming(enabled=True)), "pheby")
    assert not _hermes.streaming_enabled(make(gateway_runner=streaming(enabled=False)), "pheby")
    assert not _hermes.streaming_enabled(make(gateway_runner=None), "pheby")


@pytest.mark.parametrize(("make", "streams"), [(SimpleNamespace, True), (NewAdapter, False)])
def test_a_platforms_own_switch_streams_on_the_older_line(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, make: Any, streams: bool
) -> None:
    config = {"display": {"platforms": {"pheby": {"streaming": True}}}}
    monkeypatch.setattr(hermes.modules["hermes_cli.config"], "load_config", lambda: config)
    assert _hermes.streaming_enabled(make(gateway_runner=streaming(enabled=False)), "pheby") is streams


@pytest.mark.parametrize("config", [None, [], {"display": 5}, {"display": {"platforms": ["pheby"]}}])
def test_a_config_that_cannot_be_read_promises_nothing(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, config: object
) -> None:
    monkeypatch.setattr(hermes.modules["hermes_cli.config"], "load_config", lambda: config)
    assert _hermes.streaming_enabled(adapter(), "pheby") is False


@pytest.mark.parametrize(
    ("runner", "cursor"),
    [(None, " ▉"), (streaming(cursor=""), ""), (streaming(cursor="|"), "|"), (streaming(cursor=None), " ▉")],
)
def test_the_cursor(runner: Any, cursor: str) -> None:
    assert _hermes.streaming_cursor(adapter(gateway_runner=runner)) == cursor


# Approvals

KEY = "agent:main:pheby:dm:100"


def test_a_question_is_decided_by_its_id_where_hermes_has_ids(hermes: FakeHermes) -> None:
    """Of two alike each card has its own."""
    for number in (1, 2):
        hermes.approvals.ask(KEY, "rm hunter2", f"r{number}")
    assert _hermes.find_question(KEY, "rm ***", []) == "r1"
    assert _hermes.find_question(KEY, "rm ***", ["r1"]) == "r2"
    assert _hermes.find_question(KEY, "rm ***", ["r1", "r2"]) is None
    assert _hermes.find_question(KEY, "rm b", []) is None
    assert _hermes.find_question("another", "rm ***", []) is None
    assert _hermes.resolve_approval(KEY, "deny", "no", "r2")
    assert not _hermes.resolve_approval(KEY, "once", None, "r2")
    assert hermes.approvals.resolved == [("rm hunter2", "deny", "no")]
    assert len(hermes.approvals.queues[KEY]) == 1


def test_the_oldest_is_decided_only_if_it_is_the_one_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R-E2, on a Hermes without ids: the one that was meant may have run out a moment ago."""
    approvals = install(monkeypatch, tmp_path, shape="old").approvals
    first, second = (approvals.ask(KEY, "rm a", "") for _ in range(2))
    assert _hermes.find_question(KEY, "rm a", []) is first
    assert _hermes.find_question(KEY, "rm a", [first]) is second
    assert not _hermes.resolve_approval(KEY, "once", None, second)
    assert not _hermes.resolve_approval("another", "once", None, first)
    assert approvals.resolved == []
    approvals.queues[KEY].pop(0)
    assert not _hermes.resolve_approval(KEY, "once", None, first)
    assert approvals.resolved == []
    assert _hermes.resolve_approval(KEY, "once", "fine", second)
    assert approvals.resolved == [("rm a", "once", "fine")]
    assert KEY not in approvals.queues
    assert not _hermes.resolve_approval(KEY, "once", None, second)


def test_a_hermes_that_shows_no_questions_has_none_to_decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    approvals = install(monkeypatch, tmp_path, shape="old").approvals
    approvals.ask(KEY, "rm a", "")
    monkeypatch.delattr(approvals.module, "_gateway_queues")
    assert _hermes.find_question(KEY, "rm a", []) is None


@pytest.mark.parametrize(
    ("shape", "missing", "offered"),
    [
        ("new", ["_lock", "_gateway_queues"], True),
        ("new", ["list_gateway_approvals"], False),
        ("new", ["resolve_gateway_approval"], False),
        ("old", [], True),
        ("old", ["_lock"], False),
        ("old", [None], False),
    ],
)
def test_approvals_are_offered_where_one_question_can_be_decided(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shape: str, missing: list[str | None], offered: bool
) -> None:
    """R-A7: by the whole of one way; half of one and half of the other is neither."""
    hermes = install(monkeypatch, tmp_path, shape=shape)
    hooks = {"pre_approval_request", "post_approval_response"}
    monkeypatch.setattr(hermes.modules["hermes_cli.plugins"], "VALID_HOOKS", hooks)
    for name in missing:
        hermes.without(monkeypatch, "tools.approval", name)
    assert _hermes.approvals_offered() is offered
    monkeypatch.setattr(hermes.modules["hermes_cli.plugins"], "VALID_HOOKS", hooks - {"post_approval_response"})
    assert not _hermes.approvals_offered()
    hermes.without(monkeypatch, "hermes_cli.plugins", "VALID_HOOKS")
    assert _hermes.approvals_offered() is offered


@pytest.mark.parametrize(
    ("approvals", "seconds"),
    [
        ({"timeout": 300}, 300.0),
        ({"timeout": 2.5}, 2.5),
        ({"timeout": 0}, None),
        ({"timeout": "x"}, None),
        (None, None),
    ],
)
def test_how_long_hermes_waits(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, approvals: object, seconds: float | None
) -> None:
    """D2."""
    monkeypatch.setattr(hermes.modules["hermes_cli.config"], "load_config", lambda: {"approvals": approvals})
    assert _hermes.approval_seconds() == seconds
    if seconds is None:
        monkeypatch.setattr(hermes.approvals.module, "_get_approval_timeout", lambda: 60, raising=False)
        assert _hermes.approval_seconds() == 60.0


# Clarifications, confirmations, subagents


def test_clarifications_are_offered_where_answers_are_taken(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _hermes.clarifications_offered()
    for module, name in (("tools.clarify_gateway", "resolve_gateway_clarify"), ("tools.clarify_gateway", None)):
        with monkeypatch.context() as patch:
            hermes.without(patch, module, name)
            assert not _hermes.clarifications_offered()
    monkeypatch.delattr(BasePlatformAdapter, "send_clarify")
    assert not _hermes.clarifications_offered()


@pytest.mark.parametrize("shape", ["old", "new"])
def test_what_each_line_knows_of_questions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shape: str) -> None:
    hermes = install(monkeypatch, tmp_path, shape=shape)
    new = shape == "new"
    assert _hermes.skip_answer() == ("\0skipped" if new else None)
    assert _hermes.undecorated("red (Recommended)") == ("red" if new else "red (Recommended)")
    hermes.clarifications.ask(KEY, "q1", several=True)
    hermes.clarifications.ask("another", "q2", several=False)
    asked = [(KEY, "q1"), (KEY, "q2"), ("another", "q2"), ("nobody's", "q1")]
    assert [_hermes.takes_several(*each) for each in asked] == [new, False, False, False]
    hermes.without(monkeypatch, "tools.clarify_tool")
    assert _hermes.undecorated("red (Recommended)") == "red (Recommended)"


def test_an_answer_is_given_once_and_under_hermess_lock(hermes: FakeHermes) -> None:
    hermes.clarifications.ask(KEY, "q1")
    assert not _hermes.resolve_clarification("q2", "red")
    assert _hermes.resolve_clarification("q1", "red")
    assert not _hermes.resolve_clarification("q1", "green")
    assert (hermes.clarifications.answers, hermes.clarifications.locked) == ([("q1", "red")], [True])


@pytest.mark.parametrize(("shape", "word"), [("old", "[cancelled]"), ("new", "\0cancelled")])
def test_all_questions_of_a_session_are_released(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shape: str, word: str
) -> None:
    hermes = install(monkeypatch, tmp_path, shape=shape)
    for key, clarify_id in ((KEY, "q1"), ("another", "q2"), (KEY, "q3")):
        hermes.clarifications.ask(key, clarify_id)
    assert _hermes.resolve_clarification("q1", "red")
    _hermes.cancel_clarifications(["q1", "q3", "never"])
    # An answer that was given stays, though its waiter may not have woken yet.
    assert hermes.clarifications.answers == [("q1", "red"), ("q3", word)]
    hermes.without(monkeypatch, "tools.clarify_gateway")
    _hermes.cancel_clarifications(["q2"])
    assert len(hermes.clarifications.answers) == 2


@pytest.mark.parametrize(
    ("told", "seconds"), [(600, 600.0), ("2.5", 2.5), (0, None), (-1, None), ("x", None), (None, None)]
)
def test_how_long_hermes_waits_for_an_answer(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, told: object, seconds: float | None
) -> None:
    hermes.clarifications.seconds = told
    assert _hermes.clarification_seconds() == seconds
    hermes.without(monkeypatch, "tools.clarify_gateway", "get_clarify_timeout")
    assert _hermes.clarification_seconds() is None


async def test_a_confirmation_is_never_given_for_good(hermes: FakeHermes) -> None:
    await _hermes.confirm(KEY, "k1", yes=False)
    await _hermes.confirm(KEY, "k2", yes=True)
    assert hermes.confirmed == [(KEY, "k1", "cancel"), (KEY, "k2", "once")]


def test_a_subagent_is_stopped_by_hermess_name(hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch) -> None:
    hermes.subagents.add("h-1")
    assert [_hermes.interrupt_subagent(name) for name in ("h-1", "h-2")] == [True, False]
    hermes.without(monkeypatch, "tools.delegate_tool", "interrupt_subagent")
    assert not _hermes.interrupt_subagent("h-1")


# Rows


class OldSessionDB:
    """Reads as the older line has them: fewer options, and the sessions of every platform's subagents too."""

    opened: list[OldSessionDB] = []

    def __init__(self, path: Path, *, read_only: bool) -> None:
        assert read_only
        self.path, self.closed, self.read = path, False, []
        self.sessions: list[dict[str, Any]] = [
            {"id": "s3", "chat_id": "200", "started_at": 3.0},
            {"id": "s2", "chat_id": "100", "started_at": 2.0},
            {"id": "s1", "chat_id": "100", "started_at": 1.0},
            {"id": "s0", "chat_id": None, "started_at": None},
        ]
        OldSessionDB.opened.append(self)

    def list_sessions_rich(
        self, source: str, limit: int, include_children: bool = False, project_compression_tips: bool = True
    ) -> list[dict[str, Any]]:
        assert source == "pheby"
        assert include_children
        assert not project_compression_tips
        return self.sessions[:limit]

    def get_messages(self, session_id: str, *, include_inactive: bool) -> list[dict[str, Any]]:
        assert include_inactive
        self.read.append(session_id)
        return [{"id": 1, "session_id": session_id}]

    def close(self) -> None:
        self.closed = True


class BrokenSessionDB(OldSessionDB):
    def get_messages(self, session_id: str, *, include_inactive: bool) -> list[dict[str, Any]]:
        raise OSError("locked")


@pytest.fixture
def database(hermes: FakeHermes, tmp_path: Path) -> Iterator[Path]:
    hermes.modules["hermes_state"].SessionDB = OldSessionDB  # type: ignore[attr-defined]
    path = tmp_path / "state.db"
    path.touch()
    OldSessionDB.opened.clear()
    yield path
    assert all(opened.closed for opened in OldSessionDB.opened)


def test_rows_are_read_for_one_chat(database: Path) -> None:
    found = _hermes.owned_rows(database, "pheby", "100")
    assert [(session["id"], [row["session_id"] for row in rows]) for session, rows in found] == [
        ("s1", ["s1"]),
        ("s2", ["s2"]),
    ]


def test_without_a_chat_only_sessions_are_read(database: Path) -> None:
    found = _hermes.owned_rows(database, "pheby", None)
    assert [(session["id"], rows) for session, rows in found] == [("s1", []), ("s2", []), ("s3", [])]
    assert OldSessionDB.opened[0].read == []


def test_a_new_home_has_no_rows(database: Path) -> None:
    """And none is made: the database is Hermes's."""
    database.unlink()
    assert _hermes.owned_rows(database, "pheby", "100") == []
    assert OldSessionDB.opened == []
    assert not database.exists()


def test_a_read_that_fails_closes_the_database(hermes: FakeHermes, database: Path) -> None:
    hermes.modules["hermes_state"].SessionDB = BrokenSessionDB  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="locked"):
        _hermes.owned_rows(database, "pheby", "100")


# Titles and deletion


class FakeSessionDB:
    """Sessions in memory, as the older line deletes them. Titles are unique over all of them."""

    sessions: list[dict[str, Any]] = []
    titled: list[tuple[str, str]] = []
    deleted: list[tuple[str, dict[str, bool]]] = []
    stays: set[str] = set()
    """Those that Hermes does not delete now."""
    open = 0

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.read_only = read_only
        FakeSessionDB.open += 1

    def close(self) -> None:
        FakeSessionDB.open -= 1

    def list_sessions_rich(self, source: str, limit: int, include_children: bool = False) -> list[dict[str, Any]]:
        assert include_children
        return [dict(found) for found in self.sessions if found["source"] == source]

    def get_messages(self, session_id: str, *, include_inactive: bool) -> list[dict[str, Any]]:
        return [{"id": 1, "session_id": session_id}]

    def set_session_title(self, session_id: str, title: str) -> bool:
        assert not self.read_only
        if title and any(found["title"] == title and found["id"] != session_id for found in self.sessions):
            raise ValueError("in use")
        self.titled.append((session_id, title))
        next(found for found in self.sessions if found["id"] == session_id)["title"] = title
        return True

    def delete_session(self, session_id: str) -> bool:
        return self._delete(session_id)

    def _delete(self, session_id: str, **options: bool) -> bool:
        assert not self.read_only
        self.deleted.append((session_id, options))
        if session_id not in self.stays:
            self.sessions[:] = [found for found in self.sessions if found["id"] != session_id]
        return True


class NewSessionDB(FakeSessionDB):
    """As the newer line deletes them."""

    def delete_session(
        self,
        session_id: str,
        sessions_dir: Path | None = None,
        include_compression_chain: bool = False,
        exclude_active_write_guards: bool = False,
    ) -> bool:
        return self._delete(
            session_id, chain=include_compression_chain, guards=exclude_active_write_guards, files=bool(sessions_dir)
        )


def session(name: str, chat_id: str, started: float, *, title: str = "", **fields: Any) -> dict[str, Any]:
    found = {"id": name, "source": "pheby", "chat_id": chat_id, "started_at": started, "title": title}
    return found | fields


@pytest.fixture(params=[FakeSessionDB, NewSessionDB])
def written(
    request: pytest.FixtureRequest, hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[_hermes.SessionStore]:
    """Two sessions of one chat, one of another, one of another platform's."""
    monkeypatch.setattr(hermes.modules["hermes_state"], "SessionDB", request.param)
    for name in ("titled", "deleted"):
        monkeypatch.setattr(FakeSessionDB, name, [])
    monkeypatch.setattr(FakeSessionDB, "stays", set())
    sessions = [
        session("s3", "200", 3.0, title="Theirs"),
        session("s2", "100", 2.0),
        session("s1", "100", 1.0, title="Mine", ended_at=1.5),
        session("t1", "100", 4.0, title="Telegram", source="telegram"),
    ]
    monkeypatch.setattr(FakeSessionDB, "sessions", sessions)
    (tmp_path / "state.db").touch()
    yield _hermes.SessionStore(tmp_path / "state.db", "pheby")
    assert FakeSessionDB.open == 0


def titles() -> dict[str, str]:
    return {found["id"]: found["title"] for found in FakeSessionDB.sessions}


def test_a_title_is_that_of_the_newest_session(written: _hermes.SessionStore) -> None:
    assert written.set_title("100", "New") is True
    assert titles() == {"s3": "Theirs", "s2": "New", "s1": "Mine", "t1": "Telegram"}


def test_an_older_session_of_the_chat_gives_its_title_up(written: _hermes.SessionStore) -> None:
    """Titles are unique over all sessions."""
    assert written.set_title("100", "Mine") is True
    assert FakeSessionDB.titled == [("s1", ""), ("s2", "Mine")]


@pytest.mark.parametrize("title", ["Theirs", "Telegram"])
def test_a_title_of_another_chat_is_not_taken(written: _hermes.SessionStore, title: str) -> None:
    before = titles()
    assert written.set_title("100", title) is False
    assert titles() == before


def test_the_session_that_goes_on_is_the_one_that_is_named(written: _hermes.SessionStore) -> None:
    FakeSessionDB.sessions.append(session("s4", "100", 4.0, ended_at=5.0))
    assert written.set_title("100", "New") is True
    assert FakeSessionDB.titled == [("s2", "New")]
    FakeSessionDB.sessions[1]["ended_at"] = 6.0
    assert written.set_title("100", "Newer") is True
    assert FakeSessionDB.titled[-1] == ("s4", "Newer")


def test_every_session_of_a_chat_is_deleted_and_no_other(written: _hermes.SessionStore) -> None:
    """R-B4: the whole lineage; on the newer line only what nothing writes to."""
    new = _hermes_session_db() is NewSessionDB
    options = {"chain": True, "guards": True, "files": False} if new else {}
    assert written.delete("100") is True
    assert FakeSessionDB.deleted == [("s1", options), ("s2", options)]
    assert sorted(titles()) == ["s3", "t1"]
    assert [found["id"] for found, _ in written.read(None)] == ["s3"]
    assert written.delete("100") is True


def test_a_session_that_stays_is_told(written: _hermes.SessionStore) -> None:
    FakeSessionDB.stays.add("s1")
    assert written.delete("100") is False
    assert [found["id"] for found, _ in written.read("100")] == ["s1"]
    FakeSessionDB.stays.clear()
    assert written.delete("100") is True


def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of three profiles, each with a chat of the same id, and a session of before there were keys."""
    keys = {
        "s1": "agent:main:pheby:dm:100",
        "s2": "agent:work:pheby:dm:100",
        "s3": "agent:play:pheby:dm:100",
        "s0": None,
    }
    rows = [session(name, "100", 1.0, session_key=key, title=f"T {name}") for name, key in keys.items()]
    monkeypatch.setattr(FakeSessionDB, "sessions", rows)


@pytest.mark.parametrize(
    ("folder", "known"),
    [(".", ["s1", "s0"]), ("profiles/work", ["s2"]), ("profiles/main", ["s1"]), ("profiles/new", [])],
)
def test_in_a_shared_database_each_profile_has_its_own_sessions(
    written: _hermes.SessionStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str, known: list[str]
) -> None:
    """R-A8: a gateway of 0.19 for several profiles writes all rows into the first one's database."""
    shared(monkeypatch)
    adapter = SimpleNamespace(_session_store=SimpleNamespace(_db=SimpleNamespace(db_path=tmp_path / "state.db")))
    mine = _hermes.sessions_of(adapter, tmp_path / folder, "pheby")
    assert [found["id"] for found, _ in mine.read(None)] == known
    assert [found["id"] for found, _ in mine.read("100")] == known
    assert mine.set_title("100", "T s3") is (known == [])
    assert mine.delete("100") is True
    left = [found["id"] for found in FakeSessionDB.sessions]
    assert left == [name for name in ("s1", "s2", "s3", "s0") if name not in known]


@pytest.mark.parametrize("store", [None, SimpleNamespace(), SimpleNamespace(_db=None)])
def test_a_profile_with_a_database_of_its_own_has_all_that_is_in_it(
    written: _hermes.SessionStore, tmp_path: Path, store: object
) -> None:
    """R-A8, R-A7: whether the gateway that wrote it served it alone or with others, and where nothing says so."""
    home = tmp_path / "profiles" / "work"
    mine = _hermes.sessions_of(SimpleNamespace(_session_store=store), home, "pheby")
    assert mine.database == home / "state.db"
    assert mine.mine == {"main", "", "work"}
    assert _hermes._namespace("agent:main~:pheby:dm:1") == "main"


def test_where_hermes_has_nothing_there_is_nothing_to_do(written: _hermes.SessionStore) -> None:
    """And no database is made: it is Hermes's."""
    assert written.set_title("300", "New") is True
    assert written.delete("300") is True
    written.database.unlink()
    assert written.set_title("100", "New") is True
    assert written.delete("100") is True
    assert not written.database.exists()
    assert (FakeSessionDB.titled, FakeSessionDB.deleted) == ([], [])


def _hermes_session_db() -> Any:
    return sys.modules["hermes_state"].SessionDB  # type: ignore[attr-defined]


# Commands


@pytest.mark.parametrize("shape", ["old", "new"])
def test_a_command_of_phebys_own_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shape: str) -> None:
    """B10: and what the owner types is none, with the same words."""
    install(monkeypatch, tmp_path, shape=shape)
    source = SimpleNamespace(chat_id="100")
    event: Any = _hermes.command("/new", source, "n1")
    assert command_words(event) == (True, "new")
    assert (event.text, event.message_id, event.source, event.internal) == ("/new", "n1", source, False)
    assert command_words(_hermes.typed_event("/new", source, "n1")) == (False, None)


# Pickers


@pytest.mark.parametrize("missing", [None, "resolve_persist_behavior"])
def test_a_hermes_without_the_picker_for_models(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    """R-H1, I3: or with one that would write a choice into its settings."""
    assert _hermes.model_picker_offered()
    with monkeypatch.context() as patch:
        patch.delattr(hermes.modules["gateway.run"].GatewayRunner, "_handle_model_command")
        assert not _hermes.model_picker_offered()
    with monkeypatch.context() as patch:
        patch.setattr(hermes.modules["hermes_cli.model_switch"], "resolve_persist_behavior", lambda is_global: False)
        assert not _hermes.model_picker_offered()
    hermes.without(monkeypatch, "hermes_cli.model_switch", missing)
    assert not _hermes.model_picker_offered()


@pytest.mark.parametrize("missing", ["_handle_reasoning_command", "_try_send_choice_picker"])
def test_a_hermes_without_the_picker_for_efforts(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """R-H2."""
    assert _hermes.effort_picker_offered()
    monkeypatch.delattr(hermes.modules["gateway.run"].GatewayRunner, missing)
    assert not _hermes.effort_picker_offered()


# What is there


class Holder:
    """A class of Hermes's, with what an object of it gets."""

    def __init__(self, given: int, *, kept: bool) -> None:
        self.attribute = given

    def read(self) -> object:
        return self.only_read  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("symbol", "there"),
    [
        ("gateway.platforms.base", True),
        ("gateway.platforms.bass", False),
        ("gateway.platforms.base:BasePlatformAdapter.send_clarify", True),
        ("gateway.platforms.base:BasePlatformAdapter.gone", False),
        ("gateway.platforms.base:Gone.send_clarify", False),
        ("gateway.platforms.base:MessageEvent(text)", True),
        ("gateway.platforms.base:MessageEvent(txt)", False),
        ("gateway.platforms.base:MessageEvent.source", True),
        ("gateway.platforms.base:Holder.attribute", True),
        ("gateway.platforms.base:Holder.only_read", False),
        ("gateway.platforms.base:Holder(kept)", True),
        ("hermes_cli.plugins:VALID_HOOKS[pre_llm_call]", True),
        ("hermes_cli.plugins:VALID_HOOKS[pre_llm]", False),
        ("gateway.slash_commands_model~send_model_picker", True),
        ("gateway.slash_commands_model~send_another_picker", False),
    ],
)
def test_whether_a_symbol_is_there(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, symbol: str, there: bool
) -> None:
    """R-A7: modules, names in them, what objects get, parameters, members, and what is only mentioned."""
    monkeypatch.setattr(hermes.modules["gateway.platforms.base"], "Holder", Holder, raising=False)
    assert _hermes.there(symbol) is there


def test_a_symbol_is_written_in_one_way() -> None:
    with pytest.raises(ValueError, match="::x"):
        _hermes.there("gateway.run::x")


def test_a_hermes_without_confirmations_lets_them_lapse(hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-A7."""
    hermes.without(monkeypatch, "tools.slash_confirm", "resolve")
    asyncio.run(_hermes.confirm(KEY, "c1", yes=False))
    assert hermes.confirmed == []


def test_a_hermes_without_a_rule_for_files_lets_none_out(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R-A7, R-G2."""
    file = tmp_path / "picture.png"
    file.touch()
    assert _hermes.deliverable(str(file)) == str(file)
    hermes.without(monkeypatch, "gateway.platforms.base", "validate_media_delivery_path")
    assert _hermes.deliverable(str(file)) is None


def test_a_hermes_whose_redaction_has_changed_leaves_a_text_to_phebys(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-A7, R-D3."""
    assert _hermes.redact("hunter2") == _hermes.command_on_card("hunter2") == "***"
    monkeypatch.setattr(hermes.modules["agent.redact"], "redact_sensitive_text", lambda text: "x")
    assert _hermes.redact("hunter2") == _hermes.command_on_card("hunter2") == "hunter2"


def test_a_model_that_hermes_has_kept(hermes: FakeHermes) -> None:
    """I1: from its store, as long as it has not been taken up; it holds no key."""
    kept: dict[str, Any] = {"k1": {"model": "m2", "provider": "one", "base_url": "http://x"}, "k2": {"model": "m2"}}
    runner: Any = SimpleNamespace(
        _session_model_overrides={}, session_store=SimpleNamespace(get_model_override=kept.get)
    )
    adapter: Any = SimpleNamespace(gateway_runner=runner)
    assert [_hermes.kept_model(adapter, key) for key in ("k1", "k2", "k3")] == [("one", "m2"), None, None]
    runner._session_model_overrides["k1"] = {"model": "m3"}
    assert _hermes.kept_model(adapter, "k1") is None
    assert _hermes.kept_model(SimpleNamespace(), "k1") is None  # type: ignore[arg-type]


def test_what_the_catalogue_knows_of_models(hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-H1, R-H2: as given; where it knows nothing, nothing."""
    assert _hermes.model_facts("one", ["m1"]) == {}
    dear = SimpleNamespace(name="Dear", context_window=9, reasoning=True, cost_input=2.5, cost_output=10.0)
    free = SimpleNamespace(name="Free", context_window=0, reasoning=False, cost_input=0.0, cost_output=0.0)
    hermes.catalogue["one"] = {"m1": dear, "m2": free}
    assert _hermes.model_facts("one", ["m1", "m2", "m3"]) == {
        "m1": {
            "name": "Dear",
            "context_length": 9,
            "reasoning": True,
            "price_input": "$2.5 per million tokens",
            "price_output": "$10 per million tokens",
        },
        "m2": {"name": "Free", "context_length": None, "reasoning": False},
    }
    assert _hermes.model_facts("two", ["m1"]) == {}
    hermes.without(monkeypatch, "agent.models_dev", "get_model_info")
    assert _hermes.model_facts("one", ["m1"]) == {}
    hermes.without(monkeypatch, "agent.models_dev")
    assert _hermes.model_facts("one", ["m1"]) == {}


def test_no_hermes_is_left_behind() -> None:
    """Other tests must not see the stand-in."""
    assert "gateway.platforms.base" not in sys.modules
