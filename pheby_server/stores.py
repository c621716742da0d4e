"""Files and SQLite: the one database of a server, opened by one process, used by one thread.

The store runs statements; everything that is ever said to SQLite stands below it as functions that make one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import attrs

from pheby_protocol.codec import decode_object, encode_object
from pheby_protocol.ids import (
    ApprovalId,
    AttachmentId,
    ClarificationId,
    ClientConversationId,
    ConversationId,
    MessageId,
    Position,
    RunId,
    Seq,
    Time,
)
from pheby_protocol.limits import MAX_INTEGER
from pheby_protocol.messages.approval import Approval, PromptStatus
from pheby_protocol.messages.attachment import Attachment
from pheby_protocol.messages.clarification import Clarification
from pheby_protocol.messages.conversation import Conversation
from pheby_protocol.messages.message import Message, MessageRole, Receipt
from pheby_protocol.messages.run import Run
from pheby_protocol.messages.tool import ToolCall
from pheby_protocol.states import MessageState, ReceiptState

from .logs import log_of
from .ports import Unavailable

T = TypeVar("T")

Statement = Callable[[sqlite3.Connection], T]
"""Something to do with the database, on the store's thread."""
Write = Statement[object]

log = log_of(__name__)

_MIGRATIONS: Final = (
    """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (seq INTEGER PRIMARY KEY, conversation_id TEXT NOT NULL, frame TEXT NOT NULL);
CREATE INDEX events_of_conversation ON events (conversation_id);
CREATE TABLE conversations (
  conversation_id TEXT PRIMARY KEY, client_conversation_id TEXT UNIQUE, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE messages (
  message_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, position INTEGER, role TEXT NOT NULL, run_id TEXT,
  ended INTEGER NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX messages_by_position ON messages (conversation_id, position);
CREATE INDEX messages_open ON messages (ended) WHERE ended = 0;
CREATE TABLE tool_calls (
  tool_call_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, position INTEGER NOT NULL, ended INTEGER NOT NULL,
  body TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX tool_calls_by_position ON tool_calls (conversation_id, position);
CREATE INDEX tool_calls_open ON tool_calls (ended) WHERE ended = 0;
CREATE TABLE approvals (
  approval_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, position INTEGER NOT NULL, ended INTEGER NOT NULL,
  body TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX approvals_by_position ON approvals (conversation_id, position);
CREATE INDEX approvals_open ON approvals (ended) WHERE ended = 0;
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, ended INTEGER NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_of_conversation ON runs (conversation_id);
CREATE INDEX runs_open ON runs (ended) WHERE ended = 0;
CREATE TABLE receipts (
  client_message_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, content_digest TEXT NOT NULL, text TEXT,
  created_at INTEGER NOT NULL, open INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE INDEX receipts_open ON receipts (open) WHERE open = 1;
CREATE TABLE bindings (
  conversation_id TEXT NOT NULL, row_key TEXT NOT NULL, message_id TEXT NOT NULL, PRIMARY KEY (conversation_id, row_key)
) WITHOUT ROWID;
CREATE INDEX bindings_of_message ON bindings (message_id);
""",
    """
CREATE TABLE clarifications (
  clarification_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, position INTEGER NOT NULL, ended INTEGER NOT NULL,
  body TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX clarifications_by_position ON clarifications (conversation_id, position);
CREATE INDEX clarifications_open ON clarifications (ended) WHERE ended = 0;
ALTER TABLE runs ADD COLUMN anchor INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_by_anchor ON runs (conversation_id, anchor);
ALTER TABLE events ADD COLUMN time INTEGER NOT NULL DEFAULT 0;
CREATE TABLE tombstones (
  conversation_id TEXT PRIMARY KEY, client_conversation_id TEXT, forgotten INTEGER NOT NULL
) WITHOUT ROWID;
""",
    """
CREATE TABLE attachments (
  attachment_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, expires_at INTEGER NOT NULL, size INTEGER NOT NULL,
  has_file INTEGER NOT NULL, seal TEXT NOT NULL, body TEXT
) WITHOUT ROWID;
CREATE INDEX attachments_of_conversation ON attachments (conversation_id);
CREATE INDEX attachments_by_expiry ON attachments (expires_at) WHERE has_file = 1;
CREATE TABLE notes (message_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, given_with TEXT);
CREATE INDEX notes_of_conversation ON notes (conversation_id);
""",
    """
CREATE INDEX events_by_time ON events (time);
""",
)
"""From each version of the schema to the next one; a new database walks the whole way. Never changed, only added to."""
SCHEMA_VERSION: Final = len(_MIGRATIONS)


