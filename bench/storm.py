"""Two hundred clients come back at once."""

from __future__ import annotations

import tempfile

from pheby_server.testing import TEST_SECRET

from .measuring import Samples, interleaved, repeats
from .workers import clients, server

ROWS = ("storm-time", "storm-memory")


def storm(kind: str, count: int, behind: int) -> dict[str, float]:
    is_pheby = kind == "pheby"
    with tempfile.TemporaryDirectory() as folder, server(kind, folder) as serving, clients() as load:
        port = serving.answer()["port"]
        cursor = None
        if is_pheby:
            cursor = serving.ask("cursor")
            serving.ask("burst", events=behind, until="the-last-one")
        else:
            serving.ask("greet_with", count=behind)
        before = serving.ask("memory")["bytes"]
        until = '"sync.completed"' if is_pheby else "the-last-one"
        found = load.ask("storm", port=port, clients=count, token=TEST_SECRET, resume=cursor, until=until)
        grown = (serving.ask("peak")["bytes"] - before) / 2**20
        load.ask("close")
    if found["bytes"] < count * behind * 150:
        raise RuntimeError("the events were not replayed")
    return {"storm-time": found["seconds"] * 1e3, "storm-memory": grown}


def measure(quick: bool) -> Samples:
    count, behind = (20, 50) if quick else (200, 500)
    return interleaved(repeats(quick), lambda: storm("pheby", count, behind), lambda: storm("bare", count, behind))
