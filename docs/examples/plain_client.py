"""The protocol with nothing but aiohttp: one message, and its answer as it grows, on as many lines as it takes."""

import asyncio
import itertools
import json
import os
import random
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

Frame = dict[str, Any]
FINAL_CLOSES = {4401, 4406, 4409}


class PlainClient:
    """Keeps a line up, and texts as they are shown. A real client stores `cursor` together with what it shows."""

    def __init__(self, url: str, secret: str, device_id: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {secret}"}
        self._client = {"name": "plain-example", "version": "1.0", "device_id": device_id}
        self._numbers = itertools.count(1)
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self.cursor: Frame | None = None
        self.texts: dict[str, tuple[int, str]] = {}
        """By message: the index of the last change, and the text with it."""

    async def ask(self, request: Frame) -> None:
        """Send a request; its answer comes among the frames, if the line holds."""
        if self._socket is not None and not self._socket.closed:
            await self._socket.send_json({"id": f"c{next(self._numbers)}", **request})

    async def frames(self) -> AsyncIterator[Frame]:
        """Every frame, from one line after the other. Ends when the server does not want this client back."""
        delay = 0.25
        async with aiohttp.ClientSession() as http:
            while True:
                try:
                    async with http.ws_connect(self._url, headers=self._headers, heartbeat=20.0) as self._socket:
                        await self.ask(self._hello())
                        async for message in self._socket:
                            if message.type is aiohttp.WSMsgType.TEXT:
                                yield await self._received(json.loads(message.data))
                                delay = 0.25
                    if self._socket.close_code in FINAL_CLOSES:
                        return
                except aiohttp.WSServerHandshakeError as failure:
                    if failure.status == 401:
                        return
                except (aiohttp.ClientError, OSError):
                    pass
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(delay * 2, 30.0)

    def _hello(self) -> Frame:
        hello = {"type": "hello", "protocol_versions": [1], "client": self._client}
        return hello if self.cursor is None else {**hello, "resume": self.cursor}

    async def _received(self, frame: Frame) -> Frame:
        match frame:
            case {"type": "welcome", "epoch": epoch, "resumed": resumed}:
                known = self.cursor["seq"] if self.cursor is not None and resumed else 0
                self.cursor = {"epoch": epoch, "seq": known}
            case {"type": "message.delta", "message_id": message_id, "index": index, "text": piece, **more}:
                await self._grow(message_id, index, more.get("last_index", index), piece)
            case {"type": "message.replaced" | "message.text.result", "message_id": message_id, "index": index}:
                if index >= self._shown(message_id)[0]:
                    self.texts[message_id] = (index, frame["text"])
            case {"type": "message.created" | "message.updated" | "message.completed", "message": message}:
                self._keep(message)
            case {"type": "snapshot", "messages": messages}:
                for message in messages:
                    self._keep(message)
        # What is not known is skipped, and moves the cursor all the same. A snapshot's is that of `sync.completed`.
        if self.cursor is not None and "seq" in frame and frame["type"] not in ("welcome", "snapshot"):
            self.cursor = {**self.cursor, "seq": max(frame["seq"], self.cursor["seq"])}
        return frame

    async def _grow(self, message_id: str, first: int, last: int, piece: str) -> None:
        own, text = self._shown(message_id)
        if first == own + 1:
            self.texts[message_id] = (last, text + piece)
        elif last > own:
            await self.ask({"type": "message.text", "message_id": message_id})

    def _shown(self, message_id: str) -> tuple[int, str]:
        return self.texts.get(message_id, (-1, ""))

    def _keep(self, message: Frame) -> None:
        self.texts[message["message_id"]] = (message.get("index", -1), message["text"])


async def say(url: str, secret: str, text: str) -> str:
    """A new conversation with one message; the last text of its run, when that has ended."""
    client = PlainClient(url, secret, device_id=uuid.uuid4().hex)
    # The ids are made here: repeated on the next line, the same request does nothing twice.
    create: Frame = {"type": "conversation.create", "client_conversation_id": uuid.uuid4().hex}
    send: Frame = {"type": "message.send", "client_message_id": uuid.uuid4().hex, "text": text}
    open_request: Frame | None = create
    run_id, answer = "", ""
    async for frame in client.frames():
        match frame:
            case {"type": "sync.completed"} if open_request is not None:
                await client.ask(open_request)
            case {"type": "conversation.create.result", "conversation": {"conversation_id": conversation_id}}:
                open_request = {**send, "conversation_id": conversation_id}
                await client.ask(open_request)
            case {"type": "message.send.result", "receipt": receipt}:
                open_request, run_id = None, receipt["run_id"]
            case {"type": "message.completed", "message": {"role": "assistant", "message_id": message_id}}:
                answer = client.texts[message_id][1]
            case {"type": "run.ended", "run": {"run_id": ended, "status": status}} if ended == run_id:
                return answer if status == "completed" else f"({status})"
            case {"type": "error", "retryable": False, "code": code}:
                raise SystemExit(f"the server says {code}")
    raise SystemExit("the server does not want this client")


if __name__ == "__main__":
    print(asyncio.run(say(sys.argv[1], os.environ["PHEBY_SECRET"], sys.argv[2])))
