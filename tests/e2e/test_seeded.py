"""Stores as years of use leave them: lineages, branches, subagents, equal times, titles (R-B1, R-B2, R-B6, A7).

The rows are made by Hermes's own store; what Pheby lists, shows, renames and deletes is checked on both lines.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from plain_client import PlainClient
from test_conversations import hermes_sessions, rename

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS = 1_780_000_000.0


def rows(*texts: str, at: float, step: float = 1.0) -> list[dict[str, Any]]:
    """A dialogue: the owner's words and the agent's in turn."""
    return [
        {"role": "assistant" if number % 2 else "user", "content": text, "timestamp": at + step * number}
        for number, text in enumerate(texts)
    ]


def sessions(tag: str) -> list[dict[str, Any]]:
    """Chats 1 to 7 of a run of this test; `tag` is eight digits."""
    chat = [f"{tag}{number:08d}" for number in range(8)]

    def session(name: str, number: int | None, source: str = "pheby", **fields: Any) -> dict[str, Any]:
        return {"id": f"{tag}-{name}", "source": source, "chat_id": None if number is None else chat[number], **fields}

    summary = {"role": "user", "content": "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier: much."}
    summary |= {"timestamp": SECONDS + 50}
    return [
        # 1: two generations of one chat, by /new.
        session("1a", 1, rows=rows("one", "answer one", at=SECONDS), end="session_reset"),
        session("1b", 1, rows=rows("two", "answer two", at=SECONDS + 100), title=f"Mine {tag}"),
        # 2: a compression that rotated the session: a summary, then the tail.
        session("2a", 2, rows=rows("old", "answer old", "late", "answer late", at=SECONDS + 10), end="compression"),
        session(
            "2b",
            2,
            parent=f"{tag}-2a",
            rows=[summary, *rows("new", "answer new", at=SECONDS + 60)],
            auto_title=f"Auto {tag}",
        ),
        # 3: a subagent's session, and one of another platform: neither is a conversation.
        session("3a", 3, rows=rows("ask", "answer ask", at=SECONDS + 20)),
        session("3b", None, "subagent", parent=f"{tag}-3a", rows=rows("inner", "inner answer", at=SECONDS + 21)),
        session("3c", None, "telegram", rows=rows("elsewhere", "yes", at=SECONDS + 22)),
        # 4: all rows at the same time.
        session("4a", 4, rows=rows("a", "b", "c", "d", at=SECONDS + 30, step=0.0)),
        # 5: synthetic rows.
        session(
            "5a",
            5,
            rows=[
                {"role": "user", "content": "hello", "timestamp": SECONDS + 40},
                {"role": "session_meta", "content": None, "timestamp": SECONDS + 40.5},
                {"role": "assistant", "content": "hello yourself", "timestamp": SECONDS + 41},
                {
                    "role": "user",
                    "content": "[IMPORTANT: Background process proc_1 completed normally (exit code 0).",
                    "timestamp": SECONDS + 42,
                    "display_kind": "internal_notification",
                },
                {"role": "assistant", "content": "It is done.", "timestamp": SECONDS + 43},
            ],
        ),
        # 7: branched in a terminal: that is the terminal's session, with copies of these rows.
        session("7a", 7, rows=rows("root", "answer root", at=SECONDS + 80)),
        session(
            "7b", None, "cli", parent=f"{tag}-7a", rows=rows("root", "answer root", "branch", "b", at=SECONDS + 90)
        ),
        # 6: archived: the owner hid it elsewhere, and it is still theirs.
        session("6a", 6, rows=rows("kept", "answer kept", at=SECONDS + 70), archived=True),
    ]


EXPECTED = {
    1: ["one", "answer one", "two", "answer two"],
    2: ["old", "answer old", "late", "answer late", "new", "answer new"],
    3: ["ask", "answer ask"],
    4: ["a", "b", "c", "d"],
    5: ["hello", "hello yourself", "It is done."],
    6: ["kept", "answer kept"],
    7: ["root", "answer root"],
}


async def seed(stack: Any, made: list[dict[str, Any]]) -> None:
    """While the gateway is down, as it would be after an update."""
    await stack.stop_gateway()
    script = Path(__file__).with_name("seed_store.py")
    python = stack.environment.python
    done = await asyncio.to_thread(
        subprocess.run,
        [python, script, stack.home / "state.db"],
        input=json.dumps(made).encode(),
        capture_output=True,
        env={"HERMES_HOME": str(stack.home), "HOME": str(stack.home), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    await stack.start_gateway()


async def walk(client: PlainClient, limit: int) -> list[dict[str, Any]]:
    """The whole list, page by page."""
    found: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    while True:
        page = await client.request("conversation.list", limit=limit, **fields)
        found += page["conversations"]
        if "next" not in page:
            return found
        fields = {"cursor": page["next"]}


async def texts(client: PlainClient, conversation_id: str, **fields: Any) -> list[str]:
    """The history, page by page from the newest."""
    found: list[str] = []
    while True:
        page = await client.request("conversation.history", conversation_id=conversation_id, limit=2, **fields)
        found = [message["text"] for message in page["messages"]] + found
        if not page["has_more"]:
            return found
        fields = {"before": page["before"]}


async def test_a_store_of_years(stack, name):
    if stack.hermes_version == "simulated" or stack.hermes_defaults:
        return  # the store is Hermes's, whatever is shown
    tag = f"{abs(hash(name)) % 10**8:08d}"
    await seed(stack, sessions(tag))
    names = {number: f"conv_{tag}{number:08d}" for number in EXPECTED}
    for round_ in range(2):
        async with PlainClient(stack.url, stack.secret) as client:
            await client.hello()
            listed = await walk(client, 3)
            ids = [found["conversation_id"] for found in listed]
            assert len(ids) == len(set(ids))
            assert {found for found in ids if found.startswith(f"conv_{tag}")} == set(names.values())
            assert set(names.values()) <= set(ids)
            times = [(-found["last_activity_at"], found["conversation_id"]) for found in listed]
            assert times == sorted(times)
            titles = {found["conversation_id"]: (found["title"], found["title_source"]) for found in listed}
            if round_ == 0:
                assert titles[names[1]][0] == f"Mine {tag}"
                assert titles[names[2]] == (f"Auto {tag}", "generated")
            for number, expected in EXPECTED.items():
                assert await texts(client, names[number]) == expected, number
            if round_ == 0:
                before = {number: await client.history(names[number]) for number in EXPECTED}
                # A title of the owner's goes to the newest session of the lineage.
                assert (await rename(client, names[2], f"Owner's {tag}"))["conversation"]["title_source"] == "manual"
                assert (await rename(client, names[3], f"Mine {tag}"))["code"] == "title_conflict"
                assert (await rename(client, names[3], f"Owner's {tag}"))["code"] == "title_conflict"
            else:
                assert titles[names[2]] == (f"Owner's {tag}", "manual")
                assert {number: await client.history(names[number]) for number in EXPECTED} == before
        if round_ == 0:
            await stack.restart()
    found = {session["id"]: session["title"] for session in hermes_sessions(stack, names[2])}
    assert found[f"{tag}-2b"] == f"Owner's {tag}"
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        # The whole lineage goes, and nothing else.
        answer = await client.request("conversation.delete", conversation_id=names[2])
        assert answer["type"] == "conversation.delete.result"
        async with asyncio.timeout(20):
            while hermes_sessions(stack, names[2]):
                await asyncio.sleep(0.2)
        assert len(hermes_sessions(stack, names[1])) == 2
        # A conversation of many generations goes on where it was.
        assert (await client.exchange(names[1], f"say three {tag}", f"m{name}"))["status"] == "completed"
        assert (await texts(client, names[1]))[:4] == EXPECTED[1]
