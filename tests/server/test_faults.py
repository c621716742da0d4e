"""The disk and the database misbehave: the server lives, and nothing that was acknowledged is lost (R-M4, G3, G6)."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.message import Origin
from pheby_server.ports import Outcome, RunResult
from pheby_server.server import Server
from pheby_server.stores import Store
from pheby_server.testing import ManualHermes, MemoryTransport, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)


async def connected(server: Server, **fields: Any) -> tuple[MemoryTransport, dict[str, Any]]:
    client = MemoryTransport(server)
    return client, await client.hello(**fields)


async def created(client: MemoryTransport) -> ConversationId:
    made = await client.request("conversation.create", client_conversation_id="c1")
    return ConversationId(made["conversation"]["conversation_id"])


def say(server: Server, where: ConversationId, text: str) -> None:
    server.events.run_started(where, None, Origin.BACKGROUND)
    server.events.message_ended(server.events.message_started(where, text), interim=False)
    server.events.run_ended(where, DONE)


def said(client: MemoryTransport) -> list[str]:
    return [frame["message"]["text"] for frame in client.seen if frame["type"] == "message.completed"]


async def test_a_database_that_is_locked_for_a_while_costs_a_while(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client, _ = await connected(server)
        where = await created(client)
        other = sqlite3.connect(tmp_path / "pheby.db", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(2.5, other.execute, ["ROLLBACK"])
        timer.start()
        say(server, where, "while it was locked")
        await client.until("run.ended")
        timer.join()
        other.close()
        assert said(client) == ["while it was locked"]


async def test_on_a_full_disk_clients_are_told_and_hermess_words_wait(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client, _ = await connected(server)
        where = await created(client)
        await server.events.settled()

        def full(database: sqlite3.Connection) -> object:
            pages = database.execute("PRAGMA page_count").fetchone()[0]
            return database.execute(f"PRAGMA max_page_count = {pages}").fetchone()

        await server._store.read(full)
        say(server, where, "x" * 400_000)
        request = {"conversation_id": where, "client_message_id": "m1", "text": "y" * 90_000}
        refused = await client.request("message.send", **request)
        assert (refused["code"], refused["retryable"]) == ("unavailable", True)
        assert said(client) == []
        await server._store.read(lambda database: database.execute("PRAGMA max_page_count = 1000000").fetchone())
        await client.until("run.ended")
        assert [len(text) for text in said(client)] == [400_000]
        admitted = await client.request("message.send", **request)
        assert admitted["receipt"]["state"] == "admitted"


@pytest.mark.parametrize("damage", ["header", "pages", "truncated"])
async def test_a_damaged_database_is_put_aside_and_clients_get_a_snapshot(tmp_path: Path, damage: str) -> None:
    """G6: also when the damage is inside, and the process had died before it could close the file."""
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client, welcome = await connected(server)
        where = await created(client)
        for number in range(60):
            say(server, where, f"text {number} " + "x" * 2_000)
        await client.request("ping")
        cursor = {"epoch": welcome["epoch"], "seq": server.published_seq}
        # As after a kill: the log is still in use.
        copy = tmp_path / "copy.db"
        with sqlite3.connect(copy) as target:
            await server._store.read(lambda database: database.backup(target))
    target.close()
    for name in ("pheby.db-wal", "pheby.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    content = bytearray(copy.read_bytes())
    if damage == "header":
        content[:100] = b"z" * 100
    elif damage == "pages":
        for start in range(4_096 * 8, len(content) - 4_096, 4_096 * 3):
            content[start : start + 4_096] = b"z" * 4_096
    else:
        del content[len(content) // 2 :]
    (tmp_path / "pheby.db").write_bytes(content)
    async with running_server(str(tmp_path), hermes) as server:
        client, again = await connected(server, resume=cursor)
        assert (again["resumed"], again["epoch"] != welcome["epoch"]) == (False, True)
        assert client.seen[-1]["type"] == "sync.completed"
        say(server, where, "it lives")
        await client.until("run.ended")
        assert said(client) == ["it lives"]
    assert list(tmp_path.glob("pheby.db.damaged-*"))


async def test_damage_that_shows_while_it_runs_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        told = asyncio.Event()
        server.on_damaged = told.set
        client, _ = await connected(server)
        where = await created(client)

        def damaged(_: sqlite3.Connection) -> object:
            failure = sqlite3.DatabaseError("database disk image is malformed")
            failure.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise failure

        monkeypatch.setattr("pheby_server.sequencer.append_events", lambda _: damaged)
        say(server, where, "lost")
        await asyncio.wait_for(told.wait(), 5)
        assert said(client) == []


@pytest.mark.parametrize("found_by", ["writing", "reading"])
async def test_what_was_found_damaged_is_never_opened_again(tmp_path: Path, found_by: str) -> None:
    """G6: also when the pages that a start reads are whole."""
    hermes, told = ManualHermes(), asyncio.Event()
    async with running_server(str(tmp_path), hermes) as server:
        server.on_damaged = told.set
        client, welcome = await connected(server)
        where = await created(client)
        for number in range(60):
            say(server, where, f"text {number} " + "x" * 2_000)
        await client.request("ping")
        # What goes on behind a run's end would read the pages again before they are overwritten.
        await asyncio.gather(*server.runs._tasks)
        overwrite_data(tmp_path / "pheby.db")
        if found_by == "reading":
            answer = await client.request("conversation.history", conversation_id=where)
            assert answer["type"] == "error"
        else:
            say(server, where, "lost")
        await asyncio.wait_for(told.wait(), 5)
    assert list(tmp_path.glob("pheby.db.damaged-*"))
    async with running_server(str(tmp_path), hermes) as server:
        client, again = await connected(server, resume={"epoch": welcome["epoch"], "seq": welcome["seq"]})
        assert (again["resumed"], again["epoch"] != welcome["epoch"]) == (False, True)
        say(server, where, "it lives")
        await client.until("run.ended")
        assert said(client) == ["it lives"]


def overwrite_data(file: Path) -> None:
    """Overwrite every page of a database that is in use, except for the tables' first ones."""
    other = sqlite3.connect(file, isolation_level=None)
    # A change of somebody else: what the server keeps in memory counts no more.
    other.execute("INSERT INTO meta VALUES ('other', '')")
    other.execute("DELETE FROM meta WHERE key = 'other'")
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    first = other.execute("SELECT max(rootpage) FROM sqlite_master").fetchone()[0] * 4_096
    other.close()
    with file.open("r+b") as content:
        content.seek(first)
        content.write(b"z" * (file.stat().st_size - first))


async def test_while_nothing_can_be_stored_newcomers_are_welcomed_and_answers_come(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client, _ = await connected(server)
        where = await created(client)
        other = sqlite3.connect(tmp_path / "pheby.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        say(server, where, "it waits")
        async with asyncio.timeout(8):
            newcomer, welcome = await connected(server, device_id="newcomer")
            refused = await client.request("message.receipt", client_message_id="none")
        assert welcome["type"] == "welcome"
        assert (refused["code"], refused["retryable"]) == ("unavailable", True)
        assert said(newcomer) == []
        other.execute("ROLLBACK")
        other.close()
        for each in (client, newcomer):
            await each.until("run.ended")
        assert said(client) == ["it waits"]


async def test_the_mark_that_guards_the_log_is_itself_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: else a power cut takes it along with the events."""
    asked: list[bool] = []
    real = Store.transact

    async def transact(self: Store, work: Any, *, durable: bool = False) -> Any:
        asked.append(durable)
        return await real(self, work, durable=durable)

    monkeypatch.setattr(Store, "transact", transact)
    async with running_server(str(tmp_path), ManualHermes()):
        assert asked[0] is True
