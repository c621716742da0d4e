"""How long a page takes, by how much there is: it must not grow.

`python -m bench.history [--quick]` prints every size, with the cold start and a deletion.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.conversation import TitleSource
from pheby_protocol.messages.message import MessageRole
from pheby_server.auth import Authenticator
from pheby_server.config import ServerConfig
from pheby_server.ports import HermesConversation, HermesMessage
from pheby_server.server import Server
from pheby_server.testing import ManualHermes, MemoryTransport

from .measuring import Sample, Samples, pin, server_core

SIZES = ((100, 200), (1_000, 2_000), (10_000, 20_000))
"""Conversations, and messages of one of them."""
ROWS = ("list-growth", "history-growth", "history-page")
TEXT = "A message of ordinary length, as people write them to each other every day. " * 3


def hermes_with(conversations: int, messages: int) -> ManualHermes:
    """A Hermes with that much; the first conversation has all the messages."""
    hermes = ManualHermes()
    hermes.listed = [
        HermesConversation(
            conversation_id=name(number),
            title=f"Title {number}",
            title_source=TitleSource.GENERATED,
            created_at=1_700_000_000_000 + number,
            last_activity_at=1_700_000_000_000 + number,
        )
        for number in range(conversations)
    ]
    hermes.rows[name(0)] = [
        HermesMessage(
            key=f"r{number}",
            role=MessageRole.ASSISTANT if number % 2 else MessageRole.USER,
            text=f"{number} {TEXT}",
            created_at=1_700_000_000_000 + number,
        )
        for number in range(messages)
    ]
    return hermes


def name(number: int) -> ConversationId:
    return ConversationId(f"conv_{number:017d}")


async def timed(call: Callable[[], Awaitable[object]], repeats: int) -> float:
    """The median, in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        await call()
        times.append((time.perf_counter() - start) * 1_000)
    return statistics.median(times)


def raw_page(database: sqlite3.Connection, conversation: str) -> list[Any]:
    """The peer: the newest 50 messages by the bare query, decoded."""
    rows = database.execute(
        "SELECT body FROM messages WHERE conversation_id = ? AND position > 0 ORDER BY position DESC LIMIT 50",
        (conversation,),
    ).fetchall()
    return [json.loads(body) for (body,) in rows]


async def measure_store(conversations: int, messages: int, repeats: int) -> dict[str, float]:
    hermes = hermes_with(conversations, messages)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(ServerConfig(storage=folder), hermes, Authenticator(()))
        start = time.perf_counter()
        await server.start()
        cold_start = (time.perf_counter() - start) * 1_000
        client = MemoryTransport(server)
        await client.hello()
        start = time.perf_counter()
        # Not as a request: all of a large history may take longer than a test's client waits.
        await server.transcript.page(name(0), None, None, None)
        cold_history = (time.perf_counter() - start) * 1_000
        reader = sqlite3.connect(Path(folder) / "pheby.db")

        async def raw() -> None:
            raw_page(reader, name(0))

        result = {
            "conversations": conversations,
            "messages": messages,
            "cold_start_ms": cold_start,
            "cold_history_ms": cold_history,
            "list_ms": await timed(lambda: client.request("conversation.list"), repeats),
            "history_ms": await timed(lambda: client.request("conversation.history", conversation_id=name(0)), repeats),
            "raw_history_ms": await timed(raw, repeats),
        }
        start = time.perf_counter()
        await client.request("conversation.delete", conversation_id=name(0))
        result["delete_ms"] = (time.perf_counter() - start) * 1_000
        reader.close()
        client.cut()
        await server.stop()
        restarted = Server(ServerConfig(storage=folder), hermes, Authenticator(()))
        start = time.perf_counter()
        await restarted.start()
        result["restart_ms"] = (time.perf_counter() - start) * 1_000
        await restarted.stop()
    return result


async def measure_all(quick: bool, sizes: Sequence[tuple[int, int]]) -> list[dict[str, float]]:
    return [await measure_store(conversations, messages, 30 if quick else 100) for conversations, messages in sizes]


def measure(quick: bool) -> Samples:
    pin(server_core())
    samples: Samples = {name: [] for name in ROWS}
    for _ in range(1 if quick else 5):
        small, large = asyncio.run(measure_all(quick, (SIZES[0], SIZES[1] if quick else SIZES[2])))
        samples["list-growth"].append(Sample(large["list_ms"], small["list_ms"]))
        samples["history-growth"].append(Sample(large["history_ms"], small["history_ms"]))
        samples["history-page"].append(Sample(large["history_ms"], large["raw_history_ms"]))
    return samples


COLUMNS = ("conversations", "messages", "list_ms", "history_ms", "raw_history_ms")
COLUMNS += ("cold_start_ms", "cold_history_ms", "delete_ms", "restart_ms")


def main() -> None:
    quick = "--quick" in sys.argv
    found = asyncio.run(measure_all(quick, SIZES[:2] if quick else SIZES))
    lines = ["".join(f"{column:>17}" for column in COLUMNS)]
    lines += ["".join(f"{each[column]:>17.2f}" for column in COLUMNS) for each in found]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
