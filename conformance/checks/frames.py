"""What a server makes of frames: which it refuses, and how; what it ignores."""

from __future__ import annotations

import json
from typing import Any

from ..check import check, check_each, expect, same
from ..phone import Frame, Phone
from ..scene import Scene


async def _error(phone: Phone, text: str) -> Frame:
    since = len(phone.frames)
    await phone.text(text)
    return await phone.seen("error", since=since)


async def _invalid(scene: Scene, text: str, request_id: str | None = "?") -> None:
    phone = await scene.in_step()
    error = await _error(phone, text)
    same(error.get("code"), "invalid_message", "code")
    if request_id != "?":
        same(error.get("id"), request_id, "the error's id")
    # It costs the frame, not the connection.
    await phone.fence()


@check_each(
    "frames/no-object",
    "P-FRAME-4",
    cases={
        "empty": "",
        "no-json": "{not json",
        "array": '[{"type":"ping","id":"c1"}]',
        "string": '"ping"',
        "truncated": '{"type":"ping","id":"c1"',
        "two-objects": '{"type":"ping","id":"c1"}{"type":"ping","id":"c2"}',
        "trailing-comma": '{"type":"ping","id":"c1",}',
        "single-quotes": "{'type':'ping','id':'c1'}",
    },
)
async def no_object(scene: Scene, text: str) -> None:
    """What is not one JSON object is invalid_message without an id, and the connection goes on"""
    await _invalid(scene, text, None)


@check_each(
    "frames/refused",
    "P-FRAME-5",
    cases={
        "duplicate-key": '{"type":"ping","id":"c1","id":"c2"}',
        "duplicate-key-escaped": '{"type":"ping","id":"c1","\\u0069d":"c2"}',
        "duplicate-key-inside": '{"type":"ping","id":"c1","x":{"a":1,"a":2}}',
        "integer-2-53": '{"type":"ping","id":"c1","x":9007199254740992}',
        "integer-minus-2-53": '{"type":"ping","id":"c1","x":-9007199254740992}',
        "integer-of-many-digits": '{"type":"ping","id":"c1","x":1' + "0" * 400 + "}",
        "nan": '{"type":"ping","id":"c1","x":NaN}',
        "infinity": '{"type":"ping","id":"c1","x":-Infinity}',
        "lone-surrogate": '{"type":"ping","id":"c1","x":"\\ud83d"}',
        "lone-surrogate-in-key": '{"type":"ping","id":"c1","\\udc00":1}',
        "nul": '{"type":"ping","id":"c1","x":"a\\u0000b"}',
        "nesting-of-33": '{"type":"ping","id":"c1","x":' + "[" * 32 + "]" * 32 + "}",
        "nesting-of-10000": '{"type":"ping","id":"c1","x":' + "[" * 10_000 + "]" * 10_000 + "}",
    },
)
async def refused(scene: Scene, text: str) -> None:
    """A frame that readers would take differently is refused, wherever it stands"""
    await _invalid(scene, text)


@check_each(
    "frames/taken",
    "P-FRAME-6",
    cases={
        "unknown-field": '{"type":"ping","id":"c1","x_future":{"deep":[1,null,"a"]}}',
        "null-field": '{"type":"conversation.list","id":"c1","limit":null,"cursor":null}',
        "white-space": ' \n\t{ "type" : "ping" ,\r\n "id" : "c1" } ',
        "type-last": '{"id":"c1","x":1,"type":"ping"}',
        "escaped-key": '{"\\u0074ype":"ping","id":"c1"}',
        "integer-2-53-minus-1": '{"type":"ping","id":"c1","x":9007199254740991}',
        "nesting-of-32": '{"type":"ping","id":"c1","x":' + "[" * 31 + "]" * 31 + "}",
        "surrogate-pair": '{"type":"ping","id":"c1","x":"\\ud83d\\ude00"}',
        "fraction-where-anything-goes": '{"type":"ping","id":"c1","x":0.5}',
    },
)
async def taken(scene: Scene, text: str) -> None:
    """What is only unusual is taken"""
    phone = await scene.in_step()
    await phone.text(text)
    expect((await phone.answer("c1"))["type"] != "error", "it is answered by an error")


@check_each(
    "frames/no-conversion",
    "P-FRAME-8",
    cases={"text": '"7"', "fraction": "1.0", "exponent": "1e1", "true": "true", "array": "[7]", "empty-text": '""'},
)
async def no_conversion(scene: Scene, value: str) -> None:
    """Where an integer belongs nothing else is taken"""
    await _invalid(scene, '{"type":"conversation.list","id":"c1","limit":' + value + "}")


