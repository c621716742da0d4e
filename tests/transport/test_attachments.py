"""R-G3, J7, J8, J9, J10, J11, J12: files over a real listener, from a store that is not."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import resource
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest

from pheby_protocol.errors import HTTP_ERRORS, ErrorCode, HttpCode
from pheby_protocol.messages.connection import AccessMode
from pheby_server import server as server_module
from pheby_server.aiohttp_transport import Listener, attachments
from pheby_server.aiohttp_transport import listener as listener_module
from pheby_server.auth import Authenticator
from pheby_server.boundary import RequestError
from pheby_server.config import ServerConfig
from pheby_server.server import Server
from pheby_server.testing import TEST_SECRET, ManualHermes
from tests.transport.fake_files import CONTENT, NOW_MS, FakeFiles

HOST = "127.0.0.1"
RIGHT = {"Authorization": f"Bearer {TEST_SECRET}"}
DELIVERED = "Mon, 30 Nov 2026 14:46:49 GMT"
GIB = 1 << 30


@attrs.frozen
class Answer:
    status: int
    headers: Any
    body: bytes

    def is_refusal(self, status: int, code: HttpCode) -> bool:
        expected = f'{{"code": "{code}", "message": "{HTTP_ERRORS[code].message}"}}'.encode()
        is_json = self.headers["Content-Type"].startswith("application/json")
        return is_json and (self.status, self.body) == (status, expected)


class Rig:
    def __init__(self, server: Server, listener: Listener, files: FakeFiles, http: aiohttp.ClientSession) -> None:
        self.server = server
        self.listener = listener
        self.files = files
        self.http = http

    async def ask(self, attachment_id: str, method: str = "GET", **headers: str) -> Answer:
        fields = RIGHT | {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"http://{HOST}:{self.listener.port}/v1/attachments/{attachment_id}"
        async with self.http.request(method, url, headers=fields) as response:
            return Answer(response.status, response.headers, await response.read())

    async def raw(self, target: bytes, *lines: bytes, method: bytes = b"GET") -> bytes:
        """Everything that comes back on a connection of its own."""
        reader, writer = await asyncio.open_connection(HOST, self.listener.port)
        try:
            fields = [b"Host: x", b"Connection: close", f"Authorization: {RIGHT['Authorization']}".encode(), *lines]
            writer.write(b"\r\n".join([method + b" " + target + b" HTTP/1.1", *fields, b"", b""]))
            async with asyncio.timeout(5):
                return await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def stalled(self, attachment_id: str) -> socket.socket:
        """A client that has asked for a large file and takes only the first bytes of it."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, (HOST, self.listener.port))
        lines = f"GET /v1/attachments/{attachment_id} HTTP/1.1\r\nHost: x\r\nAuthorization: {RIGHT['Authorization']}"
        await loop.sock_sendall(client, f"{lines}\r\n\r\n".encode())
        async with asyncio.timeout(5):
            assert (await loop.sock_recv(client, 1_024)).startswith(b"HTTP/1.1 200 ")
        return client

    async def all_closed(self, count: int) -> None:
        """So many files were opened, and none is open any more."""
        async with asyncio.timeout(5):
            while len(self.files.opened) < count or not all(file.closed for file in self.files.opened):
                await asyncio.sleep(0)
        assert len(self.files.opened) == count


def made(folder: Path) -> Server:
    secrets = ((AccessMode.FULL, TEST_SECRET), (AccessMode.READ_ONLY, "watch-" + TEST_SECRET))
    return Server(ServerConfig(storage=str(folder / "storage")), ManualHermes(), Authenticator(secrets))


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(server_module, "DRAIN_SECONDS", 0.3)
    monkeypatch.setattr(listener_module, "_SHUTDOWN_SECONDS", 1.5)
    server = made(tmp_path)
    monkeypatch.setattr(server.clock, "now_ms", lambda: NOW_MS)
    await server.start()
    files = FakeFiles(tmp_path)
    files.serve_for(server)
    listener = Listener(server, HOST, 0)
    await listener.start()
    async with aiohttp.ClientSession() as http:
        yield Rig(server, listener, files, http)
    await server.stop()
    await listener.stop()
    assert all(file.closed for file in files.opened)


