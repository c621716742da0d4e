"""The desk for attachments: from a file of the agent to what every client knows, and to its end after seven days."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import logging
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol import client_state
from pheby_protocol.codec import decode
from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import ConversationId, MessageId
from pheby_protocol.messages.history import ConversationHistory
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_server import attachments, file_store
from pheby_server.boundary import RequestError
from pheby_server.file_store import FileStore
from pheby_server.ports import AgentFile, Delivery, Outcome, RunResult
from pheby_server.sequencer import Change
from pheby_server.server import Server
from pheby_server.stores import Store, StoreUnavailableError
from pheby_server.testing import CountedIds, FakeClock, ManualHermes, MemoryTransport, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)
NUMBERS = itertools.count(10)
DAYS_7 = 7 * 24 * 3_600
CONTENT = b"%PDF-1.7\nfor the owner\n"


class Rig:
    """A conversation, a client in step, and files of the agent."""

    def __init__(
        self, server: Server, hermes: ManualHermes, client: MemoryTransport, clock: FakeClock, work: Path, name: str
    ) -> None:
        self.server, self.hermes, self.client, self.clock, self.work = server, hermes, client, clock, work
        self.events, self.name = server.events, ConversationId(name)
        self.files = Path(server.config.storage) / "files"

    def make(self, name: str = "report.pdf", content: bytes = CONTENT) -> AgentFile:
        self.work.mkdir(exist_ok=True)
        path = os.path.join(self.work, name)
        Path(path).write_bytes(content)
        return AgentFile(path=path, name=name)

    async def attach(self, file: AgentFile | None = None, message_id: MessageId | None = None) -> bool:
        return await self.events.attach(self.name, file or self.make(), message_id)

    async def attached(self, file: AgentFile | None = None) -> dict[str, Any]:
        """A file that was attached, as clients see it."""
        assert await self.attach(file) is True
        (*_, created) = await self.seen("attachment.created")
        found: dict[str, Any] = created["attachment"]
        return found

    def begin(self) -> None:
        self.events.run_started(self.name, None, Origin.BACKGROUND)

    async def seen(self, *types: str) -> list[dict[str, Any]]:
        await self.events.settled()
        await self.client.request("ping")
        return [frame for frame in self.client.seen if frame["type"] in types]

    async def notices(self) -> list[str]:
        created = await self.seen("message.created")
        return [frame["message"]["text"] for frame in created if frame["message"]["role"] == "notice"]

    async def history(self, **fields: Any) -> list[dict[str, Any]]:
        answer = await self.client.request("conversation.history", conversation_id=self.name, **fields)
        found: list[dict[str, Any]] = answer["messages"]
        return found

    async def get(self, attachment: dict[str, Any]) -> dict[str, Any]:
        answer = await self.client.request("attachment.get", attachment_id=attachment["attachment_id"])
        return answer.get("attachment") or answer

    async def bytes_of(self, attachment: dict[str, Any]) -> bytes:
        opened = await self.server.attachments.open(attachment["attachment_id"])
        with opened.file as file:
            return file.read()

    async def refusal(self, attachment_id: str) -> ErrorCode:
        with pytest.raises(RequestError) as refused:
            await self.server.attachments.open(attachment_id)
        assert str(self.work.parent) not in str(refused.value)
        return refused.value.code

    async def delete(self, name: str | None = None) -> None:
        answer = await self.client.request("conversation.delete", conversation_id=name or self.name)
        assert answer["type"] == "conversation.delete.result"

    async def pass_time(self, seconds: float) -> None:
        """Let time pass as it does: what waits for it has its turn."""
        while seconds > 0:
            step = min(seconds, 6 * 3_600)
            self.clock.move(step)
            seconds -= step
            await self.idle()

    async def idle(self) -> None:
        """Returns when the desk waits for its next look."""
        desk = self.server.attachments
        while desk._tasks:
            await asyncio.gather(*desk._tasks)

    async def look(self) -> None:
        """The desk looks once."""
        await self.pass_time(attachments.LOOK_SECONDS)

    def on_disk(self) -> list[str]:
        return sorted(found.name for found in self.files.iterdir())


@asynccontextmanager
async def rig_in(
    folder: Path, clock: FakeClock | None = None, name: str = "", ids: CountedIds | None = None, **settings: Any
) -> AsyncIterator[Rig]:
    """A rig; with a name it goes on with that conversation."""
    hermes, clock = ManualHermes(), clock or FakeClock()
    async with running_server(str(folder / "pheby"), hermes, clock=clock, ids=ids, **settings) as server:
        client = MemoryTransport(server)
        await client.hello()
        if not name:
            made = await client.request("conversation.create", client_conversation_id=f"c{next(NUMBERS)}")
            name = made["conversation"]["conversation_id"]
        rig = Rig(server, hermes, client, clock, folder / "work", name)
        await rig.idle()
        yield rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig_in(tmp_path) as rig:
        yield rig


@pytest.fixture(autouse=True)
def no_path_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Any:
    """R-G1: whatever a test here does, no log record has a path of a file."""
    caplog.set_level(logging.DEBUG, "pheby_server")
    yield
    said = "\n".join(
        str(vars(record) | {"exc": record.exc_info and str(record.exc_info[1])}) for record in caplog.records
    )
    assert str(tmp_path) not in caplog.text + said


def store_fails(monkeypatch: pytest.MonkeyPatch, *, after: int = 0) -> list[bool]:
    """The store refuses its transactions from the given one on, while the list has something in it."""
    failing, count, transact = [True], [after], Store.transact

    async def fails(store: Store, work: Any, *, durable: bool = False) -> Any:
        if failing:
            if count[0] <= 0:
                raise StoreUnavailableError("full")
            count[0] -= 1
        return await transact(store, work, durable=durable)

    monkeypatch.setattr(Store, "transact", fails)
    return failing


class Gate:
    """Holds copies between their bytes and their end, in their threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self._open = asyncio.Event(), threading.Event()
        loop, flush = asyncio.get_running_loop(), os.fsync

        def held(descriptor: int) -> None:
            loop.call_soon_threadsafe(self.reached.set)
            assert self._open.wait(5)
            flush(descriptor)

        monkeypatch.setattr(file_store.os, "fsync", held)

    def open(self) -> None:
        self._open.set()


