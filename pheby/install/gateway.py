"""Whether Hermes's gateway runs, by its own record and by asking the port; never by looking through processes."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any, Final, Literal

from .target import gateway_records, profile_of

Answer = Literal["pheby", "other", "nothing"]

_SECONDS: Final = 2.0


def running(home: Path) -> bool:
    """Whether a gateway that wrote of the home is still there."""
    return any(_runs(record) for record in gateway_records(home))


def _runs(record: dict[str, Any]) -> bool:
    pid, started = record.get("pid"), record.get("start_time")
    if type(pid) is not int or pid <= 0 or record.get("gateway_state") in (None, "stopped", "startup_failed"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    now = _started(pid)
    # The number may belong to another process by now.
    return started is None or now is None or started == now


def _started(pid: int) -> int | None:
    try:
        # As Hermes reads it: the time is the 22nd word.
        return int(Path(f"/proc/{pid}/stat").read_text().split()[21])
    except (OSError, ValueError, IndexError):
        return None


def platform_state(home: Path) -> str | None:
    """What the gateway says of Pheby: connected, or another word of Hermes's; None if it says nothing."""
    record = next((record for record in gateway_records(home) if _runs(record)), {})
    platforms: Any = record.get("platforms")
    if not isinstance(platforms, dict):
        return None
    # The newer line names the profile where it serves several; the older has one word for all of them.
    said = platforms.get(f"{profile_of(home)}:pheby", platforms.get("pheby"))
    state = said.get("state") if isinstance(said, dict) else None
    return state if isinstance(state, str) else None


def ask(host: str, port: int, prefix: str = "") -> Answer:
    """Who answers on a port of this machine. A Pheby that is starting or stopping is one, too."""
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    try:
        connection.request("GET", f"{prefix}/healthz")
        answer = connection.getresponse()
        said = json.loads(answer.read(1_000))
    except (TimeoutError, ConnectionResetError, http.client.HTTPException, ValueError, RecursionError):
        return "other"
    except OSError:
        return "nothing"
    finally:
        connection.close()
    serving = answer.status == 200 and said == {"status": "ok"}
    waiting = answer.status == 503 and isinstance(said, dict) and said.get("code") == "unavailable"
    return "pheby" if serving or waiting else "other"


def knows(host: str, port: int, prefix: str, secret: str) -> bool:
    """Whether the Pheby there takes a secret; also where it does not say."""
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    try:
        # Of a file that there is not: who has the right secret hears 404.
        headers = {"Authorization": f"Bearer {secret}"}
        connection.request("GET", f"{prefix}/v1/attachments/none", headers=headers)
        return connection.getresponse().status not in (401, 429)
    except (OSError, http.client.HTTPException, ValueError):
        return True
    finally:
        connection.close()


def can_listen(host: str, port: int) -> bool:
    """Whether nobody else has the port. It is held for a moment to find out."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers do: the remains of a killed gateway's connections are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
