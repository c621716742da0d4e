"""Runs: how they end, and what cancels them."""

from __future__ import annotations

from ..check import SCRIPTED, check, check_each, expect, same
from ..phone import Frame, Phone
from ..scene import Scene

_CANCEL = (SCRIPTED, "cancel")


async def _streaming(scene: Scene, words: str = "slow 100") -> tuple[Phone, str, Frame]:
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, words)
    await phone.seen("message.delta", conversation_id=conversation_id)
    return phone, conversation_id, receipt


@check("runs/active-run", "P-SYNC-8", needs=_CANCEL)
async def active_run(scene: Scene) -> None:
    """A conversation names its active run while there is one."""
    phone, conversation_id, receipt = await _streaming(scene)
    found = await phone.ask("conversation.get", conversation_id=conversation_id)
    same(found["conversation"].get("active_run_id"), receipt["run_id"], "active_run_id")
    await phone.ask("run.cancel", run_id=receipt["run_id"])
    await scene.ended(phone, receipt["run_id"], None)
    found = await phone.ask("conversation.get", conversation_id=conversation_id)
    expect("active_run_id" not in found["conversation"], "it is still named when it has ended")


@check("runs/cancel", "P-RUN-5", needs=_CANCEL)
async def cancel(scene: Scene) -> None:
    """A cancelled run ends cancelled, and keeps the text so far as a cancelled message."""
    phone, conversation_id, receipt = await _streaming(scene)
    await phone.ask("run.cancel", run_id=receipt["run_id"])
    run = await scene.ended(phone, receipt["run_id"], "cancelled")
    same(run.get("reason"), "requested", "reason")
    message = (await phone.seen("message.completed", conversation_id=conversation_id))["message"]
    same(message["status"], "cancelled", "the message's status")
    expect(message["text"].startswith("w1"), "the text so far is not kept")
    page = await scene.history(phone, conversation_id)
    same(page["messages"][-1]["text"], message["text"], "the text in history")
    # And the conversation can be used.
    await scene.exchange(phone, conversation_id, "say next")


@check("runs/cancel-before-the-first-word", "P-RUN-1", needs=_CANCEL)
async def cancel_early(scene: Scene) -> None:
    """A run that says nothing yet can be cancelled."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "wait 20")
    await phone.seen("run.started", run_id=receipt["run_id"])
    await phone.ask("run.cancel", run_id=receipt["run_id"])
    await scene.ended(phone, receipt["run_id"], "cancelled")


@check("runs/cancel-by-message", "P-RUN-1", needs=_CANCEL)
async def cancel_by_message(scene: Scene) -> None:
    """A run can be cancelled by the send that caused it."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    name = scene.lab.name("msg")
    receipt = await scene.say(phone, conversation_id, "slow 100", client_message_id=name)
    answer = await phone.ask("run.cancel", client_message_id=name)
    same(answer["run"]["run_id"], receipt["run_id"], "the run")
    await scene.ended(phone, receipt["run_id"], "cancelled")


@check("runs/cancel-from-another-device", "P-RUN-1", needs=_CANCEL)
async def cancel_elsewhere(scene: Scene) -> None:
    """Another device cancels, and both see the end."""
    phone, _, receipt = await _streaming(scene)
    other = await scene.in_step()
    await other.ask("run.cancel", run_id=receipt["run_id"])
    for each in (phone, other):
        await scene.ended(each, receipt["run_id"], "cancelled")


@check("runs/cancel-at-once", "P-RUN-1", needs=_CANCEL)
async def cancel_at_once(scene: Scene) -> None:
    """Two devices cancel at the same time: both are answered, and there is one end."""
    phone, conversation_id, receipt = await _streaming(scene)
    other = await scene.in_step()
    asked = [(each, await each.send("run.cancel", run_id=receipt["run_id"])) for each in (phone, other) * 2]
    for each, request_id in asked:
        same((await each.answer(request_id))["type"], "run.cancel.result", "answer")
    await scene.ended(phone, receipt["run_id"], "cancelled")
    await scene.exchange(phone, conversation_id, "say next")
    ends = [
        event for event in phone.events(conversation_id, "run.ended") if event["run"]["run_id"] == receipt["run_id"]
    ]
    same(len(ends), 1, "number of run.ended")


