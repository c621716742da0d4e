"""What a transport gets to send."""

from __future__ import annotations

import io

import attrs

from pheby_protocol.messages.attachment import Attachment


@attrs.frozen
class OpenedFile:
    """An attachment and its bytes, opened and recognised. Whoever gets it closes the file."""

    attachment: Attachment
    file: io.FileIO
