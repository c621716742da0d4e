"""Reading a chat completion request: what did the owner type, and how far has this turn come?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_CONTEXT_MARK = "[New message]\n"
_CORRECTION_MARK = "User correction during the turn: "
_ORIGIN_MARK = "Gateway message origin ("
# Hermes's own words, without the brackets that mark its other notes.
_EMPTY_REPLY_MARK = "You just executed tool calls but returned an empty response"


@dataclass(frozen=True)
class Turn:
    """One model request, read: the typed paragraphs, the tools on offer, the tool results so far."""

    paragraphs: tuple[str, ...]
    notice: str
    tools: Mapping[str, Mapping[str, Any]]
    results: tuple[str, ...]
    rounds: int


def read_turn(body: Mapping[str, Any]) -> Turn:
    """Read a request body; total on any JSON object."""
    messages = [entry for entry in _list(body.get("messages")) if isinstance(entry, Mapping)]
    last_user = max((i for i, entry in enumerate(messages) if entry.get("role") == "user"), default=-1)
    since = messages[last_user + 1 :]
    paragraphs, notice = _typed(text_of(messages[last_user].get("content")) if last_user >= 0 else "")
    return Turn(
        paragraphs=paragraphs,
        notice=notice,
        tools=_tools(body.get("tools")),
        results=tuple(text_of(entry.get("content")) for entry in since if entry.get("role") == "tool"),
        rounds=sum(1 for entry in since if entry.get("role") == "assistant" and entry.get("tool_calls")),
    )


def text_of(content: object) -> str:
    """The text of a message's content, which is a string or a list of typed parts."""
    if isinstance(content, str):
        return content
    parts = [part for part in _list(content) if isinstance(part, Mapping)]
    return "\n".join(str(part["text"]) for part in parts if isinstance(part.get("text"), str))


def _typed(text: str) -> tuple[tuple[str, ...], str]:
    # Hermes wraps what the owner typed: context before a mark, notes in brackets before and after, a
    # correction behind the text it corrects. An unanswered message is joined to the next by a blank line.
    for mark in (_CONTEXT_MARK, _CORRECTION_MARK):
        if mark in text:
            text = text.rpartition(mark)[2]
    if text.startswith(_ORIGIN_MARK):
        text = text.partition("\n\n")[2]
    paragraphs = [paragraph.strip() for paragraph in text.split("\n\n") if paragraph.strip()]
    if text.startswith(_EMPTY_REPLY_MARK) or (text.startswith("[") and "]\n\n" not in text):
        return (), text
    typed = tuple(paragraph for paragraph in paragraphs if not paragraph.startswith("["))
    notes = "\n\n".join(paragraph for paragraph in paragraphs if paragraph.startswith("["))
    return typed, notes if not typed else ""


def _tools(offered: object) -> dict[str, Mapping[str, Any]]:
    tools: dict[str, Mapping[str, Any]] = {}
    for entry in _list(offered):
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            parameters = function.get("parameters")
            properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
            tools[function["name"]] = properties if isinstance(properties, Mapping) else {}
    return tools


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
