"""A proxy in front of the good server that breaks rules: what a broken server looks like from outside."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import attrs
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

Frame = dict[str, Any]
MAX_MESSAGE = 2**24


@attrs.frozen
class Close:
    """The connection is closed with this code instead."""

    code: int


@attrs.define(eq=False)
class Link:
    """One connection through the proxy; `memory` is for the peers' own use."""

    number: int
    memory: dict[str, Any] = attrs.field(factory=dict)
    asked: dict[str, Frame] = attrs.field(factory=dict)
    """Requests by their id."""
    hello: Frame = attrs.field(factory=dict)
    resumed: bool = False
    in_step: bool = False
    own: set[str] = attrs.field(factory=set)
    """Conversations that this client made."""
    questions: dict[str, Frame] = attrs.field(factory=dict)
    """Prompts in them, by id."""
    replies: list[Frame] = attrs.field(factory=list)
    """Frames that the proxy itself sends to the client next."""


@attrs.define(eq=False)
class Http:
    """An HTTP request, and the good server's answer to it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    status: int = 0
    answer: CIMultiDict[str] = attrs.field(factory=CIMultiDict)
    body: bytes = b""


Down = Callable[[Frame, Link], Iterable["Frame | Close"]]
Up = Callable[[Frame, Link], Iterable["Frame | Close"]]
Raw = Callable[[str, Link], str]


@attrs.frozen(kw_only=True)
class Peer:
    """One rule broken in one place. `caught` are patterns of the checks that must notice, and no other."""

    name: str
    caught: tuple[str, ...]
    down: Down | None = None
    up: Up | None = None
    raw: Raw | None = None
    """The client's text, before it is read."""
    written: Raw | None = None
    """The server's text, behind everything else."""
    closed: Callable[[int, Link], int] | None = None
    before: Callable[[Http], None] | None = None
    after: Callable[[Http], None] | None = None
    cut: Callable[[Link], Iterable[Frame]] | None = None
    """What is sent to the server when the client's line breaks."""
    heartbeat: bool = True


