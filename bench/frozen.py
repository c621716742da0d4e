"""A client that stops reading: what it costs the server, and what another client notices."""

from __future__ import annotations

import tempfile

from pheby_server.testing import TEST_SECRET

from .measuring import Samples, interleaved
from .workers import clients, server

ROWS = ("frozen-memory", "frozen-p99")
RATE = 5_000
MARK = "the-last-event"


def run(events: int, *, frozen: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, server("pheby", folder) as serving, clients() as load:
        port = serving.answer()["port"]
        load.ask("connect", port=port, clients=1, token=TEST_SECRET, hello=True)
        for count, mark in ((1_000, "warm"), (events, MARK)):
            if mark == MARK and frozen:
                load.ask("connect", port=port, clients=1, token=TEST_SECRET, hello=True, frozen=True)
            before = serving.ask("memory")["bytes"]
            load.begin("collect", until=mark)
            serving.ask("paced", events=count, rate=RATE, until=mark)
            found = load.answer()
        grown = (serving.ask("peak")["bytes"] - before) / 2**20
        load.ask("close")
    return {"frozen-memory": grown, "frozen-p99": found["p99"]}


def measure(quick: bool) -> Samples:
    events = 2_000 if quick else 100_000
    return interleaved(2 if quick else 5, lambda: run(events, frozen=True), lambda: run(events, frozen=False))
