"""One connection of one device, by plain JSON: it sends anything and keeps all that comes."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any, Self

import aiohttp
import attrs

from pheby_protocol.codec import DecodeError, decode

from .check import ConformanceError, expect, same

Frame = dict[str, Any]
MAX_MESSAGE = 2**24


@attrs.define(eq=False)
class Record:
    """Everything about one connection, for the checks that look at the whole run."""

    device_id: str
    frames: list[Frame] = attrs.field(factory=list)
    """What came, in order; behind a batch the events in it."""
    raw: list[str] = attrs.field(factory=list)
    """The frames as they came."""
    flaws: list[str] = attrs.field(factory=list)
    """Frames that cannot be decoded, and why."""
    sent: list[Frame] = attrs.field(factory=list)
    """The requests that were sent as such; not what was sent wrongly on purpose."""
    offered_batch: bool = False
    batches: int = 0


class Phone:
    """A WebSocket that is read all the time. Waiting looks at what came already, too."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, device_id: str, patience: float) -> None:
        self._socket = socket
        self._patience = patience
        self._ids = itertools.count(1)
        self._news = asyncio.Event()
        self.record = Record(device_id)
        self.device_id = device_id
        self.frames = self.record.frames
        self.close_code: int | None = None
        self.welcome: Frame = {}
        self._reader = asyncio.create_task(self._read(), name="conformance-phone")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close in good order."""
        await self._socket.close()
        await self._reader

    def cut(self) -> None:
        """The line breaks: no closing handshake."""
        response = self._socket._response
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.abort()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._keep(message.data)
        finally:
            self.close_code = self._socket.close_code or 1006
            self._wake()

    def _keep(self, text: str) -> None:
        self.record.raw.append(text)
        try:
            frame = json.loads(text)
        except ValueError:
            frame = None
        try:
            decode(text)
        except DecodeError as flaw:
            self.record.flaws.append(f"{frame.get('type') if isinstance(frame, dict) else 'a frame'}: {flaw}")
        if isinstance(frame, dict):
            self.frames.append(frame)
            if frame.get("type") == "batch":
                self.record.batches += 1
                self.frames += [event for event in frame.get("events", ()) if isinstance(event, dict)]
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # Sending

    async def text(self, text: str) -> None:
        """Send anything as a text frame."""
        await self._socket.send_str(text)

    async def binary(self, content: bytes) -> None:
        """Send a binary frame."""
        await self._socket.send_bytes(content)

    async def send(self, type_: str, **fields: Any) -> str:
        """Send a request without waiting; its id."""
        request_id = f"r{next(self._ids)}"
        frame = {"type": type_, "id": request_id, **fields}
        self.record.sent.append(frame)
        if type_ == "hello":
            self.record.offered_batch = "batch" in (fields.get("capabilities") or ())
        await self.text(json.dumps(frame, ensure_ascii=False))
        return request_id

    async def request(self, type_: str, **fields: Any) -> Frame:
        """Send a request; its result or error."""
        return await self.answer(await self.send(type_, **fields))

    async def ask(self, type_: str, **fields: Any) -> Frame:
        """Send a request that must succeed; its result."""
        answer = await self.request(type_, **fields)
        wanted = {"hello": "welcome", "ping": "pong"}.get(type_, f"{type_}.result")
        expect(answer["type"] == wanted, f"{type_} is answered {_told(answer)} instead of {wanted}")
        return answer

    async def refused(self, code: str, type_: str, **fields: Any) -> Frame:
        """Send a request that must be answered by this error; the error."""
        answer = await self.request(type_, **fields)
        found = _told(answer)
        expect(
            answer["type"] == "error" and answer.get("code") == code, f"{type_} is answered {found} instead of {code}"
        )
        return answer

    # Waiting

    async def when(self, found: Callable[[Frame], bool], what: str, *, since: int = 0) -> Frame:
        """The first frame, from `since` on, for which `found` is true."""
        place = since
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    news = self._news
                    for frame in self.frames[place:]:
                        if found(frame):
                            return frame
                    place = len(self.frames)
                    if self.close_code is not None:
                        raise ConformanceError(f"no {what}: the server closed with {self.close_code}")
                    await news.wait()
        except TimeoutError:
            raise ConformanceError(f"no {what} within {self._patience:g} s") from None

    async def seen(self, type_: str, *, since: int = 0, **fields: Any) -> Frame:
        """The first frame of a type with these fields, in itself or in an object of it."""
        told = "".join(f" with {name} {value}" for name, value in fields.items())
        return await self.when(lambda frame: matches(frame, type_, fields), f"{type_}{told}", since=since)

    async def answer(self, request_id: str) -> Frame:
        """The answer to a request."""
        return await self.when(lambda frame: frame.get("id") == request_id, f"answer to request {request_id}")

    async def closed(self, within: float | None = None) -> int:
        """Wait for the close; its code."""
        within = within or self._patience
        try:
            async with asyncio.timeout(within):
                while self.close_code is None:
                    await self._news.wait()
        except TimeoutError:
            raise ConformanceError(f"the server has not closed within {within:g} s") from None
        return self.close_code

    async def ends_with(self, code: int) -> None:
        """Wait for the close, which must have this code."""
        same(await self.closed(), code, "close code")

    async def fence(self) -> None:
        """Everything that the server sent before this has come afterwards."""
        await self.ask("ping")

    # What is asked often

    async def hello(self, **fields: Any) -> Frame:
        """Shake hands and wait until in step; the welcome."""
        client = {"name": "conformance", "version": "1", "device_id": self.device_id}
        self.welcome = await self.ask("hello", **{"protocol_versions": [1], "client": client} | fields)
        await self.seen("sync.completed")
        return self.welcome

    def events(self, conversation_id: str, *types: str) -> list[Frame]:
        """The events of one conversation, in order; of these types, if any are named."""
        return [
            frame
            for frame in self.frames
            if frame.get("conversation_id") == conversation_id
            and "id" not in frame
            and (not types or frame["type"] in types)
        ]

    def in_snapshot(self, kind: str) -> list[Frame]:
        """All objects of a kind in the snapshot of this connection."""
        return [item for frame in self.frames if frame["type"] == "snapshot" for item in frame[kind]]

    @property
    def cursor(self) -> Frame:
        """Where this connection is, for `resume`."""
        seqs = [frame["seq"] for frame in self.frames if frame.get("type") == "sync.completed" or "time" in frame]
        return {"epoch": self.welcome["epoch"], "seq": max(seqs)}


def matches(frame: Frame, type_: str, fields: dict[str, Any]) -> bool:
    """Whether a frame has this type and these fields, in itself or in an object of it."""
    return frame.get("type") == type_ and all(_has(frame, name, value) for name, value in fields.items())


def _has(frame: Frame, name: str, value: object) -> bool:
    inner = [item for item in frame.values() if isinstance(item, dict)]
    return any(name in item and item[name] == value for item in (frame, *inner))


def _told(answer: Frame) -> str:
    return f"{answer.get('code')} ({answer.get('message')})" if answer["type"] == "error" else str(answer["type"])
