"""A client that comes back far behind: from its hello until it is in step."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path

from pheby_server.testing import TEST_SECRET

from .measuring import Samples, interleaved, pin, repeats, server_core
from .workers import clients, server

ROWS = ("resync",)


def measure(quick: bool) -> Samples:
    events = 1_000 if quick else 10_000
    with tempfile.TemporaryDirectory() as folder, server("pheby", folder) as serving, clients() as load:
        # The peer is this process, on the core that the server has for itself.
        pin(server_core())
        port = serving.answer()["port"]
        cursor = serving.ask("cursor")
        serving.ask("burst", events=events, until="the-last-event")
        database = sqlite3.connect(Path(folder) / "pheby.db")

        def pheby() -> dict[str, float]:
            load.ask("connect", port=port, clients=1, token=TEST_SECRET)
            found = load.ask("resume", resume=cursor)
            load.ask("close")
            if found["bytes"] < events * 150:
                raise RuntimeError("the events were not replayed")
            return {"resync": found["seconds"] * 1e3}

        def bare() -> dict[str, float]:
            start = time.perf_counter()
            rows = database.execute("SELECT seq, frame FROM events WHERE seq > ?", (cursor["seq"],)).fetchall()
            spent = time.perf_counter() - start
            if len(rows) != events:
                raise RuntimeError("the events were not logged")
            return {"resync": spent * 1e3}

        pheby()
        bare()
        found = interleaved(repeats(quick) * 2, pheby, bare)
        database.close()
        return found
