"""Text to message and back: strict, and every failure one typed error."""

from __future__ import annotations

import json
import math
from typing import Any

import attrs
import pytest

from pheby_protocol import codec
from pheby_protocol.codec import (
    DecodeError,
    EncodeError,
    Flaw,
    UnknownMessage,
    decode,
    decode_object,
    encode,
    encode_object,
    parse,
    structure,
    unstructure,
)
from pheby_protocol.messages._base import Message
from pheby_protocol.messages.connection import Ping, ServerDraining
from pheby_protocol.messages.message import Receipt
from pheby_protocol.messages.run import RunProgress
from pheby_protocol.messages.tool import ToolStarted
from pheby_protocol.registry import REGISTRY

from .examples import (
    ALL_CLASSES,
    MAXIMAL,
    MINIMAL,
    TYPES,
    bad_values,
    changed,
    example_of,
    frame_of,
    places,
    text_of,
    without,
)


def refusal(text: str) -> DecodeError:
    """The one error that this text gives."""
    with pytest.raises(DecodeError) as caught:
        decode(text)
    return caught.value


def outcome(text: str) -> Message | UnknownMessage | DecodeError:
    """What comes of this text, good or bad."""
    try:
        return decode(text)
    except DecodeError as error:
        return error


def ping_with(json_value: str) -> str:
    """A good frame with an unknown field that holds this."""
    return f'{{"type":"ping","id":"c7","future":{json_value}}}'


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + closing * depth


# -- not an object


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\t",
        "{",
        "}",
        '{"type":"ping","id":"1"',
        '{"type":"ping","id":"1"}}',
        '{"type":"ping","id":"1"} x',
        '{"type":"ping","id":"1"}{"type":"ping","id":"2"}',
        '{"type":"ping","id":"1"}\0',
        '{"type":"ping","id":"1"}\x0b',
        '{"type":"ping","id":"1",}',
        "{'type':'ping','id':'1'}",
        '{type:"ping"}',
        '{"type":"ping","id":01}',
        '{"type":"ping","id":+1}',
        '{"type":"ping","id":.5}',
        '{"type":"ping","id":1.}',
        '{"type":"ping","id":0x1}',
        '{"type":"ping","id":"1"}// no',
        '{"type":"ping","id":"a\nb"}',
        '{"type":"ping","id":"a\0b"}',
        '{"type":"ping","id":"\\x41"}',
        '{"type":"ping","id":"\\u12"}',
        '{"type":"ping","id":True}',
        '\ufeff{"type":"ping","id":"1"}',
        '\u00a0{"type":"ping","id":"1"}',
        "nul",
        "hello",
        "\ud800",
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    error = refusal(text)
    assert (error.flaw, error.path, error.request_id) == (Flaw.NOT_JSON, "$", None)


@pytest.mark.parametrize("text", ["null", "true", "1", "1.5", '"ping"', "[]", '[{"type":"ping","id":"1"}]'])
def test_what_is_no_object_is_refused(text: str) -> None:
    assert refusal(text).flaw is Flaw.NOT_AN_OBJECT


@pytest.mark.parametrize("text", [' {"type":"ping","id":"1"} ', '\r\n\t{ "type" :\n"ping" , "id":"1" }\n'])
def test_white_space_around_and_between_is_no_matter(text: str) -> None:
    assert decode(text) == Ping(id="1")  # type: ignore[arg-type]


@pytest.mark.parametrize("tag", ["null", "1", "true", '""', "[]", "{}", '["ping"]'])
def test_a_type_that_is_no_text_is_refused(tag: str) -> None:
    error = refusal(f'{{"type":{tag},"id":"c7"}}')
    assert (error.flaw, error.path, error.request_id) == (Flaw.NO_TYPE, "$.type", "c7")


def test_a_missing_type_is_refused() -> None:
    assert refusal('{"id":"c7"}').flaw is Flaw.NO_TYPE
    assert refusal("{}").request_id is None


# -- traps of JSON


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"ping","type":"ping","id":"1"}',
        '{"type":"ping","id":"1","id":"2"}',
        '{"type":"ping","id":"1","\\u0069d":"1"}',
        ping_with('{"a":1,"a":1}'),
        ping_with('[[{"b":{"a":1,"a":2}}]]'),
        ping_with('{"":1,"":1}'),
    ],
)
def test_a_key_that_comes_twice_is_refused_at_every_depth(text: str) -> None:
    assert refusal(text).flaw is Flaw.DUPLICATE_KEY


