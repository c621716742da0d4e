"""Listening on a port, and the routes that are served there."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

import aiohttp
from aiohttp import web

from pheby_protocol.errors import HttpCode
from pheby_server.auth import Credential
from pheby_server.lockout import Lockout
from pheby_server.logs import log_of
from pheby_server.metrics import CONTENT_TYPE, as_json, as_text
from pheby_server.server import Phase, Server

from .attachments import Downloads
from .client_address import Network, client_address, networks
from .gate import Gate
from .responses import locked_out, refusal, unauthorized, unavailable
from .unfinished import Unfinished
from .websocket import serve_socket

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = log_of(__name__)
_http_log = log_of(f"{__name__}.http")

_GOOD_AIOHTTP: Final = (3, 14, 4)
"""Before it: five advisories about its WebSockets and its server."""
_SHUTDOWN_SECONDS: Final = 1.0
_LINGER_SECONDS: Final = 1.0
"""So long what a refused request goes on sending is thrown away, so that the client reads the answer first."""
_MAX_HEADER_BYTES: Final = 16_384
"""Of one header line. A secret of any sensible length is compared and refused with 401; aiohttp's bound says 400."""
_FRESH: Final = {"Cache-Control": "no-store"}
_MAX_HEADERS: Final = 64
_BACKLOG: Final = 512
"""All clients may come back at once."""
_FULL_SECONDS: Final = 10
_OK: Final = '{"status":"ok"}'


