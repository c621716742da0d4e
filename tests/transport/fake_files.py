"""A store that is none: files of a test's own folder, by their ids."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any, Final

import attrs

from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import AttachmentId, ConversationId, Count, MessageId, Time
from pheby_protocol.messages.attachment import Attachment
from pheby_protocol.states import AttachmentState
from pheby_server.boundary import RequestError
from pheby_server.opened_file import OpenedFile
from pheby_server.server import Server

NOW_MS: Final = 1_796_050_009_123
"""When everything was delivered."""
LIFE_MS: Final = 7 * 24 * 3_600_000
CONTENT: Final = bytes(index * 7 % 251 for index in range(1_000))


class FakeFiles:
    """Satisfies `Files`; what was asked for and what was opened is known."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._attachments: dict[str, Attachment] = {}
        self.asked: list[str] = []
        self.opened: list[io.FileIO] = []
        self.failure: Exception | None = None
        self.expired: set[str] = set()

    def add(self, content: bytes = CONTENT, **fields: Any) -> str:
        attachment_id = f"att_{len(self._attachments):024d}"
        self.place(attachment_id).write_bytes(content)
        described = Attachment(
            attachment_id=AttachmentId(attachment_id),
            conversation_id=ConversationId("conv_1"),
            message_id=MessageId("msg_1"),
            file_name="report.bin",
            media_type="application/octet-stream",
            size=Count(len(content)),
            sha256=hashlib.sha256(content).hexdigest(),
            inline_image=False,
            status=AttachmentState.AVAILABLE,
            created_at=Time(NOW_MS),
            expires_at=Time(NOW_MS + LIFE_MS),
            path=f"v1/attachments/{attachment_id}",
        )
        self._attachments[attachment_id] = attrs.evolve(described, **fields)
        return attachment_id

    def place(self, attachment_id: str) -> Path:
        return self._folder / attachment_id

    def serve_for(self, server: Server) -> None:
        """From now on the server's transport gets its files here. Its own desk stays, and is stopped with it."""
        server.attachments.open = self.open  # type: ignore[method-assign]

    async def open(self, attachment_id: str) -> OpenedFile:
        self.asked.append(attachment_id)
        if self.failure is not None:
            raise self.failure
        if attachment_id in self.expired:
            raise RequestError(ErrorCode.EXPIRED)
        if attachment_id not in self._attachments:
            raise RequestError(ErrorCode.NOT_FOUND)
        file = io.FileIO(self.place(attachment_id))
        self.opened.append(file)
        return OpenedFile(self._attachments[attachment_id], file)
