"""Which conversations there are, their titles, their order (R-B1, R-B2, R-B5)."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId, ListCursor
from pheby_protocol.limits import DEFAULT_LIST_LIMIT, MAX_LIST_LIMIT, MAX_TITLE_CHARS
from pheby_protocol.messages.conversation import TitleSource
from pheby_protocol.messages.message import Origin
from pheby_server.boundary import RequestError
from pheby_server.conversations import clean_title
from pheby_server.ports import HermesConversation, Outcome, RunResult
from pheby_server.server import Server
from pheby_server.stores import StoreUnavailableError
from pheby_server.testing import CountedIds, FakeClock, ManualHermes, MemoryTransport, deliver_text, running_server


def hermes_has(
    name: str, title: str = "", *, at: int = 1_000, source: TitleSource = TitleSource.GENERATED
) -> HermesConversation:
    return HermesConversation(
        conversation_id=ConversationId(name), title=title, title_source=source, created_at=at, last_activity_at=at
    )


async def in_step(server: Server) -> MemoryTransport:
    client = MemoryTransport(server)
    await client.hello()
    return client


async def create(client: MemoryTransport, client_id: str, **fields: Any) -> dict[str, Any]:
    answer = await client.request("conversation.create", client_conversation_id=client_id, **fields)
    conversation: dict[str, Any] = answer["conversation"]
    return conversation


async def walk(client: MemoryTransport, limit: int) -> list[list[str]]:
    pages = []
    cursor: dict[str, Any] = {}
    while True:
        answer = await client.request("conversation.list", limit=limit, **cursor)
        pages.append([found["conversation_id"] for found in answer["conversations"]])
        if "next" not in answer:
            return pages
        cursor = {"cursor": answer["next"]}


async def test_create_makes_an_empty_conversation_and_every_device_hears_of_it_first(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes(), clock=FakeClock(5_000)) as server:
        client, other = await in_step(server), MemoryTransport(server)
        await other.hello("other")
        made = await create(client, "c1")
        assert (made["title"], made["title_source"], made["history_head"]) == ("", "none", 0)
        assert made["created_at"] == made["updated_at"] == made["last_activity_at"] == 5_000
        assert made["client_conversation_id"] == "c1"
        assert made["conversation_id"].startswith("conv_")
        assert [frame["type"] for frame in client.seen[-2:]] == ["conversation.created", "conversation.create.result"]
        assert (await other.until("conversation.created"))["conversation"] == made


async def test_a_title_given_at_creation_is_manual(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        made = await create(await in_step(server), "c1", title="  Trip to Rome ")
        assert (made["title"], made["title_source"]) == ("Trip to Rome", "manual")


@pytest.mark.parametrize("title", ["", "   ", "a\nb", "a\tb", "x" * (MAX_TITLE_CHARS + 1), "bell\x07", "\u200e\u202e"])
async def test_a_bad_title_creates_nothing(tmp_path: Path, title: str) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = await in_step(server)
        refused = await client.request("conversation.create", client_conversation_id="c1", title=title)
        assert refused["code"] == "invalid_title"
        assert (await client.request("conversation.list"))["conversations"] == []
        assert (await create(client, "c1", title="good"))["title"] == "good"


def test_the_longest_title_is_allowed() -> None:
    assert clean_title("é" * MAX_TITLE_CHARS) == "é" * MAX_TITLE_CHARS
    with pytest.raises(RequestError):
        clean_title("é" * (MAX_TITLE_CHARS + 1))


async def test_the_same_client_id_is_the_same_conversation_also_at_the_same_instant(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client, other = await in_step(server), MemoryTransport(server)
        await other.hello("other")
        for reader in (client, other):
            for request_id in "xyz":
                reader.send({"type": "conversation.create", "id": request_id, "client_conversation_id": "c1"})
        answers = [await reader.until("conversation.create.result") for reader in (client, other) for _ in "xyz"]
        assert len({answer["conversation"]["conversation_id"] for answer in answers}) == 1
        assert [frame["type"] for frame in client.seen].count("conversation.created") == 1
        assert client.seen.index(next(f for f in client.seen if f["type"] == "conversation.created")) == 3
        assert (await create(client, "c2"))["conversation_id"] != answers[0]["conversation"]["conversation_id"]


async def test_a_creation_that_cannot_be_stored_is_not_acknowledged_and_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-M4: full disk."""
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = await in_step(server)
        real = server._store.transact

        async def transact(work: Any, *, durable: bool = False) -> Any:
            raise sqlite3.OperationalError("disk full")

        monkeypatch.setattr(server._store, "transact", transact)
        for request_id in "xy":
            client.send({"type": "conversation.create", "id": request_id, "client_conversation_id": "c1"})
        answers = {(await client.receive())["type"], (await client.receive())["type"]}
        assert answers == {"error"}
        assert (await client.request("conversation.list"))["conversations"] == []

        monkeypatch.setattr(server._store, "transact", real)
        made = await create(client, "c1")
        assert [frame["type"] for frame in client.seen].count("conversation.created") == 1
        assert (await client.request("conversation.get", conversation_id=made["conversation_id"]))["conversation"]


