"""Protocol versions: a major integer; everything smaller is negotiated as a capability."""

from __future__ import annotations

from collections.abc import Iterable

PROTOCOL_VERSION = 1
SUPPORTED_VERSIONS: tuple[int, ...] = (1,)


def choose(offered: Iterable[int]) -> int | None:
    """The highest version both sides serve, or None."""
    common = set(offered) & set(SUPPORTED_VERSIONS)
    return max(common, default=None)
