"""What reaches the owner unasked on real gateways: from other processes, from jobs, from background processes."""

from __future__ import annotations

import json
import re

import pytest
from plain_client import Frame, PlainClient, settle

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOME = "conv_1000000000000000"


async def hermes(stack, *words: str) -> str:
    code, printed = await stack.gateway.command(*words)
    assert code == 0, printed
    return printed


def messages(client: PlainClient, conversation_id: str) -> list[Frame]:
    return [e["message"] for e in client.of(conversation_id) if e["type"] == "message.created"]


def asked(stack) -> list[str]:
    """What the model was last asked, message by message."""
    requests = [request for request in stack.model.requests if not request.auxiliary]
    return [json.dumps(message, ensure_ascii=False) for message in requests[-1].messages]


async def test_a_text_from_another_process_comes_once(stack, client, name):
    """R-I1, H2, H4: to a connected client within five seconds, once, also in history and for the model."""
    if stack.hermes_version == "simulated":
        return  # there is no other process
    conversation_id = await client.create(name)
    await client.exchange(conversation_id, "say hello", f"m-{name}")
    chat_id = conversation_id.removeprefix("conv_")
    await hermes(stack, "send", "-t", f"pheby:{chat_id}", f"news {name}")
    event = await client.until("message.created", conversation_id=conversation_id)
    assert event["message"]["text"] == f"news {name}"
    assert (event["message"]["role"], event["message"]["origin"]) == ("assistant", "system")
    await settle(client)
    history = await client.history(conversation_id)
    assert [m["text"] for m in history].count(f"news {name}") == 1
    # Hermes has told the model by itself: it hears of it once.
    await client.exchange(conversation_id, "say more", f"n-{name}")
    assert sum(f"news {name}" in message for message in asked(stack)) == 1
    history = await client.history(conversation_id)
    assert [m["text"] for m in history if m["role"] == "user"] == ["say hello", "say more"]
    assert [m["text"] for m in history].count(f"news {name}") == 1


async def test_what_comes_while_nobody_is_there_waits(stack, name):
    """R-I1, H2, H4: for an absent client, with the gateway up and with it down; once, in order."""
    if stack.hermes_version == "simulated":
        return
    async with PlainClient(stack.url, stack.secret, f"d-{name}") as client:
        welcome = await client.hello()
        conversation_id = await client.create(name)
        seq = max([f["seq"] for f in client.frames if "seq" in f], default=welcome["seq"])
    chat_id = conversation_id.removeprefix("conv_")
    await hermes(stack, "send", "-t", f"pheby:{chat_id}", f"first {name}")
    await stack.stop_gateway()
    await hermes(stack, "send", "-t", f"pheby:{chat_id}", f"second {name}")
    await stack.start_gateway()
    async with PlainClient(stack.url, stack.secret, f"d-{name}") as back:
        again = await back.hello(resume={"epoch": welcome["epoch"], "seq": seq})
        assert again["resumed"] is True
        assert [m["text"] for m in messages(back, conversation_id)] == [f"first {name}", f"second {name}"]
        assert [m["text"] for m in await back.history(conversation_id)] == [f"first {name}", f"second {name}"]
        # Hermes had no session to mirror it into: the model hears of it with the owner's next words, once.
        await back.exchange(conversation_id, "say hello", f"m-{name}")
        for word in ("first", "second"):
            assert sum(f"{word} {name}" in message for message in asked(stack)) == 1
        await back.exchange(conversation_id, "say again", f"n-{name}")
        for word in ("first", "second"):
            assert sum(f"{word} {name}" in message for message in asked(stack)) == 1
        history = await back.history(conversation_id)
        assert [m["text"] for m in history if m["role"] == "user"] == ["say hello", "say again"]


async def test_what_belongs_to_no_conversation_goes_home(stack, client, name):
    """R-I1: the home conversation is made when it is needed."""
    if stack.hermes_version == "simulated":
        return
    await hermes(stack, "send", "-t", "pheby", f"for home {name}")
    event = await client.until("message.created", conversation_id=HOME)
    assert event["message"]["text"] == f"for home {name}"
    listed = await client.request("conversation.list")
    assert HOME in [c["conversation_id"] for c in listed["conversations"]]


@pytest.mark.parametrize("how", ["another process", "the gateway"])
async def test_a_jobs_result_comes_to_its_conversation(stack, client, name, how):
    """H1, H2, H3, R-I1: with its file, whoever runs the job."""
    if stack.hermes_version == "simulated":
        return
    conversation_id = await client.create(name)
    await client.exchange(conversation_id, "say hello", f"m-{name}")
    file = stack.home / "work" / f"{name}.pdf"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"%PDF-1.7\nfor the owner\n")
    chat_id = conversation_id.removeprefix("conv_")
    prompt = f"media {file}"
    target = ("--name", f"job {name}", "--deliver", f"pheby:{chat_id}")
    created = await hermes(stack, "cron", "create", "0 0 1 1 *", prompt, *target)
    job_id = re.search(r"\b[0-9a-f]{8,}\b", created)[0]
    await hermes(stack, "cron", "run", job_id)
    if how == "another process":
        await hermes(stack, "cron", "tick")
    while True:
        event = await client.until("message.created", conversation_id=conversation_id)
        if event["message"]["origin"] == "cron":
            break
    assert event["message"]["role"] == "assistant"
    assert "Here is the file." in event["message"]["text"]
    await settle(client, 3.0)
    assert [m["origin"] for m in messages(client, conversation_id)].count("cron") == 1
    history = await client.history(conversation_id)
    (result,) = [m for m in history if m["origin"] == "cron"]
    (attachment,) = result["attachments"]
    assert (attachment["file_name"], attachment["size"]) == (file.name, 23)
    assert str(stack.home) not in json.dumps(result)


async def test_the_end_of_a_background_process_is_told_in_its_own_conversation(stack, client, name):
    """H6: a run of the background where it was started, nothing anywhere else."""
    if stack.hermes_version == "simulated":
        return
    first, second = await client.create(f"a-{name}"), await client.create(f"b-{name}")
    call = json.dumps({"command": "sleep 2; echo done", "background": True, "notify_on_complete": True})
    await client.exchange(first, f"call terminal {call}", f"m-{name}")
    await client.exchange(second, "say hello", f"n-{name}")
    while True:
        ended = await client.until("run.ended", conversation_id=first)
        if ended["run"]["origin"] == "background":
            break
    await client.exchange(second, "say more", f"o-{name}")
    assert not any("Background process" in message for message in asked(stack))
    assert {m["origin"] for m in messages(client, second)} == {"chat"}
    history = await client.history(first)
    assert not any("Background process" in m["text"] for m in history)
    assert history[-1]["origin"] == "background"
