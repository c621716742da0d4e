"""Conversations over Hermes's own sessions: names, and an end that leaves nothing (R-B1, R-B4)."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest
from plain_client import PlainClient, settle

pytestmark = pytest.mark.asyncio(loop_scope="session")


def hermes_sessions(stack: Any, conversation_id: str) -> list[dict[str, Any]]:
    """What Hermes has stored of a conversation."""
    database = sqlite3.connect(f"file:{stack.home}/state.db?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    try:
        chat_id = conversation_id.removeprefix("conv_")
        return [dict(row) for row in database.execute("SELECT * FROM sessions WHERE chat_id = ?", (chat_id,))]
    finally:
        database.close()


async def rename(client: PlainClient, conversation_id: str, title: str) -> dict[str, Any]:
    return await client.request("conversation.rename", conversation_id=conversation_id, title=title)


async def test_a_title_of_the_owner_stays_and_is_hermess_too(stack, client, name):
    """R-B5: over a restart, and no title that Hermes makes takes its place."""
    conversation_id = await client.create(name)
    await client.exchange(conversation_id, "say hello", f"m-{name}")
    async with PlainClient(client.url, stack.secret, "second-device") as second:
        await second.hello()
        title = f"Über {name} / 漢字"
        answer = await rename(client, conversation_id, f"  {title} ")
        assert answer["conversation"]["title"] == title
        assert answer["conversation"]["title_source"] == "manual"
        event = await second.until("conversation.updated", conversation_id=conversation_id)
        while event["conversation"]["title"] != title:
            event = await second.until("conversation.updated", conversation_id=conversation_id)
    await client.exchange(conversation_id, "say more", f"n-{name}")
    await settle(client)
    if stack.hermes_version != "simulated":
        assert title in [session["title"] for session in hermes_sessions(stack, conversation_id)]
    await stack.restart()
    async with PlainClient(stack.url, stack.secret) as back:
        await back.hello()
        got = await back.request("conversation.get", conversation_id=conversation_id)
        assert (got["conversation"]["title"], got["conversation"]["title_source"]) == (title, "manual")
        # Again is the same, and a name that is given away is refused by its own code.
        assert (await rename(back, conversation_id, title))["conversation"]["title"] == title
        other = await back.create(f"other-{name}")
        await back.exchange(other, "say other", f"o-{name}")
        refused = await rename(back, other, title)
        assert (refused["code"], refused["details"]["conversation_id"]) == ("title_conflict", conversation_id)
        for bad in ("", "   ", "x" * 101, "two\nlines"):
            assert (await rename(back, other, bad))["code"] in ("invalid_title", "invalid_message")


async def test_a_title_that_was_given_before_the_first_message(stack, client, name):
    """Hermes has no session yet: it gets the title with the first one."""
    made = await client.request("conversation.create", client_conversation_id=name, title=f"First {name}")
    conversation_id = made["conversation"]["conversation_id"]
    await client.exchange(conversation_id, "say hello", f"m-{name}")
    await settle(client)
    got = await client.request("conversation.get", conversation_id=conversation_id)
    assert got["conversation"]["title"] == f"First {name}"
    if stack.hermes_version != "simulated":
        async with asyncio.timeout(10):
            while f"First {name}" not in [found["title"] for found in hermes_sessions(stack, conversation_id)]:
                await asyncio.sleep(0.1)


async def test_a_deleted_conversation_leaves_nothing(stack, client, name):
    """R-B4: here at once, in Hermes soon; the next one knows nothing of it."""
    conversation_id = await client.create(name)
    await client.exchange(conversation_id, f"say secret {name}", f"m-{name}")
    async with PlainClient(client.url, stack.secret, "second-device") as second:
        await second.hello()
        cursor = {"epoch": second.frames[0]["epoch"], "seq": second.frames[-1]["seq"]}
        answer = await client.request("conversation.delete", conversation_id=conversation_id)
        assert answer["type"] == "conversation.delete.result", answer
        assert (await second.until("conversation.deleted"))["conversation_id"] == conversation_id
    again = await client.request("conversation.delete", conversation_id=conversation_id)
    assert again["type"] == "conversation.delete.result"
    for type_, fields in {
        "conversation.get": {},
        "conversation.history": {},
        "conversation.rename": {"title": "x"},
        "message.send": {"client_message_id": f"late-{name}", "text": "x"},
    }.items():
        refused = await client.request(type_, conversation_id=conversation_id, **fields)
        assert (refused["type"], refused["code"]) == ("error", "not_found"), type_
    made = await client.request("conversation.create", client_conversation_id=name)
    assert made["code"] == "not_found"
    listed = await client.request("conversation.list")
    assert conversation_id not in [found["conversation_id"] for found in listed["conversations"]]
    if stack.hermes_version != "simulated":
        async with asyncio.timeout(20):
            while hermes_sessions(stack, conversation_id):
                await asyncio.sleep(0.2)
    # Nothing of it is stored here, but that it is gone.
    database = sqlite3.connect(f"file:{stack.home}/pheby/pheby.db?mode=ro", uri=True)
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        found = [row for row in database.execute(f"SELECT * FROM {table}") if conversation_id in repr(row)]
        assert len(found) == (1 if table in ("tombstones", "events") else 0), table
    database.close()
    async with PlainClient(client.url, stack.secret, "second-device") as back:
        await back.hello(resume=cursor)
        kinds = [frame["type"] for frame in back.frames if frame.get("conversation_id") == conversation_id]
        assert kinds == ["conversation.deleted"]
    await stack.restart()
    async with PlainClient(stack.url, stack.secret) as later:
        await later.hello()
        listed = await later.request("conversation.list")
        assert conversation_id not in [found["conversation_id"] for found in listed["conversations"]]
        refused = await later.request("conversation.get", conversation_id=conversation_id)
        assert refused["code"] == "not_found"


@pytest.mark.parametrize("text", ["slow 200", "run sleep 20", "ask Which?|a|b", "danger /nowhere/at-all"])
async def test_deleting_stops_what_runs_there(stack, client, name, text):
    """R-B4: the run ends (cancelled), then the conversation is gone, then nothing of it."""
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, text, f"m-{name}")
    await client.run_started(receipt["run_id"])
    await client.say(conversation_id, "say never", f"n-{name}")
    answer = await client.request("conversation.delete", conversation_id=conversation_id)
    assert answer["type"] == "conversation.delete.result", answer
    await settle(client, 2.0)
    events = client.of(conversation_id)
    assert events[-1]["type"] == "conversation.deleted"
    ended = [event["run"] for event in events if event["type"] == "run.ended"]
    assert {(run["status"], run["reason"]) for run in ended} == {("cancelled", "deleted")}
    assert len(ended) == 2
    if stack.hermes_version != "simulated":
        async with asyncio.timeout(40):
            while hermes_sessions(stack, conversation_id):
                await asyncio.sleep(0.2)
    other = await client.create(f"other-{name}")
    assert (await client.exchange(other, "say next", f"o-{name}"))["status"] == "completed"
