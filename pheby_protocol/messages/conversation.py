"""Conversations: list, open, create, rename, delete."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..ids import ClientConversationId, ConversationId, Count, HistoryId, ListCursor, Position, RunId, Seq, Time
from ..open_enum import OpenEnum
from ._base import LoggedEvent, Request, Result
from .model import ModelChoice


class TitleSource(OpenEnum):
    """Who chose a title. A manual title is never overwritten by a generated one."""

    NONE = "none"
    GENERATED = "generated"
    MANUAL = "manual"


@attrs.frozen(kw_only=True)
class Conversation:
    """One conversation of the owner with the agent.

    `last_activity_at` orders the list and changes only with a new message. Unread is the client's matter:
    `history_head` above what it has shown.
    """

    conversation_id: ConversationId
    client_conversation_id: ClientConversationId | None = None
    title: str
    title_source: TitleSource
    created_at: Time
    updated_at: Time
    last_activity_at: Time
    last_message_preview: str | None = None
    active_run_id: RunId | None = None
    history_id: HistoryId
    history_head: Position
    model: ModelChoice | None = None
    reasoning_effort: str | None = None


@attrs.frozen(kw_only=True)
class ConversationList(Request):
    """Ask for a page of conversations, newest activity first."""

    type: ClassVar[str] = "conversation.list"
    limit: Count | None = None
    cursor: ListCursor | None = None


@attrs.frozen(kw_only=True)
class ConversationListResult(Result):
    """A page of conversations; `next` is there while there are more."""

    type: ClassVar[str] = "conversation.list.result"
    conversations: tuple[Conversation, ...]
    next: ListCursor | None = None
    as_of_seq: Seq


@attrs.frozen(kw_only=True)
class ConversationGet(Request):
    """Ask for one conversation."""

    type: ClassVar[str] = "conversation.get"
    conversation_id: ConversationId


@attrs.frozen(kw_only=True)
class ConversationGetResult(Result):
    """One conversation."""

    type: ClassVar[str] = "conversation.get.result"
    conversation: Conversation
    as_of_seq: Seq


@attrs.frozen(kw_only=True)
class ConversationCreate(Request):
    """Create a conversation. Repeating the same client id returns the same conversation."""

    type: ClassVar[str] = "conversation.create"
    client_conversation_id: ClientConversationId
    title: str | None = None


@attrs.frozen(kw_only=True)
class ConversationCreateResult(Result):
    """The conversation that was created, now or by an earlier request with the same client id."""

    type: ClassVar[str] = "conversation.create.result"
    conversation: Conversation
    as_of_seq: Seq


@attrs.frozen(kw_only=True)
class ConversationRename(Request):
    """Give a conversation a title by hand."""

    type: ClassVar[str] = "conversation.rename"
    conversation_id: ConversationId
    title: str


@attrs.frozen(kw_only=True)
class ConversationRenameResult(Result):
    """The renamed conversation."""

    type: ClassVar[str] = "conversation.rename.result"
    conversation: Conversation
    as_of_seq: Seq


@attrs.frozen(kw_only=True)
class ConversationDelete(Request):
    """Delete a conversation for good; its active run is cancelled first."""

    type: ClassVar[str] = "conversation.delete"
    conversation_id: ConversationId


@attrs.frozen(kw_only=True)
class ConversationDeleteResult(Result):
    """It is deleted, now or already."""

    type: ClassVar[str] = "conversation.delete.result"


@attrs.frozen(kw_only=True)
class ConversationCreated(LoggedEvent):
    """A conversation exists."""

    type: ClassVar[str] = "conversation.created"
    conversation_id: ConversationId
    conversation: Conversation


@attrs.frozen(kw_only=True)
class ConversationUpdated(LoggedEvent):
    """A field of a conversation changed; not sent per delta."""

    type: ClassVar[str] = "conversation.updated"
    conversation_id: ConversationId
    conversation: Conversation


@attrs.frozen(kw_only=True)
class ConversationDeleted(LoggedEvent):
    """A conversation is gone; nothing of it follows."""

    type: ClassVar[str] = "conversation.deleted"
    conversation_id: ConversationId


@attrs.frozen(kw_only=True)
class HistoryChanged(LoggedEvent):
    """Finished items were changed, removed, re-ordered or re-identified: drop the cache from there, fetch again."""

    type: ClassVar[str] = "history.changed"
    conversation_id: ConversationId
    history_id: HistoryId
    history_head: Position
    from_position: Position
