"""The client's reducer: frames from the server in, what the screens show out. The specification of a client's state.

Pure: `apply` returns a new state and leaves the old one alone. Idempotent per event: what was applied already changes
nothing, so a replay may overlap. Transports, timers and requests are not its matter; what a client should ask for next
stands in `needs_text`, `needs_history` and `unconfirmed`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import attrs

from .codec import UnknownMessage, unstructure_object
from .ids import ConversationId, Epoch, Index, MessageId, Position, RunId, Seq
from .messages import approval, attachment, clarification, conversation, message, run, tool
from .messages import model as models
from .messages._base import LoggedEvent, Request, Result
from .messages.approval import PromptStatus
from .messages.connection import Batch, Snapshot, SyncCompleted, Welcome
from .messages.history import ConversationHistory, ConversationHistoryResult
from .states import MessageState, RunState, ToolCallState

K = TypeVar("K")
V = TypeVar("V")


@attrs.frozen
class _Collection:
    """How items of one kind are named, and whether one of them is still open."""

    id_field: str
    is_open: Callable[[Any], bool]


_COLLECTIONS: Final[dict[str, _Collection]] = {
    "conversations": _Collection("conversation_id", lambda _: False),
    "messages": _Collection("message_id", lambda item: item.status in (MessageState.STREAMING, MessageState.QUEUED)),
    "runs": _Collection(
        "run_id", lambda item: item.status not in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)
    ),
    "tool_calls": _Collection("tool_call_id", lambda item: item.status is ToolCallState.RUNNING),
    "approvals": _Collection("approval_id", lambda item: item.status is PromptStatus.PENDING),
    "clarifications": _Collection("clarification_id", lambda item: item.status is PromptStatus.PENDING),
    "attachments": _Collection("attachment_id", lambda _: False),
}
_IN_SNAPSHOT: Final = ("messages", "runs", "tool_calls", "approvals", "clarifications")
_WITH_POSITION: Final = ("messages", "tool_calls", "approvals", "clarifications")


@attrs.frozen(kw_only=True)
class ClientState:
    """Everything that a client knows, by id. `cursor` is what it resumes from; store it together with the rest."""

    epoch: Epoch | None = None
    cursor: Seq | None = None
    in_step: bool = False
    conversations: Mapping[str, conversation.Conversation] = attrs.field(factory=dict)
    messages: Mapping[str, message.Message] = attrs.field(factory=dict)
    runs: Mapping[str, run.Run] = attrs.field(factory=dict)
    tool_calls: Mapping[str, tool.ToolCall] = attrs.field(factory=dict)
    approvals: Mapping[str, approval.Approval] = attrs.field(factory=dict)
    clarifications: Mapping[str, clarification.Clarification] = attrs.field(factory=dict)
    attachments: Mapping[str, attachment.Attachment] = attrs.field(factory=dict)
    progress: Mapping[RunId, str] = attrs.field(factory=dict)
    """The last phrase of each active run; for a status line."""
    needs_text: frozenset[MessageId] = frozenset()
    """Streaming messages with a gap: ask `message.text`."""
    needs_history: Mapping[ConversationId, Position] = attrs.field(factory=dict)
    """Conversations whose cached items from this position on are worth nothing: fetch them again."""
    unconfirmed: frozenset[ConversationId] = frozenset()
    """Conversations that the last snapshot did not name; deleted when a full walk of the list does not name them."""
    changed_at: Mapping[str, Seq] = attrs.field(factory=dict)
    """The event that last changed or deleted an object; an answer that is older does not replace it."""
    parts: tuple[Snapshot, ...] = ()
    """Parts of a snapshot that is not whole yet."""


def apply(state: ClientState, frame: object) -> ClientState:
    """The state after a frame of the server: welcome, snapshot, sync.completed, any event. Others change nothing."""
    match frame:
        case Welcome():
            return _welcome(state, frame)
        case Snapshot():
            return _snapshot(state, frame)
        case SyncCompleted():
            return attrs.evolve(state, cursor=frame.seq, in_step=True)
        case Batch():
            for event in frame.events:
                state = apply(state, event)
            return state
        case LoggedEvent():
            return _logged(state, frame)
        case UnknownMessage() if frame.seq is not None:
            # Of a later version: skipped, and the cursor moves past it.
            return state if _seen(state, frame.seq) else attrs.evolve(state, cursor=Seq(frame.seq))
        case message.MessageDelta():
            return _delta(state, frame)
        case message.MessageReplaced():
            return _replaced(state, frame)
        case run.RunProgress():
            return attrs.evolve(state, progress={**state.progress, frame.run_id: frame.text})
        case _:
            return state


def apply_answer(state: ClientState, request: Request, result: Result) -> ClientState:
    """The state after the answer to one of the client's requests. Answers without objects change nothing."""
    match request, result:
        case conversation.ConversationList(), conversation.ConversationListResult():
            return _list_page(state, request, result)
        case (
            _,
            conversation.ConversationGetResult()
            | conversation.ConversationCreateResult()
            | conversation.ConversationRenameResult(),
        ):
            return _take(state, result.as_of_seq, conversations=[result.conversation])
        case ConversationHistory(), ConversationHistoryResult():
            return _history_page(state, request, result)
        case message.MessageText(), message.MessageTextResult() if request.cursor is None and result.next is None:
            return _whole_text(state, request.message_id, result)
        case _:
            return state


