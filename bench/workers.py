"""Processes of a measurement, each on its own core: asked one thing at a time, in lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .measuring import load_core, pin, server_core

ROOT = Path(__file__).parents[1]


class Worker:
    """A child process: `python -m MODULE ARGUMENTS`, pinned to a core."""

    def __init__(self, core: int, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            # As an installed package has it: compiled once, not at every start.
            env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            preexec_fn=partial(pin, core),
        )

    def begin(self, do: str, **fields: Any) -> None:
        """Ask without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The answer to what was asked."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the measurement has ended: {self._process.wait()}")
        return json.loads(line)

    def ask(self, do: str, **fields: Any) -> Any:
        self.begin(do, **fields)
        return self.answer()

    def end(self) -> None:
        """End it and wait, so that its CPU time counts as the measurement's own."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@contextmanager
def server(kind: str, *arguments: str) -> Iterator[Worker]:
    """A server (see serving.py) on the server's core."""
    worker = Worker(server_core(), "bench.serving", kind, *arguments)
    try:
        yield worker
    finally:
        worker.end()


@contextmanager
def clients() -> Iterator[Worker]:
    """A load generator (see loading.py) on the other core."""
    worker = Worker(load_core(), "bench.loading")
    try:
        yield worker
    finally:
        worker.end()
