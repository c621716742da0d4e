"""What holds for everything that a server sends: looked for in all that came while the other checks acted."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from pheby_protocol.errors import ERRORS, ErrorCode
from pheby_protocol.registry import REGISTRY

from ..check import SCRIPTED, observe
from ..observed import Sight
from ..phone import Frame


@observe("all/decodable", "P-FRAME-1", "P-FRAME-9")
def decodable(sight: Sight) -> Iterable[str]:
    """Every frame is one JSON object of its type, with all fields in their bounds."""
    for record in sight.records:
        sight.count += len(record.raw)
        yield from record.flaws


@observe("all/for-clients", "P-FRAME-1")
def for_clients(sight: Sight) -> Iterable[str]:
    """Every frame is of a type that a server sends."""
    for _, frame in sight.frames():
        spec = REGISTRY.get(frame.get("type", ""))
        if spec is not None and spec.direction == "client_to_server":
            yield f"the server sent {frame['type']}"


@observe("all/one-answer", "P-FRAME-3")
def one_answer(sight: Sight) -> Iterable[str]:
    """No request is answered twice, and each result is of its request's type."""
    for record in sight.records:
        asked = {frame["id"]: frame["type"] for frame in record.sent}
        answers = Counter(frame["id"] for frame in record.frames if frame.get("id") in asked)
        sight.count += len(answers)
        yield from (f"{asked[name]} was answered {count} times" for name, count in answers.items() if count > 1)
        for frame in record.frames:
            if frame.get("id") in asked and frame["type"] != "error":
                spec = REGISTRY.get(asked[frame["id"]])
                if spec is not None and spec.result != frame["type"]:
                    yield f"{asked[frame['id']]} was answered by {frame['type']}"


@observe("all/no-null", "P-FRAME-10")
def no_null(sight: Sight) -> Iterable[str]:
    """Absent fields are left out, not null."""
    for _, frame in sight.frames():
        if frame.get("type") in REGISTRY:
            yield from (f"{frame['type']} has null for {name}" for name in _nulls(frame))


