"""What a stranger may do before it has shown the secret, and a client after that, on a real server (R-M1, R-M2)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.messages.connection import AccessMode
from pheby_server import session as session_module
from pheby_server.aiohttp_transport import Listener, websocket
from pheby_server.aiohttp_transport import gate as gate_module
from pheby_server.auth import Authenticator, Credential
from pheby_server.lockout import FREE_FAILURES
from pheby_server.testing import TEST_SECRET
from tests.transport.rig import HOST, PING, PONG, TEXT, Rig, rigged

RIGHT = {"Authorization": f"Bearer {TEST_SECRET}"}
WRONG = {"Authorization": f"Bearer wrong-{TEST_SECRET}"}
HEAD = f"GET /v1/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TEST_SECRET}\r\n"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pheby_server.server.DRAIN_SECONDS", 0.3)
    monkeypatch.setattr(websocket, "_CLOSE_SECONDS", 0.2)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(tmp_path, listening={"trusted_proxies": ["127.0.0.1"]}) as made:
        yield made


async def ask(rig: Rig, path: str = "/v1/ws", method: str = "GET", **options: Any) -> tuple[int, dict[str, str], str]:
    """Status, headers and code of an answer; the code is "" where there is none."""
    async with rig.http.request(method, f"http://{HOST}:{rig.listener.port}{path}", **options) as response:
        text = await response.text()
        code = json.loads(text).get("code", "") if text else ""
        return response.status, dict(response.headers), code


async def knock(rig: Rig, *lines: str) -> tuple[int, str]:
    """What a handshake with the right secret is answered: status and head. The connection stays."""
    reader, writer = await connected(rig)
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    writer.write((HEAD + upgrade + key + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode())
    async with asyncio.timeout(5):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    return int(head.split()[1]), head


async def connected(rig: Rig) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await rig.connect()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server ends the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65_536):
            found += piece
    return found


async def is_cut(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(2):
        return await ended(reader) == b""


# Wrong secrets


async def test_a_thousand_wrong_secrets_lock_their_address_out_and_no_right_one(rig: Rig) -> None:
    """R-M1, K4: 401 or 429 before the upgrade, never another; with Retry-After; and no line of the log each."""
    seen = [await ask(rig, headers=WRONG | {"X-Forwarded-For": "198.51.100.1"}) for _ in range(1_000)]
    statuses = [status for status, _, _ in seen]
    assert statuses[:FREE_FAILURES] == [401] * FREE_FAILURES
    assert statuses[FREE_FAILURES] == 429
    assert set(statuses) == {401, 429}
    status, headers, code = next(answer for answer in seen if answer[0] == 429)
    assert (status, code) == (429, "locked_out")
    assert int(headers["Retry-After"]) >= 1
    assert rig.server.metrics.authentication_failures == 1_000
    for address in ("198.51.100.1", "198.51.100.2"):
        assert (await ask(rig, headers=RIGHT | {"X-Forwarded-For": address}))[0] == 426
    assert (await ask(rig, headers=WRONG | {"X-Forwarded-For": "198.51.100.2"}))[0] == 401
    # A right one has cleared nothing.
    assert (await ask(rig, headers=WRONG | {"X-Forwarded-For": "198.51.100.1"}))[0] == 429


async def test_wrong_secrets_from_a_thousand_addresses_lock_none_of_them_out(rig: Rig) -> None:
    for number in range(1_000):
        address = f"198.51.{number >> 8}.{number & 255}"
        assert (await ask(rig, headers=WRONG | {"X-Forwarded-For": address}))[0] == 401
    assert len(rig.listener._lockout) == 1_000
    assert (await ask(rig, headers=RIGHT))[0] == 426


async def test_a_peer_that_is_no_trusted_proxy_is_counted_as_itself_whatever_it_claims(tmp_path: Path) -> None:
    """K4."""
    async with rigged(tmp_path) as rig:
        for number in range(FREE_FAILURES + 1):
            status, _, _ = await ask(rig, headers=WRONG | {"X-Forwarded-For": f"198.51.100.{number}"})
        assert status == 429
        assert len(rig.listener._lockout) == 1
        assert (await ask(rig, headers=RIGHT))[0] == 426


async def test_a_request_without_any_secret_is_401_also_from_where_wrong_ones_are_429(rig: Rig) -> None:
    for _ in range(FREE_FAILURES + 1):
        await ask(rig, headers=WRONG)
    assert (await ask(rig, headers=WRONG))[0] == 429
    assert (await ask(rig))[0] == 401
    assert (await ask(rig, "/healthz"))[0] == 200


async def test_a_refused_request_is_the_last_of_its_connection(rig: Rig) -> None:
    """R-M2: a stranger cannot have a hundred requests in one go."""
    reader, writer = await connected(rig)
    writer.write(b"GET /v1/ws HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
    async with asyncio.timeout(3):
        answer = await ended(reader)
    assert answer.count(b"HTTP/1.1 401") == 1
    assert b"Connection: close" in answer


# Secrets that are replaced


async def test_a_secret_that_is_replaced_ends_its_connections_with_4401_and_is_401_from_then_on(rig: Rig) -> None:
    """R-M1, K3."""
    old = await rig.peer("old")
    new = Credential(AccessMode.FULL, f"new-{TEST_SECRET}")
    rig.server.replace_secrets(Authenticator(((new.access_mode, new.secret),)))
    assert await old.close_code() == 4401
    assert (await ask(rig, headers=RIGHT))[0] == 401
    assert (await ask(rig, headers={"Authorization": f"Bearer {new.secret}"}))[0] == 426


async def test_during_an_overlap_both_secrets_are_right(rig: Rig) -> None:
    """R-M1: PHEBY_SECRET_PREVIOUS."""
    old = await rig.peer("old")
    both = ((AccessMode.FULL, f"new-{TEST_SECRET}"), (AccessMode.FULL, TEST_SECRET))
    rig.server.replace_secrets(Authenticator(both))
    await old.ping()
    for _, secret in both:
        assert (await ask(rig, headers={"Authorization": f"Bearer {secret}"}))[0] == 426


# Heads


@pytest.mark.parametrize("sent", [b"", b"G", HEAD.encode(), b"GET /" + b"x" * 5_000])
async def test_a_head_that_does_not_come_to_its_end_is_cut_off_in_time(tmp_path: Path, sent: bytes) -> None:
    """R-M2."""
    async with rigged(tmp_path, header_deadline_ms=200) as rig:
        reader, writer = await connected(rig)
        writer.write(sent)
        begun = asyncio.get_running_loop().time()
        assert await is_cut(reader)
        assert 0.15 < asyncio.get_running_loop().time() - begun < 1.5


async def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_another(tmp_path: Path) -> None:
    async with rigged(tmp_path, header_deadline_ms=300) as rig:
        reader, writer = await connected(rig)
        cut = asyncio.create_task(is_cut(reader))
        begun = asyncio.get_running_loop().time()
        writer.write(b"GET /")
        while not cut.done():
            writer.write(b"x")
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            await asyncio.sleep(0.02)
        assert await cut
        assert asyncio.get_running_loop().time() - begun < 1.5


async def test_a_hundred_slow_heads_are_cut_off_while_a_client_gets_in(tmp_path: Path) -> None:
    """R-M2: they hold no place that a client needs."""
    async with rigged(tmp_path, header_deadline_ms=500, max_pending_connections=50) as rig:
        slow = [await connected(rig) for _ in range(100)]
        for _, writer in slow:
            writer.write(HEAD.encode())
        assert len(rig.listener._gate) <= 50
        peer = await rig.peer()
        await peer.ping()
        async with asyncio.timeout(3):
            assert await asyncio.gather(*(ended(reader) for reader, _ in slow)) == [b""] * 100
        await peer.ping()
        assert len(rig.listener._gate) == 0


async def test_when_too_many_wait_the_one_that_waited_longest_goes(tmp_path: Path) -> None:
    async with rigged(tmp_path, max_pending_connections=8) as rig:
        waiting = [await connected(rig) for _ in range(9)]
        assert await is_cut(waiting[0][0])
        for _, writer in waiting[1:]:
            writer.write(HEAD.encode() + b"\r\n")
        for reader, _ in waiting[1:]:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 426")


async def test_an_answered_connection_has_the_same_time_for_its_next_request(tmp_path: Path) -> None:
    async with rigged(tmp_path, header_deadline_ms=300) as rig:
        reader, writer = await connected(rig)
        for _ in range(3):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b'{"status":"ok"}')
            await asyncio.sleep(0.15)
        assert await is_cut(reader)


async def test_large_heads_are_bounded_together(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-M2: each may be large, not all of them."""
    monkeypatch.setattr(gate_module, "MAX_HELD_BYTES", 1_000_000)
    # None of them ends, and none is too large by itself.
    head = b"GET /v1/ws HTTP/1.1\r\nHost: x\r\n" + b"".join(b"x%d: %b\r\n" % (n, b"y" * 8_000) for n in range(12))
    waiting = []
    for _ in range(20):
        waiting.append(await connected(rig))
        waiting[-1][1].write(head)
    async with asyncio.timeout(2):
        while len(rig.listener._gate) > 1_000_000 // len(head):
            await asyncio.sleep(0.01)
    assert rig.listener._gate._held <= 1_000_000
    await (await rig.peer()).ping()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/ws HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 1_000 + b"\r\n",
        b"GET /v1/ws HTTP/1.1\r\nHost: x\r\nCookie: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_a_head_that_is_too_large_is_refused(rig: Rig, head: bytes) -> None:
    reader, writer = await connected(rig)
    writer.write(head)
    async with asyncio.timeout(3):
        assert (await ended(reader)).split(b"\r\n")[0] == b"HTTP/1.0 400 Bad Request"
    await (await rig.peer()).ping()


