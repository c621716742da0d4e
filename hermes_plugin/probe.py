"""`python -m pheby_hermes.probe`, with Hermes's own Python: what is installed there, as one line of JSON.

Reads no home and opens nothing. Every seam is looked at on its own, so that one that is gone does not hide the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import metadata
from types import SimpleNamespace
from typing import Any, Final

from . import _hermes

# Without these the plugin does not work; without one of the others, that one thing does not.
_NEEDED: Final[dict[str, Callable[[], bool]]] = {
    "platform registry": lambda: {"is_connected", "allowed_users_env"} <= _hermes.platform_options(),
    "adapter base class": _hermes.adapter_complete,
    "Pheby's adapter": lambda: _adapter_loads(),
    "sessions": _hermes.sessions_readable,
    "Hermes home": lambda: bool(_hermes.home()),
}
_OPTIONAL: Final[dict[str, Callable[[], bool]]] = {
    "tools": lambda: _hermes.fires("pre_tool_call", "post_tool_call"),
    "runs": lambda: _hermes.fires("pre_llm_call", "post_llm_call", "on_session_end", "api_request_error"),
    "subagents": lambda: _hermes.fires("subagent_start", "subagent_stop"),
    "approvals": lambda: (
        _hermes.approvals_offered() and _hermes.fires("pre_approval_request", "post_approval_response")
    ),
    "clarifications": _hermes.clarifications_offered,
    "attachments": _hermes.files_offered,
    "models": lambda: _hermes.model_picker_offered(_adapter()),
    "reasoning effort": lambda: _hermes.effort_picker_offered(_adapter()),
    "profiles": _hermes.profiles_told_apart,
    "redaction": _hermes.redaction_offered,
}


def examine() -> dict[str, Any]:
    """What is here."""
    return {
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "hermes": _hermes.version(),
        "pheby": _version_of("pheby"),
        "aiohttp": _version_of("aiohttp"),
        "entry_point": any(entry.name == "pheby" for entry in metadata.entry_points(group="hermes_agent.plugins")),
        "needed": {name: _present(probe) for name, probe in _NEEDED.items()},
        "optional": {name: _present(probe) for name, probe in _OPTIONAL.items()},
    }


def _present(probe: Callable[[], bool]) -> bool:
    try:
        return bool(probe())
    except Exception:  # noqa: BLE001 - whatever a changed Hermes raises: it is not as Pheby knows it
        return False


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _adapter_loads() -> bool:
    from .adapter import PhebyAdapter

    return PhebyAdapter.MAX_MESSAGE_LENGTH > 0


def _adapter() -> Any:
    """As much of an adapter as the probes of the pickers look at."""
    return SimpleNamespace(gateway_runner=_hermes.gateway_class())


if __name__ == "__main__":
    # What Hermes's modules print while they are imported must not stand before the line.
    answer, sys.stdout = sys.stdout, sys.stderr
    said = json.dumps(examine())
    print(said, file=answer)
