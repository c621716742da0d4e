"""Files of attachments: what is taken, what is kept, and what is neither served nor deleted."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pheby_server import file_store
from pheby_server.file_store import MAX_NAME_CHARS, FileRefusedError, FileStore, Refusal, StoredFile, safe_name

MUCH = 10**12
NAME = "att_000000000000000000000001"
CONTENT = b"%PDF-1.7\nfor the owner\n"


class Rig:
    def __init__(self, folder: Path, max_bytes: int = MUCH) -> None:
        self.storage, self.work = folder / "pheby", folder / "work"
        self.files = self.storage / "files"
        self.work.mkdir(parents=True)
        self.store = FileStore(str(self.storage), max_bytes)
        self.store.prepare()

    def make(self, name: str = "report.pdf", content: bytes = CONTENT) -> Path:
        file = self.work / name
        file.write_bytes(content)
        return file

    def adopt(self, path: object, name: str = NAME, room: int = MUCH, *, spooled: bool = False) -> StoredFile:
        return self.store.adopt(str(path), name, "report.pdf", room, spooled=spooled)

    def refused(self, path: object, **more: int) -> Refusal:
        """Why a file is not taken; nothing is left of it and nothing stays open."""
        before = open_files()
        with pytest.raises(FileRefusedError) as refused:
            self.adopt(path, **more)
        assert open_files() == before
        assert not (self.files / NAME).exists()
        assert str(self.work.parent) not in str(refused.value)
        return refused.value.reason

    def read(self, stored: StoredFile) -> bytes | None:
        file = self.store.open(stored.name, stored.seal)
        if file is None:
            return None
        with file:
            return file.read()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


# Taking


@pytest.mark.parametrize("content", [b"", b"x", CONTENT, os.urandom(3 * 1_048_576 + 17)])
def test_a_copy_is_the_file_as_it_was(rig: Rig, content: bytes) -> None:
    """R-G1, R-G2: whatever becomes of the original."""
    source = rig.make(content=content)
    stored = rig.adopt(source)
    source.unlink()
    assert (stored.size, stored.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert rig.read(stored) == content


def test_copies_are_the_owners_alone(rig: Rig) -> None:
    """R-G2."""
    rig.files.chmod(0o755)
    rig.store.prepare()
    stored = rig.adopt(rig.make())
    assert stat.S_IMODE(rig.files.stat().st_mode) == 0o700
    assert stat.S_IMODE((rig.files / stored.name).stat().st_mode) == 0o600


def test_what_is_taken_through_links_is_the_file_behind_them(rig: Rig) -> None:
    """R-G2: they are resolved before it is looked where it lies."""
    rig.make()
    (rig.work / "link.pdf").symlink_to("report.pdf")
    (rig.work.parent / "short").symlink_to(rig.work)
    assert rig.read(rig.adopt(rig.work.parent / "short" / ".." / "work" / "link.pdf")) == CONTENT


def _in_storage(rig: Rig) -> Path:
    (rig.storage / "pheby.db").write_bytes(b"secret")
    return rig.storage / "pheby.db"


def _fifo(rig: Rig) -> Path:
    os.mkfifo(rig.work / "pipe")
    return rig.work / "pipe"


def _socket(rig: Rig) -> Path:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(rig.work / "socket"))
    return rig.work / "socket"


def _link(rig: Rig, target: object, name: str = "link.pdf") -> Path:
    link = rig.work / name
    link.symlink_to(str(target))
    return link


def _private(rig: Rig, *parts: str) -> Path:
    file = rig.work.joinpath(*parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"secret")
    return file


def _other_attachment(rig: Rig) -> Path:
    other = "att_000000000000000000000009"
    rig.adopt(rig.make(), other)
    return rig.files / other


REFUSED: dict[str, Callable[[Rig], object]] = {
    "a folder": lambda rig: rig.work,
    "no name": lambda _: "",
    "root": lambda _: "/",
    "here": lambda _: ".",
    "a pipe": _fifo,
    "a socket": _socket,
    "a device": lambda _: "/dev/zero",
    "a link to a device": lambda rig: _link(rig, "/dev/zero"),
    "of a process": lambda _: "/proc/self/environ",
    "a link to what is a process's": lambda rig: _link(rig, "/proc/self/environ"),
    "of the system": lambda _: "/sys/kernel/mm/transparent_hugepage/enabled",
    "traversal": lambda rig: f"{rig.work}/../../../../../../../../../../proc/self/status",
    "the database": _in_storage,
    "a link to the database": lambda rig: _link(rig, _in_storage(rig)),
    "through a link to the storage": lambda rig: _link(rig, _in_storage(rig).parent, "folder") / "pheby.db",
    "another attachment": _other_attachment,
    "a key": lambda rig: _private(rig, ".ssh", "id_ed25519"),
    "a key below": lambda rig: _private(rig, ".ssh", "keys", "one.pdf"),
    "a key in capitals": lambda rig: _private(rig, ".SSH", "id_ed25519"),
    "a link to a key": lambda rig: _link(rig, _private(rig, ".gnupg", "secring.gpg")),
    "credentials": lambda rig: _private(rig, ".aws", "credentials"),
    "an environment": lambda rig: _private(rig, "project", ".env"),
    "a netrc": lambda rig: _private(rig, ".netrc"),
    "a NUL": lambda rig: f"{rig.make()}\0.pdf",
    "half a character": lambda rig: f"{rig.work}/\ud800.pdf",
    "a link to itself": lambda rig: _link(rig, "link.pdf"),
    "too long a name": lambda rig: f"{rig.work}/{'x' * 300}.pdf",
    "too long a path": lambda rig: f"{rig.work}/{'x' * 5_000}",
    "below a file": lambda rig: f"{rig.make()}/x",
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_may_not_be_sent_is_refused(rig: Rig, which: str) -> None:
    """R-G2, J1: at once, also where opening it would wait, and nothing of it is left."""
    path = REFUSED[which](rig)
    assert rig.refused(path) is Refusal.NOT_ALLOWED


@pytest.mark.parametrize("path", ["none.pdf", "../none.pdf", "/none/none.pdf"])
def test_what_is_not_there_is_missing(rig: Rig, path: str) -> None:
    """J6."""
    assert rig.refused(rig.work / path) is Refusal.MISSING
    dangling = _link(rig, "/none/none.pdf")
    assert rig.refused(dangling) is Refusal.MISSING


def test_a_file_that_may_not_be_read_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """J6: whoever runs the tests may read everything, so the system's answer is played."""

    def denied(real: str) -> int:
        raise PermissionError(errno.EACCES, "denied", real)

    monkeypatch.setattr(file_store, "_open_without_links", denied)
    assert rig.refused(rig.make()) is Refusal.NOT_ALLOWED


