"""How the commands speak: JSON for programs, plain text for people, colours on a terminal alone."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final, TextIO

from .errors import InstallError
from .steps import Plan

_COLOURS: Final = {"ok": "32", "warning": "33", "error": "31", "head": "1"}


def coloured(text: str, kind: str, stream: TextIO) -> str:
    """The text in the colour of its kind, where somebody sees it and has not said no to colours."""
    code = _COLOURS.get(kind)
    if code is None or not stream.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def interactive() -> bool:
    """Whether somebody is there to answer a question."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def agreed(question: str) -> bool:
    """The answer to a question; no, unless it is said."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def print_json(said: dict[str, Any]) -> None:
    """One object on standard output."""
    print(json.dumps(said, indent=2, ensure_ascii=False))


def offer(plan: Plan, *, dry_run: bool, yes: bool, as_json: bool) -> bool:
    """Show a plan, and carry it out if that is wanted; False only if the owner said no. Raises InstallError."""
    if not as_json:
        _show(plan)
    wanted = bool(plan.steps) and not dry_run
    if wanted and not yes and (as_json or not interactive()):
        raise InstallError("Nobody can be asked here. Say --yes to go on, or --dry-run to only see what would be done.")
    done = wanted and (yes or agreed("Go on?"))
    if done:
        plan.carry_out()
    if as_json:
        print_json(_described(plan, done=done, dry_run=dry_run))
    else:
        print(_conclusion(plan, done=done, dry_run=dry_run))
    return done or not wanted


def _described(plan: Plan, *, done: bool, dry_run: bool) -> dict[str, Any]:
    return {
        "action": plan.action,
        "home": str(plan.home),
        "dry_run": dry_run,
        "done": done,
        "steps": [{"what": step.what, "detail": step.detail} for step in plan.steps],
        "notes": list(plan.notes),
    }


def _show(plan: Plan) -> None:
    print(coloured(f"{plan.action} in {plan.home}", "head", sys.stdout))
    for step in plan.steps:
        print(f"  - {step.what}")
        for line in step.detail.splitlines():
            kind = {"+": "ok", "-": "error"}.get(line[:1], "")
            print("      " + coloured(line, kind, sys.stdout))
    for note in plan.notes:
        print(f"  Note: {note}")


def _conclusion(plan: Plan, *, done: bool, dry_run: bool) -> str:
    if not plan.steps:
        return "There is nothing to do."
    if done:
        return f"Done. {plan.after}".rstrip()
    return "Nothing was done: this was a dry run." if dry_run else "Nothing was done."
