"""History: pages without gap or repetition that fit a frame, whole texts, Hermes's rows in place (R-B2, R-B3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.limits import DEFAULT_HISTORY_LIMIT, MAX_HISTORY_LIMIT, MAX_SERVER_FRAME_BYTES
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_server import transcript
from pheby_server.outbox import Close
from pheby_server.ports import HermesMessage, Outcome, RunResult, Unavailable
from pheby_server.server import Server
from pheby_server.testing import FakeClock, ManualHermes, MemoryTransport, deliver_text, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)
NAME = ConversationId("conv_1")


def row(key: str, text: str, role: MessageRole = MessageRole.ASSISTANT, **fields: Any) -> HermesMessage:
    return HermesMessage(key=key, role=role, text=text, created_at=1_000, **fields)


class Rig:
    def __init__(self, server: Server, hermes: ManualHermes, client: MemoryTransport) -> None:
        self.server = server
        self.events = server.events
        self.hermes = hermes
        self.client = client
        self.sizes: list[int] = []
        real = client.session.next_frame

        async def next_frame() -> str | Close:
            frame = await real()
            if isinstance(frame, str):
                self.sizes.append(len(frame.encode()))
            return frame

        client.session.next_frame = next_frame  # type: ignore[method-assign]

    async def notices(self, texts: Iterable[str]) -> None:
        for text in texts:
            await deliver_text(self.events, NAME, text, Origin.CRON)
        await self.events.settled()

    async def history(self, **fields: Any) -> dict[str, Any]:
        return await self.client.request("conversation.history", conversation_id=NAME, **fields)

    async def texts(self, **fields: Any) -> list[str]:
        return [message["text"] for message in (await self.history(**fields))["messages"]]

    async def back(self, limit: int) -> list[list[dict[str, Any]]]:
        """Pages from the newest to the oldest."""
        pages = [await self.history(limit=limit)]
        while pages[-1]["has_more"]:
            pages.append(await self.history(limit=limit, before=pages[-1]["before"]))
        return [page["messages"] for page in pages]

    async def forth(self, limit: int, after: int = 0) -> list[list[dict[str, Any]]]:
        """Pages from a position to the newest."""
        pages = [await self.history(limit=limit, after=after)]
        while pages[-1]["has_more"]:
            pages.append(await self.history(limit=limit, after=pages[-1]["after"]))
        return [page["messages"] for page in pages]

    async def seen(self, *types: str) -> list[dict[str, Any]]:
        await self.events.settled()
        await self.client.request("ping")
        return [frame for frame in self.client.seen if frame["type"] in types]

    async def turn(self, question: str, answer: str, *, rows: bool = True) -> None:
        """A whole run; with the rows that Hermes stores of it."""
        await self.client.request("message.send", conversation_id=NAME, client_message_id=question, text=question)
        async with asyncio.timeout(2):
            message = await self.hermes.handed_over.get()
        self.events.run_started(NAME, message.message_id, Origin.CHAT)
        self.events.message_started(NAME, answer)
        if rows:
            self.hermes.rows[NAME] += [row(f"u-{question}", question, MessageRole.USER), row(f"a-{question}", answer)]
        self.events.run_ended(NAME, DONE)
        await self.reconciled()

    async def reconciled(self) -> None:
        """What follows a run's end is done."""
        await self.events.settled()
        async with asyncio.timeout(5):
            await asyncio.gather(*self.server.runs._tasks)


@asynccontextmanager
async def rigged(folder: Path, hermes: ManualHermes | None = None, **settings: Any) -> AsyncIterator[Rig]:
    hermes = hermes or ManualHermes()
    async with running_server(str(folder), hermes, clock=FakeClock(), **settings) as server:
        client = MemoryTransport(server)
        await client.hello()
        await server._sequencer.log(server.conversations.ensure(NAME))
        yield Rig(server, hermes, client)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "_REREAD_SECONDS", 0.0)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(tmp_path) as made:
        yield made


# Pages


async def test_an_empty_history_is_an_empty_page(rig: Rig) -> None:
    page = await rig.history()
    assert (page["messages"], page["runs"], page["has_more"]) == ([], [], False)
    assert "before" not in page
    assert "after" not in page


@pytest.mark.parametrize("limit", [1, 2, 7, 23, 24, 200])
async def test_both_ways_nothing_is_skipped_or_repeated(rig: Rig, limit: int) -> None:
    texts = [f"n{number}" for number in range(23)]
    await rig.notices(texts)
    back = await rig.back(limit)
    assert [message["text"] for page in reversed(back) for message in page] == texts
    forth = await rig.forth(limit)
    assert [message["text"] for page in forth for message in page] == texts
    for pages in (back, forth):
        assert all(len(page) == limit for page in pages[:-1])
        assert all([m["position"] for m in page] == sorted(m["position"] for m in page) for page in pages)


