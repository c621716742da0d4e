"""R-G3, J7, J8: what a request for a file is answered with, by RFC 9110, from its headers alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pheby_server.aiohttp_transport.ranges import Asked, Plan, as_http_date, http_date, plan

ETAG = '"' + "ab12" * 16 + '"'
MODIFIED = 784_111_777
"""Sun, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110's examples."""
EARLIER, THEN, LATER = (as_http_date(MODIFIED + seconds) for seconds in (-1, 0, 1))


def planned(size: int = 1_000, *, is_get: bool = True, **headers: str) -> tuple[int, int, int]:
    """Status, start, length."""
    found = plan(Asked(**headers), is_get=is_get, etag=ETAG, modified=MODIFIED, size=size)
    return found.status, found.start, found.length


WHOLE = (200, 0, 1_000)
NONE = (416, 0, 0)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("bytes=0-32767", (206, 0, 1_000)),
        ("bytes=500-", (206, 500, 500)),
        ("bytes=-100", (206, 900, 100)),
        ("bytes=99999-", NONE),
        ("bytes=0-0,5-5", WHOLE),
        ("bytes=0-0", (206, 0, 1)),
        ("bytes=0-", (206, 0, 1_000)),
        ("bytes=999-", (206, 999, 1)),
        ("bytes=999-999", (206, 999, 1)),
        ("bytes=1000-", NONE),
        ("bytes=1000-1000", NONE),
        ("bytes=998-1000", (206, 998, 2)),
        ("bytes=007-0009", (206, 7, 3)),
        ("bytes=-1", (206, 999, 1)),
        ("bytes=-1000", (206, 0, 1_000)),
        ("bytes=-1001", (206, 0, 1_000)),
        ("bytes=-0", NONE),
        ("bytes=-000", NONE),
        ("BYTES=1-2", (206, 1, 2)),
        (" bytes=1-2\t", (206, 1, 2)),
        ("bytes= 1-2 ", (206, 1, 2)),
        ("bytes=,1-2,", (206, 1, 2)),
        ("bytes=" + "9" * 30_000 + "-", NONE),
        ("bytes=0-" + "9" * 30_000, (206, 0, 1_000)),
        ("bytes=-" + "9" * 30_000, (206, 0, 1_000)),
        ("bytes=" + "0" * 30_000 + "1-2", (206, 1, 2)),
    ],
)
def test_one_range_of_a_thousand_bytes(field: str, expected: tuple[int, int, int]) -> None:
    """J7."""
    assert planned(range=field) == expected


@pytest.mark.parametrize(
    "field",
    [
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=,",
        "bytes=a-b",
        "bytes=1",
        "bytes=2-1",
        "bytes=99999-2",
        "bytes=1-2-3",
        "bytes=--1",
        "bytes=1--2",
        "bytes=+1-2",
        "bytes=1 - 2",
        "bytes =1-2",
        "bytes:1-2",
        "bytes=0x1-0x2",
        "bytes=1.0-2",
        "bytes=\u0661-\u0662",
        "bytes=1-2;x",
        "bytes=1-2\0",
        "items=1-2",
        "none",
        "bytes=0-1, 5-6",
        "bytes=-1,0-1",
        "bytes=99999-,88888-",
        "bytes=0-1,bytes=4-5",
    ],
)
def test_what_is_no_one_range_of_bytes_is_ignored(field: str) -> None:
    """J7: never an error of the server's, and never a part that was not asked for."""
    assert planned(range=field) == WHOLE


@pytest.mark.parametrize(
    ("field", "status"),
    [("bytes=0-", 416), ("bytes=0-0", 416), ("bytes=5-", 416), ("bytes=-0", 416), ("bytes=-5", 200), ("junk", 200)],
)
def test_ranges_of_an_empty_file(field: str, status: int) -> None:
    """J7."""
    assert planned(0, range=field) == (status, 0, 0)


def test_head_has_no_range() -> None:
    """R-G3. RFC 9110, section 14.2: ranges are defined for GET alone."""
    assert planned(is_get=False, range="bytes=0-9") == WHOLE
    assert planned(is_get=False, range="bytes=99999-") == WHOLE


