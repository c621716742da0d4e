"""How long an event takes from the moment it is made until a client has read it, at 500 a second."""

from __future__ import annotations

import tempfile

from pheby_server.testing import TEST_SECRET

from .measuring import Samples, interleaved, repeats
from .workers import clients, server

ROWS = ("latency-logged-p50", "latency-logged-p99", "latency-delta-p50", "latency-delta-p99")
CLIENTS = 10
RATE = 500
MARK = "the-last-event"


def paced(kind: str, seconds: float, *, delta: bool) -> tuple[float, float]:
    """Median and p99 in microseconds."""
    is_pheby = kind == "pheby"
    with tempfile.TemporaryDirectory() as folder, server(kind, folder) as serving, clients() as load:
        port = serving.answer()["port"]
        load.ask("connect", port=port, clients=CLIENTS, token=TEST_SECRET, hello=is_pheby)
        for events, mark in ((RATE // 2, "warm"), (int(RATE * seconds), MARK)):
            load.begin("collect", until=mark)
            serving.ask("paced", events=events, rate=RATE, until=mark, delta=delta)
            found = load.answer()
        load.ask("close")
    return found["p50"], found["p99"]


def measure(quick: bool) -> Samples:
    seconds = 1.0 if quick else 4.0

    def pheby() -> dict[str, float]:
        found = (*paced("pheby", seconds, delta=False), *paced("pheby", seconds, delta=True))
        return dict(zip(ROWS, found, strict=True))

    def bare() -> dict[str, float]:
        # The bare server knows of no difference.
        return dict(zip(ROWS, paced("bare", seconds, delta=False) * 2, strict=True))

    return interleaved(repeats(quick), pheby, bare)
