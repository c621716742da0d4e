"""R-G3, J7, J8: the same requests to Pheby and to nginx with the same file: the same answers but for what is named."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest

from pheby import Client
from pheby_server.testing import TEST_SECRET
from tests.proxies.conftest import Pheby, free_ports, running
from tests.proxies.raw_http import Answer, Origin
from tests.transport.fake_files import NOW_MS

CONTENT = bytes(index * 7 % 251 for index in range(100_000))
THEN = "Mon, 30 Nov 2026 14:46:49 GMT"
EARLIER = "Mon, 30 Nov 2026 14:46:48 GMT"
LATER = "Mon, 30 Nov 2026 14:46:50 GMT"

# `exact` is nginx's default and takes a later date for another one; RFC 9110, section 13.1.3, asks for `before`.
CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    default_type application/octet-stream;
    if_modified_since before;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {folder}/root;
    }}
}}
"""


@attrs.frozen
class Both:
    """A file at two servers."""

    pheby: Pheby
    nginx: Origin
    root: Path

    async def ask(self, method: str, lines: list[str], size: int) -> tuple[Answer, Answer]:
        content = CONTENT[:size]
        attachment_id = self.pheby.files.add(content)
        path = self.root / attachment_id
        path.write_bytes(content)
        os.utime(path, (NOW_MS // 1_000, NOW_MS // 1_000))
        secret = f"Authorization: Bearer {TEST_SECRET}"
        return (
            await _asked(Origin(self.pheby.port), method, f"/v1/attachments/{attachment_id}", [secret, *lines]),
            await _asked(self.nginx, method, f"/{attachment_id}", lines),
        )


async def _asked(origin: Origin, method: str, target: str, lines: list[str]) -> Answer:
    """Ask with the ETag that this server has given the file: of what an ETag is made is each one's own."""
    known = await origin.ask("HEAD", target, [line for line in lines if line.startswith("Authorization")])
    return await origin.ask(method, target, [line.replace("{etag}", known.headers["etag"]) for line in lines])


@pytest.fixture
async def both(pheby: Pheby, tmp_path: Path) -> AsyncIterator[Both]:
    folder = tmp_path / "nginx"
    root = folder / "root"
    root.mkdir(parents=True)
    (port,) = free_ports(1)
    configuration = folder / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, port=port))
    async with running(["nginx", "-p", str(folder), "-e", "stderr", "-c", str(configuration)], port, folder):
        yield Both(pheby, Origin(port), root)


def seen(answer: Answer) -> tuple[int, str | None, str | None, str | None]:
    """What must be equal. The body of an error is each one's own, and so is its length."""
    if answer.status >= 400:
        return answer.status, answer.headers.get("content-range"), None, None
    digest = hashlib.sha256(answer.body).hexdigest()
    return answer.status, answer.headers.get("content-range"), answer.headers.get("content-length"), digest


