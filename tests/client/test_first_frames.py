"""R-P1, J1: the frames that the page for writers of clients shows, sent as they stand there."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from pheby.demo.simulated import SimulatedStack
from tests.architecture.test_blocks import BLOCKS


async def test_the_page_for_writers_of_clients_can_be_typed() -> None:
    """Greet, be in step, make a conversation, have an answer to its end."""
    shown = [json.loads(b.text) for b in BLOCKS if b.page.name == "writing-a-client.md" and b.language == "json"]
    heard: list[dict[str, Any]] = []
    async with SimulatedStack() as stack, aiohttp.ClientSession() as http:
        header = {"Authorization": f"Bearer {stack.secret}"}
        async with http.ws_connect(stack.url, headers=header) as line:

            async def until(type_: str) -> dict[str, Any]:
                while True:
                    heard.append(await line.receive_json(timeout=20))
                    if heard[-1]["type"] == type_:
                        return heard[-1]

            await line.send_json(shown[0])
            await until("welcome")
            await until("sync.completed")
            await line.send_json(shown[1])
            made = await until("conversation.create.result")
            await line.send_json(shown[2] | {"conversation_id": made["conversation"]["conversation_id"]})
            ended = await until("run.ended")
    assert ended["run"]["status"] == "completed"
    told = [frame["type"] for frame in heard]
    for type_ in (
        "snapshot",
        "message.send.result",
        "run.started",
        "message.created",
        "message.delta",
        "message.completed",
    ):
        assert type_ in told
