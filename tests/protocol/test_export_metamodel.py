"""The metamodel says what the classes say."""

from __future__ import annotations

import json
import typing
from typing import Any, ClassVar

import attrs
import pytest

from pheby_protocol import limits
from pheby_protocol.capabilities import BATCH, SERVER_CAPABILITIES
from pheby_protocol.errors import CLOSES, ERRORS, HTTP_ERRORS
from pheby_protocol.export import metamodel as module
from pheby_protocol.export.metamodel import StructModel, TypeModel, first_line, metamodel
from pheby_protocol.ids import SCALARS
from pheby_protocol.messages._base import Event, Message, Request
from pheby_protocol.open_enum import OpenEnum
from pheby_protocol.registry import REGISTRY

from .examples import ALL_CLASSES, is_required

MODEL = metamodel()
MESSAGES = {message["type"]: message for message in MODEL["messages"]}
OBJECTS = {found["name"]: found for found in MODEL["objects"]}
ENUMS = {str(enum["name"]): enum for enum in MODEL["enums"]}


def field(struct: StructModel, name: str) -> module.FieldModel:
    (found,) = (one for one in struct["fields"] if one["name"] == name)
    return found


def test_it_is_plain_json_and_made_alike_each_time() -> None:
    assert json.loads(json.dumps(MODEL)) == MODEL
    assert json.dumps(metamodel()) == json.dumps(MODEL)


@pytest.mark.parametrize("tag", list(REGISTRY))
def test_every_message_with_its_part_in_the_exchange(tag: str) -> None:
    spec, message = REGISTRY[tag], MESSAGES[tag]
    assert message["name"] == spec.cls.__name__
    assert (message["kind"], message["direction"], message["since"]) == (spec.kind, spec.direction, spec.since)
    assert message.get("result") == spec.result
    assert message.get("errors", []) == list(spec.errors)
    assert [one["name"] for one in message["fields"]] == [one.name for one in attrs.fields(spec.cls)]
    assert message["description"]


def test_messages_come_in_the_order_of_the_registry() -> None:
    assert list(MESSAGES) == list(REGISTRY)


def test_every_object_and_enumeration_that_fields_lead_to() -> None:
    classes = {cls for cls in ALL_CLASSES if not issubclass(cls, Message)}
    assert set(OBJECTS) == {cls.__name__ for cls in classes if attrs.has(cls)}
    assert set(ENUMS) == {cls.__name__ for cls in classes if not attrs.has(cls)}
    for cls in classes:
        if attrs.has(cls):
            assert [one["name"] for one in OBJECTS[cls.__name__]["fields"]] == [one.name for one in attrs.fields(cls)]
        else:
            assert ENUMS[cls.__name__]["values"] == [member.value for member in cls]
            assert ENUMS[cls.__name__]["open"] is issubclass(cls, OpenEnum)


def test_names_are_told_apart() -> None:
    names = [message["name"] for message in MODEL["messages"]]
    names += [*OBJECTS, *ENUMS, *(str(scalar["name"]) for scalar in MODEL["scalars"])]
    assert len(set(names)) == len(names)


def test_optional_is_what_has_a_default() -> None:
    for cls in ALL_CLASSES - {Event}:
        if attrs.has(cls):
            struct = MESSAGES[cls.type] if issubclass(cls, Message) else OBJECTS[cls.__name__]
            for one in struct["fields"]:
                assert one["optional"] is not is_required(cls, one["name"])
                assert one["description"]


def test_every_reference_leads_somewhere() -> None:
    known = {*OBJECTS, *ENUMS, *(str(scalar["name"]) for scalar in MODEL["scalars"])}

    def check(kind: TypeModel) -> None:
        assert kind["kind"] in ("string", "integer", "boolean", "ref", "array", "map", "object", "event")
        if kind["kind"] == "ref":
            assert kind["name"] in known
        if kind["kind"] in ("array", "map"):
            check(kind["items"])

    for struct in [*MODEL["messages"], *MODEL["objects"]]:
        for one in struct["fields"]:
            check(one["type"])


def test_types_as_they_are_on_the_wire() -> None:
    assert field(MESSAGES["hello"], "protocol_versions")["type"] == {"kind": "array", "items": {"kind": "integer"}}
    assert field(MESSAGES["welcome"], "capabilities")["type"] == {"kind": "map", "items": {"kind": "boolean"}}
    assert field(MESSAGES["batch"], "events")["type"] == {"kind": "array", "items": {"kind": "event"}}
    assert field(OBJECTS["ToolCall"], "arguments")["type"] == {"kind": "object"}
    assert field(OBJECTS["Run"], "error")["type"] == {"kind": "ref", "name": "RunError"}
    assert field(MESSAGES["message.send"], "if_busy")["default"] == "queue"
    assert field(MESSAGES["clarification.respond"], "choice_ids")["default"] == []
    assert "default" not in field(MESSAGES["message.send"], "text")
    assert "default" not in field(OBJECTS["Run"], "error")


def test_the_tables() -> None:
    assert [row["code"] for row in MODEL["errors"]] == list(ERRORS)
    assert [row["code"] for row in MODEL["close_codes"]] == [code.value for code in CLOSES]
    assert [row["code"] for row in MODEL["http_errors"]] == list(HTTP_ERRORS)
    assert MODEL["capabilities"] == {"client": {"batch": SERVER_CAPABILITIES[BATCH]}, "server": SERVER_CAPABILITIES}
    assert [scalar["name"] for scalar in MODEL["scalars"]] == [rule.name for rule in SCALARS.values()]
    for name, value in MODEL["limits"].items():
        assert getattr(limits, name.upper()) == value


def test_a_docstring_becomes_one_line() -> None:
    class Told:
        """One.

        And more.
        """

    assert first_line(Told) == "One. And more."
    assert first_line(type("Silent", (), {})) == ""


def test_an_object_that_holds_itself_would_end() -> None:
    found = module._Found()
    found.object(OBJECTS_BY_NAME["Run"])
    found.object(OBJECTS_BY_NAME["Run"])
    assert [one["name"] for one in found.objects()] == ["Run", "RunError", "Usage"]


OBJECTS_BY_NAME: dict[str, type[Any]] = {cls.__name__: cls for cls in ALL_CLASSES}


@pytest.mark.parametrize("kind", [float, bytes, int | str, typing.NewType("Unheard", str), set[str]])
def test_a_type_without_a_form_on_the_wire_is_refused(kind: Any) -> None:
    @attrs.frozen(kw_only=True)
    class Odd(Request):
        type: ClassVar[str] = "odd"
        text: kind

    Odd.__annotations__["text"] = kind
    with pytest.raises(TypeError):
        list(module._fields(Odd, module._Found()))


def test_a_field_that_may_be_none_has_none_as_its_default() -> None:
    @attrs.frozen(kw_only=True)
    class Odd:
        text: str | None = "something"

    with pytest.raises(TypeError, match=r"Odd\.text"):
        list(module._fields(Odd, module._Found()))
