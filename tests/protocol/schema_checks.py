"""The exported JSON Schema as a judge of frames, beside the codec."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError, validators

from pheby_protocol.export.json_schema import bundle
from pheby_protocol.export.metamodel import metamodel

MODEL = metamodel()
BUNDLE = bundle(MODEL)
NAMES = {message["type"]: message["name"] for message in MODEL["messages"]}


def _pattern(_: Any, pattern: str, instance: object, __: object) -> Iterator[ValidationError]:
    # In JSON Schema `$` is the very end; in Python it may stand before a last line feed.
    if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), instance):
        yield ValidationError("does not match the pattern")


Judge: Any = validators.extend(Draft202012Validator, {"pattern": _pattern})


@cache
def judge(name: str) -> Any:
    """A validator for one type of the bundle."""
    return Judge({"$ref": f"#/$defs/{name}", "$defs": BUNDLE["$defs"]})


def schema_allows(frame: object) -> bool:
    """What the schema of the frame's own type says, or that of unknown frames."""
    tag = frame.get("type") if isinstance(frame, dict) else None
    return bool(judge(NAMES.get(tag, "UnknownFrame") if isinstance(tag, str) else "UnknownFrame").is_valid(frame))


def parts(value: object) -> Iterator[object]:
    """A JSON value and every value in it."""
    yield value
    if isinstance(value, dict):
        for item in value.values():
            yield from parts(item)
    elif isinstance(value, list):
        for item in value:
            yield from parts(item)


def differs_by_design(frame: object) -> bool:
    """Null for an optional field, and 1.0 for an integer: documented, and decided by the codec."""
    return any(
        (isinstance(part, dict) and None in part.values()) or (isinstance(part, float) and part.is_integer())
        for part in parts(frame)
    )
