"""The log: stable event names, fields that can be seen, no secret, and no line that somebody else wrote.

Every message is `event.name key=value ...: what it means`. Loggers are the process's, so what is known here is too:
the secrets that no line may show, whichever profile they belong to.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import threading
import traceback
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final

MAX_VALUE_CHARS: Final = 4_000
MAX_TEXT_CHARS: Final = 20_000
MIN_SECRET_CHARS: Final = 8
"""A shorter one would mask half of every line."""
REPEAT_SECONDS: Final = 60.0
MAX_REPEATS: Final = 256

_CLIENTS: Final = frozenset({"frame.refused", "request.refused"})
"""What a client brings about as often as it likes. A line costs the loop a millisecond in Hermes's handlers."""
_MAX_FRAMES: Final = 12
_MAX_CAUSES: Final = 5
_MASK: Final = "***"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/@+*\[\]-]+")
_CREDENTIAL: Final = re.compile(
    r"(?i:\b(bearer|basic)\s+)[^\s\"',;]+|\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[a-z]|AIza)[-_]?[\w-]{16,}"
)


class _Secrets:
    """What no line may show."""

    def __init__(self) -> None:
        self._values: tuple[str, ...] = ()

    def keep(self, values: Iterable[str | None]) -> None:
        """From now on, for as long as the process lives: a late line may still hold one."""
        long = [value for value in values if value is not None and len(value) >= MIN_SECRET_CHARS]
        forms = {form for value in long for form in (value, json.dumps(value)[1:-1])}
        # The longest first: one may be a part of another.
        self._values = tuple(sorted(forms.union(self._values), key=len, reverse=True))

    def mask(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, _MASK)
        return _CREDENTIAL.sub(lambda found: f"{found[1]} {_MASK}" if found[1] else _MASK, text)


class _Repeats:
    """Says of a line whether it is news. One that is not is counted, and the next that is tells how many there were."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}
        self._lock = threading.Lock()

    def news(self, line: tuple[str, str], now: float) -> int | None:
        """How many were left out before this one; None: this one is left out."""
        with self._lock:
            told_at, count = self._seen.pop(line, (None, 0))
            # The clock may have jumped back.
            is_news = told_at is None or abs(now - told_at) >= REPEAT_SECONDS
            self._seen[line] = (now, 0) if is_news or told_at is None else (told_at, count + 1)
            if len(self._seen) > MAX_REPEATS:
                del self._seen[next(iter(self._seen))]
        return count if is_news else None

    def forget(self) -> None:
        """Everything is news again."""
        with self._lock:
            self._seen.clear()


secrets: Final = _Secrets()
repeats: Final = _Repeats()
refusals: Final = _Repeats()
"""Apart, so that no client makes the others be told again."""


class Log(logging.LoggerAdapter[logging.Logger]):
    """A module's log. What is said is a constant, `event.name` or `event.name: what it means`; the rest is `extra`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
        event, colon, meaning = str(msg).partition(": ")
        given: Mapping[str, object] = kwargs.get("extra") or {}
        fields = {name: _safe(value) for name, value in given.items() if value is not None}
        kwargs["extra"] = {"event": event, **fields}
        shown = [f"{name}={_as_shown(name, value)}" for name, value in fields.items()]
        return " ".join([event, *shown]) + colon + meaning, kwargs


def log_of(module: str) -> Log:
    """The log of a module: whatever comes to it by whatever way is guarded."""
    logger = logging.getLogger(module)
    if not any(isinstance(known, _Guard) for known in logger.filters):
        logger.addFilter(_Guard())
    return Log(logger)


class _Guard(logging.Filter):
    """On the logger itself: what handlers, formats and other libraries do with a record comes after it."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = one_line(record.getMessage(), MAX_TEXT_CHARS)
        record.msg, record.args = text, ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = where(record.exc_info[1])
        # Its text may hold a path, the owner's words or a key.
        record.exc_info = record.stack_info = None
        from_client = getattr(record, "event", None) in _CLIENTS
        if from_client or record.levelno >= logging.WARNING:
            known = refusals if from_client else repeats
            left_out = known.news((record.name, f"{text}\n{record.exc_text}"), record.created)
            if left_out is None:
                return False
            if left_out:
                record.msg = f"{text} repeated={left_out}"
        return True


def one_line(text: str, most: int) -> str:
    """The text without secrets, so long at most, on one line: nobody can write a line of their own into the log."""
    text = secrets.mask(text)
    if len(text) > most:
        text = text[:most] + "…"
    return text if text.isprintable() else "".join(_visible(character) for character in text)


def where(failure: BaseException) -> str:
    """What kind of failure it was and where it came from: types and places, nothing of their texts."""
    parts: list[str] = []
    following: BaseException | None = failure
    while following is not None and len(parts) < _MAX_CAUSES:
        parts.append("\n".join([kind(following), *_places(following)]))
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)
    return "\ncaused by ".join(parts)


def kind(failure: BaseException) -> str:
    """An exception's type, with the name of the system's or the database's error where it has one."""
    number = failure.errno if isinstance(failure, OSError) else None
    name = errno.errorcode.get(number) if isinstance(number, int) else getattr(failure, "sqlite_errorname", None)
    return f"{type(failure).__name__} {name}" if isinstance(name, str) else type(failure).__name__


def _places(failure: BaseException) -> Iterable[str]:
    for frame, line in list(traceback.walk_tb(failure.__traceback__))[-_MAX_FRAMES:]:
        file = "/".join(frame.f_code.co_filename.replace("\\", "/").split("/")[-2:])
        yield f"  {file}:{line} in {frame.f_code.co_name}"


def _safe(value: object) -> object:
    return value if isinstance(value, bool | int | float) else one_line(str(value), MAX_VALUE_CHARS)


def _as_shown(name: str, value: object) -> str:
    text = str(value)
    # A frame is the last field, and stays what a person can copy.
    return text if name == "frame" or _PLAIN.fullmatch(text) else '"' + text.replace('"', "'") + '"'


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
