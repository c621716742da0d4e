"""What a check is, and the list of all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

if TYPE_CHECKING:
    from .observed import Sight
    from .scene import Scene

Play: TypeAlias = "Callable[[Scene], Awaitable[None]]"
Look: TypeAlias = "Callable[[Sight], Iterable[str]]"

SCRIPTED: Final = "scripted"
"""The agent answers as the demo's scripted model does."""
FILES: Final = "files"
"""The agent can deliver files from a folder in which this process can write."""
READ_ONLY: Final = "read_only"
"""There is a second secret that may only read."""


class ConformanceError(Exception):
    """What was found is not what the protocol says."""


@attrs.frozen
class Check:
    """One thing that a server is held to. `rules` are the protocol's; the first one decides the level.

    `play` acts by itself; `look` goes through everything that was received while the others acted.
    """

    id: str
    rules: tuple[str, ...]
    title: str
    needs: tuple[str, ...] = ()
    """Capabilities of the server, and SCRIPTED, FILES, READ_ONLY."""
    play: Play | None = None
    look: Look | None = None


CHECKS: Final[dict[str, Check]] = {}


def _title(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").strip().splitlines()[0].rstrip(".")


def _add(check: Check) -> None:
    assert check.id not in CHECKS, check.id
    CHECKS[check.id] = check


def check(name: str, *rules: str, needs: tuple[str, ...] = ()) -> Callable[[Play], Play]:
    """Register a check that acts; its docstring is the title."""

    def register(play: Play) -> Play:
        _add(Check(name, rules, _title(play), needs, play=play))
        return play

    return register


def check_each(
    name: str, *rules: str, cases: Mapping[str, Any], needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Scene, Any], Awaitable[None]]], Callable[[Scene, Any], Awaitable[None]]]:
    """Register one check for each case: `name.case`."""

    def register(play: Callable[[Scene, Any], Awaitable[None]]) -> Callable[[Scene, Any], Awaitable[None]]:
        for case, value in cases.items():

            async def one(scene: Scene, value: Any = value) -> None:
                await play(scene, value)

            _add(Check(f"{name}.{case}", rules, f"{_title(play)}: {case.replace('-', ' ')}", needs, play=one))
        return play

    return register


def observe(name: str, *rules: str, needs: tuple[str, ...] = ()) -> Callable[[Look], Look]:
    """Register a check that looks at what was received in the whole run: it yields what is wrong."""

    def register(look: Look) -> Look:
        _add(Check(name, rules, _title(look), needs, look=look))
        return look

    return register


def expect(holds: object, text: str) -> None:
    """Fail with the text unless it holds."""
    if not holds:
        raise ConformanceError(text)


def same(found: object, wanted: object, what: str) -> None:
    """Fail unless both are equal."""
    if found != wanted:
        raise ConformanceError(f"{what}: {_short(found)} instead of {_short(wanted)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
