"""Each secret's access is shown and enforced: for every request, for files and for counters (R-S2, R-A5)."""

from __future__ import annotations

import aiohttp
import pytest
from plain_client import PlainClient
from test_files import delivered, make

from pheby_protocol.messages._base import Request
from pheby_protocol.registry import REGISTRY

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORBIDDEN = {
    "full": set[str](),
    "manage": {"approval.respond", "conversation.delete", "model.select", "reasoning.select"},
    "read_only": {
        "approval.respond",
        "clarification.respond",
        "conversation.create",
        "conversation.delete",
        "conversation.rename",
        "message.send",
        "model.select",
        "reasoning.select",
        "run.cancel",
    },
}
"""What the wire contract lets nobody do with less."""


def requests(conversation_id: str, name: str) -> dict[str, dict[str, str]]:
    """One of each type, none of which changes anything where it is let through."""
    of = {"conversation_id": conversation_id}
    nobody = {"conversation_id": "conv_nobody"}
    return {
        "approval.respond": {"approval_id": "appr_none", "choice": "deny"},
        "attachment.get": {"attachment_id": "att_none"},
        "clarification.respond": {"clarification_id": "clar_none", "text": "x"},
        "conversation.create": {"client_conversation_id": name},
        "conversation.delete": nobody,
        "conversation.get": of,
        "conversation.history": of,
        "conversation.list": {},
        "conversation.rename": nobody | {"title": "x"},
        "message.receipt": {"client_message_id": "none"},
        "message.send": nobody | {"client_message_id": f"s-{name}", "text": "x"},
        "message.text": {"message_id": "msg_none"},
        "model.list": of,
        "model.select": nobody | {"provider": "x", "model": "x"},
        "ping": {},
        "reasoning.list": of,
        "reasoning.select": nobody | {"effort": "x"},
        "run.cancel": {"run_id": "run_none"},
    }


async def test_each_secret_may_do_what_its_access_says_and_nothing_else(faulty, name):
    """R-S2: the mode stands in welcome; an approval of somebody who may only watch decides nothing."""
    if faulty is None:
        return
    secrets = {"full": faulty.secret, "manage": faulty.manage_secret, "read_only": faulty.watch_secret}
    file = make(faulty, f"{name}.txt", b"for all who may watch")
    async with PlainClient(faulty.url, faulty.secret, name) as owner:
        await owner.hello()
        conversation_id = await owner.create(name)
        _, (attachment,) = await delivered(owner, conversation_id, f"media {file}", f"m-{name}")
        await owner.say(conversation_id, f"danger {name}", f"d-{name}")
        approval = (await owner.until("approval.requested", conversation_id=conversation_id))["approval"]
        for mode in ("manage", "read_only"):
            async with PlainClient(faulty.url, secrets[mode], f"{mode}-{name}") as client:
                await client.hello()
                asked = await client.request("approval.respond", approval_id=approval["approval_id"], choice="once")
                assert asked["code"] == "forbidden"
        answered = await owner.request("approval.respond", approval_id=approval["approval_id"], choice="deny")
        assert answered["approval"]["decision"] == "deny"
    for mode, secret in secrets.items():
        async with PlainClient(faulty.url, secret, f"{mode}-{name}") as client:
            assert (await client.hello())["access_mode"] == mode
            refused = set()
            for type_, fields in requests(conversation_id, f"{mode}-{name}").items():
                answer = await client.request(type_, **fields)
                assert answer.get("code") not in ("invalid_message", "unknown_type"), answer
                if answer.get("code") == "forbidden":
                    refused.add(type_)
            assert refused == FORBIDDEN[mode]
    base = faulty.url.replace("ws://", "http://").removesuffix("v1/ws")
    async with aiohttp.ClientSession() as http:
        for path in (attachment["path"], "v1/metrics"):
            for secret, status in [*((secret, 200) for secret in secrets.values()), (secrets["full"] + "x", 401)]:
                for method in ("GET", "HEAD"):
                    headers = {"Authorization": f"Bearer {secret}", "X-Forwarded-For": "203.0.113.20"}
                    async with http.request(method, base + path, headers=headers) as answer:
                        assert answer.status == status, (path, method)


async def test_every_request_of_the_protocol_is_tried():
    """R-S2: also one that is added later."""
    named = {type_ for type_, spec in REGISTRY.items() if issubclass(spec.cls, Request)} - {"hello"}
    assert named == requests("conv_x", "x").keys()
