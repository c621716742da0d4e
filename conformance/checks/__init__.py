"""The checks for servers, by subject. Importing this registers them."""

from . import (
    approvals,
    clarifications,
    conversations,
    files,
    frames,
    hello,
    history,
    http,
    limits,
    messages,
    models,
    observed,
    runs,
    snapshot,
    sync,
    tools,
)

__all__ = [
    "approvals",
    "clarifications",
    "conversations",
    "files",
    "frames",
    "hello",
    "history",
    "http",
    "limits",
    "messages",
    "models",
    "observed",
    "runs",
    "snapshot",
    "sync",
    "tools",
]
