"""The core as one object: start and stop, the handshake, several clients, slow ones (R-A3, R-I2, R-M2, G*, K7, L1)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.capabilities import SERVER_CAPABILITIES
from pheby_protocol.codec import decode
from pheby_protocol.errors import CloseCode
from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.connection import AccessMode
from pheby_protocol.messages.message import Origin
from pheby_protocol.registry import schema_digest
from pheby_server import handlers
from pheby_server import server as server_module
from pheby_server.auth import Authenticator, Credential
from pheby_server.config import ServerConfig
from pheby_server.outbox import Close
from pheby_server.ports import Outcome, RunResult
from pheby_server.server import Phase, Server
from pheby_server.stores import StoreInUseError
from pheby_server.testing import (
    TEST_SECRET,
    CountedIds,
    FakeClock,
    ManualHermes,
    MemoryTransport,
    deliver_text,
    running_server,
)

NAME = ConversationId("conv_1")
DONE = RunResult(outcome=Outcome.COMPLETED)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(str(tmp_path), ManualHermes()) as made:
        yield made


def unstarted(folder: Path) -> Server:
    return Server(ServerConfig(storage=str(folder)), ManualHermes(), Authenticator(()))


async def in_step(server: Server, device_id: str = "device") -> MemoryTransport:
    client = MemoryTransport(server)
    await client.hello(device_id)
    return client


async def closed(client: MemoryTransport) -> CloseCode:
    """Read on until the server closes."""
    with contextlib.suppress(ConnectionError):
        while True:
            await client.receive()
    assert client.closed is not None
    return client.closed


# Handshake


async def test_welcome_says_what_a_client_must_know(tmp_path: Path) -> None:
    async with running_server(
        str(tmp_path), ManualHermes(), clock=FakeClock(9_000), ids=CountedIds(), heartbeat_ms=7_000
    ) as server:
        client = MemoryTransport(server, AccessMode.MANAGE)
        welcome = await client.hello()
    assert welcome["protocol_version"] == 1
    assert welcome["server"] == {"name": "pheby", "version": "0.1.0", "hermes_version": "manual"}
    assert (welcome["server_time"], welcome["heartbeat_ms"]) == (9_000, 7_000)
    assert set(welcome["capabilities"]) == set(SERVER_CAPABILITIES)
    assert {name for name, on in welcome["capabilities"].items() if on} == {
        "attachments",
        "batch",
        "resume",
        "streaming",
        "approvals",
        "cancel",
        "clarifications",
        "subagents",
        "steer",
        "rename",
        "delete",
        "interrupt",
        "models",
        "reasoning",
    }
    assert welcome["access_mode"] == "manage"
    assert welcome["schema_digest"] == schema_digest()
    assert (welcome["seq"], welcome["resumed"], welcome["receipts_since"]) == (0, False, 9_000)
    assert set(welcome["limits"]) == {
        "max_frame_bytes",
        "max_server_frame_bytes",
        "max_text_chars",
        "max_list_limit",
        "max_history_limit",
        "max_pending_requests",
    }


async def test_the_client_is_in_step_after_one_round_trip(server: Server) -> None:
    client = await in_step(server)
    welcome, *parts, end = client.seen
    assert [part["type"] for part in parts] == ["snapshot"] * len(parts)
    assert end["type"] == "sync.completed"
    assert {welcome["seq"], end["seq"], *(part["seq"] for part in parts)} == {welcome["seq"]}


@pytest.mark.parametrize(
    "resume", [{"epoch": "other", "seq": 3}, {"epoch": "", "seq": 0}, {"epoch": "x", "seq": 2**53 - 1}, "nonsense", {}]
)
async def test_a_cursor_gives_a_snapshot_on_the_same_socket(server: Server, resume: object) -> None:
    """Replay comes later; a server may always choose the snapshot (wire contract, section 3)."""
    client = MemoryTransport(server)
    welcome = await client.hello(resume=resume)
    assert welcome["resumed"] is False
    assert (await client.request("ping"))["type"] == "pong"


async def test_epoch_and_receipts_since_outlive_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    welcomes = []
    for _ in range(2):
        async with running_server(str(tmp_path), ManualHermes(), clock=clock) as server:
            client = MemoryTransport(server)
            welcomes.append(await client.hello())
        clock.move(60)
    for name in ("epoch", "receipts_since"):
        assert welcomes[0][name] == welcomes[1][name]
    assert welcomes[0]["connection_id"] != welcomes[1]["connection_id"]


async def test_requests_sent_along_with_hello_are_not_ready_and_the_handshake_goes_on(server: Server) -> None:
    client = MemoryTransport(server)
    client.send(
        {
            "type": "hello",
            "id": "h",
            "protocol_versions": [1],
            "client": {"name": "t", "version": "1", "device_id": "d"},
        }
    )
    client.send({"type": "conversation.list", "id": "early"})
    assert (await client.receive())["code"] == "not_ready"
    assert (await client.receive())["type"] == "welcome"
    await client.until("sync.completed")


async def test_a_client_that_comes_in_the_middle_misses_nothing_and_gets_nothing_twice(server: Server) -> None:
    """R-I2, G1: snapshot and live events fit together, wherever the newcomer comes in."""
    first = await in_step(server, "first")
    newcomers = []
    server.events.run_started(NAME, None, Origin.CHAT)
    message_id = server.events.message_started(NAME, "0 ")
    for number in range(1, 40):
        server.events.message_appended(message_id, f"{number} ")
        if number % 4 == 0:
            await server.events.settled() if number % 8 else None
            newcomer = MemoryTransport(server)
            newcomer.send(
                {
                    "type": "hello",
                    "id": "h",
                    "protocol_versions": [1],
                    "client": {"name": "t", "version": "1", "device_id": f"d{number}"},
                }
            )
            newcomers.append(newcomer)
    expected = "".join(f"{number} " for number in range(40))
    await server.events.settled()
    for client in (first, *newcomers):
        client.send({"type": "ping", "id": "end"})
        await client.until("pong")
        texts: dict[str, tuple[str, int]] = {}
        for frame in client.seen:
            for message in frame.get("messages", ()):
                texts[message["message_id"]] = (message["text"], message["index"])
            if frame["type"] == "message.created" and frame["message"]["message_id"] not in texts:
                texts[frame["message"]["message_id"]] = (frame["message"]["text"], frame["message"]["index"])
            if frame["type"] == "message.delta":
                text, index = texts[frame["message_id"]]
                last_index = frame.get("last_index", frame["index"])
                if last_index > index:
                    assert frame["index"] == index + 1
                    texts[frame["message_id"]] = (text + frame["text"], last_index)
        assert texts == {message_id: (expected, 39)}
        seqs = [frame["seq"] for frame in client.seen if "time" in frame]
        synced = next(frame["seq"] for frame in client.seen if frame["type"] == "sync.completed")
        assert all(seq > synced for seq in seqs)
        assert seqs == sorted(set(seqs))


async def test_the_snapshot_holds_every_conversation_that_it_names(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_server(str(tmp_path), ManualHermes(), clock=clock) as server:
        server.events.run_started(NAME, None, Origin.CHAT)
        for number in range(60):
            clock.move(1)
            await deliver_text(server.events, ConversationId(f"conv_n{number:02d}"), "x", Origin.CRON)
        await server.events.settled()
        client = await in_step(server)
        parts = [frame for frame in client.seen if frame["type"] == "snapshot"]
        names = [found["conversation_id"] for part in parts for found in part["conversations"]]
        assert len(names) == len(set(names)) == 51
        assert names[-1] == NAME
        rest = await client.request("conversation.list", cursor=parts[-1]["conversations_next"])
        assert len({found["conversation_id"] for found in rest["conversations"]} | set(names)) == 61
        assert [part["last"] for part in parts] == [False] * (len(parts) - 1) + [True]
        assert [part["part"] for part in parts] == list(range(len(parts)))


# Several clients


async def test_every_client_gets_every_event_in_the_same_order(server: Server) -> None:
    clients = [await in_step(server, f"d{number}") for number in range(4)]
    for number in range(10):
        await deliver_text(server.events, NAME, f"n{number}", Origin.CRON)
    await server.events.settled()
    seen = []
    for client in clients:
        client.send({"type": "ping", "id": "end"})
        await client.until("pong")
        seen.append([frame for frame in client.seen if "time" in frame])
    assert seen[0]
    assert all(frames == seen[0] for frames in seen)


async def test_a_second_connection_of_a_device_closes_the_first_with_4409(server: Server) -> None:
    """G11."""
    first, other = await in_step(server, "phone"), await in_step(server, "tablet")
    second = await in_step(server, "phone")
    assert await closed(first) is CloseCode.REPLACED
    await deliver_text(server.events, NAME, "news", Origin.CRON)
    for client in (second, other):
        assert (await client.until("message.created"))["message"]["text"] == "news"
    assert server.session_count == 2


async def test_two_hellos_of_a_device_at_the_same_instant_leave_one(server: Server) -> None:
    """G11: the one that was replaced before its welcome is forgotten too."""
    hello = {
        "type": "hello",
        "id": "h",
        "protocol_versions": [1],
        "client": {"name": "t", "version": "1", "device_id": "phone"},
    }
    first, second = MemoryTransport(server), MemoryTransport(server)
    first.send(hello)
    second.send(hello)
    assert await closed(first) is CloseCode.REPLACED
    await second.until("sync.completed")
    assert list(server._live) == [second.session]


async def test_a_client_that_goes_right_after_its_hello_is_forgotten(server: Server) -> None:
    client = MemoryTransport(server)
    client.send(
        {
            "type": "hello",
            "id": "h",
            "protocol_versions": [1],
            "client": {"name": "t", "version": "1", "device_id": "d"},
        }
    )
    client.cut()
    await server.events.settled()
    assert (server.session_count, list(server._live)) == (0, [])


async def test_a_frozen_client_costs_bounded_memory_and_the_others_get_everything(tmp_path: Path) -> None:
    """K7, R-M2."""
    async with running_server(str(tmp_path), ManualHermes(), outbox_bytes=2_097_152) as server:
        frozen, reader = await in_step(server, "frozen"), await in_step(server, "reader")
        server.events.run_started(NAME, None, Origin.CHAT)
        message_id = server.events.message_started(NAME, "")
        received = 0
        for number in range(300):
            server.events.message_replaced(message_id, f"{number:03d}" + "x" * 49_997)
            if number % 10 == 9:
                await server.events.settled()
                while received < number + 1:
                    frame = await reader.receive()
                    received += frame["type"] == "message.replaced"
        server.events.run_ended(NAME, DONE)
        await reader.until("run.ended")
        assert frozen.session._outbox.peak_bytes <= 2_097_152
        assert frozen.session._outbox.live_bytes <= 2_097_152
        assert len(frozen.session._outbox._frames) == 0
        assert await closed(frozen) is CloseCode.TOO_SLOW
        back = await in_step(server, "frozen")
        assert (await back.request("message.text", message_id=message_id))["text"].startswith("299xxx")


async def test_a_client_that_reads_in_time_is_never_too_slow(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes(), outbox_frames=64) as server:
        client = await in_step(server)
        for number in range(40):
            for _ in range(20):
                await deliver_text(server.events, NAME, f"n{number}", Origin.CRON)
            await server.events.settled()
            client.send({"type": "ping", "id": "p"})
            await client.until("pong")
        assert len([frame for frame in client.seen if frame["type"] == "message.created"]) == 800


async def test_a_large_snapshot_does_not_count_as_being_slow(tmp_path: Path) -> None:
    """K7: bursts right after connect do not trip the bound."""
    async with running_server(str(tmp_path), ManualHermes(), outbox_bytes=2_097_152) as server:
        sender = await in_step(server, "sender")
        server.events.run_started(NAME, None, Origin.BACKGROUND)
        for number in range(40):
            await sender.request(
                "message.send", conversation_id=NAME, client_message_id=f"m{number}", text="x" * 100_000
            )
        client = await in_step(server, "newcomer")
        messages = [found for frame in client.seen for found in frame.get("messages", ())]
        assert len(messages) == 40
        assert sum(len(found["text"]) for found in messages) == 4_000_000


async def test_every_frame_is_one_that_the_protocol_knows(server: Server) -> None:
    client = await in_step(server)
    server.events.run_started(NAME, None, Origin.CHAT)
    message_id = server.events.message_started(NAME, "a")
    server.events.message_replaced(message_id, "b")
    server.events.run_progress(NAME, "working")
    server.events.run_ended(NAME, DONE)
    await client.request("conversation.history", conversation_id=NAME)
    await client.request("conversation.list")
    types = {frame["type"] for frame in client.seen}
    assert {"run.started", "message.delta", "message.replaced", "run.progress", "run.ended", "snapshot"} <= types
    for frame in client.seen:
        assert decode(json.dumps(frame)).type == frame["type"]


# Start and stop


async def test_the_phases(tmp_path: Path) -> None:
    server = unstarted(tmp_path)
    assert server.phase is Phase.STARTING
    await server.start()
    assert server.phase is Phase.SERVING
    await server.stop()
    assert server.phase is Phase.STOPPED
    await server.stop()


async def test_stop_tells_the_clients_and_closes_them_with_1001(server: Server) -> None:
    """G9, L1."""
    clients = [await in_step(server, f"d{number}") for number in range(3)]
    shy = MemoryTransport(server)
    stopping = asyncio.create_task(server.stop())
    for client in clients:
        draining = await client.until("server.draining")
        assert draining["reconnect_after_ms"] > 0
        assert await closed(client) is CloseCode.GOING_AWAY
    assert await closed(shy) is CloseCode.GOING_AWAY
    async with asyncio.timeout(1):
        await stopping
    assert server.session_count == 0


async def test_stop_does_not_wait_for_a_client_that_never_answers(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1."""
    assert server_module.DRAIN_SECONDS <= 3
    monkeypatch.setattr(server_module, "DRAIN_SECONDS", 0.05)
    await in_step(server)
    async with asyncio.timeout(1):
        await server.stop()
    assert server.phase is Phase.STOPPED


