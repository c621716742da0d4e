"""HTTP errors as the wire contract has them: `{"code","message"}` and nothing of an exception."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from pheby_protocol.errors import HTTP_ERRORS, HttpCode


def refusal(status: int, code: HttpCode, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error response."""
    return web.json_response({"code": code, "message": HTTP_ERRORS[code].message}, status=status, headers=headers)


def unavailable() -> web.Response:
    """503 while starting or draining."""
    return refusal(503, HttpCode.UNAVAILABLE, {"Retry-After": "1"})
