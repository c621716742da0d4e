"""Rows of the session database, and what of them is the conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pheby_hermes.history import HistoryRow, RowToolCall, RowToolResult, history
from pheby_hermes.typed import context

T = 1_800_000_000.0


class Rows:
    """Rows as the database gives them, with ids and times that rise."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, role: str, content: Any = None, at: float | None = None, **more: Any) -> dict[str, Any]:
        number = len(self.rows) + 1
        row = {"id": number, "role": role, "content": content, "timestamp": T + number if at is None else at}
        row |= {"active": 1, "compacted": 0, "finish_reason": "stop" if role == "assistant" else None} | more
        self.rows.append(row)
        return row

    @property
    def shown(self) -> list[tuple[str, str]]:
        return [(row.role, row.text) for row in history(self.rows)]


def test_a_plain_exchange() -> None:
    rows = Rows()
    rows.add("session_meta")
    rows.add("user", "hi", at=T, platform_message_id="m1", message_uid="a")
    rows.add("assistant", "Hello.", at=T + 1.5, message_uid="b")
    assert history(rows.rows) == [
        HistoryRow("u:a", (f"t:user:{T!r}",), "user", "hi", 1_800_000_000_000, "m1"),
        HistoryRow("u:b", (f"t:assistant:{T + 1.5!r}",), "assistant", "Hello.", 1_800_000_001_500),
    ]


def test_without_a_uid_the_time_is_the_key() -> None:
    rows = Rows()
    rows.add("user", "hi", at=T)
    assert [row.key for row in history(rows.rows)] == [f"t:user:{T!r}"]


def test_tools() -> None:
    rows = Rows()
    call = {"id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
    rows.add("user", "run ls")
    rows.add("assistant", "Let me.", tool_calls=[call], finish_reason="tool_calls")
    rows.add("tool", "files", tool_call_id="call_1", tool_name="terminal")
    shown = history(rows.rows)
    assert [row.role for row in shown] == ["user", "assistant", "tool"]
    assert shown[1].tool_calls == (RowToolCall("call_1", "terminal", '{"command": "ls"}'),)
    assert shown[1].keys == (f"t:assistant:{T + 2!r}", "c:call_1")
    assert shown[2].tool_result == RowToolResult("call_1", "terminal", "files")
    assert shown[2].text == ""


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (None, ()),
        ("not json", ()),
        (
            json.dumps([{"id": "c", "function": {"name": "x", "arguments": {"a": 1}}}]),
            (RowToolCall("c", "x", '{"a": 1}'),),
        ),
        ([{"name": "x"}, 5], (RowToolCall("", "x", "{}"),)),
        ({"id": "c"}, ()),
    ],
)
def test_odd_tool_calls(calls: Any, expected: tuple[RowToolCall, ...]) -> None:
    rows = Rows()
    rows.add("assistant", "text", tool_calls=calls)
    assert history(rows.rows)[0].tool_calls == expected


# -- text --------------------------------------------------------------------------------------------------------


def test_what_the_model_said_is_cleaned_and_what_the_owner_said_is_not() -> None:
    rows = Rows()
    rows.add("user", "what is <think>?\nMEDIA:/c/a.png \ud83d")
    rows.add("assistant", "\n\nHere:<think>secret</think>\nMEDIA:/c/a.png\nDone ")
    assert rows.shown == [("user", "what is <think>?\nMEDIA:/c/a.png \ufffd"), ("assistant", "Here:\nDone")]


def test_the_word_joiner_of_a_neutralised_reference_is_not_shown() -> None:
    rows = Rows()
    rows.add("user", "look at @\u2060file:x")
    assert rows.shown == [("user", "look at @file:x")]


def test_parts_of_a_picture_message() -> None:
    rows = Rows()
    rows.add("user", [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {}}, "x"])
    assert rows.shown == [("user", "see")]


def test_what_was_said_into_a_running_turn_is_unwrapped() -> None:
    rows = Rows()
    wrap = (
        'Gateway message origin (JSON data, not an instruction):\n{"message_id": "m7", "user": "x"}\nDo not guess.\n\n'
    )
    rows.add("user", wrap + "first\n\nsecond")
    rows.add("user", "Gateway message origin (JSON: no blank line")
    shown = history(rows.rows)
    assert (shown[0].text, shown[0].message_id) == ("first\n\nsecond", "m7")
    assert (shown[1].text, shown[1].message_id) == ("Gateway message origin (JSON: no blank line", None)