@pytest.mark.parametrize("what", ["the file", "its folder"])
def test_a_link_that_takes_its_place_behind_the_check_is_not_followed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """R-G2, J1."""
    folder = rig.work / "folder"
    folder.mkdir()
    (folder / "report.pdf").write_bytes(CONTENT)
    secrets = rig.work.parent / "secrets"
    secrets.mkdir()
    (secrets / "report.pdf").write_bytes(b"secret")
    check = file_store._allowed

    def exchanged(real: Path, storage: Path, spooled: bool) -> bool:
        allowed = check(real, storage, spooled)
        victim = folder / "report.pdf" if what == "the file" else folder
        victim.rename(rig.work / "elsewhere")
        victim.symlink_to(secrets / "report.pdf" if what == "the file" else secrets)
        return allowed

    monkeypatch.setattr(file_store, "_allowed", exchanged)
    assert rig.refused(folder / "report.pdf") is Refusal.NOT_ALLOWED


def test_a_pipe_that_takes_its_place_behind_the_check_is_not_waited_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-G2."""
    file = rig.make()
    check = file_store._allowed

    def exchanged(real: Path, storage: Path, spooled: bool) -> bool:
        file.unlink()
        os.mkfifo(file)
        return check(real, storage, spooled)

    monkeypatch.setattr(file_store, "_allowed", exchanged)
    assert rig.refused(file) is Refusal.NOT_ALLOWED


def test_of_the_spool_only_its_own_files_are_taken(rig: Rig) -> None:
    """R-G2: and only for what was spooled."""
    spool = rig.storage / "spool"
    (spool / "deeper").mkdir(parents=True)
    for place in (spool / "1.0", spool / "deeper" / "1.0"):
        place.write_bytes(CONTENT)
    (spool / "link").symlink_to(_private(rig, "secret.pdf"))
    assert rig.refused(spool / "1.0") is Refusal.NOT_ALLOWED
    stored = rig.adopt(spool / "1.0", spooled=True)
    assert rig.read(stored) == CONTENT
    rig.store.remove(stored.name, stored.seal)
    for path in (spool / "deeper" / "1.0", spool / "link", rig.make(), spool / ".." / "files", "/etc/hostname"):
        assert rig.refused(path, spooled=True) is Refusal.NOT_ALLOWED


def test_a_non_utf8_name_is_taken(rig: Rig) -> None:
    """J10."""
    path = os.fsdecode(os.fsencode(rig.work) + b"/\xff\xfe report.pdf")
    Path(path).write_bytes(CONTENT)
    assert rig.read(rig.adopt(path)) == CONTENT


# Sizes


def test_a_file_of_the_largest_size_is_taken_and_no_larger_one(tmp_path: Path) -> None:
    """R-G2, J6."""
    rig = Rig(tmp_path, max_bytes=1_000)
    assert rig.refused(rig.make(content=b"x" * 1_001)) is Refusal.TOO_LARGE
    assert rig.adopt(rig.make(content=b"x" * 1_000)).size == 1_000


def test_the_room_that_is_left_is_the_limit(rig: Rig) -> None:
    """R-M4."""
    source = rig.make(content=b"x" * 1_000)
    assert rig.refused(source, room=999) is Refusal.NO_ROOM
    assert rig.refused(rig.make("empty", b""), room=-1) is Refusal.NO_ROOM
    assert rig.adopt(source, room=1_000).size == 1_000


def test_a_disk_that_is_nearly_full_keeps_its_rest(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-M4: the database needs it more."""

    class Free:
        f_bavail, f_frsize = 100, 1_048_576

    monkeypatch.setattr(os, "statvfs", lambda _: Free)
    assert rig.refused(rig.make(content=b"x" * 37 * 1_048_576)) is Refusal.NO_ROOM
    assert rig.adopt(rig.make(content=b"x" * 36 * 1_048_576)).size == 36 * 1_048_576