SAME: list[tuple[str, list[str], int]] = [
    # Method, header lines, size of the file.
    ("GET", [], 1_000),
    ("GET", [], 0),
    ("GET", [], 100_000),
    ("HEAD", [], 1_000),
    ("HEAD", [], 0),
    ("GET", ["Range: bytes=0-32767"], 1_000),
    ("GET", ["Range: bytes=0-0"], 1_000),
    ("GET", ["Range: bytes=500-"], 1_000),
    ("GET", ["Range: bytes=999-"], 1_000),
    ("GET", ["Range: bytes=998-1000"], 1_000),
    ("GET", ["Range: bytes=-1"], 1_000),
    ("GET", ["Range: bytes=-100"], 1_000),
    ("GET", ["Range: bytes=-5000"], 1_000),
    ("GET", ["Range: bytes=-0"], 1_000),
    ("GET", ["Range: bytes=1000-"], 1_000),
    ("GET", ["Range: bytes=99999-"], 1_000),
    ("GET", ["Range: bytes=99999-100000"], 1_000),
    ("GET", ["Range: BYTES=1-2"], 1_000),
    ("GET", ["Range: bytes= 1-2"], 1_000),
    ("GET", ["Range: bytes=65535-65536"], 100_000),
    ("GET", ["Range: items=0-1"], 1_000),
    ("GET", ["Range: junk"], 1_000),
    ("GET", ["Range:"], 1_000),
    ("GET", ["Range: bytes="], 1_000),
    ("GET", ["Range: bytes=-5"], 0),
    ("GET", ["Range: bytes=10-19", "If-Range: {etag}"], 1_000),
    ("GET", ["Range: bytes=99999-", "If-Range: {etag}"], 1_000),
    ("GET", ["Range: bytes=10-19", 'If-Range: "other"'], 1_000),
    ("GET", ["Range: bytes=99999-", 'If-Range: "other"'], 1_000),
    ("GET", ["Range: bytes=10-19", "If-Range: W/{etag}"], 1_000),
    ("GET", ["Range: bytes=10-19", "If-Range: junk"], 1_000),
    ("GET", ["Range: bytes=10-19", f"If-Range: {LATER}"], 1_000),
    ("GET", ["If-None-Match: {etag}"], 1_000),
    ("HEAD", ["If-None-Match: {etag}"], 1_000),
    ("GET", ["If-None-Match: W/{etag}"], 1_000),
    ("GET", ['If-None-Match: "a", W/"b" , {etag}'], 1_000),
    ("GET", ["If-None-Match: *"], 1_000),
    ("GET", ['If-None-Match: "other"'], 1_000),
    ("GET", ["If-None-Match: {etag}", "Range: bytes=0-9"], 1_000),
    ("GET", ["If-None-Match: {etag}", "Range: bytes=99999-"], 1_000),
    ("GET", [f"If-Modified-Since: {EARLIER}"], 1_000),
    ("GET", [f"If-Modified-Since: {THEN}"], 1_000),
    ("GET", [f"If-Modified-Since: {LATER}"], 1_000),
    ("GET", ["If-Modified-Since: junk"], 1_000),
    ("GET", ['If-None-Match: "other"', f"If-Modified-Since: {LATER}"], 1_000),
    ("GET", ["If-Match: {etag}"], 1_000),
    ("GET", ["If-Match: *"], 1_000),
    ("GET", ['If-Match: "other"'], 1_000),
    ("HEAD", ['If-Match: "other"'], 1_000),
    ("GET", ["If-Match: W/{etag}"], 1_000),
    ("GET", ['If-Match: "other"', "Range: bytes=0-9"], 1_000),
    ("GET", ["If-Match: {etag}", "Range: bytes=0-9"], 1_000),
    ("GET", ["If-Match: {etag}", "If-None-Match: {etag}"], 1_000),
    ("GET", [f"If-Unmodified-Since: {EARLIER}"], 1_000),
    ("GET", [f"If-Unmodified-Since: {THEN}"], 1_000),
    ("GET", [f"If-Unmodified-Since: {LATER}"], 1_000),
    ("GET", ["Accept-Encoding: gzip", "Range: bytes=0-9"], 1_000),
]


def shown(case: object) -> str | None:
    return "; ".join(map(str, case)) if isinstance(case, list) else None


@pytest.mark.parametrize(("method", "lines", "size"), SAME, ids=shown)
async def test_the_same_request_gets_the_same_answer(both: Both, method: str, lines: list[str], size: int) -> None:
    """R-G3, J7, J8."""
    ours, theirs = await both.ask(method, lines, size)
    assert seen(ours) == seen(theirs)