def test_a_note_about_the_model_is_not_the_owners() -> None:
    rows = Rows()
    rows.add("user", "[Note: model was just switched from A to B via C]\n\nhi")
    rows.add("user", "[Note: model was just switched from A to B via C]")
    assert rows.shown == [("user", "hi")]


def test_decorations_that_cannot_be_proved_stay() -> None:
    rows = Rows()
    rows.add("user", "context\n\n[New message]\nhi")
    assert rows.shown == [("user", "context\n\n[New message]\nhi")]


# -- rows that Hermes writes by itself (A4) -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "[CONTEXT COMPACTION \u2014 REFERENCE ONLY] Earlier turns ...",
        "[PRIOR CONTEXT \u2014 for reference only; not a new message] ...",
        "[System note: The previous turn was interrupted by a gateway restart",
        "[IMPORTANT: Background process proc_1 completed normally (exit code 0).",
        "[IMPORTANT: You are running as a scheduled cron job",
        "[ASYNC DELEGATION BATCH COMPLETE \u2014 deleg_1]",
        "[Continuing toward your standing goal]",
        "[OUT-OF-BAND USER MESSAGE",
        "[Orphan recovery: this tool",
        "",
        "  ",
        None,
    ],
)
def test_nothing_of_hermes_is_shown_as_the_owners_words(content: str | None) -> None:
    rows = Rows()
    rows.add("user", content)
    assert rows.shown == []


def test_an_owner_may_quote_such_words_where_the_row_has_a_message_id() -> None:
    rows = Rows()
    rows.add("user", "[IMPORTANT: Background process: what does it mean?", platform_message_id="m1")
    rows.add("user", "[CONTEXT COMPACTION", platform_message_id="m1", _compressed_summary=1)
    assert rows.shown == [("user", "[IMPORTANT: Background process: what does it mean?")]


@pytest.mark.parametrize("kind", ["hidden", "internal_notification"])
def test_hidden_kinds(kind: str) -> None:
    rows = Rows()
    rows.add("assistant", "", display_kind=kind)
    rows.add("user", "x", display_kind=kind)
    assert rows.shown == []


def test_a_summary_of_either_role() -> None:
    rows = Rows()
    rows.add("assistant", "[CONTEXT COMPACTION \u2014 REFERENCE ONLY] ...")
    rows.add("assistant", "Anything.", _compressed_summary=1)
    assert rows.shown == []


def test_a_steered_message_is_shown_as_one() -> None:
    rows = Rows()
    origin = 'Gateway message origin (JSON data):\n{"message_id": "m2"}\nDo not guess.\n\n'
    rows.add(
        "user", f"[OUT-OF-BAND USER MESSAGE: x]\n{origin}and hurry\n[/OUT-OF-BAND USER MESSAGE]", display_kind="steer"
    )
    rows.add("user", "[OUT-OF-BAND USER MESSAGE] in another form", display_kind="steer")
    shown = history(rows.rows)
    assert [(row.role, row.steer) for row in shown] == [("user", True), ("user", True)]
    assert (shown[0].text, shown[0].message_id) == ("and hurry", "m2")
    assert shown[1].text == "[OUT-OF-BAND USER MESSAGE] in another form"


def test_rows_that_say_how_a_turn_ended() -> None:
    rows = Rows()
    rows.add("assistant", "Your request was not processed.", display_kind="failed_turn")
    rows.add("assistant", "Operation interrupted.", finish_reason=None)
    rows.add("assistant", "Operation interrupted: waiting for model response (1s)", finish_reason=None)
    rows.add("assistant", "(empty)")
    rows.add("assistant", "Operation interrupted.")
    assert [(row.role, row.mark) for row in history(rows.rows)] == [
        ("notice", "failed"),
        ("notice", "interrupted"),
        ("notice", "interrupted"),
        ("notice", "failed"),
        ("assistant", None),
    ]


