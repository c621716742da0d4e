"""What clients that mean harm can make the server hold, each kind of them with eight connections at once."""

from __future__ import annotations

import tempfile

from pheby_server.testing import TEST_SECRET

from .measuring import Samples, interleaved
from .workers import clients, server

ATTACKS = ("flood", "malformed", "nested", "large-frame", "fragments", "unread", "slow-heads", "wrong-secrets")
ROWS = tuple(f"attack-{kind}" for kind in ATTACKS)
CONNECTIONS = 8
"""With so many the bound for all together is eight times the bound for one."""
MESSAGES = 40
"""Long ones, in the history that is asked for by who does not read the answers."""


def growth(kind: str, rounds: int) -> float:
    """MB of memory at the most, beyond what the server held before; also that another client is served after it."""
    with tempfile.TemporaryDirectory() as folder, server("pheby", folder) as serving, clients() as load:
        port = serving.answer()["port"]
        serving.ask("messages", count=MESSAGES)
        load.ask("connect", port=port, clients=1, token=TEST_SECRET, hello=True)
        before = serving.ask("memory")["bytes"]
        load.ask("attack", kind=kind, port=port, clients=CONNECTIONS, token=TEST_SECRET, rounds=rounds)
        grown = serving.ask("peak")["bytes"] - before
        load.ask("close")
    return float(grown) / 1e6


def measure(quick: bool) -> Samples:
    rounds = 200 if quick else 10_000

    def attacked() -> dict[str, float]:
        return {f"attack-{kind}": growth(kind, rounds) for kind in ATTACKS}

    def calm() -> dict[str, float]:
        return dict.fromkeys(ROWS, growth("calm", rounds))

    return interleaved(1 if quick else 3, attacked, calm)
