"""The scenarios for clients, made here and stored as JSON: what a server does, and what a client must do then.

A scenario is a list of steps. What is shown after each is computed by the protocol's own reducer, so that nobody has to
write a digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

from pheby_protocol.client_state import ClientState, apply, apply_answer, digest, lost, shown
from pheby_protocol.codec import structure
from pheby_protocol.messages._base import Request, Result

Json = dict[str, Any]

_NOW: Final = 1_796_050_000_000
_ANY: Final = {"$any": "identifier"}
_FAR: Final = 4_000_000_000_000
"""In another century: whatever a client's clock says is before it."""
_SILENCE: Final = 700
_TEXT: Final = 'Größe 漢字 😀 \u200d "quoted"\n'
_EPOCH: Final = "e_1"
_WIDTH: Final = 120

FILE: Final = b"0123456789" * 100
"""The file of the scenarios."""

_WRITERS: dict[str, tuple[tuple[str, ...], Callable[[_Script], None]]] = {}


def scenarios() -> dict[str, Json]:
    """Name to scenario."""
    return {name: _written(name, *row) for name, row in _WRITERS.items()}


def scenario_files() -> dict[str, str]:
    """File name to content, as it is stored."""
    return {f"{name.replace('/', '-')}.json": f"{_as_text(found)}\n" for name, found in scenarios().items()}


def _as_text(value: Any, indent: str = "") -> str:
    """JSON for people: a step or an object on one line where it fits, else as many fields a line as fit."""
    short = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(short) <= _WIDTH or not value or not isinstance(value, dict | list):
        return short
    deeper = f"{indent}  "
    if isinstance(value, list):
        return f"[\n{deeper}" + f",\n{deeper}".join(_as_text(item, deeper) for item in value) + f"\n{indent}]"
    lines = [""]
    for item in (f"{json.dumps(key, ensure_ascii=False)}: {_as_text(found, deeper)}" for key, found in value.items()):
        fits = "\n" not in lines[-1] + item and len(f"{deeper}{lines[-1]}, {item}") < _WIDTH
        lines[-1:] = [f"{lines[-1]}, {item}" if lines[-1] else item] if fits or not lines[-1] else [lines[-1], item]
    return f"{{\n{deeper}" + f",\n{deeper}".join(lines) + f"\n{indent}}}"


def _written(name: str, rules: tuple[str, ...], write: Callable[[_Script], None]) -> Json:
    script = _Script()
    write(script)
    title = (write.__doc__ or "").strip().rstrip(".")
    return {"id": name, "title": title, "rules": list(rules), "since": 1, "steps": script.steps}


class _Script:
    """Writes down steps, and keeps what a right client shows."""

    def __init__(self) -> None:
        self.steps: list[Json] = []
        self.state = ClientState()
        self.seq = 0

    # What is stored

    def step(self, **step: Any) -> None:
        self.steps.append(step)

    def send(self, type_: str, **fields: Any) -> None:
        """The server sends a frame."""
        frame = {"type": type_, **fields}
        self.step(send=frame)
        self.state = apply(self.state, structure(frame))

    def event(self, type_: str, where: str = "conv_1", *, seq: int | None = None, **fields: Any) -> Json:
        """A logged event; the next one unless a seq is given."""
        self.seq = self.seq + 1 if seq is None else seq
        return {"type": type_, "seq": self.seq, "time": _NOW + self.seq % 1_000, "conversation_id": where, **fields}

    def log(self, type_: str, where: str = "conv_1", *, seq: int | None = None, **fields: Any) -> None:
        event = self.event(type_, where, seq=seq, **fields)
        self.step(send=event)
        self.state = apply(self.state, structure(event))

    def expect(self, type_: str | Json, name: str = "asked", **fields: Any) -> None:
        """The client sends a request with these fields at least; it is remembered by the name."""
        self.step(expect={"type": type_, **fields}, name=name)

    def answer(self, type_: str, name: str = "asked", request: Json | None = None, **fields: Any) -> None:
        """The server answers what was remembered; `request` is what the client will have asked, for the reducer."""
        self.step(send={"type": type_, "id": {"$of": [name, "id"]}, **fields})
        if request is not None:
            asked, result = structure({"id": "1", **request}), structure({"type": type_, "id": "1", **fields})
            assert isinstance(asked, Request)
            assert isinstance(result, Result)
            self.state = apply_answer(self.state, asked, result)

    def shows(self) -> None:
        """The client shows what the reducer says."""
        self.step(digest=digest(self.state), state=shown(self.state))

    def ends(self, **how: Any) -> None:
        """The connection ends: `cut=True`, or `close=CODE`."""
        self.step(**how)
        self.state = lost(self.state)

    # What comes often

    def greet(self, *, resumed: bool, epoch: str = _EPOCH, hello: Json | None = None, **welcome: Any) -> None:
        self.step(connect={})
        self.expect("hello", "hello", **(hello or {}))
        fields = _welcome(epoch, self.seq, resumed) | welcome
        self.step(send={"type": "welcome", "id": {"$of": ["hello", "id"]}, **fields})
        self.state = apply(self.state, structure({"type": "welcome", "id": "1", **fields}))

    def in_step(self, *, hello: Json | None = None, **objects: Any) -> None:
        """A first connection with a snapshot of these objects."""
        self.greet(resumed=False, hello=hello)
        self.send("snapshot", **_snapshot(self.seq, **objects))
        self.send("sync.completed", seq=self.seq)

    def back(self, cursor: int | None = None) -> None:
        """The client comes back with its cursor."""
        self.greet(resumed=True, hello={"resume": {"epoch": _EPOCH, "seq": self.seq if cursor is None else cursor}})

    def begun(self) -> None:
        """In step, with a conversation whose agent has begun to answer."""
        self.in_step()
        self.log("conversation.created", conversation=_conversation())
        self.log("message.created", message=_message("msg_1", 1024, role="user", text="hello", delivery="admitted"))
        self.log("run.started", run=_run("running"))
        self.log("message.created", message=_message("msg_2", 2048, status="streaming", index=-1))

    def delta(self, index: int, text: str, **fields: Any) -> None:
        self.send("message.delta", conversation_id="conv_1", message_id="msg_2", index=index, text=text, **fields)