async def test_conversations_outlive_a_restart(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes(), ids=CountedIds()) as server:
        made = await create(await in_step(server), "c1", title="Kept")
    async with running_server(str(tmp_path), ManualHermes(), ids=CountedIds(1_000)) as server:
        client = await in_step(server)
        assert (await client.request("conversation.list"))["conversations"] == [made]
        assert await create(client, "c1") == made


async def test_equal_times_are_neither_skipped_nor_repeated(tmp_path: Path) -> None:
    """R-B2."""
    async with running_server(str(tmp_path), ManualHermes(), clock=FakeClock()) as server:
        client = await in_step(server)
        made = [(await create(client, f"c{number}"))["conversation_id"] for number in range(23)]
        for limit in (1, 5, 22, 23, 24):
            pages = await walk(client, limit)
            assert [name for page in pages for name in page] == sorted(made)
            assert all(len(page) == limit for page in pages[:-1])


async def test_newest_activity_comes_first_and_only_a_message_moves_it(tmp_path: Path) -> None:
    hermes, clock = ManualHermes(), FakeClock()
    async with running_server(str(tmp_path), hermes, clock=clock) as server:
        client = await in_step(server)
        names = []
        for number in range(3):
            clock.move(1)
            names.append(ConversationId((await create(client, f"c{number}"))["conversation_id"]))
        assert await walk(client, 10) == [[names[2], names[1], names[0]]]
        clock.move(1)
        await deliver_text(server.events, names[0], "news", Origin.SYSTEM)
        await server.events.settled()
        assert await walk(client, 10) == [[names[0], names[2], names[1]]]

        clock.move(10)
        before = (await client.request("conversation.get", conversation_id=names[1]))["conversation"]
        server.events.run_started(names[1], None, Origin.BACKGROUND)
        server.events.run_ended(names[1], RunResult(outcome=Outcome.CANCELLED))
        hermes.listed = [hermes_has(names[1], "Made up")]
        await server.conversations.refresh(force=True)
        after = (await client.request("conversation.get", conversation_id=names[1]))["conversation"]
        assert after["title"] == "Made up"
        assert after["last_activity_at"] == before["last_activity_at"]
        assert after["updated_at"] > before["updated_at"]
        assert (await walk(client, 10))[0][0] == names[0]


async def test_a_page_has_the_default_size_and_never_more_than_the_limit(tmp_path: Path) -> None:
    hermes = ManualHermes()
    hermes.listed = [hermes_has(f"conv_{number:04d}", at=number) for number in range(MAX_LIST_LIMIT + 5)]
    async with running_server(str(tmp_path), hermes) as server:
        client = await in_step(server)
        assert len((await client.request("conversation.list"))["conversations"]) == DEFAULT_LIST_LIMIT
        assert len((await client.request("conversation.list", limit=9_999))["conversations"]) == MAX_LIST_LIMIT
        assert sum(map(len, await walk(client, 30))) == MAX_LIST_LIMIT + 5


@pytest.mark.parametrize("cursor", ["x", "12", "-1.conv_1", "1.", "٣.conv_1", "1" * 17 + ".conv_1", "1e3.conv_1"])
async def test_a_cursor_of_somewhere_else_is_refused(tmp_path: Path, cursor: str) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = await in_step(server)
        assert (await client.request("conversation.list", cursor=ListCursor(cursor)))["code"] == "invalid_message"


