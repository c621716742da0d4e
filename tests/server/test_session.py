"""One authenticated connection: handshake, order, limits, closing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pheby_protocol.codec import encode
from pheby_protocol.connection import Connection
from pheby_protocol.errors import CloseCode, ErrorCode
from pheby_protocol.ids import ConnectionId, ConversationId, RunId, Seq, Time
from pheby_protocol.messages._base import Request, Result
from pheby_protocol.messages.connection import AccessMode, Hello, Pong, SyncCompleted
from pheby_protocol.messages.run import RunProgress
from pheby_protocol.states import ConnectionState
from pheby_server.boundary import RequestError
from pheby_server.config import ServerConfig
from pheby_server.outbox import Close
from pheby_server.session import CLOSE_SECONDS, Session
from pheby_server.testing import FakeClock

HELLO = {
    "type": "hello",
    "id": "1",
    "protocol_versions": [1],
    "client": {"name": "test", "version": "1", "device_id": "d"},
}


class Host:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.greeted: list[int] = []
        self.started: list[str] = []
        self.gone_count = 0
        self.gates: dict[str, asyncio.Future[Result]] = {}

    def greet(self, session: Session, hello: Hello, version: int) -> None:
        self.greeted.append(version)
        session.send(Pong(id=hello.id, server_time=Time(0)))
        session.send(SyncCompleted(seq=Seq(0)))

    async def answer(self, session: Session, request: Request) -> Result:
        self.started.append(request.id)
        gate = self.gates.setdefault(request.id, asyncio.get_running_loop().create_future())
        return await gate

    def gone(self, session: Session) -> None:
        self.gone_count += 1

    def let(self, request_id: str) -> None:
        self.gates[request_id].set_result(Pong(id=request_id, server_time=Time(0)))  # type: ignore[arg-type]


class Rig:
    def __init__(self, **settings: Any) -> None:
        self.host = Host()
        self.clock = FakeClock()
        config = ServerConfig(storage="unused", **settings)
        self.session = Session(self.host, config, self.clock, ConnectionId("c"), AccessMode.FULL)

    def send(self, *frames: dict[str, Any]) -> None:
        for frame in frames:
            self.session.receive_text(json.dumps(frame))

    def hello(self, **fields: Any) -> None:
        self.send({**HELLO, **fields})

    def ping(self, *ids: str) -> None:
        self.send(*({"type": "ping", "id": name} for name in ids))

    async def next(self) -> Any:
        async with asyncio.timeout(1):
            frame = await self.session.next_frame()
        return frame if isinstance(frame, Close) else json.loads(frame)

    async def in_step(self) -> None:
        self.hello()
        assert (await self.next())["type"] == "pong"
        assert (await self.next())["type"] == "sync.completed"

    async def started(self, count: int) -> None:
        async with asyncio.timeout(1):
            while len(self.host.started) < count:
                await asyncio.sleep(0)


async def test_hello_is_greeted_with_the_common_version() -> None:
    rig = Rig()
    rig.hello(protocol_versions=[7, 1, 3])
    assert rig.host.greeted == [1]
    assert rig.session.device_id == "d"


async def test_without_a_common_version_the_supported_ones_are_named() -> None:
    rig = Rig()
    rig.hello(protocol_versions=[2, 3])
    error = await rig.next()
    assert (error["id"], error["code"], error["details"]) == ("1", "unsupported_version", {"supported": [1]})
    assert await rig.next() == Close(CloseCode.NO_COMMON_VERSION, "")
    assert rig.host.greeted == []


async def test_no_hello_in_time_closes_with_4408_exactly_then() -> None:
    rig = Rig(hello_deadline_ms=10_000)
    rig.clock.move(9.9)
    assert rig.session.state is ConnectionState.AWAITING_HELLO
    rig.clock.move(0.2)
    assert await rig.next() == Close(CloseCode.HELLO_TIMEOUT, "")
    assert rig.host.gone_count == 1


async def test_after_hello_the_deadline_is_gone() -> None:
    rig = Rig()
    await rig.in_step()
    rig.clock.move(1_000)
    assert rig.session.state is ConnectionState.READY


async def test_undecodable_frames_do_not_move_the_deadline() -> None:
    rig = Rig(hello_deadline_ms=1_000)
    for _ in range(5):
        rig.session.receive_text("{")
        rig.clock.move(0.21)
    frames = [await rig.next() for _ in range(6)]
    assert frames[-1] == Close(CloseCode.HELLO_TIMEOUT, "")


async def test_a_request_before_hello_closes_with_4400() -> None:
    rig = Rig()
    rig.ping("p")
    assert (await rig.next())["code"] == "invalid_message"
    assert await rig.next() == Close(CloseCode.PROTOCOL_ERROR, "")


async def test_a_request_before_the_client_is_in_step_is_not_ready() -> None:
    rig = Rig()
    rig.host.greet = lambda session, hello, version: None  # type: ignore[method-assign]
    rig.hello()
    rig.ping("early")
    error = await rig.next()
    assert (error["id"], error["code"], error["retryable"]) == ("early", "not_ready", True)
    assert rig.host.started == []


async def test_a_second_hello_is_refused_and_the_connection_lives() -> None:
    rig = Rig()
    await rig.in_step()
    rig.hello(id="again")
    assert (await rig.next())["code"] == "invalid_message"
    assert rig.host.greeted == [1]
    assert rig.session.state is ConnectionState.READY


async def test_requests_start_in_arrival_order_and_results_may_overtake() -> None:
    rig = Rig()
    await rig.in_step()
    rig.ping("a", "b", "c")
    await rig.started(3)
    assert rig.host.started == ["a", "b", "c"]
    for name in ("c", "a", "b"):
        rig.host.let(name)
        assert (await rig.next())["id"] == name


async def test_each_request_gets_one_answer_also_when_it_fails() -> None:
    rig = Rig()
    await rig.in_step()
    rig.ping("a", "b", "c")
    await rig.started(3)
    rig.host.gates["a"].set_exception(RequestError(ErrorCode.NOT_FOUND))
    rig.host.gates["b"].set_exception(RuntimeError("a secret path"))
    rig.host.let("c")
    answers = {frame["id"]: frame for frame in [await rig.next() for _ in range(3)]}
    assert answers["a"]["code"] == "not_found"
    assert answers["b"]["code"] == "internal"
    assert "secret" not in json.dumps(answers["b"])
    assert answers["c"]["type"] == "pong"


async def test_an_id_in_use_is_refused_and_free_again_after_the_answer() -> None:
    rig = Rig()
    await rig.in_step()
    rig.ping("a", "a")
    error = await rig.next()
    assert (error.get("id"), error["code"]) == (None, "invalid_message")
    await rig.started(1)
    rig.host.let("a")
    assert (await rig.next())["id"] == "a"
    rig.host.gates.clear()
    rig.ping("a")
    await rig.started(2)
    rig.host.let("a")
    assert (await rig.next())["id"] == "a"


async def test_too_many_open_requests_are_rate_limited_and_later_ones_pass() -> None:
    rig = Rig(max_pending_requests=2)
    await rig.in_step()
    rig.ping("a", "b", "c")
    error = await rig.next()
    assert (error["id"], error["code"], error["retryable"]) == ("c", "rate_limited", True)
    assert error["retry_after_ms"] > 0
    await rig.started(2)
    rig.host.let("a")
    assert (await rig.next())["id"] == "a"
    rig.ping("d")
    await rig.started(3)
    assert rig.host.started == ["a", "b", "d"]


async def test_an_unknown_type_is_answered_under_its_id() -> None:
    rig = Rig()
    await rig.in_step()
    rig.send({"type": "future.thing", "id": "f", "anything": [1]})
    error = await rig.next()
    assert (error["id"], error["code"]) == ("f", "unknown_type")


async def test_ten_undecodable_frames_in_a_row_close_with_4400() -> None:
    rig = Rig()
    await rig.in_step()
    for _ in range(9):
        rig.session.receive_text("nonsense")
    rig.ping("fine")
    for _ in range(10):
        assert rig.session.state is ConnectionState.READY
        rig.session.receive_text('{"no":"type"}')
    frames = [await rig.next() for _ in range(20)]
    assert {frame["code"] for frame in frames[:-1]} == {"invalid_message"}
    assert frames[-1] == Close(CloseCode.PROTOCOL_ERROR, "")


async def test_a_frame_too_large_closes_with_1009() -> None:
    rig = Rig(max_text_chars=1_000, max_frame_bytes=16_384)
    await rig.in_step()
    rig.session.receive_text("x" * 16_385)
    assert await rig.next() == Close(CloseCode.TOO_BIG, "")


async def test_the_size_counts_in_bytes_and_the_limit_itself_is_allowed() -> None:
    rig = Rig(max_text_chars=1_000, max_frame_bytes=16_384)
    await rig.in_step()
    frame = json.dumps({"type": "ping", "id": "a", "filler": ""}, ensure_ascii=False)
    fitting = frame[:-2] + "é" * ((16_384 - len(frame)) // 2) + frame[-2:]
    rig.session.receive_text(fitting)
    await rig.started(1)
    rig.session.receive_text(fitting[:-2] + "éé" + fitting[-2:])
    assert await rig.next() == Close(CloseCode.TOO_BIG, "")


async def test_a_binary_frame_closes_with_1003() -> None:
    rig = Rig()
    await rig.in_step()
    rig.session.receive_binary()
    assert await rig.next() == Close(CloseCode.UNSUPPORTED_DATA, "")


async def test_frames_after_the_close_are_ignored() -> None:
    rig = Rig()
    await rig.in_step()
    rig.session.close(CloseCode.REPLACED)
    rig.ping("late")
    rig.session.receive_text("{")
    rig.session.receive_binary()
    assert await rig.next() == Close(CloseCode.REPLACED, "")
    assert rig.host.started == []


async def test_the_answer_of_a_lost_client_is_dropped_without_harm() -> None:
    rig = Rig()
    await rig.in_step()
    rig.ping("a")
    await rig.started(1)
    rig.session.lost()
    rig.host.let("a")
    await asyncio.sleep(0)
    assert isinstance(await rig.next(), Close)
    assert rig.session.state is ConnectionState.CLOSED
    rig.session.close(CloseCode.GOING_AWAY)
    rig.session.lost()


async def test_a_client_too_far_behind_is_closed_with_4413_and_what_waited_is_freed() -> None:
    rig = Rig(outbox_frames=64)
    await rig.in_step()
    event = RunProgress(conversation_id=ConversationId("conv_1"), run_id=RunId("run_1"), text="x")
    for _ in range(64):
        rig.session.send_live(event, encode(event))
    assert rig.session.state is ConnectionState.READY
    rig.session.send_live(event, encode(event))
    assert await rig.next() == Close(CloseCode.TOO_SLOW, "")
    assert rig.host.gone_count == 1


async def test_an_answer_that_fits_no_frame_is_one_internal_error() -> None:
    rig = Rig()
    await rig.in_step()
    rig.ping("a")
    await rig.started(1)
    rig.host.gates["a"].set_result(Pong(id="\ud800", server_time=Time(0)))  # type: ignore[arg-type]
    error = await rig.next()
    assert (error["id"], error["code"]) == ("a", "internal")
    rig.ping("a")
    await rig.started(2)


async def test_a_close_reason_fits_a_control_frame_whatever_it_is() -> None:
    rig = Rig()
    rig.session.close(CloseCode.GOING_AWAY, "😀" * 200)
    close = await rig.next()
    assert 0 < len(close.reason.encode()) <= 123


@pytest.mark.parametrize("resume", [5, "x", {}, {"epoch": 5, "seq": "x"}, {"epoch": "e", "seq": -1}, {"seq": 1}])
async def test_a_malformed_cursor_costs_a_snapshot_not_the_connection(resume: object) -> None:
    rig = Rig()
    rig.hello(resume=resume)
    assert rig.host.greeted == [1]


# Too much


async def errors(rig: Rig, count: int) -> list[Any]:
    return [(await rig.next())["code"] for _ in range(count)]


async def test_too_many_requests_are_refused_with_their_time_then_the_flood_is_closed_with_4429() -> None:
    """R-M2: what is refused costs nothing but an error; who goes on is out, with what waits for it."""
    rig = Rig(request_burst=20, max_requests_per_second=10)
    await rig.in_step()
    rig.ping(*(f"served {number}" for number in range(19)))
    await rig.started(19)
    rig.ping("refused")
    refused = await rig.next()
    assert (refused["id"], refused["code"], refused["retryable"]) == ("refused", "rate_limited", True)
    assert 0 < refused["retry_after_ms"] <= 200
    for number in range(20):
        assert rig.session.state is ConnectionState.READY
        rig.ping(f"refused {number}")
    assert await rig.next() == Close(CloseCode.TOO_MANY_REQUESTS, "")
    assert len(rig.host.started) == 19
    assert rig.host.gone_count == 1


async def test_who_waits_as_told_is_served_again() -> None:
    rig = Rig(request_burst=5, max_requests_per_second=10)
    await rig.in_step()
    rig.ping(*(f"{number}" for number in range(5)))
    await rig.started(4)
    refused = await rig.next()
    assert refused["code"] == "rate_limited"
    rig.clock.move(refused["retry_after_ms"] / 1_000)
    rig.ping("again")
    await rig.started(5)


async def test_malformed_frames_and_pings_count_too() -> None:
    """R-M2: alternating right and wrong frames are no way around the bound."""
    rig = Rig(request_burst=10, max_requests_per_second=1)
    await rig.in_step()
    for _ in range(5):
        assert rig.session.receive_ping()
        rig.session.receive_text("nonsense")
    assert not rig.session.receive_ping()
    for _ in range(9):
        rig.session.receive_ping()
    while not isinstance(frame := await rig.next(), Close):
        assert frame["code"] == "invalid_message"
    assert frame == Close(CloseCode.TOO_MANY_REQUESTS, "")
    assert not rig.session.receive_ping()


@pytest.mark.parametrize("days", [-1, 1])
async def test_a_clock_that_is_set_makes_nobody_late_or_fast(days: int) -> None:
    """R-M4: deadlines and rates go by the time that has passed."""
    rig = Rig(request_burst=2, max_requests_per_second=1, hello_deadline_ms=10_000)
    rig.clock.jump(days * 86_400_000)
    rig.clock.move(9.9)
    assert rig.session.state is ConnectionState.AWAITING_HELLO
    await rig.in_step()
    rig.ping("a")
    rig.clock.jump(days * 86_400_000)
    rig.ping("b")
    await rig.started(1)
    assert await errors(rig, 1) == ["rate_limited"]


async def test_who_asks_and_never_reads_is_told_to_wait_and_its_answers_stay_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-M2: the answer that does not fit is an error with its id; whatever was asked may be asked again."""
    rig = Rig(outbox_bytes=2_097_152)
    await rig.in_step()
    monkeypatch.setattr(Connection, "send", lambda _, answer: encode(answer) + " " * 500_000)
    for number in range(4):
        rig.ping(f"{number}")
    await rig.started(4)
    for number in range(4):
        rig.host.let(f"{number}")
    answers = [await rig.next() for _ in range(4)]
    assert [answer["type"] for answer in answers] == ["pong", "pong", "error", "error"]
    assert [answer["id"] for answer in answers] == ["0", "1", "2", "3"]
    assert {answer["code"] for answer in answers[2:]} == {"rate_limited"}


