"""The HTTP side as an OpenAPI 3.1 document: health, the socket's handshake, files, counters."""

from __future__ import annotations

from typing import Any, Final

from .examples import Json, example
from .json_schema import DIALECT
from .metamodel import Metamodel

_RETRY_AFTER: Final[Json] = {
    "Retry-After": {
        "description": "Seconds after which to try again.",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
    }
}
_CHALLENGE: Final[Json] = {
    "WWW-Authenticate": {
        "description": "What the server asks for.",
        "required": True,
        "schema": {"type": "string", "const": "Bearer"},
    }
}
_UPGRADE: Final[Json] = {
    "Upgrade": {
        "description": "What this address speaks.",
        "required": True,
        "schema": {"type": "string", "const": "websocket"},
    }
}
_ETAG: Final = '"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"'
_DATE: Final = "Mon, 30 Nov 2026 14:46:49 GMT"


def openapi(model: Metamodel) -> Json:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": DIALECT,
        "info": {
            "title": "Pheby over HTTP",
            "version": str(model["protocol_version"]),
            "summary": "Health, the handshake of the socket, files from the agent, and counters.",
            "description": "What travels on the socket is described by the AsyncAPI document and docs/protocol. "
            "A reverse proxy may add a path before these. No id and no secret is ever part of a query string.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [
            {"url": "http://127.0.0.1:8786", "description": "Unless configured otherwise; for a proxy on the machine."},
            {
                "url": "https://{host}",
                "description": "The reverse proxy that adds TLS.",
                "variables": {"host": {"default": "pheby.example.org", "description": "Name and port of the proxy."}},
            },
        ],
        "security": [{"secret": []}],
        "tags": [
            {"name": "health", "description": "Whether the server serves."},
            {"name": "socket", "description": "The WebSocket's handshake."},
            {"name": "attachments", "description": "Files from the agent."},
            {"name": "metrics", "description": "What the server counts about itself."},
        ],
        "paths": {
            "/healthz": {"get": _health(model)},
            "/v1/ws": {"get": _socket(model)},
            "/v1/attachments/{attachment_id}": {
                "parameters": [{"$ref": "#/components/parameters/AttachmentId"}],
                "get": _attachment(model, with_body=True),
                "head": _attachment(model, with_body=False),
            },
            "/v1/metrics": {"get": _metrics(model)},
        },
        "components": {
            "securitySchemes": {
                "secret": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The shared secret. In a query string it is not looked at.",
                }
            },
            "parameters": _parameters(model),
            "schemas": _schemas(model),
        },
    }


def _health(model: Metamodel) -> Json:
    return {
        "operationId": "health",
        "tags": ["health"],
        "summary": "Whether the server serves; needs no secret and tells nothing else.",
        "security": [],
        "responses": {
            "200": {
                "description": "It serves.",
                "content": {
                    "application/json": {
                        "schema": {"$ref": "#/components/schemas/Health"},
                        "example": {"status": "ok"},
                    }
                },
            },
            "503": _failure(model, "unavailable", "It is starting or draining.", _RETRY_AFTER),
        },
    }


def _socket(model: Metamodel) -> Json:
    return {
        "operationId": "openSocket",
        "tags": ["socket"],
        "summary": "Open the WebSocket. Everything is decided before the upgrade, never after.",
        "parameters": [
            {
                "name": "Upgrade",
                "in": "header",
                "required": True,
                "description": "With the other headers of RFC 6455. Subprotocols that the server does not know are "
                "ignored.",
                "schema": {"type": "string", "const": "websocket"},
            }
        ],
        "responses": {
            "101": {"description": "The socket is open; the client sends hello."},
            "401": _failure(model, "unauthorized", "The secret is missing, wrong, or in the query string.", _CHALLENGE),
            "403": _failure(model, "forbidden", "The request is a web page's (Origin) that is not allowed here."),
            "413": _failure(model, "body_refused", "The request has a body."),
            "415": _failure(model, "body_refused", "The request has a body, and says how it is coded."),
            "426": _failure(model, "upgrade_required", "The request asks for no upgrade.", _UPGRADE),
            "429": _failure(
                model, "locked_out", "A wrong secret from an address with too many; a right one passes.", _RETRY_AFTER
            ),
            "503": _failure(model, "unavailable", "The server is starting, draining or full.", _RETRY_AFTER),
        },
    }


