"""The threat model promises nothing that no test holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8").splitlines()
CLAIMS = [line for line in LINES if re.match(r"\| [STRIDE] \|", line)]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_there_are_claims_about_every_kind_of_threat() -> None:
    assert {claim[2] for claim in CLAIMS} == set("STRIDE")


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_claim_names_tests_that_exist(claim: str) -> None:
    named = NAMED.findall(claim)
    assert named
    for file, test in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert test in found, f"{file}::{test}"


def test_no_test_is_named_anywhere_in_another_form() -> None:
    text = "\n".join(LINES)
    assert text.count("::") == len(NAMED.findall(text))
