"""What another process leaves for the owner: taken in exactly once, whatever happens in between (R-I1)."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_server import file_store, spool
from pheby_server.ports import AgentFile, Delivery, HermesMessage, Outcome, RunResult
from pheby_server.server import Server
from pheby_server.spool import SpoolDesk, leave, spool_of, taken, waiting
from pheby_server.stores import Store, StoreUnavailableError
from pheby_server.testing import FakeClock, ManualHermes, MemoryTransport, running_server

HOME = ConversationId("conv_1000000000000000")
CHAT = ConversationId("conv_2000000000000000")
DONE = RunResult(outcome=Outcome.COMPLETED)
KEY = "01796050000000000000-0123456789abcdef"


def said(text: str, *files: AgentFile, **more: Any) -> Delivery:
    return Delivery(text=text, **{"origin": Origin.CRON, "role": MessageRole.ASSISTANT, "files": files} | more)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder, self.storage, self.work = folder, folder / "pheby", folder / "work"
        self.spool = Path(spool_of(str(self.storage)))
        self.hermes, self.clock = ManualHermes(), FakeClock()
        self.server: Server
        self.client: MemoryTransport

    def leave(self, text: str, *files: AgentFile, to: ConversationId = CHAT, **more: Any) -> str:
        return leave(str(self.spool), to, said(text, *files, **more))

    def file(self, name: str, content: bytes = b"content") -> AgentFile:
        self.work.mkdir(exist_ok=True)
        (self.work / name).write_bytes(content)
        return AgentFile(path=str(self.work / name), name=name)

    def plant(self, content: str | bytes, key: str = KEY) -> Path:
        self.spool.mkdir(parents=True, exist_ok=True)
        place = self.spool / f"{key}.json"
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place

    def entry(self, **changes: Any) -> str:
        fields = {"conversation_id": CHAT, "text": "x", "origin": "cron", "role": "assistant", "for_model": True}
        return json.dumps(fields | {"time": 1_796_050_000_000, "files": []} | changes)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.spool)) if self.spool.exists() else []

    @asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[None]:
        settings = {"home_conversation": HOME} | settings
        async with running_server(str(self.storage), self.hermes, clock=self.clock, **settings) as self.server:
            self.client = MemoryTransport(self.server)
            await self.client.hello()
            yield

    async def look(self) -> None:
        await self.server.spool.take_in()

    async def history(self, name: ConversationId = CHAT) -> list[dict[str, Any]]:
        answer = await self.client.request("conversation.history", conversation_id=name)
        found: list[dict[str, Any]] = answer.get("messages", [])
        return found

    async def texts(self, name: ConversationId = CHAT) -> list[str]:
        return [message["text"] for message in await self.history(name)]

    async def delete(self, name: ConversationId) -> None:
        answer = await self.client.request("conversation.delete", conversation_id=name)
        assert answer["type"] == "conversation.delete.result"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture(autouse=True)
def no_path_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Any:
    """R-G1."""
    caplog.set_level(logging.DEBUG, "pheby_server")
    yield
    assert str(tmp_path) not in caplog.text


# Leaving


def test_what_is_left_is_the_owners_alone(rig: Rig) -> None:
    """R-G2: also where no server has made the folder yet."""
    previous = os.umask(0)
    try:
        key = rig.leave("text", rig.file("a.pdf"))
    finally:
        os.umask(previous)
    assert rig.names() == [f"{key}.0", f"{key}.json"]
    assert {stat.S_IMODE((rig.spool / name).stat().st_mode) for name in rig.names()} == {0o600}
    assert [stat.S_IMODE(each.stat().st_mode) for each in (rig.spool, rig.storage)] == [0o700, 0o700]


def test_what_is_left_says_no_path(rig: Rig) -> None:
    """R-G1."""
    key = rig.leave("text", rig.file("a.pdf"), AgentFile(path=str(rig.folder / "none"), name="none"))
    assert str(rig.folder) not in (rig.spool / f"{key}.json").read_text()


async def test_what_may_not_be_sent_is_not_even_copied(rig: Rig) -> None:
    """R-G2, J1: and told; the rest comes."""
    (rig.folder / ".ssh").mkdir()
    key_file = rig.folder / ".ssh" / "id_ed25519"
    key_file.write_bytes(b"secret")
    rig.storage.mkdir()
    (rig.storage / "pheby.db.old").write_bytes(b"secret")
    rig.work.mkdir()
    (rig.work / "link").symlink_to(key_file)
    os.mkfifo(rig.work / "pipe")
    paths = [
        key_file,
        rig.storage / "pheby.db.old",
        rig.work / "link",
        rig.work / "pipe",
        rig.work,
        "/proc/self/environ",
    ]
    paths += ["/dev/zero", rig.work / "none", f"{rig.work}/\0"]
    before = len(os.listdir("/proc/self/fd"))
    rig.leave("text", *[AgentFile(path=str(path), name=f"n{number}") for number, path in enumerate(paths)])
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(rig.names()) == 1
    async with rig.running():
        texts = await rig.texts()
        assert texts[0] == "text"
        assert [f"n{number}" in text for number, text in enumerate(texts[1:])] == [True] * len(paths)


def test_a_file_that_grows_for_ever_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-M4."""
    monkeypatch.setattr(spool, "MAX_FILE_BYTES", 1_000)
    key = rig.leave("text", rig.file("large", b"x" * 1_001), rig.file("fits", b"x" * 1_000))
    assert rig.names() == [f"{key}.1", f"{key}.json"]


