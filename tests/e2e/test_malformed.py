"""Input that is wrong gets the documented answer; the connection or the server lives."""

from __future__ import annotations

import json

import pytest
from plain_client import PlainClient

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{not json", "invalid_message"),
        ("[]", "invalid_message"),
        ('{"id":"1"}', "invalid_message"),
        ('{"type":5,"id":"1"}', "invalid_message"),
        ('{"type":"conversation.create","id":"1","client_conversation_id":5}', "invalid_message"),
        ('{"type":"conversation.create","id":"1"}', "invalid_message"),
        ('{"type":"ping","id":"1","id":"2"}', "invalid_message"),
        ('{"type":"ping","id":"1","n":9007199254740992}', "invalid_message"),
        ('{"type":"ping","id":"1","n":NaN}', "invalid_message"),
        ('{"type":"ping","id":"1","n":' + "[" * 100 + "]" * 100 + "}", "invalid_message"),
        ('{"type":"ping","id":"1","n":"\\ud83d"}', "invalid_message"),
        ('{"type":"conversation.explode","id":"1"}', "unknown_type"),
        ('{"type":"conversation.get","id":"1","conversation_id":"conv_0"}', "not_found"),
    ],
)
async def test_a_bad_frame_gets_its_error_and_the_connection_lives(stack, client, text, code):
    """R-J2, R-M3."""
    await client.send_text(text)
    answer = await client.until("error")
    assert answer["code"] == code
    assert answer["message"]
    assert (await client.request("ping"))["type"] == "pong"


async def test_a_binary_frame_is_closed_with_1003(stack):
    async with PlainClient(stack.url, stack.secret, "binary") as client:
        await client.hello()
        await client.send_bytes(b"{}")
        assert await client.closed() == 1003


async def test_a_frame_that_is_too_large_is_closed_with_1009(stack):
    """K5."""
    async with PlainClient(stack.url, stack.secret, "large") as client:
        limit = (await client.hello())["limits"]["max_frame_bytes"]
        await client.send_text(json.dumps({"type": "ping", "id": "1", "filling": "x" * limit}))
        assert await client.closed() == 1009


async def test_a_text_that_is_too_long_is_refused_and_the_connection_lives(stack, client, name):
    conversation_id = await client.create(name)
    limit = next(frame for frame in client.frames if frame["type"] == "welcome")["limits"]["max_text_chars"]
    answer = await client.request(
        "message.send", conversation_id=conversation_id, client_message_id=name, text="x" * (limit + 1)
    )
    assert (answer["type"], answer["code"]) == ("error", "too_large")
    assert answer["details"]["limit"] == limit


async def test_a_connection_that_does_not_say_hello_first_is_closed_with_4400(stack):
    async with PlainClient(stack.url, stack.secret, "rude") as client:
        await client.send_text('{"type":"ping","id":"1"}')
        assert await client.closed() == 4400


async def test_ten_bad_frames_in_a_row_close_with_4400(stack):
    async with PlainClient(stack.url, stack.secret, "babbling") as client:
        await client.hello()
        for _ in range(10):
            await client.send_text("nonsense")
        assert await client.closed() == 4400


async def test_a_silent_connection_is_closed_with_4408(stack):
    async with PlainClient(stack.url, stack.secret, "silent") as client:
        assert await client.closed() == 4408


async def test_no_common_version_is_closed_with_4406_and_says_which_are_served(stack):
    async with PlainClient(stack.url, stack.secret, "future") as client:
        await client.send_text(
            json.dumps(
                {
                    "type": "hello",
                    "id": "1",
                    "protocol_versions": [99],
                    "client": {"name": "f", "version": "9", "device_id": "future"},
                }
            )
        )
        answer = await client.until("error")
        assert answer["code"] == "unsupported_version"
        assert answer["details"]["supported"] == [1]
        assert await client.closed() == 4406


async def test_a_cursor_that_means_nothing_here_gives_a_snapshot(stack):
    """Section 3: never an error, never a loop."""
    for cursor in ({"epoch": "another", "seq": 5}, {"epoch": 7, "seq": "x"}, {"epoch": "", "seq": -4}):
        async with PlainClient(stack.url, stack.secret, "cursor") as client:
            welcome = await client.hello(resume=cursor)
            assert welcome["resumed"] is False
            assert any(frame["type"] == "snapshot" for frame in client.frames)