# Taking


async def test_a_file_is_described_as_the_contract_says(rig: Rig) -> None:
    """R-G1: and never by a path of the server's."""
    rig.begin()
    message_id = rig.events.message_started(rig.name, "Here it is.")
    attachment = await rig.attached()
    assert attachment == {
        "attachment_id": attachment["attachment_id"],
        "conversation_id": rig.name,
        "message_id": message_id,
        "file_name": "report.pdf",
        "media_type": "application/pdf",
        "size": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "inline_image": False,
        "status": "available",
        "created_at": rig.clock.now_ms(),
        "expires_at": rig.clock.now_ms() + DAYS_7 * 1_000,
        "path": f"v1/attachments/{attachment['attachment_id']}",
    }
    assert await rig.bytes_of(attachment) == CONTENT
    assert await rig.get(attachment) == attachment
    rig.events.run_ended(rig.name, DONE)
    (message,) = await rig.history()
    assert message["attachments"] == [attachment]
    assert str(rig.work.parent) not in json.dumps(rig.client.seen)


async def test_a_file_is_told_before_what_comes_behind_it(rig: Rig) -> None:
    """R-G1: its message says so, then it is announced, then the run ends."""
    rig.begin()
    rig.events.message_started(rig.name, "Here it is.")
    await rig.attach()
    rig.events.run_ended(rig.name, DONE)
    frames = await rig.seen("message.updated", "attachment.created", "message.completed", "run.ended")
    assert [frame["type"] for frame in frames] == [
        "message.updated",
        "attachment.created",
        "message.completed",
        "run.ended",
    ]
    assert frames[0]["message"]["attachments"] == frames[2]["message"]["attachments"] == [frames[1]["attachment"]]


async def test_files_without_a_text_share_one_message_without_one(rig: Rig) -> None:
    """J4: in their order, also when they come at once."""
    rig.begin()
    names = [f"{number}.pdf" for number in range(5)]
    assert await asyncio.gather(*[rig.attach(rig.make(name)) for name in names]) == [True] * 5
    rig.events.run_ended(rig.name, DONE)
    (message,) = await rig.history()
    assert (message["text"], message["status"], message["final"], message["role"]) == (
        "",
        "completed",
        True,
        "assistant",
    )
    assert [each["file_name"] for each in message["attachments"]] == names
    # The next run has its own.
    rig.begin()
    await rig.attach()
    rig.events.run_ended(rig.name, DONE)
    assert [len(each["attachments"]) for each in await rig.history()] == [5, 1]


async def test_a_file_outside_of_any_run_has_a_message_of_its_own(rig: Rig) -> None:
    attachment = await rig.attached()
    (message,) = await rig.history()
    assert (message["text"], message["origin"], message["attachments"]) == ("", "system", [attachment])
    assert "run_id" not in message


async def test_a_file_follows_the_message_that_was_delivered_before(rig: Rig) -> None:
    """R-I1: also while a run is active, which it is no part of."""
    delivered = await rig.events.deliver(
        rig.name, Delivery(text="result", origin=Origin.CRON, role=MessageRole.ASSISTANT)
    )
    rig.begin()
    text = rig.events.message_started(rig.name, "talking")
    assert await rig.attach(message_id=delivered) is True
    rig.events.run_ended(rig.name, DONE)
    found = {message["message_id"]: message for message in await rig.history()}
    assert [each["file_name"] for each in found[delivered]["attachments"]] == ["report.pdf"]
    assert found[text]["attachments"] == []


async def test_a_picture_has_its_size_and_may_be_shown(rig: Rig) -> None:
    """R-G1."""
    gif = b"GIF89a\x07\0\x09\0\0\0\0;"
    shown = await rig.attached(rig.make("a.gif", gif))
    assert (shown["inline_image"], shown["image"]) == (True, {"width": 7, "height": 9})
    drawing = await rig.attached(rig.make("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg' width='3' height='4'/>"))
    assert (drawing["inline_image"], drawing["media_type"]) == (False, "image/svg+xml")


