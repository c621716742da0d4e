"""Cumulative streamed text in, changes of the visible text out.

Hermes hands an adapter the whole text of a segment again with every edit: with a cursor glyph at its end, reasoning
tags in mid-line, `MEDIA:` tags cut in two by the stream, lone surrogates. `DraftTail` shows the cleaned text and says
how it changed. What may still become a tag is held back, so that the visible text nearly always only grows; where it
does not, the change is an explicit `Replace`. Fenced and inline code is verbatim.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, TypeAlias

from attrs import define, field, frozen

MAX_MEDIA_PATH_CHARS = 1024
MAX_MEDIA_PATH_SPACES = 8
MAX_INLINE_TICKS = 16  # a longer run of backticks in mid-line is decoration


@frozen
class Append:
    """The visible text grew at its end by `text`."""

    text: str


@frozen
class Replace:
    """The visible text is now `text`, which does not begin with what was shown before."""

    text: str


Change: TypeAlias = Append | Replace


@define
class DraftTail:
    """The visible text of one streamed segment. Not thread-safe; cheap for 100,000 characters."""

    cursor: str = " ▉"
    text: str = field(default="", init=False)
    # Whether reasoning without an end hides the rest of the text. A stream of Hermes loses the end tag of reasoning in
    # mid-line, with the words behind it: then only the turn's final text has them.
    unclosed: bool = field(default=False, init=False)
    media: tuple[str, ...] = field(default=(), init=False)

    def update(self, text: str, *, final: bool = False) -> Append | Replace | None:
        """Takes the segment's whole text so far; None if nothing visible changed."""
        seen = _read(_uncursored(text, self.cursor), final)
        before, self.text, self.media, self.unclosed = self.text, seen.text, seen.media, seen.unclosed
        if seen.text == before:
            return None
        if seen.text.startswith(before):
            return Append(seen.text[len(before) :])
        return Replace(seen.text)


def visible(text: str, *, final: bool, cursor: str = "") -> str:
    """What may be shown of a segment's text; unless `final`, without a tail that may still become a tag."""
    return _read(_uncursored(text, cursor), final).text


def clean_text(text: str) -> str:
    """The visible part of a whole text, for instance of a stored row."""
    return _read(text, True).text


def media_paths(text: str) -> tuple[str, ...]:
    """The files that a whole text hands over, each once, in order."""
    return _read(text, True).media


def whole_characters(text: str) -> str:
    """Joins surrogate pairs that arrived as two characters, and makes every lone surrogate U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    joined = _SURROGATE_PAIR.sub(lambda m: m[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text)
    return _SURROGATE.sub("\ufffd", joined)


_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")

_REASONING: Final = ("think", "thinking", "reasoning", "thought", "reasoning_scratchpad")
_DIRECTIVES: Final = ("[[as_document]]", "[[audio_as_voice]]")
_NAMES: Final = "|".join(sorted(_REASONING, key=len, reverse=True))
# Every alternative starts with a literal character: the regular expression engine then skips plain text quickly.
_TOKEN = re.compile(
    "``*|~~~~*"
    rf"|<(?i:(?P<shut>/?)(?P<name>{_NAMES})(?P<rest>(?=[\s/>])[^<>]{{0,200}}))>"
    "|MEDIA:" + "".join("|" + re.escape(directive) for directive in _DIRECTIVES)
)
_LEADING_BLANK = re.compile(r"(?:[ \t\r]*\n)+")
_REST_OF_LINE = re.compile(r"[ \t\r]*\n")
_SPACES = re.compile(r"[ \t]+")
_TICK: Final = "`"
"""Apart, since Hermes's scan of what it installs takes an exclamation mark before one for a command."""
_EMPHASIS_BEFORE = re.compile(r"(?<![*_])[*_]{1,3}\Z")
_EMPHASIS = re.compile(r"[*_]{0,3}")
_MODEL_TOKENS = re.compile(r"(?:<\|[^|<>\s]{1,40}\|>)*")
_PARTIAL_MODEL_TOKEN = re.compile(r"<(?:\|(?:[^|<>\s]{1,40}\|?)?)?\Z")

