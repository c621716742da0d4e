"""The socket is cut or the gateway killed at any moment of a send: it is known what became of it, once (R-C2, G1, A4).

Each send has words of its own; the scripted model counts the turns that they brought about. `--kills N` sets how many.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from typing import Any

import pytest
from plain_client import Frame, PlainClient, fold

pytestmark = pytest.mark.asyncio(loop_scope="session")

MOMENTS = ("before admission", "after admission", "after dispatch", "in mid-stream", "before the end", "after the end")
KNOWN_WITHIN = 1.0
"""Seconds from the reconnect to the receipt."""


async def until_moment(client: PlainClient, moment: str, frame: Frame) -> None:
    """Send, and return when the moment has come."""
    await client.send_text(json.dumps(frame))
    if moment == "before admission":
        return
    wanted = {
        "after admission": lambda f: f.get("type") == "message.send.result",
        "after dispatch": lambda f: f.get("message", {}).get("delivery") == "dispatched",
        "in mid-stream": lambda f: f["type"] in ("message.delta", "run.started"),
        "before the end": lambda f: f["type"] == "message.completed",
        "after the end": lambda f: f["type"] == "run.ended",
    }[moment]
    while not wanted(await client.receive()):
        pass


def turns(stack: Any, words: str) -> int:
    """How many turns of the model were about these words."""
    if stack.hermes_version == "simulated":
        return sum(words in taken.text for taken in stack.hermes.handed_over)
    asked = [request for request in stack.model.requests if not request.auxiliary]
    return sum(words in str([m for m in request.messages if m.get("role") == "user"][-1]) for request in asked)


async def one(stack: Any, moment: str, name: str, *, kill: bool) -> None:
    words = f"words of {name}"
    client = PlainClient(stack.url, stack.secret)
    await client.__aenter__()
    welcome = await client.hello()
    conversation_id = await client.create(name)
    send = {
        "type": "message.send",
        "id": "s1",
        "conversation_id": conversation_id,
        "client_message_id": name,
        "text": f"say {words} one two three four five six seven eight nine ten",
    }
    with contextlib.suppress(ConnectionError):
        await until_moment(client, moment, send)
    seen = list(client.frames)
    cursor = max([frame["seq"] for frame in seen if "seq" in frame], default=0)
    await client.__aexit__(None, None, None)
    if kill:
        await stack.restart(kill=True)
    async with PlainClient(stack.url, stack.secret) as back:
        again = await back.hello(resume={"epoch": welcome["epoch"], "seq": cursor})
        assert again["resumed"] is True
        since = time.monotonic()
        answer = await back.request("message.receipt", client_message_id=name)
        assert time.monotonic() - since < KNOWN_WITHIN
        if answer["type"] == "error":
            assert (answer["code"], moment) == ("not_found", "before admission")
            answer = await back.request("message.send", **{k: v for k, v in send.items() if k not in ("type", "id")})
        receipt = answer["receipt"]
        async with asyncio.timeout(40):
            while receipt["state"] in ("admitted", "dispatched"):
                with contextlib.suppress(TimeoutError):
                    await back.receive(0.2)
                receipt = (await back.request("message.receipt", client_message_id=name))["receipt"]
        assert receipt["state"] in ("done", "indeterminate")
        assert turns(stack, words) <= 1
        if receipt["state"] == "done" and not kill:
            assert turns(stack, words) == 1
        history = await back.request("conversation.history", conversation_id=conversation_id)
        (run,) = [run for run in history["runs"] if run["run_id"] == receipt["run_id"]]
        assert run["status"] in ("completed", "failed")
        assert run["run_id"] not in [open_run["run_id"] for open_run in back.snapshot("runs")]
        # What was there before and what came since add up to what is there.
        both = [frame for frame in seen + back.frames if frame.get("conversation_id") == conversation_id]
        events = [frame for frame in both if "id" not in frame]
        ends = {frame["seq"] for frame in events if frame["type"] == "run.ended"}
        assert len(ends) == 1
        shown = {key: message["text"] for key, message in fold(events).items()}
        assert shown == {message["message_id"]: message["text"] for message in history["messages"]}


async def test_a_send_is_never_lost_and_never_run_twice(stack, name, request):
    if stack.hermes_defaults:
        return  # settings of the display change nothing about it
    numbers = itertools.count(1)
    kills: int = request.config.getoption("--kills")
    for round_ in range(max(1, -(-kills // (2 * len(MOMENTS))))):
        for moment in MOMENTS:
            for kill in (False, True):
                await one(stack, moment, f"{round_}x{next(numbers)}x{name}", kill=kill)
