"""The servers that are measured: Pheby, and a bare aiohttp server that sends the same bytes.

Usage: python -m bench.serving pheby FOLDER | bare. Asked by lines of JSON on standard input (see workers.py).
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
from aiohttp import web

from .measuring import forget_peak, memory, peak_memory

HOST: Final = "127.0.0.1"
GROUP: Final = 64
"""So many events are made at once."""
CONVERSATION: Final = "conv_12345678901234567"
EVENT_BYTES: Final = 200
MOST_BEHIND: Final = 0.1
"""Seconds behind its pace, after which a measurement goes on from where it is."""


def event_text(seq: int, text: str) -> str:
    """The bytes of one event as Pheby sends it, for the bare server."""
    return (
        f'{{"type":"model.changed","seq":{seq},"time":1796050000000,"conversation_id":"{CONVERSATION}"'
        f',"current":{{"provider":"provider","model":"{text}"}}}}'
    )


def filled(text: str) -> str:
    """The text with as much behind it as makes the event as long as it is to be."""
    return text + "x" * max(0, EVENT_BYTES - len(event_text(10_000, text)))


@attrs.define
class Bare:
    """What aiohttp does by itself: a handler that reads, and a loop that writes to every socket in turn."""

    sockets: list[web.WebSocketResponse] = attrs.field(factory=list)
    greeting: list[str] = attrs.field(factory=list)
    """Sent to each new client."""
    runner: web.AppRunner | None = None
    seq: int = 0

    async def start(self) -> int:
        application = web.Application()
        application.router.add_get("/v1/ws", self._socket)
        self.runner = web.AppRunner(application, access_log=None)
        await self.runner.setup()
        await web.TCPSite(self.runner, HOST, 0).start()
        return int(self.runner.addresses[0][1])

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        for text in self.greeting:
            await socket.send_str(text)
        self.sockets.append(socket)
        async for _ in socket:
            pass
        self.sockets.remove(socket)
        return socket

    async def publish(self, texts: list[str]) -> None:
        for text in texts:
            self.seq += 1
            frame = event_text(self.seq, text)
            for socket in self.sockets:
                await socket.send_str(frame)

    async def tell(self, text: str) -> None:
        await self.publish([text])

    async def greet_with(self, count: int) -> dict[str, Any]:
        """From now on each new client gets so many events, the last one with a mark."""
        self.greeting = [event_text(seq, filled("greeting")) for seq in range(1, count)]
        self.greeting.append(event_text(count, "the-last-one"))
        return {}

    async def stop(self) -> None:
        if self.runner is not None:
            for socket in list(self.sockets):
                await socket.close()
            await self.runner.cleanup()


class Pheby:
    """A server with a Hermes that does nothing by itself."""

    def __init__(self, folder: str) -> None:
        from pheby_protocol.messages.connection import AccessMode
        from pheby_server.auth import Authenticator
        from pheby_server.config import ServerConfig
        from pheby_server.server import Server
        from pheby_server.testing import TEST_SECRET, ManualHermes

        self.server = Server(
            ServerConfig(storage=folder, max_connections=2_000, max_pending_connections=2_000),
            ManualHermes(),
            Authenticator(((AccessMode.FULL, TEST_SECRET),)),
        )
        self.message_id = ""

    async def start(self) -> int:
        from pheby_server.aiohttp_transport import Listener

        await self.server.start()
        self.listener = Listener(self.server, HOST, 0)
        await self.listener.start()
        return self.listener.port

    async def publish(self, texts: list[str]) -> None:
        """Log events, then tell them; where a client is far behind, wait for it as a run would not."""
        for text in texts:
            self._log(text)
        await self.server._sequencer.settled()
        while any(session._outbox.live_frames > 1_024 for session in self.server._live):
            await asyncio.sleep(0.001)

    async def tell(self, text: str) -> None:
        self._log(text)

    def _log(self, text: str) -> None:
        from pheby_protocol.ids import ConversationId
        from pheby_protocol.messages.model import ModelChanged, ModelChoice
        from pheby_server.sequencer import Change

        choice = ModelChoice(provider="provider", model=text)
        event = partial(ModelChanged, conversation_id=ConversationId(CONVERSATION), current=choice)
        self.server._sequencer.log(Change((event,)))

    async def delta(self, text: str) -> None:
        """A piece of a run's answer."""
        from pheby_protocol.ids import ConversationId, MessageId
        from pheby_protocol.messages.message import Origin

        name = ConversationId(CONVERSATION)
        if not self.message_id:
            self.server.events.run_started(name, None, Origin.CRON)
            self.message_id = self.server.events.message_started(name, "")
        self.server.events.message_appended(MessageId(self.message_id), text)

    async def messages(self, count: int) -> dict[str, Any]:
        """A history of so many long messages."""
        from pheby_protocol.ids import ConversationId
        from pheby_protocol.messages.message import Origin
        from pheby_server.ports import Outcome, RunResult

        name, events = ConversationId(CONVERSATION), self.server.events
        events.run_started(name, None, Origin.CRON)
        for number in range(count):
            events.message_ended(events.message_started(name, f"{number}" + "x" * 99_000), interim=True)
        events.run_ended(name, RunResult(outcome=Outcome.COMPLETED))
        await events.settled()
        return {}

    async def cursor(self) -> dict[str, Any]:
        """A cursor at the log's head."""
        await self.server._sequencer.settled()
        return {"epoch": self.server._log.epoch, "seq": self.server.published_seq}

    async def attach(self, path: str, name: str) -> dict[str, Any]:
        """A file of the agent for its owner; where it is got."""
        from pheby_protocol.ids import ConversationId
        from pheby_protocol.messages.message import MessageRole, Origin
        from pheby_server.ports import AgentFile, Delivery
        from pheby_server.testing import MemoryTransport

        client = MemoryTransport(self.server)
        await client.hello()
        file = AgentFile(path=path, name=name)
        delivery = Delivery(text="A file.", origin=Origin.CRON, role=MessageRole.ASSISTANT, files=(file,))
        await self.server.events.deliver(ConversationId(CONVERSATION), delivery)
        created = await client.until("attachment.created")
        client.cut()
        return {"path": "/" + created["attachment"]["path"], "size": created["attachment"]["size"]}

    async def stop(self) -> None:
        await self.server.stop()
        await self.listener.stop()