@pytest.mark.parametrize(
    "name",
    [
        "отчёт.pdf",
        'a"b.pdf',
        "x\r\nSet-Cookie: y.pdf",
        "\u202efdp.exe",
        "\U0001f600" * 60,
        "\udcff\udcfe.pdf",
        "-rf",
        "~",
    ],
)
async def test_any_name_reaches_the_owner_as_one_safe_line(rig: Rig, name: str) -> None:
    """J10: the bytes are the right ones."""
    attachment = await rig.attached(rig.make(name))
    assert attachment["file_name"] == file_store.safe_name(name)
    assert attachment["file_name"].isprintable()
    assert await rig.bytes_of(attachment) == CONTENT


async def test_what_is_refused_is_one_notice_without_a_path(rig: Rig, tmp_path: Path) -> None:
    """R-G2, R-G4, J1, J6: in its run, and false for Hermes."""
    rig.begin()
    folder = rig.work / "folder"
    folder.mkdir(parents=True)
    refused = {
        str(rig.work / "none.pdf"): "it is not there any more",
        str(folder): "it may not be sent",
        "/proc/self/environ": "it may not be sent",
        str(tmp_path / "pheby" / "pheby.db"): "it may not be sent",
        f"{tmp_path}/\0": "it may not be sent",
    }
    for path in refused:
        assert await rig.attach(AgentFile(path=path, name="name\r\n.pdf")) is False
    assert await rig.attach(AgentFile(path=None, name="name\r\n.pdf")) is False
    whys = [*refused.values(), "it could not be read or copied"]
    assert await rig.notices() == [f"The file \u201cname.pdf\u201d was not attached: {why}." for why in whys]
    assert await rig.seen("attachment.created") == []
    assert str(tmp_path) not in json.dumps(rig.client.seen)
    assert all("run_id" in frame["message"] for frame in await rig.seen("message.created"))
    assert rig.on_disk() == []


async def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    """J6."""
    async with rig_in(tmp_path, max_file_bytes=1_000) as rig:
        assert await rig.attach(rig.make(content=b"x" * 1_001)) is False
        (notice,) = await rig.notices()
        assert "too large" in notice
        assert await rig.attach(rig.make(content=b"x" * 1_000)) is True


@pytest.mark.parametrize("how", ["one after the other", "at once", "in one delivery"])
async def test_all_files_together_have_a_limit(tmp_path: Path, how: str) -> None:
    """R-M4: also when they come at the same time."""
    async with rig_in(tmp_path, max_files_bytes=2_500) as rig:
        files = [rig.make(f"{number}", b"x" * 1_000) for number in range(4)]
        if how == "at once":
            await asyncio.gather(*[rig.attach(file) for file in files])
        elif how == "in one delivery":
            delivery = Delivery(text="x", origin=Origin.CRON, role=MessageRole.ASSISTANT, files=tuple(files))
            await rig.events.deliver(rig.name, delivery)
        else:
            for file in files:
                await rig.attach(file)
        assert len(rig.on_disk()) == 2
        assert ["no room" in notice for notice in await rig.notices()] == [True, True]
        # What has gone makes room.
        await rig.pass_time(DAYS_7)
        assert rig.on_disk() == []
        assert await rig.attach(files[0]) is True


