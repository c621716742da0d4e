"""The exported schema and the codec judge alike: one field of a good frame is changed, and both are asked.

Random objects find nothing here; what is nearly right finds everything. Left out is only what is documented: null for
an optional field, and 1.0 for an integer.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pheby_protocol.codec import DecodeError, Flaw, decode
from pheby_protocol.export.examples import examples
from pheby_protocol.limits import MAX_ID_CHARS, MAX_INTEGER
from pheby_protocol.registry import REGISTRY

from ..protocol.examples import MAXIMAL, MINIMAL, frame_of
from ..protocol.schema_checks import MODEL, differs_by_design, parts, schema_allows

TAGS = tuple(REGISTRY)
GOOD: dict[str, list[dict[str, Any]]] = {
    tag: [examples(MODEL)[tag], examples(MODEL, full=False)[tag], frame_of(MINIMAL[tag]), frame_of(MAXIMAL[tag])]
    for tag in TAGS
}
FIELD_NAMES = sorted(
    {field["name"] for struct in [*MODEL["messages"], *MODEL["objects"]] for field in struct["fields"]} | {"type"}
)
Path = tuple[str | int, ...]


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    """Every place in a JSON value but the whole."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        yield (*path, step)
        yield from paths(item, (*path, step))


PLACES = {(tag, number): list(paths(frame)) for tag, frames in GOOD.items() for number, frame in enumerate(frames)}
VALUES = [part for frames in GOOD.values() for frame in frames for part in parts(frame) if part is not None]
# Equal values many times over would hide the rare ones.
DISTINCT = list({json.dumps(value, sort_keys=True): value for value in VALUES}.values())

clean_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=MAX_ID_CHARS + 2)
identifier = st.text(st.sampled_from("aZ0_-. \n\u00e4"), max_size=3) | st.integers(0, 66).map(lambda count: "a" * count)
integer = st.sampled_from([-MAX_INTEGER, -2, -1, 0, 1, MAX_INTEGER]) | st.integers(-MAX_INTEGER, MAX_INTEGER)
fraction = st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer())
plain = st.booleans() | integer | fraction | clean_text | identifier | st.sampled_from([*TAGS, "", "future", "7"])
nested = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner | st.none(), max_size=3) | st.dictionaries(st.sampled_from(FIELD_NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)
# Either side of each bound.
near = st.sampled_from(
    [
        -MAX_INTEGER,
        -2,
        -1,
        0,
        MAX_INTEGER,
        "",
        "a\n",
        "a.b",
        *("a" * count for count in (64, 65, 512, 513)),
        {},
        [],
        [7],
    ]
)
values = near | near | st.none() | nested | st.sampled_from(DISTINCT)


@st.composite
def changed_frames(draw: st.DrawFn) -> dict[str, Any]:
    """A good frame with one place changed, left out or added to."""
    tag = draw(st.sampled_from(TAGS))
    number = draw(st.integers(0, len(GOOD[tag]) - 1))
    frame = copy.deepcopy(GOOD[tag][number])
    path = draw(st.sampled_from(PLACES[tag, number]))
    holder: Any = frame
    for step in path[:-1]:
        holder = holder[step]
    match draw(st.sampled_from(["change", "change", "change", "leave out", "add"])):
        case "leave out":
            del holder[path[-1]]
        case "add" if isinstance(holder, dict):
            holder[draw(st.sampled_from(FIELD_NAMES))] = draw(values)
        case _:
            holder[path[-1]] = draw(values)
    return frame


def codec_allows(frame: dict[str, Any]) -> bool:
    flaw = None
    try:
        decode(json.dumps(frame, ensure_ascii=False))
    except DecodeError as error:
        flaw = error.flaw
    # A frame is good JSON here: what is wrong with it is a matter of its fields.
    assert flaw in (None, Flaw.FIELD, Flaw.NO_TYPE)
    return flaw is None


@settings(max_examples=6_000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(changed_frames())
def test_schema_and_codec_agree_on_a_good_frame_with_one_change(frame: dict[str, Any]) -> None:
    assume(not differs_by_design(frame))
    assert schema_allows(frame) is codec_allows(frame)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(TAGS), st.sampled_from(TAGS), st.integers(0, 3))
def test_they_agree_on_one_messages_fields_under_anothers_type(tag: str, other: str, number: int) -> None:
    frame = GOOD[tag][number] | {"type": other}
    assume(not differs_by_design(frame))
    assert schema_allows(frame) is codec_allows(frame)
