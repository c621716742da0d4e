"""A client that knows the wire contract and nothing of Pheby: plain aiohttp and json."""

from __future__ import annotations

import asyncio
import itertools
import json
from types import TracebackType
from typing import Any, Self

import aiohttp

Frame = dict[str, Any]
PATIENCE = 60.0
"""Seconds for a frame to come; a first turn of a gateway takes up to ten."""


class PlainClient:
    """One WebSocket connection. `frames` holds everything that was received, in order."""

    def __init__(self, url: str, secret: str | None, device_id: str = "plain-device") -> None:
        self.url = url
        self._headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        self._device_id = device_id
        self._ids = itertools.count(1)
        self.frames: list[Frame] = []
        self.close_code: int | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession()
        try:
            self._socket = await self._http.ws_connect(self.url, headers=self._headers, max_msg_size=2**21)
        except BaseException:
            await self._http.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._socket.close()
        await self._http.close()

    async def send_text(self, text: str) -> None:
        await self._socket.send_str(text)

    async def send_bytes(self, content: bytes) -> None:
        await self._socket.send_bytes(content)

    async def receive(self, within: float = PATIENCE) -> Frame:
        """The next frame. Raises ConnectionError when the server closed; `close_code` says how."""
        message = await self._socket.receive(within)
        if message.type is not aiohttp.WSMsgType.TEXT:
            self.close_code = self._socket.close_code
            raise ConnectionError(f"closed with {self.close_code}")
        frame: Frame = json.loads(message.data)
        self.frames.append(frame)
        return frame

    async def closed(self) -> int | None:
        """Receive until the server closes; the close code."""
        while True:
            try:
                await self.receive()
            except ConnectionError:
                return self.close_code

    async def until(self, wanted: str, **fields: Any) -> Frame:
        """Receive until a frame of this type with these fields."""
        while True:
            frame = await self.receive()
            if frame["type"] == wanted and all(frame.get(name) == value for name, value in fields.items()):
                return frame

    async def request(self, type_: str, **fields: Any) -> Frame:
        """Send a request and receive until its answer."""
        request_id = f"r{next(self._ids)}"
        await self.send_text(json.dumps({"type": type_, "id": request_id, **fields}))
        while True:
            frame = await self.receive()
            if frame.get("id") == request_id:
                return frame

    async def hello(self, **fields: Any) -> Frame:
        """Shake hands; the welcome, with everything up to sync.completed received."""
        client = {"name": "plain", "version": "1.0", "device_id": self._device_id}
        welcome = await self.request("hello", protocol_versions=[1], client=client, capabilities=[], **fields)
        assert welcome["type"] == "welcome", welcome
        await self.until("sync.completed")
        return welcome

    def snapshot(self, kind: str) -> list[Frame]:
        """All objects of a kind that the snapshot of this connection named."""
        return [item for frame in self.frames if frame["type"] == "snapshot" for item in frame[kind]]

    async def create(self, name: str) -> str:
        """A new conversation's id."""
        answer = await self.request("conversation.create", client_conversation_id=name)
        assert answer["type"] == "conversation.create.result", answer
        conversation_id: str = answer["conversation"]["conversation_id"]
        return conversation_id

    async def say(self, conversation_id: str, text: str, client_message_id: str) -> Frame:
        """Send a message; its receipt."""
        answer = await self.request(
            "message.send", conversation_id=conversation_id, client_message_id=client_message_id, text=text
        )
        assert answer["type"] == "message.send.result", answer
        receipt: Frame = answer["receipt"]
        return receipt

    async def run_started(self, run_id: str) -> Frame:
        """Receive until this run has started; the run."""
        return await self._run_event("run.started", run_id)

    async def run_end(self, run_id: str) -> Frame:
        """Receive until this run has ended; the run."""
        return await self._run_event("run.ended", run_id)

    async def _run_event(self, type_: str, run_id: str) -> Frame:
        seen = list(self.frames)
        while True:
            for frame in seen:
                if frame["type"] == type_ and frame["run"]["run_id"] == run_id:
                    return dict(frame["run"])
            seen = [await self.receive()]

    async def exchange(self, conversation_id: str, text: str, client_message_id: str) -> Frame:
        """Send a message and wait until its run has ended; the run."""
        receipt = await self.say(conversation_id, text, client_message_id)
        return await self.run_end(receipt["run_id"])

    async def history(self, conversation_id: str, **fields: Any) -> list[Frame]:
        """The newest page of a conversation's messages."""
        answer = await self.request("conversation.history", conversation_id=conversation_id, **fields)
        assert answer["type"] == "conversation.history.result", answer
        messages: list[Frame] = answer["messages"]
        return messages

    def of(self, conversation_id: str) -> list[Frame]:
        """The events of one conversation, in order."""
        return [frame for frame in self.frames if frame.get("conversation_id") == conversation_id and "id" not in frame]


def fold(events: list[Frame]) -> dict[str, Frame]:
    """The messages that a conversation's events add up to, by id, as a client keeps them."""
    messages: dict[str, Frame] = {}
    for event in events:
        match event["type"]:
            case "message.created" | "message.updated" | "message.completed":
                messages[event["message"]["message_id"]] = dict(event["message"])
            case "message.delta":
                message = messages[event["message_id"]]
                # Several changes may come as one.
                last = event.get("last_index", event["index"])
                if event["index"] == message["index"] + 1:
                    message["text"] += event["text"]
                    message["index"] = last
                else:
                    assert last <= message["index"], "a gap in the deltas"
            case "message.replaced":
                message = messages[event["message_id"]]
                message["text"], message["index"] = event["text"], event["index"]
    return messages


async def settle(client: PlainClient, seconds: float = 1.0) -> None:
    """Receive what still comes."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                await client.receive()
    except TimeoutError:
        pass
