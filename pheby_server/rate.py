"""How fast one client may ask."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum


class Verdict(Enum):
    """What becomes of one thing that a client sends."""

    SERVE = "serve"
    REFUSE = "refuse"
    CLOSE = "close"


class TokenBucket:
    """So many at once, so many a second in the long run. What is refused counts too: who goes on is closed at last."""

    def __init__(self, monotonic: Callable[[], float], per_second: int, burst: int) -> None:
        self._monotonic = monotonic
        self._per_second = per_second
        self._burst = burst
        self._tokens = float(burst)
        self._at = monotonic()

    def take(self) -> Verdict:
        """One more has come."""
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second) - 1
        self._at = now
        if self._tokens >= 0:
            return Verdict.SERVE
        return Verdict.REFUSE if self._tokens >= -self._burst else Verdict.CLOSE

    def retry_after_ms(self) -> int:
        """When the next would be served, if none came until then."""
        return max(0, math.ceil((1 - self._tokens) / self._per_second * 1_000))
