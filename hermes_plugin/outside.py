"""What another process of Hermes has for the owner: left in the spool of the one that listens."""

from __future__ import annotations

import asyncio
import os.path
import re
import sys
from collections.abc import Iterable
from typing import Any

from pheby_protocol.messages.message import MessageRole, Origin
from pheby_server.config import ConfigError
from pheby_server.logs import kind, log_of
from pheby_server.ports import AgentFile, Delivery
from pheby_server.spool import leave as leave_in
from pheby_server.spool import spool_of

from . import _hermes
from .chats import conversation_of
from .config import storage
from .drafts import clean_text

log = log_of(__name__)

_CRON_HEADER = re.compile(r"Cronjob Response: [^\n]*\n\(job_id: [^\n]*\)\n-")


async def leave(platform_config: Any, chat_id: str, message: str, files: Iterable[Any]) -> dict[str, Any]:
    """Leave a text and files for the owner; Hermes's answer. Durable when it says success."""
    text = clean_text(message or "")
    cron = _is_cron(text)
    try:
        folder = spool_of(storage(dict(getattr(platform_config, "extra", None) or {}), str(_hermes.home())))
        delivery = Delivery(
            text=text,
            origin=Origin.CRON if cron else Origin.SYSTEM,
            role=MessageRole.ASSISTANT,
            files=tuple([await asyncio.to_thread(_file, each) for each in files]),
            for_model=True,
        )
        if not delivery.text and not delivery.files:
            return {"success": True, "message_id": "nothing"}
        key = await asyncio.to_thread(leave_in, folder, conversation_of(chat_id), delivery)
    except (OSError, ConfigError) as failure:
        log.error("spool.not_left", extra={"error": kind(failure)})
        return {"error": "Pheby could not store the message"}
    return {"success": True, "message_id": key}


def _file(described: Any) -> AgentFile:
    """Hermes gives a path, or a path and whether it is a voice."""
    path = str(described if isinstance(described, str) else described[0])
    return AgentFile(path=_hermes.deliverable(path), name=os.path.basename(path))


def _is_cron(text: str) -> bool:
    # Hermes does not say who calls. Its command does, and so does the header that it puts before a job's result.
    return "cron" in sys.argv[1:3] or _CRON_HEADER.match(text) is not None
