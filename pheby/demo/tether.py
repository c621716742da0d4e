"""Run a command that dies with its parent: python tether.py PARENT_PID COMMAND ARGUMENT...

Run as a script by whatever interpreter there is, so it imports nothing of Pheby's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent where the system can, then become the command."""
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        # With an unusual libc the command only loses this protection.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent can have died before the tie was made.
    if os.getppid() != parent:
        raise SystemExit(1)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is wanted here


if __name__ == "__main__":
    main()
