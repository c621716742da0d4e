"""Files over HTTP: GET and HEAD, whole or in part."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web

from pheby_protocol.errors import ErrorCode, HttpCode
from pheby_protocol.ids import is_id
from pheby_protocol.messages.attachment import Attachment
from pheby_server.boundary import RequestError
from pheby_server.logs import kind, log_of
from pheby_server.metrics import Metrics
from pheby_server.opened_file import Files, OpenedFile

from .file_names import content_disposition
from .ranges import Asked, Plan, as_http_date, plan
from .responses import refusal, unavailable

log = log_of(__name__)

MAX_DOWNLOADS: Final = 32
"""At the same time; each holds a file open."""
SLICE_BYTES: Final = 262_144
LARGEST_SLICE_BYTES: Final = 1_048_576
QUICK_SECONDS: Final = 0.5
"""Within this time a client that is quick takes a slice."""
STALL_SECONDS: Final = 60.0
"""A client that takes none of a slice for so long is cut off; it resumes where it was."""

_INLINE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Pictures that can hold no script. HTML and SVG are never shown, only saved."""
_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}")
_ANY_TYPE: Final = "application/octet-stream"
_REFUSALS: Final = {
    ErrorCode.NOT_FOUND: (HTTPStatus.NOT_FOUND, HttpCode.NOT_FOUND),
    ErrorCode.EXPIRED: (HTTPStatus.GONE, HttpCode.EXPIRED),
}


class _ShortFileError(Exception):
    """The file has fewer bytes than were registered."""


class Downloads:
    """The downloads of one listener."""

    def __init__(self, files: Callable[[], Files], now_ms: Callable[[], int], metrics: Metrics | None = None) -> None:
        self._files = files
        self._now_ms = now_ms
        self._metrics = metrics or Metrics()
        self._running: set[asyncio.Task[object]] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Serve a request whose secret was right."""
        task = asyncio.current_task()
        if task is None or len(self._running) >= MAX_DOWNLOADS:
            return unavailable()
        self._running.add(task)
        try:
            return await self._answer(request)
        finally:
            self._running.discard(task)

    async def stop(self, seconds: float) -> None:
        """Let them end within this time, and cut off the others."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=seconds)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        attachment_id = request.match_info["attachment_id"]
        if not is_id(attachment_id):
            return refusal(HTTPStatus.NOT_FOUND, HttpCode.NOT_FOUND)
        try:
            opened = await self._files().open(attachment_id)
        except RequestError as refused:
            status_and_code = _REFUSALS.get(refused.code)
            return refusal(*status_and_code) if status_and_code else unavailable()
        except Exception as failure:  # noqa: BLE001 - its text may hold a path, which belongs in no log
            log.error("attachment.failed", extra={"attachment_id": attachment_id, "error": kind(failure)})
            return unavailable()
        with opened.file:
            return await self._serve(request, opened)

    async def _serve(self, request: web.Request, opened: OpenedFile) -> web.StreamResponse:
        attachment = opened.attachment
        now_ms = self._now_ms()
        etag = f'"{attachment.sha256}"'
        # Not later than now (8.8.2.1), whatever became of the clock since.
        modified = min(attachment.created_at, now_ms) // 1_000
        caching = {"ETag": etag, "Cache-Control": _cache_control(attachment, now_ms)}
        planned = plan(
            _asked(request), is_get=request.method == "GET", etag=etag, modified=modified, size=attachment.size
        )
        match planned.status:
            case HTTPStatus.NOT_MODIFIED:
                return web.Response(status=planned.status, headers=caching)
            case HTTPStatus.PRECONDITION_FAILED:
                return refusal(planned.status, HttpCode.PRECONDITION_FAILED)
            case HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                headers = {"Content-Range": f"bytes */{attachment.size}", "Accept-Ranges": "bytes"}
                return refusal(planned.status, HttpCode.INVALID_RANGE, headers)
        headers = caching | {"Last-Modified": as_http_date(modified)} | _describing(attachment, planned)
        response = web.StreamResponse(status=planned.status, headers=headers)
        return await _send(request, response, opened, planned, self._metrics)