async def test_stop_stores_what_came_before_it(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        for number in range(50):
            await deliver_text(server.events, NAME, f"n{number}", Origin.CRON)
    reader = sqlite3.connect(tmp_path / "pheby.db")
    assert reader.execute("SELECT count(*) FROM messages").fetchone() == (50,)
    reader.close()


async def test_what_hermes_tells_after_the_stop_hurts_nobody(server: Server) -> None:
    """H4: whoever waits for it to be stored is told that it was not."""
    await server.stop()
    server.events.run_started(NAME, None, Origin.CHAT)
    server.events.message_started(NAME, "late")
    server.events.run_ended(NAME, DONE)
    async with asyncio.timeout(1):
        with pytest.raises(Exception, match="stopped"):
            await deliver_text(server.events, NAME, "late", Origin.CRON)
        with pytest.raises(Exception, match="stopped"):
            await server.events.settled()


async def test_a_connection_that_was_upgraded_too_late_is_closed_at_once(server: Server) -> None:
    await server.stop()
    client = MemoryTransport(server)
    assert await closed(client) is CloseCode.DRAINING
    assert server.session_count == 0


async def test_a_stop_that_is_cut_off_leaves_the_store_to_the_next_server(tmp_path: Path) -> None:
    """R-M4, L7: Hermes gives a stop five seconds, and may make the next adapter in the same process."""
    server = unstarted(tmp_path)
    await server.start()
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    server.runs.stop = hang  # type: ignore[method-assign]
    stopping = asyncio.create_task(server.stop())
    await begun.wait()
    stopping.cancel()
    await asyncio.wait([stopping])
    await asyncio.to_thread(server._store._thread.shutdown)
    following = unstarted(tmp_path)
    await following.start()
    await following.stop()


async def test_a_server_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    await unstarted(tmp_path).stop()


async def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """L7: the owner's gateway retries in the same process."""
    async with running_server(str(tmp_path), ManualHermes()) as server:
        await server.conversations.create("c1", None)  # type: ignore[arg-type]
    database = sqlite3.connect(tmp_path / "pheby.db")
    database.execute("UPDATE conversations SET body = '{}'")
    database.commit()
    tasks = len(asyncio.all_tasks())
    broken = unstarted(tmp_path)
    with pytest.raises(Exception, match="Conversation"):
        await broken.start()
    assert broken.phase is Phase.STARTING
    assert len(asyncio.all_tasks()) == tasks
    await broken.stop()

    database.execute("DELETE FROM conversations")
    database.commit()
    database.close()
    async with running_server(str(tmp_path), ManualHermes()) as server:
        assert (await in_step(server)).seen


async def test_two_servers_never_share_a_folder(server: Server, tmp_path: Path) -> None:
    second = unstarted(tmp_path)
    with pytest.raises(StoreInUseError):
        await second.start()
    await second.stop()
    client = await in_step(server)
    assert (await client.request("ping"))["type"] == "pong"


async def test_a_welcome_that_fails_closes_that_client_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    other = await in_step(server, "other")

    def broken(_: Any) -> Any:
        raise RuntimeError("a secret path")

    with monkeypatch.context() as patched:
        patched.setattr(server, "_snapshot", broken)
        unlucky = MemoryTransport(server)
        unlucky.send(
            {
                "type": "hello",
                "id": "h",
                "protocol_versions": [1],
                "client": {"name": "t", "version": "1", "device_id": "d"},
            }
        )
        assert await closed(unlucky) is CloseCode.INTERNAL
    await deliver_text(server.events, NAME, "news", Origin.CRON)
    assert (await other.until("message.created"))["message"]["text"] == "news"
    assert "secret" not in json.dumps(unlucky.seen)


async def test_sessions_and_tasks_come_and_go_without_a_trace(server: Server) -> None:
    # What the server does at its start comes to its end.
    await asyncio.gather(*server.attachments._tasks)
    counts = []
    for number in range(50):
        client = await in_step(server, f"d{number}")
        await client.request("ping")
        client.cut()
        await asyncio.sleep(0)
        assert (server.session_count, list(server._live)) == (0, [])
        counts.append(len(asyncio.all_tasks()))
    assert counts[-1] == min(counts) == 2


# Secrets that are replaced


OLD = Credential(AccessMode.FULL, "old-" + TEST_SECRET)
NEW = Credential(AccessMode.FULL, "new-" + TEST_SECRET)


def holding(*credentials: Credential) -> Authenticator:
    return Authenticator(tuple((credential.access_mode, credential.secret) for credential in credentials))


def opened(server: Server, credential: Credential) -> MemoryTransport:
    client = MemoryTransport(server)
    client.session.credential = credential
    return client


async def test_a_replaced_secret_closes_its_connections_at_once_with_4401(server: Server) -> None:
    """R-M1: whatever waits for them; whoever came with one that is still right stays."""
    server.replace_secrets(holding(OLD))
    old, shy, new = opened(server, OLD), opened(server, OLD), opened(server, NEW)
    for name, client in (("old", old), ("new", new)):
        await client.hello(name)
    await deliver_text(server.events, NAME, "waits", Origin.CRON)
    server.replace_secrets(holding(NEW))
    for client in (old, shy):
        with pytest.raises(ConnectionError):
            await client.receive()
        assert client.closed is CloseCode.CREDENTIAL_INVALID
    assert (await new.request("ping"))["type"] == "pong"
    assert server.authenticator == holding(NEW)


async def test_with_an_overlap_nobody_is_closed(server: Server) -> None:
    """R-M1: the old secret as PHEBY_SECRET_PREVIOUS."""
    client = opened(server, OLD)
    await client.hello()
    server.replace_secrets(holding(NEW, OLD))
    assert (await client.request("ping"))["type"] == "pong"
    server.replace_secrets(holding(NEW))
    assert await closed(client) is CloseCode.CREDENTIAL_INVALID


async def test_a_secret_that_now_allows_something_else_closes_too(server: Server) -> None:
    client = opened(server, OLD)
    await client.hello()
    server.replace_secrets(holding(Credential(AccessMode.READ_ONLY, OLD.secret)))
    assert await closed(client) is CloseCode.CREDENTIAL_INVALID


async def test_an_upgrade_that_took_until_its_secret_was_replaced_is_closed(server: Server) -> None:
    server.replace_secrets(holding(NEW))
    session = server.open_session(AccessMode.FULL, OLD)
    assert await session.next_frame() == Close(CloseCode.CREDENTIAL_INVALID, "")


# What waits for all


async def test_when_too_much_waits_for_all_together_whoever_has_most_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-M2: not the one whose frame was the last straw; and what it held is free."""
    monkeypatch.setattr(server._queued, "max_bytes", 3_000_000)
    fullest, full, reader = [await in_step(server, name) for name in ("fullest", "full", "reader")]
    notice = '{"type":"future.notice","text":"' + "x" * 500_000 + '"}'
    for client in (fullest, fullest, fullest, full):
        client.session._outbox.put(notice)
    await deliver_text(server.events, NAME, "y" * 400_000, Origin.CRON)
    assert fullest.session.queued_bytes == 0
    assert await closed(fullest) is CloseCode.TOO_SLOW
    for client in (full, reader):
        assert len((await client.until("message.created"))["message"]["text"]) == 400_000
        assert (await client.request("ping"))["type"] == "pong"
    assert server._queued.bytes == 0


async def test_stop_cuts_off_whoever_is_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """L1."""
    monkeypatch.setattr(server_module, "DRAIN_SECONDS", 0.05)
    client = await in_step(server)
    client.session.abort = client.cut
    async with asyncio.timeout(0.05 + server_module.CUT_SECONDS):
        await server.stop()
    assert server.session_count == 0


# Large answers


async def test_large_answers_are_made_one_after_the_other_and_not_for_who_does_not_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-M2: a page is not read from the store for a client that has not read those before."""
    await deliver_text(server.events, NAME, "x" * 90_000, Origin.CRON)
    reading, most = 0, 0
    answer = handlers.answer

    async def counted(*args: Any) -> Any:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            return await answer(*args)
        finally:
            reading -= 1

    monkeypatch.setattr(handlers, "answer", counted)
    client = await in_step(server)
    client.session._outbox._max_bytes = 1_000_000
    for number in range(20):
        client.send({"type": "conversation.history", "id": f"{number}", "conversation_id": NAME})
    async with asyncio.timeout(5):
        while len(client.session._outbox._frames) < 20:
            await asyncio.sleep(0.001)
    answers = [await client.receive() for _ in range(20)]
    assert [found["type"] for found in answers] == ["conversation.history.result"] * 3 + ["error"] * 17
    assert {found["code"] for found in answers[3:]} == {"rate_limited"}
    assert all(found["retry_after_ms"] > 0 for found in answers[3:])
    assert most == 1
    again = await client.request("conversation.history", conversation_id=NAME)
    assert len(again["messages"]) == 1
    client.session.lost()
    assert not client.session.has_room