def _scenario(name: str, *rules: str) -> Callable[[Callable[[_Script], None]], Callable[[_Script], None]]:
    def register(write: Callable[[_Script], None]) -> Callable[[_Script], None]:
        _WRITERS[name] = (rules, write)
        return write

    return register


# Objects


def _welcome(epoch: str, seq: int, resumed: bool) -> Json:
    limits = {
        "max_frame_bytes": 1_048_576,
        "max_server_frame_bytes": 1_048_576,
        "max_text_chars": 100_000,
        "max_list_limit": 100,
        "max_history_limit": 200,
        "max_pending_requests": 64,
    }
    capabilities = ("batch", "resume", "streaming", "tools", "cancel", "approvals", "clarifications", "attachments")
    return {
        "protocol_version": 1,
        "connection_id": "connection_1",
        "server": {"name": "conformance", "version": "1", "hermes_version": "none"},
        "server_time": _NOW,
        "capabilities": dict.fromkeys(capabilities, True),
        "access_mode": "full",
        "limits": limits,
        "heartbeat_ms": 30_000,
        "schema_digest": "conformance",
        "epoch": epoch,
        "seq": seq,
        "resumed": resumed,
        "receipts_since": 0,
    }


def _snapshot(seq: int, *, part: int = 0, last: bool = True, **objects: Any) -> Json:
    kinds = ("conversations", "runs", "messages", "tool_calls", "approvals", "clarifications")
    return {"part": part, "last": last, "seq": seq, **{kind: [] for kind in kinds}, **objects}


def _conversation(name: str = "conv_1", **changes: Any) -> Json:
    return {
        "conversation_id": name,
        "title": "",
        "title_source": "none",
        "created_at": _NOW,
        "updated_at": _NOW,
        "last_activity_at": _NOW,
        "history_id": "hist_1",
        "history_head": 0,
        **changes,
    }


def _titled(script: _Script, title: str, *, seq: int | None = None, name: str = "conv_1", **more: Any) -> None:
    changed = _conversation(name, title=title, title_source="manual")
    script.log("conversation.updated", name, seq=seq, conversation=changed, **more)


def _message(name: str, position: int, **changes: Any) -> Json:
    return {
        "message_id": name,
        "conversation_id": "conv_1",
        "position": position,
        "role": "assistant",
        "origin": "chat",
        "status": "completed",
        "text": "",
        "text_truncated": False,
        "run_id": "run_1",
        "attachments": [],
        "created_at": _NOW,
        **changes,
    }


def _run(status: str, **changes: Any) -> Json:
    base = {"run_id": "run_1", "conversation_id": "conv_1", "origin": "chat", "status": status, "created_at": _NOW}
    return {**base, "started_at": _NOW, **changes}


def _approval(**changes: Any) -> Json:
    return {
        "approval_id": "appr_1",
        "kind": "command",
        "conversation_id": "conv_1",
        "run_id": "run_1",
        "position": 4096,
        "description": "delete a folder",
        "command": "rm -rf build",
        "command_truncated": False,
        "pattern": "recursive delete",
        "choices": ["once", "session", "deny"],
        "answerable": True,
        "status": "pending",
        "created_at": _NOW,
        **changes,
    }


def _question(**changes: Any) -> Json:
    return {
        "clarification_id": "clar_1",
        "conversation_id": "conv_1",
        "run_id": "run_1",
        "position": 4096,
        "question": "Which ones?",
        "choices": [{"choice_id": "c1", "label": "red"}, {"choice_id": "c2", "label": "red"}],
        "multiple": True,
        "free_text": True,
        "skippable": False,
        "status": "pending",
        "created_at": _NOW,
        **changes,
    }


# Connecting


@_scenario("connect/secret", "P-HELLO-1")
def _secret(script: _Script) -> None:
    """The secret is in the Authorization header, and not in the address."""
    script.step(connect={"secret": True})


@_scenario("connect/hello", "P-HELLO-4")
def _hello(script: _Script) -> None:
    """hello is the first frame, with version 1 among the versions and a device id."""
    named = {"name": {"$any": "string"}, "version": {"$any": "string"}, "device_id": _ANY}
    script.step(connect={})
    script.step(
        first={"type": "hello", "id": {"$any": "string"}, "protocol_versions": {"$contains": 1}, "client": named}
    )


@_scenario("connect/no-cursor", "P-SYNC-2")
def _no_cursor(script: _Script) -> None:
    """A client that has no cursor sends none, and takes the snapshot."""
    script.in_step(hello={"resume": {"$absent": True}}, conversations=[_conversation(title="first")])
    script.shows()


