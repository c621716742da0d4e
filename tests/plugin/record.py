"""Records real gateways for the replay tests: python -m tests.plugin.record --line 0.19 [SCENARIO ...]

Each scenario is one conversation with the scripted model of the demo, in a chat of its own. Run by hand, when a Hermes
line is added or a scenario changes; the recordings are committed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from pheby.demo.stack import DemoStack

HERE = Path(__file__).resolve().parent
RECORDINGS = HERE / "recordings"
LONG_TEXT = 200


class Stage:
    """One scenario on a running gateway: what is asked of it, and what it has written down so far."""

    def __init__(self, stack: DemoStack, session: aiohttp.ClientSession, chat: str) -> None:
        self.stack = stack
        self.chat = chat
        self._session = session
        self._url = stack.url.replace("ws://", "http://").removesuffix("/v1/ws")
        self._file = stack.home / "recording.jsonl"
        self._start = self._file.stat().st_size
        self._messages = 0

    async def do(self, op: str, **more: Any) -> Any:
        async with self._session.post(f"{self._url}/do", json={"op": op, "chat": self.chat} | more) as response:
            return (await response.json())["answer"]

    async def say(self, text: str) -> None:
        self._messages += 1
        await self.do("say", text=text, mid=f"m{self._messages}")

    def lines(self) -> list[str]:
        with self._file.open("rb") as file:
            file.seek(self._start)
            return file.read().decode().splitlines()

    def count(self, name: str) -> int:
        return sum(f'"name": "{name}"' in line and self.chat in line for line in self.lines())

    async def until(self, met: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not met():
            if time.monotonic() > end:
                raise TimeoutError(f"nothing came in {seconds:g} s")
            await asyncio.sleep(0.02)

    async def seen(self, name: str, times: int = 1, seconds: float = 60) -> None:
        await self.until(lambda: self.count(name) >= times, seconds)

    async def idle(self, envelopes: int = 1, seconds: float = 120) -> None:
        """Every event is dealt with, and what comes late has come."""
        await self.until(
            lambda: self.count("on_processing_complete") >= max(envelopes, self.count("on_processing_start")), seconds
        )
        while await self.do("busy"):
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)

    async def ask(self, text: str) -> None:
        await self.say(text)
        await self.idle()


Scenario = Callable[[Stage], Awaitable[None]]


def plain(text: str) -> Scenario:
    async def scenario(stage: Stage) -> None:
        await stage.ask(text)

    return scenario


def cancelled(text: str, when: str, times: int = 1, wait: float = 0.0) -> Scenario:
    async def scenario(stage: Stage) -> None:
        await stage.say(text)
        await stage.seen(when, times)
        await asyncio.sleep(wait)
        await stage.do("interrupt")
        await stage.idle()

    return scenario


def approved(choice: str) -> Scenario:
    async def scenario(stage: Stage) -> None:
        victim = stage.stack.home / "work" / "victim"
        victim.mkdir(exist_ok=True)
        await stage.say(f"danger {victim}")
        await stage.seen("send_exec_approval")
        await stage.do("approve", choice=choice)
        await stage.idle()

    return scenario


async def media(stage: Stage) -> None:
    report = stage.stack.home / "work" / "report.txt"
    report.write_text("a report\n")
    await stage.ask(f"media {report}")


async def tools(stage: Stage) -> None:
    files = [stage.stack.home / "work" / name for name in ("one.txt", "two.txt")]
    for file in files:
        file.write_text(f"this is {file.name}\n")
    await stage.ask("tools " + "|".join(map(str, files)))


async def two_turns(stage: Stage) -> None:
    await stage.ask("say one")
    await stage.say("say two")
    await stage.idle(2)


async def cancelled_at_once(stage: Stage) -> None:
    await stage.say("slow 30")
    await stage.do("interrupt")
    await stage.idle()


async def stopped_early(stage: Stage) -> None:
    """The text /stop before the agent is there: Hermes reports the message as cancelled and runs it all the same."""
    await stage.say("slow 12")
    await stage.seen("on_processing_start")
    await asyncio.sleep(0.4)
    await stage.say("/stop")
    await stage.idle()
    with contextlib.suppress(TimeoutError):
        await stage.seen("on_session_end", seconds=10)
    await stage.say("say next")
    await stage.idle(2)


async def stopped(stage: Stage) -> None:
    await stage.say("slow 60")
    await stage.seen("edit_message", 2)
    await stage.say("/stop")
    await stage.idle()
    await stage.seen("on_session_end")


async def interrupted_by_a_message(stage: Stage) -> None:
    await stage.say("slow 40")
    await stage.seen("edit_message", 2)
    await stage.say("say two")
    await stage.idle()


async def queued(stage: Stage) -> None:
    await stage.say("slow 15")
    await stage.seen("edit_message", 2)
    await stage.say("/queue say two")
    await stage.idle()


async def steered(stage: Stage) -> None:
    await stage.say("run sleep 3")
    await stage.seen("pre_tool_call")
    await stage.say("/steer and hurry")
    await stage.idle()


async def answered(stage: Stage) -> None:
    await stage.say("ask Which colour?|red|green")
    await stage.seen("send_clarify")
    await stage.do("answer", text="green")
    await stage.idle()


async def clarify_cancelled(stage: Stage) -> None:
    await stage.say("ask Which colour?|red|green")
    await stage.seen("send_clarify")
    await asyncio.sleep(0.3)
    await stage.do("interrupt")
    await asyncio.sleep(0.4)
    await stage.do("answer", text="(cancelled)")
    await stage.idle()


async def delegated(stage: Stage) -> None:
    await stage.say("delegate say child")
    await stage.seen("subagent_stop")
    await stage.idle(2)


async def compressed(stage: Stage) -> None:
    turns = 10
    for number in range(1, turns + 1):
        # Short replies would stay: a summary may not be longer than what it replaces.
        await stage.say(f"long {8000 + number}")
        await stage.idle(number)
    await stage.say("/compress")
    await stage.idle(turns + 1)
    await stage.say("say after")
    await stage.idle(turns + 2)


async def undone(stage: Stage) -> None:
    for number, text in enumerate(["say one", "say two", "/undo", "say three", "/retry"], 1):
        await stage.say(text)
        await stage.idle(number)


SCENARIOS: dict[str, Scenario] = {
    "hello": plain("say hello"),
    "two-turns": two_turns,
    "long": plain("long 100000"),
    "unicode": plain("unicode"),
    "surrogate": plain("surrogate"),
    "think": plain("think"),
    "midthink": plain("midthink"),
    "markdown": plain("markdown"),
    "media": media,
    "run": plain("run echo hi"),
    "tools": tools,
    "drop": plain("drop"),
    "command": plain("/help"),
    "fail-401": plain("fail 401"),
    "fail-429": plain("fail 429"),
    "empty": plain("empty"),
    "cancel-at-once": cancelled_at_once,
    "cancel-before-token": cancelled("wait 20", "pre_api_request", wait=0.3),
    "cancel-in-stream": cancelled("slow 100", "edit_message", 3),
    "cancel-in-tool": cancelled("run sleep 25", "pre_tool_call", wait=0.5),
    "cancel-in-retry": cancelled("fail 500", "api_request_error", wait=0.3),
    "cancel-in-approval": cancelled("danger /nowhere/at/all", "send_exec_approval", wait=0.3),
    "stop-in-stream": stopped,
    "approve-once": approved("once"),
    "approve-deny": approved("deny"),
    "ask": answered,
    "cancel-in-ask": clarify_cancelled,
    "delegate": delegated,
    "busy-interrupt": interrupted_by_a_message,
    "busy-queue": queued,
    "busy-steer": steered,
    "undo-retry": undone,
}
# These need a gateway of their own.
# Before the first turn of a process the agent is long in coming.
COLD: dict[str, Scenario] = {"stop-early": stopped_early}
LIMITED: dict[str, Scenario] = {"max-iterations": plain("run echo hi")}
COMPRESSING: dict[str, Scenario] = {"compress": compressed}
ROTATING: dict[str, Scenario] = {"compress-rotating": compressed}


async def shut_down(stage: Stage) -> None:
    await stage.say("slow 100")
    await stage.seen("edit_message", 3)
    await stage.stack.stop_gateway()


async def play(
    line: str, scenarios: dict[str, Scenario], wanted: set[str], extra: dict[str, Any] | None = None
) -> None:
    """Runs the wanted ones of these scenarios on one gateway and writes their recordings."""
    chosen = {name: scenario for name, scenario in scenarios.items() if not wanted or name in wanted}
    if not chosen:
        return
    # /undo would ask first.
    config = {"approvals": {"destructive_slash_confirm": False}} | (extra or {})
    async with (
        DemoStack(line, plugin_source=HERE / "recorder_plugin", extra_config=config) as stack,
        aiohttp.ClientSession() as session,
    ):
        await asyncio.sleep(6)  # the port is open before Hermes takes messages up
        for number, (name, scenario) in enumerate(chosen.items(), 1):
            stage = Stage(stack, session, f"{1_000_000_000_000_000 + number}")
            try:
                await scenario(stage)
                if stack.gateway.running:
                    await stage.do("rows")
            except TimeoutError as problem:
                print(f"{line} {name}: {problem}; not written")
                continue
            lines = stage.lines()
            path = write(line, name, lines, stack)
            print(f"{line} {name}: {len(lines)} lines, {path.stat().st_size} bytes")


def write(line: str, name: str, lines: list[str], stack: DemoStack) -> Path:
    """Writes a recording without a trace of the machine, the same bytes for the same lines."""
    text = "\n".join(shortened(lines)) + "\n"
    places = {
        str(stack.home): "/HOME",
        str(HERE.parents[1]): "/CHECKOUT",
        str(Path.home()): "~",
        stack.secret: "SECRET",
    }
    for place, placeholder in places.items():
        if len(place) > 1:
            text = text.replace(place, placeholder)
    # The model streams a path in two halves.
    text = re.sub(rf"{re.escape(str(stack.home.parent))}/pheby-demo-\w*", "/HOME", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    path = RECORDINGS / f"{line}-{name}.jsonl.gz"
    RECORDINGS.mkdir(exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(text.encode())
    return path


def shortened(lines: list[str]) -> list[str]:
    """An edit carries the whole text again: what equals the text before it becomes a count, `[characters, rest]`."""
    shown: dict[str, str] = {}
    result = []
    for line in lines:
        record = json.loads(line)
        arguments = record.get("k")
        if isinstance(arguments, dict) and isinstance(arguments.get("content"), str):
            content, before = arguments["content"], shown.get(record["name"] + str(arguments.get("message_id")), "")
            shown[record["name"] + str(arguments.get("message_id"))] = content
            if before and len(content) > LONG_TEXT and content.startswith(before):
                arguments["content"] = [len(before), content[len(before) :]]
        result.append(json.dumps(record, ensure_ascii=True))
    return result


async def record(line: str, wanted: set[str]) -> None:
    await play(line, SCENARIOS, wanted)
    await play(line, COLD, wanted)
    await play(line, LIMITED, wanted, {"agent": {"max_turns": 1}})
    await play(line, COMPRESSING, wanted, {"compression": {"enabled": True, "in_place": True}})
    await play(line, ROTATING, wanted, {"compression": {"enabled": True, "in_place": False}})
    await play(line, {"shutdown": shut_down}, wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--line", required=True)
    parser.add_argument("scenarios", nargs="*")
    arguments = parser.parse_args()
    asyncio.run(record(arguments.line, set(arguments.scenarios)))


if __name__ == "__main__":
    main()
