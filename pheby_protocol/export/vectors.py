"""Frames with the verdict that every codec must reach: generated from the model, one change of one field each.

What no model tells, the traps of JSON and of its readers, is written by hand in `conformance/vectors/traps.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from pheby_protocol.limits import MAX_INTEGER

from .examples import Json, example, variants
from .metamodel import FieldModel, Metamodel, StructModel, TypeModel
from .subjects import SUBJECTS, anchor, subject

Path = tuple[str | int, ...]

_PAGES: Final = "docs/protocol"
_SPEC: Final = {
    "null": f"{_PAGES}/frames.md#absent-and-null",
    "unknown_field": f"{_PAGES}/frames.md#what-receivers-ignore-and-keep",
    "unknown_value": f"{_PAGES}/frames.md#what-receivers-ignore-and-keep",
}
"""Kinds of vectors that a general rule decides; the others point to their message's own section."""

_CURSOR_REASON: Final = "A codec refuses the field; a server serves the hello without it and sends a snapshot."

_FUTURE_FIELD: Final[Json] = {"x_future": {"of": ["a later version", 1, None], "on": True}}
_FUTURE_VALUE: Final = "future_value"
_OTHER_TYPE: Final[dict[str, object]] = {
    "string": 7,
    "integer": "7",
    "boolean": "true",
    "array": {},
    "map": [],
    "object": "{}",
    "event": [],
}
"""For each JSON type a value of another, where there is one the one that lenient readers convert most readily."""


def generated_vectors(model: Metamodel) -> dict[str, Json]:
    """File name to its vectors, one file per subject; deterministic."""
    files: dict[str, Json] = {f"{name}.json": {"vectors": []} for name in SUBJECTS}
    maker = _Maker(model)
    spots = list(_spots(model))
    for message in model["messages"]:
        own = [spot for spot in spots if spot.message is message]
        files[f"{subject(message['type'])}.json"]["vectors"] += maker.of_message(message, own)
    return files


def reencoded(model: Metamodel, frame: Json) -> Json:
    """What decoding and encoding makes of a valid frame: no unknown field, no null, no value that is the default."""
    return _Reencoder(model).frame(frame)


class _Reencoder:
    """Written from the model alone, so that no codec is checked by itself."""

    def __init__(self, model: Metamodel) -> None:
        self._objects = {struct["name"]: struct for struct in model["objects"]}
        self._messages = {message["type"]: message for message in model["messages"]}

    def frame(self, frame: Json) -> Json:
        message = self._messages.get(frame["type"])
        return frame if message is None else {"type": frame["type"], **self._struct(message, frame)}

    def _struct(self, struct: StructModel, value: Json) -> Json:
        found: Json = {}
        for field in struct["fields"]:
            item = value.get(field["name"])
            if item is None or ("default" in field and item == field["default"]):
                continue
            found[field["name"]] = self._value(field["type"], item)
        return found

    def _value(self, kind: TypeModel, item: Any) -> Any:
        if kind["kind"] == "array":
            return [self._value(kind["items"], one) for one in item]
        if kind["kind"] == "event":
            return self.frame(item)
        if kind["kind"] == "ref" and kind["name"] in self._objects:
            return self._struct(self._objects[kind["name"]], item)
        return item


# -- where to change something


@attrs.frozen
class _Spot:
    """One object (or the message itself) in the smallest good frame that has it."""

    message: StructModel
    frame: Json
    path: Path
    struct: StructModel

    @property
    def value(self) -> Json:
        found: Any = self.frame
        for step in self.path:
            found = found[step]
        return dict(found)

    def put(self, value: Json) -> Json:
        """The frame with another object at this place."""
        found = _changed(self.frame, self.path, value)
        assert isinstance(found, dict)
        return found

    def name(self, field: str = "") -> str:
        return ".".join(str(step) for step in (*self.path, *([field] if field else [])))


def _changed(frame: Any, path: Path, value: object) -> Any:
    if not path:
        return value
    copy = frame.copy()
    copy[path[0]] = value if len(path) == 1 else _changed(frame[path[0]], path[1:], value)
    return copy


def _spots(model: Metamodel) -> Iterator[_Spot]:
    """Every message, and every object in the message that carries it nearest to its surface; events come first."""
    objects = {struct["name"]: struct for struct in model["objects"]}
    messages = sorted(model["messages"], key=lambda message: message["kind"] != "logged_event")
    level = [_Spot(message, example(model, message["name"], full=False), (), message) for message in messages]
    seen: set[str] = set()
    while level:
        yield from level
        below: list[_Spot] = []
        for spot in level:
            for field in spot.struct["fields"]:
                is_array = field["type"]["kind"] == "array"
                name = (field["type"]["items"] if is_array else field["type"]).get("name", "")
                if name in objects and name not in seen:
                    seen.add(name)
                    least = example(model, name, full=False)
                    frame = _changed(spot.frame, (*spot.path, field["name"]), [least] if is_array else least)
                    path = (*spot.path, field["name"], *([0] if is_array else []))
                    below.append(_Spot(spot.message, frame, path, objects[name]))
        level = below


# -- what to change


