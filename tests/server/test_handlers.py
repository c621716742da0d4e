"""What each request does, and who may ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.messages._base import Request
from pheby_protocol.messages.connection import AccessMode, Hello
from pheby_protocol.messages.message import Origin
from pheby_protocol.registry import REGISTRY, Kind
from pheby_server.handlers import HANDLERS
from pheby_server.server import Server
from pheby_server.testing import FakeClock, ManualHermes, MemoryTransport, running_server

READ = {
    "ping",
    "conversation.list",
    "conversation.get",
    "conversation.history",
    "message.receipt",
    "message.text",
    "model.list",
    "reasoning.list",
    "attachment.get",
}
MANAGE = READ | {
    "conversation.create",
    "conversation.rename",
    "message.send",
    "run.cancel",
    "clarification.respond",
}
FULL = MANAGE | {"conversation.delete", "approval.respond", "model.select", "reasoning.select"}
ASKED: dict[str, dict[str, Any]] = {
    "model.list": {"conversation_id": "conv_1"},
    "model.select": {"conversation_id": "conv_1", "provider": "p", "model": "m"},
    "reasoning.list": {"conversation_id": "conv_1"},
    "reasoning.select": {"conversation_id": "conv_1", "effort": "high"},
    "attachment.get": {"attachment_id": "att_1"},
    "conversation.rename": {"conversation_id": "conv_1", "title": "t"},
    "conversation.delete": {"conversation_id": "conv_1"},
    "run.cancel": {"run_id": "run_1"},
    "approval.respond": {"approval_id": "appr_1", "choice": "once"},
    "clarification.respond": {"clarification_id": "clar_1", "choice_ids": []},
    "ping": {},
    "conversation.list": {},
    "conversation.get": {"conversation_id": "conv_none"},
    "conversation.history": {"conversation_id": "conv_none"},
    "conversation.create": {"client_conversation_id": "c1"},
    "message.send": {"conversation_id": "conv_none", "client_message_id": "m1", "text": "x"},
    "message.receipt": {"client_message_id": "none"},
    "message.text": {"message_id": "msg_none"},
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(str(tmp_path), ManualHermes(), clock=FakeClock(5_000)) as made:
        yield made


async def in_step(server: Server, mode: AccessMode = AccessMode.FULL) -> MemoryTransport:
    client = MemoryTransport(server, mode)
    await client.hello()
    return client


def test_every_request_of_the_protocol_has_a_handler() -> None:
    requests = {spec.cls for spec in REGISTRY.values() if spec.kind is Kind.REQUEST and spec.cls is not Hello}
    assert set(HANDLERS) == requests
    assert all(issubclass(cls, Request) for cls in HANDLERS)
    assert set(ASKED) == {cls.type for cls in HANDLERS}


@pytest.mark.parametrize(
    ("mode", "allowed"), [(AccessMode.READ_ONLY, READ), (AccessMode.MANAGE, MANAGE), (AccessMode.FULL, FULL)]
)
async def test_each_access_mode_may_do_what_the_contract_says_and_nothing_else(
    server: Server, mode: AccessMode, allowed: set[str]
) -> None:
    client = await in_step(server, mode)
    forbidden = {
        type_ for type_, fields in ASKED.items() if (await client.request(type_, **fields)).get("code") == "forbidden"
    }
    assert forbidden == set(ASKED) - allowed


async def test_an_access_mode_that_this_version_does_not_know_may_do_nothing(server: Server) -> None:
    client = await in_step(server, AccessMode("future"))
    assert (await client.request("ping"))["code"] == "forbidden"


async def test_ping_tells_the_time(server: Server) -> None:
    client = await in_step(server)
    assert (await client.request("ping"))["server_time"] == 5_000


@pytest.mark.parametrize(
    "type_", ["conversation.get", "conversation.history", "message.send", "message.receipt", "message.text"]
)
async def test_what_does_not_exist_is_not_found(server: Server, type_: str) -> None:
    client = await in_step(server)
    assert (await client.request(type_, **ASKED[type_]))["code"] == "not_found"


async def test_results_with_objects_say_which_events_they_include(server: Server) -> None:
    client = await in_step(server)
    made = await client.request("conversation.create", client_conversation_id="c1")
    created = next(frame for frame in client.seen if frame["type"] == "conversation.created")
    assert made["as_of_seq"] == created["seq"]
    name = made["conversation"]["conversation_id"]
    for type_ in ("conversation.get", "conversation.history"):
        assert (await client.request(type_, conversation_id=name))["as_of_seq"] == created["seq"]
    assert (await client.request("conversation.list"))["as_of_seq"] == created["seq"]


async def test_a_receipt_is_not_told_before_it_is_stored(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await in_step(server)
    made = await client.request("conversation.create", client_conversation_id="c1")
    name = made["conversation"]["conversation_id"]
    held = asyncio.Event()
    real = server._store.transact

    async def transact(work: Any, *, durable: bool = False) -> Any:
        await held.wait()
        return await real(work, durable=durable)

    await server.events.settled()
    monkeypatch.setattr(server._store, "transact", transact)
    client.send({"type": "message.send", "id": "s", "conversation_id": name, "client_message_id": "m", "text": "x"})
    client.send({"type": "message.receipt", "id": "r", "client_message_id": "m"})
    client.send({"type": "ping", "id": "p"})
    first = await client.receive()
    held.set()
    assert first["id"] == "p"
    assert (await client.until("message.send.result"))["id"] == "s"
    assert (await client.until("message.receipt.result"))["receipt"]["client_message_id"] == "m"


async def test_history_read_before_an_event_does_not_claim_to_include_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that is older than as_of_seq says would overwrite what a newer event told the client."""
    client = await in_step(server)
    made = await client.request("conversation.create", client_conversation_id="c1")
    name = made["conversation"]["conversation_id"]
    server.events.run_started(name, None, Origin.CHAT)
    message_id = server.events.message_started(name, "text")
    await server.events.settled()
    read = asyncio.Event()
    go_on = asyncio.Event()
    real = server._store.read

    async def slow(work: Any) -> Any:
        found = await real(work)
        read.set()
        async with asyncio.timeout(2):
            await go_on.wait()
        return found

    monkeypatch.setattr(server._store, "read", slow)
    client.send({"type": "conversation.history", "id": "h", "conversation_id": name})
    await read.wait()
    server.events.message_ended(message_id, interim=True)
    completed = await client.until("message.completed")
    go_on.set()
    page = await client.until("conversation.history.result")
    (found,) = page["messages"]
    assert found["status"] == "completed" or page["as_of_seq"] < completed["seq"]