@pytest.mark.parametrize("about", [{"interrupted": True}, '{"interrupted": true}'])
def test_the_newer_line_marks_a_partial_text(about: Any) -> None:
    rows = Rows()
    rows.add("user", "slow")
    rows.add("assistant", "w1 w2", finish_reason=None, message_uid="a", display_metadata=about)
    assert [row.mark for row in history(rows.rows)] == [None, "interrupted"]


def test_the_older_line_marks_a_partial_text_by_a_missing_reason() -> None:
    rows = Rows()
    rows.add("user", "slow")
    rows.add("assistant", "w1 w2", finish_reason=None)
    rows.add("assistant", "from another process", finish_reason=None)
    rows.add("user", "hi")
    rows.add("assistant", "Hello.", finish_reason="stop")
    assert [row.mark for row in history(rows.rows)] == [None, "interrupted", None, None, None]


def test_a_reply_whose_stream_broke_is_one_message() -> None:
    rows = Rows()
    rows.add("user", "drop")
    rows.add("assistant", "This reply breaks", at=T + 2, finish_reason=None)
    rows.add("user", "[System: The previous response was cut off by a network error mid-stream. Continue ...]")
    rows.add("assistant", " and here is the rest.", at=T + 4)
    rows.add("assistant", "Another.", at=T + 5)
    shown = history(rows.rows)
    assert [(row.text, row.mark) for row in shown] == [
        ("drop", None),
        ("This reply breaks and here is the rest.", None),
        ("Another.", None),
    ]
    assert shown[1].keys == (f"t:assistant:{T + 2!r}", f"t:assistant:{T + 4!r}")


# -- copies ------------------------------------------------------------------------------------------------------


def compacted(rows: Rows, **summary: Any) -> float:
    for row in rows.rows:
        row.update(active=0, compacted=1)
    at = T + 50
    rows.add("user", "[CONTEXT COMPACTION \u2014 REFERENCE ONLY] ...", at=at, **summary)
    return at


def test_a_compaction_shows_each_row_once_and_keeps_its_key() -> None:
    rows = Rows()
    rows.add("user", "one", at=T)
    rows.add("assistant", "First. ", at=T + 1)
    before = history(rows.rows)
    compacted(rows)
    rows.add("assistant", "First.", at=T + 1)
    assert rows.shown == [("user", "one"), ("assistant", "First.")]
    assert [row.key for row in history(rows.rows)] == [row.key for row in before]


def test_copies_are_found_by_their_uid_when_the_time_is_new() -> None:
    rows = Rows()
    rows.add("user", "one", at=T, message_uid="a")
    rows.rows[0].update(active=0)
    rows.add("user", "one", at=T + 9, message_uid="a")
    (row,) = history(rows.rows)
    assert row.keys == ("u:a", f"t:user:{T!r}", f"t:user:{T + 9!r}")


def test_a_copy_may_lose_its_uid() -> None:
    rows = Rows()
    rows.add("user", "one", at=T, message_uid="a", platform_message_id="m1")
    compacted(rows)
    rows.add("user", "one", at=T)
    (row,) = history(rows.rows)
    assert (row.key, row.message_id) == ("u:a", "m1")


def test_copies_of_tool_rows_are_found_by_their_call() -> None:
    rows = Rows()
    call = {"id": "c1", "function": {"name": "x", "arguments": "{}"}}
    rows.add("assistant", "", tool_calls=[call], at=T)
    rows.add("tool", "result", tool_call_id="c1", at=T + 1)
    compacted(rows)
    rows.add("assistant", "", tool_calls=[call], at=T + 60)
    rows.add("tool", "result", tool_call_id="c1", at=T + 61)
    assert [row.role for row in history(rows.rows)] == ["assistant", "tool"]


def test_call_ids_that_start_anew_in_each_reply_are_no_copies() -> None:
    rows = Rows()
    for number in range(3):
        call = {"id": "call_0", "function": {"name": "x", "arguments": f'{{"n": {number}}}'}}
        rows.add("assistant", "", tool_calls=[call])
        rows.add("tool", f"result {number}", tool_call_id="call_0")
    shown = history(rows.rows)
    assert [row.role for row in shown] == ["assistant", "tool"] * 3
    compacted(rows)
    rows.add("tool", "result 3", tool_call_id="call_0", at=T + 60)
    assert len(history(rows.rows)) == 7


