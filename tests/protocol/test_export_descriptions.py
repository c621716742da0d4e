"""Every field is described, and no description is left over."""

from __future__ import annotations

import pytest

from pheby_protocol.export import descriptions
from pheby_protocol.export.descriptions import UndescribedError, describe, unused
from pheby_protocol.export.metamodel import metamodel

MODEL = metamodel()
USED = {
    (struct["name"], field["name"]) for struct in [*MODEL["messages"], *MODEL["objects"]] for field in struct["fields"]
}


def test_every_field_is_described_in_a_sentence() -> None:
    for cls, name in USED:
        text = describe(cls, name)
        assert text[0].isupper() or text.startswith(("max_", "conv_"))
        assert text.endswith(".")
        assert "\n" not in text


def test_no_description_is_left_over() -> None:
    assert unused(USED) == set()


def test_a_field_without_one_is_an_error() -> None:
    with pytest.raises(UndescribedError, match=r"Run\.colour: add it to .*descriptions\.py"):
        describe("Run", "colour")


def test_what_a_class_says_itself_goes_first() -> None:
    assert describe("Snapshot", "seq") != describe("RunEnded", "seq")
    assert describe("RunEnded", "seq") == describe("RunStarted", "seq")


def test_what_nobody_uses_is_found() -> None:
    assert unused(USED - {("Usage", "total_tokens")}) == {"total_tokens"}
    assert unused(USED - {("MessageDelta", "index")}) == {"MessageDelta.index"}
    assert unused(set()) == set(descriptions._FIELDS) | set(descriptions._OWN)