@pytest.fixture(params=["sendfile", "reading"])
async def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's own way of sending a file, and a loop that has none."""

    async def absent(*_: object) -> int:
        raise NotImplementedError

    if request.param == "reading":
        monkeypatch.setattr(asyncio.get_running_loop(), "sendfile", absent)


# The whole file


async def test_the_whole_file_with_every_header(rig: Rig) -> None:
    """R-G3."""
    attachment_id = rig.files.add(file_name="disk usage.pdf", media_type="application/pdf")
    answer = await rig.ask(attachment_id)
    assert (answer.status, answer.body) == (200, CONTENT)
    await rig.all_closed(1)
    assert rig.server.metrics.attachment_bytes == len(CONTENT)
    headers = {name.lower(): value for name, value in answer.headers.items() if name not in ("Date", "Server")}
    assert headers == {
        "etag": f'"{hashlib.sha256(CONTENT).hexdigest()}"',
        "last-modified": DELIVERED,
        "cache-control": "private, max-age=604800, immutable, no-transform",
        "content-type": "application/pdf",
        "content-length": "1000",
        "content-disposition": "attachment; filename=\"disk usage.pdf\"; filename*=UTF-8''disk%20usage.pdf",
        "accept-ranges": "bytes",
        "content-security-policy": "default-src 'none'; sandbox",
        "cross-origin-resource-policy": "same-origin",
        "x-content-type-options": "nosniff",
    }
    await rig.all_closed(1)


@pytest.mark.parametrize("size", [0, 1, 262_143, 262_144, 262_145, 3_000_000])
@pytest.mark.usefixtures("each_way")
async def test_every_size_arrives_as_it_is(rig: Rig, size: int) -> None:
    """R-G3."""
    content = os.urandom(size)
    attachment_id = rig.files.add(content)
    answer = await rig.ask(attachment_id)
    assert (answer.status, answer.headers["Content-Length"], answer.body == content) == (200, str(size), True)
    part = await rig.ask(attachment_id, Range="bytes=1000-2000000")
    assert part.status == (206 if size > 1_000 else 416)
    if size > 1_000:
        assert part.body == content[1_000:2_000_001]


