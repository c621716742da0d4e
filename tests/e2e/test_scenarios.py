"""Everything that happens in a run, as clients see it: the same on every line, and the same in history as live.

The sequences are stored in conformance/transcripts/runs, for everyone who writes a client or a server;
`--record` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plain_client import Frame, PlainClient
from scenarios import SCENARIOS, Scene, quiet, seen

from pheby_protocol.client_state import ClientState, apply, apply_answer, shown
from pheby_protocol.codec import structure
from pheby_protocol.messages._base import Request, Result

pytestmark = pytest.mark.asyncio(loop_scope="session")

ON_DEFAULTS = ("plain", "tool-then-text", "approval-once", "clarification-by-choice", "subagent-with-two-tools")
"""With Hermes's own display settings texts come whole, or at other moments; history is as live all the same."""
STORED = Path(__file__).resolve().parents[2] / "conformance" / "transcripts" / "runs"


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_scenario(stack, name, tmp_path, scenario, request):
    """R-C, R-D, R-E, R-F."""
    if stack.hermes_defaults and scenario not in ON_DEFAULTS:
        return
    folder = tmp_path / "doomed"
    folder.mkdir()
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        conversation_id = await client.create(name)
        scene = Scene(stack, client, conversation_id, name, str(folder))
        await SCENARIOS[scenario](scene)
        await quiet(client)
        live = folded(client.frames)
    history = await read_only(stack, conversation_id)
    assert said(history, conversation_id) == said(live, conversation_id)
    assert of(history, conversation_id) == of(live, conversation_id)
    if not stack.hermes_defaults:
        compare(scenario, stack.hermes_version, seen(scene), record=request.config.getoption("--record"))


def folded(frames: list[Frame]) -> ClientState:
    """What a client keeps of everything that it received."""
    state = ClientState()
    for frame in frames:
        if "id" not in frame or frame["type"] == "welcome":
            state = apply(state, structure(frame))
    return state


async def read_only(stack: Any, conversation_id: str) -> ClientState:
    """What a client knows that was not there, and has read the history page by page."""
    async with PlainClient(stack.url, stack.secret, "reader") as reader:
        await reader.hello()
        state = folded(reader.frames)
        fields: dict[str, Any] = {"conversation_id": conversation_id, "limit": 3}
        more = True
        while more:
            answer = await reader.request("conversation.history", **fields)
            request = structure({"type": "conversation.history", "id": answer["id"], **fields})
            result = structure(answer)
            assert isinstance(request, Request)
            assert isinstance(result, Result)
            state = apply_answer(state, request, result)
            more = answer["has_more"]
            fields["before"] = answer.get("before")
        return state


def of(state: ClientState, conversation_id: str) -> dict[str, Any]:
    """What is shown of one conversation."""
    return {
        kind: {key: item for key, item in items.items() if item["conversation_id"] == conversation_id}
        for kind, items in shown(state).items()
        if kind in ("messages", "tool_calls", "runs", "approvals", "clarifications")
    }


def said(state: ClientState, conversation_id: str) -> list[str]:
    """The messages in short, so that a difference can be read."""
    found = sorted(of(state, conversation_id)["messages"].values(), key=lambda message: message.get("position", 0))
    return [f"{message['role']} {message['status']} {message['message_id']}: {message['text']}" for message in found]


def compare(scenario: str, line: str, events: list[Frame], *, record: bool) -> None:
    """Against the stored sequence: one for all lines, with another one only where a line differs."""
    line = ".".join(line.split(".")[:2])
    file = STORED / f"{scenario}.json"
    stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if record:
        if line == "simulated" or "events" not in stored:
            stored["events"] = events
        stored.setdefault("differs", {}).pop(line, None)
        if stored["events"] != events:
            stored["differs"][line] = events
        STORED.mkdir(parents=True, exist_ok=True)
        file.write_text(_written(scenario, stored["events"], stored["differs"]), encoding="utf-8")
        return
    assert events == stored["differs"].get(line, stored["events"])


def _written(scenario: str, events: list[Frame], others: dict[str, list[Frame]]) -> str:
    """JSON with one event in a line."""

    def block(found: list[Frame], indent: str) -> str:
        lines = ",\n".join(f"{indent}  {json.dumps(event, ensure_ascii=False)}" for event in found)
        return f"[\n{lines}\n{indent}]"

    differs = ",\n".join(f"    {json.dumps(name)}: {block(found, '    ')}" for name, found in sorted(others.items()))
    inside = f"{{\n{differs}\n  }}" if differs else "{}"
    return f'{{\n  "name": {json.dumps(scenario)},\n  "events": {block(events, "  ")},\n  "differs": {inside}\n}}\n'
