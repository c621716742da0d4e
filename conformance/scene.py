"""What a check has: phones on the server under test, HTTP requests to it, and names that nothing else uses."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from pathlib import Path
from typing import Any

import aiohttp
import attrs

from .check import ConformanceError, expect, same
from .phone import MAX_MESSAGE, Frame, Phone, Record


@attrs.define(eq=False)
class Lab:
    """The server under test, and what is common to a run."""

    url: str
    """The socket's address."""
    secret: str = attrs.field(repr=False)
    http: aiohttp.ClientSession
    patience: float = 20.0
    read_only_secret: str | None = attrs.field(default=None, repr=False)
    files: Path | None = None
    scripted: bool = False
    welcome: Frame = attrs.field(factory=dict)
    """Of the first connection."""
    records: list[Record] = attrs.field(factory=list)
    conversations: list[str] = attrs.field(factory=list)
    """All that were created, to be deleted in the end."""
    texts: set[str] = attrs.field(factory=set)
    """Everything that was sent as the owner's words."""
    _token: str = attrs.field(factory=lambda: secrets.token_hex(5))
    _count: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1))

    def name(self, kind: str) -> str:
        """A name that nothing else has, in this run and in others."""
        return f"{kind}-{self._token}-{next(self._count)}"

    def address(self, path: str) -> str:
        """The HTTP address of a path beside the socket: `healthz`, `v1/ws`, `v1/attachments/…`."""
        base = self.url.partition("?")[0].removesuffix("v1/ws")
        return base.replace("ws", "http", 1) + path


@attrs.frozen
class Response:
    """What came of an HTTP request."""

    status: int
    headers: Any
    body: bytes


class Scene:
    """One check's own place. Phones are closed when it ends."""

    def __init__(self, lab: Lab, exits: contextlib.AsyncExitStack) -> None:
        self.lab = lab
        self._exits = exits

    @property
    def patience(self) -> float:
        return self.lab.patience

    @property
    def limits(self) -> Frame:
        """As the first welcome announced them."""
        limits: Frame = self.lab.welcome["limits"]
        return limits

    def offers(self, capability: str) -> bool:
        """Whether the server announced a capability."""
        return self.lab.welcome.get("capabilities", {}).get(capability) is True

    # Connections

    async def phone(self, device_id: str | None = None, *, secret: str | None = None, **options: Any) -> Phone:
        """An open socket, before `hello`."""
        headers = {"Authorization": f"Bearer {secret or self.lab.secret}"}
        socket = await self.lab.http.ws_connect(self.lab.url, headers=headers, max_msg_size=MAX_MESSAGE, **options)
        phone = Phone(socket, device_id or self.lab.name("device"), self.patience)
        self.lab.records.append(phone.record)
        await self._exits.enter_async_context(phone)
        return phone

    async def in_step(self, device_id: str | None = None, *, secret: str | None = None, **hello: Any) -> Phone:
        """A phone that has shaken hands."""
        phone = await self.phone(device_id, secret=secret)
        await phone.hello(**hello)
        return phone

    async def request(
        self, path: str, method: str = "GET", *, secret: str | None = "", params: Any = None, **headers: str
    ) -> Response:
        """An HTTP request, with the right secret unless another (or None) is given; `If_Range` is `If-Range`."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if secret is not None:
            given["Authorization"] = f"Bearer {secret or self.lab.secret}"
        async with self.lab.http.request(
            method, self.lab.address(path), headers=given, params=params, allow_redirects=False
        ) as answer:
            async with asyncio.timeout(self.patience):
                return Response(answer.status, answer.headers, await answer.read())

    # Conversations

    async def conversation(self, phone: Phone, **fields: Any) -> str:
        """A new conversation's id."""
        name = self.lab.name("conv")
        answer = await phone.ask("conversation.create", client_conversation_id=name, **fields)
        found: str = answer["conversation"]["conversation_id"]
        self.lab.conversations.append(found)
        return found

    async def send(self, phone: Phone, conversation_id: str, text: str, **fields: Any) -> Frame:
        """The answer to a send."""
        self.lab.texts.add(text)
        fields = {"client_message_id": self.lab.name("msg")} | fields
        return await phone.request("message.send", conversation_id=conversation_id, text=text, **fields)

    async def say(self, phone: Phone, conversation_id: str, text: str, **fields: Any) -> Frame:
        """The receipt of a send that must succeed."""
        answer = await self.send(phone, conversation_id, text, **fields)
        expect(answer["type"] == "message.send.result", f"message.send is answered {answer.get('code')}")
        receipt: Frame = answer["receipt"]
        return receipt

    async def ended(self, phone: Phone, run_id: str, status: str | None = "completed") -> Frame:
        """The run when it has ended, with this status."""
        run: Frame = (await phone.seen("run.ended", run_id=run_id))["run"]
        if status is not None:
            same(run["status"], status, "the run's status")
        return run

    async def exchange(self, phone: Phone, conversation_id: str, text: str) -> Frame:
        """Say something and wait for the end of its run, which must be completed."""
        return await self.ended(phone, (await self.say(phone, conversation_id, text))["run_id"])

    async def history(self, phone: Phone, conversation_id: str, **fields: Any) -> Frame:
        """A page of history."""
        return await phone.ask("conversation.history", conversation_id=conversation_id, **fields)

    async def approval(self, phone: Phone, conversation_id: str) -> Frame:
        """Bring the agent to ask for an approval; the open approval."""
        await self.say(phone, conversation_id, f"danger {self.lab.name('/nowhere/at-all')}")
        event = await phone.seen("approval.requested", conversation_id=conversation_id)
        approval: Frame = event["approval"]
        return approval

    async def question(self, phone: Phone, conversation_id: str, words: str = "ask Which colour?|red|green") -> Frame:
        """Bring the agent to ask something; the open clarification."""
        await self.say(phone, conversation_id, words)
        event = await phone.seen("clarification.requested", conversation_id=conversation_id)
        clarification: Frame = event["clarification"]
        return clarification

    async def delivered(self, phone: Phone, conversation_id: str, name: str, content: bytes) -> Frame:
        """Have the agent deliver a file; its attachment."""
        assert self.lab.files is not None
        folder = self.lab.files / self.lab.name("file")
        await asyncio.to_thread(_write, folder, name, content)
        await self.exchange(phone, conversation_id, f"media {folder / name}")
        event = await phone.seen("attachment.created", conversation_id=conversation_id)
        attachment: Frame = event["attachment"]
        return attachment


def _write(folder: Path, name: str, content: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / name).write_bytes(content)


def prerequisite(holds: object, text: str) -> None:
    """Fail: what the check needs first is not there."""
    if not holds:
        raise ConformanceError(f"prerequisite: {text}")
