"""The client library against a real server: kept up, in order, and at an end where coming back is of no use."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pheby import (
    AuthenticationError,
    Client,
    Connected,
    ConnectionLostError,
    Disconnected,
    RequestFailedError,
    SendInDoubtError,
)
from pheby import client as client_module
from pheby.client import FIRST_DELAY, LONGEST_DELAY, Happening
from pheby_protocol.codec import UnknownMessage
from pheby_protocol.connection import error
from pheby_protocol.errors import CLOSES, AfterClose, CloseCode, ErrorCode
from pheby_protocol.ids import ConversationId, RequestId, Time
from pheby_protocol.messages._base import LoggedEvent, Request
from pheby_protocol.messages.connection import Ping, Pong, ServerDraining, Snapshot
from pheby_protocol.messages.conversation import ConversationGet, ConversationGetResult
from pheby_protocol.messages.message import (
    IfBusy,
    MessageCompleted,
    MessageCreated,
    MessageDelta,
    MessageRole,
    MessageSend,
)
from pheby_protocol.messages.run import RunEnded, RunStarted
from pheby_protocol.states import RunState
from pheby_server.simulated import Pause, Say, Step
from tests.client.house import READ_ONLY_SECRET, SECRET, FastTime, House

FINAL = {AfterClose.REPORT, AfterClose.ASK_SECRET, AfterClose.UPDATE, AfterClose.STOP_UNTIL_OPENED}


@pytest.fixture
async def client(house: House) -> AsyncIterator[Client]:
    """One that is in step with the house."""
    async with Client(house.url, SECRET) as client:
        yield client


class Reader:
    """Reads what happens, and waits for what a test wants to see."""

    def __init__(self, client: Client) -> None:
        self.seen: list[Happening] = []
        self._happenings = client.happenings()

    async def until(self, *kinds: type, **fields: Any) -> Any:
        async with asyncio.timeout(5):
            async for happening in self._happenings:
                self.seen.append(happening)
                if isinstance(happening, kinds) and all(getattr(happening, k) == v for k, v in fields.items()):
                    return happening
        raise AssertionError("the happenings have ended")

    async def rest(self) -> list[Happening]:
        """What still comes, where there is an end."""
        async with asyncio.timeout(5):
            return [happening async for happening in self._happenings]


# The secret


@pytest.mark.parametrize("secret", ["wrong-0123456789abcdef-0123456789abcdef", "x", ""])
async def test_a_wrong_secret_is_told_at_once_and_not_tried_again(house: House, time: FastTime, secret: str) -> None:
    """K3."""
    with pytest.raises(AuthenticationError) as refused:
        async with Client(house.url, secret):
            raise AssertionError("never connected")
    assert time.delays == [0.0]
    assert not secret or secret not in str(refused.value)


async def test_a_secret_that_is_no_longer_right_ends_the_client(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(client)
    monkeypatch.setattr(client, "_secret", "changed-0123456789abcdef-0123456789abcdef")
    house.drop(CloseCode.NORMAL)
    assert await reader.until(Disconnected, final=True) == Disconnected(401, True)
    with pytest.raises(AuthenticationError):
        await client.connected()


def test_nothing_of_a_client_shows_its_secret() -> None:
    """J12."""
    client = Client("ws://127.0.0.1:1/v1/ws", SECRET)
    assert SECRET not in repr(client)
    assert SECRET not in str(client)


async def test_the_secret_is_not_logged(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with Client(house.url, SECRET) as client:
        await client.conversations()
    assert SECRET not in caplog.text


async def test_the_welcome_says_what_the_secret_allows(house: House) -> None:
    async with Client(house.url, READ_ONLY_SECRET) as client:
        assert client.welcome is not None
        assert client.welcome.access_mode == "read_only"
        with pytest.raises(RequestFailedError) as refused:
            await client.create_conversation()
        assert refused.value.code is ErrorCode.FORBIDDEN


# Coming back


async def test_while_the_server_is_away_the_delays_grow(house: House, time: FastTime) -> None:
    """K3: back-off up to a bound, and back when the server is."""
    await house.close()
    time.may_go_on = lambda: len(time.delays) < 11
    connecting = asyncio.create_task(Client(house.url, SECRET).__aenter__())
    await time.paused.wait()
    delays = [FIRST_DELAY * 2**n for n in range(7)]
    assert time.delays == [0.0, *delays, LONGEST_DELAY, LONGEST_DELAY, LONGEST_DELAY]
    await house.open()
    time.go_on.set()
    client = await connecting
    assert client.welcome is not None
    await client.__aexit__(None, None, None)


async def test_a_delay_has_some_chance_in_it(house: House, time: FastTime, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of an owner's devices come back after a restart; not at one moment."""
    monkeypatch.undo()
    monkeypatch.setattr(client_module, "asyncio", time)
    await house.close()
    time.may_go_on = lambda: len(time.delays) < 9
    connecting = asyncio.create_task(Client(house.url, SECRET).__aenter__())
    await time.paused.wait()
    connecting.cancel()
    await asyncio.wait([connecting])
    for number, delay in enumerate(time.delays[1:8]):
        assert FIRST_DELAY * 2**number * 0.5 <= delay <= FIRST_DELAY * 2**number