@pytest.mark.parametrize(
    "number",
    [
        str(2**53),
        str(-(2**53)),
        "9" * 5_000,
        "-" + "9" * 5_000,
        "1" + "0" * 17,
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        "1" * 400 + ".0",
    ],
)
def test_a_number_out_of_range_is_refused_wherever_it_stands(number: str) -> None:
    assert refusal(ping_with(number)).flaw is Flaw.NUMBER
    assert refusal(ping_with(f'[{{"a":{number}}}]')).flaw is Flaw.NUMBER
    assert refusal(number).flaw is Flaw.NUMBER


@pytest.mark.parametrize("number", [str(2**53 - 1), str(-(2**53 - 1)), "0", "-0", "1.5", "1e300", "1e-999", "0.1"])
def test_a_number_within_range_is_kept(number: str) -> None:
    found = decode(f'{{"type":"future","n":{number}}}')
    assert isinstance(found, UnknownMessage)
    assert found.content["n"] == json.loads(number)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_32_is_read_and_33_is_not(opening: str, closing: str) -> None:
    inner = "1" if closing == "}" else ""
    deepest = opening * 31 + inner + closing * 31
    assert decode(ping_with(deepest)) == Ping(id="c7")  # type: ignore[arg-type]
    error = refusal(ping_with(opening + deepest + closing))
    assert (error.flaw, error.path, error.request_id) == (Flaw.TOO_DEEP, "$", "c7")


def test_brackets_in_text_are_no_depth() -> None:
    assert decode(ping_with(json.dumps("[{" * 1_000))) == Ping(id="c7")  # type: ignore[arg-type]
    assert decode(ping_with("[" + "[]," * 1_000 + "[]]")) == Ping(id="c7")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        nested(100_000),
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        ping_with(nested(100_000)),
        ping_with('[{"a":' * 50_000),
    ],
    ids=range(6),
)
def test_100_000_deep_is_refused(text: str) -> None:
    assert refusal(text).flaw is Flaw.TOO_DEEP


@pytest.mark.parametrize("lone", ["\\ud800", "\\uDFFF", "a\\udbffb", "\\ude00\\ud83d", "\ud800", "x\udc00"])
def test_a_lone_surrogate_is_refused_escaped_and_raw(lone: str) -> None:
    for text in (ping_with(f'"{lone}"'), ping_with(f'{{"{lone}":1}}'), ping_with(f'[[{{"a":["{lone}"]}}]]')):
        error = refusal(text)
        assert (error.flaw, error.request_id) == (Flaw.SURROGATE, "c7")


def test_a_lone_surrogate_in_the_id_leaves_no_id_to_answer() -> None:
    assert refusal('{"type":"ping","id":"\\ud800"}').request_id is None
    assert refusal('{"type":"ping","id":"a\\u0000"}').request_id is None


@pytest.mark.parametrize("text", ["\\ud83d\\ude00", "😀", "\\\\ud800", "\\\\u0000", "\\u000b", "\\uFFFF"])
def test_text_that_only_looks_like_one_is_read(text: str) -> None:
    frame = frame_of(MINIMAL["run.progress"])
    assert decode(json.dumps(frame).replace('"text": ""', f'"text":"{text}"')).text == json.loads(f'"{text}"')  # type: ignore[union-attr]


@pytest.mark.parametrize("where", ['"\\u0000"', '"a\\u0000b"', '{"\\u0000":1}', '[["\\u0000"]]'])
def test_nul_is_refused(where: str) -> None:
    error = refusal(ping_with(where))
    assert (error.flaw, error.request_id) == (Flaw.NUL, "c7")


@pytest.mark.parametrize(
    ("json_value", "flaw"),
    [
        ("1" * 1_000_000, Flaw.NUMBER),
        ("1e" + "9" * 1_000_000, Flaw.NUMBER),
        ("0." + "1" * 1_000_000, None),
        ('"' + "\\u0041" * 170_000 + '"', None),
        ("[" + "[]," * 340_000 + "[]]", None),
        ('"' + "\\\\ud800" * 130_000 + '"', None),
    ],
    ids=["integer", "exponent", "fraction", "escapes", "lists", "backslashes"],
)
def test_a_frame_of_one_mebibyte_is_judged_whatever_it_holds(json_value: str, flaw: Flaw | None) -> None:
    found = outcome(ping_with(json_value))
    assert (found.flaw if isinstance(found, DecodeError) else None) is flaw


