"""The socket's AsyncAPI document: whole, and each operation what the registry says.

AsyncAPI's own parser judges it, too: `npm test` in conformance/tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator

from pheby_protocol.export.asyncapi import asyncapi
from pheby_protocol.export.examples import examples
from pheby_protocol.export.metamodel import metamodel
from pheby_protocol.registry import REGISTRY, Direction, Kind

MODEL = metamodel()
DOCUMENT: dict[str, Any] = asyncapi(MODEL)
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]
OPERATIONS: dict[str, Any] = DOCUMENT["operations"]


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def found_at(reference: str) -> Any:
    value: Any = DOCUMENT
    for step in reference.removeprefix("#/").split("/"):
        value = value[step]
    return value


def types(operation: dict[str, Any]) -> list[str]:
    """The type tags of an operation's messages."""
    return [found_at(found_at(message["$ref"])["$ref"])["name"] for message in operation["messages"]]


def test_it_says_what_it_is() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert DOCUMENT["info"]["version"] == "1"
    assert DOCUMENT["channels"]["socket"]["address"] == "/v1/ws"
    scheme = DOCUMENT["components"]["securitySchemes"]["secret"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for server in DOCUMENT["servers"].values():
        assert server["security"] == [{"$ref": "#/components/securitySchemes/secret"}]


def test_every_reference_leads_within_the_document() -> None:
    for reference in references(DOCUMENT):
        assert reference.startswith("#/")
        found_at(reference)


def test_every_message_is_there_with_its_schema_and_example() -> None:
    shown = examples(MODEL)
    assert {message["name"] for message in MESSAGES.values()} == set(REGISTRY)
    assert set(DOCUMENT["channels"]["socket"]["messages"]) == set(MESSAGES)
    for name, message in MESSAGES.items():
        assert message["payload"] == {"$ref": f"#/components/schemas/{name}"}
        assert [one["payload"] for one in message["examples"]] == [shown[message["name"]]]
        assert ("correlationId" in message) == (
            REGISTRY[message["name"]].kind in (Kind.REQUEST, Kind.RESULT, Kind.ERROR)
        )


@pytest.mark.parametrize("tag", [tag for tag, spec in REGISTRY.items() if spec.kind is Kind.REQUEST])
def test_a_request_is_received_and_answered(tag: str) -> None:
    operation = OPERATIONS[tag]
    assert operation["action"] == "receive"
    assert types(operation) == [tag]
    assert types(operation["reply"]) == [REGISTRY[tag].result, "error"]


def test_everything_else_is_sent() -> None:
    sent = [tag for operation in OPERATIONS.values() if operation["action"] == "send" for tag in types(operation)]
    answered = [tag for operation in OPERATIONS.values() for tag in types(operation.get("reply", {"messages": []}))]
    to_client = {tag for tag, spec in REGISTRY.items() if spec.direction is Direction.SERVER_TO_CLIENT}
    assert len(sent) == len(set(sent))
    assert set(sent) | set(answered) == to_client
    assert set(sent) & set(answered) == {"error"}


def test_the_schemas_are_those_that_are_needed_and_true_of_the_examples() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    used = {reference.rpartition("/")[2] for reference in references(DOCUMENT) if "/schemas/" in reference}
    assert used == set(schemas)
    for schema in schemas.values():
        Draft7Validator.check_schema({key: value for key, value in schema.items() if key != "discriminator"})
        assert not isinstance(schema.get("discriminator"), dict)


def test_it_is_made_alike_each_time() -> None:
    assert asyncapi(metamodel()) == DOCUMENT
