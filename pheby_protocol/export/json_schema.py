"""JSON Schema 2020-12 for every frame, in the dialect that generators digest.

All types in `$defs`, references only to them; no `allOf`, `anyOf`, `if`, `patternProperties`, inline objects, and no
`additionalProperties` but for maps; optional means not required, never nullable. Open enumerations are strings with
their known values in `x-pheby-open-enum`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pheby_protocol.limits import MAX_INTEGER

from .metamodel import FieldModel, Metamodel, StructModel, TypeModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_UNION_NAMES = {
    "client_to_server": "ClientFrame",
    "server_to_client": "ServerFrame",
}


def bundle(model: Metamodel) -> Schema:
    """One schema with every type; its root is any frame."""
    return {
        "$schema": DIALECT,
        "title": "Frame",
        "description": f"Any frame of Pheby's protocol, version {model['protocol_version']}.",
        "oneOf": [_ref("ClientFrame"), _ref("ServerFrame"), _ref("UnknownFrame")],
        "$defs": definitions(model),
    }


def message_schema(model: Metamodel, name: str) -> Schema:
    """The schema of one message, with the types that it needs."""
    all_types = definitions(model)
    return {"$schema": DIALECT, "$ref": f"#/$defs/{name}", "$defs": _reachable(all_types, name)}


def definitions(model: Metamodel) -> dict[str, Schema]:
    """Every type by its name, sorted."""
    found: dict[str, Schema] = {}
    for scalar in model["scalars"]:
        found[str(scalar["name"])] = _scalar(scalar)
    for enum in model["enums"]:
        found[str(enum["name"])] = _enum(enum)
    for struct in [*model["objects"], *model["messages"]]:
        found[struct["name"]] = _struct(struct)
    for direction, name in _UNION_NAMES.items():
        members = [message for message in model["messages"] if message["direction"] == direction]
        found[name] = _union(name, members)
    found["EventFrame"] = _union(
        "EventFrame",
        [message for message in model["messages"] if message["kind"] in ("logged_event", "transient_event")],
        unknown="UnknownEvent",
    )
    found["UnknownFrame"] = _unknown("UnknownFrame", model["messages"])
    found["UnknownEvent"] = _unknown("UnknownEvent", model["messages"])
    found["JsonObject"] = {
        "title": "JsonObject",
        "description": "A declared extension point: any JSON object, kept as it is.",
        "type": "object",
    }
    return dict(sorted(found.items()))


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _scalar(scalar: dict[str, object]) -> Schema:
    schema: Schema = {"title": scalar["name"], "description": scalar["description"], "type": scalar["kind"]}
    if scalar["kind"] == "integer":
        return schema | {"minimum": scalar["minimum"], "maximum": scalar["maximum"]}
    schema |= {"minLength": scalar["min_length"], "maxLength": scalar["max_length"]}
    if "pattern" in scalar:
        schema["pattern"] = f"^{scalar['pattern']}$"
    return schema


def _enum(enum: dict[str, object]) -> Schema:
    schema: Schema = {"title": enum["name"], "description": enum["description"], "type": "string"}
    return schema | {"x-pheby-open-enum" if enum["open"] else "enum": enum["values"]}


def _struct(struct: StructModel) -> Schema:
    properties: dict[str, Schema] = {}
    required: list[str] = []
    if "type" in struct:
        properties["type"] = {"type": "string", "const": struct["type"]}
        required.append("type")
    for field in struct["fields"]:
        properties[field["name"]] = _field(field)
        if not field["optional"]:
            required.append(field["name"])
    schema: Schema = {"title": struct["name"], "description": struct["description"], "type": "object"}
    schema["properties"] = properties
    if required:
        schema["required"] = required
    return schema


def _field(field: FieldModel) -> Schema:
    schema = _type(field["type"]) | {"description": field["description"]}
    if "default" in field:
        schema["default"] = field["default"]
    return schema


def _type(kind: TypeModel) -> Schema:
    match kind["kind"]:
        case "ref":
            return _ref(kind["name"])
        case "array":
            return {"type": "array", "items": _type(kind["items"])}
        case "map":
            return {"type": "object", "additionalProperties": _type(kind["items"])}
        case "object":
            return _ref("JsonObject")
        case "event":
            return _ref("EventFrame")
        case "integer":
            return {"type": "integer", "minimum": -MAX_INTEGER, "maximum": MAX_INTEGER}
        case plain:
            return {"type": plain}


def _union(name: str, members: Iterable[StructModel], unknown: str | None = None) -> Schema:
    members = list(members)
    branches = [_ref(member["name"]) for member in members]
    return {
        "title": name,
        "description": "One of these, told apart by type.",
        "oneOf": branches + ([_ref(unknown)] if unknown else []),
        "discriminator": {
            "propertyName": "type",
            "mapping": {member["type"]: f"#/$defs/{member['name']}" for member in members},
        },
    }


def _unknown(name: str, known: Iterable[StructModel]) -> Schema:
    """What a receiver does not know: skipped, never an error."""
    return {
        "title": name,
        "description": "A frame of a later version. Skip it; its seq, if any, still moves the cursor.",
        "type": "object",
        "properties": {"type": {"type": "string", "minLength": 1, "not": {"enum": [one["type"] for one in known]}}},
        "required": ["type"],
    }


def _reachable(all_types: dict[str, Schema], start: str) -> dict[str, Schema]:
    wanted = [start]
    found: dict[str, Schema] = {}
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = all_types[name]
            wanted += _references(all_types[name])
    return dict(sorted(found.items()))


def _references(schema: object) -> list[str]:
    if isinstance(schema, dict):
        own = [str(schema["$ref"]).rpartition("/")[2]] if "$ref" in schema else []
        return own + [name for value in schema.values() for name in _references(value)]
    if isinstance(schema, list):
        return [name for item in schema for name in _references(item)]
    return []
