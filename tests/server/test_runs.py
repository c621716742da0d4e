"""Sends and runs: receipts, queueing, the order of a run's events, its one end, restarts (R-C, B*, C*, G7)."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId, MessageId
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_protocol.messages.run import RunErrorCode, RunReason, Usage
from pheby_server import runs
from pheby_server.ports import (
    ClarificationPrompt,
    HandOver,
    HermesMessage,
    Outcome,
    RunResult,
    ToolStart,
    Unavailable,
)
from pheby_server.server import Server
from pheby_server.stores import StoreUnavailableError
from pheby_server.testing import FakeClock, ManualHermes, MemoryTransport, deliver_text, running_server

DONE = RunResult(outcome=Outcome.COMPLETED)


class Rig:
    """A conversation, a client that is in step, and the gateway's part in the test's hands."""

    def __init__(self, server: Server, hermes: ManualHermes, client: MemoryTransport, name: ConversationId) -> None:
        self.server = server
        self.events = server.events
        self.hermes = hermes
        self.client = client
        self.name = name

    async def send(self, client_message_id: str, text: str = "hi", **fields: Any) -> dict[str, Any]:
        return await self.client.request(
            "message.send", conversation_id=self.name, client_message_id=client_message_id, text=text, **fields
        )

    async def receipt(self, client_message_id: str) -> dict[str, Any]:
        answer = await self.client.request("message.receipt", client_message_id=client_message_id)
        return answer.get("receipt") or answer

    async def handed_over(self) -> HandOver:
        async with asyncio.timeout(2):
            return await self.hermes.handed_over.get()

    async def started(self, client_message_id: str, text: str = "hi") -> HandOver:
        """A send that Hermes has begun with."""
        await self.send(client_message_id, text)
        message = await self.handed_over()
        self.events.run_started(self.name, message.message_id, Origin.CHAT)
        return message

    async def seen(self, *types: str) -> list[dict[str, Any]]:
        """Everything received so far, of these types."""
        await self.events.settled()
        answer = await self.client.request("ping")
        assert answer["type"] == "pong"
        return [frame for frame in self.client.seen if frame["type"] in types]

    async def history(self, **fields: Any) -> dict[str, Any]:
        return await self.client.request("conversation.history", conversation_id=self.name, **fields)

    async def again(self) -> MemoryTransport:
        """Another client, in step."""
        client = MemoryTransport(self.server)
        await client.hello("another")
        return client


def snapshot(client: MemoryTransport) -> dict[str, Any]:
    """The state that a client was given, from all parts."""
    parts = [frame for frame in client.seen if frame["type"] == "snapshot"]
    whole = dict(parts[-1])
    for kind in ("conversations", "runs", "messages"):
        whole[kind] = [found for part in parts for found in part[kind]]
    return whole


@asynccontextmanager
async def rigged(folder: Path, hermes: ManualHermes | None = None, **settings: Any) -> AsyncIterator[Rig]:
    hermes = hermes or ManualHermes()
    async with running_server(str(folder), hermes, **settings) as server:
        client = MemoryTransport(server)
        await client.hello()
        made = await client.request("conversation.create", client_conversation_id="c1")
        yield Rig(server, hermes, client, ConversationId(made["conversation"]["conversation_id"]))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(tmp_path) as made:
        yield made


async def crash(rig: Rig) -> None:
    """The process dies: no stop, nothing is said, only the files remain."""
    rig.client.cut()
    desk, sequencer = rig.server.runs, rig.server._sequencer
    for task in (*desk._tasks, sequencer._worker):
        assert task is not None
        task.cancel()
    await asyncio.gather(*desk._tasks, sequencer._worker, return_exceptions=True)  # type: ignore[arg-type]
    await rig.server._store.close()


@asynccontextmanager
async def crashing(folder: Path, **settings: Any) -> AsyncIterator[Rig]:
    """As `rigged`, but the process dies at the end."""
    context = rigged(folder, **settings)
    rig = await context.__aenter__()
    yield rig
    await crash(rig)


def texts(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["message"]["text"] for frame in frames]


# A send and its receipt


async def test_a_send_is_receipted_and_its_event_comes_before(rig: Rig) -> None:
    answer = await rig.send("m1", "hello")
    receipt = answer["receipt"]
    assert (receipt["disposition"], receipt["state"], receipt["duplicate"]) == ("started", "admitted", False)
    created = next(frame for frame in rig.client.seen if frame["type"] == "message.created")
    assert rig.client.seen.index(created) < rig.client.seen.index(answer)
    message = created["message"]
    assert (message["role"], message["text"], message["status"]) == ("user", "hello", "completed")
    assert (message["client_message_id"], message["delivery"]) == ("m1", "admitted")
    assert (message["message_id"], message["run_id"]) == (receipt["message_id"], receipt["run_id"])


async def test_hermes_gets_the_text_verbatim_with_the_ids_of_the_receipt(rig: Rig) -> None:
    """B10, R-C6."""
    text = "/etc/hosts  \n\t 'é😀' "
    receipt = (await rig.send("m1", text))["receipt"]
    message = await rig.handed_over()
    assert (message.text, message.message_id, message.run_id) == (text, receipt["message_id"], receipt["run_id"])
    assert message.conversation_id == rig.name


async def test_dispatched_is_stored_before_hermes_is_called(rig: Rig, tmp_path: Path) -> None:
    """R-C2."""
    stored: list[str] = []

    async def hand_over(message: HandOver) -> None:
        reader = sqlite3.connect(tmp_path / "pheby.db")
        stored.append(reader.execute("SELECT body FROM receipts").fetchone()[0])
        reader.close()
        rig.hermes.handed_over.put_nowait(message)

    rig.hermes.hand_over = hand_over  # type: ignore[method-assign]
    await rig.send("m1")
    await rig.handed_over()
    assert '"state":"dispatched"' in stored[0]
    assert (await rig.receipt("m1"))["state"] == "dispatched"


async def test_delivery_follows_the_receipt_and_each_change_is_an_event(rig: Rig) -> None:
    await rig.started("m1")
    rig.events.run_ended(rig.name, DONE)
    updates = await rig.seen("message.created", "message.updated")
    assert [frame["message"]["delivery"] for frame in updates] == ["admitted", "dispatched", "done"]
    assert (await rig.receipt("m1"))["state"] == "done"


async def test_the_same_send_again_starts_nothing(rig: Rig) -> None:
    """G7."""
    first = (await rig.send("m1"))["receipt"]
    again = (await rig.send("m1"))["receipt"]
    assert again == {**first, "duplicate": True, "state": again["state"]}
    await rig.handed_over()
    rig.events.run_started(rig.name, MessageId(first["message_id"]), Origin.CHAT)
    rig.events.run_ended(rig.name, DONE)
    later = (await rig.send("m1"))["receipt"]
    assert later == {**first, "duplicate": True, "state": "done"}
    assert len(await rig.seen("message.created")) == 1
    assert rig.hermes.handed_over.empty()


async def test_the_same_send_at_the_same_instant_from_two_devices_is_one_run(rig: Rig) -> None:
    """G7."""
    other = await rig.again()
    frame = {"type": "message.send", "conversation_id": rig.name, "client_message_id": "m1", "text": "hi"}
    for client in (rig.client, other):
        client.send({**frame, "id": "a"})
        client.send({**frame, "id": "b"})
    answers = [await client.until("message.send.result", id=name) for client in (rig.client, other) for name in "ab"]
    assert sorted(answer["receipt"]["duplicate"] for answer in answers) == [False, True, True, True]
    assert len({answer["receipt"]["run_id"] for answer in answers}) == 1
    await rig.handed_over()
    assert len(await rig.seen("message.created")) == 1
    assert rig.hermes.handed_over.empty()


@pytest.mark.parametrize("busy", [False, True])
async def test_other_content_under_a_used_id_is_a_conflict_with_the_receipt(rig: Rig, *, busy: bool) -> None:
    if busy:
        await rig.started("m0")
    first = (await rig.send("m1", "one"))["receipt"]
    refused = await rig.send("m1", "two")
    assert (refused["code"], refused["retryable"]) == ("conflict", False)
    assert refused["details"]["receipt"]["message_id"] == first["message_id"]
    made = await rig.client.request("conversation.create", client_conversation_id="c2")
    elsewhere = await rig.client.request(
        "message.send",
        conversation_id=made["conversation"]["conversation_id"],
        client_message_id="m1",
        text="one",
    )
    assert elsewhere["code"] == "conflict"
    assert texts(await rig.seen("message.created"))[-1] == "one"


@pytest.mark.parametrize("text", ["", " ", "\n\t  "])
async def test_an_empty_text_is_refused_and_leaves_no_trace(rig: Rig, text: str) -> None:
    assert (await rig.send("m1", text))["code"] == "invalid_message"
    assert (await rig.receipt("m1"))["code"] == "not_found"
    assert (await rig.send("m1", "now"))["receipt"]["duplicate"] is False


async def test_a_text_of_the_longest_length_passes_and_one_more_is_too_large(rig: Rig) -> None:
    assert (await rig.send("m1", "😀" * 100_000))["type"] == "message.send.result"
    refused = await rig.send("m2", "x" * 100_001)
    assert (refused["code"], refused["details"]["limit"]) == ("too_large", 100_000)
    assert (await rig.receipt("m2"))["code"] == "not_found"
    assert len((await rig.handed_over()).text) == 100_000
    assert len(texts(await rig.seen("message.created"))[0]) == 100_000


async def test_an_admission_that_cannot_be_stored_is_not_acknowledged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-M4: full disk. Nothing is told, nothing is kept, the same id may be sent again."""
    real = rig.server._store.transact

    async def transact(work: Any, *, durable: bool = False) -> Any:
        raise StoreUnavailableError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(rig.server._store, "transact", transact)
        frame = {"type": "message.send", "conversation_id": rig.name, "client_message_id": "m1", "text": "hi"}
        for request_id in "ab":
            rig.client.send({**frame, "id": request_id})
        answers = [await rig.client.receive(), await rig.client.receive()]
        assert {(answer["code"], answer["retryable"]) for answer in answers} == {("unavailable", True)}
        assert (await rig.receipt("m1"))["code"] in ("not_found", "unavailable")
    assert rig.server._store.transact == real
    assert (await rig.receipt("m1"))["code"] == "not_found"
    assert rig.hermes.handed_over.empty()
    assert snapshot(await rig.again())["runs"] == []

    admitted = (await rig.send("m1"))["receipt"]
    assert (admitted["disposition"], admitted["duplicate"]) == ("started", False)
    assert (await rig.handed_over()).message_id == admitted["message_id"]
    assert [frame["message"]["message_id"] for frame in await rig.seen("message.created")] == [admitted["message_id"]]


