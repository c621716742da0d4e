"""Files from the agent."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..ids import AttachmentId, ConversationId, Count, MessageId, Seq, Time
from ..states import AttachmentState
from ._base import LoggedEvent, Request, Result


@attrs.frozen(kw_only=True)
class ImageSize:
    """Pixels."""

    width: Count
    height: Count


@attrs.frozen(kw_only=True)
class Attachment:
    """A file that the agent delivered. `path` is relative to the socket URL without `v1/ws`; never a server path."""

    attachment_id: AttachmentId
    conversation_id: ConversationId
    message_id: MessageId
    file_name: str
    media_type: str
    size: Count
    sha256: str
    inline_image: bool
    image: ImageSize | None = None
    status: AttachmentState
    created_at: Time
    expires_at: Time
    path: str


@attrs.frozen(kw_only=True)
class AttachmentGet(Request):
    """Ask for one attachment's description."""

    type: ClassVar[str] = "attachment.get"
    attachment_id: AttachmentId


@attrs.frozen(kw_only=True)
class AttachmentGetResult(Result):
    """One attachment's description."""

    type: ClassVar[str] = "attachment.get.result"
    attachment: Attachment
    as_of_seq: Seq


@attrs.frozen(kw_only=True)
class AttachmentCreated(LoggedEvent):
    """A file is there to be fetched."""

    type: ClassVar[str] = "attachment.created"
    conversation_id: ConversationId
    attachment: Attachment


@attrs.frozen(kw_only=True)
class AttachmentExpired(LoggedEvent):
    """A file is gone; its description stays."""

    type: ClassVar[str] = "attachment.expired"
    conversation_id: ConversationId
    attachment: Attachment