async def test_a_lost_connection_comes_back_soon(house: House, time: FastTime) -> None:
    async with Client(house.url, SECRET) as client:
        reader = Reader(client)
        await reader.until(Connected)
        house.drop(CloseCode.NORMAL)
        assert await reader.until(Disconnected) == Disconnected(1000, False)
        await reader.until(Connected)
        assert time.delays == [0.0, FIRST_DELAY]
        await client.conversations()


async def test_a_server_that_goes_down_says_when_it_will_be_back(house: House, time: FastTime) -> None:
    """1001: reconnect after the announced delay."""
    async with Client(house.url, SECRET) as client:
        reader = Reader(client)
        await reader.until(Connected)
        time.may_go_on = lambda: len(time.delays) < 2
        await house.close()
        await time.paused.wait()
        announced = await reader.until(ServerDraining)
        assert time.delays == [0.0, announced.reconnect_after_ms / 1_000]
        await house.open()
        time.go_on.set()
        await reader.until(Connected)


@pytest.mark.parametrize("code", CLOSES)
async def test_each_close_code_does_what_the_table_says(house: House, time: FastTime, code: CloseCode) -> None:
    async with Client(house.url, SECRET) as client:
        reader = Reader(client)
        await reader.until(Connected)
        house.drop(code)
        lost = await reader.until(Disconnected)
        assert lost == Disconnected(code, CLOSES[code].client in FINAL)
        if lost.final:
            assert await reader.rest() == []
        else:
            await reader.until(Connected)


async def test_after_the_end_nothing_waits_for_ever(house: House, client: Client) -> None:
    """Replaced by a newer connection of this device: sends, requests and waits say so."""
    conversation = await client.create_conversation()
    house.drop(CloseCode.REPLACED)
    await Reader(client).until(Disconnected)
    for call in (
        client.connected,
        client.conversations,
        client.create_conversation,
        lambda: client.send(conversation.conversation_id, "hello"),
    ):
        with pytest.raises(ConnectionLostError):
            await asyncio.wait_for(call(), 5)


async def test_a_newer_connection_of_the_same_device_takes_over(house: House) -> None:
    """G11: one socket per device; the older client does not fight for it."""
    async with Client(house.url, SECRET, device_id="phone") as old, Client(house.url, SECRET, device_id="phone") as new:
        assert await Reader(old).until(Disconnected) == Disconnected(CloseCode.REPLACED, True)
        await new.conversations()


@pytest.mark.parametrize("frame", ['{"type":', "[]", '{"type":"conversation.get.result","id":"c99"}'])
async def test_a_server_that_breaks_the_rules_is_left_and_found_again(house: House, time: FastTime, frame: str) -> None:
    async with Client(house.url, SECRET) as client:
        reader = Reader(client)
        await reader.until(Connected)
        house.whisper(frame)
        assert not (await reader.until(Disconnected)).final
        await reader.until(Connected)
        await client.conversations()