@check_each(
    "frames/bad-field",
    "P-FRAME-9",
    cases={
        "missing": {"type": "conversation.get"},
        "null": {"type": "conversation.get", "conversation_id": None},
        "number-for-text": {"type": "conversation.get", "conversation_id": 7},
        "object-for-text": {"type": "conversation.get", "conversation_id": {}},
        "identifier-with-slash": {"type": "conversation.get", "conversation_id": "../etc"},
        "identifier-of-65": {"type": "conversation.get", "conversation_id": "c" * 65},
        "empty-identifier": {"type": "conversation.get", "conversation_id": ""},
        "negative-limit": {"type": "conversation.list", "limit": -1},
        "boolean-as-text": {"type": "run.cancel", "run_id": "run_0", "drop_queued": "true"},
        "closed-value": {
            "type": "message.send",
            "conversation_id": "conv_0",
            "client_message_id": "m",
            "text": "x",
            "if_busy": "later",
        },
    },
)
async def bad_field(scene: Scene, frame: dict[str, Any]) -> None:
    """A known type with a bad field is invalid_message with the request's id"""
    await _invalid(scene, json.dumps({**frame, "id": "c1"}), "c1")


@check_each(
    "frames/no-type",
    "P-FRAME-4",
    cases={"missing": '{"id":"c1"}', "number": '{"type":5,"id":"c1"}', "empty": '{"type":"","id":"c1"}'},
)
async def no_type(scene: Scene, text: str) -> None:
    """A frame without a type is invalid_message with its id"""
    await _invalid(scene, text, "c1")


@check_each(
    "frames/bad-id",
    "P-FRAME-9",
    cases={"missing": {}, "number": {"id": 7}, "empty": {"id": ""}, "65-characters": {"id": "c" * 65}},
)
async def bad_id(scene: Scene, fields: dict[str, Any]) -> None:
    """A request without a good id is invalid_message without one"""
    await _invalid(scene, json.dumps({"type": "ping", **fields}), None)


@check("frames/any-id", "P-FRAME-3")
async def any_id(scene: Scene) -> None:
    """Any text of 1 to 64 characters is an id, and comes back as it was."""
    phone = await scene.in_step()
    for request_id in ("7", "a" * 64, '€ 漢字 😀 \\ " / <b>', "😀" * 64, " "):
        await phone.text(json.dumps({"type": "ping", "id": request_id}, ensure_ascii=False))
        same((await phone.answer(request_id))["type"], "pong", "answer")


@check("frames/unknown-type", "P-FRAME-3")
async def unknown_type(scene: Scene) -> None:
    """A request of an unknown type is answered unknown_type, with its id."""
    phone = await scene.in_step()
    error = await phone.refused("unknown_type", "conversation.teleport", conversation_id="conv_0")
    same(error["retryable"], False, "retryable")
    await phone.fence()


@check_each(
    "frames/not-for-a-client",
    "P-FRAME-4",
    cases={
        "event": {"type": "sync.completed", "seq": 1},
        "result": {"type": "pong", "id": "c1", "server_time": 1},
        "error": {"type": "error", "code": "internal", "message": "x", "retryable": False},
    },
)
async def not_for_a_client(scene: Scene, frame: dict[str, Any]) -> None:
    """A type that only servers send is invalid_message"""
    await _invalid(scene, json.dumps(frame))


@check("frames/ten-undecodable", "P-FRAME-4")
async def ten_undecodable(scene: Scene) -> None:
    """Ten undecodable frames in a row close with 4400; a good one between starts the count again."""
    phone = await scene.in_step()
    for _ in range(2):
        for _ in range(9):
            await phone.text("[]")
        await phone.fence()
    for _ in range(10):
        await phone.text("[]")
    await phone.ends_with(4400)


@check("frames/many-at-once", "P-FRAME-3")
async def many_at_once(scene: Scene) -> None:
    """Requests that are sent without waiting are answered once each, by their own ids."""
    phone = await scene.in_step()
    asked = {}
    for number in range(40):
        type_ = ("ping", "conversation.list", "conversation.teleport")[number % 3]
        asked[await phone.send(type_)] = ("pong", "conversation.list.result", "error")[number % 3]
    for request_id, wanted in asked.items():
        same((await phone.answer(request_id))["type"], wanted, "answer")
    await phone.fence()
    ids = [frame["id"] for frame in phone.frames if frame.get("id") in asked]
    same(len(ids), len(asked), "number of answers")
