"""Recordings of real gateways played through the relay: what a core makes of what it is told is what happened."""

from __future__ import annotations

import itertools
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from pheby_hermes.binding import LiveMessage, bind
from pheby_hermes.history import history
from pheby_hermes.relay import PROVIDER_FAILS, Relay

from pheby_protocol.ids import ConversationId, MessageId, RunId
from pheby_protocol.messages.approval import DecisionSource
from pheby_protocol.messages.message import Origin
from pheby_server.ports import (
    AgentFile,
    ApprovalPrompt,
    ClarificationPrompt,
    Delivery,
    Outcome,
    RunResult,
    SubagentStart,
    ToolResult,
    ToolStart,
)
from tests.plugin.replay import read, recordings
from tests.plugin.test_turns_replay import ANY, EXPECTED, PERHAPS, of

PATHS = recordings()
WITH_ROWS = [path for path in PATHS if not path.name.endswith(("-command.jsonl.gz", "-shutdown.jsonl.gz"))]


def name_of(path: Path) -> str:
    return path.name.removesuffix(".jsonl.gz")


CHOICES = ("once", "session", "always", "deny")
everywhere = pytest.mark.parametrize("path", PATHS, ids=name_of)
with_rows = pytest.mark.parametrize("path", WITH_ROWS, ids=name_of)


@define
class Text:
    """One text of a run, as a client would show it."""

    text: str
    ended: bool = False
    interim: bool = False


@define
class Run:
    """One run, as a client would show it."""

    message_id: str | None
    texts: dict[str, Text] = field(factory=dict)
    result: RunResult | None = None

    @property
    def said(self) -> tuple[str, ...]:
        return tuple(text.text for text in self.texts.values() if text.text)


