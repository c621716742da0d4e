"""Rows of Hermes's session database in, the conversation's history out.

A row is not a message: a compaction copies the rows that it keeps, `/retry` writes a session anew, `/undo` leaves rows
behind, and Hermes writes rows of its own that the owner never said or was told. `history` groups the copies of a row,
shows the oldest of a group and asks the newest whether it still counts. It reads no database and knows no time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from attrs import define, evolve, field, frozen

from .drafts import clean_text, whole_characters
from .typed import restore, without_context

Row: TypeAlias = Mapping[str, Any]
Role: TypeAlias = Literal["user", "assistant", "tool", "notice"]
Mark: TypeAlias = Literal["failed", "interrupted"]

# 0.19 copies the rows of the turn that a compaction interrupts with new times, a microsecond apart, behind the summary.
SUMMARY_BATCH_SECONDS = 0.01


@frozen
class RowToolCall:
    """A tool call that an assistant row asked for."""

    call_id: str
    name: str
    arguments_json: str


@frozen
class RowToolResult:
    """What a tool row answered to a tool call."""

    call_id: str
    name: str
    text: str


@frozen
class HistoryRow:
    """One thing that was said, called or answered. `key` names it for ever; `also` are other names of the same thing.

    A `notice` with a mark says how a turn ended, and is nobody's message.
    """

    key: str
    also: tuple[str, ...]
    role: Role
    text: str
    created_at_ms: int
    message_id: str | None = None
    tool_calls: tuple[RowToolCall, ...] = ()
    tool_result: RowToolResult | None = None
    mark: Mark | None = None
    steer: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """All names of this row."""
        return (self.key, *self.also)


def history(rows: Iterable[Row]) -> list[HistoryRow]:
    """The history of one chat from all rows of all its sessions (inactive ones too), in the order of their ids."""
    shown: list[HistoryRow] = []
    used: set[str] = set()
    go_on = False
    for group in _group(rows):
        if not _counts(group.rows[-1]):
            continue
        row = group.rows[0]
        if _is_go_on_note(row):
            go_on = True
            continue
        read = _read(row, _unique(group.keys, used), shown[-1] if shown else None)
        if read is None:
            continue
        used.update(read.keys)
        if go_on and _continues(shown, read):
            shown[-1] = _joined(shown[-1], read)
        else:
            shown.append(read)
        go_on = False
    return shown


# -- groups ------------------------------------------------------------------------------------------------------


@define(eq=False)
class _Group:
    rows: list[Row] = field(factory=list)
    keys: list[str] = field(factory=list)


def _group(rows: Iterable[Row]) -> list[_Group]:
    """The copies of each row together, in the order of the oldest."""
    groups: list[_Group] = []
    by_name: dict[str, _Group] = {}
    by_call: dict[str, _Group] = {}
    by_content: dict[tuple[str, str], _Group] = {}
    summary_at: float | None = None
    for row in rows:
        if row.get("role") not in ("user", "assistant", "tool"):
            continue
        names, calls, content = _names(row), _call_names(row), (str(row["role"]), _content(row).strip())
        summary = bool(row.get("_compressed_summary")) or content[1].startswith(_SUMMARY)
        at = _time(row)
        if summary:
            summary_at = at
        batch = not summary and summary_at is not None and 0 <= at - summary_at < SUMMARY_BATCH_SECONDS
        group = next((by_name[name] for name in names if name in by_name and _agree(by_name[name], row)), None)
        if group is None and summary_at is not None:
            group = next((by_call[n] for n in calls if n in by_call and _is_copy(by_call[n], row, batch)), None)
        if group is None and batch:
            group = by_content.get(content)
        if group is None:
            group = _Group()
            groups.append(group)
            by_content[content] = group
        group.rows.append(row)
        group.keys += [name for name in (*names, *calls) if name not in group.keys]
        for name in names:
            by_name.setdefault(name, group)
        by_call.update(dict.fromkeys(calls, group))
    return groups


def _names(row: Row) -> list[str]:
    """What names a row and its copies, the most certain first: that is the key."""
    uid = row.get("message_uid")
    time_name = f"t:{row['role']}:{row.get('timestamp')!r}"
    return [f"u:{uid}", time_name] if uid else [time_name]


def _call_names(row: Row) -> list[str]:
    """The tool calls a row asks for or answers. Some models count them from 0 in each reply, so these prove little."""
    if row["role"] == "tool":
        return [f"r:{row['tool_call_id']}"] if row.get("tool_call_id") else []
    calls = _tool_calls(row) if row["role"] == "assistant" else ()
    return list(dict.fromkeys(f"c:{call.call_id}" for call in calls if call.call_id))


def _agree(group: _Group, row: Row) -> bool:
    """Two rows of one moment are no copies if both say who they are and differ, or both stand in one session."""
    first = group.rows[0]
    if any(first.get(mark) and row.get(mark) and first[mark] != row[mark] for mark in _IDENTITIES):
        return False
    # A copy takes the place of a row, or goes into another session.
    beside = first.get("session_id") == row.get("session_id") and first.get("active", True) and row.get("active", True)
    return not beside or _content(first).strip() == _content(row).strip()


def _is_copy(group: _Group, row: Row, batch: bool) -> bool:
    """Whether a row with the call of another is its copy: written with a compaction, or equal to it after one."""
    first = group.rows[0]
    same = _content(first).strip() == _content(row).strip() and _tool_calls(first) == _tool_calls(row)
    return _agree(group, row) and (batch or same)


_IDENTITIES = ("message_uid", "tool_call_id")


def _counts(newest: Row) -> bool:
    """Undone and replaced rows are neither active nor compacted."""
    return bool(newest.get("active", True)) or bool(newest.get("compacted"))


def _unique(keys: Sequence[str], used: set[str]) -> list[str]:
    """The keys without those of another row: two rows of one moment share their time."""
    free = [key for key in keys if key not in used]
    if free:
        return free
    number = 2
    while f"{keys[0]}+{number}" in used:
        number += 1
    return [f"{keys[0]}+{number}"]


# -- one row -----------------------------------------------------------------------------------------------------

_SUMMARY = "[CONTEXT COMPACTION"
_MERGED_SUMMARY = "[PRIOR CONTEXT"
# Hermes asks the model to go on after a stream that broke, and shows both parts as one message.
_GO_ON = (
    "[System: The previous response was cut off",
    "[System: Your previous response was truncated",
    "[System: Your previous tool call",
)
# What Hermes writes into user rows by itself. Owners' own words are told by their message id where the line has one.
_NOTES = (
    *_GO_ON,
    _SUMMARY,
    _MERGED_SUMMARY,
    "[CONTEXT SUMMARY]:",
    "[Your active task list was preserved across context compression]",
    "[System: Your previous ",
    "[System: the previous turn ended UNFINISHED",
    "[System: Continue now.",
    "[System: You edited code in this turn",
    "[System note: The previous turn was interrupted",
    "[System note: Your previous turn",
    "[System note: your previous turn",
    "[System note: A new message",
    "[IMPORTANT: Background process",
    "[IMPORTANT: You are running as a scheduled cron",
    "[IMPORTANT: MCP servers have been reloaded",
    "[Continuing toward your standing goal]",
    "[ASYNC DELEGATION",
    "[Cron delivery: ",
    "[OUT-OF-BAND USER MESSAGE",
    "[Orphan recovery",
    "You've reached the maximum number of tool-calling iterations allowed. Please provide a final response",
)
_STEER = re.compile(r"\[OUT-OF-BAND USER MESSAGE[^\n]*\]\n(.*)\n\[/OUT-OF-BAND USER MESSAGE\]", re.DOTALL)
_REDIRECT = "Gateway message origin (JSON"
_MODEL_NOTE = re.compile(r"\[Note: model was just switched [^\n]*\]\s*")


def _read(row: Row, keys: Sequence[str], before: HistoryRow | None) -> HistoryRow | None:
    """What a row shows; None for nothing."""
    if row.get("display_kind") in ("hidden", "internal_notification"):
        return None
    base = HistoryRow(keys[0], tuple(keys[1:]), "notice", "", round(_time(row) * 1000), _message_id(row))
    content = whole_characters(_content(row))
    if row["role"] == "tool":
        call_id, name = str(row.get("tool_call_id") or ""), str(row.get("tool_name") or "")
        return evolve(base, role="tool", tool_result=RowToolResult(call_id, name, content))
    if row["role"] == "user":
        return _read_user(row, base, content)
    return _read_assistant(row, base, content, before)


def _read_user(row: Row, base: HistoryRow, content: str) -> HistoryRow | None:
    steer = row.get("display_kind") == "steer"
    owners = bool(base.message_id) and not row.get("_compressed_summary")
    text = content.strip()
    if not text or (text.startswith(_NOTES) and not steer and not owners):
        return None
    message_id = base.message_id
    if steer and (wrapped := _STEER.fullmatch(text)):
        text = wrapped[1]
    if text.startswith(_REDIRECT):
        text, told = _unwrap_redirect(text)
        message_id = message_id or told
    text = without_context(_MODEL_NOTE.sub("", text, count=1) if _MODEL_NOTE.match(text) else text)
    if not text:
        return None
    return evolve(base, role="user", text=restore(text), message_id=message_id, steer=steer)


def _read_assistant(row: Row, base: HistoryRow, content: str, before: HistoryRow | None) -> HistoryRow | None:
    text, calls = content.strip(), _tool_calls(row)
    if text.startswith((_SUMMARY, _MERGED_SUMMARY)) or row.get("_compressed_summary"):
        return None
    if row.get("display_kind") == "failed_turn":
        return evolve(base, text=clean_text(content), mark="failed")
    if not calls and text == "(empty)":
        return evolve(base, mark="failed")
    if not calls and _is_interrupt_marker(row, text):
        return evolve(base, mark="interrupted")
    if not text and not calls:
        return None
    mark: Mark | None = "interrupted" if not calls and _is_partial(row, before) else None
    return evolve(base, role="assistant", text=clean_text(content), tool_calls=calls, mark=mark)


def _is_interrupt_marker(row: Row, text: str) -> bool:
    return not row.get("finish_reason") and (
        text == "Operation interrupted." or text.startswith("Operation interrupted: waiting for model response")
    )


def _is_partial(row: Row, before: HistoryRow | None) -> bool:
    """Whether the text was cut by an interruption. 0.22 says so; 0.19 only leaves the reason to finish out."""
    about = row.get("display_metadata")
    if isinstance(about, str):
        about = _json(about)
    if isinstance(about, Mapping) and about.get("interrupted"):
        return True
    if row.get("message_uid") or row.get("finish_reason") or "finish_reason" not in row:
        return False
    # What another process sent into the chat has no reason either, but answers nothing.
    return before is not None and before.role in ("user", "tool")


def _is_go_on_note(row: Row) -> bool:
    return row["role"] == "user" and _content(row).lstrip().startswith(_GO_ON) and not _message_id(row)


def _continues(shown: Sequence[HistoryRow], row: HistoryRow) -> bool:
    return bool(shown) and shown[-1].role == row.role == "assistant" and not shown[-1].tool_calls


def _joined(first: HistoryRow, rest: HistoryRow) -> HistoryRow:
    """One message whose stream broke: Hermes keeps the part, asks the model to go on, and streams on in the message."""
    return evolve(
        first,
        also=(*first.also, *rest.keys),
        text=first.text + rest.text,
        tool_calls=rest.tool_calls,
        mark=rest.mark,
    )


def _unwrap_redirect(text: str) -> tuple[str, str | None]:
    """0.22 wraps what the owner said into a running turn: origin, a JSON object, advice, a blank line, the words."""
    head, blank, words = text.partition("\n\n")
    if not blank:
        return text, None
    origin = next((_json(line) for line in head.split("\n") if line.startswith("{")), None)
    message_id = origin.get("message_id") if isinstance(origin, Mapping) else None
    return words, message_id if isinstance(message_id, str) and message_id else None


def _content(row: Row) -> str:
    content = row.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        parts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def _tool_calls(row: Row) -> tuple[RowToolCall, ...]:
    calls = row.get("tool_calls")
    if isinstance(calls, str):
        calls = _json(calls)
    if not isinstance(calls, Sequence):
        return ()
    return tuple(_tool_call(call) for call in calls if isinstance(call, Mapping))


def _tool_call(call: Mapping[str, Any]) -> RowToolCall:
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments if arguments is not None else {}, ensure_ascii=False, default=str)
    return RowToolCall(str(call.get("id") or ""), str(function.get("name") or ""), whole_characters(arguments))


def _message_id(row: Row) -> str | None:
    message_id = row.get("platform_message_id")
    return message_id if isinstance(message_id, str) and message_id else None


def _time(row: Row) -> float:
    at = row.get("timestamp")
    return float(at) if isinstance(at, int | float) and abs(at) < 1e12 else 0.0


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
