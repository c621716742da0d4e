"""Both sides of a connection, without I/O."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pheby_protocol.codec import UnknownMessage, decode, encode
from pheby_protocol.connection import Connection, ProtocolError, Role, SendError, error
from pheby_protocol.errors import ERRORS, CloseCode, ErrorCode
from pheby_protocol.limits import MAX_FRAME_BYTES, MAX_SERVER_FRAME_BYTES, MAX_UNDECODABLE_FRAMES
from pheby_protocol.messages._base import Message
from pheby_protocol.messages.connection import Error, Hello, Ping, Pong, ServerDraining, SyncCompleted, Welcome
from pheby_protocol.registry import REGISTRY, Direction, Kind
from pheby_protocol.states import ConnectionState

from .examples import MAXIMAL, MINIMAL, frame_of, text_of

HELLO = frame_of(MINIMAL["hello"]) | {"id": "h"}
PING = '{"type":"ping","id":"c7"}'
BAD = '{"type":"ping","id":7}'
FROM_CLIENT = [tag for tag, spec in REGISTRY.items() if spec.direction is Direction.CLIENT_TO_SERVER]
FROM_SERVER = [tag for tag, spec in REGISTRY.items() if spec.direction is Direction.SERVER_TO_CLIENT]
ENDED = (ConnectionState.CLOSING, ConnectionState.CLOSED)


def welcome(request_id: str = "h") -> Welcome:
    found = decode(text_of(frame_of(MINIMAL["welcome"]) | {"id": request_id}))
    assert isinstance(found, Welcome)
    return found


def pong(request_id: str) -> Pong:
    return Pong(id=request_id, server_time=1)  # type: ignore[arg-type]


def ping(request_id: str) -> Ping:
    return Ping(id=request_id)  # type: ignore[arg-type]


def in_step(seq: int = 1) -> SyncCompleted:
    return SyncCompleted(seq=seq)  # type: ignore[arg-type]


def a_server(state: ConnectionState = ConnectionState.READY, **options: Any) -> Connection:
    """A server's side that came to this state as it comes to it in life."""
    server = Connection(Role.SERVER, **options)
    if state is ConnectionState.AWAITING_HELLO:
        return server
    server.receive_text(text_of(HELLO))
    server.send(welcome())
    if state is not ConnectionState.SYNCING:
        server.send(in_step())
    assert server.state is state
    return server


def a_client(state: ConnectionState = ConnectionState.READY) -> Connection:
    client = Connection(Role.CLIENT)
    if state is ConnectionState.AWAITING_HELLO:
        return client
    hello = decode(text_of(HELLO))
    assert isinstance(hello, Hello)
    client.send(hello)
    client.receive_text(encode(welcome()))
    if state is not ConnectionState.SYNCING:
        client.receive_text(encode(in_step()))
    assert client.state is state
    return client


def refusal(connection: Connection, text: str) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        connection.receive_text(text)
    return caught.value


def reply_of(failure: ProtocolError) -> tuple[str, str | None]:
    assert failure.reply is not None
    return failure.reply.code.value, failure.reply.id


# -- server: hello first


def test_hello_opens_the_way_to_ready() -> None:
    server = a_server(ConnectionState.AWAITING_HELLO)
    hello = server.receive_text(text_of(HELLO))
    assert isinstance(hello, Hello)
    assert server.state is ConnectionState.SYNCING
    assert json.loads(server.send(welcome()))["type"] == "welcome"
    server.send(in_step())
    assert server.state is ConnectionState.READY
    assert server.open_requests == 0


@pytest.mark.parametrize("tag", [tag for tag in REGISTRY if tag != "hello"])
def test_anything_else_first_is_closed_with_4400(tag: str) -> None:
    server = a_server(ConnectionState.AWAITING_HELLO)
    failure = refusal(server, encode(MINIMAL[tag]))
    assert failure.close is CloseCode.PROTOCOL_ERROR
    assert reply_of(failure)[0] == "invalid_message"
    assert server.state is ConnectionState.CLOSING


def test_an_unknown_type_first_is_closed_with_4400() -> None:
    failure = refusal(a_server(ConnectionState.AWAITING_HELLO), '{"type":"future","id":"1"}')
    assert failure.close is CloseCode.PROTOCOL_ERROR


