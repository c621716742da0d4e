"""Files of an owner's home: read as they are, replaced in one step, their mode and owner kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from .errors import InstallError


def digest(content: bytes | str) -> str:
    """What is compared instead of the content itself."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def read_bytes(file: Path) -> bytes | None:
    """The content; None where there is no such file. Raises InstallError."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise InstallError(f"{file} cannot be read: {failure.strerror}.") from None


def read_text(file: Path) -> str | None:
    """The text with its line endings as they are; None where there is no such file. Raises InstallError."""
    content = read_bytes(file)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        raise InstallError(f"{file} is not UTF-8 text.") from None


def write(file: Path, content: bytes | str, *, mode: int) -> None:
    """Put the content in place of the old one at once; `mode` is only for a file that is new. Raises InstallError."""
    # A link, as of people who keep such files elsewhere, stays a link.
    file = file.resolve()
    unfinished = file.with_name(f".{file.name}.pheby-new")
    try:
        before = file.stat() if file.exists() else None
        owner = before or file.parent.stat()
        unfinished.unlink(missing_ok=True)
        # Never readable by others, not even for a moment.
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(content.encode() if isinstance(content, str) else content)
            out.flush()
            os.fchmod(out.fileno(), stat.S_IMODE(before.st_mode) if before is not None else mode)
            _give(out.fileno(), owner)
            os.fsync(out.fileno())
        unfinished.replace(file)
    except OSError as failure:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise InstallError(f"{file} cannot be written: {failure.strerror}.") from None


def make_folder(folder: Path) -> None:
    """Make a folder that belongs to whom the one above belongs to. Raises InstallError."""
    try:
        folder.mkdir(mode=0o700)
        opened = os.open(folder, os.O_RDONLY)
        try:
            _give(opened, folder.parent.stat())
        finally:
            os.close(opened)
    except OSError as failure:
        raise InstallError(f"{folder} cannot be made: {failure.strerror}.") from None


def _give(opened: int, like: os.stat_result) -> None:
    # The administrator may install for somebody else.
    if os.geteuid() == 0 and like.st_uid != 0:
        os.fchown(opened, like.st_uid, like.st_gid)
