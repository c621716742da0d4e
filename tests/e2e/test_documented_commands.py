"""R-P1: Hermes's own commands, as the pages name them, are known to a Hermes of each line."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.architecture.test_blocks import BLOCKS, PAGES, commands_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

NEWER = {"validate"}
"""What the pages themselves say that only 0.22 has."""


def named() -> list[list[str]]:
    """Every command of Hermes's in a block or a sentence, once; without what is said to it."""
    found = [
        words for block in BLOCKS if block.language == "sh" for words in commands_of(block) if words[0] == "hermes"
    ]
    for page in PAGES:
        if page.name not in ("CHANGELOG.md", "known-failures.md", "requirements.md"):
            found += [shlex.split(words) for words in re.findall(r"`(hermes [a-z-][^`\n]*)`", page.read_text())]
    return sorted({tuple(words[1:]): words[1:] for words in found}.values())


@pytest.mark.parametrize("words", named(), ids=" ".join)
async def test_a_command_of_hermes_is_one(stack, words: list[str]) -> None:
    """Asked for help, it tells of itself, and of every option."""
    if stack.hermes_version == "simulated" or stack.hermes_defaults:
        return
    if set(words) & NEWER and stack.hermes_version.startswith("0.19"):
        return
    if words[0] == "-p":
        words = words[2:]
    names = [word for word in words if re.fullmatch(r"[a-z]+", word)]
    code, said = await stack.gateway.command(*names[:2], "--help")
    assert code == 0, said
    assert re.search(rf"usage: .*\b{names[0]}\b", said), said
    if names[1:]:
        assert re.search(rf"\b{names[1]}\b", said), said
    for word in words:
        if word.startswith("-"):
            assert word in said, said
