"""The codec reaches the verdict of every vector, and so does the schema where the two do not differ by design."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.codec import DecodeError, decode, encode, parse
from pheby_protocol.export.metamodel import metamodel
from pheby_protocol.export.subjects import SUBJECTS
from pheby_protocol.export.vectors import generated_vectors, reencoded
from pheby_protocol.registry import REGISTRY, Direction

from .schema_checks import differs_by_design, schema_allows

MODEL = metamodel()
TRAPS = Path(__file__).parents[2] / "conformance" / "vectors" / "traps.json"
GENERATED = generated_vectors(MODEL)
FILES: dict[str, dict[str, Any]] = GENERATED | {"traps.json": json.loads(TRAPS.read_text(encoding="utf-8"))}
VECTORS = [vector for file in FILES.values() for vector in file["vectors"]]
FIELDS = {"id", "target", "wire", "valid", "kind", "reencoded", "spec", "level", "since", "reason"}


def of(file: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = FILES[file]["vectors"]
    return found


@pytest.mark.parametrize("file", list(FILES))
def test_the_codec_agrees(file: str) -> None:
    for vector in of(file):
        try:
            message = decode(vector["wire"])
        except DecodeError:
            assert vector["valid"] in (False, "either"), vector["id"]
        else:
            assert vector["valid"] in (True, "either"), vector["id"]
            if vector["valid"] is True:
                assert json.loads(encode(message)) == vector["reencoded"], vector["id"]
                assert decode(encode(message)) == message, vector["id"]


@pytest.mark.parametrize("file", list(FILES))
def test_the_schema_agrees(file: str) -> None:
    judged = 0
    for vector in of(file):
        try:
            frame = parse(vector["wire"])
        except DecodeError:
            # Duplicate keys, inexact numbers, surrogates, depth: no schema sees them.
            continue
        if vector["valid"] != "either" and not differs_by_design(frame):
            assert schema_allows(frame) is vector["valid"], vector["id"]
            judged += 1
    assert judged > len(of(file)) * (0.4 if file == "traps.json" else 0.7)


@pytest.mark.parametrize("file", list(FILES))
def test_what_a_valid_vector_becomes_is_valid_in_every_way(file: str) -> None:
    for vector in of(file):
        if vector["valid"] is True:
            assert reencoded(MODEL, vector["reencoded"]) == vector["reencoded"], vector["id"]
            # An object of an unknown type is kept as it came, its nulls too.
            assert schema_allows(vector["reencoded"]), vector["id"]


def test_the_form_of_a_vector() -> None:
    for vector in VECTORS:
        assert set(vector) <= FIELDS
        assert FIELDS - {"reencoded", "reason"} <= set(vector)
        assert vector["target"] in ("client_frame", "server_frame")
        assert vector["valid"] in (True, False, "either")
        assert (vector["valid"] is True) == ("reencoded" in vector)
        assert (vector["valid"] == "either") == ("reason" in vector)
        assert vector["level"] in ("MUST", "SHOULD")
        assert vector["since"] >= 1
        assert vector["spec"].startswith("docs/protocol/")
        assert "#" in vector["spec"]


def test_every_vector_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(vector["id"] for vector in VECTORS).items() if count > 1] == []


def test_the_wire_is_text_that_a_file_can_hold() -> None:
    for vector in VECTORS:
        vector["wire"].encode()
        assert len(vector["wire"]) < 8_192


def test_one_file_per_subject_and_every_message_in_its_own() -> None:
    assert list(GENERATED) == [f"{name}.json" for name in SUBJECTS]
    assert all(file["vectors"] for file in GENERATED.values())
    for tag, spec in REGISTRY.items():
        own = [vector for vector in VECTORS if vector["id"].startswith(f"{tag}/")]
        target = "client_frame" if spec.direction is Direction.CLIENT_TO_SERVER else "server_frame"
        assert {vector["target"] for vector in own} == {target}
        assert {f"{tag}/example/full", f"{tag}/example/minimal", f"{tag}/unknown_field"} <= {one["id"] for one in own}


def test_every_required_field_is_left_out_and_made_null_once() -> None:
    names = {vector["id"] for vector in VECTORS}
    for message in MODEL["messages"]:
        for field in message["fields"]:
            place = f"{message['type']}/{{}}/{field['name']}"
            assert place.format("wrong_type") in names
            for kind in ("missing", "null_required"):
                assert (place.format(kind) in names) is not field["optional"]


def test_every_object_and_scalar_is_tried_somewhere() -> None:
    paths = {vector["id"].partition("/")[2] for vector in VECTORS}
    kinds = {path.partition("/")[0] for path in paths}
    assert kinds >= {"missing", "wrong_type", "out_of_range", "bad_characters", "length", "boolean_for_integer"}
    assert kinds >= {"fraction", "integer_for_boolean", "bad_item", "closed_value", "bounds", "null", "unknown_value"}
    last = {path.rpartition("/")[2].rpartition(".")[2] for path in paths if path.startswith("missing/")}
    for struct in MODEL["objects"]:
        assert {field["name"] for field in struct["fields"] if not field["optional"]} <= last


def test_the_verdicts_are_mixed() -> None:
    verdicts = Counter(str(vector["valid"]) for vector in VECTORS)
    assert verdicts["True"] > 300
    assert verdicts["False"] > 1_000
    assert verdicts["either"] < len(VECTORS) / 20


def test_vectors_are_made_alike_each_time() -> None:
    assert json.dumps(generated_vectors(metamodel())) == json.dumps(GENERATED)


def test_the_traps_are_written_as_the_other_files_are() -> None:
    text = TRAPS.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(
    "trap",
    [
        "duplicate_key.top",
        "duplicate_key.nested",
        "number.2_53",
        "number.minus_2_53",
        "number.2_53_minus_1",
        "number.fraction_zero",
        "number.exponent",
        "number.text",
        "number.nan",
        "number.infinity",
        "number.1e999",
        "depth.32.arrays",
        "depth.33.arrays",
        "depth.200.objects",
        "text.lone_high",
        "text.lone_low",
        "text.surrogate_pair_escaped",
        "text.nul",
        "text.raw_tab",
        "number.leading_zero",
        "unknown_type.event",
        "type.missing",
        "type.number",
        "type.empty",
        "type.twice",
        "null.optional",
        "null.required",
        "identifier.64",
        "identifier.65",
        "byte_order_mark",
        "trailing.garbage",
        "trailing_comma.object",
        "single_quotes",
        "empty_text",
        "array",
        "string",
        "number",
        "text.rtl",
        "text.line_separators",
        "text.escaped_slash",
        "resume.text",
        "batch.unknown_event",
        "batch.holding_a_batch",
        "batch.holding_a_request",
        "truncated.object",
    ],
)
def test_the_traps_that_readers_fell_into_are_there(trap: str) -> None:
    """M9, M10, M12."""
    assert f"traps/{trap}" in {vector["id"] for vector in of("traps.json")}