def _metrics(model: Metamodel) -> Json:
    numbers: Json = {"type": "object", "additionalProperties": {"type": "integer"}}
    return {
        "operationId": "metrics",
        "tags": ["metrics"],
        "summary": "Counters for the owner, where they are switched on: numbers alone, nothing of any conversation.",
        "responses": {
            "200": {
                "description": "Prometheus's text format, or one JSON object if Accept names it. Later versions may "
                "add to it.",
                "content": {
                    "text/plain": {
                        "schema": {"type": "string"},
                        "example": "# HELP pheby_connections Connections that are open.\n"
                        "# TYPE pheby_connections gauge\npheby_connections 1\n",
                    },
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "additionalProperties": {"oneOf": [{"type": "integer"}, numbers]},
                        },
                        "example": {"pheby_connections": 1, "pheby_closes_total": {"1000": 2}},
                    },
                },
            },
            "401": _failure(model, "unauthorized", "The secret is missing, wrong, or in the query string.", _CHALLENGE),
            "404": _failure(model, "not_found", "They are not switched on."),
            "429": _failure(
                model, "locked_out", "A wrong secret from an address with too many; a right one passes.", _RETRY_AFTER
            ),
        },
    }


def _attachment(model: Metamodel, *, with_body: bool) -> Json:
    body: Json = {"content": {"*/*": {}}} if with_body else {}

    def failure(code: str, description: str, headers: Json | None = None) -> Json:
        found = _failure(model, code, description, headers)
        if not with_body:
            del found["content"]
        return found

    # A range is a matter of GET alone (RFC 9110, section 14.2).
    of_ranges = ("Range", "IfRange") if with_body else ()
    conditions = ("IfMatch", "IfNoneMatch", "IfModifiedSince", "IfUnmodifiedSince")
    responses: Json = {
        "200": {"description": "The whole file.", "headers": _file_headers()} | body,
        "304": {
            "description": "The client has the file already.",
            "headers": _some(_file_headers(), "ETag", "Cache-Control"),
        },
        "401": failure("unauthorized", "The secret is missing, wrong, or in the query string.", _CHALLENGE),
        "404": failure("not_found", "Unknown, or deleted with its conversation."),
        "410": failure("expired", "The file has expired; its description is still to be had."),
        "412": failure("precondition_failed", "If-Match or If-Unmodified-Since does not hold."),
        "429": failure("locked_out", "A wrong secret from an address with too many; a right one passes.", _RETRY_AFTER),
        "503": failure("unavailable", "The server is starting, draining or busy with downloads.", _RETRY_AFTER),
    }
    if with_body:
        responses["206"] = {
            "description": "The part that was asked for.",
            "headers": _file_headers() | _content_range("bytes 0-1023/48213"),
        } | body
        responses["416"] = failure("invalid_range", "The file has no such range.", _content_range("bytes */48213"))
    return {
        "operationId": "getAttachment" if with_body else "headAttachment",
        "tags": ["attachments"],
        "summary": "The bytes of a file." if with_body else "The headers that GET would answer with, without a range.",
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in of_ranges + conditions],
        "responses": dict(sorted(responses.items())),
    }


