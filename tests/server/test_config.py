"""Settings are checked and a bad one is named (R-K1, K2)."""

from __future__ import annotations

from typing import Any

import pytest

from pheby_protocol import limits
from pheby_server.config import ConfigError, ServerConfig, check_secret

GOOD = "k7-0123456789abcdef-0123456789abcdef"


def test_the_defaults_are_the_protocols() -> None:
    wire = ServerConfig(storage="folder").wire_limits()
    assert wire.max_frame_bytes == limits.MAX_FRAME_BYTES
    assert wire.max_server_frame_bytes == limits.MAX_SERVER_FRAME_BYTES
    assert wire.max_text_chars == limits.MAX_TEXT_CHARS
    assert wire.max_list_limit == limits.MAX_LIST_LIMIT
    assert wire.max_history_limit == limits.MAX_HISTORY_LIMIT
    assert wire.max_pending_requests == limits.MAX_PENDING_REQUESTS


def test_the_limits_announced_are_the_ones_set() -> None:
    config = ServerConfig(storage="folder", max_text_chars=1_000, max_frame_bytes=20_000, max_pending_requests=3)
    wire = config.wire_limits()
    assert (wire.max_text_chars, wire.max_frame_bytes, wire.max_pending_requests) == (1_000, 20_000, 3)


BOUNDS = {
    "max_text_chars": (1_000, 1_000_000),
    "max_frame_bytes": (16_384, 16_777_216),
    "max_server_frame_bytes": (1_048_576, 16_777_216),
    "max_pending_requests": (1, 1_024),
    "heartbeat_ms": (1_000, 600_000),
    "hello_deadline_ms": (100, 60_000),
    "outbox_frames": (64, 1_000_000),
    "outbox_bytes": (2_097_152, 268_435_456),
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, (low, high) in BOUNDS.items() for value in (low - 1, high + 1, True, 1.5, "5", None)],
)
def test_a_number_out_of_bounds_is_refused_by_name(name: str, value: object) -> None:
    wrong: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        ServerConfig(storage="folder", **wrong)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, bounds in BOUNDS.items() if name != "max_frame_bytes" for value in bounds],
)
def test_the_bounds_themselves_are_allowed(name: str, value: int) -> None:
    right: dict[str, Any] = {name: value}
    config = ServerConfig(storage="folder", **{"max_frame_bytes": 16_777_216, **right})
    assert getattr(config, name) == value


def test_a_frame_must_hold_any_text_that_may_be_sent_however_it_is_escaped() -> None:
    assert ServerConfig(storage="folder", max_text_chars=10_000, max_frame_bytes=64_096)
    with pytest.raises(ConfigError, match="max_frame_bytes"):
        ServerConfig(storage="folder", max_text_chars=10_000, max_frame_bytes=64_095)


@pytest.mark.parametrize("folder", ["", "  ", "a\0b", None, 5])
def test_the_storage_folder_must_be_named(folder: Any) -> None:
    with pytest.raises(ConfigError, match="storage"):
        ServerConfig(storage=folder)


def test_a_strong_secret_is_returned_as_it_is() -> None:
    assert check_secret("PHEBY_SECRET", GOOD) == GOOD


@pytest.mark.parametrize(
    "value",
    [None, "", "abc", "x" * 64, GOOD[:31], "1212" * 16, GOOD + " ", GOOD + "\n", GOOD + "é", " " + GOOD, GOOD + "\x7f"],
)
def test_a_weak_or_unusable_secret_is_refused_by_name_and_not_repeated(value: str | None) -> None:
    with pytest.raises(ConfigError, match="PHEBY_SECRET") as caught:
        check_secret("PHEBY_SECRET", value)
    assert not value or value not in str(caught.value)


def test_hermess_own_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="API server key"):
        check_secret("PHEBY_SECRET", GOOD, not_equal=GOOD)
    assert check_secret("PHEBY_SECRET", GOOD, not_equal="") == GOOD
    assert check_secret("PHEBY_SECRET", GOOD, not_equal=GOOD + "x") == GOOD
