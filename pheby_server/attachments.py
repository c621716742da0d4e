"""The desk for attachments: takes copies of the agent's files, says what they are, and lets them go when it is time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import attrs

from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import AttachmentId, ConversationId, Count, MessageId, Time, is_id
from pheby_protocol.messages.attachment import Attachment, AttachmentCreated, AttachmentExpired, ImageSize
from pheby_protocol.messages.message import Message
from pheby_protocol.states import ATTACHMENT, AttachmentEvent, AttachmentState

from .boundary import RequestError, sendable
from .file_store import FileRefusedError, FileStore, Refusal, StoredFile, safe_name
from .logs import log_of
from .media_types import INLINE_IMAGES
from .metrics import Metrics
from .opened_file import OpenedFile
from .ports import AgentFile, Clock, IdSource, Timer
from .sequencer import Change, Sequencer
from .stores import (
    Store,
    StoreError,
    file_is_gone,
    file_is_made,
    read_attachment,
    read_due_attachments,
    read_file_bytes,
    read_next_expiry,
    read_unused_files,
    reserve_file,
    save_attachment,
)

T = TypeVar("T")

log = log_of(__name__)

_THREADS: Final = 2
"""One copies, the other opens and deletes meanwhile."""
LOOK_SECONDS: Final = 60.0
"""The wall clock may jump: it is looked at this often, and whenever the next file is due. None is kept for less."""
RETRY_SECONDS: Final = 10.0
_EXPIRED_AT_ONCE: Final = 100

REFUSALS: Final[dict[Refusal, str]] = {
    Refusal.MISSING: "it is not there any more",
    Refusal.NOT_ALLOWED: "it may not be sent",
    Refusal.TOO_LARGE: "it is too large",
    Refusal.NO_ROOM: "there is no room for it",
    Refusal.FAILED: "it could not be read or copied",
}


def not_attached(name: str, reason: Refusal | None) -> str:
    """What the owner reads about a file that was not taken; None: Hermes has not delivered it."""
    why = "it is missing, or may not be sent" if reason is None else REFUSALS[reason]
    return f"The file \u201c{sendable(safe_name(name))}\u201d was not attached: {why}."


class Conversations(Protocol):
    """What this desk needs to know of conversations."""

    def is_going(self, conversation_id: ConversationId) -> bool: ...


class Messages(Protocol):
    """What this desk needs to know of chat messages."""

    async def find(self, message_id: MessageId) -> Message | None: ...
    def updated(self, message: Message) -> Change: ...


@attrs.frozen
class Taken:
    """A copy that belongs to nothing yet."""

    attachment_id: AttachmentId
    file_name: str
    file: StoredFile


class AttachmentDesk:
    """Descriptions live in the store, bytes in files. A file is noted before it is made, and forgotten behind it."""

    def __init__(
        self,
        store: Store,
        files: FileStore,
        sequencer: Sequencer,
        conversations: Conversations,
        messages: Messages,
        clock: Clock,
        ids: IdSource,
        retention_ms: int,
        quota_bytes: int,
        metrics: Metrics | None = None,
    ) -> None:
        self._store = store
        self._files = files
        self._sequencer = sequencer
        self._conversations = conversations
        self._messages = messages
        self._clock = clock
        self._ids = ids
        self._retention_ms = retention_ms
        self._quota_bytes = quota_bytes
        self._metrics = metrics or Metrics()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pheby-files")
        self._copying = asyncio.Lock()
        """One after the other, in order: each knows what room the others have left."""
        self._left_over: list[tuple[AttachmentId, str]] = []
        """What a dead process has left, of which nothing came."""
        self.changing = asyncio.Lock()
        """Held by whoever reads a message that has ended, to write it back with other attachments."""
        self._timer: Timer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        """Make the folder. Raises OSError."""
        await self._in_thread(self._files.prepare)
        self._left_over = await self._store.read(read_unused_files())

    def start(self) -> None:
        """Delete what nothing came of, and whatever is due from now on."""
        self._spawn(self._tidy())

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._files.stop()
        await asyncio.to_thread(self._threads.shutdown)

    # Taking

    async def take(self, file: AgentFile) -> Taken:
        """Copy a file. Raises FileRefusedError, or StoreError when not even that could be noted."""
        if file.path is None:
            raise FileRefusedError(Refusal.FAILED)
        shown = sendable(safe_name(file.name))
        async with self._copying:
            name = AttachmentId(f"att_{self._ids.token()}")
            room = self._quota_bytes - await self._store.read(read_file_bytes())
            await self._store.transact(reserve_file(name))
            adopt = partial(self._files.adopt, file.path, name, shown, room, spooled=file.spooled)
            try:
                stored = await self._in_thread(adopt)
            except FileRefusedError as failure:
                self._metrics.attachments["refused"] += 1
                log.warning("attachment.refused", extra={"reason": failure.reason.value})
                with contextlib.suppress(StoreError):
                    await self._store.transact(file_is_gone(name))
                raise
            taken = Taken(name, shown, stored)
            try:
                await self._store.transact(file_is_made(name, stored.size, stored.seal))
            except StoreError:
                await self.drop([taken])
                raise
        return taken

    async def drop(self, taken: Sequence[Taken]) -> None:
        """Nothing came of these copies."""
        for each in taken:
            await self._delete(each.attachment_id, each.file.seal)

    def attached(self, message: Message, taken: Sequence[Taken]) -> tuple[Message, Change]:
        """The message with these files, and what is to be stored and told of them behind the message itself."""
        new = [self._described(message, each) for each in taken]
        writes = tuple(save_attachment(item, each.file.seal) for item, each in zip(new, taken, strict=True))
        events = tuple(
            partial(AttachmentCreated, conversation_id=message.conversation_id, attachment=item) for item in new
        )
        return attrs.evolve(message, attachments=(*message.attachments, *new)), Change(events, writes)

    def _described(self, message: Message, taken: Taken) -> Attachment:
        now, file = self._clock.now_ms(), taken.file
        inline = file.image is not None and file.media_type in INLINE_IMAGES
        return Attachment(
            attachment_id=taken.attachment_id,
            conversation_id=message.conversation_id,
            message_id=message.message_id,
            file_name=taken.file_name,
            media_type=file.media_type,
            size=Count(file.size),
            sha256=file.sha256,
            inline_image=inline,
            image=None if file.image is None else ImageSize(width=Count(file.image[0]), height=Count(file.image[1])),
            status=AttachmentState.AVAILABLE,
            created_at=Time(now),
            expires_at=Time(now + self._retention_ms),
            path=f"v1/attachments/{taken.attachment_id}",
        )

    # For clients

    async def get(self, attachment_id: AttachmentId) -> Attachment:
        """What an attachment is. Raises RequestError not_found."""
        await self._sequencer.settled()
        kept = await self._store.read(read_attachment(attachment_id))
        if kept is None:
            raise RequestError(ErrorCode.NOT_FOUND, "There is no such attachment.")
        return kept.attachment

    async def open(self, attachment_id: str) -> OpenedFile:
        """An attachment with its bytes. Raises RequestError not_found, expired."""
        kept = None
        if attachment_id.startswith("att_") and is_id(attachment_id):
            kept = await self._store.read(read_attachment(AttachmentId(attachment_id)))
        if kept is None:
            raise RequestError(ErrorCode.NOT_FOUND, "There is no such attachment.")
        found = kept.attachment
        if found.status is AttachmentState.EXPIRED or found.expires_at <= self._clock.now_ms():
            raise RequestError(ErrorCode.EXPIRED, "The file has expired.")
        file = await self._in_thread(partial(self._files.open, found.attachment_id, kept.seal))
        if file is None:
            log.error(
                "attachment.not_the_copy: it is missing, or is not the one that was made",
                extra={"attachment_id": attachment_id},
            )
            raise RequestError(ErrorCode.EXPIRED, "The file has expired.")
        return OpenedFile(found, file)

    # Letting go

    def conversation_deleted(self) -> None:
        """Some files belong to nothing now."""
        self._spawn(self._delete_those_of_deleted())

    async def _tidy(self) -> None:
        for name, seal in self._left_over:
            await self._delete(name, seal)
        await self._expire()

    async def _delete_those_of_deleted(self) -> None:
        try:
            unused = await self._store.read(read_unused_files(deleted=True))
        except Exception as failure:
            log.warning("attachments.not_deleted: the next start tries again", exc_info=failure)
            return
        for name, seal in unused:
            await self._delete(name, seal)

    async def _delete(self, name: AttachmentId, seal: str) -> bool:
        """Delete a copy and forget it; whether that is done. If not, a later look or the next start tries again."""
        try:
            await self._in_thread(partial(self._files.remove, name, seal))
            await self._store.transact(file_is_gone(name))
        except (OSError, StoreError) as failure:
            log.warning("attachment.not_deleted", extra={"attachment_id": name}, exc_info=failure)
            return False
        log.info("attachment.deleted", extra={"attachment_id": name})
        return True

    async def _expire(self) -> None:
        """Expire what is due, then wait for the next."""
        delay = LOOK_SECONDS
        try:
            # What was told a moment ago is on its way to the store.
            await self._sequencer.settled()
            stuck = 0
            while due := await self._store.read(read_due_attachments(self._clock.now_ms(), _EXPIRED_AT_ONCE, stuck)):
                for kept in due:
                    stuck += not await self._let_go(kept.attachment, kept.seal)
            now = self._clock.now_ms()
            following = await self._store.read(read_next_expiry(now))
            if following is not None:
                delay = min(delay, (following - now) / 1_000)
        except Exception as failure:
            log.warning("attachments.not_expired: will be tried again", exc_info=failure)
            delay = RETRY_SECONDS
        self._timer = self._clock.call_later(delay, lambda: self._spawn(self._expire()))

    async def _let_go(self, attachment: Attachment, seal: str) -> bool:
        """Tell that a file is gone, then delete it; whoever is reading it reads on. False: it is still there."""
        if attachment.status is not AttachmentState.EXPIRED:
            status = ATTACHMENT.next(attachment.status, AttachmentEvent.EXPIRE)
            attachment = attrs.evolve(attachment, status=status)
            async with self.changing:
                change = await self._shown_as(attachment)
                if self._conversations.is_going(attachment.conversation_id):
                    # It goes with its conversation, of which nothing more is told.
                    return False
                event = partial(AttachmentExpired, conversation_id=attachment.conversation_id, attachment=attachment)
                await self._sequencer.log(change + Change((event,), (save_attachment(attachment, seal),)))
        return await self._delete(attachment.attachment_id, seal)

    async def _shown_as(self, attachment: Attachment) -> Change:
        message = await self._messages.find(attachment.message_id)
        if message is None:
            return Change()
        same = [attachment if each.attachment_id == attachment.attachment_id else each for each in message.attachments]
        return self._messages.updated(attrs.evolve(message, attachments=tuple(same)))

    # Inside

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