# -- fields


@pytest.mark.parametrize("tag", TYPES)
def test_every_bad_value_in_every_field_is_refused_at_its_place(tag: str) -> None:
    """Nothing is coerced: a bool is no integer, nor are 1.0 and "7"; a list is no object; null is not required text."""
    frame = frame_of(MAXIMAL[tag])
    for place in places(REGISTRY[tag].cls, frame):
        for value in bad_values(place):
            error = refusal(text_of(changed(frame, place.path, value)))
            assert (error.flaw, error.path) == (Flaw.FIELD, place.written), value
            assert error.expected, place
            assert error.request_id == (frame.get("id") if place.path != ("id",) else None)


@pytest.mark.parametrize("tag", TYPES)
def test_every_required_field_is_missed_by_name(tag: str) -> None:
    """M12."""
    for example in (MINIMAL[tag], MAXIMAL[tag]):
        frame = frame_of(example)
        for place in places(REGISTRY[tag].cls, frame):
            if place.required and place.is_field:
                error = refusal(text_of(without(frame, place.path)))
                assert (error.flaw, error.path, error.expected) == (Flaw.FIELD, place.written, "a value")


@pytest.mark.parametrize("tag", TYPES)
def test_an_integer_above_the_bound_is_refused_in_every_field(tag: str) -> None:
    frame = frame_of(MAXIMAL[tag])
    for place in places(REGISTRY[tag].cls, frame):
        for number in (2**53, -(2**53)):
            assert refusal(text_of(changed(frame, place.path, number))).flaw is Flaw.NUMBER


@pytest.mark.parametrize("value", [None, 1, 0, "true", 1.0, [], {}])
def test_a_map_names_itself_and_never_its_keys(value: object) -> None:
    frame = frame_of(MINIMAL["welcome"]) | {"capabilities": {"batch": True, "SECRET": value}}
    error = refusal(text_of(frame))
    assert error.path == "$.capabilities"
    assert "SECRET" not in str(error)


def test_an_unknown_value_of_a_closed_enumeration_is_refused_with_those_on_offer() -> None:
    error = refusal(text_of(frame_of(MINIMAL["message.send"]) | {"if_busy": "future"}))
    assert (error.path, error.expected) == ("$.if_busy", "one of queue, steer, interrupt, reject")


def test_the_place_of_a_flaw_deep_inside() -> None:
    frame = frame_of(MAXIMAL["snapshot"])
    frame["messages"][1]["attachments"][0]["size"] = "7"
    assert refusal(text_of(frame)).path == "$.messages[1].attachments[0].size"


def test_the_place_of_a_flaw_in_a_batch() -> None:
    events = [frame_of(MINIMAL["run.progress"]), frame_of(MINIMAL["run.ended"])]
    events[1]["run"]["status"] = 5
    assert refusal(text_of({"type": "batch", "events": events})).path == "$.events[1].run.status"


def test_the_first_flaw_is_the_one_named() -> None:
    error = refusal('{"type":"hello","id":"c7","protocol_versions":1,"client":{},"resume":5}')
    assert (error.path, error.request_id) == ("$.protocol_versions", "c7")


@pytest.mark.parametrize("request_id", ["7", "7.0", "true", "null", "[]", '{"a":1}', '""', f'"{"x" * 65}"'])
def test_an_id_that_is_none_cannot_be_answered(request_id: str) -> None:
    error = refusal(f'{{"type":"conversation.get","id":{request_id},"conversation_id":5}}')
    assert error.request_id is None
    assert error.path == "$.id"


@pytest.mark.parametrize("tag", TYPES)
def test_an_error_never_repeats_a_value(tag: str) -> None:
    marker = "s3cr3t value"
    frame = frame_of(MAXIMAL[tag])
    for place in places(REGISTRY[tag].cls, frame):
        for value in (marker, [marker], {marker: marker}, [{marker: [marker]}], marker * 99):
            error = outcome(text_of(changed(frame, place.path, value)))
            if isinstance(error, DecodeError):
                assert "s3cr3t" not in f"{error!s} {error!r} {error.path} {error.expected} {error.args}"
                assert error.__cause__ is None
                assert error.__suppress_context__