@check("runs/cancel-queued", "P-RUN-1", needs=_CANCEL)
async def cancel_queued(scene: Scene) -> None:
    """A run that waits is cancelled at once; the one before it goes on."""
    phone, conversation_id, first = await _streaming(scene, "slow 20")
    waiting = await scene.say(phone, conversation_id, "say never")
    await phone.ask("run.cancel", run_id=waiting["run_id"])
    await scene.ended(phone, waiting["run_id"], "cancelled")
    await scene.ended(phone, first["run_id"], "completed")


@check("runs/drop-queued", "P-RUN-1", needs=_CANCEL)
async def drop_queued(scene: Scene) -> None:
    """With drop_queued what waits is dropped with the active run."""
    phone, conversation_id, first = await _streaming(scene)
    waiting = [await scene.say(phone, conversation_id, f"say {number}") for number in range(2)]
    await phone.ask("run.cancel", run_id=first["run_id"], drop_queued=True)
    for receipt in (first, *waiting):
        await scene.ended(phone, receipt["run_id"], "cancelled")


@check("runs/cancel-ended", "P-RUN-4", needs=("cancel",))
async def cancel_ended(scene: Scene) -> None:
    """Cancelling a run that had ended answers it as it is."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    run = await scene.ended(phone, (await scene.say(phone, conversation_id, "say done"))["run_id"], None)
    same((await phone.ask("run.cancel", run_id=run["run_id"]))["run"], run, "the run")


@check_each(
    "runs/cancel-nothing",
    "P-ERR-1",
    needs=("cancel",),
    cases={
        "unknown-run": ("not_found", {"run_id": "run_0"}),
        "unknown-message": ("not_found", {"client_message_id": "never-sent"}),
        "neither": ("invalid_message", {}),
    },
)
async def cancel_nothing(scene: Scene, case: tuple[str, dict[str, str]]) -> None:
    """Cancelling what does not exist is refused"""
    await (await scene.in_step()).refused(case[0], "run.cancel", **case[1])


@check("runs/disconnect", "P-RUN-7", needs=(SCRIPTED,))
async def disconnect(scene: Scene) -> None:
    """A run goes on when its client is gone."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "slow 10")
    phone.cut()
    other = await scene.in_step()
    page = await scene.history(other, conversation_id)
    if page["runs"][0]["status"] in ("queued", "running"):
        await scene.ended(other, receipt["run_id"])
        page = await scene.history(other, conversation_id)
    same([run["status"] for run in page["runs"]], ["completed"], "the run in history")
    same(page["messages"][-1]["text"], " ".join(f"w{number}" for number in range(1, 11)), "text")


@check_each(
    "runs/failure",
    "P-RUN-1",
    needs=(SCRIPTED,),
    cases={
        "refused-key": ("fail 401", "provider_auth"),
        "rate-limit": ("fail 429", "provider_rate_limited"),
        "empty-reply": ("empty", "empty_response"),
    },
)
async def failure(scene: Scene, case: tuple[str, str]) -> None:
    """A run that cannot be answered ends failed, once, with a stable code"""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, case[0])
    run = await scene.ended(phone, receipt["run_id"], "failed")
    same(run.get("error", {}).get("code"), case[1], "code")
    expect(run["error"].get("message"), "there is no sentence for people")


@check("runs/no-provider-words", "P-RUN-8", needs=(SCRIPTED,))
async def provider_words(scene: Scene) -> None:
    """A provider's own words are nowhere in what is sent."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "fail 401")
    await scene.ended(phone, receipt["run_id"], "failed")
    page = await scene.history(phone, conversation_id)
    told = repr([page, *phone.events(conversation_id)])
    expect("raw provider text" not in told, "the provider is quoted")


@check("runs/background", "P-RUN-9", needs=(SCRIPTED, "subagents"))
async def background(scene: Scene) -> None:
    """A background delegation is a run of its own, with its parent, and makes nothing busy."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "delegate wait 3")
    started = await phone.when(
        lambda frame: (
            frame.get("type") == "run.started"
            and frame.get("conversation_id") == conversation_id
            and frame["run"].get("parent_run_id") == receipt["run_id"]
        ),
        "run.started of the delegation",
    )
    same(started["run"]["origin"], "background", "origin")
    await scene.ended(phone, receipt["run_id"])
    found = await phone.ask("conversation.get", conversation_id=conversation_id)
    expect(found["conversation"].get("active_run_id") != started["run"]["run_id"], "it is the active run")
    await phone.seen("run.ended", run_id=started["run"]["run_id"])
