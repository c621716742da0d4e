"""What the core asks Hermes, answered: hand-over through the adapter, history from Hermes's own database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any, Final, Protocol, TypeVar

from pheby_protocol.ids import ConversationId, MessageId
from pheby_protocol.messages.conversation import TitleSource
from pheby_protocol.messages.message import MessageRole
from pheby_server.ports import (
    Bound,
    EffortOffer,
    HandOver,
    HermesConversation,
    HermesFeatures,
    HermesMessage,
    LiveMessage,
    ModelOffer,
    TitleTaken,
    Unavailable,
)

from . import binding
from .chats import chat_of, conversation_of
from .history import HistoryRow, history
from .pickers import (
    EFFORT_COMMAND,
    MODEL_COMMAND,
    EffortPicker,
    Facts,
    ModelPicker,
    effort_offer,
    is_effort,
    model_offer,
)
from .typed import context

GATE_SECONDS: Final = 0.05
GUARD_SECONDS: Final = 0.01
RECHECK_SECONDS: Final = 3.0
DELETIONS: Final = 3
PICKER_SECONDS: Final = 20.0
"""Hermes may ask its providers for their lists before it opens a picker."""

T = TypeVar("T")
Sessions = list[tuple[dict[str, Any], list[dict[str, Any]]]]


class Gateway(Protocol):
    """The adapter as this port sees it."""

    def is_open(self) -> bool:
        """Whether Hermes takes messages at all."""

    def is_free(self, chat_id: str) -> bool:
        """Whether Hermes has let go of the chat's last event."""

    async def deliver(self, chat_id: str, text: str, message_id: str, context: str | None) -> None:
        """Give Hermes a message of the owner, and what the agent is told before it."""

    async def interrupt(self, chat_id: str) -> None:
        """Stop what Hermes does in a chat."""

    async def steer(self, chat_id: str, text: str, message_id: str) -> bool:
        """Give the turn that is open in a chat some words of the owner; False when there is none."""

    async def reset(self, chat_id: str) -> None:
        """Have Hermes begin anew in a chat that is free."""

    async def open_picker(self, chat_id: str, command: str) -> ModelPicker | EffortPicker | None:
        """What a command of Pheby's own opens in a chat that is free; None: nothing."""

    def resolve_approval(self, key: str, choice: str, reason: str | None) -> bool:
        """Decide one question; False when Hermes did not take the answer, or it might reach another question."""

    def resolve_clarification(self, key: str, chosen: tuple[int, ...], text: str | None, *, skip: bool) -> bool:
        """Answer one question; False when Hermes did not take it."""

    def interrupt_subagent(self, key: str) -> bool:
        """Stop one subagent; False when it cannot be stopped."""


class SessionStore(Protocol):
    """One profile's sessions of one platform. Every call blocks, and is short."""

    def read(self, chat_id: str | None) -> Sessions:
        """The sessions (of one chat), each with its rows, oldest first; rows for one chat only."""

    def set_title(self, chat_id: str, title: str) -> bool:
        """Give a chat a title; False when another has it."""

    def delete(self, chat_id: str) -> bool:
        """Delete a chat's sessions; whether none is left."""


