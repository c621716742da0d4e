"""The store's disk misbehaves under a running gateway: nothing acknowledged is lost, nobody restarts anything (R-M4).

A disk that is full stops Hermes as well, and a small one of its own needs root. So it is the size of a file that is
limited (RLIMIT_FSIZE of the gateway's process, set from outside): the store's log of writes is made larger than every
other file of the home, and may then grow no further. SQLite hears EFBIG where a full disk says ENOSPC; Hermes's own
files have room.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from device import Device
from plain_client import Frame, PlainClient, fold, settle
from test_conversations import rename
from test_restart import first_connection
from test_seeded import walk

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOM = 4_194_304
"""So much the gateway's other files may grow while the store's may not."""
PAGE = 4_096


def store_of(stack: Any) -> Path:
    found: Path = stack.home / "pheby" / "pheby.db"
    return found


def opened(stack: Any) -> contextlib.closing[sqlite3.Connection]:
    """A connection of somebody else to the store's database."""
    return contextlib.closing(sqlite3.connect(store_of(stack), isolation_level=None))


@contextlib.contextmanager
def locked(stack: Any) -> Iterator[None]:
    """Somebody else writes, and goes on writing."""
    with opened(stack) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextlib.contextmanager
def full(stack: Any) -> Iterator[None]:
    """Not one byte more for the store."""
    log = store_of(stack).with_name("pheby.db-wal")
    with opened(stack) as reader, opened(stack) as writer:
        # As long as somebody reads what was there before, the log of writes only grows.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meta").fetchone()
        largest = max(file.stat().st_size for file in stack.home.rglob("*") if file.is_file())
        writer.execute("INSERT INTO meta VALUES ('filling', zeroblob(?))", (largest + ROOM,))
        writer.execute("DELETE FROM meta WHERE key = 'filling'")
        _, most = before = resource.prlimit(stack.gateway_pid, resource.RLIMIT_FSIZE)
        resource.prlimit(stack.gateway_pid, resource.RLIMIT_FSIZE, (log.stat().st_size, most))
        try:
            yield
        finally:
            resource.prlimit(stack.gateway_pid, resource.RLIMIT_FSIZE, before)


Fault = Callable[[Any], AbstractContextManager[None]]


async def until_moment(client: PlainClient, moment: str, receipt: Frame) -> None:
    if moment != "before the hand-over":
        await client.run_started(receipt["run_id"])
    while moment == "in mid-stream" and sum(frame.get("run_id") == receipt["run_id"] for frame in client.frames) < 5:
        await client.receive()


@pytest.mark.parametrize(
    ("fault", "moment"),
    [
        (locked, "in mid-stream"),
        (full, "before the hand-over"),
        (full, "before the first word"),
    ],
)
async def test_a_store_that_cannot_be_written_for_a_while_costs_that_while(stack, name, fault: Fault, moment):
    """R-M4, R-I2, B1: what Hermes says waits and comes once; what a client asks for is refused for now."""
    if stack.hermes_defaults:
        return  # settings of the display change nothing about it
    pid = stack.gateway_pid
    async with PlainClient(stack.url, stack.secret, "faulty") as client:
        await client.hello()
        conversation_id, other_id = await client.create(name), await client.create(f"other-{name}")
        receipt = await client.say(conversation_id, "slow 20", f"1{name}")
        await until_moment(client, moment, receipt)
        later = {"conversation_id": other_id, "client_message_id": f"2{name}", "text": "say it later"}
        asked = {
            "read": {"type": "conversation.history", "conversation_id": conversation_id},
            "send": {"type": "message.send", **later},
            "create": {"type": "conversation.create", "client_conversation_id": f"refused-{name}"},
            "rename": {"type": "conversation.rename", "conversation_id": other_id, "title": f"Refused {name}"},
        }
        newcomer = Device(stack, f"newcomer-{name}")
        with fault(stack):
            found, _ = await asyncio.gather(answers(client, asked), newcomer.connect())
            assert found.pop("read")["messages"][0]["text"] == "slow 20"
            for refused in found.values():
                assert (refused.get("code"), refused.get("retryable")) == ("unavailable", True), refused
            await settle(client, 1.0)
        assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
        sent = await client.request("message.send", **later)
        assert (await client.run_end(sent["receipt"]["run_id"]))["status"] == "completed"
        history = await client.history(conversation_id)
        words = " ".join(f"w{number}" for number in range(1, 21))
        assert [message["text"] for message in history] == ["slow 20", words]
        for where in (conversation_id, other_id):
            shown = {key: message["text"] for key, message in fold(client.of(where)).items()}
            assert shown == {message["message_id"]: message["text"] for message in await client.history(where)}
        await newcomer.in_step()
        await newcomer.history(conversation_id)
        shown = {key: message.text for key, message in newcomer.state.messages.items()}
        assert shown.items() >= {message["message_id"]: message["text"] for message in history}.items()
        await newcomer.cut()
        listed = {found["conversation_id"]: found for found in await walk(client, 100)}
        assert f"refused-{name}" not in [found.get("client_conversation_id") for found in listed.values()]
        assert listed[other_id]["title"] != f"Refused {name}"
        assert listed[conversation_id].get("active_run_id") is None
    assert stack.gateway_pid == pid


