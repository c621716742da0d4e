"""The schema: in the dialect that generators digest, whole, and true of every example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pheby_protocol.export.examples import examples
from pheby_protocol.export.json_schema import DIALECT, bundle, definitions, message_schema
from pheby_protocol.export.metamodel import metamodel
from pheby_protocol.limits import MAX_INTEGER
from pheby_protocol.registry import REGISTRY, Direction, Kind

from .schema_checks import BUNDLE, NAMES, Judge, judge

MODEL = metamodel()
FULL, LEAST = examples(MODEL), examples(MODEL, full=False)
DEFS: dict[str, dict[str, Any]] = BUNDLE["$defs"]
FORBIDDEN = {"allOf", "anyOf", "if", "then", "else", "patternProperties", "nullable", "dependentSchemas", "$dynamicRef"}
MAPS_AND_ANYTHING = {"Welcome", "JsonObject"}


def schemas(value: object) -> Iterator[dict[str, Any]]:
    """A schema and every schema within it."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from schemas(item)
    elif isinstance(value, list):
        for item in value:
            yield from schemas(item)


def test_the_bundle_is_a_schema() -> None:
    Draft202012Validator.check_schema(BUNDLE)
    assert BUNDLE["$schema"] == DIALECT
    assert BUNDLE["oneOf"] == [{"$ref": f"#/$defs/{name}"} for name in ("ClientFrame", "ServerFrame", "UnknownFrame")]


def test_every_type_is_titled_by_its_name_and_described() -> None:
    for name, schema in DEFS.items():
        assert schema["title"] == name
        assert schema["description"]
    assert list(DEFS) == sorted(DEFS)


def test_the_dialect_is_kept() -> None:
    for name, definition in DEFS.items():
        for schema in schemas(definition):
            assert FORBIDDEN.isdisjoint(schema), name
            assert not isinstance(schema.get("type"), list), name
            if "$ref" in schema:
                assert schema["$ref"].removeprefix("#/$defs/") in DEFS
                assert set(schema) <= {"$ref", "description", "default"}
            if schema.get("additionalProperties") is not None:
                assert name == "Welcome"


def test_there_is_no_object_within_an_object() -> None:
    for name, definition in DEFS.items():
        for field, schema in definition.get("properties", {}).items():
            if schema.get("type") == "object":
                assert (name, field) == ("Welcome", "capabilities")


def test_every_integer_is_bounded() -> None:
    for definition in DEFS.values():
        for schema in schemas(definition):
            if schema.get("type") == "integer":
                assert -MAX_INTEGER <= schema["minimum"] <= schema["maximum"] <= MAX_INTEGER
            assert schema.get("type") != "number"


@pytest.mark.parametrize("tag", list(REGISTRY))
def test_a_message_names_its_type_and_what_it_needs(tag: str) -> None:
    schema = DEFS[NAMES[tag]]
    assert schema["properties"]["type"] == {"type": "string", "const": tag}
    assert schema["required"][0] == "type"
    assert set(schema["required"]) == set(LEAST[tag])


@pytest.mark.parametrize("tag", list(REGISTRY))
def test_the_schema_of_one_message_stands_alone(tag: str) -> None:
    schema = message_schema(MODEL, NAMES[tag])
    Draft202012Validator.check_schema(schema)
    for frame in (FULL[tag], LEAST[tag]):
        Judge(schema).validate(frame)
    used = {one["$ref"].removeprefix("#/$defs/") for one in schemas(schema) if "$ref" in one}
    assert set(schema["$defs"]) == used
    assert "ClientFrame" not in used
    assert not Judge(schema).is_valid({**LEAST[tag], "type": "other"})


@pytest.mark.parametrize("tag", list(REGISTRY))
def test_a_frame_is_exactly_one_thing(tag: str) -> None:
    whole = Judge(BUNDLE)
    for frame in (FULL[tag], LEAST[tag]):
        whole.validate(frame)
        to_server = REGISTRY[tag].direction is Direction.CLIENT_TO_SERVER
        assert judge("ClientFrame").is_valid(frame) is to_server
        assert judge("ServerFrame").is_valid(frame) is not to_server
        assert not judge("UnknownFrame").is_valid(frame)
        assert judge("EventFrame").is_valid(frame) is (REGISTRY[tag].kind in (Kind.LOGGED_EVENT, Kind.TRANSIENT_EVENT))


@pytest.mark.parametrize("frame", [{"type": "future"}, {"type": "future", "seq": 7, "x": None}])
def test_a_frame_of_a_later_version_is_allowed(frame: dict[str, object]) -> None:
    """M9."""
    Judge(BUNDLE).validate(frame)
    judge("UnknownFrame").validate(frame)
    judge("EventFrame").validate(frame)
    assert not judge("ClientFrame").is_valid(frame)


@pytest.mark.parametrize("frame", [{}, {"type": ""}, {"type": 7}, [], "ping", None])
def test_what_has_no_type_is_not(frame: object) -> None:
    assert not Judge(BUNDLE).is_valid(frame)


def test_a_union_tells_its_members_apart_by_type() -> None:
    for name in ("ClientFrame", "ServerFrame", "EventFrame"):
        union = DEFS[name]["discriminator"]
        assert union["propertyName"] == "type"
        members = [branch["$ref"] for branch in DEFS[name]["oneOf"]]
        assert list(union["mapping"].values()) == [member for member in members if member != "#/$defs/UnknownEvent"]
        for tag, reference in union["mapping"].items():
            assert DEFS[reference.removeprefix("#/$defs/")]["properties"]["type"]["const"] == tag


def test_enumerations_are_open_but_for_what_a_client_asks() -> None:
    """M10."""
    closed = {name for name, schema in DEFS.items() if "enum" in schema}
    assert closed == {"IfBusy"}
    assert DEFS["RunState"]["x-pheby-open-enum"][0] == "queued"


def test_optional_is_left_out_of_required_and_never_null() -> None:
    limit = DEFS["ConversationList"]["properties"]["limit"]
    assert limit["$ref"] == "#/$defs/Count"
    assert "limit" not in DEFS["ConversationList"]["required"]
    assert DEFS["MessageSend"]["properties"]["if_busy"]["default"] == "queue"


def test_the_bundle_is_made_alike_each_time() -> None:
    assert bundle(metamodel()) == BUNDLE
    assert definitions(MODEL) == DEFS
