"""Owner's words that Hermes would expand, made safe and restored; and what is told to the agent in front of them.

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


_BEGIN = "[Delivered to your owner in this conversation since the last message]"
_END = "[End of what was delivered]"
_NEXT = "[New message]"
_CONTEXT = re.compile(rf"\s*{re.escape(_BEGIN)}\n.*?\n{re.escape(_END)}\n\n{re.escape(_NEXT)}\n", re.DOTALL)


def context(text: str) -> str | None:
    """What the owner was shown meanwhile, as Hermes puts it before their words; None for nothing."""
    if not text:
        return None
    inner = neutralise(text)
    for mark in (_BEGIN, _END, _NEXT):
        # They must be its own. Nothing is taken out, which could put a new one together.
        inner = inner.replace(mark, f"({mark[1:-1]})")
    return f"{_BEGIN}\n{inner}\n{_END}"


def without_context(text: str) -> str:
    """The owner's words alone, as they are in a row that has such a context before them."""
    found = _CONTEXT.match(text)
    return text[found.end() :] if found else text