class _Maker:
    def __init__(self, model: Metamodel) -> None:
        self._model = model
        self._reencoder = _Reencoder(model)
        self._scalars = {str(scalar["name"]): scalar for scalar in model["scalars"]}
        self._enums = {str(enum["name"]): enum for enum in model["enums"]}
        self._objects = {struct["name"] for struct in model["objects"]}
        self._tried: set[tuple[str, str]] = set()

    def of_message(self, message: StructModel, spots: Iterable[_Spot]) -> list[Json]:
        """All vectors of one message."""
        found = [self._vector(message, "example/full", example(self._model, message["name"]), True)]
        for spot in spots:
            found += [self._vector(message, what, frame, True) for what, frame in self._good(spot)]
            for what, frame in self._bad(spot):
                place = what.split("/")[1]
                in_cursor = message["type"] == "hello" and (place == "resume" or place.startswith("resume."))
                found.append(self._vector(message, what, frame, "either" if in_cursor else False))
        return found

    def _vector(self, message: StructModel, what: str, frame: Json, valid: bool | str) -> Json:
        kind = what.partition("/")[0]
        found: Json = {
            "id": f"{message['type']}/{what}",
            "target": "client_frame" if message["direction"] == "client_to_server" else "server_frame",
            "wire": json.dumps(frame, ensure_ascii=False, separators=(",", ":")),
            "valid": valid,
            "kind": kind,
        }
        if valid is True:
            found["reencoded"] = self._reencoder.frame(frame)
        page = f"{_PAGES}/reference/{subject(message['type'])}.md#{anchor(message['type'])}"
        found |= {"spec": _SPEC.get(kind, page), "level": "MUST", "since": message["since"]}
        return found | ({"reason": _CURSOR_REASON} if valid == "either" else {})

    def _good(self, spot: _Spot) -> Iterator[tuple[str, Json]]:
        name, value = spot.struct["name"], spot.value
        place = f"/{spot.name()}" if spot.path else ""
        yield f"example/minimal{place}", spot.frame
        for variant in variants(name):
            yield f"example/{variant}{place}", spot.put(example(self._model, name, variant=variant))
        optional = [field["name"] for field in spot.struct["fields"] if field["optional"]]
        if optional:
            yield f"null{place}", spot.put(value | dict.fromkeys(optional))
        yield f"unknown_field{place}", spot.put(value | _FUTURE_FIELD)
        for field in spot.struct["fields"]:
            target = field["type"].get("name", "")
            if target in self._enums and self._enums[target]["open"]:
                yield f"unknown_value/{spot.name(field['name'])}", spot.put(value | {field["name"]: _FUTURE_VALUE})
            for what, bound in self._bounds(field["type"]):
                if self._first(f"{what}/{target}", ""):
                    yield f"bounds/{spot.name(field['name'])}/{what}", spot.put(value | {field["name"]: bound})

    def _bad(self, spot: _Spot) -> Iterator[tuple[str, Json]]:
        value = spot.value
        for field in spot.struct["fields"]:
            name, place = field["name"], spot.name(field["name"])
            if not field["optional"]:
                yield f"missing/{place}", spot.put({key: item for key, item in value.items() if key != name})
                yield f"null_required/{place}", spot.put(value | {name: None})
            yield f"wrong_type/{place}", spot.put(value | {name: _OTHER_TYPE[self._json_type(field["type"])]})
            # The same name has the same type nearly everywhere: its finer rules are tried once.
            if self._first(name, json.dumps(field["type"])):
                for what, bad in self._flaws(field):
                    kind, _, case = what.partition("/")
                    yield f"{kind}/{place}" + (f"/{case}" if case else ""), spot.put(value | {name: bad})

    def _first(self, name: str, kind: str) -> bool:
        if (name, kind) in self._tried:
            return False
        self._tried.add((name, kind))
        return True

    def _json_type(self, kind: TypeModel) -> str:
        if kind["kind"] != "ref":
            return kind["kind"]
        if kind["name"] in self._scalars:
            return str(self._scalars[kind["name"]]["kind"])
        return "string" if kind["name"] in self._enums else "object"

    def _bounds(self, kind: TypeModel) -> Iterator[tuple[str, object]]:
        """The values at either end of a scalar's range."""
        scalar = self._scalars.get(kind.get("name", ""))
        if scalar is None:
            return
        if scalar["kind"] == "integer":
            yield from (("least", scalar["minimum"]), ("greatest", scalar["maximum"]))
        else:
            filling = "a" if "pattern" in scalar else "é"
            yield from ((what, filling * _int(scalar[key])) for what, key in _LENGTHS)

    def _flaws(self, field: FieldModel) -> Iterator[tuple[str, object]]:
        """What is of the right JSON type, or nearly, and still wrong."""
        kind = field["type"]
        match self._json_type(kind):
            case "integer":
                scalar = self._scalars.get(kind.get("name", ""), {"minimum": -MAX_INTEGER, "maximum": MAX_INTEGER})
                yield from (("boolean_for_integer", True), ("fraction", 1.5))
                yield "out_of_range/below", _int(scalar["minimum"]) - 1
                yield "out_of_range/above", _int(scalar["maximum"]) + 1
            case "boolean":
                yield "integer_for_boolean", 1
            case "array":
                yield "bad_item/null", [None]
                yield "bad_item/wrong_type", [_OTHER_TYPE[self._json_type(kind["items"])]]
            case "map":
                yield "bad_item/wrong_type", {"batch": _OTHER_TYPE[self._json_type(kind["items"])]}
                yield "bad_item/null", {"batch": None}
            case "string":
                yield from self._string_flaws(kind.get("name", ""))

    def _string_flaws(self, name: str) -> Iterator[tuple[str, object]]:
        enum, scalar = self._enums.get(name), self._scalars.get(name)
        if enum is not None and not enum["open"]:
            yield from (("closed_value/future", _FUTURE_VALUE), ("closed_value/empty", ""))
        if scalar is not None:
            yield "length/empty", ""
            yield "length/over", "a" * (_int(scalar["max_length"]) + 1)
            if "pattern" in scalar:
                yield from ((f"bad_characters/{what}", text) for what, text in _NO_IDS)


_LENGTHS: Final = (("shortest", "min_length"), ("longest", "max_length"))
_NO_IDS: Final = (("space", "a b"), ("dot", "a.b"), ("slash", "a/b"), ("letter", "ä"), ("line_end", "a\n"))


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
