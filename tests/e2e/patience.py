"""How long a stack's Hermes waits for the owner, changed for the time of a test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import yaml


@contextlib.asynccontextmanager
async def short_patience(stack: Any, seconds: int) -> AsyncIterator[None]:
    """Approvals and clarifications lapse after so long; Hermes reads its settings each time it asks."""
    if stack.hermes_version == "simulated":
        stack.hermes.prompt_seconds = seconds
        try:
            yield
        finally:
            stack.hermes.prompt_seconds = None
        return
    file = stack.home / "config.yaml"
    before = file.read_text()
    config = yaml.safe_load(before)
    config.setdefault("approvals", {})["timeout"] = seconds
    config.setdefault("agent", {})["clarify_timeout"] = seconds
    file.write_text(yaml.safe_dump(config))
    try:
        yield
    finally:
        file.write_text(before)
