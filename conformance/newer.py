"""What a server of a later version says besides: fields, capabilities, limits, events that version 1 does not know."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

_NAME: Final = "from_a_later_version"
_VALUES: Final[dict[str, object]] = {"capabilities": True, "limits": 7}
_FREE: Final = ("arguments",)
"""Whatever is in them is shown: nothing of it is unknown."""


def as_newer(frame: Json) -> list[Json]:
    """A server's frame with what a later version may add to it, and before a logged event one of an unknown type."""
    found = [_with_more(frame)]
    if "seq" in frame and "time" in frame:
        unknown = {"type": f"{_NAME}.happened", "conversation_id": frame.get("conversation_id"), "much": [None, 1.5]}
        found.insert(0, unknown)
    return found


def _with_more(value: Any, name: str = "") -> Any:
    if isinstance(value, dict) and name not in _FREE:
        more = {key: _with_more(item, key) for key, item in value.items()}
        return more | {_NAME: _VALUES.get(name, {"deep": [None, {"type": "x"}]})}
    return [_with_more(item) for item in value] if isinstance(value, list) and name not in _FREE else value