@pytest.mark.parametrize(
    ("if_range", "status"),
    [
        (ETAG, 206),
        (f" {ETAG}\t", 206),
        ('"other"', 200),
        ("W/" + ETAG, 200),
        (ETAG.strip('"'), 200),
        (ETAG[:-1], 200),
        (f"{ETAG}, {ETAG}", 200),
        ("*", 200),
        ("junk", 200),
        ("", 200),
        (THEN, 200),
        (LATER, 200),
        ("\xff\0", 200),
    ],
)
def test_a_part_is_sent_only_of_the_very_same_file(if_range: str, status: int) -> None:
    """J8."""
    assert planned(range="bytes=10-19", if_range=if_range) == ((206, 10, 10) if status == 206 else WHOLE)
    assert planned(range="bytes=99999-", if_range=if_range) == (NONE if status == 206 else WHOLE)
    assert planned(if_range=if_range) == WHOLE


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"if_none_match": ETAG}, 304),
        ({"if_none_match": "W/" + ETAG}, 304),
        ({"if_none_match": f'"a,b", W/"c" , {ETAG}'}, 304),
        ({"if_none_match": f",,{ETAG},"}, 304),
        ({"if_none_match": "*"}, 304),
        ({"if_none_match": ' "*" '}, 200),
        ({"if_none_match": '"other", W/"another"'}, 200),
        ({"if_none_match": ETAG.strip('"')}, 200),
        ({"if_none_match": ""}, 200),
        ({"if_match": ETAG}, 200),
        ({"if_match": f'"other",{ETAG}'}, 200),
        ({"if_match": "*"}, 200),
        ({"if_match": "W/" + ETAG}, 412),
        ({"if_match": '"other"'}, 412),
        ({"if_match": "junk"}, 412),
        ({"if_match": ""}, 412),
        ({"if_modified_since": EARLIER}, 200),
        ({"if_modified_since": THEN}, 304),
        ({"if_modified_since": LATER}, 304),
        ({"if_modified_since": "junk"}, 200),
        ({"if_modified_since": f"{LATER},{LATER}"}, 200),
        ({"if_unmodified_since": EARLIER}, 412),
        ({"if_unmodified_since": THEN}, 200),
        ({"if_unmodified_since": LATER}, 200),
        ({"if_unmodified_since": "junk"}, 200),
        # The order of section 13.2.2: a tag goes before a date, If-Match before If-None-Match, both before a range.
        ({"if_match": ETAG, "if_unmodified_since": EARLIER}, 200),
        ({"if_match": '"other"', "if_unmodified_since": LATER}, 412),
        ({"if_none_match": '"other"', "if_modified_since": LATER}, 200),
        ({"if_none_match": ETAG, "if_modified_since": EARLIER}, 304),
        ({"if_match": '"other"', "if_none_match": ETAG}, 412),
        ({"if_match": ETAG, "if_none_match": ETAG}, 304),
        ({"if_unmodified_since": EARLIER, "if_none_match": ETAG}, 412),
        ({"if_unmodified_since": LATER, "if_modified_since": LATER}, 304),
        ({"if_none_match": ETAG, "range": "bytes=99999-"}, 304),
        ({"if_none_match": ETAG, "range": "bytes=0-9", "if_range": ETAG}, 304),
        ({"if_match": '"other"', "range": "bytes=0-9"}, 412),
        ({"if_match": ETAG, "range": "bytes=0-9"}, 206),
        ({"if_match": ETAG, "range": "bytes=0-9", "if_range": '"other"'}, 200),
        ({"if_none_match": '"other"', "range": "bytes=99999-"}, 416),
    ],
)
def test_conditions_in_the_order_of_the_standard(headers: dict[str, str], status: int) -> None:
    """R-G3."""
    assert planned(**headers)[0] == status
    if "range" not in headers:
        assert planned(is_get=False, **headers)[0] == status


@pytest.mark.parametrize(
    "text",
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"],
)
def test_all_three_forms_of_a_date_are_read(text: str) -> None:
    """R-G3. RFC 9110, section 5.6.7."""
    assert http_date(text) == MODIFIED
    assert as_http_date(MODIFIED) == "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    "text", [None, "", "0", "x" * 10_000, "Sun, 06 Nov 99999 08:49:37 GMT", "Sun, 32 Nov 1994 08:49:37 GMT", "\0", ","]
)
def test_what_is_no_date_is_none(text: str | None) -> None:
    assert http_date(text) is None


@given(st.integers(0, 253_402_300_799))
def test_a_date_is_read_as_it_was_written(seconds: int) -> None:
    """R-G3."""
    assert http_date(as_http_date(seconds)) == seconds


@given(
    st.from_regex(
        r"\A(?:Sun, [0-9]{2} (?:Nov|Feb|Xyz) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT"
        r"|Sunday, [0-9]{2}-(?:Nov|Day)-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT"
        r"|Sun Nov [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} [0-9]{4})\Z"
    )
)
def test_what_looks_like_a_date_never_raises(text: str) -> None:
    """R-M3."""
    found = http_date(text)
    assert found is None or as_http_date(found)


PIECES = st.sampled_from(
    ["bytes", "=", "-", ",", " ", "0", "1", "9", "999", "1000", "99999999999999999999", "W/", '"', ETAG, "*", "\t", "x"]
)
FIELD = st.none() | st.text() | st.lists(PIECES).map("".join) | st.sampled_from([ETAG, "*", EARLIER, THEN, LATER])
RANGE = FIELD | st.tuples(st.integers(0, 1_200), st.integers(0, 1_200)).map(lambda pair: f"bytes={pair[0]}-{pair[1]}")


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    fields: dict[str, Any] = {name: draw(FIELD) for name in Asked.__slots__ if name.startswith("if_")}
    return Asked(range=draw(RANGE), **fields)


@given(asked(), st.booleans(), st.integers(0, 2**62) | st.integers(0, 3))
@example(Asked(range="bytes=-", if_match=ETAG), True, 0)
def test_whatever_the_headers_say_the_plan_is_within_the_file(asked: Asked, is_get: bool, size: int) -> None:
    """R-G3, J7, J8, R-M3."""
    found = plan(asked, is_get=is_get, etag=ETAG, modified=MODIFIED, size=size)
    assert found.status in (200, 206, 304, 412, 416)
    if found.status == 200:
        assert found == Plan(found.status, 0, size)
    elif found.status == 206:
        assert is_get
        assert asked.range is not None
        assert asked.if_range is None or asked.if_range.strip() == ETAG
        assert 0 <= found.start < found.start + found.length <= size
    else:
        assert found == Plan(found.status)


@given(st.integers(0, 1_100), st.integers(0, 1_100), st.integers(0, 1_000))
def test_a_range_is_what_a_slice_is(first: int, last: int, size: int) -> None:
    """J7: the oracle is the language's own slicing."""
    content = bytes(index % 251 for index in range(size))
    for field, expected in (
        (f"bytes={first}-{last}", content[first : last + 1]),
        (f"bytes={first}-", content[first:]),
        (f"bytes=-{last}", content[-last:] if last else b""),
    ):
        status, start, length = planned(size, range=field)
        if status == 206:
            assert content[start : start + length] == expected
            assert expected
        elif status == 416:
            assert not expected
        else:
            assert (start, length) == (0, size)
            assert not size or (last < first and field.endswith(f"-{last}"))
