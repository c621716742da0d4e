"""Who may connect, and what their secret allows."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import attrs

from pheby_protocol.messages.connection import AccessMode


@attrs.frozen
class Authenticator:
    """Compares a request's bearer secret with the owner's, in constant time."""

    secrets: tuple[tuple[AccessMode, str], ...] = attrs.field(repr=False)

    def values(self) -> tuple[str, ...]:
        """The secrets themselves, for whoever must keep them out of what is shown."""
        return tuple(secret for _, secret in self.secrets)

    def access(self, authorization: Sequence[str]) -> AccessMode | None:
        """The access mode of a request, given all its Authorization header values; None refuses it."""
        if len(authorization) != 1:
            return None
        scheme, _, given = authorization[0].partition(" ")
        if scheme.lower() != "bearer":
            return None
        # On bytes: a comparison of text raises for anything but ASCII. Every secret is compared, so that the time
        # does not tell which one was close.
        offered = given.strip(" ").encode("utf-8", "surrogateescape")
        found: AccessMode | None = None
        for mode, secret in self.secrets:
            if hmac.compare_digest(offered, secret.encode()) and found is None:
                found = mode
        return found