async def test_one_failed_commit_does_not_hold_up_the_send_behind_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rig.server._store.transact
    held = asyncio.Event()
    failures = 1

    async def transact(work: Any, *, durable: bool = False) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            await held.wait()
            raise sqlite3.IntegrityError("this one only")
        return await real(work, durable=durable)

    monkeypatch.setattr(rig.server._store, "transact", transact)
    frame = {"type": "message.send", "conversation_id": rig.name, "text": "hi"}
    rig.client.send({**frame, "id": "a", "client_message_id": "m1"})
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rig.client.send({**frame, "id": "b", "client_message_id": "m2"})
    await asyncio.sleep(0)
    held.set()
    assert (await rig.client.until("error"))["id"] == "a"
    receipt = (await rig.client.until("message.send.result"))["receipt"]
    assert receipt["client_message_id"] == "m2"
    assert (await rig.handed_over()).message_id == receipt["message_id"]


async def test_a_send_that_a_run_end_takes_up_before_its_commit_fails_never_reaches_hermes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.started("m0")
    real = rig.server._store.transact
    failures = 1

    async def transact(work: Any, *, durable: bool = False) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailableError("disk full")
        return await real(work, durable=durable)

    await rig.events.settled()
    monkeypatch.setattr(rig.server._store, "transact", transact)
    rig.client.send(
        {"type": "message.send", "id": "a", "conversation_id": rig.name, "client_message_id": "m1", "text": "hi"}
    )
    await asyncio.sleep(0)
    rig.events.run_ended(rig.name, DONE)
    assert (await rig.client.until("error"))["id"] == "a"
    admitted = (await rig.send("m2"))["receipt"]
    assert (await rig.handed_over()).message_id == admitted["message_id"]
    assert rig.hermes.handed_over.empty()


# Busy


async def test_queued_sends_wait_without_a_position_and_are_announced(rig: Rig) -> None:
    """C6."""
    await rig.started("m1", "one")
    receipt = (await rig.send("m2", "two"))["receipt"]
    assert receipt["disposition"] == "queued"
    created = (await rig.seen("message.created"))[-1]["message"]
    assert (created["status"], created["text"]) == ("queued", "two")
    assert "position" not in created
    assert "completed_at" not in created
    (announced,) = await rig.seen("run.updated")
    assert (announced["run"]["run_id"], announced["run"]["status"]) == (receipt["run_id"], "queued")
    assert rig.hermes.handed_over.empty()


async def test_queued_sends_keep_their_order_and_get_their_position_before_they_start(rig: Rig) -> None:
    """C6."""
    await rig.started("m1", "one")
    for number, text in enumerate(("two", "three", "four"), 2):
        await rig.send(f"m{number}", text)
    for expected in ("two", "three", "four"):
        rig.events.run_ended(rig.name, DONE)
        message = await rig.handed_over()
        assert message.text == expected
        rig.events.run_started(rig.name, message.message_id, Origin.CHAT)
        rig.events.message_ended(rig.events.message_started(rig.name, f"answer to {expected}"), interim=False)
    rig.events.run_ended(rig.name, DONE)
    page = await rig.history()
    assert [found["text"] for found in page["messages"]] == [
        "one",
        *(text for name in ("two", "three", "four") for text in (name, f"answer to {name}")),
    ]
    positions = [found["position"] for found in page["messages"]]
    assert positions == sorted(set(positions))
    for run in page["runs"][1:]:
        placed = next(
            number
            for number, frame in enumerate(rig.client.seen)
            if frame["type"] == "message.updated"
            and frame["message"].get("run_id") == run["run_id"]
            and "position" in frame["message"]
        )
        started = next(
            number
            for number, frame in enumerate(rig.client.seen)
            if frame["type"] == "run.started" and frame["run"]["run_id"] == run["run_id"]
        )
        assert placed < started


async def test_a_send_is_busy_as_soon_as_another_was_admitted(rig: Rig) -> None:
    rig.hermes.is_ready.clear()
    assert (await rig.send("m1"))["receipt"]["disposition"] == "started"
    assert (await rig.send("m2"))["receipt"]["disposition"] == "queued"
    assert (await rig.send("m3", if_busy="reject"))["code"] == "busy"


async def test_reject_while_busy_stores_nothing_and_the_id_stays_free(rig: Rig) -> None:
    await rig.started("m1")
    refused = await rig.send("m2", if_busy="reject")
    assert (refused["code"], refused["retryable"]) == ("busy", True)
    assert refused["details"]["conversation_id"] == rig.name
    assert (await rig.receipt("m2"))["code"] == "not_found"
    assert len(await rig.seen("message.created")) == 1
    rig.events.run_ended(rig.name, DONE)
    assert (await rig.send("m2", "other text", if_busy="reject"))["receipt"]["disposition"] == "started"


async def test_a_repeat_with_reject_gets_its_receipt_although_it_is_busy(rig: Rig) -> None:
    await rig.started("m1")
    assert (await rig.send("m1", if_busy="reject"))["receipt"]["duplicate"] is True


async def test_what_is_not_offered_is_queued_and_the_receipt_says_so(rig: Rig) -> None:
    """C5: never an interrupt that the receipt does not name."""
    await rig.started("m1")
    assert (await rig.send("m2", if_busy="steer"))["receipt"]["disposition"] == "queued"


async def test_another_conversation_is_not_busy(rig: Rig) -> None:
    await rig.started("m1")
    made = await rig.client.request("conversation.create", client_conversation_id="c2")
    answer = await rig.client.request(
        "message.send",
        conversation_id=made["conversation"]["conversation_id"],
        client_message_id="m2",
        text="x",
        if_busy="reject",
    )
    assert answer["receipt"]["disposition"] == "started"