def test_a_request_first_is_told_by_its_id() -> None:
    assert reply_of(refusal(a_server(ConnectionState.AWAITING_HELLO), PING)) == ("invalid_message", "c7")


def test_an_undecodable_frame_first_leaves_time_for_a_better_one() -> None:
    server = a_server(ConnectionState.AWAITING_HELLO)
    failure = refusal(server, text_of(HELLO | {"client": 5}))
    assert (reply_of(failure), failure.close) == (("invalid_message", "h"), None)
    assert isinstance(server.receive_text(text_of(HELLO)), Hello)


@pytest.mark.parametrize("state", [ConnectionState.SYNCING, ConnectionState.READY])
def test_hello_again_is_refused_and_the_socket_lives(state: ConnectionState) -> None:
    server = a_server(state)
    failure = refusal(server, text_of(HELLO | {"id": "h2"}))
    assert (reply_of(failure), failure.close) == (("invalid_message", "h2"), None)
    assert server.state is state


# -- server: the cursor in hello


@pytest.mark.parametrize(
    "cursor",
    [
        5,
        "x",
        [],
        {},
        True,
        {"epoch": 5, "seq": 1},
        {"epoch": "e"},
        {"seq": 1},
        {"epoch": "e", "seq": "1"},
        {"epoch": "e", "seq": 1.5},
        {"epoch": "e", "seq": True},
        {"epoch": None, "seq": None},
    ],
    ids=str,
)
def test_a_malformed_cursor_costs_a_snapshot_and_not_the_connection(cursor: object) -> None:
    server = a_server(ConnectionState.AWAITING_HELLO)
    hello = server.receive_text(text_of(HELLO | {"resume": cursor}))
    assert isinstance(hello, Hello)
    assert hello.resume is None
    assert server.state is ConnectionState.SYNCING


@pytest.mark.parametrize(
    "cursor", [{"epoch": "", "seq": 0}, {"epoch": "e e", "seq": -1}, {"epoch": "x" * 999, "seq": 9}]
)
def test_a_cursor_that_fits_nothing_is_for_the_log_to_judge(cursor: dict[str, Any]) -> None:
    hello = a_server(ConnectionState.AWAITING_HELLO).receive_text(text_of(HELLO | {"resume": cursor}))
    assert isinstance(hello, Hello)
    assert frame_of(hello.resume) == cursor


def test_a_malformed_cursor_excuses_nothing_else() -> None:
    server = a_server(ConnectionState.AWAITING_HELLO)
    failure = refusal(server, text_of(HELLO | {"resume": 5, "capabilities": 5}))
    assert "$.capabilities" in str(failure)


@pytest.mark.parametrize("resumed", [{}, {"resumed": "yes"}, {"resumed": 1}, {"resumed": None}], ids=str)
@pytest.mark.parametrize("role", Role)
def test_a_field_whose_name_begins_like_the_cursor_s_is_no_cursor(role: Role, resumed: dict[str, Any]) -> None:
    frame = frame_of(MINIMAL["welcome"])
    del frame["resumed"]
    assert "$.resumed" in str(refusal(Connection(role), text_of(frame | resumed)))


# -- server: undecodable frames


def test_ten_undecodable_frames_in_a_row_are_closed_with_4400() -> None:
    server = a_server()
    for _ in range(MAX_UNDECODABLE_FRAMES - 1):
        failure = refusal(server, BAD)
        assert (reply_of(failure), failure.close) == (("invalid_message", None), None)
        assert server.state is ConnectionState.READY
    failure = refusal(server, "no json")
    assert (reply_of(failure), failure.close) == (("invalid_message", None), CloseCode.PROTOCOL_ERROR)
    assert server.state is ConnectionState.CLOSING


def test_ten_undecodable_frames_close_before_hello_too() -> None:
    server = a_server(ConnectionState.AWAITING_HELLO)
    closes = [refusal(server, BAD).close for _ in range(MAX_UNDECODABLE_FRAMES)]
    assert closes == [None] * 9 + [CloseCode.PROTOCOL_ERROR]


