"""The files of attachments: copies in a private folder, under names that say nothing, which only this process writes.

Beside `stores` the one module of the core that touches files. Every call blocks and is made in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
import unicodedata
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

import attrs

from .media_types import HEAD_BYTES, image_size, media_type

MAX_NAME_CHARS: Final = 200
_CHUNK: Final = 1_048_576
_KEPT_FREE: Final = 64 * 1_048_576
"""So much room the disk keeps for everything else, the database first."""
_SYSTEM: Final = ("/proc", "/sys", "/dev")
_PRIVATE_FOLDERS: Final = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store"})
_PRIVATE_FILES: Final = frozenset({".env", ".netrc", ".pgpass", ".git-credentials", ".htpasswd"})
_TURNS_TEXT: Final = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Refusal(StrEnum):
    """Why a file is not taken."""

    MISSING = "missing"
    NOT_ALLOWED = "not_allowed"
    TOO_LARGE = "too_large"
    NO_ROOM = "no_room"
    FAILED = "failed"


class FileRefusedError(Exception):
    """A file is not taken. Neither its text nor its reason names a path."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason.value)
        self.reason = reason


@attrs.frozen(kw_only=True)
class StoredFile:
    """A file as it was copied. `seal` recognises the copy: whatever else has its name is not it."""

    name: str
    size: int
    sha256: str
    media_type: str
    image: tuple[int, int] | None
    seal: str


class FileStore:
    """A folder of copies. What it has not made itself it neither serves nor deletes."""

    def __init__(self, storage: str, max_bytes: int) -> None:
        """`storage`: the server's own folder, nothing of which is ever taken but what lies in its spool."""
        self._storage = Path(storage)
        self._folder = self._storage / "files"
        self._max_bytes = max_bytes

    def prepare(self) -> None:
        """Make the folder if it is absent. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)

    def adopt(self, path: str, name: str, shown_name: str, room: int, *, spooled: bool = False) -> StoredFile:
        """Copy a file, at most `room` bytes, to `name`. Raises FileRefusedError, and leaves nothing then."""
        source = self._open_source(path, spooled)
        with source:
            try:
                return self._copy(source, name, shown_name, room)
            except FileRefusedError:
                self.remove(name)
                raise
            except OSError as failure:
                self.remove(name)
                reason = Refusal.NO_ROOM if failure.errno in _FULL else Refusal.FAILED
                raise FileRefusedError(reason) from None

    def open(self, name: str, size: int, sha256: str, seal: str) -> io.FileIO | None:
        """A copy, opened once without following links; None when what is there is not the copy that was made."""
        try:
            file = io.FileIO(_open_at(self._folder, name))
        except OSError:
            return None
        status = os.fstat(file.fileno())
        plain = stat.S_ISREG(status.st_mode) and status.st_size == size
        # A copy that was put back from a backup has another seal and the same content.
        if plain and (_seal(status) == seal or _digest(file) == sha256):
            file.seek(0)
            return file
        file.close()
        return None

    def remove(self, name: str) -> None:
        """Delete a copy; again is harmless. Raises OSError when it cannot be."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / name).unlink()

    def _open_source(self, path: str, spooled: bool) -> io.FileIO:
        try:
            real = os.path.realpath(path, strict=True)
            self._check(Path(real), spooled)
            return io.FileIO(_open_without_links(real))
        except FileRefusedError:
            raise
        except FileNotFoundError:
            raise FileRefusedError(Refusal.MISSING) from None
        except (OSError, ValueError):
            raise FileRefusedError(Refusal.NOT_ALLOWED) from None

    def _check(self, real: Path, spooled: bool) -> None:
        storage = Path(os.path.realpath(self._storage))
        if spooled:
            allowed = real.parent == storage / "spool"
        else:
            folders = {part.lower() for part in real.parts[:-1]}
            allowed = (
                not any(real.is_relative_to(system) for system in _SYSTEM)
                and not real.is_relative_to(storage)
                and folders.isdisjoint(_PRIVATE_FOLDERS)
                and real.name.lower() not in _PRIVATE_FILES
            )
        if not allowed:
            raise FileRefusedError(Refusal.NOT_ALLOWED)

    def _copy(self, source: io.FileIO, name: str, shown_name: str, room: int) -> StoredFile:
        status = os.fstat(source.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileRefusedError(Refusal.NOT_ALLOWED)
        if status.st_size > self._max_bytes:
            raise FileRefusedError(Refusal.TOO_LARGE)
        free = os.statvfs(self._folder)
        if status.st_size > min(room, free.f_bavail * free.f_frsize - _KEPT_FREE):
            raise FileRefusedError(Refusal.NO_ROOM)
        digest, size, head = hashlib.sha256(), 0, b""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(self._folder / name, flags, 0o600), "w+b", buffering=0) as copy:
            for chunk in _chunks(source):
                size += len(chunk)
                if size > min(self._max_bytes, room):
                    # It grew while it was read.
                    raise FileRefusedError(Refusal.TOO_LARGE)
                head = head if len(head) >= HEAD_BYTES else (head + chunk)[:HEAD_BYTES]
                digest.update(chunk)
                _write_all(copy, chunk)
            os.fsync(copy.fileno())
            kind = media_type(head, shown_name)
            copy.seek(0)
            picture = image_size(copy) if kind.startswith("image/") else None
            seal = _seal(os.fstat(copy.fileno()))
        return StoredFile(name=name, size=size, sha256=digest.hexdigest(), media_type=kind, image=picture, seal=seal)


def safe_name(name: str) -> str:
    """A file's name for people: one line without separators, controls or what turns text round; never empty."""
    kept = [
        "_" if character in "/\\" else character
        for character in name
        if unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp") and character not in _TURNS_TEXT
    ]
    text = "".join(kept).strip()
    if len(text) > MAX_NAME_CHARS:
        stem, dot, ending = text.rpartition(".")
        ending = dot + ending if stem and len(ending) <= 16 else ""
        text = text[: MAX_NAME_CHARS - len(ending)] + ending
    return text if text.strip(". ") else "file"


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# A folder that may be passed through need not be readable; not every system has this.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: opening a pipe would wait for its other end.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _open_without_links(real: str) -> int:
    """Open a path that has no links in it; one that was put there meanwhile is an error."""
    *folders, name = Path(real).parts[1:]
    at = os.open("/", _PASS)
    try:
        for folder in folders:
            inner = os.open(folder, _PASS, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(name, _READ, dir_fd=at)
    finally:
        os.close(at)


def _open_at(folder: Path, name: str) -> int:
    return os.open(folder / name, _READ)


def _seal(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def _digest(file: io.FileIO) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(file):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(file: io.FileIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _write_all(file: io.FileIO, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[file.write(view) :]
