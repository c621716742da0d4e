"""HTTP errors as the wire contract has them."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from pheby_protocol.errors import HttpCode
from pheby_server.aiohttp_transport.responses import refusal, unavailable


def body(response: web.Response) -> dict[str, str]:
    assert response.content_type == "application/json"
    assert isinstance(response.body, bytes)
    read: dict[str, str] = json.loads(response.body)
    return read


@pytest.mark.parametrize("code", [HttpCode.UNAUTHORIZED, HttpCode.UNAVAILABLE, HttpCode.UPGRADE_REQUIRED])
def test_a_refusal_is_a_code_and_a_sentence_and_nothing_more(code: HttpCode) -> None:
    response = refusal(418, code, {"X-Test": "1"})
    assert response.status == 418
    assert response.headers["X-Test"] == "1"
    assert set(body(response)) == {"code", "message"}
    assert body(response)["code"] == code
    assert body(response)["message"]


def test_unavailable_says_when_to_come_again() -> None:
    response = unavailable()
    assert response.status == 503
    assert int(response.headers["Retry-After"]) > 0
    assert body(response)["code"] == "unavailable"
