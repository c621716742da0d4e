"""What every protocol message has: a type tag and a place in the exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NewType

import attrs

from ..ids import RequestId, Seq, Time

JsonObject = NewType("JsonObject", Mapping[str, object])
"""A declared extension point: any JSON object, kept as it is."""


@attrs.frozen(kw_only=True)
class Message:
    """One decoded frame."""

    type: ClassVar[str]


@attrs.frozen(kw_only=True)
class Request(Message):
    """Client to server; answered by exactly one result or error that carries the same id."""

    id: RequestId


@attrs.frozen(kw_only=True)
class Result(Message):
    """Server to client; the answer to the request with this id."""

    id: RequestId


@attrs.frozen(kw_only=True)
class Event(Message):
    """Server to client, asked for by nobody."""


@attrs.frozen(kw_only=True)
class LoggedEvent(Event):
    """An event with a place in the log: committed before it is sent, replayed after a reconnect."""

    seq: Seq
    time: Time


@attrs.frozen(kw_only=True)
class TransientEvent(Event):
    """An event that is never replayed; what it changes is in the next logged event or snapshot."""
