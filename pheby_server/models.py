"""The desk for models and effort: both are Hermes's, chosen per conversation, and kept where it forgets them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

import attrs

from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.connection import ErrorDetails
from pheby_protocol.messages.conversation import Conversation
from pheby_protocol.messages.model import ModelChanged, ModelChoice, ReasoningChanged

from .boundary import RequestError
from .logs import log_of
from .ports import Clock, EffortOffer, HermesPort, ModelOffer, Unavailable
from .sequencer import Change, Sequencer

log = log_of(__name__)

T = TypeVar("T")

FRESH_SECONDS: Final = 30.0
"""So long an offer is answered again without asking Hermes."""
READY_SECONDS: Final = 10.0
"""So long a question waits for Hermes to be free."""
PREPARE_SECONDS: Final = 10.0
"""So long a message is held up at most so that its conversation's choices hold for it."""
RETRY_SECONDS: Final = 60.0
"""So long no other message is held up where one was held up for nothing."""
REMEMBERED: Final = 256
"""Conversations whose offers are remembered."""


class Conversations(Protocol):
    """What this desk needs to know of conversations."""

    def get(self, conversation_id: ConversationId) -> Conversation: ...
    def update(self, conversation: Conversation) -> Change: ...
    def take_back(self, conversation_id: ConversationId, **fields: Any) -> None: ...


class Runs(Protocol):
    """What this desk needs to know of runs."""

    def reserved(self, conversation_id: ConversationId) -> AbstractContextManager[None]: ...