_PATH_START = r"(?:~?/|[A-Za-z]:[\\/])"
_WIDE_PUNCTUATION = "\u3001\u3002\u300c\u300d\u3010\u3011\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
_PATH_END = rf"""(?=[\s"'`<>()\[\]{{}},;:!?*{_WIDE_PUNCTUATION}]|_{{1,3}}(?:\s|\Z)|\.(?:\s|\Z)|\Z)"""
_FILE_TYPES: Final = (
    r"7z|aac|avif?|bmp|bz2|csv|docx?|epub|flac|gif|gz|heic|html?|ico|ics|jpe?g|json|log|m4a|md|mkv|mov|mp[34]|od[pst]|ogg"
    r"|opus|parquet|pdf|png|pptx?|py|rar|rtf|sqlite|svg|tar|tgz|tiff?|toml|tsv|txt|wav|web[mp]|xlsx?|xml|ya?ml|zip"
)
_STARTS_PATH = re.compile(_PATH_START)
_PARTIAL_PATH_START = re.compile(r"(?:~|[A-Za-z]:?)?\Z")
_PLAIN_PATH = re.compile(_PATH_START + r"""[^\s"'`<>|]*?\.[A-Za-z0-9]{1,10}""" + _PATH_END)
_SPACED_PATH = re.compile(_PATH_START + r"""[^\n"'`<>|]*?\.(?i:""" + _FILE_TYPES + ")" + _PATH_END)
_BARE_PATH = re.compile(_PATH_START + r"""[^\s"'`<>|,;()\[\]{}]*""")

# More than three are no emphasis, and the tag stands behind them.
_PARTIAL_MEDIA = re.compile(r"(?:(?<![A-Za-z0-9*_])[*_]{0,3}|(?<=[*_]{4}))(?:M(?:E(?:D(?:IA?)?)?)?)?\Z")
_PARTIAL_TAG = re.compile(r"<([^<>]{0,200})\Z")
_PARTIAL_NAME = re.compile(rf"/?(?:{_NAMES})(?:[\s/][^<>]*)?\Z", re.IGNORECASE)


_HELD: Final = -1


@frozen
class _Seen:
    text: str
    media: tuple[str, ...]
    unclosed: bool


@frozen
class _Tag:
    """A MEDIA tag that ends at `end`; `path` None: it is not one; `end` None: it cannot be told yet."""

    end: int | None
    path: str | None = None


def _uncursored(text: str, cursor: str) -> str:
    return text.removesuffix(cursor) if cursor else text


def _read(text: str, final: bool) -> _Seen:
    if not final and text and "\ud800" <= text[-1] <= "\udbff":
        text = text[:-1]  # its other half may be the next character
    reader = _Reader(whole_characters(text), final)
    shown = reader.read()
    blank = _LEADING_BLANK.match(shown)
    text = (shown[blank.end() :] if blank else shown).rstrip()
    return _Seen(text, tuple(dict.fromkeys(reader.media)), reader.reasoning_open)


