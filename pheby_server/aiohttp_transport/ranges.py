"""What a request for a file is answered with, from its headers alone (RFC 9110, sections 13 and 14). Never raises."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import attrs

_RANGE_SET: Final = re.compile(r"bytes=(?P<set>.*)", re.IGNORECASE | re.DOTALL)
_RANGE: Final = re.compile(r"(?P<first>[0-9]*)-(?P<last>[0-9]*)")
_ENTITY_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\U0010ffff]*"')
_WEAK: Final = "W/"
_TIME: Final = "[0-9]{2}:[0-9]{2}:[0-9]{2}"
_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{2}}, [0-9]{{2}} [A-Z][a-z]{{2}} [0-9]{{4}} {_TIME} GMT"
    rf"|[A-Z][a-z]+day, [0-9]{{2}}-[A-Z][a-z]{{2}}-[0-9]{{2}} {_TIME} GMT"
    rf"|[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ 0-9][0-9] {_TIME} [0-9]{{4}}"
)
"""The three forms of section 5.6.7. What Python reads is more, a list of dates for one."""
_BLANK: Final = " \t"
_MOST_DIGITS: Final = 18
"""A number of more digits is beyond the end of every file; Python does not even read one of some thousands."""


@attrs.frozen(kw_only=True)
class Asked:
    """The request headers that decide what is sent: None where absent, several lines of one joined by commas."""

    range: str | None = None
    if_range: str | None = None
    if_match: str | None = None
    if_none_match: str | None = None
    if_modified_since: str | None = None
    if_unmodified_since: str | None = None


@attrs.frozen
class Plan:
    """The status, and for 200 and 206 which of the stored bytes."""

    status: HTTPStatus
    start: int = 0
    length: int = 0


def plan(asked: Asked, *, is_get: bool, etag: str, modified: int, size: int) -> Plan:
    """What a GET or HEAD is answered with. `etag` is strong and in its quotes, `modified` in seconds since 1970."""
    refused = _precondition(asked, etag, modified)
    if refused is not None:
        return Plan(refused)
    whole = Plan(HTTPStatus.OK, 0, size)
    # Ranges are a matter of GET alone (14.2), and of nobody whose part is of another file (13.1.5).
    if asked.range is None or not is_get or not _is_of_this(asked.if_range, etag):
        return whole
    return _part(asked.range, size) or whole


def _precondition(asked: Asked, etag: str, modified: int) -> HTTPStatus | None:
    """The status that ends the request before its range is looked at, in the order of section 13.2.2."""
    if asked.if_match is not None:
        if not _names(asked.if_match, etag, weakly=False):
            return HTTPStatus.PRECONDITION_FAILED
    elif (since := http_date(asked.if_unmodified_since)) is not None and modified > since:
        return HTTPStatus.PRECONDITION_FAILED
    if asked.if_none_match is not None:
        if _names(asked.if_none_match, etag, weakly=True):
            return HTTPStatus.NOT_MODIFIED
    elif (since := http_date(asked.if_modified_since)) is not None and modified <= since:
        return HTTPStatus.NOT_MODIFIED
    return None


def _names(listed: str, etag: str, *, weakly: bool) -> bool:
    if listed.strip(_BLANK) == "*":
        return True
    tags = _ENTITY_TAG.findall(listed)
    return etag in ([tag.removeprefix(_WEAK) for tag in tags] if weakly else tags)


def _is_of_this(if_range: str | None, etag: str) -> bool:
    # A date is no strong validator here: it says when the file was delivered, and two may come in one second.
    return if_range is None or if_range.strip(_BLANK) == etag


def _part(field: str, size: int) -> Plan | None:
    """The one range that is asked for; None where the header is to be ignored."""
    header = _RANGE_SET.fullmatch(field.strip(_BLANK))
    if header is None:
        return None
    # Empty members of a list count for nothing (5.6.1.2).
    members = [member for one in header["set"].split(",") if (member := one.strip(_BLANK))]
    if len(members) != 1:
        # Several are sent as the whole (14.2 allows it): a client of ours resumes, and that takes one.
        return None
    return _one_range(members[0], size)


def _one_range(member: str, size: int) -> Plan | None:
    found = _RANGE.fullmatch(member)
    if found is None or member == "-":
        return None
    if not found["first"]:
        return _suffix(_number(found["last"]), size)
    first = _number(found["first"])
    last = _number(found["last"]) if found["last"] else max(first, size - 1)
    if last < first:
        return None
    if first >= size:
        return Plan(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
    return Plan(HTTPStatus.PARTIAL_CONTENT, first, min(last, size - 1) - first + 1)


def _suffix(length: int, size: int) -> Plan | None:
    if length == 0:
        return Plan(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
    if size == 0:
        # The end of nothing is there, but no Content-Range can say so.
        return None
    start = max(0, size - length)
    return Plan(HTTPStatus.PARTIAL_CONTENT, start, size - start)


def _number(digits: str) -> int:
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= _MOST_DIGITS else 10**_MOST_DIGITS


def http_date(text: str | None) -> int | None:
    """Seconds since 1970 of a date in a header; None for what is no date."""
    if text is None or _DATE.fullmatch(text) is None:
        return None
    try:
        found = parsedate_to_datetime(text)
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None


def as_http_date(seconds: int) -> str:
    """A time as a header has it."""
    return format_datetime(datetime.fromtimestamp(seconds, UTC), usegmt=True)