async def test_a_disk_that_fails_is_a_notice(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """J6, R-M4."""

    def broken(_: int) -> None:
        raise OSError(28, "full", str(rig.files))

    monkeypatch.setattr(file_store.os, "fsync", broken)
    assert await rig.attach() is False
    (notice,) = await rig.notices()
    assert "no room" in notice
    assert rig.on_disk() == []


@pytest.mark.parametrize("after", [0, 1])
async def test_a_store_that_fails_is_a_notice_when_it_works_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """J6, R-M4: before the copy and behind it; nothing is left of it."""
    failing = store_fails(monkeypatch, after=after)
    assert await rig.attach() is False
    assert rig.on_disk() == []
    failing.clear()
    (notice,) = await rig.notices()
    assert "could not be read or copied" in notice


async def test_who_waits_no_longer_does_not_leave_it_half_done(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    waiting = asyncio.create_task(rig.attach())
    await gate.reached.wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    gate.open()
    frame = await rig.client.until("attachment.created")
    assert await rig.bytes_of(frame["attachment"]) == CONTENT


# What happens while a file is copied


async def test_a_text_that_ends_meanwhile_keeps_its_end_and_gets_the_file(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-G1, S4: nothing of what came meanwhile is undone."""
    rig.begin()
    message_id = rig.events.message_started(rig.name, "one")
    gate = Gate(monkeypatch)
    waiting = asyncio.create_task(rig.attach())
    await gate.reached.wait()
    rig.events.message_replaced(message_id, "two")
    rig.events.message_appended(message_id, " three")
    rig.events.message_ended(message_id, interim=False)
    rig.events.run_ended(rig.name, DONE)
    await rig.events.settled()
    gate.open()
    assert await waiting is True
    (message,) = await rig.history()
    assert (message["text"], message["status"], len(message["attachments"])) == ("two three", "completed", 1)


async def test_a_text_that_streams_on_meanwhile_loses_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """S4."""
    rig.begin()
    message_id = rig.events.message_started(rig.name, "one")
    gate = Gate(monkeypatch)
    waiting = asyncio.create_task(rig.attach())
    await gate.reached.wait()
    rig.events.message_appended(message_id, " two")
    gate.open()
    assert await waiting is True
    rig.events.message_appended(message_id, " three")
    rig.events.run_ended(rig.name, DONE)
    (message,) = await rig.history()
    assert (message["text"], len(message["attachments"])) == ("one two three", 1)
    assert rig.client.seen[-1]["type"] == "conversation.history.result"


async def test_a_run_that_ends_meanwhile_leaves_the_file_a_message_without_a_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3: nothing of a run follows its end."""
    rig.begin()
    gate = Gate(monkeypatch)
    waiting = asyncio.create_task(rig.attach())
    await gate.reached.wait()
    rig.events.run_ended(rig.name, DONE)
    await rig.events.settled()
    gate.open()
    assert await waiting is True
    (message,) = await rig.history()
    assert "run_id" not in message
    assert len(message["attachments"]) == 1


@pytest.mark.parametrize("in_run", [True, False])
async def test_a_conversation_that_is_deleted_meanwhile_takes_the_file_with_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, in_run: bool
) -> None:
    """R-B4: nothing is told behind the deletion, nothing is left on the disk."""
    if in_run:
        rig.begin()
    else:
        await rig.events.deliver(rig.name, Delivery(text="x", origin=Origin.CRON, role=MessageRole.ASSISTANT))
    gate = Gate(monkeypatch)
    waiting = asyncio.create_task(rig.attach())
    await gate.reached.wait()
    rig.client.send({"type": "conversation.delete", "id": "d", "conversation_id": rig.name})
    if in_run:
        assert await rig.hermes.interrupted.get() == rig.name
        rig.events.run_ended(rig.name, RunResult(outcome=Outcome.CANCELLED))
    await rig.client.until("conversation.delete.result")
    gate.open()
    assert await waiting is True
    await rig.idle()
    assert rig.on_disk() == []
    frames = [frame for frame in await rig.seen() or rig.client.seen if frame.get("conversation_id") == rig.name]
    assert frames[-1]["type"] == "conversation.deleted"
    rows = await rig.server._store.read(lambda db: db.execute("SELECT count(*) FROM attachments").fetchone()[0])
    assert rows == 0


async def test_another_conversation_that_is_deleted_meanwhile_takes_nothing_with_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-B4, R-G4: what belongs to nothing yet is not what belongs to nothing any more."""
    made = await rig.client.request("conversation.create", client_conversation_id="c2")
    gate = Gate(monkeypatch)
    waiting = asyncio.create_task(rig.attach())
    await gate.reached.wait()
    await rig.delete(made["conversation"]["conversation_id"])
    gate.open()
    await waiting
    await rig.idle()
    (created,) = await rig.seen("attachment.created")
    assert await rig.bytes_of(created["attachment"]) == CONTENT


async def test_another_conversation_that_is_deleted_before_a_file_has_its_message(rig: Rig) -> None:
    """R-B4, R-G4: as in a delivery of several files."""
    taken = await rig.server.attachments.take(rig.make())
    made = await rig.client.request("conversation.create", client_conversation_id="c2")
    await rig.delete(made["conversation"]["conversation_id"])
    await rig.idle()
    assert rig.on_disk() == [taken.attachment_id]


async def test_a_stop_gives_up_what_is_being_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L1, R-M4: and the next start deletes what was done of it."""
    reached, chunks = threading.Event(), file_store._chunks

    def endless(file: Any) -> Any:
        for chunk in chunks(file):
            while True:
                reached.set()
                yield chunk[:1_000]

    async with rig_in(tmp_path) as rig:
        monkeypatch.setattr(file_store, "_chunks", endless)
        waiting = asyncio.create_task(rig.attach())
        await asyncio.to_thread(reached.wait, 5)
    await asyncio.gather(waiting, return_exceptions=True)
    monkeypatch.undo()
    async with rig_in(tmp_path, name=rig.name) as again:
        assert again.on_disk() == []
        assert await again.history() == []


# Keeping and letting go


@pytest.mark.parametrize("jump", [0, 3 * 24 * 3_600_000, -3 * 24 * 3_600_000])
async def test_a_file_is_kept_for_seven_days_over_a_restart(tmp_path: Path, jump: int) -> None:
    """R-G4: to the second of the wall clock, also when that was set meanwhile."""
    clock = FakeClock()
    async with rig_in(tmp_path, clock) as rig:
        attachment = await rig.attached()
        await rig.pass_time(3 * 24 * 3_600)
        assert await rig.bytes_of(attachment) == CONTENT
    clock.jump(jump)
    async with rig_in(tmp_path, clock, rig.name) as again:
        assert await again.get(attachment) == attachment
        left = (attachment["expires_at"] - clock.now_ms()) / 1_000
        await again.pass_time(left - 1)
        assert (await again.get(attachment))["status"] == "available"
        assert await again.bytes_of(attachment) == CONTENT
        await again.pass_time(2)
        assert (await again.get(attachment))["status"] == "expired"
        assert await again.refusal(attachment["attachment_id"]) is ErrorCode.EXPIRED
        assert again.on_disk() == []
        # What it was is still known.
        (message,) = await again.history()
        assert message["attachments"] == [attachment | {"status": "expired"}]
        (event,) = await again.seen("attachment.expired")
        assert event["attachment"] == attachment | {"status": "expired"}


@pytest.mark.parametrize("hours", [-24 * 30, 24 * 8])
async def test_a_wall_clock_that_is_set_while_it_runs_counts_within_a_minute(rig: Rig, hours: int) -> None:
    """R-G4, R-M4: forward at once for who fetches it, back for as long as it says."""
    attachment = await rig.attached()
    rig.clock.jump(hours * 3_600_000)
    if hours > 0:
        assert await rig.refusal(attachment["attachment_id"]) is ErrorCode.EXPIRED
        await rig.look()
        assert rig.on_disk() == []
    else:
        await rig.pass_time(DAYS_7 + 60)
        assert await rig.bytes_of(attachment) == CONTENT
        await rig.pass_time(-hours * 3_600)
        assert rig.on_disk() == []


async def test_a_file_that_expired_while_nothing_ran_goes_at_the_start(tmp_path: Path) -> None:
    """R-G4."""
    clock = FakeClock()
    async with rig_in(tmp_path, clock) as rig:
        attachment = await rig.attached()
    clock.move(DAYS_7 + 1)
    async with rig_in(tmp_path, clock, rig.name) as again:
        assert (await again.get(attachment))["status"] == "expired"
        assert again.on_disk() == []


async def test_a_download_that_is_open_goes_on(rig: Rig) -> None:
    """R-G4."""
    attachment = await rig.attached(rig.make(content=os.urandom(100_000)))
    opened = await rig.server.attachments.open(attachment["attachment_id"])
    with opened.file as file:
        start = file.read(1_000)
        await rig.pass_time(DAYS_7 + 1)
        assert rig.on_disk() == []
        assert hashlib.sha256(start + file.read()).hexdigest() == attachment["sha256"]


async def test_files_of_others_are_never_deleted(tmp_path: Path) -> None:
    """R-G4: whatever they are called, over starts, expiries and deletions."""
    files = tmp_path / "pheby" / "files"
    files.mkdir(parents=True)
    target = tmp_path / "target"
    target.write_bytes(b"target")
    (files / "notes.txt").write_bytes(b"notes")
    (files / "att_000000000000000000000000").write_bytes(b"named like ours")
    (files / "att_folder").mkdir()
    (files / "att_folder" / "inside").write_bytes(b"inside")
    (files / "att_link").symlink_to(target)
    (files / "dangling").symlink_to("/none")
    (tmp_path / "pheby" / "att_000000000000000000000000").write_bytes(b"beside")
    os.mkfifo(files / "pipe")

    def corpus() -> list[tuple[str, int, bytes]]:
        plain = [tmp_path / "pheby" / "att_000000000000000000000000", *sorted(files.rglob("*"))]
        return [(str(p), p.lstat().st_mode, p.read_bytes() if p.is_file() else b"") for p in plain]

    before = corpus()
    clock = FakeClock()
    for _ in range(2):
        async with rig_in(tmp_path, clock) as rig:
            await rig.attached()
            await rig.pass_time(DAYS_7 + 1)
            await rig.attached()
            await rig.delete()
            await rig.idle()
        clock.move(1)
    assert target.read_bytes() == b"target"
    assert corpus() == before


async def test_a_planted_file_with_the_name_of_the_next_attachment_is_nobodys(tmp_path: Path) -> None:
    """R-G2, R-G4: it is neither served nor overwritten nor deleted, and the file that should have it is refused."""
    files = tmp_path / "pheby" / "files"
    files.mkdir(parents=True)
    async with rig_in(tmp_path, ids=CountedIds()) as rig:
        planted = [files / f"att_{number:024d}" for number in range(1, 200)]
        for each in planted:
            each.write_bytes(b"planted")
        assert await rig.attach() is False
        (notice,) = await rig.notices()
        assert "could not be read or copied" in notice
        for each in planted:
            assert await rig.refusal(each.name) is ErrorCode.NOT_FOUND
        await rig.delete()
        await rig.idle()
        assert all(each.read_bytes() == b"planted" for each in planted)


async def test_a_file_that_took_the_place_of_a_copy_is_never_served_and_outlives_it(rig: Rig) -> None:
    """R-G2, R-G4, J9."""
    attachment = await rig.attached()
    copy = rig.files / attachment["attachment_id"]
    copy.unlink()
    copy.hardlink_to(rig.make("secret", b"Y" * len(CONTENT)).path or "")
    assert await rig.refusal(attachment["attachment_id"]) is ErrorCode.EXPIRED
    await rig.pass_time(DAYS_7 + 1)
    assert (await rig.get(attachment))["status"] == "expired"
    assert copy.read_bytes() == b"Y" * len(CONTENT)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "att_",
        "../../etc/passwd",
        "..%2f",
        "att_../x",
        "pheby.db",
        "att_\0",
        "att_" + "x" * 4_096,
        "msg_1",
        "ATT_1",
        "att_ж",
    ],
)
async def test_what_is_no_id_of_a_file_here_is_not_found(rig: Rig, name: str) -> None:
    """J9."""
    attachment = await rig.attached()
    for each in (name, f"{attachment['attachment_id']}{name}" if name else attachment["attachment_id"] + ".gz"):
        assert await rig.refusal(each) is ErrorCode.NOT_FOUND
    answer = await rig.client.request("attachment.get", attachment_id=name)
    assert answer["code"] in ("not_found", "invalid_message")


