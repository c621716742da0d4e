"""The bounds, and how they hang together."""

from __future__ import annotations

import json

import attrs
import pytest

from pheby_protocol import limits
from pheby_protocol.codec import decode, encode
from pheby_protocol.ids import Seq, Time
from pheby_protocol.messages.connection import Limits
from pheby_protocol.messages.message import IfBusy, Message, MessageCompleted, MessageSend

from .examples import example_of


def test_the_values_that_the_wire_contract_names() -> None:
    assert limits.MAX_INTEGER == 9_007_199_254_740_991
    assert limits.MAX_ID_CHARS == 64
    assert limits.MAX_SERVER_FRAME_BYTES == 1024 * 1024
    assert limits.HELLO_DEADLINE_MS == 10_000
    assert limits.MAX_UNDECODABLE_FRAMES == 10
    assert limits.MAX_TEXT_CHARS >= 100_000


def test_a_close_reason_fits_a_control_frame() -> None:
    """M5."""
    assert limits.MAX_CLOSE_REASON_BYTES == 125 - 2


def test_a_client_frame_has_room_for_any_text() -> None:
    assert limits.MAX_FRAME_BYTES >= 6 * limits.MAX_TEXT_CHARS + 4096


def test_a_default_is_within_its_maximum() -> None:
    assert 0 < limits.DEFAULT_LIST_LIMIT <= limits.MAX_LIST_LIMIT
    assert 0 < limits.DEFAULT_HISTORY_LIMIT <= limits.MAX_HISTORY_LIMIT
    assert limits.MAX_PENDING_REQUESTS > 0


@pytest.mark.parametrize(
    ("character", "ascii_only"),
    [
        ("\x01", False),
        ('"', False),
        ("\\", False),
        ("ä", False),
        ("ä", True),
        ("\u2028", True),
        # Not escaped: printable text is sent as it is, and a pair of escapes would take 12 bytes.
        ("😀", False),
    ],
)
def test_the_longest_text_fits_a_client_frame_however_it_is_written(character: str, ascii_only: bool) -> None:
    send = MessageSend(
        id="x" * limits.MAX_ID_CHARS,
        conversation_id="x" * limits.MAX_ID_CHARS,
        client_message_id="x" * limits.MAX_ID_CHARS,
        text=character * limits.MAX_TEXT_CHARS,
        if_busy=IfBusy.INTERRUPT,
    )
    frame = json.dumps(json.loads(encode(send)), ensure_ascii=ascii_only)
    assert len(frame.encode()) <= limits.MAX_FRAME_BYTES
    assert decode(frame) == send


@pytest.mark.parametrize("character", ["\x01", '"', "ä", "😀"])
def test_the_longest_text_always_fits_a_server_frame(character: str) -> None:
    message = attrs.evolve(example_of(Message, full=True), text=character * 100_000)
    frame = encode(MessageCompleted(seq=Seq(1), time=Time(1), conversation_id=message.conversation_id, message=message))
    assert len(frame.encode()) <= limits.MAX_SERVER_FRAME_BYTES


def test_welcome_announces_every_limit_that_a_client_must_know() -> None:
    """J1."""
    assert {field.name for field in attrs.fields(Limits)} == {
        "max_frame_bytes",
        "max_server_frame_bytes",
        "max_text_chars",
        "max_list_limit",
        "max_history_limit",
        "max_pending_requests",
    }
