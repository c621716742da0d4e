"""Whatever comes over the line, a connection raises ProtocolError at most, and stays within its table."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pheby_protocol.codec import UnknownMessage, decode, encode
from pheby_protocol.connection import Connection, ProtocolError, Role, SendError, error
from pheby_protocol.errors import CloseCode, ErrorCode
from pheby_protocol.limits import MAX_UNDECODABLE_FRAMES
from pheby_protocol.messages._base import Message, Request
from pheby_protocol.messages.connection import Error
from pheby_protocol.registry import REGISTRY, Kind
from pheby_protocol.states import ConnectionState

from ..protocol.examples import MAXIMAL, MINIMAL, TYPES, changed, frame_of, places, text_of

# A slow machine is no flaw.
unhurried = settings(deadline=None, max_examples=200)
IDS = ("1", "2", "3")
ENDED = (ConnectionState.CLOSING, ConnectionState.CLOSED)
REQUESTS = [tag for tag, spec in REGISTRY.items() if spec.kind is Kind.REQUEST and tag != "hello"]


def with_id(frame: dict[str, Any], request_id: str) -> dict[str, Any]:
    return frame | {"id": request_id} if "id" in frame else frame


good_frames = st.builds(
    with_id,
    st.sampled_from([frame_of(examples[tag]) for examples in (MINIMAL, MAXIMAL) for tag in TYPES]),
    st.sampled_from(IDS),
)
small_json = st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3) | st.just([]) | st.just({})


@st.composite
def spoilt_frames(draw: st.DrawFn) -> dict[str, Any]:
    frame = draw(good_frames)
    spots = list(places(REGISTRY[frame["type"]].cls, frame))
    return changed(frame, draw(st.sampled_from(spots)).path, draw(small_json)) if spots else frame  # type: ignore[no-any-return]


def strange_frame(tag: str, request_id: object, resume: object) -> dict[str, object]:
    return {"type": tag, "id": request_id, "resume": resume, "resumed": resume}


frames = st.one_of(
    good_frames.map(text_of),
    spoilt_frames().map(json.dumps),
    st.builds(strange_frame, st.sampled_from(["future", *TYPES]), st.sampled_from(IDS) | small_json, small_json).map(
        json.dumps
    ),
    st.text(max_size=10),
    st.just('{"type":"ping","id":"\\ud800"}'),
    st.just("[" * 10_000),
)


def received(connection: Connection, text: str) -> Message | UnknownMessage | ProtocolError:
    """Anything but these three is an exception that may not be."""
    try:
        return connection.receive_text(text)
    except ProtocolError as failure:
        return failure


@unhurried
@given(st.sampled_from(Role), st.lists(frames, max_size=30))
def test_any_frames_in_any_order(role: Role, texts: list[str]) -> None:
    connection = Connection(role)
    for text in texts:
        before, was_open = connection.state, connection.open_requests
        found = received(connection, text)
        assert isinstance(connection.state, ConnectionState)
        assert before not in ENDED or connection.state in ENDED
        if isinstance(found, ProtocolError):
            assert (found.reply is not None) == (role is Role.SERVER and before not in ENDED)
            assert found.reply is None or len(encode(found.reply)) < 1_000
            assert found.close is None or connection.state in ENDED
            assert connection.open_requests <= was_open


class ServerSide(RuleBasedStateMachine):
    """A server's side under a hostile client, against a model that is a few lines long."""

    @initialize()
    def start(self) -> None:
        self.server = Connection(Role.SERVER)
        self.open: dict[str, str] = {}
        self.strikes = 0
        self.state = ConnectionState.AWAITING_HELLO

    def alive(self) -> bool:
        return self.state not in ENDED

    @rule(request_id=st.sampled_from(IDS))
    def hello(self, request_id: str) -> None:
        found = received(self.server, text_of(frame_of(MAXIMAL["hello"]) | {"id": request_id}))
        if not self.alive():
            return
        self.strikes = 0
        if self.state is ConnectionState.AWAITING_HELLO:
            assert not isinstance(found, ProtocolError)
            self.state = ConnectionState.SYNCING
            self.open[request_id] = "hello"
        else:
            assert isinstance(found, ProtocolError)
            assert found.close is None
            assert found.reply is not None
            assert found.reply.id == (None if request_id in self.open else request_id)

    @rule(tag=st.sampled_from(REQUESTS), request_id=st.sampled_from(IDS))
    def request(self, tag: str, request_id: str) -> None:
        if not self.alive():
            return
        found = received(self.server, text_of(frame_of(MAXIMAL[tag]) | {"id": request_id}))
        self.strikes = 0
        if self.state is ConnectionState.AWAITING_HELLO:
            assert isinstance(found, ProtocolError)
            assert found.close is CloseCode.PROTOCOL_ERROR
            self.state = ConnectionState.CLOSING
        elif request_id in self.open:
            assert isinstance(found, ProtocolError)
            assert found.reply == error(
                ErrorCode.INVALID_MESSAGE, message="Another open request of this connection has that id."
            )
        elif self.state is ConnectionState.SYNCING:
            assert isinstance(found, ProtocolError)
            assert found.reply == error(ErrorCode.NOT_READY, request_id)  # type: ignore[arg-type]
        else:
            assert isinstance(found, Request)
            self.open[request_id] = tag

    @rule(text=st.sampled_from(["", "{}", '{"type":"ping","id":5}', '{"type":"ping","id":"1","x":NaN}']))
    def undecodable(self, text: str) -> None:
        if not self.alive():
            return
        found = received(self.server, text)
        assert isinstance(found, ProtocolError)
        self.strikes += 1
        if self.strikes == MAX_UNDECODABLE_FRAMES:
            assert found.close is CloseCode.PROTOCOL_ERROR
            self.state = ConnectionState.CLOSING
        else:
            assert found.close is None

    @rule(request_id=st.sampled_from(IDS))
    def unknown(self, request_id: str) -> None:
        if not self.alive():
            return
        found = received(self.server, f'{{"type":"future","id":"{request_id}"}}')
        assert isinstance(found, ProtocolError)
        assert found.reply is not None
        self.strikes = 0
        if self.state is ConnectionState.AWAITING_HELLO:
            assert found.close is CloseCode.PROTOCOL_ERROR
            self.state = ConnectionState.CLOSING
        else:
            assert found.reply.code is ErrorCode.UNKNOWN_TYPE
            assert found.reply.id == (None if request_id in self.open else request_id)

    @rule(request_id=st.sampled_from(IDS), well=st.booleans())
    def answer(self, request_id: str, well: bool) -> None:
        tag = self.open.get(request_id)
        if tag is None:
            return
        result = frame_of(MINIMAL[REGISTRY[tag].result or ""]) | {"id": request_id}
        answer: Any = decode(text_of(result)) if well else error(ErrorCode.INTERNAL, request_id)  # type: ignore[arg-type]
        if self.alive():
            assert decode(self.server.send(answer)) == answer
            del self.open[request_id]
        else:
            self.refused(answer)

    @rule()
    def sync(self) -> None:
        if self.state is ConnectionState.SYNCING:
            self.server.send(MINIMAL["sync.completed"])
            self.state = ConnectionState.READY

    @rule()
    def close(self) -> None:
        self.server.close()
        if self.state is not ConnectionState.CLOSED:
            self.state = ConnectionState.CLOSING

    @rule()
    def lost(self) -> None:
        self.server.lost()
        self.state = ConnectionState.CLOSED

    def refused(self, message: Message) -> None:
        try:
            self.server.send(message)
        except SendError:
            return
        raise AssertionError("sent after the end")

    @invariant()
    def agrees(self) -> None:
        assert self.server.state is self.state
        if self.alive():
            assert self.server.open_requests == len(self.open)