async def test_a_server_that_never_answers_is_given_up(
    house: House, time: FastTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(client_module, "CONNECT_SECONDS", 0.05)
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    time.may_go_on = lambda: len(time.delays) < 2
    url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    connecting = asyncio.create_task(Client(url, SECRET).__aenter__())
    await time.paused.wait()
    connecting.cancel()
    await asyncio.wait([connecting])
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("url", ["nowhere", "ftp://127.0.0.1/", "ws://", "http//x"])
async def test_what_is_no_address_is_told_at_once(time: FastTime, url: str) -> None:
    with pytest.raises(ConnectionLostError):
        async with Client(url, SECRET):
            raise AssertionError("never connected")
    assert time.delays == [0.0]


# Coming and going


async def test_giving_up_while_connecting_leaves_nothing_behind(
    house: House, time: FastTime, caplog: pytest.LogCaptureFixture
) -> None:
    await house.close()
    client = Client(house.url, SECRET)
    time.may_go_on = lambda: len(time.delays) < 3
    connecting = asyncio.create_task(client.__aenter__())
    await time.paused.wait()
    connecting.cancel()
    await asyncio.wait([connecting])
    assert connecting.cancelled()
    assert client._task is not None
    assert client._task.done()
    assert client._http is not None
    assert client._http.closed
    del client, connecting
    gc.collect()
    assert "Unclosed" not in caplog.text


async def test_leaving_ends_everything(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still asked is told so, and what is read has an end."""
    async with Client(house.url, SECRET) as client:
        reader = Reader(client)
        assert house.server is not None
        monkeypatch.setattr(house.server, "answer", lambda session, request: asyncio.Event().wait())
        waiting = asyncio.create_task(client.conversations())
        while not client._answers:
            await asyncio.sleep(0)
    with pytest.raises(ConnectionLostError):
        await asyncio.wait_for(waiting, 5)
    assert (await reader.until(Disconnected)).final
    assert client._http is not None
    assert client._http.closed
    with pytest.raises(ConnectionLostError):
        await client.connected()


async def test_a_line_that_breaks_right_after_the_start_is_no_end(house: House, time: FastTime) -> None:
    """In step and lost again before anyone looked: the client is there, and comes back."""
    assert house.server is not None
    take_in = house.server._take_in
    drops = iter([True])

    def take_in_and_drop(session: Any, *rest: Any) -> None:
        take_in(session, *rest)
        if next(drops, False):
            session.close(CloseCode.NORMAL)

    house.server._take_in = take_in_and_drop  # type: ignore[method-assign]
    async with Client(house.url, SECRET) as client:
        await client.connected()
        reader = Reader(client)
        await reader.until(Disconnected)
        await reader.until(Connected)


# Events


async def test_events_come_in_order(house: House, client: Client) -> None:
    conversation = await client.create_conversation("Groceries")
    assert conversation.title == "Groceries"
    reader = Reader(client)
    receipt = await client.send(conversation.conversation_id, "hello world")
    ended = await reader.until(RunEnded)
    assert (ended.run.run_id, ended.run.status) == (receipt.run_id, RunState.COMPLETED)
    steps = [type(each) for each in reader.seen if isinstance(each, MessageCreated | RunStarted | MessageCompleted)]
    assert steps == [MessageCreated, RunStarted, MessageCreated, MessageCompleted]
    seqs = [each.seq for each in reader.seen if isinstance(each, LoggedEvent)]
    assert seqs == sorted(set(seqs))
    said = "".join(each.text for each in reader.seen if isinstance(each, MessageDelta))
    (completed,) = [each.message for each in reader.seen if isinstance(each, MessageCompleted)]
    assert completed.text == said == "You said: hello world "


async def test_the_state_comes_before_what_changes_it(client: Client) -> None:
    reader = Reader(client)
    await reader.until(Connected)
    assert [type(each) for each in reader.seen] == [Snapshot, Connected]


async def test_events_that_are_not_known_yet_do_not_stop_the_others(house: House, client: Client) -> None:
    """M9."""
    reader = Reader(client)
    await reader.until(Connected)
    house.whisper('{"type":"party.started","seq":1,"time":1,"guests":["a"]}')
    unknown = await reader.until(UnknownMessage)
    assert unknown.type == "party.started"
    await client.create_conversation()
    assert not [each for each in reader.seen if isinstance(each, Disconnected)]


async def test_several_events_in_one_frame_are_several(house: House, client: Client) -> None:
    reader = Reader(client)
    await reader.until(Connected)
    events = ",".join(f'{{"type":"server.draining","reconnect_after_ms":{delay}}}' for delay in (1, 2))
    house.whisper(f'{{"type":"batch","events":[{events}]}}')
    assert [(await reader.until(ServerDraining)).reconnect_after_ms for _ in "12"] == [1, 2]


async def test_an_error_about_nothing_in_particular_is_no_answer(house: House, client: Client) -> None:
    house.whisper('{"type":"error","code":"internal","message":"x","retryable":true}')
    await client.conversations()


# Requests


async def test_errors_are_typed(client: Client) -> None:
    """G10: decided by the code."""
    asked = ConversationGet(id=RequestId("g1"), conversation_id=ConversationId("conv_1"))
    with pytest.raises(RequestFailedError) as refused:
        await client.request(asked, ConversationGetResult)
    assert (refused.value.code, refused.value.retryable) == (ErrorCode.NOT_FOUND, False)
    assert str(refused.value).startswith("not_found: ")


async def test_a_busy_conversation_can_be_refused(tmp_path: Any) -> None:
    """C6: visible in the answer, with the details."""

    def slow(text: str) -> list[Step]:
        return [Say("w"), Pause(60)]

    house = House(str(tmp_path / "slow"), slow)
    await house.open()
    async with Client(house.url, SECRET) as client:
        conversation_id = (await client.create_conversation()).conversation_id
        await client.send(conversation_id, "one")
        queued = await client.send(conversation_id, "two")
        assert queued.disposition == "queued"
        with pytest.raises(RequestFailedError) as refused:
            await client.send(conversation_id, "three", if_busy=IfBusy.REJECT)
        assert refused.value.code is ErrorCode.BUSY
        assert refused.value.details is not None
        assert refused.value.details.conversation_id == conversation_id
    await house.close()


async def test_an_answer_that_nobody_waits_for_is_dropped(house: House, client: Client) -> None:
    """Given up just as the answer came: the client lives on."""
    asked = asyncio.create_task(client.request(Ping(id=RequestId("p1")), Pong))
    while RequestId("p1") not in client._answers:
        await asyncio.sleep(0)
    asked.cancel()
    client._receive(Pong(id=RequestId("p1"), server_time=Time(1)))
    await asyncio.wait([asked])
    await client.conversations()
    assert client._answers == {}


async def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert house.server is not None
    monkeypatch.setattr(client_module, "REQUEST_SECONDS", 0.02)
    monkeypatch.setattr(house.server, "answer", lambda session, request: asyncio.Event().wait())
    with pytest.raises(TimeoutError):
        await client.conversations()
    assert client._answers == {}


async def test_many_requests_at_once(client: Client) -> None:
    made = await asyncio.gather(*(client.create_conversation(f"number {number}") for number in range(10)))
    assert [each.title for each in made] == [f"number {number}" for number in range(10)]
    page = await client.conversations(limit=4)
    assert len(page.conversations) == 4
    rest = await client.conversations(limit=10, cursor=page.next)
    listed = {each.conversation_id for each in (*page.conversations, *rest.conversations)}
    assert listed == {each.conversation_id for each in made}


async def test_history_is_paged(client: Client) -> None:
    conversation_id = (await client.create_conversation()).conversation_id
    reader = Reader(client)
    for text in ("one", "two"):
        await client.send(conversation_id, text)
        await reader.until(RunEnded)
    newest = await client.history(conversation_id, limit=2)
    older = await client.history(conversation_id, limit=2, before=newest.before)
    texts = [message.text for message in (*older.messages, *newest.messages)]
    assert [text.strip() for text in texts] == ["one", "You said: one", "two", "You said: two"]


# Sends


@pytest.mark.parametrize("kind", ["message.send", "conversation.create"])
async def test_a_request_that_was_cut_is_repeated_and_counts_once(house: House, time: FastTime, kind: str) -> None:
    """G7: the server has it, the answer is lost."""
    assert house.server is not None
    answer, seen = house.server.answer, []

    async def answer_and_cut(session: Any, request: Request) -> Any:
        result = await answer(session, request)
        if request.type == kind:
            seen.append(request)
            if len(seen) == 1:
                session.close(CloseCode.GOING_AWAY)
        return result

    house.server.answer = answer_and_cut  # type: ignore[method-assign]
    async with Client(house.url, SECRET) as client:
        conversation_id = (await client.create_conversation()).conversation_id
        receipt = await client.send(conversation_id, "hello")
        await Reader(client).until(Connected)
        async with asyncio.timeout(5):
            while not house.hermes.handed_over:
                await asyncio.sleep(0)
        page = await client.history(conversation_id)
        listed = await client.conversations()
    assert len(seen) == 2
    if kind == "message.send":
        assert isinstance(seen[0], MessageSend)
        assert seen[0].client_message_id == seen[1].client_message_id
        assert seen[0].id != seen[1].id
        assert receipt.duplicate
    assert len(house.hermes.handed_over) == 1
    assert len([message for message in page.messages if message.role is MessageRole.USER]) == 1
    assert len(listed.conversations) == 1


@pytest.mark.parametrize(
    ("code", "tries"),
    [(ErrorCode.RATE_LIMITED, 6), (ErrorCode.INTERNAL, 2), (ErrorCode.BUSY, 1), (ErrorCode.CONFLICT, 1)],
)
async def test_what_the_server_puts_off_is_sent_again_some_times(
    house: House, time: FastTime, code: ErrorCode, tries: int
) -> None:
    """R-C2, R-M2: under the same id, after the announced time; then its owner is told, and of what is final at once."""
    assert house.server is not None
    answer = house.server.answer
    seen: list[MessageSend] = []

    async def put_off(session: Any, request: Request) -> Any:
        if not isinstance(request, MessageSend):
            return await answer(session, request)
        seen.append(request)
        return error(code, request.id, retry_after_ms=1_500)

    house.server.answer = put_off  # type: ignore[method-assign]
    async with Client(house.url, SECRET) as client:
        conversation_id = (await client.create_conversation()).conversation_id
        time.delays.clear()
        with pytest.raises(RequestFailedError) as caught:
            await client.send(conversation_id, "hello")
    assert caught.value.code is code
    assert len({request.client_message_id for request in seen}) == 1
    assert len({request.id for request in seen}) == len(seen) == tries
    assert time.delays == [1.5] * (tries - 1)


@pytest.mark.parametrize("later", [-60_000, 60_000])
async def test_what_the_server_has_forgotten_is_the_owners_matter(house: House, time: FastTime, later: int) -> None:
    """R-S3: receipts that begin behind the first attempt tell nothing about it."""
    assert house.server is not None
    answer = house.server.answer
    seen = []

    async def forget(session: Any, request: Request) -> Any:
        if isinstance(request, MessageSend) and not seen:
            seen.append(request)
            assert house.server is not None
            house.server._log.started_at = Time(client._server_now() + later)
            session.close(CloseCode.GOING_AWAY)
        return await answer(session, request)

    house.server.answer = forget  # type: ignore[method-assign]
    async with Client(house.url, SECRET) as client:
        conversation_id = (await client.create_conversation()).conversation_id
        if later < 0:
            await client.send(conversation_id, "hello")
        else:
            with pytest.raises(SendInDoubtError):
                await client.send(conversation_id, "hello")
    assert len(seen) == 1


async def test_a_send_waits_for_the_server(house: House, time: FastTime) -> None:
    async with Client(house.url, SECRET) as client:
        conversation_id = (await client.create_conversation()).conversation_id
        reader = Reader(client)
        time.may_go_on = lambda: len(time.delays) < 3
        await house.close()
        await time.paused.wait()
        sending = asyncio.create_task(client.send(conversation_id, "hello"))
        await house.open()
        time.go_on.set()
        receipt = await asyncio.wait_for(sending, 5)
        assert not receipt.duplicate
        await reader.until(RunEnded)
    assert [message.text for message in house.hermes.handed_over] == ["hello"]


async def test_the_same_words_twice_are_two_sends(house: House, client: Client) -> None:
    conversation_id = (await client.create_conversation()).conversation_id
    reader = Reader(client)
    for _ in range(2):
        await client.send(conversation_id, "again")
        await reader.until(RunEnded)
    assert [message.text for message in house.hermes.handed_over] == ["again", "again"]
