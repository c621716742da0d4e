"""Everything is decided before the upgrade (K1, R-M1, R-M3), the port is had or not (L7)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pheby_protocol.messages.connection import AccessMode
from pheby_server import server as server_module
from pheby_server.aiohttp_transport import Listener
from pheby_server.auth import Authenticator
from pheby_server.config import ServerConfig
from pheby_server.server import Server
from pheby_server.testing import TEST_SECRET, ManualHermes

HOST = "127.0.0.1"
RIGHT = {"Authorization": f"Bearer {TEST_SECRET}"}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


class Rig:
    def __init__(self, server: Server, listener: Listener, http: aiohttp.ClientSession) -> None:
        self.server = server
        self.listener = listener
        self.http = http

    def url(self, path: str) -> str:
        return f"http://{HOST}:{self.listener.port}{path}"

    async def get(self, path: str, **options: Any) -> tuple[int, str, Any]:
        """Status, body and headers."""
        async with self.http.get(self.url(path), **options) as response:
            return response.status, await response.text(), response.headers

    async def raw(self, request: bytes) -> bytes:
        """What comes back for these bytes, up to the end of the head."""
        reader, writer = await asyncio.open_connection(HOST, self.listener.port)
        try:
            writer.write(request)
            async with asyncio.timeout(2):
                return await reader.readuntil(b"\r\n\r\n")
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def made(folder: Path, **settings: Any) -> Server:
    secrets = ((AccessMode.FULL, TEST_SECRET), (AccessMode.READ_ONLY, "watch-" + TEST_SECRET))
    return Server(ServerConfig(storage=str(folder), **settings), ManualHermes(), Authenticator(secrets))


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(server_module, "DRAIN_SECONDS", 0.3)
    server = made(tmp_path)
    await server.start()
    listener = Listener(server, HOST, 0)
    await listener.start()
    async with aiohttp.ClientSession() as http:
        yield Rig(server, listener, http)
    await server.stop()
    await listener.stop()


def head(*lines: bytes, path: bytes = b"/v1/ws") -> bytes:
    upgrade = [f"{name}: {value}".encode() for name, value in UPGRADE.items()]
    return b"\r\n".join([b"GET " + path + b" HTTP/1.1", b"Host: x", *upgrade, *lines, b"", b""])


# Health


async def test_health_is_open_to_all_and_says_nothing_more(rig: Rig) -> None:
    status, body, headers = await rig.get("/healthz")
    assert (status, body) == (200, '{"status":"ok"}')
    assert headers["Content-Type"].startswith("application/json")


async def test_health_can_be_asked_with_head(rig: Rig) -> None:
    async with rig.http.head(rig.url("/healthz")) as response:
        assert response.status == 200


@pytest.mark.parametrize("path", ["/healthz", "/v1/ws"])
async def test_while_starting_and_after_the_stop_nothing_is_available(tmp_path: Path, path: str) -> None:
    server = made(tmp_path)
    listener = Listener(server, HOST, 0)
    await listener.start()
    async with aiohttp.ClientSession() as http:
        rig = Rig(server, listener, http)
        seen = [await rig.get(path, headers=RIGHT | UPGRADE)]
        await server.start()
        assert (await rig.get(path, headers=RIGHT))[0] == (200 if path == "/healthz" else 426)
        await server.stop()
        seen.append(await rig.get(path, headers=RIGHT | UPGRADE))
    await listener.stop()
    for status, body, headers in seen:
        assert status == 503
        assert int(headers["Retry-After"]) > 0
        assert '"code"' in body
        assert "unavailable" in body


async def test_a_wrong_secret_learns_nothing_of_the_servers_state(tmp_path: Path) -> None:
    server = made(tmp_path)
    listener = Listener(server, HOST, 0)
    await listener.start()
    async with aiohttp.ClientSession() as http:
        assert (await Rig(server, listener, http).get("/v1/ws"))[0] == 401
    await listener.stop()


# Authentication


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b"Authorization:"],
        [b"Authorization: Bearer"],
        [b"Authorization: Bearer "],
        [b"Authorization: Bearer wrong"],
        [b"Authorization: Bearer " + TEST_SECRET.encode() + b"x"],
        [b"Authorization: Basic " + TEST_SECRET.encode()],
        [b"Authorization: " + TEST_SECRET.encode()],
        ["Authorization: Bearer é".encode()],
        [b"Authorization: Bearer \xff\xfe\x80"],
        [b"Authorization: Bearer " + b"x" * 10_240],
        [b"Authorization: Bearer " + TEST_SECRET.encode()] * 2,
        [b"Authorization: Bearer wrong", b"Authorization: Bearer " + TEST_SECRET.encode()],
        [b"Authorization: Bearer " + TEST_SECRET.encode(), b"authorization: Bearer wrong"],
        [b"Cookie: Authorization=Bearer " + TEST_SECRET.encode()],
        [b"Proxy-Authorization: Bearer " + TEST_SECRET.encode()],
        [b"Sec-WebSocket-Protocol: " + TEST_SECRET.encode()],
    ],
)
@pytest.mark.parametrize("upgrade", [True, False])
async def test_without_the_one_right_secret_it_is_401_before_the_upgrade(
    rig: Rig, lines: list[bytes], *, upgrade: bool
) -> None:
    """K1: never 101, never 500."""
    request = head(*lines) if upgrade else b"\r\n".join([b"GET /v1/ws HTTP/1.1", b"Host: x", *lines, b"", b""])
    answer = await rig.raw(request)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"\r\nwww-authenticate: bearer\r\n" in answer.lower()
    assert rig.server.session_count == 0


@pytest.mark.parametrize("name", ["token", "access_token", "authorization", "secret", "Bearer"])
async def test_a_secret_in_the_query_is_worth_nothing(rig: Rig, name: str) -> None:
    """J12."""
    status, body, headers = await rig.get(f"/v1/ws?{name}={TEST_SECRET}", headers=UPGRADE)
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert TEST_SECRET not in body


async def test_a_refusal_has_a_code_for_machines_and_a_sentence_for_people(rig: Rig) -> None:
    _, body, headers = await rig.get("/v1/ws")
    assert headers["Content-Type"].startswith("application/json")
    assert '"code": "unauthorized"' in body
    assert '"message"' in body


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER"])
async def test_the_right_secret_is_upgraded_whatever_the_case_of_the_scheme(rig: Rig, scheme: bytes) -> None:
    answer = await rig.raw(head(b"Authorization: " + scheme + b" " + TEST_SECRET.encode()))
    assert answer.startswith(b"HTTP/1.1 101 ")


async def test_unknown_subprotocols_and_extensions_are_ignored(rig: Rig) -> None:
    answer = await rig.raw(
        head(
            b"Authorization: Bearer " + TEST_SECRET.encode(),
            b"Sec-WebSocket-Protocol: future.v9, other",
            b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
        )
    )
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"sec-websocket-protocol" not in answer.lower()
    assert b"permessage-deflate" not in answer.lower()


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"Upgrade": "websocket", "Connection": "Upgrade"},
        {**UPGRADE, "Upgrade": "h2c"},
        {**UPGRADE, "Connection": "keep-alive"},
        {**UPGRADE, "Sec-WebSocket-Version": "12"},
        {**UPGRADE, "Sec-WebSocket-Key": "short"},
    ],
)
async def test_without_a_proper_upgrade_it_is_426(rig: Rig, broken: dict[str, str]) -> None:
    status, body, headers = await rig.get("/v1/ws", headers=RIGHT | broken)
    assert (status, headers["Upgrade"]) == (426, "websocket")
    assert "upgrade_required" in body


async def test_each_secret_has_its_access_mode(rig: Rig) -> None:
    """R-S2."""
    headers = {"Authorization": f"Bearer watch-{TEST_SECRET}"}
    async with rig.http.ws_connect(rig.url("/v1/ws"), headers=headers) as socket:
        await socket.send_json(
            {
                "type": "hello",
                "id": "1",
                "protocol_versions": [1],
                "client": {"name": "t", "version": "1", "device_id": "d"},
            }
        )
        assert (await socket.receive_json())["access_mode"] == "read_only"


async def test_secrets_reach_no_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """J12, R-L1."""
    with caplog.at_level(0):
        await rig.get(f"/v1/ws?token={TEST_SECRET}", headers=UPGRADE)
        await rig.get("/v1/ws", headers={"Authorization": f"Bearer {TEST_SECRET}x"})
        await rig.get(f"/v1/{TEST_SECRET}", headers={"User-Agent": TEST_SECRET, "X-Forwarded-For": TEST_SECRET})
        await rig.get(f"/v1/{TEST_SECRET}", headers=RIGHT | {"Range": TEST_SECRET, "Cookie": TEST_SECRET})
        await rig.raw(head(f"Authorization: Bearer {TEST_SECRET}\r\nX: \x1b[31m".encode()))
        async with rig.http.ws_connect(rig.url("/v1/ws"), headers=RIGHT) as socket:
            await socket.send_str("nonsense")
            await socket.receive()
    assert any("authentication" in record.getMessage() for record in caplog.records)
    ours = [record for record in caplog.records if record.name.startswith("pheby")]
    assert TEST_SECRET not in "".join(record.getMessage() + repr(vars(record)) for record in ours)


# Counters


@pytest.fixture
async def counting(tmp_path: Path) -> AsyncIterator[Rig]:
    server = made(tmp_path, metrics=True)
    await server.start()
    listener = Listener(server, HOST, 0, prefix="/pheby")
    await listener.start()
    async with aiohttp.ClientSession() as http:
        yield Rig(server, listener, http)
    await server.stop()
    await listener.stop()


async def test_counters_are_there_only_if_they_are_switched_on(rig: Rig) -> None:
    status, body, _ = await rig.get("/v1/metrics", headers=RIGHT)
    assert status == 404
    assert "pheby_" not in body
    assert (await rig.get("/v1/metrics"))[0] == 401


async def test_counters_need_a_secret_of_any_access(counting: Rig) -> None:
    """R-A5, R-S2."""
    status, body, _ = await counting.get("/pheby/v1/metrics")
    assert status == 401
    assert "pheby_" not in body
    assert (await counting.get(f"/pheby/v1/metrics?token={TEST_SECRET}"))[0] == 401
    watching = {"Authorization": f"Bearer watch-{TEST_SECRET}"}
    status, body, headers = await counting.get("/pheby/v1/metrics", headers=watching)
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert "pheby_authentication_failures_total 2\n" in body


async def test_counters_as_json(counting: Rig) -> None:
    async with counting.http.ws_connect(counting.url("/pheby/v1/ws"), headers=RIGHT) as socket:
        await socket.send_str("nonsense")
        await socket.receive()
        status, body, headers = await counting.get("/pheby/v1/metrics", headers=RIGHT | {"Accept": "application/json"})
    found = json.loads(body)
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert (found["pheby_connections"], found["pheby_connections_total"]) == (1, 1)
    assert found["pheby_frame_bytes_total"]["in"] == len("nonsense")


async def test_the_clients_own_close_code_is_counted(counting: Rig) -> None:
    async with counting.http.ws_connect(counting.url("/pheby/v1/ws"), headers=RIGHT) as socket:
        await socket.close(code=1001)
    async with asyncio.timeout(2):
        while counting.server.session_count:
            await asyncio.sleep(0.01)
    assert counting.server.metrics.closes == {1001: 1}


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/ws/", "/v1/other", "/healthz/x", "/%2e%2e/etc/passwd", "/v1/ws%00"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
async def test_other_paths_need_the_secret_too_and_are_not_found_with_it(rig: Rig, method: str, path: str) -> None:
    """R-A5."""
    without = await rig.raw(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert without.startswith(b"HTTP/1.1 401 ")
    right = f"Authorization: Bearer {TEST_SECRET}"
    answer = await rig.raw(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{right}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"application/json" in answer


@pytest.mark.parametrize("path", ["/v1/ws", "/healthz"])
async def test_other_methods_are_no_way_in(rig: Rig, path: str) -> None:
    async with rig.http.post(rig.url(path), data=b"x" * 100_000) as response:
        assert response.status == 401
        assert (await response.json())["code"] == "unauthorized"


@pytest.mark.parametrize(
    "request_text",
    [
        f"GET /v1/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TEST_SECRET}\x01\r\n\r\n",
        f"GET /v1/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TEST_SECRET * 2_000}\r\n\r\n",
        f"GET /v1/ws?token={TEST_SECRET}\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["control character", "too long", "query"],
)
async def test_a_malformed_request_that_holds_the_secret_is_logged_without_it(
    rig: Rig, caplog: pytest.LogCaptureFixture, request_text: str
) -> None:
    """J12, R-L1: a stray character in the owner's secret must not put it into Hermes's log."""
    with caplog.at_level(0):
        assert (await rig.raw(request_text.encode())).startswith(b"HTTP/1.0 400 ")
    assert any("Error handling request" in record.getMessage() for record in caplog.records)
    assert TEST_SECRET not in caplog.text


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n", b"\0" * 100])
async def test_junk_hurts_nobody(rig: Rig, junk: bytes) -> None:
    with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        async with asyncio.timeout(0.2):
            await rig.raw(junk)
    assert (await rig.get("/healthz"))[0] == 200


@pytest.mark.parametrize(("version", "is_old"), [("3.14.1", True), ("3.14.4", False), ("3.15.0rc1", False)])
async def test_an_aiohttp_with_known_faults_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, *, is_old: bool
) -> None:
    monkeypatch.setattr(aiohttp, "__version__", version)
    listener = Listener(made(tmp_path), HOST, 0)
    with caplog.at_level(0):
        await listener.start()
    await listener.stop()
    assert any("aiohttp.old" in record.getMessage() for record in caplog.records) is is_old


# The port


async def test_a_prefix_stands_before_every_path(tmp_path: Path) -> None:
    server = made(tmp_path)
    await server.start()
    listener = Listener(server, HOST, 0, prefix="/pheby/")
    await listener.start()
    async with aiohttp.ClientSession() as http:
        rig = Rig(server, listener, http)
        assert (await rig.get("/pheby/healthz"))[0] == 200
        assert (await rig.get("/pheby/v1/ws"))[0] == 401
        assert (await rig.get("/healthz", headers=RIGHT))[0] == 404
    await server.stop()
    await listener.stop()


async def test_a_port_in_use_is_an_os_error_and_nothing_stays_open(tmp_path: Path) -> None:
    """L7: the file descriptors do not grow with the tries, and a later try succeeds."""
    server = made(tmp_path)
    await server.start()
    with socket.socket() as holder:
        holder.bind((HOST, 0))
        holder.listen()
        port = holder.getsockname()[1]
        listener = Listener(server, HOST, port)
        with pytest.raises(OSError, match="in use"):
            await listener.start()
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            with pytest.raises(OSError, match="in use"):
                await listener.start()
        assert len(list(Path("/proc/self/fd").iterdir())) <= before
    await listener.start()
    assert listener.port == port
    async with aiohttp.ClientSession() as http:
        assert (await Rig(server, listener, http).get("/healthz"))[0] == 200
    await listener.stop()
    await server.stop()


async def test_the_port_is_free_after_the_stop_and_stop_may_be_repeated(tmp_path: Path) -> None:
    server = made(tmp_path)
    listener = Listener(server, HOST, 0)
    assert listener.port == 0
    await listener.start()
    port = listener.port
    assert port > 0
    await listener.stop()
    await listener.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, port)
    again = Listener(server, HOST, port)
    await again.start()
    await again.stop()


async def test_only_the_given_address_is_listened_on(rig: Rig) -> None:
    """R-A4."""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.2", rig.listener.port)
