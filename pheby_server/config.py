"""The core's settings. Where they come from is the embedder's matter; every value is checked here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from pheby_protocol import limits
from pheby_protocol.ids import Count
from pheby_protocol.messages.connection import Limits

from .event_log import KEEP_EVENTS, KEEP_MS

RETENTION_MS = 7 * 24 * 3_600_000
MIN_SECRET_CHARS = 32
MIN_SECRET_VARIETY = 8


class ConfigError(ValueError):
    """A setting is missing or out of bounds. The text names the setting and what is allowed, never a secret's value."""


def _between(low: int, high: int) -> Callable[[object, attrs.Attribute[int], int], None]:
    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        if type(value) is not int or not low <= value <= high:
            raise ConfigError(f"{attribute.name} must be an integer from {low} to {high}")

    return check


def _number(default: int, low: int, high: int) -> Any:
    return attrs.field(default=default, validator=_between(low, high), metadata={"bounds": (low, high)})


def _flag(_: object, attribute: attrs.Attribute[bool], value: bool) -> None:
    if type(value) is not bool:
        raise ConfigError(f"{attribute.name} must be true or false")


def _folder(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if type(value) is not str or not value.strip() or "\0" in value:
        raise ConfigError(f"{attribute.name} must name a folder")


def check_secret(name: str, value: str | None, *, not_equal: str | None = None) -> str:
    """The secret, when it is strong enough to guard a powerful agent; else ConfigError naming the setting."""
    if not value:
        raise ConfigError(f"{name} is not set; it needs at least {MIN_SECRET_CHARS} random characters")
    if len(value) < MIN_SECRET_CHARS or len(set(value)) < MIN_SECRET_VARIETY:
        raise ConfigError(f"{name} is too weak; it needs at least {MIN_SECRET_CHARS} random characters")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigError(f"{name} may only hold printable ASCII characters without spaces")
    if not_equal and value == not_equal:
        raise ConfigError(f"{name} must not be the same as Hermes's API server key")
    return value


@attrs.frozen(kw_only=True)
class ServerConfig:
    """Settings of one server. Lengths of time in milliseconds, sizes in bytes or code points as named."""

    server_version: str = "0.1.0"
    storage: str = attrs.field(validator=_folder)
    """Folder of pheby.db; made with mode 0700 if absent."""
    max_text_chars: int = _number(limits.MAX_TEXT_CHARS, 1_000, 1_000_000)
    max_frame_bytes: int = _number(limits.MAX_FRAME_BYTES, 16_384, 16_777_216)
    max_server_frame_bytes: int = _number(limits.MAX_SERVER_FRAME_BYTES, 1_048_576, 16_777_216)
    max_pending_requests: int = _number(limits.MAX_PENDING_REQUESTS, 1, 1_024)
    heartbeat_ms: int = _number(limits.HEARTBEAT_MS, 1_000, 600_000)
    hello_deadline_ms: int = _number(limits.HELLO_DEADLINE_MS, 100, 60_000)
    header_deadline_ms: int = _number(10_000, 100, 60_000)
    """So long a connection may take for the head of a request, its first or its next."""
    max_pending_connections: int = _number(256, 8, 10_000)
    """That have not brought a whole request yet; then the one that has waited longest is cut off."""
    max_connections: int = _number(256, 1, 10_000)
    """Sockets of clients; then newcomers get 503."""
    max_requests_per_second: int = _number(100, 1, 10_000)
    """Of one connection, in the long run; beyond it requests are refused, then the connection is closed."""
    request_burst: int = _number(1_000, 1, 100_000)
    """So many requests may come at once, and so many more are refused before the connection is closed."""
    log_events: int = _number(KEEP_EVENTS, 100, 10_000_000)
    """So many events are kept for clients that come back; older ones get a snapshot."""
    log_ms: int = _number(KEEP_MS, 60_000, 365 * 24 * 3_600_000)
    home_conversation: str = ""
    """Where goes what belongs to no conversation, as things for one that was deleted; "" for a new one."""
    retention_ms: int = _number(RETENTION_MS, 60_000, 3_650 * 24 * 3_600_000)
    """So long the files of the agent are kept."""
    max_file_bytes: int = _number(2 * 2**30 + 2**20, 0, 2**40)
    max_files_bytes: int = _number(10 * 2**30, 0, 2**50)
    """All kept files together."""
    outbox_frames: int = _number(4_096, 64, 1_000_000)
    outbox_bytes: int = _number(7_864_320, 2_097_152, 268_435_456)
    """Of live events that wait for one client; of answers half as much."""

    verbose: bool = attrs.field(default=False, validator=_flag)
    """Every frame is logged, its content masked: for the development of a client."""
    log_content: bool = attrs.field(default=False, validator=_flag)
    """With `verbose`: the content too."""
    metrics: bool = attrs.field(default=False, validator=_flag)
    """Whether the counters can be read over HTTP."""

    def __attrs_post_init__(self) -> None:
        if self.max_frame_bytes < 6 * self.max_text_chars + 4_096:
            raise ConfigError("max_frame_bytes must be at least 6 x max_text_chars + 4096")

    def wire_limits(self) -> Limits:
        """The limits as `welcome` announces them."""
        return Limits(
            max_frame_bytes=Count(self.max_frame_bytes),
            max_server_frame_bytes=Count(self.max_server_frame_bytes),
            max_text_chars=Count(self.max_text_chars),
            max_list_limit=Count(limits.MAX_LIST_LIMIT),
            max_history_limit=Count(limits.MAX_HISTORY_LIMIT),
            max_pending_requests=Count(self.max_pending_requests),
        )


OWNER_LIMITS: Final = (
    "max_text_chars",
    "max_frame_bytes",
    "max_server_frame_bytes",
    "max_pending_requests",
    "heartbeat_ms",
    "hello_deadline_ms",
    "header_deadline_ms",
    "max_pending_connections",
    "max_connections",
    "max_requests_per_second",
    "request_burst",
    "log_events",
    "max_file_bytes",
    "max_files_bytes",
    "outbox_frames",
    "outbox_bytes",
)
"""What the owner of a server may set, beside what has a name of its own."""


def bounds(name: str) -> tuple[int, int]:
    """From where to where a limit may go."""
    low, high = attrs.fields_dict(ServerConfig)[name].metadata["bounds"]
    return low, high