def test_the_text_of_an_error_says_what_where_and_what_would_do() -> None:
    assert str(refusal('{"type":"ping","id":7}')) == "bad_field at $.id: expected a string"
    assert str(refusal("")) == "not_json at $"


# -- unknown types


def test_an_unknown_type_is_no_flaw() -> None:
    """M9. Its seq moves the cursor."""
    found = decode('{"type":"future.x","id":"c7","seq":812,"anything":[null,{"a":1}]}')
    assert isinstance(found, UnknownMessage)
    assert (found.type, found.seq, found.request_id) == ("future.x", 812, "c7")
    assert found.content["anything"] == [None, {"a": 1}]


@pytest.mark.parametrize("seq", [None, True, False, -1, 1.0, "812", [], {}])
def test_an_unknown_type_with_a_strange_seq_has_none(seq: object) -> None:
    """M9."""
    found = decode(json.dumps({"type": "future.x", "seq": seq, "id": seq}))
    assert isinstance(found, UnknownMessage)
    assert found.seq is None


@pytest.mark.parametrize("tag", ["Ping", "ping ", "PING", "x" * 10_000, "type", "__class__", "ping.result", "😀"])
def test_a_type_must_match_exactly(tag: str) -> None:
    assert isinstance(decode(json.dumps({"type": tag})), UnknownMessage)


def test_an_unknown_message_is_written_as_it_came() -> None:
    frame = {"type": "future.x", "seq": 1, "null": None, "n": 1.0, "text": "ä"}
    assert json.loads(encode(decode(text_of(frame)))) == frame


# -- encode


def test_printable_text_is_sent_as_it_is() -> None:
    send = attrs.evolve(MINIMAL["message.send"], text='Grüße "\\" 😀\n')
    assert encode(send).endswith('"text":"Grüße \\"\\\\\\" 😀\\n"}')


def test_a_frame_is_compact() -> None:
    assert encode(ServerDraining(reconnect_after_ms=5)) == '{"type":"server.draining","reconnect_after_ms":5}'  # type: ignore[arg-type]


def test_a_default_is_left_out() -> None:
    assert "if_busy" not in encode(MINIMAL["message.send"])
    assert "resume" not in encode(MINIMAL["hello"])


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_cannot_be_sent(text: str) -> None:
    progress = MINIMAL["run.progress"]
    assert isinstance(progress, RunProgress)
    with pytest.raises(EncodeError):
        encode(attrs.evolve(progress, text=text))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_cannot_be_sent(number: float) -> None:
    started = MINIMAL["tool.started"]
    assert isinstance(started, ToolStarted)
    with pytest.raises(EncodeError):
        encode(attrs.evolve(started, tool_call=attrs.evolve(started.tool_call, arguments={"n": number})))  # type: ignore[arg-type]


# -- the parts


@pytest.mark.parametrize("tag", TYPES)
def test_parse_and_structure_are_decode_in_two_steps(tag: str) -> None:
    text = encode(MAXIMAL[tag])
    assert structure(parse(text)) == MAXIMAL[tag]
    assert unstructure(MAXIMAL[tag]) == parse(text)


def test_structure_does_not_change_the_frame() -> None:
    frame = frame_of(MAXIMAL["snapshot"]) | {"future": None}
    before = json.dumps(frame)
    structure(frame)
    assert json.dumps(frame) == before


def test_the_quick_and_the_explaining_reader_agree() -> None:
    """One judges, the other explains: what one reads the other reads."""
    for tag in TYPES:
        frame = frame_of(MAXIMAL[tag])
        assert codec._structure_tagged(frame, codec._FAST) == codec._structure_tagged(frame, codec._DETAILED)


# -- objects for storage


OBJECTS = sorted(
    (kind for kind in ALL_CLASSES if attrs.has(kind) and attrs.fields(kind) and not hasattr(kind, "type")),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", OBJECTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("full", [False, True])
def test_a_stored_object_comes_back_as_it_was(kind: type[Any], full: bool) -> None:
    example = example_of(kind, full=full)
    assert decode_object(encode_object(example), kind) == example


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "{", '{"client_message_id":5}', nested(100_000)])
def test_a_spoilt_stored_object_is_one_typed_error(text: str) -> None:
    with pytest.raises(DecodeError, match="Receipt"):
        decode_object(text, Receipt)