async def test_what_waits_is_in_the_snapshot_and_at_the_end_of_the_newest_page(rig: Rig) -> None:
    """C7."""
    await rig.started("m1", "one")
    await rig.send("m2", "two")
    await rig.send("m3", "three")
    message_id = rig.events.message_started(rig.name, "half")
    state = snapshot(await rig.again())
    assert {run["status"] for run in state["runs"]} == {"running", "queued"}
    assert len(state["runs"]) == 3
    found = {message["text"]: message for message in state["messages"]}
    assert set(found) == {"two", "three", "half"}
    assert (found["half"]["message_id"], found["half"]["index"]) == (message_id, 0)
    assert state["conversations"][0]["active_run_id"] in {run["run_id"] for run in state["runs"]}
    page = await rig.history()
    assert [message["text"] for message in page["messages"]] == ["one", "half", "two", "three"]
    assert page["after"] == page["messages"][1]["position"]
    older = await rig.history(before=page["messages"][1]["position"])
    assert [message["text"] for message in older["messages"]] == ["one"]


async def test_a_hand_over_that_hermes_refuses_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RETRY_SECONDS", 0.0)
    real, refusals = rig.hermes.hand_over, 3

    async def hand_over(message: HandOver) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise Unavailable
        await real(message)

    rig.hermes.hand_over = hand_over  # type: ignore[method-assign]
    receipt = (await rig.send("m1"))["receipt"]
    assert (await rig.handed_over()).run_id == receipt["run_id"]
    assert len([f for f in await rig.seen("message.updated") if f["message"]["delivery"] == "dispatched"]) == 1


async def test_a_run_that_hermes_begins_meanwhile_goes_first(rig: Rig) -> None:
    rig.hermes.is_ready.clear()
    receipt = (await rig.send("m1"))["receipt"]
    own = rig.events.run_started(rig.name, None, Origin.BACKGROUND)
    rig.hermes.is_ready.set()
    await rig.events.settled()
    await asyncio.sleep(0)
    assert rig.hermes.handed_over.empty()
    rig.events.run_ended(rig.name, DONE)
    message = await rig.handed_over()
    rig.events.run_started(rig.name, message.message_id, Origin.CHAT)
    rig.events.run_ended(rig.name, DONE)
    ended = [frame["run"]["run_id"] for frame in await rig.seen("run.ended")]
    assert ended == [own, receipt["run_id"]]


async def test_a_send_that_had_to_step_back_is_still_the_first(rig: Rig) -> None:
    rig.hermes.is_ready.clear()
    for number in (1, 2, 3):
        await rig.send(f"m{number}", f"text {number}")
    rig.events.run_started(rig.name, None, Origin.BACKGROUND)
    rig.hermes.is_ready.set()
    async with asyncio.timeout(2):
        await asyncio.gather(*rig.server.runs._tasks)
    assert rig.hermes.handed_over.empty()
    for number in (1, 2, 3):
        rig.events.run_ended(rig.name, DONE)
        message = await rig.handed_over()
        assert message.text == f"text {number}"
        rig.events.run_started(rig.name, message.message_id, Origin.CHAT)


@pytest.mark.parametrize("broken", ["ready", "hand_over"])
@pytest.mark.parametrize("queued", [False, True])
async def test_a_hand_over_that_breaks_ends_the_run_and_the_next_send_goes(
    rig: Rig, broken: str, *, queued: bool
) -> None:
    """B6. Nothing stays queued of a send whose run has ended."""
    if queued:
        await rig.started("m0")
    receipt = (await rig.send("m1", "broken"))["receipt"] if queued else None

    async def fail(*_: object) -> None:
        raise RuntimeError("no gateway")

    real = getattr(rig.hermes, broken)
    setattr(rig.hermes, broken, fail)
    if queued:
        rig.events.run_ended(rig.name, DONE)
    else:
        receipt = (await rig.send("m1", "broken"))["receipt"]
    assert receipt is not None
    ended = await rig.client.until("run.ended")
    while ended["run"]["run_id"] != receipt["run_id"]:
        ended = await rig.client.until("run.ended")
    assert (ended["run"]["status"], ended["run"]["error"]["code"]) == ("failed", "internal")
    setattr(rig.hermes, broken, real)
    assert (await rig.receipt("m1"))["state"] == "done"
    assert (await rig.send("m2"))["receipt"]["disposition"] == "started"
    assert (await rig.handed_over()).text == "hi"
    page = await rig.history()
    assert {message["status"] for message in page["messages"]} <= {"completed", "failed"}
    assert all("position" in message for message in page["messages"])
    conversation = (await rig.client.request("conversation.get", conversation_id=rig.name))["conversation"]
    assert conversation["history_head"] == page["after"]


# A run


async def test_the_events_of_a_run_come_in_the_order_of_the_contract(rig: Rig) -> None:
    message = await rig.started("m1", "question")
    first = rig.events.message_started(rig.name, "let me see")
    rig.events.message_appended(first, " ...")
    rig.events.message_ended(first, interim=True)
    second = rig.events.message_started(rig.name, "ans")
    rig.events.message_appended(second, "wer")
    usage = Usage(input_tokens=3, output_tokens=4, total_tokens=7)  # type: ignore[arg-type]
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="answer", usage=usage))
    frames = await rig.seen(
        "message.created", "message.updated", "message.delta", "message.completed", "run.started", "run.ended"
    )
    told = [(frame["type"], frame.get("message", {}).get("role")) for frame in frames]
    assert told == [
        ("message.created", "user"),
        ("message.updated", "user"),
        ("run.started", None),
        ("message.created", "assistant"),
        ("message.delta", None),
        ("message.delta", None),
        ("message.completed", "assistant"),
        ("message.created", "assistant"),
        ("message.delta", None),
        ("message.delta", None),
        ("message.completed", "assistant"),
        ("run.ended", None),
        ("message.updated", "user"),
    ]
    interim, final = (frame["message"] for frame in frames if frame["type"] == "message.completed")
    assert (interim["message_id"], interim["text"], interim.get("interim"), interim.get("final")) == (
        first,
        "let me see ...",
        True,
        None,
    )
    assert (final["message_id"], final["text"], final.get("interim"), final["final"]) == (second, "answer", None, True)
    assert {frame["message"]["run_id"] for frame in frames if "message" in frame} == {message.run_id}
    run = frames[-2]["run"]
    assert (run["status"], run["usage"]["total_tokens"]) == ("completed", 7)
    assert run["created_at"] <= run["started_at"] <= run["ended_at"]


async def test_the_index_counts_changes_from_zero_and_a_message_carries_the_one_its_text_includes(rig: Rig) -> None:
    await rig.started("m1")
    message_id = rig.events.message_started(rig.name, "a")
    rig.events.message_appended(message_id, "b")
    rig.events.message_replaced(message_id, "A")
    rig.events.message_appended(message_id, "B")
    frames = await rig.seen("message.created", "message.delta", "message.replaced")
    assert (frames[1]["message"]["index"], frames[1]["message"]["text"]) == (-1, "")
    assert [(frame["type"], frame["index"], frame["text"]) for frame in frames[2:]] == [
        ("message.delta", 0, "a"),
        ("message.delta", 1, "b"),
        ("message.replaced", 2, "A"),
        ("message.delta", 3, "B"),
    ]
    streaming = (await rig.history())["messages"][-1]
    assert (streaming["text"], streaming["index"], streaming["status"]) == ("AB", 3, "streaming")
    text = await rig.client.request("message.text", message_id=message_id)
    assert (text["text"], text["index"], text["status"]) == ("AB", 3, "streaming")


async def test_a_conversation_shows_its_active_run_while_it_lasts(rig: Rig) -> None:
    message = await rig.started("m1")
    await rig.events.settled()
    get = {"conversation_id": rig.name}
    running = (await rig.client.request("conversation.get", **get))["conversation"]
    assert running["active_run_id"] == message.run_id
    rig.events.run_ended(rig.name, DONE)
    assert "active_run_id" not in (await rig.client.request("conversation.get", **get))["conversation"]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(Outcome.COMPLETED, "completed"), (Outcome.FAILED, "failed"), (Outcome.CANCELLED, "cancelled")],
)
async def test_a_text_that_still_streams_is_closed_with_its_text_before_the_run(
    rig: Rig, outcome: Outcome, status: str
) -> None:
    """C4."""
    await rig.started("m1")
    message_id = rig.events.message_started(rig.name, "abc")
    rig.events.message_appended(message_id, "def")
    rig.events.run_ended(rig.name, RunResult(outcome=outcome))
    completed, ended = await rig.seen("message.completed", "run.ended")
    assert (completed["message"]["text"], completed["message"]["status"]) == ("abcdef", status)
    assert ended["run"]["status"] == status
    found = (await rig.history())["messages"][-1]
    assert (found["message_id"], found["text"], found["status"]) == (message_id, "abcdef", status)


