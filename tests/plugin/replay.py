"""Plays a recording of a real gateway through the plugin's own tables, as the adapter does it live."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import define, field
from pheby_hermes.drafts import DraftTail, Replace
from pheby_hermes.turns import EnvelopeEnded, GhostTurn, TurnEnded, TurnEvent, TurnStarted, TurnTable

RECORDINGS = Path(__file__).resolve().parent / "recordings"


@define
class Replay:
    """What came out: the events of the table, the texts that were streamed in each turn, the rows at the end."""

    events: list[TurnEvent] = field(factory=list)
    texts: dict[str, list[str]] = field(factory=dict)
    replaced: list[str] = field(factory=list)
    media: list[str] = field(factory=list)
    rows: list[dict[str, Any]] = field(factory=list)
    table: TurnTable = field(factory=TurnTable)

    @property
    def turns(self) -> list[tuple[str, str | None, str | None, tuple[str, ...]]]:
        return [
            (event.outcome, event.reason, event.error_code, tuple(filter(None, self.texts.get(event.turn_id, []))))
            for event in self.events
            if isinstance(event, TurnEnded)
        ]

    @property
    def started(self) -> list[TurnStarted]:
        return [event for event in self.events if isinstance(event, TurnStarted)]

    @property
    def envelopes(self) -> list[EnvelopeEnded]:
        return [event for event in self.events if isinstance(event, EnvelopeEnded)]

    @property
    def ghosts(self) -> list[GhostTurn]:
        return [event for event in self.events if isinstance(event, GhostTurn)]


def recordings() -> list[Path]:
    return sorted(RECORDINGS.glob("*.jsonl.gz"))


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records, with the texts whole again that the recorder shortened."""
    shown: dict[str, str] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            arguments = record.get("k")
            if isinstance(arguments, dict) and "content" in arguments:
                key, content = record["name"] + str(arguments.get("message_id")), arguments["content"]
                if isinstance(content, list):
                    content = shown[key][: content[0]] + content[1]
                shown[key] = arguments["content"] = content
            yield record


def replay(path: Path) -> Replay:
    result = Replay()
    drafts: dict[str, tuple[DraftTail, str, int]] = {}
    opening: dict[str, Any] | None = None  # a send whose message id comes with the next result
    for record in read(path):
        kind, name = record["kind"], record["name"]
        if kind == "hook":
            result.events += result.table.hook(name, record["v"], record["ctx"][1])
        elif kind == "row":
            result.rows.append(record["v"])
        elif kind == "result" and opening:
            _open(result, drafts, record["id"], opening)
            opening = None
        elif kind == "call" and name == "send":
            opening = record["k"] if (record["k"].get("metadata") or {}).get("expect_edits") else None
        elif kind == "call" and name == "edit_message" and record["k"].get("message_id") in drafts:
            _edit(result, drafts, record["k"])
        elif kind == "call":
            result.events += _callback(result.table, name, record["a"])
    return result


def _callback(table: TurnTable, name: str, arguments: list[Any]) -> list[TurnEvent]:
    if name == "on_processing_start":
        event = arguments[0]
        return table.processing_started(
            event["chat"], event["event"], event["message_id"], event["text"], event["internal"]
        )
    if name == "on_processing_complete":
        event, outcome = arguments
        return table.processing_completed(event["chat"], event["event"], outcome.partition(".")[2])
    if name == "interrupt_session_activity":
        return table.interrupt_requested(arguments[1])
    if name == "cancel_background_tasks":
        return table.shutting_down()
    return []


def _open(result: Replay, drafts: dict[str, Any], message_id: str, k: dict[str, Any]) -> None:
    turn = result.table.open_turn(k["chat_id"])
    if turn is None:
        return
    draft = DraftTail("")
    draft.update(k["content"])
    texts = result.texts.setdefault(turn, [])
    texts.append(draft.text)
    drafts[message_id] = (draft, turn, len(texts) - 1)


def _edit(result: Replay, drafts: dict[str, Any], k: dict[str, Any]) -> None:
    draft, turn, place = drafts[k["message_id"]]
    if isinstance(draft.update(k["content"], final=k["finalize"]), Replace) and not k["finalize"]:
        result.replaced.append(draft.text)
    result.texts[turn][place] = draft.text
    result.media += draft.media