@_scenario("connect/same-device", "P-HELLO-4")
def _same_device(script: _Script) -> None:
    """A client that comes back is the same device."""
    script.in_step()
    script.ends(cut=True)
    script.step(connect={})
    script.expect("hello", "again", client={"device_id": {"$of": ["hello", "client", "device_id"]}})


@_scenario("connect/capabilities", "P-HELLO-8")
def _capabilities(script: _Script) -> None:
    """Unknown capabilities, limits and access modes are no hindrance, and neither are absent capabilities."""
    limits = _welcome(_EPOCH, 0, False)["limits"] | {"max_teleports": 7}
    script.greet(resumed=False, capabilities={"teleport": True}, limits=limits, access_mode="from_the_future")
    script.send("snapshot", **_snapshot(0, conversations=[_conversation()]))
    script.send("sync.completed", seq=0)
    _titled(script, "still here")
    script.shows()


@_scenario("connect/ids", "P-FRAME-2")
def _ids(script: _Script) -> None:
    """Each request of a connection has an id of its own."""
    script.in_step(conversations=[_conversation()])
    for number in range(3):
        script.step(tell={"do": "send", "conversation_id": "conv_1", "text": f"text {number}"})
        script.expect("message.send", f"asked_{number}", text=f"text {number}")
    script.step(unique=["hello", "asked_0", "asked_1", "asked_2"])


@_scenario("connect/frames", "P-FRAME-1", "P-FRAME-8", "P-FRAME-9")
def _frames(script: _Script) -> None:
    """What the client sends is one request of the protocol a frame, with every field as it must be."""
    script.in_step(conversations=[_conversation()])
    script.step(tell={"do": "send", "conversation_id": "conv_1", "text": _TEXT})
    script.expect("message.send", text=_TEXT)
    script.step(frames="decodable")


@_scenario("connect/plain-frames", "P-FRAME-10")
def _plain_frames(script: _Script) -> None:
    """Absent fields are left out, and printable text is not escaped."""
    script.in_step(conversations=[_conversation()])
    script.step(tell={"do": "send", "conversation_id": "conv_1", "text": _TEXT})
    script.expect("message.send", text=_TEXT)
    script.step(frames="plain")


# What is shown


@_scenario("state/turn", "P-RUN-2")
def _turn(script: _Script) -> None:
    """A whole turn; the run ends with run.ended and not with the final text."""
    script.begun()
    script.delta(0, "Hel")
    script.delta(1, "lo")
    script.shows()
    script.log("message.completed", message=_message("msg_2", 2048, text="Hello", index=1, final=True))
    script.shows()
    script.log("run.ended", run=_run("completed", ended_at=_NOW + 9))
    script.shows()


@_scenario("state/failed-run", "P-RUN-2")
def _failed_run(script: _Script) -> None:
    """A run's status tells how it went, whatever its text says."""
    script.begun()
    script.log("message.completed", message=_message("msg_2", 2048, text="Done, all is well.", status="failed"))
    error = {"code": "provider_error", "message": "The model's provider reports an error."}
    script.log("run.ended", run=_run("failed", ended_at=_NOW + 9, error=error))
    script.shows()


@_scenario("state/old-delta", "P-SYNC-9")
def _old_delta(script: _Script) -> None:
    """A delta that was applied is skipped, also when it is a joined one."""
    script.begun()
    script.delta(0, "a")
    script.delta(1, "bc", last_index=2)
    script.delta(0, "a")
    script.delta(1, "bc", last_index=2)
    script.delta(2, "c")
    script.delta(3, "d")
    _titled(script, "fence")
    script.shows()


@_scenario("state/delta-gap", "P-SYNC-9")
def _delta_gap(script: _Script) -> None:
    """On a gap in the deltas the whole text is asked for, and deltas go on from its index."""
    script.begun()
    script.delta(0, "a")
    script.delta(3, "d")
    script.expect("message.text", message_id="msg_2")
    asked = {"type": "message.text", "message_id": "msg_2"}
    script.answer("message.text.result", request=asked, text="abcd", index=3, status="streaming")
    script.delta(4, "e")
    _titled(script, "fence")
    script.shows()


@_scenario("state/replaced", "P-SYNC-9")
def _replaced(script: _Script) -> None:
    """message.replaced applies above the own index, and not at or below it."""
    script.begun()
    script.delta(0, "a")
    script.send("message.replaced", conversation_id="conv_1", message_id="msg_2", index=5, text="new")
    script.send("message.replaced", conversation_id="conv_1", message_id="msg_2", index=5, text="old")
    script.delta(6, "er")
    _titled(script, "fence")
    script.shows()


@_scenario("state/seen-event", "P-SYNC-3")
def _seen_event(script: _Script) -> None:
    """An event at or below the cursor is dropped."""
    script.in_step(conversations=[_conversation()])
    _titled(script, "older")
    _titled(script, "newer")
    _titled(script, "older", seq=1)
    _titled(script, "newest of another", seq=3, name="conv_2")
    script.shows()


@_scenario("state/seq-gap", "P-SYNC-3")
def _seq_gap(script: _Script) -> None:
    """A gap in the seqs means nothing: the connection goes on."""
    script.in_step(conversations=[_conversation()])
    _titled(script, "one", seq=5)
    _titled(script, "two", seq=5_000)
    script.shows()
    script.step(silence_ms=_SILENCE, of=["hello"])


