"""From the start of a process until it listens; its store is there already."""

from __future__ import annotations

import tempfile
import time

from .measuring import Samples, interleaved, repeats
from .workers import server

ROWS = ("start-up",)


def start(kind: str, folder: str) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    with server(kind, folder) as serving:
        serving.answer()
        return (time.perf_counter() - began) * 1e3


def measure(quick: bool) -> Samples:
    with tempfile.TemporaryDirectory() as folder:
        start("pheby", folder)
        start("bare", folder)
        return interleaved(
            repeats(quick) * (1 if quick else 3),
            lambda: {"start-up": start("pheby", folder)},
            lambda: {"start-up": start("bare", folder)},
        )
