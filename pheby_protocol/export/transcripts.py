"""Transcripts for the reducer: what a client receives, step by step, and what its screens show then.

A client in any language feeds itself the steps and compares the digest at each `digest` step; where it differs, `state`
of the last step says what was expected.
"""

from __future__ import annotations

from typing import Any

from pheby_protocol.client_state import ClientState, apply, apply_answer, digest, lost, shown
from pheby_protocol.codec import structure
from pheby_protocol.messages._base import Request, Result

Json = dict[str, Any]

_NOW = 1_796_050_000_000
_OBJECTS = ("conversations", "runs", "messages", "tool_calls", "approvals", "clarifications")


def transcripts() -> dict[str, Json]:
    """File name to transcript."""
    return {f"{name}.json": _played(name, *make()) for name, make in _TRANSCRIPTS.items()}


def _played(name: str, description: str, steps: list[Json]) -> Json:
    """The steps with the digest after each of them."""
    state = ClientState()
    played: list[Json] = []
    for step in steps:
        state = _step(state, step)
        played += [step, {"digest": digest(state)}]
    wishes = {"needs_text": sorted(state.needs_text), "needs_history": dict(state.needs_history)}
    return {"name": name, "description": description, "steps": played, "state": shown(state), "wishes": wishes}


def _step(state: ClientState, step: Json) -> ClientState:
    if "frame" in step:
        return apply(state, structure(step["frame"]))
    if "answer" in step:
        request, result = structure(step["answer"]["request"]), structure(step["answer"]["result"])
        assert isinstance(request, Request)
        assert isinstance(result, Result)
        return apply_answer(state, request, result)
    return lost(state)


# What the transcripts are made of


class _Log:
    """Numbers logged events."""

    def __init__(self, seq: int = 0) -> None:
        self.seq = seq

    def __call__(self, type_: str, where: str = "conv_1", **fields: Any) -> Json:
        self.seq += 1
        event = {"type": type_, "seq": self.seq, "time": _NOW + self.seq, "conversation_id": where}
        return {"frame": event | fields}


def _frame(type_: str, **fields: Any) -> Json:
    return {"frame": {"type": type_, **fields}}


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


def _message(name: str, position: int | None = None, **changes: Any) -> Json:
    message: Json = {
        "message_id": name,
        "conversation_id": "conv_1",
        "role": "assistant",
        "origin": "chat",
        "status": "completed",
        "text": "",
        "text_truncated": False,
        "run_id": "run_1",
        "attachments": [],
        "created_at": _NOW,
    }
    return message | ({} if position is None else {"position": position}) | changes


def _run(status: str, **changes: Any) -> Json:
    return {
        "run_id": "run_1",
        "conversation_id": "conv_1",
        "origin": "chat",
        "status": status,
        "created_at": _NOW,
        **changes,
    }


def _delta(index: int, text: str, message_id: str = "msg_2", **changes: Any) -> Json:
    return _frame("message.delta", conversation_id="conv_1", message_id=message_id, index=index, text=text, **changes)


def _welcome(epoch: str, seq: int, *, resumed: bool) -> Json:
    limits = (
        "max_frame_bytes",
        "max_server_frame_bytes",
        "max_text_chars",
        "max_list_limit",
        "max_history_limit",
        "max_pending_requests",
    )
    return _frame(
        "welcome",
        id="1",
        protocol_version=1,
        connection_id="connection_1",
        server={"name": "pheby", "version": "1", "hermes_version": "1"},
        server_time=_NOW,
        capabilities={"streaming": True},
        access_mode="full",
        limits=dict.fromkeys(limits, 1048576),
        heartbeat_ms=30_000,
        schema_digest="digest",
        epoch=epoch,
        seq=seq,
        resumed=resumed,
        receipts_since=0,
    )


def _snapshot(part: int, seq: int, *, last: bool, **objects: Any) -> Json:
    return _frame("snapshot", part=part, last=last, seq=seq, **{name: [] for name in _OBJECTS} | objects)


def _in_step(seq: int) -> Json:
    return _frame("sync.completed", seq=seq)


def _begun() -> tuple[_Log, list[Json]]:
    """A client in step, with one conversation in which a run has begun to answer."""
    log = _Log()
    return log, [
        _welcome("epoch_1", 0, resumed=False),
        _snapshot(0, 0, last=True),
        _in_step(0),
        log("conversation.created", conversation=_conversation()),
        log("message.created", message=_message("msg_1", 1024, role="user", text="say hello", delivery="admitted")),
        log("run.started", run=_run("running", started_at=_NOW + 1)),
        log("message.created", message=_message("msg_2", 2048, status="streaming", index=-1)),
    ]


# The transcripts