@_scenario("state/unknown-event", "P-FRAME-7")
def _unknown_event(script: _Script) -> None:
    """Unknown types are skipped, with and without a seq."""
    script.in_step(conversations=[_conversation()])
    script.send("weather.changed", sky="blue")
    script.log("planet.aligned", planets=["mars"])
    _titled(script, "after it")
    script.shows()


@_scenario("state/unknown-fields", "P-FRAME-6")
def _unknown_fields(script: _Script) -> None:
    """Unknown fields are ignored in every object; null is absent."""
    script.in_step()
    changed = _conversation(mood={"deep": [None]}, last_message_preview=None, active_run_id=None)
    script.log("conversation.created", conversation=changed, colour="blue")
    script.shows()


@_scenario("state/unknown-values", "P-FRAME-7")
def _unknown_values(script: _Script) -> None:
    """Unknown values of enumerations are kept, and taken for none that is known."""
    script.in_step(conversations=[_conversation()])
    script.log("run.started", run=_run("pondering", origin="telepathy"))
    script.log("message.created", message=_message("msg_1", 1024, role="oracle", status="foretold", text="soon"))
    script.shows()


@_scenario("state/undecodable", "P-FRAME-9", "P-FRAME-8")
def _undecodable(script: _Script) -> None:
    """A known type with a field of another type has no effect, not even on the cursor."""
    script.in_step(conversations=[_conversation(title="good")])
    script.shows()
    for wrong in ({"seq": "1"}, {"seq": 1.5}, {"time": None}):
        event = script.event("conversation.updated", seq=1, conversation=_conversation(title="bad"))
        script.step(offer=event | wrong)
        script.step(wait_ms=100)
        script.shows()


@_scenario("state/undecodable-object", "P-FRAME-9", "P-FRAME-8")
def _undecodable_object(script: _Script) -> None:
    """An object that lacks a field, or has one of another type, has no effect, not even on the cursor."""
    script.in_step(conversations=[_conversation(title="good")])
    script.shows()
    of_event: tuple[Json, ...] = ({"seq": 1.5}, {"time": None})
    for wrong in of_event:
        _to_no_effect(script, "conversation.updated", conversation=_conversation(title="bad"), **wrong)
    for wrong in ({"history_id": None}, {"history_head": "0"}, {"title": 7}, {"updated_at": 1.5}):
        _to_no_effect(script, "conversation.updated", conversation=_conversation(title="bad") | wrong)
    _to_no_effect(script, "message.created", message=_message("msg_1", 1024, text_truncated="false"))
    _to_no_effect(script, "message.created", message=_message("msg_1", 1024, attachments={}))
    _to_no_effect(script, "run.started", run=None)


def _to_no_effect(script: _Script, type_: str, **fields: Any) -> None:
    """An event that cannot be decoded; the client may stay or leave, and comes back with the cursor of before."""
    event = {"type": type_, "seq": 1, "time": _NOW, "conversation_id": "conv_1", **fields}
    script.step(offer=event)
    script.step(wait_ms=100)
    script.shows()
    script.ends(cut=True)
    script.back()
    script.send("sync.completed", seq=script.seq)


@_scenario("state/identifiers", "P-FRAME-11")
def _identifiers(script: _Script) -> None:
    """Identifiers are opaque, and compared exactly."""
    script.in_step()
    for name in ("X", "x", "-", "0", "00"):
        script.log("conversation.created", name, conversation=_conversation(name, title=f"named {name}"))
    script.shows()


@_scenario("state/arguments", "P-TOOL-5")
def _arguments(script: _Script) -> None:
    """The arguments of a tool call are kept, of any shape."""
    script.begun()
    call = {
        "tool_call_id": "tool_1",
        "conversation_id": "conv_1",
        "run_id": "run_1",
        "position": 3072,
        "name": "anything",
        "arguments": {"null": None, "list": [1, "2", [True, None]], "": {"type": "x"}, "ünïcode 😀": "\u2028"},
        "arguments_truncated": False,
        "status": "running",
        "started_at": _NOW,
        "truncated": False,
    }
    script.log("tool.started", tool_call=call)
    script.shows()


@_scenario("state/batch", "P-SYNC-15")
def _batch(script: _Script) -> None:
    """The events of a batch count one by one; an unknown one in it moves the cursor."""
    script.in_step(conversations=[_conversation()])
    changed = _conversation(title="in a batch", title_source="manual")
    events = [
        script.event("conversation.updated", conversation=changed),
        {"type": "weather.changed", "sky": "blue"},
        script.event("comet.seen"),
    ]
    script.send("batch", events=events)
    script.shows()
    script.ends(cut=True)
    script.back()


@_scenario("state/deleted", "P-CONV-4")
def _deleted(script: _Script) -> None:
    """A deleted conversation takes along whatever is in it."""
    script.begun()
    script.log("run.ended", run=_run("cancelled", reason="deleted", ended_at=_NOW + 9))
    script.log("conversation.deleted")
    script.shows()


@_scenario("state/deleted-for-good", "P-SYNC-12")
def _deleted_for_good(script: _Script) -> None:
    """A late answer does not bring back a conversation that was deleted meanwhile."""
    script.begun()
    script.log("message.completed", message=_message("msg_2", 2048, text="Hello", index=0))
    script.log("run.ended", run=_run("completed", ended_at=_NOW + 9))
    script.log("history.changed", history_id="hist_2", history_head=2048, from_position=2048)
    as_of = script.seq
    script.expect("conversation.history", conversation_id="conv_1")
    script.log("conversation.deleted")
    page = _page([_message("msg_7", 2048, text="Hello again")], as_of=as_of) | {"runs": [_run("completed")]}
    script.answer("conversation.history.result", request=_asks_history(), **page)
    script.log("conversation.created", "conv_2", conversation=_conversation("conv_2", title="fence"))
    script.shows()


