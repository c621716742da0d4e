"""A tool call as Hermes's hooks tell it, made fit to be shown: redacted, bounded, described.

Redaction comes before every cut that is shown, so that no secret escapes by losing its end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pheby_protocol.limits import MAX_INTEGER
from pheby_protocol.messages.tool import ToolErrorCode
from pheby_server.ports import Outcome, ToolResult, ToolStart

from .bounds import MAX_ITEMS, MAX_RAW_CHARS
from .drafts import whole_characters

Redact = Callable[[str], str]

MAX_VALUE_CHARS: Final = 2_000
MAX_DESCRIPTION_CHARS: Final = 160

_CANCELLED: Final = frozenset({"cancelled", "canceled", "interrupted"})
_DONE: Final = frozenset({"", "ok", "success", "completed"})
_TELLING: Final = ("command", "code", "path", "file_path", "url", "query", "pattern", "goal", "question", "name")
"""Arguments that say what a call is about, the most telling first."""
_OUTPUT: Final = ("output", "content", "result", "error")

_SECRETS: Final = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abps])[-_][A-Za-z0-9_-]{12,}"
    r"|AKIA[0-9A-Z]{16}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+"
    r"|(?<=-----BEGIN )[A-Z ]*PRIVATE KEY-----.*?(?=-----END|\Z)"
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/-]{12,}=*"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",
    re.DOTALL,
)
_NAMED_SECRET: Final = re.compile(
    r"(?i)((?:api[_-]?key|secret|token|passw(?:or)?d|authorization|credential)s?[\"']?\s*[=:]\s*[\"']?)([^\s\"',;&]{6,})"
)
_SECRET_NAME: Final = re.compile(r"(?i)api[_-]?key|secret|token|passw(?:or)?d|authorization|credential")
_KILLED: Final = re.compile(r'"exit_code": ?130\b')
HIDDEN: Final = "[redacted]"


def redactor(hermes: Redact, own: tuple[str, ...] = ()) -> Redact:
    """Hermes's redaction, then patterns of our own, then the secrets that are known by value."""

    def redact(text: str) -> str:
        text = hermes(text)
        for secret in own:
            text = text.replace(secret, HIDDEN)
        return _NAMED_SECRET.sub(lambda found: found[1] + HIDDEN, _SECRETS.sub(HIDDEN, text))

    return redact


def tool_start(facts: Mapping[str, object], redact: Redact) -> ToolStart | None:
    """What `pre_tool_call` tells; None without a call id."""
    call_id, name = facts.get("tool_call_id"), facts.get("tool_name")
    if not isinstance(call_id, str) or not call_id or not isinstance(name, str):
        return None
    cut = _Cut(redact)
    raw = facts.get("args")
    arguments = cut.mapping(raw if isinstance(raw, Mapping) else {})
    return ToolStart(
        call_id=call_id[:200],
        name=name[:100],
        description=_description(arguments),
        arguments=arguments,
        arguments_truncated=cut.happened,
    )


def tool_result(facts: Mapping[str, object], redact: Redact) -> ToolResult | None:
    """What `post_tool_call` tells; None without a call id."""
    call_id = facts.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        return None
    outcome = _outcome(facts.get("status"))
    cut = _Cut(redact)
    preview = cut.text(_shown(facts.get("result")))
    duration = facts.get("duration_ms")
    return ToolResult(
        call_id=call_id[:200],
        outcome=outcome,
        duration_ms=int(duration) if isinstance(duration, int | float) and 0 <= duration < MAX_INTEGER else None,
        preview=preview or None,
        truncated=cut.happened,
        error=_error(facts) if outcome is Outcome.FAILED else None,
    )


def completed_all_the_same(facts: Mapping[str, object]) -> bool:
    """Whether a call that ended while its run was being stopped had got to its own end before."""
    # 0.19 calls a command that it killed a success; only its exit code tells.
    killed = isinstance(facts.get("result"), str) and _KILLED.search(str(facts["result"])) is not None
    return _outcome(facts.get("status")) is Outcome.COMPLETED and not killed


class _Cut:
    """Redacts and cuts values, and remembers whether it cut anything."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self.happened = False

    def text(self, text: str) -> str:
        if len(text) >= MAX_RAW_CHARS:
            self.happened = True
        text = whole_characters(self._redact(text[:MAX_RAW_CHARS])).replace("\0", "�")
        if len(text) > MAX_VALUE_CHARS:
            self.happened = True
            return text[:MAX_VALUE_CHARS] + "…"
        return text

    def mapping(self, value: Mapping[Any, object]) -> dict[str, object]:
        kept: dict[str, object] = {}
        for key, item in value.items():
            if len(kept) >= MAX_ITEMS:
                self.happened = True
                break
            name = self.text(str(key))
            secret = isinstance(item, str) and _SECRET_NAME.search(name) is not None
            kept[name] = HIDDEN if secret else self._value(item)
        return kept

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            if value == "…":
                self.happened = True
            return self.text(value)
        if isinstance(value, Mapping):
            return self.mapping(value)
        if isinstance(value, list | tuple):
            if len(value) > MAX_ITEMS:
                self.happened = True
            return [self._value(item) for item in value[:MAX_ITEMS]]
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return str(value)
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            return str(value)
        return value


def _description(arguments: Mapping[str, object]) -> str | None:
    for name in _TELLING:
        value = arguments.get(name)
        if isinstance(value, str) and value.strip():
            line = " ".join(value.split())
            return line if len(line) <= MAX_DESCRIPTION_CHARS else line[:MAX_DESCRIPTION_CHARS] + "…"
    return None


def _outcome(status: object) -> Outcome:
    word = str(status or "").lower()
    if word in _CANCELLED:
        return Outcome.CANCELLED
    return Outcome.COMPLETED if word in _DONE else Outcome.FAILED


def _error(facts: Mapping[str, object]) -> ToolErrorCode:
    kind = str(facts.get("error_type") or "").lower()
    return ToolErrorCode.TIMED_OUT if "timeout" in kind or "timed" in kind else ToolErrorCode.FAILED


def _shown(result: object) -> str:
    """The telling part of a result: Hermes's tools mostly answer with a JSON object."""
    if isinstance(result, str):
        try:
            parsed = json.loads(result)
        except (ValueError, RecursionError):
            return result
        result = parsed if isinstance(parsed, Mapping) else result
    if isinstance(result, Mapping):
        for name in _OUTPUT:
            value = result.get(name)
            if isinstance(value, str) and value:
                return value
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