class HermesSide:
    """The HermesPort of one adapter. Database reads run in threads and are short."""

    def __init__(
        self,
        gateway: Gateway,
        features: Callable[[], HermesFeatures],
        sessions: SessionStore,
        model_facts: Facts = lambda provider, models: {},
    ) -> None:
        self._gateway = gateway
        self._model_facts = model_facts
        self._probe = features
        self._sessions = sessions
        self._read = sessions.read

    @property
    def features(self) -> HermesFeatures:
        return self._probe()

    async def ready(self, conversation_id: ConversationId) -> None:
        # Hermes has no signal for either: the gate opens seconds after the port, the guard falls up to half a second
        # after the last callback. A message handed over before that is lost on 0.19.
        chat_id = chat_of(conversation_id)
        while True:
            if not self._gateway.is_open():
                await asyncio.sleep(GATE_SECONDS)
            elif not self._gateway.is_free(chat_id):
                await asyncio.sleep(GUARD_SECONDS)
            else:
                return

    async def hand_over(self, message: HandOver) -> None:
        chat_id = chat_of(message.conversation_id)
        if not self._gateway.is_open() or not self._gateway.is_free(chat_id):
            raise Unavailable
        await self._gateway.deliver(chat_id, message.text, message.message_id, context(message.context))

    async def steer(self, message: HandOver) -> bool:
        return await self._gateway.steer(chat_of(message.conversation_id), message.text, message.message_id)

    async def interrupt(self, conversation_id: ConversationId) -> None:
        await self._gateway.interrupt(chat_of(conversation_id))

    async def resolve_approval(
        self, conversation_id: ConversationId, key: str, choice: str, reason: str | None
    ) -> bool:
        return self._gateway.resolve_approval(key, choice, reason)

    async def resolve_clarification(
        self, conversation_id: ConversationId, key: str, chosen: tuple[int, ...], text: str | None, *, skip: bool
    ) -> bool:
        return self._gateway.resolve_clarification(key, chosen, text, skip=skip)

    async def interrupt_subagent(self, conversation_id: ConversationId, key: str) -> bool:
        return self._gateway.interrupt_subagent(key)

    async def conversations(self) -> Sequence[HermesConversation]:
        sessions = await asyncio.to_thread(self._read, None)
        chats: dict[str, list[dict[str, Any]]] = {}
        for session, _ in sessions:
            chats.setdefault(str(session["chat_id"]), []).append(session)
        return [_described(chat_id, generations) for chat_id, generations in chats.items()]

    async def conversation(self, conversation_id: ConversationId) -> HermesConversation | None:
        chat_id = chat_of(conversation_id)
        sessions = [session for session, _ in await asyncio.to_thread(self._read, chat_id)]
        return _described(chat_id, sessions) if sessions else None

    async def rename(self, conversation_id: ConversationId, title: str) -> None:
        if not await asyncio.to_thread(self._sessions.set_title, chat_of(conversation_id), title):
            raise TitleTaken

    async def delete(self, conversation_id: ConversationId) -> None:
        chat_id = chat_of(conversation_id)
        for _ in range(DELETIONS):
            if not self._gateway.is_open() or not self._gateway.is_free(chat_id):
                raise Unavailable
            if not await asyncio.to_thread(self._read, chat_id):
                return
            await self._gateway.reset(chat_id)
            await asyncio.to_thread(self._sessions.delete, chat_id)
            # A turn that was on its way out may have written its last rows after all.
            await asyncio.sleep(RECHECK_SECONDS)
        raise Unavailable

    async def models(self, conversation_id: ConversationId) -> ModelOffer:
        picker = await self._model_picker(chat_of(conversation_id))
        return await asyncio.to_thread(model_offer, picker, self._model_facts)

    async def select_model(self, conversation_id: ConversationId, provider: str, model: str) -> None:
        chat_id = chat_of(conversation_id)
        picker = await self._model_picker(chat_id)
        await _within(PICKER_SECONDS, picker.choose(chat_id, model, provider))

    async def efforts(self, conversation_id: ConversationId) -> EffortOffer:
        return effort_offer(await self._effort_picker(chat_of(conversation_id)))

    async def select_effort(self, conversation_id: ConversationId, effort: str) -> None:
        chat_id = chat_of(conversation_id)
        picker = await self._effort_picker(chat_id)
        if is_effort(effort):
            await _within(PICKER_SECONDS, picker.choose(chat_id, effort))

    async def _model_picker(self, chat_id: str) -> ModelPicker:
        picker = await self._open_picker(chat_id, MODEL_COMMAND)
        if not isinstance(picker, ModelPicker):
            raise Unavailable
        return picker

    async def _effort_picker(self, chat_id: str) -> EffortPicker:
        picker = await self._open_picker(chat_id, EFFORT_COMMAND)
        if not isinstance(picker, EffortPicker):
            raise Unavailable
        return picker

    async def _open_picker(self, chat_id: str, command: str) -> ModelPicker | EffortPicker | None:
        if not self._gateway.is_open() or not self._gateway.is_free(chat_id):
            raise Unavailable
        return await _within(PICKER_SECONDS, self._gateway.open_picker(chat_id, command))

    async def history(self, conversation_id: ConversationId) -> Sequence[HermesMessage]:
        return [
            HermesMessage(
                key=row.key,
                also=row.also,
                role=MessageRole.USER if row.role == "user" else MessageRole.ASSISTANT,
                text=row.text,
                created_at=row.created_at_ms,
            )
            for row in await self._rows(conversation_id)
            if row.role in ("user", "assistant") and row.mark != "failed" and row.text
        ]

    async def bind(
        self, conversation_id: ConversationId, live: Sequence[LiveMessage], bound: Container[str]
    ) -> Sequence[Bound]:
        rows = await self._rows(conversation_id)
        said = [
            binding.LiveMessage(
                message.message_id, "user" if message.role is MessageRole.USER else "assistant", message.text
            )
            for message in live
        ]
        return [Bound(message_id=MessageId(pair.message_id), key=pair.key) for pair in binding.bind(said, rows, bound)]

    async def _rows(self, conversation_id: ConversationId) -> list[HistoryRow]:
        return await asyncio.to_thread(self._read_rows, chat_of(conversation_id))

    def _read_rows(self, chat_id: str) -> list[HistoryRow]:
        rows = [row for _, rows in self._read(chat_id) for row in rows]
        return history(sorted(rows, key=lambda row: row["id"]))


async def _within(seconds: float, work: Awaitable[T]) -> T:
    """What Hermes says in time. Raises Unavailable."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise Unavailable from None


def _described(chat_id: str, generations: Sequence[dict[str, Any]]) -> HermesConversation:
    started = [_milliseconds(session.get("started_at")) for session in generations]
    active = [_milliseconds(session.get("last_active")) for session in generations]
    named: dict[str, Any] = next((session for session in reversed(generations) if session.get("title")), {})
    title, by_owner = str(named.get("title", "")), named.get("title_source") == "user"
    return HermesConversation(
        conversation_id=conversation_of(chat_id),
        title=title,
        title_source=TitleSource.MANUAL if title and by_owner else TitleSource.GENERATED if title else TitleSource.NONE,
        created_at=min(started),
        last_activity_at=max([*active, *started]),
    )


def _milliseconds(seconds: object) -> int:
    return int(seconds * 1_000) if isinstance(seconds, int | float) else 0
