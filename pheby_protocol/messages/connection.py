"""Handshake, synchronisation, heartbeat, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from ..errors import ErrorCode
from ..ids import ConnectionId, ConversationId, Count, DeviceId, Epoch, ListCursor, Millis, RequestId, Seq, Time
from ..open_enum import OpenEnum
from . import _base
from ._base import Event, Request, Result, TransientEvent
from .approval import Approval
from .clarification import Clarification
from .conversation import Conversation
from .message import Message, Receipt
from .run import Run
from .tool import ToolCall


class AccessMode(OpenEnum):
    """What a credential may do."""

    FULL = "full"
    MANAGE = "manage"
    READ_ONLY = "read_only"


@attrs.frozen(kw_only=True)
class ClientInfo:
    """Who connects. `device_id` is per installation and not part of backups."""

    name: str
    version: str
    device_id: DeviceId


@attrs.frozen(kw_only=True)
class ServerInfo:
    """Who answers."""

    name: str
    version: str
    hermes_version: str


@attrs.frozen(kw_only=True)
class Cursor:
    """The last event that a client has applied."""

    epoch: str
    seq: int


@attrs.frozen(kw_only=True)
class Limits:
    """What this server accepts and sends; see the reference for each."""

    max_frame_bytes: Count
    max_server_frame_bytes: Count
    max_text_chars: Count
    max_list_limit: Count
    max_history_limit: Count
    max_pending_requests: Count


@attrs.frozen(kw_only=True)
class Hello(Request):
    """The first frame of a client."""

    type: ClassVar[str] = "hello"
    protocol_versions: tuple[int, ...]
    client: ClientInfo
    capabilities: tuple[str, ...] = ()
    resume: Cursor | None = None


@attrs.frozen(kw_only=True)
class Welcome(Result):
    """The answer to hello. With `resumed` the missed events follow, else a snapshot; then `sync.completed`."""

    type: ClassVar[str] = "welcome"
    protocol_version: int
    connection_id: ConnectionId
    server: ServerInfo
    server_time: Time
    capabilities: Mapping[str, bool]
    access_mode: AccessMode
    limits: Limits
    heartbeat_ms: Millis
    schema_digest: str
    epoch: Epoch
    seq: Seq
    resumed: bool
    receipts_since: Time


@attrs.frozen(kw_only=True)
class Snapshot(Event):
    """One part of the server's state; the whole applies at the part with `last`.

    `runs`, `messages`, `tool_calls`, `approvals`, `clarifications` list everything open: what a client has open and
    does not find is open no longer. `conversations` is the first page and each one that another object names.
    """

    type: ClassVar[str] = "snapshot"
    part: Count
    last: bool
    seq: Seq
    conversations: tuple[Conversation, ...]
    conversations_next: ListCursor | None = None
    runs: tuple[Run, ...]
    messages: tuple[Message, ...]
    tool_calls: tuple[ToolCall, ...]
    approvals: tuple[Approval, ...]
    clarifications: tuple[Clarification, ...]


@attrs.frozen(kw_only=True)
class SyncCompleted(Event):
    """The client is in step; live events follow. `seq` is its cursor now."""

    type: ClassVar[str] = "sync.completed"
    seq: Seq


@attrs.frozen(kw_only=True)
class Batch(Event):
    """Several events in one frame, in order; only for clients that offered the capability."""

    type: ClassVar[str] = "batch"
    events: tuple[Event, ...]


@attrs.frozen(kw_only=True)
class Ping(Request):
    """Ask whether the other side is there."""

    type: ClassVar[str] = "ping"


@attrs.frozen(kw_only=True)
class Pong(Result):
    """The answer to ping."""

    type: ClassVar[str] = "pong"
    server_time: Time


@attrs.frozen(kw_only=True)
class ServerDraining(TransientEvent):
    """The server is about to go; reconnect after the delay."""

    type: ClassVar[str] = "server.draining"
    reconnect_after_ms: Millis


@attrs.frozen(kw_only=True)
class ErrorDetails:
    """What a client needs to act on an error."""

    supported: tuple[int, ...] | None = None
    conversation_id: ConversationId | None = None
    receipt: Receipt | None = None
    approval: Approval | None = None
    clarification: Clarification | None = None
    choices: tuple[str, ...] | None = None
    efforts: tuple[str, ...] | None = None
    limit: Count | None = None


@attrs.frozen(kw_only=True)
class Error(_base.Message):
    """A request failed, or (without id) a frame could not be attributed, or a close is announced."""

    type: ClassVar[str] = "error"
    id: RequestId | None = None
    code: ErrorCode
    message: str
    retryable: bool
    retry_after_ms: Millis | None = None
    details: ErrorDetails | None = None
