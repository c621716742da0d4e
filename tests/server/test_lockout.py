"""Wrong secrets from one address cost more and more time, and the table of them stays small (R-M1, K4)."""

from __future__ import annotations

import sys

import pytest

from pheby_server.lockout import FORGET_SECONDS, FREE_FAILURES, LONGEST_SECONDS, MAX_ADDRESSES, Lockout
from pheby_server.testing import FakeClock


class Rig:
    def __init__(self, max_addresses: int = MAX_ADDRESSES) -> None:
        self.clock = FakeClock()
        self.lockout = Lockout(self.clock.monotonic, max_addresses)

    def fail(self, times: int, address: str = "a") -> None:
        for _ in range(times):
            self.lockout.failed(address)

    @property
    def left(self) -> int:
        return self.lockout.seconds_left("a")


def test_the_first_mistakes_cost_nothing() -> None:
    rig = Rig()
    rig.fail(FREE_FAILURES - 1)
    assert rig.left == 0
    rig.fail(1)
    assert rig.left == 1


def test_each_further_one_costs_twice_the_time_up_to_a_bound() -> None:
    rig = Rig()
    rig.fail(FREE_FAILURES)
    seen = []
    for _ in range(40):
        seen.append(rig.left)
        rig.clock.move(rig.left)
        assert rig.left == 0
        rig.fail(1)
    assert seen[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert set(seen[10:]) == {int(LONGEST_SECONDS)}


def test_time_left_is_whole_seconds_and_never_too_little() -> None:
    rig = Rig()
    rig.fail(FREE_FAILURES + 2)
    rig.clock.move(0.1)
    assert rig.left == 4
    rig.clock.move(3.8)
    assert rig.left == 1
    rig.clock.move(0.1)
    assert rig.left == 0


def test_addresses_have_nothing_to_do_with_each_other() -> None:
    rig = Rig()
    rig.fail(100)
    assert rig.lockout.seconds_left("b") == 0


def test_after_a_quiet_time_an_address_begins_anew() -> None:
    rig = Rig()
    rig.fail(FREE_FAILURES + 20)
    rig.clock.move(LONGEST_SECONDS + FORGET_SECONDS - 1)
    rig.fail(1)
    assert rig.left == LONGEST_SECONDS
    rig.clock.move(LONGEST_SECONDS + FORGET_SECONDS + 1)
    rig.fail(1)
    assert rig.left == 0


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_is_set_changes_nothing(days: int) -> None:
    """R-M4: time is what has passed, not what the clock of the machine says."""
    rig = Rig()
    rig.fail(FREE_FAILURES + 3)
    rig.clock.jump(days * 86_400_000)
    assert rig.left == 8
    rig.clock.move(8)
    assert rig.left == 0


def test_a_hundred_thousand_addresses_take_no_more_room_than_the_table_has() -> None:
    rig = Rig()
    rig.fail(FREE_FAILURES)
    for number in range(100_000):
        rig.lockout.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(rig.lockout) == MAX_ADDRESSES
    assert sum(map(sys.getsizeof, rig.lockout._found)) < 2**20
    # The one that was quiet for longest is forgotten first.
    assert rig.left == 0


def test_who_goes_on_is_not_forgotten_for_those_who_come_once() -> None:
    rig = Rig(max_addresses=100)
    for number in range(1_000):
        rig.lockout.failed(str(number))
        if number % 50 == 0:
            rig.fail(3)
    assert rig.left > 0
