"""Text to message and back. Strict: nothing is coerced, and every failure is one typed error."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from types import GenericAlias, NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn

from .ids import SCALARS, IntegerRule, RequestId, StringRule
from .limits import MAX_DEPTH, MAX_ID_CHARS, MAX_INTEGER
from .messages._base import Event, JsonObject, Message
from .registry import REGISTRY, Kind

T = TypeVar("T")


class Flaw(StrEnum):
    """What was wrong with a frame."""

    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    DUPLICATE_KEY = "duplicate_key"
    NUMBER = "number_out_of_range"
    TOO_DEEP = "too_deep"
    SURROGATE = "lone_surrogate"
    NUL = "nul_character"
    NO_TYPE = "no_type"
    FIELD = "bad_field"


class DecodeError(Exception):
    """A frame could not be decoded. `path` says where, `request_id` which request it was, when that much could be read.

    The text names fields and expectations, never a value.
    """

    def __init__(self, flaw: Flaw, path: str = "$", expected: str = "", request_id: RequestId | None = None) -> None:
        super().__init__(f"{flaw.value} at {path}" + (f": expected {expected}" if expected else ""))
        self.flaw = flaw
        self.path = path
        self.expected = expected
        self.request_id = request_id


class EncodeError(Exception):
    """A message holds something that no frame can carry."""


@attrs.frozen
class UnknownMessage:
    """A well-formed frame of a type that this version does not know. A receiver skips it; its `seq` still counts."""

    type: str
    content: Mapping[str, object]

    @property
    def request_id(self) -> RequestId | None:
        return _request_id(self.content)

    @property
    def seq(self) -> int | None:
        seq = self.content.get("seq")
        return seq if type(seq) is int and seq >= 0 else None


class _FieldError(Exception):
    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected


def _string(value: object, _: object) -> str:
    if type(value) is not str:
        raise _FieldError("a string")
    return value


def _integer(value: object, _: object) -> int:
    if type(value) is not int:
        raise _FieldError("an integer")
    return value


def _boolean(value: object, _: object) -> bool:
    if type(value) is not bool:
        raise _FieldError("true or false")
    return value


def _object(value: object, _: object) -> Mapping[str, object]:
    if type(value) is not dict:
        raise _FieldError("an object")
    return value


def _string_rule(rule: StringRule) -> Callable[[object, object], str]:
    matches = re.compile(rule.pattern).fullmatch if rule.pattern else None
    shortest, longest = rule.min_length, rule.max_length

    def structure(value: object, _: object) -> str:
        if type(value) is not str:
            raise _FieldError("a string")
        if not shortest <= len(value) <= longest:
            raise _FieldError(f"{shortest} to {longest} characters")
        if matches is not None and matches(value) is None:
            raise _FieldError(f"text that matches {rule.pattern}")
        return value

    return structure


def _integer_rule(rule: IntegerRule) -> Callable[[object, object], int]:
    lowest, highest = rule.minimum, rule.maximum

    def structure(value: object, _: object) -> int:
        if type(value) is not int:
            raise _FieldError("an integer")
        if not lowest <= value <= highest:
            raise _FieldError(f"an integer from {lowest} to {highest}")
        return value

    return structure


def _enum(value: object, cls: type[StrEnum]) -> StrEnum:
    if type(value) is not str:
        raise _FieldError("a string")
    known = cls._value2member_map_.get(value)
    if known is not None:
        return cast("StrEnum", known)
    try:
        return cls(value)
    except ValueError:
        raise _FieldError("one of " + ", ".join(cls)) from None


def _origin(cls: Any) -> object:
    return get_origin(cls)


def _is_optional(cls: Any) -> bool:
    return _origin(cls) in (Union, UnionType) and len(get_args(cls)) == 2 and NoneType in get_args(cls)


def _make_converter(*, detailed: bool) -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=detailed, omit_if_default=True)
    # By class: cattrs's own hooks for str and int, which coerce, go before any that a predicate chooses. The hook of
    # the nearest class serves: bool is not taken for an int, nor an enumeration for any string.
    for plain, check in ((str, _string), (int, _integer), (bool, _boolean), (JsonObject, _object), (StrEnum, _enum)):
        converter.register_structure_hook(plain, check)
    converter.register_unstructure_hook(StrEnum, operator.attrgetter("value"))
    for scalar, rule in SCALARS.items():
        hook = _string_rule(rule) if isinstance(rule, StringRule) else _integer_rule(rule)
        converter.register_structure_hook(scalar, hook)

    def arrays(cls: Any) -> Callable[[object, object], tuple[Any, ...]]:
        items: Any = GenericAlias(list, get_args(cls)[:1])
        hook = converter.get_structure_hook(items)

        def structure(value: object, _: object) -> tuple[Any, ...]:
            if type(value) is not list:
                raise _FieldError("an array")
            return tuple(hook(value, items))

        return structure

    def maps(cls: Any) -> Callable[[object, object], dict[str, Any]]:
        items: Any = GenericAlias(dict, get_args(cls))
        hook = converter.get_structure_hook(items)

        def structure(value: object, _: object) -> dict[str, Any]:
            if type(value) is not dict:
                raise _FieldError("an object")
            return cast("dict[str, Any]", hook(value, items))

        return structure

    def optionals(cls: Any) -> Callable[[object, object], Any]:
        # cattrs looks for the hook at every value.
        (item,) = (each for each in get_args(cls) if each is not NoneType)
        hook = converter.get_structure_hook(item)
        return lambda value, _: None if value is None else hook(value, item)

    def objects(cls: type[Any]) -> Callable[[object, object], Any]:
        hook = make_dict_structure_fn(cls, converter)

        def structure(value: object, _: object) -> Any:
            if type(value) is not dict:
                raise _FieldError("an object")
            # Absent and null mean the same (wire contract, section 2).
            if None in value.values():
                value = {key: item for key, item in value.items() if item is not None}
            return hook(value, cls)

        return structure

    converter.register_structure_hook_factory(_is_optional, optionals)
    converter.register_structure_hook_factory(lambda cls: _origin(cls) is tuple, arrays)
    converter.register_structure_hook_factory(lambda cls: _origin(cls) is Mapping, maps)
    converter.register_structure_hook_factory(attrs.has, objects)
    # A batch holds events of any type, unknown ones too.
    is_any_event = partial(operator.is_, Event)
    converter.register_structure_hook_func(is_any_event, lambda value, _: _structure_event(value, converter))
    converter.register_unstructure_hook_func(is_any_event, lambda event: _unstructure_tagged(event, converter))
    return converter


def _structure_tagged(value: object, converter: cattrs.Converter) -> Message | UnknownMessage:
    if type(value) is not dict:
        raise _FieldError("an object")
    tag = value.get("type")
    if type(tag) is not str or not tag:
        raise _FieldError("a type")
    spec = REGISTRY.get(tag)
    if spec is None:
        return UnknownMessage(tag, value)
    return converter.structure(value, spec.cls)


def _structure_event(value: object, converter: cattrs.Converter) -> Message | UnknownMessage:
    spec = REGISTRY.get(value["type"]) if type(value) is dict and type(value.get("type")) is str else None
    if spec is not None and spec.kind not in (Kind.LOGGED_EVENT, Kind.TRANSIENT_EVENT):
        raise _FieldError("an event")
    return _structure_tagged(value, converter)


def _unstructure_tagged(message: Message | UnknownMessage, converter: cattrs.Converter) -> dict[str, Any]:
    if isinstance(message, UnknownMessage):
        return dict(message.content)
    return {"type": message.type, **converter.unstructure(message, type(message))}


_FAST = _make_converter(detailed=False)
_DETAILED = _make_converter(detailed=True)
"""Slow, but knows where it failed: used only to explain a failure of the fast one."""


def _explain(value: object) -> tuple[str, str]:
    """Path and expectation of the first flaw."""
    try:
        _structure_tagged(value, _DETAILED)
    except Exception as error:  # noqa: BLE001 - whatever it is becomes one typed error
        return _first_flaw(error, "$")
    return "$", ""


def _first_flaw(error: BaseException, path: str) -> tuple[str, str]:
    if isinstance(error, cattrs.ClassValidationError):
        inner, note = error.group_exceptions()[0][0]
        return _first_flaw(inner, f"{path}.{note.name}")
    if isinstance(error, cattrs.IterableValidationError):
        inner, place = error.group_exceptions()[0][0]
        return _first_flaw(inner, f"{path}[{place.index}]" if isinstance(place.index, int) else path)
    if isinstance(error, _FieldError):
        return path, error.expected
    return path, "a value" if isinstance(error, KeyError) else ""


class _FlawError(Exception):
    def __init__(self, flaw: Flaw) -> None:
        super().__init__(flaw.value)
        self.flaw = flaw


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _FlawError(Flaw.DUPLICATE_KEY)
    return found


def _bounded_integer(digits: str) -> int:
    if len(digits) > 17 or not -MAX_INTEGER <= (number := int(digits)) <= MAX_INTEGER:
        raise _FlawError(Flaw.NUMBER)
    return number


def _no_constant(_: str) -> object:
    raise _FlawError(Flaw.NUMBER)


def _finite(digits: str) -> float:
    number = float(digits)
    if number - number != 0.0:
        raise _FlawError(Flaw.NUMBER)
    return number


_READER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_int=_bounded_integer, parse_float=_finite, parse_constant=_no_constant
)
_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_SUSPECT_ESCAPE = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")


def _too_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return False
        level = below
    return any(isinstance(item, dict | list) for item in level)


def _strings(value: object) -> list[str]:
    """Every string in a value that is not too deep, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *_strings(item))]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return []


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _request_id(frame: Mapping[str, object]) -> RequestId | None:
    value = frame.get("id")
    return RequestId(value) if type(value) is str and 1 <= len(value) <= MAX_ID_CHARS else None


