"""The demo without Hermes: the core on a simulated one, in this process, answering as the scripted model does."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pheby_hermes.drafts import Append, DraftTail

from pheby_protocol.messages.connection import AccessMode
from pheby_protocol.messages.run import RunErrorCode
from pheby_server import Server, ServerConfig
from pheby_server.aiohttp_transport import Listener
from pheby_server.auth import Authenticator
from pheby_server.ports import Outcome
from pheby_server.simulated import (
    Approve,
    Ask,
    Begin,
    Delegate,
    Deliver,
    End,
    Fail,
    Pause,
    Say,
    Segment,
    SimulatedHermes,
    Step,
)
from pheby_server.system import SystemClock

from . import scripts
from .dialogue import Turn

_REFUSED = {401: RunErrorCode.PROVIDER_AUTH, 403: RunErrorCode.PROVIDER_AUTH, 429: RunErrorCode.PROVIDER_RATE_LIMITED}


_DANGEROUS = ("rm ", "chmod 777 ")


class SimulatedStack:
    """As DemoStack, without a gateway process: restarting it is closing the core and opening it again."""

    hermes_version = "simulated"
    model_url = None
    gateway_pid = 0
    hermes_defaults = False

    def __init__(self, *, port: int | None = None) -> None:
        self._port = port or 0
        self.secret = secrets.token_hex(32)
        self.home: Path | None = None
        # What its owner has allowed for good, by its first word: here the pattern.
        allowed: set[str] = set()
        self.hermes = SimulatedHermes(SystemClock(), lambda text: respond(text, allowed))
        self._exits = contextlib.ExitStack()
        self._running: tuple[Server, Listener] | None = None

    @property
    def url(self) -> str:
        """Where a client connects."""
        return f"ws://127.0.0.1:{self._port}/v1/ws"

    async def __aenter__(self) -> Self:
        folder = self._exits.enter_context(tempfile.TemporaryDirectory(prefix="pheby-demo-"))
        self.home = Path(folder)
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()
        self._exits.close()

    async def restart(self, *, kill: bool = False) -> None:
        """Stop everything and start it again on the same storage and port."""
        await self._stop()
        await self._start()

    async def _start(self) -> None:
        config = ServerConfig(storage=f"{self.home}/pheby")
        server = Server(config, self.hermes, Authenticator(((AccessMode.FULL, self.secret),)))
        await server.start()
        listener = Listener(server, "127.0.0.1", self._port)
        await listener.start()
        self._port = listener.port
        self.hermes.start(server.events)
        self._running = (server, listener)

    async def _stop(self) -> None:
        if self._running is not None:
            (server, listener), self._running = self._running, None
            await self.hermes.stop()
            await server.stop()
            await listener.stop()


def respond(text: str, allowed: set[str] | None = None) -> Iterator[Step]:
    """The scripted model's answer as steps of a simulated run; what its tools do takes no time and succeeds."""
    rounds = 0
    allowed = set() if allowed is None else allowed
    results: list[str] = []
    while True:
        calls = yield from _said(Turn((text.strip(),), "", {}, tuple(results), rounds))
        if not calls:
            return
        yield Segment()
        if all(call.tool == "read_file" for call in calls):
            results += yield from _read_together(calls)
        else:
            for call in calls:
                results.append((yield from _called(call, allowed)))
        rounds += 1


def _said(turn: Turn) -> Generator[Step, None, list[scripts.Call]]:
    """What the model says, and the tools that it asks for at its end."""
    tail, said, calls = DraftTail(), "", list[scripts.Call]()
    for step in scripts.reply_to(turn)[1]:
        match step:
            case scripts.Text(text=piece):
                said += piece
                yield from _grown(tail, said, final=False)
            case scripts.Pause(seconds=seconds):
                yield Pause(seconds)
            case scripts.Refuse(status=status):
                yield Fail(_REFUSED.get(status, RunErrorCode.PROVIDER_ERROR))
            case scripts.Call() as call:
                calls.append(call)
            case scripts.CutOnce(call=call):
                # A gateway asks again by itself.
                calls.append(call)
            case scripts.Cut():
                break
    yield from _grown(tail, said, final=True)
    yield from map(Deliver, tail.media)
    return calls


def _read_together(calls: list[scripts.Call]) -> Generator[Step, None, list[str]]:
    """Calls that only read run at the same time."""
    begun = [Begin(call.tool, call.arguments) for call in calls]
    yield from begun
    yield from (End(begin, "done") for begin in begun)
    return ["done"] * len(begun)


def _called(call: scripts.Call, allowed: set[str]) -> Generator[Step, None, str]:
    """One tool call from its beginning to its end; its result."""
    begin = Begin(call.tool, call.arguments)
    yield begin
    result = "done"
    command = str(call.arguments.get("command", ""))
    if command.startswith(_DANGEROUS) and command.split()[0] not in allowed:
        approve = Approve(begin, "delete files", command)
        yield approve
        if approve.decision == "always":
            allowed.add(command.split()[0])
        if approve.decision in ("deny", None):
            result = "BLOCKED"
    elif call.tool == "clarify":
        ask = _question(begin, call.arguments)
        yield ask
        result = ", ".join(ask.answers) or "no answer"
    elif call.tool == "delegate_task":
        goal = str(call.arguments["tasks"][0]["goal"])
        report = _said(Turn((), "[ASYNC DELEGATION BATCH COMPLETE]", {}, (), 0))
        yield Delegate(begin, goal, _silently(respond(goal)), report)
    elif command.startswith("sleep "):
        yield Pause(float(command.removeprefix("sleep ")))
    yield End(begin, result, Outcome.FAILED if result == "BLOCKED" else Outcome.COMPLETED)
    return result


def _question(call: Begin, arguments: dict[str, Any]) -> Ask:
    first = arguments.get("questions", [arguments])[0]
    return Ask(call, first["question"], tuple(first.get("choices", ())), bool(first.get("multi_select")))


def _silently(steps: Iterator[Step]) -> Iterator[Step]:
    """A subagent's texts are for the agent that asked it."""
    return (step for step in steps if not isinstance(step, Say | Segment))


def _grown(tail: DraftTail, said: str, *, final: bool) -> Iterator[Step]:
    # What stands at the port has been cleaned by the plugin already.
    change = tail.update(said, final=final)
    if isinstance(change, Append):
        yield Say(change.text)
