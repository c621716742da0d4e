"""Models and effort: what is not offered is refused, what is offered shows no credential."""

from __future__ import annotations

import re
from typing import Any

from ..check import ConformanceError, check, check_each, expect
from ..scene import Scene


@check_each(
    "models/not-offered",
    "P-MODEL-3",
    cases={
        "model-list": ("models", "model.list", {}),
        "model-select": ("models", "model.select", {"provider": "p", "model": "m"}),
        "reasoning-list": ("reasoning", "reasoning.list", {}),
        "reasoning-select": ("reasoning", "reasoning.select", {"effort": "high"}),
    },
)
async def not_offered(scene: Scene, case: tuple[str, str, dict[str, Any]]) -> None:
    """A server that does not offer it answers unavailable or unknown_type; one that does, its result or its error"""
    capability, type_, fields = case
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    answer = await phone.request(type_, conversation_id=conversation_id, **fields)
    code = answer.get("code")
    if scene.offers(capability):
        allowed = {"invalid_model", "invalid_effort"} if type_.endswith("select") else set()
        expect(answer["type"] == f"{type_}.result" or code in allowed, f"it is answered {code}")
    elif code not in ("unavailable", "unknown_type"):
        raise ConformanceError(f"it is answered {code or answer['type']}")


@check("models/no-credential", "P-MODEL-1", needs=("models",))
async def no_credential(scene: Scene) -> None:
    """The list of models has neither addresses nor keys."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    answer = await phone.ask("model.list", conversation_id=conversation_id)
    expect(not re.search(r"https?://|\bsk-|api_key", repr(answer)), "there is an address or a key in it")


@check("models/busy", "P-MODEL-2", needs=("models", "scripted"))
async def busy(scene: Scene) -> None:
    """While a run is active a choice is busy."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    listed = await phone.ask("model.list", conversation_id=conversation_id)
    provider = next(found for found in listed["providers"] if found["models"])
    await scene.say(phone, conversation_id, "slow 40")
    await phone.seen("run.started", conversation_id=conversation_id)
    choice = {"provider": provider["provider"], "model": provider["models"][0]["model"]}
    await phone.refused("busy", "model.select", conversation_id=conversation_id, **choice)