def test_a_disk_that_is_nearly_full_keeps_its_rest(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-M4."""
    monkeypatch.setattr(spool, "free_bytes", lambda _: 10)
    key = rig.leave("text", rig.file("a", b"x" * 11))
    assert rig.names() == [f"{key}.json"]


def test_what_cannot_be_left_is_an_error(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """H4: and nothing is there that would come after all."""

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="broken"):
        rig.leave("text")
    assert waiting(str(rig.spool)) == []


# Taking in


async def test_what_was_left_while_nothing_ran_is_there_at_the_start(rig: Rig) -> None:
    """R-I1, H2, H4: once, in order, with the time at which it was left; and nothing stays behind."""
    before = time.time_ns() // 1_000_000
    for number in range(5):
        rig.leave(f"text {number}", rig.file(f"{number}.pdf", b"%d" % number))
    async with rig.running():
        found = await rig.history()
        assert [message["text"] for message in found] == [f"text {number}" for number in range(5)]
        assert {(m["role"], m["origin"], m["status"]) for m in found} == {("assistant", "cron", "completed")}
        assert all(before <= message["created_at"] <= time.time_ns() // 1_000_000 for message in found)
        assert [[each["file_name"] for each in m["attachments"]] for m in found] == [[f"{n}.pdf"] for n in range(5)]
        for number, message in enumerate(found):
            opened = await rig.server.attachments.open(message["attachments"][0]["attachment_id"])
            with opened.file as file:
                assert file.read() == b"%d" % number
        assert rig.names() == []
    async with rig.running():
        assert len(await rig.history()) == 5


async def test_what_is_left_while_it_runs_comes_within_a_second(rig: Rig) -> None:
    """R-I1, H2."""
    async with rig.running():
        for text in ("text", "more"):
            rig.leave(text)
            rig.clock.move(spool.LOOK_SECONDS)
            frame = await rig.client.until("message.created")
            assert frame["message"]["text"] == text
            # It waits for its next look.
            assert rig.server.spool._task is not None
            await rig.server.spool._task


async def test_what_comes_in_the_middle_of_a_reply_is_its_own_message(rig: Rig) -> None:
    """H3: the reply is untouched."""
    async with rig.running():
        events = rig.server.events
        events.run_started(CHAT, None, Origin.CHAT)
        reply = events.message_started(CHAT, "one")
        rig.leave("result")
        await rig.look()
        events.message_appended(reply, " two")
        events.run_ended(CHAT, DONE)
        found = {message["text"]: message for message in await rig.history()}
        assert set(found) == {"one two", "result"}
        assert "run_id" not in found["result"]
        assert found["one two"]["final"] is True


async def test_more_than_is_taken_at_once_comes_in_order(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "TAKEN_AT_ONCE", 3)
    for number in range(8):
        rig.leave(f"{number}")
    async with rig.running():
        assert await rig.texts() == [str(number) for number in range(8)]


async def test_two_looks_at_once_take_it_once(rig: Rig) -> None:
    """R-I1."""
    async with rig.running():
        rig.leave("text")
        await asyncio.gather(*[rig.look() for _ in range(5)], rig.history())
        assert await rig.texts() == ["text"]


# Deaths


class DiedError(BaseException):
    """The process ends here."""


STEPS = ["before the message", "behind the message", "behind the entry", "between its files"]


@pytest.mark.parametrize("step", STEPS)
async def test_a_death_at_any_step_shows_it_once(rig: Rig, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """R-I1, R-M4: with its files, and in the end nothing is left of it."""
    async with rig.running():
        pass
    first = rig.leave("first", rig.file("a"), rig.file("b"))
    rig.leave("second")
    deliver, unlink = SpoolDesk._take, Path.unlink

    async def dies(desk: SpoolDesk, entry: spool.Entry) -> bool:
        if step == "before the message":
            raise DiedError
        return await deliver(desk, entry)

    def dies_at(path: Path, missing_ok: bool = False) -> None:
        last = {
            "behind the message": f"{first}.json",
            "behind the entry": f"{first}.0",
            "between its files": f"{first}.1",
        }
        if path.name == last.get(step):
            raise DiedError
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(SpoolDesk, "_take", dies)
    monkeypatch.setattr(Path, "unlink", dies_at)
    with pytest.raises(DiedError):
        async with rig.running():
            pass
    monkeypatch.undo()
    async with rig.running():
        found = await rig.history()
        assert [message["text"] for message in found] == ["first", "second"]
        assert [[each["file_name"] for each in message["attachments"]] for message in found] == [["a", "b"], []]
        assert len(list((rig.storage / "files").iterdir())) == 2
    assert [name for name in rig.names() if name.endswith(".json")] == []
    for name in rig.names():
        os.utime(rig.spool / name, (0, 0))
    async with rig.running():
        assert rig.names() == []


@pytest.mark.parametrize("ending", [".new", ".0", ".17"])
async def test_what_a_process_left_half_done_goes_after_a_day(rig: Rig, ending: str) -> None:
    """R-M4: the disk is not filled by it; what is younger may still be worked at."""
    rig.spool.mkdir(parents=True)
    old, young = rig.spool / f"{KEY}{ending}", rig.spool / f"{KEY[:-1]}0{ending}"
    for part in (old, young):
        part.write_bytes(b"half")
    os.utime(old, (time.time() - 90_000,) * 2)
    async with rig.running():
        assert rig.names() == [young.name]


async def test_what_others_put_there_stays(rig: Rig) -> None:
    """R-G4."""
    names = ["notes.txt", "a.json", "1.new", f"{KEY}.txt", f"{KEY}.json.bak", ".json", f"x{KEY}.0", f"{KEY}.0.gz"]
    rig.spool.mkdir(parents=True)
    for name in names:
        (rig.spool / name).write_bytes(b"theirs")
        os.utime(rig.spool / name, (0, 0))
    (rig.spool / "folder").mkdir()
    async with rig.running():
        await rig.look()
        assert rig.names() == sorted([*names, "folder"])
        assert await rig.history() == []


# What is wrong with it


BROKEN = {
    "nothing": "",
    "no json": "{",
    "no object": "[]",
    "a number": "7",
    "null": "null",
    "no utf-8": b"\xff\xfe",
    "deep": "[" * 100_000,
    "large": b'"' + b"x" * (spool.MAX_ENTRY_BYTES + 1) + b'"',
    "a long number": "9" * 10_000,
    "fields missing": "{}",
    "a bad id": {"conversation_id": "../x"},
    "no id": {"conversation_id": None},
    "the owner's words": {"role": "user"},
    "no such role": {"role": "system"},
    "no such origin": {"origin": "future"},
    "no time": {"time": "soon"},
    "infinite": {"time": 1e400},
    "before time": {"time": -1},
    "too late": {"time": 10**30},
    "no files": {"files": None},
    "a file without a name": {"files": [{"copy": True}]},
    "files of texts": {"files": ["/etc/passwd"]},
}


@pytest.mark.parametrize("which", BROKEN)
async def test_an_unreadable_entry_is_put_aside_and_keeps_no_other(rig: Rig, which: str) -> None:
    """R-I1: not lost, not tried for ever."""
    content = BROKEN[which]
    rig.plant(rig.entry(**content) if isinstance(content, dict) else content)  # type: ignore[arg-type]
    rig.leave("good")
    async with rig.running():
        assert await rig.texts() == ["good"]
        assert rig.names() == [f"{KEY}.json.unreadable"]


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "socket"])
async def test_what_is_no_file_is_put_aside(rig: Rig, kind: str) -> None:
    """R-G2: and a link is not followed."""
    place = rig.plant("")
    place.unlink()
    if kind == "link":
        rig.work.mkdir()
        (rig.work / "entry").write_text(rig.entry(text="theirs"))
        place.symlink_to(rig.work / "entry")
    elif kind == "folder":
        place.mkdir()
    else:
        os.mkfifo(place) if kind == "pipe" else os.mknod(place, stat.S_IFSOCK | 0o600)
    rig.leave("good")
    async with rig.running():
        assert await rig.texts() == ["good"]
        assert rig.names() == [f"{KEY}.json.unreadable"]


async def test_one_that_cannot_be_read_now_keeps_no_other_and_comes_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-M4."""
    rig.plant(rig.entry(text="later"))
    rig.leave("good")
    read = spool._read

    def busy(place: Path, key: str) -> spool.Entry:
        if key == KEY:
            raise OSError(errno.EMFILE, "too many", str(place))
        return read(place, key)

    monkeypatch.setattr(spool, "_read", busy)
    async with rig.running():
        assert await rig.texts() == ["good"]
        monkeypatch.setattr(spool, "_read", read)
        await rig.look()
        assert sorted(await rig.texts()) == ["good", "later"]


async def test_one_that_cannot_be_taken_or_deleted_keeps_no_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-M4, R-I1: nor does it come twice."""
    rig.plant(rig.entry(text="sticks"))
    rig.leave("good")

    def sticks(folder: str, entry: spool.Entry) -> None:
        if entry.name == KEY:
            raise PermissionError(errno.EPERM, "no", folder)
        taken(folder, entry)

    monkeypatch.setattr(spool, "taken", sticks)
    async with rig.running():
        for _ in range(3):
            await rig.look()
        assert await rig.texts() == ["sticks", "good"]
        assert rig.names() == [f"{KEY}.json"]


async def test_a_file_of_an_entry_is_the_spools_own(rig: Rig) -> None:
    """R-G2, J1: a name in an entry is not believed, a link in the place of a copy is not followed."""
    rig.work.mkdir()
    (rig.work / "secret").write_bytes(b"secret")
    # The way from the spool to it.
    name = os.path.relpath(rig.work / "secret", rig.spool)
    rig.plant(rig.entry(files=[{"copy": True, "name": name}, {"copy": True, "name": "gone"}]))
    (rig.spool / f"{KEY}.0").symlink_to(rig.work / "secret")
    async with rig.running():
        found = await rig.history()
        assert [message["role"] for message in found] == ["assistant", "notice", "notice"]
        assert all(message["attachments"] == [] for message in found)
        assert list((rig.storage / "files").iterdir()) == []
    assert (rig.work / "secret").exists()


@pytest.mark.parametrize("name", ["a\r\nb.pdf", "\ud800.pdf", "отчёт.pdf", "x" * 300])
async def test_any_text_and_name_survive_the_way(rig: Rig, name: str) -> None:
    """J10."""
    file = rig.file("plain")
    rig.leave(f"text {name}", AgentFile(path=file.path, name=name))
    async with rig.running():
        (message,) = await rig.history()
        assert [each["file_name"] for each in message["attachments"]] == [file_store.safe_name(name)]


# While nothing can be stored


async def test_while_nothing_can_be_stored_it_waits_in_its_order(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """H4, R-M4."""
    async with rig.running():
        transact = Store.transact

        async def full(*_: Any, **__: Any) -> Any:
            raise StoreUnavailableError("full")

        monkeypatch.setattr(Store, "transact", full)
        for number in range(3):
            rig.leave(f"{number}", rig.file(f"{number}.pdf"))
        await rig.look()
        assert len([name for name in rig.names() if name.endswith(".json")]) == 3
        assert list((rig.storage / "files").iterdir()) == []
        monkeypatch.setattr(Store, "transact", transact)
        await rig.look()
        assert await rig.texts() == ["0", "1", "2"]
        assert [len(message["attachments"]) for message in await rig.history()] == [1, 1, 1]
        assert rig.names() == []


# Where it goes


async def test_what_is_for_a_deleted_conversation_goes_home(rig: Rig) -> None:
    """R-I1, R-B4: to a new one when home was deleted too, and after a restart to the same."""
    rig.leave("makes it")
    rig.leave("makes home", to=HOME)
    async with rig.running():
        await rig.delete(CHAT)
        rig.leave("late")
        await rig.look()
        assert await rig.texts(HOME) == ["makes home", "late"]
        await rig.delete(HOME)
        rig.leave("later")
        rig.leave("for home", to=HOME)
        await rig.look()
        listed = await rig.client.request("conversation.list")
        (new,) = [ConversationId(each["conversation_id"]) for each in listed["conversations"]]
        assert new not in (CHAT, HOME)
        assert await rig.texts(new) == ["later", "for home"]
    async with rig.running():
        rig.leave("after a restart")
        await rig.look()
        assert await rig.texts(new) == ["later", "for home", "after a restart"]
        listed = await rig.client.request("conversation.list")
        assert len(listed["conversations"]) == 1


async def test_a_notice_about_a_deleted_conversation_is_nobodys(rig: Rig) -> None:
    """R-B4."""
    rig.leave("makes it")
    async with rig.running():
        await rig.delete(CHAT)
        rig.leave("about it", role=MessageRole.NOTICE)
        await rig.look()
        assert rig.names() == []
        listed = await rig.client.request("conversation.list")
        assert listed["conversations"] == []


# Rows that Hermes keeps of it


def row(number: int, text: str, role: MessageRole = MessageRole.ASSISTANT) -> HermesMessage:
    return HermesMessage(key=f"row{number}", role=role, text=text, created_at=number)


@pytest.mark.parametrize("looked", [True, False])
async def test_a_row_that_hermes_keeps_of_it_is_the_same_message(rig: Rig, looked: bool) -> None:
    """R-I1, R-B3: once, also when history is read before the spool was looked at."""
    async with rig.running():
        rig.hermes.rows[CHAT] = [row(1, "hello", MessageRole.USER), row(2, "hi")]
        rig.server.events.run_started(CHAT, None, Origin.BACKGROUND)
        rig.server.events.run_ended(CHAT, DONE)
        rig.leave("news")
        rig.hermes.rows[CHAT].append(row(3, "news"))
        if looked:
            await rig.look()
        found = await rig.history()
        assert [message["text"] for message in found] == ["hello", "hi", "news"]
        assert found[2]["origin"] == "cron"
        # And for good.
        rig.server.transcript._reconciled.clear()
        assert await rig.history() == found


async def test_what_is_left_while_the_rows_are_read_comes_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-I1: another process leaves it, then Hermes has a row of it, between two looks of one reading."""
    async with rig.running():
        rig.server.events.run_started(CHAT, None, Origin.BACKGROUND)
        rig.server.events.run_ended(CHAT, DONE)
        await rig.history()
        history = rig.hermes.history

        async def meanwhile(name: ConversationId) -> Any:
            if not rig.hermes.rows[CHAT]:
                rig.leave("news")
                rig.hermes.rows[CHAT].append(row(1, "news"))
            return await history(name)

        monkeypatch.setattr(rig.hermes, "history", meanwhile)
        rig.server.transcript._reconciled.clear()
        await rig.history()
        await rig.look()
        rig.server.transcript._reconciled.clear()
        assert await rig.texts() == ["news"]


async def test_two_with_the_same_words_are_two(rig: Rig) -> None:
    """R-I1."""
    async with rig.running():
        for _ in range(2):
            rig.leave("tick")
        await rig.look()
        assert await rig.texts() == ["tick", "tick"]
        rig.hermes.rows[CHAT] = [row(1, "tick"), row(2, "tick")]
        rig.server.transcript._reconciled.clear()
        assert await rig.texts() == ["tick", "tick"]