@_scenario("state/history-changed", "P-CONV-4")
def _history_changed(script: _Script) -> None:
    """At history.changed the items from there on are dropped, and fetched again."""
    script.begun()
    script.log("message.completed", message=_message("msg_2", 2048, text="Hello", index=0))
    script.log("history.changed", history_id="hist_2", history_head=2048, from_position=2048)
    script.expect("conversation.history", conversation_id="conv_1")
    script.shows()
    page = _page([_message("msg_7", 2048, text="Hello again")], as_of=script.seq)
    script.answer("conversation.history.result", request=_asks_history(), **page)
    script.shows()


@_scenario("state/another-history", "P-CONV-4")
def _another_history(script: _Script) -> None:
    """Another history_id without history.changed: all that had ended is dropped, and fetched again."""
    script.begun()
    script.log("message.completed", message=_message("msg_2", 2048, text="Hello", index=0))
    script.log("run.ended", run=_run("completed", ended_at=_NOW + 9))
    script.shows()
    script.ends(cut=True)
    script.greet(resumed=False)
    script.send("snapshot", **_snapshot(script.seq, conversations=[_conversation(history_id="hist_2")]))
    script.send("sync.completed", seq=script.seq)
    script.expect("conversation.history", conversation_id="conv_1")
    script.shows()
    page = _page([_message("msg_7", 2048, text="Hello again")], as_of=script.seq)
    script.answer("conversation.history.result", request=_asks_history(), **page)
    script.shows()


def _asks_history() -> Json:
    return {"type": "conversation.history", "conversation_id": "conv_1"}


def _page(messages: list[Json], *, as_of: int) -> Json:
    lists: Json = {kind: [] for kind in ("tool_calls", "runs", "approvals", "clarifications")}
    place = messages[0]["position"]
    more = {"before": place, "after": place, "has_more": True, "history_id": "hist_2", "as_of_seq": as_of}
    return {"conversation_id": "conv_1", "messages": messages, **lists, **more}


@_scenario("state/answer-from-before", "P-SYNC-12")
def _answer_from_before(script: _Script) -> None:
    """What an event above as_of_seq changed is kept against an older answer."""
    script.begun()
    script.log("message.completed", message=_message("msg_2", 2048, text="old"))
    as_of = script.seq + 1
    script.log("history.changed", history_id="hist_2", history_head=2048, from_position=4096)
    script.expect("conversation.history", conversation_id="conv_1")
    script.log("message.updated", message=_message("msg_2", 2048, text="new"))
    page = _page([_message("msg_2", 2048, text="old")], as_of=as_of)
    script.answer("conversation.history.result", request=_asks_history(), **page)
    changed = _conversation(title="fence", title_source="manual", history_id="hist_2", history_head=2048)
    script.log("conversation.updated", conversation=changed)
    script.shows()


# Coming back


@_scenario("resume/cursor", "P-SYNC-2")
def _cursor(script: _Script) -> None:
    """After a cut the client comes back with the seq of the last event that it applied."""
    script.in_step(conversations=[_conversation()])
    _titled(script, "seen", seq=9_007_199_254_740_001)
    script.shows()
    script.ends(cut=True)
    script.back()


@_scenario("resume/cursor-of-sync", "P-SYNC-2")
def _cursor_of_sync(script: _Script) -> None:
    """Without any event the cursor is that of sync.completed."""
    script.seq = 41
    script.in_step(conversations=[_conversation()])
    script.shows()
    script.ends(cut=True)
    script.back()


@_scenario("resume/unknown-event", "P-SYNC-15")
def _past_the_unknown(script: _Script) -> None:
    """An event of an unknown type moves the cursor."""
    script.in_step(conversations=[_conversation()])
    script.log("planet.aligned", planets=["mars"])
    script.shows()
    script.ends(cut=True)
    script.back()


@_scenario("resume/overlapping-replay", "P-SYNC-3")
def _overlap(script: _Script) -> None:
    """A replay that overlaps what was seen changes nothing twice, and nothing is missing."""
    script.in_step(conversations=[_conversation()])
    _titled(script, "one")
    _titled(script, "two")
    script.shows()
    script.ends(cut=True)
    script.back()
    _titled(script, "one", seq=1)
    _titled(script, "two", seq=2)
    script.log("conversation.created", "conv_3", seq=3, conversation=_conversation("conv_3"))
    script.send("sync.completed", seq=3)
    script.shows()


@_scenario("resume/cut-in-replay", "P-SYNC-2")
def _cut_in_replay(script: _Script) -> None:
    """Cut within a replay, the client comes back with what it has applied of it, or with what it had before."""
    script.in_step(conversations=[_conversation()])
    _titled(script, "one")
    script.shows()
    script.ends(cut=True)
    script.back()
    _titled(script, "two")
    script.shows()
    script.ends(cut=True)
    script.step(connect={})
    script.expect("hello", "again", resume={"epoch": _EPOCH, "seq": {"$one": [1, 2]}})


