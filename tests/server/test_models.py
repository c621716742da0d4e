"""Models and reasoning effort: Hermes's offer, one conversation's choice, and what becomes of it (R-H1, R-H2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from pheby_protocol.client_state import ClientState, apply, shown
from pheby_protocol.codec import decode
from pheby_protocol.ids import ConversationId, MessageId
from pheby_protocol.messages.connection import AccessMode
from pheby_protocol.messages.message import Origin
from pheby_server import models
from pheby_server.handlers import HANDLERS
from pheby_server.ports import HandOver, Outcome, RunResult
from pheby_server.server import Server
from pheby_server.stores import StoreUnavailableError
from pheby_server.testing import FakeClock, ManualHermes, MemoryTransport, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)
M1, M2 = {"provider": "p", "model": "m1"}, {"provider": "p", "model": "m2"}


class Rig:
    def __init__(self, server: Server, hermes: ManualHermes, client: MemoryTransport, clock: FakeClock) -> None:
        self.server, self.hermes, self.client, self.clock = server, hermes, client, clock
        self.name = ConversationId("")

    async def create(self, client_id: str = "c1") -> ConversationId:
        made = await self.client.request("conversation.create", client_conversation_id=client_id)
        return ConversationId(made["conversation"]["conversation_id"])

    async def ask(self, type_: str, **fields: Any) -> dict[str, Any]:
        return await self.client.request(type_, **{"conversation_id": self.name} | fields)

    async def select(self, model: str, **fields: Any) -> dict[str, Any]:
        return await self.ask("model.select", **{"provider": "p", "model": model} | fields)

    async def effort(self, effort: str) -> dict[str, Any]:
        return await self.ask("reasoning.select", effort=effort)

    async def send(self, name: str = "m-1") -> dict[str, Any]:
        return await self.ask("message.send", client_message_id=name, text="hello")

    def start(self, message: HandOver) -> None:
        self.server.events.run_started(message.conversation_id, message.message_id, Origin.CHAT)

    def end(self) -> None:
        self.server.events.run_ended(self.name, DONE)

    async def exchange(self, name: str) -> MessageId:
        """A send from its admission to the end of its run; the message that Hermes got."""
        await self.send(name)
        message = await self.hermes.handed_over.get()
        self.start(message)
        self.end()
        await self.client.until("run.ended")
        return message.message_id

    async def quiet(self) -> None:
        """Whatever could go on has gone on."""
        for _ in range(20):
            await self.server.events.settled()
            await self.client.request("ping")

    async def changes(self) -> list[tuple[str, Any]]:
        """Every change of model and effort that the client was told of."""
        await self.server.events.settled()
        await self.client.request("ping")
        told = [frame for frame in self.client.seen if frame["type"] in ("model.changed", "reasoning.changed")]
        return [(frame["type"].partition(".")[0], frame["current"]) for frame in told]

    async def conversation(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.ask("conversation.get"))["conversation"]
        return found

    async def chosen(self) -> tuple[Any, Any]:
        found = await self.conversation()
        return found.get("model"), found.get("reasoning_effort")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    hermes, clock = ManualHermes(), FakeClock()
    async with running_server(str(tmp_path), hermes, clock=clock) as server:
        client = MemoryTransport(server)
        await client.hello()
        rig = Rig(server, hermes, client, clock)
        rig.name = await rig.create()
        yield rig


# Lists


async def test_models_as_hermes_offers_them(rig: Rig) -> None:
    """R-H1: providers, models, and the one in use; nothing is said of what was not chosen."""
    answer = await rig.ask("model.list")
    assert answer["type"] == "model.list.result"
    assert [(entry["provider"], [model["model"] for model in entry["models"]]) for entry in answer["providers"]] == [
        ("p", ["m1", "m2"])
    ]
    assert answer["current"] == M1
    assert await rig.chosen() == (None, None)
    assert await rig.changes() == []


async def test_efforts_as_hermes_offers_them(rig: Rig) -> None:
    """R-H2: what Hermes does not say per model is not known."""
    answer = await rig.ask("reasoning.list")
    assert (answer["efforts"], answer["current"], answer["known"]) == (["low", "medium", "high"], "medium", False)


@pytest.mark.parametrize("list_type", ["model.list", "reasoning.list"])
async def test_a_list_is_asked_for_anew_when_it_is_old(rig: Rig, list_type: str) -> None:
    await rig.ask(list_type)
    await rig.ask(list_type)
    assert rig.hermes.asked_for == 1
    rig.clock.move(models.FRESH_SECONDS + 1)
    rig.hermes.offered = ("m1", "m2", "m3")
    answer = await rig.ask(list_type)
    assert rig.hermes.asked_for == 2
    if list_type == "model.list":
        assert len(answer["providers"][0]["models"]) == 3


@pytest.mark.parametrize("list_type", ["model.list", "reasoning.list"])
async def test_while_a_run_is_active_a_list_is_the_last_one(rig: Rig, list_type: str) -> None:
    """R-H1: no command meets a turn."""
    await rig.send()
    rig.start(await rig.hermes.handed_over.get())
    refused = await rig.ask(list_type)
    assert (refused["code"], refused["details"]["conversation_id"]) == ("busy", rig.name)
    rig.end()
    known = await rig.ask(list_type)
    await rig.send("m-2")
    rig.start(await rig.hermes.handed_over.get())
    rig.clock.move(models.FRESH_SECONDS + 1)
    asked_for = rig.hermes.asked_for
    again = await rig.ask(list_type)
    assert {**again, "id": None} == {**known, "id": None}
    assert rig.hermes.asked_for == asked_for


async def test_a_list_while_hermes_is_not_there(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.hermes.refuses_pickers = True
    assert (await rig.ask("model.list"))["code"] == "unavailable"
    rig.hermes.refuses_pickers = False
    monkeypatch.setattr(models, "READY_SECONDS", 0.01)
    rig.hermes.is_ready.clear()
    assert (await rig.ask("model.list"))["code"] == "unavailable"
    rig.hermes.is_ready.set()
    assert (await rig.ask("model.list"))["type"] == "model.list.result"


async def test_only_so_many_lists_are_remembered(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "REMEMBERED", 1)
    other = await rig.create("c2")
    await rig.ask("model.list")
    await rig.ask("model.list", conversation_id=other)
    await rig.ask("model.list")
    assert rig.hermes.asked_for == 3


# Choices


async def test_a_choice_is_hermess_ours_and_everybodys(rig: Rig) -> None:
    """R-H1, R-H2: chosen through Hermes, read back, stored, and told before the answer."""
    assert (await rig.select("m2"))["current"] == M2
    assert (await rig.effort("high"))["current"] == "high"
    assert rig.hermes.models_in_use[rig.name] == "m2"
    assert rig.hermes.efforts_in_use[rig.name] == "high"
    assert await rig.chosen() == (M2, "high")
    assert await rig.changes() == [("model", M2), ("reasoning", "high")]
    types = [frame["type"] for frame in rig.client.seen]
    assert types.index("model.changed") < types.index("model.select.result")
    assert (await rig.ask("model.list"))["current"] == M2
    assert (await rig.ask("reasoning.list"))["current"] == "high"


async def test_events_add_up_to_the_object(rig: Rig) -> None:
    """R-J1: a client that applies the events has what it would be given."""
    await rig.select("m2")
    await rig.effort("low")
    found = await rig.conversation()
    state = ClientState()
    for frame in rig.client.seen:
        state = apply(state, decode(json.dumps(frame)))
    assert shown(state)["conversations"][rig.name] == found


async def test_only_that_conversation_changes(rig: Rig) -> None:
    """I3: a choice is one conversation's."""
    other = await rig.create("c2")
    await rig.select("m2")
    await rig.effort("high")
    assert (await rig.ask("model.list", conversation_id=other))["current"] == M1
    assert (await rig.ask("reasoning.list", conversation_id=other))["current"] == "medium"
    found = (await rig.ask("conversation.get", conversation_id=other))["conversation"]
    assert "model" not in found
    assert "reasoning_effort" not in found


