"""Lines of a profile's .env: bare, since not every Hermes takes quotes away; the rest stays as it is to the byte."""

from __future__ import annotations

import re
from typing import Final

import attrs

from .edits import newline_of
from .files import digest

_LINE: Final = re.compile(r"[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=[ \t]*(.*?)[ \t]*")


@attrs.frozen
class Line:
    """A line that Pheby wrote. The value is known by its digest alone."""

    name: str
    digest: str


@attrs.frozen
class Written:
    """What Pheby wrote into a .env."""

    existed: bool
    glue: str
    """What was needed before the first line."""
    lines: tuple[Line, ...]


def values(text: str) -> dict[str, str]:
    """All names and values; the last of a name counts."""
    found = {}
    for line in text.splitlines():
        matched = _LINE.fullmatch(line)
        if matched is not None:
            found[matched[1]] = matched[2].strip("'\"")
    return found


def append(text: str | None, entries: dict[str, str]) -> tuple[str, Written]:
    """The text with these lines at its end."""
    before = text or ""
    nl = newline_of(before)
    glue = nl if before and before[-1] not in "\r\n" else ""
    added = "".join(f"{name}={value}{nl}" for name, value in entries.items())
    lines = tuple(Line(name, digest(value)) for name, value in entries.items())
    return before + glue + added, Written(text is not None, glue, lines)


def changed(text: str, written: Written) -> list[str]:
    """The names whose lines are still there and say something else than what was written."""
    now = values(text)
    return [line.name for line in written.lines if line.name in now and digest(now[line.name]) != line.digest]


def take_back(text: str, written: Written) -> str | None:
    """The text without the lines of these names; None for a file that is not needed any more."""
    names = {line.name for line in written.lines}
    kept = []
    last_is_ours = False
    for line in text.splitlines(keepends=True):
        matched = _LINE.fullmatch(line.rstrip("\r\n"))
        last_is_ours = matched is not None and matched[1] in names
        if not last_is_ours:
            kept.append(line)
    rest = "".join(kept)
    if last_is_ours and written.glue and rest.endswith(written.glue):
        rest = rest[: -len(written.glue)]
    return rest if rest or written.existed else None


def replace(text: str, name: str, value: str | None) -> str:
    """The text with another value in the place of a name's last line, at the end if there is none; None removes it."""
    lines = text.splitlines(keepends=True)
    places = [index for index, line in enumerate(lines) if _names(line, name)]
    if value is None:
        return "".join(line for index, line in enumerate(lines) if index not in places)
    if not places:
        return append(text, {name: value})[0]
    ending = lines[places[-1]][len(lines[places[-1]].rstrip("\r\n")) :]
    lines[places[-1]] = f"{name}={value}{ending}"
    return "".join(lines)


def _names(line: str, name: str) -> bool:
    matched = _LINE.fullmatch(line.rstrip("\r\n"))
    return matched is not None and matched[1] == name
