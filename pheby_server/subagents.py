"""The desk for subagents: each is a background run of its own, which may outlive the run that started it."""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

import attrs

from pheby_protocol.ids import ConversationId, RunId, Time, ToolCallId
from pheby_protocol.messages.message import Origin
from pheby_protocol.messages.run import Run, RunReason, RunStarted, RunUpdated
from pheby_protocol.states import RUN, RunEvent, RunState

from .boundary import sendable
from .logs import log_of
from .ports import Clock, IdSource, Outcome, RunResult, SubagentStart, ToolResult, ToolStart
from .sequencer import Change
from .stores import save_run

log = log_of(__name__)

MAX_OPEN: Final = 64
MAX_DESCRIPTION_CHARS: Final = 200


class Tools(Protocol):
    """What this desk needs to know of tool calls."""

    def named(self, run_id: RunId, call_id: str) -> ToolCallId | None: ...
    def started(
        self, conversation_id: ConversationId, run_id: RunId, tool: ToolStart, parent: ToolCallId | None = None
    ) -> Change: ...
    def ended(self, run_id: RunId, result: ToolResult) -> Change: ...
    def run_ended(self, run_id: RunId, outcome: Outcome) -> Change: ...


class SubagentDesk:
    """Subagents at work, by Hermes's name for each."""

    def __init__(self, tools: Tools, clock: Clock, ids: IdSource) -> None:
        self._tools = tools
        self._clock = clock
        self._ids = ids
        self._open: dict[str, Run] = {}

    def open(self) -> tuple[Run, ...]:
        """The runs of all that work."""
        return tuple(self._open.values())

    def named(self, key: str) -> Run | None:
        """The run of one that works."""
        return self._open.get(key)

    def of(self, conversation_id: ConversationId) -> list[tuple[str, Run]]:
        """Those of a conversation, with Hermes's names."""
        return [(key, run) for key, run in self._open.items() if run.conversation_id == conversation_id]

    def key_of(self, run_id: RunId) -> str | None:
        """Hermes's name for the subagent of a run."""
        return next((key for key, run in self._open.items() if run.run_id == run_id), None)

    def started(self, conversation_id: ConversationId, start: SubagentStart, active: Run | None) -> Change:
        """Store and announce a subagent's run."""
        if start.key in self._open:
            return Change()
        if len(self._open) >= MAX_OPEN:
            log.warning("subagent.not_shown: too many work already", extra={"open": MAX_OPEN})
            return Change()
        parent = active if start.parent is None else self._open.get(start.parent)
        now = Time(self._clock.now_ms())
        call = None
        if parent is not None and start.call_id is not None:
            call = self._tools.named(parent.run_id, start.call_id)
        run = Run(
            run_id=RunId(f"run_{self._ids.token()}"),
            conversation_id=conversation_id,
            origin=Origin.BACKGROUND,
            status=RUN.next(RunState.QUEUED, RunEvent.START),
            parent_run_id=None if parent is None else parent.run_id,
            parent_tool_call_id=call,
            description=sendable(start.goal)[:MAX_DESCRIPTION_CHARS] or None,
            created_at=now,
            started_at=now,
        )
        self._open[start.key] = run
        return Change((partial(RunStarted, conversation_id=conversation_id, run=run),), (save_run(run),))

    def tool_started(self, key: str, tool: ToolStart) -> Change:
        """A subagent calls a tool."""
        run = self._open.get(key)
        if run is None:
            return Change()
        return self._tools.started(run.conversation_id, run.run_id, tool, run.parent_tool_call_id)

    def tool_ended(self, key: str, result: ToolResult) -> Change:
        """A subagent's tool call is over."""
        run = self._open.get(key)
        return Change() if run is None else self._tools.ended(run.run_id, result)

    def cancelling(self, key: str) -> Change:
        """The owner wants a subagent to stop."""
        run = self._open[key]
        if run.status is RunState.CANCELLING:
            return Change()
        run = self._open[key] = attrs.evolve(run, status=RUN.next(run.status, RunEvent.CANCEL))
        return Change((partial(RunUpdated, conversation_id=run.conversation_id, run=run),), (save_run(run),))

    def take(self, key: str, result: RunResult) -> tuple[Run, RunResult, Change] | None:
        """Take a subagent out that is done: its run, how it ended, and the end of what it left open."""
        run = self._open.pop(key, None)
        if run is None:
            return None
        if run.status is RunState.CANCELLING and result.outcome is Outcome.CANCELLED and result.reason is None:
            result = attrs.evolve(result, reason=RunReason.REQUESTED)
        return run, result, self._tools.run_ended(run.run_id, result.outcome)
