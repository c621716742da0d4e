"""Where a request comes from: its peer, or what a trusted proxy says of its own peer."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_MAX_HOPS: Final = 16
"""Proxies behind each other; nobody has so many."""
_SITE_BITS: Final = 64
"""Whoever has one IPv6 address has all of its network of this size."""


def networks(named: Iterable[str | Network]) -> tuple[Network, ...]:
    """Addresses and networks as networks. Raises ValueError."""
    return tuple(ipaddress.ip_network(each) if isinstance(each, str) else each for each in named)


def client_address(peer: str, forwarded_for: Sequence[str], trusted: Sequence[Network]) -> str:
    """The address to hold a client to, given the lines of X-Forwarded-For: the last that a trusted proxy added.

    From any other peer the header counts for nothing; one that no proxy would write is not believed either.
    """
    own = _parsed(peer)
    if own is None:
        return peer
    found = own
    hops = ",".join(forwarded_for).rsplit(",", _MAX_HOPS)[-_MAX_HOPS:] if forwarded_for else []
    while hops and _is_in(found, trusted):
        named = _parsed(hops.pop().strip(" \t"))
        if named is None:
            return _held(own)
        found = named
    return _held(found)


def _parsed(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address


def _is_in(address: _Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)


def _held(address: _Address) -> str:
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address), _SITE_BITS), strict=False))
    return str(address)