def _file_headers() -> Json:
    def header(description: str, shown: str, kind: str = "string") -> Json:
        return {
            "description": description,
            "schema": {"type": kind},
            "example": int(shown) if kind != "string" else shown,
        }

    return {
        "ETag": header("Strong: the attachment's sha256, in quotes.", _ETAG),
        "Last-Modified": header("When the file was delivered.", _DATE),
        "Content-Type": header("The attachment's media_type.", "application/pdf"),
        "Content-Length": header("Bytes in this answer.", "48213", "integer"),
        "Content-Disposition": header(
            "The file name, safe for any characters (RFC 6266); inline for pictures that can hold no script.",
            "attachment; filename=\"backup report.pdf\"; filename*=UTF-8''backup%20report.pdf",
        ),
        "Accept-Ranges": header("Ranges are served.", "bytes"),
        "Cache-Control": header(
            "For this client alone, as long as the file is there; no proxy may compress it.",
            "private, max-age=604800, immutable, no-transform",
        ),
        "Content-Security-Policy": header("Nothing in it may run or load.", "default-src 'none'; sandbox"),
        "Cross-Origin-Resource-Policy": header("No other site may embed it.", "same-origin"),
        "X-Content-Type-Options": header("Nobody may guess another type.", "nosniff"),
    }


def _some(headers: Json, *names: str) -> Json:
    return {name: headers[name] for name in names}


def _content_range(shown: str) -> Json:
    return {
        "Content-Range": {
            "description": "Which bytes of how many.",
            "required": True,
            "schema": {"type": "string"},
            "example": shown,
        }
    }


def _failure(model: Metamodel, code: str, description: str, headers: Json | None = None) -> Json:
    (row,) = (row for row in model["http_errors"] if row["code"] == code)
    found: Json = {"description": description}
    if headers:
        found["headers"] = headers
    return found | {
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/HttpError"},
                "example": {"code": code, "message": row["message"]},
            }
        }
    }


def _parameters(model: Metamodel) -> Json:
    def header(name: str, description: str, shown: str) -> Json:
        return {
            "name": name,
            "in": "header",
            "description": description,
            "schema": {"type": "string"},
            "example": shown,
        }

    return {
        "AttachmentId": {
            "name": "attachment_id",
            "in": "path",
            "required": True,
            "description": "As in the attachment's description; its path is the whole address.",
            "schema": {"$ref": "#/components/schemas/AttachmentId"},
            "example": example(model, "AttachmentGet")["attachment_id"],
        },
        "Range": header(
            "Range", "One range of bytes; with several the whole is sent (RFC 9110, section 14).", "bytes=1024-"
        ),
        "IfRange": header("If-Range", "The ETag of the part that is there; else the whole is sent.", _ETAG),
        "IfMatch": header("If-Match", "ETags, one of which the file must have, or *.", _ETAG),
        "IfNoneMatch": header("If-None-Match", "The ETag of the file that is there.", _ETAG),
        "IfModifiedSince": header("If-Modified-Since", "Looked at without If-None-Match.", _DATE),
        "IfUnmodifiedSince": header("If-Unmodified-Since", "Looked at without If-Match.", _DATE),
    }


def _schemas(model: Metamodel) -> dict[str, Any]:
    (identifier,) = (scalar for scalar in model["scalars"] if scalar["name"] == "AttachmentId")
    return {
        "AttachmentId": {
            "title": "AttachmentId",
            "description": identifier["description"],
            "type": "string",
            "minLength": identifier["min_length"],
            "maxLength": identifier["max_length"],
            "pattern": f"^{identifier['pattern']}$",
        },
        "Health": {
            "title": "Health",
            "description": "The server serves.",
            "type": "object",
            "properties": {"status": {"type": "string", "const": "ok"}},
            "required": ["status"],
        },
        "HttpCode": {
            "title": "HttpCode",
            "description": "Stable code; decide by it, never by the text. Later versions may add to the list.",
            "type": "string",
            "x-pheby-open-enum": [row["code"] for row in model["http_errors"]],
        },
        "HttpError": {
            "title": "HttpError",
            "description": "The body of every HTTP error.",
            "type": "object",
            "properties": {
                "code": {"$ref": "#/components/schemas/HttpCode"},
                "message": {"type": "string", "description": "A sentence for people."},
            },
            "required": ["code", "message"],
        },
    }
