"""Run by a Hermes's own Python: makes sessions and rows through Hermes's own store.

Usage: seed_store.py STATE_DB < JSON, a list of sessions
{id, source, chat_id?, parent?, end?, title?, auto_title?, archived?, rows: [{role, content, …}]}.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

from hermes_state import SessionDB  # type: ignore[import-not-found]


def seed(database: str, sessions: list[dict[str, Any]]) -> None:
    store = SessionDB(Path(database))
    for session in sessions:
        chat_id, name = session.get("chat_id"), session["id"]
        store.create_session(
            name,
            session["source"],
            chat_id=chat_id,
            chat_type="dm" if chat_id else None,
            user_id="owner",
            session_key=f"agent:main:pheby:dm:{chat_id}" if chat_id else None,
            parent_session_id=session.get("parent"),
        )
        known = inspect.signature(store.append_message).parameters
        for row in session["rows"]:
            store.append_message(name, **{key: value for key, value in row.items() if key in known})
        if session.get("auto_title"):
            if hasattr(store, "set_auto_title"):
                store.set_auto_title(name, session["auto_title"], source="llm")
            else:
                store.set_auto_title_if_empty(name, session["auto_title"])
        if session.get("title"):
            store.set_session_title(name, session["title"])
        if session.get("end"):
            store.end_session(name, session["end"])
        if session.get("archived"):
            store.set_session_archived(name, True)
    store.close()


if __name__ == "__main__":
    seed(sys.argv[1], json.load(sys.stdin))