DEVIATIONS: list[tuple[str, list[str], int, int, int]] = [
    # Method, header lines, size of the file; Pheby's status, nginx's.
    # RFC 9110, section 14.2: several ranges may be ignored; ours are for resuming, which takes one.
    ("GET", ["Range: bytes=0-0,5-5"], 1_000, 200, 206),
    ("GET", ["Range: bytes=0-9,99999-"], 1_000, 200, 206),
    ("GET", ["Range: bytes=99999-,88888-"], 1_000, 200, 416),
    # Section 14.2: an invalid range may be ignored or rejected. Ignored, as J7 has it: the client gets its file.
    ("GET", ["Range: bytes=9-1"], 1_000, 200, 416),
    ("GET", ["Range: bytes=a-b"], 1_000, 200, 416),
    ("GET", ["Range: bytes=-"], 1_000, 200, 416),
    # Section 14.2: a range must be ignored with every method but GET.
    ("HEAD", ["Range: bytes=0-9"], 1_000, 200, 206),
    ("HEAD", ["Range: bytes=99999-"], 1_000, 200, 416),
    # Section 14.1.2: no first position lies within a file of no bytes, so that the range cannot be satisfied.
    ("GET", ["Range: bytes=0-"], 0, 416, 200),
    # Sections 13.1.5 and 8.8.2.2: a date is good for a range only as a strong validator, which one of seconds is not.
    ("GET", ["Range: bytes=10-19", f"If-Range: {THEN}"], 1_000, 200, 206),
    # Section 13.2.2: a date is not looked at where there is a list of tags.
    ("GET", ["If-Match: {etag}", f"If-Unmodified-Since: {EARLIER}"], 1_000, 200, 412),
    ("GET", ["If-None-Match: {etag}", f"If-Modified-Since: {EARLIER}"], 1_000, 304, 200),
    # Section 13.1.4: what is no date must be ignored.
    ("GET", ["If-Unmodified-Since: junk"], 1_000, 200, 412),
]


@pytest.mark.parametrize(("method", "lines", "size", "our_status", "their_status"), DEVIATIONS, ids=shown)
async def test_what_is_known_to_differ(
    both: Both, method: str, lines: list[str], size: int, our_status: int, their_status: int
) -> None:
    """R-G3, J7: a deviation that is none any more has to leave the list."""
    ours, theirs = await both.ask(method, lines, size)
    assert (ours.status, theirs.status) == (our_status, their_status)
    if our_status == 200 and method == "GET":
        assert ours.body == CONTENT[:size]


# The part for nginx that owners are given

OWNERS = Path(__file__).parents[2] / "docs" / "howto" / "nginx.conf"


def adapted(pheby_port: int, port: int, folder: Path) -> str:
    """As it stands, but for what a test has no rights to, and no TLS: of that nginx needs nothing of ours."""
    text = OWNERS.read_text(encoding="utf-8")
    for old, new in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port};"),
        ("    ssl_certificate     /etc/ssl/pheby/fullchain.pem;\n", ""),
        ("    ssl_certificate_key /etc/ssl/pheby/privkey.pem;\n", ""),
        ("http://127.0.0.1:8786", f"http://127.0.0.1:{pheby_port}"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    head, _, _ = CONFIGURATION.format(folder=folder, port=port).partition("    server {")
    return head.replace("access_log off;", f"access_log {folder}/access.log; gzip on; gzip_types *;") + text + "}\n"


@pytest.fixture
async def owners(pheby: Pheby, tmp_path: Path) -> AsyncIterator[Origin]:
    folder = tmp_path / "owners"
    folder.mkdir()
    (port,) = free_ports(1)
    configuration = folder / "nginx.conf"
    configuration.write_text(adapted(pheby.port, port, folder))
    async with running(["nginx", "-p", str(folder), "-e", "stderr", "-c", str(configuration)], port, folder):
        yield Origin(port)


async def test_a_socket_goes_through(owners: Origin) -> None:
    """R-A4."""
    async with Client(f"ws://127.0.0.1:{owners.port}/v1/ws", TEST_SECRET) as client:
        assert client.welcome is not None


async def test_a_file_goes_through_as_it_is_and_in_parts(pheby: Pheby, owners: Origin, tmp_path: Path) -> None:
    """R-G3, J11, J12: nothing is compressed, and the secret is in no log."""
    path = f"/v1/attachments/{pheby.files.add(CONTENT)}"
    asked = [f"Authorization: Bearer {TEST_SECRET}", "Accept-Encoding: gzip"]
    whole = await owners.ask("GET", path, asked)
    assert (whole.status, whole.body) == (200, CONTENT)
    assert "content-encoding" not in whole.headers
    part = await owners.ask("GET", path, [*asked, "Range: bytes=99-1099", f"If-Range: {whole.headers['etag']}"])
    assert (part.status, part.body) == (206, CONTENT[99:1100])
    assert (await owners.ask("GET", path)).status == 401
    log = (tmp_path / "owners" / "access.log").read_text()
    assert path in log
    assert TEST_SECRET not in log
