"""Files fetched over a line that breaks: whole and right, or not at all (R-G3, J8)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pheby import download as module
from pheby.download import DownloadError, address, download, free_name
from pheby_protocol.ids import AttachmentId, ConversationId, Count, MessageId, Time
from pheby_protocol.messages.attachment import Attachment
from pheby_protocol.states import AttachmentState

CONTENT = bytes(range(256)) * 400
SECRET = "s" * 40


def attachment(**changes: Any) -> Attachment:
    fields: dict[str, Any] = {
        "attachment_id": AttachmentId("att_1"),
        "conversation_id": ConversationId("conv_1"),
        "message_id": MessageId("msg_1"),
        "file_name": "report.pdf",
        "media_type": "application/pdf",
        "size": Count(len(CONTENT)),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "inline_image": False,
        "status": AttachmentState.AVAILABLE,
        "created_at": Time(1),
        "expires_at": Time(2),
        "path": "v1/attachments/att_1",
    }
    return Attachment(**fields | changes)


class Place:
    """A server whose line breaks after so many bytes each time."""

    def __init__(self) -> None:
        self.url = ""
        self.content = CONTENT
        self.breaks_after: int | None = None
        self.status = 200
        self.ranges = True
        self.etag = '"one"'
        self.asked: list[dict[str, str]] = []
        self.next: Callable[[], None] = lambda: None
        """Called before the second answer and each one after it."""

    def change(self, **fields: Any) -> None:
        vars(self).update(fields)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.asked:
            self.next()
        self.asked.append(dict(request.headers))
        if self.status != 200:
            return web.Response(status=self.status)
        start = 0
        wanted = request.headers.get("Range")
        if wanted is not None and self.ranges and request.headers.get("If-Range") == self.etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        body = self.content[start:]
        response = web.StreamResponse(status=206 if start else 200, headers={"ETag": self.etag})
        response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: self.breaks_after])
        if self.breaks_after is not None and self.breaks_after < len(body):
            assert request.transport is not None
            request.transport.close()
        return response


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(module, "FIRST_DELAY", 0.0)
    monkeypatch.setattr(module, "LONGEST_DELAY", 0.0)
    found = Place()
    app = web.Application()
    app.router.add_get("/pheby/v1/attachments/att_1", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"ws://127.0.0.1:{runner.addresses[0][1]}/pheby/v1/ws"
    yield found
    await runner.cleanup()


async def test_a_file_arrives(place: Place, tmp_path: Path) -> None:
    await download(place.url, SECRET, attachment(), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert [file.name for file in tmp_path.iterdir()] == ["got"]
    assert place.asked[0]["Authorization"] == f"Bearer {SECRET}"


async def test_a_broken_line_goes_on_where_it_broke(place: Place, tmp_path: Path) -> None:
    place.breaks_after = 30_000
    await download(place.url, SECRET, attachment(), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert [asked.get("Range") for asked in place.asked] == [
        None,
        "bytes=30000-",
        "bytes=60000-",
        "bytes=90000-",
    ]


async def test_another_file_meanwhile_is_fetched_from_the_start(place: Place, tmp_path: Path) -> None:
    """J8: never half of the one and half of the other."""
    place.breaks_after, place.content = 30_000, b"old" * 20_000
    place.next = lambda: place.change(etag='"two"', content=CONTENT, breaks_after=None)
    await download(place.url, SECRET, attachment(), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert [asked.get("If-Range") for asked in place.asked] == [None, '"one"']


@pytest.mark.parametrize(
    ("content", "changes"),
    [(CONTENT[:-1] + b"x", {}), (CONTENT + b"x", {}), (CONTENT, {"sha256": "0" * 64})],
    ids=["other bytes", "more bytes", "other hash"],
)
async def test_what_is_not_the_file_is_not_kept(
    place: Place, tmp_path: Path, content: bytes, changes: dict[str, Any]
) -> None:
    place.content = content
    with pytest.raises(DownloadError):
        await download(place.url, SECRET, attachment(**changes), tmp_path / "got")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [401, 404, 410, 416, 500])
async def test_a_refusal_is_told_at_once(place: Place, tmp_path: Path, status: int) -> None:
    place.status = status
    with pytest.raises(DownloadError, match=str(status)) as failure:
        await download(place.url, SECRET, attachment(), tmp_path / "got")
    assert failure.value.status == status
    assert len(place.asked) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [429, 503])
async def test_what_may_pass_is_tried_again_and_given_up(place: Place, tmp_path: Path, status: int) -> None:
    place.status = status
    with pytest.raises(DownloadError, match="too often"):
        await download(place.url, SECRET, attachment(), tmp_path / "got")
    assert len(place.asked) == module.TRIES


async def test_nothing_is_written_over(place: Place, tmp_path: Path) -> None:
    (tmp_path / "got").write_text("mine")
    with pytest.raises(FileExistsError):
        await download(place.url, SECRET, attachment(), tmp_path / "got")
    assert (tmp_path / "got").read_text() == "mine"


async def test_an_empty_file_arrives(place: Place, tmp_path: Path) -> None:
    place.content = b""
    empty = attachment(size=Count(0), sha256=hashlib.sha256(b"").hexdigest())
    await download(place.url, SECRET, empty, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b""


@pytest.mark.parametrize(
    ("socket", "wanted"),
    [
        ("ws://127.0.0.1:1/v1/ws", "http://127.0.0.1:1/v1/attachments/att_1"),
        ("wss://host/pheby/v1/ws", "https://host/pheby/v1/attachments/att_1"),
    ],
)
def test_the_address_is_beside_the_sockets(socket: str, wanted: str) -> None:
    assert address(socket, attachment()) == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "etcpasswd"),
        ("a\nb\0c.txt", "abc.txt"),
        ("..", "file"),
        ("", "file"),
        ('q"uo<te>.txt', "quote.txt"),
        ("x" * 500 + ".pdf", "x" * 120),
    ],
)
def test_a_name_to_save_under_is_plain(tmp_path: Path, name: str, wanted: str) -> None:
    assert free_name(tmp_path, name) == tmp_path / wanted


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").touch()
    (tmp_path / "a (1).pdf").touch()
    assert free_name(tmp_path, "a.pdf").name == "a (2).pdf"
