"""Listening on a port, and the routes that are served there."""

from __future__ import annotations

import contextlib
from typing import Final

from aiohttp import web

from pheby_protocol.errors import HttpCode
from pheby_protocol.messages.connection import AccessMode
from pheby_server.logs import log_of
from pheby_server.metrics import CONTENT_TYPE, as_json, as_text
from pheby_server.server import Phase, Server

from .attachments import Downloads
from .responses import refusal, unavailable
from .websocket import serve_socket

log = log_of(__name__)
_http_log = log_of(f"{__name__}.http")

_SHUTDOWN_SECONDS: Final = 1.0
_MAX_HEADER_BYTES: Final = 32_768
"""Of one header line. A secret of any sensible length is compared and refused with 401; aiohttp's bound says 400."""
_FRESH: Final = {"Cache-Control": "no-store"}
_OK: Final = '{"status":"ok"}'


class Listener:
    """One server on one address. `prefix` is the path that a reverse proxy leaves in front of /v1 and /healthz."""

    def __init__(self, server: Server, host: str, port: int, *, prefix: str = "") -> None:
        self._server = server
        self._host = host
        self._port = port
        self._prefix = prefix.rstrip("/")
        self._runner: web.AppRunner | None = None
        self._downloads = Downloads(lambda: server.attachments, server.clock.now_ms, server.metrics)

    @property
    def port(self) -> int:
        """The port that is listened on; the real one where 0 was asked for."""
        if self._runner is None or not self._runner.addresses:
            return self._port
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """Listen. Raises OSError when the address cannot be had; nothing stays open then."""
        application = web.Application(client_max_size=1)
        application.router.add_get(f"{self._prefix}/healthz", self._health)
        application.router.add_get(f"{self._prefix}/v1/ws", self._socket)
        application.router.add_get(f"{self._prefix}/v1/attachments/{{attachment_id}}", self._attachment)
        application.router.add_get(f"{self._prefix}/v1/metrics", self._metrics)
        application.router.add_route("*", "/{path:.*}", self._nothing)
        application.on_shutdown.append(lambda _: self._downloads.stop(_SHUTDOWN_SECONDS))
        runner = web.AppRunner(
            application,
            access_log=None,
            logger=_http_log.logger,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            keepalive_timeout=15,
            max_field_size=_MAX_HEADER_BYTES,
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port, reuse_address=True).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        log.info("listener.started", extra={"host": self._host, "port": self.port})

    async def stop(self) -> None:
        """Close the port and whatever is still open on it."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            with contextlib.suppress(Exception):
                await runner.cleanup()
            log.info("listener.stopped")

    async def _health(self, _: web.Request) -> web.Response:
        if self._server.phase is not Phase.SERVING:
            return unavailable()
        return web.Response(text=_OK, content_type="application/json")

    async def _nothing(self, request: web.Request) -> web.Response:
        if self._access(request) is None:
            return _unauthorized()
        return refusal(404, HttpCode.NOT_FOUND)

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._access(request) is None:
            return _unauthorized()
        if not self._server.config.metrics:
            return refusal(404, HttpCode.NOT_FOUND)
        measured = self._server.measures()
        if "application/json" in request.headers.get("Accept", ""):
            return web.Response(text=as_json(measured), content_type="application/json", headers=_FRESH)
        return web.Response(body=as_text(measured).encode(), headers={"Content-Type": CONTENT_TYPE} | _FRESH)

    def _access(self, request: web.Request) -> AccessMode | None:
        mode = self._server.authenticator.access(request.headers.getall("Authorization", ()))
        if mode is None:
            self._server.refused(request.remote)
        return mode

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        # Everything is decided before the upgrade: a client must see the status, not a dead socket.
        mode = self._access(request)
        if mode is None:
            return _unauthorized()
        if self._server.phase is not Phase.SERVING:
            return unavailable()
        if not web.WebSocketResponse().can_prepare(request):
            return refusal(426, HttpCode.UPGRADE_REQUIRED, {"Upgrade": "websocket"})
        return await serve_socket(self._server, mode, request)

    async def _attachment(self, request: web.Request) -> web.StreamResponse:
        if self._access(request) is None:
            return _unauthorized()
        if self._server.phase is not Phase.SERVING:
            return unavailable()
        return await self._downloads.answer(request)


def _unauthorized() -> web.Response:
    return refusal(401, HttpCode.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})
