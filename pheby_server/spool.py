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
import secrets
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from pheby_protocol.ids import ConversationId, MessageId, is_id
from pheby_protocol.messages.message import MessageRole, Origin

from .boundary import sendable
from .logs import log_of
from .metrics import Metrics
from .ports import AgentFile, Clock, Delivery, Timer

Deliver = Callable[[ConversationId, Delivery], Awaitable[MessageId]]

log = log_of(__name__)

LOOK_SECONDS: Final = 1.0
MAX_ENTRY_BYTES: Final = 16 * 1_048_576
MAX_FILE_BYTES: Final = 4 * 1_073_741_824
TAKEN_AT_ONCE: Final = 100
_ENDING: Final = ".json"


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
                while entries := await asyncio.to_thread(waiting, self._folder):
                    for entry in entries:
                        await self._deliver(entry.conversation_id, entry.delivery)
                        await asyncio.to_thread(taken, self._folder, entry)
                        self._metrics.spool_entries += 1
                        log.info("spool.taken_in", extra={"conversation_id": entry.conversation_id})
            except Exception as failure:
                log.warning("spool.not_taken: will be tried again", exc_info=failure)

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
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Sorted by name is in order.
    key = f"{time.time_ns():020d}-{secrets.token_hex(8)}"
    files = [
        {"copy": _copied(place / f"{key}.{number}", file.path), "name": file.name}
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
        names = sorted(found.name for found in os.scandir(place) if found.name.endswith(_ENDING))
    except FileNotFoundError:
        return []
    entries = []
    for name in names[:TAKEN_AT_ONCE]:
        try:
            entries.append(_read(place, name.removesuffix(_ENDING)))
        except OSError as failure:
            log.warning("spool.not_read: will be tried again", exc_info=failure)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            log.error("spool.unreadable: an entry was put aside")
            with contextlib.suppress(OSError):
                (place / name).rename(place / f"{name}.unreadable")
    return entries


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
    if not is_id(entry["conversation_id"]):
        raise ValueError("not an id")
    return Entry(
        key,
        ConversationId(entry["conversation_id"]),
        Delivery(
            text=str(entry["text"]),
            origin=Origin(entry["origin"]),
            role=MessageRole(entry["role"]),
            key=key,
            time=int(entry["time"]),
            files=tuple(_files(place, key, entry["files"])),
            for_model=entry["for_model"] is True,
        ),
    )


def _files(place: Path, key: str, files: Sequence[dict[str, Any]]) -> Iterable[AgentFile]:
    for number, file in enumerate(files):
        # The name of a copy is not believed, it is known.
        path = str(place / f"{key}.{number}") if file["copy"] is True else None
        yield AgentFile(path=path, name=str(file["name"]), spooled=True)


def _copied(copy: Path, path: str | None) -> bool:
    """Whether a file could be copied; the owner is told of one that could not."""
    if path is None:
        return False
    try:
        with (
            open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as source,
            open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as target,
        ):
            if os.fstat(source.fileno()).st_size > MAX_FILE_BYTES:
                raise OSError(errno.EFBIG, "too large")
            shutil.copyfileobj(source, target, 1_048_576)
            target.flush()
            os.fsync(target.fileno())
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
