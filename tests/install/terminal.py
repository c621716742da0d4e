"""An owner's shell on a terminal: runs what is typed, and answers every question with yes."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping


def typed(command: str, environment: Mapping[str, str], timeout: float = 120) -> tuple[int, str]:
    """Type a command; its exit code, and what the terminal showed."""
    here, there = pty.openpty()
    with subprocess.Popen(
        command,
        shell=True,
        stdin=there,
        stdout=there,
        stderr=there,
        env=dict(environment),
        start_new_session=True,
    ) as process:
        os.close(there)
        shown = b""
        try:
            while data := _read(here):
                shown += data
                if shown.endswith(b"[y/N] "):
                    os.write(here, b"y\n")
        finally:
            os.close(here)
        return process.wait(timeout), shown.decode(errors="replace")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4_096)
    except OSError:
        # Nobody holds the other end any more.
        return b""
