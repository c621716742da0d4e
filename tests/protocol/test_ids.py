"""Identifiers and bounded scalars."""

from __future__ import annotations

import json
import re

import pytest

from pheby_protocol import ids
from pheby_protocol.codec import DecodeError, decode
from pheby_protocol.ids import SCALARS, IntegerRule, StringRule, is_id
from pheby_protocol.limits import MAX_ID_CHARS, MAX_INTEGER

STRING_RULES = [rule for rule in SCALARS.values() if isinstance(rule, StringRule)]
INTEGER_RULES = [rule for rule in SCALARS.values() if isinstance(rule, IntegerRule)]
FREE_STRINGS = {"RequestId", "ListCursor"}


@pytest.mark.parametrize("text", ["a", "Z", "0", "_", "-", "conv_01J", "x" * MAX_ID_CHARS])
def test_an_id_is_1_to_64_of_letters_digits_underscore_and_hyphen(text: str) -> None:
    assert is_id(text)


@pytest.mark.parametrize(
    "text",
    ["", "x" * (MAX_ID_CHARS + 1), "a b", "a\n", "\na", "a/b", "a.b", "a:b", "ä", "\u0661", "\uff21", "a\0", "\ud800"],
)
def test_anything_else_is_no_id(text: str) -> None:
    assert not is_id(text)


def test_every_new_type_has_a_rule_of_its_own_name() -> None:
    new_types = {name for name, kind in vars(ids).items() if hasattr(kind, "__supertype__")}
    assert {rule.name for rule in SCALARS.values()} == new_types
    assert all(kind.__name__ == rule.name for kind, rule in SCALARS.items())


def test_every_rule_fits_the_type_that_it_bounds() -> None:
    for kind, rule in SCALARS.items():
        assert kind.__supertype__ is (str if isinstance(rule, StringRule) else int)


@pytest.mark.parametrize("rule", STRING_RULES, ids=lambda rule: rule.name)
def test_opaque_ids_share_one_alphabet(rule: StringRule) -> None:
    if rule.name in FREE_STRINGS:
        assert rule.pattern is None
        return
    assert (rule.min_length, rule.max_length) == (1, 64)
    assert rule.pattern is not None
    for text in ("x", "A-Za-z0-9_-", "x" * 64, "", "x" * 65, "a b", "x\n"):
        assert (re.fullmatch(rule.pattern, text) is not None) == is_id(text)


@pytest.mark.parametrize("rule", INTEGER_RULES, ids=lambda rule: rule.name)
def test_integers_stay_within_what_every_json_reader_keeps_exact(rule: IntegerRule) -> None:
    assert rule.minimum in (0, -1)
    assert rule.maximum == MAX_INTEGER == 2**53 - 1


def test_only_an_index_may_be_minus_one() -> None:
    """-1: no change yet."""
    assert [rule.name for rule in INTEGER_RULES if rule.minimum == -1] == ["Index"]


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("ConversationId", "conv_"),
        ("MessageId", "msg_"),
        ("RunId", "run_"),
        ("ToolCallId", "tool_"),
        ("ApprovalId", "appr_"),
        ("ClarificationId", "clar_"),
        ("AttachmentId", "att_"),
    ],
)
def test_the_documented_prefixes(name: str, prefix: str) -> None:
    (rule,) = (rule for rule in STRING_RULES if rule.name == name)
    assert prefix in rule.description


@pytest.mark.parametrize("request_id", ["1", "c7", "ä ö", "💬", 'a"b', "x" * 64, "😀" * 64])
def test_a_request_id_is_any_1_to_64_characters(request_id: str) -> None:
    message = decode(json.dumps({"type": "ping", "id": request_id}))
    assert message.id == request_id  # type: ignore[union-attr]


@pytest.mark.parametrize("request_id", ["", "x" * 65, "😀" * 65])
def test_a_request_id_of_another_length_is_refused(request_id: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(json.dumps({"type": "ping", "id": request_id}))
    assert caught.value.path == "$.id"
    assert caught.value.request_id is None
