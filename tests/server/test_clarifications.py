"""Clarifications: an answer that fits reaches the question that it answers, once (R-F1, R-F2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.approval import DecisionSource
from pheby_protocol.messages.message import Origin
from pheby_server.clarifications import MAX_ANSWER_CHARS
from pheby_server.ports import ClarificationPrompt, Outcome, RunResult, ToolStart
from pheby_server.server import Server
from pheby_server.testing import ManualHermes, MemoryTransport, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)


class Rig:
    def __init__(self, server: Server, hermes: ManualHermes, client: MemoryTransport, name: ConversationId) -> None:
        self.server, self.hermes, self.client, self.name = server, hermes, client, name
        self.events = server.events

    async def ask(self, key: str = "k1", **changes: Any) -> dict[str, Any]:
        """Hermes asks; the clarification as the client has it."""
        fields: dict[str, Any] = {
            "question": "Which colour?",
            "labels": ("red", "green", "blue"),
            "multiple": False,
            "free_text": True,
            "skippable": True,
            "call_id": None,
            "expires_at": None,
        }
        self.events.clarification_requested(self.name, ClarificationPrompt(key=key, **fields | changes))
        return (await self.seen("clarification.requested"))[-1]["clarification"]

    async def respond(self, asked: dict[str, Any], *choice_ids: str, **fields: Any) -> dict[str, Any]:
        return await self.client.request(
            "clarification.respond",
            clarification_id=asked["clarification_id"],
            choice_ids=list(choice_ids),
            **fields,
        )

    async def seen(self, *types: str) -> list[dict[str, Any]]:
        await self.events.settled()
        await self.client.request("ping")
        return [frame for frame in self.client.seen if frame["type"] in types]

    async def open(self) -> list[dict[str, Any]]:
        """What the snapshot of a new connection names."""
        other = MemoryTransport(self.server)
        await other.hello(device_id="looker")
        parts = [frame for frame in other.seen if frame["type"] == "snapshot"]
        return [asked for part in parts for asked in part["clarifications"]]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client = MemoryTransport(server)
        await client.hello()
        made = await client.request("conversation.create", client_conversation_id="c1")
        name = ConversationId(made["conversation"]["conversation_id"])
        server.events.run_started(name, None, Origin.BACKGROUND)
        yield Rig(server, hermes, client, name)


async def test_a_question_has_what_the_contract_names(rig: Rig) -> None:
    call = ToolStart(call_id="call_1", name="clarify", description=None, arguments={}, arguments_truncated=False)
    rig.events.tool_started(rig.name, call)
    asked = await rig.ask(call_id="call_1", expires_at=9_000)
    (started,) = await rig.seen("tool.started")
    assert asked["tool_call_id"] == started["tool_call"]["tool_call_id"]
    assert asked["run_id"] == started["tool_call"]["run_id"]
    assert asked["position"] > started["tool_call"]["position"]
    assert [choice["label"] for choice in asked["choices"]] == ["red", "green", "blue"]
    assert len({choice["choice_id"] for choice in asked["choices"]}) == 3
    assert (asked["multiple"], asked["free_text"], asked["skippable"]) == (False, True, True)
    assert (asked["status"], asked["expires_at"]) == ("pending", 9_000)
    assert await rig.open() == [asked]
    runs = await rig.seen("run.started", "run.updated")
    assert [frame["run"]["status"] for frame in runs] == ["running", "waiting"]


async def test_an_answer_reaches_hermes_once_and_the_run_goes_on(rig: Rig) -> None:
    asked = await rig.ask()
    answer = await rig.respond(asked, asked["choices"][1]["choice_id"])
    answered = answer["clarification"]
    assert rig.hermes.clarified == [("k1", (1,), None, False)]
    assert answered["status"] == "resolved"
    assert answered["answer"] == {"choice_ids": [asked["choices"][1]["choice_id"]]}
    assert answered["answered_by"]["device_id"] == "device"
    (resolved,) = await rig.seen("clarification.resolved")
    assert resolved["clarification"] == answered
    assert (await rig.seen("run.updated"))[-1]["run"]["status"] == "running"
    assert await rig.open() == []
    again = await rig.respond(asked, asked["choices"][1]["choice_id"])
    assert again["clarification"] == answered
    other = await rig.respond(asked, asked["choices"][0]["choice_id"])
    assert (other["code"], other["details"]["clarification"]) == ("already_resolved", answered)
    assert len(rig.hermes.clarified) == 1
    history = await rig.client.request("conversation.history", conversation_id=rig.name)
    assert history["clarifications"] == [answered]


@pytest.mark.parametrize(
    ("changes", "choices", "fields", "told"),
    [
        ({}, [], {"text": " something else "}, ((), "something else", False)),
        ({}, [], {"skip": True}, ((), None, True)),
        ({"labels": ()}, [], {"text": "Paris"}, ((), "Paris", False)),
        ({"multiple": True}, [2, 0], {}, ((2, 0), None, False)),
        ({"multiple": True}, [0], {"text": "and pink"}, ((0,), "and pink", False)),
    ],
)
async def test_every_kind_of_answer(rig: Rig, changes: Any, choices: Any, fields: Any, told: Any) -> None:
    asked = await rig.ask(**changes)
    answer = await rig.respond(asked, *(asked["choices"][number]["choice_id"] for number in choices), **fields)
    assert answer["type"] == "clarification.respond.result", answer
    assert rig.hermes.clarified == [("k1", *told)]


@pytest.mark.parametrize(
    ("changes", "choices", "fields"),
    [
        ({}, [], {}),
        ({}, ["choice_9"], {}),
        ({}, ["choice_1", "choice_2"], {}),
        ({}, ["choice_1"], {"text": "and this"}),
        ({}, [], {"text": "   "}),
        ({"free_text": False}, [], {"text": "pink"}),
        ({"skippable": False}, [], {"skip": True}),
        ({}, ["choice_1"], {"skip": True}),
        ({"multiple": True}, ["choice_1", "choice_1"], {}),
        ({"multiple": True}, [], {}),
    ],
)
async def test_an_answer_that_does_not_fit_leaves_the_question_open(
    rig: Rig, changes: Any, choices: Any, fields: Any
) -> None:
    asked = await rig.ask(**changes)
    refused = await rig.respond(asked, *choices, **fields)
    assert refused["code"] == "invalid_choice"
    assert refused["details"]["choices"] == [choice["choice_id"] for choice in asked["choices"]]
    assert rig.hermes.clarified == []
    assert await rig.open() == [asked]


async def test_an_answer_has_a_bound(rig: Rig) -> None:
    asked = await rig.ask()
    refused = await rig.respond(asked, text="x" * (MAX_ANSWER_CHARS + 1))
    assert (refused["code"], refused["details"]["limit"]) == ("too_large", MAX_ANSWER_CHARS)
    assert await rig.open() == [asked]


@pytest.mark.parametrize(("by", "status"), [(DecisionSource.TIMEOUT, "expired"), (DecisionSource.RUN_END, "cancelled")])
async def test_hermess_word_that_it_is_over_counts(rig: Rig, by: DecisionSource, status: str) -> None:
    asked = await rig.ask()
    rig.events.clarification_closed(rig.name, "k1", by)
    (over,) = await rig.seen("clarification.resolved")
    assert (over["clarification"]["status"], over["clarification"]["answered_by"]) == (status, {"kind": by.value})
    late = await rig.respond(asked, "choice_1")
    assert (late["code"], late["details"]["clarification"]["status"]) == ("expired", status)
    rig.events.clarification_closed(rig.name, "k1", by)
    assert len(await rig.seen("clarification.resolved")) == 1


async def test_it_is_over_before_its_run(rig: Rig) -> None:
    await rig.ask()
    rig.events.run_ended(rig.name, DONE)
    kinds = [frame["type"] for frame in await rig.seen("clarification.resolved", "run.ended")]
    assert kinds == ["clarification.resolved", "run.ended"]


async def test_what_hermes_does_not_take_stays_open(rig: Rig) -> None:
    asked = await rig.ask()
    rig.hermes.resolves = False
    refused = await rig.respond(asked, "choice_1")
    assert (refused["code"], refused["details"]["clarification"]) == ("not_answerable", asked)
    assert await rig.open() == [asked]


async def test_an_unknown_one_is_expired(rig: Rig) -> None:
    refused = await rig.respond({"clarification_id": "clar_nothing"}, "choice_1")
    assert (refused["code"], refused.get("details")) == ("expired", None)


async def test_the_first_of_many_devices_wins(rig: Rig) -> None:
    """D9, for questions."""
    others = []
    for number in range(5):
        other = MemoryTransport(rig.server)
        await other.hello(device_id=f"device-{number}")
        others.append(other)
    asked = await rig.ask()
    answers = await asyncio.gather(
        *(
            other.request(
                "clarification.respond",
                clarification_id=asked["clarification_id"],
                choice_ids=[f"choice_{1 + number % 3}"],
            )
            for number, other in enumerate(others)
        )
    )
    won = [answer["clarification"] for answer in answers if answer["type"] == "clarification.respond.result"]
    lost = [answer for answer in answers if answer["type"] == "error"]
    assert len(won) == 1
    assert len(lost) == 4
    assert {answer["code"] for answer in lost} == {"already_resolved"}
    assert {answer["details"]["clarification"]["answered_by"]["device_id"] for answer in lost} == {
        won[0]["answered_by"]["device_id"]
    }
    assert len(rig.hermes.clarified) == 1


async def test_those_of_a_dead_process_are_dead(tmp_path: Path) -> None:
    """R-F2: Hermes has forgotten them."""
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client = MemoryTransport(server)
        await client.hello()
        made = await client.request("conversation.create", client_conversation_id="c1")
        name = ConversationId(made["conversation"]["conversation_id"])
        server.events.run_started(name, None, Origin.BACKGROUND)
        asked = await Rig(server, hermes, client, name).ask()
        await server.events.settled()
    async with running_server(str(tmp_path), hermes) as server:
        client = MemoryTransport(server)
        await client.hello()
        rig = Rig(server, hermes, client, name)
        assert await rig.open() == []
        late = await rig.respond(asked, "choice_1")
        assert (late["code"], late["details"]["clarification"]["status"]) == ("expired", "cancelled")
