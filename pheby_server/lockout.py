"""Addresses that keep bringing wrong secrets. What is right passes whatever stands here; guessing gets no cheaper."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import attrs

FREE_FAILURES: Final = 45
"""So many wrong secrets cost nothing: a client that was set up wrongly, and whoever looks for what is wrong."""
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 900.0
FORGET_SECONDS: Final = 600.0
"""So long after its last wrong secret, and the end of its lockout, an address begins anew."""
MAX_ADDRESSES: Final = 4_096
"""The table is bounded: of more addresses those that were quiet for longest are forgotten."""


@attrs.define
class _Failures:
    count: int = 0
    until: float = 0.0
    """When its lockout ends, or its last wrong secret came."""


class Lockout:
    """How long an address is refused without a look at its wrong secrets. By a clock that nobody sets."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        max_addresses: int = MAX_ADDRESSES,
        free_failures: int = FREE_FAILURES,
    ) -> None:
        self._monotonic = monotonic
        self._free_failures = free_failures
        self._max_addresses = max_addresses
        self._found: OrderedDict[str, _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def seconds_left(self, address: str) -> int:
        """Whole seconds until the next wrong secret of this address is looked at; 0 at once."""
        found = self._found.get(address)
        return 0 if found is None else max(0, math.ceil(found.until - self._monotonic()))

    def failed(self, address: str) -> None:
        """A wrong secret came from there. From the 45th on each costs twice the time of the one before."""
        now = self._monotonic()
        found = self._found.setdefault(address, _Failures())
        self._found.move_to_end(address)
        if now - found.until > FORGET_SECONDS:
            found.count = 0
        found.count, found.until = found.count + 1, now
        doublings = found.count - self._free_failures
        if doublings >= 0:
            # The exponent is bounded too: a float is not.
            found.until = now + min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(doublings, 20))
        if len(self._found) > self._max_addresses:
            self._found.popitem(last=False)
