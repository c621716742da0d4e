"""Words for a run on its way: into it, or queued, and the receipt says which (R-C2, R-C5)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.message import Origin
from pheby_server.ports import ClarificationPrompt, Outcome, RunResult, ToolResult, ToolStart
from pheby_server.server import Server
from pheby_server.stores import StoreUnavailableError
from pheby_server.testing import ManualHermes, MemoryTransport, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)


class Rig:
    def __init__(self, server: Server, hermes: ManualHermes, client: MemoryTransport, name: ConversationId) -> None:
        self.server, self.hermes, self.client, self.name = server, hermes, client, name
        self.events = server.events

    def tool(self, call_id: str = "c1") -> None:
        tool = ToolStart(call_id=call_id, name="t", description=None, arguments={}, arguments_truncated=False)
        self.events.tool_started(self.name, tool)

    async def steer(self, name: str = "s1") -> dict[str, Any]:
        return await self.client.request(
            "message.send", conversation_id=self.name, client_message_id=name, text="words", if_busy="steer"
        )

    async def receipt(self, name: str = "s1") -> dict[str, Any]:
        return (await self.client.request("message.receipt", client_message_id=name))["receipt"]

    async def messages(self) -> list[tuple[str, str]]:
        page = await self.client.request("conversation.history", conversation_id=self.name)
        return [(message["text"], message["delivery"]) for message in page["messages"] if message["role"] == "user"]


async def rigged(server: Server, hermes: ManualHermes) -> Rig:
    client = MemoryTransport(server)
    await client.hello()
    made = await client.request("conversation.create", client_conversation_id="c1")
    return Rig(server, hermes, client, ConversationId(made["conversation"]["conversation_id"]))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        made = await rigged(server, hermes)
        server.events.run_started(made.name, None, Origin.BACKGROUND)
        yield made


async def test_into_a_run_that_uses_a_tool(rig: Rig) -> None:
    (active,) = rig.server.runs.open_runs()
    rig.tool()
    receipt = (await rig.steer())["receipt"]
    assert (receipt["disposition"], receipt["state"], receipt["run_id"]) == ("steered", "dispatched", active.run_id)
    assert [given.text for given in rig.hermes.steered] == ["words"]
    assert rig.hermes.handed_over.empty()
    rig.events.run_ended(rig.name, DONE)
    await rig.events.settled()
    assert (await rig.receipt())["state"] == "done"
    assert await rig.messages() == [("words", "done")]


@pytest.mark.parametrize("why", ["no tool", "tool over", "asks", "cancelled", "others wait", "not offered"])
async def test_where_it_would_not_arrive_it_waits(rig: Rig, why: str) -> None:
    (active,) = rig.server.runs.open_runs()
    if why != "no tool":
        rig.tool()
    if why == "tool over":
        rig.events.tool_ended(rig.name, ToolResult(call_id="c1", outcome=Outcome.COMPLETED))
    if why == "asks":
        fields: dict[str, Any] = {"labels": (), "multiple": False, "free_text": True, "skippable": False}
        prompt = ClarificationPrompt(key="k", question="?", call_id=None, expires_at=None, **fields)
        rig.events.clarification_requested(rig.name, prompt)
    if why == "cancelled":
        await rig.client.request("run.cancel", run_id=active.run_id)
    if why == "others wait":
        await rig.client.request("message.send", conversation_id=rig.name, client_message_id="m0", text="first")
    if why == "not offered":
        rig.hermes.features = type(rig.hermes.features)(version="manual", streaming=True, cancel=True)
    receipt = (await rig.steer())["receipt"]
    assert (receipt["disposition"], receipt["state"]) == ("queued", "admitted")
    assert receipt["run_id"] != active.run_id
    assert rig.hermes.steered == []


async def test_what_hermes_does_not_take_runs_by_itself_afterwards(rig: Rig) -> None:
    (active,) = rig.server.runs.open_runs()
    rig.tool()
    rig.hermes.takes_steering = False
    receipt = (await rig.steer())["receipt"]
    assert receipt["disposition"] == "queued"
    assert receipt["run_id"] != active.run_id
    rig.events.run_ended(rig.name, DONE)
    taken = await rig.hermes.handed_over.get()
    assert (taken.text, taken.run_id) == ("words", receipt["run_id"])
    rig.events.run_started(rig.name, taken.message_id, Origin.CHAT)
    rig.events.run_ended(rig.name, DONE)
    await rig.events.settled()
    assert (await rig.receipt())["state"] == "done"
    assert await rig.messages() == [("words", "done")]


async def test_a_refused_admission_leaves_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.tool()
    await rig.events.settled()

    async def transact(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("full")

    with monkeypatch.context() as patched:
        patched.setattr(rig.server._store, "transact", transact)
        assert (await rig.steer())["code"] == "unavailable"
    assert rig.hermes.steered == []
    assert await rig.messages() == []
    assert (await rig.steer())["receipt"]["disposition"] == "steered"


async def test_again_is_the_same_and_other_words_are_a_conflict(rig: Rig) -> None:
    rig.tool()
    first = (await rig.steer())["receipt"]
    again = (await rig.steer())["receipt"]
    assert again == first | {"duplicate": True}
    other = await rig.client.request(
        "message.send", conversation_id=rig.name, client_message_id="s1", text="other", if_busy="steer"
    )
    assert other["code"] == "conflict"
    assert len(rig.hermes.steered) == 1


@pytest.mark.parametrize("given", [True, False])
async def test_after_a_crash_it_shares_the_runs_fate_or_gets_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """Given to Hermes: as its run. Admitted only: Hermes has never seen it, so it runs by itself."""
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        rig = await rigged(server, hermes)
        server.events.run_started(rig.name, None, Origin.BACKGROUND)
        rig.tool()
        if not given:
            # The process dies between the admission and the hand-over.
            async def dies(*_: Any) -> bool:
                raise ConnectionError

            monkeypatch.setattr(server.runs, "_take_in", dies)
        await rig.steer()
        await server.events.settled()
        rig.client.cut()
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        rig = await rigged(server, hermes)
        if given:
            assert (await rig.receipt())["state"] == "done"
            assert hermes.handed_over.empty()
            return
        taken = await hermes.handed_over.get()
        receipt = await rig.receipt()
        assert (taken.text, receipt["disposition"], receipt["run_id"]) == ("words", "queued", taken.run_id)
        assert (await rig.messages())[0][0] == "words"
