"""The database: private, locked, put aside when damaged, whole after any failure (R-M4)."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import sys
from pathlib import Path

import pytest

from pheby_server import stores
from pheby_server.stores import SCHEMA_VERSION, Store, StoreError, StoreInUseError


def store_in(folder: Path) -> Store:
    return Store(str(folder), lambda: 1_234)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def put(store: Store, key: str) -> None:
    await store.transact(lambda database: database.execute("INSERT INTO meta VALUES (?, 'x')", (key,)))


async def keys(store: Store) -> list[str]:
    rows = await store.read(lambda database: database.execute("SELECT key FROM meta ORDER BY key").fetchall())
    return [row[0] for row in rows]


async def test_folder_and_files_are_the_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "storage"
    store = store_in(folder)
    await store.open()
    await put(store, "a")
    assert mode(folder) == 0o700
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["pheby.db", "pheby.db-shm", "pheby.db-wal", "pheby.lock"]
    assert {mode(path) for path in folder.iterdir()} == {0o600}
    await store.close()


async def test_loose_permissions_from_before_are_tightened(tmp_path: Path) -> None:
    folder = tmp_path / "storage"
    folder.mkdir(mode=0o755)
    (folder / "pheby.db").touch(mode=0o644)
    store = store_in(folder)
    await store.open()
    assert (mode(folder), mode(folder / "pheby.db")) == (0o700, 0o600)
    await store.close()


async def test_what_was_stored_is_there_after_reopening(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.open()
    await put(store, "a")
    await store.close()
    store = store_in(tmp_path)
    await store.open()
    assert await keys(store) == ["a"]
    await store.close()


async def test_a_second_store_on_the_folder_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    first = store_in(tmp_path)
    await first.open()
    with pytest.raises(StoreInUseError) as caught:
        await store_in(tmp_path).open()
    assert str(tmp_path) not in str(caught.value)
    await put(first, "a")
    await first.close()
    second = store_in(tmp_path)
    await second.open()
    assert await keys(second) == ["a"]
    await second.close()


async def test_another_process_is_refused(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.open()
    script = (
        "import asyncio, sys; from pheby_server.stores import *\n"
        "try: asyncio.run(Store(sys.argv[1], lambda: 1).open())\n"
        "except StoreInUseError: sys.exit(42)\n"
    )
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(tmp_path))
    assert await other.wait() == 42
    await store.close()


async def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.open()

    def half(database: sqlite3.Connection) -> None:
        database.execute("INSERT INTO meta VALUES ('half', 'x')")
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        await store.transact(half)
    assert await keys(store) == []
    await put(store, "next")
    assert await keys(store) == ["next"]
    await store.close()


async def test_a_commit_that_fails_leaves_nothing_and_blocks_nothing(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.open()

    def tables(database: sqlite3.Connection) -> None:
        database.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        database.execute(
            "CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
        )

    await store.transact(tables)
    with pytest.raises(sqlite3.IntegrityError):
        await store.transact(lambda database: database.execute("INSERT INTO child VALUES (1)"))
    await put(store, "next")
    assert await keys(store) == ["next"]
    assert await store.read(lambda database: database.execute("SELECT count(*) FROM child").fetchone()) == (0,)
    await store.close()


async def test_an_error_that_sqlite_rolled_back_by_itself_is_reported_as_it_is(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.open()

    def full(database: sqlite3.Connection) -> None:
        database.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    with pytest.raises(sqlite3.OperationalError, match="disk is full"):
        await store.transact(full)
    await store.close()


@pytest.mark.parametrize("durable", [True, False])
async def test_durable_transactions_are_synced(tmp_path: Path, *, durable: bool) -> None:
    store = store_in(tmp_path)
    await store.open()
    level = await store.transact(lambda database: database.execute("PRAGMA synchronous").fetchone()[0], durable=durable)
    assert level == (2 if durable else 1)
    await store.close()


@pytest.mark.parametrize(
    "content", [b"this is no database" * 100, b"\x00" * 5_000, b"SQLite format 3\x00" + b"\xff" * 999]
)
async def test_a_damaged_file_is_put_aside_and_a_new_one_started(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pheby.db").write_bytes(content)
    store = store_in(tmp_path)
    await store.open()
    await put(store, "a")
    assert await keys(store) == ["a"]
    assert (tmp_path / "pheby.db.damaged-1234").read_bytes() == content
    await store.close()


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "pheby.db")
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.execute("CREATE TABLE future (x)")
    database.commit()
    database.close()
    store = store_in(tmp_path)
    with pytest.raises(StoreError, match="newer"):
        await store.open()
    assert [path.name for path in tmp_path.iterdir() if "damaged" in path.name] == []
    database = sqlite3.connect(tmp_path / "pheby.db")
    assert database.execute("SELECT count(*) FROM future").fetchone() == (0,)
    database.close()


async def test_after_a_refusal_the_folder_is_free_again(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "pheby.db")
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    with pytest.raises(StoreError):
        await store_in(tmp_path).open()
    (tmp_path / "pheby.db").unlink()
    store = store_in(tmp_path)
    await store.open()
    await store.close()


async def test_a_database_that_cannot_be_opened_is_a_store_error_without_a_path_and_the_folder_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError(f"unable to open {path}")

    store = store_in(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(stores, "_connect", refuse)
        with pytest.raises(StoreError) as caught:
            await store.open()
    assert str(tmp_path) not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["pheby.lock"]
    again = store_in(tmp_path)
    await again.open()
    await again.close()


async def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with pytest.raises(StoreError):
        await store.read(lambda database: None)


async def test_close_waits_for_what_was_asked_for_before(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.open()
    writes = [asyncio.create_task(put(store, f"k{number}")) for number in range(20)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*writes)
    store = store_in(tmp_path)
    await store.open()
    assert len(await keys(store)) == 20
    await store.close()


async def test_a_store_of_an_earlier_version_is_brought_up_and_keeps_what_it_has(tmp_path: Path) -> None:
    """A7: step by step, whatever step it had come to."""
    for version in range(1, SCHEMA_VERSION):
        folder = tmp_path / str(version)
        folder.mkdir()
        database = sqlite3.connect(folder / "pheby.db", isolation_level=None)
        for migration in stores._MIGRATIONS[:version]:
            database.executescript(migration)
        database.execute(f"PRAGMA user_version = {version}")
        database.execute("INSERT INTO meta VALUES ('epoch', 'kept')")
        database.execute("INSERT INTO bindings VALUES ('c', 'row', 'm')")
        database.close()
        store = store_in(folder)
        await store.open()
        assert await keys(store) == ["epoch"]
        assert await store.read(lambda db: db.execute("SELECT count(*) FROM bindings").fetchone()[0]) == 1
        assert await store.read(stores.read_unused_files()) == []
        assert await store.read(lambda db: db.execute("SELECT count(*) FROM notes").fetchone()[0]) == 0
        assert await store.read(lambda db: db.execute("PRAGMA user_version").fetchone()[0]) == SCHEMA_VERSION
        await store.close()


async def test_what_is_reserved_is_no_file_of_a_deleted_conversation(tmp_path: Path) -> None:
    """R-G4, R-B4."""
    store = store_in(tmp_path)
    await store.open()
    name = stores.AttachmentId("att_1")
    await store.transact(stores.reserve_file(name))
    assert await store.read(stores.read_unused_files()) == [(name, "")]
    await store.transact(stores.file_is_made(name, 7, "seal"))
    assert await store.read(stores.read_unused_files()) == [(name, "seal")]
    assert await store.read(stores.read_unused_files(deleted=True)) == []
    assert await store.read(stores.read_file_bytes()) == 7
    await store.transact(stores.file_is_gone(name))
    assert await store.read(stores.read_unused_files()) == []
    assert await store.read(stores.read_file_bytes()) == 0
    await store.close()