async def test_has_more_is_exact_at_the_edges(rig: Rig) -> None:
    await rig.notices("abc")
    assert (await rig.history(limit=3))["has_more"] is False
    assert (await rig.history(limit=2))["has_more"] is True
    first = (await rig.history())["before"]
    assert (await rig.history(limit=2, after=first))["has_more"] is False
    assert (await rig.history(limit=1, after=first))["has_more"] is True


async def test_cursors_are_exclusive_and_need_not_be_of_a_message(rig: Rig) -> None:
    await rig.notices("abc")
    first, second, third = (message["position"] for message in (await rig.history())["messages"])
    assert await rig.texts(before=third) == ["a", "b"]
    assert await rig.texts(after=first) == ["b", "c"]
    assert await rig.texts(before=second + 1) == ["a", "b"]
    assert await rig.texts(after=second - 1) == ["b", "c"]
    assert await rig.texts(before=0) == []
    assert await rig.texts(after=third) == []
    assert await rig.texts(before=2**53 - 1) == ["a", "b", "c"]


async def test_before_and_after_together_are_refused(rig: Rig) -> None:
    assert (await rig.history(before=5, after=1))["code"] == "invalid_message"
    assert (await rig.history(before=0, after=0))["code"] == "invalid_message"


async def test_limits_are_clamped_and_zero_or_none_is_the_default(rig: Rig) -> None:
    await rig.notices(f"n{number}" for number in range(MAX_HISTORY_LIMIT + 2))
    assert len(await rig.texts(limit=9_999)) == MAX_HISTORY_LIMIT
    assert len(await rig.texts()) == DEFAULT_HISTORY_LIMIT
    assert len(await rig.texts(limit=0)) == DEFAULT_HISTORY_LIMIT


@pytest.mark.parametrize("char", ["x", "😀", "\u0001"])
async def test_a_page_ends_where_a_frame_is_full_and_the_next_goes_on_there(rig: Rig, char: str) -> None:
    texts = [f"{number}{char * 99_990}" for number in range(13)]
    await rig.notices(texts)
    back = await rig.back(200)
    assert len(back) > 1
    assert [message["text"] for page in reversed(back) for message in page] == texts
    forth = await rig.forth(200)
    assert [message["text"] for page in forth for message in page] == texts
    assert max(rig.sizes) <= MAX_SERVER_FRAME_BYTES


@pytest.mark.parametrize(("count", "size"), [(3, 100_000), (12, 100_000), (1, 400_000), (4, 400_000)])
@pytest.mark.parametrize("char", ["x", "😀"])
async def test_the_newest_page_fits_whatever_waits(tmp_path: Path, count: int, size: int, char: str) -> None:
    """Queued messages are at its end, cut where they would not fit; `message.text` has them whole."""
    async with rigged(tmp_path, max_text_chars=1_000_000, max_frame_bytes=16_777_216) as rig:
        await rig.notices(["small", "x" * 100_000])
        rig.events.run_started(NAME, None, Origin.BACKGROUND)
        text = char * size
        for number in range(count):
            answer = await rig.client.request(
                "message.send", conversation_id=NAME, client_message_id=f"m{number}", text=text
            )
            assert answer["receipt"]["disposition"] == "queued"
        page = await rig.history()
        assert page["type"] == "conversation.history.result"
        waiting = [message for message in page["messages"] if "position" not in message]
        assert [message["client_message_id"] for message in waiting] == [f"m{number}" for number in range(count)]
        assert page["messages"][-count:] == waiting
        for message in waiting:
            assert text.startswith(message["text"])
            assert message["text_truncated"] == (message["text"] != text)
        assert page["messages"][-count - 1]["text"] == "x" * 100_000
        whole = ""
        cursor: dict[str, Any] = {}
        while True:
            part = await rig.client.request("message.text", message_id=waiting[0]["message_id"], **cursor)
            whole += part["text"]
            if "next" not in part:
                break
            cursor = {"cursor": part["next"]}
        assert whole == text
        fresh = Rig(rig.server, rig.hermes, MemoryTransport(rig.server))
        await fresh.client.hello("fresh")
        assert max(rig.sizes + fresh.sizes) <= MAX_SERVER_FRAME_BYTES