def lost(state: ClientState) -> ClientState:
    """The state after the connection is gone: shown as before, marked as not in step."""
    return attrs.evolve(state, in_step=False, parts=())


def shown(state: ClientState) -> dict[str, Any]:
    """What the screens show, as JSON: objects by id, cursor, epoch. Progress, wishes and bookkeeping are left out."""
    return {
        "cursor": state.cursor,
        "epoch": state.epoch,
        **{
            name: {key: unstructure_object(item) for key, item in sorted(getattr(state, name).items())}
            for name in _COLLECTIONS
        },
    }


def digest(state: ClientState) -> str:
    """SHA-256 of what is shown, as JSON with sorted keys, without white space, printable text as it is, in UTF-8."""
    canonical = json.dumps(shown(state), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


# Synchronisation


def _seen(state: ClientState, seq: int) -> bool:
    return state.cursor is not None and seq <= state.cursor


def _welcome(state: ClientState, frame: Welcome) -> ClientState:
    if frame.resumed:
        return attrs.evolve(state, in_step=False, parts=())
    # A snapshot comes: the old cursor and the old marks belong to another count of events.
    known = frame.epoch == state.epoch
    return attrs.evolve(
        state, epoch=frame.epoch, cursor=None, in_step=False, parts=(), changed_at=state.changed_at if known else {}
    )


def _snapshot(state: ClientState, frame: Snapshot) -> ClientState:
    parts = (*(state.parts if frame.part else ()), frame)
    if not frame.last:
        return attrs.evolve(state, parts=parts)
    named: dict[str, Any] = {item.conversation_id: item for part in parts for item in part.conversations}
    state = _with_histories(state, named.values())
    attached: dict[str, Any] = {
        item.attachment_id: item for part in parts for found in part.messages for item in found.attachments
    }
    open_ones: dict[str, Any] = {
        name: _open_ones(state, name, [item for part in parts for item in getattr(part, name)]) for name in _IN_SNAPSHOT
    }
    return attrs.evolve(
        state,
        parts=(),
        cursor=frame.seq,
        conversations={**state.conversations, **named},
        attachments={**state.attachments, **attached},
        unconfirmed=frozenset(ConversationId(name) for name in state.conversations if name not in named),
        needs_text=frozenset(),
        progress={},
        **open_ones,
    )


def _open_ones(state: ClientState, name: str, found: list[Any]) -> dict[str, Any]:
    """What is open is exactly what was found; what ended stays. An open item that is missing has ended unseen."""
    collection = _COLLECTIONS[name]
    kept = {key: item for key, item in getattr(state, name).items() if not collection.is_open(item)}
    return kept | {getattr(item, collection.id_field): item for item in found}


def _list_page(
    state: ClientState, request: conversation.ConversationList, result: conversation.ConversationListResult
) -> ClientState:
    state = _take(state, result.as_of_seq, conversations=result.conversations)
    named = {found.conversation_id for found in result.conversations}
    unconfirmed = state.unconfirmed - named
    if result.next is None:
        for gone in unconfirmed:
            state = _drop_conversation(state, gone)
        unconfirmed = frozenset()
    return attrs.evolve(state, unconfirmed=unconfirmed)


# Logged events


def _logged(state: ClientState, event: LoggedEvent) -> ClientState:
    if _seen(state, event.seq):
        return state
    return attrs.evolve(_apply_logged(state, event), cursor=event.seq)


def _apply_logged(state: ClientState, event: LoggedEvent) -> ClientState:
    match event:
        case conversation.ConversationCreated() | conversation.ConversationUpdated():
            state = _with_histories(state, [event.conversation])
            state = _put(state, "conversations", event.conversation_id, event.conversation, event.seq)
            return attrs.evolve(state, unconfirmed=state.unconfirmed - {event.conversation_id})
        case conversation.ConversationDeleted():
            state = _drop_conversation(state, event.conversation_id)
            return attrs.evolve(state, changed_at={**state.changed_at, event.conversation_id: event.seq})
        case conversation.HistoryChanged():
            return _history_changed(state, event)
        case message.MessageCreated() | message.MessageUpdated() | message.MessageCompleted():
            return _put_message(state, event.message, event.seq)
        case run.RunStarted() | run.RunUpdated() | run.RunEnded():
            state = _put(state, "runs", event.run.run_id, event.run, event.seq)
            if event.run.ended_at is not None:
                state = attrs.evolve(state, progress=_without(state.progress, event.run.run_id))
            return state
        case tool.ToolStarted() | tool.ToolCompleted():
            return _put(state, "tool_calls", event.tool_call.tool_call_id, event.tool_call, event.seq)
        case approval.ApprovalRequested() | approval.ApprovalUpdated() | approval.ApprovalResolved():
            return _put(state, "approvals", event.approval.approval_id, event.approval, event.seq)
        case clarification.ClarificationRequested() | clarification.ClarificationResolved():
            name = event.clarification.clarification_id
            return _put(state, "clarifications", name, event.clarification, event.seq)
        case attachment.AttachmentCreated() | attachment.AttachmentExpired():
            return _put(state, "attachments", event.attachment.attachment_id, event.attachment, event.seq)
        case models.ModelChanged():
            return _change_conversation(state, event, model=event.current)
        case models.ReasoningChanged():
            return _change_conversation(state, event, reasoning_effort=event.current)
        case _:
            return state


def _put(state: ClientState, collection: str, key: str, item: object, seq: Seq) -> ClientState:
    changes: dict[str, Any] = {collection: {**getattr(state, collection), key: item}}
    return attrs.evolve(state, changed_at={**state.changed_at, key: seq}, **changes)


def _put_message(state: ClientState, new: message.Message, seq: Seq) -> ClientState:
    old = state.messages.get(new.message_id)
    if old is not None and _is_streaming(old) and _is_streaming(new) and _index(old) > _index(new):
        # Deltas ran ahead of what a replay says now.
        new = attrs.evolve(new, text=old.text, index=old.index)
    behind = _is_streaming(new) and old is not None and _index(old) >= _index(new)
    state = _put(state, "messages", new.message_id, new, seq)
    for item in new.attachments:
        state = _put(state, "attachments", item.attachment_id, item, seq)
    # A whole text that is newer than what is shown has closed any gap in it.
    return state if behind else attrs.evolve(state, needs_text=state.needs_text - {new.message_id})


def _change_conversation(
    state: ClientState, event: models.ModelChanged | models.ReasoningChanged, **changes: Any
) -> ClientState:
    known = state.conversations.get(event.conversation_id)
    if known is None:
        return state
    return _put(state, "conversations", event.conversation_id, attrs.evolve(known, **changes), event.seq)


def _history_changed(state: ClientState, event: conversation.HistoryChanged) -> ClientState:
    known = state.conversations.get(event.conversation_id)
    if known is not None:
        known = attrs.evolve(known, history_id=event.history_id, history_head=event.history_head)
        state = _put(state, "conversations", event.conversation_id, known, event.seq)
    return _without_history(state, event.conversation_id, event.from_position)


def _with_histories(state: ClientState, found: Iterable[conversation.Conversation]) -> ClientState:
    """Nothing is left of a history that is not the one of the conversation as it was found now."""
    for item in found:
        known = state.conversations.get(item.conversation_id)
        if known is not None and known.history_id != item.history_id:
            dropped = _without_history(state, item.conversation_id, Position(0))
            # Of what was never fetched nothing is fetched again.
            cached = any(len(getattr(dropped, name)) < len(getattr(state, name)) for name in _WITH_POSITION)
            state = dropped if cached else state
    return state


def _without_history(state: ClientState, name: ConversationId, start: Position) -> ClientState:
    """Without what ended at this position or behind it: it is to be fetched again."""

    def stays(item: Any, is_open: Callable[[Any], bool]) -> bool:
        return item.conversation_id != name or item.position is None or item.position < start or is_open(item)

    kept: dict[str, Any] = {
        collection: {
            key: item
            for key, item in getattr(state, collection).items()
            if stays(item, _COLLECTIONS[collection].is_open)
        }
        for collection in _WITH_POSITION
    }
    again = {**state.needs_history, name: min(start, state.needs_history.get(name, start))}
    return attrs.evolve(state, needs_history=again, **kept)


def _drop_conversation(state: ClientState, name: ConversationId) -> ClientState:
    kept: dict[str, Any] = {
        collection: {key: item for key, item in getattr(state, collection).items() if item.conversation_id != name}
        for collection in _COLLECTIONS
    }
    return attrs.evolve(
        state,
        **kept,
        unconfirmed=state.unconfirmed - {name},
        needs_history=_without(state.needs_history, name),
        needs_text=frozenset(text for text in state.needs_text if text in kept["messages"]),
        progress={key: phrase for key, phrase in state.progress.items() if key in kept["runs"]},
    )


# Streaming texts


def _delta(state: ClientState, frame: message.MessageDelta) -> ClientState:
    known = state.messages.get(frame.message_id)
    last = frame.index if frame.last_index is None else frame.last_index
    if known is None or not _is_streaming(known) or last <= _index(known):
        return state
    if frame.index != _index(known) + 1:
        return attrs.evolve(state, needs_text=state.needs_text | {frame.message_id})
    return _show_text(state, known, known.text + frame.text, last)


def _replaced(state: ClientState, frame: message.MessageReplaced) -> ClientState:
    known = state.messages.get(frame.message_id)
    if known is None or not _is_streaming(known) or frame.index <= _index(known):
        return state
    return _show_text(state, known, frame.text, frame.index)


def _whole_text(state: ClientState, name: MessageId, result: message.MessageTextResult) -> ClientState:
    known = state.messages.get(name)
    if known is None or not _is_streaming(known) or result.index < _index(known):
        return attrs.evolve(state, needs_text=state.needs_text - {name})
    return _show_text(state, known, result.text, result.index)


def _show_text(state: ClientState, known: message.Message, text: str, index: Index) -> ClientState:
    shown = attrs.evolve(known, text=text, index=index)
    return attrs.evolve(
        state,
        messages={**state.messages, known.message_id: shown},
        needs_text=state.needs_text - {known.message_id},
    )


# Answers


def _history_page(state: ClientState, request: ConversationHistory, result: ConversationHistoryResult) -> ClientState:
    name = result.conversation_id
    known = state.conversations.get(name)
    if known is not None and known.history_id != result.history_id and not _is_older(state, known, result.as_of_seq):
        state = _without_history(state, name, Position(0))
        known = attrs.evolve(known, history_id=result.history_id)
        state = attrs.evolve(state, conversations={**state.conversations, name: known})
        if request.before is not None or request.after is not None:
            # It was asked for by a position of the history that is no more.
            return state
    state = _take(
        state,
        result.as_of_seq,
        messages=result.messages,
        attachments=[item for found in result.messages for item in found.attachments],
        runs=result.runs,
        tool_calls=result.tool_calls,
        approvals=result.approvals,
        clarifications=result.clarifications,
    )
    return attrs.evolve(state, needs_history=_without(state.needs_history, name))


def _take(state: ClientState, as_of: Seq, **collections: Any) -> ClientState:
    """Objects of an answer, where no later event has changed or deleted them or their conversation."""
    fresh = [item for item in collections.get("conversations", ()) if not _is_older(state, item, as_of)]
    state = _with_histories(state, fresh)
    taken: dict[str, Any] = {}
    for collection, items in collections.items():
        found = taken[collection] = dict(getattr(state, collection))
        for item in items:
            key = getattr(item, _COLLECTIONS[collection].id_field)
            if max(state.changed_at.get(key, 0), _deleted_at(state, item)) <= as_of:
                found[key] = item
    return attrs.evolve(state, **taken)


def _is_older(state: ClientState, item: conversation.Conversation, as_of: Seq) -> bool:
    """Whether a later event than that of an answer has changed or deleted the conversation."""
    return state.changed_at.get(item.conversation_id, 0) > as_of


def _deleted_at(state: ClientState, item: Any) -> int:
    """The event that deleted the item's conversation, 0 where none did."""
    name = item.conversation_id
    return 0 if name in state.conversations else state.changed_at.get(name, 0)


def _without(known: Mapping[K, V], key: K) -> Mapping[K, V]:
    return {name: item for name, item in known.items() if name != key} if key in known else known


def _index(item: message.Message) -> int:
    return -1 if item.index is None else item.index


def _is_streaming(item: message.Message) -> bool:
    return item.status is MessageState.STREAMING