async def test_the_same_choice_again_changes_nothing(rig: Rig) -> None:
    """R-H1: safe to repeat, and no event repeats it."""
    for _ in range(2):
        assert (await rig.select("m2"))["type"] == "model.select.result"
        assert (await rig.effort("high"))["type"] == "reasoning.select.result"
    assert rig.hermes.chosen == ["m2", "high"]
    assert len(await rig.changes()) == 2


async def test_the_default_can_be_chosen(rig: Rig) -> None:
    """R-H1: what is in use already is not chosen again in Hermes, and is the owner's choice from now on."""
    assert (await rig.select("m1"))["current"] == M1
    assert rig.hermes.chosen == []
    assert await rig.chosen() == (M1, None)
    # An effort that Hermes does by itself may be none at all.
    await rig.effort("medium")
    assert rig.hermes.chosen == ["medium"]


@pytest.mark.parametrize(("provider", "model"), [("p", "nope"), ("nope", "m2"), ("p", ""), ("", "m2")])
async def test_a_model_that_is_not_offered(rig: Rig, provider: str, model: str) -> None:
    """R-H1: Hermes would take any name."""
    refused = await rig.select(model, provider=provider)
    assert refused["code"] == "invalid_model"
    assert rig.hermes.chosen == []
    assert await rig.chosen() == (None, None)