@_scenario("resume/another-epoch", "P-SYNC-7")
def _another_epoch(script: _Script) -> None:
    """A snapshot throws the old cursor away: the next one is of the new epoch, however low."""
    script.seq = 500
    script.in_step(conversations=[_conversation()])
    script.shows()
    script.ends(cut=True)
    script.seq = 3
    script.greet(resumed=False, epoch="e_2")
    script.send("snapshot", **_snapshot(3, conversations=[_conversation(title="new")]))
    script.send("sync.completed", seq=3)
    script.shows()
    _titled(script, "newer")
    script.shows()
    script.ends(cut=True)
    script.step(connect={})
    script.expect("hello", "again", resume={"epoch": "e_2", "seq": 4})


@_scenario("snapshot/whole", "P-SYNC-6")
def _whole(script: _Script) -> None:
    """A snapshot of several parts applies as a whole, and closes what was open and is not in it."""
    script.begun()
    script.delta(0, "so far")
    script.shows()
    script.ends(cut=True)
    script.seq = 40
    script.greet(resumed=False, epoch="e_2")
    fresh = [_conversation(title="Fresh", title_source="generated")]
    before = script.state
    script.send("snapshot", **_snapshot(40, last=False, conversations=fresh))
    assert before.conversations == script.state.conversations
    script.step(wait_ms=200)
    script.shows()
    script.send("snapshot", **_snapshot(40, part=1, runs=[_run("waiting", run_id="run_9")]))
    script.send("sync.completed", seq=40)
    script.shows()


@_scenario("snapshot/open-prompts", "P-SYNC-6")
def _open_prompts(script: _Script) -> None:
    """Prompts that are open in the snapshot are shown; one that is open no longer is not."""
    script.begun()
    script.log("approval.requested", approval=_approval())
    script.shows()
    script.ends(cut=True)
    script.seq = 40
    script.greet(resumed=False, epoch="e_2")
    script.send("snapshot", **_snapshot(40, conversations=[_conversation()], clarifications=[_question()]))
    script.send("sync.completed", seq=40)
    script.shows()


@_scenario("snapshot/unnamed", "P-SYNC-6")
def _unnamed(script: _Script) -> None:
    """What a snapshot does not name stays until the whole list was walked, and is deleted if no page names it."""
    names = ("conv_1", "conv_2", "conv_3", "conv_4")
    script.in_step(conversations=[_conversation(name) for name in names])
    script.log("message.created", "conv_3", message=_message("msg_3", 1024, conversation_id="conv_3", text="of old"))
    script.shows()
    script.ends(cut=True)
    script.seq = 40
    script.greet(resumed=False)
    script.send("snapshot", **_snapshot(40, conversations=[_conversation("conv_1")], conversations_next="page_2"))
    script.send("sync.completed", seq=40)
    # From the beginning, or from where the snapshot ended.
    script.expect("conversation.list", cursor={"$one": [None, "page_2"]})
    page: Json = {
        "conversations": [_conversation("conv_1"), _conversation("conv_2")],
        "next": "page_3",
        "as_of_seq": 40,
    }
    script.answer("conversation.list.result", request={"type": "conversation.list"}, **page)
    script.expect("conversation.list", cursor="page_3")
    script.shows()
    _titled(script, "named by an event", name="conv_4")
    last: Json = {"conversations": [_conversation("conv_5")], "as_of_seq": 40}
    script.answer("conversation.list.result", request={"type": "conversation.list", "cursor": "page_3"}, **last)
    script.shows()


# Sending


def _tell_send(script: _Script) -> None:
    script.step(tell={"do": "send", "conversation_id": "conv_1", "text": "once only"})
    script.expect("message.send", "sent", conversation_id="conv_1", client_message_id=_ANY, text="once only")


def _receipt(**changes: Any) -> Json:
    return {
        "client_message_id": {"$of": ["sent", "client_message_id"]},
        "message_id": "msg_1",
        "conversation_id": "conv_1",
        "disposition": "started",
        "state": "admitted",
        "run_id": "run_1",
        "duplicate": False,
        **changes,
    }


@_scenario("send/cut-before-the-receipt", "P-MSG-1")
def _send_again(script: _Script) -> None:
    """Without a receipt the same client_message_id is asked about or sent again, after every cut."""
    script.in_step(conversations=[_conversation()])
    _tell_send(script)
    for _ in range(2):
        script.ends(cut=True)
        script.greet(resumed=True)
        script.send("sync.completed", seq=script.seq)
        kinds = {"$one": ["message.send", "message.receipt"]}
        script.expect(kinds, "again", client_message_id={"$of": ["sent", "client_message_id"]})


@_scenario("send/receipt", "P-MSG-1")
def _no_more(script: _Script) -> None:
    """With a receipt nothing is sent again, also after a cut."""
    script.in_step(conversations=[_conversation()])
    _tell_send(script)
    script.answer("message.send.result", "sent", receipt=_receipt())
    script.step(wait_ms=200)
    script.ends(cut=True)
    script.greet(resumed=True)
    script.send("sync.completed", seq=script.seq)
    script.step(silence_ms=_SILENCE, of=["message.send"])


@_scenario("send/too-old", "P-MSG-6")
def _too_old(script: _Script) -> None:
    """What was first sent before receipts_since is not sent again without asking the owner."""
    script.in_step(conversations=[_conversation()])
    _tell_send(script)
    script.ends(cut=True)
    script.greet(resumed=True, server_time=_FAR + 1_000, receipts_since=_FAR)
    script.send("sync.completed", seq=script.seq)
    _titled(script, "fence")
    script.shows()
    script.step(silence_ms=_SILENCE, of=["message.send"])


