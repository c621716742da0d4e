"""The sum of what clients have sent of messages without an end (K5, R-M2)."""

from __future__ import annotations

from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from pheby_server.aiohttp_transport.unfinished import LARGE_BYTES, Unfinished

MOST = 4 * LARGE_BYTES
SMALL = 2 * LARGE_BYTES

STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.one_of(st.integers(1, SMALL), st.text(max_size=50), st.binary(max_size=50))),
    max_size=60,
)


@given(STEPS)
def test_the_sum_is_what_all_hold_and_never_too_much(steps: list[tuple[int, int | str | bytes]]) -> None:
    """R-M2: whatever comes and is read in whatever order; who has sent little is never cut off."""
    unfinished, cut = Unfinished(MOST), list[int]()
    with ExitStack() as exits:
        clients = [exits.enter_context(unfinished.of(lambda number=number: cut.append(number))) for number in range(6)]
        for number, step in steps:
            before = [client.held for client in clients]
            cut.clear()
            if isinstance(step, int):
                clients[number].came(step)
                before[number] += step
            else:
                clients[number].read(step)
            assert all(before[gone] > LARGE_BYTES and clients[gone].held == 0 for gone in cut)
            assert unfinished._bytes == sum(client.held for client in clients)
            assert all(client.held >= 0 for client in clients)
            assert unfinished._bytes <= MOST + 6 * LARGE_BYTES
    assert unfinished._bytes == 0
    assert not unfinished._incoming


def test_a_text_counts_as_its_bytes() -> None:
    """K5: else a client with umlauts would seem to hold half of what it has sent."""
    unfinished = Unfinished(MOST)
    with unfinished.of(lambda: None) as client:
        for _ in range(1_000):
            client.came(8 + len("ü€😀\ud800".encode("utf-8", "surrogatepass")) * 10)
            client.read("ü€😀\ud800" * 10)
        assert client.held == 0