def _nulls(value: object) -> Iterable[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if item is None:
                yield name
            elif name != "arguments":
                yield from _nulls(item)
    elif isinstance(value, list):
        for item in value:
            yield from _nulls(item)


@observe("all/unescaped", "P-FRAME-10")
def unescaped(sight: Sight) -> Iterable[str]:
    """Printable text is not escaped."""
    for record in sight.records:
        for raw in record.raw:
            sight.count += 1
            for escape in re.findall(r"(?<!\\)(?:\\\\)*\\u([0-9a-fA-F]{4})", raw):
                if chr(int(escape, 16)).isprintable():
                    yield f"\\u{escape} is escaped in a frame"


@observe("all/frame-size", "P-SYNC-14")
def frame_size(sight: Sight) -> Iterable[str]:
    """No frame is above max_server_frame_bytes."""
    bound = sight.lab.welcome["limits"]["max_server_frame_bytes"]
    for record in sight.records:
        for raw in record.raw:
            sight.count += 1
            if len(raw.encode("utf-8", "replace")) > bound:
                yield f"a frame of {len(raw)} characters"


@observe("all/error-codes", "P-ERR-1")
def error_codes(sight: Sight) -> Iterable[str]:
    """Error codes are of the table, with retryable as it says there."""
    for _, frame in sight.frames("error"):
        row = ERRORS.get(ErrorCode(frame["code"]))
        if row is None:
            yield f"{frame['code']} is not in the table"
        elif frame["retryable"] != row.retryable and frame["code"] != "unavailable":
            yield f"{frame['code']} says retryable: {frame['retryable']}"


_INSIDE = re.compile(
    r"Traceback|File \"|line \d+, in|\b(?:[A-Z][a-z]+){1,4}(?:Error|Exception)\b|(?:^|[\s'\"(])/(?:[\w.-]+/)+[\w.-]*"
    r"|\b[A-Z]:\\\\|\bat 0x[0-9a-f]{6,}"
)


@observe("all/error-texts", "P-ERR-2")
def error_texts(sight: Sight) -> Iterable[str]:
    """An error has a text for people, without stack traces, paths and names of exceptions."""
    for _, frame in sight.frames("error"):
        if not frame["message"]:
            yield f"{frame['code']} has no text"
        if _INSIDE.search(frame["message"]):
            yield f"{frame['code']}: {frame['message']}"
    for _, frame in sight.frames("run.ended"):
        if "error" in frame["run"] and _INSIDE.search(frame["run"]["error"].get("message", "")):
            yield f"run.ended: {frame['run']['error']['message']}"


@observe("all/seq", "P-SYNC-1")
def seq(sight: Sight) -> Iterable[str]:
    """On each connection the seqs of logged events ascend, from the cursor on."""
    for record in sight.records:
        last = -1
        for frame in record.frames:
            if "time" in frame and "seq" in frame:
                sight.count += 1
                if frame["seq"] <= last:
                    yield f"{frame['type']} has seq {frame['seq']} after {last}"
                last = frame["seq"]
            elif frame.get("type") == "sync.completed":
                if frame["seq"] < last:
                    yield f"sync.completed has seq {frame['seq']} after {last}"
                last = max(last, frame["seq"])


@observe("all/history-id", "P-CONV-13")
def history_id(sight: Sight) -> Iterable[str]:
    """On each connection a conversation shows another history_id only behind a history.changed."""
    for record in sight.records:
        shown: dict[str, str] = {}
        for frame in record.frames:
            if frame.get("type") == "history.changed":
                shown[frame["conversation_id"]] = frame["history_id"]
            for found in _histories(frame):
                sight.count += 1
                name, given = found["conversation_id"], found["history_id"]
                if shown.setdefault(name, given) != given:
                    yield f"{frame['type']} shows another history_id of {name}"
                    shown[name] = given


def _histories(frame: Frame) -> Iterable[Frame]:
    """The conversations in a frame, and a page of history as one."""
    if frame.get("type") == "conversation.history.result":
        yield frame
    if "conversation" in frame:
        yield frame["conversation"]
    yield from frame.get("conversations", ())


@observe("all/same-event", "P-SYNC-1")
def same_event(sight: Sight) -> Iterable[str]:
    """An event of one seq is the same for every device, live and replayed."""
    known: dict[int, str] = {}
    for _, frame in sight.frames():
        if "time" in frame and "seq" in frame:
            text = json.dumps(frame, sort_keys=True)
            if known.setdefault(frame["seq"], text) != text:
                yield f"there are two events of seq {frame['seq']}, one of them {frame['type']}"


@observe("all/created-first", "P-MSG-9")
def created_first(sight: Sight) -> Iterable[str]:
    """message.created comes before any other event about a message, for whoever saw its conversation begin."""
    for begun in _conversations(sight):
        known: set[str] = set()
        for frame in begun:
            name = frame.get("message_id") or frame.get("message", {}).get("message_id")
            if name is None or not frame["type"].startswith("message."):
                continue
            if frame["type"] == "message.created":
                known.add(name)
            elif name not in known:
                yield f"{frame['type']} of a message that was not created"


@observe("all/one-completed", "P-MSG-9")
def one_completed(sight: Sight) -> Iterable[str]:
    """Each message that was created streaming is completed once, and no other."""
    for begun in _conversations(sight):
        streaming = {
            frame["message"]["message_id"]
            for frame in begun
            if frame["type"] == "message.created" and frame["message"]["status"] == "streaming"
        }
        completed = Counter(frame["message"]["message_id"] for frame in begun if frame["type"] == "message.completed")
        ended = {frame["run"]["run_id"] for frame in begun if frame["type"] == "run.ended"}
        for name, count in completed.items():
            if count > 1:
                yield "message.completed came twice for a message"
            if name not in streaming:
                yield "message.completed for a message that was not created streaming"
        for frame in begun:
            left = frame["type"] == "message.created" and frame["message"]["message_id"] in streaming - set(completed)
            if left and frame["message"].get("run_id") in ended:
                yield "the run of a streaming message ended without its message.completed"


@observe("all/deltas", "P-SYNC-10", needs=("streaming",))
def deltas(sight: Sight) -> Iterable[str]:
    """The deltas of a message count from 0 without a hole, for whoever saw it begin."""
    for begun in _conversations(sight):
        own: dict[str, Any] = {}
        for frame in begun:
            if frame["type"] == "message.created" and frame["message"]["status"] == "streaming":
                own[frame["message"]["message_id"]] = frame["message"].get("index", -1)
                if frame["message"].get("index") is None:
                    yield "a streaming message has no index"
            elif frame["type"] == "message.delta" and frame["message_id"] in own:
                if frame["index"] != own[frame["message_id"]] + 1:
                    yield f"delta {frame['index']} follows {own[frame['message_id']]}"
                own[frame["message_id"]] = frame.get("last_index", frame["index"])
            elif frame["type"] == "message.replaced" and frame["message_id"] in own:
                if frame["index"] <= own[frame["message_id"]]:
                    yield f"message.replaced {frame['index']} follows {own[frame['message_id']]}"
                own[frame["message_id"]] = frame["index"]


@observe("all/text-adds-up", "P-SYNC-10", needs=("streaming",))
def text_adds_up(sight: Sight) -> Iterable[str]:
    """The text that was streamed is what is completed, or its beginning."""
    for begun in _conversations(sight):
        texts: dict[str, str] = {}
        for frame in begun:
            if frame["type"] == "message.created" and frame["message"]["status"] == "streaming":
                texts[frame["message"]["message_id"]] = frame["message"]["text"]
            elif frame["type"] == "message.delta" and frame["message_id"] in texts:
                texts[frame["message_id"]] += frame["text"]
            elif frame["type"] == "message.replaced":
                texts[frame["message_id"]] = frame["text"]
            elif frame["type"] == "message.completed":
                shown = texts.pop(frame["message"]["message_id"], "")
                if not frame["message"]["text"].startswith(shown) and not frame["message"]["text_truncated"]:
                    yield "a completed text does not begin with what was streamed of it"


@observe("all/one-end", "P-RUN-1")
def one_end(sight: Sight) -> Iterable[str]:
    """Each run ends once, in a final status."""
    for begun in _conversations(sight):
        ends = Counter(frame["run"]["run_id"] for frame in begun if frame["type"] == "run.ended")
        yield from ("a run ended twice" for count in ends.values() if count > 1)
        for frame in begun:
            if frame["type"] == "run.ended":
                if frame["run"]["status"] not in ("completed", "failed", "cancelled"):
                    yield f"run.ended with the status {frame['run']['status']}"
                if "ended_at" not in frame["run"]:
                    yield "run.ended without ended_at"


_AFTERWARDS = ("message.updated", "attachment.created", "attachment.expired", "conversation.updated", "history.changed")


@observe("all/nothing-after-the-end", "P-RUN-4")
def after_the_end(sight: Sight) -> Iterable[str]:
    """Nothing concerns a run after its end, but what may."""
    for begun in _conversations(sight):
        ended: set[str] = set()
        for frame in begun:
            run_id = _run_of(frame)
            if run_id in ended and frame["type"] not in _AFTERWARDS and frame["type"] != "run.ended":
                yield f"{frame['type']} after run.ended"
            if frame["type"] == "run.ended":
                ended.add(frame["run"]["run_id"])


def _run_of(frame: Frame) -> str | None:
    for name in ("run", "message", "tool_call", "approval", "clarification"):
        if name in frame:
            found: str | None = frame[name].get("run_id")
            return found
    return frame.get("run_id")


_OPENED = {
    "tool.started": ("tool_call", "tool_call_id"),
    "approval.requested": ("approval", "approval_id"),
    "clarification.requested": ("clarification", "clarification_id"),
}
_CLOSED = {
    "tool.completed": ("tool_call", "tool_call_id"),
    "approval.resolved": ("approval", "approval_id"),
    "clarification.resolved": ("clarification", "clarification_id"),
}


@observe("all/closed-before-the-end", "P-RUN-3", needs=(SCRIPTED,))
def closed_before_the_end(sight: Sight) -> Iterable[str]:
    """Tool calls, prompts and streaming messages are closed before their run ends."""
    for begun in _conversations(sight):
        open_ones: dict[str, dict[str, str]] = defaultdict(dict)
        for frame in begun:
            run_id = _run_of(frame) or ""
            if frame["type"] in _OPENED:
                kind, name = _OPENED[frame["type"]]
                open_ones[run_id][frame[kind][name]] = kind
            elif frame["type"] in _CLOSED:
                kind, name = _CLOSED[frame["type"]]
                open_ones[run_id].pop(frame[kind][name], None)
            elif frame["type"] == "run.ended":
                yield from (f"a {kind} is open at its run's end" for kind in open_ones[run_id].values())


@observe("all/one-tool-end", "P-TOOL-1", needs=(SCRIPTED, "tools"))
def one_tool_end(sight: Sight) -> Iterable[str]:
    """A tool call is completed once, and only when it was started."""
    for begun in _conversations(sight):
        started = {frame["tool_call"]["tool_call_id"] for frame in begun if frame["type"] == "tool.started"}
        ends = Counter(frame["tool_call"]["tool_call_id"] for frame in begun if frame["type"] == "tool.completed")
        sight.count += len(ends)
        for name, count in ends.items():
            if count > 1:
                yield "a tool call was completed twice"
            if name not in started:
                yield "a tool call was completed that was never started"


@observe("all/approval-choices", "P-APPR-4", needs=(SCRIPTED, "approvals"))
def approval_choices(sight: Sight) -> Iterable[str]:
    """`session` and `always` are offered only with a pattern, and nothing but a refusal for what was cut."""
    for _, frame in sight.frames("approval.requested"):
        approval = frame["approval"]
        if {"session", "always"} & set(approval["choices"]) and not approval.get("pattern"):
            yield "a pattern is to be approved, and none is shown"
        if approval["command_truncated"] and set(approval["choices"]) - {"deny"}:
            yield "a command that was cut can be approved"


@observe("all/batches", "P-SYNC-13")
def only_when_offered(sight: Sight) -> Iterable[str]:
    """A batch comes only to who offered it, and holds events only."""
    for record in sight.records:
        sight.count += 1
        if record.batches and not record.offered_batch:
            yield "a batch came to a client that has not offered it"
        for frame in record.frames:
            if frame.get("type") == "batch":
                for event in frame["events"]:
                    spec = REGISTRY.get(event.get("type", ""))
                    if spec is not None and spec.kind not in ("logged_event", "transient_event"):
                        yield f"a batch holds {event['type']}"


@observe("all/origin", "P-MSG-12")
def origin(sight: Sight) -> Iterable[str]:
    """A message with the role user and the origin chat is what a client sent, word for word."""
    for _, frame in sight.frames("message.created"):
        message = frame["message"]
        mine = frame["conversation_id"] in sight.lab.conversations
        if mine and message["role"] == "user" and message["origin"] == "chat" and "client_message_id" in message:
            if message["text"] not in sight.lab.texts and not message["text_truncated"]:
                yield "the owner is said to have written what was never sent"
        elif mine and message["role"] == "user":
            yield "a message that no client sent has the role user"


@observe("all/nothing-after-delete", "P-CONV-7", needs=("delete",))
def nothing_after_delete(sight: Sight) -> Iterable[str]:
    """Behind conversation.deleted nothing of that conversation comes."""
    for record in sight.records:
        deleted: set[str] = set()
        for frame in sight.live(record):
            if frame.get("conversation_id") in deleted and "id" not in frame:
                yield f"{frame['type']} behind conversation.deleted"
            if frame.get("type") == "conversation.deleted":
                sight.count += 1
                deleted.add(frame["conversation_id"])


def _conversations(sight: Sight) -> Iterable[list[Frame]]:
    """The events of each conversation that a connection saw from its beginning."""
    for record in sight.records:
        found: dict[str, list[Frame]] = {}
        for frame in sight.live(record):
            if frame.get("type") == "conversation.created":
                found[frame["conversation_id"]] = []
            elif frame.get("conversation_id") in found and "id" not in frame:
                found[frame["conversation_id"]].append(frame)
        for events in found.values():
            sight.count += len(events)
            yield events
