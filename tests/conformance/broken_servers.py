"""Broken servers: each breaks one rule in one place, and says which check must notice.

They are narrow on purpose, so that several can stand in one proxy and every check that fails has one cause.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from proxy import Close, Frame, Http, Link, Peer

PEERS: dict[str, Peer] = {}


def peer(way: str, *caught: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a fault under its function's name."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        assert function.__name__ not in PEERS, function.__name__
        PEERS[function.__name__] = Peer(name=function.__name__, caught=caught, **{way: function}, **more)
        return function

    return register


def changes(kind: str, *caught: str) -> Callable[[Callable[[Frame, Link], object]], object]:
    """Register a fault that changes frames of one type in place."""

    def register(function: Callable[[Frame, Link], object]) -> object:
        def down(frame: Frame, link: Link) -> Iterable[Frame]:
            if frame["type"] == kind:
                function(frame, link)
            yield frame

        PEERS[function.__name__] = Peer(name=function.__name__, caught=caught, down=down)
        return function

    return register


def asks(kind: str, *caught: str) -> Callable[[Callable[[Frame, Link], object]], object]:
    """Register a fault that changes requests of one type in place."""

    def register(function: Callable[[Frame, Link], object]) -> object:
        def up(frame: Frame, link: Link) -> Iterable[Frame]:
            if frame.get("type") == kind:
                function(frame, link)
            yield frame

        PEERS[function.__name__] = Peer(name=function.__name__, caught=caught, up=up)
        return function

    return register


def drops(name: str, kind: str, caught: str, which: Callable[[Frame, Link], object] = lambda *_: True) -> None:
    """Register a fault that leaves out frames of one type."""

    def down(frame: Frame, link: Link) -> Iterable[Frame]:
        if frame["type"] != kind or not which(frame, link):
            yield frame

    PEERS[name] = Peer(name=name, caught=(caught,), down=down)


def answers(name: str, code: str, wrong: str, caught: str, which: Callable[[Frame, Frame], object]) -> None:
    """Register a fault that answers some requests with another code. `which` gets the request and the error."""

    def down(frame: Frame, link: Link) -> Iterable[Frame]:
        is_it = frame["type"] == "error" and frame["code"] == code
        if is_it and which(link.asked.get(frame.get("id", ""), {}), frame):
            frame["code"] = wrong
        yield frame

    PEERS[name] = Peer(name=name, caught=(caught,), down=down)


def error(code: str, request: Frame, *, retryable: bool = False) -> Frame:
    return {"type": "error", "id": request["id"], "code": code, "message": "No.", "retryable": retryable}


# Before the socket


@peer("before", "http/refused.secret-behind-another-scheme")
def any_scheme(http: Http) -> None:
    given = http.headers.get("Authorization", "")
    if given.startswith("Token "):
        http.headers["Authorization"] = f"Bearer {given.partition(' ')[2]}"


@peer("before", "http/secret-in-query.token")
def secret_in_the_address(http: Http) -> None:
    if "token" in http.query and http.path == "/v1/ws":
        http.headers["Authorization"] = f"Bearer {http.query['token']}"


@peer("before", "http/cookie")
def secret_in_a_cookie(http: Http) -> None:
    name, _, value = http.headers.get("Cookie", "").partition("=")
    if name == "secret":
        http.headers["Authorization"] = f"Bearer {value}"


@peer("after", "http/refused.no-secret")
def no_challenge(http: Http) -> None:
    if http.headers.get("Upgrade") and not http.query and not {"Authorization", "Cookie"} & set(http.headers):
        http.answer.pop("WWW-Authenticate", None)


@peer("before", "http/secret-before-upgrade")
def upgrade_before_secret(http: Http) -> None:
    if http.path == "/v1/ws" and "Upgrade" not in http.headers and "Authorization" not in http.headers:
        http.status, http.body = 426, b'{"code":"unauthorized","message":"No."}'


@peer("after", "http/no-upgrade")
def bad_request(http: Http) -> None:
    if http.status == 426:
        http.status = 400


@peer("after", "http/health")
def health_with_secret(http: Http) -> None:
    if http.path == "/healthz" and "Authorization" not in http.headers:
        http.status = 401


@peer("after", "http/unknown-address")
def open_elsewhere(http: Http) -> None:
    if http.path == "/v1/nothing-here" and http.status == 401:
        http.status = 404


@peer("after", "http/body.not-found")
def no_code(http: Http) -> None:
    if http.status == 404 and http.path == "/v1/attachments/att_0":
        http.body = b'{"error":"not found"}'


@peer("before", "http/subprotocol")
def unknown_subprotocol(http: Http) -> None:
    if "Sec-WebSocket-Protocol" in http.headers:
        http.status = 400


class _Wrong:
    """A lock-out that a right secret does not open."""

    count = 0


@peer("before", "http/right-secret-after-wrong-ones")
def locked_out(http: Http) -> None:
    wrong = http.headers.get("Authorization", "").startswith("Bearer wrong-")
    if wrong and http.path == "/v1/ws":
        _Wrong.count += 1
        if _Wrong.count % 25 == 0:
            # It counts but one more, so that it is for that very check.
            _Wrong.count = 0
            http.status = 429


# Handshake


@changes("welcome", "hello/versions.*-and-2", "hello/versions.2-and-1", "hello/versions.many")
def a_version_of_its_own(frame: Frame, link: Link) -> None:
    if 2 in link.hello["protocol_versions"]:
        frame["protocol_version"] = 2


@peer("closed", "hello/no-version-in-common.*")
def another_close_for_versions(code: int, link: Link) -> int:
    return 4400 if code == 4406 else code


@peer("closed", "hello/another-frame-first.*")
def another_close_for_order(code: int, link: Link) -> int:
    return 1000 if code == 4400 and not link.hello else code


@peer("closed", "hello/no-hello")
def another_close_for_silence(code: int, link: Link) -> int:
    return 1000 if code == 4408 else code


@peer("closed", "hello/same-device")
def another_close_for_a_newer_one(code: int, link: Link) -> int:
    return 1000 if code == 4409 else code


def too_ready(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "conversation.list" and link.hello and not link.in_step:
        link.memory["early"] = frame["id"]
        return
    yield frame


def _early(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "sync.completed" and "early" in link.memory:
        early = {"type": "conversation.list.result", "conversations": [], "as_of_seq": frame["seq"]}
        yield early | {"id": link.memory.pop("early")}
    yield frame


PEERS["too_ready"] = Peer(name="too_ready", caught=("hello/not-ready",), up=too_ready, down=_early)


@changes("welcome", "hello/another-device")
def one_connection_id(frame: Frame, link: Link) -> None:
    frame["connection_id"] = "connection"


@peer("up", "hello/tolerance.unknown-capability")
def strict_about_capabilities(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "hello" and "teleport" in (frame.get("capabilities") or ()):
        link.replies.append(error("invalid_message", frame))
    else:
        yield frame


@changes("welcome", "hello/room-for-text")
def no_room(frame: Frame, link: Link) -> None:
    if link.number > 3:
        frame["limits"]["max_frame_bytes"] = 500_000


@changes("welcome", "hello/welcome")
def another_age(frame: Frame, link: Link) -> None:
    if link.number > 3:
        frame["server_time"] = 7


@asks("hello", "hello/refused.version-as-text")
def lenient_hello(frame: Frame, link: Link) -> None:
    if frame["protocol_versions"] == ["1"]:
        frame["protocol_versions"] = [1]


PEERS["no_heartbeat"] = Peer(name="no_heartbeat", caught=("hello/heartbeat",), heartbeat=False)

answers(
    "read_only_renames",
    "forbidden",
    "not_found",
    "hello/read-only.rename",
    lambda asked, _: asked["type"] == "conversation.rename",
)


# Frames


@peer("raw", "frames/refused.duplicate-key*")
def last_key_wins(text: str, link: Link) -> str:
    if (text.endswith('"c2"}') and "}{" not in text) or '"a":2' in text:
        return json.dumps(json.loads(text))
    return text


@peer("raw", "frames/no-conversion.text")
def text_is_a_number(text: str, link: Link) -> str:
    return text.replace('"limit":"7"', '"limit":7')


@peer("raw", "frames/no-conversion.fraction")
def fraction_is_an_integer(text: str, link: Link) -> str:
    return text.replace('"limit":1.0}', '"limit":1}')


@peer("raw", "frames/refused.lone-surrogate")
def surrogates_replaced(text: str, link: Link) -> str:
    return text.replace('"x":"\\ud83d"', '"x":"?"')


@peer("raw", "frames/refused.nul")
def nul_removed(text: str, link: Link) -> str:
    return text.replace('"a\\u0000b"', '"ab"')


@peer("raw", "frames/refused.integer-2-53", "frames/refused.integer-minus-2-53")
def integers_rounded(text: str, link: Link) -> str:
    return text.replace("9007199254740992", "9007199254740991")


@peer("raw", "frames/taken.nesting-of-32")
def shallow(text: str, link: Link) -> str:
    return "[]" if text.count("[") == 31 else text


@peer("raw", "frames/taken.null-field")
def null_is_a_value(text: str, link: Link) -> str:
    return "{}" if '"limit":null' in text else text


@changes("error", "frames/no-object.*")
def invented_id(frame: Frame, link: Link) -> None:
    if re.search("not_json|not_an_object", frame["message"]):
        frame["id"] = "c1"


@changes("error", "frames/no-type.missing")
def id_forgotten(frame: Frame, link: Link) -> None:
    if frame.get("id") == "c1" and link.asked.get("c1") == {"id": "c1"}:
        del frame["id"]


answers(
    "bad_field_as_unknown",
    "invalid_message",
    "unknown_type",
    "frames/bad-field.*",
    lambda asked, _: (
        (asked.get("id") == "c1" and asked.get("type") in ("conversation.get", "message.send", "run.cancel"))
        or asked.get("limit") == -1
    ),
)


@peer("down", "frames/unknown-type")
def unknown_is_fatal(frame: Frame, link: Link) -> Iterable[Frame | Close]:
    yield frame
    if frame["type"] == "error" and frame["code"] == "unknown_type" and "conversation_id" in link.asked[frame["id"]]:
        yield Close(4400)


@changes("pong", "frames/any-id")
def trimmed_id(frame: Frame, link: Link) -> None:
    frame["id"] = frame["id"].strip() or "x"


def _impatient(frame: Frame, link: Link) -> Iterable[Frame | Close]:
    yield frame
    if "fed_up" in link.memory:
        yield Close(4400)


def _bad_ones(text: str, link: Link) -> str:
    link.memory["bad"] = link.memory.get("bad", 0) + 1 if text == "[]" else 0
    if link.memory["bad"] == 8:
        link.memory["fed_up"] = True
    return text


PEERS["impatient"] = Peer(name="impatient", caught=("frames/ten-undecodable",), raw=_bad_ones, down=_impatient)


@peer("down", "frames/many-at-once")
def an_answer_is_lost(frame: Frame, link: Link) -> Iterable[Frame]:
    is_many = len(link.asked) > 40 and any(
        asked.get("type") == "conversation.teleport" for asked in link.asked.values()
    )
    if frame["type"] != "pong" or not is_many or link.memory.setdefault("lost", frame["id"]) != frame["id"]:
        yield frame


@changes("error", "frames/not-for-a-client.event", "frames/not-for-a-client.error")
def events_are_unknown(frame: Frame, link: Link) -> None:
    if (
        frame["code"] == "invalid_message"
        and "not one for a client" in frame["message"]
        and not link.asked.keys() - {"r1"}
    ):
        frame["code"] = "unknown_type"


# What holds for everything


@peer("down", "all/for-clients")
def asks_back(frame: Frame, link: Link) -> Iterable[Frame]:
    yield frame
    if frame["type"] == "sync.completed":
        yield {"type": "ping", "id": "server-1"}


@peer("down", "all/one-answer")
def answers_twice(frame: Frame, link: Link) -> Iterable[Frame]:
    yield frame
    if frame["type"] == "message.receipt.result":
        yield frame


@changes("conversation.updated", "all/no-null")
def nulls(frame: Frame, link: Link) -> None:
    frame["conversation"].setdefault("reasoning_effort", None)


@peer("written", "all/unescaped")
def escapes(text: str, link: Link) -> str:
    return text if text.isascii() else re.sub("é", r"\\u00e9", text)


@changes("welcome", "all/decodable")
def a_field_is_missing(frame: Frame, link: Link) -> None:
    del frame["schema_digest"]


@changes("welcome", "all/frame-size")
def small_frames(frame: Frame, link: Link) -> None:
    frame["limits"]["max_server_frame_bytes"] = 1_000


@changes("error", "all/error-codes")
def repeatable(frame: Frame, link: Link) -> None:
    if frame["code"] == "not_found":
        frame["retryable"] = True


@changes("error", "all/error-texts")
def talks_of_itself(frame: Frame, link: Link) -> None:
    if frame["code"] == "already_resolved":
        frame["message"] = "FileNotFoundError: /srv/pheby/store.db"


@peer("down", "all/seq")
def twice(frame: Frame, link: Link) -> Iterable[Frame]:
    yield frame
    if frame["type"] == "tool.started" and frame["tool_call"]["name"] == "delegate_task":
        yield frame


@changes("conversation.updated", "all/history-id")
def another_past_in_secret(frame: Frame, link: Link) -> None:
    if "x" * 60 in frame["conversation"]["title"]:
        frame["conversation"]["history_id"] += "x"


@changes("tool.started", "all/same-event")
def clocks_of_their_own(frame: Frame, link: Link) -> None:
    if frame["tool_call"]["name"] == "terminal" and link.number % 2 and link.in_step:
        frame["time"] += 1


@peer("down", "all/created-first")
def unborn(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "message.created" and frame["message"]["status"] == "streaming" and link.in_step:
        message = frame["message"]
        yield {
            "type": "message.replaced",
            "conversation_id": message["conversation_id"],
            "run_id": message["run_id"],
            "message_id": message["message_id"],
            "index": 0,
            "text": "",
        }
    yield frame


drops("never_completed", "message.completed", "all/one-completed", lambda frame, _: frame["message"].get("interim"))


@changes("message.delta", "all/deltas")
def a_hole(frame: Frame, link: Link) -> None:
    if len(frame["text"]) > 1_000 and frame["index"] >= 5:
        frame["index"] += 1
        if "last_index" in frame:
            frame["last_index"] += 1


@changes("message.delta", "all/text-adds-up")
def another_text(frame: Frame, link: Link) -> None:
    frame["text"] = frame["text"].replace("something", "SOMETHING")


@changes("run.ended", "all/one-end")
def endless(frame: Frame, link: Link) -> None:
    if frame["run"]["status"] == "failed":
        del frame["run"]["ended_at"]


@peer("down", "all/nothing-after-the-end")
def restless(frame: Frame, link: Link) -> Iterable[Frame]:
    yield frame
    if frame["type"] == "run.ended":
        run = frame["run"]
        yield {
            "type": "run.progress",
            "conversation_id": run["conversation_id"],
            "run_id": run["run_id"],
            "text": "tidying up",
        }


drops(
    "left_open", "tool.completed", "all/closed-before-the-end", lambda frame, _: frame["tool_call"]["name"] == "clarify"
)


@peer("down", "all/one-tool-end")
def an_end_of_nothing(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "run.updated" and frame["run"]["status"] == "running":
        call = {
            "tool_call_id": "tool_0",
            "conversation_id": frame["conversation_id"],
            "run_id": frame["run"]["run_id"],
            "position": 1,
            "name": "nothing",
            "arguments": {},
            "arguments_truncated": False,
            "status": "completed",
            "started_at": frame["time"],
            "truncated": False,
        }
        frame = {name: frame[name] for name in ("seq", "time", "conversation_id")} | {
            "type": "tool.completed",
            "tool_call": call,
        }
    yield frame


@changes("approval.requested", "all/approval-choices")
def no_pattern(frame: Frame, link: Link) -> None:
    frame["approval"].pop("pattern", None)


@changes("message.created", "all/origin")
def words_put_into_a_mouth(frame: Frame, link: Link) -> None:
    if frame["message"]["text"] == "slow 12":
        frame["message"]["text"] = "[queued] slow 12"


@peer("down", "all/nothing-after-delete")
def haunted(frame: Frame, link: Link) -> Iterable[Frame]:
    yield frame
    if frame["type"] == "run.started":
        link.memory.setdefault("ran", set()).add(frame["conversation_id"])
    if frame["type"] == "conversation.deleted" and frame["conversation_id"] not in link.memory.get("ran", ()):
        yield {
            "type": "run.progress",
            "conversation_id": frame["conversation_id"],
            "run_id": "run_0",
            "text": "still here",
        }


# Synchronisation


@peer("down", "sync/replay")
def forgetful(frame: Frame, link: Link) -> Iterable[Frame]:
    if not link.in_step and frame["type"] == "message.updated" and frame["message"]["text"] == "say while away":
        return
    yield frame


@peer("up", "sync/useless-cursor.foreign-epoch")
def hard_about_epochs(frame: Frame, link: Link) -> Iterable[Frame | Close]:
    resume = frame.get("resume") if frame["type"] == "hello" else None
    if isinstance(resume, dict) and resume.get("epoch") == "e_of_another_server":
        yield Close(1011)
    else:
        yield frame


@peer("up", "sync/cursor-of-another-shape.*")
def hard_about_cursors(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "hello" and not isinstance(frame.get("resume", {}), dict | type(None)):
        link.replies.append(error("invalid_message", frame))
    else:
        yield frame


drops("no_text_so_far", "message.replaced", "sync/streaming", lambda _, link: not link.in_step)


@peer("down", "sync/events-before-result.create")
def result_first(frame: Frame, link: Link) -> Iterable[Frame]:
    is_it = frame["type"] == "conversation.created" and link.in_step and _asked(link, "conversation.create")
    yield from _behind("conversation.create.result", is_it, frame, link)


def _behind(result: str, is_it: bool, frame: Frame, link: Link) -> Iterable[Frame]:
    """An event comes behind the first such result, and what follows it behind it, so that their order stays."""
    held = link.memory.setdefault("held", [])
    if (is_it and result not in link.memory) or (held and "id" not in frame):
        held.append(frame)
        return
    yield frame
    if frame["type"] == result:
        link.memory[result] = True
        yield from held
        held.clear()


def _asked(link: Link, type_: str) -> bool:
    """Whether it is the only kind of thing that was asked for: so one check asks."""
    kinds = [frame["type"] for frame in link.asked.values() if frame.get("type") != "hello"]
    return kinds == [type_]


@changes("conversation.get.result", "sync/as-of")
def from_the_past(frame: Frame, link: Link) -> None:
    frame["as_of_seq"] = 0


@changes("snapshot", "snapshot/parts")
def parts_from_one(frame: Frame, link: Link) -> None:
    frame["part"] += 1


def _without(kind: str, name: str, caught: str, which: Callable[[Frame], object]) -> None:
    def down(frame: Frame, link: Link) -> Iterable[Frame]:
        if frame["type"] == "snapshot":
            frame[kind] = [item for item in frame[kind] if not which(item)]
        yield frame

    PEERS[name] = Peer(name=name, caught=(caught,), down=down)


_without("runs", "no_running_run", "snapshot/run", lambda run: run["status"] == "running")
_without("messages", "no_queued_message", "snapshot/queued-message", lambda message: message["status"] == "queued")
_without("tool_calls", "no_tool_call", "snapshot/tool-call", lambda _: True)
_without("approvals", "no_approval", "approvals/snapshot", lambda _: True)
_without("clarifications", "no_clarification", "clarifications/snapshot", lambda _: True)


@peer("down", "snapshot/deltas-go-on")
def one_delta_lost(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "snapshot":
        shown = {item["message_id"]: item["index"] for item in frame["messages"] if "index" in item}
        link.memory.setdefault("streaming", {}).update(shown)
    if frame["type"] == "message.delta":
        index = link.memory.get("streaming", {}).get(frame["message_id"])
        # One that the snapshot has already nobody would miss.
        if index is not None and frame["index"] > index:
            del link.memory["streaming"][frame["message_id"]]
            return
    yield frame


# Conversations


def _renamed_id(name: str, prefix: str, caught: str) -> None:
    def up(frame: Frame, link: Link) -> Iterable[Frame]:
        if frame["type"] == "conversation.create" and frame["client_conversation_id"].startswith(prefix):
            frame["client_conversation_id"] += f"-{link.number}-{len(link.asked)}"
        yield frame

    PEERS[name] = Peer(name=name, caught=(caught,), up=up)


_renamed_id("created_twice", "twice-", "conversations/create-again")
_renamed_id("created_in_a_race", "race-", "conversations/create-at-once")
_renamed_id("created_after_deletion", "gone-", "conversations/deleted-id")


@asks("conversation.rename", "conversations/bad-title.101-characters")
def cut_title(frame: Frame, link: Link) -> None:
    frame["title"] = frame["title"][:100]


@changes("error", "conversations/title-conflict")
def nameless_conflict(frame: Frame, link: Link) -> None:
    if frame["code"] == "title_conflict":
        frame.pop("details", None)


answers(
    "unknown_send_is_forbidden",
    "not_found",
    "forbidden",
    "conversations/unknown.send",
    lambda asked, _: asked.get("client_message_id") == "unknown-1",
)


@changes("conversation.list.result", "conversations/list-pages")
def skips_one(frame: Frame, link: Link) -> None:
    if link.asked[frame["id"]].get("limit") == 2:
        frame["conversations"] = frame["conversations"][:1]


def _once_more(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "conversation.list.result" and link.asked[frame["id"]].get("limit") == 100:
        frame.setdefault("next", "again")
    yield frame


def _from_the_start(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame.get("cursor") == "again":
        del frame["cursor"]
    yield frame


PEERS["round_and_round"] = Peer(
    name="round_and_round", caught=("conversations/list-end",), down=_once_more, up=_from_the_start
)


@peer("up", "conversations/list-limit")
def strict_limit(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "conversation.list" and (frame.get("limit") or 0) == 1_000_000:
        link.replies.append(error("invalid_message", frame))
    else:
        yield frame


@peer("up", "history/limit")
def strict_history_limit(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "conversation.history" and frame.get("limit") == 1_000_000:
        link.replies.append(error("invalid_message", frame))
    else:
        yield frame


@peer("up", "conversations/delete-again")
def deleted_is_unknown(frame: Frame, link: Link) -> Iterable[Frame]:
    gone = link.memory.setdefault("gone", set())
    if frame["type"] == "conversation.delete" and frame["conversation_id"] in gone:
        link.replies.append(error("not_found", frame))
        return
    if frame["type"] == "conversation.delete":
        gone.add(frame["conversation_id"])
    yield frame


answers(
    "sends_to_the_deleted",
    "not_found",
    "unavailable",
    "conversations/after-delete.send",
    lambda asked, _: asked.get("client_message_id") == "after-delete",
)
drops(
    "deleted_in_mid_run",
    "run.ended",
    "conversations/delete-while-running",
    lambda frame, _: frame["run"].get("reason") == "deleted",
)
drops(
    "secret_rename",
    "conversation.updated",
    "conversations/rename",
    lambda frame, link: "x" * 60 in frame["conversation"]["title"] and not link.asked.keys() - {"r1"},
)


@changes("conversation.get.result", "conversations/create-with-title")
def nobody_chose(frame: Frame, link: Link) -> None:
    if frame["conversation"]["title"].startswith("Title with"):
        frame["conversation"]["title_source"] = "generated"


@changes("conversation.get.result", "conversations/title-stays")
def overwritten(frame: Frame, link: Link) -> None:
    if frame["conversation"]["title"].startswith("Mine"):
        frame["conversation"]["title"] = "A chat about something"


@changes("conversation.list.result", "conversations/create")
def unlisted(frame: Frame, link: Link) -> None:
    kinds = [asked.get("type") for asked in link.asked.values()]
    if kinds[-3:] == ["conversation.create", "conversation.get", "conversation.list"]:
        frame["conversations"] = []


# History


@changes("conversation.history.result", "history/as-seen")
def other_ids(frame: Frame, link: Link) -> None:
    if any("say the same" in message["text"] for message in frame["messages"]):
        for message in frame["messages"]:
            message["message_id"] += "h"


@asks("conversation.history", "history/pages.back")
def including(frame: Frame, link: Link) -> None:
    if frame.get("limit") == 2 and 0 < frame.get("before", 0) < 2**53 - 1:
        frame["before"] += 1


@asks("conversation.history", "history/both-directions")
def one_of_both(frame: Frame, link: Link) -> None:
    if "before" in frame:
        frame.pop("after", None)


@changes("conversation.history.result", "history/queued-last")
def nothing_queued(frame: Frame, link: Link) -> None:
    frame["messages"] = [message for message in frame["messages"] if message["status"] != "queued"]


@changes("conversation.get.result", "history/positions")
def another_head(frame: Frame, link: Link) -> None:
    frame["conversation"]["history_head"] += 1


@changes("conversation.history.result", "history/empty")
def more_of_nothing(frame: Frame, link: Link) -> None:
    if not frame["messages"] and not {"before", "after"} & set(link.asked[frame["id"]]):
        frame["has_more"] = True


@changes("conversation.history.result", "history/newest-first-page")
def a_page_skipped(frame: Frame, link: Link) -> None:
    if link.asked[frame["id"]].get("limit") == 3 and "before" in frame:
        frame["before"] -= 2_000


@changes("conversation.history.result", "history/words-of-the-owner")
def mistaken_for_the_owner(frame: Frame, link: Link) -> None:
    for message in frame["messages"]:
        if message["text"] == "I have read 2 files.":
            message["role"] = "user"


# Messages


@changes("error", "messages/conflict.*")
def no_receipt(frame: Frame, link: Link) -> None:
    if frame["code"] == "conflict":
        frame.pop("details", None)


def _receipts(name: str, text: str, caught: str, **changed: Any) -> None:
    def down(frame: Frame, link: Link) -> Iterable[Frame]:
        if frame["type"] == "message.send.result" and link.asked[frame["id"]]["text"] == text:
            frame["receipt"] |= changed
        yield frame

    PEERS[name] = Peer(name=name, caught=(caught,), down=down)


_receipts("never_a_duplicate", "say once", "messages/sent-again", duplicate=False)
_receipts("always_a_duplicate", "say race", "messages/sent-at-once", duplicate=True)
_receipts("another_message", "say durable", "messages/sent-again-after-a-cut", message_id="msg_0")
_receipts("started_in_a_queue", "say next", "messages/queue", disposition="started")
_receipts("steered_elsewhere", "say aside", "messages/steer", run_id="run_0", disposition="steered")
answers(
    "receipt_expired",
    "not_found",
    "expired",
    "messages/unknown-receipt",
    lambda asked, _: str(asked.get("client_message_id")).startswith("never-") and asked["type"] == "message.receipt",
)
answers(
    "empty_is_too_large", "invalid_message", "too_large", "messages/empty", lambda asked, _: asked.get("text") == ""
)
answers(
    "no_text_is_expired",
    "not_found",
    "expired",
    "messages/unknown-text",
    lambda asked, _: asked.get("message_id") == "msg_0",
)


@changes("message.receipt.result", "messages/receipt-ends-done")
def never_done(frame: Frame, link: Link) -> None:
    if frame["receipt"]["state"] == "done":
        frame["receipt"]["state"] = "dispatched"


@changes("conversation.history.result", "messages/verbatim.slash")
def a_command(frame: Frame, link: Link) -> None:
    for message in frame["messages"]:
        message["text"] = message["text"].replace("/notacommand", "notacommand")


@changes("message.completed", "messages/whole-text")
def cut_text(frame: Frame, link: Link) -> None:
    if len(frame["message"]["text"]) > 65_536:
        frame["message"] |= {"text": frame["message"]["text"][:65_536], "text_truncated": True}


@changes("message.text.result", "messages/text-while-streaming")
def no_index(frame: Frame, link: Link) -> None:
    if frame["status"] == "streaming":
        frame["index"] = -1


drops(
    "placed_in_secret",
    "message.updated",
    "messages/queued-position",
    lambda frame, _: frame["message"]["text"] == "say turn" and "position" in frame["message"],
)


def _busy(name: str, wanted: str, caught: str) -> None:
    def up(frame: Frame, link: Link) -> Iterable[Frame]:
        if frame.get("if_busy") == wanted:
            frame["if_busy"] = "queue"
        yield frame

    PEERS[name] = Peer(name=name, caught=(caught,), up=up)


_busy("never_rejects", "reject", "messages/reject")
_busy("never_interrupts", "interrupt", "messages/interrupt")


@peer("up", "messages/order")
def overtaking(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "message.send" and frame["text"] == "say 2":
        link.memory["slow"] = frame
        return
    yield frame
    if frame["type"] == "message.send" and frame["text"] == "say 3" and "slow" in link.memory:
        yield link.memory.pop("slow")


drops(
    "nothing_streams",
    "message.delta",
    "messages/streams",
    lambda frame, link: any(asked.get("text") == "slow 12" for asked in link.asked.values()),
)


@peer("down", "messages/events-before-receipt")
def receipt_first(frame: Frame, link: Link) -> Iterable[Frame]:
    is_it = (
        frame["type"] == "message.created" and frame["message"]["text"] == "say early" and "say early" in _typed(link)
    )
    yield from _behind("message.send.result", is_it, frame, link)


@peer("down", "messages/round-trip")
def named_by_nobody(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "message.created" and frame["message"]["text"] == "say hello":
        frame["message"]["client_message_id"] = "other"
    yield frame


# Runs and tools


@peer("up", "runs/cancel-by-message")
def runs_only(frame: Frame, link: Link) -> Iterable[Frame]:
    if (
        frame["type"] == "run.cancel"
        and "run_id" not in frame
        and str(frame.get("client_message_id")).startswith("msg-")
    ):
        link.replies.append(error("invalid_message", frame))
    else:
        yield frame


@changes("run.cancel.result", "runs/cancel-ended")
def cancelled_afterwards(frame: Frame, link: Link) -> None:
    if frame["run"]["status"] == "completed":
        frame["run"]["status"] = "cancelled"


answers(
    "nothing_to_cancel",
    "not_found",
    "expired",
    "runs/cancel-nothing.unknown-run",
    lambda asked, _: asked.get("run_id") == "run_0" and asked["type"] == "run.cancel",
)


@changes("run.ended", "runs/failure.refused-key")
def another_failure(frame: Frame, link: Link) -> None:
    if frame["run"].get("error", {}).get("code") == "provider_auth":
        frame["run"]["error"]["code"] = "provider_error"


@changes("run.ended", "runs/no-provider-words")
def quotes(frame: Frame, link: Link) -> None:
    if "error" in frame["run"]:
        frame["run"]["error"]["message"] = "raw provider text: do not show"


@changes("run.started", "runs/background")
def orphan(frame: Frame, link: Link) -> None:
    frame["run"].pop("parent_run_id", None)


@changes("run.ended", "runs/cancel")
def no_reason(frame: Frame, link: Link) -> None:
    if frame["run"].get("reason") == "requested":
        del frame["run"]["reason"]


@changes("conversation.get.result", "runs/active-run")
def idle(frame: Frame, link: Link) -> None:
    frame["conversation"].pop("active_run_id", None)


def _give_up(link: Link) -> Iterable[Frame]:
    for asked in list(link.asked.values()):
        if asked.get("text") == "slow 10":
            yield {"type": "run.cancel", "id": "px", "client_message_id": asked["client_message_id"]}


PEERS["ends_with_its_client"] = Peer(name="ends_with_its_client", caught=("runs/disconnect",), cut=_give_up)


@asks("run.cancel", "runs/drop-queued")
def keeps_the_queue(frame: Frame, link: Link) -> None:
    if any(asked.get("text") == "say 1" for asked in link.asked.values()) and len(link.asked) < 8:
        frame.pop("drop_queued", None)


@changes("tool.started", "tools/one")
def no_arguments(frame: Frame, link: Link) -> None:
    if frame["tool_call"]["arguments"].get("command") == "echo hello":
        frame["tool_call"]["arguments"] = {}


@changes("tool.started", "tools/subagent")
def no_parent(frame: Frame, link: Link) -> None:
    frame["tool_call"].pop("parent_tool_call_id", None)


@changes("tool.completed", "tools/cancelled")
def failed_instead(frame: Frame, link: Link) -> None:
    if frame["tool_call"]["status"] == "cancelled":
        frame["tool_call"]["status"] = "failed"


def _typed(link: Link) -> list[str]:
    return [asked["text"] for asked in link.asked.values() if asked.get("type") == "message.send"]


@changes("conversation.history.result", "tools/no-activity-text")
def activity_in_text(frame: Frame, link: Link) -> None:
    for message in frame["messages"]:
        if message["text"] == "Let me run that." and _typed(link) == ["run echo quiet"]:
            message["text"] += "\n[terminal: echo quiet]"


# Prompts


@changes("error", "approvals/invalid-choice.*")
def no_choices(frame: Frame, link: Link) -> None:
    if frame["code"] == "invalid_choice" and "approval_id" in link.asked[frame["id"]]:
        frame.pop("details", None)


@changes("error", "approvals/second-answer")
def nobody_decided(frame: Frame, link: Link) -> None:
    if frame["code"] == "already_resolved" and "approval_id" in link.asked[frame["id"]]:
        frame.pop("details", None)


answers(
    "unknown_approval",
    "expired",
    "not_found",
    "approvals/unknown",
    lambda asked, _: asked.get("approval_id") == "appr_0",
)
answers(
    "unknown_question",
    "expired",
    "not_found",
    "clarifications/unknown",
    lambda asked, _: asked.get("clarification_id") == "clar_0",
)


@asks("approval.respond", "approvals/only-the-named")
def oldest_first(frame: Frame, link: Link) -> None:
    names = [name for name, item in link.questions.items() if "approval_id" in item]
    if len(names) > 1 and "oldest" not in link.memory and frame["approval_id"] == names[1]:
        link.memory["oldest"] = True
        frame["approval_id"] = names[0]


@changes("approval.resolved", "approvals/decide.*")
def somebody_else(frame: Frame, link: Link) -> None:
    if frame["approval"].get("decided_by", {}).get("kind") == "device":
        frame["approval"]["decided_by"]["device_id"] = "somebody"


@peer("up", "approvals/words.once")
def words_decide(frame: Frame, link: Link) -> Iterable[Frame]:
    yield frame
    if frame["type"] == "message.send" and frame["text"] == "once":
        name = next(iter(link.questions))
        yield {"type": "approval.respond", "id": "px1", "approval_id": name, "choice": "once"}


@changes("approval.resolved", "approvals/cancelled")
def timed_out(frame: Frame, link: Link) -> None:
    if frame["approval"].get("decided_by", {}).get("kind") == "run_end":
        frame["approval"]["decided_by"]["kind"] = "timeout"


@changes("approval.requested", "approvals/asked")
def no_call(frame: Frame, link: Link) -> None:
    frame["approval"].pop("tool_call_id", None)


@changes("approval.respond.result", "approvals/answered-again")
def as_it_was(frame: Frame, link: Link) -> None:
    again = sum(asked.get("type") == "approval.respond" for asked in link.asked.values())
    if again > 1 and _typed(link)[-1:] and len(link.questions) == 1 and frame["approval"]["decision"] == "deny":
        frame["approval"]["description"] += " (again)"


@asks("clarification.respond", "clarifications/choice")
def the_first_one(frame: Frame, link: Link) -> None:
    question = link.questions.get(frame["clarification_id"], {})
    green = [choice["choice_id"] for choice in question.get("choices", ()) if choice["label"] == "green"]
    if green and frame.get("choice_ids") == green and len(question["choices"]) == 2:
        frame["choice_ids"] = [question["choices"][0]["choice_id"]]


@asks("clarification.respond", "clarifications/text")
def words_lost(frame: Frame, link: Link) -> None:
    if frame.get("text") == "pink with dots":
        frame["text"] = "pink"


@asks("clarification.respond", "clarifications/open-question")
def name_lost(frame: Frame, link: Link) -> None:
    if frame.get("text") == "Ada":
        frame["text"] = "Eve"


@asks("clarification.respond", "clarifications/several")
def one_of_several(frame: Frame, link: Link) -> None:
    if link.questions.get(frame["clarification_id"], {}).get("multiple"):
        frame["choice_ids"] = frame["choice_ids"][:1]


@asks("clarification.respond", "clarifications/two-where-one")
def the_first_of_two(frame: Frame, link: Link) -> None:
    if not link.questions.get(frame["clarification_id"], {}).get("multiple"):
        frame["choice_ids"] = frame.get("choice_ids", [])[:1]


@asks("clarification.respond", "clarifications/unfit.nothing")
def nothing_is_a_skip(frame: Frame, link: Link) -> None:
    if not frame.get("choice_ids") and "text" not in frame:
        frame["skip"] = True


@asks("clarification.respond", "clarifications/too-large")
def cut_answer(frame: Frame, link: Link) -> None:
    if len(frame.get("text") or "") > 10_000:
        frame["text"] = frame["text"][:10_000]


@changes("error", "clarifications/second-answer")
def nobody_answered(frame: Frame, link: Link) -> None:
    if frame["code"] == "already_resolved" and "clarification_id" in link.asked[frame["id"]]:
        frame.pop("details", None)


@changes("clarification.resolved", "clarifications/cancelled")
def lapsed_instead(frame: Frame, link: Link) -> None:
    if frame["clarification"]["status"] == "cancelled":
        frame["clarification"]["status"] = "expired"


@peer("up", "clarifications/words")
def words_answer(frame: Frame, link: Link) -> Iterable[Frame]:
    yield frame
    if frame["type"] == "message.send" and frame["text"] == "green":
        name = next(iter(link.questions))
        yield {
            "type": "clarification.respond",
            "id": "px1",
            "clarification_id": name,
            "choice_ids": [],
            "text": "green",
        }


# Files


def _file(http: Http) -> bool:
    return http.path.startswith("/v1/attachments/att_") and http.method == "GET"


@peer("after", "files/get")
def no_etag(http: Http) -> None:
    if _file(http) and http.status == 200 and "Range" not in http.headers:
        http.answer.pop("ETag", None)


@peer("before", "files/range.suffix*")
def no_suffixes(http: Http) -> None:
    if http.headers.get("Range", "").startswith("bytes=-") and http.headers["Range"] != "bytes=-0":
        del http.headers["Range"]


@peer("before", "files/range-ignored.several")
def the_first_range(http: Http) -> None:
    if "," in http.headers.get("Range", ""):
        http.headers["Range"] = http.headers["Range"].partition(",")[0]


@peer("after", "files/no-such-range.*")
def how_long(http: Http) -> None:
    if http.status == 416:
        http.answer.pop("Content-Range", None)


@peer("before", "files/if-range.weak-etag")
def weak_is_strong(http: Http) -> None:
    given = http.headers.get("If-Range", "")
    if given.startswith("W/"):
        http.headers["If-Range"] = given[2:]


@peer("before", "files/conditions.none-match-*")
def no_conditions(http: Http) -> None:
    if http.headers.get("If-None-Match") != '"0000"':
        http.headers.pop("If-None-Match", None)


@peer("after", "files/headers")
def sniffed(http: Http) -> None:
    http.answer.pop("X-Content-Type-Options", None)


@peer("after", "files/name.*")
def plain_names(http: Http) -> None:
    if "Content-Disposition" in http.answer:
        http.answer["Content-Disposition"] = http.answer["Content-Disposition"].partition("; filename*")[0]


@peer("after", "files/unknown")
def forbidden(http: Http) -> None:
    if http.path.endswith("aaa") and http.status == 404:
        http.status = 403


@peer("after", "files/head")
def a_part_of_nothing(http: Http) -> None:
    if http.method == "HEAD" and "Range" in http.headers:
        http.status = 206


@peer("after", "files/no-path")
def shows_its_place(http: Http) -> None:
    """The runner's own folder stands for the server's."""
    if _file(http) and http.status == 200 and FOLDER:
        http.answer["X-Sendfile"] = FOLDER[-1]


FOLDER: list[str] = []
"""Where the runner has its files, noted by the test."""


@peer("after", "files/deleted")
def gone(http: Http) -> None:
    if (
        http.status == 404
        and http.path != "/v1/attachments/att_0"
        and http.path.startswith("/v1/attachments/att_")
        and http.method == "GET"
    ):
        http.status = 410


@peer("after", "files/other-methods.put")
def not_allowed(http: Http) -> None:
    if http.method == "PUT":
        http.status = 405


@peer("before", "files/known-without-secret")
def files_by_address(http: Http) -> None:
    if http.path.startswith("/v1/attachments/") and "token" in http.query:
        http.headers["Authorization"] = f"Bearer {http.query['token']}"


@peer("after", "files/no-secret.wrong")
def no_file_no_secret(http: Http) -> None:
    if http.path == "/v1/attachments/att_0" and http.status == 401 and "Authorization" in http.headers:
        http.status = 404


@changes("attachment.get.result", "files/described")
def another_size(frame: Frame, link: Link) -> None:
    frame["attachment"]["size"] += 1


answers(
    "unknown_file",
    "not_found",
    "expired",
    "files/unknown-description",
    lambda asked, _: asked.get("attachment_id") == "att_0",
)


@peer("after", "files/empty")
def nothing_is_no_content(http: Http) -> None:
    if _file(http) and http.status == 200 and not http.body:
        http.status = 204


# Limits and models


@peer("down", "models/not-offered.model-list", "models/no-credential", "models/busy")
def models_are_a_fault(frame: Frame, link: Link) -> Iterable[Frame]:
    asked = link.asked.get(frame.get("id", ""), {})
    yield error("internal", asked, retryable=True) if asked.get("type") == "model.list" else frame


@peer("closed", "limits/binary")
def another_close_for_binary(code: int, link: Link) -> int:
    return 1000 if code == 1003 else code


@peer("closed", "limits/flood")
def another_close_for_floods(code: int, link: Link) -> int:
    return 1000 if code == 4429 else code


@peer("closed", "limits/frame-too-large")
def another_close_for_size(code: int, link: Link) -> int:
    return 1000 if code == 1009 else code


@peer("up", "limits/largest-frame")
def smaller_frames(frame: Frame, link: Link) -> Iterable[Frame | Close]:
    if frame["type"] == "ping" and len(json.dumps(frame, separators=(",", ":"))) == 2**20:
        yield Close(4400)
    else:
        yield frame


answers(
    "long_is_invalid",
    "too_large",
    "invalid_message",
    "limits/text-too-long",
    lambda asked, _: set(asked.get("text", "")) == {"x"} and asked["type"] == "message.send",
)


@peer("up", "limits/longest-text")
def counts_bytes(frame: Frame, link: Link) -> Iterable[Frame]:
    if frame["type"] == "message.send" and "😀" in frame["text"] and len(frame["text"].encode()) > 200_000:
        link.replies.append(error("too_large", frame))
    else:
        yield frame


@peer("up", "limits/many-requests")
def overwhelmed(frame: Frame, link: Link) -> Iterable[Frame | Close]:
    yield frame
    if len(link.asked) > 150 and frame["type"] == "conversation.list":
        yield Close(4429)


@changes("pong", "limits/ping")
def jumping(frame: Frame, link: Link) -> None:
    frame["server_time"] += 100_000 * len(link.asked)


# Behind all others, which look for the events in it


@peer("down", "all/batches")
def batches_for_all(frame: Frame, link: Link) -> Iterable[Frame]:
    if (
        frame["type"] == "conversation.updated"
        and link.in_step
        and "batch" not in (link.hello.get("capabilities") or ())
    ):
        yield {"type": "batch", "events": [frame]}
    else:
        yield frame
