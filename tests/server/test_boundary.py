"""Nothing of an exception reaches a client unless it was written for one (R-M3)."""

from __future__ import annotations

import logging

import pytest

from pheby_protocol.codec import encode
from pheby_protocol.errors import ERRORS, ErrorCode
from pheby_protocol.ids import ConversationId, RequestId
from pheby_protocol.messages.connection import ErrorDetails
from pheby_server.boundary import RequestError, sendable, to_error
from pheby_server.ports import Unavailable

ID = RequestId("r1")


def test_a_request_error_goes_out_as_it_is() -> None:
    details = ErrorDetails(conversation_id=ConversationId("conv_1"))
    failure = RequestError(ErrorCode.BUSY, "Not now.", retry_after_ms=250, details=details)
    found = to_error(failure, ID)
    assert (found.id, found.code, found.message, found.retryable) == (ID, ErrorCode.BUSY, "Not now.", True)
    assert found.retry_after_ms == 250
    assert found.details == details


@pytest.mark.parametrize("code", list(ErrorCode))
def test_without_a_text_of_its_own_the_table_speaks(code: ErrorCode) -> None:
    found = to_error(RequestError(code), ID)
    assert (found.message, found.retryable) == (ERRORS[code].message, ERRORS[code].retryable)


def test_what_hermes_cannot_do_now_may_be_tried_again() -> None:
    found = to_error(Unavailable(), ID)
    assert (found.code, found.retryable) == (ErrorCode.UNAVAILABLE, True)
    assert found.retry_after_ms is not None
    assert found.retry_after_ms > 0


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("/home/owner/secret.txt"),
        KeyError("/home/owner/secret.txt"),
        UnicodeEncodeError("utf-8", "/home/owner/secret.txt", 0, 1, "why"),
        RecursionError("/home/owner/secret.txt"),
    ],
)
def test_whatever_was_not_foreseen_is_internal_and_logged(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        found = to_error(failure, ID)
    assert found.code is ErrorCode.INTERNAL
    assert found.id == ID
    assert "owner" not in encode(found)
    assert any(record.exc_text for record in caplog.records)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("plain", "plain"),
        ("a\ud800b", "a\ufffdb"),
        ("\udfff", "\ufffd"),
        ("nul\x00", "nul\ufffd"),
        ("tab\tand\u0001and 😀", "tab\tand\u0001and 😀"),
    ],
)
def test_what_no_frame_can_carry_becomes_a_replacement_character(text: str, sent: str) -> None:
    assert sendable(text) == sent
