"""Words that Hermes would expand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pheby_hermes.typed import WORD_JOINER, neutralise, restore


@pytest.mark.parametrize(
    ("text", "neutral"),
    [
        ("@file:/etc/hosts", "@\u2060file:/etc/hosts"),
        ("see @folder:src and @git:3", "see @\u2060folder:src and @\u2060git:3"),
        ("(@url:https://x.org)", "(@\u2060url:https://x.org)"),
        ("look at @diff please", "look at @\u2060diff please"),
        ("@staged", "@\u2060staged"),
        ("mail me@file:x", "mail me@file:x"),
        ("a/@diff", "a/@diff"),
        ("@different", "@different"),
        ("@filed: x", "@filed: x"),
        ("@someone hello", "@someone hello"),
        ("@@file:x", "@@\u2060file:x"),
        ("", ""),
    ],
)
def test_references_are_neutralised(text: str, neutral: str) -> None:
    assert neutralise(text) == neutral
    assert restore(neutral) == text


def test_neutralising_twice_changes_nothing() -> None:
    once = neutralise("@file:x @diff")
    assert neutralise(once) == once


def test_other_word_joiners_stay() -> None:
    assert restore(f"a{WORD_JOINER}b @{WORD_JOINER}x") == f"a{WORD_JOINER}b @{WORD_JOINER}x"


PIECES = st.lists(st.sampled_from(["@", "file:", "diff", "staged", "git:", " ", "/", "x", "\n", "@url:"])).map("".join)


@given(st.one_of(PIECES, st.text().filter(lambda text: WORD_JOINER not in text)))
def test_restore_undoes_neutralise(text: str) -> None:
    assert restore(neutralise(text)) == text
