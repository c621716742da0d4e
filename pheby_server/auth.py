"""Who may connect, and what their secret allows."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import attrs

from pheby_protocol.messages.connection import AccessMode


@attrs.frozen
class Credential:
    """One of the owner's secrets, and what it allows."""

    access_mode: AccessMode
    secret: str = attrs.field(repr=False)


@attrs.frozen
class Authenticator:
    """Compares a request's bearer secret with the owner's, in constant time."""

    secrets: tuple[tuple[AccessMode, str], ...] = attrs.field(repr=False)

    def values(self) -> tuple[str, ...]:
        """The secrets themselves, for whoever must keep them out of what is shown."""
        return tuple(secret for _, secret in self.secrets)

    def holds(self, credential: Credential) -> bool:
        """Whether a secret that was right is still, for the same access."""
        return (credential.access_mode, credential.secret) in self.secrets

    def access(self, authorization: Sequence[str]) -> AccessMode | None:
        """The access mode of a request, given all its Authorization header values; None refuses it."""
        credential = self.credential(authorization)
        return None if credential is None else credential.access_mode

    def credential(self, authorization: Sequence[str]) -> Credential | None:
        """The secret that a request brings, given all its Authorization header values; None refuses it."""
        if len(authorization) != 1:
            return None
        scheme, _, given = authorization[0].partition(" ")
        if scheme.lower() != "bearer":
            return None
        # On bytes: a comparison of text raises for anything but ASCII. Of digests, so that the time tells no length;
        # and with every secret, so that it does not tell which one was close.
        offered = _digest(given.strip(" "))
        found: Credential | None = None
        for mode, secret in self.secrets:
            if hmac.compare_digest(offered, _digest(secret)) and found is None:
                found = Credential(mode, secret)
        return found


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
