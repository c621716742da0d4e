"""Approvals on real gateways: exactly the command that was approved runs, and no other (R-E1, R-E2, R-F2)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from patience import short_patience
from plain_client import Frame, PlainClient, settle

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def doomed(tmp_path: Path) -> Path:
    """A folder that exists until somebody approves that it goes."""
    folder = tmp_path / "doomed"
    folder.mkdir()
    return folder


async def asked(client: PlainClient, conversation_id: str, folder: Path, name: str) -> tuple[str, Frame]:
    """Have the agent ask; the run's id and the approval."""
    receipt = await client.say(conversation_id, f"danger {folder}", name)
    frame = await client.until("approval.requested", conversation_id=conversation_id)
    return receipt["run_id"], frame["approval"]


def assert_ran(stack, folder: Path, ran: bool) -> None:
    """Whether the command ran; the simulated Hermes has no disk."""
    if stack.hermes_version != "simulated":
        assert folder.exists() is not ran


def resolved(client: PlainClient, conversation_id: str) -> list[Frame]:
    return [event["approval"] for event in client.of(conversation_id) if event["type"] == "approval.resolved"]


async def test_once_lets_this_command_run_once(stack, client, name, doomed):
    """R-E1, D3, D4, D6: what is asked, and by which call; the answer, its event and history agree; once is once."""
    conversation_id = await client.create(name)
    run_id, approval = await asked(client, conversation_id, doomed, f"m-{name}")
    assert approval["kind"] == "command"
    assert str(doomed) in approval["command"]
    assert not approval["command_truncated"]
    assert approval["description"]
    assert approval["choices"] == ["once", "session", "always", "deny"]
    assert (approval["status"], approval["answerable"], approval["run_id"]) == ("pending", True, run_id)
    if stack.hermes_version != "simulated":
        calls = [event["tool_call"] for event in client.of(conversation_id) if event["type"] == "tool.started"]
        assert approval["tool_call_id"] == calls[-1]["tool_call_id"]
        assert approval["expires_at"] > approval["created_at"]
    assert_ran(stack, doomed, False)
    answer = await client.request("approval.respond", approval_id=approval["approval_id"], choice="once")
    assert answer["type"] == "approval.respond.result", answer
    decided = answer["approval"]
    assert (decided["status"], decided["decision"], decided["answerable"]) == ("resolved", "once", False)
    assert decided["decided_by"]["device_id"] == "plain-device"
    assert (await client.run_end(run_id))["status"] == "completed"
    assert_ran(stack, doomed, True)
    assert resolved(client, conversation_id) == [decided]
    statuses = [event["run"]["status"] for event in client.of(conversation_id) if event["type"] == "run.updated"]
    assert [status for status in statuses if status in ("waiting", "running")] == ["waiting", "running"]
    history = await client.request("conversation.history", conversation_id=conversation_id)
    assert history["approvals"] == [decided]
    if stack.hermes_version != "simulated":
        doomed.mkdir()
        _, again = await asked(client, conversation_id, doomed, f"again-{name}")
        await client.request("approval.respond", approval_id=again["approval_id"], choice="deny")


async def test_deny_runs_nothing_and_says_why(stack, client, name, doomed):
    conversation_id = await client.create(name)
    run_id, approval = await asked(client, conversation_id, doomed, f"m-{name}")
    answer = await client.request(
        "approval.respond", approval_id=approval["approval_id"], choice="deny", reason="not today"
    )
    assert answer["approval"]["decision"] == "deny"
    assert (await client.run_end(run_id))["status"] == "completed"
    assert_ran(stack, doomed, False)
    said = [message["text"] for message in await client.history(conversation_id) if message["role"] == "assistant"]
    assert said[-1] == "You did not allow it."


@pytest.mark.parametrize("choice", ["banana", "", "approve", "Once", "once ", "yes"])
async def test_a_word_that_was_not_offered_decides_nothing(stack, client, name, doomed, choice):
    """D5: Hermes would take any unknown word for a yes."""
    conversation_id = await client.create(name)
    run_id, approval = await asked(client, conversation_id, doomed, f"m-{name}")
    refused = await client.request("approval.respond", approval_id=approval["approval_id"], choice=choice)
    assert refused["type"] == "error"
    if refused["code"] != "invalid_message":
        assert (refused["code"], refused["details"]["choices"]) == ("invalid_choice", approval["choices"])
    assert_ran(stack, doomed, False)
    await client.request("approval.respond", approval_id=approval["approval_id"], choice="deny")
    assert (await client.run_end(run_id))["status"] == "completed"
    assert_ran(stack, doomed, False)


