"""`python -m pheby_hermes.probe`, with Hermes's own Python: what is installed there, as one line of JSON.

Reads no home and opens nothing. Every name is looked at on its own, so that one that is gone does not hide the others.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any

from . import _hermes


def examine() -> dict[str, Any]:
    """What is here."""
    return {
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "hermes": _hermes.version(),
        "pheby": _version_of("pheby"),
        "aiohttp": _version_of("aiohttp"),
        "entry_point": any(entry.name == "pheby" for entry in metadata.entry_points(group="hermes_agent.plugins")),
        "missing": [
            {
                "symbol": symbol,
                "needed": any(part.needed for part in parts),
                "parts": [{"name": part.name, "without": part.without} for part in parts],
            }
            for symbol, parts in _hermes.missing().items()
        ],
        "adapter": _adapter_loads(),
    }


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _adapter_loads() -> bool:
    """Whether Pheby's own class can be made of Hermes's."""
    try:
        from .adapter import PhebyAdapter
    except Exception:  # noqa: BLE001 - whatever a changed Hermes raises: it is not as Pheby knows it
        return False
    return PhebyAdapter.MAX_MESSAGE_LENGTH > 0


if __name__ == "__main__":
    # What Hermes's modules print while they are imported must not stand before the line.
    answer, sys.stdout = sys.stdout, sys.stderr
    said = json.dumps(examine())
    print(said, file=answer)
