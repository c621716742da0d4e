"""How much of a value of Hermes's is kept at all. Imported by the hooks, so it imports nothing of Pheby's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MAX_RAW_CHARS: Final = 20_000
"""Of one value, before it is redacted: more would be work for nothing."""
MAX_ITEMS: Final = 64
MAX_DEPTH: Final = 6


def bounded(value: object, depth: int = 0) -> object:
    """A copy of a JSON-like value that is small enough to be kept: made in the hook's thread, while Hermes waits."""
    if isinstance(value, str):
        return value[:MAX_RAW_CHARS]
    if isinstance(value, bool | int | float | type(None)):
        return value
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {str(key)[:100]: bounded(item, depth + 1) for key, item in list(value.items())[: MAX_ITEMS + 1]}
    if isinstance(value, list | tuple):
        return [bounded(item, depth + 1) for item in list(value)[: MAX_ITEMS + 1]]
    return type(value).__name__
