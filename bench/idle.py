"""What a thousand connections that do nothing cost in memory."""

from __future__ import annotations

import tempfile

from pheby_server.testing import TEST_SECRET

from .measuring import Samples, interleaved, repeats
from .workers import clients, server

ROWS = ("idle-connection",)


def per_connection(kind: str, connections: int) -> float:
    """KB for each."""
    is_pheby = kind == "pheby"
    with tempfile.TemporaryDirectory() as folder, server(kind, folder) as serving, clients() as load:
        port = serving.answer()["port"]
        # What is made for the first ones is not theirs.
        load.ask("connect", port=port, clients=50, token=TEST_SECRET, hello=is_pheby)
        before = serving.ask("memory")["bytes"]
        load.ask("connect", port=port, clients=connections, token=TEST_SECRET, hello=is_pheby)
        after = serving.ask("memory")["bytes"]
        load.ask("close")
    return float(after - before) / connections / 1e3


def measure(quick: bool) -> Samples:
    connections = 100 if quick else 1_000
    return interleaved(
        repeats(quick),
        lambda: {"idle-connection": per_connection("pheby", connections)},
        lambda: {"idle-connection": per_connection("bare", connections)},
    )