async def test_one_that_cannot_be_deleted_does_not_keep_the_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-G4: and goes when it can."""
    found = [await rig.attached(rig.make(f"{number}")) for number in range(3)]
    stuck = min(found, key=lambda each: each["attachment_id"])["attachment_id"]
    remove, asked = FileStore.remove, []

    def refuses(files: FileStore, name: str, seal: str) -> None:
        asked.append(name)
        if name == stuck:
            raise PermissionError(1, "not permitted", str(rig.files / name))
        remove(files, name, seal)

    monkeypatch.setattr(FileStore, "remove", refuses)
    await rig.pass_time(DAYS_7 + 1)
    assert rig.on_disk() == [stuck]
    assert [(await rig.get(each))["status"] for each in found] == ["expired"] * 3
    assert len(await rig.seen("attachment.expired")) == 3
    tried = asked.count(stuck)
    await rig.look()
    # Soon, and not all the time.
    assert tried < asked.count(stuck) <= tried + 2
    monkeypatch.setattr(FileStore, "remove", remove)
    await rig.look()
    assert rig.on_disk() == []
    assert len(await rig.seen("attachment.expired")) == 3


async def test_a_store_that_fails_at_the_expiry_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-M4."""
    attachment = await rig.attached()
    await rig.pass_time(DAYS_7 - 30)
    failing = store_fails(monkeypatch)
    rig.clock.move(attachments.LOOK_SECONDS)
    await asyncio.to_thread(lambda: None)
    assert rig.on_disk() == [attachment["attachment_id"]]
    failing.clear()
    await rig.idle()
    assert rig.on_disk() == []
    assert (await rig.get(attachment))["status"] == "expired"


