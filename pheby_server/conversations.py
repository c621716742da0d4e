"""The desk for conversations: which there are, their titles, their order in the list."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import unicodedata
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from functools import partial
from typing import Any

import attrs

from pheby_protocol import limits
from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import ClientConversationId, ConversationId, HistoryId, ListCursor, Position, RunId, Time
from pheby_protocol.messages.connection import ErrorDetails
from pheby_protocol.messages.conversation import (
    Conversation,
    ConversationCreated,
    ConversationDeleted,
    ConversationUpdated,
    TitleSource,
)
from pheby_protocol.messages.message import Message

from .boundary import RequestError, sendable
from .logs import log_of
from .ports import Clock, HermesConversation, HermesPort, IdSource, TitleTaken
from .sequencer import Change, Sequencer
from .stores import (
    Store,
    Tombstone,
    delete_conversation,
    read_conversations,
    read_tombstones,
    save_conversation,
    save_tombstone,
)

log = log_of(__name__)

_REFRESH_SECONDS = 5.0
_TAKEN_AT_ONCE = 500
_UNFIT = {"Cc", "Cs", "Zl", "Zp"}
"""Controls, halves of characters, ends of lines. Joiners and wide spaces are ordinary in many scripts."""
_TURNS_TEXT = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Direction controls: with them a title could show something else than it says."""


def clean_title(title: str) -> str:
    """A title as it will be stored. Raises RequestError when it is not one."""
    title = title.strip()
    kinds = {unicodedata.category(character) for character in title}
    seen = kinds - {"Cf", "Zs"}
    if not seen or len(title) > limits.MAX_TITLE_CHARS or kinds & _UNFIT or not _TURNS_TEXT.isdisjoint(title):
        raise RequestError(
            ErrorCode.INVALID_TITLE,
            f"A title has 1 to {limits.MAX_TITLE_CHARS} printable characters on one line.",
        )
    return title


