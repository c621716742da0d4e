"""What is negotiated beside the version: names that a client may offer and a server announces as true or false."""

from __future__ import annotations

from typing import Final

BATCH: Final = "batch"
"""Several events may come as one frame of type `batch`. Offered by the client."""

SERVER_CAPABILITIES: Final[dict[str, str]] = {
    "batch": "Events may be joined into one batch frame.",
    "resume": "Events after a cursor can be replayed.",
    "streaming": "Assistant text arrives while it is written; else each message arrives whole.",
    "tools": "Tool calls are reported.",
    "cancel": "A run can be cancelled.",
    "steer": "A message can be added to the active run (if_busy: steer).",
    "interrupt": "A message can replace the active run (if_busy: interrupt).",
    "approvals": "Approvals are reported and answered.",
    "clarifications": "Clarifications are reported and answered.",
    "subagents": "The runs of subagents and their tools are reported.",
    "attachments": "Files from the agent are reported and served.",
    "models": "Models can be listed and chosen.",
    "reasoning": "Reasoning effort can be listed and chosen.",
    "rename": "Conversations can be renamed.",
    "delete": "Conversations can be deleted.",
}
"""Name to meaning. A name that is absent is false; unknown names are ignored."""