async def test_a_shorter_retention_counts_for_what_comes_from_then_on(tmp_path: Path) -> None:
    """R-G4, R-K1."""
    clock = FakeClock()
    async with rig_in(tmp_path, clock) as rig:
        first = await rig.attached()
    async with rig_in(tmp_path, clock, rig.name, retention_ms=3_600_000) as again:
        second = await again.attached()
        await again.pass_time(3_601)
        assert [(await again.get(each))["status"] for each in (first, second)] == ["available", "expired"]


# Deleted conversations


async def test_a_deleted_conversation_takes_its_files_with_it(rig: Rig) -> None:
    """R-B4."""
    attachment = await rig.attached()
    await rig.delete()
    await rig.idle()
    assert rig.on_disk() == []
    assert await rig.refusal(attachment["attachment_id"]) is ErrorCode.NOT_FOUND
    assert (await rig.get(attachment))["code"] == "not_found"


async def test_a_crash_behind_the_deletion_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-B4, R-M4."""
    monkeypatch.setattr(attachments.AttachmentDesk, "conversation_deleted", lambda _: None)
    async with rig_in(tmp_path) as rig:
        attachment = await rig.attached()
        await rig.delete()
        assert rig.on_disk() == [attachment["attachment_id"]]
        assert await rig.refusal(attachment["attachment_id"]) is ErrorCode.NOT_FOUND
    monkeypatch.undo()
    async with rig_in(tmp_path) as again:
        assert again.on_disk() == []


async def test_a_file_that_was_put_back_behind_the_deletion_goes_at_the_next_one(tmp_path: Path) -> None:
    """R-B4: what could not be deleted then is not forgotten."""
    async with rig_in(tmp_path) as rig:
        attachment = await rig.attached()
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(FileStore, "remove", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no")))
            await rig.delete()
            await rig.idle()
        assert rig.on_disk() == [attachment["attachment_id"]]
    async with rig_in(tmp_path) as again:
        assert again.on_disk() == []


async def test_a_file_that_expires_while_its_conversation_goes_is_not_told_behind_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-B4: nothing of it comes back, not even into the store."""
    attachment = await rig.attached()
    transcript, deleted = rig.server.transcript, asyncio.Event()
    find = transcript.find

    async def slow(message_id: MessageId) -> Any:
        found = await find(message_id)
        await deleted.wait()
        return found

    monkeypatch.setattr(transcript, "find", slow)
    rig.clock.jump(DAYS_7 * 1_000 + 1_000)
    rig.clock.move(attachments.LOOK_SECONDS)
    await rig.delete()
    deleted.set()
    await rig.idle()
    frames = [frame for frame in await rig.seen() or rig.client.seen if frame.get("conversation_id") == rig.name]
    assert frames[-1]["type"] == "conversation.deleted"
    assert rig.on_disk() == []
    for table in ("messages", "attachments"):
        count = await rig.server._store.read(lambda db, t=table: db.execute(f"SELECT count(*) FROM {t}").fetchone()[0])  # type: ignore[misc]
        assert count == 0, table
    assert await rig.refusal(attachment["attachment_id"]) is ErrorCode.NOT_FOUND


