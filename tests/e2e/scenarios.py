"""What owners do with an agent, one script each; and what clients see of it, so that two lines can be compared."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from patience import short_patience
from plain_client import Frame, PlainClient

Play = Callable[["Scene"], Awaitable[None]]
SCENARIOS: dict[str, Play] = {}


class Scene:
    """One conversation of one client, with whoever else takes part."""

    def __init__(self, stack: Any, client: PlainClient, conversation_id: str, name: str, folder: str) -> None:
        self.stack, self.client, self.conversation_id, self.name = stack, client, conversation_id, name
        self.folder = folder
        """Exists; `danger` may remove it."""
        self._sent = 0

    async def say(self, text: str, **fields: Any) -> str:
        """Send a text; its run's id."""
        self._sent += 1
        answer = await self.client.request(
            "message.send",
            conversation_id=self.conversation_id,
            client_message_id=f"{self._sent}-{self.name}",
            text=text,
            **fields,
        )
        run_id: str = answer["receipt"]["run_id"]
        return run_id

    async def exchange(self, text: str) -> None:
        await self.client.run_end(await self.say(text))

    async def until(self, wanted: str) -> Frame:
        return await self.client.until(wanted, conversation_id=self.conversation_id)

    async def decide(self, choice: str) -> None:
        approval = (await self.until("approval.requested"))["approval"]
        await self.client.request("approval.respond", approval_id=approval["approval_id"], choice=choice)

    async def clarify(self, **answer: Any) -> None:
        asked = (await self.until("clarification.requested"))["clarification"]
        labels = answer.pop("labels", ())
        ids = [choice["choice_id"] for choice in asked["choices"] if choice["label"] in labels]
        await self.client.request(
            "clarification.respond", clarification_id=asked["clarification_id"], choice_ids=ids, **answer
        )

    async def cancel(self, run_id: str) -> None:
        await self.client.request("run.cancel", run_id=run_id)
        await self.client.run_end(run_id)


def _scenario(play: Play) -> Play:
    SCENARIOS[play.__name__.replace("_", "-")] = play
    return play


@_scenario
async def plain(scene: Scene) -> None:
    await scene.exchange("say hello")


@_scenario
async def tool_then_text(scene: Scene) -> None:
    await scene.exchange("run echo hello")


@_scenario
async def two_parallel_tools(scene: Scene) -> None:
    await scene.exchange("tools")


@_scenario
async def approval_once(scene: Scene) -> None:
    run_id = await scene.say(f"danger {scene.folder}")
    await scene.decide("once")
    await scene.client.run_end(run_id)


@_scenario
async def approval_session(scene: Scene) -> None:
    run_id = await scene.say(f"danger {scene.folder}")
    await scene.decide("session")
    await scene.client.run_end(run_id)


@_scenario
async def approval_always(scene: Scene) -> None:
    # A pattern of its own: what is allowed for good is allowed for every test that follows.
    run_id = await scene.say(f'call terminal {{"command": "chmod 777 {scene.folder}"}}')
    await scene.decide("always")
    await scene.client.run_end(run_id)
    await scene.exchange(f'call terminal {{"command": "chmod 777 {scene.folder}"}}')


@_scenario
async def approval_deny(scene: Scene) -> None:
    run_id = await scene.say(f"danger {scene.folder}")
    await scene.decide("deny")
    await scene.client.run_end(run_id)


@_scenario
async def approval_timeout(scene: Scene) -> None:
    async with short_patience(scene.stack, 2):
        await scene.exchange(f"danger {scene.folder}")


@_scenario
async def approval_by_a_second_device(scene: Scene) -> None:
    async with PlainClient(scene.client.url, scene.stack.secret, "second-device") as second:
        await second.hello()
        run_id = await scene.say(f"danger {scene.folder}")
        asked = await second.until("approval.requested", conversation_id=scene.conversation_id)
        await second.request("approval.respond", approval_id=asked["approval"]["approval_id"], choice="once")
        await scene.client.run_end(run_id)


@_scenario
async def clarification_by_choice(scene: Scene) -> None:
    run_id = await scene.say("ask Which colour?|red|green")
    await scene.clarify(labels=["green"])
    await scene.client.run_end(run_id)


@_scenario
async def clarification_by_text(scene: Scene) -> None:
    run_id = await scene.say("ask Which colour?|red|green")
    await scene.clarify(text="pink")
    await scene.client.run_end(run_id)


@_scenario
async def clarification_open(scene: Scene) -> None:
    run_id = await scene.say("ask What is your name?")
    await scene.clarify(text="Ada")
    await scene.client.run_end(run_id)


@_scenario
async def clarification_of_several(scene: Scene) -> None:
    run_id = await scene.say("choose Which colours?|red|green|blue")
    # An older Hermes takes one.
    several = not scene.stack.hermes_version.startswith("0.19")
    await scene.clarify(labels=["red", "blue"] if several else ["red"])
    await scene.client.run_end(run_id)


@_scenario
async def clarification_expired(scene: Scene) -> None:
    async with short_patience(scene.stack, 2):
        await scene.exchange("ask Which colour?|red|green")


@_scenario
async def cancel_before_the_first_word(scene: Scene) -> None:
    run_id = await scene.say("wait 20")
    await scene.client.run_started(run_id)
    await scene.cancel(run_id)
    await scene.exchange("say next")


