"""What Hermes's pickers offer: only what can be chosen, and nothing that a client must not see."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
from pheby_hermes import pickers
from pheby_hermes.pickers import EffortPicker, ModelPicker, Pickers, effort_offer, model_offer

from pheby_protocol.codec import unstructure_object
from pheby_protocol.messages.model import ModelChoice

KEY = "sk-very-secret-key"
LADDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")


async def choose(*_: str) -> str:
    return "text for the owner"


def nothing(provider: str, models: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {}


def row(slug: str, *models: object, **fields: Any) -> dict[str, Any]:
    return {"slug": slug, "name": slug.title(), "is_current": False, "models": list(models), "total_models": 9} | fields


def opened(*rows: Any, model: str = "m1", provider: str = "one") -> ModelPicker:
    return ModelPicker(rows, model, provider, choose)


def names(picker: ModelPicker) -> list[tuple[str, list[str]]]:
    offer = model_offer(picker, nothing)
    return [(provider.provider, [model.model for model in provider.models]) for provider in offer.providers]


def test_providers_and_models() -> None:
    """R-H1: in Hermes's order, by the ids under which they are chosen."""
    picker = opened(row("one", "m1", "m2", is_current=True), row("two", "x/y"))
    assert names(picker) == [("one", ["m1", "m2"]), ("two", ["x/y"])]
    assert model_offer(picker, nothing).current == ModelChoice(provider="one", model="m1")


def test_nothing_else_leaves() -> None:
    """I6, R-H1: neither address nor key, header or environment, wherever Hermes puts it."""
    secret = {"api_url": f"https://{KEY}", "api_key": KEY, "headers": {"Authorization": KEY}, "key_env": KEY}
    picker = opened(row("one", "m1", is_current=True, is_user_defined=True, source=KEY, warning=KEY, **secret))
    offer = model_offer(picker, lambda provider, models: {"m1": {"name": "M", "base_url": KEY, "key": KEY}})
    said = json.dumps([unstructure_object(provider) for provider in offer.providers]) + repr(offer)
    assert KEY not in said
    assert "https" not in said


def test_the_current_one_is_the_marked_one() -> None:
    """0.19 lists the virtual provider first, and the settings name an endpoint otherwise than the list."""
    moa = row("moa", "default", is_user_defined=False)
    picker = opened(moa, row("other", "m1"), row("scripted", "m2", "m1", is_current=True), provider="custom")
    assert model_offer(picker, nothing).current == ModelChoice(provider="scripted", model="m1")


def test_of_several_marked_ones_the_one_that_has_the_model() -> None:
    picker = opened(row("a", "m2", is_current=True), row("b", "m1", is_current=True))
    assert model_offer(picker, nothing).current == ModelChoice(provider="b", model="m1")


def test_what_hermes_has_kept_over_a_restart_is_in_use() -> None:
    """I1: its picker shows it only after the next turn; chosen again, it would be told to the model as news."""
    picker = attrs.evolve(opened(row("one", "m1", "m2", is_current=True)), kept=("one", "m2"))
    assert model_offer(picker, nothing).current == ModelChoice(provider="one", model="m2")


def test_where_none_is_marked_hermess_own_word() -> None:
    picker = opened(row("a", "m1"), provider="gone")
    assert model_offer(picker, nothing).current == ModelChoice(provider="gone", model="m1")


def test_the_virtual_provider_is_not_offered() -> None:
    """R-H1: 0.19 lists it whether or not anything is behind it. Where it is in use, it is."""
    moa, one = row("moa", "default"), row("one", "m1", is_current=True)
    assert names(opened(moa, one)) == [("one", ["m1"])]
    in_use = opened(row("moa", "default", is_current=True), row("one", "m1"), model="default", provider="moa")
    assert names(in_use) == [("moa", ["default"]), ("one", ["m1"])]


@pytest.mark.parametrize(
    "odd",
    [
        row("one"),
        row("", "m1"),
        row("one", None, "", 7, "\ud800", "x" * 201),
        row("\ud800", "m1"),
        row("one", models=None),
        {},
        None,
        "text",
    ],
)
def test_what_cannot_be_chosen_is_not_offered(odd: Any) -> None:
    assert names(opened(odd, row("two", "m2", "m2"))) == [("two", ["m2"])]


def test_a_list_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickers, "MAX_MODELS", 3)
    assert names(opened(row("one", "a", "b"), row("two", "c", "d"), row("three", "e"))) == [
        ("one", ["a", "b"]),
        ("two", ["c"]),
    ]


def test_names_and_figures_where_hermes_has_them() -> None:
    """R-H1, R-H2: its catalogue is asked about its own providers; what it does not say is absent."""
    asked: list[tuple[str, list[str]]] = []

    def facts(provider: str, models: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        asked.append((provider, list(models)))
        known = {"name": "Big\ud800" + "x" * 300, "context_length": 200_000, "reasoning": True, "price_input": "$5"}
        return {"m1": known, "m2": {"name": "", "context_length": 0, "reasoning": None}}

    picker = opened(row("one", "m1", "m2"), row("own", "m3", is_user_defined=True))
    one, own = model_offer(picker, facts).providers
    assert asked == [("one", ["m1", "m2"])]
    first, second = one.models
    assert (first.context_length, first.reasoning, first.price_input, first.price_output) == (200_000, True, "$5", None)
    assert first.name.startswith("Big\ufffdx")
    assert len(first.name) == pickers.MAX_NAME_CHARS
    assert unstructure_object(second) == {"model": "m2", "name": "m2"}
    assert unstructure_object(own.models[0]) == {"model": "m3", "name": "m3"}


def efforts(*values: str, current: str | None = None) -> EffortPicker:
    return EffortPicker([{"value": v, "label": v.upper(), "is_current": v == current} for v in values], choose)


def test_efforts() -> None:
    """R-H2, I4: by value, not by label; Hermes does not say what the model knows."""
    offer = effort_offer(efforts(*LADDER, current="medium"))
    assert (offer.efforts, offer.current, offer.known) == (LADDER, "medium", False)


def test_what_is_no_effort_is_not_offered() -> None:
    """I3: show and hide would change Hermes's settings."""
    offer = effort_offer(efforts(*LADDER, "reset", "show", "hide", current="hide"))
    assert (offer.efforts, offer.current) == (LADDER, None)
    for word in ("reset", "show", "hide", "on", "off", ""):
        assert not pickers.is_effort(word)


def test_odd_choices() -> None:
    offer = effort_offer(EffortPicker([{}, None, "x", {"value": None}, {"value": "low", "is_current": True}], choose))  # type: ignore[list-item]
    assert (offer.efforts, offer.current) == (("low",), "low")


async def test_a_picker_is_caught_by_the_command_that_opens_it() -> None:
    caught, mine, other = Pickers(), opened(), efforts("low")

    async def command() -> None:
        caught.take("2", other)
        caught.take("1", mine)

    assert await caught.opened_by("1", command()) is mine
    caught.take("1", mine)
    assert caught._awaited == {}


async def test_a_command_that_opens_nothing() -> None:
    caught = Pickers()

    async def command() -> None:
        pass

    async def fail() -> None:
        raise RuntimeError("no")

    assert await caught.opened_by("1", command()) is None
    with pytest.raises(RuntimeError):
        await caught.opened_by("1", fail())
    assert caught._awaited == {}
