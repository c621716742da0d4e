"""One good example of everything: valid, complete, readable, and never shared."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from pheby_protocol.codec import decode, encode
from pheby_protocol.export import examples as module
from pheby_protocol.export.descriptions import UndescribedError
from pheby_protocol.export.examples import example, examples, variants
from pheby_protocol.export.metamodel import FieldModel, StructModel, metamodel
from pheby_protocol.export.vectors import reencoded
from pheby_protocol.ids import is_id
from pheby_protocol.registry import REGISTRY

from .schema_checks import judge

MODEL = metamodel()
STRUCTS: dict[str, StructModel] = {struct["name"]: struct for struct in [*MODEL["objects"], *MODEL["messages"]]}
OBJECTS = {struct["name"] for struct in MODEL["objects"]}
FULL, LEAST = examples(MODEL), examples(MODEL, full=False)
SHOWN: list[tuple[str, dict[str, Any]]] = [
    *((REGISTRY[tag].cls.__name__, frame) for tag, frame in [*FULL.items(), *LEAST.items()]),
    *((name, example(MODEL, name)) for name in OBJECTS),
    *((name, example(MODEL, name, variant=kind)) for name in OBJECTS for kind in variants(name)),
]


def structs_in(name: str, value: dict[str, Any]) -> Iterator[tuple[StructModel, dict[str, Any]]]:
    """The object of this class and each object in it, with its class."""
    struct = STRUCTS[name]
    yield struct, value
    for field in struct["fields"]:
        kind = field["type"]
        items = value.get(field["name"], []) if kind["kind"] == "array" else [value.get(field["name"])]
        inner = kind["items"] if kind["kind"] == "array" else kind
        for item in items:
            if item is not None and inner.get("name") in OBJECTS:
                yield from structs_in(inner["name"], item)
            elif item is not None and inner["kind"] == "event":
                yield from structs_in(REGISTRY[item["type"]].cls.__name__, item)


EVERY = [found for name, value in SHOWN for found in structs_in(name, value)]


@pytest.mark.parametrize("tag", list(REGISTRY))
def test_every_message_has_a_full_and_a_least_example_that_decode(tag: str) -> None:
    for frame in (FULL[tag], LEAST[tag]):
        message = decode(json.dumps(frame))
        assert message.type == tag
        assert json.loads(encode(message)) == reencoded(MODEL, frame)


@pytest.mark.parametrize("tag", list(REGISTRY))
def test_the_least_has_what_is_required_and_nothing_more(tag: str) -> None:
    struct = STRUCTS[REGISTRY[tag].cls.__name__]
    assert set(LEAST[tag]) == {"type"} | {field["name"] for field in struct["fields"] if not field["optional"]}


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_every_object_and_each_way_it_can_stand_is_valid(name: str) -> None:
    for kind in ("", *variants(name)):
        judge(name).validate(example(MODEL, name, variant=kind))
        judge(name).validate(example(MODEL, name, variant=kind, full=False))


def test_every_optional_field_is_shown_somewhere() -> None:
    shown = {(struct["name"], field) for struct, value in EVERY for field in value}
    wanted = {(name, field["name"]) for name, struct in STRUCTS.items() for field in struct["fields"]}
    # A page is before or after a position, a cancel names a run or a send: an example cannot have both.
    either = {("ConversationHistory", "after"), ("RunCancel", "client_message_id")}
    assert wanted - shown == either


def test_no_value_is_left_in_the_tables_that_nothing_uses() -> None:
    own = {f"{struct['name']}.{field['name']}" for struct in STRUCTS.values() for field in struct["fields"]}
    assert set(module._OWN) | set(module._LEAST) <= own
    assert set(module._FIELDS) <= {name.partition(".")[2] for name in own}
    assert set(module._VARIANTS) <= OBJECTS
    used = {name for shown in module._SHOWN.values() for names in shown.values() for name in _names(names)}
    assert used - {kind for kinds in module._VARIANTS.values() for kind in kinds} <= set(REGISTRY)


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def test_texts_are_words_and_identifiers_look_like_their_kind() -> None:
    prefixes = {"conversation_id": "conv_", "message_id": "msg_", "run_id": "run_", "tool_call_id": "tool_"}
    prefixes |= {"approval_id": "appr_", "clarification_id": "clar_", "attachment_id": "att_"}
    for _, value in EVERY:
        for field, item in value.items():
            assert item not in ("string", "text", "foo", "example", "TODO")
            if field in prefixes:
                assert item.startswith(prefixes[field])
                assert is_id(item)


def test_times_run_forward() -> None:
    for _, value in EVERY:
        times = [value[name] for name in ("created_at", "started_at", "ended_at", "expires_at") if name in value]
        assert times == sorted(times)
        if "started_at" in value and "duration_ms" in value:
            assert value["ended_at"] - value["started_at"] == value["duration_ms"]


def test_an_object_stands_as_its_message_says() -> None:
    wanted = {
        "run.started": "running",
        "run.ended": "completed",
        "tool.started": "running",
        "tool.completed": "completed",
        "approval.requested": "pending",
        "approval.resolved": "resolved",
        "clarification.requested": "pending",
        "clarification.resolved": "resolved",
        "attachment.created": "available",
        "attachment.expired": "expired",
        "message.completed": "completed",
    }
    for frames in (FULL, LEAST):
        for tag, status in wanted.items():
            (found,) = (item["status"] for item in frames[tag].values() if isinstance(item, dict))
            assert found == status, tag


def test_prompts_offer_what_the_contract_allows() -> None:
    for struct, value in EVERY:
        if struct["name"] == "Approval":
            assert {"session", "always"}.isdisjoint(value["choices"]) or "pattern" in value
            assert ("decision" in value) <= (value["status"] == "resolved")
        if struct["name"] == "Clarification" and "answer" in value:
            assert set(value["answer"]["choice_ids"]) <= {choice["choice_id"] for choice in value["choices"]}


def test_an_example_is_the_callers_own() -> None:
    first = examples(MODEL)
    kept = copy.deepcopy(first)
    first["hello"]["client"]["name"] = "changed"
    first["tool.started"]["tool_call"]["arguments"]["command"] = "changed"
    first["approval.requested"]["approval"]["choices"].append("changed")
    assert examples(MODEL) == kept


def test_a_field_without_a_value_is_an_error() -> None:
    model = copy.deepcopy(MODEL)
    model["messages"][0]["fields"].append(
        FieldModel(name="new_field", type={"kind": "string"}, optional=True, description="")
    )
    with pytest.raises(UndescribedError, match=r"Hello\.new_field: add it to .*examples\.py"):
        examples(model)


def test_examples_come_in_the_order_of_the_model() -> None:
    assert list(FULL) == list(LEAST) == list(REGISTRY)