@pytest.mark.parametrize("good", [PING, '{"type":"future","id":"1"}', '{"type":"pong","id":"1","server_time":1}'])
def test_a_decodable_frame_forgives_the_others(good: str) -> None:
    """What can be read is no strike, even when it is refused."""
    server = a_server()
    for _ in range(3):
        for _ in range(MAX_UNDECODABLE_FRAMES - 1):
            assert refusal(server, BAD).close is None
        try:
            server.receive_text(good)
            server.send(pong("c7"))
        except ProtocolError as failure:
            assert failure.close is None  # noqa: PT017 - one of three frames is good
    assert server.state is ConnectionState.READY


def test_an_undecodable_request_is_answered_by_its_id() -> None:
    failure = refusal(a_server(), '{"type":"conversation.get","id":"c7"}')
    assert reply_of(failure) == ("invalid_message", "c7")


def test_an_undecodable_frame_with_the_id_of_an_open_request_is_not_its_answer() -> None:
    server = a_server()
    server.receive_text(PING)
    assert reply_of(refusal(server, '{"type":"conversation.get","id":"c7"}')) == ("invalid_message", None)
    assert server.open_requests == 1


def test_a_reply_names_the_field_and_never_the_value() -> None:
    failure = refusal(a_server(), '{"type":"conversation.get","id":"c7","conversation_id":"s3cr3t value"}')
    assert failure.reply is not None
    assert "$.conversation_id" in failure.reply.message
    assert "s3cr3t" not in encode(failure.reply) + str(failure)


# -- server: requests


def test_a_request_before_sync_completed_is_not_ready() -> None:
    server = a_server(ConnectionState.SYNCING)
    failure = refusal(server, PING)
    assert (reply_of(failure), failure.close) == (("not_ready", "c7"), None)
    assert failure.reply is not None
    assert failure.reply.retryable
    assert server.open_requests == 0
    server.send(in_step())
    assert isinstance(server.receive_text(PING), Ping)


@pytest.mark.parametrize("tag", [tag for tag in FROM_CLIENT if tag != "hello"])
def test_every_request_is_taken_when_in_step(tag: str) -> None:
    server = a_server()
    assert server.receive_text(encode(MAXIMAL[tag])) == MAXIMAL[tag]
    assert server.open_requests == 1


@pytest.mark.parametrize("tag", FROM_SERVER)
def test_what_only_a_server_sends_is_refused(tag: str) -> None:
    server = a_server()
    failure = refusal(server, encode(MINIMAL[tag]))
    assert (reply_of(failure), failure.close) == (("invalid_message", None), None)
    assert server.open_requests == 0


def test_an_id_of_an_open_request_is_refused_without_an_answer_to_it() -> None:
    server = a_server()
    server.receive_text(PING)
    failure = refusal(server, '{"type":"conversation.list","id":"c7"}')
    assert (reply_of(failure), failure.close) == (("invalid_message", None), None)
    assert server.open_requests == 1


@pytest.mark.parametrize("answer", [pong("c7"), error(ErrorCode.INTERNAL, "c7")])  # type: ignore[arg-type]
def test_an_answer_closes_its_request(answer: Message) -> None:
    server = a_server()
    server.receive_text(PING)
    server.send(answer)
    assert server.open_requests == 0
    assert isinstance(server.receive_text(PING), Ping)


def test_an_error_about_no_request_closes_none() -> None:
    server = a_server()
    server.receive_text(PING)
    server.send(error(ErrorCode.INTERNAL))
    server.send(error(ErrorCode.INTERNAL, "another"))  # type: ignore[arg-type]
    assert server.open_requests == 1


@pytest.mark.parametrize("state", [ConnectionState.SYNCING, ConnectionState.READY])
def test_an_unknown_type_is_told_with_the_request_s_id(state: ConnectionState) -> None:
    """M9."""
    server = a_server(state)
    failure = refusal(server, '{"type":"future.request","id":"c7","x":1}')
    assert (reply_of(failure), failure.close) == (("unknown_type", "c7"), None)
    assert server.state is state


@pytest.mark.parametrize("request_id", ["null", "7", '""', '"' + "x" * 65 + '"', "[]"])
def test_an_unknown_type_without_a_good_id_is_told_without_one(request_id: str) -> None:
    """M9."""
    failure = refusal(a_server(), f'{{"type":"future.request","id":{request_id}}}')
    assert reply_of(failure) == ("unknown_type", None)


def test_an_unknown_type_with_the_id_of_an_open_request_is_not_its_answer() -> None:
    server = a_server()
    server.receive_text(PING)
    assert reply_of(refusal(server, '{"type":"future","id":"c7"}')) == ("unknown_type", None)


