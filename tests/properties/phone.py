"""A client for random schedules: it keeps its state over its connections and never fetches what it was told."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from pheby_protocol.client_state import ClientState, apply, apply_answer, lost
from pheby_protocol.codec import structure
from pheby_protocol.ids import ConversationId
from pheby_protocol.messages._base import Request, Result
from pheby_server.server import Server
from pheby_server.testing import MemoryTransport


class Phone:
    """A client that stores its state with its cursor, and applies some frames twice."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ClientState()
        self.line: MemoryTransport | None = None
        self.asked: list[str] = []

    async def connect(self, server: Server, chance: random.Random) -> None:
        self.line = MemoryTransport(server)
        fields: dict[str, Any] = {"capabilities": ["batch"]} if chance.random() < 0.5 else {}
        if self.state.cursor is not None:
            fields["resume"] = {"epoch": self.state.epoch, "seq": self.state.cursor}
        self.line.send(
            {
                "type": "hello",
                "id": "h",
                "protocol_versions": [1],
                "client": {"name": "p", "version": "1", "device_id": self.name},
                **fields,
            }
        )

    def apply(self, frame: dict[str, Any]) -> None:
        if "id" not in frame or frame["type"] == "welcome":
            self.state = apply(self.state, structure(frame))

    async def read(self, count: int, chance: random.Random) -> None:
        """Read some frames, each perhaps twice; what is not read yet waits."""
        assert self.line is not None
        for _ in range(count):
            if not self.line.session._outbox._frames:
                await asyncio.sleep(0)
                continue
            frame = await self.line.receive()
            self.apply(frame)
            if frame["type"] not in ("welcome", "snapshot", "sync.completed") and chance.random() < 0.2:
                self.apply(frame)

    async def in_step(self, chance: random.Random) -> None:
        """Read until everything that was told so far has been applied."""
        assert self.line is not None
        while not self.state.in_step:
            self.apply(await self.line.receive())
        self.line.send({"type": "ping", "id": "end"})
        while (frame := await self.line.receive()).get("id") != "end":
            self.apply(frame)
        for message_id in sorted(self.state.needs_text):
            await self.ask("message.text", message_id=message_id)
        for name in sorted(self.state.needs_history):
            await self.whole_history(ConversationId(name))

    async def ask(self, type_: str, **fields: Any) -> dict[str, Any]:
        assert self.line is not None
        self.line.send({"type": type_, "id": "asked", **fields})
        while (answer := await self.line.receive()).get("id") != "asked":
            self.apply(answer)
        request, result = structure({"type": type_, "id": answer["id"], **fields}), structure(answer)
        assert isinstance(request, Request)
        if isinstance(result, Result):
            self.state = apply_answer(self.state, request, result)
        return answer

    async def whole_history(self, name: ConversationId) -> None:
        fields: dict[str, Any] = {}
        while True:
            answer = await self.ask("conversation.history", conversation_id=name, limit=7, **fields)
            if not answer["has_more"]:
                return
            fields = {"before": answer["before"]}

    def cut(self) -> None:
        assert self.line is not None
        self.line.cut()
        self.line = None
        self.state = lost(self.state)