async def answers(client: PlainClient, requests: dict[str, Frame]) -> dict[str, Frame]:
    """The answers to requests that are sent at once, by the requests' ids."""
    for request_id, frame in requests.items():
        await client.send_text(json.dumps({"id": request_id, **frame}))
    found: dict[str, Frame] = {}
    while len(found) < len(requests):
        frame = await client.receive()
        if frame.get("id") in requests:
            found[frame["id"]] = frame
    return found


def overwrite(file: Path, start: int, end: int | None = None) -> None:
    with file.open("r+b") as content:
        content.seek(start)
        content.write(b"z" * ((file.stat().st_size if end is None else end) - start))


def header(file: Path) -> None:
    overwrite(file, 0, 100)


def pages(file: Path) -> None:
    """Everything but what a start reads first."""
    overwrite(file, 3 * PAGE)


@pytest.mark.parametrize("damage", [header, pages])
async def test_after_a_crash_that_damaged_the_store_hermess_rows_are_shown_again(stack, name, damage):
    """R-M4, R-I2, G9: a new epoch, a snapshot on the same socket, and the conversations that Hermes knows."""
    if stack.hermes_version == "simulated" or stack.hermes_defaults:
        return  # it is about a process that dies, and Hermes's own rows
    async with PlainClient(stack.url, stack.secret, "damaged") as client:
        welcome = await client.hello()
        conversation_id = await client.create(name)
        await client.exchange(conversation_id, "say what is kept", f"1{name}")
        title = (await rename(client, conversation_id, f"Kept {name}"))["conversation"]["title"]
        receipt = await client.say(conversation_id, "slow 100", f"2{name}")
        await until_moment(client, "in mid-stream", receipt)
        before = [message["text"] for message in await client.history(conversation_id)][:3]
        cursor = {"epoch": welcome["epoch"], "seq": max(frame.get("seq", 0) for frame in client.frames)}
    await stack.gateway.kill()
    with opened(stack) as other:
        # What stands in the log of writes would stand in for what is damaged.
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    damage(store_of(stack))
    aside = len(put_aside(stack))
    await stack.start_gateway()
    assert len(put_aside(stack)) == aside + 1
    async with PlainClient(stack.url, stack.secret, "damaged") as client:
        again = await anew(client, cursor, welcome)
        assert client.snapshot("runs") == []
        await shown_again(client, conversation_id, title, before)
        seq = max(frame.get("seq", 0) for frame in client.frames)
    async with PlainClient(stack.url, stack.secret, "damaged") as client:
        assert (await client.hello(resume={"epoch": again["epoch"], "seq": seq}))["resumed"] is True


async def test_damage_that_shows_while_the_gateway_runs_costs_a_connection(stack, name):
    """R-M4, R-I2: the store is left behind and begun anew; Hermes and its process go on."""
    if stack.hermes_version == "simulated" or stack.hermes_defaults:
        return  # the gateway's plugin begins anew, and shows Hermes's own rows
    pid, aside = stack.gateway_pid, len(put_aside(stack))
    async with PlainClient(stack.url, stack.secret, "damaged") as client:
        welcome = await client.hello()
        conversation_id = await client.create(name)
        await client.exchange(conversation_id, "say what is kept", f"1{name}")
        title = (await rename(client, conversation_id, f"Kept {name}"))["conversation"]["title"]
        await settle(client)
        before = [message["text"] for message in await client.history(conversation_id)]
        cursor = {"epoch": welcome["epoch"], "seq": max(frame.get("seq", 0) for frame in client.frames)}
        with opened(stack) as other:
            # A change of somebody else: what the gateway keeps in memory counts no more.
            other.execute("INSERT INTO meta VALUES ('other', '')")
            other.execute("DELETE FROM meta WHERE key = 'other'")
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
        pages(store_of(stack))
        lost = await client.request(
            "message.send", conversation_id=conversation_id, client_message_id=f"2{name}", text="say lost"
        )
        assert lost["type"] == "error"
        assert await client.closed() == 1001
    async with await first_connection(stack) as client:
        await anew(client, cursor, welcome)
        await shown_again(client, conversation_id, title, before)
    assert len(put_aside(stack)) == aside + 1
    assert stack.gateway_pid == pid