async def test_a_conversation_that_goes_while_the_list_is_walked_loses_no_other(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_server(str(tmp_path), ManualHermes(), clock=clock) as server:
        client = await in_step(server)
        names = []
        for number in range(6):
            clock.move(1)
            names.append(ConversationId((await create(client, f"c{number}"))["conversation_id"]))
        first = await client.request("conversation.list", limit=3)
        await deliver_text(server.events, names[0], "news", Origin.SYSTEM)
        await deliver_text(
            server.events, ConversationId(first["conversations"][-1]["conversation_id"]), "news", Origin.SYSTEM
        )
        await server.events.settled()
        rest = await client.request("conversation.list", limit=3, cursor=first["next"])
        seen = {found["conversation_id"] for page in (first, rest) for found in page["conversations"]}
        moved = {frame["conversation_id"] for frame in client.seen if frame["type"] == "conversation.updated"}
        assert seen | moved == set(names)


async def test_what_hermes_has_is_there_before_the_first_client(tmp_path: Path) -> None:
    """A new store on a Hermes of years: nobody is told of ten thousand conversations one by one."""
    hermes = ManualHermes()
    hermes.listed = [hermes_has(f"conv_{number}") for number in range(10_000, 15_000)]
    hermes.listed.append(hermes_has("conv_9", "From Telegram", at=77))
    async with running_server(str(tmp_path), hermes) as server:
        client = await in_step(server)
        assert not [frame for frame in client.seen if frame["type"] == "conversation.created"]
        found = (await client.request("conversation.get", conversation_id="conv_9"))["conversation"]
        assert (found["title"], found["title_source"]) == ("From Telegram", "generated")
        assert (found["created_at"], found["last_activity_at"]) == (77, 77)
        assert len((await client.request("conversation.list", limit=100))["conversations"]) == 100
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = await in_step(server)
        assert (await client.request("conversation.get", conversation_id="conv_9"))["conversation"] == found


async def test_a_hermes_that_cannot_be_read_at_the_start_is_read_with_the_first_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hermes = ManualHermes()
    hermes.listed = [hermes_has("conv_9", at=77)]

    async def locked() -> Any:
        raise OSError("locked")

    with monkeypatch.context() as patched:
        patched.setattr(hermes, "conversations", locked)
        async with running_server(str(tmp_path), hermes) as server:
            client = await in_step(server)
            patched.undo()
            (found,) = (await client.request("conversation.list"))["conversations"]
            assert found["conversation_id"] == "conv_9"
            assert client.seen[-2]["type"] == "conversation.created"


async def test_hermes_is_not_asked_for_every_list(tmp_path: Path) -> None:
    hermes, clock = ManualHermes(), FakeClock()
    async with running_server(str(tmp_path), hermes, clock=clock) as server:
        client = await in_step(server)
        await client.request("conversation.list")
        hermes.listed = [hermes_has("conv_9")]
        clock.move(1)
        assert (await client.request("conversation.list"))["conversations"] == []
        clock.move(5)
        # A list never waits for Hermes again: what there is comes beside.
        assert (await client.request("conversation.list"))["conversations"] == []
        await client.until("conversation.created", conversation_id="conv_9")
        assert len((await client.request("conversation.list"))["conversations"]) == 1


async def test_a_generated_title_reaches_every_client_once(tmp_path: Path) -> None:
    """A6."""
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client, other = await in_step(server), MemoryTransport(server)
        await other.hello("other")
        name = (await create(client, "c1"))["conversation_id"]
        hermes.listed = [hermes_has(name, "Auto")]
        for _ in range(3):
            await server.conversations.refresh_title(ConversationId(name))
        for reader in (client, other):
            reader.send({"type": "ping", "id": "end"})
            await reader.until("pong")
            titles = [
                frame["conversation"]["title"] for frame in reader.seen if frame["type"] == "conversation.updated"
            ]
            assert titles == ["Auto"]


async def test_a_manual_title_is_never_overwritten(tmp_path: Path) -> None:
    """A6, R-B5."""
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client = await in_step(server)
        name = (await create(client, "c1", title="Mine"))["conversation_id"]
        hermes.listed = [hermes_has(name, "Auto")]
        await server.conversations.refresh_title(ConversationId(name))
        await server.conversations.refresh(force=True)
        found = (await client.request("conversation.get", conversation_id=name))["conversation"]
        assert (found["title"], found["title_source"]) == ("Mine", "manual")


@pytest.mark.parametrize("title", ["broken \ud800 half", "nul\x00", "x" * 5_000_000])
async def test_whatever_title_hermes_has_list_and_snapshot_work(tmp_path: Path, title: str) -> None:
    hermes = ManualHermes()
    hermes.listed = [hermes_has("conv_9", title)]
    async with running_server(str(tmp_path), hermes) as server:
        client = await in_step(server)
        (found,) = (await client.request("conversation.list"))["conversations"]
        assert len(found["title"]) <= MAX_TITLE_CHARS
        another = MemoryTransport(server)
        assert (await another.hello("other"))["type"] == "welcome"
        assert (await another.request("ping"))["type"] == "pong"


async def test_the_preview_is_the_newest_messages_beginning_on_one_line(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = await in_step(server)
        name = ConversationId((await create(client, "c1"))["conversation_id"])
        await deliver_text(server.events, name, "first\n\n  line " + "x" * 1_000, Origin.CRON)
        await server.events.settled()
        found = (await client.request("conversation.get", conversation_id=name))["conversation"]
        assert found["last_message_preview"] == ("first line " + "x" * 1_000)[:200]
        await deliver_text(server.events, name, " \n ", Origin.CRON)
        await server.events.settled()
        again = (await client.request("conversation.get", conversation_id=name))["conversation"]
        assert again["last_message_preview"] == found["last_message_preview"]
        assert again["history_head"] > found["history_head"]


async def test_a_conversation_that_hermes_speaks_of_exists(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = await in_step(server)
        await deliver_text(server.events, ConversationId("conv_77"), "hello", Origin.CRON)
        types = [(await client.receive())["type"] for _ in range(3)]
        assert types == ["conversation.created", "message.created", "conversation.updated"]


async def test_a_wall_clock_that_jumps_back_does_not_move_activity_back(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_server(str(tmp_path), ManualHermes(), clock=clock) as server:
        client = await in_step(server)
        made = await create(client, "c1")
        clock.jump(-3_600_000)
        await deliver_text(server.events, ConversationId(made["conversation_id"]), "hello", Origin.CRON)
        await server.events.settled()
        found = (await client.request("conversation.get", conversation_id=made["conversation_id"]))["conversation"]
        assert found["last_activity_at"] == made["last_activity_at"]


async def test_many_devices_creating_at_once_get_a_conversation_each(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        clients = [MemoryTransport(server) for _ in range(8)]
        for number, client in enumerate(clients):
            await client.hello(f"d{number}")
        made = await asyncio.gather(*(create(client, f"c{number}") for number, client in enumerate(clients)))
        assert len({found["conversation_id"] for found in made}) == 8


# Renaming


async def rename(client: MemoryTransport, name: str, title: str) -> dict[str, Any]:
    return await client.request("conversation.rename", conversation_id=name, title=title)


async def test_a_new_title_is_stored_told_and_hermess_too(tmp_path: Path) -> None:
    """R-B5."""
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client, other = await in_step(server), MemoryTransport(server)
        await other.hello("other")
        name = (await create(client, "c1"))["conversation_id"]
        answer = await rename(client, name, "  Über Rom ")
        assert (answer["conversation"]["title"], answer["conversation"]["title_source"]) == ("Über Rom", "manual")
        assert [frame["type"] for frame in client.seen[-2:]] == ["conversation.updated", "conversation.rename.result"]
        assert (await other.until("conversation.updated"))["conversation"] == answer["conversation"]
        assert hermes.titles == {name: "Über Rom"}
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = await in_step(server)
        got = await client.request("conversation.get", conversation_id=name)
        assert got["conversation"] == answer["conversation"]


@pytest.mark.parametrize("title", ["", "   ", "a\nb", "x" * (MAX_TITLE_CHARS + 1), "bell\x07"])
async def test_a_bad_title_renames_nothing(tmp_path: Path, title: str) -> None:
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client = await in_step(server)
        made = await create(client, "c1", title="Kept")
        assert (await rename(client, made["conversation_id"], title))["code"] == "invalid_title"
        assert (await client.request("conversation.list"))["conversations"] == [made]
        assert hermes.titles == {}
        assert (await rename(client, "conv_1", "fine"))["code"] == "not_found"


async def test_a_title_that_is_given_away_is_refused_and_says_where(tmp_path: Path) -> None:
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client = await in_step(server)
        ours = (await create(client, "c1", title="Ours"))["conversation_id"]
        other = await create(client, "c2")
        refused = await rename(client, other["conversation_id"], " Ours ")
        assert (refused["code"], refused["details"]) == ("title_conflict", {"conversation_id": ours})
        assert hermes.titles == {}
        hermes.titles[ConversationId("conv_of_telegram")] = "Theirs"
        refused = await rename(client, other["conversation_id"], "Theirs")
        assert (refused["code"], refused.get("details")) == ("title_conflict", None)
        got = await client.request("conversation.get", conversation_id=other["conversation_id"])
        assert got["conversation"] == other
        assert "conversation.updated" not in [frame["type"] for frame in client.seen]


async def test_the_same_title_again_tells_nothing(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes(), clock=FakeClock()) as server:
        client = await in_step(server)
        name = (await create(client, "c1"))["conversation_id"]
        answers = [(await rename(client, name, "Mine"))["conversation"] for _ in range(2)]
        assert answers[0] == answers[1]
        assert [frame["type"] for frame in client.seen].count("conversation.updated") == 1


async def test_a_generated_title_becomes_the_owners_by_its_name(tmp_path: Path) -> None:
    """R-B5: the same words, and from then on nothing replaces them."""
    hermes = ManualHermes()
    async with running_server(str(tmp_path), hermes) as server:
        client = await in_step(server)
        name = ConversationId((await create(client, "c1"))["conversation_id"])
        hermes.listed = [hermes_has(name, "Auto")]
        await server.conversations.refresh_title(name)
        assert (await rename(client, name, "Auto"))["conversation"]["title_source"] == "manual"
        hermes.listed = [hermes_has(name, "Other")]
        await server.conversations.refresh(force=True)
        await server.conversations.refresh_title(name)
        got = (await client.request("conversation.get", conversation_id=name))["conversation"]
        assert (got["title"], got["title_source"]) == ("Auto", "manual")


@pytest.mark.parametrize(
    ("hermess", "taken", "given"),
    [("Auto", False, ["Mine"]), ("", False, ["Mine"]), ("Mine", False, []), ("Auto", True, ["Mine"])],
)
async def test_after_a_run_hermes_is_given_the_owners_title_where_it_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hermess: str, taken: bool, given: list[str]
) -> None:
    """A6, R-B5: a title from before the first message, when Hermes had no session to name."""
    hermes, asked = ManualHermes(), []
    async with running_server(str(tmp_path), hermes) as server:
        client = await in_step(server)
        name = ConversationId((await create(client, "c1", title="Mine"))["conversation_id"])
        hermes.listed = [hermes_has(name, hermess)]
        if taken:
            hermes.titles[ConversationId("conv_of_telegram")] = "Mine"
        real, over = hermes.rename, asyncio.Event()

        async def renames(conversation_id: ConversationId, title: str) -> None:
            asked.append(title)
            await real(conversation_id, title)

        refresh = server.conversations.refresh_title

        async def refreshes(conversation_id: ConversationId) -> None:
            await refresh(conversation_id)
            over.set()

        monkeypatch.setattr(hermes, "rename", renames)
        monkeypatch.setattr(server.conversations, "refresh_title", refreshes)
        server.events.run_started(name, None, Origin.BACKGROUND)
        server.events.run_ended(name, RunResult(outcome=Outcome.COMPLETED))
        async with asyncio.timeout(2):
            await over.wait()
        assert asked == given
        got = (await client.request("conversation.get", conversation_id=name))["conversation"]
        assert (got["title"], got["title_source"]) == ("Mine", "manual")


async def test_a_title_that_cannot_be_stored_is_not_kept_and_may_be_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-M4: full disk."""
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = await in_step(server)
        made = await create(client, "c1", title="Old")

        async def transact(work: Any, *, durable: bool = False) -> Any:
            raise StoreUnavailableError("disk full")

        with monkeypatch.context() as patched:
            patched.setattr(server._store, "transact", transact)
            assert (await rename(client, made["conversation_id"], "New"))["code"] == "unavailable"
        assert (await client.request("conversation.list"))["conversations"] == [made]
        assert (await rename(client, made["conversation_id"], "New"))["conversation"]["title"] == "New"
        told = [frame["conversation"]["title"] for frame in client.seen if frame["type"] == "conversation.updated"]
        # That it is as it was is told, too: what came behind may have carried the refused one.
        assert told == ["Old", "New"]


@pytest.mark.parametrize("title", ["会議　メモ", "Prix\u00a0: 5", "👩\u200d💻 work", "\u0645\u06cc\u200c\u062e", "a"])
def test_titles_of_all_scripts_are_titles(title: str) -> None:
    assert clean_title(f" {title} ") == title


@pytest.mark.parametrize("title", ["\u200b", "a\u202eb", "a\u2028b", "a\x7fb", "\ud800", " \u200d "])
def test_what_cannot_be_seen_or_shows_something_else_is_none(title: str) -> None:
    with pytest.raises(RequestError):
        clean_title(title)