@pytest.mark.parametrize("code", list(RunErrorCode))
async def test_each_failure_has_a_code_and_a_sentence(rig: Rig, code: RunErrorCode) -> None:
    """B6."""
    await rig.started("m1")
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.FAILED, error=code))
    (ended,) = await rig.seen("run.ended")
    assert ended["run"]["error"]["code"] == code
    assert ended["run"]["error"]["message"]


async def test_reasons_are_passed_on(rig: Rig) -> None:
    await rig.started("m1")
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.CANCELLED, reason=RunReason.SHUTDOWN))
    (ended,) = await rig.seen("run.ended")
    assert ended["run"]["reason"] == "shutdown"


async def test_after_the_end_nothing_changes_the_run(rig: Rig) -> None:
    """C3: late callbacks are fenced off."""
    message = await rig.started("m1")
    message_id = rig.events.message_started(rig.name, "text")
    rig.events.run_ended(rig.name, DONE)
    await rig.seen()
    before = len(rig.client.seen)
    rig.events.message_appended(message_id, "LATE")
    rig.events.message_replaced(message_id, "LATE")
    rig.events.message_ended(message_id, interim=True)
    late = rig.events.message_started(rig.name, "LATE")
    rig.events.message_appended(late, "LATE")
    rig.events.message_ended(late, interim=False)
    rig.events.run_progress(rig.name, "LATE")
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.FAILED, error=RunErrorCode.INTERNAL))
    rig.events.run_lost(rig.name, message.message_id)
    await rig.seen()
    assert [frame["type"] for frame in rig.client.seen[before:]] == ["pong"]

    await rig.started("m2", "next")
    rig.events.message_appended(late, "LATE")
    rig.events.message_appended(message_id, "LATE")
    page = await rig.history()
    assert [found["text"] for found in page["messages"]] == ["hi", "text", "next"]


async def test_the_owners_words_are_not_hermess_to_change(rig: Rig) -> None:
    sent = await rig.started("m1", "mine")
    waiting = (await rig.send("m2", "mine too"))["receipt"]["message_id"]
    before = (await rig.history())["messages"]
    for message_id in (sent.message_id, MessageId(waiting), MessageId("msg_unknown")):
        rig.events.message_appended(message_id, "x")
        rig.events.message_replaced(message_id, "x")
        rig.events.message_ended(message_id, interim=True)
    await rig.events.settled()
    assert (await rig.history())["messages"] == before


async def test_a_second_text_ends_the_first_as_interim(rig: Rig) -> None:
    await rig.started("m1")
    first = rig.events.message_started(rig.name, "one")
    second = rig.events.message_started(rig.name, "two")
    rig.events.message_appended(first, "LATE")
    rig.events.run_ended(rig.name, DONE)
    done = [frame["message"] for frame in await rig.seen("message.completed")]
    assert [(found["message_id"], found["text"], found.get("interim", False)) for found in done] == [
        (first, "one", True),
        (second, "two", False),
    ]


async def test_a_run_that_begins_while_another_is_open_ends_the_other_first(rig: Rig) -> None:
    message = await rig.started("m1")
    rig.events.message_started(rig.name, "half")
    second = rig.events.run_started(rig.name, None, Origin.CRON)
    rig.events.message_started(rig.name, "other")
    rig.events.run_ended(rig.name, DONE)
    frames = await rig.seen("run.started", "run.ended", "message.completed")
    assert [(frame["type"], (frame.get("run") or frame["message"])["run_id"]) for frame in frames] == [
        ("run.started", message.run_id),
        ("message.completed", message.run_id),
        ("run.ended", message.run_id),
        ("run.started", second),
        ("message.completed", second),
        ("run.ended", second),
    ]
    assert (await rig.receipt("m1"))["state"] == "done"


async def test_a_run_that_begins_over_another_does_not_lose_what_waits(rig: Rig) -> None:
    await rig.started("m1")
    receipt = (await rig.send("m2", "waiting"))["receipt"]
    rig.events.run_started(rig.name, None, Origin.CRON)
    rig.events.run_ended(rig.name, DONE)
    assert (await rig.handed_over()).message_id == receipt["message_id"]
    assert rig.hermes.handed_over.empty()


async def test_hermes_may_start_a_run_by_itself(rig: Rig) -> None:
    run_id = rig.events.run_started(rig.name, None, Origin.BACKGROUND)
    rig.events.message_started(rig.name, "by the way")
    assert (await rig.send("m1", if_busy="reject"))["code"] == "busy"
    rig.events.run_ended(rig.name, DONE)
    started, completed, ended = await rig.seen("run.started", "message.completed", "run.ended")
    assert (started["run"]["run_id"], started["run"]["origin"]) == (run_id, "background")
    assert (completed["message"]["origin"], completed["message"]["run_id"]) == ("background", run_id)
    assert ended["run"]["run_id"] == run_id
    assert (await rig.history())["runs"] == [ended["run"]]


async def test_a_run_for_a_message_that_was_never_handed_over_is_hermess_own(rig: Rig) -> None:
    run_id = rig.events.run_started(rig.name, MessageId("msg_unknown"), Origin.CHAT)
    rig.events.run_ended(rig.name, DONE)
    assert [frame["run"]["run_id"] for frame in await rig.seen("run.ended")] == [run_id]


async def test_a_run_in_a_conversation_that_nobody_knows_makes_it_known(rig: Rig) -> None:
    rig.events.run_started(ConversationId("conv_77"), None, Origin.CRON)
    rig.events.run_ended(ConversationId("conv_77"), DONE)
    frames = [frame["type"] for frame in await rig.seen("conversation.created", "run.started", "run.ended")]
    assert frames[-3:] == ["conversation.created", "run.started", "run.ended"]


async def test_a_lost_message_ends_its_run_as_failed_and_the_next_goes(rig: Rig) -> None:
    first = (await rig.send("m1", "lost"))["receipt"]
    message = await rig.handed_over()
    second = (await rig.send("m2", "next"))["receipt"]
    rig.events.run_lost(rig.name, message.message_id)
    rig.events.run_lost(rig.name, message.message_id)
    assert (await rig.handed_over()).message_id == second["message_id"]
    (ended,) = await rig.seen("run.ended")
    assert (ended["run"]["run_id"], ended["run"]["status"]) == (first["run_id"], "failed")
    assert ended["run"]["error"]["code"] == "internal"
    assert (await rig.receipt("m1"))["state"] == "done"


async def test_a_message_is_not_lost_once_its_run_began(rig: Rig) -> None:
    message = await rig.started("m1")
    rig.events.run_lost(rig.name, message.message_id)
    assert await rig.seen("run.ended") == []
    rig.events.run_lost(ConversationId("conv_none"), message.message_id)


# The answer that Hermes declares


@pytest.mark.parametrize(
    ("shown", "declared", "told"),
    [
        ("Visible start", "Visible start, visible end.", ("message.delta", ", visible end.")),
        ("first line\n", "first line with its end", ("message.replaced", "first line with its end")),
    ],
)
async def test_what_the_declared_answer_changes_is_told_as_a_change(
    rig: Rig, shown: str, declared: str, told: tuple[str, str]
) -> None:
    """B2: a client's text is what the changes add up to, also at the end."""
    await rig.started("m1")
    rig.events.message_started(rig.name, shown)
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text=declared))
    frames = await rig.seen("message.delta", "message.replaced", "message.completed")
    change, completed = frames[-2:]
    assert (change["type"], change["text"]) == told
    assert completed["message"]["text"] == declared
    assert completed["message"]["index"] == change["index"]


