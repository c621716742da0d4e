"""What kind of file something is: by its content first, by its name only where that does not contradict it."""

from __future__ import annotations

import io
import mimetypes
from typing import BinaryIO, Final

import filetype
import imagesize

HEAD_BYTES: Final = 8_192
"""So much of the beginning of a file is looked at."""
_SIZE_BYTES: Final = 1_048_576
"""A picture's size stands within so much of its beginning, or is not found."""
UNKNOWN: Final = "application/octet-stream"
INLINE_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Pictures that every Android shows and that hold no script."""

_CONTAINERS: Final = {
    "application/zip": ("application/vnd.", "application/epub+zip", "application/java-archive", "application/x-zip"),
    "application/x-ole-storage": ("application/msword", "application/vnd.ms-"),
    "video/mp4": ("audio/mp4", "audio/x-m4a", "audio/mp4a-latm"),
    "application/ogg": ("audio/", "video/ogg"),
    "audio/ogg": ("audio/", "video/ogg"),
    "video/webm": ("audio/webm",),
}
"""What looks like the one may be the other, when its name says so."""
_TEXTS: Final = ("text/", "application/json", "application/xml", "image/svg+xml", "application/javascript")
# The machine's own tables are left out: the same file has the same type everywhere.
_NAMES: Final = mimetypes.MimeTypes()
for _type, _ending in (
    ("text/markdown", ".md"),
    ("text/yaml", ".yaml"),
    ("text/yaml", ".yml"),
    ("application/toml", ".toml"),
    ("image/webp", ".webp"),
    ("image/avif", ".avif"),
    ("audio/ogg", ".ogg"),
    ("audio/ogg", ".opus"),
    ("audio/mp4", ".m4a"),
    ("application/epub+zip", ".epub"),
    ("application/vnd.android.package-archive", ".apk"),
    ("application/vnd.oasis.opendocument.presentation", ".odp"),
    ("application/vnd.oasis.opendocument.spreadsheet", ".ods"),
    ("application/vnd.oasis.opendocument.text", ".odt"),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", ".pptx"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xlsx"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", ".docx"),
):
    _NAMES.add_type(_type, _ending)


def media_type(head: bytes, file_name: str) -> str:
    """The media type of a file that begins with `head`; never one of a text for something that is none."""
    named = _NAMES.guess_type(f"x.{file_name.rpartition('.')[2]}" if "." in file_name else file_name)[0]
    found = filetype.guess(head)
    if found is not None:
        seen = str(found.mime)
        return named if named is not None and named.startswith(_CONTAINERS.get(seen, ())) else seen
    if _is_text(head):
        return named if named is not None and named.startswith(_TEXTS) else "text/plain"
    return UNKNOWN


def image_size(file: BinaryIO) -> tuple[int, int] | None:
    """Width and height in pixels as the picture is shown, None where they cannot be read."""
    try:
        # The library reads some kinds byte by byte, until it finds what it looks for.
        width, height = imagesize.get(io.BytesIO(file.read(_SIZE_BYTES)))
    except Exception:  # noqa: BLE001 - a file may hold anything; a picture without a size is shown as a file
        return None
    return (int(width), int(height)) if 0 < width < 2**31 and 0 < height < 2**31 else None


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as failure:
        # The last character may be cut off.
        return len(head) == HEAD_BYTES and failure.start >= HEAD_BYTES - 3
    return True
