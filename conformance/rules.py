"""The rules of the protocol pages: read from them for the stored list, and read from that list by the runners."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

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


def as_json(rules: list[Rule]) -> str:
    """The stored form of the rules."""
    content = {"protocol_version": 1, "requirements": [attrs.asdict(rule) for rule in rules]}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


@cache
def rules() -> dict[str, Rule]:
    """The stored rules, by id."""
    text = resources.files(__package__).joinpath("requirements/v1.json").read_text(encoding="utf-8")
    return {row["id"]: Rule(**{**row, "serves": tuple(row["serves"])}) for row in json.loads(text)["requirements"]}


NOT_CHECKED: Final[dict[str, str]] = {}
"""Rules of a server that no check holds, and why not; filled by what can be seen from outside."""