class Listener:
    """One server on one address. `prefix` is the path that a reverse proxy leaves in front of /v1 and /healthz.

    `trusted_proxies` may say whom they speak for; web pages of `allowed_origins` may connect.
    """

    def __init__(
        self,
        server: Server,
        host: str,
        port: int,
        *,
        prefix: str = "",
        trusted_proxies: Iterable[str | Network] = (),
        allowed_origins: Collection[str] = (),
    ) -> None:
        self._server = server
        self._host = host
        self._port = port
        self._prefix = prefix.rstrip("/")
        self._trusted_proxies = networks(trusted_proxies)
        self._allowed_origins = frozenset(allowed_origins)
        self._runner: web.AppRunner | None = None
        self._sockets: asyncio.Server | None = None
        self._downloads = Downloads(lambda: server.attachments, server.clock.now_ms, server.metrics)
        self._gate = Gate(server.config.header_deadline_ms / 1_000, server.config.max_pending_connections)
        self._unfinished = Unfinished()
        self._lockout = Lockout(server.clock.monotonic)
        self._connected = 0

    @property
    def port(self) -> int:
        """The port that is listened on; the real one where 0 was asked for."""
        if self._sockets is None or not self._sockets.sockets:
            return self._port
        return int(self._sockets.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen. Raises OSError when the address cannot be had; nothing stays open then."""
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            logger=_http_log.logger,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            keepalive_timeout=self._server.config.header_deadline_ms / 1_000,
            lingering_time=_LINGER_SECONDS,
            max_field_size=_MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
            # No body is ever read, so none is inflated.
            auto_decompress=False,
        )
        _look_at_aiohttp(aiohttp.__version__)
        await runner.setup()
        try:
            if runner.server is None:
                raise RuntimeError("no server after setup")
            self._sockets = await asyncio.get_running_loop().create_server(
                self._gate.watched(runner.server), self._host, self._port, reuse_address=True, backlog=_BACKLOG
            )
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        log.info("listener.started", extra={"host": self._host, "port": self.port})

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=1, middlewares=[self._guard])
        for path, handler in (
            ("/healthz", self._health),
            ("/v1/ws", self._socket),
            ("/v1/attachments/{attachment_id}", self._attachment),
            ("/v1/metrics", self._metrics),
        ):
            application.router.add_get(self._prefix + path, handler, expect_handler=_expect)
        application.router.add_route("*", "/{path:.*}", self._nothing, expect_handler=_expect)
        application.on_shutdown.append(lambda _: self._downloads.stop(_SHUTDOWN_SECONDS))
        return application

    async def stop(self) -> None:
        """Close the port and whatever is still open on it."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            if self._sockets is not None:
                self._sockets.close()
                self._sockets = None
            with contextlib.suppress(Exception):
                await runner.cleanup()
            log.info("listener.stopped")

    # What is decided before a request has its handler

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        with self._gate.serving(request.transport):
            refused = self._refused(request)
            if refused is None:
                return await handler(request)
            # Nothing more is heard on that connection, neither a body nor a next request.
            refused.force_close()
            return refused

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.match_info.handler != self._health and self._credential(request) is None:
            return self._wrong_secret(request, offered="Authorization" in request.headers)
        origins = request.headers.getall("Origin", ())
        if any(origin not in self._allowed_origins for origin in origins):
            return refusal(403, HttpCode.FORBIDDEN)
        if request.body_exists:
            return refusal(415 if "Content-Encoding" in request.headers else 413, HttpCode.BODY_REFUSED)
        return None

    def _credential(self, request: web.Request) -> Credential | None:
        return self._server.authenticator.credential(request.headers.getall("Authorization", ()))

    def _wrong_secret(self, request: web.Request, *, offered: bool) -> web.Response:
        address = self._address(request)
        seconds = self._lockout.seconds_left(address)
        # While it is locked out neither the table nor the log hears of it.
        self._server.refused(address, log_it=not seconds)
        if not seconds:
            self._lockout.failed(address)
        return locked_out(seconds) if seconds and offered else unauthorized()

    def _address(self, request: web.Request) -> str:
        name = request.transport.get_extra_info("peername") if request.transport is not None else None
        peer = str(name[0]) if name else ""
        return client_address(peer, request.headers.getall("X-Forwarded-For", ()), self._trusted_proxies)

    # Handlers

    async def _health(self, _: web.Request) -> web.Response:
        if self._server.phase is not Phase.SERVING:
            return unavailable()
        return web.Response(text=_OK, content_type="application/json")

    async def _nothing(self, request: web.Request) -> web.Response:
        return refusal(404, HttpCode.NOT_FOUND)

    async def _metrics(self, request: web.Request) -> web.Response:
        if not self._server.config.metrics:
            return refusal(404, HttpCode.NOT_FOUND)
        measured = self._server.measures()
        if "application/json" in request.headers.get("Accept", ""):
            return web.Response(text=as_json(measured), content_type="application/json", headers=_FRESH)
        return web.Response(body=as_text(measured).encode(), headers={"Content-Type": CONTENT_TYPE} | _FRESH)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        # Everything is decided before the upgrade: a client must see the status, not a dead socket.
        credential = self._credential(request)
        if credential is None:
            return unauthorized()
        if self._server.phase is not Phase.SERVING:
            return unavailable()
        if not web.WebSocketResponse().can_prepare(request):
            return refusal(426, HttpCode.UPGRADE_REQUIRED, {"Upgrade": "websocket"})
        if self._connected >= self._server.config.max_connections:
            log.warning("listener.full", extra={"connections": self._connected})
            return unavailable(_FULL_SECONDS)
        self._connected += 1
        try:
            return await serve_socket(self._server, credential, request, self._gate, self._unfinished)
        finally:
            self._connected -= 1

    async def _attachment(self, request: web.Request) -> web.StreamResponse:
        if self._server.phase is not Phase.SERVING:
            return unavailable()
        return await self._downloads.answer(request)


def _look_at_aiohttp(version: str) -> None:
    numbers = tuple(int(number) for number in re.findall(r"[0-9]+", version)[:3])
    if numbers < _GOOD_AIOHTTP:
        log.warning("aiohttp.old: it has known faults", extra={"version": version})


async def _expect(_: web.Request) -> None:
    # The answer comes at once: nobody is asked to go on with a body.
    return None
