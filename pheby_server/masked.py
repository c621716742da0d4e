"""A frame as it may be logged: its shape, its ids and its numbers, not what it says."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from typing import Any, Final

import attrs

from pheby_protocol.capabilities import SERVER_CAPABILITIES
from pheby_protocol.ids import is_id
from pheby_protocol.registry import REGISTRY

MAX_ITEMS: Final = 20
_OPEN: Final = frozenset({"arguments"})
"""Objects with names of their own."""
_WORDS: Final = frozenset(
    {
        "access_mode",
        "code",
        "decision",
        "delivery",
        "disposition",
        "if_busy",
        "kind",
        "origin",
        "role",
        "status",
    }
)
"""Fields that hold one of a few words."""
_WORD: Final = re.compile(r"[a-z][a-z_.]{0,39}")


def masked(frame: str) -> str:
    """The frame with every text in it replaced by its length."""
    try:
        return json.dumps(_masked("", json.loads(frame)))
    except (ValueError, RecursionError):
        return f"<{len(frame)} characters that are not JSON>"


def _masked(name: str, value: Any) -> Any:
    match value:
        case dict() if name in _OPEN:
            return f"<{len(value)} fields>"
        case dict():
            return {key if key in _names() else "<unknown>": _masked(key, each) for key, each in value.items()}
        case list():
            more = [f"<{len(value) - MAX_ITEMS} more>"] if len(value) > MAX_ITEMS else []
            return [_masked(name, each) for each in value[:MAX_ITEMS]] + more
        case str():
            return value if _may_be_shown(name, value) else f"<{len(value)} characters>"
        case _:
            return value if name in _names() else "<value>"


def _may_be_shown(name: str, text: str) -> bool:
    if name == "type":
        return text in REGISTRY
    if name in _WORDS:
        return _WORD.fullmatch(text) is not None
    return (name in ("id", "epoch") or name.endswith(("_id", "_ids"))) and is_id(text)


@cache
def _names() -> frozenset[str]:
    """Every field of the protocol."""
    modules = {sys.modules[spec.cls.__module__] for spec in REGISTRY.values()}
    classes = [found for module in modules for found in vars(module).values() if isinstance(found, type)]
    return frozenset(
        {"type", *SERVER_CAPABILITIES}.union(
            field.name for found in classes if attrs.has(found) for field in attrs.fields(found)
        )
    )
