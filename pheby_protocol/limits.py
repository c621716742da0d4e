"""Every bound of the protocol in one place. Sizes in bytes or code points as named, times in milliseconds."""

from __future__ import annotations

from typing import Final

MAX_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exact (RFC 8259, section 6)."""
MAX_DEPTH: Final = 32
"""Nesting of objects and arrays in one frame."""
MAX_ID_CHARS: Final = 64
MAX_TITLE_CHARS: Final = 100
"""Hermes's own bound for a session title."""
MAX_NAME_CHARS: Final = 200

MAX_TEXT_CHARS: Final = 100_000
"""Code points of one message text that a client may send; at least this much text always fits a server frame."""
MAX_FRAME_BYTES: Final = 1_048_576
"""Client to server. At least 6 x MAX_TEXT_CHARS + 4096, so that any text fits, escaped as JSON must escape it."""
MAX_SERVER_FRAME_BYTES: Final = 1_048_576
MAX_LIST_LIMIT: Final = 100
DEFAULT_LIST_LIMIT: Final = 50
MAX_HISTORY_LIMIT: Final = 200
DEFAULT_HISTORY_LIMIT: Final = 50
MAX_PENDING_REQUESTS: Final = 64

HEARTBEAT_MS: Final = 30_000
HELLO_DEADLINE_MS: Final = 10_000
MAX_UNDECODABLE_FRAMES: Final = 10
"""In a row; then the connection is closed with 4400."""
MAX_CLOSE_REASON_BYTES: Final = 123
"""RFC 6455, section 5.5: a control frame carries 125 bytes, two of them the code."""
PREVIEW_CHARS: Final = 200
"""Code points of a conversation's last-message preview."""
