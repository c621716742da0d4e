"""A scripted OpenAI-compatible model on 127.0.0.1: no network, no key, the same answers every time."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from pheby.demo.dialogue import read_turn
from pheby.demo.scripts import RAW_PROVIDER_TEXT, Call, Cut, CutOnce, Pause, Refuse, Step, Text, reply_to

MODELS = ("scripted-1", "scripted-2")
CONTEXT_LENGTH = 200_000
REMEMBERED = 500


@dataclass
class ModelRequest:
    """One request that reached the model, and what became of it."""

    number: int
    at: float
    script: str
    model: str
    reasoning_effort: str | None
    auxiliary: bool
    messages: list[Any]
    tools: list[str]
    finished: bool = False
    closed_early: bool = False


class ScriptedModel:
    """`async with ScriptedModel() as model:` serves at `model.url` and remembers what it was asked.

    `pace` stretches every pause of the scripts; with 0 all of them are left out.
    """

    def __init__(self, port: int = 0, *, pace: float = 1.0) -> None:
        self._pace = pace
        self.requests: deque[ModelRequest] = deque(maxlen=REMEMBERED)
        self._cut_once: set[str] = set()
        self._numbers = itertools.count(1)
        self._wanted_port = port
        self._port: int | None = None
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The base URL to give to Hermes."""
        if self._port is None:
            raise RuntimeError("the scripted model is not running")
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/scripted/requests", self._log)
        # Without handler_cancellation a cancelled run would stream on into a closed socket.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._wanted_port).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = self._port = None

    async def _models(self, request: web.Request) -> web.Response:
        entries = [
            {"id": name, "object": "model", "owned_by": "pheby-demo", "context_length": CONTEXT_LENGTH}
            for name in MODELS
        ]
        return web.json_response({"object": "list", "data": entries})

    async def _log(self, request: web.Request) -> web.Response:
        text = request.query.get("since", "0")
        since = int(text) if text.isascii() and text.isdigit() else 0
        return web.json_response({"requests": [asdict(entry) for entry in self.requests if entry.number > since]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return _refusal(400)
        entry, steps = self._open(body)
        try:
            response = await self._answer(request, bool(body.get("stream")), entry, steps)
        except (asyncio.CancelledError, ConnectionError):
            entry.closed_early = True
            raise
        entry.finished = True
        return response

    def _open(self, body: dict[str, Any]) -> tuple[ModelRequest, Iterable[Step]]:
        turn = read_turn(body)
        # Titles and the like are asked for without tools, whatever their text says.
        auxiliary = not turn.tools
        script, steps = ("auxiliary", iter([Text(_title(turn.paragraphs))])) if auxiliary else reply_to(turn)
        entry = ModelRequest(
            number=next(self._numbers),
            at=time.time(),
            script=script,
            model=str(body.get("model", "")),
            reasoning_effort=body.get("reasoning_effort"),
            auxiliary=auxiliary,
            messages=body.get("messages") or [],
            tools=sorted(turn.tools),
        )
        self.requests.append(entry)
        return entry, steps

    async def _answer(
        self, request: web.Request, stream: bool, entry: ModelRequest, steps: Iterable[Step]
    ) -> web.StreamResponse:
        steps = iter(steps)
        first = next(steps, None)
        if isinstance(first, Refuse):
            return _refusal(first.status)
        all_steps = itertools.chain([first], steps) if first is not None else steps
        reply = _Stream(request, entry) if stream else _Whole(request, entry)
        await reply.begin()
        calls: list[Call] = []
        for step in all_steps:
            match step:
                case Text(text):
                    await reply.text(text)
                case Pause(seconds):
                    await asyncio.sleep(seconds * self._pace)
                case Call():
                    calls.append(step)
                case Cut():
                    return reply.cut()
                case CutOnce(call) if repr(call) not in self._cut_once:
                    self._cut_once.add(repr(call))
                    await reply.begin_call(call)
                    return reply.cut()
                case CutOnce(call):
                    calls.append(call)
                case Refuse():
                    raise AssertionError("a refusal must be a script's first step")
        return await reply.end(calls)


class _Stream:
    """A reply as server-sent events."""

    def __init__(self, request: web.Request, entry: ModelRequest) -> None:
        self._request = request
        self._entry = entry
        self._response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})

    async def begin(self) -> None:
        await self._response.prepare(self._request)
        await self._delta({"role": "assistant", "content": ""})

    async def text(self, text: str) -> None:
        await self._delta({"content": text})

    async def begin_call(self, call: Call) -> None:
        """A tool call up to the middle of its arguments."""
        (whole,) = _tool_calls(self._entry, [call])
        arguments = whole["function"]["arguments"]
        whole["function"]["arguments"] = arguments[: len(arguments) // 2]
        await self._delta({"tool_calls": [{"index": 0, **whole}]})

    async def end(self, calls: list[Call]) -> web.StreamResponse:
        for index, call in enumerate(_tool_calls(self._entry, calls)):
            arguments = call["function"].pop("arguments")
            call["function"]["arguments"] = ""
            await self._delta({"tool_calls": [{"index": index, **call}]})
            # In two halves, as providers do.
            for part in (arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]):
                await self._delta({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        await self._delta({}, "tool_calls" if calls else "stop")
        await self._send({**_head(self._entry, "chat.completion.chunk"), "choices": [], "usage": _USAGE})
        await self._response.write(b"data: [DONE]\n\n")
        await self._response.write_eof()
        return self._response

    def cut(self) -> web.StreamResponse:
        if self._request.transport is not None:
            self._request.transport.abort()
        return self._response

    async def _delta(self, delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        await self._send({**_head(self._entry, "chat.completion.chunk"), "choices": [choice]})

    async def _send(self, chunk: dict[str, Any]) -> None:
        # ASCII JSON, so that a lone surrogate can travel at all.
        await self._response.write(b"data: " + json.dumps(chunk).encode("ascii") + b"\n\n")


class _Whole:
    """A reply as one JSON object."""

    def __init__(self, request: web.Request, entry: ModelRequest) -> None:
        self._request = request
        self._entry = entry
        self._parts: list[str] = []

    async def begin(self) -> None:
        pass

    async def text(self, text: str) -> None:
        self._parts.append(text)

    async def begin_call(self, call: Call) -> None:
        """Nothing: a reply that is not streamed has no middle."""

    async def end(self, calls: list[Call]) -> web.StreamResponse:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._parts)}
        if calls:
            message["tool_calls"] = _tool_calls(self._entry, calls)
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return web.json_response({**_head(self._entry, "chat.completion"), "choices": [choice], "usage": _USAGE})

    def cut(self) -> web.StreamResponse:
        if self._request.transport is not None:
            self._request.transport.abort()
        return web.Response()


_USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


def _head(entry: ModelRequest, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{entry.number}", "object": kind, "created": int(entry.at), "model": entry.model}


def _tool_calls(entry: ModelRequest, calls: list[Call]) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{entry.number}_{index}",
            "type": "function",
            "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
        }
        for index, call in enumerate(calls)
    ]


def _refusal(status: int) -> web.Response:
    error = {"message": f"{RAW_PROVIDER_TEXT} ({status})", "type": "scripted_error", "code": str(status)}
    return web.json_response({"error": error}, status=status)


def _title(paragraphs: tuple[str, ...]) -> str:
    # 0.19 asks with the dialogue ("User: ..."), 0.22 with the bare text.
    words = paragraphs[0].removeprefix("User: ").split() if paragraphs else []
    return " ".join(["About", *words[:4]])


async def _serve(port: int) -> None:
    async with ScriptedModel(port) as model:
        print(model.url, flush=True)
        await asyncio.Event().wait()


def main() -> int:
    """Serve until interrupted, after printing the base URL."""
    parser = argparse.ArgumentParser(prog="python -m pheby.demo.model", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    try:
        asyncio.run(_serve(parser.parse_args().port))
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