ServerSide.TestCase.settings = settings(unhurried, stateful_step_count=30)
TestServerSide = ServerSide.TestCase


@unhurried
@given(
    st.lists(st.tuples(st.sampled_from(REQUESTS), st.sampled_from(IDS), st.booleans(), st.integers(0, 5)), max_size=20)
)
def test_two_sides_agree_on_what_is_open(steps: list[tuple[str, str, bool, int]]) -> None:
    """Whatever is asked, and answered in whatever order: each request gets one answer, its own."""
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    server.receive_text(client.send(MINIMAL["hello"]))
    client.receive_text(server.send(MINIMAL["welcome"]))
    client.receive_text(server.send(MINIMAL["sync.completed"]))
    waiting: dict[str, str] = {}
    for tag, request_id, well, turn in steps:
        asked: Any = decode(text_of(frame_of(MAXIMAL[tag]) | {"id": request_id}))
        if request_id in waiting:
            try:
                client.send(asked)
            except SendError:
                pass
            else:
                raise AssertionError("two open requests with one id")
        else:
            assert server.receive_text(client.send(asked)) == asked
            waiting[request_id] = tag
        if turn < len(waiting):
            answered = list(waiting)[turn]
            result = frame_of(MAXIMAL[REGISTRY[waiting.pop(answered)].result or ""]) | {"id": answered}
            answer: Any = decode(text_of(result)) if well else error(ErrorCode.INTERNAL, answered)  # type: ignore[arg-type]
            assert client.receive_text(server.send(answer)) == answer
        assert client.open_requests == server.open_requests == len(waiting)


@unhurried
@given(st.lists(frames, max_size=20))
def test_a_reply_can_always_be_read_by_a_client(texts: list[str]) -> None:
    server = Connection(Role.SERVER)
    failures = [found for text in texts if isinstance(found := received(server, text), ProtocolError)]
    ended = next((number for number, failure in enumerate(failures) if failure.close is not None), len(failures))
    assert all(failure.reply is None for failure in failures[ended + 1 :])
    for failure in failures[: ended + 1]:
        assert isinstance(failure.reply, Error)
        assert decode(encode(failure.reply)) == failure.reply


@unhurried
@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_only_ten_bad_frames_in_a_row_close(kinds: list[bool]) -> None:
    server = Connection(Role.SERVER)
    server.receive_text(encode(MINIMAL["hello"]))
    server.send(MINIMAL["sync.completed"])
    row = 0
    for good in kinds:
        row = 0 if good else row + 1
        found = received(server, '{"type":"future","id":"f"}' if good else "x")
        assert isinstance(found, ProtocolError)
        assert (found.close is not None) == (row == MAX_UNDECODABLE_FRAMES)
        if found.close is not None:
            return