class FoldingCore:
    """A GatewayEvents that folds what it is told into runs and their texts, and refuses what makes no sense."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.notices: list[tuple[str, Origin]] = []
        self.refused_files: list[str] = []
        self.progress: list[str] = []
        self.tools: dict[str, ToolResult | None] = {}
        self.approvals: dict[str, tuple[str | None, DecisionSource] | None] = {}
        self.clarifications: dict[str, DecisionSource | None] = {}
        self.subagents: dict[str, RunResult | None] = {}
        self.lost: list[str] = []
        self.heard: list[str] = []
        """Every text that reached the core, in whatever form."""
        self.began_anew_in: list[ConversationId] = []
        self._active: dict[ConversationId, Run] = {}
        self._ids = itertools.count(1)

    def run_started(self, conversation_id: ConversationId, message_id: MessageId | None, origin: Origin) -> RunId:
        assert conversation_id not in self._active
        assert (origin is Origin.CHAT) == (message_id is not None)
        run = self._active[conversation_id] = Run(message_id)
        self.runs.append(run)
        return RunId(f"run_{len(self.runs)}")

    def message_started(self, conversation_id: ConversationId, text: str) -> MessageId:
        assert text
        run = self._active[conversation_id]
        assert all(known.ended for known in run.texts.values()), "two texts at once"
        message_id = MessageId(f"msg_{next(self._ids)}")
        run.texts[message_id] = Text(text)
        self.heard.append(text)
        return message_id

    def message_appended(self, message_id: MessageId, text: str) -> None:
        assert text
        self._open(message_id).text += text
        self.heard.append(self._open(message_id).text)

    def message_replaced(self, message_id: MessageId, text: str) -> None:
        self._open(message_id).text = text
        self.heard.append(text)

    def message_ended(self, message_id: MessageId, *, interim: bool) -> None:
        text = self._open(message_id)
        text.ended, text.interim = True, interim

    def tool_started(self, conversation_id: ConversationId, tool: ToolStart, subagent: str | None = None) -> None:
        assert subagent in self.subagents if subagent else conversation_id in self._active
        assert tool.call_id not in self.tools, "a call begins once"
        self.tools[tool.call_id] = None
        self.heard.append(repr(tool.arguments))

    def tool_ended(self, conversation_id: ConversationId, result: ToolResult, subagent: str | None = None) -> None:
        if (subagent or conversation_id in self._active) and result.call_id in self.tools:
            assert self.tools[result.call_id] is None, "a call ends once"
            self.tools[result.call_id] = result

    def approval_requested(self, conversation_id: ConversationId, prompt: ApprovalPrompt) -> None:
        assert prompt.key not in self.approvals
        self.approvals[prompt.key] = None
        self.heard.append(prompt.command)

    def approval_answerable(self, conversation_id: ConversationId, key: str) -> None:
        pass

    def approval_closed(
        self, conversation_id: ConversationId, key: str, decision: str | None, by: DecisionSource
    ) -> None:
        assert self.approvals[key] is None, "a question ends once"
        self.approvals[key] = (decision, by)

    def subagent_started(self, conversation_id: ConversationId, start: SubagentStart) -> None:
        assert start.key not in self.subagents
        assert start.parent or conversation_id in self._active
        assert start.call_id in self.tools
        self.subagents[start.key] = None
        self.heard.append(start.goal)

    def subagent_ended(self, conversation_id: ConversationId, key: str, result: RunResult) -> None:
        assert self.subagents[key] is None, "a subagent ends once"
        self.subagents[key] = result

    def clarification_requested(self, conversation_id: ConversationId, prompt: ClarificationPrompt) -> None:
        assert prompt.key not in self.clarifications
        assert prompt.call_id in self.tools
        self.clarifications[prompt.key] = None
        self.heard.append(prompt.question)

    def clarification_closed(self, conversation_id: ConversationId, key: str, by: DecisionSource) -> None:
        assert self.clarifications[key] is None, "a question ends once"
        self.clarifications[key] = by

    def run_progress(self, conversation_id: ConversationId, text: str) -> None:
        assert conversation_id in self._active
        self.progress.append(text)
        self.heard.append(text)

    def run_ended(self, conversation_id: ConversationId, result: RunResult) -> None:
        run = self._active.pop(conversation_id)
        run.result = result
        open_texts = [text for text in run.texts.values() if not text.ended]
        if result.outcome is Outcome.COMPLETED and result.final_text and not _was_cut(result.final_text):
            self.heard.append(result.final_text)
            # As the core does: the declared answer closes the text that is open, or is one that nobody has seen.
            if open_texts:
                _close(open_texts[0], result.final_text)
            elif not run.texts or list(run.texts.values())[-1].interim:
                run.texts["declared"] = Text(result.final_text)
        for text in run.texts.values():
            text.ended = True

    def run_lost(self, conversation_id: ConversationId, message_id: MessageId) -> None:
        self.lost.append(message_id)

    def notice(self, text: str, origin: Origin) -> MessageId:
        """What the adapter does with what is outside of any run."""
        self.notices.append((text, origin))
        self.heard.append(text)
        return MessageId(f"msg_{next(self._ids)}")

    def not_attached(self, conversation_id: ConversationId, name: str) -> None:
        self.refused_files.append(name)

    async def deliver(self, conversation_id: ConversationId, delivery: Delivery) -> MessageId:
        raise AssertionError("the relay waits for nothing")

    async def attach(
        self, conversation_id: ConversationId, file: AgentFile, message_id: MessageId | None = None
    ) -> bool:
        raise AssertionError("the relay waits for nothing")

    def began_anew(self, conversation_id: ConversationId) -> None:
        self.began_anew_in.append(conversation_id)

    async def settled(self) -> None:
        raise AssertionError("the relay waits for nothing")

    @property
    def open_runs(self) -> int:
        return len(self._active)

    def _open(self, message_id: MessageId) -> Text:
        text = next(run.texts[message_id] for run in self._active.values() if message_id in run.texts)
        assert not text.ended, "a change after the end"
        return text


def _was_cut(text: str) -> bool:
    """Whether the recorder has shortened it."""
    return text.endswith(" chars>")


def _close(shown: Text, answer: str) -> None:
    bare, said = "".join(shown.text.split()), "".join(answer.split())
    if not (bare.startswith(said) or bare.endswith(said)):
        shown.text = answer


@define
class Played:
    """A recording and what a core has of it."""

    core: FoldingCore
    rows: list[dict[str, Any]] = field(factory=list)
    bubbles: list[str] = field(factory=list)
    """What Hermes sent without a mark: acknowledgements, tips, tool bubbles."""
    open_at_the_end: int = 0


@cache
def played(path: Path) -> Played:
    """The recording played as the adapter does it live; the shutdown at its end, if any, too."""
    core = FoldingCore()
    numbers = itertools.count(1)
    timers: list[Any] = []
    relay = Relay(core, lambda: f"r{next(numbers)}", lambda delay, call: timers.append(call), cursor="")
    result = Played(core)
    ids: dict[str, str] = {}  # the recorder's name of a message to the relay's
    sent: str | None = None
    for record in read(path):
        kind, name = record["kind"], record["name"]
        if kind == "hook":
            relay.hook(name, record["v"], record["ctx"][1])
        elif kind == "row":
            result.rows.append(record["v"])
        elif kind == "result" and sent is not None:
            ids[record["id"]], sent = sent, None
        elif kind == "call":
            sent = _called(relay, result, ids, record) or sent
    result.open_at_the_end = core.open_runs
    for call in timers:
        call()
    relay.shut_down()
    return result


def _called(relay: Relay, result: Played, ids: dict[str, str], record: dict[str, Any]) -> str | None:
    name, a, k = record["name"], record["a"], record["k"]
    if name == "send":
        chat_id, content = k.get("chat_id") or a[0], k["content"] if "content" in k else a[1]
        if not k.get("metadata"):
            result.bubbles.append(content)
        delivery = relay.outside(chat_id, content, k.get("metadata"))
        if delivery is not None:
            return result.core.notice(delivery.text, delivery.origin)
        return relay.send(chat_id, content, k.get("metadata"))
    if name == "edit_message" and k["message_id"] in ids:
        relay.edit(ids[k["message_id"]], k["content"], final=k["finalize"])
    elif name == "send_exec_approval":
        relay.approval(
            k["chat_id"], k["session_key"], k["command"], k["description"], CHOICES, lambda *_: object(), None
        )
    elif name == "send_clarify":
        asked = k["question"], k["choices"] or ()
        skips = "\n" in k["question"]
        relay.clarification(
            k["chat_id"],
            k["session_key"],
            k["clarify_id"],
            *asked,
            multiple=False,
            skip_answer="\0skipped" if skips else None,
            undecorated=lambda label: label.removesuffix(" (Recommended)"),
            expires_at=None,
        )
    elif name == "send_or_update_status":
        relay.status(a[0], a[2])
        return "status"
    elif name == "on_processing_start":
        relay.processing_started(a[0]["chat"], a[0]["event"], a[0]["message_id"], a[0]["text"], a[0]["internal"])
    elif name == "on_processing_complete":
        relay.processing_completed(a[0]["chat"], a[0]["event"], a[1].partition(".")[2])
    elif name == "interrupt_session_activity":
        relay.interrupted(a[1])
    elif name == "cancel_background_tasks":
        relay.shut_down()
    return None


@everywhere
def test_every_question_ends_as_it_was_decided(path: Path) -> None:
    """R-F2: after the run none is left pending."""
    expected = {
        "approve-once": [("once", DecisionSource.OTHER_SURFACE)],
        "approve-deny": [("deny", DecisionSource.OTHER_SURFACE)],
        "cancel-in-approval": [(None, DecisionSource.RUN_END)],
    }
    assert list(played(path).core.approvals.values()) == expected.get(name_of(path).partition("-")[2], [])


@everywhere
def test_every_clarification_ends(path: Path) -> None:
    """E2: what nobody here has answered ran out, or was stopped with its run."""
    expected = {"ask": [DecisionSource.TIMEOUT], "cancel-in-ask": [DecisionSource.RUN_END]}
    core = played(path).core
    assert list(core.clarifications.values()) == expected.get(name_of(path).partition("-")[2], [])


@everywhere
def test_every_subagent_ends_as_it_did(path: Path) -> None:
    subagents = played(path).core.subagents
    assert len(subagents) == (1 if name_of(path).endswith("-delegate") else 0)
    assert all(result is not None and result.outcome is Outcome.COMPLETED for result in subagents.values())


@everywhere
def test_every_run_that_begins_ends_once(path: Path) -> None:
    """B6. The core above refuses a second start, a second end, and whatever is said outside of a run."""
    result = played(path)
    assert all(run.result is not None for run in result.core.runs)
    assert result.open_at_the_end == 0
    assert result.core.open_runs == 0


@everywhere
def test_runs_end_as_they_did_and_say_what_was_said(path: Path) -> None:
    expected = of(path, EXPECTED)
    assert expected is not None
    runs = played(path).core.runs
    assert len(runs) == len(expected)
    for run, (outcome, reason, error, texts) in zip(runs, expected, strict=True):
        assert run.result is not None
        assert (run.result.outcome, run.result.reason, run.result.error) == (outcome, reason, error)
        if texts == (PERHAPS,):
            assert len(run.said) <= 1
        elif texts == (ANY,):
            assert len(run.said) == 1
        else:
            assert run.said[:-1] == texts[:-1]
            # What Hermes declares at the end mends what the stream has lost.
            assert run.said[-1:] == texts[-1:] or path.name.startswith(("0.19-midthink", "0.19-markdown"))


@everywhere
def test_what_was_said_on_the_way_is_marked(path: Path) -> None:
    """B3: all texts but the last are interim, the last one of a completed run is not."""
    for run in played(path).core.runs:
        texts = [text for text in run.texts.values() if text.text]
        assert all(text.interim for text in texts[:-1])
        if run.result is not None and run.result.outcome is Outcome.COMPLETED:
            assert [text.interim for text in texts[-1:]] == [False]


@with_rows
def test_completed_runs_are_found_in_the_history(path: Path) -> None:
    """Each text that a client shows of a completed run is a row of Hermes's, and so is each message it answers."""
    result = played(path)
    rows = history(result.rows)
    asked = {row.message_id or "": row.text for row in rows if row.role == "user"}
    bound: set[str] = set()
    unbound = []
    for number, run in enumerate(result.core.runs):
        assert run.result is not None
        if run.result.outcome is not Outcome.COMPLETED:
            continue
        live = [LiveMessage(f"{number}/{n}", "assistant", text) for n, text in enumerate(run.said)]
        if run.message_id in asked:
            live.insert(0, LiveMessage(run.message_id, "user", asked[run.message_id]))
        pairs = bind(live, rows, bound)
        bound |= {pair.key for pair in pairs}
        unbound += [message.text for message in live if message.message_id not in {pair.message_id for pair in pairs}]
    # Said twice with one row each: /undo and /retry take the first away.
    gone = 2 if path.name.endswith("-undo-retry.jsonl.gz") else 0
    assert len(unbound) == gone, unbound