def _asked(request: web.Request) -> Asked:
    def field(name: str) -> str | None:
        lines = request.headers.getall(name, ())
        return ",".join(lines) if lines else None

    return Asked(
        range=field("Range"),
        if_range=field("If-Range"),
        if_match=field("If-Match"),
        if_none_match=field("If-None-Match"),
        if_modified_since=field("If-Modified-Since"),
        if_unmodified_since=field("If-Unmodified-Since"),
    )


def _cache_control(attachment: Attachment, now_ms: int) -> str:
    # As long as the file is there. A proxy that compressed it would make its ranges wrong.
    seconds = max(0, attachment.expires_at - now_ms) // 1_000
    return f"private, max-age={seconds}, immutable, no-transform"


def _describing(attachment: Attachment, planned: Plan) -> dict[str, str]:
    media_type = attachment.media_type if _MEDIA_TYPE.fullmatch(attachment.media_type) else _ANY_TYPE
    inline = attachment.inline_image and media_type in _INLINE_TYPES
    headers = {
        "Content-Type": media_type,
        "Content-Length": str(planned.length),
        "Accept-Ranges": "bytes",
        "Content-Disposition": content_disposition(attachment.file_name, inline=inline),
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cross-Origin-Resource-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }
    if planned.status is HTTPStatus.PARTIAL_CONTENT:
        last = planned.start + planned.length - 1
        headers["Content-Range"] = f"bytes {planned.start}-{last}/{attachment.size}"
    return headers


async def _send(
    request: web.Request, response: web.StreamResponse, opened: OpenedFile, planned: Plan, metrics: Metrics
) -> web.StreamResponse:
    about = {"attachment_id": opened.attachment.attachment_id, "status": planned.status.value, "bytes": planned.length}
    try:
        await response.prepare(request)
        if request.method == "GET":
            await _send_bytes(request, response, opened.file, planned, metrics)
        await response.write_eof()
        log.info("attachment.sent", extra=about)
    except (ConnectionError, TimeoutError) as cut:
        log.info("attachment.cut_off", extra=about | {"error": kind(cut)})
        _abort(request)
    except (OSError, _ShortFileError) as failure:
        log.warning("attachment.failed", extra=about | {"error": kind(failure)})
        _abort(request)
    except asyncio.CancelledError:
        _abort(request)
        raise
    return response


def _abort(request: web.Request) -> None:
    # At once: a whole answer was promised, so nothing may follow, and what is not yet sent would wait for the client.
    if request.transport is not None:
        request.transport.abort()


async def _send_bytes(
    request: web.Request, response: web.StreamResponse, file: io.FileIO, planned: Plan, metrics: Metrics
) -> None:
    start, end, size = planned.start, planned.start + planned.length, SLICE_BYTES
    loop = asyncio.get_running_loop()
    while start < end:
        began = loop.time()
        async with asyncio.timeout(STALL_SECONDS):
            sent = await _send_slice(request, response, file, start, min(size, end - start))
        if sent == 0:
            raise _ShortFileError
        metrics.attachment_bytes += sent
        start += sent
        size = next_size(size, loop.time() - began)


def next_size(size: int, seconds: float) -> int:
    """The next slice's, behind one of this size that took so long: large only for who is quick."""
    return min(2 * size, LARGEST_SLICE_BYTES) if seconds < QUICK_SECONDS else SLICE_BYTES


async def _send_slice(
    request: web.Request, response: web.StreamResponse, file: io.FileIO, start: int, length: int
) -> int:
    """How many bytes have gone into the connection; less than asked for at the end of the file."""
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):
        return await loop.sendfile(transport, file, start, length)
    # Not every loop can.
    part = await loop.run_in_executor(None, _read, file, start, length)
    await response.write(part)
    return len(part)


def _read(file: io.FileIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)
