"""Owner's words that Hermes would expand, made safe and restored.

Hermes replaces `@file:…`, `@folder:…`, `@git:…`, `@url:…`, `@diff` and `@staged` in a message by what they name. An
owner who types them on the phone means the words. U+2060 (word joiner: invisible, no width) behind the `@` keeps
Hermes from it.
"""

from __future__ import annotations

import re

WORD_JOINER = "\u2060"

_REFERENCE = re.compile(r"(?<![\w/])@(?=(?:diff|staged)\b|(?:file|folder|git|url):)")
_NEUTRALISED = re.compile(rf"(?<![\w/])@{WORD_JOINER}(?=(?:diff|staged)\b|(?:file|folder|git|url):)")


def neutralise(text: str) -> str:
    """The text as Hermes takes it for plain words."""
    return _REFERENCE.sub("@" + WORD_JOINER, text)


def restore(text: str) -> str:
    """Undoes `neutralise`; a word joiner anywhere else stays."""
    return _NEUTRALISED.sub("@", text)
