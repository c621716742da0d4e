"""The tables of error, close and HTTP codes against the wire contract, sections 1, 8 and 9."""

from __future__ import annotations

import json

import pytest

from pheby_protocol.codec import decode
from pheby_protocol.errors import CLOSES, ERRORS, AfterClose, CloseCode, ErrorCode, HttpCode
from pheby_protocol.messages.connection import Error

from .examples import words

ERROR_CODES = words("""
    invalid_message unknown_type unsupported_version not_ready forbidden not_found conflict title_conflict
    invalid_title busy not_answerable already_resolved expired invalid_choice invalid_model invalid_effort too_large
    rate_limited unavailable internal
""")

RECONNECT, AFTER_DELAY = AfterClose.RECONNECT, AfterClose.RECONNECT_AFTER_DELAY
CLOSE_CODES = {
    1000: RECONNECT,
    1001: AFTER_DELAY,
    1003: AfterClose.REPORT,
    1009: AfterClose.REPORT,
    1011: RECONNECT,
    4400: AfterClose.REPORT,
    4401: AfterClose.ASK_SECRET,
    4406: AfterClose.UPDATE,
    4408: RECONNECT,
    4409: AfterClose.STOP_UNTIL_OPENED,
    4413: RECONNECT,
    4429: AFTER_DELAY,
    4503: AFTER_DELAY,
}
HTTP_CODES = words("unauthorized locked_out not_found expired unavailable invalid_range")


def test_every_error_code_of_the_contract_is_known() -> None:
    assert {code.value for code in ErrorCode} >= set(ERROR_CODES)


def test_every_error_code_has_a_row_and_every_row_a_code() -> None:
    assert set(ERRORS) == set(ErrorCode)


@pytest.mark.parametrize("code", ErrorCode)
def test_every_error_row_says_what_it_is_and_what_to_do(code: ErrorCode) -> None:
    """J2."""
    row = ERRORS[code]
    assert row.message.endswith(".")
    assert row.client.endswith(".")


@pytest.mark.parametrize("code", words("not_ready busy not_answerable rate_limited unavailable internal"))
def test_what_passes_by_itself_is_retryable(code: str) -> None:
    assert ERRORS[ErrorCode(code)].retryable


@pytest.mark.parametrize(
    "code", words("invalid_message unknown_type unsupported_version forbidden not_found conflict too_large expired")
)
def test_what_stays_wrong_is_not_retryable(code: str) -> None:
    assert not ERRORS[ErrorCode(code)].retryable


@pytest.mark.parametrize(("code", "after"), CLOSE_CODES.items())
def test_every_close_code_of_the_contract_is_in_the_table(code: int, after: AfterClose) -> None:
    assert CLOSES[CloseCode(code)].client is after


def test_no_close_code_but_those_of_the_contract_is_sent() -> None:
    assert set(CLOSES) == set(CloseCode) == set(CLOSE_CODES)


@pytest.mark.parametrize("code", [1004, 1005, 1006, 1012, 1015])
def test_what_only_a_line_or_a_proxy_reports_has_no_close_code(code: int) -> None:
    """M5."""
    with pytest.raises(ValueError, match=str(code)):
        CloseCode(code)


def test_close_codes_are_ones_that_a_peer_may_send() -> None:
    """M5. RFC 6455, section 7.4: some of 1000 to 1011, or the private range."""
    assert all(code in (1000, 1001, 1003, 1009, 1011) or 4000 <= code <= 4999 for code in CloseCode)


def test_every_meaning_fits_a_close_frame() -> None:
    """M5."""
    assert all(len(info.meaning.encode()) <= 123 for info in CLOSES.values())


def test_every_http_code_of_the_contract_is_known() -> None:
    assert {code.value for code in HttpCode} >= set(HTTP_CODES)


def test_an_unknown_error_code_is_kept_and_matches_no_known_one() -> None:
    """M10."""
    found = decode(json.dumps({"type": "error", "code": "new_code", "message": "", "retryable": True}))
    assert isinstance(found, Error)
    assert found.code == "new_code"
    assert not found.code.known
    assert found.code not in ERRORS