def parse(text: str) -> dict[str, object]:
    """Read one frame's JSON object: no duplicate keys, no inexact number, bounded depth, text that UTF-8 can carry."""
    try:
        value = _READER.decode(text)
    except _FlawError as error:
        raise DecodeError(error.flaw, request_id=_clean_request_id(loosely(text, error.flaw))) from None
    except RecursionError:
        raise DecodeError(Flaw.TOO_DEEP) from None
    except ValueError:
        raise DecodeError(Flaw.NOT_JSON) from None
    if type(value) is not dict:
        raise DecodeError(Flaw.NOT_AN_OBJECT)
    # Counting brackets is cheap and never too low, so ordinary frames are not walked.
    if text.count("{") + text.count("[") > MAX_DEPTH and _too_deep(value):
        raise DecodeError(Flaw.TOO_DEEP, request_id=_clean_request_id(value))
    if not _is_encodable(text) or _SUSPECT_ESCAPE.search(text):
        for string in _strings(value):
            if not _is_encodable(string):
                raise DecodeError(Flaw.SURROGATE, request_id=_clean_request_id(value))
            if "\0" in string:
                raise DecodeError(Flaw.NUL, request_id=_clean_request_id(value))
    return value


def loosely(text: str, flaw: Flaw) -> dict[str, object]:
    """What can be read of a frame whose one fault is a number that is no exact one; else nothing. For its id only."""
    if flaw is not Flaw.NUMBER:
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys)
    except (_FlawError, RecursionError, ValueError):
        return {}
    return value if type(value) is dict else {}


