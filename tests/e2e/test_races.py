"""Two devices answer at the same moment: one decision, and the other hears whose it was (R-E2, D9)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from plain_client import PlainClient

pytestmark = pytest.mark.asyncio(loop_scope="session")

RACES = 20


async def test_two_devices_race_for_the_same_prompt(stack, client, name, tmp_path):
    """Once one says yes and the other no, once both ask for different answers of a question."""
    if stack.hermes_defaults:
        return  # settings of the display change nothing about it
    async with PlainClient(client.url, stack.secret, "second-device") as second:
        await second.hello()
        conversation_id = await client.create(name)
        for number in range(RACES // 2):
            await _approval_race(stack, client, second, conversation_id, tmp_path / str(number), f"a{number}-{name}")
            await _question_race(client, second, conversation_id, f"q{number}-{name}")


async def _approval_race(
    stack, client: PlainClient, second: PlainClient, conversation_id: str, folder: Path, name: str
) -> None:
    folder.mkdir()
    receipt = await client.say(conversation_id, f"danger {folder}", name)
    approval = (await client.until("approval.requested", conversation_id=conversation_id))["approval"]
    await second.until("approval.requested", conversation_id=conversation_id)
    answers = await asyncio.gather(
        client.request("approval.respond", approval_id=approval["approval_id"], choice="once"),
        second.request("approval.respond", approval_id=approval["approval_id"], choice="deny"),
    )
    (won,) = [answer["approval"] for answer in answers if answer["type"] == "approval.respond.result"]
    (lost,) = [answer for answer in answers if answer["type"] == "error"]
    assert lost["code"] == "already_resolved"
    assert lost["details"]["approval"]["decided_by"] == won["decided_by"]
    await client.run_end(receipt["run_id"])
    if stack.hermes_version != "simulated":
        assert folder.exists() is (won["decision"] == "deny")
    resolved = [e["approval"] for e in client.of(conversation_id) if e["type"] == "approval.resolved"]
    assert [over["decision"] for over in resolved if over["approval_id"] == approval["approval_id"]] == [
        won["decision"]
    ]


async def _question_race(client: PlainClient, second: PlainClient, conversation_id: str, name: str) -> None:
    receipt = await client.say(conversation_id, "ask Which colour?|red|green", name)
    asked = (await client.until("clarification.requested", conversation_id=conversation_id))["clarification"]
    await second.until("clarification.requested", conversation_id=conversation_id)
    ids = [choice["choice_id"] for choice in asked["choices"]]
    fields = {"clarification_id": asked["clarification_id"]}
    answers = await asyncio.gather(
        client.request("clarification.respond", choice_ids=ids[:1], **fields),
        second.request("clarification.respond", choice_ids=ids[1:], **fields),
    )
    (won,) = [answer["clarification"] for answer in answers if answer["type"] == "clarification.respond.result"]
    (lost,) = [answer for answer in answers if answer["type"] == "error"]
    assert lost["code"] == "already_resolved"
    assert lost["details"]["clarification"]["answered_by"] == won["answered_by"]
    await client.run_end(receipt["run_id"])
    chosen = next(choice["label"] for choice in asked["choices"] if choice["choice_id"] in won["answer"]["choice_ids"])
    said = [message["text"] for message in await client.history(conversation_id) if message["role"] == "assistant"]
    words = said[-1].partition("user_response")[2] or said[-1]
    assert chosen in words
    assert {"red": "green", "green": "red"}[chosen] not in words
