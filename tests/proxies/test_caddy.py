"""R-A4, R-G3, J9, J11, J12: through a real Caddy with TLS and compression, by the Caddyfile that owners are given."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from pheby_server.testing import TEST_SECRET
from tests.proxies.caddy import Caddy, Front, in_front_of
from tests.proxies.conftest import Pheby
from tests.proxies.raw_http import closed

RIGHT = [f"Authorization: Bearer {TEST_SECRET}"]


@pytest.fixture
async def caddy(pheby: Pheby, tmp_path: Path) -> AsyncIterator[Caddy]:
    async with in_front_of(pheby.port, tmp_path / "caddy") as started:
        yield started


@pytest.fixture(params=["own host", "path of a host"])
def front(request: pytest.FixtureRequest, caddy: Caddy) -> Front:
    return caddy.sites[request.param]


async def test_the_socket_works(front: Front) -> None:
    """R-A4."""
    hello = {
        "type": "hello",
        "id": "1",
        "protocol_versions": [1],
        "client": {"name": "t", "version": "1", "device_id": "d"},
    }
    url = f"wss://localhost:{front.origin.port}{front.prefix}/v1/ws"
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(url, ssl=front.origin.trust, headers={"Authorization": f"Bearer {TEST_SECRET}"}) as line,
        asyncio.timeout(10),
    ):
        await line.send_json(hello)
        assert (await line.receive_json())["type"] == "welcome"
        while (await line.receive_json())["type"] != "sync.completed":
            pass


async def test_a_download_that_is_cut_five_times_is_whole_in_the_end(pheby: Pheby, front: Front) -> None:
    """R-G3, J8."""
    content = os.urandom(50_000_000)
    path = front.path(pheby.files.add(content))
    head = await front.origin.ask("HEAD", path, RIGHT)
    assert head.headers["content-length"] == str(len(content))
    received = b""
    for _ in range(5):
        lines = [*RIGHT, f"Range: bytes={len(received)}-", f"If-Range: {head.headers['etag']}"]
        received += await front.origin.first_bytes(path, lines, 7_000_000)
    lines = [*RIGHT, f"Range: bytes={len(received)}-", f"If-Range: {head.headers['etag']}"]
    rest = await front.origin.ask("GET", path, lines)
    assert rest.status == 206
    assert rest.headers["content-range"] == f"bytes {len(received)}-{len(content) - 1}/{len(content)}"
    assert head.headers["etag"] == f'"{hashlib.sha256(received + rest.body).hexdigest()}"'
    for opened in pheby.files.opened:
        async with asyncio.timeout(10):
            while not opened.closed:
                await asyncio.sleep(0.01)


async def test_nothing_of_a_file_is_compressed(pheby: Pheby, front: Front) -> None:
    """J11: though this Caddy compresses what is not a file."""
    content = b"".join(b"line %9d\n" % number for number in range(70_000))
    path = front.path(pheby.files.add(content, media_type="text/plain"))
    lines = [*RIGHT, "Accept-Encoding: gzip"]
    for method, wanted, expected in (
        ("GET", [], content),
        ("GET", ["Range: bytes=1000-1999"], content[1_000:2_000]),
        ("HEAD", [], b""),
    ):
        answer = await front.origin.ask(method, path, [*lines, *wanted])
        assert "content-encoding" not in answer.headers
        assert answer.body == expected
        assert answer.headers["etag"] == f'"{hashlib.sha256(content).hexdigest()}"'
    length = len(content)
    assert (await front.origin.ask("HEAD", path, lines)).headers["content-length"] == str(length)


async def test_what_may_be_compressed_is(tmp_path: Path) -> None:
    """J11: the proof that this Caddy would have done it."""
    text = b"plain text, again and again. " * 200

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(text)
        writer.write(head + text)
        await closed(writer)

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as upstream,
        in_front_of(upstream.sockets[0].getsockname()[1], tmp_path / "caddy") as caddy,
    ):
        seen = await caddy.sites["own host"].origin.ask("GET", "/", ["Accept-Encoding: gzip"])
    assert seen.headers["content-encoding"] == "gzip"
    assert gzip.decompress(seen.body) == text


ODD = [
    "/v1/attachments/../../etc/passwd",
    "/v1/attachments/../../../../../../etc/passwd",
    "/v1/attachments/..%2f..%2f..%2fetc%2fpasswd",
    "/v1/attachments/%2e%2e/%2e%2e/etc/passwd",
    "/v1/attachments/%2e%2e%2fetc%2fpasswd",
    "/v1/attachments/%252e%252e%252fetc%252fpasswd",
    "/v1/attachments//etc/passwd",
    "/v1/attachments/%2fetc%2fpasswd",
    "/v1/attachments/",
    "/v1/attachments/{id}.gz",
    "/v1/attachments/{id}/",
    "/v1/attachments/{id}%00",
    "/v1/attachments/{id}%00.png",
    "/v1/attachments/{id}\0",
    "/v1/attachments/{id}%0d%0aSet-Cookie:%20x",
    "/v1/attachments/{id}%20",
    "/v1/attachments/\xff\xfe",
    "/v1/attachments/%FF",
    "/v1/attachments/%zz",
    "/v1/attachments/" + "a" * 4_096,
]


async def test_odd_paths_find_nothing(pheby: Pheby, front: Front) -> None:
    """J9: as they are, nothing tidied up before they are sent."""
    attachment_id = pheby.files.add(b"the file's own bytes")
    pheby.files.place(attachment_id + ".gz").write_bytes(b"the file's own bytes")
    for odd in ODD:
        answer = await front.origin.ask("GET", front.prefix + odd.replace("{id}", attachment_id), RIGHT)
        assert answer.status in (404, 400), odd
        assert b"root:" not in answer.body
        assert b"own bytes" not in answer.body
        assert "set-cookie" not in answer.headers
    assert pheby.files.asked == []
    assert (await front.origin.ask("GET", front.path(attachment_id), RIGHT)).body == b"the file's own bytes"


async def test_only_the_prefix_leads_to_pheby(pheby: Pheby, caddy: Caddy) -> None:
    """R-A4."""
    front = caddy.sites["path of a host"]
    attachment_id = pheby.files.add()
    assert (await front.origin.ask("GET", f"/v1/attachments/{attachment_id}", RIGHT)).body == b"Nothing here."
    assert (await front.origin.ask("GET", "/pheby/healthz")).status == 200


async def test_a_secret_in_an_address_is_worth_nothing_and_in_no_log(
    pheby: Pheby, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """J12, R-L1: nor is the one in the header, nor either of them when Caddy reports that Pheby is not there."""
    upgrade = ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    attachment_id = pheby.files.add()
    hidden = [*RIGHT, f"Cookie: token={TEST_SECRET}", f"Referer: https://x/?token={TEST_SECRET}"]
    with caplog.at_level(0):
        async with in_front_of(pheby.port, tmp_path / "caddy") as caddy:
            for front in caddy.sites.values():
                path = front.path(attachment_id)
                statuses = [
                    (await front.origin.ask("GET", f"{path}?token={TEST_SECRET}")).status,
                    (await front.origin.ask("GET", f"{front.prefix}/v1/ws?a=b&token={TEST_SECRET}", upgrade)).status,
                    (await front.origin.ask("GET", path, hidden)).status,
                ]
                assert statuses == [401, 401, 200]
            await pheby.listener.stop()
            for front in caddy.sites.values():
                path = front.path(attachment_id)
                assert (await front.origin.ask("GET", f"{path}?token={TEST_SECRET}", hidden)).status == 502
        logs = caddy.logs()
    for name in ("pheby.log", "home.log"):
        lines = [json.loads(line) for line in logs[name].splitlines()]
        assert [line["status"] for line in lines] == [401, 401, 200, 502]
        assert lines[0]["request"]["uri"].endswith(f"/v1/attachments/{attachment_id}?")
    # What Caddy says of a Pheby that is not there, it says in its own log.
    assert "connection refused" in logs["printed.log"]
    assert attachment_id in logs["printed.log"]
    assert [name for name, text in logs.items() if TEST_SECRET in text] == []
    ours = [record for record in caplog.records if record.name.startswith("pheby")]
    assert any(record.getMessage().startswith("authentication.failed ") for record in ours)
    assert TEST_SECRET not in "".join(record.getMessage() + repr(vars(record)) for record in ours)