async def test_the_newest_page_fits_when_both_its_parts_are_large(tmp_path: Path) -> None:
    async with rigged(tmp_path, max_text_chars=1_000_000, max_frame_bytes=16_777_216) as rig:
        await rig.notices(["small", "y" * 830_000])
        rig.events.run_started(NAME, None, Origin.BACKGROUND)
        await rig.client.request("message.send", conversation_id=NAME, client_message_id="m", text="x" * 400_000)
        page = await rig.history()
        large, waiting = page["messages"]
        assert (large["text_truncated"], waiting["text_truncated"], page["has_more"]) == (True, True, True)
        assert len(large["text"]) >= 500_000
        assert await rig.texts(before=page["before"]) == ["small"]
        assert max(rig.sizes) <= MAX_SERVER_FRAME_BYTES


async def test_a_page_names_the_runs_of_its_messages(rig: Rig) -> None:
    await rig.turn("q1", "a1")
    await rig.turn("q2", "a2")
    page = await rig.history()
    assert [run["run_id"] for run in page["runs"]] == [
        page["messages"][0]["run_id"],
        page["messages"][2]["run_id"],
    ]
    newest = await rig.history(limit=1)
    assert [run["run_id"] for run in newest["runs"]] == [newest["messages"][0]["run_id"]]


async def test_two_conversations_have_their_own_pages(rig: Rig) -> None:
    await rig.notices(["mine"])
    await deliver_text(rig.events, ConversationId("conv_2"), "other", Origin.CRON)
    await rig.events.settled()
    assert await rig.texts() == ["mine"]


# Whole texts


async def test_the_text_of_a_message_in_one_part(rig: Rig) -> None:
    message_id = await deliver_text(rig.events, NAME, "short", Origin.CRON)
    await rig.events.settled()
    answer = await rig.client.request("message.text", message_id=message_id)
    assert (answer["text"], answer["index"], answer["status"]) == ("short", -1, "completed")
    assert "next" not in answer


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "٣", "1" * 17])
async def test_a_cursor_of_somewhere_else_is_refused(rig: Rig, cursor: str) -> None:
    message_id = await deliver_text(rig.events, NAME, "short", Origin.CRON)
    await rig.events.settled()
    answer = await rig.client.request("message.text", message_id=message_id, cursor=cursor)
    assert answer["code"] == "invalid_message"


async def test_a_cursor_behind_the_end_gives_nothing_more(rig: Rig) -> None:
    message_id = await deliver_text(rig.events, NAME, "short", Origin.CRON)
    await rig.events.settled()
    answer = await rig.client.request("message.text", message_id=message_id, cursor="99")
    assert (answer["text"], "next" in answer) == ("", False)


async def test_fitting_counts_bytes_of_json(rig: Rig) -> None:
    desk = rig.server.transcript
    for char in ("x", "é", "€", "😀", '"', "\n", "\u0001"):
        text = char * 1_000_000
        part, cut = desk.fit(text)
        assert text.startswith(part)
        assert len(transcript._json_bytes(part)) <= desk._text_budget
        assert not cut or len(transcript._json_bytes(part + char)) > desk._text_budget
        assert "".join(desk.parts(text)) == text
    assert desk.parts("") == [""]


# Hermes's rows


async def test_rows_that_were_never_seen_live_are_taken_over_in_order(rig: Rig) -> None:
    rig.hermes.rows[NAME] = [row("1", "q", MessageRole.USER), row("2", "a"), row("3", "n", MessageRole.NOTICE)]
    page = await rig.history()
    assert [(message["role"], message["text"]) for message in page["messages"]] == [
        ("user", "q"),
        ("assistant", "a"),
        ("notice", "n"),
    ]
    assert {message["status"] for message in page["messages"]} == {"completed"}
    (updated,) = await rig.seen("conversation.updated")
    assert updated["conversation"]["history_head"] == page["after"]
    assert updated["conversation"]["history_id"] == page["history_id"]
    assert await rig.seen("history.changed") == []


async def test_rows_at_the_end_raise_the_head_and_nothing_else(rig: Rig) -> None:
    await rig.turn("q1", "a1")
    before = await rig.history()
    rig.hermes.rows[NAME].append(row("later", "from the terminal"))
    rig.events.run_started(NAME, None, Origin.BACKGROUND)
    rig.events.run_ended(NAME, DONE)
    await rig.reconciled()
    after = await rig.history(after=before["after"])
    assert after["history_id"] == before["history_id"]
    assert [message["text"] for message in after["messages"]] == ["from the terminal"]
    assert (await rig.history())["messages"] == before["messages"] + after["messages"]
    assert await rig.seen("history.changed") == []
    assert (await rig.seen("conversation.updated"))[-1]["conversation"]["history_head"] == after["after"]