async def test_head_is_get_without_the_bytes(rig: Rig) -> None:
    """R-G3, J7."""
    for content in (CONTENT, b""):
        attachment_id = rig.files.add(content)
        got, head = await rig.ask(attachment_id), await rig.ask(attachment_id, "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert (head.headers["Accept-Ranges"], head.headers["Content-Length"]) == ("bytes", str(len(content)))
        assert {**head.headers, "Date": ""} == {**got.headers, "Date": ""}


async def test_head_leaves_ranges_alone(rig: Rig) -> None:
    """R-G3. RFC 9110, section 14.2."""
    answer = await rig.ask(rig.files.add(), "HEAD", Range="bytes=0-9")
    assert (answer.status, answer.headers["Content-Length"]) == (200, "1000")


async def test_several_requests_share_a_connection(rig: Rig) -> None:
    """R-G3: each answer ends where it says, whatever its kind."""
    attachment_id = rig.files.add()
    path = f"/v1/attachments/{attachment_id}"

    def request(method: str, *lines: str) -> bytes:
        return "\r\n".join(
            [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: {RIGHT['Authorization']}", *lines, "", ""]
        ).encode()

    reader, writer = await asyncio.open_connection(HOST, rig.listener.port)
    etag = f'"{hashlib.sha256(CONTENT).hexdigest()}"'
    writer.write(
        request("HEAD")
        + request("GET", f"If-None-Match: {etag}")
        + request("GET", "Range: bytes=0-4")
        + request("GET", "Range: bytes=5000-")
        + request("GET", "Range: bytes=995-", "Connection: close")
    )
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", answer) == [b"200", b"304", b"206", b"416", b"206"]
    assert answer.endswith(b"\r\n\r\n" + CONTENT[995:])


# Parts


@pytest.mark.parametrize(
    ("field", "status", "content_range", "part"),
    [
        ("bytes=0-32767", 206, "bytes 0-999/1000", slice(0, 1_000)),
        ("bytes=500-", 206, "bytes 500-999/1000", slice(500, 1_000)),
        ("bytes=-100", 206, "bytes 900-999/1000", slice(900, 1_000)),
        ("bytes=-5000", 206, "bytes 0-999/1000", slice(0, 1_000)),
        ("bytes=0-0,5-5", 200, None, slice(0, 1_000)),
        ("bytes=9-1", 200, None, slice(0, 1_000)),
        ("lines=1-2", 200, None, slice(0, 1_000)),
        ("junk", 200, None, slice(0, 1_000)),
    ],
)
async def test_ranges(rig: Rig, field: str, status: int, content_range: str | None, part: slice) -> None:
    """J7."""
    answer = await rig.ask(rig.files.add(), Range=field)
    assert (answer.status, answer.headers.get("Content-Range")) == (status, content_range)
    assert answer.body == CONTENT[part]
    assert answer.headers["Content-Length"] == str(len(answer.body))
    assert all(name in answer.headers for name in ("ETag", "Accept-Ranges", "Cache-Control", "Content-Disposition"))


@pytest.mark.parametrize(("size", "field"), [(1_000, "bytes=99999-"), (1_000, "bytes=-0"), (0, "bytes=0-")])
async def test_no_such_range(rig: Rig, size: int, field: str) -> None:
    """J7."""
    answer = await rig.ask(rig.files.add(CONTENT[:size]), Range=field)
    assert answer.is_refusal(416, HttpCode.INVALID_RANGE)
    assert answer.headers["Content-Range"] == f"bytes */{size}"


async def test_two_range_headers_are_no_range(rig: Rig) -> None:
    """J7."""
    target = f"/v1/attachments/{rig.files.add()}".encode()
    answer = await rig.raw(target, b"Range: bytes=0-1", b"Range: bytes=2-3")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n" + CONTENT)


@pytest.mark.parametrize(
    ("if_range", "status"), [("{etag}", 206), ('"other"', 200), ("junk", 200), ("W/{etag}", 200), (DELIVERED, 200)]
)
async def test_a_part_only_of_the_same_file(rig: Rig, if_range: str, status: int) -> None:
    """J8."""
    attachment_id = rig.files.add()
    etag = (await rig.ask(attachment_id, "HEAD")).headers["ETag"]
    answer = await rig.ask(attachment_id, Range="bytes=500-", If_Range=if_range.format(etag=etag))
    assert (answer.status, answer.body) == (status, CONTENT[500:] if status == 206 else CONTENT)


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("If-None-Match", "{etag}", 304),
        ("If-None-Match", 'W/"x", W/{etag}', 304),
        ("If-None-Match", "*", 304),
        ("If-None-Match", '"other"', 200),
        ("If-Modified-Since", DELIVERED, 304),
        ("If-Match", "{etag}", 200),
        ("If-Match", "W/{etag}", 412),
        ("If-Match", '"other"', 412),
        ("If-Unmodified-Since", DELIVERED, 200),
        ("If-Unmodified-Since", "Mon, 30 Nov 2026 14:46:48 GMT", 412),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_conditions(rig: Rig, method: str, name: str, value: str, status: int) -> None:
    """R-G3."""
    attachment_id = rig.files.add()
    etag = (await rig.ask(attachment_id, "HEAD")).headers["ETag"]
    answer = await rig.ask(attachment_id, method, **{name: value.format(etag=etag)})
    assert answer.status == status
    if status == 304:
        assert answer.body == b""
        assert answer.headers["ETag"] == etag
        assert "immutable" in answer.headers["Cache-Control"]
        assert not any(name in answer.headers for name in ("Content-Length", "Content-Type", "Transfer-Encoding"))
    elif status == 412 and method == "GET":
        assert answer.is_refusal(412, HttpCode.PRECONDITION_FAILED)


async def test_a_list_may_come_on_several_lines(rig: Rig) -> None:
    """R-G3. RFC 9110, section 5.3."""
    attachment_id = rig.files.add()
    etag = (await rig.ask(attachment_id, "HEAD")).headers["ETag"].encode()
    target = f"/v1/attachments/{attachment_id}".encode()
    answer = await rig.raw(target, b'If-None-Match: "a"', b"If-None-Match: " + etag)
    assert answer.startswith(b"HTTP/1.1 304 ")


async def test_nothing_is_compressed(rig: Rig) -> None:
    """J11."""
    attachment_id = rig.files.add(b"a line of text\n" * 70_000, media_type="text/plain")
    for headers in ({}, {"Range": "bytes=1000-1999"}):
        answer = await rig.ask(attachment_id, Accept_Encoding="gzip, br, deflate", **headers)
        assert "Content-Encoding" not in answer.headers
        assert "no-transform" in answer.headers["Cache-Control"]
    assert answer.body == (b"a line of text\n" * 70_000)[1_000:2_000]


@pytest.mark.parametrize(("created", "expires", "seconds"), [(10**15, 10**15 + 5_000, 10**12), (0, 0, 0)])
async def test_clocks_that_jumped(rig: Rig, created: int, expires: int, seconds: int) -> None:
    """R-M4: no date in the future, no negative age."""
    attachment_id = rig.files.add(created_at=NOW_MS + created, expires_at=NOW_MS + expires - (not created))
    answer = await rig.ask(attachment_id)
    assert answer.headers["Last-Modified"] == DELIVERED
    assert f"max-age={seconds + 5 if created else 0}," in answer.headers["Cache-Control"]


# What the file is called, and what it is


@pytest.mark.parametrize(
    ("file_name", "plain", "coded"),
    [
        ("отчёт.pdf", "_____.pdf", "%D0%BE%D1%82%D1%87%D1%91%D1%82.pdf"),
        ('a"b.txt', "ab.txt", "ab.txt"),
        ("x\r\nSet-Cookie: y", "xSet-Cookie: y", "xSet-Cookie%3A%20y"),
        ("😀" * 200, "_" * 100, "%F0%9F%98%80" * 200),
        ("\0\ud800\u202e", "attachment", "attachment"),
    ],
)
async def test_any_file_name(rig: Rig, file_name: str, plain: str, coded: str) -> None:
    """J10."""
    answer = await rig.ask(rig.files.add(file_name=file_name))
    assert (answer.status, answer.body) == (200, CONTENT)
    expected = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{coded}"
    assert answer.headers.getall("Content-Disposition") == [expected]
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    ("media_type", "inline_image", "kind"),
    [
        ("image/png", True, "inline"),
        ("image/jpeg", True, "inline"),
        ("image/gif", True, "inline"),
        ("image/webp", True, "inline"),
        ("image/png", False, "attachment"),
        ("image/svg+xml", True, "attachment"),
        ("text/html", True, "attachment"),
        ("application/xhtml+xml", True, "attachment"),
        ("text/plain", True, "attachment"),
        ("IMAGE/PNG", True, "attachment"),
    ],
)
async def test_only_pictures_without_scripts_are_shown(
    rig: Rig, media_type: str, inline_image: bool, kind: str
) -> None:
    """J10."""
    answer = await rig.ask(rig.files.add(media_type=media_type, inline_image=inline_image))
    assert answer.headers["Content-Disposition"].partition(";")[0] == kind
    assert answer.headers["Content-Type"] == media_type
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("media_type", ["", "text", "text/html\r\nSet-Cookie: x", "a/b; charset=x", "é/x", "a/" * 99])
async def test_what_is_no_media_type_is_just_bytes(rig: Rig, media_type: str) -> None:
    """J10, R-G3."""
    answer = await rig.ask(rig.files.add(media_type=media_type))
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/octet-stream")
    assert "Set-Cookie" not in answer.headers


# Refusals


async def test_gone_and_unknown(rig: Rig) -> None:
    """R-G3."""
    attachment_id = rig.files.add()
    rig.files.expired.add(attachment_id)
    for headers in ({}, {"Range": "bytes=99999-", "If-Match": '"x"'}):
        assert (await rig.ask(attachment_id, **headers)).is_refusal(410, HttpCode.EXPIRED)
        assert (await rig.ask("att_" + "9" * 24, **headers)).is_refusal(404, HttpCode.NOT_FOUND)
    head = await rig.ask(attachment_id, "HEAD")
    assert (head.status, head.body) == (410, b"")


@pytest.mark.parametrize(
    "lines",
    [[], [b"Authorization: Bearer wrong"], [b"Authorization: Basic " + TEST_SECRET.encode()]],
    ids=["none", "wrong", "basic"],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("known", [True, False])
async def test_without_the_secret_nobody_learns_what_is_there(
    rig: Rig, lines: list[bytes], method: str, *, known: bool
) -> None:
    """R-A5: the same answer for what there is and what there is not, before anything else is looked at."""
    target = f"/v1/attachments/{rig.files.add() if known else 'att_x'}".encode()
    reader, writer = await asyncio.open_connection(HOST, rig.listener.port)
    writer.write(b"\r\n".join([method.encode() + b" " + target + b" HTTP/1.1", b"Host: x", *lines, b"", b""]))
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    assert head.startswith(b"HTTP/1.1 401 ")
    assert b"\r\nWWW-Authenticate: Bearer\r\n" in head
    assert rig.files.asked == []


async def test_a_secret_in_the_query_is_worth_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """J12."""
    attachment_id = rig.files.add()
    url = f"http://{HOST}:{rig.listener.port}/v1/attachments/{attachment_id}?token={TEST_SECRET}"
    with caplog.at_level(0):
        async with rig.http.get(url) as response:
            answer = Answer(response.status, response.headers, await response.read())
        assert answer.is_refusal(401, HttpCode.UNAUTHORIZED)
        async with rig.http.get(url, headers=RIGHT) as response:
            assert response.status == 200
        await rig.all_closed(1)
    ours = [record for record in caplog.records if record.name.startswith("pheby")]
    assert any(getattr(record, "event", "") == "attachment.sent" for record in ours)
    assert TEST_SECRET not in "".join(record.getMessage() + repr(vars(record)) for record in ours)


async def test_every_access_mode_may_fetch(rig: Rig) -> None:
    """R-S2."""
    answer = await rig.ask(rig.files.add(), Authorization=f"Bearer watch-{TEST_SECRET}")
    assert answer.status == 200


async def test_while_starting_and_after_the_stop_nothing_is_available(tmp_path: Path) -> None:
    """R-G3: not even a look at the store, which is not open."""
    server = made(tmp_path)
    listener = Listener(server, HOST, 0)
    await listener.start()
    files = FakeFiles(tmp_path)
    async with aiohttp.ClientSession() as http:
        rig = Rig(server, listener, files, http)
        seen = [await rig.ask("att_" + "0" * 24)]
        await server.start()
        files.serve_for(server)
        assert (await rig.ask(files.add())).status == 200
        await server.stop()
        seen.append(await rig.ask("att_" + "0" * 24))
    await listener.stop()
    assert len(files.asked) == 1
    for answer in seen:
        assert answer.is_refusal(503, HttpCode.UNAVAILABLE)
        assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"])
async def test_other_methods_find_nothing(rig: Rig, method: str) -> None:
    """R-G3: the contract has GET and HEAD alone."""
    assert (await rig.ask(rig.files.add(), method)).is_refusal(404, HttpCode.NOT_FOUND)
    assert rig.files.asked == []


async def test_a_store_that_fails_is_unavailable_and_its_words_stay_here(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """R-G1, R-M3: neither the client nor the log is told a path."""
    attachment_id = rig.files.add()
    with caplog.at_level(0):
        for failure in (OSError(5, "no", "/secret/place"), ValueError("/secret/place"), RequestError(ErrorCode.BUSY)):
            rig.files.failure = failure
            answer = await rig.ask(attachment_id)
            assert answer.is_refusal(503, HttpCode.UNAVAILABLE)
            assert int(answer.headers["Retry-After"]) > 0
    assert "OSError EIO" in [getattr(record, "error", None) for record in caplog.records]
    assert "/secret/place" not in caplog.text + repr([vars(record) for record in caplog.records])


ODD = [
    b"/v1/attachments/../../etc/passwd",
    b"/v1/attachments/../../../../../../etc/passwd",
    b"/v1/attachments/..%2f..%2f..%2fetc%2fpasswd",
    b"/v1/attachments/%2e%2e/%2e%2e/etc/passwd",
    b"/v1/attachments/%2e%2e%2fetc%2fpasswd",
    b"/v1/attachments/%252e%252e%252fetc%252fpasswd",
    b"/v1/attachments/..%5c..%5cetc",
    b"/v1/attachments//etc/passwd",
    b"/v1/attachments/%2fetc%2fpasswd",
    b"/v1/attachments/",
    b"/v1/attachments",
    b"/v1/attachments/{id}.gz",
    b"/v1/attachments/{id}.br",
    b"/v1/attachments/{id}/",
    b"/v1/attachments/{id}/.",
    b"/v1/attachments/{id}%2f",
    b"/v1/attachments/{id}%00",
    b"/v1/attachments/{id}%00.png",
    b"/v1/attachments/{id}\0",
    b"/v1/attachments/{id}%0d%0aSet-Cookie:%20x",
    b"/v1/attachments/{id}%20",
    b"/v1/attachments/%20{id}",
    b"/v1/attachments/{id};x",
    b"/v1/attachments/{id}%3Fx",
    b"/v1/attachments/%C3%A9tt_x",
    b"/v1/attachments/%FF%FE",
    b"/v1/attachments/\xff\xfe",
    b"/v1/attachments/%",
    b"/v1/attachments/%zz",
    b"/v1/attachments/" + b"a" * 4_096,
    b"/v1/attachments/att_" + b"0" * 61,
    b"/v1/./attachments/{id}/..",
    b"/V1/attachments/{id}",
    b"v1/attachments/{id}",
]


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("target", ODD, ids=lambda target: repr(target[15:60]))
async def test_odd_paths_find_nothing(rig: Rig, target: bytes, method: bytes) -> None:
    """J9: and the store is not even asked."""
    attachment_id = rig.files.add()
    for ending in (".gz", ".br"):
        rig.files.place(attachment_id + ending).write_bytes(CONTENT)
    answer = await rig.raw(target.replace(b"{id}", attachment_id.encode()), method=method)
    assert answer.split(b" ")[1] in (b"404", b"400")
    assert b"root:" not in answer
    assert CONTENT not in answer
    assert b"Set-Cookie" not in answer
    assert rig.files.asked == []
    if answer.startswith(b"HTTP/1.1 404 ") and method == b"GET":
        assert b'{"code": "not_found"' in answer


@pytest.mark.parametrize("query", [b"?x=y", b"?", b"?/../../x", b"?id=other"])
async def test_a_query_changes_nothing(rig: Rig, query: bytes) -> None:
    """R-G3."""
    answer = await rig.raw(f"/v1/attachments/{rig.files.add()}".encode() + query)
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_prefix_stands_before_files_too(tmp_path: Path) -> None:
    """R-G3."""
    server = made(tmp_path)
    await server.start()
    files = FakeFiles(tmp_path)
    files.serve_for(server)
    listener = Listener(server, HOST, 0, prefix="/pheby")
    await listener.start()
    async with aiohttp.ClientSession() as http:
        rig = Rig(server, listener, files, http)
        target = f"/v1/attachments/{files.add()}".encode()
        assert (await rig.raw(b"/pheby" + target)).endswith(CONTENT)
        assert (await rig.raw(target)).startswith(b"HTTP/1.1 404 ")
    await server.stop()
    await listener.stop()


# Large files, slow clients


async def test_two_gibibytes_and_more(rig: Rig) -> None:
    """R-G3: HEAD and a part across the border of 32 bits; nothing is read that is not sent."""
    size = 5 * GIB
    attachment_id = rig.files.add(b"", size=size)
    with rig.files.place(attachment_id).open("wb") as file:
        file.truncate(size)
        file.seek(4 * GIB - 3)
        file.write(b"across")
    head = await rig.ask(attachment_id, "HEAD")
    assert (head.status, head.headers["Content-Length"]) == (200, str(size))
    answer = await rig.ask(attachment_id, Range=f"bytes={4 * GIB - 4}-{4 * GIB + 3}")
    assert (answer.status, answer.body) == (206, b"\0across\0")
    assert answer.headers["Content-Range"] == f"bytes {4 * GIB - 4}-{4 * GIB + 3}/{size}"
    last = await rig.ask(attachment_id, Range="bytes=-2")
    assert last.headers["Content-Range"] == f"bytes {size - 2}-{size - 1}/{size}"


@pytest.mark.usefixtures("each_way")
async def test_memory_stays_flat(rig: Rig) -> None:
    """R-M2: a large file passes through in slices."""
    size = 256 << 20
    attachment_id = rig.files.add(b"", size=size)
    os.truncate(rig.files.place(attachment_id), size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    url = f"http://{HOST}:{rig.listener.port}/v1/attachments/{attachment_id}"
    received = 0
    async with rig.http.get(url, headers=RIGHT) as response:
        async for part in response.content.iter_any():
            received += len(part)
    assert received == size
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_slices_grow_for_who_is_quick_and_are_small_again_for_who_is_not() -> None:
    """R-G3: a slow line has all the time that there is for a small one."""
    sizes = [attachments.SLICE_BYTES]
    for _ in range(4):
        sizes.append(attachments.next_size(sizes[-1], 0.01))
    assert sizes == [262_144, 524_288, 1_048_576, 1_048_576, 1_048_576]
    assert attachments.next_size(sizes[-1], 1.0) == 262_144


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [getattr(record, "event", "") for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("abruptly", [True, False])
@pytest.mark.usefixtures("each_way")
async def test_a_client_that_goes_away_is_no_error(
    rig: Rig, caplog: pytest.LogCaptureFixture, *, abruptly: bool
) -> None:
    """R-G3, R-L1: the file is closed, the next client is served."""
    attachment_id = rig.files.add(bytes(64 << 20))
    with caplog.at_level(logging.DEBUG):
        client = await rig.stalled(attachment_id)
        if abruptly:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        await rig.all_closed(1)
        assert (await rig.ask(attachment_id, Range="bytes=0-9")).status == 206
    assert errors(caplog) == []
    assert "attachment.cut_off" in [getattr(record, "event", "") for record in caplog.records]


async def test_a_client_that_takes_nothing_is_cut_off(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R-M2: it does not hold a file open for ever, and is no error."""
    monkeypatch.setattr(attachments, "STALL_SECONDS", 0.2)
    with caplog.at_level(logging.DEBUG):
        client = await rig.stalled(rig.files.add(bytes(64 << 20)))
        await rig.all_closed(1)
    client.close()
    assert errors(caplog) == []


@pytest.mark.usefixtures("each_way")
async def test_a_file_that_was_shortened_is_never_taken_for_whole(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """R-G3: the connection breaks, so that no client waits for the rest or believes that it has it."""
    attachment_id = rig.files.add(size=2_000)
    with caplog.at_level(0), pytest.raises(aiohttp.ClientPayloadError):
        async with asyncio.timeout(5):
            await rig.ask(attachment_id)
    assert "attachment.failed" in errors(caplog)
    assert str(rig.files.place(attachment_id)) not in caplog.text


async def test_only_so_many_at_the_same_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-M2."""
    monkeypatch.setattr(attachments, "MAX_DOWNLOADS", 2)
    attachment_id = rig.files.add(bytes(64 << 20))
    first, second = [await rig.stalled(attachment_id) for _ in range(2)]
    answer = await rig.ask(attachment_id, "HEAD")
    assert answer.status == 503
    assert int(answer.headers["Retry-After"]) > 0
    first.close()
    async with asyncio.timeout(5):
        while (await rig.ask(attachment_id, "HEAD")).status != 200:
            await asyncio.sleep(0)
    second.close()
    await rig.all_closed(len(rig.files.opened))


@pytest.mark.usefixtures("each_way")
async def test_the_stop_does_not_wait_for_a_slow_client(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """R-G3: longer than the time that the stop has, and keeps none of its connections."""
    attachment_id = rig.files.add(bytes(64 << 20))
    before = open_files()
    clients = [await rig.stalled(attachment_id) for _ in range(3)]
    loop = asyncio.get_running_loop()
    began = loop.time()
    with caplog.at_level(logging.DEBUG):
        await rig.listener.stop()
    # aiohttp by itself takes twice as long as it is given.
    assert loop.time() - began < 2.8
    await rig.all_closed(3)
    assert errors(caplog) == []
    async with asyncio.timeout(5):
        # The clients' ends stay, the listening socket goes.
        while open_files() > before + len(clients) - 1:
            await asyncio.sleep(0)
    for client in clients:
        client.close()


async def test_the_stop_lets_a_quick_client_end(rig: Rig) -> None:
    """R-G3."""
    attachment_id = rig.files.add(bytes(16 << 20))
    client = await rig.stalled(attachment_id)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    stop = asyncio.create_task(rig.listener.stop())
    received = 0
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(5):
        while part := await loop.sock_recv(client, 1 << 20):
            received += len(part)
    await stop
    client.close()
    assert received > (16 << 20) - 1_024
