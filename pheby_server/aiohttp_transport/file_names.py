"""Content-Disposition for any file name (RFC 6266, RFC 8187)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import quote

MAX_CHARS: Final = 300
MAX_BYTES: Final = 900
"""In UTF-8, which a header holds at three times that: with the other headers it fits the 4 KiB that proxies allow."""
_MAX_FALLBACK_CHARS: Final = 100
_MAX_ENDING_CHARS: Final = 16
_NAMELESS: Final = "attachment"

_SEPARATORS: Final = frozenset('"\\/')
_REMOVED_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTIONS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_NOT_PLAIN: Final = re.compile(r"[^\x20-\x24\x26-\x7e]")
"""A percent sign is not: some programs would decode what follows it."""
_UNQUOTED: Final = "!#$&+^`|"
"""With what `quote` leaves alone anyway: attr-char of RFC 8187."""


def content_disposition(file_name: str, *, inline: bool) -> str:
    """The header's value: how the file is to be shown, and under which name it may be saved."""
    name = safe_name(file_name)
    fallback = _NOT_PLAIN.sub("_", _cut(name, _MAX_FALLBACK_CHARS, MAX_BYTES))
    kind = "inline" if inline else "attachment"
    return f"{kind}; filename=\"{fallback}\"; filename*=UTF-8''{quote(name, safe=_UNQUOTED)}"


def safe_name(file_name: str) -> str:
    """The name without what ends a header, leads to another folder or reads as another name; never empty."""
    name = "".join(char for char in file_name if _is_kept(char)).strip()
    if not name.strip("."):
        return _NAMELESS
    return _cut(name, MAX_CHARS, MAX_BYTES)


def _is_kept(char: str) -> bool:
    return not (char in _SEPARATORS or char in _DIRECTIONS or unicodedata.category(char) in _REMOVED_CATEGORIES)


def _cut(name: str, max_chars: int, max_bytes: int) -> str:
    """The name with its ending, the middle shortened to fit."""
    stem, dot, ending = name.rpartition(".")
    if not dot or len(ending) > _MAX_ENDING_CHARS:
        stem, ending = name, ""
    else:
        ending = dot + ending
    stem = stem[: max_chars - len(ending)]
    while len((stem + ending).encode()) > max_bytes:
        stem = stem[:-1]
    return stem + ending
