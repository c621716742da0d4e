"""Hermes's hooks on their way to the adapters: nothing waits, nothing raises, nothing heavy goes along."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from attrs import define, field
from pheby_hermes import _hermes
from pheby_hermes.hooks import HOOKS, HookRelay
from pheby_hermes.turns import TurnTable

Taken = tuple[str, dict[str, object], str]


@define(eq=False)
class Ear:
    """A listener that writes down what it takes, and in which thread."""

    taken: list[Taken] = field(factory=list)
    threads: list[str] = field(factory=list)

    def take_hook(self, name: str, facts: dict[str, object], chat_id: str) -> None:
        self.taken.append((name, facts, chat_id))
        self.threads.append(threading.current_thread().name)


class Deaf:
    """A listener that breaks."""

    def take_hook(self, name: str, facts: dict[str, object], chat_id: str) -> None:
        raise RuntimeError("deaf")


class Context:
    """What Hermes gives a plugin to register with."""

    def __init__(self) -> None:
        self.hooks: dict[str, Callable[..., None]] = {}

    def register_hook(self, name: str, callback: Callable[..., None]) -> None:
        assert name not in self.hooks
        self.hooks[name] = callback


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The turn that the calling thread works for."""
    session = {"platform": "pheby", "chat": "100"}
    monkeypatch.setattr(_hermes, "hook_names", lambda: None)
    monkeypatch.setattr(_hermes, "session_platform", lambda: session["platform"])
    monkeypatch.setattr(_hermes, "session_chat_id", lambda: session["chat"])
    return session


def registered(*listeners: Any) -> tuple[HookRelay, dict[str, Callable[..., None]]]:
    relay, context = HookRelay(), Context()
    for listener in listeners:
        relay.add(listener)
    relay.register(context)
    return relay, context.hooks


def test_every_hook_is_registered_where_hermes_does_not_say_which_it_has() -> None:
    _, hooks = registered()
    assert tuple(hooks) == HOOKS


def test_only_known_hooks_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hermes, "hook_names", lambda: frozenset({"pre_llm_call", "on_session_end", "on_other"}))
    _, hooks = registered()
    assert set(hooks) == {"pre_llm_call", "on_session_end"}


def test_no_streaming_hook() -> None:
    """One of them would switch provider streaming on for every surface of the profile."""
    assert not [name for name in HOOKS if name.startswith("on_stream")]


def test_callbacks_are_named() -> None:
    _, hooks = registered()
    assert {callback.__name__ for callback in hooks.values()} == {f"pheby_{name}" for name in HOOKS}


def test_a_hook_comes_with_its_chat() -> None:
    ear = Ear()
    _, hooks = registered(ear)
    hooks["pre_llm_call"](turn_id="s:s:1", is_first_turn=True, tokens=5, cost=0.5, parent=None)
    facts = {"turn_id": "s:s:1", "is_first_turn": True, "tokens": 5, "cost": 0.5, "parent": None}
    assert ear.taken == [("pre_llm_call", facts, "100")]


def test_another_platforms_chat_is_not_named(session: dict[str, str]) -> None:
    session["platform"] = "telegram"
    ear = Ear()
    _, hooks = registered(ear)
    hooks["pre_llm_call"](turn_id="s:s:1")
    assert ear.taken == [("pre_llm_call", {"turn_id": "s:s:1"}, "")]


def test_only_plain_values_go_along() -> None:
    """Hermes's own lists and objects go on changing in its threads, and repeat the whole conversation."""
    ear = Ear()
    _, hooks = registered(ear)
    hooks["pre_api_request"](
        turn_id="s:s:1", request_messages=[{}], request={}, usage={"a": 1}, error={}, agent=object(), when=(1,)
    )
    assert ear.taken == [("pre_api_request", {"turn_id": "s:s:1"}, "100")]


def test_what_is_needed_of_a_response_goes_along() -> None:
    ear = Ear()
    _, hooks = registered(ear)
    usage, response = {"total_tokens": 3}, {"assistant_message": {"content": "x"}}
    hooks["post_api_request"](usage=usage, response=response, assistant_message=object())
    assert ear.taken == [("post_api_request", {"usage": usage, "response": response}, "100")]


