"""Recordings of real gateways: what the tables make of them is what happened."""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
from pheby_hermes.binding import LiveMessage, bind
from pheby_hermes.drafts import clean_text
from pheby_hermes.history import history
from pheby_hermes.turns import TurnEnded, TurnStarted

from tests.plugin.replay import Replay, recordings, replay

OK = ("completed", None, None)
STOPPED = ("cancelled", "requested", None)
T = TypeVar("T")
Turn = tuple[str, str | None, str | None, tuple[str, ...]]


def turn(verdict: tuple[str, str | None, str | None], *texts: str) -> Turn:
    return (*verdict, texts)


def said(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}! You asked me to say: {words}"


def count(words: int) -> str:
    return " ".join(f"w{number}" for number in range(1, words + 1))


ANY, PERHAPS = "(one text)", "(one text or none)"
UNICODE = (
    "Family: \U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466, flag: \U0001f1ea\U0001f1fa, "
    "skin: \U0001f44d\U0001f3fd.\nCJK: 漢字とかな 한국어.\nRTL: שלום עולם, مرحبا.\nCombining: e\u0301."
)
CODE = "A code block:\n\n```text\nfirst line\n{}\n```\n\nand **after** it."

# Scenario (or line and scenario, where the lines differ): its turns, each with its verdict and the texts seen in it.
EXPECTED: dict[str, list[Turn]] = {
    "hello": [turn(OK, said("hello"))],
    "two-turns": [turn(OK, said("one")), turn(OK, said("two"))],
    "long": [turn(OK, ANY)],
    "unicode": [turn(OK, UNICODE)],
    "surrogate": [turn(OK, "Half a pair: \ufffd and on.")],
    "think": [turn(OK, "Hi after thinking.")],
    # The stream of both lines loses </think>; only the newer line mends the text with its last edit.
    "0.19 midthink": [turn(OK, "Visible start")],
    "0.22 midthink": [turn(OK, "Visible start visible end.")],
    # The older line takes the tag out of the code block before anyone sees it.
    "0.19 markdown": [turn(OK, CODE.format(""))],
    "0.22 markdown": [turn(OK, CODE.format("MEDIA:/tmp/not-a-file.txt"))],
    "media": [turn(OK, "Here is the file.\n\nThat was it.")],
    "run": [turn(OK, "Let me run that.", "The command has ended.")],
    "tools": [turn(OK, "I will read 2 files.", "I have read 2 files.")],
    "0.19 drop": [turn(OK, "This reply breaks offand here is the rest.")],
    "0.22 drop": [turn(OK, "This reply breaks off\nand here is the rest.")],
    "command": [],
    "fail-401": [turn(("failed", None, "provider_auth"))],
    "fail-429": [turn(("failed", None, "provider_rate_limited"))],
    "empty": [turn(("failed", None, "empty_response"))],
    "cancel-at-once": [turn(STOPPED, PERHAPS)],
    "cancel-before-token": [turn(STOPPED)],
    "cancel-in-stream": [turn(STOPPED, ANY)],
    "cancel-in-tool": [turn(STOPPED, "Let me run that.")],
    "cancel-in-retry": [turn(STOPPED)],
    "cancel-in-approval": [turn(STOPPED, "This needs your approval.")],
    "cancel-in-ask": [turn(STOPPED)],
    "stop-early": [turn(OK, said("next"))],
    "stop-in-stream": [turn(STOPPED, ANY)],
    "approve-once": [turn(OK, "This needs your approval.", "It is gone.")],
    "approve-deny": [turn(OK, "This needs your approval.", "You did not allow it.")],
    "ask": [turn(OK, ANY)],
    "delegate": [turn(OK, "I will hand that on.", "I have handed it on."), turn(OK, "The delegated work is done.")],
    # The older line ends the turn for a new one, the newer goes on in the same turn and the same message.
    "0.19 busy-interrupt": [turn(("cancelled", "superseded", None), ANY), turn(OK, said("two"))],
    "0.22 busy-interrupt": [turn(OK, said("two"))],
    "busy-queue": [turn(OK, count(15)), turn(OK, said("two"))],
    "0.19 busy-steer": [turn(OK, "Let me run that.", "The command has ended.")],
    "0.22 busy-steer": [turn(OK, "Let me run that.", "Noted.")],
    "undo-retry": [turn(OK, said(words)) for words in ("one", "two", "three", "three")],
    "compress": [turn(OK, ANY)] * 10 + [turn(OK, said("after"))],
    "compress-rotating": [turn(OK, ANY)] * 10 + [turn(OK, said("after"))],
    "max-iterations": [turn(("failed", "max_iterations", "internal"), "Let me run that.")],
    "shutdown": [turn(("cancelled", "shutdown", None), ANY)],
}
# Which messages the turns answer; elsewhere each answers the next.
MESSAGES: dict[str, list[str | None]] = {
    "command": [],
    "stop-early": ["m3"],
    "delegate": ["m1", None],
    "0.19 busy-interrupt": ["m1", None],
    "0.19 busy-queue": ["m1", None],
    "undo-retry": ["m1", "m2", "m4", "m5"],
    "compress": [*(f"m{number}" for number in range(1, 11)), "m12"],
    "compress-rotating": [*(f"m{number}" for number in range(1, 11)), "m12"],
}
PATHS = recordings()
everywhere = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
# A command writes no rows, and a gateway that was shut down cannot be asked for them.
WITH_ROWS = [path for path in PATHS if not path.name.endswith(("-command.jsonl.gz", "-shutdown.jsonl.gz"))]
with_rows = pytest.mark.parametrize("path", WITH_ROWS, ids=lambda path: path.name.removesuffix(".jsonl.gz"))


