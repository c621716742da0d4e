"""The promises of the fuzz targets, for bytes by chance (R-M2, R-M3)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import SEEDS, TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_makes_one_promise(name: str) -> None:
    promise = TARGETS[name].__doc__ or ""
    assert promise.endswith(".")
    assert "\n" not in promise


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_seed_breaks_a_promise(name: str, seed: bytes) -> None:
    TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=400), st.builds(lambda one, more: one + more, st.sampled_from(SEEDS), st.binary())))
def test_no_bytes_by_chance_break_a_promise(name: str, data: bytes) -> None:
    TARGETS[name](data)
