"""Approvals: exactly the one that was tapped, once, by a choice that was offered (R-E1, R-E2, R-F2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.approval import ApprovalKind, DecisionSource
from pheby_protocol.messages.message import Origin
from pheby_server.approvals import MAX_REASON_CHARS
from pheby_server.ports import ApprovalPrompt, Outcome, RunResult, ToolStart
from pheby_server.server import Server
from pheby_server.simulated import Approve, Begin, End, Say, SimulatedHermes, Step
from pheby_server.system import SystemClock
from pheby_server.testing import ManualHermes, MemoryTransport, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)
OFFERED = ("once", "session", "always", "deny")


class Rig:
    def __init__(self, server: Server, hermes: ManualHermes, client: MemoryTransport, name: ConversationId) -> None:
        self.server, self.hermes, self.client, self.name = server, hermes, client, name
        self.events = server.events

    async def ask(self, key: str = "k1", **changes: Any) -> dict[str, Any]:
        """Hermes asks; the approval as the client has it."""
        fields: dict[str, Any] = {
            "kind": ApprovalKind.COMMAND,
            "description": "recursive delete",
            "command": "rm -rf a",
            "command_truncated": False,
            "pattern": "recursive delete",
            "choices": OFFERED,
            "call_id": None,
            "answerable": True,
            "expires_at": None,
        }
        self.events.approval_requested(self.name, ApprovalPrompt(key=key, **fields | changes))
        return (await self.seen("approval.requested"))[-1]["approval"]

    def close(self, key: str, decision: str | None, by: DecisionSource = DecisionSource.OTHER_SURFACE) -> None:
        self.events.approval_closed(self.name, key, decision, by)

    async def respond(self, approval: dict[str, Any], choice: str, **fields: Any) -> dict[str, Any]:
        return await self.client.request(
            "approval.respond", approval_id=approval["approval_id"], choice=choice, **fields
        )

    async def seen(self, *types: str) -> list[dict[str, Any]]:
        await self.events.settled()
        await self.client.request("ping")
        return [frame for frame in self.client.seen if frame["type"] in types]

    async def statuses(self) -> list[str]:
        return [frame["run"]["status"] for frame in await self.seen("run.started", "run.updated", "run.ended")]

    async def open(self) -> list[dict[str, Any]]:
        """What the snapshot of a new connection names."""
        other = MemoryTransport(self.server)
        await other.hello(device_id="looker")
        parts = [frame for frame in other.seen if frame["type"] == "snapshot"]
        return [approval for part in parts for approval in part["approvals"]]


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
    rig.events.tool_started(
        rig.name,
        ToolStart(
            call_id="call_1", name="terminal", description="", arguments={"command": "rm"}, arguments_truncated=False
        ),
    )
    approval = await rig.ask(call_id="call_1", expires_at=9_000)
    (started,) = await rig.seen("tool.started")
    assert approval["tool_call_id"] == started["tool_call"]["tool_call_id"]
    assert approval["position"] > started["tool_call"]["position"]
    assert approval["run_id"] == started["tool_call"]["run_id"]
    assert approval["conversation_id"] == rig.name
    assert (approval["kind"], approval["status"], approval["answerable"]) == ("command", "pending", True)
    assert (approval["command"], approval["pattern"]) == ("rm -rf a", "recursive delete")
    assert approval["choices"] == list(OFFERED)
    assert approval["expires_at"] == 9_000
    assert "decision" not in approval
    assert await rig.statuses() == ["running", "waiting"]
    assert await rig.open() == [approval]


async def test_an_answer_reaches_hermes_once_and_the_run_goes_on(rig: Rig) -> None:
    approval = await rig.ask()
    answer = await rig.respond(approval, "once", reason="fine")
    decided = answer["approval"]
    assert answer["type"] == "approval.respond.result"
    assert rig.hermes.resolved == [("k1", "once", "fine")]
    assert (decided["status"], decided["decision"], decided["answerable"]) == ("resolved", "once", False)
    assert decided["decided_by"]["kind"] == "device"
    rig.close("k1", "once")
    (resolved,) = await rig.seen("approval.resolved")
    assert resolved["approval"] == decided
    assert await rig.statuses() == ["running", "waiting", "running"]
    assert await rig.open() == []
    history = await rig.client.request("conversation.history", conversation_id=rig.name)
    assert history["approvals"] == [decided]


@pytest.mark.parametrize("choice", ["banana", "Once", "once ", "approve", "yes", "resolved"])
async def test_a_word_that_was_not_offered_never_reaches_hermes(rig: Rig, choice: str) -> None:
    """D5: Hermes takes any word that it does not know for a yes."""
    approval = await rig.ask()
    refused = await rig.respond(approval, choice)
    assert (refused["code"], refused["details"]["choices"]) == ("invalid_choice", list(OFFERED))
    assert rig.hermes.resolved == []
    assert await rig.open() == [approval]
    assert (await rig.respond(approval, "deny"))["approval"]["decision"] == "deny"


async def test_what_policy_does_not_allow_is_not_offered(rig: Rig) -> None:
    """D5."""
    approval = await rig.ask(choices=("once", "deny"))
    assert approval["choices"] == ["once", "deny"]
    assert (await rig.respond(approval, "always"))["code"] == "invalid_choice"
    assert (await rig.respond(approval, "once"))["approval"]["decision"] == "once"


async def test_a_command_that_is_not_shown_to_its_end_can_only_be_denied(rig: Rig) -> None:
    approval = await rig.ask(command_truncated=True)
    assert approval["choices"] == ["deny"]
    assert (await rig.respond(approval, "once"))["code"] == "invalid_choice"


async def test_without_a_pattern_to_name_only_this_command_can_be_allowed(rig: Rig) -> None:
    """`session` and `always` allow a pattern; nobody agrees to what they are not shown."""
    assert (await rig.ask(pattern=None))["choices"] == ["once", "deny"]


async def test_the_same_answer_of_the_same_device_is_the_same_result(rig: Rig) -> None:
    approval = await rig.ask()
    first = await rig.respond(approval, "once")
    assert (await rig.respond(approval, "once"))["approval"] == first["approval"]
    other = await rig.respond(approval, "deny")
    assert (other["code"], other["details"]["approval"]) == ("already_resolved", first["approval"])
    assert len(rig.hermes.resolved) == 1


async def test_two_devices_at_the_same_instant_five_hundred_times(tmp_path: Path) -> None:
    """D9: one outcome each time, and both know it; what the simulated Hermes heard is what the winner said."""
    decided: list[str | None] = []

    def script(text: str) -> Iterable[Step]:
        call = Begin("terminal", {"command": "rm -rf a"})
        question = Approve(call, "recursive delete", "rm -rf a")
        yield from (call, question, End(call, "done"), Say("."))
        decided.append(question.decision)

    hermes = SimulatedHermes(SystemClock(), script)
    async with running_server(str(tmp_path), hermes) as server:
        hermes.start(server.events)
        devices = [MemoryTransport(server), MemoryTransport(server)]
        for number, device in enumerate(devices):
            await device.hello(device_id=f"device-{number}")
        made = await devices[0].request("conversation.create", client_conversation_id="c1")
        name = made["conversation"]["conversation_id"]
        for round_ in range(500):
            send = {"conversation_id": name, "client_message_id": f"m{round_}", "text": "go"}
            sent = await devices[0].request("message.send", **send)
            asked = [(await device.until("approval.requested"))["approval"] for device in devices]
            choices = ("once", "deny") if round_ % 3 else ("session", "deny")
            requests = [
                device.request("approval.respond", approval_id=asked[0]["approval_id"], choice=choice)
                for device, choice in zip(devices, choices, strict=True)
            ]
            if round_ % 2:
                requests.reverse()
            answers = await asyncio.gather(*requests)
            (won,) = [answer["approval"] for answer in answers if answer["type"] == "approval.respond.result"]
            (lost,) = [answer for answer in answers if answer["type"] == "error"]
            assert (lost["code"], lost["details"]["approval"]) == ("already_resolved", won | {"status": "resolved"})
            for device in devices:
                while not any(frame["type"] == "run.ended" for frame in device.seen):
                    await device.receive()
                ends = [frame["approval"] for frame in device.seen if frame["type"] == "approval.resolved"]
                assert ends == [won]
                device.seen.clear()
            assert sent["type"] == "message.send.result"
            assert decided[-1] == won["decision"]
        await hermes.stop()


async def test_one_that_must_wait_for_another_says_so(rig: Rig) -> None:
    """R-E2."""
    first = await rig.ask("k1")
    second = await rig.ask("k2", answerable=False)
    assert (second["status"], second["answerable"]) == ("pending", False)
    refused = await rig.respond(second, "once")
    assert (refused["code"], refused["details"]["approval"]) == ("not_answerable", second)
    await rig.respond(first, "once")
    assert await rig.statuses() == ["running", "waiting"]
    rig.events.approval_answerable(rig.name, "k2")
    rig.events.approval_answerable(rig.name, "k2")
    (updated,) = await rig.seen("approval.updated")
    assert updated["approval"] == {**second, "answerable": True}
    assert (await rig.respond(second, "deny"))["approval"]["decision"] == "deny"
    assert rig.hermes.resolved == [("k1", "once", None), ("k2", "deny", None)]
    assert await rig.statuses() == ["running", "waiting", "running"]


async def test_an_answer_that_hermes_does_not_take_decides_nothing(rig: Rig) -> None:
    """D2: no green tick for a command that did not run."""
    approval = await rig.ask()
    rig.hermes.resolves = False
    assert (await rig.respond(approval, "once"))["code"] == "not_answerable"
    assert await rig.open() == [approval]
    assert await rig.seen("approval.resolved") == []
    rig.hermes.resolves = True
    answer = await rig.respond(approval, "once")
    assert answer["approval"]["decision"] == "once"


async def test_when_hermes_gives_up_it_is_expired_for_all(rig: Rig) -> None:
    """D2."""
    approval = await rig.ask()
    rig.close("k1", None, DecisionSource.TIMEOUT)
    (resolved,) = await rig.seen("approval.resolved")
    assert (resolved["approval"]["status"], resolved["approval"]["decided_by"]) == ("expired", {"kind": "timeout"})
    late = await rig.respond(approval, "once")
    assert (late["code"], late["details"]["approval"]) == ("expired", resolved["approval"])
    assert rig.hermes.resolved == []
    assert await rig.statuses() == ["running", "waiting", "running"]


async def test_one_that_was_decided_elsewhere(rig: Rig) -> None:
    approval = await rig.ask()
    rig.close("k1", "deny")
    (resolved,) = await rig.seen("approval.resolved")
    assert (resolved["approval"]["decision"], resolved["approval"]["decided_by"]["kind"]) == ("deny", "other_surface")
    assert (await rig.respond(approval, "once"))["code"] == "already_resolved"


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_a_question_ends_with_its_run(rig: Rig, outcome: Outcome) -> None:
    """D8, R-F2: none is left pending."""
    approval = await rig.ask()
    rig.events.run_ended(rig.name, RunResult(outcome=outcome))
    frames = await rig.seen("approval.resolved", "run.ended")
    assert [frame["type"] for frame in frames] == ["approval.resolved", "run.ended"]
    assert frames[0]["approval"]["status"] == "cancelled"
    assert (await rig.respond(approval, "once"))["code"] == "expired"
    assert await rig.open() == []
    # What Hermes's thread still says of it changes nothing.
    rig.close("k1", "once")
    assert len(await rig.seen("approval.resolved")) == 1


async def test_a_question_outside_a_run_is_one_too(rig: Rig) -> None:
    rig.events.run_ended(rig.name, DONE)
    approval = await rig.ask()
    assert "run_id" not in approval
    assert (await rig.respond(approval, "deny"))["approval"]["decision"] == "deny"


async def test_no_such_question(rig: Rig) -> None:
    assert (await rig.respond({"approval_id": "appr_none"}, "once"))["code"] == "expired"


async def test_a_reason_has_a_limit(rig: Rig) -> None:
    approval = await rig.ask()
    refused = await rig.respond(approval, "deny", reason="x" * (MAX_REASON_CHARS + 1))
    assert refused["code"] == "too_large"
    assert rig.hermes.resolved == []


async def test_after_a_crash_nobody_can_approve_what_hermes_has_forgotten(tmp_path: Path) -> None:
    """R-F2."""
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = MemoryTransport(server)
        await client.hello()
        made = await client.request("conversation.create", client_conversation_id="c1")
        rig = Rig(server, ManualHermes(), client, ConversationId(made["conversation"]["conversation_id"]))
        server.events.run_started(rig.name, None, Origin.BACKGROUND)
        approval = await rig.ask()
        # The process dies here: what the server would say of its end is not written.
        await server.stop()
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client = MemoryTransport(server)
        await client.hello()
        again = Rig(server, hermes, client, rig.name)
        assert await again.open() == []
        late = await again.respond(approval, "once")
        assert (late["code"], late["details"]["approval"]["status"]) == ("expired", "cancelled")
        assert hermes.resolved == []