@_scenario
async def cancel_in_mid_stream(scene: Scene) -> None:
    run_id = await scene.say("slow 200")
    await scene.until("message.delta")
    await scene.cancel(run_id)
    await scene.exchange("say next")


@_scenario
async def cancel_inside_a_tool(scene: Scene) -> None:
    run_id = await scene.say("run sleep 20")
    await scene.until("tool.started")
    await scene.cancel(run_id)
    await scene.exchange("say next")


@_scenario
async def cancel_while_an_approval_waits(scene: Scene) -> None:
    run_id = await scene.say(f"danger {scene.folder}")
    await scene.until("approval.requested")
    await scene.cancel(run_id)
    await scene.exchange("say next")


@_scenario
async def cancel_while_a_clarification_waits(scene: Scene) -> None:
    run_id = await scene.say("ask Which colour?|red|green")
    await scene.until("clarification.requested")
    await scene.cancel(run_id)
    await scene.exchange("say next")


@_scenario
async def cancel_what_is_queued(scene: Scene) -> None:
    first = await scene.say("slow 200")
    await scene.until("message.delta")
    second = await scene.say("say never")
    await scene.cancel(second)
    await scene.cancel(first)


@_scenario
async def provider_error(scene: Scene) -> None:
    await scene.exchange("fail 401")


@_scenario
async def empty_reply(scene: Scene) -> None:
    await scene.exchange("empty")


@_scenario
async def connection_dropped_inside_a_tool_call(scene: Scene) -> None:
    await scene.exchange(f"dropcall echo {scene.name}")


@_scenario
async def subagent_with_two_tools(scene: Scene) -> None:
    await scene.say("delegate tools")
    over = 0
    while over < 3:
        await scene.until("run.ended")
        over = sum(frame["type"] == "run.ended" for frame in scene.client.of(scene.conversation_id))


# What is seen


_KEPT = {
    "message": ("role", "origin", "status", "interim", "final", "delivery"),
    "run": ("origin", "status", "reason", "description"),
    "tool_call": ("name", "status"),
    "approval": ("kind", "choices", "answerable", "status", "decision"),
    "clarification": ("question", "multiple", "free_text", "status"),
}
_IDS = ("message_id", "run_id", "tool_call_id", "approval_id", "clarification_id")
_OFTEN_TOGETHER = ("tool.started", "tool.completed")


def seen(scene: Scene) -> list[Frame]:
    """The events of the conversation without what differs from time to time: ids are numbered, deltas folded."""
    names: dict[str, str] = {}
    events: list[Frame] = []
    for frame in scene.client.of(scene.conversation_id):
        noun = frame["type"].partition(".")[0]
        noun = "tool_call" if noun == "tool" else noun
        if noun in _KEPT and noun in frame:
            events.append({"type": frame["type"]} | _reduced(noun, frame[noun], names, scene))
    if any("parent_run_id" in event for event in events):
        # Between runs that go on at the same time, the order is not promised.
        events.sort(key=lambda event: str(event["run_id"]))
    return list(_together(events))


def _reduced(noun: str, item: Frame, names: dict[str, str], scene: Scene) -> Frame:
    reduced = {name: item[name] for name in _KEPT[noun] if name in item}
    for name in (*_IDS, "parent_run_id", "parent_tool_call_id"):
        if name in item:
            known = len([given for given in names.values() if given.startswith(_kind(name))])
            reduced[name] = names.setdefault(item[name], f"{_kind(name)}-{known + 1}")
    if noun == "message" and item["status"] not in ("streaming", "queued"):
        # How far a cancelled text came is a matter of time.
        reduced["text"] = "…" if item["status"] == "cancelled" else _without_places(item["text"], scene)
    if "error" in item:
        reduced["error"] = item["error"]["code"]
    for name in ("decided_by", "answered_by"):
        if name in item:
            reduced[name] = item[name]["kind"]
    if noun == "clarification":
        labels = {choice["choice_id"]: choice["label"] for choice in item["choices"]}
        reduced["labels"] = list(labels.values())
        if "answer" in item:
            answer = item["answer"]
            reduced["answer"] = [labels[name] for name in answer["choice_ids"]] + (
                [answer["text"]] if "text" in answer else []
            )
    return reduced


def _kind(name: str) -> str:
    return name.removeprefix("parent_").removesuffix("_id").replace("_", "-")


def _without_places(text: str, scene: Scene) -> str:
    text = text.replace(scene.folder, "FOLDER").replace(scene.name, "NAME")
    # What a tool answers is Hermes's own.
    return re.sub(r"(came back as: ).*", r"\1…", text, flags=re.DOTALL)


def _together(events: Iterable[Frame]) -> Iterable[Frame]:
    """Of calls that run at the same time, the order is not promised."""
    waiting: list[Frame] = []
    for event in events:
        if waiting and (event["type"] != waiting[-1]["type"] or event["type"] not in _OFTEN_TOGETHER):
            yield from sorted(waiting, key=lambda each: str(each.get("tool_call_id")))
            waiting = []
        waiting.append(event)
    yield from sorted(waiting, key=lambda each: str(each.get("tool_call_id")))


async def quiet(client: PlainClient, seconds: float = 0.7) -> None:
    """Receive until nothing has come for a while: titles and bindings are told a moment after a run's end."""
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(seconds):
                await client.receive()