@_scenario("send/retryable", "P-ERR-3", "P-MSG-1")
def _retryable(script: _Script) -> None:
    """After an error that is retryable the same is sent again, not before retry_after_ms, whatever its code."""
    script.in_step(conversations=[_conversation()])
    _tell_send(script)
    again = {"client_message_id": {"$of": ["sent", "client_message_id"]}, "text": "once only"}
    told: Json = {"message": "Not now.", "retryable": True}
    for code in ("rate_limited", "from_the_future"):
        script.answer("error", "sent", code=code, retry_after_ms=1_000, **told)
        script.step(silence_ms=900, of=["message.send"])
        script.expect("message.send", "sent", conversation_id="conv_1", **again)
    script.answer("message.send.result", "sent", receipt=_receipt())
    script.step(silence_ms=_SILENCE, of=["message.send"])


@_scenario("send/conflict", "P-ERR-3")
def _conflict(script: _Script) -> None:
    """An error that is not retryable is not answered by the same request again, also when its code is unknown."""
    script.in_step(conversations=[_conversation()])
    for code in ("conflict", "from_the_future"):
        _tell_send(script)
        script.answer("error", "sent", code=code, message="No.", retryable=False)
        script.step(silence_ms=_SILENCE, of=["message.send"])


@_scenario("send/indeterminate", "P-MSG-5")
def _indeterminate(script: _Script) -> None:
    """What became of a send is unknown: that is shown, and it is not sent again."""
    script.in_step(conversations=[_conversation()])
    _tell_send(script)
    script.answer("message.send.result", "sent", receipt=_receipt())
    message = _message("msg_1", 1024, role="user", text="once only", delivery="indeterminate", status="completed")
    script.log("message.created", message=message)
    script.shows()
    script.ends(cut=True)
    script.back()
    script.send("sync.completed", seq=script.seq)
    script.step(silence_ms=_SILENCE, of=["message.send"])


@_scenario("send/cancel-loses", "P-RUN-6")
def _cancel_loses(script: _Script) -> None:
    """A run that was cancelled may end completed."""
    script.begun()
    script.shows()
    script.step(tell={"do": "cancel", "run_id": "run_1"})
    script.expect("run.cancel", run_id="run_1")
    script.log("message.completed", message=_message("msg_2", 2048, text="Hello", final=True))
    script.log("run.ended", run=_run("completed", ended_at=_NOW + 9))
    script.answer("run.cancel.result", run=_run("completed", ended_at=_NOW + 9), as_of_seq=script.seq)
    script.shows()


# Prompts


@_scenario("prompts/approve", "P-APPR-2")
def _approve(script: _Script) -> None:
    """A decision is made by approval.respond, with the id and a choice that was offered."""
    script.begun()
    script.log("approval.requested", approval=_approval())
    script.shows()
    script.step(tell={"do": "approve", "approval_id": "appr_1", "choice": "session"})
    script.expect("approval.respond", approval_id="appr_1", choice="session")


@_scenario("prompts/not-offered", "P-APPR-2")
def _not_offered(script: _Script) -> None:
    """A choice that was not offered is not sent, whatever the client is told."""
    script.begun()
    script.log("approval.requested", approval=_approval())
    script.shows()
    script.step(tell={"do": "approve", "approval_id": "appr_1", "choice": "always"})
    script.step(silence_ms=_SILENCE, of=["approval.respond"])
    script.step(tell={"do": "approve", "approval_id": "appr_1", "choice": "once"})
    script.expect("approval.respond", approval_id="appr_1", choice="once")


@_scenario("prompts/never-by-itself", "P-APPR-9")
def _never_by_itself(script: _Script) -> None:
    """Nothing is decided by default or by timeout."""
    script.begun()
    script.log("approval.requested", approval=_approval(expires_at=_NOW + 1))
    script.log("clarification.requested", clarification=_question(expires_at=_NOW + 1))
    script.shows()
    script.step(silence_ms=1_500, of=["approval.respond", "clarification.respond", "message.send"])


@_scenario("prompts/decided-elsewhere", "P-APPR-2")
def _decided_elsewhere(script: _Script) -> None:
    """Who decided elsewhere is shown."""
    script.begun()
    script.log("approval.requested", approval=_approval())
    decided = {"kind": "device", "device_id": "tablet", "client_name": "Tablet"}
    script.log("approval.resolved", approval=_approval(status="resolved", decision="deny", decided_by=decided))
    script.shows()


@_scenario("prompts/answer", "P-CLAR-2")
def _answer(script: _Script) -> None:
    """A question is answered by the ids of its choices, and words."""
    script.begun()
    script.log("clarification.requested", clarification=_question())
    script.shows()
    answer: Json = {"choice_ids": ["c1", "c2"], "text": "and blue"}
    script.step(tell={"do": "answer", "clarification_id": "clar_1", **answer})
    script.expect("clarification.respond", clarification_id="clar_1", **answer)


# Files


def _file(script: _Script) -> None:
    script.begun()
    attachment = {
        "attachment_id": "att_1",
        "conversation_id": "conv_1",
        "message_id": "msg_2",
        "file_name": "report.txt",
        "media_type": "text/plain",
        "size": len(FILE),
        "sha256": hashlib.sha256(FILE).hexdigest(),
        "inline_image": False,
        "status": "available",
        "created_at": _NOW,
        "expires_at": _NOW + 604_800_000,
        "path": "v1/attachments/att_1",
    }
    script.log("attachment.created", attachment=attachment)
    script.shows()
    script.step(tell={"do": "download", "attachment_id": "att_1"})


