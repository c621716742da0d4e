"""Running the scenarios on a client: the runner plays the server, and asks the client what it shows.

The client is started with the address appended; the secret and the scenario's name are in its environment. It reads
commands from its input, one JSON object a line, and answers only `{"do": "state"}`, by `{"digest": …}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import functools
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import resources
from typing import Any

import aiohttp
import attrs
from aiohttp import web

from pheby_protocol.codec import DecodeError, decode
from pheby_protocol.messages._base import Request

from .check import ConformanceError, expect
from .newer import as_newer
from .process import Peer
from .report import Report, Result, Verdict
from .rules import rules
from .scenarios import FILE

Json = dict[str, Any]
Start = Callable[[str, Mapping[str, str]], AbstractAsyncContextManager[Peer]]
"""Starts the client for an address, with these variables in its environment."""

_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_MESSAGE = 2**24
_POLL_SECONDS = 0.05
_LONGER = 2
_CHANCE, _CHANCE_SECONDS = 0.03, 0.03
_NEEDS_NOBODY = (
    *("wait_ms", "no_connect_ms", "offer", "cut", "close", "restart"),
    *("unique", "frames", "mark", "elapsed", "longer", "another"),
)
"""Steps that a client may have ended before, and be right."""
_MOST_DIFFERENCES = 8


def stored_scenarios() -> list[Json]:
    """All scenarios, in the order of their files."""
    folder = resources.files(__package__).joinpath("transcripts/client")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def level_of(scenario: Json) -> str:
    """MUST or SHOULD, by its first rule."""
    return rules()[scenario["rules"][0]].level


async def check_client(
    subject: str,
    start: Start,
    *,
    only: Sequence[str] = ("*",),
    level: str = "SHOULD",
    without: Collection[str] = (),
    patience: float = 20.0,
    jobs: int = 4,
    newer: bool = False,
) -> Report:
    """Play the scenarios, as a server of a later version if asked to; the report. `without` is what it cannot do."""
    wanted = [
        scenario
        for scenario in stored_scenarios()
        if any(fnmatch.fnmatchcase(scenario["id"], pattern) for pattern in only)
        and (level == "SHOULD" or level_of(scenario) == "MUST")
    ]
    turns = asyncio.Semaphore(jobs)

    async def one(scenario: Json) -> Result:
        if missing := _told_to(scenario) & set(without):
            return _result(scenario, Verdict.NOT_OFFERED, f"the client is said to be without: {', '.join(missing)}")
        async with turns:
            return await _play(scenario, start, patience, newer)

    return Report("client", subject, tuple(await asyncio.gather(*map(one, wanted))))


async def _play(scenario: Json, start: Start, patience: float, newer: bool) -> Result:
    started = time.monotonic()
    flaw = ""
    where = ""
    try:
        async with contextlib.AsyncExitStack() as exits:
            stage = Stage(scenario, patience, newer)
            url = await exits.enter_async_context(stage.listening())
            env = {"PHEBY_SECRET": stage.secret, "PHEBY_SCENARIO": scenario["id"]}
            stage.client = functools.partial(start, url, env)
            exits.push_async_callback(stage.end)
            await stage.begin()
            for place, step in enumerate(scenario["steps"]):
                stage.place = place
                where = f"step {place} ({next(iter(step))}): "
                await stage.take(step)
    except ConformanceError as failure:
        flaw = f"{where}{failure}"
    except Exception as failure:  # noqa: BLE001 - whatever a client brings about is that scenario's failure
        flaw = f"{where}{type(failure).__name__}: {failure}"
    return _result(scenario, Verdict.FAILED if flaw else Verdict.PASSED, flaw, time.monotonic() - started)


def _result(scenario: Json, verdict: Verdict, detail: str, seconds: float = 0.0) -> Result:
    found = (scenario["id"], level_of(scenario), scenario["title"], tuple(scenario["rules"]))
    return Result(*found, verdict, detail, seconds)


def _told_to(scenario: Json) -> set[str]:
    """What the owner of the client wants in a scenario."""
    return {step["tell"]["do"] for step in scenario["steps"] if "tell" in step}


@attrs.define(eq=False)
class _Attempt:
    """A client at the door."""

    request: web.Request
    at: float
    decided: asyncio.Future[web.StreamResponse]


class Stage:
    """The server that a client under test talks to, one step of a scenario after the other."""

    def __init__(self, scenario: Json, patience: float, newer: bool = False) -> None:
        self.secret = secrets.token_hex(32)
        self.client: Callable[[], AbstractAsyncContextManager[Peer]] | None = None
        """Starts a client for this stage."""
        self.peer: Peer | None = None
        self._playing = contextlib.AsyncExitStack()
        self.place = 0
        self._steps = scenario["steps"]
        self._patience = patience
        self._newer = newer
        self._attempts: asyncio.Queue[_Attempt] = asyncio.Queue()
        self._requests: asyncio.Queue[Json] = asyncio.Queue()
        self._first: asyncio.Future[Any] | None = None
        self._socket: web.WebSocketResponse | None = None
        self._named: dict[str, Json] = {}
        self._marks: dict[str, float] = {}
        self._waits: dict[str, list[float]] = {}
        self._ended_at = time.monotonic()
        self._pinged = asyncio.Event()
        self._files: asyncio.Queue[tuple[web.Request, asyncio.Future[web.StreamResponse]]] = asyncio.Queue()
        self._texts: list[str] = []
        self._doors: list[asyncio.Future[web.StreamResponse]] = []
        self._over = False

    async def begin(self) -> None:
        """Start the client."""
        assert self.client is not None
        self.peer = await self._playing.enter_async_context(self.client())

    async def end(self) -> None:
        """End the client, if there is one."""
        self.peer = None
        await self._playing.aclose()

    @contextlib.asynccontextmanager
    async def listening(self) -> Any:
        """Listen on a port; the address for clients."""
        application = web.Application()
        application.router.add_get("/v1/ws", self._arrives)
        application.router.add_get("/v1/attachments/att_1", self._file_wanted)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"ws://127.0.0.1:{runner.addresses[0][1]}/v1/ws"
        finally:
            self._over = True
            for decided in self._doors:
                if not decided.done():
                    decided.set_result(web.Response(status=503))
            await self._drop()
            await runner.cleanup()

    async def _arrives(self, request: web.Request) -> web.StreamResponse:
        if self._over:
            return web.Response(status=503)
        decided: asyncio.Future[web.StreamResponse] = asyncio.get_running_loop().create_future()
        self._doors.append(decided)
        self._attempts.put_nowait(_Attempt(request, time.monotonic(), decided))
        response = await decided
        if isinstance(response, web.WebSocketResponse):
            await response.prepare(request)
            await self._read(response)
        return response

    async def _file_wanted(self, request: web.Request) -> web.StreamResponse:
        if self._over:
            return web.Response(status=503)
        decided: asyncio.Future[web.StreamResponse] = asyncio.get_running_loop().create_future()
        self._doors.append(decided)
        self._files.put_nowait((request, decided))
        return await decided

    async def _read(self, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            if message.type is aiohttp.WSMsgType.PING:
                self._pinged.set()
                await socket.pong(message.data)
            elif message.type is aiohttp.WSMsgType.TEXT:
                await self._receive(message.data)

    async def _receive(self, text: str) -> None:
        self._texts.append(text)
        frame = json.loads(text)
        if self._first is not None and not self._first.done():
            self._first.set_result(frame)
        if frame["type"] == "ping":
            self._pinged.set()
        if frame["type"] in self._awaited():
            self._requests.put_nowait(frame)
        else:
            await self._answer(frame)

    def _awaited(self) -> set[str]:
        """Types of which the steps from here on say something."""
        found: set[str] = set()
        for step in self._steps[self.place :]:
            kind = step.get("expect", step.get("first", {})).get("type", ())
            found |= {kind} if isinstance(kind, str) else set(kind.get("$one", ()) if isinstance(kind, dict) else ())
            found |= set(step.get("of", ()))
        return found

    async def _answer(self, frame: Json) -> None:
        """What no step is about: a pong, or that it is not available."""
        if frame["type"] == "ping":
            answer: Json = {"type": "pong", "server_time": 1_796_050_000_000}
        else:
            answer = {"type": "error", "code": "unavailable", "message": "Not in this scenario.", "retryable": False}
        await self._write(answer | {"id": frame["id"]})

    async def _write(self, frame: Json) -> None:
        if self._socket is None or self._socket.closed:
            raise ConformanceError("the client has closed the connection")
        for each in as_newer(frame) if self._newer else [frame]:
            await self._socket.send_str(json.dumps(each, ensure_ascii=False))

    async def _drop(self) -> None:
        if self._socket is not None:
            socket, self._socket = self._socket, None
            self._ended_at = time.monotonic()
            transport = socket._req.transport if socket._req is not None else None
            if transport is not None:
                transport.abort()

    # Steps

    async def take(self, step: Json) -> None:
        """Do one step. A client that ends by itself meanwhile has failed, where the step needs one."""
        name = next(iter(step))
        doing = asyncio.ensure_future(getattr(self, f"_do_{name}")(step))
        ending = asyncio.ensure_future(self._is_gone(name))
        try:
            await asyncio.wait([doing, ending], return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise ConformanceError(ending.result())
            doing.result()
        finally:
            for task in (doing, ending):
                task.cancel()
            await asyncio.wait([doing, ending])

    async def _is_gone(self, step: str) -> str:
        if self.peer is None or step in _NEEDS_NOBODY:
            await asyncio.Event().wait()
        assert self.peer is not None
        return await self.peer.ended()

    async def _attempt(self, within: float) -> _Attempt:
        try:
            async with asyncio.timeout(within):
                return await self._attempts.get()
        except TimeoutError:
            raise ConformanceError(f"the client has not connected within {within:g} s") from None

    async def _do_connect(self, step: Json) -> None:
        wanted = step["connect"]
        attempt = await self._attempt(wanted.get("within_ms", self._patience * 1_000) / 1_000)
        self._not_before(attempt, wanted.get("not_before_ms", 0))
        if wanted.get("secret"):
            self._check_secret(attempt.request)
        self._socket = web.WebSocketResponse(autoping=False, max_msg_size=_MAX_MESSAGE, timeout=1.0, compress=False)
        self._first = asyncio.get_running_loop().create_future()
        attempt.decided.set_result(self._socket)

    def _not_before(self, attempt: _Attempt, milliseconds: int) -> None:
        waited = (attempt.at - self._ended_at) * 1_000
        # A client that left by itself may be back before its line was cut.
        expect(
            not milliseconds or waited >= milliseconds,
            f"the client came after {waited:.0f} ms, and must wait for {milliseconds}",
        )

    def _check_secret(self, request: web.Request) -> None:
        given = request.headers.get("Authorization", "")
        expect(given.partition(" ")[0].lower() == "bearer", "there is no Authorization: Bearer")
        expect(given.partition(" ")[2] == self.secret, "the secret in the header is another one")
        expect(self.secret not in str(request.rel_url), "the secret is in the address")

    async def _do_refuse(self, step: Json) -> None:
        attempt = await self._attempt(self._patience)
        wanted = step["refuse"]
        if "waits" in step:
            self._waits.setdefault(step["waits"], []).append(attempt.at - self._ended_at)
        attempt.decided.set_result(web.Response(status=wanted["status"], headers=wanted.get("headers", {})))
        self._ended_at = time.monotonic()

    async def _do_restart(self, _: Json) -> None:
        await self.end()
        # Whoever came until then is not the one that comes next.
        await asyncio.sleep(_POLL_SECONDS)
        while not self._attempts.empty():
            self._attempts.get_nowait().decided.set_result(web.Response(status=503))
        self._ended_at = time.monotonic()
        await self.begin()

    async def _do_first(self, step: Json) -> None:
        assert self._first is not None
        try:
            async with asyncio.timeout(self._patience):
                frame = await self._first
        except TimeoutError:
            raise ConformanceError(f"no frame within {self._patience:g} s") from None
        self._match(frame, step["first"])

    async def _do_expect(self, step: Json) -> None:
        wanted = step["expect"]
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    frame = await self._requests.get()
                    if not self._differs(frame["type"], wanted["type"]):
                        break
                    if frame["type"] not in self._awaited():
                        await self._answer(frame)
        except TimeoutError:
            raise ConformanceError(f"the client has sent no {wanted['type']} within {self._patience:g} s") from None
        self._match(frame, wanted)
        self._named[step["name"]] = frame

    def _match(self, frame: Json, wanted: Json) -> None:
        flaw = self._differs(frame, wanted)
        expect(not flaw, f"{frame.get('type')}: {flaw}")

    def _differs(self, found: Any, wanted: Any, where: str = "") -> str:
        """How something differs from a pattern, "" when it does not. Objects may have more than is wanted."""
        if isinstance(wanted, dict) and len(wanted) == 1 and next(iter(wanted)).startswith("$"):
            (kind, value), *_ = wanted.items()
            return self._pattern(kind, value, found, where)
        if isinstance(wanted, dict):
            if not isinstance(found, dict):
                return f"{where or 'it'} is {found!r}"
            pairs = ((name, found.get(name), item) for name, item in wanted.items())
            flaws = (self._differs(item, pattern, f"{where}.{name}".lstrip(".")) for name, item, pattern in pairs)
            return next((flaw for flaw in flaws if flaw), "")
        return "" if found == wanted and type(found) is type(wanted) else f"{where} is {found!r} instead of {wanted!r}"

    def _pattern(self, kind: str, value: Any, found: Any, where: str) -> str:
        match kind:
            case "$any" if value == "identifier":
                good = isinstance(found, str) and _IDENTIFIER.fullmatch(found) is not None
            case "$any":
                good = isinstance(found, str) and bool(found)
            case "$absent":
                good = found is None
            case "$contains":
                good = isinstance(found, list) and value in found
            case "$one":
                good = found in value
            case "$of":
                return self._differs(found, self._filled({kind: value}), where)
            case _:
                good = False
        return "" if good else f"{where} is {found!r}, which is not {kind} {value!r}"

    def _filled(self, value: Any) -> Any:
        """A frame with what was remembered in place of `$of`."""
        if isinstance(value, dict) and value.keys() == {"$of"}:
            name, *path = value["$of"]
            found: Any = self._named[name]
            for part in path:
                found = found[part]
            return found
        if isinstance(value, dict):
            return {name: self._filled(item) for name, item in value.items()}
        return [self._filled(item) for item in value] if isinstance(value, list) else value

    async def _do_send(self, step: Json) -> None:
        await self._write(self._filled(step["send"]))

    async def _do_offer(self, step: Json) -> None:
        """Send a frame where there is still somebody: a client may have left for the one before."""
        with contextlib.suppress(ConformanceError, ConnectionError):
            await self._write(step["offer"])

    async def _do_frames(self, step: Json) -> None:
        for text in self._texts:
            if step["frames"] == "decodable":
                self._check_frame(text)
            else:
                expect(not re.search(r":\s*null\b", text), f"a field is null: {text[:200]}")
                escaped = [
                    found for found in re.findall(r"\\u([0-9a-fA-F]{4})", text) if chr(int(found, 16)).isprintable()
                ]
                expect(not escaped, f"printable text is escaped: {escaped}")

    def _check_frame(self, text: str) -> None:
        try:
            message = decode(text)
        except DecodeError as flaw:
            raise ConformanceError(f"a frame is not valid: {flaw}") from None
        expect(isinstance(message, Request), f"{message.type} is no request")

    async def _do_file(self, step: Json) -> None:
        try:
            async with asyncio.timeout(self._patience):
                request, decided = await self._files.get()
        except TimeoutError:
            raise ConformanceError(f"the client has not asked for the file within {self._patience:g} s") from None
        wanted = step["file"]
        if wanted.get("secret"):
            self._check_secret(request)
        flaw = self._differs(dict(request.headers), wanted.get("headers", {}))
        expect(not flaw, flaw)
        decided.set_result(await self._send_file(request, wanted.get("from", 0), wanted.get("cut_after")))

    async def _send_file(self, request: web.Request, start: int, cut_after: int | None) -> web.StreamResponse:
        etag = f'"{hashlib.sha256(FILE).hexdigest()}"'
        headers = {"ETag": etag, "Content-Length": str(len(FILE) - start), "Content-Type": "text/plain"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(FILE) - 1}/{len(FILE)}"
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        await response.prepare(request)
        await response.write(FILE[start:cut_after])
        if cut_after is not None:
            # What was written has left; then the line breaks.
            await asyncio.sleep(_POLL_SECONDS)
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _do_cut(self, _: Json) -> None:
        # What was sent is on its way; it is the line that breaks, not the server.
        await asyncio.sleep(_POLL_SECONDS)
        await self._drop()

    async def _do_close(self, step: Json) -> None:
        assert self._socket is not None
        socket, self._socket = self._socket, None
        await socket.close(code=step["close"])
        self._ended_at = time.monotonic()

    async def _do_tell(self, step: Json) -> None:
        assert self.peer is not None
        await self.peer.tell(self._filled(step["tell"]))

    async def _do_digest(self, step: Json) -> None:
        """Ask until it is shown: the client reads its lines and its socket as it likes."""
        assert self.peer is not None
        end = time.monotonic() + self._patience
        while True:
            await self.peer.tell({"do": "state"})
            told = await self.peer.hear(self._patience)
            if told.get("digest") == step["digest"]:
                return
            if time.monotonic() > end:
                raise ConformanceError(otherwise(step, told))
            await asyncio.sleep(_POLL_SECONDS)

    async def _do_wait_ms(self, step: Json) -> None:
        await asyncio.sleep(step["wait_ms"] / 1_000)

    async def _do_silence_ms(self, step: Json) -> None:
        """The client stays, and asks none of these."""
        end = time.monotonic() + step["silence_ms"] / 1_000
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    frame = await self._requests.get()
                    expect(frame["type"] not in step["of"], f"the client has sent {frame['type']}")
        expect(self._attempts.empty(), "the client has connected anew")

    async def _do_no_connect_ms(self, step: Json) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(step["no_connect_ms"] / 1_000):
                await self._attempts.get()
                raise ConformanceError("the client has come back by itself")

    async def _do_unique(self, step: Json) -> None:
        ids = [self._named[name]["id"] for name in step["unique"]]
        expect(len(set(ids)) == len(ids), f"ids come twice: {ids}")

    async def _do_mark(self, step: Json) -> None:
        self._marks[step["mark"]] = time.monotonic()

    async def _do_elapsed(self, step: Json) -> None:
        passed = (time.monotonic() - self._marks[step["elapsed"]["since"]]) * 1_000
        wanted = step["elapsed"]["at_least_ms"]
        expect(passed >= wanted, f"only {passed:.0f} ms have passed, and it must be {wanted}")

    async def _do_longer(self, step: Json) -> None:
        """Added up, so that a client may draw each wait anew up to a bound that grows."""
        series = [self._waits[name] for name in step["longer"]]
        early, late = (sum(sum(waits[part]) for waits in series) for part in (slice(2), slice(-2, None)))
        told = "; ".join(", ".join(f"{wait:.2f}" for wait in waits) for waits in series)
        expect(late >= _LONGER * early, f"the last waits are not {_LONGER} times as long as the first ones: {told} s")

    async def _do_another(self, step: Json) -> None:
        one, other = (self._waits[name] for name in step["another"])
        differ = any(abs(a - b) > max(_CHANCE * max(a, b), _CHANCE_SECONDS) for a, b in zip(one, other, strict=True))
        expect(differ, f"two clients wait equally long: {', '.join(f'{wait:.2f}' for wait in one)} s")

    async def _do_ping_within_ms(self, step: Json) -> None:
        try:
            async with asyncio.timeout(step["ping_within_ms"] / 1_000):
                await self._pinged.wait()
        except TimeoutError:
            raise ConformanceError("there was no ping") from None


def otherwise(wanted: Json, told: Json) -> str:
    """How what a client shows differs from what it must show; the digests alone where it tells no more."""
    digests = f"the digest is {told.get('digest')!r} instead of {wanted['digest']!r}"
    if "state" not in told:
        return f"what is shown is another: {digests}"
    found = list(_differences(wanted["state"], told["state"]))
    if not found:
        return f"the state is right, and its JSON is not as the digest wants it: {digests}"
    left = [f"and {len(found) - _MOST_DIFFERENCES} more"] if len(found) > _MOST_DIFFERENCES else []
    return "\n".join(["what is shown is another:", *found[:_MOST_DIFFERENCES], *left])


def _differences(wanted: Any, got: Any, path: str = "") -> Iterator[str]:
    """Where two JSON values differ, one line each."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for name in sorted(wanted.keys() | got.keys()):
            yield from _differences(wanted.get(name, _NOTHING), got.get(name, _NOTHING), f"{path}.{name}".lstrip("."))
    elif type(wanted) is not type(got) or wanted != got:
        yield f"{path}: wanted {_told(wanted)}, got {_told(got)}"


_NOTHING = object()


def _told(value: Any) -> str:
    return "nothing" if value is _NOTHING else json.dumps(value, ensure_ascii=False)