class _Offers(Generic[T]):
    """What Hermes last offered in the conversations that were asked about last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[ConversationId, tuple[float, T]] = OrderedDict()

    def put(self, conversation_id: ConversationId, offer: T) -> T:
        self._known[conversation_id] = (self._clock.monotonic(), offer)
        self._known.move_to_end(conversation_id)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return offer

    def get(self, conversation_id: ConversationId, *, within: float = float("inf")) -> T | None:
        """The last offer, unless it is older than so many seconds."""
        asked_at, offer = self._known.get(conversation_id, (0.0, None))
        return offer if self._clock.monotonic() - asked_at <= within else None


class ModelDesk:
    """Asks Hermes only while a conversation is idle: its pickers are commands, and none must meet a turn.

    `Conversation.model` and `reasoning_effort` are what was chosen, and absent where Hermes's own settings hold.
    """

    def __init__(
        self, sequencer: Sequencer, port: HermesPort, conversations: Conversations, runs: Runs, clock: Clock
    ) -> None:
        self._sequencer = sequencer
        self._port = port
        self._conversations = conversations
        self._runs = runs
        self._clock = clock
        self._models: _Offers[ModelOffer] = _Offers(clock)
        self._efforts: _Offers[EffortOffer] = _Offers(clock)
        self._in_force: set[ConversationId] = set()
        """Conversations whose choices Hermes has, as far as it is known."""
        self._not_before: dict[ConversationId, float] = {}
        """When the choices of a conversation are seen to again, by the clock that never jumps."""
        self._locks: WeakValueDictionary[ConversationId, asyncio.Lock] = WeakValueDictionary()

    # What clients ask

    async def models(self, conversation_id: ConversationId) -> ModelOffer:
        """What may be chosen. Raises RequestError not_found, busy; Unavailable."""
        return await self._listed(conversation_id, self._models, self._ask_models)

    async def efforts(self, conversation_id: ConversationId) -> EffortOffer:
        """What may be chosen. Raises RequestError not_found, busy; Unavailable."""
        return await self._listed(conversation_id, self._efforts, self._ask_efforts)

    async def select_model(self, conversation_id: ConversationId, choice: ModelChoice) -> ModelChoice:
        """Choose a model for the next runs. Raises RequestError not_found, busy, invalid_model; Unavailable."""
        return await self._alone(conversation_id, lambda: self._select_model(conversation_id, choice))

    async def select_effort(self, conversation_id: ConversationId, effort: str) -> str:
        """Choose an effort for the next runs. Raises RequestError not_found, busy, invalid_effort; Unavailable."""
        return await self._alone(conversation_id, lambda: self._select_effort(conversation_id, effort))

    async def _listed(
        self,
        conversation_id: ConversationId,
        offers: _Offers[T],
        ask: Callable[[ConversationId], Coroutine[Any, Any, T]],
    ) -> T:
        self._conversations.get(conversation_id)
        known = offers.get(conversation_id, within=FRESH_SECONDS)
        if known is not None:
            return known

        async def ask_unless_known() -> T:
            # Somebody else may have asked while this one waited for its turn.
            if (found := offers.get(conversation_id, within=FRESH_SECONDS)) is not None:
                return found
            await self._bring_into_force(conversation_id)
            return await ask(conversation_id)

        try:
            return await self._alone(conversation_id, ask_unless_known)
        except RequestError as failure:
            # While a run is active: as it was before it, where that is known.
            old = offers.get(conversation_id)
            if failure.code is not ErrorCode.BUSY or old is None:
                raise
            return old

    async def _alone(self, conversation_id: ConversationId, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do this while nothing else happens in the conversation; a send that comes meanwhile waits."""
        self._conversations.get(conversation_id)
        # Before anything is awaited: a send that comes right behind this finds it.
        with self._runs.reserved(conversation_id):
            async with self._lock(conversation_id):
                self._conversations.get(conversation_id)
                await self._ready(conversation_id)
                return await work()

    def _lock(self, conversation_id: ConversationId) -> asyncio.Lock:
        return self._locks.setdefault(conversation_id, asyncio.Lock())

    async def _ready(self, conversation_id: ConversationId) -> None:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._port.ready(conversation_id)
        except TimeoutError:
            raise Unavailable from None

    async def _ask_models(self, conversation_id: ConversationId) -> ModelOffer:
        return self._models.put(conversation_id, await self._port.models(conversation_id))

    async def _ask_efforts(self, conversation_id: ConversationId) -> EffortOffer:
        return self._efforts.put(conversation_id, await self._port.efforts(conversation_id))

    # Choosing

    async def _select_model(self, conversation_id: ConversationId, choice: ModelChoice) -> ModelChoice:
        await self._bring_into_force(conversation_id)
        before = await self._ask_models(conversation_id)
        if not _is_offered(before, choice):
            # Hermes would take any name, and send it to the provider.
            raise RequestError(ErrorCode.INVALID_MODEL)
        effort = await self._effort(conversation_id)
        try:
            if before.current != choice:
                await self._port.select_model(conversation_id, choice.provider, choice.model)
                if (await self._ask_models(conversation_id)).current != choice:
                    raise RequestError(ErrorCode.UNAVAILABLE, "Hermes did not take that model.", retryable=False)
            await self._commit(conversation_id, choice, await self._other_effort(conversation_id, effort))
        except Exception:
            await self._put_back(self._put_model_back(conversation_id, before.current))
            raise
        self._in_force.add(conversation_id)
        return choice

    async def _put_model_back(self, conversation_id: ConversationId, old: ModelChoice) -> None:
        if (await self._ask_models(conversation_id)).current != old:
            await self._port.select_model(conversation_id, old.provider, old.model)
            await self._ask_models(conversation_id)

    async def _effort(self, conversation_id: ConversationId) -> str | None:
        """The effort in use, None where that is not known."""
        return (await self._ask_efforts(conversation_id)).current if self._port.features.reasoning else None

    async def _other_effort(self, conversation_id: ConversationId, before: str | None) -> str | None:
        """What the effort became because of another model; None: it is the same. One that was chosen is kept."""
        now = await self._effort(conversation_id)
        if now not in (None, before) and before == self._conversations.get(conversation_id).reasoning_effort:
            assert before is not None
            await self._port.select_effort(conversation_id, before)
            now = await self._effort(conversation_id)
        return None if now == before else now

    async def _select_effort(self, conversation_id: ConversationId, effort: str) -> str:
        await self._bring_into_force(conversation_id)
        before = await self._ask_efforts(conversation_id)
        if effort not in before.efforts:
            raise RequestError(ErrorCode.INVALID_EFFORT, details=ErrorDetails(efforts=before.efforts))
        if before.current == effort == self._conversations.get(conversation_id).reasoning_effort:
            return effort
        try:
            await self._port.select_effort(conversation_id, effort)
            if (await self._ask_efforts(conversation_id)).current != effort:
                raise RequestError(ErrorCode.UNAVAILABLE, "Hermes did not take that effort.", retryable=False)
            await self._commit(conversation_id, effort=effort)
        except Exception:
            await self._put_back(self._put_effort_back(conversation_id, before.current))
            raise
        self._in_force.add(conversation_id)
        return effort

    async def _put_effort_back(self, conversation_id: ConversationId, old: str | None) -> None:
        if old is not None and (await self._ask_efforts(conversation_id)).current != old:
            await self._port.select_effort(conversation_id, old)
            await self._ask_efforts(conversation_id)

    async def _put_back(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as failure:
            log.error("choice.not_taken_back", exc_info=failure)

    async def _commit(
        self, conversation_id: ConversationId, model: ModelChoice | None = None, effort: str | None = None
    ) -> None:
        """Store and announce what is chosen now, where it is another; what cannot be stored was never chosen."""
        known = self._conversations.get(conversation_id)
        after, change = known, Change()
        if model is not None and model != known.model:
            after = attrs.evolve(after, model=model)
            change += Change((partial(ModelChanged, conversation_id=conversation_id, current=model),))
        if effort is not None and effort != known.reasoning_effort:
            after = attrs.evolve(after, reasoning_effort=effort)
            change += Change((partial(ReasoningChanged, conversation_id=conversation_id, current=effort),))
        if change == Change():
            return
        try:
            await self._sequencer.log(change + self._conversations.update(after), durable=True)
        except Exception:
            was = {"model": known.model, "reasoning_effort": known.reasoning_effort, "updated_at": known.updated_at}
            self._conversations.take_back(conversation_id, **was)
            raise

    # What Hermes forgets

    def began_anew(self, conversation_id: ConversationId) -> None:
        """Hermes may have forgotten what was chosen."""
        self._in_force.discard(conversation_id)

    async def prepare(self, conversation_id: ConversationId) -> None:
        """See that the choices hold for the message that is about to be handed over. Holds it up only so long."""
        now = self._clock.monotonic()
        if not self._is_pending(conversation_id) or now < self._not_before.get(conversation_id, now):
            return
        try:
            self._not_before.pop(conversation_id, None)
            async with asyncio.timeout(PREPARE_SECONDS), self._lock(conversation_id):
                await self._bring_into_force(conversation_id)
        except Exception as failure:
            # The message goes first; it is tried again before the next one.
            log.warning("choice.not_in_force", exc_info=failure, extra={"conversation_id": conversation_id})
            if isinstance(failure, TimeoutError):
                self._not_before[conversation_id] = now + RETRY_SECONDS

    def _is_pending(self, conversation_id: ConversationId) -> bool:
        if conversation_id in self._in_force:
            return False
        try:
            known = self._conversations.get(conversation_id)
        except RequestError:
            return False
        return known.model is not None or known.reasoning_effort is not None

    async def _bring_into_force(self, conversation_id: ConversationId) -> None:
        """Choose again what Hermes has forgotten; where it cannot be had any more, say what holds instead."""
        if not self._is_pending(conversation_id):
            return
        known, features = self._conversations.get(conversation_id), self._port.features
        model, effort = known.model, known.reasoning_effort
        # First what is always forgotten and quickly chosen: a list of models may take its time.
        if effort is not None and features.reasoning:
            effort = await self._effort_again(conversation_id, effort)
        if model is not None and features.models:
            model = await self._model_again(conversation_id, model)
        await self._commit(conversation_id, model, effort)
        self._in_force.add(conversation_id)

    async def _model_again(self, conversation_id: ConversationId, chosen: ModelChoice) -> ModelChoice:
        """The model that holds. What was on offer once need not be listed now: lists depend on a provider's mood."""
        current = (await self._ask_models(conversation_id)).current
        if current != chosen:
            await self._port.select_model(conversation_id, chosen.provider, chosen.model)
            current = (await self._ask_models(conversation_id)).current
        return current

    async def _effort_again(self, conversation_id: ConversationId, chosen: str) -> str:
        """The effort that holds. Chosen even if it is in use, since that may be what Hermes does where none is."""
        await self._port.select_effort(conversation_id, chosen)
        return (await self._ask_efforts(conversation_id)).current or chosen


def _is_offered(offer: ModelOffer, choice: ModelChoice) -> bool:
    return any(
        provider.provider == choice.provider and any(model.model == choice.model for model in provider.models)
        for provider in offer.providers
    )