# -- size


def frame_of_bytes(size: int, character: str = "x") -> str:
    """A ping of exactly this many bytes."""
    start, end = '{"type":"ping","id":"c7","fill":"', '"}'
    room = size - len(start + end)
    count, rest = divmod(room, len(character.encode()))
    text = start + character * count + "x" * rest + end
    assert len(text.encode()) == size
    return text


@pytest.mark.parametrize("character", ["x", "ä", "€", "😀"])
@pytest.mark.parametrize("size", [100, 1_000, MAX_FRAME_BYTES])
def test_a_frame_of_exactly_the_limit_passes_and_one_byte_more_is_closed_with_1009(size: int, character: str) -> None:
    server = a_server()
    server.max_receive_bytes = size
    assert isinstance(server.receive_text(frame_of_bytes(size, character)), Ping)
    failure = refusal(server, frame_of_bytes(size + 1, character))
    assert (failure.close, failure.reply) == (CloseCode.TOO_BIG, None)
    assert server.state is ConnectionState.CLOSING


def test_the_limit_counts_bytes_and_not_characters() -> None:
    text = frame_of_bytes(1_000, "😀")
    assert len(text) < 500
    server = a_server()
    server.max_receive_bytes = 999
    assert refusal(server, text).close is CloseCode.TOO_BIG


def test_each_side_has_its_own_limit() -> None:
    assert Connection(Role.SERVER).max_receive_bytes == MAX_FRAME_BYTES
    assert Connection(Role.CLIENT).max_receive_bytes == MAX_SERVER_FRAME_BYTES
    assert Connection(Role.SERVER, 5).max_receive_bytes == 5


def test_a_client_closes_on_a_frame_above_its_limit() -> None:
    client = a_client()
    failure = refusal(client, " " * (MAX_SERVER_FRAME_BYTES + 1))
    assert failure.close is CloseCode.TOO_BIG
    assert client.state is ConnectionState.CLOSING


# -- the end


@pytest.mark.parametrize("make", [a_server, a_client])
@pytest.mark.parametrize("end", ["close", "lost"])
def test_nothing_is_sent_after_the_end(make: Any, end: str) -> None:
    connection = make()
    getattr(connection, end)()
    assert connection.state in ENDED
    for tag in REGISTRY:
        with pytest.raises(SendError):
            connection.send(MINIMAL[tag])


@pytest.mark.parametrize("state", [ConnectionState.AWAITING_HELLO, ConnectionState.SYNCING, ConnectionState.READY])
@pytest.mark.parametrize("make", [a_server, a_client])
def test_ending_twice_is_ending_once(make: Any, state: ConnectionState) -> None:
    connection = make(state)
    connection.close()
    connection.close()
    assert connection.state is ConnectionState.CLOSING
    connection.lost()
    connection.lost()
    connection.close()
    assert connection.state is ConnectionState.CLOSED


def test_a_draining_server_goes_on_answering() -> None:
    server = a_server()
    server.receive_text(PING)
    server.drain()
    server.drain()
    assert server.state is ConnectionState.DRAINING
    server.send(ServerDraining(reconnect_after_ms=5))  # type: ignore[arg-type]
    server.send(pong("c7"))
    assert server.open_requests == 0


@pytest.mark.parametrize("state", [ConnectionState.AWAITING_HELLO, ConnectionState.SYNCING])
def test_a_draining_server_takes_nobody_in(state: ConnectionState) -> None:
    server = a_server(state)
    server.drain()
    assert server.state is ConnectionState.CLOSING
    with pytest.raises(ProtocolError):
        server.receive_text(PING)


# -- frames that were encoded elsewhere


def test_a_frame_encoded_elsewhere_counts_as_sent() -> None:
    server = a_server(ConnectionState.SYNCING)
    server.sent(MINIMAL["message.created"])
    assert server.state is ConnectionState.SYNCING
    server.sent(in_step())
    assert server.state is ConnectionState.READY
    server.receive_text(PING)
    server.sent(pong("c7"))
    assert server.open_requests == 0


# -- client