async def test_the_first_answer_wins_on_two_devices(stack, client, name, doomed):
    """D9: the second device is told who decided what; the same answer of the same device is the same result."""
    conversation_id = await client.create(name)
    async with PlainClient(client.url, stack.secret, "second-device") as second:
        await second.hello()
        run_id, approval = await asked(client, conversation_id, doomed, f"m-{name}")
        seen = (await second.until("approval.requested", conversation_id=conversation_id))["approval"]
        assert seen == approval
        first = await client.request("approval.respond", approval_id=approval["approval_id"], choice="deny")
        late = await second.request("approval.respond", approval_id=approval["approval_id"], choice="once")
        assert (late["type"], late["code"]) == ("error", "already_resolved")
        assert late["details"]["approval"]["decided_by"]["device_id"] == "plain-device"
        assert late["details"]["approval"]["decision"] == "deny"
        again = await client.request("approval.respond", approval_id=approval["approval_id"], choice="deny")
        assert again["approval"] == first["approval"]
        await client.run_end(run_id)
    assert_ran(stack, doomed, False)


async def test_two_conversations_ask_at_once(stack, client, name, tmp_path):
    """R-E2: each answer decides its own question, proved by what ran."""
    folders = [tmp_path / "first", tmp_path / "second"]
    conversations, runs, approvals = [], [], []
    for number, folder in enumerate(folders):
        folder.mkdir()
        conversations.append(await client.create(f"{number}-{name}"))
        run_id, approval = await asked(client, conversations[-1], folder, f"{number}-{name}")
        runs.append(run_id)
        approvals.append(approval)
    assert [approval["answerable"] for approval in approvals] == [True, True]
    await client.request("approval.respond", approval_id=approvals[1]["approval_id"], choice="once")
    await client.run_end(runs[1])
    assert_ran(stack, folders[0], False)
    assert_ran(stack, folders[1], True)
    assert resolved(client, conversations[0]) == []
    await client.request("approval.respond", approval_id=approvals[0]["approval_id"], choice="deny")
    await client.run_end(runs[0])
    assert_ran(stack, folders[0], False)


async def test_a_question_that_nobody_saw_waits_in_the_snapshot(stack, client, name, doomed):
    """D7: nobody was connected when Hermes asked."""
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, f"danger {doomed}", f"m-{name}")
    await client.until("run.updated")
    await client.__aexit__(None, None, None)
    async with PlainClient(client.url, stack.secret) as back:
        await back.hello()
        open_ones = [item for item in back.snapshot("approvals") if item["conversation_id"] == conversation_id]
        if not open_ones:
            open_ones = [(await back.until("approval.requested", conversation_id=conversation_id))["approval"]]
        (approval,) = open_ones
        assert (approval["status"], approval["answerable"]) == ("pending", True)
        await back.request("approval.respond", approval_id=approval["approval_id"], choice="once")
        assert (await back.run_end(receipt["run_id"]))["status"] == "completed"
    await client.__aenter__()
    assert_ran(stack, doomed, True)


async def test_what_the_owner_types_while_asked_is_no_answer(stack, client, name, doomed):
    """R-E1: `yes` and `/approve` are texts; they wait for their turn."""
    conversation_id = await client.create(name)
    run_id, approval = await asked(client, conversation_id, doomed, f"m-{name}")
    typed = [
        await client.say(conversation_id, text, f"{number}-{name}") for number, text in enumerate(("yes", "/approve"))
    ]
    await settle(client)
    assert resolved(client, conversation_id) == []
    assert_ran(stack, doomed, False)
    await client.request("approval.respond", approval_id=approval["approval_id"], choice="deny")
    await client.run_end(run_id)
    for receipt in typed:
        assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
    assert_ran(stack, doomed, False)


