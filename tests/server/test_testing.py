"""The public tools for tests do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from pheby_protocol.errors import CloseCode
from pheby_protocol.ids import ConversationId, MessageId, RunId
from pheby_protocol.messages.message import MessageRole
from pheby_server.ports import HandOver, HermesMessage, LiveMessage
from pheby_server.testing import (
    CountedIds,
    FakeClock,
    ManualHermes,
    MemoryTransport,
    client_and_server,
    running_server,
)


def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(1_000)
    assert (clock.now_ms(), clock.monotonic()) == (1_000, 0.0)
    clock.move(2.3)
    assert (clock.now_ms(), clock.monotonic()) == (3_300, 2.3)


def test_timers_fire_in_order_at_their_time_and_not_before() -> None:
    clock = FakeClock(0)
    fired: list[tuple[str, int]] = []
    for name, delay in (("late", 2.0), ("early", 1.0), ("early too", 1.0), ("never", 5.0)):
        clock.call_later(delay, lambda name=name: fired.append((name, clock.now_ms())))
    clock.move(0.999)
    assert fired == []
    clock.move(2.0)
    assert fired == [("early", 1_000), ("early too", 1_000), ("late", 2_000)]
    assert clock.now_ms() == 2_999


def test_a_timer_may_set_another_within_the_same_move() -> None:
    clock = FakeClock(0)
    fired: list[float] = []

    def again() -> None:
        fired.append(clock.monotonic())
        if len(fired) < 3:
            clock.call_later(1.0, again)

    clock.call_later(1.0, again)
    clock.move(10.0)
    assert fired == [1.0, 2.0, 3.0]


def test_a_cancelled_timer_never_fires() -> None:
    clock = FakeClock()
    clock.call_later(1.0, lambda: pytest.fail("fired")).cancel()
    clock.move(2.0)


def test_the_wall_clock_jumps_without_the_other() -> None:
    clock = FakeClock(10_000)
    clock.call_later(1.0, lambda: pytest.fail("fired"))
    clock.jump(-5_000)
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 0.0)


def test_counted_ids_are_the_same_in_every_run() -> None:
    first, second = CountedIds(), CountedIds()
    assert [first.token() for _ in range(3)] == [second.token() for _ in range(3)]
    assert len({first.token(), first.conversation_number(), first.token()}) == 3
    assert 16 <= len(first.conversation_number()) <= 18


async def test_a_client_and_a_server_in_step(tmp_path: Path) -> None:
    async with client_and_server(str(tmp_path)) as (client, server, hermes):
        assert [frame["type"] for frame in client.seen] == ["welcome", "snapshot", "sync.completed"]
        assert (await client.request("ping"))["type"] == "pong"
        assert server.session_count == 1
        assert hermes.handed_over == []


async def test_a_close_is_a_connection_error_with_its_code(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = MemoryTransport(server)
        client.send_text("[]")
        assert (await client.receive())["code"] == "invalid_message"
        client.send({"type": "ping", "id": "1"})
        assert (await client.receive())["code"] == "invalid_message"
        with pytest.raises(ConnectionError):
            await client.receive()
        assert client.closed is CloseCode.PROTOCOL_ERROR
        assert server.session_count == 0


async def test_a_cut_line_leaves_no_session(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = MemoryTransport(server)
        await client.hello()
        client.cut()
        assert server.session_count == 0


async def test_the_manual_hermes_keeps_what_it_is_given() -> None:
    hermes = ManualHermes()
    message = HandOver(
        conversation_id=ConversationId("conv_1"), message_id=MessageId("msg_1"), run_id=RunId("run_1"), text="x"
    )
    await hermes.ready(message.conversation_id)
    await hermes.hand_over(message)
    assert await hermes.handed_over.get() is message
    assert await hermes.history(message.conversation_id) == []
    assert await hermes.conversation(message.conversation_id) is None


async def test_the_manual_hermes_binds_equal_texts_once_each() -> None:
    hermes = ManualHermes()
    name = ConversationId("conv_1")
    hermes.rows[name] = [
        HermesMessage(key=key, role=MessageRole.USER, text="same", created_at=1) for key in ("bound", "a", "b")
    ]
    live = [LiveMessage(message_id=MessageId(f"msg_{n}"), role=MessageRole.USER, text="same") for n in range(3)]
    found = await hermes.bind(name, live, {"bound"})
    assert [(pair.message_id, pair.key) for pair in found] == [("msg_0", "a"), ("msg_1", "b")]