@_scenario("files/secret", "P-ATT-1")
def _file_secret(script: _Script) -> None:
    """A file is asked for with the secret in the header."""
    _file(script)
    script.step(file={"secret": True})


@_scenario("files/not-compressed", "P-ATT-9")
def _file_identity(script: _Script) -> None:
    """A file is asked for as it is."""
    _file(script)
    script.step(file={"headers": {"Accept-Encoding": "identity"}})


@_scenario("files/resume", "P-ATT-8")
def _file_resume(script: _Script) -> None:
    """A broken download is resumed where it broke, if it is still that file."""
    _file(script)
    script.step(file={"cut_after": 400})
    etag = f'"{hashlib.sha256(FILE).hexdigest()}"'
    script.step(file={"headers": {"Range": "bytes=400-", "If-Range": etag}, "from": 400})


# The end of a connection


def _final(code: int, meaning: str) -> None:
    def write(script: _Script) -> None:
        script.in_step()
        script.ends(close=code)
        script.step(no_connect_ms=2_000)

    write.__doc__ = f"After {code} ({meaning}) the client does not come back by itself."
    _scenario(f"close/{code}", "P-ERR-5")(write)


for _code, _meaning in ((4401, "the secret"), (4406, "the version"), (4409, "a newer connection")):
    _final(_code, _meaning)


def _passing(code: int) -> None:
    def write(script: _Script) -> None:
        script.in_step()
        script.ends(close=code)
        script.back()

    write.__doc__ = f"After {code} the client comes back with its cursor."
    _scenario(f"close/{code}", "P-ERR-5")(write)


for _code in (1000, 1001, 1011, 1012, 4408, 4413, 4429, 4503, 4999):
    _passing(_code)


@_scenario("close/no-common-version", "P-ERR-5", "P-HELLO-4")
def _no_common_version(script: _Script) -> None:
    """A server of later versions only is not asked again: the client must be updated."""
    script.step(connect={})
    script.expect("hello")
    told: Json = {
        "message": "No version in common.",
        "retryable": False,
        "details": {"supported": [2, 3], "later": True},
    }
    script.answer("error", code="unsupported_version", **told)
    script.step(close=4406)
    script.step(no_connect_ms=2_000)


@_scenario("close/unauthorized", "P-HELLO-15")
def _unauthorized(script: _Script) -> None:
    """After 401 at the handshake the client does not try again by itself."""
    script.step(refuse={"status": 401, "headers": {"WWW-Authenticate": "Bearer"}})
    script.step(no_connect_ms=2_000)


@_scenario("close/draining", "P-ERR-5")
def _draining(script: _Script) -> None:
    """After server.draining the client waits as long as was announced."""
    script.in_step()
    script.step(send={"type": "server.draining", "reconnect_after_ms": 1_500})
    script.ends(close=4503)
    script.step(connect={"not_before_ms": 1_400})
    script.expect("hello", "again", resume={"epoch": _EPOCH, "seq": 0})


def _waits(status: int) -> None:
    def write(script: _Script) -> None:
        script.step(refuse={"status": status, "headers": {"Retry-After": "2"}})
        script.step(connect={"not_before_ms": 1_900})

    write.__doc__ = f"After {status} at the handshake the client comes back, and not before Retry-After."
    _scenario(f"close/{'draining' if status == 503 else 'locked-out'}-at-the-door", "P-HELLO-16")(write)


_waits(503)
_waits(429)


@_scenario("close/forbidden-at-the-door", "P-ERR-6")
def _forbidden(script: _Script) -> None:
    """Only 401 is about the secret: after 403 and 404, which a proxy may say, the client comes back."""
    script.step(refuse={"status": 403})
    script.step(refuse={"status": 404})
    script.step(connect={})


@_scenario("close/back-off", "P-ERR-6")
def _back_off(script: _Script) -> None:
    """While connecting fails the client waits longer and longer."""
    script.step(refuse={"status": 502})
    script.step(mark="first")
    for _ in range(4):
        script.step(refuse={"status": 502})
    script.step(elapsed={"since": "first", "at_least_ms": 1_000})


@_scenario("close/back-off-grows", "P-ERR-6")
def _back_off_grows(script: _Script) -> None:
    """While connecting fails the client waits longer and longer, and two clients not equally long."""
    series = ["first", "second"]
    script.step(mark="begin")
    for name in series:
        if name == "second":
            script.step(restart=True)
        script.step(refuse={"status": 502})
        for _ in range(5):
            script.step(refuse={"status": 502}, waits=name)
    script.step(elapsed={"since": "begin", "at_least_ms": 2_000})
    script.step(longer=series)
    script.step(another=series)


@_scenario("close/at-once", "P-ERR-7")
def _at_once(script: _Script) -> None:
    """A socket that was in step and broke is opened again at once."""
    script.in_step()
    script.shows()
    script.ends(cut=True)
    script.step(connect={"within_ms": 2_500})


@_scenario("close/heartbeat", "P-HELLO-9")
def _heartbeat(script: _Script) -> None:
    """The client pings by itself within a minute."""
    script.in_step()
    script.step(ping_within_ms=61_000)