def test_a_client_says_hello_first() -> None:
    client = a_client(ConnectionState.AWAITING_HELLO)
    for tag in FROM_CLIENT:
        if tag != "hello":
            with pytest.raises(SendError, match="hello"):
                client.send(MINIMAL[tag])
    assert client.open_requests == 0
    assert decode(client.send(MINIMAL["hello"])) == MINIMAL["hello"]


def test_a_client_says_hello_once_even_before_its_answer() -> None:
    client = a_client(ConnectionState.AWAITING_HELLO)
    client.send(decode(text_of(HELLO)))  # type: ignore[arg-type]
    for frame in (HELLO | {"id": "h2"}, {"type": "ping", "id": "c1"}):
        with pytest.raises(SendError, match="hello"):
            client.send(decode(text_of(frame)))  # type: ignore[arg-type]
    assert client.open_requests == 1


@pytest.mark.parametrize("state", [ConnectionState.SYNCING, ConnectionState.READY])
def test_a_client_does_not_say_hello_later(state: ConnectionState) -> None:
    with pytest.raises(SendError, match="hello"):
        a_client(state).send(MINIMAL["hello"])


def test_a_refused_hello_may_be_said_better() -> None:
    client = a_client(ConnectionState.AWAITING_HELLO)
    client.send(decode(text_of(HELLO)))  # type: ignore[arg-type]
    client.receive_text(encode(error(ErrorCode.INVALID_MESSAGE, "h")))  # type: ignore[arg-type]
    client.send(decode(text_of(HELLO)))  # type: ignore[arg-type]
    assert client.state is ConnectionState.AWAITING_HELLO


@pytest.mark.parametrize("tag", FROM_SERVER)
def test_a_client_sends_requests_and_nothing_else(tag: str) -> None:
    with pytest.raises(SendError, match="requests"):
        a_client().send(MINIMAL[tag])


def test_a_client_s_ids_are_unique_among_open_requests() -> None:
    client = a_client()
    client.send(ping("c1"))
    with pytest.raises(SendError, match="id"):
        client.send(ping("c1"))
    client.receive_text(encode(pong("c1")))
    client.send(ping("c1"))


def test_answers_may_overtake_each_other() -> None:
    client = a_client()
    for request_id in ("c1", "c2", "c3"):
        client.send(ping(request_id))
    for request_id in ("c3", "c1", "c2"):
        assert client.receive_text(encode(pong(request_id))) == pong(request_id)
    assert client.open_requests == 0


@pytest.mark.parametrize("tag", [tag for tag in FROM_CLIENT if tag != "hello"])
def test_every_request_takes_its_own_result(tag: str) -> None:
    client = a_client()
    client.send(decode(text_of(frame_of(MAXIMAL[tag]) | {"id": "c1"})))  # type: ignore[arg-type]
    result = REGISTRY[tag].result
    assert result is not None
    found = client.receive_text(text_of(frame_of(MAXIMAL[result]) | {"id": "c1"}))
    assert found.type == result
    assert client.open_requests == 0


@pytest.mark.parametrize("tag", [tag for tag, spec in REGISTRY.items() if spec.kind is Kind.RESULT and tag != "pong"])
def test_a_result_of_another_type_is_refused(tag: str) -> None:
    client = a_client()
    client.send(ping("c1"))
    assert "another type" in str(refusal(client, text_of(frame_of(MINIMAL[tag]) | {"id": "c1"})))


def test_any_request_may_be_answered_by_an_error() -> None:
    client = a_client()
    client.send(ping("c1"))
    assert isinstance(client.receive_text(encode(error(ErrorCode.INTERNAL, "c1"))), Error)  # type: ignore[arg-type]
    assert client.open_requests == 0


@pytest.mark.parametrize("answer", [pong("c9"), error(ErrorCode.INTERNAL, "c9")])  # type: ignore[arg-type]
def test_an_answer_to_nothing_is_refused(answer: Message) -> None:
    client = a_client()
    client.send(ping("c1"))
    assert "to nothing" in str(refusal(client, encode(answer)))
    assert client.open_requests == 1


def test_a_second_answer_is_refused() -> None:
    client = a_client()
    client.send(ping("c1"))
    client.receive_text(encode(pong("c1")))
    refusal(client, encode(pong("c1")))


def test_an_error_without_an_id_answers_nothing() -> None:
    client = a_client()
    client.send(ping("c1"))
    client.receive_text(encode(error(ErrorCode.INVALID_MESSAGE)))
    assert client.open_requests == 1


