"""Files and SQLite: the one database of a server, opened by one process, used by one thread."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (seq INTEGER PRIMARY KEY, conversation_id TEXT NOT NULL, frame TEXT NOT NULL);
CREATE INDEX events_of_conversation ON events (conversation_id);
CREATE TABLE conversations (
  conversation_id TEXT PRIMARY KEY, client_conversation_id TEXT UNIQUE, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE messages (
  message_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, position INTEGER, run_id TEXT, ended INTEGER NOT NULL,
  body TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX messages_by_position ON messages (conversation_id, position);
CREATE INDEX messages_open ON messages (ended) WHERE ended = 0;
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
"""


class StoreError(Exception):
    """The store cannot be used. The text names no path."""


class StoreInUseError(StoreError):
    """Another process has the store open."""


class Store:
    """`pheby.db` in a private folder. Every use runs on the store's one thread, in its own transaction."""

    def __init__(self, folder: str, now_ms: Callable[[], int]) -> None:
        self._folder = Path(folder)
        self._now_ms = now_ms
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pheby-store")
        self._database: sqlite3.Connection | None = None
        self._lock_file: int | None = None

    async def open(self) -> None:
        """Open the database, making it if absent. A damaged file is put aside, never deleted. Raises StoreError."""
        await self._in_thread(self._open)

    async def close(self) -> None:
        """Close the database after everything asked for before."""
        await self._in_thread(self._close)
        self._thread.shutdown(wait=True)

    async def transact(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = False) -> T:
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

        return await self._in_thread(run)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work that only reads."""
        return await self._in_thread(lambda: work(self._opened()))

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
            path = self._folder / "pheby.db"
            try:
                self._database = _connect(path)
            except sqlite3.DatabaseError as failure:
                if isinstance(failure, sqlite3.OperationalError):
                    raise
                self._put_aside(path)
                self._database = _connect(path)
        except BaseException as failure:
            self._unlock()
            if isinstance(failure, sqlite3.Error):
                raise StoreError("the database cannot be opened") from failure
            raise

    def _put_aside(self, path: Path) -> None:
        log.error("store.damaged: the database was put aside and a new one is started")
        mark = self._now_ms()
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
        if version == 0:
            database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version > SCHEMA_VERSION:
            raise StoreError("the store was written by a newer Pheby")
        return database
    except BaseException:
        database.close()
        raise
