"""A frame as it is logged without `log_content`: its shape, its ids and its numbers, not what it says (R-L1)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pheby_protocol.export.examples import examples
from pheby_protocol.export.metamodel import metamodel
from pheby_server.masked import MAX_ITEMS, masked

CANARY = "hunter two, in the owner's words"
FRAMES: dict[str, Any] = {frame["type"]: frame for frame in examples(metamodel()).values() if "type" in frame}


def spoiled(value: Any) -> Any:
    """The frame with the canary for every text that says something."""
    match value:
        case dict():
            return {name: each if name == "type" else spoiled(each) for name, each in value.items()}
        case list():
            return [spoiled(each) for each in value]
        case str():
            return CANARY
        case _:
            return value


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_no_text_of_any_message_is_shown(frame: dict[str, Any]) -> None:
    """R-L1: neither in a field that holds an id by rule."""
    shown = masked(json.dumps(spoiled(frame)))
    assert "hunter" not in shown
    assert json.loads(shown)["type"] == frame["type"]


def test_what_a_client_developer_needs_is_shown() -> None:
    frame = {
        "type": "message.created",
        "seq": 7,
        "conversation_id": "conv_1",
        "message": {"message_id": "msg_1", "role": "assistant", "status": "streaming", "text": "words", "final": True},
    }
    shown = json.loads(masked(json.dumps(frame)))
    assert shown == frame | {"message": frame["message"] | {"text": "<5 characters>"}}  # type: ignore[operator]


@pytest.mark.parametrize("hidden", ["hunter_two", "hunter.two"])
def test_a_name_that_is_none_of_the_protocols_is_not_shown(hidden: str) -> None:
    shown = masked(
        json.dumps({"type": "ping", hidden: 1, "client": {hidden: {hidden: hidden}}, "arguments": {hidden: 5}})
    )
    assert "hunter" not in shown
    assert "<1 fields>" in shown


@pytest.mark.parametrize("frame", ["", "hunter", "{", "[" * 100_000, '{"a": hunter}', "7" * 5_000])
def test_what_is_no_frame_is_told_by_its_length(frame: str) -> None:
    assert masked(frame) == f"<{len(frame)} characters that are not JSON>"


def test_a_type_that_is_none_is_not_shown() -> None:
    assert "hunter" not in masked('{"type": "hunter"}')


@pytest.mark.parametrize("frame", ["12345", "null", '"hunter"', "[12345]"])
def test_what_is_no_object_is_not_shown(frame: str) -> None:
    assert "12345" not in masked(frame)
    assert "hunter" not in masked(frame)


def test_long_lists_are_cut() -> None:
    shown = json.loads(masked(json.dumps({"type": "snapshot", "conversations": [{}] * 1_000})))
    assert len(shown["conversations"]) == MAX_ITEMS + 1


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(anything)
def test_anything_can_be_masked(value: Any) -> None:
    assert isinstance(masked(json.dumps(value)), str)
