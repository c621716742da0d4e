"""R-A2, R-P1: what the page about limitations says of Hermes's names is what the probes know."""

from __future__ import annotations

from tests.seams import document


def test_the_page_is_as_generated() -> None:
    """R-A2: else: python -m tests.seams.document"""
    assert document.PAGE.read_text(encoding="utf-8") == document.written()
