"""Fetching a file of the agent: goes on where a broken line left it, and keeps nothing that is not the file."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import aiohttp
import attrs

from pheby_protocol.messages.attachment import Attachment

TRIES: Final = 10
"""In a row without a single byte; whatever brings some counts anew."""
FIRST_DELAY: Final = 0.25
LONGEST_DELAY: Final = 10.0
_CHUNK: Final = 262_144
_PASSING: Final = frozenset({429, 502, 503, 504})


class DownloadError(Exception):
    """The file was not fetched; nothing of it is left. `status` is the server's answer, None where none came."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


async def download(socket_url: str, secret: str, attachment: Attachment, target: Path) -> None:
    """Fetch an attachment into a new file. Raises DownloadError, FileExistsError."""
    unfinished = target.with_name(f"{target.name}.part")
    with _claimed(target, unfinished) as out:
        await _fetch_all(address(socket_url, attachment), secret, attachment, out)


@contextlib.contextmanager
def _claimed(target: Path, unfinished: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of the target when all went well, and leaves nothing when it did not."""
    # Claimed first, so that nothing that is there is written over.
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with unfinished.open("wb") as out:
            yield out
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        raise


def address(socket_url: str, attachment: Attachment) -> str:
    """Where an attachment is: its path beside the socket's, with the socket's prefix."""
    base = socket_url.removesuffix("v1/ws")
    return f"{'https' if base.startswith('wss') else 'http'}{base[base.index(':') :]}{attachment.path}"


def free_name(folder: Path, file_name: str) -> Path:
    """A name in a folder that nothing has, made of the file's: that may be any text."""
    plain = "".join(c for c in file_name if c.isprintable() and c not in '/\\:*?"<>|').strip(" .")[:120] or "file"
    stem, dot, ending = plain.rpartition(".") if "." in plain else (plain, "", "")
    place, number = folder / plain, 1
    while place.exists():
        place = folder / f"{stem} ({number}){dot}{ending}"
        number += 1
    return place


async def _fetch_all(url: str, secret: str, attachment: Attachment, out: BinaryIO) -> None:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=30)
    got = _Got(out, attachment.size)
    tries, delay = 0, FIRST_DELAY
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as http:
        while not await _fetch(http, url, secret, got):
            tries, delay = (tries + 1, min(delay * 2, LONGEST_DELAY)) if got.nothing_new() else (0, FIRST_DELAY)
            if tries >= TRIES:
                raise DownloadError("the line broke too often")
            await asyncio.sleep(delay)
    if got.digest.hexdigest() != attachment.sha256:
        raise DownloadError("what came is not the file")


@attrs.define
class _Got:
    """What has come so far."""

    out: BinaryIO
    wanted: int
    size: int = 0
    etag: str | None = None
    digest: hashlib._Hash = attrs.field(factory=hashlib.sha256)
    _before: int = 0

    def start_again(self) -> None:
        self.out.seek(0)
        self.out.truncate()
        self.digest, self.size, self._before = hashlib.sha256(), 0, 0

    def take(self, chunk: bytes) -> None:
        self.digest.update(chunk)
        self.size += len(chunk)
        if self.size > self.wanted:
            raise DownloadError("more came than there is")
        self.out.write(chunk)

    def nothing_new(self) -> bool:
        """Whether nothing has come since this was asked last."""
        before, self._before = self._before, self.size
        return self.size <= before


async def _fetch(http: aiohttp.ClientSession, url: str, secret: str, got: _Got) -> bool:
    """Fetch what is missing; whether it is all there now. Raises DownloadError where another try is of no use."""
    headers = {"Authorization": f"Bearer {secret}", "Accept-Encoding": "identity"}
    if got.size and got.etag is not None:
        headers |= {"Range": f"bytes={got.size}-", "If-Range": got.etag}
    try:
        async with http.get(url, headers=headers) as answer:
            if answer.status in _PASSING:
                return False
            if answer.status not in (200, 206):
                raise DownloadError(f"the server answered {answer.status}", answer.status)
            if answer.status == 200:
                # Another file than before, or a server that knows no ranges.
                got.start_again()
            got.etag = answer.headers.get("ETag")
            async for chunk in answer.content.iter_chunked(_CHUNK):
                got.take(chunk)
    except (aiohttp.ClientError, ConnectionError, TimeoutError):
        return False
    return got.size == got.wanted