async def test_a_declared_answer_that_nobody_saw_is_shown_once(rig: Rig) -> None:
    """B1."""
    await rig.started("m1")
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="Hello"))
    created = (await rig.seen("message.created"))[-1]["message"]
    assert (created["role"], created["text"], created["status"], created["final"]) == (
        "assistant",
        "Hello",
        "completed",
        True,
    )
    assert await rig.seen("message.completed") == []
    assert [found["text"] for found in (await rig.history())["messages"]] == ["hi", "Hello"]


async def test_a_declared_answer_completes_the_text_that_streams(rig: Rig) -> None:
    """B1: the streamed message keeps its id."""
    await rig.started("m1")
    message_id = rig.events.message_started(rig.name, "Hel")
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="Hello"))
    (completed,) = await rig.seen("message.completed")
    assert (completed["message"]["message_id"], completed["message"]["text"]) == (message_id, "Hello")
    assert len((await rig.history())["messages"]) == 2


async def test_an_answer_after_an_interim_text_is_a_message_of_its_own(rig: Rig) -> None:
    """B3."""
    await rig.started("m1")
    rig.events.message_ended(rig.events.message_started(rig.name, "working"), interim=True)
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="done"))
    assert [found["text"] for found in (await rig.history())["messages"]] == ["hi", "working", "done"]


async def test_what_the_run_before_said_does_not_hide_the_next_ones_answer(rig: Rig) -> None:
    await rig.started("m1", "one")
    await rig.send("m2", "two")
    rig.events.message_ended(rig.events.message_started(rig.name, "first"), interim=False)
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="first"))
    message = await rig.handed_over()
    rig.events.run_started(rig.name, message.message_id, Origin.CHAT)
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="second"))
    assert [found["text"] for found in (await rig.history())["messages"]] == ["one", "first", "two", "second"]


async def test_an_answer_that_was_already_whole_is_not_shown_twice(rig: Rig) -> None:
    """B1."""
    await rig.started("m1")
    rig.events.message_ended(rig.events.message_started(rig.name, "done"), interim=False)
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="done"))
    assert [found["text"] for found in (await rig.history())["messages"]] == ["hi", "done"]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED])
async def test_a_run_that_did_not_complete_has_no_answer(rig: Rig, outcome: Outcome) -> None:
    await rig.started("m1")
    rig.events.run_ended(rig.name, RunResult(outcome=outcome, final_text="an error text"))
    assert [found["text"] for found in (await rig.history())["messages"]] == ["hi"]


# Texts of Hermes


@pytest.mark.parametrize("broken", ["a\ud800b", "\udc00", "nul\x00", "\ud83d\ude00"])
async def test_what_no_frame_can_carry_is_replaced_wherever_it_comes(rig: Rig, broken: str) -> None:
    """R-C6."""
    await rig.started("m1")
    message_id = rig.events.message_started(rig.name, broken)
    rig.events.message_appended(message_id, broken)
    rig.events.message_replaced(message_id, broken)
    rig.events.message_ended(message_id, interim=True)
    rig.events.run_progress(rig.name, broken)
    await deliver_text(rig.events, rig.name, broken, Origin.SYSTEM)
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text=broken))
    await rig.seen()
    clean = "".join("\ufffd" if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in broken)
    assert [found["text"] for found in (await rig.history())["messages"]] == ["hi", clean, clean, clean]
    assert len(await rig.seen("run.progress")) == 1
    assert len(await rig.seen("run.ended")) == 1


@pytest.mark.parametrize("how", ["started", "appended", "replaced", "final", "notice"])
@pytest.mark.parametrize("char", ["x", "\u0001", "😀", '"'])
async def test_a_million_characters_arrive_whole_in_frames_that_fit(rig: Rig, how: str, char: str) -> None:
    """B9."""
    text = char * 999_999 + "E"
    frames: list[str] = []
    real = rig.client.session.next_frame

    async def next_frame() -> Any:
        frame = await real()
        if isinstance(frame, str):
            frames.append(frame)
        return frame

    rig.client.session.next_frame = next_frame  # type: ignore[method-assign]
    await rig.started("m1")
    if how == "notice":
        await deliver_text(rig.events, rig.name, text, Origin.CRON)
    elif how != "final":
        message_id = rig.events.message_started(rig.name, text if how == "started" else "")
        if how == "appended":
            rig.events.message_appended(message_id, text)
        elif how == "replaced":
            rig.events.message_replaced(message_id, text)
    live = folded(await rig.seen("message.created", "message.delta", "message.replaced"))
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text=text if how == "final" else None))
    whole = (await rig.seen("message.created", "message.completed"))[-1]["message"]
    assert whole["text_truncated"] is True
    assert text.startswith(whole["text"])
    assert len(whole["text"]) >= 100_000
    if how not in ("final", "notice"):
        assert live[whole["message_id"]] == text
    found = (await rig.history())["messages"][-1]
    assert (found["text_truncated"], found["message_id"]) == (True, whole["message_id"])

    parts, cursor = [], {}
    while True:
        part = await rig.client.request("message.text", message_id=whole["message_id"], **cursor)
        parts.append(part["text"])
        if "next" not in part:
            break
        cursor = {"cursor": part["next"]}
    assert "".join(parts) == text
    assert max(len(frame.encode()) for frame in frames) <= 1_048_576


def folded(frames: list[dict[str, Any]]) -> dict[str, str]:
    """Texts by message as a client has them, by the rule for `index`."""
    texts: dict[str, str] = {}
    indexes: dict[str, int] = {}
    for frame in frames:
        if frame["type"] == "message.created":
            message = frame["message"]
            texts[message["message_id"]] = message["text"]
            indexes[message["message_id"]] = message.get("index", -1)
            continue
        name, index = frame["message_id"], frame["index"]
        if index <= indexes[name]:
            continue
        assert index == indexes[name] + 1
        texts[name] = frame["text"] if frame["type"] == "message.replaced" else texts[name] + frame["text"]
        indexes[name] = index
    return texts


async def test_a_hundred_thousand_characters_are_never_cut(rig: Rig) -> None:
    """B9, R-C6: whatever they are."""
    await rig.started("m1")
    text = "\u0001" * 100_000
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text=text))
    created = (await rig.seen("message.created"))[-1]["message"]
    assert (created["text"] == text, created["text_truncated"]) == (True, False)
    found = (await rig.history())["messages"][-1]
    assert (found["text"] == text, found["text_truncated"]) == (True, False)


async def test_progress_is_told_and_kept_nowhere(rig: Rig) -> None:
    message = await rig.started("m1")
    rig.events.run_progress(rig.name, "reading files " + "x" * 10_000)
    rig.events.run_progress(rig.name, "  ")
    (told,) = await rig.seen("run.progress")
    assert told["run_id"] == message.run_id
    assert "seq" not in told
    assert told["text"].startswith("reading files")
    assert len(told["text"]) <= 500
    assert len((await rig.history())["messages"]) == 1


# Notices


@pytest.mark.parametrize(
    ("origin", "role"), [(Origin.SYSTEM, "notice"), (Origin.CRON, "assistant"), (Origin.BACKGROUND, "assistant")]
)
async def test_a_notice_during_a_run_is_a_message_of_its_own(rig: Rig, origin: Origin, role: str) -> None:
    """H3."""
    await rig.started("m1")
    message_id = rig.events.message_started(rig.name, "one ")
    notice_id = await deliver_text(rig.events, rig.name, "news", origin)
    rig.events.message_appended(message_id, "two")
    rig.events.run_ended(rig.name, DONE)
    created = next(frame for frame in await rig.seen("message.created") if frame["message"]["message_id"] == notice_id)
    assert (created["message"]["role"], created["message"]["origin"]) == (role, origin)
    assert "run_id" not in created["message"]
    found = {message["message_id"]: message["text"] for message in (await rig.history())["messages"]}
    assert (found[message_id], found[notice_id]) == ("one two", "news")
    assert [f["message"]["message_id"] for f in await rig.seen("message.completed")] == [message_id]


async def test_settled_means_stored(rig: Rig, tmp_path: Path) -> None:
    """H4."""
    await deliver_text(rig.events, rig.name, "keep me", Origin.CRON)
    await rig.events.settled()
    reader = sqlite3.connect(tmp_path / "pheby.db")
    assert reader.execute("SELECT count(*) FROM messages WHERE body LIKE '%keep me%'").fetchone() == (1,)
    reader.close()


# Restart