class Asked:
    """What can be asked of either server."""

    def __init__(self, server: Bare | Pheby) -> None:
        self._server = server

    async def burst(self, events: int, until: str) -> dict[str, Any]:
        """So many events as fast as possible; the last one has the mark."""
        text = filled("event")
        start, cpu = time.perf_counter_ns(), time.process_time()
        for first in range(0, events, GROUP):
            texts = [text] * min(GROUP, events - first)
            if first + GROUP >= events:
                texts[-1] = until
            await self._server.publish(texts)
        return {"start": start, "cpu": cpu}

    async def paced(self, events: int, rate: float, until: str, delta: bool = False) -> dict[str, Any]:
        """So many events at a rate, each with the time when it was made; the last one has the mark."""
        loop = asyncio.get_running_loop()
        tell = self._server.delta if delta and isinstance(self._server, Pheby) else self._server.tell
        start = loop.time()
        for number in range(events):
            delay = start + number / rate - loop.time()
            if delay < -MOST_BEHIND:
                # What was missed is not made up for: it would come as a flood that nobody asked for.
                start -= delay
            if delay > 0 or number % 16 == 0:
                await asyncio.sleep(max(0.0, delay))
            await tell(filled(f"@{time.perf_counter_ns()}@"))
        await tell(until)
        return {}

    async def cpu(self) -> dict[str, Any]:
        return {"cpu": time.process_time()}

    async def memory(self) -> dict[str, Any]:
        """What is used now; the peak begins anew."""
        gc.collect()
        forget_peak()
        return {"bytes": memory()}

    async def peak(self) -> dict[str, Any]:
        """The most since it was last asked for its memory."""
        return {"bytes": peak_memory()}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self._server, name)  # type: ignore[no-any-return]


async def serve(server: Bare | Pheby) -> None:
    port = await server.start()
    print(json.dumps({"port": port}), flush=True)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    asked = Asked(server)
    while line := await reader.readline():
        wish = json.loads(line)
        print(json.dumps(await getattr(asked, wish.pop("do"))(**wish)), flush=True)
    await server.stop()


def main() -> None:
    kind, *arguments = sys.argv[1:]
    if kind == "pheby":
        Path(arguments[0]).mkdir(parents=True, exist_ok=True)
        asyncio.run(serve(Pheby(arguments[0])))
    else:
        asyncio.run(serve(Bare()))


if __name__ == "__main__":
    main()
