"""A registered file that is open for reading, and who opens it."""

from __future__ import annotations

import io
from typing import Protocol

import attrs

from pheby_protocol.messages.attachment import Attachment


@attrs.frozen
class OpenedFile:
    """An attachment with its bytes. Whoever got it closes `file`."""

    attachment: Attachment
    file: io.FileIO


class Files(Protocol):
    """Where a transport gets files from."""

    async def open(self, attachment_id: str) -> OpenedFile:
        """Raises RequestError: NOT_FOUND for what is no id of a file here, EXPIRED for one whose bytes are gone."""