@cache
def played(path: Path) -> Replay:
    return replay(path)


def of(path: Path, table: dict[str, T]) -> T | None:
    line, _, scenario = path.name.removesuffix(".jsonl.gz").partition("-")
    return table.get(f"{line} {scenario}", table.get(scenario))


def test_every_scenario_was_recorded_on_both_lines() -> None:
    names = {path.name.removesuffix(".jsonl.gz") for path in PATHS}
    wanted = {name.split(" ")[-1] for name in EXPECTED}
    assert names == {f"{line}-{scenario}" for line in ("0.19", "0.22") for scenario in wanted}


@everywhere
def test_turns_end_as_they_did(path: Path) -> None:
    expected = of(path, EXPECTED)
    assert expected is not None
    seen = played(path).turns
    assert [now[:3] for now in seen] == [then[:3] for then in expected]
    for now, then in zip(seen, expected, strict=True):
        if then[3] == (PERHAPS,):
            assert len(now[3]) <= 1
        elif then[3] == (ANY,):
            assert len(now[3]) == 1
        else:
            assert now[3] == then[3]


@everywhere
def test_turns_answer_their_messages(path: Path) -> None:
    started = [event.message_id for event in played(path).started]
    expected = of(path, MESSAGES)
    assert started == ([f"m{number + 1}" for number in range(len(started))] if expected is None else expected)


@everywhere
def test_each_turn_ends_once_and_nothing_stays_open(path: Path) -> None:
    result = played(path)
    started = [event.turn_id for event in result.events if isinstance(event, TurnStarted)]
    ended = [event.turn_id for event in result.events if isinstance(event, TurnEnded)]
    assert started == ended
    assert len(set(ended)) == len(ended)
    assert result.table.abandon_all() == []
    assert all(result.table.session_chat(event.session_id) == event.chat_id for event in result.started)


@everywhere
def test_what_was_seen_only_grew(path: Path) -> None:
    # Where an edit took something back, Hermes did: it shows the code block first without the tag and then with it,
    # and a redirected reply goes on in the message of the reply that it replaces.
    changed = [name for name in ("0.22-markdown", "0.22-busy-interrupt") if path.name.startswith(name)]
    assert bool(played(path).replaced) <= bool(changed)


@everywhere
def test_no_reasoning_and_no_tag_is_seen(path: Path) -> None:
    for _, _, _, texts in played(path).turns:
        for text in texts:
            assert "secret" not in text
            assert "<think" not in text
            assert "MEDIA:" not in text or "```" in text


