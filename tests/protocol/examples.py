"""Examples of every protocol message, built from the attrs classes, and every way to spoil one field of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from pheby_protocol.codec import UnknownMessage
from pheby_protocol.ids import SCALARS, IntegerRule, StringRule
from pheby_protocol.messages._base import Event, JsonObject, Message
from pheby_protocol.messages.connection import ServerDraining
from pheby_protocol.messages.conversation import ConversationDeleted
from pheby_protocol.open_enum import OpenEnum
from pheby_protocol.registry import REGISTRY

TRICKY_TEXT = 'Grüße "\\/" \u2028\u202e\x7f\t\n 😀 \U0010ffff'
JSON_CONTENT = {"path": "a/b", "deep": {"list": [1, -2.5, None, True, "x", [], {}]}, "": TRICKY_TEXT}

Path = tuple[str | int, ...]


def words(text: str) -> tuple[str, ...]:
    """The words of a text, so that a list of the wire contract can stand in a test as it is written there."""
    return tuple(text.split())


# -- types


def inner_type(annotation: Any) -> Any:
    """The type without its `| None`."""
    if get_origin(annotation) in (Union, UnionType):
        (inner,) = (part for part in get_args(annotation) if part is not NoneType)
        return inner
    return annotation


def field_types(cls: type[Any]) -> dict[str, Any]:
    """Field name to type, `| None` removed."""
    hints = get_type_hints(cls)
    return {field.name: inner_type(hints[field.name]) for field in attrs.fields(cls)}


def is_required(cls: type[Any], name: str) -> bool:
    return attrs.fields_dict(cls)[name].default is attrs.NOTHING


def nested_classes(cls: type[Any]) -> set[type[Any]]:
    """The class and every attrs class and enumeration that it holds, however deep."""
    found: set[type[Any]] = set()
    waiting: list[Any] = [cls]
    while waiting:
        item = waiting.pop()
        if get_args(item):
            waiting += get_args(item)
        elif isinstance(item, type) and item not in found and (attrs.has(item) or issubclass(item, Enum)):
            found.add(item)
            waiting += field_types(item).values() if attrs.has(item) else []
    return found


ALL_CLASSES: frozenset[type[Any]] = frozenset().union(*(nested_classes(spec.cls) for spec in REGISTRY.values()))


# -- examples


def _value(kind: Any, full: bool, default: object) -> Any:
    """The least or the fullest value of a type; a full one is never the default."""
    rule = SCALARS.get(kind)
    if isinstance(rule, StringRule):
        if not full:
            return "a" * rule.min_length
        return ("Z-_9" if rule.pattern else TRICKY_TEXT).ljust(rule.max_length, "x")
    if isinstance(rule, IntegerRule):
        return rule.maximum if full else rule.minimum
    if kind is JsonObject:
        return JSON_CONTENT if full else {}
    if kind is bool:
        return full
    if kind is int:
        return 2**53 - 1 if full else -(2**53 - 1)
    if kind is str:
        return TRICKY_TEXT if full else ""
    if kind is Event:
        return (
            ServerDraining(reconnect_after_ms=1)
            if full
            else ConversationDeleted(seq=7, time=1, conversation_id="conv_1")
        )
    if get_origin(kind) is tuple:
        return tuple(_value(get_args(kind)[0], part, None) for part in (False, True)) if full else ()
    if get_origin(kind) is Mapping:
        return {"batch": True, "future": False} if full else {}
    if issubclass(kind, Enum):
        return next(member for member in reversed(kind) if member != default) if full else next(iter(kind))
    return example_of(kind, full=full)


def example_of(cls: type[Any], *, full: bool) -> Any:
    """An instance with every field, or with the required ones alone."""
    return cls(
        **{
            name: _value(kind, full, attrs.fields_dict(cls)[name].default)
            for name, kind in field_types(cls).items()
            if full or is_required(cls, name)
        }
    )


def plain(value: Any) -> Any:
    """The JSON value of an example, written here anew so that the codec does not check itself."""
    if isinstance(value, UnknownMessage):
        return dict(value.content)
    if attrs.has(type(value)):
        tag = {"type": value.type} if isinstance(value, Message) else {}
        fields = [field for field in attrs.fields(type(value)) if getattr(value, field.name) != field.default]
        return tag | {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def frame_of(message: Any) -> dict[str, Any]:
    """An example as a frame's JSON object."""
    frame = plain(message)
    assert isinstance(frame, dict)
    return frame


