"""Which subagents work for whom, by Hermes's hooks: a subagent's own session leads back to the call that started it.

On 0.19 a subagent's hooks come without a chat, on both lines after the run that started it, and its end names the
parent's turn of that moment: only the child's session id names it throughout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import attrs

from pheby_protocol.messages.run import RunErrorCode, RunReason
from pheby_server.ports import Outcome, RunResult, SubagentStart

from .tool_calls import Redact

MAX_OPEN: Final = 256
MAX_GOAL_CHARS: Final = 500

_DONE: Final = frozenset({"completed", "complete", "success", "ok", ""})
_STOPPED: Final = frozenset({"interrupted", "cancelled", "canceled"})


@attrs.frozen
class Subagent:
    """One at work."""

    session_id: str
    """Its own; its name towards the core."""
    chat_id: str
    hermes_id: str
    """Its name towards Hermes."""


class Subagents:
    """Those at work, and the delegating calls that are open."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._open: dict[str, Subagent] = {}
        self._stopped: deque[str] = deque(maxlen=MAX_OPEN)
        """Those that ended lately: a start that is told after the end, or again, begins nothing."""
        self._delegating: dict[str, str] = {}
        """The open delegating call by the session that made it; one session makes one at a time."""

    def of(self, session_id: object) -> Subagent | None:
        """The subagent whose session this is."""
        return self._open.get(session_id) if isinstance(session_id, str) else None

    def hermes_id(self, session_id: str) -> str | None:
        """Hermes's name for a subagent at work."""
        found = self._open.get(session_id)
        return None if found is None else found.hermes_id or None

    def tool_hook(self, name: str, facts: Mapping[str, object]) -> None:
        """Note which call delegates."""
        session_id, call_id = _text(facts, "session_id"), _text(facts, "tool_call_id")
        if facts.get("tool_name") != "delegate_task" or not session_id:
            return
        if name == "pre_tool_call":
            self._delegating[session_id] = call_id
            if len(self._delegating) > MAX_OPEN:
                # The oldest of so many has lost its end.
                del self._delegating[next(iter(self._delegating))]
        elif name == "post_tool_call" and self._delegating.get(session_id) == call_id:
            del self._delegating[session_id]

    def started(self, facts: Mapping[str, object], chat_id: str) -> SubagentStart | None:
        """`subagent_start`; None when it is known, or there are too many."""
        session_id, parent = _text(facts, "child_session_id"), _text(facts, "parent_session_id")
        if not session_id or session_id in self._open or session_id in self._stopped or len(self._open) >= MAX_OPEN:
            return None
        self._open[session_id] = Subagent(session_id, chat_id, _text(facts, "child_subagent_id"))
        return SubagentStart(
            key=session_id,
            parent=parent if parent in self._open else None,
            call_id=self._delegating.get(parent) or None,
            goal=self._redact(_text(facts, "child_goal"))[:MAX_GOAL_CHARS],
        )

    def stopped(self, facts: Mapping[str, object]) -> tuple[Subagent, RunResult] | None:
        """`subagent_stop`: who ended, and how."""
        self._stopped.append(_text(facts, "child_session_id"))
        found = self._open.pop(_text(facts, "child_session_id"), None)
        if found is None:
            return None
        status = _text(facts, "child_status").lower()
        if status in _DONE:
            return found, RunResult(outcome=Outcome.COMPLETED)
        if status in _STOPPED:
            return found, RunResult(outcome=Outcome.CANCELLED)
        code = RunErrorCode.TIMED_OUT if status in ("timeout", "timed_out") else RunErrorCode.INTERNAL
        return found, RunResult(outcome=Outcome.FAILED, error=code)

    def abandon(self) -> list[tuple[Subagent, RunResult]]:
        """All at work, whom nobody will hear of again."""
        over = RunResult(outcome=Outcome.CANCELLED, reason=RunReason.SHUTDOWN)
        gone, self._open, self._delegating = list(self._open.values()), {}, {}
        return [(subagent, over) for subagent in gone]


def _text(facts: Mapping[str, object], name: str) -> str:
    value = facts.get(name)
    return value if isinstance(value, str) else ""