@pytest.mark.parametrize("tag", FROM_CLIENT)
def test_what_only_a_client_sends_is_refused_by_it(tag: str) -> None:
    assert "not a message for a client" in str(refusal(a_client(), encode(MINIMAL[tag])))


@pytest.mark.parametrize("tag", [tag for tag in FROM_SERVER if REGISTRY[tag].kind.value.endswith("event")])
def test_a_client_takes_every_event(tag: str) -> None:
    assert a_client().receive_text(encode(MAXIMAL[tag])) == MAXIMAL[tag]


def test_a_client_skips_what_it_does_not_know() -> None:
    """M9. The events behind it still come."""
    client = a_client()
    found = client.receive_text('{"type":"future.x","seq":9,"id":"c1"}')
    assert isinstance(found, UnknownMessage)
    assert found.seq == 9
    client.receive_text(encode(MINIMAL["message.created"]))
    assert client.state is ConnectionState.READY


def test_an_undecodable_frame_is_no_strike_against_a_server() -> None:
    client = a_client()
    for _ in range(MAX_UNDECODABLE_FRAMES + 1):
        failure = refusal(client, BAD)
        assert (failure.reply, failure.close) == (None, None)
    assert client.state is ConnectionState.READY


@pytest.mark.parametrize("state", [ConnectionState.AWAITING_HELLO, ConnectionState.READY])
def test_sync_completed_out_of_order_is_refused(state: ConnectionState) -> None:
    client = a_client(state)
    assert "out of order" in str(refusal(client, encode(in_step())))
    assert client.state is state


def test_a_welcome_that_was_not_asked_for_is_refused() -> None:
    for state in (ConnectionState.AWAITING_HELLO, ConnectionState.SYNCING, ConnectionState.READY):
        client = a_client(state)
        assert "to nothing" in str(refusal(client, encode(welcome())))
        assert client.state is state


# -- the error frame


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_takes_its_text_from_the_table(code: ErrorCode) -> None:
    made = error(code, "c7")  # type: ignore[arg-type]
    assert (made.message, made.retryable, made.id) == (ERRORS[code].message, ERRORS[code].retryable, "c7")
    assert decode(encode(made)) == made


@pytest.mark.parametrize(("given", "sent"), [(None, None), (0, 0), (-5, 0), (1_000, 1_000)])
def test_a_delay_is_never_below_zero(given: int | None, sent: int | None) -> None:
    assert error(ErrorCode.RATE_LIMITED, retry_after_ms=given).retry_after_ms == sent


# -- both sides together


def test_two_sides_talk_from_hello_to_the_end() -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    server.receive_text(client.send(MINIMAL["hello"]))
    client.receive_text(server.send(welcome(MINIMAL["hello"].id)))  # type: ignore[attr-defined]
    client.receive_text(server.send(MAXIMAL["snapshot"]))
    client.receive_text(server.send(in_step()))
    assert server.state is client.state is ConnectionState.READY
    for number, tag in enumerate(tag for tag in FROM_CLIENT if tag != "hello"):
        request = decode(text_of(frame_of(MAXIMAL[tag]) | {"id": f"c{number}"}))
        assert server.receive_text(client.send(request)) == request  # type: ignore[arg-type]
    assert server.open_requests == client.open_requests > 10
    for number, tag in enumerate(tag for tag in FROM_CLIENT if tag != "hello"):
        result = decode(text_of(frame_of(MAXIMAL[REGISTRY[tag].result or ""]) | {"id": f"c{number}"}))
        assert client.receive_text(server.send(result)) == result  # type: ignore[arg-type]
    assert server.open_requests == client.open_requests == 0


@pytest.mark.parametrize("number", ["9007199254740993", "-9007199254740992", "1e999", "NaN"])
def test_a_number_that_is_none_is_answered_to_its_request(number: str) -> None:
    server = Connection(Role.SERVER)
    server.state = ConnectionState.READY
    with pytest.raises(ProtocolError) as failure:
        server.receive_text(f'{{"type":"conversation.list","id":"c7","limit":{number}}}')
    assert failure.value.reply is not None
    assert (failure.value.reply.code, failure.value.reply.id) == (ErrorCode.INVALID_MESSAGE, "c7")
