"""The rules of the protocol pages: read from them for the stored list, and read from that list by the runners."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import attrs

PAGES: Final = "docs/protocol"
_RULE: Final = re.compile(
    r"^- \*\*(?P<id>P-[A-Z]+-\d+)\*\* (?P<level>MUST|SHOULD) \((?P<side>client|server|both); "
    r"(?P<serves>[^)]*)\): (?P<text>\S.*(?:\n  \S.*)*)$",
    re.M,
)


@attrs.frozen
class Rule:
    """One rule. `side` is whose it is, `serves` the project's requirements behind it, `anchor` where it stands."""

    id: str
    level: str
    side: str
    text: str
    serves: tuple[str, ...]
    anchor: str
    since: int = 1


def read_pages(folder: Path) -> list[Rule]:
    """All rules of the pages below a checkout."""
    found = []
    for page in sorted((folder / PAGES).glob("*.md")):
        for match in _RULE.finditer(page.read_text(encoding="utf-8")):
            text = " ".join(match["text"].split())
            serves = tuple(match["serves"].split(", "))
            found.append(Rule(match["id"], match["level"], match["side"], text, serves, f"{PAGES}/{page.name}#rules"))
    return found


def requirements() -> list[dict[str, Any]]:
    """The stored rules, each with the checks that hold it, or why there is none."""
    folder = resources.files(__package__).joinpath("requirements")
    found: list[dict[str, Any]] = json.loads(folder.joinpath("v1.json").read_text(encoding="utf-8"))["requirements"]
    held = json.loads(folder.joinpath("v1-held.json").read_text(encoding="utf-8"))["held"]
    return [row | held.get(row["id"], {"checks": {}}) for row in found]


@cache
def rules() -> dict[str, Rule]:
    """The stored rules, by id."""
    names = [field.name for field in attrs.fields(Rule)]
    rows = [{name: row[name] for name in names} for row in requirements()]
    return {row["id"]: Rule(**{**row, "serves": tuple(row["serves"])}) for row in rows}


NOT_CHECKED: Final[dict[str, dict[str, str]]] = {
    "server": {
        "P-APPR-8": "needs a command with a secret that the server's own redaction knows",
        "P-ATT-6": "files live for days",
        "P-ERR-9": "needs more live events than a server keeps for a slow client",
        "P-ERR-10": "needs a server that is stopped",
        "P-HELLO-14": "needs a secret that is changed",
        "P-MODEL-4": "needs two models that differ in their efforts",
        "P-MSG-4": "needs a crash at one moment",
        "P-TOOL-3": "needs a tool with a secret that the server's own redaction knows",
    },
    "client": {
        "P-ATT-7": "what a client does with a file is not seen from outside",
        "P-CONV-12": "the order on a screen is not seen from outside",
        "P-MODEL-5": "what a client offers is not seen from outside",
        "P-TOOL-6": "what a screen shows is not seen from outside",
    },
}
"""Rules that nothing here holds, by side, and why not."""