def _turn() -> tuple[str, list[Json]]:
    log, steps = _begun()
    steps += [
        _delta(0, "Hel"),
        _delta(1, "lo"),
        _delta(1, "lo"),
        _frame("run.progress", conversation_id="conv_1", run_id="run_1", text="thinking"),
        log("message.completed", message=_message("msg_2", 2048, text="Hello", index=1, final=True)),
        log("run.ended", run=_run("completed", started_at=_NOW + 1, ended_at=_NOW + 9)),
        log("message.updated", message=_message("msg_1", 1024, role="user", text="say hello", delivery="done")),
        log("conversation.updated", conversation=_conversation(title="Hello", title_source="generated")),
        _delta(2, "late"),
    ]
    return "A whole turn, with a doubled delta and a late one.", steps


def _gap() -> tuple[str, list[Json]]:
    _, steps = _begun()
    asked = {"type": "message.text", "id": "2", "message_id": "msg_2"}
    answer = {"type": "message.text.result", "id": "2", "text": "abc", "index": 2, "status": "streaming"}
    replaced = _frame("message.replaced", conversation_id="conv_1", message_id="msg_2", index=6, text="something else")
    steps += [
        _delta(0, "a"),
        _delta(2, "c"),
        {"answer": {"request": asked, "result": answer}},
        _delta(3, "de", last_index=4),
        _delta(4, "e"),
        _delta(5, "f"),
        replaced,
        _delta(7, "!"),
    ]
    return "A gap in the deltas, healed by message.text; joined deltas; a replacement.", steps


def _resumed() -> tuple[str, list[Json]]:
    log, steps = _begun()
    replay = [
        log("conversation.updated", conversation=_conversation(title="Renamed", title_source="manual")),
        log("conversation.created", "conv_2", conversation=_conversation("conv_2")),
    ]
    steps += [
        _delta(0, "He"),
        {"lost": True},
        _welcome("epoch_1", log.seq, resumed=True),
        *steps[-2:],
        *replay,
        _frame("message.replaced", conversation_id="conv_1", message_id="msg_2", index=3, text="Hello, w"),
        _in_step(log.seq),
        _delta(3, "w"),
        _delta(4, "orld"),
    ]
    return "A cut and a replay that overlaps: nothing twice, nothing missing.", steps


def _snapshot_after() -> tuple[str, list[Json]]:
    log, steps = _begun()
    steps += [
        log("conversation.created", "conv_2", conversation=_conversation("conv_2", title="unconfirmed")),
        {"lost": True},
        _welcome("epoch_2", 40, resumed=False),
        _snapshot(0, 40, last=False, conversations=[_conversation(title="Fresh", title_source="generated")]),
        _snapshot(1, 40, last=True, runs=[_run("waiting", run_id="run_9", started_at=_NOW)]),
        _in_step(40),
    ]
    asked = {"type": "conversation.list", "id": "3"}
    page = {
        "type": "conversation.list.result",
        "id": "3",
        "conversations": [_conversation(title="Fresh", title_source="generated")],
        "as_of_seq": 40,
    }
    steps.append({"answer": {"request": asked, "result": page}})
    return "Another epoch: a snapshot in parts closes what it does not name; a full list deletes what it lacks.", steps


def _tool_and_approval() -> tuple[str, list[Json]]:
    log, steps = _begun()
    call = {
        "tool_call_id": "tool_1",
        "conversation_id": "conv_1",
        "run_id": "run_1",
        "position": 3072,
        "name": "terminal",
        "arguments": {"command": "rm -rf build"},
        "arguments_truncated": False,
        "status": "running",
        "started_at": _NOW,
        "truncated": False,
    }
    approval = {
        "approval_id": "appr_1",
        "kind": "command",
        "conversation_id": "conv_1",
        "run_id": "run_1",
        "tool_call_id": "tool_1",
        "position": 4096,
        "description": "delete a folder",
        "command": "rm -rf build",
        "command_truncated": False,
        "choices": ["once", "future_choice", "deny"],
        "answerable": True,
        "status": "pending",
        "created_at": _NOW,
    }
    decided = {"status": "resolved", "decision": "once", "decided_by": {"kind": "device", "device_id": "d1"}}
    steps += [
        log("tool.started", tool_call=call),
        log("run.updated", run=_run("waiting", started_at=_NOW + 1)),
        log("approval.requested", approval=approval),
        log("approval.resolved", approval=approval | decided | {"answerable": False}),
        log("run.updated", run=_run("running", started_at=_NOW + 1)),
        log("tool.completed", tool_call=call | {"status": "completed", "ended_at": _NOW + 5, "duration_ms": 5}),
    ]
    return "A tool that needs an approval; a choice that this version does not know stays as it is.", steps


def _clarification() -> tuple[str, list[Json]]:
    log, steps = _begun()
    question = {
        "clarification_id": "clar_1",
        "conversation_id": "conv_1",
        "run_id": "run_1",
        "position": 3072,
        "question": "Which one?",
        "choices": [{"choice_id": "c1", "label": "red"}, {"choice_id": "c2", "label": "green"}],
        "multiple": False,
        "free_text": True,
        "skippable": False,
        "status": "pending",
        "created_at": _NOW,
    }
    steps += [
        log("clarification.requested", clarification=question),
        log("clarification.resolved", clarification=question | {"status": "expired"}),
        log("run.ended", run=_run("paused_by_future", started_at=_NOW + 1, ended_at=_NOW + 9)),
    ]
    return "A question that lapses; a run status of a later version is kept and is not taken for completed.", steps