async def test_a_row_before_the_head_is_put_in_its_place_and_announced(rig: Rig) -> None:
    """Wire contract, section 4: another history_id, and from where on the cache is worth nothing."""
    await rig.turn("q1", "a1")
    await rig.turn("q2", "a2")
    before = await rig.history()
    rig.hermes.rows[NAME].insert(2, row("between", "compacted"))
    await rig.turn("q3", "a3")
    after = await rig.history()
    assert [message["text"] for message in after["messages"]] == ["q1", "a1", "compacted", "q2", "a2", "q3", "a3"]
    (changed,) = await rig.seen("history.changed")
    assert changed["history_id"] == after["history_id"] != before["history_id"]
    assert changed["history_head"] == after["after"]
    shown = [event for event in await rig.seen("conversation.updated") if event["seq"] < changed["seq"]]
    assert {event["conversation"]["history_id"] for event in shown} == {before["history_id"]}
    kept = [message for message in before["messages"] if message["position"] < changed["from_position"]]
    assert kept == [message for message in after["messages"] if message["position"] < changed["from_position"]]
    assert after["messages"][2]["position"] >= changed["from_position"]
    old = {message["message_id"]: message["position"] for message in before["messages"]}
    assert {m["message_id"]: m["position"] for m in after["messages"] if m["message_id"] in old} == old


@pytest.mark.parametrize("count", [1, 2, 3, 5])
async def test_rows_find_a_place_beside_messages_that_are_no_rows(rig: Rig, count: int) -> None:
    """Notices and failed texts stand between bound messages; no two items may get one position."""
    await rig.turn("q1", "a1")
    for number in range(count):
        await deliver_text(rig.events, NAME, f"notice {number}", Origin.SYSTEM)
    await rig.turn("q2", "never stored", rows=False)
    await rig.turn("q3", "a3")
    missed = [row(f"missed {number}", f"missed {number}") for number in range(count)]
    rig.hermes.rows[NAME][2:2] = missed
    await rig.turn("q4", "a4")
    page = await rig.history()
    assert page["type"] == "conversation.history.result"
    texts = [message["text"] for message in page["messages"]]
    assert len(texts) == len(set(texts)) == 8 + 2 * count
    order = ["q1", "a1", *(f"missed {number}" for number in range(count)), "q3", "a3", "q4", "a4"]
    assert [text for text in texts if text in order] == order
    positions = [message["position"] for message in page["messages"]]
    assert positions == sorted(set(positions))


async def test_the_same_row_has_the_same_id_when_the_store_is_lost(tmp_path: Path) -> None:
    hermes = ManualHermes()
    hermes.rows[NAME] = [row("1", "q", MessageRole.USER), row("2", "a")]
    async with rigged(tmp_path / "first", hermes) as rig:
        first = (await rig.history())["messages"]
    async with rigged(tmp_path / "second", hermes) as rig:
        second = (await rig.history())["messages"]
    assert [message["message_id"] for message in first] == [message["message_id"] for message in second]
    assert len({message["message_id"] for message in first}) == 2


async def test_equal_texts_are_different_rows(rig: Rig) -> None:
    rig.hermes.rows[NAME] = [row("1", "same"), row("2", "same")]
    page = await rig.history()
    assert [message["text"] for message in page["messages"]] == ["same", "same"]
    assert len({message["message_id"] for message in page["messages"]}) == 2


async def test_rows_are_taken_over_once(rig: Rig) -> None:
    rig.hermes.rows[NAME] = [row("1", "q", MessageRole.USER), row("2", "a")]
    first = await rig.history()
    for number in range(3):
        await rig.turn(f"q{number}", f"a{number}")
    again = await rig.history()
    assert again["messages"][:2] == first["messages"]
    assert len(again["messages"]) == 8


async def test_a_row_known_under_another_name_is_not_taken_over_again(rig: Rig) -> None:
    rig.hermes.rows[NAME] = [row("old", "text")]
    first = await rig.history()
    rig.hermes.rows[NAME] = [row("new", "text", also=("old",))]
    await rig.turn("q1", "a1")
    assert (await rig.history())["messages"][:1] == first["messages"]
    assert await rig.texts() == ["text", "q1", "a1"]


@pytest.mark.parametrize("broken", ["a\ud800b", "nul\x00"])
async def test_rows_with_text_that_no_frame_can_carry_are_taken_over_cleaned(rig: Rig, broken: str) -> None:
    """R-C6."""
    rig.hermes.rows[NAME] = [row("1", broken)]
    assert await rig.texts() == [broken.replace("\ud800", "\ufffd").replace("\0", "\ufffd")]