class ConversationDesk:
    """Every conversation of the owner, kept in memory and in the store; Hermes's own are taken over as they appear."""

    def __init__(
        self, store: Store, sequencer: Sequencer, port: HermesPort, clock: Clock, ids: IdSource, home: str = ""
    ) -> None:
        self._store = store
        self._home = ConversationId(home or f"conv_{ids.conversation_number()}")
        """Where goes what belongs to no conversation any more."""
        self._sequencer = sequencer
        self._port = port
        self._clock = clock
        self._ids = ids
        self._all: dict[ConversationId, Conversation] = {}
        self._order: list[tuple[int, str]] = []
        """The keys of all, as the list is ordered: a page costs the same however many there are."""
        self._by_client_id: dict[ClientConversationId, ConversationId] = {}
        self._refreshed_at = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._creating: set[ConversationId] = set()
        """On their way to the store, and perhaps refused there: not listed yet."""
        self._deleting: set[ConversationId] = set()
        self._deleted: dict[ConversationId, Tombstone] = {}
        self._deleted_client_ids: set[ClientConversationId] = set()

    async def load(self, *, new_log: bool = False) -> None:
        """Read what is stored. A new log: nobody knows anything yet that they would have to be told of."""
        for conversation in await self._store.read(read_conversations()):
            self._remember(conversation)
        for tombstone in await self._store.read(read_tombstones()):
            self._bury(tombstone)

        if new_log:
            await self._import()

    async def _import(self) -> None:
        """A new store: take over what Hermes has, before there is anyone to tell."""
        try:
            found = await self._port.conversations()
        except Exception as failure:
            # The first list tries again.
            log.warning("conversations.not_imported", exc_info=failure)
            return
        change = Change()
        for each in found:
            change += self._take_over(each)
        await self._sequencer.log(Change(writes=change.writes))
        self._refreshed_at = self._clock.monotonic()

    def _bury(self, tombstone: Tombstone) -> None:
        self._deleted[tombstone.conversation_id] = tombstone
        if tombstone.client_conversation_id is not None:
            self._deleted_client_ids.add(tombstone.client_conversation_id)
            self._by_client_id.pop(tombstone.client_conversation_id, None)

    def _remember(self, conversation: Conversation) -> None:
        self._unlist(conversation.conversation_id)
        self._all[conversation.conversation_id] = conversation
        insort(self._order, _list_key(conversation))
        if conversation.client_conversation_id is not None:
            self._by_client_id[conversation.client_conversation_id] = conversation.conversation_id

    def _unlist(self, conversation_id: ConversationId) -> Conversation | None:
        known = self._all.pop(conversation_id, None)
        if known is not None:
            del self._order[bisect_left(self._order, _list_key(known))]
        return known

    def get(self, conversation_id: ConversationId) -> Conversation:
        """The conversation. Raises RequestError not_found."""
        found = self._all.get(conversation_id)
        if found is None or conversation_id in self._deleting:
            raise RequestError(ErrorCode.NOT_FOUND, "There is no such conversation.")
        return found

    async def create(self, client_id: ClientConversationId, title: str | None) -> Conversation:
        """A new conversation, or the one that this client id made before. Raises RequestError: deleted since."""
        if client_id in self._deleted_client_ids:
            raise RequestError(ErrorCode.NOT_FOUND, "That conversation was deleted.")
        while client_id in self._by_client_id:
            # It may still be on its way to the store, and may fail there.
            await self._sequencer.settled()
            known = self._by_client_id.get(client_id)
            if known is not None:
                return self.get(known)
        if client_id in self._deleted_client_ids:
            raise RequestError(ErrorCode.NOT_FOUND, "That conversation was deleted.")
        if title is not None:
            self._check_unused(clean_title(title), None)
        now = Time(self._clock.now_ms())
        conversation = Conversation(
            conversation_id=ConversationId(f"conv_{self._ids.conversation_number()}"),
            client_conversation_id=client_id,
            title="" if title is None else clean_title(title),
            title_source=TitleSource.NONE if title is None else TitleSource.MANUAL,
            created_at=now,
            updated_at=now,
            last_activity_at=now,
            history_id=HistoryId(self._ids.token()),
            history_head=Position(0),
        )
        self._creating.add(conversation.conversation_id)
        try:
            await self._sequencer.log(self._created(conversation), durable=True)
        except Exception:
            self._unlist(conversation.conversation_id)
            del self._by_client_id[client_id]
            raise
        finally:
            self._creating.discard(conversation.conversation_id)
        return conversation

    def _check_unused(self, title: str, by: ConversationId | None) -> None:
        for other in self._all.values():
            if other.title == title and other.conversation_id != by:
                details = ErrorDetails(conversation_id=other.conversation_id)
                raise RequestError(ErrorCode.TITLE_CONFLICT, details=details)

    def ensure(self, conversation_id: ConversationId) -> Change:
        """Make sure that a conversation which Hermes speaks of exists here."""
        if conversation_id in self._all or conversation_id in self._deleted:
            return Change()
        now = Time(self._clock.now_ms())
        return self._created(
            Conversation(
                conversation_id=conversation_id,
                title="",
                title_source=TitleSource.NONE,
                created_at=now,
                updated_at=now,
                last_activity_at=now,
                history_id=HistoryId(self._ids.token()),
                history_head=Position(0),
            )
        )

    def _created(self, conversation: Conversation) -> Change:
        self._remember(conversation)
        event = partial(ConversationCreated, conversation_id=conversation.conversation_id, conversation=conversation)
        return Change((event,), (save_conversation(conversation),))

    def update(self, conversation: Conversation) -> Change:
        """Store and announce a conversation whose fields changed; nothing when none did."""
        if conversation.conversation_id in self._deleted or conversation == self._all.get(conversation.conversation_id):
            return Change()
        conversation = attrs.evolve(conversation, updated_at=Time(self._clock.now_ms()))
        self._remember(conversation)
        event = partial(ConversationUpdated, conversation_id=conversation.conversation_id, conversation=conversation)
        return Change((event,), (save_conversation(conversation),))

    def message_added(self, message: Message) -> Change:
        """A message with a place in the history came: it moves the conversation up in the list."""
        conversation = self._all.get(message.conversation_id)
        if conversation is None:
            return Change()
        return self.update(
            attrs.evolve(
                conversation,
                last_activity_at=max(conversation.last_activity_at, message.created_at),
                last_message_preview=_preview(message.text) or conversation.last_message_preview,
                history_head=max(conversation.history_head, message.position or Position(0)),
            )
        )

    def item_added(self, conversation_id: ConversationId, position: Position) -> Change:
        """Something other than a message came into the history: it moves the head, and not the conversation."""
        conversation = self._all.get(conversation_id)
        if conversation is None:
            return Change()
        return self.update(attrs.evolve(conversation, history_head=max(conversation.history_head, position)))

    def message_ended(self, message: Message) -> Change:
        """A message's text is whole: the newest one is the preview."""
        conversation = self._all.get(message.conversation_id)
        if conversation is None or message.position != conversation.history_head:
            return Change()
        return self.update(
            attrs.evolve(conversation, last_message_preview=_preview(message.text) or conversation.last_message_preview)
        )

    def run_active(self, conversation_id: ConversationId, run_id: RunId | None) -> Change:
        """A run became the active one, or (None) there is none any more."""
        conversation = self._all.get(conversation_id)
        return Change() if conversation is None else self.update(attrs.evolve(conversation, active_run_id=run_id))

    async def refresh(self, *, force: bool = False) -> None:
        """Take over conversations and titles that only Hermes knows yet.

        The first time it is waited for; later ones go on beside, and what they find comes as events.
        """
        now = self._clock.monotonic()
        if not force and now - self._refreshed_at < _REFRESH_SECONDS:
            return
        first, self._refreshed_at = self._refreshed_at == float("-inf"), now
        if first or force:
            await self._refresh()
        elif self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_beside(), name="pheby-refresh")

    async def _refresh_beside(self) -> None:
        try:
            await self._refresh()
        except Exception as failure:
            log.warning("conversations.not_refreshed", exc_info=failure)

    async def stop(self) -> None:
        """End what goes on beside."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _refresh(self) -> None:
        found = await self._port.conversations()
        for start in range(0, len(found), _TAKEN_AT_ONCE):
            change = Change()
            for each in found[start : start + _TAKEN_AT_ONCE]:
                change += self._take_over(each)
            if change != Change():
                await self._sequencer.log(change)

    async def rename(self, conversation_id: ConversationId, title: str) -> Conversation:
        """Give a conversation the owner's title. Raises RequestError invalid_title, title_conflict, not_found."""
        title = clean_title(title)
        self.get(conversation_id)
        self._check_unused(title, conversation_id)
        try:
            await self._port.rename(conversation_id, title)
        except TitleTaken:
            raise RequestError(ErrorCode.TITLE_CONFLICT) from None
        self._check_unused(title, conversation_id)
        known = self.get(conversation_id)
        renamed = attrs.evolve(known, title=title, title_source=TitleSource.MANUAL)
        try:
            await self._sequencer.log(self.update(renamed), durable=True)
        except Exception:
            was = {"title": known.title, "title_source": known.title_source, "updated_at": known.updated_at}
            self.take_back(conversation_id, **was)
            raise
        return self.get(conversation_id)

    def take_back(self, conversation_id: ConversationId, **fields: Any) -> None:
        """What could not be stored is as it was, also for those who were told of it with something else."""
        conversation = self._all.get(conversation_id)
        if conversation is not None:
            conversation = attrs.evolve(conversation, **fields)
            self._remember(conversation)
            event = partial(ConversationUpdated, conversation_id=conversation_id, conversation=conversation)
            self._sequencer.log(Change((event,), (save_conversation(conversation),)))

    def message_withdrawn(self, message: Message, before: Conversation) -> None:
        """A message could not be stored: the conversation is as it was before it."""
        conversation = self._all.get(message.conversation_id)
        if conversation is None or message.position is None:
            return
        brought = {
            "history_head": message.position,
            "last_activity_at": message.created_at,
            "last_message_preview": _preview(message.text),
        }
        fields = {
            name: getattr(before, name) for name, value in brought.items() if getattr(conversation, name) == value
        }
        self.take_back(message.conversation_id, **fields, updated_at=before.updated_at)

    # Deletion

    def is_deleted(self, conversation_id: ConversationId) -> bool:
        """Whether nothing is told of a conversation any more."""
        return conversation_id in self._deleted

    def unforgotten(self) -> list[ConversationId]:
        """Deleted ones of which Hermes may still have something."""
        return [name for name, tombstone in self._deleted.items() if not tombstone.forgotten]

    def begin_deletion(self, conversation_id: ConversationId) -> None:
        """From now on nobody can ask for it. Raises RequestError not_found."""
        self.get(conversation_id)
        self._deleting.add(conversation_id)

    async def finish_deletion(self, conversation_id: ConversationId) -> None:
        """Delete it with all that is stored of it, and tell; when that cannot be stored, it is there again."""
        # What was told of it before is in the log by now, and goes with the rest.
        await self._sequencer.settled()
        conversation = self._unlist(conversation_id)
        assert conversation is not None
        tombstone = Tombstone(conversation_id, conversation.client_conversation_id, forgotten=False)
        self._bury(tombstone)
        event = partial(ConversationDeleted, conversation_id=conversation_id)
        writes = (delete_conversation(conversation_id), save_tombstone(tombstone))
        try:
            await self._sequencer.log(Change((event,), writes), durable=True, alone=True)
        except Exception:
            del self._deleted[conversation_id]
            self._deleted_client_ids.discard(conversation.client_conversation_id)
            self._remember(conversation)
            raise

    def end_deletion(self, conversation_id: ConversationId) -> None:
        """It is gone, or there again."""
        self._deleting.discard(conversation_id)

    def is_going(self, conversation_id: ConversationId) -> bool:
        """Whether a conversation is deleted, or about to be: nothing new begins there."""
        return conversation_id in self._deleted or conversation_id in self._deleting

    def reachable(self, conversation_id: ConversationId) -> ConversationId:
        """Where something for a conversation goes: to the home conversation when it was deleted, to a new one when
        that was deleted, too."""
        if self.is_going(conversation_id):
            conversation_id = self._home
        while self.is_going(conversation_id):
            # Derived, so that it is the same one after a restart.
            number = int.from_bytes(hashlib.sha256(conversation_id.encode()).digest()[:8], "big") % 10**17
            conversation_id = ConversationId(f"conv_{number:017d}")
        return conversation_id

    async def forgotten(self, conversation_id: ConversationId) -> None:
        """Hermes has nothing of a deleted conversation any more."""
        self._deleted[conversation_id] = attrs.evolve(self._deleted[conversation_id], forgotten=True)
        await self._sequencer.log(Change(writes=(save_tombstone(self._deleted[conversation_id]),)))

    async def refresh_title(self, conversation_id: ConversationId) -> None:
        """Take over the title that Hermes made for a conversation, or give it the owner's."""
        found = await self._port.conversation(conversation_id)
        known = self._all.get(conversation_id)
        if found is not None and known is not None and known.title_source is TitleSource.MANUAL:
            if found.title != known.title:
                with contextlib.suppress(TitleTaken):
                    await self._port.rename(conversation_id, known.title)
            return
        if found is not None and (change := self._take_over(found)) != Change():
            await self._sequencer.log(change)

    def _take_over(self, found: HermesConversation) -> Change:
        known = self._all.get(found.conversation_id)
        if found.conversation_id in self._deleted:
            return Change()
        title = sendable(found.title)[: limits.MAX_TITLE_CHARS]
        if known is None:
            return self._created(
                Conversation(
                    conversation_id=found.conversation_id,
                    title=title,
                    title_source=found.title_source,
                    created_at=Time(found.created_at),
                    updated_at=Time(self._clock.now_ms()),
                    last_activity_at=Time(found.last_activity_at),
                    history_id=HistoryId(self._ids.token()),
                    history_head=Position(0),
                )
            )
        if known.title_source is TitleSource.MANUAL or not title:
            return Change()
        return self.update(attrs.evolve(known, title=title, title_source=found.title_source))

    def page(self, limit: int | None, cursor: ListCursor | None) -> tuple[tuple[Conversation, ...], ListCursor | None]:
        """A page of the list, newest activity first, equal times by id; and the cursor of the next one."""
        size = min(limit or limits.DEFAULT_LIST_LIMIT, limits.MAX_LIST_LIMIT)
        start = 0 if cursor is None else bisect_right(self._order, _read_cursor(cursor))
        page: list[Conversation] = []
        for place in range(start, len(self._order)):
            name = ConversationId(self._order[place][1])
            if name in self._creating:
                continue
            if len(page) == size:
                return tuple(page), _write_cursor(page[-1])
            page.append(self._all[name])
        return tuple(page), None

    def some(self, conversation_ids: Iterable[ConversationId]) -> tuple[Conversation, ...]:
        """The conversations among these that exist."""
        return tuple(self._all[found] for found in conversation_ids if found in self._all)


def _preview(text: str) -> str | None:
    return " ".join(text[: limits.PREVIEW_CHARS * 2].split())[: limits.PREVIEW_CHARS] or None


def _list_key(conversation: Conversation) -> tuple[int, str]:
    return (-conversation.last_activity_at, conversation.conversation_id)


def _write_cursor(conversation: Conversation) -> ListCursor:
    return ListCursor(f"{conversation.last_activity_at}.{conversation.conversation_id}")


def _read_cursor(cursor: ListCursor) -> tuple[int, str]:
    time, _, conversation_id = cursor.partition(".")
    if not (time.isascii() and time.isdigit() and len(time) <= 16 and conversation_id):
        raise RequestError(ErrorCode.INVALID_MESSAGE, "The cursor is not one of this server's.")
    return (-int(time), conversation_id)
