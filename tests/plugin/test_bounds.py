"""What is kept of Hermes's own values: a copy, small, of plain things."""

from __future__ import annotations

from pheby_hermes.bounds import MAX_DEPTH, MAX_ITEMS, MAX_RAW_CHARS, bounded


def test_plain_values_stay():
    value = {"a": [1, 2.5, True, None, "x"]}
    kept = bounded(value)
    assert kept == value
    assert kept is not value


def test_long_wide_and_deep_values_are_cut():
    assert len(bounded("x" * (MAX_RAW_CHARS + 5))) == MAX_RAW_CHARS
    assert len(bounded(list(range(10_000)))) == MAX_ITEMS + 1, "one more, so that the cut can be told"
    assert len(bounded({str(n): n for n in range(10_000)})) == MAX_ITEMS + 1
    deep: object = "bottom"
    for _ in range(MAX_DEPTH + 50):
        deep = [deep]
    assert "bottom" not in repr(bounded(deep))


def test_other_things_become_their_type():
    assert bounded({"o": object(), "b": b"secret"}) == {"o": "object", "b": "bytes"}
