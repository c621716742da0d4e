"""Deleting a conversation: its runs end, then it is gone here, then Hermes forgets it, however long that takes."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from pheby_protocol.ids import ConversationId

from .logs import log_of
from .ports import HermesPort

log = log_of(__name__)

FIRST_RETRY_SECONDS: Final = 2.0
LONGEST_RETRY_SECONDS: Final = 300.0


class Conversations(Protocol):
    """What this desk needs to know of conversations."""

    def is_deleted(self, conversation_id: ConversationId) -> bool: ...
    def unforgotten(self) -> list[ConversationId]: ...
    def begin_deletion(self, conversation_id: ConversationId) -> None: ...
    def end_deletion(self, conversation_id: ConversationId) -> None: ...
    async def finish_deletion(self, conversation_id: ConversationId) -> None: ...
    async def forgotten(self, conversation_id: ConversationId) -> None: ...


class Runs(Protocol):
    """What this desk needs to know of runs."""

    async def end_all(self, conversation_id: ConversationId) -> None: ...
    def forget(self, conversation_id: ConversationId) -> None: ...


class Messages(Protocol):
    """What this desk needs to know of messages."""

    def forget(self, conversation_id: ConversationId) -> None: ...


class Attachments(Protocol):
    """What this desk needs to know of attachments."""

    def conversation_deleted(self) -> None: ...


class DeletionDesk:
    """Takes conversations away for good, also those of which Hermes kept something when it was last stopped."""

    def __init__(
        self,
        port: HermesPort,
        conversations: Conversations,
        runs: Runs,
        messages: Messages,
        attachments: Attachments,
    ) -> None:
        self._port = port
        self._conversations = conversations
        self._runs = runs
        self._messages = messages
        self._attachments = attachments
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[ConversationId, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Go on with what was not finished."""
        for conversation_id in self._conversations.unforgotten():
            self._forget_in_hermes(conversation_id)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def delete(self, conversation_id: ConversationId) -> None:
        """Delete a conversation; one that was deleted before stays so. Raises RequestError not_found."""
        if self._conversations.is_deleted(conversation_id):
            return
        work = self._running.get(conversation_id)
        if work is None:
            self._conversations.begin_deletion(conversation_id)
            # In a task of its own: a client that goes away does not leave it half deleted.
            work = self._running[conversation_id] = asyncio.create_task(self._delete(conversation_id))
            self._tasks.add(work)
            work.add_done_callback(self._tasks.discard)
            work.add_done_callback(lambda _: self._running.pop(conversation_id, None))
        await asyncio.shield(work)

    async def _delete(self, conversation_id: ConversationId) -> None:
        try:
            await self._runs.end_all(conversation_id)
            await self._conversations.finish_deletion(conversation_id)
        finally:
            self._conversations.end_deletion(conversation_id)
        self._runs.forget(conversation_id)
        self._messages.forget(conversation_id)
        self._attachments.conversation_deleted()
        self._forget_in_hermes(conversation_id)

    def _forget_in_hermes(self, conversation_id: ConversationId) -> None:
        task = asyncio.create_task(self._until_forgotten(conversation_id), name="pheby-forget")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _until_forgotten(self, conversation_id: ConversationId) -> None:
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                await self._port.ready(conversation_id)
                await self._port.delete(conversation_id)
                await self._conversations.forgotten(conversation_id)
                return
            except Exception as failure:
                log.warning(
                    "conversation.not_forgotten: will be tried again",
                    exc_info=failure,
                    extra={"conversation_id": conversation_id},
                )
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_RETRY_SECONDS)
