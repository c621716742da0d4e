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
from threading import Event
from typing import Final

import attrs

from .logs import log_of
from .media_types import HEAD_BYTES, image_size, media_type

log = log_of(__name__)

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
        self._stopping = Event()

    def prepare(self) -> None:
        """Make the folder if it is absent. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)

    def stop(self) -> None:
        """Give up what is being copied."""
        self._stopping.set()

    def adopt(self, path: str, name: str, shown_name: str, room: int, *, spooled: bool = False) -> StoredFile:
        """Copy a file, at most `room` bytes, to `name`. Raises FileRefusedError, and leaves nothing then."""
        with open_source(path, self._storage, spooled=spooled) as source:
            try:
                self._check_room(os.fstat(source.fileno()).st_size, room)
                with self._made(name) as copy:
                    return self._copied(source, copy, name, shown_name, room)
            except OSError as failure:
                reason = Refusal.NO_ROOM if failure.errno in _FULL else Refusal.FAILED
                raise FileRefusedError(reason) from None

    def open(self, name: str, seal: str) -> io.FileIO | None:
        """A copy, opened once without following links; None when what is there is not the copy that was made."""
        try:
            return self._recognised(name, seal)
        except OSError:
            return None

    def remove(self, name: str, seal: str) -> None:
        """Delete a copy; again is harmless, and what is there in its place stays. Raises OSError when it cannot be.

        Without a seal it was not finished: its name was noted, and is all that is known of it.
        """
        try:
            file = self._recognised(name, seal) if seal else _plain(_open_at(self._folder, name))
        except FileNotFoundError:
            return
        if file is None:
            log.warning("file.not_ours: it stays where it is")
            return
        file.close()
        (self._folder / name).unlink(missing_ok=True)

    def _recognised(self, name: str, seal: str) -> io.FileIO | None:
        try:
            file = _plain(_open_at(self._folder, name))
        except OSError as failure:
            if failure.errno in _NOT_PLAIN:
                return None
            raise
        if file is None:
            return None
        sha256, size, _ = seal.split(":", 2)
        status = os.fstat(file.fileno())
        # A copy that was put back from a backup has another seal and the same content.
        if _seal(status, sha256) == seal or (str(status.st_size) == size and _digest(file) == sha256):
            file.seek(0)
            return file
        file.close()
        return None

    def _check_room(self, size: int, room: int) -> None:
        if size > self._max_bytes:
            raise FileRefusedError(Refusal.TOO_LARGE)
        if size > min(room, free_bytes(self._folder)):
            raise FileRefusedError(Refusal.NO_ROOM)

    @contextlib.contextmanager
    def _made(self, name: str) -> Iterator[io.FileIO]:
        """A new file; it goes again when it is not finished. One that was there before is not touched."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        path = self._folder / name
        with io.FileIO(os.open(path, flags, 0o600), "r+") as copy:
            try:
                yield copy
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    def _copied(self, source: io.FileIO, copy: io.FileIO, name: str, shown_name: str, room: int) -> StoredFile:
        digest, size, head = hashlib.sha256(), 0, b""
        for chunk in _chunks(source):
            size += len(chunk)
            if size > min(self._max_bytes, room):
                # It grew while it was read.
                raise FileRefusedError(Refusal.TOO_LARGE)
            if self._stopping.is_set():
                raise FileRefusedError(Refusal.FAILED)
            head = head if len(head) >= HEAD_BYTES else (head + chunk)[:HEAD_BYTES]
            digest.update(chunk)
            _write_all(copy, chunk)
        os.fsync(copy.fileno())
        kind = media_type(head, shown_name)
        copy.seek(0)
        return StoredFile(
            name=name,
            size=size,
            sha256=digest.hexdigest(),
            media_type=kind,
            image=image_size(copy) if kind.startswith("image/") else None,
            seal=_seal(os.fstat(copy.fileno()), digest.hexdigest()),
        )


def free_bytes(folder: str | Path) -> int:
    """What may be written there, so that everything else has some room left. Raises OSError."""
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize - _KEPT_FREE


def open_source(path: str, storage: str | Path, *, spooled: bool = False) -> io.FileIO:
    """A file of the agent, opened; no link is followed behind the check of where it lies. Raises FileRefusedError."""
    try:
        real = os.path.realpath(path, strict=True)
        if not _allowed(Path(real), Path(os.path.realpath(storage)), spooled):
            raise FileRefusedError(Refusal.NOT_ALLOWED)
        file = _plain(_open_without_links(real))
    except FileNotFoundError:
        raise FileRefusedError(Refusal.MISSING) from None
    except (OSError, ValueError):
        raise FileRefusedError(Refusal.NOT_ALLOWED) from None
    if file is None:
        raise FileRefusedError(Refusal.NOT_ALLOWED)
    return file


def _allowed(real: Path, storage: Path, spooled: bool) -> bool:
    if spooled:
        return real.parent == storage / "spool"
    folders = {part.lower() for part in real.parts[:-1]}
    return (
        not any(real.is_relative_to(system) for system in _SYSTEM)
        and not real.is_relative_to(storage)
        and folders.isdisjoint(_PRIVATE_FOLDERS)
        and real.name.lower() not in _PRIVATE_FILES
    )


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
        text = text[: MAX_NAME_CHARS - len(ending)].rstrip() + ending
    return text if text.strip(". ") else "file"


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_PLAIN: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""Opening a link, a socket, a folder."""
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


def _plain(descriptor: int) -> io.FileIO | None:
    """The file of a descriptor; what is no plain file is closed."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return io.FileIO(descriptor)
    os.close(descriptor)
    return None


def _seal(status: os.stat_result, sha256: str) -> str:
    marks = (status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    return ":".join([sha256, *map(str, marks)])


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