def test_a_disk_that_becomes_full_leaves_nothing(rig: Rig) -> None:
    """R-M4: a real write that fails half-way."""
    source = rig.make(content=b"x" * 3 * 1_048_576)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, limits[1]))
    try:
        assert rig.refused(source) is Refusal.NO_ROOM
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(rig.files.iterdir()) == []


def test_a_disk_that_fails_leaves_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-M4, J6."""

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", broken)
    assert rig.refused(rig.make()) is Refusal.FAILED
    assert list(rig.files.iterdir()) == []


def growing(source: Path) -> Callable[[object], Iterator[bytes]]:
    """Reads a file that grows for ever while it is read."""
    chunks = file_store._chunks

    def read(file: object) -> Iterator[bytes]:
        for chunk in chunks(file):  # type: ignore[arg-type]
            with source.open("ab") as out:
                out.write(b"y" * 1_000)
            yield chunk

    return read


def test_a_file_that_grows_while_it_is_read_ends_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-G2: and is not cut in silence."""
    rig = Rig(tmp_path, max_bytes=5_000)
    source = rig.make(content=b"x" * 1_000)
    monkeypatch.setattr(file_store, "_chunks", growing(source))
    assert rig.refused(source) is Refusal.TOO_LARGE
    assert list(rig.files.iterdir()) == []


def test_what_is_being_copied_is_given_up_at_the_stop(rig: Rig) -> None:
    """L1: however large it is."""
    rig.store.stop()
    assert rig.refused(rig.make()) is Refusal.FAILED


# Keeping


def test_a_file_of_somebody_else_that_has_the_name_is_not_touched(rig: Rig) -> None:
    """R-G4: neither written over nor deleted."""
    (rig.files / NAME).write_bytes(b"somebody else's")
    with pytest.raises(FileRefusedError):
        rig.adopt(rig.make())
    assert (rig.files / NAME).read_bytes() == b"somebody else's"


def test_a_link_that_has_the_name_is_not_written_through(rig: Rig) -> None:
    """R-G2."""
    target = rig.make("target", b"before")
    (rig.files / NAME).symlink_to(target)
    with pytest.raises(FileRefusedError):
        rig.adopt(rig.make())
    assert target.read_bytes() == b"before"
    assert (rig.files / NAME).is_symlink()


def _content(rig: Rig, copy: Path) -> None:
    copy.unlink()
    copy.write_bytes(b"Y" * len(CONTENT))


def _in_place(rig: Rig, copy: Path) -> None:
    """The same file with other content, its times as they were."""
    before = copy.stat()
    with copy.open("r+b") as out:
        out.write(b"Y" * len(CONTENT))
    os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))


def _hard_link(rig: Rig, copy: Path) -> None:
    copy.unlink()
    copy.hardlink_to(_private(rig, "secret.pdf"))


def _symlink(rig: Rig, copy: Path) -> None:
    copy.unlink()
    # Behind it is what should be there, which is as little ours.
    copy.symlink_to(rig.make("same.pdf"))


def _folder(rig: Rig, copy: Path) -> None:
    copy.unlink()
    copy.mkdir()
    (copy / "inside").write_bytes(b"x")


def _pipe(rig: Rig, copy: Path) -> None:
    copy.unlink()
    os.mkfifo(copy)


def _bind(rig: Rig, copy: Path) -> None:
    copy.unlink()
    # An address must be short.
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{short}/s")
        Path(short, "s").rename(copy)


def _longer(rig: Rig, copy: Path) -> None:
    with copy.open("ab") as out:
        out.write(b"more")


