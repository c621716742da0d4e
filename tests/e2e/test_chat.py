"""A chat as the wire contract has it, on every line: in order, without cross-talk, the same live and later."""

from __future__ import annotations

import hashlib

import aiohttp
import pytest
from plain_client import PlainClient, fold, settle

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def refusal(url: str, headers: dict[str, str]) -> int:
    async with aiohttp.ClientSession() as http:
        try:
            async with http.ws_connect(url, headers=headers):
                return 101
        except aiohttp.WSServerHandshakeError as refused:
            return refused.status


async def test_a_connection_without_the_secret_is_refused_before_the_upgrade(stack):
    """R-A5, K3, J12: 401 for no secret, a wrong one, and the right one in the query."""
    assert await refusal(stack.url, {}) == 401
    assert await refusal(stack.url, {"Authorization": "Bearer " + "0" * 64}) == 401
    assert await refusal(f"{stack.url}?token={stack.secret}", {}) == 401
    assert await refusal(stack.url, {"Authorization": f"Bearer {stack.secret}"}) == 101


async def test_the_health_check_says_nothing_but_ok(stack):
    health = stack.url.replace("ws://", "http://").replace("/v1/ws", "/healthz")
    async with aiohttp.ClientSession() as http, http.get(health) as answer:
        assert answer.status == 200
        assert await answer.json() == {"status": "ok"}


async def test_the_welcome_has_every_field_of_the_contract(stack):
    async with PlainClient(stack.url, stack.secret, "welcomed") as client:
        welcome = await client.hello()
    expected = {
        "protocol_version",
        "connection_id",
        "server",
        "server_time",
        "capabilities",
        "access_mode",
        "limits",
        "heartbeat_ms",
        "schema_digest",
        "epoch",
        "seq",
        "resumed",
        "receipts_since",
    }
    assert expected <= welcome.keys()
    assert welcome["protocol_version"] == 1
    assert welcome["access_mode"] == "full"
    limits = welcome["limits"]
    assert limits["max_frame_bytes"] >= 6 * limits["max_text_chars"] + 4096


async def test_a_turn_comes_in_the_order_of_the_contract(stack, client, name):
    """R-C1, section 6: message.created → run.started → created → deltas → completed → run.ended."""
    conversation_id = await client.create(name)
    run = await client.exchange(conversation_id, "say order", f"m-{name}")
    assert run["status"] == "completed"
    events = client.of(conversation_id)
    steps = [
        (event["type"], (event.get("message") or {}).get("role"))
        for event in events
        if event["type"] not in ("conversation.updated", "conversation.created", "message.updated", "message.delta")
    ]
    assert steps == [
        ("message.created", "user"),
        ("run.started", None),
        ("message.created", "assistant"),
        ("message.completed", "assistant"),
        ("run.ended", None),
    ] or (not await streams(client) and steps[-2:] == [("message.created", "assistant"), ("run.ended", None)])
    seqs = [event["seq"] for event in events if "seq" in event]
    assert seqs == sorted(set(seqs))
    user = next(event["message"] for event in events if event["type"] == "message.created")
    assert user["client_message_id"] == f"m-{name}"
    assert user["run_id"] == run["run_id"]


async def streams(client: PlainClient) -> bool:
    welcome = next(frame for frame in client.frames if frame["type"] == "welcome")
    return bool(welcome["capabilities"]["streaming"])


async def test_two_conversations_at_once_do_not_mix(stack, client, name):
    """A11: each event names its conversation; both stream at once on one socket."""
    first, second = await client.create(f"a{name}"), await client.create(f"b{name}")
    one = await client.say(first, "slow 12", f"a{name}")
    other = await client.say(second, "say something else entirely", f"b{name}")
    for receipt in (one, other):
        assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
    texts = {
        conversation_id: [m["text"] for m in fold(client.of(conversation_id)).values() if m["role"] == "assistant"]
        for conversation_id in (first, second)
    }
    assert texts[first] == [" ".join(f"w{number}" for number in range(1, 13))]
    assert len(texts[second]) == 1
    assert "something else entirely" in texts[second][0]


async def test_history_and_live_are_the_same_messages(stack, client, name):
    """R-B3, B3: same ids, texts and order, also with text before and after a tool."""
    conversation_id = await client.create(name)
    await client.exchange(conversation_id, "say first", f"1{name}")
    await client.exchange(conversation_id, "run echo hello", f"2{name}")
    await settle(client)
    live = [
        (m["message_id"], m["role"], m["text"])
        for m in sorted(fold(client.of(conversation_id)).values(), key=lambda m: m["position"])
    ]
    stored = [(m["message_id"], m["role"], m["text"]) for m in await client.history(conversation_id)]
    assert stored == live
    assert [role for _, role, _ in stored] == ["user", "assistant", "user", "assistant", "assistant"]


async def test_a_new_connection_finds_everything(stack, client, name):
    """R-I2: list and history by another connection are what the first one saw."""
    conversation_id = await client.create(name)
    await client.exchange(conversation_id, "say remember me", f"m{name}")
    before = await client.history(conversation_id)
    async with PlainClient(stack.url, stack.secret, "another") as other:
        await other.hello()
        listed = await other.request("conversation.list", limit=100)
        found = [c for c in listed["conversations"] if c["conversation_id"] == conversation_id]
        assert len(found) == 1
        assert found[0]["history_head"] == before[-1]["position"]
        assert await other.history(conversation_id) == before


