"""The socket as an AsyncAPI 3.0 document, from the server's side: it receives requests and sends answers and events."""

from __future__ import annotations

from typing import Any, Final

from .examples import Json, examples
from .json_schema import definitions
from .metamodel import Metamodel, StructModel

_CHANNEL: Final = "#/channels/socket"
_EVENTS: Final = ("logged_event", "transient_event", "sync")


def asyncapi(model: Metamodel) -> Json:
    """The whole document; every message refers to its schema and carries its example."""
    messages, shown = model["messages"], examples(model)
    names = {message["type"]: message["name"] for message in messages}
    operations = {
        message["type"]: _request(message, names[message["result"]])
        for message in messages
        if message["kind"] == "request"
    }
    told = [message["name"] for message in messages if message["kind"] in _EVENTS]
    operations["events"] = _operation("send", "What nobody asked for: events, snapshots, batches.", told)
    operations["error"] = _operation(
        "send", "An error without id: about a frame that could not be attributed, or before a close.", ["Error"]
    )
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Pheby",
            "version": str(model["protocol_version"]),
            "description": "How an app talks to its owner's Hermes Agent: one JSON object per WebSocket text frame. "
            "The rules that no schema tells are in docs/protocol.",
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "loopback": {
                "host": "127.0.0.1:8786",
                "protocol": "ws",
                "description": "Where the server listens unless it is configured otherwise; plain, for a proxy on the "
                "same machine.",
                "security": [{"$ref": "#/components/securitySchemes/secret"}],
            },
            "published": {
                "host": "{host}",
                "protocol": "wss",
                "description": "The reverse proxy that adds TLS.",
                "variables": {
                    "host": {"description": "Name and port of the proxy.", "examples": ["pheby.example.org"]}
                },
                "security": [{"$ref": "#/components/securitySchemes/secret"}],
            },
        },
        "channels": {
            "socket": {
                "address": "/v1/ws",
                "description": "The one WebSocket. The first frame is hello; a proxy may add a path before /v1.",
                "messages": {message["name"]: _ref("messages", message["name"]) for message in messages},
                "bindings": {"ws": {"method": "GET"}},
            }
        },
        "operations": operations,
        "components": {
            "securitySchemes": {
                "secret": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The shared secret, in the handshake's Authorization header and nowhere else.",
                }
            },
            "messages": {message["name"]: _message(message, shown[message["type"]]) for message in messages},
            "schemas": _schemas(model),
        },
    }


def _ref(section: str, name: str) -> Json:
    return {"$ref": f"#/components/{section}/{name}"}


def _in_channel(name: str) -> Json:
    return {"$ref": f"{_CHANNEL}/messages/{name}"}


def _operation(action: str, summary: str, names: list[str]) -> Json:
    return {
        "action": action,
        "channel": {"$ref": _CHANNEL},
        "summary": summary,
        "messages": [_in_channel(name) for name in names],
    }


def _request(message: StructModel, result: str) -> Json:
    return _operation("receive", message["description"], [message["name"]]) | {
        "reply": {"channel": {"$ref": _CHANNEL}, "messages": [_in_channel(result), _in_channel("Error")]},
    }


def _message(message: StructModel, shown: Json) -> Json:
    found: Json = {
        "name": message["type"],
        "title": message["name"],
        "summary": message["description"],
        "contentType": "application/json",
        "payload": _ref("schemas", message["name"]),
        "examples": [{"name": message["type"], "payload": shown}],
    }
    if message["kind"] in ("request", "result", "error"):
        found["correlationId"] = {
            "description": "A request and its one answer have the same id.",
            "location": "$message.payload#/id",
        }
    return found


def _schemas(model: Metamodel) -> Json:
    unions = {"ClientFrame", "ServerFrame", "UnknownFrame"}
    return {name: _moved(schema) for name, schema in definitions(model).items() if name not in unions}


def _moved(schema: Any) -> Any:
    """A schema whose references lead to this document's own section; AsyncAPI's discriminator is a bare field name."""
    if isinstance(schema, list):
        return [_moved(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _moved(value) for key, value in schema.items()}
    reference = found.get("$ref")
    if isinstance(reference, str):
        found["$ref"] = reference.replace("#/$defs/", "#/components/schemas/")
    if isinstance(found.get("discriminator"), dict):
        found["discriminator"] = found["discriminator"]["propertyName"]
    return found