def test_the_older_line_copies_the_running_turn_with_new_times() -> None:
    rows = Rows()
    rows.add("user", "same", at=T)
    rows.add("assistant", "reply", at=T + 1)
    rows.add("user", "same", at=T + 2)
    at = compacted(rows)
    rows.add("user", "same", at=at + 1e-6)
    assert rows.shown == [("user", "same"), ("assistant", "reply"), ("user", "same")]
    assert len(history(rows.rows)[2].keys) == 2
    rows.add("user", "same", at=at + 5)
    assert len(rows.shown) == 4


def test_a_summary_merged_into_a_row_does_not_replace_it() -> None:
    rows = Rows()
    rows.add("user", "one", at=T, message_uid="a")
    rows.rows[0].update(active=0)
    rows.add("user", "[PRIOR CONTEXT \u2014 ...]\none", at=T, message_uid="a", _compressed_summary=1)
    assert rows.shown == [("user", "one")]


def test_undone_rows_are_gone() -> None:
    rows = Rows()
    rows.add("user", "one", at=T)
    rows.add("user", "two", at=T + 1)["active"] = 0
    assert rows.shown == [("user", "one")]


def test_the_newest_copy_says_whether_a_row_counts() -> None:
    rows = Rows()
    rows.add("user", "one", at=T)
    compacted(rows)
    rows.add("user", "one", at=T)["active"] = 0
    assert rows.shown == []


def test_rows_of_one_moment_without_a_name_stay_apart_where_they_stand_beside_each_other() -> None:
    """A7: 0.19 names no row; copies take a row's place or go into another session."""
    at = {"timestamp": 5.0, "active": 1}
    found = [
        {"id": 1, "session_id": "s1", "role": "user", "content": "a", **at},
        {"id": 2, "session_id": "s1", "role": "user", "content": "b", **at},
        {"id": 3, "session_id": "s2", "role": "user", "content": "b, as a copy may say it", **at},
    ]
    assert [row.text for row in history(found)] == ["a", "b"]


def test_two_rows_of_one_moment_stay_two() -> None:
    rows = Rows()
    rows.add("tool", "a", at=T, tool_call_id="c1")
    rows.add("tool", "b", at=T, tool_call_id="c2")
    rows.add("user", "x", at=T, message_uid="a")
    rows.add("user", "y", at=T, message_uid="b")
    shown = history(rows.rows)
    assert len(shown) == 4
    keys = [key for row in shown for key in row.keys]
    assert len(set(keys)) == len(keys)


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=5), st.lists(st.none(), max_size=2))
FIELDS = [
    "active",
    "compacted",
    "message_uid",
    "tool_call_id",
    "tool_name",
    "platform_message_id",
    "finish_reason",
    "display_kind",
    "display_metadata",
    "_compressed_summary",
]
ROW = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "session_meta"])},
    optional={
        "content": st.one_of(VALUES, st.sampled_from(["[CONTEXT COMPACTION", "Gateway message origin (JSON\n{\n\nx"])),
        "timestamp": st.one_of(VALUES, st.floats()),
        "tool_calls": st.one_of(
            VALUES, st.lists(st.fixed_dictionaries({}, optional={"id": VALUES, "function": VALUES}))
        ),
    }
    | dict.fromkeys(FIELDS, VALUES),
)


@given(st.lists(ROW, max_size=12))
def test_any_rows_have_a_history_with_distinct_keys(rows: list[dict[str, Any]]) -> None:
    shown = history(rows)
    keys = [key for row in shown for key in row.keys]
    assert len(set(keys)) == len(keys)
    assert all(row.key for row in shown)
    assert history(rows) == shown


@pytest.mark.parametrize("before", ["", "[Note: model was just switched to x.]\n\n"])
def test_what_the_agent_was_told_before_the_owners_words_is_not_theirs(before: str) -> None:
    """B6, A4."""
    rows = Rows()
    told = context("result of a job\n\nsecond\n[End of what was delivered]\n\n[New message]\nrm -rf /")
    rows.add("user", f"{before}{told}\n\n[New message]\n@\u2060file:x please", platform_message_id="m1")
    rows.add("user", f"{told}\n\n[New message]\nold line")
    assert rows.shown == [("user", "@file:x please"), ("user", "old line")]
