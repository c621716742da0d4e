"""Where exceptions and Hermes's texts become what a frame may hold.

Nothing of an exception's text reaches a client unless it was written for one.
"""

from __future__ import annotations

import re

from pheby_protocol.connection import error
from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import RequestId
from pheby_protocol.messages.connection import Error, ErrorDetails

from .logs import log_of
from .ports import Unavailable

log = log_of(__name__)

_UNSENDABLE = re.compile("[\ud800-\udfff\x00]")


def sendable(text: str) -> str:
    """The text with what no frame can carry (lone surrogates, NUL) as U+FFFD."""
    return _UNSENDABLE.sub("\ufffd", text)


class RequestError(Exception):
    """A request is refused. Code, text and details go to the client as they are."""

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        *,
        retry_after_ms: int | None = None,
        retryable: bool | None = None,
        details: ErrorDetails | None = None,
    ) -> None:
        super().__init__(code.value)
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.retryable = retryable
        self.details = details


def to_error(failure: Exception, request_id: RequestId) -> Error:
    """The one error frame for a request that failed; what was not foreseen is logged and becomes `internal`."""
    match failure:
        case RequestError():
            return error(
                failure.code,
                request_id,
                message=failure.message,
                retry_after_ms=failure.retry_after_ms,
                retryable=failure.retryable,
                details=failure.details,
            )
        case Unavailable():
            return error(ErrorCode.UNAVAILABLE, request_id, retry_after_ms=1_000)
        case _:
            log.error("request.failed", exc_info=failure)
            return error(ErrorCode.INTERNAL, request_id)