async def test_after_a_restart_everything_is_as_it_was(tmp_path: Path) -> None:
    """R-B3, G3: ids, texts, order."""
    async with rigged(tmp_path) as rig:
        await rig.started("m1", "one")
        rig.events.message_ended(rig.events.message_started(rig.name, "two"), interim=True)
        rig.events.message_started(rig.name, "three")
        rig.events.run_ended(rig.name, DONE)
        await deliver_text(rig.events, rig.name, "four", Origin.CRON)
        before = await rig.history()
        receipt = await rig.receipt("m1")
    async with rigged(tmp_path) as rig:
        after = await rig.history()
        for name in ("messages", "runs", "history_id", "before", "after", "has_more"):
            assert after[name] == before[name]
        assert await rig.receipt("m1") == receipt
        assert (await rig.send("m1", "one"))["receipt"] == {**receipt, "duplicate": True}
        assert snapshot(rig.client)["runs"] == []
        assert rig.hermes.handed_over.empty()


async def test_positions_go_on_behind_what_was_there_before_a_restart(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        await deliver_text(rig.events, rig.name, "one", Origin.CRON)
        await rig.events.settled()
    async with rigged(tmp_path) as rig:
        await deliver_text(rig.events, rig.name, "two", Origin.CRON)
        page = await rig.history()
        assert [message["text"] for message in page["messages"]] == ["one", "two"]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
async def test_a_run_that_a_restart_interrupted_ends_as_failed_with_the_text_so_far(
    tmp_path: Path, *, clean: bool
) -> None:
    """G9, B8, R-C3."""
    clock = FakeClock()
    async with (rigged if clean else crashing)(tmp_path, clock=clock) as rig:
        message = await rig.started("m1", "question")
        message_id = rig.events.message_started(rig.name, "half")
        clock.move(runs.CHECKPOINT_SECONDS)
        await rig.events.settled()
        rig.events.message_appended(message_id, " an answer")
        await rig.seen()
        seq = max(frame["seq"] for frame in rig.client.seen if "seq" in frame)

    async with rigged(tmp_path, clock=clock) as rig:
        state = snapshot(rig.client)
        assert (state["runs"], state["messages"]) == ([], [])
        assert "active_run_id" not in state["conversations"][0]
        assert state["seq"] > seq
        page = await rig.history()
        question, answer = page["messages"]
        assert (question["text"], question["delivery"]) == ("question", "done")
        assert (answer["message_id"], answer["status"]) == (message_id, "failed")
        assert answer["text"] == ("half an answer" if clean else "half")
        (run,) = page["runs"]
        assert (run["run_id"], run["status"], run["error"]["code"]) == (
            message.run_id,
            "failed",
            "interrupted_by_restart",
        )
        assert (await rig.receipt("m1"))["state"] == "done"
        assert rig.hermes.handed_over.empty()
        assert (await rig.send("m2", "next"))["receipt"]["disposition"] == "started"
        assert (await rig.handed_over()).text == "next"


@pytest.mark.parametrize("old", [False, True])
async def test_a_send_that_cannot_be_found_out_about_is_indeterminate_and_never_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """R-C2: what cannot be told, or is too long ago, is shown to the owner."""
    async with crashing(tmp_path, clock=FakeClock()) as rig:
        await rig.send("m1", "question")
        await rig.handed_over()
        await rig.events.settled()

    async def unreadable(*_: Any) -> Any:
        raise OSError("locked")

    clock = FakeClock()
    if old:
        clock.jump(runs.HAND_OVER_WITHIN_MS + 60_000)
    else:
        monkeypatch.setattr(ManualHermes, "bind", unreadable)
    async with rigged(tmp_path, clock=clock) as rig:
        assert (await rig.receipt("m1"))["state"] == "indeterminate"
        page = await rig.history()
        assert [found["delivery"] for found in page["messages"]] == ["indeterminate"]
        assert page["runs"][0]["error"]["code"] == "interrupted_by_restart"
        assert rig.hermes.handed_over.empty()


async def test_a_send_that_hermes_has_never_seen_is_handed_over_once_more(tmp_path: Path) -> None:
    """R-C2, A4: it was on its way when the process died; Hermes has no row of it."""
    async with crashing(tmp_path) as rig:
        first = (await rig.send("m1", "question"))["receipt"]
        await rig.handed_over()
        await rig.events.settled()
    async with rigged(tmp_path) as rig:
        assert (await rig.handed_over()).message_id == first["message_id"]
        rig.events.run_started(rig.name, first["message_id"], Origin.CHAT)
        rig.events.run_ended(rig.name, DONE)
        await rig.events.settled()
        assert (await rig.receipt("m1"))["state"] == "done"
        assert [run["status"] for run in (await rig.history())["runs"]] == ["completed"]


async def test_a_send_that_hermes_has_stored_was_interrupted_and_is_not_run_again(tmp_path: Path) -> None:
    """R-C2, A4: its turn began, and the process died before it was told."""
    async with crashing(tmp_path) as rig:
        await rig.send("m1", "question")
        await rig.handed_over()
        await rig.events.settled()
        rig.hermes.rows[rig.name].append(HermesMessage(key="r1", role=MessageRole.USER, text="question", created_at=1))
        hermes = rig.hermes
    async with rigged(tmp_path, hermes=hermes) as rig:
        assert (await rig.receipt("m1"))["state"] == "done"
        page = await rig.history()
        assert [found["text"] for found in page["messages"]] == ["question"]
        assert page["runs"][0]["error"]["code"] == "interrupted_by_restart"
        assert rig.hermes.handed_over.empty()


async def test_the_log_tells_how_left_over_runs_end_in_the_order_of_the_contract(tmp_path: Path) -> None:
    clock = FakeClock()
    async with crashing(tmp_path, clock=clock) as rig:
        await rig.started("m1")
        rig.events.message_started(rig.name, "half")
        clock.move(runs.CHECKPOINT_SECONDS)
        await rig.events.settled()
        head = rig.server.published_seq
    async with rigged(tmp_path, clock=clock) as rig:
        rows = await rig.server._store.read(
            lambda database: database.execute("SELECT frame FROM events WHERE seq > ? ORDER BY seq", (head,)).fetchall()
        )
        types = [row[0].split('"')[3] for row in rows]
        order = [name for name in types if name in ("message.completed", "run.ended", "message.updated")]
        assert order == ["message.completed", "run.ended", "message.updated"]


async def test_what_a_dead_process_left_open_ends_tools_first_then_questions_then_texts(tmp_path: Path) -> None:
    """The contract's order, section 6, also at the start."""
    clock = FakeClock()
    async with crashing(tmp_path, clock=clock) as rig:
        await rig.started("m1")
        rig.events.message_started(rig.name, "half")
        rig.events.clarification_requested(
            rig.name,
            ClarificationPrompt(
                key="k1",
                question="Which?",
                labels=(),
                multiple=False,
                free_text=True,
                skippable=False,
                call_id=None,
                expires_at=None,
            ),
        )
        tool = ToolStart(call_id="c1", name="t", description=None, arguments={}, arguments_truncated=False)
        rig.events.tool_started(rig.name, tool)
        await rig.events.settled()
        head = rig.server.published_seq
    async with rigged(tmp_path, clock=clock) as rig:
        rows = await rig.server._store.read(
            lambda database: database.execute("SELECT frame FROM events WHERE seq > ? ORDER BY seq", (head,)).fetchall()
        )
        types = [row[0].split('"')[3] for row in rows]
        order = [name for name in types if name.partition(".")[0] not in ("conversation",)]
        assert order[:3] == ["tool.completed", "clarification.resolved", "message.completed"]
        assert order[3:] == ["run.ended", "message.updated"]


async def test_a_send_behind_one_that_was_cancelled_at_once_runs_under_its_own_id(rig: Rig) -> None:
    """An outbox that is flushed after a reconnect: send, cancel it, send."""
    for number, frame in enumerate(
        (
            {"type": "message.send", "conversation_id": rig.name, "client_message_id": "m1", "text": "one"},
            {"type": "run.cancel", "client_message_id": "m1"},
            {"type": "message.send", "conversation_id": rig.name, "client_message_id": "m2", "text": "two"},
        )
    ):
        rig.client.send({**frame, "id": f"q{number}"})
    receipt = (await rig.client.until("message.send.result", id="q2"))["receipt"]
    taken = await rig.handed_over()
    assert taken.message_id == receipt["message_id"]
    assert rig.events.run_started(rig.name, taken.message_id, Origin.CHAT) == receipt["run_id"]
    rig.events.run_ended(rig.name, DONE)
    await rig.events.settled()
    assert (await rig.receipt("m2"))["state"] == "done"
    ended = {frame["run"]["run_id"]: frame["run"]["status"] for frame in await rig.seen("run.ended")}
    assert ended[receipt["run_id"]] == "completed"
    assert sorted(ended.values()) == ["cancelled", "completed"]


async def test_a_send_that_was_refused_and_cancelled_leaves_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-C2: neither told, nor in the history, nor in the list."""
    before = (await rig.client.request("conversation.get", conversation_id=rig.name))["conversation"]
    real = rig.server._store.transact

    async def transact(work: Any, *, durable: bool = False) -> Any:
        raise StoreUnavailableError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(rig.server._store, "transact", transact)
        send = {"type": "message.send", "conversation_id": rig.name, "client_message_id": "m1", "text": "one"}
        rig.client.send({**send, "id": "a"})
        rig.client.send({"type": "run.cancel", "client_message_id": "m1", "id": "b"})
        answers = [await rig.client.receive(), await rig.client.receive()]
        assert {answer["code"] for answer in answers} <= {"unavailable", "not_found"}
    assert rig.server._store.transact == real
    assert await rig.seen("message.created", "message.updated", "run.ended") == []
    assert (await rig.history())["messages"] == []
    assert (await rig.client.request("conversation.get", conversation_id=rig.name))["conversation"] == before


async def test_a_send_that_ended_while_its_dispatch_was_refused_stays_ended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, held = rig.server._store.transact, asyncio.Event()

    async def transact(work: Any, *, durable: bool = False) -> Any:
        if durable and not held.is_set():
            await held.wait()
            raise StoreUnavailableError("disk full")
        return await real(work, durable=durable)

    rig.hermes.is_ready.clear()
    run_id = (await rig.send("m1", "one"))["receipt"]["run_id"]
    monkeypatch.setattr(rig.server._store, "transact", transact)
    rig.hermes.is_ready.set()
    while not (await asyncio.sleep(0) or rig.server.runs._receipts["m1"][1].state == "dispatched"):
        pass
    rig.server.runs.run_lost(rig.name, rig.server.runs._lanes[rig.name].handed.message.message_id)
    held.set()
    await rig.events.settled()
    assert (await rig.receipt("m1"))["state"] == "done"
    page = await rig.history()
    assert [(found["text"], found["status"]) for found in page["messages"]] == [("one", "completed")]
    assert [run["status"] for run in page["runs"] if run["run_id"] == run_id] == ["failed"]
    assert snapshot(await rig.again())["messages"] == []


async def test_the_files_of_a_living_server_are_whole_at_any_moment(tmp_path: Path) -> None:
    """R-M4: what was acknowledged is in them, as they lie there after kill -9."""
    async with rigged(tmp_path / "living") as rig:
        message = await rig.started("m1", "question")
        rig.events.message_started(rig.name, "half")
        await rig.send("m2", "waiting")
        shutil.copytree(tmp_path / "living", tmp_path / "copy")
        assert (tmp_path / "copy" / "pheby.db-wal").stat().st_size > 0
    async with rigged(tmp_path / "copy") as rig:
        assert (await rig.handed_over()).text == "waiting"
        assert (await rig.receipt("m1"))["state"] == "done"
        page = await rig.history()
        assert [found["text"] for found in page["messages"]] == ["question", "", "waiting"]
        assert page["runs"][0]["run_id"] == message.run_id
        assert page["runs"][0]["error"]["code"] == "interrupted_by_restart"


async def test_a_second_restart_changes_nothing_more(tmp_path: Path) -> None:
    async with crashing(tmp_path) as rig:
        await rig.started("m1")
        rig.events.message_started(rig.name, "half")
        await rig.events.settled()
    async with rigged(tmp_path) as rig:
        before = await rig.history()
        head = rig.server.published_seq
    async with rigged(tmp_path) as rig:
        assert rig.server.published_seq == head
        assert (await rig.history())["messages"] == before["messages"]


async def test_hermess_own_run_that_a_restart_interrupted_ends_too(tmp_path: Path) -> None:
    async with crashing(tmp_path) as rig:
        run_id = rig.events.run_started(rig.name, None, Origin.BACKGROUND)
        rig.events.message_started(rig.name, "half")
        await rig.events.settled()
    async with rigged(tmp_path) as rig:
        page = await rig.history()
        assert [(run["run_id"], run["error"]["code"]) for run in page["runs"]] == [(run_id, "interrupted_by_restart")]
        assert [message["status"] for message in page["messages"]] == ["failed"]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
async def test_what_hermes_has_never_seen_is_handed_over_after_a_restart_in_order(
    tmp_path: Path, *, clean: bool
) -> None:
    """R-C2. Also sends of the same millisecond keep their order, in the queue and in the newest page."""
    clock = FakeClock()
    receipts = []
    async with (rigged if clean else crashing)(tmp_path, clock=clock) as rig:
        rig.hermes.is_ready.clear()
        for number in range(12):
            receipts.append((await rig.send(f"m{number}", f"text {number}"))["receipt"])
    shut = ManualHermes()
    shut.is_ready.clear()
    async with rigged(tmp_path, shut, clock=clock) as rig:
        clock.jump(-100_000)
        page = await rig.history()
        assert [message["text"] for message in page["messages"]] == [f"text {number}" for number in range(12)]
        assert [(await rig.receipt(f"m{number}"))["state"] for number in range(12)] == ["admitted"] * 12
        shut.is_ready.set()
        for receipt in receipts:
            message = await rig.handed_over()
            assert (message.message_id, message.run_id) == (receipt["message_id"], receipt["run_id"])
            rig.events.run_started(rig.name, message.message_id, Origin.CHAT)
            rig.events.run_ended(rig.name, DONE)
        await rig.seen()
        assert rig.hermes.handed_over.empty()
        assert len(await rig.seen("run.ended")) == 12


async def test_an_old_send_is_not_handed_over_after_a_restart_but_expires(tmp_path: Path) -> None:
    clock = FakeClock()
    async with crashing(tmp_path, clock=clock) as rig:
        rig.hermes.is_ready.clear()
        await rig.send("m1", "old")
        await rig.send("m2", "old too")
        clock.jump(runs.HAND_OVER_WITHIN_MS - 60_000)
        await rig.send("m3", "young")
        clock.jump(60_001)
    shut = ManualHermes()
    shut.is_ready.clear()
    async with rigged(tmp_path, shut, clock=clock) as rig:
        conversation = (await rig.client.request("conversation.get", conversation_id=rig.name))["conversation"]
        assert conversation["history_head"] == (await rig.history())["after"]
        shut.is_ready.set()
        assert (await rig.handed_over()).text == "young"
        assert rig.hermes.handed_over.empty()
        for name in ("m1", "m2"):
            assert (await rig.receipt(name))["state"] == "expired"
        page = await rig.history()
        messages = {message["text"]: message for message in page["messages"]}
        assert (messages["old"]["delivery"], messages["old too"]["delivery"]) == ("expired", "expired")
        assert messages["old too"]["status"] == "cancelled"
        assert all("position" in message for message in page["messages"])
        ended = {run["run_id"]: run["status"] for run in page["runs"]}
        assert sorted(ended.values()) == ["cancelled", "cancelled", "queued"]
        conversation = (await rig.client.request("conversation.get", conversation_id=rig.name))["conversation"]
        assert conversation["history_head"] == page["after"]
        assert (await rig.send("m1", "old"))["receipt"]["state"] == "expired"


async def test_a_cut_line_changes_nothing_for_the_run(rig: Rig) -> None:
    """C5, G1."""
    message = await rig.started("m1")
    message_id = rig.events.message_started(rig.name, "one ")
    rig.client.cut()
    rig.events.message_appended(message_id, "two ")
    back = await rig.again()
    (streaming,) = snapshot(back)["messages"]
    assert (streaming["text"], streaming["message_id"]) == ("one two ", message_id)
    rig.events.message_appended(message_id, "three")
    rig.events.run_ended(rig.name, DONE)
    ended = await back.until("run.ended")
    assert ended["run"]["run_id"] == message.run_id
    assert (await back.request("message.text", message_id=message_id))["text"] == "one two three"


async def test_streaming_text_is_stored_at_least_once_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    async with rigged(tmp_path, clock=clock) as rig:
        await rig.started("m1")
        message_id = rig.events.message_started(rig.name, "a")

        async def stored() -> str:
            await rig.events.settled()
            body = await rig.server._store.read(
                lambda database: database.execute(
                    "SELECT body FROM messages WHERE message_id = ?", (message_id,)
                ).fetchone()[0]
            )
            text: str = body.split('"text":"')[1].split('"')[0]
            return text

        assert await stored() == ""
        clock.move(1.0)
        assert await stored() == "a"
        rig.events.message_appended(message_id, "b")
        clock.move(0.9)
        assert await stored() == "a"
        clock.move(0.1)
        assert await stored() == "ab"
        head = rig.server.published_seq
        clock.move(5.0)
        await rig.events.settled()
        assert rig.server.published_seq == head


async def test_rows_of_hermes_are_bound_to_what_was_seen_live(rig: Rig) -> None:
    """R-B3: one message each, with the ids of the live ones."""
    await rig.started("m1", "question")
    message_id = rig.events.message_started(rig.name, "answer")
    rig.hermes.rows[rig.name] = [
        HermesMessage(key="1", role=MessageRole.USER, text="question", created_at=1),
        HermesMessage(key="2", role=MessageRole.ASSISTANT, text="answer", created_at=2),
    ]
    rig.events.run_ended(rig.name, DONE)
    page = await rig.history()
    assert [message["text"] for message in page["messages"]] == ["question", "answer"]
    assert page["messages"][1]["message_id"] == message_id


# Cancelling


@pytest.fixture
async def timed(tmp_path: Path) -> AsyncIterator[tuple[Rig, FakeClock]]:
    clock = FakeClock()
    async with rigged(tmp_path, clock=clock) as made:
        yield made, clock


async def cancel(rig: Rig, **fields: Any) -> dict[str, Any]:
    answer = await rig.client.request("run.cancel", **fields)
    assert answer["type"] == "run.cancel.result", answer
    return dict(answer["run"])


async def test_a_cancelled_run_is_on_its_way_until_hermes_ends_it(timed: tuple[Rig, FakeClock]) -> None:
    """R-C4: the partial text is kept and marked."""
    rig, clock = timed
    message = await rig.started("m1")
    rig.events.message_started(rig.name, "half")
    run = await cancel(rig, run_id=message.run_id)
    assert run["status"] == "cancelling"
    assert await rig.hermes.interrupted.get() == rig.name
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.CANCELLED))
    (ended,) = await rig.seen("run.ended")
    assert (ended["run"]["status"], ended["run"]["reason"]) == ("cancelled", "requested")
    assert [frame["message"]["status"] for frame in await rig.seen("message.completed")] == ["cancelled"]
    clock.move(10)
    assert len(await rig.seen("run.ended")) == 1


async def test_a_cancel_can_lose_the_race_to_success(rig: Rig) -> None:
    message = await rig.started("m1")
    await cancel(rig, run_id=message.run_id)
    rig.events.message_started(rig.name, "done")
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="done"))
    (ended,) = await rig.seen("run.ended")
    assert ended["run"]["status"] == "completed"
    assert "reason" not in ended["run"]


async def test_a_hermes_that_ignores_the_cancel_is_fenced_off(timed: tuple[Rig, FakeClock]) -> None:
    """C1, C3: ended on the wire, the late output in no frame, the next send waits until Hermes is free."""
    rig, clock = timed
    message = await rig.started("m1")
    text = rig.events.message_started(rig.name, "half")
    await cancel(rig, run_id=message.run_id)
    rig.hermes.is_ready.clear()
    clock.move(runs.CANCEL_SECONDS)
    (ended,) = await rig.seen("run.ended")
    assert ended["run"]["status"] == "cancelled"
    rig.events.message_appended(text, "LATE")
    rig.events.message_started(rig.name, "LATE")
    assert (await rig.send("m2"))["receipt"]["state"] == "admitted"
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="LATE"))
    assert rig.hermes.handed_over.empty()
    rig.hermes.is_ready.set()
    following = await rig.handed_over()
    rig.events.run_started(rig.name, following.message_id, Origin.CHAT)
    assert "LATE" not in repr(await rig.seen("message.created", "message.delta", "message.completed"))
    assert len(await rig.seen("run.ended")) == 1
    assert len(await rig.seen("run.started")) == 2


async def test_a_run_that_is_cancelled_between_hand_over_and_turn_is_stopped_when_the_turn_begins(rig: Rig) -> None:
    await rig.send("m1")
    message = await rig.handed_over()
    run = await cancel(rig, run_id=message.run_id)
    assert run["status"] == "queued"
    assert await rig.hermes.interrupted.get() == rig.name
    rig.events.run_started(rig.name, message.message_id, Origin.CHAT)
    assert await rig.hermes.interrupted.get() == rig.name
    assert (await rig.seen("run.updated"))[-1]["run"]["status"] == "cancelling"


async def test_a_turn_that_begins_after_its_run_was_given_up_is_not_told(timed: tuple[Rig, FakeClock]) -> None:
    rig, clock = timed
    await rig.send("m1")
    message = await rig.handed_over()
    await cancel(rig, run_id=message.run_id)
    clock.move(runs.CANCEL_SECONDS)
    (ended,) = await rig.seen("run.ended")
    assert (ended["run"]["status"], ended["run"]["reason"]) == ("cancelled", "requested")
    assert (await rig.receipt("m1"))["state"] == "done"
    rig.events.run_started(rig.name, message.message_id, Origin.CHAT)
    rig.events.message_started(rig.name, "LATE")
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.COMPLETED, final_text="LATE"))
    assert await rig.seen("run.started") == []
    assert "LATE" not in repr(rig.client.seen)


async def test_a_send_that_hermes_has_not_seen_ends_at_once(rig: Rig) -> None:
    rig.hermes.is_ready.clear()
    await rig.send("m1")
    run = await cancel(rig, client_message_id="m1")
    assert (run["status"], run["reason"]) == ("cancelled", "requested")
    rig.hermes.is_ready.set()
    await rig.send("m2", "second")
    assert (await rig.handed_over()).text == "second"
    assert rig.hermes.handed_over.empty()
    assert rig.hermes.interrupted.empty()


async def test_cancelling_twice_asks_hermes_once_and_ends_once(rig: Rig) -> None:
    message = await rig.started("m1")
    for _ in range(3):
        assert (await cancel(rig, run_id=message.run_id))["status"] == "cancelling"
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.CANCELLED))
    assert len(await rig.seen("run.ended")) == 1
    assert rig.hermes.interrupted.qsize() == 1
    assert (await cancel(rig, run_id=message.run_id))["status"] == "cancelled"


async def test_a_send_that_interrupts_goes_first_and_the_run_is_superseded(rig: Rig) -> None:
    message = await rig.started("m1")
    await rig.send("m2", "waiting")
    answer = await rig.send("m3", "urgent", if_busy="interrupt")
    assert answer["receipt"]["disposition"] == "interrupted"
    assert await rig.hermes.interrupted.get() == rig.name
    rig.events.run_ended(rig.name, RunResult(outcome=Outcome.CANCELLED, reason=RunReason.REQUESTED))
    (ended,) = await rig.seen("run.ended")
    assert (ended["run"]["run_id"], ended["run"]["reason"]) == (message.run_id, "superseded")
    assert (await rig.handed_over()).text == "urgent"


async def test_an_interrupt_that_fails_still_ends_the_run(timed: tuple[Rig, FakeClock]) -> None:
    rig, clock = timed

    async def refuse(conversation_id: ConversationId) -> None:
        raise RuntimeError("no")

    rig.hermes.interrupt = refuse  # type: ignore[method-assign]
    message = await rig.started("m1")
    await cancel(rig, run_id=message.run_id)
    clock.move(runs.CANCEL_SECONDS)
    assert [frame["run"]["status"] for frame in await rig.seen("run.ended")] == ["cancelled"]
