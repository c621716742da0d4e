"""The desk for chat messages: their order, their texts, and which of Hermes's rows they are."""

from __future__ import annotations

import asyncio
import hashlib
import json
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

import attrs

from pheby_protocol import limits
from pheby_protocol.codec import encode_object
from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import ConversationId, HistoryId, Index, ListCursor, MessageId, Position, RunId, Seq, Time
from pheby_protocol.messages.approval import Approval
from pheby_protocol.messages.clarification import Clarification
from pheby_protocol.messages.conversation import Conversation, HistoryChanged
from pheby_protocol.messages.message import (
    Message,
    MessageCompleted,
    MessageCreated,
    MessageReplaced,
    MessageUpdated,
    Origin,
)
from pheby_protocol.messages.run import Run
from pheby_protocol.messages.tool import ToolCall
from pheby_protocol.states import MessageState

from .boundary import RequestError, sendable
from .logs import log_of
from .ports import Clock, HermesMessage, HermesPort, IdSource, LiveMessage
from .sequencer import Change, Sequencer
from .stores import (
    Item,
    Store,
    bind_row,
    read_items,
    read_known_history,
    read_last_positions,
    read_message,
    read_open_messages,
    read_page_runs,
    save_message,
)

log = log_of(__name__)

_GAP = 1_024
"""Between neighbours, so that a row that turns up later still finds a position."""
_FRAME_SHARE = 0.8
"""Of the largest frame, for texts; the rest is for everything around them."""
_QUEUED_SHARE = 4
"""Of the room for texts in a page of history, queued ones take one part in so many."""
_RUN_BYTES = 2_048
"""No run takes more."""
_MORE_RUNS = 80
"""So many runs without an item are named by one page at most, the newest of them: they fit beside the texts."""
_REREAD_SECONDS = 0.3
"""Hermes writes the last row of a run up to this long after the run's end."""


class Conversations(Protocol):
    """What this desk needs to know of conversations."""

    def get(self, conversation_id: ConversationId) -> Conversation: ...
    def update(self, conversation: Conversation) -> Change: ...
    def is_going(self, conversation_id: ConversationId) -> bool: ...


@attrs.frozen
class Page:
    """A page of history, ascending by position."""

    messages: tuple[Message, ...]
    tool_calls: tuple[ToolCall, ...]
    approvals: tuple[Approval, ...]
    clarifications: tuple[Clarification, ...]
    runs: tuple[Run, ...]
    before: Position | None
    after: Position | None
    has_more: bool
    history_id: HistoryId
    as_of_seq: Seq


