"""Which check notices which fault, of all checks and all faults. `make matrix` plays it, the tests read what was found.

Every fault alone would take an hour. So the faults have numbers, and for each binary digit the whole suite is played
twice: on a server with all faults that have a 0 there, and on one with the others. What fails in exactly one of both,
for every digit, is noticed because of the one fault with that number, and of no other; faults that hide or help each
other would fit to no number. Some are played alone besides, and must say the same.

What was found is kept in `matrix.json`, with the checksum of all that it follows from. An interrupted run goes on where
it was.
"""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import hashlib
import json
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import broken_servers
from broken_servers import PEERS
from good_server import good_server
from pheby_conformance.check import CHECKS
from playing import failed, played
from proxy import Peer, broken_server

HERE: Final = Path(__file__).parent
SUITE: Final = HERE.parents[1] / "conformance"
FILE: Final = HERE / "matrix.json"
NAMES: Final = list(PEERS)
DIGITS: Final = len(NAMES).bit_length()
HALVES: Final = {
    f"{digit}:{value}": [name for number, name in enumerate(NAMES) if number >> digit & 1 == value]
    for digit in range(DIGITS)
    for value in (0, 1)
}
"""For each digit the faults with a 0 there, and those with a 1."""

Rows = dict[str, list[str]]


def inputs() -> str:
    """The checksum of the checks, of what plays them, and of the faults."""
    files = [SUITE / f"{name}.py" for name in ("check", "observed", "phone", "scene", "server")]
    files += sorted((SUITE / "checks").glob("*.py"))
    files += [HERE / f"{name}.py" for name in ("broken_servers", "good_server", "proxy")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def stored() -> dict[str, Any]:
    """What was found: `halves` and `alone`, the checks that failed on each half and on single faults."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def noticed(halves: Rows) -> tuple[Rows, list[str]]:
    """For each fault the checks that notice it, and the checks that fit to no fault or to several."""
    rows: Rows = {name: [] for name in NAMES}
    strays = []
    for check in dict.fromkeys(check for row in halves.values() for check in row):
        where = {half for half, row in halves.items() if check in row}
        fitting = [name for name in NAMES if where == {half for half, names in HALVES.items() if name in names}]
        if len(fitting) == 1:
            rows[fitting[0]].append(check)
        else:
            strays.append(check)
    return rows, strays


def catches(peer: Peer, name: str) -> bool:
    """Whether the fault is said to be noticed by this check."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in peer.caught)


async def failing(names: Collection[str], files: Path, only: Sequence[str] = ("*",)) -> list[str]:
    """The checks that fail on a server with these faults, of all that there are or of these."""
    async with good_server() as server, broken_server(server.url, *(PEERS[name] for name in names)) as url:
        return list(failed(await played(url, server, files, jobs=8, only=only)))


async def certain(names: Collection[str], files: Path) -> list[str]:
    """The same; what surprises must happen twice: on a busy machine a check may fail for want of time."""
    found = await failing(names, files)
    surprises = [check for check in found if not any(catches(PEERS[name], check) for name in names)]
    if not surprises:
        return found
    # What looks at all that came needs all of it.
    needed = surprises if all(CHECKS[check].play for check in surprises) else ("*",)
    again = await failing(names, files, needed)
    return [check for check in found if check in again or check not in surprises]


async def play(alone: int, at_once: int) -> None:
    """Play what is not found yet, and write down each row at once. Of `alone` faults one is played alone."""
    matrix: dict[str, Any] = stored() if FILE.is_file() else {}
    if matrix.get("inputs") != inputs():
        matrix = {"inputs": inputs(), "halves": {}, "alone": {}}
    turns = asyncio.Semaphore(at_once)

    async def one(kind: str, name: str, faults: Collection[str], files: Path) -> None:
        if name in matrix[kind]:
            return
        async with turns:
            matrix[kind][name] = found = await certain(faults, files)
        print(f"{name} ({len(faults)}): {len(found)}", flush=True)
        FILE.write_text(json.dumps(matrix, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory(prefix="pheby-matrix-") as folder:
        files = Path(folder)
        broken_servers.FOLDER[:] = [folder]
        await asyncio.gather(
            *(one("halves", half, names, files) for half, names in HALVES.items()),
            *(one("alone", name, (name,), files) for name in NAMES[::alone]),
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Play every check on every fault.")
    parser.add_argument("--alone", type=int, default=6, metavar="N", help="every Nth fault alone, too (1: all)")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="servers at a time")
    args = parser.parse_args()
    asyncio.run(play(args.alone, args.at_once))
