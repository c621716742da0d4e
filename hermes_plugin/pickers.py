"""Hermes's pickers for model and effort, opened by commands of Pheby's own: what they offer, and how to choose.

Nothing but ids, names and figures leaves: what else Hermes puts into a picker (addresses, headers) is not looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from pheby_protocol.ids import Count
from pheby_protocol.messages.model import Model, ModelChoice, Provider
from pheby_server.boundary import sendable
from pheby_server.ports import EffortOffer, ModelOffer

MODEL_COMMAND: Final = "/model --session"
"""With this word Hermes never writes a choice into its settings, whatever they say about that."""
EFFORT_COMMAND: Final = "/reasoning"

MAX_MODELS: Final = 2_000
"""Of all providers together: so many fit a frame."""
MAX_NAME_CHARS: Final = 200
MAX_EFFORTS: Final = 50
_VIRTUAL: Final = "moa"
"""Hermes's several models in one: listed by some whether or not it is set up, and first."""
_NO_EFFORTS: Final = frozenset({"reset", "show", "hide", "on", "off"})
"""What else a picker of efforts offers; show and hide would change Hermes's settings."""

Facts = Callable[[str, Sequence[str]], Mapping[str, Mapping[str, Any]]]
"""What Hermes's catalogue knows of a provider's models: name, context_length, reasoning, price_input, price_output."""


@attrs.frozen
class ModelPicker:
    """As Hermes opened it. `choose` takes the chat, the model and the provider."""

    providers: Sequence[Mapping[str, Any]]
    current_model: str
    current_provider: str
    choose: Callable[[str, str, str], Awaitable[object]]
    kept: tuple[str, str] | None = None
    """Provider and model that the next turn takes up; the picker does not know of it yet."""


@attrs.frozen
class EffortPicker:
    """As Hermes opened it. `choose` takes the chat and the effort."""

    choices: Sequence[Mapping[str, Any]]
    choose: Callable[[str, str], Awaitable[object]]


class Pickers:
    """Catches what Hermes opens in answer to a command of Pheby's own. Any other picker was asked for by nobody."""

    def __init__(self) -> None:
        self._awaited: dict[str, list[ModelPicker | EffortPicker]] = {}

    async def opened_by(self, chat_id: str, command: Awaitable[None]) -> ModelPicker | EffortPicker | None:
        """The picker that this command opens in a chat; None: it opened none. One at a time in a chat."""
        found = self._awaited[chat_id] = []
        try:
            await command
        finally:
            self._awaited.pop(chat_id, None)
        return found[-1] if found else None

    def take(self, chat_id: str, picker: ModelPicker | EffortPicker) -> None:
        """Hermes opened one."""
        if chat_id in self._awaited:
            self._awaited[chat_id].append(picker)


def model_offer(picker: ModelPicker, facts: Facts) -> ModelOffer:
    """What a picker offers. `facts` may block."""
    rows = [row for row in picker.providers if isinstance(row, Mapping)]
    current = _current(rows, picker)
    offered: list[Provider] = []
    room = MAX_MODELS
    for row in rows:
        slug = str(row.get("slug") or "")
        if not _is_id(slug) or (slug == _VIRTUAL and current.provider != _VIRTUAL):
            continue
        names = list(dict.fromkeys(name for name in row.get("models") or () if _is_id(name)))[:room]
        room -= len(names)
        if names:
            known = {} if row.get("is_user_defined") else facts(slug, names)
            models = tuple(_model(name, known.get(name, {})) for name in names)
            offered.append(Provider(provider=slug, name=_name(row.get("name")) or slug, models=models))
    return ModelOffer(providers=tuple(offered), current=current)


def effort_offer(picker: EffortPicker) -> EffortOffer:
    """What a picker offers. Hermes does not say which of them the model knows."""
    values = [str(row.get("value") or "") for row in picker.choices if isinstance(row, Mapping)][:MAX_EFFORTS]
    marked = [str(row.get("value")) for row in picker.choices if isinstance(row, Mapping) and row.get("is_current")]
    efforts = tuple(value for value in values if is_effort(value))
    current = next((value for value in marked if value in efforts), None)
    return EffortOffer(efforts=efforts, current=current, known=False)


def is_effort(value: str) -> bool:
    """Whether a choice of the picker is an effort, and not something that it does besides."""
    return value != "" and value not in _NO_EFFORTS


def _current(rows: Sequence[Mapping[str, Any]], picker: ModelPicker) -> ModelChoice:
    """By the row's mark: the provider's name in Hermes's settings may be another than that under which it is chosen."""
    if picker.kept is not None:
        return ModelChoice(provider=sendable(picker.kept[0]), model=sendable(picker.kept[1]))
    marked = [row for row in rows if row.get("is_current")]
    with_it = [row for row in marked if picker.current_model in (row.get("models") or ())]
    slug = next((str(row.get("slug")) for row in [*with_it, *marked] if row.get("slug")), picker.current_provider)
    return ModelChoice(provider=sendable(slug), model=sendable(picker.current_model))


def _model(name: str, known: Mapping[str, Any]) -> Model:
    length = known.get("context_length")
    return Model(
        model=name,
        name=_name(known.get("name")) or name,
        context_length=Count(length) if isinstance(length, int) and length > 0 else None,
        reasoning=known.get("reasoning") if isinstance(known.get("reasoning"), bool) else None,
        price_input=_name(known.get("price_input")),
        price_output=_name(known.get("price_output")),
    )


def _is_id(value: object) -> bool:
    """Whether something can be named by a client, and chosen by that name."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARS and sendable(value) == value


def _name(value: object) -> str | None:
    return sendable(value)[:MAX_NAME_CHARS] or None if isinstance(value, str) else None
