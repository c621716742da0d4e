"""Whom a request is held to: the peer, or what a trusted proxy says (R-M1, K4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pheby_server.aiohttp_transport.client_address import client_address, networks

TRUSTED = networks(["127.0.0.1", "::1/128", "10.0.0.0/8"])


@pytest.mark.parametrize(
    ("peer", "lines", "expected"),
    [
        ("192.0.2.9", [], "192.0.2.9"),
        # Not from a proxy that is trusted: it counts for nothing.
        ("192.0.2.9", ["198.51.100.1"], "192.0.2.9"),
        ("192.0.2.9", ["127.0.0.1"], "192.0.2.9"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        # What the client itself had put there stands before what the proxy added.
        ("127.0.0.1", ["203.0.113.7, 198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["203.0.113.7", "198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["junk, <script>,, 198.51.100.1"], "198.51.100.1"),
        # One trusted proxy behind the other.
        ("127.0.0.1", ["203.0.113.7, 198.51.100.1, 10.1.2.3"], "198.51.100.1"),
        ("127.0.0.1", ["10.1.2.3"], "10.1.2.3"),
        ("::1", ["\t198.51.100.1 "], "198.51.100.1"),
        ("::ffff:127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        # Malformed, or nothing.
        ("127.0.0.1", [""], "127.0.0.1"),
        ("127.0.0.1", ["unknown"], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.1,"], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.1:4711"], "127.0.0.1"),
        ("127.0.0.1", ["junk, 10.1.2.3"], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.999"], "127.0.0.1"),
        ("127.0.0.1", ["1" * 30_000], "127.0.0.1"),
        ("", ["198.51.100.1"], ""),
    ],
)
def test_the_last_address_that_a_trusted_proxy_added(peer: str, lines: list[str], expected: str) -> None:
    assert client_address(peer, lines, TRUSTED) == expected


def test_all_of_an_ipv6_site_is_one_client() -> None:
    one = client_address("2001:db8:1:2::1", [], ())
    assert one == client_address("2001:db8:1:2:ffff:ffff:ffff:ffff", [], ())
    assert one != client_address("2001:db8:1:3::1", [], ())


def test_many_hops_are_not_followed_for_ever() -> None:
    assert client_address("127.0.0.1", ["198.51.100.1" + ", 10.0.0.1" * 2_000], TRUSTED) == "10.0.0.1"


@pytest.mark.parametrize("named", ["10.0.0.0/33", "proxy.example", "10.0.0.1/8"])
def test_what_is_no_network_is_refused(named: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        networks([named])


@given(st.lists(st.text(max_size=40), max_size=5))
def test_whatever_the_header_holds_it_is_an_address_that_is_counted(lines: list[str]) -> None:
    assert client_address("192.0.2.9", lines, TRUSTED) == "192.0.2.9"
    assert client_address("127.0.0.1", [*lines, "198.51.100.1"], TRUSTED) == "198.51.100.1"
    client_address("127.0.0.1", lines, TRUSTED)
