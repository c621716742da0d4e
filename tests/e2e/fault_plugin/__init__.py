"""For tests only: somebody else's code in the gateway. It holds up the loop, sets the clock, makes Hermes fail."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

SCHEMA = {
    "name": "fault",
    "description": "Brings a fault about.",
    "parameters": {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "value": {"type": "string"}},
        "required": ["kind", "value"],
    },
}

_now, _now_ns = time.time, time.time_ns


def stall(seconds: str) -> None:
    """Every event loop of the process stands still for so long."""
    for found in gc.get_objects():
        if isinstance(found, asyncio.AbstractEventLoop) and found.is_running():
            found.call_soon_threadsafe(time.sleep, float(seconds))


def clock(seconds: str) -> None:
    """From now on the clock is so much ahead of the real one."""
    ahead = int(seconds)
    time.time = lambda: _now() + ahead
    time.time_ns = lambda: _now_ns() + ahead * 1_000_000_000


def unreadable(text: str) -> None:
    """Pheby cannot read Hermes's sessions, and hears why in these words, turned round; with none it can again."""
    from hermes_state import SessionDB

    for name in ("get_messages", "list_sessions_rich"):
        kept = getattr(SessionDB, f"_real_{name}", None) or getattr(SessionDB, name)
        setattr(SessionDB, f"_real_{name}", kept)
        setattr(SessionDB, name, _raising(kept, text[::-1]) if text else kept)


def _raising(real: Any, text: str) -> Any:
    def fail(*args: Any, **options: Any) -> Any:
        # Hermes itself reads on: what it writes about a failure is not the matter.
        if sys._getframe(1).f_globals["__name__"].startswith("pheby_hermes"):
            raise RuntimeError(text)
        return real(*args, **options)

    return fail


FAULTS = {"stall": stall, "clock": clock, "unreadable": unreadable}


def fault(args: dict[str, Any], **context: Any) -> str:
    FAULTS[args["kind"]](args["value"])
    return json.dumps({"done": True})


def register(ctx: Any) -> None:
    ctx.register_tool(name="fault", toolset="fault", schema=SCHEMA, handler=fault)
