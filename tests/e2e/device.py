"""A device of the owner over all its connections, with the state that the protocol's reducer makes of what it hears."""

from __future__ import annotations

from typing import Any

from plain_client import Frame, PlainClient

from pheby_protocol.client_state import ClientState, apply, apply_answer, lost
from pheby_protocol.codec import structure
from pheby_protocol.messages._base import Request, Result


class Device:
    """Connects, is cut off, comes back with its cursor. Everything that it receives is in `state`."""

    def __init__(self, stack: Any, name: str) -> None:
        self._stack = stack
        self._name = name
        self._line: PlainClient | None = None
        self._read = 0
        self.state = ClientState()
        self.resumed: list[bool] = []
        """Of each connection, whether it went on where the last one ended."""

    async def connect(self) -> None:
        """A new connection, in step."""
        self._line, self._read = PlainClient(self._stack.url, self._stack.secret, self._name), 0
        await self._line.__aenter__()
        resume = {} if self.state.cursor is None else {"resume": {"epoch": self.state.epoch, "seq": self.state.cursor}}
        self.resumed.append((await self._line.hello(**resume))["resumed"])
        self._apply()

    async def cut(self) -> None:
        """The connection is gone."""
        if self._line is not None:
            await self._line.__aexit__(None, None, None)
            self._line, self.state = None, lost(self.state)

    async def ask(self, type_: str, **fields: Any) -> Frame:
        """A request's answer, applied with everything that came before it."""
        assert self._line is not None
        answer = await self._line.request(type_, **fields)
        self._apply()
        request, result = structure({"type": type_, "id": answer["id"], **fields}), structure(answer)
        assert isinstance(request, Request)
        if isinstance(result, Result):
            self.state = apply_answer(self.state, request, result)
        return answer

    async def hear(self) -> None:
        """Wait for the next frame."""
        assert self._line is not None
        await self._line.receive()
        self._apply()

    async def in_step(self) -> None:
        """Everything that was told so far is applied, and what the reducer misses is fetched."""
        await self.ask("ping")
        for message_id in sorted(self.state.needs_text):
            await self.ask("message.text", message_id=message_id)
        for conversation_id in sorted(self.state.needs_history):
            await self.history(conversation_id)

    async def history(self, conversation_id: str) -> None:
        """All pages of a conversation, or none when it is gone."""
        fields: dict[str, Any] = {}
        while (answer := await self.ask("conversation.history", conversation_id=conversation_id, **fields)).get(
            "has_more"
        ):
            fields = {"before": answer["before"]}

    async def walk(self) -> None:
        """All pages of the list."""
        fields: dict[str, Any] = {}
        while after := (await self.ask("conversation.list", limit=100, **fields)).get("next"):
            fields = {"cursor": after}

    def _apply(self) -> None:
        assert self._line is not None
        new, self._read = self._line.frames[self._read :], len(self._line.frames)
        for frame in new:
            if "id" not in frame or frame["type"] == "welcome":
                self.state = apply(self.state, structure(frame))


async def level(*devices: Device) -> None:
    """Returns when all devices have applied the same events: what a fetch finds out may be told to all."""
    while True:
        for device in devices:
            await device.in_step()
        if len({(device.state.epoch, device.state.cursor) for device in devices}) == 1:
            return