async def test_answers_that_are_not_read_end_the_connection(tmp_path: Path) -> None:
    """R-M2: requests one behind the other, and nobody who reads."""
    async with rigged(tmp_path, header_deadline_ms=300) as rig:
        _, writer = await connected(rig)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        piece = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(8):
                while True:
                    writer.write(piece)
                    await writer.drain()
        assert not rig.listener._gate._waiting
        await (await rig.peer()).ping()


# Bodies


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 413), ({"Content-Encoding": "gzip"}, 415), ({"Content-Encoding": "identity"}, 415)],
)
@pytest.mark.parametrize("path", ["/v1/ws", "/v1/attachments/att_1", "/healthz", "/other"])
async def test_a_body_is_refused_unread(rig: Rig, path: str, headers: dict[str, str], status: int) -> None:
    """K6: also one that would inflate to a gigabyte."""
    bomb = gzip.compress(b"\0" * 50_000_000)
    method = "GET" if path == "/v1/ws" else "POST"
    lines = [f"{name}: {value}" for name, value in headers.items()] + [f"Content-Length: {len(bomb)}"]
    head = HEAD.replace("GET /v1/ws", f"{method} {path}") + "\r\n".join(lines) + "\r\n\r\n"
    reader, writer = await connected(rig)
    writer.write(head.encode() + bomb)
    async with asyncio.timeout(3):
        answer = await ended(reader)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b'"body_refused"' in answer


