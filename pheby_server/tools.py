"""The desk for tool calls: exactly one end for each that began, whatever becomes of its run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, Protocol

import attrs

from pheby_protocol.ids import ConversationId, Millis, Position, RunId, Time, ToolCallId
from pheby_protocol.messages._base import JsonObject
from pheby_protocol.messages.tool import ToolCall, ToolCompleted, ToolError, ToolErrorCode, ToolStarted
from pheby_protocol.states import TOOL_CALL, ToolCallEvent, ToolCallState

from .ports import Clock, IdSource, Outcome, ToolResult, ToolStart
from .sequencer import Change
from .stores import Store, read_open_tool_calls, save_tool_call

ERROR_TEXTS: Final[Mapping[ToolErrorCode, str]] = {
    ToolErrorCode.FAILED: "The tool reported an error.",
    ToolErrorCode.DENIED: "It was not allowed.",
    ToolErrorCode.TIMED_OUT: "It took too long.",
    ToolErrorCode.APPROVAL_UNAVAILABLE: "It needs an approval that cannot be asked for here.",
    ToolErrorCode.INDETERMINATE: "Whether it was executed is not known.",
}

_EVENT: Final = {
    Outcome.COMPLETED: ToolCallEvent.COMPLETE,
    Outcome.FAILED: ToolCallEvent.FAIL,
    Outcome.CANCELLED: ToolCallEvent.CANCEL,
}


class Positions(Protocol):
    """Where places in a history come from."""

    def next_position(self, conversation_id: ConversationId) -> Position: ...


class Conversations(Protocol):
    """What this desk needs to know of conversations."""

    def item_added(self, conversation_id: ConversationId, position: Position) -> Change: ...


class ToolDesk:
    """Open tool calls, by run and Hermes's call id."""

    def __init__(
        self, store: Store, conversations: Conversations, positions: Positions, clock: Clock, ids: IdSource
    ) -> None:
        self._store = store
        self._conversations = conversations
        self._positions = positions
        self._clock = clock
        self._ids = ids
        self._open: dict[tuple[RunId, str], ToolCall] = {}

    async def load(self) -> None:
        """Read what a dead process left open; its runs are about to be ended."""
        for call in await self._store.read(read_open_tool_calls()):
            self._open[call.run_id, call.hermes_call_id or call.tool_call_id] = call

    def named(self, run_id: RunId, call_id: str) -> ToolCallId | None:
        """The running tool call of a run that Hermes names so."""
        call = self._open.get((run_id, call_id))
        return None if call is None else call.tool_call_id

    def running(self, run_id: RunId) -> bool:
        """Whether a run is using a tool."""
        return any(of_run == run_id for of_run, _ in self._open)

    def open(self) -> tuple[ToolCall, ...]:
        """All running tool calls."""
        return tuple(self._open.values())

    def started(
        self, conversation_id: ConversationId, run_id: RunId, tool: ToolStart, parent: ToolCallId | None = None
    ) -> Change:
        """Store and announce a tool call; one that is running already is left as it is. `parent`: of a subagent's."""
        key = (run_id, tool.call_id)
        if key in self._open:
            return Change()
        call = ToolCall(
            tool_call_id=ToolCallId(f"tool_{self._ids.token()}"),
            hermes_call_id=tool.call_id,
            parent_tool_call_id=parent,
            conversation_id=conversation_id,
            run_id=run_id,
            position=self._positions.next_position(conversation_id),
            name=tool.name,
            description=tool.description,
            arguments=JsonObject(tool.arguments),
            arguments_truncated=tool.arguments_truncated,
            status=ToolCallState.RUNNING,
            started_at=Time(self._clock.now_ms()),
            truncated=False,
        )
        self._open[key] = call
        event = partial(ToolStarted, conversation_id=conversation_id, tool_call=call)
        change = Change((event,), (save_tool_call(call),))
        return change + self._conversations.item_added(conversation_id, call.position)

    def ended(self, run_id: RunId, result: ToolResult) -> Change:
        """Store and announce the end of a tool call; nothing when it is not running."""
        call = self._open.pop((run_id, result.call_id), None)
        if call is None:
            return Change()
        error = result.error or ToolErrorCode.FAILED if result.outcome is Outcome.FAILED else None
        now = self._clock.now_ms()
        call = attrs.evolve(
            call,
            status=TOOL_CALL.next(call.status, _EVENT[result.outcome]),
            ended_at=Time(now),
            duration_ms=Millis(max(0, now - call.started_at if result.duration_ms is None else result.duration_ms)),
            result_preview=result.preview,
            truncated=result.truncated,
            error=None if error is None else ToolError(code=error, message=ERROR_TEXTS[error]),
        )
        event = partial(ToolCompleted, conversation_id=call.conversation_id, tool_call=call)
        return Change((event,), (save_tool_call(call),))

    def run_ended(self, run_id: RunId, outcome: Outcome) -> Change:
        """End what a run left open: cancelled with it, else failed, since nobody knows."""
        change = Change()
        for of_run, call_id in list(self._open):
            if of_run == run_id:
                how = Outcome.CANCELLED if outcome is Outcome.CANCELLED else Outcome.FAILED
                error = None if how is Outcome.CANCELLED else ToolErrorCode.INDETERMINATE
                change += self.ended(run_id, ToolResult(call_id=call_id, outcome=how, error=error))
        return change