def _clean_request_id(value: Mapping[str, object]) -> RequestId | None:
    found = _request_id(value)
    return found if found is not None and _is_encodable(found) and "\0" not in found else None


def decode(text: str) -> Message | UnknownMessage:
    """Decode one frame. Raises DecodeError and nothing else, whatever the text."""
    return structure(parse(text))


def structure(frame: Mapping[str, object]) -> Message | UnknownMessage:
    """Turn a parsed frame into its message. Raises DecodeError."""
    tag = frame.get("type")
    if type(tag) is not str or not tag:
        raise DecodeError(Flaw.NO_TYPE, "$.type", "a string", _request_id(frame))
    try:
        return _structure_tagged(frame, _FAST)
    except Exception:  # noqa: BLE001 - whatever it is becomes one typed error
        path, expected = _explain(frame)
        raise DecodeError(Flaw.FIELD, path, expected, _request_id(frame)) from None


def unstructure(message: Message | UnknownMessage) -> dict[str, Any]:
    """The JSON object of a message, absent fields left out."""
    return _unstructure_tagged(message, _FAST)


def unstructure_object(value: object) -> Any:
    """One protocol object (a conversation, a message, a run …) as JSON values, absent fields left out."""
    return _FAST.unstructure(value)


def encode_object(value: object) -> str:
    """One protocol object as compact JSON, for storage."""
    return _WRITER.encode(unstructure_object(value))


def decode_object(text: str, cls: type[T]) -> T:
    """Read back what `encode_object` wrote. Raises DecodeError."""
    try:
        return _FAST.structure(json.loads(text), cls)
    except Exception:  # noqa: BLE001 - whatever it is becomes one typed error
        raise DecodeError(Flaw.FIELD, expected=cls.__name__) from None


def encode(message: Message | UnknownMessage) -> str:
    """One frame as compact JSON, printable text as it is. Raises EncodeError for what JSON or UTF-8 cannot carry."""
    try:
        text = _WRITER.encode(unstructure(message))
    except ValueError:
        raise EncodeError("a number that is none cannot be sent") from None
    if not _is_encodable(text):
        raise EncodeError("a lone surrogate cannot be sent")
    return text