@pytest.mark.parametrize(("kind", "code"), [("APIConnectionError", "provider_error"), ("ReadTimeout", "timed_out")])
def test_what_is_needed_of_an_error_goes_along(kind: str, code: str) -> None:
    """B6: Hermes calls a refused connection a timeout; only the error's type tells."""
    table = TurnTable()

    class Feeder:
        def take_hook(self, name: str, facts: dict[str, object], chat_id: str) -> None:
            table.hook(name, facts, chat_id)

    _, hooks = registered(Feeder())
    table.processing_started("100", 1, "m1", "hello", False)
    hooks["pre_llm_call"](turn_id="s:s:1", session_id="s", platform="pheby", user_message="hello")
    hooks["api_request_error"](turn_id="s:s:1", reason="timeout", error={"type": kind, "message": "raw"}, request={})
    ended, _ = table.processing_completed("100", 1, "SUCCESS")
    assert ended.error_code == code


def test_without_a_listener_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> str:
        raise AssertionError("nobody listens")

    monkeypatch.setattr(_hermes, "session_platform", asked)
    _, hooks = registered()
    hooks["pre_llm_call"](turn_id="s:s:1")


def test_a_callback_returns_nothing() -> None:
    """A pre_llm_call hook that returns something adds to the conversation."""
    _, hooks = registered(Ear())
    assert [callback(turn_id="s:s:1") for callback in hooks.values()] == [None] * len(hooks)


@pytest.mark.parametrize("name", HOOKS)
def test_a_callback_never_raises(name: str, caplog: pytest.LogCaptureFixture) -> None:
    _, hooks = registered(Deaf())
    hooks[name](turn_id="s:s:1")
    assert [record.message for record in caplog.records] == ["hook.failed"]


def test_a_hermes_that_breaks_is_not_broken_further(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> str:
        raise LookupError("no context here")

    monkeypatch.setattr(_hermes, "session_platform", broken)
    _, hooks = registered(Ear())
    hooks["pre_tool_call"](turn_id="s:s:1")
    assert caplog.records


def test_what_a_hook_was_told_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    _, hooks = registered(Deaf(), Ear())
    hooks["pre_llm_call"](turn_id="s:s:1", user_message="the owner's words")
    assert "the owner's words" not in caplog.text


def test_listeners_come_once_and_go() -> None:
    ear, other = Ear(), Ear()
    relay, hooks = registered(ear, ear, other)
    hooks["pre_llm_call"](turn_id="s:s:1")
    relay.remove(ear)
    relay.remove(ear)
    hooks["pre_llm_call"](turn_id="s:s:2")
    assert (len(ear.taken), len(other.taken)) == (1, 2)


def test_a_listener_may_leave_while_it_listens() -> None:
    relay, hooks = registered()
    ear = Ear()

    class Leaving:
        def take_hook(self, name: str, facts: dict[str, object], chat_id: str) -> None:
            relay.remove(self)

    relay.add(Leaving())
    relay.add(ear)
    hooks["pre_llm_call"](turn_id="s:s:1")
    hooks["pre_llm_call"](turn_id="s:s:2")
    assert len(ear.taken) == 2


def test_hooks_come_in_their_own_threads_while_adapters_come_and_go() -> None:
    steady = Ear()
    relay, hooks = registered(steady)
    passing = [Ear() for _ in range(8)]

    def come_and_go(ear: Ear) -> None:
        relay.add(ear)
        relay.remove(ear)

    with ThreadPoolExecutor(4, thread_name_prefix="hook") as pool:
        for number in range(200):
            pool.submit(hooks["pre_api_request"], turn_id=f"s:s:{number}")
            pool.submit(come_and_go, passing[number % 8])
    assert sorted(facts["turn_id"] for _, facts, _ in steady.taken) == sorted(f"s:s:{n}" for n in range(200))
    assert all(name.startswith("hook") for name in steady.threads)