async def test_a_process_that_dies_while_it_copies_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-G4, R-M4: at each step; what was promised is there, what was not is gone."""

    class DiedError(BaseException):
        pass

    async def dies(*_: Any, **__: Any) -> Any:
        raise DiedError

    async with rig_in(tmp_path) as rig:
        kept = await rig.attached()
        monkeypatch.setattr(rig.server.attachments, "_in_thread", dies)
        with pytest.raises(DiedError):
            await rig.server.attachments.take(rig.make("reserved"))
        monkeypatch.undo()
        await rig.server.attachments.take(rig.make("copied"))
        assert len(rig.on_disk()) == 2
    async with rig_in(tmp_path, name=rig.name) as again:
        assert again.on_disk() == [kept["attachment_id"]]
        assert await again.bytes_of(kept) == CONTENT
        rows = await again.server._store.read(lambda db: db.execute("SELECT count(*) FROM attachments").fetchone()[0])
        assert rows == 1


# Deliveries with files


async def test_what_of_a_delivery_is_refused_is_told_with_it_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """J6, R-I1: in the same step, so that a death behind it loses no notice."""
    log, durable = rig.server._sequencer.log, []

    def noted(change: Change, **more: Any) -> Any:
        if more.get("durable"):
            durable.append(len([event for event in change.events if event.func.__name__ == "MessageCreated"]))  # type: ignore[attr-defined]
        return log(change, **more)

    monkeypatch.setattr(rig.server._sequencer, "log", noted)
    files = (rig.make(), AgentFile(path=None, name="one.pdf"), AgentFile(path="/none", name="two.pdf"))
    delivery = Delivery(text="result", origin=Origin.CRON, role=MessageRole.ASSISTANT, key="key", files=files)
    for _ in range(2):
        await rig.events.deliver(rig.name, delivery)
    assert durable == [3]
    found = await rig.history()
    assert [(message["role"], len(message["attachments"])) for message in found] == [
        ("assistant", 1),
        ("notice", 0),
        ("notice", 0),
    ]
    assert "one.pdf" in found[1]["text"]
    assert "two.pdf" in found[2]["text"]


async def test_a_delivery_of_which_nothing_is_left_is_its_notice_alone(rig: Rig) -> None:
    """H7, J6: no blank message, and once."""
    files = (AgentFile(path=None, name="one.pdf"),)
    delivery = Delivery(text="", origin=Origin.CRON, role=MessageRole.ASSISTANT, key="key", files=files)
    for _ in range(2):
        await rig.events.deliver(rig.name, delivery)
    (message,) = await rig.history()
    assert message["role"] == "notice"
    await rig.events.deliver(rig.name, Delivery(text="", origin=Origin.CRON, role=MessageRole.ASSISTANT))
    assert len(await rig.history()) == 1


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4])
async def test_a_delivery_that_cannot_be_stored_leaves_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """H4, R-M4: at each step; told again it comes once, and in its place."""
    first = await rig.events.deliver(rig.name, Delivery(text="a", origin=Origin.CRON, role=MessageRole.ASSISTANT))
    before = (await rig.history(), rig.server.conversations.get(rig.name).history_head)
    files = (rig.make("one"), AgentFile(path=None, name="no"), rig.make("two"))
    delivery = Delivery(text="b", origin=Origin.CRON, role=MessageRole.ASSISTANT, key="key", files=files)
    failing = store_fails(monkeypatch, after=after)
    with pytest.raises(StoreUnavailableError):
        await rig.events.deliver(rig.name, delivery)
    assert rig.on_disk() == []
    failing.clear()
    assert (await rig.history(), rig.server.conversations.get(rig.name).history_head) == before
    await rig.events.deliver(rig.name, delivery)
    found = await rig.history()
    assert [message["text"][:1] for message in found] == ["a", "b", "T"]
    assert found[0]["message_id"] == first
    assert found[1]["position"] - found[0]["position"] == found[2]["position"] - found[1]["position"]
    assert [each["file_name"] for each in found[1]["attachments"]] == ["one", "two"]


async def test_a_file_of_something_that_was_delivered_elsewhere_follows_it(rig: Rig) -> None:
    """R-I1, J6: its conversation was deleted, and so the message is at home."""
    await rig.delete()
    delivered = await rig.events.deliver(
        rig.name, Delivery(text="result", origin=Origin.CRON, role=MessageRole.ASSISTANT)
    )
    assert await rig.attach(message_id=delivered) is True
    assert await rig.attach(AgentFile(path=None, name="no.pdf"), delivered) is False
    (created,) = await rig.seen("attachment.created")
    assert created["attachment"]["message_id"] == delivered
    assert created["conversation_id"] != rig.name
    (notice,) = await rig.notices()
    assert "no.pdf" in notice


# Clients agree


def after(frames: list[dict[str, Any]], state: client_state.ClientState | None = None) -> client_state.ClientState:
    state = state or client_state.ClientState()
    for frame in frames:
        state = client_state.apply(state, decode(json.dumps(frame)))
    return state


async def read_all(
    rig: Rig, client: MemoryTransport, state: client_state.ClientState, start: int
) -> client_state.ClientState:
    """The state after the client has read the history, and all that came meanwhile."""
    asked = {"type": "conversation.history", "id": "h", "conversation_id": rig.name}
    client.send(asked)
    answer = await client.until("conversation.history.result", id="h")
    state = after(client.seen[start:-1], state)
    request = decode(json.dumps(asked))
    assert isinstance(request, ConversationHistory)
    return client_state.apply_answer(state, request, decode(json.dumps(answer)))  # type: ignore[arg-type]


def objects(state: client_state.ClientState) -> dict[str, Any]:
    shown = client_state.shown(state)
    return {name: shown[name] for name in ("messages", "attachments", "conversations")}


async def _attach_streaming(rig: Rig) -> None:
    rig.begin()
    rig.events.message_started(rig.name, "text")
    await rig.attach()
    rig.events.message_appended(next(iter(rig.server.transcript.open)), " more")


async def _attach_ended(rig: Rig) -> None:
    await _attach_streaming(rig)
    rig.events.run_ended(rig.name, DONE)


async def _attach_expired(rig: Rig) -> None:
    await _attach_ended(rig)
    await rig.attach()
    await rig.pass_time(DAYS_7 + 1)


async def _attach_delivered(rig: Rig) -> None:
    files = (rig.make("one"), AgentFile(path=None, name="no"), rig.make("two"))
    await rig.events.deliver(rig.name, Delivery(text="x", origin=Origin.CRON, role=MessageRole.ASSISTANT, files=files))


@pytest.mark.parametrize("what", [_attach_streaming, _attach_ended, _attach_expired, _attach_delivered])
async def test_whoever_was_there_whoever_comes_back_and_whoever_is_new_know_the_same(
    rig: Rig, what: Callable[[Rig], Any]
) -> None:
    """R-I2, B3: by events, by a replay, by a snapshot, by history alone."""
    welcome = next(frame for frame in rig.client.seen if frame["type"] == "welcome")
    await what(rig)
    await rig.events.settled()
    there = await read_all(rig, rig.client, client_state.ClientState(), 0)
    back, new = MemoryTransport(rig.server), MemoryTransport(rig.server)
    again = await back.hello("back", resume={"epoch": welcome["epoch"], "seq": welcome["seq"]})
    assert again["resumed"] is True
    await new.hello("new")
    states = [there, after(back.seen), after(new.seen)]
    # One that streams is whole in a snapshot, with its files.
    streaming = [m for m in states[2].messages.values() if m.status == "streaming"]
    assert {a.attachment_id for m in streaming for a in m.attachments} <= set(states[2].attachments)
    assert objects(states[0])["messages"] == objects(states[1])["messages"]
    states[1] = await read_all(rig, back, states[1], len(back.seen))
    states[2] = await read_all(rig, new, states[2], len(new.seen))
    assert objects(states[0]) == objects(states[1]) == objects(states[2])
    assert states[0].attachments
    for state in states:
        named = {each.attachment_id: each for m in state.messages.values() for each in m.attachments}
        assert named == dict(state.attachments)
    back.cut()
    new.cut()


async def test_an_old_page_of_history_does_not_bring_an_expired_file_back(rig: Rig) -> None:
    """R-I2: an answer that was overtaken by the event."""
    await rig.attached()
    asked = {"type": "conversation.history", "id": "h", "conversation_id": rig.name}
    rig.client.send(asked)
    old = await rig.client.until("conversation.history.result", id="h")
    await rig.pass_time(DAYS_7 + 1)
    await rig.seen()
    state = after([frame for frame in rig.client.seen if frame is not old])
    request = decode(json.dumps(asked))
    behind = client_state.apply_answer(state, request, decode(json.dumps(old)))  # type: ignore[arg-type]
    assert objects(behind) == objects(state)
    assert {each.status for each in behind.attachments.values()} == {"expired"}


async def test_copies_and_their_folder_are_the_owners_alone(rig: Rig) -> None:
    """R-G2."""
    attachment = await rig.attached()
    assert stat.S_IMODE(rig.files.stat().st_mode) == 0o700
    assert stat.S_IMODE((rig.files / attachment["attachment_id"]).stat().st_mode) == 0o600