TYPES: tuple[str, ...] = tuple(REGISTRY)
MINIMAL: dict[str, Message] = {tag: example_of(spec.cls, full=False) for tag, spec in REGISTRY.items()}
MAXIMAL: dict[str, Message] = {tag: example_of(spec.cls, full=True) for tag, spec in REGISTRY.items()}


def text_of(frame: object) -> str:
    """JSON text that escapes nothing printable, as a peer of another make may write it."""
    return json.dumps(frame, ensure_ascii=False)


# -- spoiling one field


@attrs.frozen
class Place:
    """One value inside a frame: where it is, what type it has, whether it may be absent."""

    path: Path
    kind: Any
    required: bool
    is_field: bool

    @property
    def written(self) -> str:
        """As a DecodeError names it."""
        return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)


def places(cls: type[Any], frame: Mapping[str, Any], path: Path = ()) -> Iterator[Place]:
    """Every field of the frame and, of each list, the last item."""
    for name, kind in field_types(cls).items():
        if name in frame:
            yield from _places_below(Place((*path, name), kind, is_required(cls, name), True), frame[name])


def _places_below(place: Place, value: Any) -> Iterator[Place]:
    yield place
    if get_origin(place.kind) is tuple and value:
        item = Place((*place.path, len(value) - 1), get_args(place.kind)[0], True, False)
        yield from _places_below(item, value[-1])
    elif place.kind is not Event and attrs.has(place.kind):
        yield from places(place.kind, value, place.path)


def changed(frame: Any, path: Path, value: object) -> Any:
    """A copy of the frame with another value at one place."""
    if not path:
        return value
    copy = frame.copy()
    copy[path[0]] = changed(frame[path[0]] if isinstance(path[0], int) else frame.get(path[0]), path[1:], value)
    return copy


def without(frame: Any, path: Path) -> Any:
    """A copy of the frame without one field."""
    copy = frame.copy()
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(frame[path[0]], path[1:])
    return copy


_OF_EVERY_JSON_TYPE: tuple[Any, ...] = (True, 0, 1, 7, 1.0, 1.5, "", "7", "true", [], [1], ["a"], {}, {"a": 1})


def _good_json_types(kind: Any) -> tuple[type[Any], ...]:
    rule = SCALARS.get(kind)
    if kind is str or isinstance(rule, StringRule):
        return (str,)
    if kind is int or isinstance(rule, IntegerRule):
        return (int,)
    if kind is bool:
        return (bool,)
    if get_origin(kind) is tuple:
        return (list,)
    if kind is not JsonObject and isinstance(kind, type) and issubclass(kind, Enum):
        return (str,)
    return (dict,)


def bad_values(place: Place) -> Iterator[Any]:
    """Values that this place must refuse, null (for what is required) among them."""
    good = _good_json_types(place.kind)
    yield from (value for value in _OF_EVERY_JSON_TYPE if type(value) not in good)
    if place.required:
        yield None
    rule = SCALARS.get(place.kind)
    if isinstance(rule, StringRule):
        yield "a" * (rule.max_length + 1)
        yield "" if rule.min_length else None
        if rule.pattern:
            yield from ("a b", "a.b", "ä", "a\n", "\n", "a/b", "a\u0661", " ")
    elif isinstance(rule, IntegerRule):
        yield rule.minimum - 1
    elif place.kind is Event:
        yield from ({"type": 5}, {"type": ""}, {"type": "ping", "id": "1"}, {"type": "batch", "events": []})
    elif isinstance(place.kind, type) and issubclass(place.kind, Enum) and not issubclass(place.kind, OpenEnum):
        yield from ("future", "", next(iter(place.kind)).value.upper(), next(iter(place.kind)).value + " ")
