"""The handshake."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp

from ..check import READ_ONLY, ConformanceError, check, check_each, expect, same
from ..phone import Phone
from ..scene import Scene


@check("hello/welcome", "P-HELLO-5")
async def welcome(scene: Scene) -> None:
    """Welcome answers hello with version 1 and everything that a client needs."""
    phone = await scene.phone()
    found = await phone.hello()
    same(found["protocol_version"], 1, "protocol_version")
    same(phone.frames[0]["type"], "welcome", "first frame")
    for name in ("epoch", "connection_id", "access_mode", "heartbeat_ms", "server_time", "receipts_since", "seq"):
        expect(name in found, f"welcome lacks {name}")
    expect(abs(found["server_time"] - time.time() * 1000) < 24 * 3_600_000, "server_time is not the time of day")


@check("hello/room-for-text", "P-HELLO-13")
async def room(scene: Scene) -> None:
    """max_frame_bytes is at least six times max_text_chars + 4096."""
    limits = (await (await scene.phone()).hello())["limits"]
    expect(
        limits["max_frame_bytes"] >= 6 * limits["max_text_chars"] + 4096,
        f"{limits['max_frame_bytes']} bytes for {limits['max_text_chars']} characters",
    )


@check_each(
    "hello/versions",
    "P-HELLO-5",
    cases={"1-and-2": [1, 2], "2-and-1": [2, 1], "99-and-1": [99, 1], "1-twice": [1, 1], "many": [*range(1, 200)]},
)
async def versions(scene: Scene, offered: list[int]) -> None:
    """The highest version in common is taken"""
    spoken = await _versions(scene)
    answer = await (await scene.phone()).hello(protocol_versions=offered)
    same(answer["protocol_version"], max(set(offered) & spoken), "protocol_version")


async def _versions(scene: Scene) -> set[int]:
    """What the server speaks: it may speak later versions, too."""
    phone = await scene.phone()
    error = await phone.refused("unsupported_version", "hello", protocol_versions=[0], client=_client(phone))
    return {1, *error.get("details", {}).get("supported", ())}


@check_each("hello/no-version-in-common", "P-HELLO-5", cases={"99": [99], "0": [0], "98-and-99": [98, 99]})
async def no_version(scene: Scene, offered: list[int]) -> None:
    """Without a version in common: unsupported_version, what is supported, close 4406"""
    phone = await scene.phone()
    error = await phone.refused("unsupported_version", "hello", protocol_versions=offered, client=_client(phone))
    expect(1 in error.get("details", {}).get("supported", ()), "details.supported does not name version 1")
    await phone.ends_with(4406)


def _client(phone: Phone) -> dict[str, str]:
    return {"name": "conformance", "version": "1", "device_id": phone.device_id}


@check_each(
    "hello/another-frame-first",
    "P-HELLO-6",
    cases={"ping": ("ping", {}), "list": ("conversation.list", {}), "unknown-type": ("something.new", {})},
)
async def another_first(scene: Scene, first: tuple[str, Any]) -> None:
    """Another frame before hello closes with 4400"""
    phone = await scene.phone()
    await phone.send(first[0], **first[1])
    await phone.ends_with(4400)
    expect(not any(frame["type"] in ("pong", "welcome") for frame in phone.frames), "it was answered nevertheless")


@check("hello/no-hello", "P-HELLO-6")
async def no_hello(scene: Scene) -> None:
    """A socket without hello is closed with 4408 after ten seconds."""
    phone = await scene.phone()
    started = time.monotonic()
    same(await phone.closed(within=20), 4408, "close code")
    expect(time.monotonic() - started < 15, "it took more than 15 s")


@check("hello/twice", "P-FRAME-3")
async def twice(scene: Scene) -> None:
    """A second hello is refused, and the connection goes on."""
    phone = await scene.in_step()
    answer = await phone.request("hello", protocol_versions=[1], client=_client(phone))
    same(answer["type"], "error", "answer")
    await phone.fence()


@check("hello/not-ready", "P-HELLO-7")
async def not_ready(scene: Scene) -> None:
    """What is asked right behind hello is answered once: not_ready before sync.completed, else its result."""
    phone = await scene.phone()
    asked = await phone.send("hello", protocol_versions=[1], client=_client(phone))
    early = await phone.send("conversation.list")
    same((await phone.answer(asked))["type"], "welcome", "answer to hello")
    answer = await phone.answer(early)
    await phone.seen("sync.completed")
    before = phone.frames.index(answer) < next(
        place for place, frame in enumerate(phone.frames) if frame["type"] == "sync.completed"
    )
    if before:
        same((answer["type"], answer.get("code"), answer.get("retryable")), ("error", "not_ready", True), "answer")
    await phone.ask("conversation.list")


@check("hello/same-device", "P-ERR-8")
async def same_device(scene: Scene) -> None:
    """A newer connection of a device takes over: the older one is closed with 4409."""
    device = scene.lab.name("device")
    older = await scene.in_step(device)
    newer = await scene.in_step(device)
    await older.ends_with(4409)
    await newer.fence()


@check("hello/another-device", "P-ERR-8")
async def another_device(scene: Scene) -> None:
    """A connection of another device takes nothing over."""
    one = await scene.in_step()
    other = await scene.in_step()
    await one.fence()
    await other.fence()
    expect(one.welcome["connection_id"] != other.welcome["connection_id"], "both have the same connection_id")


@check_each(
    "hello/tolerance",
    "P-FRAME-6",
    cases={
        "unknown-capability": {"capabilities": ["batch", "teleport"]},
        "no-capabilities": {},
        "null-capabilities": {"capabilities": None},
        "null-resume": {"resume": None},
        "unknown-field": {"mood": {"is": ["good", 1, None]}},
    },
)
async def tolerance(scene: Scene, fields: dict[str, Any]) -> None:
    """Hello is served in spite of what is unknown or null"""
    phone = await scene.phone()
    client = _client(phone) | ({"colour": "blue"} if "mood" in fields else {})
    await phone.ask("hello", protocol_versions=[1], client=client, **fields)
    await phone.seen("sync.completed")


@check_each(
    "hello/refused",
    "P-FRAME-9",
    cases={
        "no-device-id": {"client": {"name": "x", "version": "1"}},
        "device-id-with-space": {"client": {"name": "x", "version": "1", "device_id": "a b"}},
        "device-id-of-65": {"client": {"name": "x", "version": "1", "device_id": "a" * 65}},
        "version-as-text": {"protocol_versions": ["1"]},
        "no-versions": {"protocol_versions": None},
    },
)
async def malformed(scene: Scene, fields: dict[str, Any]) -> None:
    """A hello with a bad field is invalid_message and no handshake"""
    phone = await scene.phone()
    frame = {"protocol_versions": [1], "client": _client(phone)} | fields
    answer = await phone.request("hello", **frame)
    same((answer["type"], answer.get("code")), ("error", "invalid_message"), "answer")


@check("hello/heartbeat", "P-HELLO-10")
async def heartbeat(scene: Scene) -> None:
    """The server pings within heartbeat_ms, and drops a peer that is silent for 1.5 times that."""
    interval = scene.lab.welcome["heartbeat_ms"] / 1000
    if interval > 35:
        raise ConformanceError(f"prerequisite: a heartbeat of at most 35 s, this server's is {interval:g} s")
    headers = {"Authorization": f"Bearer {scene.lab.secret}"}
    async with scene.lab.http.ws_connect(scene.lab.url, headers=headers, autoping=False) as socket:
        client = {"name": "conformance", "version": "1", "device_id": scene.lab.name("device")}
        await socket.send_json({"type": "hello", "id": "1", "protocol_versions": [1], "client": client})
        pinged = 0.0
        started = time.monotonic()
        try:
            async with asyncio.timeout(interval * 1.6 + 5):
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.PING:
                        pinged = pinged or time.monotonic() - started
        except TimeoutError:
            raise ConformanceError("a silent peer is not dropped") from None
        expect(pinged, "there was no ping")
        expect(pinged <= interval + 3, f"the first ping came after {pinged:.1f} s")


@check_each(
    "hello/read-only",
    "P-HELLO-12",
    needs=(READ_ONLY,),
    cases={
        "create": ("conversation.create", {"client_conversation_id": "forbidden-1"}),
        "rename": ("conversation.rename", {"conversation_id": "conv_0", "title": "no"}),
        "delete": ("conversation.delete", {"conversation_id": "conv_0"}),
        "send": ("message.send", {"conversation_id": "conv_0", "client_message_id": "forbidden-2", "text": "no"}),
        "cancel": ("run.cancel", {"run_id": "run_0"}),
        "approve": ("approval.respond", {"approval_id": "appr_0", "choice": "once"}),
        "clarify": ("clarification.respond", {"clarification_id": "clar_0", "text": "no"}),
    },
)
async def read_only(scene: Scene, case: tuple[str, Any]) -> None:
    """A secret that may only read is answered forbidden"""
    phone = await scene.in_step(secret=scene.lab.read_only_secret)
    same(phone.welcome["access_mode"], "read_only", "access_mode")
    await phone.refused("forbidden", case[0], **case[1])


@check("hello/read-only-reads", "P-HELLO-12", needs=(READ_ONLY,))
async def read_only_reads(scene: Scene) -> None:
    """A secret that may only read lists and reads."""
    writer = await scene.in_step()
    conversation_id = await scene.conversation(writer)
    phone = await scene.in_step(secret=scene.lab.read_only_secret)
    await phone.ask("conversation.get", conversation_id=conversation_id)
    await phone.ask("conversation.list")
    await scene.history(phone, conversation_id)