class Transcript:
    """Messages by conversation. Ended ones live in the store; streaming and queued ones in memory too."""

    def __init__(
        self,
        store: Store,
        sequencer: Sequencer,
        port: HermesPort,
        conversations: Conversations,
        clock: Clock,
        ids: IdSource,
        max_frame_bytes: int,
    ) -> None:
        self._store = store
        self._sequencer = sequencer
        self._port = port
        self._conversations = conversations
        self._clock = clock
        self._ids = ids
        self._text_budget = int(max_frame_bytes * _FRAME_SHARE)
        self._last_position: dict[ConversationId, int] = {}
        self.open: dict[MessageId, Message] = {}
        """Streaming and queued messages."""
        self._reconciled: set[ConversationId] = set()
        self._locks: dict[ConversationId, asyncio.Lock] = {}
        self.is_busy: Callable[[ConversationId], bool] = lambda _: False
        """Whether a run is active; the desk for runs says so."""
        self.take_in: Callable[[], Awaitable[None]] = _nothing
        """Takes in what another process has left for the owner, so that a row which Hermes keeps of it is known."""

    async def load(self) -> None:
        """Read what is stored."""
        self._last_position = await self._store.read(read_last_positions())
        for message in await self._store.read(read_open_messages()):
            self.open[message.message_id] = message

    def open_as_sent(self) -> tuple[Message, ...]:
        """All streaming and queued messages, each as it fits a frame."""
        return tuple(self._as_sent(message) for message in self.open.values())

    def forget(self, conversation_id: ConversationId) -> None:
        """Forget a conversation that was deleted."""
        self.open = {name: found for name, found in self.open.items() if found.conversation_id != conversation_id}
        self._last_position.pop(conversation_id, None)
        self._locks.pop(conversation_id, None)
        self._reconciled.discard(conversation_id)

    def streaming_as_replaced(self) -> list[MessageReplaced]:
        """All streaming messages as they are now, for a client that has missed how they came so far."""
        found = []
        for message in self.open.values():
            if message.status is MessageState.STREAMING:
                text, cut = self.fit(message.text)
                index = message.index if message.index is not None else Index(-1)
                # One that does not fit is said to be behind, so that the client asks for the whole text.
                shown = Index(index - 1) if cut else index
                found.append(
                    MessageReplaced(
                        conversation_id=message.conversation_id,
                        run_id=message.run_id,
                        message_id=message.message_id,
                        index=shown,
                        text=text,
                    )
                )
        return [replaced for replaced in found if replaced.index >= 0]

    def new_message_id(self) -> MessageId:
        return MessageId(f"msg_{self._ids.token()}")

    def next_position(self, conversation_id: ConversationId) -> Position:
        """A position behind everything that the conversation has."""
        position = self._last_position.get(conversation_id, 0) + _GAP
        self._last_position[conversation_id] = position
        return Position(position)

    def fit(self, text: str, room: int | None = None) -> tuple[str, bool]:
        """The text, cut where it would not fit a frame (or less: the room given), and whether it was cut."""
        room = self._text_budget if room is None else room
        # One code point takes at most six bytes of JSON, so most texts need no second look.
        if len(text) * 6 <= room or len(_json_bytes(text)) <= room:
            return text, False
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if len(_json_bytes(text[:middle])) <= room:
                low = middle
            else:
                high = middle - 1
        return text[:low], True

    def parts(self, text: str) -> list[str]:
        """The text in pieces that each fit a frame; at least one."""
        part, cut = self.fit(text)
        parts = [part]
        while cut:
            text = text[len(part) :]
            part, cut = self.fit(text)
            parts.append(part)
        return parts

    def created(self, message: Message) -> Change:
        """Store and announce a new message."""
        self._remember(message)
        event = partial(MessageCreated, conversation_id=message.conversation_id, message=self._as_sent(message))
        return Change((event,), (save_message(message),))

    def withdrawn(self, message: Message) -> None:
        """A new message could not be stored: it is not there, nor is its place."""
        self.open.pop(message.message_id, None)
        last = self._last_position.get(message.conversation_id)
        if message.position is not None and message.position == last:
            self._last_position[message.conversation_id] = message.position - _GAP

    def updated(self, message: Message) -> Change:
        """Store and announce a message of which something other than its text's end changed."""
        self._remember(message)
        event = partial(MessageUpdated, conversation_id=message.conversation_id, message=self._as_sent(message))
        return Change((event,), (save_message(message),))

    def completed(self, message: Message) -> Change:
        """Store and announce a message that was streaming and has ended."""
        self._remember(message)
        event = partial(MessageCompleted, conversation_id=message.conversation_id, message=self._as_sent(message))
        return Change((event,), (save_message(message),))

    def changed(self, message: Message) -> None:
        """A streaming message's text changed; stored by the next checkpoint."""
        self._remember(message)

    def checkpoint(self, message: Message) -> Change:
        """Store a streaming message as it is, announcing nothing."""
        return Change(writes=(save_message(message),))

    def _remember(self, message: Message) -> None:
        if message.status in (MessageState.STREAMING, MessageState.QUEUED):
            self.open[message.message_id] = message
        else:
            self.open.pop(message.message_id, None)

    def _as_sent(self, message: Message, room: int | None = None) -> Message:
        text, cut = self.fit(message.text, room)
        if not cut:
            return message
        index = message.index
        if index is not None and message.status is MessageState.STREAMING:
            # Said to be behind, so that the client asks for the whole text.
            index = Index(max(index - 1, -1))
        return attrs.evolve(message, text=text, text_truncated=True, index=index)

    async def page(
        self, conversation_id: ConversationId, limit: int | None, before: Position | None, after: Position | None
    ) -> Page:
        """A page of history. Without a cursor: the newest page, which ends with the queued messages."""
        self._conversations.get(conversation_id)
        if before is not None and after is not None:
            raise RequestError(ErrorCode.INVALID_MESSAGE, "Give before or after, not both.")
        try:
            await self.reconcile(conversation_id)
        except Exception as failure:
            log.warning("history.not_reconciled", exc_info=failure)
        size = min(limit or limits.DEFAULT_HISTORY_LIMIT, limits.MAX_HISTORY_LIMIT)
        newest = before is None and after is None
        forward = after is not None
        # What is read from here on is at least as new as this.
        history_id, as_of_seq = self._conversations.get(conversation_id).history_id, self._sequencer.published_seq
        found = await self._store.read(read_items(conversation_id, size + 1, before, after))
        # Memory is ahead of the store while a text streams.
        items = [self.open.get(item.message_id, item) if isinstance(item, Message) else item for item in found]
        queued = self._queued(conversation_id) if newest else []
        kept, cut = self._fitting(items[:size], self._text_budget - sum(map(_size, queued)))
        more = cut or len(items) > size
        if not forward:
            kept.reverse()
        first = kept[0].position if kept else None
        last = kept[-1].position if kept else None
        kept += queued
        low = after if after is not None else first if more and first is not None else 0
        high = last if more and forward else before
        runs = await self._store.read(
            read_page_runs(
                conversation_id,
                [item.run_id for item in kept if item.run_id],
                low,
                limits.MAX_INTEGER if high is None else high,
                _MORE_RUNS,
            )
        )
        return Page(
            tuple(item for item in kept if isinstance(item, Message)),
            tuple(item for item in kept if isinstance(item, ToolCall)),
            tuple(item for item in kept if isinstance(item, Approval)),
            tuple(item for item in kept if isinstance(item, Clarification)),
            tuple(runs),
            first,
            last,
            more,
            history_id,
            as_of_seq,
        )

    def _queued(self, conversation_id: ConversationId) -> list[Message]:
        """The messages that wait, their texts cut so that a page has room for others too."""
        found = [
            message
            for message in self.open.values()
            if message.conversation_id == conversation_id and message.position is None
        ]
        return [self._as_sent(message, self._text_budget // (_QUEUED_SHARE * len(found))) for message in found]

    def _fitting(self, items: Sequence[Item], room: int) -> tuple[list[Item], bool]:
        """As many items from the front as the room holds, at least one; and whether any was left out."""
        kept: list[Item] = []
        runs: set[RunId] = set()
        for item in items:
            sent = self._as_sent(item) if isinstance(item, Message) else item
            size = _size(sent)
            if item.run_id is not None and item.run_id not in runs:
                # Its run comes with it.
                runs.add(item.run_id)
                size += _RUN_BYTES
            if size > room and kept:
                return kept, True
            if size > room and isinstance(item, Message):
                sent = self._as_sent(item, max(room, 0))
            kept.append(sent)
            room -= size
        return kept, False

    async def text(self, message_id: MessageId, cursor: ListCursor | None) -> tuple[str, ListCursor | None, Message]:
        """A part of a message's whole text from the cursor on, the cursor of the next part, and the message."""
        message = self.open.get(message_id) or await self._store.read(read_message(message_id))
        if message is None:
            raise RequestError(ErrorCode.NOT_FOUND, "There is no such message.")
        start = 0
        if cursor is not None:
            if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 16):
                raise RequestError(ErrorCode.INVALID_MESSAGE, "The cursor is not one of this server's.")
            start = int(cursor)
        part, cut = self.fit(message.text[start:])
        return part, ListCursor(str(start + len(part))) if cut else None, message

    async def find(self, message_id: MessageId) -> Message | None:
        """A message as it is now."""
        if message_id not in self.open:
            # What was told of it may be on its way to the store.
            await self._sequencer.settled()
        return self.open.get(message_id) or await self._store.read(read_message(message_id))

    async def run_ended(self, conversation_id: ConversationId) -> None:
        """Find a finished run's messages among Hermes's rows, now and once more when the last row must be written."""
        self._reconciled.discard(conversation_id)
        if not await self.reconcile(conversation_id):
            await asyncio.sleep(_REREAD_SECONDS)
            self._reconciled.discard(conversation_id)
            await self.reconcile(conversation_id)

    async def is_stored(self, message: Message) -> bool:
        """Whether a message that was seen live is among Hermes's rows."""
        known = await self._store.read(read_known_history(message.conversation_id))
        if message.message_id in known.bindings.values():
            return True
        # All that are not bound yet, so that the row of an earlier one with the same words is not taken for this one's.
        live = [LiveMessage(message_id=each.message_id, role=each.role, text=each.text) for each in known.unbound]
        found = await self._port.bind(message.conversation_id, live, known.bindings)
        return any(bound.message_id == message.message_id for bound in found)

    async def reconcile(self, conversation_id: ConversationId) -> bool:
        """Bind live messages to Hermes's rows and take over rows that were never seen live. False: some are unbound."""
        if conversation_id in self._reconciled or self.is_busy(conversation_id):
            return True
        async with self._locks.setdefault(conversation_id, asyncio.Lock()):
            if conversation_id in self._reconciled or self.is_busy(conversation_id):
                return True
            rows = await self._port.history(conversation_id)
            # Behind the rows: whoever leaves something here does so before Hermes has a row of it.
            await self.take_in()
            await self._sequencer.settled()
            known = await self._store.read(read_known_history(conversation_id))
            live = [
                LiveMessage(message_id=message.message_id, role=message.role, text=message.text)
                for message in known.unbound
            ]
            found = await self._port.bind(conversation_id, live, known.bindings)
            if self.is_busy(conversation_id) or self._conversations.is_going(conversation_id):
                return True
            bindings = known.bindings | {bound.key: bound.message_id for bound in found}
            change = Change(writes=tuple(bind_row(conversation_id, bound.key, bound.message_id) for bound in found))
            change += self._take_over(conversation_id, rows, bindings, known.positions)
            if change != Change():
                await self._sequencer.log(change)
            self._reconciled.add(conversation_id)
            return len(found) == len(live)

    def _take_over(
        self,
        conversation_id: ConversationId,
        rows: Sequence[HermesMessage],
        bindings: dict[str, MessageId],
        positions: dict[str, int],
    ) -> Change:
        """Rows that no message is bound to become messages, in their place among the others."""
        taken = sorted(positions.values())
        change = Change()
        waiting: list[HermesMessage] = []
        last = 0
        inserted_at: Position | None = None
        for row in rows:
            name = next((bindings[key] for key in (row.key, *row.also) if key in bindings), None)
            if name is None:
                waiting.append(row)
                continue
            here = positions.get(name)
            if here is None:
                continue
            if waiting and here > last:
                # Behind whatever stands there without being a row: texts that failed, notices.
                low = max([last, *taken[: bisect_left(taken, here)][-1:]])
                placed = self._place(conversation_id, waiting, low, here)
                change += placed
                if placed != Change() and inserted_at is None:
                    inserted_at = Position(low + 1)
                waiting = []
            last = max(last, here)
        head = self._conversations.get(conversation_id).history_head
        change += self._append(conversation_id, waiting)
        return change + self._announce(conversation_id, head, inserted_at)

    def _place(self, conversation_id: ConversationId, rows: Sequence[HermesMessage], low: int, high: int) -> Change:
        step = (high - low) // (len(rows) + 1)
        if step < 1:
            log.warning("history.no_room: some rows stay out of it", extra={"rows": len(rows)})
            return Change()
        change = Change()
        for number, row in enumerate(rows, 1):
            change += self._take(conversation_id, row, Position(low + step * number))
        return change

    def _append(self, conversation_id: ConversationId, rows: Sequence[HermesMessage]) -> Change:
        change = Change()
        for row in rows:
            change += self._take(conversation_id, row, self.next_position(conversation_id))
        return change

    def _take(self, conversation_id: ConversationId, row: HermesMessage, position: Position) -> Change:
        # Derived, so that the same row has the same id even when this store was lost.
        digest = hashlib.sha256(f"{conversation_id}\n{row.key}".encode()).hexdigest()
        message = Message(
            message_id=MessageId(f"msg_{digest[:24]}"),
            conversation_id=conversation_id,
            position=position,
            role=row.role,
            origin=Origin.CHAT,
            status=MessageState.COMPLETED,
            text=sendable(row.text),
            text_truncated=False,
            attachments=(),
            created_at=Time(row.created_at),
            completed_at=Time(row.created_at),
        )
        return Change(writes=(save_message(message), bind_row(conversation_id, row.key, message.message_id)))

    def _announce(self, conversation_id: ConversationId, head: Position, inserted_at: Position | None) -> Change:
        conversation = self._conversations.get(conversation_id)
        new_head = Position(max(head, self._last_position.get(conversation_id, 0)))
        if inserted_at is None:
            return self._conversations.update(attrs.evolve(conversation, history_head=new_head))
        conversation = attrs.evolve(conversation, history_head=new_head, history_id=HistoryId(self._ids.token()))
        event = partial(
            HistoryChanged,
            conversation_id=conversation_id,
            history_id=conversation.history_id,
            history_head=new_head,
            from_position=inserted_at,
        )
        # First from where the history is another one: who sees only the new id must drop all that is cached.
        return Change((event,)) + self._conversations.update(conversation)


async def _nothing() -> None:
    """Nothing was left."""


def _size(item: Item) -> int:
    return len(encode_object(item).encode())


def _json_bytes(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")