async def test_many_requests_at_once_take_rows_over_once(rig: Rig) -> None:
    rig.hermes.rows[NAME] = [row(str(number), f"text {number}") for number in range(20)]
    asked = 0
    real = rig.hermes.history

    async def history(conversation_id: ConversationId) -> Any:
        nonlocal asked
        asked += 1
        return await real(conversation_id)

    rig.hermes.history = history  # type: ignore[method-assign]
    for number in range(10):
        rig.client.send({"type": "conversation.history", "id": f"h{number}", "conversation_id": NAME})
    pages = [await rig.client.until("conversation.history.result") for _ in range(10)]
    assert all(page["messages"] == pages[0]["messages"] for page in pages)
    assert len(pages[0]["messages"]) == 20
    assert asked == 1


async def test_while_a_run_is_active_rows_wait(rig: Rig) -> None:
    rig.events.run_started(NAME, None, Origin.CHAT)
    rig.events.message_started(NAME, "streaming")
    rig.hermes.rows[NAME] = [row("1", "streaming")]
    assert await rig.texts() == ["streaming"]
    rig.events.run_ended(NAME, DONE)
    await rig.reconciled()
    assert await rig.texts() == ["streaming"]


async def test_a_send_that_is_being_admitted_does_not_slip_before_older_rows(rig: Rig) -> None:
    """Its position is given at admission, so rows that would be appended wait until it was their turn."""
    asked, go_on = asyncio.Event(), asyncio.Event()
    real = rig.hermes.bind

    async def bind(*arguments: Any) -> Any:
        asked.set()
        async with asyncio.timeout(2):
            await go_on.wait()
        return await real(*arguments)

    rig.hermes.bind = bind  # type: ignore[method-assign]
    rig.hermes.rows[NAME] = [row("1", "older")]
    rig.client.send({"type": "conversation.history", "id": "h", "conversation_id": NAME})
    await asked.wait()
    rig.client.send(
        {"type": "message.send", "id": "s", "conversation_id": NAME, "client_message_id": "m", "text": "newer"}
    )
    while NAME not in rig.server.runs._lanes:
        await asyncio.sleep(0)
    go_on.set()
    await rig.client.until("message.send.result")
    message = await rig.hermes.handed_over.get()
    rig.events.run_started(NAME, message.message_id, Origin.CHAT)
    rig.hermes.rows[NAME].append(row("2", "newer", MessageRole.USER))
    rig.events.run_ended(NAME, DONE)
    await rig.reconciled()
    assert await rig.texts() == ["older", "newer"]


async def test_a_row_that_hermes_writes_late_is_still_bound(rig: Rig) -> None:
    """Hermes stores the last row of a run shortly after its end."""
    reads = 0
    real = rig.hermes.history

    async def history(conversation_id: ConversationId) -> Any:
        nonlocal reads
        reads += 1
        if reads == 2:
            rig.hermes.rows[NAME] = [row("1", "answer")]
        return await real(conversation_id)

    rig.hermes.history = history  # type: ignore[method-assign]
    rig.events.run_started(NAME, None, Origin.CHAT)
    message_id = rig.events.message_started(NAME, "answer")
    rig.events.run_ended(NAME, DONE)
    await rig.reconciled()
    page = await rig.history()
    assert [message["message_id"] for message in page["messages"]] == [message_id]


async def test_when_hermes_cannot_be_asked_what_is_stored_here_is_shown_and_the_next_history_asks_again(
    rig: Rig,
) -> None:
    real = rig.hermes.history

    async def refuse(conversation_id: ConversationId) -> Any:
        raise Unavailable

    rig.hermes.history = refuse  # type: ignore[method-assign]
    await rig.turn("q1", "a1")
    assert len(await rig.seen("run.ended")) == 1
    assert await rig.texts() == ["q1", "a1"]
    rig.hermes.history = real  # type: ignore[method-assign]
    rig.hermes.rows[NAME] = [row("1", "q1", MessageRole.USER), row("2", "a1"), row("3", "never seen live")]
    assert await rig.texts() == ["q1", "a1", "never seen live"]


async def test_taken_over_rows_outlive_a_restart_with_their_places(tmp_path: Path) -> None:
    hermes = ManualHermes()
    hermes.rows[NAME] = [row("1", "q", MessageRole.USER), row("2", "a")]
    async with rigged(tmp_path, hermes) as rig:
        await rig.turn("q1", "a1")
        before = await rig.history()
    async with rigged(tmp_path, hermes) as rig:
        after = await rig.history()
        assert after["messages"] == before["messages"]
        assert after["history_id"] == before["history_id"]