@everywhere
def test_no_reasoning_and_no_tag_reaches_the_core(path: Path) -> None:
    """B4."""
    for text in played(path).core.heard:
        assert "secret" not in text
        assert not re.search(r"</?(think|reasoning)", text)
        assert "MEDIA:" not in text or "```" in text


@everywhere
def test_no_half_character_reaches_the_core(path: Path) -> None:
    for text in played(path).core.heard:
        text.encode()


@everywhere
def test_the_providers_own_words_do_not_reach_the_core(path: Path) -> None:
    core = played(path).core
    assert not [text for text in core.heard if "raw provider text" in text or "Provider said" in text]
    if "-fail-" in path.name:
        assert set(core.progress) == {PROVIDER_FAILS}


@everywhere
def test_chatter_is_in_no_run(path: Path) -> None:
    """Nor is what acknowledges a typed command, though Hermes marks it like an answer."""
    result = played(path)
    said = {text for run in result.core.runs for text in run.said}
    assert not said & set(result.bubbles)
    assert not [text for text in said if re.search(r"queued|Queued|Interrupting|Stopped\.|Operation interrupted", text)]


@everywhere
def test_what_hermes_did_not_run_is_lost_or_a_command(path: Path) -> None:
    core = played(path).core
    answered = {run.message_id for run in core.runs}
    assert not answered & set(core.lost)
    without_turn = {
        "command": "m1",
        "compress": "m11",
        "compress-rotating": "m11",
        "stop-early": "m1",
        "undo-retry": "m3",
    }
    scenario = name_of(path).partition("-")[2]
    assert core.lost == ([without_turn[scenario]] if scenario in without_turn else [])


@everywhere
def test_nothing_of_a_ghost_is_seen(path: Path) -> None:
    if path.name.endswith("-stop-early.jsonl.gz"):
        assert [run.message_id for run in played(path).core.runs] == ["m3"]


@everywhere
def test_only_another_session_is_a_new_beginning(path: Path) -> None:
    """R-H1: what was chosen is looked at again there; a session that rotated is none, as far as that can be told."""
    assert len(played(path).core.began_anew_in) == (1 if "rotating" in name_of(path) else 0)
