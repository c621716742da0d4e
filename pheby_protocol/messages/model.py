"""Models and reasoning effort."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..ids import ConversationId, Count
from ._base import LoggedEvent, Request, Result


@attrs.frozen(kw_only=True)
class ModelChoice:
    """The model that a conversation uses."""

    provider: str
    model: str


@attrs.frozen(kw_only=True)
class Model:
    """One model as Hermes offers it. What Hermes does not tell is absent, never guessed."""

    model: str
    name: str
    context_length: Count | None = None
    efforts: tuple[str, ...] | None = None
    reasoning: bool | None = None
    price_input: str | None = None
    price_output: str | None = None


@attrs.frozen(kw_only=True)
class Provider:
    """One provider with its models. No address and no key is ever part of it."""

    provider: str
    name: str
    models: tuple[Model, ...]


@attrs.frozen(kw_only=True)
class ModelList(Request):
    """Ask which models a conversation may use."""

    type: ClassVar[str] = "model.list"
    conversation_id: ConversationId


@attrs.frozen(kw_only=True)
class ModelListResult(Result):
    """The models on offer and the one in use."""

    type: ClassVar[str] = "model.list.result"
    providers: tuple[Provider, ...]
    current: ModelChoice


@attrs.frozen(kw_only=True)
class ModelSelect(Request):
    """Choose the model for the next runs of one conversation; refused with `busy` while a run is active."""

    type: ClassVar[str] = "model.select"
    conversation_id: ConversationId
    provider: str
    model: str


@attrs.frozen(kw_only=True)
class ModelSelectResult(Result):
    """The model now in use."""

    type: ClassVar[str] = "model.select.result"
    current: ModelChoice


@attrs.frozen(kw_only=True)
class ReasoningList(Request):
    """Ask which reasoning efforts a conversation may use."""

    type: ClassVar[str] = "reasoning.list"
    conversation_id: ConversationId


@attrs.frozen(kw_only=True)
class ReasoningListResult(Result):
    """The efforts on offer. `known` is false where Hermes does not say what the current model supports."""

    type: ClassVar[str] = "reasoning.list.result"
    efforts: tuple[str, ...]
    current: str | None = None
    known: bool


@attrs.frozen(kw_only=True)
class ReasoningSelect(Request):
    """Choose the reasoning effort for the next runs of one conversation."""

    type: ClassVar[str] = "reasoning.select"
    conversation_id: ConversationId
    effort: str


@attrs.frozen(kw_only=True)
class ReasoningSelectResult(Result):
    """The effort now in use."""

    type: ClassVar[str] = "reasoning.select.result"
    current: str


@attrs.frozen(kw_only=True)
class ModelChanged(LoggedEvent):
    """The model of a conversation changed."""

    type: ClassVar[str] = "model.changed"
    conversation_id: ConversationId
    current: ModelChoice


@attrs.frozen(kw_only=True)
class ReasoningChanged(LoggedEvent):
    """The reasoning effort of a conversation changed."""

    type: ClassVar[str] = "reasoning.changed"
    conversation_id: ConversationId
    current: str