_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
"""What may be over when it is tried again."""


_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class StoreError(Exception):
    """The store cannot be used. The text names no path."""


class StoreInUseError(StoreError):
    """Another process has the store open."""


class StoreUnavailableError(StoreError, Unavailable):
    """The database cannot be written now: the disk is full, or something else holds it. Later it may be possible."""


class StoreDamagedError(StoreError):
    """The database is damaged. Closing the store puts it aside."""


class Store:
    """`pheby.db` in a private folder. Every use runs on the store's one thread, in its own transaction."""

    def __init__(self, folder: str, now_ms: Callable[[], int]) -> None:
        self._folder = Path(folder)
        self._path = self._folder / "pheby.db"
        self._now_ms = now_ms
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pheby-store")
        self._database: sqlite3.Connection | None = None
        self._lock_file: int | None = None
        self._is_damaged = False
        self.on_damaged: Callable[[], None] = lambda: None
        """Called whenever the database is found damaged."""

    async def open(self) -> None:
        """Open the database, making it if absent. A damaged file is put aside, never deleted. Raises StoreError."""
        await self._in_thread(self._open)

    async def close(self) -> None:
        """Close the database after everything asked for before; one that was found damaged is put aside."""
        await self._in_thread(self._close)
        self._thread.shutdown(wait=True)

    def abandon(self) -> None:
        """Close it behind everything asked for before, also where nobody waits for that any more."""
        with contextlib.suppress(RuntimeError):
            self._thread.submit(self._close)
            self._thread.shutdown(wait=False)

    async def transact(self, work: Statement[T], *, durable: bool = False) -> T:
        """Run work in one transaction. Durable: it also survives a power cut, not only the death of the process."""

        def run() -> T:
            database = self._opened()
            database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            database.execute("BEGIN IMMEDIATE")
            try:
                result = work(database)
                database.execute("COMMIT")
            except BaseException:
                # SQLite may have rolled back by itself, and a COMMIT that failed may have left everything open.
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            return result

        return await self._use(run)

    async def read(self, work: Statement[T]) -> T:
        """Run work that only reads."""
        return await self._use(lambda: work(self._opened()))

    async def _use(self, work: Callable[[], T]) -> T:
        try:
            return await self._in_thread(work)
        except sqlite3.DatabaseError as failure:
            kind = getattr(failure, "sqlite_errorcode", 0) & 0xFF
            if kind in _PASSING:
                raise StoreUnavailableError("the database cannot be used now") from failure
            if kind in _DAMAGED:
                self._is_damaged = True
                self.on_damaged()
                raise StoreDamagedError("the database is damaged") from failure
            raise

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            raise StoreError("the store is not open")
        return self._database

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        self._lock()
        try:
            try:
                self._database = _connect(self._path)
            except sqlite3.DatabaseError as failure:
                if isinstance(failure, sqlite3.OperationalError):
                    raise
                self._put_aside()
                self._database = _connect(self._path)
        except BaseException as failure:
            self._unlock()
            if isinstance(failure, sqlite3.Error):
                raise StoreError("the database cannot be opened") from failure
            raise

    def _put_aside(self) -> None:
        log.error("store.put_aside: the database was damaged, the next one is new")
        path, mark = self._path, self._now_ms()
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(path.with_name(f"{path.name}.damaged-{mark}{suffix}"))

    def _lock(self) -> None:
        lock = os.open(self._folder / "pheby.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise StoreInUseError("another process uses this storage folder") from None
        self._lock_file = lock

    def _unlock(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._is_damaged:
            # Here, since the next start may not notice: what it reads first may be whole.
            self._put_aside()
        self._unlock()


def _connect(path: Path) -> sqlite3.Connection:
    # Made by hand first: SQLite would give it the process's default permissions.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA busy_timeout = 2000")
        database.execute("PRAGMA foreign_keys = ON")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreError("the store was written by a newer Pheby")
        for number, migration in enumerate(_MIGRATIONS[version:], version + 1):
            database.executescript(f"BEGIN; {migration} PRAGMA user_version = {number}; COMMIT;")
        if database.execute("SELECT 1 FROM meta WHERE key = 'in_use'").fetchone() is not None:
            # It was not closed: look at every page once.
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError("damaged pages")
        return database
    except BaseException:
        database.close()
        raise


def all_of(*writes: Write) -> Write:
    """Several writes as one."""

    def write_all(database: sqlite3.Connection) -> None:
        for write in writes:
            write(database)

    return write_all


# The log


@attrs.frozen
class LoggedFrame:
    """An event as it is sent, with its place. Time in milliseconds since 1970 UTC."""

    seq: Seq
    time: Time
    conversation_id: str
    frame: str


@attrs.frozen
class LogState:
    """What is known of the log. Events above `floor` are all there; the next one is above `head`."""

    epoch: str
    floor: int
    head: int
    started_at: int


def open_log(new_epoch: str, now_ms: int, boot_id: str) -> Statement[LogState]:
    """The state of the log, which is in use from now on.

    A new store gets the epoch that is offered, and so does one that a power cut may have robbed of its last commits:
    numbers that clients have seen would be given a second time.
    """

    def read(database: sqlite3.Connection) -> LogState:
        database.execute(
            "INSERT OR IGNORE INTO meta VALUES ('epoch', ?), ('started_at', ?), ('pruned_to', '0')",
            (new_epoch, now_ms),
        )
        meta = dict(database.execute("SELECT key, value FROM meta").fetchall())
        newest = database.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
        head = max(newest, int(meta["pruned_to"]))
        in_use_by = meta.get("in_use")
        if in_use_by is not None and in_use_by != boot_id:
            log.warning("log.new_epoch: the machine went down while the log was in use")
            meta["epoch"], meta["pruned_to"] = new_epoch, str(head)
            database.execute("DELETE FROM events")
            _set_meta(database, epoch=new_epoch, pruned_to=head)
        _set_meta(database, in_use=boot_id)
        return LogState(meta["epoch"], int(meta["pruned_to"]), head, int(meta["started_at"]))

    return read


def boot_id() -> str:
    """Names this start of the machine; "" where the system does not say, and no power cut is ever suspected."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def close_log() -> Write:
    """The log is not in use any more."""
    return lambda database: database.execute("DELETE FROM meta WHERE key = 'in_use'")


def _set_meta(database: sqlite3.Connection, **values: object) -> None:
    rows = [(key, str(value)) for key, value in values.items()]
    database.executemany("INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", rows)


def append_events(frames: Iterable[LoggedFrame]) -> Write:
    rows = [(entry.seq, entry.conversation_id, entry.frame, entry.time) for entry in frames]
    return lambda database: database.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)


def read_events(after: int, max_bytes: int) -> Statement[list[tuple[Seq, str]] | None]:
    """Events behind a cursor, as many as the bytes allow, at least one; None when some of them are gone already."""

    def read(database: sqlite3.Connection) -> list[tuple[Seq, str]] | None:
        floor = database.execute("SELECT value FROM meta WHERE key = 'pruned_to'").fetchone()[0]
        if after < int(floor):
            return None
        found: list[tuple[Seq, str]] = []
        room = max_bytes
        for seq, frame in database.execute("SELECT seq, frame FROM events WHERE seq > ? ORDER BY seq", (after,)):
            room -= len(frame.encode())
            if found and room < 0:
                break
            found.append((Seq(seq), frame))
        return found

    return read


def prune_events(keep: int, older_than: int, floor_is: Callable[[int], None]) -> Write:
    """Forget events beyond the number to keep, and those from before a time; `floor_is` hears the log's new floor."""

    def prune(database: sqlite3.Connection) -> None:
        # Only indexes and what will be forgotten are read: a full log's frames are hundreds of megabytes.
        surplus = database.execute("SELECT count(*) FROM events").fetchone()[0] - keep
        beyond = database.execute(
            "SELECT max(seq) FROM (SELECT seq FROM events ORDER BY seq LIMIT ?)", (max(0, surplus),)
        ).fetchone()
        # Times may jump back; the newest of the old ones is what counts. The sign keeps SQLite from going by seq.
        old = database.execute("SELECT max(+seq) FROM events WHERE time < ?", (older_than,)).fetchone()
        floor = int(database.execute("SELECT value FROM meta WHERE key = 'pruned_to'").fetchone()[0])
        new = max(floor, beyond[0] or 0, old[0] or 0)
        if new > floor:
            database.execute("DELETE FROM events WHERE seq <= ?", (new,))
            _set_meta(database, pruned_to=new)
        floor_is(new)

    return prune


# Conversations


def read_conversations() -> Statement[list[Conversation]]:
    def read(database: sqlite3.Connection) -> list[Conversation]:
        rows = database.execute("SELECT body FROM conversations").fetchall()
        return [decode_object(body, Conversation) for (body,) in rows]

    return read


def save_conversation(conversation: Conversation) -> Write:
    row = (conversation.conversation_id, conversation.client_conversation_id, encode_object(conversation))
    return lambda database: database.execute(
        "INSERT INTO conversations VALUES (?, ?, ?) ON CONFLICT (conversation_id) DO UPDATE SET body = excluded.body",
        row,
    )


@attrs.frozen
class Tombstone:
    """A conversation that was deleted; `forgotten`: by Hermes, too."""

    conversation_id: ConversationId
    client_conversation_id: ClientConversationId | None
    forgotten: bool


def read_tombstones() -> Statement[list[Tombstone]]:
    def read(database: sqlite3.Connection) -> list[Tombstone]:
        rows = database.execute("SELECT conversation_id, client_conversation_id, forgotten FROM tombstones").fetchall()
        return [Tombstone(name, client_id, bool(forgotten)) for name, client_id, forgotten in rows]

    return read


def save_tombstone(tombstone: Tombstone) -> Write:
    row = (tombstone.conversation_id, tombstone.client_conversation_id, tombstone.forgotten)
    return lambda database: database.execute(
        "INSERT INTO tombstones VALUES (?, ?, ?)"
        " ON CONFLICT (conversation_id) DO UPDATE SET forgotten = excluded.forgotten",
        row,
    )


def delete_conversation(conversation_id: ConversationId) -> Write:
    """Everything that is stored of a conversation."""

    def delete(database: sqlite3.Connection) -> None:
        for table in (*_ID, "events", "runs", "receipts", "bindings", "notes", "conversations"):
            database.execute(f"DELETE FROM {table} WHERE conversation_id = ?", (conversation_id,))  # noqa: S608
        # What is left of an attachment is the name of a file that is to be deleted.
        database.execute("DELETE FROM attachments WHERE conversation_id = ? AND has_file = 0", (conversation_id,))
        database.execute("UPDATE attachments SET body = NULL WHERE conversation_id = ?", (conversation_id,))

    return delete


# Messages


def read_last_positions() -> Statement[dict[ConversationId, int]]:
    """The position of the last item of each conversation that has one."""

    def read(database: sqlite3.Connection) -> dict[ConversationId, int]:
        return dict(
            database.execute(
                f"SELECT conversation_id, max(position) FROM ({_POSITIONS}) WHERE position > 0 GROUP BY conversation_id"  # noqa: S608 - tables named here
            ).fetchall()
        )

    return read


def read_open_messages() -> Statement[list[Message]]:
    """Messages that stream or wait."""

    def read(database: sqlite3.Connection) -> list[Message]:
        rows = database.execute("SELECT body FROM messages WHERE ended = 0").fetchall()
        return [decode_object(body, Message) for (body,) in rows]

    return read


def read_message(message_id: MessageId) -> Statement[Message | None]:
    def read(database: sqlite3.Connection) -> Message | None:
        row = database.execute("SELECT body FROM messages WHERE message_id = ?", (message_id,)).fetchone()
        return None if row is None else decode_object(row[0], Message)

    return read


Item = Message | ToolCall | Approval | Clarification
_ITEMS: Final[tuple[tuple[str, type[Item]], ...]] = (
    ("messages", Message),
    ("tool_calls", ToolCall),
    ("approvals", Approval),
    ("clarifications", Clarification),
)
"""What a history consists of, with its tables."""
_ID: Final = {
    "messages": "message_id",
    "tool_calls": "tool_call_id",
    "approvals": "approval_id",
    "clarifications": "clarification_id",
}
_POSITIONS: Final = " UNION ALL ".join(f"SELECT conversation_id, position FROM {table}" for table, _ in _ITEMS)  # noqa: S608


def read_items(
    conversation_id: ConversationId, size: int, before: int | None, after: int | None
) -> Statement[list[Item]]:
    """Items from a position on, the nearest first: forward after it, else backward from before it or the end."""
    forward = after is not None
    low, high = (after, MAX_INTEGER) if after is not None else (-1, MAX_INTEGER if before is None else before)
    one = "SELECT {kind}, position, body FROM {table} WHERE conversation_id = ? AND position > ? AND position < ?"
    both = " UNION ALL ".join(one.format(kind=number, table=table) for number, (table, _) in enumerate(_ITEMS))
    statement = f"{both} ORDER BY position {'ASC' if forward else 'DESC'} LIMIT ?"

    def read(database: sqlite3.Connection) -> list[Item]:
        rows = database.execute(statement, (conversation_id, low, high) * len(_ITEMS) + (size,)).fetchall()
        return [decode_object(body, _ITEMS[kind][1]) for kind, _, body in rows]

    return read


def save_message(message: Message) -> Write:
    row = (
        message.message_id,
        message.conversation_id,
        message.position,
        message.role,
        message.run_id,
        message.status not in (MessageState.STREAMING, MessageState.QUEUED),
        encode_object(message),
    )
    return lambda database: database.execute(
        "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (message_id) DO UPDATE SET"
        " position = excluded.position, run_id = excluded.run_id, ended = excluded.ended, body = excluded.body",
        row,
    )


# Tool calls, approvals and clarifications


def read_open_tool_calls() -> Statement[list[ToolCall]]:
    """Tool calls that have not ended."""
    return _read_open("tool_calls", ToolCall)


def save_tool_call(call: ToolCall) -> Write:
    ended = call.ended_at is not None
    return _save("tool_calls", call.tool_call_id, call.conversation_id, call.position, ended, call)


def read_approval(approval_id: ApprovalId) -> Statement[Approval | None]:
    return _read_one("approvals", approval_id, Approval)


def read_open_approvals() -> Statement[list[Approval]]:
    """Approvals that nobody has decided."""
    return _read_open("approvals", Approval)


def save_approval(approval: Approval) -> Write:
    ended = approval.status is not PromptStatus.PENDING
    return _save("approvals", approval.approval_id, approval.conversation_id, approval.position, ended, approval)


def read_clarification(clarification_id: ClarificationId) -> Statement[Clarification | None]:
    return _read_one("clarifications", clarification_id, Clarification)


def read_open_clarifications() -> Statement[list[Clarification]]:
    """Clarifications that nobody has answered."""
    return _read_open("clarifications", Clarification)


def save_clarification(asked: Clarification) -> Write:
    ended = asked.status is not PromptStatus.PENDING
    return _save("clarifications", asked.clarification_id, asked.conversation_id, asked.position, ended, asked)


def _read_one(table: str, item_id: str, cls: type[T]) -> Statement[T | None]:
    def read(database: sqlite3.Connection) -> T | None:
        row = database.execute(f"SELECT body FROM {table} WHERE {_ID[table]} = ?", (item_id,)).fetchone()  # noqa: S608
        return None if row is None else decode_object(row[0], cls)

    return read


def _read_open(table: str, cls: type[T]) -> Statement[list[T]]:
    def read(database: sqlite3.Connection) -> list[T]:
        rows = database.execute(f"SELECT body FROM {table} WHERE ended = 0 ORDER BY position").fetchall()  # noqa: S608
        return [decode_object(body, cls) for (body,) in rows]

    return read


def _save(
    table: str, item_id: str, conversation_id: ConversationId, position: Position, ended: bool, item: object
) -> Write:
    row = (item_id, conversation_id, position, ended, encode_object(item))
    return lambda database: database.execute(
        f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)"  # noqa: S608
        f" ON CONFLICT ({_ID[table]}) DO UPDATE SET ended = excluded.ended, body = excluded.body",
        row,
    )


# Which message is which of Hermes's rows


@attrs.frozen
class KnownHistory:
    """Where a conversation's items stand by id, which row each message is, and those that are no row yet, in order."""

    positions: dict[str, int]
    bindings: dict[str, MessageId]
    unbound: list[Message]


def read_known_history(conversation_id: ConversationId) -> Statement[KnownHistory]:
    def read(database: sqlite3.Connection) -> KnownHistory:
        positions = database.execute(
            "SELECT message_id, position FROM messages WHERE conversation_id = ? AND position > 0 AND ended = 1"
            " UNION ALL SELECT tool_call_id, position FROM tool_calls WHERE conversation_id = ?"
            " UNION ALL SELECT approval_id, position FROM approvals WHERE conversation_id = ?"
            " UNION ALL SELECT clarification_id, position FROM clarifications WHERE conversation_id = ?",
            (conversation_id,) * 4,
        ).fetchall()
        bindings = database.execute(
            "SELECT row_key, message_id FROM bindings WHERE conversation_id = ?", (conversation_id,)
        ).fetchall()
        unbound = database.execute(
            "SELECT body FROM messages m WHERE conversation_id = ? AND position > 0 AND ended = 1 AND role != ?"
            " AND NOT EXISTS (SELECT 1 FROM bindings b WHERE b.message_id = m.message_id) ORDER BY position",
            (conversation_id, MessageRole.NOTICE),
        ).fetchall()
        messages = [decode_object(body, Message) for (body,) in unbound]
        # One without a text holds files alone, which Hermes stores as no message.
        return KnownHistory(dict(positions), dict(bindings), [message for message in messages if message.text])

    return read


def bind_row(conversation_id: ConversationId, row_key: str, message_id: MessageId) -> Write:
    row = (conversation_id, row_key, message_id)
    return lambda database: database.execute("INSERT OR REPLACE INTO bindings VALUES (?, ?, ?)", row)


# Runs


def read_runs(run_ids: Iterable[RunId]) -> Statement[list[Run]]:
    """These runs, as far as they exist, each once, in the order of the ids."""
    wanted = list(dict.fromkeys(run_ids))

    def read(database: sqlite3.Connection) -> list[Run]:
        marks = ",".join("?" * len(wanted))
        rows = database.execute(f"SELECT run_id, body FROM runs WHERE run_id IN ({marks})", wanted)  # noqa: S608
        found = {run_id: decode_object(body, Run) for run_id, body in rows}
        return [found[run_id] for run_id in wanted if run_id in found]

    return read


def read_page_runs(
    conversation_id: ConversationId, run_ids: Iterable[RunId], low: int, high: int, more: int
) -> Statement[list[Run]]:
    """The runs of a page: those that its items name, and the newest others that began between the positions."""
    named = read_runs(run_ids)

    def read(database: sqlite3.Connection) -> list[Run]:
        runs = {run.run_id: run for run in named(database)}
        rows = database.execute(
            "SELECT body FROM runs WHERE conversation_id = ? AND anchor BETWEEN ? AND ?", (conversation_id, low, high)
        )
        others = [run for run in (decode_object(body, Run) for (body,) in rows) if run.run_id not in runs]
        others.sort(key=lambda run: (run.created_at, run.run_id))
        return [*runs.values(), *others[-more:]]

    return read


def read_open_runs() -> Statement[list[Run]]:
    """Runs that have not ended, oldest first."""

    def read(database: sqlite3.Connection) -> list[Run]:
        rows = database.execute("SELECT body FROM runs WHERE ended = 0").fetchall()
        return sorted((decode_object(body, Run) for (body,) in rows), key=lambda run: run.created_at)

    return read


def save_run(run: Run) -> Write:
    row = (run.run_id, run.conversation_id, run.ended_at is not None, encode_object(run))
    return lambda database: database.execute(
        "INSERT INTO runs SELECT ?1, ?2, ?3, ?4, coalesce(max(position), 0) FROM messages"
        " WHERE conversation_id = ?2"
        " ON CONFLICT (run_id) DO UPDATE SET ended = excluded.ended, body = excluded.body",
        row,
    )


# Receipts


@attrs.frozen
class StoredSend:
    """A send that had not come to an end, as it was stored."""

    receipt: Receipt
    digest: str
    text: str
    created_at: Time
    message: Message | None


def read_receipts() -> Statement[list[tuple[str, Receipt]]]:
    """Content digest and receipt of every send."""

    def read(database: sqlite3.Connection) -> list[tuple[str, Receipt]]:
        rows = database.execute("SELECT content_digest, body FROM receipts").fetchall()
        return [(digest, decode_object(body, Receipt)) for digest, body in rows]

    return read


def read_open_sends() -> Statement[list[StoredSend]]:
    """Sends that had not come to an end, in the order of their admission."""

    def read(database: sqlite3.Connection) -> list[StoredSend]:
        rows = database.execute(
            "SELECT body, content_digest, text, created_at FROM receipts WHERE open = 1 ORDER BY rowid"
        ).fetchall()
        sends = []
        for body, digest, text, created_at in rows:
            receipt = decode_object(body, Receipt)
            message = read_message(receipt.message_id)(database)
            sends.append(StoredSend(receipt, digest, text or "", Time(created_at), message))
        return sends

    return read


def admit_send(receipt: Receipt, digest: str, text: str, created_at: Time) -> Write:
    row = (receipt.client_message_id, receipt.conversation_id, digest, text, created_at, encode_object(receipt))
    return lambda database: database.execute("INSERT INTO receipts VALUES (?, ?, ?, ?, ?, 1, ?)", row)


def update_receipt(receipt: Receipt) -> Write:
    """How far a send has come; its text is kept only until it has come to an end."""
    is_open = receipt.state in (ReceiptState.ADMITTED, ReceiptState.DISPATCHED)
    row = (encode_object(receipt), is_open, is_open, receipt.client_message_id)
    return lambda database: database.execute(
        "UPDATE receipts SET body = ?, open = ?, text = CASE WHEN ? THEN text END WHERE client_message_id = ?", row
    )


# Attachments


@attrs.frozen
class KeptAttachment:
    """An attachment with what recognises its file, which is there or not any more."""

    attachment: Attachment
    seal: str
    has_file: bool


def reserve_file(name: AttachmentId) -> Write:
    """Note a file before it is made, so that one which nothing came of is known as ours."""
    return lambda database: database.execute("INSERT INTO attachments VALUES (?, '', 0, 0, 1, '', NULL)", (name,))


def file_is_made(name: AttachmentId, size: int, seal: str) -> Write:
    """A file that was noted is there; what it belongs to is not stored yet."""
    row = (size, seal, name)
    return lambda database: database.execute("UPDATE attachments SET size = ?, seal = ? WHERE attachment_id = ?", row)


def save_attachment(attachment: Attachment, seal: str) -> Write:
    row = (
        attachment.conversation_id,
        attachment.expires_at,
        attachment.size,
        seal,
        encode_object(attachment),
        attachment.attachment_id,
    )
    return lambda database: database.execute(
        "UPDATE attachments SET conversation_id = ?, expires_at = ?, size = ?, seal = ?, body = ?"
        " WHERE attachment_id = ?",
        row,
    )


def file_is_gone(name: AttachmentId) -> Write:
    """The file was deleted; where it belongs to nothing, its name is forgotten."""

    def write(database: sqlite3.Connection) -> None:
        database.execute("DELETE FROM attachments WHERE attachment_id = ? AND body IS NULL", (name,))
        database.execute("UPDATE attachments SET has_file = 0 WHERE attachment_id = ?", (name,))

    return write


def read_attachment(attachment_id: AttachmentId) -> Statement[KeptAttachment | None]:
    def read(database: sqlite3.Connection) -> KeptAttachment | None:
        row = database.execute(
            "SELECT body, seal, has_file FROM attachments WHERE attachment_id = ? AND body IS NOT NULL",
            (attachment_id,),
        ).fetchone()
        return None if row is None else KeptAttachment(decode_object(row[0], Attachment), row[1], bool(row[2]))

    return read


def read_due_attachments(now_ms: int, size: int, skip: int) -> Statement[list[KeptAttachment]]:
    """Attachments whose time is over and whose files are still there, the oldest first, behind so many others."""

    def read(database: sqlite3.Connection) -> list[KeptAttachment]:
        rows = database.execute(
            "SELECT body, seal FROM attachments WHERE has_file = 1 AND body IS NOT NULL AND expires_at <= ?"
            " ORDER BY expires_at, attachment_id LIMIT ? OFFSET ?",
            (now_ms, size, skip),
        ).fetchall()
        return [KeptAttachment(decode_object(body, Attachment), seal, True) for body, seal in rows]

    return read


def read_next_expiry(now_ms: int) -> Statement[int | None]:
    """When the next one is due, of those that are not yet."""

    def read(database: sqlite3.Connection) -> int | None:
        found: int | None = database.execute(
            "SELECT min(expires_at) FROM attachments WHERE has_file = 1 AND body IS NOT NULL AND expires_at > ?",
            (now_ms,),
        ).fetchone()[0]
        return found

    return read


def read_unused_files(*, deleted: bool = False) -> Statement[list[tuple[AttachmentId, str]]]:
    """Files that belong to nothing, with their seals; `deleted`: only those that once belonged to a conversation."""
    once = " AND conversation_id != ''" if deleted else ""
    statement = f"SELECT attachment_id, seal FROM attachments WHERE has_file = 1 AND body IS NULL{once}"  # noqa: S608

    def read(database: sqlite3.Connection) -> list[tuple[AttachmentId, str]]:
        return [(AttachmentId(name), seal) for name, seal in database.execute(statement).fetchall()]

    return read


def read_file_bytes() -> Statement[int]:
    """The bytes of all files together."""

    def read(database: sqlite3.Connection) -> int:
        return int(database.execute("SELECT coalesce(sum(size), 0) FROM attachments WHERE has_file = 1").fetchone()[0])

    return read


# What the agent does not know yet


def add_note(message: Message) -> Write:
    row = (message.message_id, message.conversation_id)
    return lambda database: database.execute("INSERT OR IGNORE INTO notes VALUES (?, ?, NULL)", row)


def give_notes(notes: Iterable[MessageId], given_with: MessageId) -> Write:
    """The agent is about to get these together with a message of the owner."""
    rows = [(given_with, note) for note in notes]
    return lambda database: database.executemany("UPDATE notes SET given_with = ? WHERE message_id = ?", rows)


def forget_older_notes(conversation_id: ConversationId, keep: int) -> Write:
    """All but the newest ones of a conversation."""
    row = (conversation_id, conversation_id, keep)
    return lambda database: database.execute(
        "DELETE FROM notes WHERE conversation_id = ? AND message_id NOT IN (SELECT n.message_id FROM notes n"
        " JOIN messages m ON m.message_id = n.message_id WHERE n.conversation_id = ? ORDER BY m.position DESC LIMIT ?)",
        row,
    )


def forget_notes(notes: Iterable[MessageId]) -> Write:
    rows = [(note,) for note in notes]
    return lambda database: database.executemany("DELETE FROM notes WHERE message_id = ?", rows)


def notes_were_read(given_with: MessageId) -> Write:
    """The agent has got what it was given together with this message."""
    return lambda database: database.execute("DELETE FROM notes WHERE given_with = ?", (given_with,))


def read_notes(conversation_id: ConversationId, size: int) -> Statement[list[Message]]:
    """The newest messages that the agent does not know yet, oldest first."""

    def read(database: sqlite3.Connection) -> list[Message]:
        rows = database.execute(
            "SELECT m.body FROM notes n JOIN messages m ON m.message_id = n.message_id WHERE n.conversation_id = ?"
            " ORDER BY m.position DESC LIMIT ?",
            (conversation_id, size),
        ).fetchall()
        return [decode_object(body, Message) for (body,) in reversed(rows)]

    return read
