"""How fast a client may ask (R-M2)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pheby_server.rate import TokenBucket, Verdict
from pheby_server.testing import FakeClock


def made(per_second: int = 10, burst: int = 5) -> tuple[TokenBucket, FakeClock]:
    clock = FakeClock()
    return TokenBucket(clock.monotonic, per_second, burst), clock


def test_a_burst_is_served_as_much_again_refused_and_then_it_is_over() -> None:
    bucket, _ = made()
    verdicts = [bucket.take() for _ in range(12)]
    assert verdicts == [Verdict.SERVE] * 5 + [Verdict.REFUSE] * 5 + [Verdict.CLOSE] * 2


def test_who_waits_as_long_as_told_is_served() -> None:
    bucket, clock = made()
    for _ in range(8):
        bucket.take()
    clock.move(bucket.retry_after_ms() / 1_000)
    assert bucket.take() is Verdict.SERVE
    assert bucket.take() is Verdict.REFUSE


def test_the_rate_may_be_asked_for_ever() -> None:
    bucket, clock = made()
    for _ in range(1_000):
        assert bucket.take() is Verdict.SERVE
        clock.move(0.1)


def test_nothing_is_saved_up_beyond_the_burst() -> None:
    bucket, clock = made()
    clock.move(1_000)
    assert [bucket.take() for _ in range(6)][-1] is Verdict.REFUSE


@given(st.lists(st.floats(0, 3), max_size=200), st.integers(1, 50), st.integers(1, 50))
def test_in_any_time_no_more_is_served_than_rate_and_burst_allow(
    waits: list[float], per_second: int, burst: int
) -> None:
    bucket, clock = made(per_second, burst)
    served = 0
    for wait in waits:
        clock.move(wait)
        served += bucket.take() is Verdict.SERVE
        assert served <= burst + clock.monotonic() * per_second + 1e-6
