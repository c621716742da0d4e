"""The gateway stops, is killed, is slow to start: nothing is lost, nothing runs twice, everything keeps its id."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from plain_client import PlainClient, settle

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
async def test_everything_is_found_again_after_a_restart(stack, name, kill):
    """R-B1, R-B3: the same conversations with the same messages under the same ids."""
    async with PlainClient(stack.url, stack.secret, "before") as client:
        await client.hello()
        conversation_id = await client.create(name)
        await client.exchange(conversation_id, "say before the restart", f"1{name}")
        await settle(client)
        before = await client.history(conversation_id)
    await stack.restart(kill=kill)
    async with PlainClient(stack.url, stack.secret, "after") as client:
        await client.hello()
        listed = await client.request("conversation.list", limit=100)
        assert conversation_id in [c["conversation_id"] for c in listed["conversations"]]
        assert await client.history(conversation_id) == before
        assert (await client.exchange(conversation_id, "say after it", f"2{name}"))["status"] == "completed"
        after = await client.history(conversation_id)
        assert after[: len(before)] == before
        assert [m["role"] for m in after] == ["user", "assistant"] * 2


async def test_a_run_that_a_kill_cut_off_ends_once_and_is_not_run_again(stack, name):
    """C3, G9, B8: failed as interrupted_by_restart, the text so far kept, the conversation usable."""
    async with PlainClient(stack.url, stack.secret, "cut") as client:
        await client.hello()
        conversation_id = await client.create(name)
        receipt = await client.say(conversation_id, "slow 100", f"1{name}")
        if next(frame for frame in client.frames if frame["type"] == "welcome")["capabilities"]["streaming"]:
            while sum(f["type"] == "message.delta" for f in client.of(conversation_id)) < 12:
                await client.receive()
        else:
            await client.run_started(receipt["run_id"])
    await stack.restart(kill=True)
    async with PlainClient(stack.url, stack.secret, "cut") as client:
        await client.hello()
        assert [run for run in client.snapshot("runs") if run["conversation_id"] == conversation_id] == []
        answer = await client.request("conversation.history", conversation_id=conversation_id)
        run = next(run for run in answer["runs"] if run["run_id"] == receipt["run_id"])
        assert run["status"] == "failed"
        assert run["error"]["code"] == "interrupted_by_restart"
        texts = [m for m in answer["messages"] if m["role"] == "assistant"]
        assert all(m["status"] == "failed" and m["text"].startswith("w1") for m in texts)
        assert answer["messages"][0]["text"] == "slow 100"
        assert (await client.exchange(conversation_id, "say and on we go", f"2{name}"))["status"] == "completed"
        started = [frame for frame in client.of(conversation_id) if frame["type"] == "run.started"]
        assert len(started) == 1


async def test_a_message_that_comes_while_the_gateway_starts_is_answered_once(stack, name):
    """The plugin's port is open seconds before Hermes takes messages."""
    async with PlainClient(stack.url, stack.secret, "early") as client:
        await client.hello()
        conversation_id = await client.create(name)
    restart = asyncio.ensure_future(stack.restart())
    await port_closed(stack.url)
    async with await first_connection(stack) as client:
        await client.hello()
        receipt = await client.say(conversation_id, "say good morning", f"m{name}")
        assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
        await restart
        await settle(client, 2.0)
        messages = await client.history(conversation_id)
        assert [m["role"] for m in messages] == ["user", "assistant"]
        assert "good morning" in messages[1]["text"]


async def port_closed(url: str) -> None:
    """Returns when nothing listens there any more."""
    health = url.replace("ws://", "http://").replace("/v1/ws", "/healthz")
    async with aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(health) as answer:
                    await answer.read()
            except aiohttp.ClientError:
                return


async def first_connection(stack) -> PlainClient:
    """A connection as soon as one can be had."""
    async with asyncio.timeout(60):
        while True:
            try:
                client = PlainClient(stack.url, stack.secret, "early")
                await client.__aenter__()
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)
            else:
                return _Open(client)


class _Open:
    """A client that is open already, as a context."""

    def __init__(self, client: PlainClient) -> None:
        self._client = client

    async def __aenter__(self) -> PlainClient:
        return self._client

    async def __aexit__(self, *exception: object) -> None:
        await self._client.__aexit__(None, None, None)
