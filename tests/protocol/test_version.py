"""Which protocol version two peers speak."""

from __future__ import annotations

import pytest

from pheby_protocol.version import PROTOCOL_VERSION, SUPPORTED_VERSIONS, choose


def test_the_current_version_is_supported() -> None:
    assert PROTOCOL_VERSION in SUPPORTED_VERSIONS
    assert max(SUPPORTED_VERSIONS) == PROTOCOL_VERSION


def test_this_is_version_one_and_it_is_served() -> None:
    """Version 1 stays served whatever comes after it: an old app keeps working (J1)."""
    assert 1 in SUPPORTED_VERSIONS


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([1], 1),
        ([1, 2, 3], 1),
        ((99, 1), 1),
        ([1, 1, 1], 1),
        ([], None),
        ([0], None),
        ([2], None),
        ([-1, 2**53 - 1], None),
    ],
)
def test_the_highest_common_version_is_chosen(offered: list[int], chosen: int | None) -> None:
    assert choose(offered) == chosen


def test_the_highest_of_several_common_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pheby_protocol.version.SUPPORTED_VERSIONS", (1, 2, 3))
    assert choose([3, 1, 2, 4]) == 3
    assert choose(iter([2, 1])) == 2