async def test_a_cancel_ends_the_question_with_the_run(stack, client, name, doomed):
    """R-F2: nobody can approve what nobody waits for."""
    conversation_id = await client.create(name)
    run_id, approval = await asked(client, conversation_id, doomed, f"m-{name}")
    await client.request("run.cancel", run_id=run_id)
    assert (await client.run_end(run_id))["status"] == "cancelled"
    (over,) = resolved(client, conversation_id)
    assert (over["status"], over["answerable"], over.get("decision")) == ("cancelled", False, None)
    late = await client.request("approval.respond", approval_id=approval["approval_id"], choice="once")
    assert (late["type"], late["code"]) == ("error", "expired")
    run = await client.exchange(conversation_id, "say next", f"next-{name}")
    assert run["status"] == "completed"
    assert_ran(stack, doomed, False)


async def test_session_is_a_pattern_and_says_so(stack, client, name, doomed, tmp_path):
    """After `session` the next command of the pattern is not asked for: the approval names the pattern."""
    if stack.hermes_version == "simulated":
        return
    conversation_id = await client.create(name)
    run_id, approval = await asked(client, conversation_id, doomed, f"m-{name}")
    assert approval["pattern"]
    await client.request("approval.respond", approval_id=approval["approval_id"], choice="session")
    await client.run_end(run_id)
    other = tmp_path / "other"
    other.mkdir()
    run = await client.exchange(conversation_id, f"danger {other}", f"other-{name}")
    assert run["status"] == "completed"
    assert not other.exists()
    requested = [event for event in client.of(conversation_id) if event["type"] == "approval.requested"]
    assert len(requested) == 1
    # Another conversation is another session: it asks.
    third = tmp_path / "third"
    third.mkdir()
    another = await client.create(f"another-{name}")
    run_id, approval = await asked(client, another, third, f"third-{name}")
    await client.request("approval.respond", approval_id=approval["approval_id"], choice="deny")
    await client.run_end(run_id)
    assert third.exists()


async def test_always_holds_in_every_conversation_and_names_its_pattern(stack, client, name):
    """R-E1: a pattern of its own, so that it changes nothing for other tests."""
    if stack.hermes_version == "simulated":
        return
    folders = [stack.home / "work" / f"{name}-{number}" for number in range(2)]
    for folder in folders:
        folder.mkdir()
    first = await client.create(name)
    receipt = await client.say(first, f"danger {folders[0].name}", f"m-{name}")
    approval = (await client.until("approval.requested", conversation_id=first))["approval"]
    await client.request("approval.respond", approval_id=approval["approval_id"], choice="always")
    await client.run_end(receipt["run_id"])
    second = await client.create(f"second-{name}")
    assert (await client.exchange(second, f"danger {folders[1].name}", f"second-{name}"))["status"] == "completed"
    assert not any(folder.exists() for folder in folders)
    assert [event for event in client.of(second) if event["type"] == "approval.requested"] == []
    config = yaml.safe_load((stack.home / "config.yaml").read_text())
    assert approval["pattern"] in config["command_allowlist"]


async def test_after_hermess_own_time_it_is_expired(stack, client, name, doomed):
    """D2: it expires when it said, for everybody, and a late answer is `expired`."""
    async with short_patience(stack, 3):
        conversation_id = await client.create(name)
        run_id, approval = await asked(client, conversation_id, doomed, f"m-{name}")
        assert abs(approval["expires_at"] - approval["created_at"] - 3_000) <= 500
        over = (await client.until("approval.resolved", conversation_id=conversation_id))["approval"]
        assert (over["status"], over["decided_by"]["kind"]) == ("expired", "timeout")
        late = await client.request("approval.respond", approval_id=approval["approval_id"], choice="once")
        assert (late["type"], late["code"], late["details"]["approval"]) == ("error", "expired", over)
        assert (await client.run_end(run_id))["status"] == "completed"
        assert_ran(stack, doomed, False)


async def test_a_restart_ends_the_question(stack, name, doomed):
    """R-F2: Hermes has forgotten it, so nobody can approve it."""
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        conversation_id = await client.create(name)
        _, approval = await asked(client, conversation_id, doomed, f"m-{name}")
    await stack.restart(kill=True)
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        assert client.snapshot("approvals") == []
        late = await client.request("approval.respond", approval_id=approval["approval_id"], choice="once")
        assert (late["code"], late["details"]["approval"]["status"]) == ("expired", "cancelled")
        run = await client.exchange(conversation_id, "say next", f"next-{name}")
        assert run["status"] == "completed"
        assert_ran(stack, doomed, False)


async def test_no_such_approval(stack, client, name):
    answer = await client.request("approval.respond", approval_id="appr_none", choice="once")
    assert (answer["type"], answer["code"]) == ("error", "expired")
