"""What the log holds of a server's life, and what it never holds (R-L1, R-D3, R-M3)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.approval import ApprovalKind, DecisionSource
from pheby_protocol.messages.message import Origin
from pheby_server.ports import AgentFile, ApprovalPrompt, Outcome, RunResult
from pheby_server.server import Server
from pheby_server.testing import TEST_SECRET, ManualHermes, MemoryTransport, running_server

NAME = ConversationId("conv_1")
CANARY = "canary in the owner's words"


QUESTION = ApprovalPrompt(
    key="k",
    kind=ApprovalKind.COMMAND,
    description=CANARY,
    command=CANARY,
    command_truncated=False,
    pattern=CANARY,
    choices=("once", "deny"),
    call_id=None,
    answerable=True,
    expires_at=None,
)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [getattr(record, "event", record.getMessage()) for record in caplog.records]


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == event]


def everything(caplog: pytest.LogCaptureFixture) -> str:
    ours = [record for record in caplog.records if record.name.startswith("pheby")]
    assert ours
    return caplog.text + "".join(repr(vars(record)) for record in ours)


async def a_life(server: Server, client: MemoryTransport, hermes: ManualHermes, folder: Path) -> None:
    """A run with a prompt, files, a failure, a deletion; the canary is in everything that says something."""
    await client.hello()
    created = await client.request("conversation.create", client_conversation_id="cc1", title=CANARY)
    conversation_id = created["conversation"]["conversation_id"]
    await client.request(
        "message.send", conversation_id=conversation_id, client_message_id="c1", text=f"{CANARY} {TEST_SECRET}"
    )
    given = await hermes.handed_over.get()
    name = given.conversation_id
    server.events.run_started(name, given.message_id, Origin.CHAT)
    message_id = server.events.message_started(name, CANARY)
    server.events.message_appended(message_id, CANARY)
    server.events.approval_requested(name, QUESTION)
    server.events.approval_closed(name, "k", "once", DecisionSource.TIMEOUT)
    (folder / "canary.txt").write_text(CANARY)
    await server.events.attach(name, AgentFile(path=str(folder / "canary.txt"), name="canary.txt"))
    await server.events.attach(name, AgentFile(path=str(folder / "canary-not-there.txt"), name="canary.txt"))
    server.events.run_ended(name, RunResult(outcome=Outcome.FAILED))
    await server.events.settled()
    await client.request("conversation.get", conversation_id="conv_canary_not_there")
    client.send_text(f"{CANARY} {TEST_SECRET}")
    client.send({"type": "ping", "id": f"canary {TEST_SECRET}", "canary": CANARY})
    client.send({"type": "canary", "id": "9"})
    await client.request("conversation.delete", conversation_id=conversation_id)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


async def live(folder: Path, **settings: Any) -> None:
    hermes = ManualHermes()
    async with running_server(str(folder / "store"), hermes, **settings) as server:
        client = MemoryTransport(server)
        await a_life(server, client, hermes, folder)
        client.cut()


async def test_a_life_is_told_from_start_to_stop(tmp_path: Path, quiet: pytest.LogCaptureFixture) -> None:
    """R-L1: each event by a name that stays, with the ids to follow it by."""
    await live(tmp_path)
    found = events(quiet)
    wanted = [
        "server.started",
        "client.connected",
        "client.hello",
        "conversation.created",
        "send.admitted",
        "send.handed_over",
        "run.started",
        "approval.requested",
        "approval.resolved",
        "attachment.created",
        "attachment.refused",
        "run.ended",
        "request.refused",
        "frame.refused",
        "conversation.deleted",
        "client.disconnected",
        "server.stopped",
    ]
    assert [name for name in wanted if name not in found] == []
    assert found.index("server.started") < found.index("run.started") < found.index("run.ended")
    assert all(" " in line and "conversation_id=conv_" in line for line in lines(quiet, "run.ended"))
    assert "status=failed" in lines(quiet, "run.ended")[0]
    assert "client=test" in lines(quiet, "client.hello")[0]


async def test_nothing_that_was_said_is_in_the_log(tmp_path: Path, quiet: pytest.LogCaptureFixture) -> None:
    """R-L1, R-G1, R-D3: no word of the owner or the agent, no path, no secret."""
    await live(tmp_path)
    seen = everything(quiet)
    assert "in the owner's words" not in seen
    assert "canary.txt" not in seen
    assert str(tmp_path) not in seen
    assert TEST_SECRET not in seen


async def test_verbose_shows_frames_without_what_they_say(tmp_path: Path, quiet: pytest.LogCaptureFixture) -> None:
    """R-L1: types, ids, sizes."""
    await live(tmp_path, verbose=True)
    received, sent = lines(quiet, "frame.received"), lines(quiet, "frame.sent")
    assert any('"type": "message.send"' in line and '"client_message_id": "c1"' in line for line in received)
    assert any('"type": "run.ended"' in line for line in sent)
    assert all(" bytes=" in line and " connection_id=" in line for line in received + sent)
    seen = everything(quiet)
    assert "in the owner's words" not in seen
    assert "canary.txt" not in seen
    assert TEST_SECRET not in seen


async def test_content_needs_a_second_switch_and_holds_no_secret(
    tmp_path: Path, quiet: pytest.LogCaptureFixture
) -> None:
    """R-L1, R-D3: only after an explicit opt-in."""
    await live(tmp_path, verbose=True, log_content=True)
    assert any(CANARY in line for line in lines(quiet, "frame.received"))
    assert any(CANARY in line for line in lines(quiet, "frame.sent"))
    assert TEST_SECRET not in everything(quiet)


async def test_log_content_alone_shows_nothing(tmp_path: Path, quiet: pytest.LogCaptureFixture) -> None:
    await live(tmp_path, log_content=True)
    assert "frame.received" not in events(quiet)
    assert "in the owner's words" not in everything(quiet)


async def test_a_clients_name_writes_no_line(tmp_path: Path, quiet: pytest.LogCaptureFixture) -> None:
    """R-L1: nor its secret, where it is put into the wrong field."""
    forged = f"x\nERROR pheby_server: server.stopped {TEST_SECRET}"
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = MemoryTransport(server)
        client.send(
            {
                "type": "hello",
                "id": "1",
                "protocol_versions": [1],
                "client": {"name": forged, "version": forged[:40], "device_id": "d"},
            }
        )
        await client.until("sync.completed")
        client.cut()
    (line,) = lines(quiet, "client.hello")
    assert line.isprintable()
    assert TEST_SECRET not in everything(quiet)
    assert json.dumps(forged) not in quiet.text


async def test_an_unforeseen_failure_tells_where_and_not_what(
    tmp_path: Path, quiet: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-M3."""
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = MemoryTransport(server)
        await client.hello()

        def page(*_: object) -> None:
            raise PermissionError(13, CANARY, f"/home/owner/{TEST_SECRET}")

        monkeypatch.setattr(server.conversations, "page", page)
        answer = await client.request("conversation.list")
        client.cut()
    assert answer["code"] == "internal"
    assert "PermissionError EACCES\n" in quiet.text
    assert "pheby_server/handlers.py:" in quiet.text
    assert "in the owner's words" not in everything(quiet)
    assert TEST_SECRET not in everything(quiet)
