"""Which page, and which file of vectors, a message belongs to."""

from __future__ import annotations

from typing import Final

from .metamodel import Metamodel, StructModel

SUBJECTS: Final[dict[str, str]] = {
    "connection": "Connection, synchronisation, errors",
    "conversation": "Conversations and history",
    "message": "Messages, sends, receipts",
    "run": "Runs",
    "tool": "Tool calls",
    "approval": "Approvals",
    "clarification": "Clarifications",
    "attachment": "Attachments",
    "model": "Models and reasoning effort",
}
"""Name (of a file, too) to title, in reading order."""

_TOLD_ELSEWHERE: Final = {"history": "conversation", "reasoning": "model"}


def subject(tag: str) -> str:
    """The subject of a message's type tag."""
    noun = tag.partition(".")[0]
    found = _TOLD_ELSEWHERE.get(noun, noun)
    return found if "." in tag and found in SUBJECTS else "connection"


def anchor(heading: str) -> str:
    """The fragment that a Markdown heading gets: lower case, punctuation dropped, spaces as hyphens."""
    kept = "".join(character for character in heading.lower() if character.isalnum() or character in " -_")
    return kept.replace(" ", "-")


def by_subject(model: Metamodel) -> dict[str, list[StructModel]]:
    """Every message under its subject, both in their order."""
    found: dict[str, list[StructModel]] = {name: [] for name in SUBJECTS}
    for message in model["messages"]:
        found[subject(message["type"])].append(message)
    return found
