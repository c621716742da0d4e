"""The protocol as plain JSON: scalars, enumerations, objects, messages, tables of codes. Other exports read this."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from enum import Enum, StrEnum
from types import NoneType, UnionType
from typing import Any, NewType, TypedDict, Union, get_args, get_origin

import attrs

from pheby_protocol import limits
from pheby_protocol.capabilities import BATCH, SERVER_CAPABILITIES
from pheby_protocol.errors import CLOSES, ERRORS, HTTP_ERRORS
from pheby_protocol.ids import SCALARS, IntegerRule, StringRule
from pheby_protocol.messages._base import Event, JsonObject, Message
from pheby_protocol.open_enum import OpenEnum
from pheby_protocol.registry import REGISTRY, MessageSpec
from pheby_protocol.version import PROTOCOL_VERSION

from .descriptions import describe


class TypeModel(TypedDict, total=False):
    """A field's type. `kind`: string, integer, boolean, ref (name), array or map (items), object or event (any)."""

    kind: str
    name: str
    items: TypeModel


class FieldModel(TypedDict, total=False):
    """One field. Optional: absent or null on the wire means `default` (nothing, where there is none)."""

    name: str
    type: TypeModel
    optional: bool
    default: object
    description: str


class StructModel(TypedDict, total=False):
    """An object, or a message with its tag and its part in the exchange."""

    name: str
    description: str
    fields: list[FieldModel]
    type: str
    kind: str
    direction: str
    since: int
    result: str
    errors: list[str]


class Metamodel(TypedDict):
    """Everything."""

    protocol_version: int
    scalars: list[dict[str, object]]
    enums: list[dict[str, object]]
    objects: list[StructModel]
    messages: list[StructModel]
    errors: list[dict[str, object]]
    close_codes: list[dict[str, object]]
    http_errors: list[dict[str, object]]
    limits: dict[str, int]
    capabilities: dict[str, dict[str, str]]


_PLAIN = {str: "string", int: "integer", bool: "boolean"}
_LIMITS = (
    "MAX_INTEGER",
    "MAX_DEPTH",
    "MAX_TITLE_CHARS",
    "MAX_TEXT_CHARS",
    "MAX_FRAME_BYTES",
    "MAX_SERVER_FRAME_BYTES",
    "MAX_LIST_LIMIT",
    "DEFAULT_LIST_LIMIT",
    "MAX_HISTORY_LIMIT",
    "DEFAULT_HISTORY_LIMIT",
    "MAX_PENDING_REQUESTS",
    "HEARTBEAT_MS",
    "HELLO_DEADLINE_MS",
    "MAX_UNDECODABLE_FRAMES",
    "MAX_CLOSE_REASON_BYTES",
)


def metamodel() -> Metamodel:
    """The whole protocol, in a stable order."""
    found = _Found()
    messages = [_message(spec, found) for spec in REGISTRY.values()]
    return Metamodel(
        protocol_version=PROTOCOL_VERSION,
        scalars=[_scalar(rule) for rule in SCALARS.values()],
        enums=[_enum(cls) for cls in sorted(found.enums, key=lambda cls: cls.__name__)],
        objects=found.objects(),
        messages=messages,
        errors=[
            {"code": code.value, "message": row.message, "retryable": row.retryable, "client": row.client}
            for code, row in ERRORS.items()
        ],
        close_codes=[
            {"code": code.value, "name": code.name.lower(), "meaning": row.meaning, "client": row.client.value}
            for code, row in CLOSES.items()
        ],
        http_errors=[
            {"code": code.value, "statuses": list(row.statuses), "message": row.message}
            for code, row in HTTP_ERRORS.items()
        ],
        limits={name.lower(): getattr(limits, name) for name in _LIMITS},
        capabilities={"client": {BATCH: SERVER_CAPABILITIES[BATCH]}, "server": dict(SERVER_CAPABILITIES)},
    )


class _Found:
    """The classes that fields lead to."""

    def __init__(self) -> None:
        self.enums: set[type[StrEnum]] = set()
        self._objects: dict[type[Any], StructModel] = {}

    def object(self, cls: type[Any]) -> None:
        if cls in self._objects:
            return
        # Noted before its fields are read, so that a recursive class would end.
        model = self._objects[cls] = StructModel(name=cls.__name__, description=first_line(cls), fields=[])
        model["fields"] = list(_fields(cls, self))

    def objects(self) -> list[StructModel]:
        return sorted(self._objects.values(), key=lambda model: model["name"])


def first_line(cls: type[Any]) -> str:
    """A class's own docstring, its lines joined."""
    return " ".join((cls.__doc__ or "").split())


def _message(spec: MessageSpec, found: _Found) -> StructModel:
    model = StructModel(
        name=spec.cls.__name__,
        type=spec.type,
        kind=spec.kind.value,
        direction=spec.direction.value,
        since=spec.since,
        description=first_line(spec.cls),
        fields=list(_fields(spec.cls, found)),
    )
    if spec.result is not None:
        model["result"] = spec.result
        model["errors"] = [code.value for code in spec.errors]
    return model


def _fields(cls: type[Any], found: _Found) -> Iterator[FieldModel]:
    types = typing.get_type_hints(cls, include_extras=True)
    for field in attrs.fields(cls):
        kind, nullable = _without_none(types[field.name])
        model = FieldModel(name=field.name, type=_type(kind, found), optional=field.default is not attrs.NOTHING)
        if nullable and field.default is not None:
            raise TypeError(f"{cls.__name__}.{field.name}: a field that may be None has None as its default")
        if field.default is not attrs.NOTHING and field.default is not None:
            model["default"] = _plain(field.default)
        model["description"] = describe(cls.__name__, field.name)
        yield model


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) in (Union, UnionType):
        members = [member for member in get_args(kind) if member is not NoneType]
        if len(members) != 1:
            raise TypeError(f"a field is one type or None, not {kind}")
        return members[0], True
    return kind, False


def _type(kind: Any, found: _Found) -> TypeModel:
    if kind in _PLAIN:
        return {"kind": _PLAIN[kind]}
    if kind in SCALARS:
        return {"kind": "ref", "name": SCALARS[kind].name}
    if kind is JsonObject:
        return {"kind": "object"}
    if kind is Event:
        return {"kind": "event"}
    origin = get_origin(kind)
    if origin is tuple:
        return {"kind": "array", "items": _type(get_args(kind)[0], found)}
    if origin is Mapping:
        return {"kind": "map", "items": _type(get_args(kind)[1], found)}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        found.enums.add(kind)
        return {"kind": "ref", "name": kind.__name__}
    if attrs.has(kind) and not issubclass(kind, Message):
        found.object(kind)
        return {"kind": "ref", "name": kind.__name__}
    raise TypeError(f"no wire type for {kind if not isinstance(kind, NewType) else kind.__name__}")


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _scalar(rule: StringRule | IntegerRule) -> dict[str, object]:
    if isinstance(rule, IntegerRule):
        return {
            "name": rule.name,
            "kind": "integer",
            "minimum": rule.minimum,
            "maximum": rule.maximum,
            "description": rule.description,
        }
    model: dict[str, object] = {
        "name": rule.name,
        "kind": "string",
        "min_length": rule.min_length,
        "max_length": rule.max_length,
    }
    if rule.pattern is not None:
        model["pattern"] = rule.pattern
    return model | {"description": rule.description}


def _enum(cls: type[StrEnum]) -> dict[str, object]:
    return {
        "name": cls.__name__,
        "open": issubclass(cls, OpenEnum),
        "values": [member.value for member in cls],
        "description": first_line(cls),
    }