class Proxy:
    """The good server with these peers' faults."""

    def __init__(self, url: str, peers: Sequence[Peer]) -> None:
        self._url = url
        self._base = url.removesuffix("/v1/ws").replace("ws", "http", 1)
        self._peers = peers
        self._numbers = itertools.count(1)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        http = Http(request.method, request.path, dict(request.query), dict(request.headers))
        for peer in self._peers:
            if peer.before is not None:
                peer.before(http)
        if http.status:
            return web.Response(status=http.status, headers=http.answer, body=http.body)
        if (
            http.path == "/v1/ws"
            and http.headers.get("Upgrade", "").lower() == "websocket"
            and "Range" not in http.headers
        ):
            return await self._socket(request, http)
        return await self._plain(request, http)

    async def _plain(self, request: web.Request, http: Http) -> web.StreamResponse:
        hop = ("Host", "Connection", "Upgrade", "Content-Length")
        sent = {name: value for name, value in http.headers.items() if name not in hop}
        async with (
            aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=("Accept-Encoding", "Accept")) as session,
            session.request(
                http.method,
                URL(self._base + request.raw_path.partition("?")[0], encoded=True),
                headers=sent,
                params=http.query,
                allow_redirects=False,
            ) as found,
        ):
            http.status, http.body = found.status, await found.read()
            http.answer = CIMultiDict(found.headers)
            http.answer.pop("Transfer-Encoding", None)
        for peer in self._peers:
            if peer.after is not None:
                peer.after(http)
        if http.method != "HEAD":
            http.answer.pop("Content-Length", None)
        return web.Response(status=http.status, headers=http.answer, body=http.body)

    async def _socket(self, request: web.Request, http: Http) -> web.StreamResponse:
        kept = {name: value for name, value in http.headers.items() if name == "Authorization"}
        async with aiohttp.ClientSession() as session:
            try:
                server = await session.ws_connect(
                    self._base + "/v1/ws", headers=kept, params=http.query, max_msg_size=MAX_MESSAGE
                )
            except aiohttp.WSServerHandshakeError:
                return await self._plain(request, http)
            beats = all(peer.heartbeat for peer in self._peers)
            client = web.WebSocketResponse(
                max_msg_size=MAX_MESSAGE, heartbeat=4.0 if beats else None, timeout=1.0, compress=False
            )
            await client.prepare(request)
            link = Link(next(self._numbers))
            downward = asyncio.create_task(self._downward(server, client, link))
            try:
                # Either side may leave while the other writes.
                with contextlib.suppress(ConnectionError):
                    await self._upward(client, server, link)
            finally:
                downward.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError, aiohttp.ClientError):
                    await downward
                await server.close()
            return client

    async def _upward(self, client: web.WebSocketResponse, server: aiohttp.ClientWebSocketResponse, link: Link) -> None:
        async for message in client:
            if message.type is aiohttp.WSMsgType.BINARY:
                await server.send_bytes(message.data)
            elif message.type is aiohttp.WSMsgType.TEXT:
                for text in self._from_client(message.data, link):
                    if isinstance(text, Close):
                        await client.close(code=text.code)
                        return
                    await server.send_str(text)
                await self._reply(client, link)
        if client.close_code == 1006 and not server.closed:
            for peer in self._peers:
                for frame in peer.cut(link) if peer.cut is not None else ():
                    await server.send_str(json.dumps(frame))

    def _from_client(self, text: str, link: Link) -> list[str | Close]:
        for peer in self._peers:
            if peer.raw is not None:
                text = peer.raw(text, link)
        try:
            frame = json.loads(text, object_pairs_hook=_unique)
        except (ValueError, RecursionError):
            return [text]
        if not isinstance(frame, dict) or not all(isinstance(frame.get(name), str) for name in ("id", "type")):
            if isinstance(frame, dict) and isinstance(frame.get("id"), str):
                link.asked[frame["id"]] = frame
            return [text]
        link.asked[frame["id"]] = frame
        if frame.get("type") == "hello":
            link.hello = frame
        changed = self._through([_copy(frame)], link, "up")
        return [text] if changed == [frame] else [each if isinstance(each, Close) else _dumps(each) for each in changed]

    def _through(self, frames: list[Any], link: Link, way: str) -> list[Any]:
        for peer in self._peers:
            rule = getattr(peer, way)
            if rule is not None:
                frames = [
                    made for frame in frames for made in ([frame] if isinstance(frame, Close) else rule(frame, link))
                ]
        return frames

    async def _downward(
        self, server: aiohttp.ClientWebSocketResponse, client: web.WebSocketResponse, link: Link
    ) -> None:
        async for message in server:
            if message.type is aiohttp.WSMsgType.TEXT:
                frame = json.loads(message.data)
                _note(frame, link)
                for made in self._downwards(frame, link):
                    if isinstance(made, Close):
                        await client.close(code=made.code)
                        return
                    await self._write(client, made, link)
                link.in_step = link.in_step or frame["type"] == "sync.completed"
                await self._reply(client, link)
        code = server.close_code or 1006
        for peer in self._peers:
            if peer.closed is not None:
                code = peer.closed(code, link)
        await client.close(code=code if code != 1006 else 1011)

    def _downwards(self, frame: Frame, link: Link) -> list[Any]:
        if frame["type"] != "batch":
            return self._through([frame], link, "down")
        # What is done to an event is done to it in a batch, too.
        events = self._through(frame["events"], link, "down")
        return [frame | {"events": [event for event in events if not isinstance(event, Close)]}]

    async def _reply(self, client: web.WebSocketResponse, link: Link) -> None:
        while link.replies:
            await self._write(client, link.replies.pop(0), link)

    async def _write(self, client: web.WebSocketResponse, frame: Frame, link: Link) -> None:
        text = _dumps(frame)
        for peer in self._peers:
            if peer.written is not None:
                text = peer.written(text, link)
        await client.send_str(text)


def _unique(pairs: list[tuple[str, Any]]) -> Frame:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _dumps(frame: Frame) -> str:
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


def _copy(frame: Frame) -> Frame:
    copied: Frame = json.loads(json.dumps(frame))
    return copied


def _note(frame: Frame, link: Link) -> None:
    if frame["type"] == "welcome":
        link.resumed = frame["resumed"]
    if frame["type"] == "conversation.create.result":
        link.own.add(frame["conversation"]["conversation_id"])
    for kind in ("approval", "clarification"):
        if frame["type"] == f"{kind}.requested" and frame["conversation_id"] in link.own:
            link.questions[frame[kind][f"{kind}_id"]] = frame[kind]


@asynccontextmanager
async def broken_server(url: str, *peers: Peer) -> AsyncIterator[str]:
    """The good server at the URL with these faults; the URL to check. Without any it changes nothing."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", Proxy(url, peers).handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}/v1/ws"
    finally:
        await runner.cleanup()
