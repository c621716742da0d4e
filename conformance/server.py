"""Running the checks against a server: several at a time, each with devices and conversations of its own."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import aiohttp
import attrs

from . import checks as checks  # registers them
from .check import CHECKS, FILES, READ_ONLY, SCRIPTED, Check, ConformanceError
from .observed import Sight
from .report import Report, Result, Verdict
from .rules import rules
from .scene import Lab, Scene

_WITHOUT = {
    SCRIPTED: "the agent is not said to answer as the scripted model (--scripted)",
    FILES: "no folder is known from which the agent can deliver files (--files)",
    READ_ONLY: "there is no second secret that may only read (--read-only-secret-env)",
}


@attrs.frozen(kw_only=True)
class Options:
    """What is checked, and how."""

    url: str
    secret: str = attrs.field(repr=False)
    read_only_secret: str | None = attrs.field(default=None, repr=False)
    scripted: bool = False
    files: Path | None = None
    only: Sequence[str] = ("*",)
    level: str = "SHOULD"
    """MUST leaves out what is only a SHOULD."""
    patience: float = 20.0
    jobs: int = 8


def level_of(check: Check) -> str:
    """MUST or SHOULD, by its first rule."""
    return rules()[check.rules[0]].level


def chosen(only: Sequence[str], level: str) -> list[Check]:
    """The checks whose id matches one of the patterns, of this level or above."""
    return [
        check
        for check in CHECKS.values()
        if any(fnmatch.fnmatchcase(check.id, pattern) for pattern in only)
        and (level == "SHOULD" or level_of(check) == "MUST")
    ]


async def check_server(options: Options) -> Report:
    """Run the checks; the report."""
    wanted = chosen(options.only, options.level)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=options.patience)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as http:
        lab = Lab(
            options.url,
            options.secret,
            http,
            options.patience,
            options.read_only_secret,
            options.files,
            options.scripted,
        )
        trouble = await _look_around(lab)
        results = await _run(lab, wanted, options.jobs, trouble)
        await _tidy(lab)
    order = {check.id: place for place, check in enumerate(wanted)}
    return Report("server", options.url, tuple(sorted(results, key=lambda result: order[result.id])))


async def _look_around(lab: Lab) -> str:
    """What keeps everything from being checked, "" for nothing. Notes what the server offers."""
    try:
        async with contextlib.AsyncExitStack() as exits:
            scene = Scene(lab, exits)
            phone = await scene.in_step()
            lab.welcome = phone.welcome
            if lab.scripted:
                return await _not_scripted(scene)
    except (ConformanceError, aiohttp.ClientError, OSError, TimeoutError, LookupError) as failure:
        return f"prerequisite: no handshake with the server: {_told(failure)}"
    return ""


async def _not_scripted(scene: Scene) -> str:
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    run = await scene.exchange(phone, conversation_id, "say ready")
    texts = [
        event["message"]["text"]
        for event in phone.events(conversation_id, "message.completed")
        if event["message"].get("run_id") == run["run_id"]
    ]
    if any("You asked me to say: ready" in text for text in texts):
        return ""
    return "prerequisite: the agent does not answer as the scripted model does"


async def _run(lab: Lab, wanted: list[Check], jobs: int, trouble: str) -> list[Result]:
    acting = [check for check in wanted if check.play is not None]
    # What takes longest begins first.
    acting.sort(key=lambda check: check.id not in _LONG)
    turns = asyncio.Semaphore(jobs)

    async def one(check: Check) -> Result:
        if check.id in _LONG:
            return await _play(lab, check, trouble)
        async with turns:
            return await _play(lab, check, trouble)

    results = list(await asyncio.gather(*(one(check) for check in acting)))
    results += [_look(lab, check, trouble) for check in wanted if check.look is not None]
    return results


_LONG = ("hello/no-hello", "hello/heartbeat", "runs/failure.empty-reply")
"""They do little but wait, the last one for an agent that asks a silent model again and again."""


def _missing(lab: Lab, check: Check) -> str:
    """Why a check does not apply, "" when it does."""
    given = {SCRIPTED: lab.scripted, FILES: lab.files is not None, READ_ONLY: lab.read_only_secret is not None}
    for need in check.needs:
        if need in given:
            if not given[need]:
                return _WITHOUT[need]
        elif lab.welcome.get("capabilities", {}).get(need) is not True:
            return f"the server does not offer {need}"
    return ""


async def _play(lab: Lab, check: Check, trouble: str) -> Result:
    assert check.play is not None
    missing = "" if trouble else _missing(lab, check)
    if missing:
        return _result(check, Verdict.NOT_OFFERED, missing)
    started = time.monotonic()
    try:
        if trouble:
            raise ConformanceError(trouble)
        async with contextlib.AsyncExitStack() as exits:
            await check.play(Scene(lab, exits))
    except Exception as failure:  # noqa: BLE001 - whatever a server brings about is that check's failure
        return _result(check, Verdict.FAILED, _told(failure), time.monotonic() - started)
    return _result(check, Verdict.PASSED, "", time.monotonic() - started)


def _look(lab: Lab, check: Check, trouble: str) -> Result:
    assert check.look is not None
    missing = "" if trouble else _missing(lab, check)
    if missing:
        return _result(check, Verdict.NOT_OFFERED, missing)
    sight = Sight(lab, lab.records)
    try:
        flaws = [trouble] if trouble else list(dict.fromkeys(check.look(sight)))
    except Exception as failure:  # noqa: BLE001 - frames may be of any shape
        flaws = [f"a frame has not the shape that this check needs: {_told(failure)}"]
    if not flaws and not sight.count:
        flaws = ["prerequisite: nothing was seen that this applies to; run it together with the others"]
    if flaws:
        return _result(check, Verdict.FAILED, "\n".join(_some(flaws)))
    return _result(check, Verdict.PASSED, "")


def _some(flaws: list[str]) -> Iterable[str]:
    yield from flaws[:5]
    if len(flaws) > 5:
        yield f"and {len(flaws) - 5} more"


def _result(check: Check, verdict: Verdict, detail: str, seconds: float = 0.0) -> Result:
    return Result(check.id, level_of(check), check.title, check.rules, verdict, detail, seconds)


def _told(failure: BaseException) -> str:
    if isinstance(failure, ConformanceError):
        return str(failure)
    if isinstance(failure, LookupError):
        return f"something is missing: {failure}"
    return f"{type(failure).__name__}: {failure}"


async def _tidy(lab: Lab) -> None:
    """Delete what was created, where the server can."""
    if lab.welcome.get("capabilities", {}).get("delete") is not True:
        return
    with contextlib.suppress(ConformanceError, aiohttp.ClientError, OSError, TimeoutError):
        async with contextlib.AsyncExitStack() as exits:
            phone = await Scene(lab, exits).in_step()
            for conversation_id in lab.conversations:
                await phone.request("conversation.delete", conversation_id=conversation_id)
