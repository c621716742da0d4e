"""A folder in which another process leaves what it has for the owner; the server takes it in, once.

Beside `stores` and `file_store` the one module of the core that touches files. Whoever leaves something needs no
running server: it is taken in at the next start. Every call blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from pheby_protocol import limits
from pheby_protocol.ids import ConversationId, MessageId, is_id
from pheby_protocol.messages.message import MessageRole, Origin

from .boundary import sendable
from .file_store import FileRefusedError, free_bytes, open_source
from .logs import log_of
from .metrics import Metrics
from .ports import AgentFile, Clock, Delivery, Timer
from .stores import StoreError

Deliver = Callable[[ConversationId, Delivery], Awaitable[MessageId]]

log = log_of(__name__)

LOOK_SECONDS: Final = 1.0
MAX_ENTRY_BYTES: Final = 16 * 1_048_576
MAX_FILE_BYTES: Final = 4 * 1_073_741_824
TAKEN_AT_ONCE: Final = 100
LEFT_OVER_SECONDS: Final = 86_400.0
"""What a process has not finished by then, it never will."""
_CHUNK: Final = 1_048_576
_ENDING: Final = ".json"
_ASIDE: Final = ".json.unreadable"
_KEY: Final = r"\d{20}-[0-9a-f]{16}"
_WHOLE: Final = re.compile(rf"({_KEY})\.json")
_PART: Final = re.compile(rf"({_KEY})\.(?:new|\d{{1,6}})")
_NEVER: Final = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES})
"""Not to be read however often it is tried."""


@attrs.frozen
class Entry:
    """Something that was left. `name` is the spool's own."""

    name: str
    conversation_id: ConversationId
    delivery: Delivery


class SpoolDesk:
    """Looks into the spool every second, and whenever it is asked to."""

    def __init__(self, storage: str, deliver: Deliver, clock: Clock, metrics: Metrics | None = None) -> None:
        self._folder = spool_of(storage)
        self._deliver = deliver
        self._clock = clock
        self._metrics = metrics or Metrics()
        self._turn = asyncio.Lock()
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_tidy = False

    def start(self) -> None:
        self._timer = self._clock.call_later(LOOK_SECONDS, self._look)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def take_in(self) -> None:
        """Take in everything that was left until now; what cannot be stored stays where it is."""
        async with self._turn:
            try:
                if not self._is_tidy:
                    self._is_tidy = True
                    await asyncio.to_thread(tidy, self._folder)
                while entries := await asyncio.to_thread(waiting, self._folder):
                    if not any([await self._take(entry) for entry in entries]):
                        return
            except Exception as failure:
                log.warning("spool.not_taken: will be tried again", exc_info=failure)

    async def _take(self, entry: Entry) -> bool:
        """Take an entry in; whether it is gone. Raises StoreError: so will the others not be stored."""
        try:
            await self._deliver(entry.conversation_id, entry.delivery)
            await asyncio.to_thread(taken, self._folder, entry)
        except StoreError:
            raise
        except Exception as failure:
            # It must not keep the others.
            log.error("spool.entry_not_taken: will be tried again", exc_info=failure)
            return False
        self._metrics.spool_entries += 1
        log.info("spool.taken_in", extra={"conversation_id": entry.conversation_id})
        return True

    def _look(self) -> None:
        self._task = asyncio.ensure_future(self._take_in_and_wait())

    async def _take_in_and_wait(self) -> None:
        await self.take_in()
        self.start()


def spool_of(storage: str) -> str:
    """The spool in a server's storage folder."""
    return str(Path(storage) / "spool")


def leave(folder: str, conversation_id: ConversationId, delivery: Delivery) -> str:
    """Leave something for the owner; its key. On return it is on the disk. Raises OSError."""
    place = Path(folder)
    for each in (place.parent, place):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Sorted by name is in order.
    key = f"{time.time_ns():020d}-{secrets.token_hex(8)}"
    files = [
        {"copy": _copied(file.path, place / f"{key}.{number}"), "name": file.name}
        for number, file in enumerate(delivery.files)
    ]
    entry = {
        "conversation_id": conversation_id,
        "text": sendable(delivery.text),
        "origin": delivery.origin,
        "role": delivery.role,
        "for_model": delivery.for_model,
        "time": time.time_ns() // 1_000_000,
        "files": files,
    }
    unfinished = place / f"{key}.new"
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as out:
        json.dump(entry, out)
        out.flush()
        os.fsync(out.fileno())
    unfinished.rename(place / f"{key}{_ENDING}")
    _flush(place)
    return key


