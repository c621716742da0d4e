"""Tool calls as they are shown: redacted before they are cut, bounded, described (R-D1, R-D3, F4)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pheby_hermes.bounds import MAX_ITEMS, MAX_RAW_CHARS, bounded
from pheby_hermes.tool_calls import HIDDEN, MAX_VALUE_CHARS, redactor, tool_result, tool_start

from pheby_protocol.limits import MAX_INTEGER
from pheby_protocol.messages.tool import ToolErrorCode
from pheby_server.ports import Outcome

CANARY = "sk-test-0123456789abcdef01234567"
OWN = "pheby-secret-0123456789abcdef-0123"
plain = redactor(str, (OWN,))


def start(args: object, **facts: Any) -> Any:
    return tool_start({"tool_call_id": "call_1", "tool_name": "terminal", "args": bounded(args), **facts}, plain)


def result(value: object, **facts: Any) -> Any:
    return tool_result({"tool_call_id": "call_1", "result": bounded(value), **facts}, plain)


@pytest.mark.parametrize(
    "text",
    [
        f"export KEY={CANARY}",
        f"curl -H 'Authorization: Bearer {'a1b2' * 8}' x",
        f"password=hunter2hunter2 {OWN}",
        "https://user:passw0rd@example.org/x",
        "AKIAABCDEFGHIJKLMNOP",
        "ghp_0123456789abcdefABCDEF",
        "token: 'abcdefgh1234'",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcdef\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_no_secret_is_shown(text: str) -> None:
    """F4: in arguments, in nested ones, in results, in descriptions."""
    shown = [start({"command": text, "more": [{"deep": text}]}), result(text), result(json.dumps({"output": text}))]
    for secret in (
        CANARY,
        OWN,
        "a1b2a1b2",
        "hunter2hunter2",
        "passw0rd",
        "AKIAABC",
        "ghp_0123",
        "abcdefgh1234",
        "MIIE",
    ):
        if secret in text:
            assert secret not in repr(shown), secret
    assert HIDDEN in repr(shown)


def test_a_secret_at_the_cut_does_not_show_its_beginning() -> None:
    text = "x" * (MAX_VALUE_CHARS - 10) + CANARY
    assert "sk-test" not in repr(start({"command": text}))
    assert "sk-test" not in repr(result(text))


def test_an_argument_that_is_named_as_a_secret_is_hidden_whatever_it_holds() -> None:
    assert start({"api_key": "short", "path": "/x"}).arguments == {"api_key": HIDDEN, "path": "/x"}


def test_long_values_are_cut_and_it_is_said() -> None:
    call = start({"content": "a" * (MAX_VALUE_CHARS + 1), "path": "/tmp/x"})
    assert len(call.arguments["content"]) == MAX_VALUE_CHARS + 1
    assert call.arguments_truncated is True
    assert start({"path": "/tmp/x"}).arguments_truncated is False
    assert result("b" * (MAX_RAW_CHARS * 2)).truncated is True
    assert result("b").truncated is False
    assert start({str(n): n for n in range(MAX_ITEMS + 1)}).arguments_truncated is True
    assert start({"list": list(range(MAX_ITEMS + 1))}).arguments_truncated is True


def test_what_a_frame_cannot_carry_is_written_as_text() -> None:
    arguments = start({"n": 2**60, "x": float("nan"), "s": "\ud800\0", "o": object()}).arguments
    assert arguments == {"n": str(2**60), "x": "nan", "s": "��", "o": "object"}


def test_the_description_is_the_telling_argument_on_one_line() -> None:
    assert start({"timeout": 5, "command": "ls\n  -l"}).description == "ls -l"
    assert start({"timeout": 5}).description is None


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("ok", Outcome.COMPLETED),
        (None, Outcome.COMPLETED),
        ("error", Outcome.FAILED),
        ("blocked", Outcome.FAILED),
        ("cancelled", Outcome.CANCELLED),
        ("interrupted", Outcome.CANCELLED),
    ],
)
def test_the_outcome_is_hermes_own(status: str | None, outcome: Outcome) -> None:
    found = result("x", status=status)
    assert found.outcome is outcome
    assert (found.error is not None) == (outcome is Outcome.FAILED)


def test_a_timeout_is_told_from_other_errors() -> None:
    assert result("x", status="error", error_type="TimeoutError").error is ToolErrorCode.TIMED_OUT
    assert result("x", status="error", error_type="ValueError", error_message=CANARY).error is ToolErrorCode.FAILED


def test_the_preview_is_the_telling_part_of_the_result() -> None:
    assert result('{"output": "hello", "exit_code": 0}').preview == "hello"
    assert result('{"exit_code": 0}').preview == '{"exit_code": 0}'
    assert result("no json").preview == "no json"
    assert result("").preview is None


@pytest.mark.parametrize("facts", [{}, {"tool_call_id": ""}, {"tool_call_id": 5, "tool_name": "x"}])
def test_without_a_call_id_there_is_nothing_to_tell(facts: dict[str, Any]) -> None:
    assert tool_start({"tool_name": "x", **facts}, plain) is None
    assert tool_result(facts, plain) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=30,
)


@given(JSON)
def test_whatever_the_arguments_are_they_fit_a_frame(value: object) -> None:
    call = start({"value": value})
    text = json.dumps(call.arguments, allow_nan=False, ensure_ascii=False)
    text.encode()
    for number in numbers(call.arguments):
        assert abs(number) <= MAX_INTEGER
    assert result(value) is not None


def numbers(value: object) -> list[int]:
    if isinstance(value, dict):
        return [n for item in value.values() for n in numbers(item)]
    if isinstance(value, list):
        return [n for item in value for n in numbers(item)]
    return [value] if type(value) is int else []
