"""Limits, and what goes beyond them."""

from __future__ import annotations

import contextlib
import json

from ..check import ConformanceError, check, expect, same
from ..scene import Scene


@check("limits/binary", "P-ERR-11")
async def binary(scene: Scene) -> None:
    """A binary frame closes with 1003."""
    phone = await scene.in_step()
    await phone.binary(b'{"type":"ping","id":"c1"}')
    await phone.ends_with(1003)


@check("limits/frame-too-large", "P-ERR-11")
async def frame_too_large(scene: Scene) -> None:
    """A frame above max_frame_bytes closes with 1009."""
    phone = await scene.in_step()
    await phone.text(_ping_of(scene.limits["max_frame_bytes"] + 1))
    await phone.ends_with(1009)


@check("limits/largest-frame", "P-ERR-11")
async def largest_frame(scene: Scene) -> None:
    """A frame of exactly max_frame_bytes is taken."""
    phone = await scene.in_step()
    await phone.text(_ping_of(scene.limits["max_frame_bytes"]))
    same((await phone.answer("c1"))["type"], "pong", "answer")


def _ping_of(size: int) -> str:
    frame = {"type": "ping", "id": "c1", "x": ""}
    empty = len(json.dumps(frame, separators=(",", ":")))
    return json.dumps(frame | {"x": "x" * (size - empty)}, separators=(",", ":"))


@check("limits/text-too-long", "P-ERR-4")
async def text_too_long(scene: Scene) -> None:
    """A text above max_text_chars is too_large, and the connection goes on."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    answer = await scene.send(phone, conversation_id, "x" * (scene.limits["max_text_chars"] + 1))
    same((answer["type"], answer.get("code")), ("error", "too_large"), "answer")
    await phone.fence()
    expect(not phone.events(conversation_id, "message.created"), "a message came of it")


@check("limits/longest-text", "P-ERR-4", needs=("cancel",))
async def longest_text(scene: Scene) -> None:
    """A text of exactly max_text_chars is taken, counted in code points."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    words = "say ok\n"
    text = words + "😀" * (scene.limits["max_text_chars"] - len(words))
    receipt = await scene.say(phone, conversation_id, text)
    created = await phone.seen("message.created", message_id=receipt["message_id"])
    expect(created["message"]["text"] == text or created["message"]["text_truncated"], "the text came back otherwise")
    await phone.request("run.cancel", run_id=receipt["run_id"])


@check("limits/many-requests", "P-ERR-4")
async def many_requests(scene: Scene) -> None:
    """Far more requests than may be open: each gets its result or rate_limited, and the connection goes on."""
    phone = await scene.in_step()
    asked = [await phone.send("conversation.list", limit=1) for _ in range(scene.limits["max_pending_requests"] * 4)]
    for request_id in asked:
        answer = await phone.answer(request_id)
        if answer["type"] == "error":
            same((answer["code"], answer["retryable"]), ("rate_limited", True), "error")
            expect("retry_after_ms" in answer, "rate_limited does not say when to come back")
    await phone.fence()


@check("limits/flood", "P-ERR-12")
async def flood(scene: Scene) -> None:
    """Requests that come too fast are rate_limited, and whoever goes on is closed with 4429."""
    phone = await scene.in_step()
    for _ in range(500):
        with contextlib.suppress(ConnectionError, ConformanceError):
            asked = [await phone.send("ping") for _ in range(100)]
            # No faster than it is read: the goodbye would be lost behind it.
            await phone.answer(asked[-1])
        if phone.close_code is not None:
            break
    same(await phone.closed(), 4429, "close code")
    refusals = [frame for frame in phone.frames if frame.get("code") == "rate_limited"]
    expect(refusals, "nothing was refused before")
    expect(all("retry_after_ms" in frame for frame in refusals), "rate_limited does not say when to come back")


@check("limits/ping", "P-HELLO-10")
async def ping(scene: Scene) -> None:
    """A ping is answered by a pong with the server's time."""
    phone = await scene.in_step()
    first, second = (await phone.ask("ping"))["server_time"], (await phone.ask("ping"))["server_time"]
    expect(abs(second - first) < 60_000, "server_time jumps")
