"""Whatever comes in, the codec answers with a message or with one typed error; what it writes it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pheby_protocol.codec import DecodeError, Flaw, UnknownMessage, decode, encode, parse
from pheby_protocol.ids import is_id
from pheby_protocol.limits import MAX_DEPTH, MAX_INTEGER
from pheby_protocol.messages._base import Message
from pheby_protocol.messages.message import MessageSend
from pheby_protocol.messages.tool import ToolCall, ToolStarted
from pheby_protocol.registry import REGISTRY

from ..protocol.examples import MAXIMAL, MINIMAL, TYPES, Place, changed, example_of, frame_of, places, text_of, without

# A slow machine is no flaw.
unhurried = settings(deadline=None)

any_text = st.text(st.characters(codec=None))
clean_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
any_number = st.integers() | st.floats() | st.integers(-(2**60), 2**60)
any_json = st.recursive(
    st.none() | st.booleans() | any_number | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=20,
)
clean_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | clean_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(clean_text, inner, max_size=4),
    max_leaves=20,
)
tags = st.sampled_from(TYPES)


def outcome(text: str) -> Message | UnknownMessage | DecodeError:
    """Anything but these three is an exception that may not be."""
    try:
        return decode(text)
    except DecodeError as error:
        return error


@st.composite
def places_in_frames(draw: st.DrawFn) -> tuple[dict[str, Any], Place]:
    """A good frame, and one value in it."""
    tag = draw(tags)
    frame = frame_of(draw(st.sampled_from([MINIMAL[tag], MAXIMAL[tag]])))
    found = list(places(REGISTRY[tag].cls, frame))
    if not found:
        frame = frame_of(MAXIMAL["hello"])
        found = list(places(REGISTRY["hello"].cls, frame))
    return frame, draw(st.sampled_from(found))


# -- nothing but DecodeError


@unhurried
@given(any_text)
def test_any_text(text: str) -> None:
    found = outcome(text)
    assert isinstance(found, Message | UnknownMessage | DecodeError)


@unhurried
@given(st.text(st.sampled_from('{}[]":,\\u0dD8123456789eE+-. \n\ttypingfalsenul\ud800\0')))
@example('{"type":')
@example('{"":[{"":')
def test_text_that_looks_like_json(text: str) -> None:
    assert isinstance(outcome(text), UnknownMessage | DecodeError)


@unhurried
@given(any_json, st.booleans())
def test_any_json(value: object, ascii_only: bool) -> None:
    found = outcome(json.dumps(value, ensure_ascii=ascii_only))
    assert isinstance(found, UnknownMessage | DecodeError)


@unhurried
@given(st.dictionaries(st.sampled_from(["id", "seq", "time", "conversation_id", "message", "events"]), any_json), tags)
def test_any_json_under_a_known_type(fields: dict[str, object], tag: str) -> None:
    assert isinstance(outcome(json.dumps({"type": tag} | fields)), Message | DecodeError)


@unhurried
@given(places_in_frames(), any_json)
def test_any_json_in_one_field(spot: tuple[dict[str, Any], Place], value: object) -> None:
    """Changing one field of a good frame is where readers go wrong."""
    frame, place = spot
    found = outcome(json.dumps(changed(frame, place.path, value)))
    assert isinstance(found, Message | DecodeError)
    if isinstance(found, DecodeError) and found.flaw is Flaw.FIELD:
        assert found.path.startswith(place.written)


@unhurried
@given(places_in_frames(), places_in_frames())
def test_any_other_good_value_in_one_field(to: tuple[dict[str, Any], Place], of: tuple[dict[str, Any], Place]) -> None:
    """The values of other fields are nearly right, and so are the most dangerous."""
    value: Any = of[0]
    for step in of[1].path:
        value = value[step]
    found = outcome(text_of(changed(to[0], to[1].path, value)))
    assert isinstance(found, Message | DecodeError)


@unhurried
@given(places_in_frames())
def test_one_field_left_out(spot: tuple[dict[str, Any], Place]) -> None:
    frame, place = spot
    found = outcome(text_of(without(frame, place.path)))
    if place.is_field and place.required:
        assert isinstance(found, DecodeError)
        assert found.path == place.written
    else:
        assert isinstance(found, Message)


@unhurried
@given(tags, st.data())
def test_a_good_frame_with_some_characters_changed(tag: str, data: st.DataObject) -> None:
    text = encode(data.draw(st.sampled_from([MINIMAL[tag], MAXIMAL[tag]])))
    start = data.draw(st.integers(0, len(text)))
    end = min(len(text), start + data.draw(st.integers(0, 5)))
    filling = data.draw(st.text(st.sampled_from('{}[]":,\\u0d8 e-1.null\ud800\0'), max_size=4))
    assert isinstance(outcome(text[:start] + filling + text[end:]), Message | UnknownMessage | DecodeError)


@unhurried
@given(tags, st.integers(0, 3_000))
def test_a_good_frame_cut_short_is_no_json(tag: str, length: int) -> None:
    text = encode(MAXIMAL[tag])
    found = outcome(text[: min(length, len(text) - 1)])
    assert isinstance(found, DecodeError)
    assert found.flaw is Flaw.NOT_JSON


# -- errors give nothing away

MARKER = "s3cr3t"


def marked(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(inner, min_size=1, max_size=2) | st.dictionaries(st.just(MARKER), inner, min_size=1)


@unhurried
@given(
    places_in_frames(), st.recursive(st.sampled_from([MARKER, f"{MARKER} ä", MARKER * 99, f"{MARKER}\ud800"]), marked)
)
def test_the_text_of_an_error_never_holds_a_value(spot: tuple[dict[str, Any], Place], value: object) -> None:
    frame, place = spot
    found = outcome(json.dumps(changed(frame, place.path, value) | {MARKER: value}))
    if isinstance(found, DecodeError):
        assert MARKER not in f"{found!s} {found!r} {found.path} {found.expected}"


@unhurried
@given(any_text.map(lambda text: MARKER + text))
def test_the_text_of_an_error_never_holds_the_frame(text: str) -> None:
    found = outcome(text)
    assert isinstance(found, DecodeError)
    assert MARKER not in f"{found!s} {found!r}"


@unhurried
@given(places_in_frames(), any_json)
def test_the_request_is_named_when_it_can_be_read(spot: tuple[dict[str, Any], Place], value: object) -> None:
    frame, place = spot
    found = outcome(json.dumps(changed(frame, place.path, value)))
    if isinstance(found, DecodeError) and found.flaw is Flaw.FIELD and place.path != ("id",):
        assert found.request_id == frame.get("id")


# -- what is written is read


@unhurried
@given(clean_text, clean_text.filter(bool), st.from_regex("[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_any_text_that_can_be_written_is_read(text: str, request_id: str, opaque: str) -> None:
    assert is_id(opaque)
    send = MessageSend(id=request_id[:64], conversation_id=opaque, client_message_id=opaque, text=text)  # type: ignore[arg-type]
    assert decode(encode(send)) == send
    assert decode(json.dumps(json.loads(encode(send)))) == send


@unhurried
@given(st.dictionaries(clean_text, clean_json, max_size=4))
def test_any_tool_arguments_that_can_be_written_are_read(arguments: dict[str, object]) -> None:
    call = attrs.evolve(example_of(ToolCall, full=True), arguments=arguments)
    started = ToolStarted(seq=1, time=1, conversation_id="c", tool_call=call)  # type: ignore[arg-type]
    assert decode(encode(started)) == started


@unhurried
@given(st.dictionaries(clean_text, clean_json, max_size=4))
def test_any_unknown_event_is_kept(content: dict[str, object]) -> None:
    """M9."""
    frame = content | {"type": "future.x"}
    found = decode(text_of(frame))
    assert found == UnknownMessage("future.x", frame)
    assert parse(encode(found)) == frame


@unhurried
@given(any_text)
def test_text_that_cannot_be_read_back_is_refused_by_parse(text: str) -> None:
    """A lone surrogate and NUL are refused however they are written; all other text is kept."""
    good = "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
    for ascii_only in (True, False):
        try:
            found = parse(json.dumps({"text": text}, ensure_ascii=ascii_only))
        except DecodeError as error:
            flaw: Flaw | None = error.flaw
        else:
            flaw = None
            # A pair of surrogates that stand side by side is one character once it was escaped.
            assert found["text"] == json.loads(json.dumps(text))
        if good:
            assert flaw is None
        elif not ascii_only:
            assert flaw in (Flaw.SURROGATE, Flaw.NUL)


# -- depth, against a plain count


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


WRAPPERS: tuple[Callable[[object], object], ...] = (
    lambda item: [item],
    lambda item: {"a": item},
    lambda item: [[], item],
)


@unhurried
@given(clean_json, st.lists(st.sampled_from(WRAPPERS), min_size=25, max_size=40))
def test_depth_is_what_it_is_counted_to_be(value: object, wrappers: list[Callable[[object], object]]) -> None:
    for wrap in wrappers:
        value = wrap(value)
    frame = {"type": "future", "value": value}
    found = outcome(text_of(frame))
    if depth(frame) <= MAX_DEPTH:
        assert isinstance(found, UnknownMessage)
    else:
        assert isinstance(found, DecodeError)
        assert found.flaw is Flaw.TOO_DEEP
