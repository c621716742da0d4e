"""HTTP errors as the wire contract has them: `{"code","message"}` and nothing of an exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from pheby_protocol.errors import HttpCode

_TEXTS: Final[dict[HttpCode, str]] = {
    HttpCode.UNAUTHORIZED: "The secret is missing or wrong.",
    HttpCode.UNAVAILABLE: "The server takes no connections now.",
    HttpCode.UPGRADE_REQUIRED: "This address speaks WebSocket.",
}


def refusal(status: int, code: HttpCode, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error response."""
    return web.json_response({"code": code, "message": _TEXTS[code]}, status=status, headers=headers)


def unavailable() -> web.Response:
    """503 while starting or draining."""
    return refusal(503, HttpCode.UNAVAILABLE, {"Retry-After": "1"})