async def test_nobody_is_asked_to_go_on_with_a_body(rig: Rig) -> None:
    reader, writer = await connected(rig)
    writer.write(HEAD.encode() + b"Expect: 100-continue\r\nContent-Length: 5000000\r\n\r\n")
    async with asyncio.timeout(3):
        assert (await ended(reader)).startswith(b"HTTP/1.1 413")


async def test_a_stranger_with_a_body_that_never_ends_is_answered_and_cut_off(rig: Rig) -> None:
    reader, writer = await connected(rig)
    writer.write(b"POST /v1/ws HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(5):
            for _ in range(2_000):
                writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                await writer.drain()
    async with asyncio.timeout(3):
        assert (await ended(reader)).count(b"HTTP/1.1") <= 1
    await (await rig.peer()).ping()


# Web pages


@pytest.mark.parametrize("path", ["/v1/ws", "/v1/attachments/att_1", "/healthz"])
async def test_a_web_page_is_refused(rig: Rig, path: str) -> None:
    """R-M1: only browsers send Origin; no page may use the server of somebody who looks at it."""
    for origin in ("https://evil.example", f"http://{HOST}:{rig.listener.port}", "null", ""):
        status, headers, code = await ask(rig, path, headers=RIGHT | {"Origin": origin})
        assert (status, code) == (403, "forbidden")
        assert not [name for name in headers if name.lower().startswith("access-control")]


async def test_a_web_page_with_a_wrong_secret_learns_no_more_than_anybody(rig: Rig) -> None:
    assert (await ask(rig, headers=WRONG | {"Origin": "https://evil.example"}))[0] == 401


async def test_a_page_that_the_owner_allows_may_connect(tmp_path: Path) -> None:
    async with rigged(tmp_path, listening={"allowed_origins": ["https://mine.example"]}) as rig:
        peer = await rig.peer(origin="https://mine.example")
        await peer.ping()
        assert (await knock(rig, "Origin: https://other.example"))[0] == 403
        assert (await knock(rig, "Origin: https://mine.example", "Origin: https://other.example"))[0] == 403


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1:1", "a b"])
async def test_the_host_that_is_asked_for_decides_nothing(rig: Rig, host: str) -> None:
    reader, writer = await connected(rig)
    writer.write(f"GET /v1/ws HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TEST_SECRET}\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 426")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
async def test_other_methods_find_nothing(rig: Rig, method: str) -> None:
    assert (await ask(rig, method=method, headers=RIGHT))[::2] == (404, "not_found")
    assert (await ask(rig, method=method))[::2] == (401, "unauthorized")


@pytest.mark.parametrize("target", [b"OPTIONS *", b"CONNECT example.org:443", b"GET http://x/y"])
async def test_targets_that_are_no_path_are_refused(rig: Rig, target: bytes) -> None:
    reader, writer = await connected(rig)
    writer.write(target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(3):
        assert (await reader.readuntil(b"\r\n")).split()[1] in (b"400", b"401")


# How many


async def test_a_full_server_says_503_and_when_to_come_back(tmp_path: Path) -> None:
    """R-M2: nobody is thrown out for a newcomer; a place that becomes free is free at once."""
    async with rigged(tmp_path, max_connections=3) as rig:
        peers = [await rig.peer(f"d{number}") for number in range(3)]
        status, head = await knock(rig)
        assert status == 503
        assert "\r\nRetry-After: 10\r\n" in head
        assert (await ask(rig, "/healthz"))[0] == 200
        for peer in peers:
            await peer.ping()
        await peers[0].socket.close()
        await rig.sessions(2)
        await (await rig.peer("fourth")).ping()


async def test_many_who_come_at_the_same_time_are_counted_before_they_are_in(tmp_path: Path) -> None:
    async with rigged(tmp_path, max_connections=5) as rig:
        tries = await asyncio.gather(*(knock(rig) for _ in range(40)))
        assert sorted(status for status, _ in tries) == [101] * 5 + [503] * 35


# Floods


async def test_a_flood_is_refused_then_closed_with_4429_and_the_others_are_served(tmp_path: Path) -> None:
    """R-M2."""
    async with rigged(tmp_path, request_burst=200) as rig:
        other = await rig.peer("other")
        peer = await rig.peer("flood")
        with contextlib.suppress(ConnectionError):
            for number in range(3_000):
                await peer.send(type="ping", id=f"{number}")
        assert await peer.close_code() == 4429
        await other.ping()
        codes = [frame.get("code") for frame in peer.seen if frame["type"] == "error"]
        assert set(codes) <= {"rate_limited"}
        await rig.sessions(1)


async def test_the_close_is_heard_over_what_the_client_has_still_sent(tmp_path: Path) -> None:
    """R-M2, K6: a line that is closed with something unread is reset, and what was said last is lost."""
    async with rigged(tmp_path, heartbeat_ms=600_000, request_burst=10, max_requests_per_second=1) as rig:
        for number in range(20):
            raw = await rig.raw()
            raw.hello(f"d{number}")
            await raw.until_text("sync.completed")
            ping = json.dumps({"type": "ping", "id": "p"}).encode()
            for _ in range(10):
                raw.writer.write((bytes([0x81, 0x80 | len(ping)]) + b"\0\0\0\0" + ping) * 500)
                # As a client that writes for a while: what comes behind the close is not there yet.
                await asyncio.sleep(0)
            assert await raw.close_code() == 4429
            await raw.cut()


async def test_ten_thousand_malformed_frames_are_answered_or_the_connection_closed(tmp_path: Path) -> None:
    """R-M3: and nobody else notices."""
    async with rigged(tmp_path) as rig:
        other = await rig.peer("other")
        sent, closes = 0, []
        while sent < 10_000:
            raw = await rig.raw()
            raw.hello(f"d{sent}")
            await raw.until_text("sync.completed")
            for number in range(100):
                raw.frame(TEXT, [b"{", b'{"type":5}', b'{"type":"ping","id":"\\ud800"}', b"[" * 500][number % 4])
            sent += 100
            closes.append(await raw.close_code())
            await raw.cut()
        assert set(closes) == {4400}
        await other.ping()
        await rig.sessions(1)


@pytest.mark.parametrize("opcode", [PING, PONG])
async def test_a_flood_of_pings_is_a_flood(tmp_path: Path, opcode: int) -> None:
    async with rigged(tmp_path, request_burst=100) as rig:
        raw, other = await rig.raw(), await rig.peer("other")
        raw.hello()
        await raw.until_text("sync.completed")
        for _ in range(1_000):
            raw.frame(opcode, b"")
        assert await raw.close_code() == 4429
        await raw.cut()
        await other.ping()


async def test_the_others_have_their_turn_between_frames_that_came_together(tmp_path: Path) -> None:
    """R-M2: aiohttp has all of them at once; another client's turn comes before the last of them is read."""
    async with rigged(tmp_path, request_burst=100_000) as rig:
        raw, other = await rig.raw(), await rig.peer("other")
        raw.hello("raw")
        await raw.until_text("sync.completed")
        (flooding,) = [found for found in rig.server._live if found.device_id == "raw"]
        (served,) = [found for found in rig.server._live if found.device_id == "other"]
        order: list[str] = []
        flooding.receive_pong = lambda: order.append("flood")  # type: ignore[method-assign]
        receive = served.receive_text

        def received(text: str) -> None:
            order.append("other")
            receive(text)

        served.receive_text = received  # type: ignore[method-assign]
        for _ in range(10_000):
            raw.frame(PONG, b"")
        await other.ping()
        async with asyncio.timeout(5):
            while order.count("flood") < 10_000:
                await asyncio.sleep(0.01)
        assert order.index("other") < 1_000
        await raw.cut()


async def test_pings_are_answered_with_what_they_carry(rig: Rig) -> None:
    """RFC 6455, section 5.5.3."""
    raw = await rig.raw()
    raw.frame(PING, b"what they carry")
    assert await raw.read() == (10, b"what they carry")
    await raw.cut()


async def test_a_client_that_asks_and_never_reads_is_cut_off_with_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-M2: also though it goes on sending, which no heartbeat would notice."""
    monkeypatch.setattr(session_module, "CLOSE_SECONDS", 0.3)
    async with rigged(tmp_path, request_burst=100, max_requests_per_second=10_000, outbox_frames=64) as rig:
        raw, other = await rig.raw(), await rig.peer("other")
        raw.hello()
        await raw.until_text("sync.completed")
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (session,) = [found for found in rig.server._live if found.device_id == "raw"]
        frame = json.dumps({"type": "future.request", "id": "x" * 64}).encode()
        head = bytes([0x81, 0x80 | len(frame)]) + b"\0\0\0\0"
        most = 0
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                while not raw.writer.transport.is_closing():
                    raw.writer.write((head + frame) * 50)
                    await raw.writer.drain()
                    most = max(most, session.queued_bytes)
                    await asyncio.sleep(0.005)
        assert most < 100_000
        assert session not in rig.server._sessions
        await raw.cut()
        await other.ping()


async def test_a_frozen_client_is_gone_soon_after_its_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-M2: it keeps no place, though it never reads the close."""
    monkeypatch.setattr(session_module, "CLOSE_SECONDS", 0.2)
    async with rigged(tmp_path) as rig:
        raw = await rig.raw()
        raw.hello()
        await raw.until_text("sync.completed")
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (session,) = rig.server._live
        for _ in range(20):
            session._outbox.put("x" * 1_000_000)
        session.close(session_module.CloseCode.REPLACED)
        await rig.sessions(0)
        await raw.cut()


# Leaving


async def test_the_port_is_free_and_everybody_gone_whatever_they_do(tmp_path: Path) -> None:
    """L1, R-M4: heads that never end, bodies that never end, frozen and mute sockets; within the time of a stop."""
    async with rigged(tmp_path) as rig:
        peer = await rig.peer("polite")
        others = [await rig.raw() for _ in range(3)]
        for number, raw in enumerate(others):
            raw.hello(f"d{number}")
            await raw.until_text("sync.completed")
        others[0].writer.transport.pause_reading()  # type: ignore[attr-defined]
        frozen = next(session for session in rig.server._sessions if session.device_id == "d0")
        frozen._outbox.put("x" * 20_000_000)
        others[1].writer.write(bytes([0x81, 0xFE]) + struct.pack(">H", 60_000) + b"\0\0\0\0")
        slow = [await connected(rig) for _ in range(2)]
        slow[0][1].write(HEAD.encode())
        slow[1][1].write(b"POST /v1/ws HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n")
        closing = asyncio.create_task(peer.close_code())
        async with asyncio.timeout(5):
            await rig.server.stop()
            await rig.listener.stop()
        assert await closing == 1001
        assert rig.server.session_count == 0
        again = Listener(rig.server, HOST, rig.port)
        await again.start()
        await again.stop()
        for raw in others:
            await raw.cut()


async def test_newcomers_while_it_drains_are_told_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L1, G9."""
    async with rigged(tmp_path) as rig:
        mute = await rig.raw()
        mute.hello()
        await mute.until_text("sync.completed")
        stopping = asyncio.create_task(rig.server.stop())
        await mute.until_text("server.draining")
        assert (await ask(rig, headers=RIGHT))[0] == 503
        assert (await ask(rig, "/healthz"))[0] == 503
        status, head = await knock(rig)
        assert status == 503
        assert "\r\nRetry-After: 1\r\n" in head
        await stopping
        await mute.cut()