class _Reader:
    """One pass over a text, from token to token."""

    def __init__(self, text: str, final: bool) -> None:
        self.media: list[str] = []
        self.reasoning_open = False
        self._text = text
        self._final = final
        self._parts: list[str] = []
        self._kept = 0  # everything before is in _parts, or was removed
        self._glued = -1  # where a MEDIA tag ended
        self._code_end = 0
        self._unclosed = False  # backticks that may still turn out to open code
        self._no_closer: set[int] = set()
        self._newline = -1  # the first one at or behind the place it was last looked for

    def read(self) -> str:
        at = 0
        while token := _TOKEN.search(self._text, at):
            step = self._code(token) if token[0][0] in "`~" else self._tag(token)
            if step == _HELD:
                return "".join(self._parts)
            at = step
        self._cut(self._without_partial_tag(len(self._text)))
        return "".join(self._parts)

    # -- code ----------------------------------------------------------------------------------------------------

    def _code(self, run: re.Match[str]) -> int:
        """Where to read on: behind the code that this run of backticks or tildes opens, or behind the run."""
        mark, length = run[0][0], len(run[0])
        if length >= 3 and self._begins_line(run.start()):
            newline = self._newline_behind(run.end())
            if mark == "~" or (newline < len(self._text) and self._text.find("`", run.end(), newline) < 0):
                return self._mark_code(self._fence_end(mark, length, newline))
        if mark == "~":
            return run.end()
        return self._inline_code(run, length)

    def _inline_code(self, run: re.Match[str], length: int) -> int:
        # One or two backticks pair within their line; three in mid-line are used for blocks as well.
        newline = self._newline_behind(run.end()) if length < 3 else len(self._text)
        if length > MAX_INLINE_TICKS or length in self._no_closer:
            return run.end()
        closer = _ticks(length).search(self._text, run.end(), newline)
        if closer:
            return self._mark_code(closer.end())
        if length >= 3:
            self._no_closer.add(length)
        self._unclosed = self._unclosed or (newline == len(self._text) and not self._final)
        return run.end()

    def _fence_end(self, mark: str, length: int, newline: int) -> int:
        closer = _fence(mark, length).search(self._text, newline)
        return closer.end() if closer else len(self._text)

    def _newline_behind(self, at: int) -> int:
        """The next end of a line, or the text's; each is looked up once, however many runs its line has."""
        if self._newline < at:
            found = self._text.find("\n", at)
            self._newline = found if found >= 0 else len(self._text)
        return self._newline

    def _mark_code(self, end: int) -> int:
        self._code_end = end
        return end

    def _begins_line(self, at: int) -> bool:
        start = self._text.rfind("\n", 0, at) + 1
        return self._text[start:at].strip(" \t>") == ""

    # -- tags ----------------------------------------------------------------------------------------------------

    def _tag(self, token: re.Match[str]) -> int:
        """Takes the tag out and says where to read on; _HELD: nothing from the tag on can be shown."""
        start = token.start()
        if token[0] == "MEDIA:":
            return self._media_tag(token)
        if self._unclosed:
            return self._hold(start)
        if token["name"] and not token["shut"] and not token["rest"].endswith("/"):
            closer = _closing(token["name"].lower()).search(self._text, token.end())
            if closer:
                return self._remove(start, closer.end())
            self.reasoning_open = True
            return self._hold(start)
        return self._remove(start, token.end())

    def _media_tag(self, token: re.Match[str]) -> int:
        start, emphasised = token.start(), False
        if start != self._glued:
            emphasis = _EMPHASIS_BEFORE.search(self._text, max(self._kept, start - 4), start)
            emphasised = emphasis is not None
            start = emphasis.start() if emphasis else start
            if start and self._text[start - 1].isascii() and self._text[start - 1].isalnum():
                return token.end()
        tag = self._media_path(token.end())
        if tag.end is None or (self._unclosed and tag.path is not None):
            return self._hold(start)
        if tag.path is None:
            return token.end()
        self.media.append(tag.path)
        self._glued = self._behind_emphasis(tag.end) if emphasised else tag.end
        return self._remove(start, self._glued)

    def _behind_emphasis(self, at: int) -> int:
        emphasis = _EMPHASIS.match(self._text, at)
        return emphasis.end() if emphasis else at

    def _media_path(self, at: int) -> _Tag:
        text = self._text
        spaces = _SPACES.match(text, at)
        at = spaces.end() if spaces else at
        furthest = min(len(text), at + MAX_MEDIA_PATH_CHARS)
        ends = [i for i in (text.find("\n", at, furthest), text.find("MEDIA:", at, furthest)) if i >= 0]
        limit = min(ends, default=furthest)
        open_end = limit == len(text) and not self._final
        if at < limit and text[at] in "\"'`":
            return self._quoted_path(at, limit, open_end)
        if not _STARTS_PATH.match(text, at, limit):
            return _Tag(None) if open_end and _PARTIAL_PATH_START.match(text, at) else _Tag(at)
        return self._unquoted_path(at, limit, open_end)

    def _quoted_path(self, at: int, limit: int, open_end: bool) -> _Tag:
        close = self._text.find(self._text[at], at + 1, limit)
        if close < 0:
            return _Tag(None) if open_end else _Tag(at)
        if not _STARTS_PATH.match(self._text, at + 1, close):
            return _Tag(at)
        return self._behind_model_tokens(close + 1, self._text[at + 1 : close])

    def _unquoted_path(self, at: int, limit: int, open_end: bool) -> _Tag:
        text = self._text
        found = _PLAIN_PATH.match(text, at, limit)
        if found is None:
            spaced = _SPACED_PATH.match(text, at, limit)
            if spaced and len(_SPACES.findall(spaced[0])) <= MAX_MEDIA_PATH_SPACES:
                found = spaced
            elif open_end and text.count(" ", at, limit) <= MAX_MEDIA_PATH_SPACES:
                return _Tag(None)
            else:
                found = _BARE_PATH.match(text, at, limit)
        assert found is not None  # _BARE_PATH matches wherever a path starts
        # A path at the very end may go on: `.tar` may become `.tar.gz`, `_` belong to the name.
        if open_end and text[found.end() :].strip("._*") == "":
            return _Tag(None)
        return self._behind_model_tokens(found.end(), found[0])

    def _behind_model_tokens(self, end: int, path: str) -> _Tag:
        tokens = _MODEL_TOKENS.match(self._text, end)
        end = tokens.end() if tokens else end
        if not self._final and _PARTIAL_MODEL_TOKEN.match(self._text, end):
            return _Tag(None)
        return _Tag(end, path)

    # -- output --------------------------------------------------------------------------------------------------

    def _cut(self, at: int) -> None:
        if at > self._kept:
            self._parts.append(self._text[self._kept : at])
        self._kept = at

    def _hold(self, at: int) -> int:
        """Shows nothing from `at` on."""
        self._cut(at)
        return _HELD

    def _remove(self, start: int, end: int) -> int:
        """Takes text[start:end] out, with the line it had for itself or the space it leaves double."""
        self._cut(start)
        before = self._parts[-1][-1] if self._parts else ""
        gap = None
        if before in ("", "\n"):
            gap = _REST_OF_LINE.match(self._text, end)
        elif before in " \t":
            gap = _SPACES.match(self._text, end)
        self._kept = gap.end() if gap else end
        return self._kept

    def _without_partial_tag(self, end: int) -> int:
        """Where the text ends without a tail that may still become a tag."""
        if self._final or self._code_end == end:
            return end
        floor = max(self._kept, self._code_end)
        tail = max(floor, end - 210)
        held = [m.start() for m in (_PARTIAL_MEDIA.search(self._text, max(tail, end - 8)),) if m]
        tag = _PARTIAL_TAG.search(self._text, tail)
        if tag and _may_be_reasoning(tag[1]):
            held.append(tag.start())
        bracket = self._text.rfind("[", tail)
        for at in (bracket - 1, bracket):
            if at >= tail and any(name.startswith(self._text[at:]) for name in _DIRECTIVES):
                held.append(at)
        return min(held, default=end)


def _may_be_reasoning(inside: str) -> bool:
    """Whether `<` + inside can still become a reasoning tag."""
    name = inside.removeprefix("/").lower()
    return any(known.startswith(name) for known in _REASONING) or bool(_PARTIAL_NAME.match(inside))


@lru_cache(maxsize=32)
def _ticks(length: int) -> re.Pattern[str]:
    return re.compile(rf"(?<!{_TICK}){_TICK}{{{length}}}(?!{_TICK})")


@lru_cache(maxsize=32)
def _fence(mark: str, length: int) -> re.Pattern[str]:
    return re.compile(rf"\n[ \t>]*{mark}{{{length},}}[ \t\r]*(?=\n|\Z)")


@lru_cache(maxsize=8)
def _closing(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{name}\s*>", re.IGNORECASE)
