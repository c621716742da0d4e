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

_CLOSE_SECONDS = 1.5
"""For the client's answer to a close; less than a stop takes."""
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
    await socket.prepare(request)
    session = server.open_session(credential.access_mode, credential)
    transport = request.transport
    if transport is None:
        # Gone already.
        session.lost()
        server.closed(session, socket.close_code)
        return socket
    session.abort = transport.abort
    pulse = Pulse(config.heartbeat_ms / 1_000, socket.ping, transport.abort)
    reader = asyncio.create_task(_watch(socket, session, transport, pulse, gate, unfinished), name="pheby-reader")
    writer = asyncio.create_task(_write(socket, session, reader), name="pheby-writer")
    try:
        await asyncio.wait([reader])
        if reader.cancelled():
            # For a close of ours, which waits for the client's: while something is unread, it might not be heard.
            await asyncio.wait([writer])
    finally:
        session.lost()
        reader.cancel()
        writer.cancel()
        await asyncio.gather(reader, writer, return_exceptions=True)
        server.closed(session, socket.close_code)
    if not reader.cancelled():
        reader.result()
    return socket


async def _watch(
    socket: web.WebSocketResponse,
    session: Session,
    transport: asyncio.Transport,
    pulse: Pulse,
    gate: Gate,
    unfinished: Unfinished,
) -> None:
    """Read, and look whether the client is there and how much of a message it has begun."""
    with pulse, unfinished.of(transport.abort) as incoming:

        def heard(size: int) -> None:
            pulse.heard()
            incoming.came(size)

        with gate.hearing(transport, heard):
            await _read(socket, session, incoming)


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


async def _write(socket: web.WebSocketResponse, session: Session, reader: asyncio.Task[None]) -> None:
    try:
        while True:
            frame = await session.next_frame()
            if isinstance(frame, Close):
                if not socket.closed:
                    # aiohttp waits for the client's close only where nobody else reads.
                    reader.cancel()
                    await asyncio.wait([reader])
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