@pytest.mark.parametrize("effort", ["bogus", "", "show", "reset", "HIGH"])
async def test_an_effort_that_is_not_offered(rig: Rig, effort: str) -> None:
    """I4: refused, with what there is."""
    refused = await rig.effort(effort)
    assert (refused["code"], refused["details"]["efforts"]) == ("invalid_effort", ["low", "medium", "high"])
    assert rig.hermes.chosen == []
    assert await rig.chosen() == (None, None)


async def test_a_choice_during_a_run_is_refused(rig: Rig) -> None:
    """I5: the running turn and the one that waits keep what they began with; after them it is free again."""
    await rig.send()
    rig.start(await rig.hermes.handed_over.get())
    for answer in (await rig.select("m2"), await rig.effort("high")):
        assert (answer["code"], answer["details"]["conversation_id"]) == ("busy", rig.name)
    assert rig.hermes.chosen == []
    rig.end()
    assert (await rig.select("m2"))["current"] == M2


async def test_a_send_that_comes_meanwhile_waits(rig: Rig) -> None:
    """I5: no command of ours meets a turn; the message follows the choice, and is not called queued for it."""
    rig.hermes.answers_pickers.clear()
    choosing = asyncio.create_task(
        rig.server.models.select_model(rig.name, models.ModelChoice(provider="p", model="m2"))
    )
    while not rig.hermes.asked_for:
        await asyncio.sleep(0)
    receipt = (await rig.send())["receipt"]
    assert (receipt["disposition"], receipt["state"]) == ("started", "admitted")
    queued = (await rig.send("m-2"))["receipt"]
    assert queued["disposition"] == "queued"
    assert (await rig.effort("high"))["code"] == "busy"
    await rig.quiet()
    assert rig.hermes.handed_over.empty()
    rig.hermes.answers_pickers.set()
    await choosing
    message = await rig.hermes.handed_over.get()
    assert message.message_id == receipt["message_id"]
    assert rig.hermes.models_in_use[rig.name] == "m2"


async def test_a_send_right_behind_a_choice(rig: Rig) -> None:
    """I5: requests of one connection start in their order, so that the message follows the choice."""
    rig.client.send({"type": "model.select", "id": "x", "conversation_id": rig.name, "provider": "p", "model": "m2"})
    await rig.send()
    message = await rig.hermes.handed_over.get()
    assert rig.hermes.models_in_use[rig.name] == "m2"
    assert message.text == "hello"


async def test_a_client_that_goes_away_leaves_nothing_half_done(rig: Rig) -> None:
    rig.hermes.answers_pickers.clear()
    fields = {"conversation_id": rig.name, "provider": "p", "model": "m2"}
    rig.client.send({"type": "model.select", "id": "x", **fields})
    while not rig.hermes.asked_for:
        await asyncio.sleep(0)
    rig.client.cut()
    rig.client = MemoryTransport(rig.server)
    await rig.client.hello(device_id="other")
    rig.hermes.answers_pickers.set()
    await rig.client.until("model.changed", current=M2)
    assert await rig.chosen() == (M2, None)
    await rig.exchange("m-1")


async def test_two_who_choose_at_once_take_turns(rig: Rig) -> None:
    answers = await asyncio.gather(
        rig.server.models.select_model(rig.name, models.ModelChoice(provider="p", model="m2")),
        rig.server.models.select_effort(rig.name, "high"),
        rig.server.models.models(rig.name),
        rig.server.models.select_model(rig.name, models.ModelChoice(provider="p", model="m1")),
    )
    assert answers[0].model == "m2"
    assert rig.hermes.models_in_use[rig.name] == "m1"
    assert await rig.chosen() == (M1, "high")