def waiting(folder: str) -> list[Entry]:
    """What was left, oldest first, so much at a time. What is not readable is put aside."""
    place = Path(folder)
    try:
        names = sorted(filter(_WHOLE.fullmatch, os.listdir(place)))
    except FileNotFoundError:
        return []
    entries: list[Entry] = []
    for name in names:
        if len(entries) == TAKEN_AT_ONCE:
            break
        try:
            entries.append(_read(place, name.removesuffix(_ENDING)))
        except OSError as failure:
            if failure.errno in _NEVER:
                _put_aside(place, name)
            else:
                log.warning("spool.not_read: will be tried again", exc_info=failure)
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it must not keep the others
            _put_aside(place, name)
    return entries


def _put_aside(place: Path, name: str) -> None:
    log.error("spool.unreadable: an entry was put aside")
    with contextlib.suppress(OSError):
        (place / name).rename(place / f"{name.removesuffix(_ENDING)}{_ASIDE}")


def tidy(folder: str) -> None:
    """Delete what belongs to no entry: of a process that died while it left one, or while it was taken in."""
    place = Path(folder)
    try:
        names = set(os.listdir(place))
    except FileNotFoundError:
        return
    for part in filter(None, map(_PART.fullmatch, names)):
        needed = {part[1] + _ENDING, part[1] + _ASIDE} & names
        old = time.time() - (place / part[0]).lstat().st_mtime > LEFT_OVER_SECONDS
        if old and not needed:
            (place / part[0]).unlink()


def taken(folder: str, entry: Entry) -> None:
    """Delete what was taken in, its files last. Raises OSError."""
    place = Path(folder)
    (place / f"{entry.name}{_ENDING}").unlink(missing_ok=True)
    for file in entry.delivery.files:
        if file.path is not None:
            Path(file.path).unlink(missing_ok=True)


def _read(place: Path, key: str) -> Entry:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(place / f"{key}{_ENDING}", flags), "rb") as file:
        content = file.read(MAX_ENTRY_BYTES + 1)
    if len(content) > MAX_ENTRY_BYTES:
        raise ValueError("too large")
    entry: dict[str, Any] = json.loads(content)
    at, role, origin = int(entry["time"]), MessageRole(entry["role"]), Origin(entry["origin"])
    if not is_id(entry["conversation_id"]) or not 0 <= at <= limits.MAX_INTEGER:
        raise ValueError("out of bounds")
    if role not in (MessageRole.ASSISTANT, MessageRole.NOTICE) or origin not in (Origin.CRON, Origin.SYSTEM):
        raise ValueError("not to be left here")
    return Entry(
        key,
        ConversationId(entry["conversation_id"]),
        Delivery(
            text=str(entry["text"]),
            origin=origin,
            role=role,
            key=key,
            time=at,
            files=tuple(_files(place, key, entry["files"])),
            for_model=entry["for_model"] is True,
        ),
    )


def _files(place: Path, key: str, files: Sequence[dict[str, Any]]) -> Iterable[AgentFile]:
    for number, file in enumerate(files):
        # The name of a copy is not believed, it is known.
        path = str(place / f"{key}.{number}") if file["copy"] is True else None
        yield AgentFile(path=path, name=str(file["name"]), spooled=True)


def _copied(path: str | None, copy: Path) -> bool:
    """Whether a file could be copied; the owner is told of one that could not."""
    if path is None:
        return False
    try:
        with open_source(path, copy.parent.parent) as source:
            room = min(MAX_FILE_BYTES, free_bytes(copy.parent))
            with open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as target:
                while chunk := source.read(_CHUNK):
                    room -= len(chunk)
                    if room < 0:
                        raise OSError(errno.EFBIG, "too large")
                    target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
    except FileRefusedError:
        return False
    except OSError:
        with contextlib.suppress(OSError):
            copy.unlink(missing_ok=True)
        return False
    return True


def _flush(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