async def test_who_does_not_even_read_the_errors_is_closed_with_4413() -> None:
    rig = Rig(outbox_frames=64, request_burst=1_000)
    await rig.in_step()
    rig.ping("open")
    await rig.started(1)
    for _ in range(64):
        assert rig.session.state is ConnectionState.READY
        rig.ping("open")
    assert rig.session.queued_bytes > 0
    rig.ping("open")
    assert await rig.next() == Close(CloseCode.TOO_SLOW, "")
    assert rig.session.queued_bytes == 0


@pytest.mark.parametrize("discard", [True, False])
async def test_who_does_not_take_its_close_is_cut_off(*, discard: bool) -> None:
    """R-M2, L1: also one that goes on sending, which no heartbeat would notice."""
    rig = Rig()
    cuts: list[float] = []
    rig.session.abort = lambda: cuts.append(rig.clock.monotonic())
    await rig.in_step()
    rig.session.close(CloseCode.REPLACED, discard=discard)
    rig.clock.move(CLOSE_SECONDS - 0.1)
    assert cuts == []
    rig.clock.move(0.2)
    assert cuts == [CLOSE_SECONDS]


async def test_who_takes_its_close_is_not_cut_off() -> None:
    rig = Rig()
    cuts: list[float] = []
    rig.session.abort = lambda: cuts.append(rig.clock.monotonic())
    rig.session.close(CloseCode.REPLACED)
    rig.session.lost()
    rig.clock.move(1_000)
    assert cuts == []
