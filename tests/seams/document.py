"""Writes what `docs/limitations.md` says of Hermes's names: `python -m tests.seams.document`.

What a line has is what `pheby_hermes.seams` expects of it, and `test_contract.py` holds that against the real one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pheby_hermes import seams

PAGE: Final = Path(__file__).parents[2] / "docs" / "limitations.md"
BEGIN: Final = "<!-- From here on: python -m tests.seams.document -->\n"
END: Final = "<!-- Until here. -->\n"


def written() -> str:
    """The page as it is to be."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return head + BEGIN + "\n" + "\n".join([*_parts(), "", *_names()]) + "\n\n" + END + rest.partition(END)[2]


def _parts() -> list[str]:
    lines = seams.LINES
    rows = [
        f"| what | {' | '.join(lines)} | without it | in `welcome` |",
        f"| --- |{' --- |' * len(lines)} --- | --- |",
    ]
    for part in seams.PARTS:
        there = " | ".join("yes" if part.on(line) else "no" for line in lines)
        told = ", ".join(f"`{name}`: false" for name in part.capabilities)
        rows.append(f"| {part.name} | {there} | {part.without} | {told} |")
    return rows


def _names() -> list[str]:
    rows = ["| what | line | names |", "| --- | --- | --- |"]
    for part in seams.PARTS:
        for line, symbols in (("both", part.symbols), *part.of_line.items()):
            if symbols:
                rows.append(f"| {part.name} | {line} | {_by_module(symbols)} |")
    return rows


def _by_module(symbols: tuple[str, ...]) -> str:
    modules: dict[str, list[str]] = {}
    for symbol in symbols:
        module, mark, name = symbol.partition("~" if "~" in symbol else ":")
        modules.setdefault(module, []).append(f"`{'~' if mark == '~' else ''}{name}`")
    return "; ".join(f"`{module}`: {', '.join(names)}" for module, names in modules.items())


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
