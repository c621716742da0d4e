"""HTTP errors as the wire contract has them: `{"code","message"}` and nothing of an exception."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from pheby_protocol.errors import HTTP_ERRORS, HttpCode


def refusal(status: int, code: HttpCode, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error response."""
    return web.json_response({"code": code, "message": HTTP_ERRORS[code].message}, status=status, headers=headers)


def unavailable(retry_after_seconds: int = 1) -> web.Response:
    """503 while starting, draining or full."""
    return refusal(503, HttpCode.UNAVAILABLE, {"Retry-After": str(retry_after_seconds)})


def unauthorized() -> web.Response:
    """401 for a secret that is missing or wrong."""
    return refusal(401, HttpCode.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})


def locked_out(seconds: int) -> web.Response:
    """429 for a wrong secret from where too many came."""
    return refusal(429, HttpCode.LOCKED_OUT, {"Retry-After": str(seconds), "WWW-Authenticate": "Bearer"})
