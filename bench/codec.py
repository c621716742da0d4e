"""Decoding and encoding of one message, against what does less: no validation, no message class."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pheby_protocol.codec import decode, encode

from .measuring import NotInstalledError, Samples, interleaved, per_second, pin, repeats, server_core

ROWS = ("decode", "decode-pydantic", "encode")

MESSAGE = {
    "type": "message.created",
    "seq": 48213,
    "time": 1796050000123,
    "conversation_id": "conv_12345678901234567",
    "message": {
        "message_id": "msg_0123456789abcdef01234567",
        "conversation_id": "conv_12345678901234567",
        "position": 92160,
        "role": "assistant",
        "origin": "chat",
        "status": "completed",
        "text": "Good.",
        "text_truncated": False,
        "attachments": [],
        "created_at": 1796050000122,
    },
}
TEXT = json.dumps(MESSAGE, separators=(",", ":"))
"""A union member of about 300 bytes."""


def with_pydantic() -> Callable[[str], Any]:
    """The same union as pydantic would have it: strict, two members, told apart by `type`."""
    try:
        from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
    except ImportError:
        raise NotInstalledError("pip install -e '.[bench]'") from None
    from typing import Annotated, Literal

    number = Annotated[int, Field(ge=0, le=2**53 - 1)]
    name = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]

    class Strict(BaseModel):
        model_config = ConfigDict(strict=True, frozen=True)

    class Message(Strict):
        message_id: name  # type: ignore[valid-type]
        conversation_id: name  # type: ignore[valid-type]
        position: number | None = None  # type: ignore[valid-type]
        role: str
        origin: str
        status: Literal["queued", "streaming", "completed", "failed", "cancelled"]
        text: str
        text_truncated: bool
        index: int | None = None
        interim: bool = False
        final: bool = False
        run_id: name | None = None  # type: ignore[valid-type]
        attachments: list[dict[str, Any]]
        created_at: number  # type: ignore[valid-type]
        completed_at: number | None = None  # type: ignore[valid-type]

    class Created(Strict):
        type: Literal["message.created"]
        seq: number  # type: ignore[valid-type]
        time: number  # type: ignore[valid-type]
        conversation_id: name  # type: ignore[valid-type]
        message: Message

    class Delta(Strict):
        type: Literal["message.delta"]
        conversation_id: name  # type: ignore[valid-type]
        message_id: name  # type: ignore[valid-type]
        index: int
        text: str

    for model in (Message, Created, Delta):
        model.model_rebuild(_types_namespace=locals())
    union: TypeAdapter[Any] = TypeAdapter(Annotated[Created | Delta, Field(discriminator="type")])
    return union.validate_json


def measure(quick: bool) -> Samples:
    pin(server_core())
    seconds = 0.05 if quick else 0.5
    message = decode(TEXT)
    validate = with_pydantic()
    found = interleaved(
        repeats(quick),
        lambda: {
            "decode": per_second(lambda: decode(TEXT), seconds),
            "encode": per_second(lambda: encode(message), seconds),
        },
        lambda: {
            "decode": per_second(lambda: json.loads(TEXT), seconds),
            "encode": per_second(lambda: json.dumps(MESSAGE), seconds),
        },
    )
    return found | interleaved(
        repeats(quick),
        lambda: {"decode-pydantic": per_second(lambda: decode(TEXT), seconds)},
        lambda: {"decode-pydantic": per_second(lambda: validate(TEXT), seconds)},
    )