async def test_a_reply_of_a_hundred_thousand_characters_arrives_whole(stack, client, name):
    """B9, R-C6: one message, live and in history, the checksum right."""
    conversation_id = await client.create(name)
    run = await client.exchange(conversation_id, "long 100000", f"m{name}")
    assert run["status"] == "completed"
    live = [m for m in fold(client.of(conversation_id)).values() if m["role"] == "assistant"]
    stored = [m for m in await client.history(conversation_id) if m["role"] == "assistant"]
    assert [m["text"] for m in live] == [m["text"] for m in stored]
    assert len(live) == 1
    text = live[0]["text"]
    assert len(text) == 100_000
    body, _, last = text.rpartition("\n")
    assert hashlib.sha256(body.encode()).hexdigest() in last
    assert live[0]["text_truncated"] is False


async def test_text_of_every_script_survives(stack, client, name):
    """Emoji with joiners, CJK, right-to-left, both ways; printable text is not escaped on the wire."""
    conversation_id = await client.create(name)
    said = "say 👩‍👩‍👧‍👦 漢字 שלום é 🏽"
    run = await client.exchange(conversation_id, said, f"1{name}")
    assert run["status"] == "completed"
    await client.exchange(conversation_id, "unicode", f"2{name}")
    messages = await client.history(conversation_id)
    assert messages[0]["text"] == said
    assert said.removeprefix("say ") in messages[1]["text"]
    for piece in ("👩‍👩‍👧‍👦", "🇪🇺", "👍🏽", "漢字とかな 한국어", "שלום עולם", "e\u0301"):
        assert piece in messages[3]["text"], piece


async def test_a_refused_model_call_fails_the_run_once_and_shows_no_raw_text(stack, client, name):
    """B6, R-M3: one run.ended, failed, typed; the provider's own words in no frame; the conversation goes on."""
    conversation_id = await client.create(name)
    run = await client.exchange(conversation_id, "fail 401", f"1{name}")
    assert run["status"] == "failed"
    assert run["error"]["code"] == "provider_auth"
    assert run["error"]["message"]
    assert (await client.exchange(conversation_id, "say still here", f"2{name}"))["status"] == "completed"
    await settle(client)
    ended = [event for event in client.of(conversation_id) if event["type"] == "run.ended"]
    assert len(ended) == 2
    assert "raw provider text" not in repr(client.frames)
    roles = [m["role"] for m in await client.history(conversation_id)]
    assert roles == ["user", "user", "assistant"]


async def test_reasoning_never_shows(stack, client, name):
    """B4: tags split over chunks and tags in the middle of a line."""
    conversation_id = await client.create(name)
    for number, script in enumerate(("think", "midthink")):
        assert (await client.exchange(conversation_id, script, f"{number}{name}"))["status"] == "completed"
    texts = [m["text"] for m in await client.history(conversation_id) if m["role"] == "assistant"]
    assert texts[0] == "Hi after thinking."
    assert texts[1].split() == ["Visible", "start", "visible", "end."]
    shown = repr(client.of(conversation_id))
    assert "secret" not in shown
    assert "<think" not in shown


async def test_a_second_send_waits_its_turn(stack, client, name):
    """C6: queued, in order, each once; the queued message has no position until its turn."""
    conversation_id = await client.create(name)
    receipts = [await client.say(conversation_id, "slow 8", f"0{name}")]
    receipts += [await client.say(conversation_id, f"say number {n}", f"{n}{name}") for n in (1, 2)]
    assert [receipt["disposition"] for receipt in receipts] == ["started", "queued", "queued"]
    for receipt in receipts:
        assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
    created = {
        event["message"]["message_id"]: event["message"]
        for event in client.of(conversation_id)
        if event["type"] == "message.created"
    }
    assert created[receipts[1]["message_id"]]["status"] == "queued"
    assert "position" not in created[receipts[1]["message_id"]]
    order = [event["run"]["run_id"] for event in client.of(conversation_id) if event["type"] == "run.started"]
    assert order == [receipt["run_id"] for receipt in receipts]
    messages = await client.history(conversation_id)
    assert [m["role"] for m in messages] == ["user", "assistant"] * 3


async def test_the_same_send_twice_runs_once(stack, client, name):
    """G7, R-C2: the same receipt, marked as a duplicate; other content under the id is a conflict."""
    conversation_id = await client.create(name)
    first = await client.say(conversation_id, "say once", f"m{name}")
    again = await client.say(conversation_id, "say once", f"m{name}")
    await client.run_end(first["run_id"])
    assert again["run_id"] == first["run_id"]
    assert again["duplicate"] is True
    other = await client.request(
        "message.send", conversation_id=conversation_id, client_message_id=f"m{name}", text="say twice"
    )
    assert other["type"] == "error"
    assert other["code"] == "conflict"
    assert other["details"]["receipt"]["run_id"] == first["run_id"]
    assert [m["role"] for m in await client.history(conversation_id)] == ["user", "assistant"]


@pytest.mark.parametrize(
    "text",
    ["/stop", "/etc/hosts what is it?", "/unknown a b", "restart gateway", "yes", "2", "!ls", "@file:/etc/hosts"],
)
async def test_what_is_typed_reaches_the_agent_as_it_is(stack, client, name, text):
    """B10: typed text is never a command."""
    conversation_id = await client.create(name)
    run = await client.exchange(conversation_id, text, f"m{name}")
    assert run["status"] == "completed"
    messages = await client.history(conversation_id)
    assert [m["role"] for m in messages] == ["user", "assistant"]
    assert messages[0]["text"] == text
    assert f'You wrote: "{text}"' in messages[1]["text"].replace("⁠", "")