async def test_a_choice_that_hermes_does_not_take(rig: Rig) -> None:
    """I1: an error to the client, and everything stays as it was."""
    rig.hermes.takes_choices = False
    for answer in (await rig.select("m2"), await rig.effort("high")):
        assert (answer["code"], answer["retryable"]) == ("unavailable", False)
    assert await rig.chosen() == (None, None)
    assert await rig.changes() == []
    assert (await rig.ask("model.list"))["current"] == M1


async def test_a_choice_that_becomes_another_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """I1: what Hermes made of it is taken back."""
    real = rig.hermes.select_model

    async def other(conversation_id: ConversationId, provider: str, model: str) -> None:
        await real(conversation_id, provider, "m3" if model == "m2" else model)

    monkeypatch.setattr(rig.hermes, "select_model", other)
    assert (await rig.select("m2"))["code"] == "unavailable"
    assert rig.hermes.chosen == ["m3", "m1"]
    assert (await rig.ask("model.list"))["current"] == M1


@pytest.mark.parametrize("what", ["model", "effort"])
async def test_a_choice_that_cannot_be_stored_was_not_made(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """I1: the store cannot be written: an error, Hermes has the old one again, and so has everybody."""
    await rig.select("m1")
    await rig.effort("low")
    real, full = rig.server._store.transact, True

    async def refuse(*given: Any, **options: Any) -> Any:
        if full:
            raise StoreUnavailableError("full")
        return await real(*given, **options)

    monkeypatch.setattr(rig.server._store, "transact", refuse)
    answer = await (rig.select("m2") if what == "model" else rig.effort("high"))
    assert answer["code"] == "unavailable"
    full = False
    assert await rig.chosen() == (M1, "low")
    assert rig.hermes.models_in_use.get(rig.name, "m1") == "m1"
    assert rig.hermes.efforts_in_use[rig.name] == "low"
    state = ClientState()
    await rig.changes()
    for frame in rig.client.seen:
        state = apply(state, decode(json.dumps(frame)))
    assert shown(state)["conversations"][rig.name] == await rig.conversation()


async def test_hermes_fails_in_the_middle(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is told, and the conversation goes on."""

    async def fail(*_: Any) -> None:
        raise RuntimeError("secret words")

    with monkeypatch.context() as patch:
        patch.setattr(rig.hermes, "select_model", fail)
        answer = await rig.select("m2")
    assert answer["code"] == "internal"
    assert "secret" not in str(answer)
    await rig.exchange("m-1")
    assert await rig.chosen() == (None, None)


# What a model does to the effort


async def test_a_chosen_effort_stays_with_another_model(rig: Rig) -> None:
    """R-H2: a model switch keeps the effort."""
    await rig.effort("low")
    rig.hermes.effort_of_model["m2"] = "high"
    await rig.select("m2")
    assert rig.hermes.efforts_in_use[rig.name] == "low"
    assert await rig.chosen() == (M2, "low")
    assert await rig.changes() == [("reasoning", "low"), ("model", M2)]


async def test_an_effort_that_changes_with_the_model_is_told(rig: Rig) -> None:
    """R-H2: or announces the change."""
    rig.hermes.effort_of_model["m2"] = "high"
    await rig.select("m2")
    assert await rig.changes() == [("model", M2), ("reasoning", "high")]
    assert await rig.chosen() == (M2, "high")


async def test_an_effort_that_cannot_be_kept_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-H2: what holds is what is said."""
    await rig.effort("low")
    rig.hermes.effort_of_model["m2"] = "high"

    async def refuse(*_: Any) -> None:
        rig.hermes.chosen.append("refused")

    monkeypatch.setattr(rig.hermes, "select_effort", refuse)
    await rig.select("m2")
    assert rig.hermes.chosen[-1] == "refused"
    assert await rig.chosen() == (M2, "high")


async def test_a_hermes_without_efforts(rig: Rig) -> None:
    """R-H2: the model can still be chosen."""
    rig.hermes.features = attrs.evolve(rig.hermes.features, reasoning=False)
    assert (await rig.select("m2"))["current"] == M2
    refused = await rig.effort("high")
    assert (refused["code"], refused["retryable"]) == ("unavailable", False)
    assert (await rig.ask("reasoning.list"))["retryable"] is False


async def test_a_hermes_without_pickers(tmp_path: Path) -> None:
    """R-H1: said in welcome, and refused for good."""
    hermes = ManualHermes()
    hermes.features = attrs.evolve(hermes.features, models=False, reasoning=False)
    async with running_server(str(tmp_path), hermes) as server:
        client = MemoryTransport(server)
        welcome = await client.hello()
        assert welcome["capabilities"]["models"] is False
        assert welcome["capabilities"]["reasoning"] is False
        made = await client.request("conversation.create", client_conversation_id="c1")
        name = made["conversation"]["conversation_id"]
        for type_, fields in (
            ("model.list", {}),
            ("model.select", {"provider": "p", "model": "m1"}),
            ("reasoning.list", {}),
            ("reasoning.select", {"effort": "low"}),
        ):
            answer = await client.request(type_, conversation_id=name, **fields)
            assert (answer["code"], answer["retryable"]) == ("unavailable", False)


async def test_the_capabilities_are_told(rig: Rig) -> None:
    welcome = next(frame for frame in rig.client.seen if frame["type"] == "welcome")
    assert welcome["capabilities"]["models"] is True
    assert welcome["capabilities"]["reasoning"] is True


# Who may


@pytest.mark.parametrize(
    ("type_", "access"),
    [
        ("model.list", AccessMode.READ_ONLY),
        ("model.select", AccessMode.FULL),
        ("reasoning.list", AccessMode.READ_ONLY),
        ("reasoning.select", AccessMode.FULL),
    ],
)
async def test_who_may(rig: Rig, type_: str, access: AccessMode) -> None:
    (handler,) = [handler for cls, handler in HANDLERS.items() if cls.type == type_]
    assert handler.access is access
    for mode in (AccessMode.READ_ONLY, AccessMode.MANAGE):
        client = MemoryTransport(rig.server, mode)
        await client.hello(device_id=mode.value)
        fields = {"provider": "p", "model": "m2", "effort": "high"} if access is AccessMode.FULL else {}
        answer = await client.request(type_, conversation_id=rig.name, **fields)
        assert (answer.get("code") == "forbidden") is (access is AccessMode.FULL)
        client.cut()


@pytest.mark.parametrize("gone", ["conv_unknown", "deleted"])
async def test_of_nothing_nothing(rig: Rig, gone: str) -> None:
    if gone == "deleted":
        gone = await rig.create("c2")
        await rig.ask("model.list", conversation_id=gone)
        await rig.ask("conversation.delete", conversation_id=gone)
    for type_, fields in (
        ("model.list", {}),
        ("model.select", {"provider": "p", "model": "m2"}),
        ("reasoning.list", {}),
        ("reasoning.select", {"effort": "low"}),
    ):
        assert (await rig.ask(type_, conversation_id=gone, **fields))["code"] == "not_found"


async def test_a_conversation_that_is_deleted_meanwhile(rig: Rig) -> None:
    """R-B4: the deletion waits for the choice's end, and nothing of the conversation follows it."""
    rig.hermes.answers_pickers.clear()
    choosing = asyncio.create_task(rig.server.models.models(rig.name))
    while not rig.hermes.asked_for:
        await asyncio.sleep(0)
    deleting = asyncio.create_task(rig.server.deletions.delete(rig.name))
    await rig.quiet()
    assert not deleting.done()
    rig.hermes.answers_pickers.set()
    await asyncio.wait([choosing, deleting])
    assert deleting.exception() is None
    await rig.client.until("conversation.deleted")
    assert await rig.changes() == []


# What Hermes forgets


async def restarted(tmp_path: Path, hermes: ManualHermes, work: Callable[[Rig], Any], name: str = "") -> Rig:
    async with running_server(str(tmp_path), hermes, clock=FakeClock()) as server:
        client = MemoryTransport(server)
        await client.hello()
        rig = Rig(server, hermes, client, FakeClock())
        rig.name = ConversationId(name) if name else await rig.create()
        await work(rig)
    return rig


async def test_choices_hold_after_a_restart(tmp_path: Path) -> None:
    """I1: Hermes has forgotten them; they are chosen again before the next message, once."""
    hermes = ManualHermes()

    async def choose(rig: Rig) -> None:
        await rig.select("m2")
        await rig.effort("high")

    rig = await restarted(tmp_path, hermes, choose)
    hermes.models_in_use.clear()
    hermes.efforts_in_use.clear()
    hermes.chosen.clear()

    async def go_on(rig: Rig) -> None:
        await rig.send("m-1")
        message = await hermes.handed_over.get()
        assert hermes.models_in_use[rig.name] == "m2"
        assert hermes.efforts_in_use[rig.name] == "high"
        rig.start(message)
        rig.end()
        await rig.exchange("m-2")
        assert hermes.chosen == ["high", "m2"]
        assert await rig.chosen() == (M2, "high")
        assert await rig.changes() == []

    await restarted(tmp_path, hermes, go_on, rig.name)


@pytest.mark.parametrize("list_type", ["model.list", "reasoning.list"])
async def test_a_list_after_a_restart_shows_what_was_chosen(tmp_path: Path, list_type: str) -> None:
    """I1: and not what Hermes would do by itself."""
    hermes = ManualHermes()

    async def choose(rig: Rig) -> None:
        await rig.select("m2")
        await rig.effort("high")

    rig = await restarted(tmp_path, hermes, choose)
    hermes.models_in_use.clear()
    hermes.efforts_in_use.clear()

    async def look(rig: Rig) -> None:
        assert (await rig.ask(list_type))["current"] == (M2 if list_type == "model.list" else "high")

    await restarted(tmp_path, hermes, look, rig.name)


async def test_where_nothing_was_chosen_hermes_is_not_asked(rig: Rig) -> None:
    await rig.exchange("m-1")
    assert rig.hermes.asked_for == 0


async def test_choices_hold_after_a_reset(rig: Rig) -> None:
    """I1: Hermes began anew in that conversation: from the next message on they hold again."""
    await rig.select("m2")
    await rig.effort("high")
    rig.hermes.models_in_use.clear()
    rig.hermes.efforts_in_use.clear()
    rig.server.events.began_anew(rig.name)
    await rig.exchange("m-1")
    assert rig.hermes.models_in_use[rig.name] == "m2"
    assert rig.hermes.efforts_in_use[rig.name] == "high"


async def test_what_cannot_be_had_any_more_is_told(rig: Rig) -> None:
    """I1, R-H2: the message goes with what holds, and that is what is said."""
    await rig.select("m2")
    await rig.effort("high")
    rig.hermes.models_in_use.clear()
    rig.hermes.efforts_in_use.clear()
    rig.hermes.takes_choices = False
    rig.server.events.began_anew(rig.name)
    await rig.exchange("m-1")
    assert (await rig.changes())[2:] == [("model", M1), ("reasoning", "medium")]
    assert await rig.chosen() == (M1, "medium")


async def test_a_message_does_not_wait_for_a_picker_that_does_not_open(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-C1: the message goes first; the choice is kept, and tried again before the next one."""
    await rig.select("m2")
    rig.hermes.models_in_use.clear()
    rig.server.events.began_anew(rig.name)
    rig.hermes.refuses_pickers = True
    await rig.exchange("m-1")
    rig.hermes.refuses_pickers = False
    rig.hermes.answers_pickers.clear()
    monkeypatch.setattr(models, "PREPARE_SECONDS", 0.01)
    await rig.exchange("m-2")
    assert await rig.chosen() == (M2, None)
    assert rig.hermes.models_in_use == {}
    # Where one has waited for nothing, the next ones do not.
    rig.hermes.answers_pickers.set()
    monkeypatch.setattr(models, "PREPARE_SECONDS", 10.0)
    asked_for = rig.hermes.asked_for
    for number in range(3):
        await rig.exchange(f"m-3-{number}")
    assert rig.hermes.asked_for == asked_for
    rig.clock.move(models.RETRY_SECONDS)
    await rig.exchange("m-4")
    assert rig.hermes.models_in_use[rig.name] == "m2"


async def test_a_message_that_is_cancelled_meanwhile_is_not_handed_over(rig: Rig) -> None:
    """R-C3: Hermes never sees it."""
    await rig.select("m2")
    rig.server.events.began_anew(rig.name)
    rig.hermes.answers_pickers.clear()
    asked_for = rig.hermes.asked_for
    receipt = (await rig.send())["receipt"]
    while rig.hermes.asked_for == asked_for:
        await asyncio.sleep(0)
    cancelled = await rig.ask("run.cancel", run_id=receipt["run_id"])
    assert cancelled["run"]["status"] == "cancelled"
    rig.hermes.answers_pickers.set()
    assert await rig.exchange("m-2") != receipt["message_id"]
    assert rig.hermes.handed_over.empty()