@pytest.mark.parametrize("exchange", [_content, _in_place, _hard_link, _symlink, _folder, _pipe, _bind, _longer])
def test_what_took_the_place_of_a_copy_is_neither_served_nor_deleted(
    rig: Rig, exchange: Callable[[Rig, Path], None]
) -> None:
    """R-G2, R-G4, J9: no foreign byte, and nothing of it is lost."""
    stored = rig.adopt(rig.make())
    copy = rig.files / stored.name
    exchange(rig, copy)
    before = open_files()
    there = copy.lstat()
    assert rig.store.open(stored.name, stored.seal) is None
    rig.store.remove(stored.name, stored.seal)
    assert copy.lstat().st_ino == there.st_ino
    assert open_files() == before


def test_a_folder_that_is_exchanged_for_a_link_serves_nothing_of_what_is_behind_it(rig: Rig) -> None:
    """R-G2, J9."""
    stored = rig.adopt(rig.make())
    elsewhere = rig.work / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / stored.name).write_bytes(b"Y" * len(CONTENT))
    rig.files.rename(rig.work / "files")
    rig.files.symlink_to(elsewhere)
    assert rig.store.open(stored.name, stored.seal) is None
    rig.store.remove(stored.name, stored.seal)
    assert (elsewhere / stored.name).exists()


def test_a_copy_that_was_put_back_from_a_backup_is_served_and_deleted(rig: Rig) -> None:
    """R-G4: it is the same by its content."""
    stored = rig.adopt(rig.make())
    copy = rig.files / stored.name
    (rig.work / "backup").write_bytes(copy.read_bytes())
    copy.unlink()
    (rig.work / "backup").rename(copy)
    assert rig.read(stored) == CONTENT
    rig.store.remove(stored.name, stored.seal)
    assert not copy.exists()


def test_a_deleted_copy_is_gone_and_deleting_it_again_is_harmless(rig: Rig) -> None:
    stored = rig.adopt(rig.make())
    for _ in range(2):
        rig.store.remove(stored.name, stored.seal)
        assert list(rig.files.iterdir()) == []
        assert rig.store.open(stored.name, stored.seal) is None


def test_an_unfinished_copy_is_deleted_by_its_name_alone(rig: Rig) -> None:
    """R-G4: of a process that died while it copied."""
    (rig.files / NAME).write_bytes(b"half")
    (rig.files / "att_other").mkdir()
    rig.store.remove(NAME, "")
    rig.store.remove("att_other", "")
    assert [found.name for found in rig.files.iterdir()] == ["att_other"]


def test_who_reads_a_copy_that_is_deleted_reads_on(rig: Rig) -> None:
    """R-G4."""
    content = os.urandom(100_000)
    stored = rig.adopt(rig.make(content=content))
    file = rig.store.open(stored.name, stored.seal)
    assert file is not None
    with file:
        first = file.read(1_000)
        rig.store.remove(stored.name, stored.seal)
        assert first + file.read() == content


def test_a_copy_that_cannot_be_deleted_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = rig.adopt(rig.make())

    def denied(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "denied", str(self))

    monkeypatch.setattr(Path, "unlink", denied)
    with pytest.raises(PermissionError):
        rig.store.remove(stored.name, stored.seal)


# Names


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("report 1.pdf", "report 1.pdf"),
        ("отчёт.pdf", "отчёт.pdf"),
        ('a"b.txt', 'a"b.txt'),
        ("x\r\nSet-Cookie: y", "xSet-Cookie: y"),
        ("../../etc/passwd", ".._.._etc_passwd"),
        ("..\\..\\boot.ini", ".._.._boot.ini"),
        ("a\0b.pdf", "ab.pdf"),
        ("fdp.\u202eexe.pdf", "fdp.exe.pdf"),
        ("\u2066a\u2069\u200f.txt", "a.txt"),
        ("line\u2028end\u2029.txt", "lineend.txt"),
        ("\udcff\udcfe.pdf", ".pdf"),
        ("  spaces  ", "spaces"),
        ("", "file"),
        (".", "file"),
        ("..", "file"),
        (" .. ", "file"),
        ("\r\n", "file"),
        ("\U0001f600" * 200, "\U0001f600" * 200),
        ("x" * 300 + ".pdf", "x" * 196 + ".pdf"),
        ("x" * 300, "x" * 200),
        ("x" * 199 + " " + "y" * 100, "x" * 199),
        ("x." + "y" * 300, "x." + "y" * 198),
        (".hidden", ".hidden"),
    ],
)
def test_a_name_for_people_is_one_line_that_says_what_it_says(name: str, shown: str) -> None:
    """R-G1, J10."""
    assert safe_name(name) == shown


@given(st.text())
def test_any_name_becomes_one_that_can_be_shown_and_stays_so(name: str) -> None:
    """J10."""
    shown = safe_name(name)
    assert 1 <= len(shown) <= MAX_NAME_CHARS
    assert not {"/", "\\", "\0", "\r", "\n", "\u202e"} & set(shown)
    assert shown.encode()
    assert safe_name(shown) == shown