def _page(name: str, position: int, text: str, *, history_id: str, as_of_seq: int, **asked: int) -> Json:
    """A page of history with one message, as an answer."""
    request = {"type": "conversation.history", "id": "4", "conversation_id": "conv_1", **asked}
    result = {
        "type": "conversation.history.result",
        "id": "4",
        "conversation_id": "conv_1",
        "messages": [_message(name, position, text=text)],
        "tool_calls": [],
        "runs": [],
        "approvals": [],
        "clarifications": [],
        "before": position,
        "after": position,
        "has_more": True,
        "history_id": history_id,
        "as_of_seq": as_of_seq,
    }
    return {"answer": {"request": request, "result": result}}


def _history() -> tuple[str, list[Json]]:
    log, steps = _begun()
    steps += [
        log("message.completed", message=_message("msg_2", 2048, text="Hello", index=0)),
        log("history.changed", history_id="hist_2", history_head=2048, from_position=2048),
        _page("msg_7", 2048, "Hello again", history_id="hist_2", as_of_seq=log.seq),
    ]
    return "History changed: cached items from there go, the page that is fetched takes their place.", steps


def _got(conversation: Json, *, as_of_seq: int) -> Json:
    """A conversation as an answer."""
    request = {"type": "conversation.get", "id": "5", "conversation_id": "conv_1"}
    result = {"type": "conversation.get.result", "id": "5", "conversation": conversation, "as_of_seq": as_of_seq}
    return {"answer": {"request": request, "result": result}}


def _another_history() -> tuple[str, list[Json]]:
    log, steps = _begun()
    steps += [
        log("message.completed", message=_message("msg_2", 2048, text="Hello", index=0)),
        log("run.ended", run=_run("completed", started_at=_NOW + 1, ended_at=_NOW + 9)),
        {"lost": True},
        _welcome("epoch_2", 40, resumed=False),
        _snapshot(0, 40, last=True, conversations=[_conversation(history_id="hist_2")]),
        _in_step(40),
        _page("msg_7", 1024, "Hello again", history_id="hist_2", as_of_seq=40),
        _page("msg_8", 512, "Before it", history_id="hist_3", as_of_seq=41, before=1024),
        _page("msg_9", 1024, "And again", history_id="hist_3", as_of_seq=42),
        _got(_conversation(history_id="hist_4"), as_of_seq=43),
    ]
    return "Another history_id without history.changed, in a snapshot, a page, an answer: what had ended goes.", steps


def _deleted() -> tuple[str, list[Json]]:
    log, steps = _begun()
    stale = _got(_conversation(), as_of_seq=log.seq)
    steps += [
        log("run.ended", run=_run("cancelled", reason="deleted", ended_at=_NOW + 9)),
        log("conversation.deleted"),
        stale,
    ]
    return "A deleted conversation takes everything along, and an answer from before does not bring it back.", steps


def _future() -> tuple[str, list[Json]]:
    log, steps = _begun()
    steps += [
        log("planet.aligned", planets=["mars"]),
        _frame(
            "batch",
            events=[_delta(0, "a")["frame"], log("comet.seen")["frame"], _delta(1, "b")["frame"]],
        ),
        _frame("weather.changed", sky="blue"),
        log("conversation.updated", conversation=_conversation(title="x", mood="sunny"), extra=1),
    ]
    return "Unknown events and fields: skipped, and the cursor moves past them.", steps


def _settings() -> tuple[str, list[Json]]:
    log, steps = _begun()
    attachment = {
        "attachment_id": "att_1",
        "conversation_id": "conv_1",
        "message_id": "msg_2",
        "file_name": "report.pdf",
        "media_type": "application/pdf",
        "size": 12,
        "sha256": "0" * 64,
        "inline_image": False,
        "status": "available",
        "created_at": _NOW,
        "expires_at": _NOW + 7,
        "path": "v1/attachments/att_1",
    }
    steps += [
        log("model.changed", current={"provider": "p", "model": "m2"}),
        log("reasoning.changed", current="high"),
        log("attachment.created", attachment=attachment),
        log("attachment.expired", attachment=attachment | {"status": "expired"}),
    ]
    return "A model, an effort and a file change.", steps


_TRANSCRIPTS = {
    "turn": _turn,
    "gap": _gap,
    "resumed": _resumed,
    "snapshot": _snapshot_after,
    "tool-and-approval": _tool_and_approval,
    "clarification": _clarification,
    "history-changed": _history,
    "another-history": _another_history,
    "deleted": _deleted,
    "future": _future,
    "settings": _settings,
}
