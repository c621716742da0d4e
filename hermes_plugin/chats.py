"""Conversation ids and Hermes's chat ids: one is derived from the other, so that a lost store loses no id."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from pheby_protocol.ids import ConversationId, is_id

HOME_CHAT_ID = "1000000000000000"
"""The chat for what belongs to no other, in the first profile; digits, so that `hermes send` can address it."""

_PREFIX = "conv_"
_ESCAPE = "conv_x-"
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,56}")


def home_chat(home: str) -> str:
    """The same for the profile with this Hermes home.

    Each has its own: a gateway of 0.19 for several profiles takes chats of one id for one, words and all.
    """
    folder = Path(home)
    if folder.parent.name != "profiles":
        return HOME_CHAT_ID
    number = int.from_bytes(hashlib.sha256(folder.name.encode()).digest()) % 10**15
    return f"1{number:015}"


def conversation_of(chat_id: str) -> ConversationId:
    """The conversation of a chat. Cron accepts any chat id: some need an escape, overlong ones are not reversible."""
    if chat_id.startswith(_PREFIX) and is_id(chat_id):
        # Somebody has addressed a conversation by the name that clients know.
        return ConversationId(chat_id)
    plain = f"{_PREFIX}{chat_id}"
    if _PLAIN.fullmatch(chat_id) and not plain.startswith(_ESCAPE):
        return ConversationId(plain)
    coded = base64.urlsafe_b64encode(chat_id.encode("utf-8", "replace")).decode().rstrip("=")
    return ConversationId(f"{_ESCAPE}{coded}"[:64])


def chat_of(conversation_id: ConversationId) -> str:
    """The chat of a conversation."""
    if not conversation_id.startswith(_ESCAPE):
        return conversation_id.removeprefix(_PREFIX)
    coded = conversation_id.removeprefix(_ESCAPE)
    try:
        chat_id = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode()
    except ValueError:
        return coded
    return chat_id if is_id(conversation_id) else coded