@with_rows
def test_what_was_seen_is_found_in_the_history(path: Path) -> None:
    """The texts of each turn, the last one as Hermes ended it, are rows; so is each message that was answered."""
    result = played(path)
    rows = history(result.rows)
    assert rows
    bound: set[str] = set()
    unbound = []
    ends = {event.turn_id: event for event in result.events if isinstance(event, TurnEnded)}
    for start in result.started:
        end, texts = ends[start.turn_id], list(filter(None, result.texts.get(start.turn_id, [])))
        if end.outcome == "completed" and end.final_text and texts and "chars>" not in end.final_text:
            texts[-1] = clean_text(end.final_text)
        live = [LiveMessage(start.message_id, "user", start.user_message)] if start.message_id else []
        live += [LiveMessage(f"{start.turn_id}/{n}", "assistant", text) for n, text in enumerate(texts)]
        pairs = bind(live, rows, bound)
        bound |= {pair.key for pair in pairs}
        unbound += [message.text for message in live if message.message_id not in {pair.message_id for pair in pairs}]
    scenario = path.name.partition("-")[2].removesuffix(".jsonl.gz")
    # Undone, and said twice with one row: /retry takes the first away.
    gone = {"undo-retry": ["say two", said("two"), "say three", said("three")]}
    assert unbound == gone.get(scenario, [])


@with_rows
def test_history_has_the_owners_words_alone(path: Path) -> None:
    rows = history(played(path).rows)
    users = [row.text for row in rows if row.role == "user"]
    assert not [text for text in users if text.startswith(("[", "You've reached"))]
    if "-compress" in path.name:
        assert any(str(row["content"]).startswith("[CONTEXT COMPACTION") for row in played(path).rows)
        assert users == [*(f"long {number}" for number in range(8001, 8011)), "say after"]
        assert [row.role for row in rows] == ["user", "assistant"] * 11
    if path.name.endswith("-undo-retry.jsonl.gz"):
        assert [row.text for row in rows] == ["say one", said("one"), "say three", said("three")]


@pytest.mark.parametrize("line", ["0.19", "0.22"])
def test_a_cut_reply_is_marked(line: str) -> None:
    (path,) = [path for path in PATHS if path.name.startswith(f"{line}-cancel-in-stream")]
    assert [row.mark for row in history(played(path).rows) if row.role == "assistant"] == ["interrupted"]


@pytest.mark.parametrize("line", ["0.19", "0.22"])
def test_a_message_that_was_stopped_too_early_leaves_a_ghost(line: str) -> None:
    (path,) = [path for path in PATHS if path.name.startswith(f"{line}-stop-early")]
    result = played(path)
    assert len(result.ghosts) == 1
    assert result.table.is_ghost(result.ghosts[0].turn_id)
    assert [(end.message_id, end.outcome, end.had_turn) for end in result.envelopes] == [
        ("m1", "CANCELLED", False),
        ("m3", "SUCCESS", True),
    ]


def test_an_event_without_a_turn_is_told() -> None:
    for path in PATHS:
        if path.name.endswith("-command.jsonl.gz"):
            assert [(end.message_id, end.outcome, end.had_turn) for end in played(path).envelopes] == [
                ("m1", "SUCCESS", False)
            ]


def test_the_recordings_hold_nothing_of_the_machine_they_were_made_on() -> None:
    for path in PATHS:
        text = gzip.decompress(path.read_bytes()).decode()
        for trace in (r"pheby-demo", r"/(root|home|Users|var)/", r"127\.0\.0\.1:\d", r"(?i)secret=", str(Path.cwd())):
            assert not re.search(trace, text), (path.name, trace)


def test_tokens_are_summed() -> None:
    for path in PATHS:
        if path.name.endswith("-run.jsonl.gz"):
            (end,) = [event for event in played(path).events if isinstance(event, TurnEnded)]
            assert end.usage is not None
            assert end.usage.total_tokens == (end.usage.input_tokens or 0) + (end.usage.output_tokens or 0) > 0