def put_aside(stack: Any) -> list[Path]:
    return [file for file in store_of(stack).parent.glob("pheby.db.damaged-*") if file.name[-4] != "-"]


async def anew(client: PlainClient, cursor: Frame, before: Frame) -> Frame:
    """Come back with a cursor into a log that is lost; the welcome."""
    again = await client.hello(resume=cursor)
    assert (again["resumed"], again["epoch"] == before["epoch"]) == (False, False)
    assert again["receipts_since"] > before["receipts_since"]
    assert {frame["type"] for frame in client.frames[1:-1]} == {"snapshot"}
    return again


async def shown_again(client: PlainClient, conversation_id: str, title: str, before: list[str]) -> None:
    """A conversation is listed with what was said in it, nothing of it runs, and it goes on."""
    (found,) = [found for found in await walk(client, 100) if found["conversation_id"] == conversation_id]
    assert (found["title"], found.get("active_run_id")) == (title, None)
    texts = [message["text"] for message in await client.history(conversation_id)]
    assert texts[: len(before)] == before
    run = await client.exchange(conversation_id, "say and on we go", f"on-{conversation_id}")
    assert run["status"] == "completed"
    after = [message["text"] for message in await client.history(conversation_id)]
    assert after == [*texts, "say and on we go", after[-1]]
    assert "and on we go" in after[-1]


async def test_a_cursor_that_is_not_of_this_log_gets_a_snapshot_in_mid_stream(stack, client, name):
    """R-I2, G4: on the same socket, with the text so far; live goes on behind it, and the next cursor is good."""
    welcome = client.frames[0]
    conversation_id = await client.create(name)
    receipt = await client.say(conversation_id, "slow 20", f"1{name}")
    await client.run_started(receipt["run_id"])
    if welcome["capabilities"]["streaming"]:
        await until_moment(client, "in mid-stream", receipt)
    ahead = {"epoch": welcome["epoch"], "seq": max(frame.get("seq", 0) for frame in client.frames) + 1_000}
    await asyncio.gather(
        follows_from_a_snapshot(stack, {"epoch": "foreign", "seq": 5}, receipt),
        follows_from_a_snapshot(stack, ahead, receipt),
    )


async def follows_from_a_snapshot(stack: Any, cursor: Frame, receipt: Frame) -> None:
    """Come with this cursor into a run, hear its end, and come once more with the cursor that was got."""
    device_id = f"stranger-{cursor['seq']}"
    async with PlainClient(stack.url, stack.secret, device_id) as client:
        welcome = await client.hello(resume=cursor)
        assert welcome["resumed"] is False
        assert {frame["type"] for frame in client.frames[1:-1]} == {"snapshot"}
        assert receipt["run_id"] in [run["run_id"] for run in client.snapshot("runs")]
        assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
        so_far = [{"type": "message.created", "message": message} for message in client.snapshot("messages")]
        shown = fold([*so_far, *client.of(receipt["conversation_id"])])
        answer = (await client.history(receipt["conversation_id"]))[-1]
        assert shown[answer["message_id"]]["text"] == answer["text"] == " ".join(f"w{n}" for n in range(1, 21))
        good = {"epoch": welcome["epoch"], "seq": max(frame.get("seq", 0) for frame in client.frames)}
    async with PlainClient(stack.url, stack.secret, device_id) as client:
        assert (await client.hello(resume=good))["resumed"] is True


async def test_a_cursor_from_before_the_logs_beginning_gets_a_snapshot(stack, name):
    """R-I2, G4: the events behind it are too old and were forgotten."""
    if stack.hermes_defaults:
        return  # settings of the display change nothing about it
    async with PlainClient(stack.url, stack.secret, "long-away") as client:
        welcome = await client.hello()
        conversation_id = await client.create(name)
        await client.exchange(conversation_id, "say it is long ago", f"1{name}")
        await settle(client)
    with opened(stack) as other:
        other.execute("UPDATE events SET time = 1")
    await stack.restart(kill=True)
    async with PlainClient(stack.url, stack.secret, "at-home") as client:
        await client.hello()
        # The first change after a start is when old events are forgotten.
        await client.create(f"new-{name}")
    async with PlainClient(stack.url, stack.secret, "long-away") as client:
        again = await client.hello(resume={"epoch": welcome["epoch"], "seq": welcome["seq"]})
        assert (again["resumed"], again["epoch"]) == (False, welcome["epoch"])
        assert {frame["type"] for frame in client.frames[1:-1]} == {"snapshot"}
        assert (await client.exchange(conversation_id, "say and on we go", f"2{name}"))["status"] == "completed"
