"""Running the vectors on a codec: a process that reads frames and says what it makes of them."""

from __future__ import annotations

import fnmatch
import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import resources
from typing import Any

from .check import ConformanceError
from .process import Peer
from .report import Report, Result, Verdict

Vector = dict[str, Any]


def vectors() -> list[Vector]:
    """All vectors, in the order of their files."""
    folder = resources.files(__package__).joinpath("vectors")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return [vector for file in files for vector in json.loads(file.read_text(encoding="utf-8"))["vectors"]]


async def check_codec(
    subject: str,
    start: Callable[[], AbstractAsyncContextManager[Peer]],
    *,
    only: Sequence[str] = ("*",),
    level: str = "SHOULD",
    patience: float = 20.0,
) -> Report:
    """Ask the codec about every vector; the report. After a line that does not come nothing more is asked."""
    wanted = [
        vector
        for vector in vectors()
        if any(fnmatch.fnmatchcase(vector["id"], pattern) for pattern in only)
        and (level == "SHOULD" or vector["level"] == "MUST")
    ]
    results: list[Result] = []
    trouble = ""
    try:
        async with start() as peer:
            for vector in wanted:
                started = time.monotonic()
                answer = await _ask(peer, vector, patience)
                flaw = verdict(vector, answer)
                results.append(_result(vector, flaw, time.monotonic() - started))
    except ConformanceError as failure:
        trouble = str(failure)
    results += [_result(vector, trouble or "it was not asked") for vector in wanted[len(results) :]]
    return Report("codec", subject, tuple(results))


async def _ask(peer: Peer, vector: Vector, patience: float) -> dict[str, Any]:
    await peer.tell({"id": vector["id"], "target": vector["target"], "wire": vector["wire"]})
    answer = await peer.hear(patience)
    if answer.get("id") != vector["id"]:
        raise ConformanceError(f"the answer is about {answer.get('id')!r} instead of {vector['id']!r}")
    return answer


def verdict(vector: Vector, answer: dict[str, Any]) -> str:
    """What is wrong with a codec's answer, "" for nothing."""
    valid = answer.get("valid")
    if not isinstance(valid, bool):
        return "the answer has no `valid`"
    if vector["valid"] != "either" and valid is not vector["valid"]:
        return "it was read, and must be refused" if valid else "it was refused, and must be read"
    if not valid or "reencoded" not in vector:
        return ""
    try:
        found = answer["reencoded"] if "reencoded" in answer else json.loads(answer.get("wire", ""))
    except (TypeError, ValueError):
        return "`wire` is not the JSON text of what was read"
    return "" if alike(found, vector["reencoded"]) else f"it was written again as {json.dumps(found)[:500]}"


def alike(one: object, other: object) -> bool:
    """Whether two JSON values are the same: numbers by value, true and false are none, the order of keys is free."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(item, other[name]) for name, item in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == other


def _result(vector: Vector, flaw: str, seconds: float = 0.0) -> Result:
    found = Verdict.FAILED if flaw else Verdict.PASSED
    return Result(vector["id"], vector["level"], vector["kind"], (vector["spec"],), found, flaw, seconds)
