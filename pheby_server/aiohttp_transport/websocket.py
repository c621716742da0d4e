"""One WebSocket: frames in to the session, the session's frames out."""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import WSMsgType, web

from pheby_protocol.errors import CloseCode
from pheby_server.auth import Credential
from pheby_server.logs import log_of
from pheby_server.outbox import Close
from pheby_server.server import Server
from pheby_server.session import Session

from .gate import Gate
from .pulse import Pulse
from .unfinished import Incoming, Unfinished

log = log_of(__name__)

_CLOSE_SECONDS = 2.0
_READ_AT_ONCE = 64
"""Frames of one client, before the others have their turn."""
_CONTENTS = frozenset({WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.PING, WSMsgType.PONG})


async def serve_socket(
    server: Server, credential: Credential, request: web.Request, gate: Gate, unfinished: Unfinished
) -> web.StreamResponse:
    """Upgrade and serve until either side closes."""
    config = server.config
    socket = web.WebSocketResponse(
        timeout=_CLOSE_SECONDS,
        # aiohttp refuses a message of exactly this size; the protocol allows it.
        max_msg_size=config.max_frame_bytes + 1,
        compress=False,
        # Answered here, so that pings count as everything else does that a client sends.
        autoping=False,
    )
    transport = request.transport
    await socket.prepare(request)
    session = server.open_session(credential.access_mode, credential)
    writer = asyncio.create_task(_write(socket, session), name="pheby-writer")
    try:
        if transport is not None:
            session.abort = transport.abort
            pulse = Pulse(config.heartbeat_ms / 1_000, socket.ping, transport.abort)
            with pulse, unfinished.of(transport.abort) as incoming:

                def heard(size: int) -> None:
                    pulse.heard()
                    incoming.came(size)

                with gate.hearing(transport, heard):
                    await _read(socket, session, incoming)
    finally:
        session.lost()
        writer.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await writer
        server.closed(session, socket.close_code)
    return socket


async def _read(socket: web.WebSocketResponse, session: Session, incoming: Incoming) -> None:
    number = 0
    async for message in socket:
        if message.type in _CONTENTS:
            incoming.read(message.data)
        number += 1
        if number % _READ_AT_ONCE == 0 and session.close_code is None:
            # aiohttp hands over all that has come without a pause, tens of thousands where they are small. Behind a
            # close they are dropped at once: unread, they would take the close from the client, too.
            await asyncio.sleep(0)
        if message.type is WSMsgType.TEXT:
            session.receive_text(message.data)
        elif message.type is WSMsgType.BINARY:
            session.receive_binary()
        elif message.type is WSMsgType.PING and session.receive_ping():
            with contextlib.suppress(ConnectionError):
                await socket.pong(message.data)
        elif message.type is WSMsgType.PONG:
            session.receive_pong()


async def _write(socket: web.WebSocketResponse, session: Session) -> None:
    try:
        while True:
            frame = await session.next_frame()
            if isinstance(frame, Close):
                await socket.close(code=frame.code, message=frame.reason.encode())
                return
            await socket.send_str(frame)
    except ConnectionError:
        # The reader sees the end of the line too, and ends the session.
        return
    except Exception as failure:
        log.error("socket.write_failed", exc_info=failure)
        with contextlib.suppress(Exception):
            await socket.close(code=CloseCode.INTERNAL)
