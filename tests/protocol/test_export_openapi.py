"""The HTTP side's OpenAPI document: valid, and every status and error code of the contract in it."""

from __future__ import annotations

from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from pheby_protocol.errors import HTTP_ERRORS
from pheby_protocol.export.metamodel import metamodel
from pheby_protocol.export.openapi import openapi

DOCUMENT: dict[str, Any] = openapi(metamodel())
PATHS: dict[str, Any] = DOCUMENT["paths"]
OPERATIONS = [
    (path, method, operation)
    for path, methods in PATHS.items()
    for method, operation in methods.items()
    if method != "parameters"
]


def test_the_official_schema_accepts_it() -> None:
    validate(DOCUMENT, cls=OpenAPIV31SpecValidator)


@pytest.mark.parametrize(
    ("path", "method", "statuses"),
    [
        ("/healthz", "get", "200 503"),
        ("/v1/ws", "get", "101 401 403 413 415 426 429 503"),
        ("/v1/attachments/{attachment_id}", "get", "200 206 304 401 404 410 412 416 429 503"),
        ("/v1/attachments/{attachment_id}", "head", "200 304 401 404 410 412 429 503"),
    ],
)
def test_every_address_and_status_of_the_contract(path: str, method: str, statuses: str) -> None:
    assert sorted(PATHS[path][method]["responses"]) == statuses.split()


def test_there_is_no_other_address() -> None:
    assert {(path, method) for path, method, _ in OPERATIONS} == {
        ("/healthz", "get"),
        ("/v1/ws", "get"),
        ("/v1/attachments/{attachment_id}", "get"),
        ("/v1/attachments/{attachment_id}", "head"),
        ("/v1/metrics", "get"),
    }


def test_only_health_needs_no_secret() -> None:
    assert DOCUMENT["security"] == [{"secret": []}]
    for path, _, operation in OPERATIONS:
        assert operation.get("security") == ([] if path == "/healthz" else None)


def test_every_error_has_its_code_and_headers() -> None:
    seen = set()
    for _, method, operation in OPERATIONS:
        for status, response in operation["responses"].items():
            if int(status) < 400:
                continue
            headers = set(response.get("headers", {}))
            assert ("Retry-After" in headers) == (status in ("429", "503"))
            assert ("WWW-Authenticate" in headers) == (status == "401")
            assert ("Content-Range" in headers) == (status == "416")
            if method == "head":
                assert "content" not in response
                continue
            shown = response["content"]["application/json"]["example"]
            (row,) = (row for code, row in HTTP_ERRORS.items() if code == shown["code"])
            assert int(status) in row.statuses
            assert shown["message"] == row.message
            seen.add((shown["code"], int(status)))
    assert seen == {(code.value, status) for code, row in HTTP_ERRORS.items() for status in row.statuses}


def test_a_file_comes_with_the_headers_that_make_it_safe_and_resumable() -> None:
    for method in ("get", "head"):
        responses = PATHS["/v1/attachments/{attachment_id}"][method]["responses"]
        for status in ("200", "206") if method == "get" else ("200",):
            headers = set(responses[status]["headers"])
            assert headers >= {
                "ETag",
                "Accept-Ranges",
                "Content-Disposition",
                "X-Content-Type-Options",
                "Cache-Control",
            }
        if method == "get":
            assert "Content-Range" in responses["206"]["headers"]
        assert "Content-Range" not in responses["200"]["headers"]
        assert ("content" in responses["200"]) == (method == "get")


def test_nothing_is_asked_for_in_a_query() -> None:
    for path, _, operation in OPERATIONS:
        for parameter in [*operation.get("parameters", []), *PATHS[path].get("parameters", [])]:
            name = parameter.get("$ref", "").rpartition("/")[2]
            assert (DOCUMENT["components"]["parameters"][name] if name else parameter)["in"] in ("header", "path")


def test_the_codes_are_an_open_list() -> None:
    assert DOCUMENT["components"]["schemas"]["HttpCode"]["x-pheby-open-enum"] == list(HTTP_ERRORS)


def test_it_is_made_alike_each_time() -> None:
    assert openapi(metamodel()) == DOCUMENT
