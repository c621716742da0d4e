"""Frames over a real socket: whatever comes, the server and the other connections live on (K5, K6, K7, L1, L3)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from pheby_protocol.messages.message import Origin
from pheby_server import server as server_module
from pheby_server.aiohttp_transport import websocket
from pheby_server.aiohttp_transport.unfinished import Unfinished
from pheby_server.ports import Outcome, RunResult
from tests.transport.rig import CLOSE, NAME, PING, TEXT, Rig, rigged


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of an end are tested by their order, not by waiting for them."""
    monkeypatch.setattr(server_module, "DRAIN_SECONDS", 0.3)
    monkeypatch.setattr(websocket, "_CLOSE_SECONDS", 0.2)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(tmp_path, max_text_chars=1_000, max_frame_bytes=20_000, hello_deadline_ms=200) as made:
        yield made


async def test_a_whole_conversation_over_a_socket(rig: Rig) -> None:
    peer, other = await rig.peer("one"), await rig.peer("two")
    await peer.send(type="conversation.create", id="c", client_conversation_id="c1")
    name = (await peer.until("conversation.create.result"))["conversation"]["conversation_id"]
    await peer.send(type="message.send", id="s", conversation_id=name, client_message_id="m", text="héllo 😀")
    for reader in (peer, other):
        ended = await reader.until("run.ended")
        assert ended["run"]["status"] == "completed"
        done = next(frame["message"] for frame in reader.seen if frame["type"] == "message.completed")
        assert done["text"] == "echo héllo 😀"
    live = [frame for frame in peer.seen if "time" in frame]
    assert live == [frame for frame in other.seen if "time" in frame]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "{",
        "[]",
        "null",
        "5",
        '"text"',
        "{}",
        '{"type":5}',
        '{"type":""}',
        '{"type":null,"id":"x"}',
        '{"type":"ping"}',
        '{"type":"ping","id":5}',
        '{"type":"ping","id":""}',
        '{"type":"ping","id":"' + "x" * 65 + '"}',
        '{"type":"ping","id":"a","id":"a"}',
        '{"type":"ping","id":"a","x":NaN}',
        '{"type":"ping","id":"a","x":1e999}',
        '{"type":"ping","id":"a","x":' + "9" * 400 + "}",
        '{"type":"ping","id":"\\ud800"}',
        '{"type":"ping","id":"a","x":"\\u0000"}',
        '{"type":"ping","id":"a"} trailing',
        '{"type":"message.send","id":"a","conversation_id":"conv_1","client_message_id":"m","text":5}',
        '{"type":"message.send","id":"a","conversation_id":"../../etc","client_message_id":"m","text":"x"}',
        '{"type":"message.send","id":"a","conversation_id":"conv_1","client_message_id":"m","text":"x","if_busy":"no"}',
        '{"type":"conversation.history","id":"a","conversation_id":"conv_1","before":-1}',
        '{"type":"conversation.history","id":"a","conversation_id":"conv_1","limit":1.0}',
        '{"type":"conversation.list","id":"a","limit":true}',
        '{"type":"welcome","id":"a"}',
        '{"type":"message.created","seq":1}',
        '{"type":"ping","id":"a","x":' + "[" * 5_000 + "]" * 5_000 + "}",
        "[" * 19_000,
    ],
)
async def test_a_malformed_frame_is_an_error_and_the_socket_lives(rig: Rig, text: str) -> None:
    """K5, R-M3."""
    peer, other = await rig.peer("one"), await rig.peer("two")
    await peer.socket.send_str(text)
    error = await peer.receive()
    assert (error["type"], error["code"]) == ("error", "invalid_message")
    assert "Traceback" not in error["message"]
    await peer.ping()
    await other.ping()


async def test_an_unknown_type_is_named_so(rig: Rig) -> None:
    peer = await rig.peer()
    await peer.send(type="future.request", id="f", deep={"er": [1, None]})
    error = await peer.receive()
    assert (error["id"], error["code"]) == ("f", "unknown_type")
    await peer.ping()


