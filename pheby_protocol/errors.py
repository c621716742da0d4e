"""Error, close and HTTP codes, each with what a client should do: the tables that code and documents share."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import attrs

from .open_enum import OpenEnum


class ErrorCode(OpenEnum):
    """Stable code of an `error` frame. A client decides by the code, never by the text."""

    INVALID_MESSAGE = "invalid_message"
    UNKNOWN_TYPE = "unknown_type"
    UNSUPPORTED_VERSION = "unsupported_version"
    NOT_READY = "not_ready"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    TITLE_CONFLICT = "title_conflict"
    INVALID_TITLE = "invalid_title"
    BUSY = "busy"
    NOT_ANSWERABLE = "not_answerable"
    ALREADY_RESOLVED = "already_resolved"
    EXPIRED = "expired"
    INVALID_CHOICE = "invalid_choice"
    INVALID_MODEL = "invalid_model"
    INVALID_EFFORT = "invalid_effort"
    TOO_LARGE = "too_large"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


@attrs.frozen
class ErrorInfo:
    """One row of the error table: default text for people, whether repeating can help, what the client does."""

    message: str
    retryable: bool
    client: str


ERRORS: Final[dict[ErrorCode, ErrorInfo]] = {
    ErrorCode.INVALID_MESSAGE: ErrorInfo("The frame could not be understood.", False, "A bug: report, do not resend."),
    ErrorCode.UNKNOWN_TYPE: ErrorInfo(
        "This server does not know that request.", False, "Do without; check the capability."
    ),
    ErrorCode.UNSUPPORTED_VERSION: ErrorInfo("No protocol version in common.", False, "Ask the user to update."),
    ErrorCode.NOT_READY: ErrorInfo("The connection is not in step yet.", True, "Wait for sync.completed, then repeat."),
    ErrorCode.FORBIDDEN: ErrorInfo(
        "The access mode does not allow that.", False, "Hide the action; see access_mode in welcome."
    ),
    ErrorCode.NOT_FOUND: ErrorInfo("There is no such thing here.", False, "Remove it from the screen."),
    ErrorCode.CONFLICT: ErrorInfo(
        "That id was used with other content.", False, "Compare with details.receipt; use a new id."
    ),
    ErrorCode.TITLE_CONFLICT: ErrorInfo("Another conversation has that title.", False, "Ask for another title."),
    ErrorCode.INVALID_TITLE: ErrorInfo("That title is not allowed.", False, "Ask for another title."),
    ErrorCode.BUSY: ErrorInfo("A run is active in this conversation.", True, "Wait for run.ended, or queue."),
    ErrorCode.NOT_ANSWERABLE: ErrorInfo("That prompt cannot be answered now.", True, "Wait for approval.updated."),
    ErrorCode.ALREADY_RESOLVED: ErrorInfo("That prompt was decided already.", False, "Show the decision in details."),
    ErrorCode.EXPIRED: ErrorInfo("That prompt is no longer open.", False, "Close it on the screen."),
    ErrorCode.INVALID_CHOICE: ErrorInfo(
        "That choice was not offered.", False, "Offer the choices in details; it is still open."
    ),
    ErrorCode.INVALID_MODEL: ErrorInfo("That model is not offered.", False, "List the models again."),
    ErrorCode.INVALID_EFFORT: ErrorInfo("That effort is not offered.", False, "Offer the efforts in details."),
    ErrorCode.TOO_LARGE: ErrorInfo("That text is too long.", False, "Shorten it; see limits in welcome."),
    ErrorCode.RATE_LIMITED: ErrorInfo("Too many requests.", True, "Repeat after retry_after_ms."),
    ErrorCode.UNAVAILABLE: ErrorInfo(
        "That is not available now.", True, "Repeat after retry_after_ms; check the capability."
    ),
    ErrorCode.INTERNAL: ErrorInfo("Something went wrong in the server.", True, "Repeat once, then tell the user."),
}


class CloseCode(IntEnum):
    """WebSocket close codes that the server sends (RFC 6455, section 7.4, and Pheby's own from 4400)."""

    NORMAL = 1000
    GOING_AWAY = 1001
    UNSUPPORTED_DATA = 1003
    TOO_BIG = 1009
    INTERNAL = 1011
    PROTOCOL_ERROR = 4400
    CREDENTIAL_INVALID = 4401
    NO_COMMON_VERSION = 4406
    HELLO_TIMEOUT = 4408
    REPLACED = 4409
    TOO_SLOW = 4413
    TOO_MANY_REQUESTS = 4429
    DRAINING = 4503


class AfterClose(OpenEnum):
    """What a client does after a close."""

    RECONNECT = "reconnect"
    RECONNECT_AFTER_DELAY = "reconnect_after_delay"
    REPORT = "report"
    ASK_SECRET = "ask_secret"  # noqa: S105 - an action's name, not a secret
    UPDATE = "update"
    STOP_UNTIL_OPENED = "stop_until_opened"


@attrs.frozen
class CloseInfo:
    """One row of the close table: what it means and what the client does."""

    meaning: str
    client: AfterClose


CLOSES: Final[dict[CloseCode, CloseInfo]] = {
    CloseCode.NORMAL: CloseInfo("Closed in good order.", AfterClose.RECONNECT),
    CloseCode.GOING_AWAY: CloseInfo("The server is going away.", AfterClose.RECONNECT_AFTER_DELAY),
    CloseCode.UNSUPPORTED_DATA: CloseInfo("A binary frame.", AfterClose.REPORT),
    CloseCode.TOO_BIG: CloseInfo("A frame above max_frame_bytes.", AfterClose.REPORT),
    CloseCode.INTERNAL: CloseInfo("Something went wrong in the server.", AfterClose.RECONNECT),
    CloseCode.PROTOCOL_ERROR: CloseInfo("Too many undecodable frames, or no hello first.", AfterClose.REPORT),
    CloseCode.CREDENTIAL_INVALID: CloseInfo("The credential is no longer valid.", AfterClose.ASK_SECRET),
    CloseCode.NO_COMMON_VERSION: CloseInfo("No protocol version in common.", AfterClose.UPDATE),
    CloseCode.HELLO_TIMEOUT: CloseInfo("No hello in time.", AfterClose.RECONNECT),
    CloseCode.REPLACED: CloseInfo("A newer connection of this device took over.", AfterClose.STOP_UNTIL_OPENED),
    CloseCode.TOO_SLOW: CloseInfo("Live events could not be delivered fast enough.", AfterClose.RECONNECT),
    CloseCode.TOO_MANY_REQUESTS: CloseInfo("Too many requests.", AfterClose.RECONNECT_AFTER_DELAY),
    CloseCode.DRAINING: CloseInfo("The server takes no new connections.", AfterClose.RECONNECT_AFTER_DELAY),
}
"""Any other code (1005, 1006, 1012, unknown) is the network or a proxy: reconnect with back-off."""


class HttpCode(OpenEnum):
    """Stable code in the body of an HTTP error."""

    UNAUTHORIZED = "unauthorized"
    LOCKED_OUT = "locked_out"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    EXPIRED = "expired"
    UNAVAILABLE = "unavailable"
    INVALID_RANGE = "invalid_range"
    PRECONDITION_FAILED = "precondition_failed"
    UPGRADE_REQUIRED = "upgrade_required"
    BODY_REFUSED = "body_refused"


@attrs.frozen
class HttpErrorInfo:
    """One row of the HTTP table: the statuses that a code comes with, and a text for people."""

    statuses: tuple[int, ...]
    message: str


HTTP_ERRORS: Final[dict[HttpCode, HttpErrorInfo]] = {
    HttpCode.UNAUTHORIZED: HttpErrorInfo((401,), "The secret is missing or wrong."),
    HttpCode.LOCKED_OUT: HttpErrorInfo((429,), "Too many wrong secrets from this address."),
    HttpCode.FORBIDDEN: HttpErrorInfo((403,), "Web pages may not connect."),
    HttpCode.NOT_FOUND: HttpErrorInfo((404,), "There is no such file."),
    HttpCode.EXPIRED: HttpErrorInfo((410,), "The file has expired."),
    HttpCode.UNAVAILABLE: HttpErrorInfo((503,), "The server takes no connections now."),
    HttpCode.INVALID_RANGE: HttpErrorInfo((416,), "The file has no such range."),
    HttpCode.PRECONDITION_FAILED: HttpErrorInfo((412,), "The file is another one than the request is about."),
    HttpCode.UPGRADE_REQUIRED: HttpErrorInfo((426,), "This address speaks WebSocket."),
    HttpCode.BODY_REFUSED: HttpErrorInfo((413, 415), "A request here has no body."),
}
