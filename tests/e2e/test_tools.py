"""Tools on real gateways: started and ended once, in their place, redacted."""

from __future__ import annotations

import json

import pytest
from plain_client import PlainClient, settle

from pheby.demo.scripts import CANARY

pytestmark = pytest.mark.asyncio(loop_scope="session")


def calls(client: PlainClient, conversation_id: str, type_: str) -> list[dict]:
    return [event["tool_call"] for event in client.of(conversation_id) if event["type"] == type_]


async def test_a_tool_begins_and_ends_between_the_texts(stack, client, name):
    """R-D1: structured, beside the text; text, tool, text, live and in history."""
    conversation_id = await client.create(name)
    run = await client.exchange(conversation_id, "run echo hello", f"m-{name}")
    assert run["status"] == "completed"
    await settle(client)
    (started,) = calls(client, conversation_id, "tool.started")
    (ended,) = calls(client, conversation_id, "tool.completed")
    assert started["tool_call_id"] == ended["tool_call_id"]
    assert (started["name"], started["arguments"]["command"]) == ("terminal", "echo hello")
    assert started["run_id"] == run["run_id"]
    assert started["description"] == "echo hello"
    assert ended["status"] == "completed"
    if stack.hermes_version != "simulated":
        assert "hello" in ended["result_preview"]
        assert ended["duration_ms"] >= 0
    answer = await client.request("conversation.history", conversation_id=conversation_id)
    items = sorted(answer["messages"] + answer["tool_calls"], key=lambda item: item["position"])
    kinds = ["tool" if "tool_call_id" in item else item["role"] for item in items]
    assert sorted(kinds) == ["assistant", "assistant", "tool", "user"]
    assert kinds[0] == "user"
    assert kinds[-1] == "assistant"
    assert answer["tool_calls"] == [ended]


async def test_two_tools_of_one_answer_are_two_calls(stack, client, name):
    """F3."""
    conversation_id = await client.create(name)
    assert (await client.exchange(conversation_id, "tools", f"m-{name}"))["status"] == "completed"
    started = calls(client, conversation_id, "tool.started")
    ended = calls(client, conversation_id, "tool.completed")
    assert [call["name"] for call in started] == ["read_file", "read_file"] or stack.hermes_version == "simulated"
    assert {call["tool_call_id"] for call in started} == {call["tool_call_id"] for call in ended}
    assert len(started) == len(ended) == 2
    types = [event["type"] for event in client.of(conversation_id)]
    assert max(n for n, t in enumerate(types) if t == "tool.completed") < types.index("run.ended")


async def test_no_secret_of_a_tool_is_in_any_frame(stack, client, name):
    """R-D3, F4: the server's own secret neither in the arguments nor in the result."""
    if stack.hermes_version == "simulated":
        return  # what stands at the port is redacted already
    conversation_id = await client.create(name)
    await client.exchange(conversation_id, f"run echo key={stack.secret}", f"m-{name}")
    await settle(client)
    shown = [event for event in client.of(conversation_id) if event["type"].startswith("tool.")]
    assert len(shown) == 2
    assert stack.secret not in repr(shown)


async def test_a_key_in_a_tool_call_is_nowhere(stack, client, name):
    """R-D3, F4: in arguments, results, errors and commands; in no frame, file or log line, live or read back."""
    if stack.hermes_version == "simulated":
        return  # what stands at the port is redacted already
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, "leak", f"m-{name}")
    approval = (await client.until("approval.requested", conversation_id=conversation_id))["approval"]
    assert "password=" in approval["command"]
    await client.request("approval.respond", approval_id=approval["approval_id"], choice="once")
    assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
    assert len(calls(client, conversation_id, "tool.completed")) == 5
    await client.request("conversation.history", conversation_id=conversation_id)
    await settle(client)
    assert CANARY not in json.dumps(client.frames)
    await stack.restart()
    async with PlainClient(stack.url, stack.secret) as back:
        await back.hello()
        history = await back.request("conversation.history", conversation_id=conversation_id)
        assert len(history["tool_calls"]) == 5
        assert CANARY not in json.dumps(back.frames)
    files = [file for file in (stack.home / "pheby").rglob("*") if file.is_file()]
    assert files
    assert [file.name for file in files if CANARY.encode() in file.read_bytes()] == []
    logs = [stack.gateway.log, *(stack.home / "logs").glob("*.log")]
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines() if "pheby" in line.lower()]
    assert lines
    assert [line for line in lines if CANARY in line] == []


async def test_a_tool_that_a_cancel_cut_off_ends_with_its_run(stack, client, name):
    """F1."""
    if stack.hermes_version == "simulated":
        return  # its tools take no time
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, "run sleep 30", f"m-{name}")
    await client.until("tool.started", conversation_id=conversation_id)
    await client.request("run.cancel", run_id=receipt["run_id"])
    assert (await client.run_end(receipt["run_id"]))["status"] == "cancelled"
    (ended,) = calls(client, conversation_id, "tool.completed")
    assert ended["status"] in ("cancelled", "failed", "completed")
    types = [event["type"] for event in client.of(conversation_id)]
    assert types.index("tool.completed") < types.index("run.ended")
    await settle(client, 2.0)
    assert len(calls(client, conversation_id, "tool.completed")) == 1
