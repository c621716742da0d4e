"""Pheby's face: the client library, and the `pheby` command around it."""

from .client import (
    AuthenticationError,
    Client,
    Connected,
    ConnectionLostError,
    Disconnected,
    RequestFailedError,
    SendInDoubtError,
)

__all__ = [
    "AuthenticationError",
    "Client",
    "Connected",
    "ConnectionLostError",
    "Disconnected",
    "RequestFailedError",
    "SendInDoubtError",
]