async def test_ten_malformed_frames_in_a_row_close_with_4400(rig: Rig) -> None:
    peer, other = await rig.peer("one"), await rig.peer("two")
    for _ in range(9):
        await peer.socket.send_str("{")
    await peer.ping()
    for _ in range(10):
        await peer.socket.send_str("{")
    assert await peer.close_code() == 4400
    assert [frame.get("code") for frame in peer.seen[-10:]] == ["invalid_message"] * 10
    await other.ping()


async def test_a_binary_frame_closes_with_1003(rig: Rig) -> None:
    peer, other = await rig.peer("one"), await rig.peer("two")
    await peer.socket.send_bytes(b'{"type":"ping","id":"a"}')
    assert await peer.close_code() == 1003
    await other.ping()


@pytest.mark.parametrize("pieces", [1, 100])
async def test_a_frame_too_large_closes_with_1009(rig: Rig, pieces: int) -> None:
    """K5: also in fragments."""
    raw, other = await rig.raw(), await rig.peer("two")
    raw.hello()
    await raw.until_text("sync.completed")
    content = b"x" * (40_000 // pieces)
    for number in range(pieces):
        raw.frame(TEXT if number == 0 else 0, content, final=number == pieces - 1)
    assert await raw.close_code() == 1009
    await raw.cut()
    await other.ping()


async def test_the_largest_frame_that_is_allowed_passes(rig: Rig) -> None:
    peer = await rig.peer()
    frame = '{"type":"ping","id":"a","x":"' + "x" * (20_000 - 31) + '"}'
    assert len(frame) == 20_000
    await peer.socket.send_str(frame)
    assert (await peer.receive())["type"] == "pong"
    await peer.socket.send_str(frame + " ")
    assert await peer.close_code() == 1009


async def test_a_length_that_only_claims_to_be_huge_costs_nothing(rig: Rig) -> None:
    raw, other = await rig.raw(), await rig.peer("two")
    raw.writer.write(bytes([0x81, 0xFF]) + struct.pack(">Q", 2**62) + b"\0\0\0\0")
    assert await raw.close_code() == 1009
    await raw.cut()
    await other.ping()


async def test_a_compressed_frame_is_refused_since_compression_was_not_agreed(rig: Rig) -> None:
    """K6."""
    raw, other = await rig.raw(), await rig.peer("two")
    raw.frame(TEXT, b"\x00" * 50, reserved=4)
    assert await raw.close_code() == 1002
    await raw.cut()
    await other.ping()


async def test_text_that_is_not_utf8_closes_that_socket_alone(rig: Rig) -> None:
    raw, other = await rig.raw(), await rig.peer("two")
    raw.frame(TEXT, b'{"type":"ping","id":"\xff\xfe"}')
    assert await raw.close_code() == 1007
    await raw.cut()
    await other.ping()
    await rig.sessions(1)


async def test_no_hello_in_time_closes_with_4408(rig: Rig) -> None:
    peer = await rig.peer(None)
    assert await peer.close_code() == 4408


async def test_another_request_first_closes_with_4400(rig: Rig) -> None:
    peer = await rig.peer(None)
    await peer.send(type="ping", id="a")
    assert (await peer.receive())["code"] == "invalid_message"
    assert await peer.close_code() == 4400


async def test_no_common_version_closes_with_4406(rig: Rig) -> None:
    peer = await rig.peer(None)
    client = {"name": "t", "version": "1", "device_id": "d"}
    await peer.send(type="hello", id="h", protocol_versions=[99], client=client)
    assert (await peer.receive())["details"] == {"supported": [1]}
    assert await peer.close_code() == 4406


async def test_a_second_connection_of_the_device_closes_the_first_with_4409(rig: Rig) -> None:
    """G11."""
    first = await rig.peer("phone")
    second = await rig.peer("phone")
    assert await first.close_code() == 4409
    await second.ping()
    await rig.sessions(1)


@pytest.mark.parametrize("way", ["close", "abort"])
async def test_a_client_that_goes_leaves_nothing(rig: Rig, way: str) -> None:
    """L3: no session and no task, whatever the way."""
    tasks = len(asyncio.all_tasks())
    for number in range(20):
        raw = await rig.raw()
        raw.hello(f"d{number}")
        await raw.until_text("sync.completed")
        if way == "close":
            raw.frame(CLOSE, struct.pack(">H", 1000))
            assert await raw.close_code() == 1000
        await raw.cut()
    await rig.sessions(0)
    async with asyncio.timeout(1):
        while len(asyncio.all_tasks()) > tasks:
            await asyncio.sleep(0.005)


async def test_a_client_cut_in_the_middle_of_a_frame_hurts_nobody(rig: Rig) -> None:
    raw, other = await rig.raw(), await rig.peer("two")
    raw.hello()
    await raw.until_text("sync.completed")
    raw.writer.write(bytes([0x81, 0x80 | 100]) + b"\0\0\0\0" + b'{"type":')
    await raw.cut()
    await rig.sessions(1)
    await other.ping()


async def test_what_comes_behind_the_close_is_not_kept(tmp_path: Path) -> None:
    """K5, R-M2: a client that sends on and comes again costs nothing once it is gone, whatever the heartbeat is."""
    async with rigged(tmp_path, heartbeat_ms=600_000) as rig:
        for _ in range(3):
            raw = await rig.raw()
            raw.hello()
            await raw.until_text("sync.completed")
            for number in range(100):
                raw.frame(TEXT, b"{" if number % 10 else b"[" * 100_000)
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                assert await raw.close_code() == 4400
            await raw.cut()
        await rig.sessions(0)
        gc.collect()
        assert [found for found in gc.get_objects() if isinstance(found, web.WebSocketResponse)] == []


@pytest.mark.parametrize("pieces", [1, 4])
async def test_messages_that_never_end_are_bounded_together(tmp_path: Path, pieces: int) -> None:
    """K5, R-M2: who began first goes, also where it answers pings; whoever sends whole messages is left alone."""
    async with rigged(tmp_path) as rig:
        unfinished = rig.listener._unfinished = Unfinished(500_000)
        whole = await rig.peer("whole")
        many = []
        for number in range(4):
            raw = await rig.raw()
            raw.hello(f"raw{number}")
            await raw.until_text("sync.completed")
            for piece in range(pieces):
                raw.frame(0 if piece else TEXT, b"x" * (200_000 // pieces), final=False)
            raw.frame(PING, b"here")
            await raw.writer.drain()
            many.append(raw)
            for text in ("x" * 90_000, "ü" * 40_000):
                await whole.send(type="ping", id="ping", more=text)
                await whole.until("pong")
        # One too many each time: those that began first.
        await rig.sessions(3)
        for raw in many[2:]:
            assert await raw.read() == (10, b"here")
        assert 390_000 < unfinished._bytes < 500_000
        for raw in many:
            await raw.cut()
        await rig.sessions(1)
        assert unfinished._bytes == 0
        await whole.ping()


async def test_a_loop_that_stands_still_drops_nobody(tmp_path: Path) -> None:
    """L2, R-M4: also where a ping was due meanwhile, and for longer than a client has for its answer."""
    async with rigged(tmp_path, heartbeat_ms=1_000) as rig:
        peer = await rig.peer()
        for _ in range(2):
            time.sleep(2.0)
            await peer.ping()
        assert rig.server.session_count == 1


async def test_a_silent_peer_is_dropped_within_one_and_a_half_heartbeats(tmp_path: Path) -> None:
    """L3, wire contract section 3."""
    async with rigged(tmp_path, heartbeat_ms=1_000) as rig:
        raw = await rig.raw()
        raw.hello()
        await raw.until_text("sync.completed")
        while (await raw.read())[0] != PING:
            pass
        await rig.sessions(0)
        await raw.cut()


async def test_a_peer_that_uploads_slowly_is_not_silent(tmp_path: Path) -> None:
    """L2: a pong has to wait behind a large frame, so its bytes count; then frames do."""
    async with rigged(tmp_path, heartbeat_ms=1_000) as rig:
        raw = await rig.raw()
        raw.hello()
        await raw.until_text("sync.completed")
        content = json.dumps({"type": "ping", "id": "slow", "filler": "x" * 50_000}).encode()
        raw.writer.write(bytes([0x81, 0x80 | 126]) + struct.pack(">H", len(content)) + b"\0\0\0\0")
        for start in range(0, len(content), len(content) // 16):
            raw.writer.write(content[start : start + len(content) // 16])
            await asyncio.sleep(0.105)
        await raw.until_text("pong")
        assert rig.server.session_count == 1
        await raw.cut()


async def test_a_frozen_socket_costs_bounded_memory_and_the_others_get_everything(tmp_path: Path) -> None:
    """K7: 40 MB go past a client that reads nothing."""
    async with rigged(tmp_path, outbox_bytes=2_097_152, heartbeat_ms=60_000) as rig:
        frozen, reader = await rig.raw(), await rig.peer("reader")
        frozen.hello()
        await frozen.until_text("sync.completed")
        frozen.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (session,) = [found for found in rig.server._live if found.device_id == "raw"]
        rig.server.events.run_started(NAME, None, Origin.CHAT)
        message_id = rig.server.events.message_started(NAME, "")
        received = 0
        for number in range(100):
            rig.server.events.message_replaced(message_id, f"{number:03d}" + "x" * 399_997)
            while received <= number:
                received += (await reader.receive())["type"] == "message.replaced"
        rig.server.events.run_ended(NAME, RunResult(outcome=Outcome.COMPLETED))
        await reader.until("run.ended")
        assert session not in rig.server._live
        assert session._outbox.peak_bytes <= 2_097_152
        assert not session._outbox._frames
        await frozen.cut()
        await rig.sessions(1)


async def test_a_slow_reader_is_told_4413_once_it_reads_again(tmp_path: Path) -> None:
    async with rigged(tmp_path, outbox_bytes=2_097_152, heartbeat_ms=60_000) as rig:
        slow = await rig.raw()
        slow.hello()
        await slow.until_text("sync.completed")
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        rig.server.events.run_started(NAME, None, Origin.CHAT)
        message_id = rig.server.events.message_started(NAME, "")
        while rig.server._live:
            rig.server.events.message_replaced(message_id, "x" * 400_000)
            await rig.server.events.settled()
            await asyncio.sleep(0)
        slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await slow.close_code() == 4413
        await slow.cut()


async def test_stop_closes_with_1001_and_does_not_wait_for_who_never_answers(tmp_path: Path) -> None:
    """L1, G9: one polite client, one that answers nothing, one that reads nothing."""
    async with rigged(tmp_path) as rig:
        polite, mute, frozen = await rig.peer("polite"), await rig.raw(), await rig.raw()
        for number, raw in enumerate((mute, frozen)):
            raw.hello(f"raw{number}")
            await raw.until_text("sync.completed")
        frozen.writer.transport.pause_reading()  # type: ignore[attr-defined]
        codes = asyncio.gather(polite.close_code(), mute.close_code())
        async with asyncio.timeout(1.5):
            await rig.server.stop()
            await rig.listener.stop()
        assert await codes == [1001, 1001]
        assert "server.draining" in [frame["type"] for frame in polite.seen]
        assert rig.server.session_count == 0
        await mute.cut()
        await frozen.cut()


async def test_an_invalid_close_frame_hurts_nobody(rig: Rig) -> None:
    raw, other = await rig.raw(), await rig.peer("two")
    raw.frame(CLOSE, b"\x00")
    assert await raw.close_code() == 1002
    await raw.cut()
    await other.ping()


async def test_random_bytes_hurt_nobody(rig: Rig) -> None:
    other = await rig.peer("two")
    for _ in range(10):
        raw = await rig.raw()
        raw.writer.write(os.urandom(200))
        await raw.cut()
    await rig.sessions(1)
    await other.ping()
