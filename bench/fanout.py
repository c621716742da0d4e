"""Many events to ten clients: CPU time per delivery, and deliveries per second on one core."""

from __future__ import annotations

import tempfile

from pheby_server.testing import TEST_SECRET

from .measuring import Samples, interleaved, repeats
from .workers import clients, server

ROWS = ("fanout-cpu", "fanout-rate", "fanout-rate-batched")
CLIENTS = 10
MARK = "the-last-event"


def burst(kind: str, events: int, *, batches: bool = False) -> tuple[float, float]:
    """Microseconds of CPU time per delivery, deliveries per second."""
    is_pheby = kind == "pheby"
    with tempfile.TemporaryDirectory() as folder, server(kind, folder) as serving, clients() as load:
        port = serving.answer()["port"]
        load.ask("connect", port=port, clients=CLIENTS, token=TEST_SECRET, hello=is_pheby, batches=batches)
        # What is done for the first time does not count.
        for count, mark in ((events // 10, "warm"), (events, MARK)):
            load.begin("collect", until=mark)
            started = serving.ask("burst", events=count, until=mark)
            ended = load.answer()
        spent = serving.ask("cpu")["cpu"] - started["cpu"]
        load.ask("close")
    deliveries = events * CLIENTS
    return spent / deliveries * 1e6, deliveries / ((ended["end"] - started["start"]) / 1e9)


def measure(quick: bool) -> Samples:
    events = 2_000 if quick else 10_000

    def pheby() -> dict[str, float]:
        cpu, rate = burst("pheby", events)
        _, batched = burst("pheby", events, batches=True)
        return dict(zip(ROWS, (cpu, rate, batched), strict=True))

    def bare() -> dict[str, float]:
        cpu, rate = burst("bare", events)
        return dict(zip(ROWS, (cpu, rate, rate), strict=True))

    return interleaved(repeats(quick), pheby, bare)
