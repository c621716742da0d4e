"""Pheby's own Python client under the client runner: it shows what the protocol's reducer makes of what it receives.

    python python_client.py URL        with PHEBY_SECRET in the environment

Commands come as lines of JSON: `send`, `cancel`, `approve`, `answer`, and `state`, which alone is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pheby import AuthenticationError, Client
from pheby.client import ConnectionLostError, RequestFailedError
from pheby_protocol.client_state import ClientState, apply, apply_answer, digest, lost, shown
from pheby_protocol.ids import ApprovalId, ConversationId, ListCursor, MessageId
from pheby_protocol.messages._base import Request, Result
from pheby_protocol.messages.connection import Batch
from pheby_protocol.messages.conversation import ConversationList, ConversationListResult
from pheby_protocol.messages.history import ConversationHistory, ConversationHistoryResult
from pheby_protocol.messages.message import MessageText, MessageTextResult

_GIVEN_UP = (ConnectionLostError, RequestFailedError, AuthenticationError, TimeoutError)


class ShowingClient(Client):
    """The client with its screen: the reducer's state, and the requests that it wishes for."""

    def __init__(self, url: str, secret: str) -> None:
        super().__init__(url, secret)
        self.state = ClientState()
        self._asked: dict[str, Request] = {}
        self._asking: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def _receive(self, message: object) -> None:
        super()._receive(message)
        if isinstance(message, Result) and message.id in self._asked:
            # Here and not by whoever asked: an answer counts in its place among the events.
            self.state = apply_answer(self.state, self._asked.pop(message.id), message)
        elif not isinstance(message, Batch):
            self.state = apply(self.state, message)
        self._fulfil_wishes()

    def _lost(self, code: int | None, *, final: bool) -> None:
        super()._lost(code, final=final)
        self.state = lost(self.state)
        self._asked.clear()

    def _fulfil_wishes(self) -> None:
        for name in self.state.needs_text:
            self.start(f"text {name}", self._fetch_text(name))
        for where in self.state.needs_history:
            self.start(f"history {where}", self._fetch_history(where))
        if self.state.unconfirmed:
            self.start("list", self._fetch_list())

    async def _fetch_text(self, name: MessageId) -> None:
        asked = MessageText(id=self._next_id(), message_id=name)
        self._asked[asked.id] = asked
        await self.request(asked, MessageTextResult)

    async def _fetch_history(self, where: ConversationId) -> None:
        asked = ConversationHistory(id=self._next_id(), conversation_id=where)
        self._asked[asked.id] = asked
        await self.request(asked, ConversationHistoryResult)

    async def _fetch_list(self) -> None:
        """The whole list: what no page of it names is gone."""
        cursor: ListCursor | None = None
        while True:
            asked = ConversationList(id=self._next_id(), cursor=cursor)
            self._asked[asked.id] = asked
            cursor = (await self.request(asked, ConversationListResult)).next
            if cursor is None:
                return

    def start(self, name: str, work: Any) -> None:
        """Do something beside the rest, once at a time."""
        if name in self._asking:
            work.close()
            return
        self._asking.add(name)
        task = asyncio.create_task(self._finish(name, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, name: str, work: Awaitable[object]) -> None:
        try:
            with contextlib.suppress(*_GIVEN_UP):
                await work
        finally:
            self._asking.discard(name)

    def obey(self, command: dict[str, Any]) -> None:
        """Do what the owner would do."""
        what = command.pop("do")
        if what == "download":
            self.start("download", self._download(command["attachment_id"]))
            return
        work: dict[str, Callable[..., Awaitable[object]]] = {
            "send": self.send,
            "cancel": self.cancel,
            "approve": self._approve,
            "answer": self.answer,
        }
        self.start(f"{what} {command}", work[what](**command))

    async def _approve(self, approval_id: ApprovalId, choice: str) -> None:
        if self._is_offered(approval_id, choice):
            await self.decide(approval_id, choice)

    def _is_offered(self, approval_id: ApprovalId, choice: str) -> bool:
        known = self.state.approvals.get(approval_id)
        return known is not None and choice in known.choices

    async def _download(self, name: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            await self.download(self.state.attachments[name], Path(folder) / "file")

    def told(self) -> dict[str, Any]:
        """The answer to `state`."""
        return {"digest": digest(self.state), "state": shown(self.state)}


async def serve(client: ShowingClient, lines: asyncio.StreamReader, write: Callable[[str], None]) -> None:
    """Keep the client connected and obey the lines, until there are none."""
    # Whether it connects is the scenario's matter.
    entering = asyncio.create_task(client.__aenter__())
    try:
        while line := await lines.readline():
            command = json.loads(line)
            if command["do"] == "state":
                write(json.dumps(client.told()))
            else:
                client.obey(command)
    finally:
        entering.cancel()
        with contextlib.suppress(asyncio.CancelledError, *_GIVEN_UP):
            await entering
        await client.__aexit__(None, None, None)


async def main() -> None:
    lines = asyncio.StreamReader(limit=2**25)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    client = ShowingClient(sys.argv[1], os.environ["PHEBY_SECRET"])
    await serve(client, lines, lambda text: print(text, flush=True))


if __name__ == "__main__":
    asyncio.run(main())
