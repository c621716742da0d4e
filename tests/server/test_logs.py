"""The log: events that stay, fields that can be seen, no secret, nobody else's line (R-L1, R-D3, R-M3)."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pheby_server.logs import MAX_REPEATS, MAX_VALUE_CHARS, Log, kind, log_of, one_line, repeats, secrets, where

SECRET = 'canary-0123"456\\789abcdef-0123456789'
# As Hermes writes it: the message alone, no field.
FORMAT = "%(levelname)s %(name)s: %(message)s"


class Written:
    """What a handler with an ordinary format has written."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.records: list[logging.LogRecord] = []
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(logging.Formatter(FORMAT))
        self.handler.addFilter(lambda record: self.records.append(record) or True)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def everything(self) -> str:
        """Also what no format shows."""
        return self.text + "".join(repr(vars(record)) for record in self.records)


@pytest.fixture
def written() -> Iterator[Written]:
    written = Written()
    logger = logging.getLogger("pheby_server.test")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(written.handler)
    secrets.keep([SECRET])
    yield written
    logger.removeHandler(written.handler)


@pytest.fixture
def log() -> Log:
    return log_of("pheby_server.test")


def test_fields_stand_in_the_text(log: Log, written: Written) -> None:
    """R-L1: Hermes's format shows the message alone."""
    log.info("run.ended", extra={"run_id": "run_1", "status": "failed", "reason": None, "count": 3, "final": True})
    log.info("store.damaged: it was put aside")
    log.info("send.late: it waits", extra={"text": "two words"})
    assert written.text.splitlines() == [
        "INFO pheby_server.test: run.ended run_id=run_1 status=failed count=3 final=True",
        "INFO pheby_server.test: store.damaged: it was put aside",
        'INFO pheby_server.test: send.late text="two words": it waits',
    ]
    assert [vars(record)["event"] for record in written.records] == ["run.ended", "store.damaged", "send.late"]
    assert vars(written.records[0])["run_id"] == "run_1"


@pytest.mark.parametrize(
    "name", ["a\nERROR forged: yes", "a\r\nb", "a\x1b[31mred", "a\u2028b", "a\u202egnp", "a\0b", "a\x85b", "a\tb"]
)
def test_nobody_writes_a_line_of_their_own(log: Log, written: Written, name: str) -> None:
    """R-L1: a client's name, a path, whatever comes from outside."""
    log.info("client.hello", extra={"client": name})
    assert len(written.text.splitlines()) == 1
    assert written.text[:-1].isprintable()
    assert all(name not in str(value) for value in vars(written.records[0]).values())


def test_a_field_cannot_pose_as_another(log: Log, written: Written) -> None:
    log.info("client.hello", extra={"client": 'x" access_mode=full "'})
    assert written.text.count('"') == 2


def test_a_value_is_bounded(log: Log, written: Written) -> None:
    log.info("client.hello", extra={"client": "x" * 1_000_000})
    assert len(written.text) < MAX_VALUE_CHARS + 100


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"Authorization: Bearer {SECRET}",
        f"GET /v1/ws?token={SECRET}",
        '{"text": "canary-0123\\"456\\\\789abcdef-0123456789"}',
        "bearer Zm9vYmFyZm9vYmFy",
        "Basic Zm9vYmFyZm9vYmFy",
        "sk-test-0123456789abcdef01234567",
        "ghp_0123456789abcdef01234567",
        "xoxb-0123456789abcdef01234567",
    ],
)
def test_secrets_are_masked_wherever_they_stand(log: Log, written: Written, text: str) -> None:
    """R-D3, J12, F4: in a message, a field, an argument, and in what no format shows."""
    log.info("frame.received", extra={"frame": text})
    log.logger.info("said by a library: %s", text)
    log.logger.info(text)
    seen = written.everything()
    for canary in ("canary", "789abcdef", "Zm9vYmFy", "0123456789abcdef01234567"):
        assert canary not in seen
    assert "***" in seen


def test_what_stands_around_a_secret_stays(log: Log, written: Written) -> None:
    log.info("frame.received", extra={"frame": f"before {SECRET} after"})
    assert "before *** after" in written.text


def test_a_short_or_missing_secret_masks_nothing(log: Log, written: Written) -> None:
    secrets.keep(["run", "", None])
    log.info("run.ended")
    assert "run.ended" in written.text


def test_every_profile_of_a_process_is_kept(log: Log, written: Written) -> None:
    """R-A8: the log is the process's."""
    secrets.keep(["first-0123456789"])
    secrets.keep(["second-0123456789"])
    log.info("x.y", extra={"a": "first-0123456789", "b": "second-0123456789"})
    assert "0123456789" not in written.everything()


# Exceptions


def failing() -> Exception:
    try:
        try:
            raise PermissionError(13, "Permission denied", "/home/owner/private/plan.txt")
        except PermissionError as failure:
            raise ValueError(f"the owner's words {SECRET}") from failure
    except ValueError as failure:
        return failure


def test_an_exception_is_told_by_type_and_place(log: Log, written: Written) -> None:
    """R-M3, G1: its text may hold a path, the owner's words or a key."""
    log.error("request.failed", exc_info=failing(), extra={"request": "ping"})
    place = r"\n  server/test_logs\.py:\d+ in failing\n"
    told = rf"request\.failed request=ping\nValueError{place}caused by PermissionError EACCES{place}"
    assert re.search(told, written.text)
    seen = written.everything()
    for canary in ("canary", "/home/owner", "plan.txt", "owner's words", "Permission denied"):
        assert canary not in seen


def test_the_current_exception_is_told_too(log: Log, written: Written) -> None:
    try:
        raise failing()
    except ValueError:
        log.exception("request.failed")
    assert "\nValueError\n" in written.text
    assert "canary" not in written.everything()


def test_kinds() -> None:
    assert kind(OSError(28, "x")) == "OSError ENOSPC"
    assert kind(OSError("x")) == "OSError"
    assert kind(ValueError("x")) == "ValueError"
    with contextlib.closing(sqlite3.connect(":memory:")) as database, pytest.raises(sqlite3.Error) as raised:
        database.execute("SELECT * FROM nothing_here")
    assert kind(raised.value) == "OperationalError SQLITE_ERROR"


def test_a_long_chain_is_cut() -> None:
    failure = Exception("0")
    for number in range(50):
        following = Exception(str(number))
        following.__cause__ = failure
        failure = following
    assert where(failure).count("Exception") == 5


def test_a_chain_that_is_a_ring_ends() -> None:
    failure = Exception("x")
    failure.__cause__ = failure
    assert where(failure)


# Repeats


def test_the_same_warning_is_counted_not_repeated(log: Log, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-L1: one that comes each second does not drown the others."""
    now = 1_000_000.0
    monkeypatch.setattr("logging.time.time", lambda: now)
    monkeypatch.setattr("logging.time.time_ns", lambda: int(now * 1e9), raising=False)
    for _ in range(50):
        log.warning("spool.not_taken: will be tried again", extra={"error": "OSError"})
        now += 1
    log.warning("spool.not_taken: will be tried again", extra={"error": "other"})
    now += 60
    log.warning("spool.not_taken: will be tried again", extra={"error": "OSError"})
    lines = written.text.splitlines()
    assert len(lines) == 3
    assert lines[2].endswith(" repeated=49")


def test_another_failure_is_news(log: Log, written: Written) -> None:
    for failure in (failing(), OSError(28, "x"), OSError(28, "x"), OSError(5, "x")):
        log.error("request.failed", exc_info=failure)
    assert written.text.count("request.failed") == 3


def test_what_is_no_warning_is_never_left_out(log: Log, written: Written) -> None:
    for _ in range(3):
        log.info("run.started")
    assert written.text.count("run.started") == 3


def test_what_a_client_brings_about_is_counted_not_repeated(log: Log, written: Written) -> None:
    """R-M2, R-L1: each line holds up the loop in Hermes's handlers; and no client makes a warning be told again."""
    log.warning("spool.not_taken: will be tried again")
    for number in range(10 * MAX_REPEATS):
        log.info("frame.refused", extra={"connection_id": "c", "cause": "id in use"})
        log.info("request.refused", extra={"connection_id": "c", "request": "ping", "code": "rate_limited"})
        log.info("frame.refused", extra={"connection_id": str(number), "cause": "id in use"})
    log.warning("spool.not_taken: will be tried again")
    assert written.text.count("spool.not_taken") == 1
    assert written.text.count("connection_id=c ") == 2


def test_a_clock_that_jumps_back_hides_nothing() -> None:
    """M4: for an hour nothing would be told."""
    line = ("a", "b")
    assert repeats.news(line, 10_000.0) == 0
    assert repeats.news(line, 10_001.0) is None
    assert repeats.news(line, 6_000.0) == 1


def test_what_is_remembered_is_bounded() -> None:
    for number in range(10 * MAX_REPEATS):
        assert repeats.news(("a", str(number)), 1.0) == 0
    assert len(repeats._seen) == MAX_REPEATS


@given(st.text(), st.integers(1, 100))
def test_any_text_is_one_printable_line(text: str, most: int) -> None:
    shown = one_line(text, most)
    assert shown.isprintable()
    assert len(shown) <= 10 * (most + 1)


def test_asking_again_guards_once() -> None:
    assert log_of("pheby_server.test").logger is log_of("pheby_server.test").logger
    assert len(log_of("pheby_server.test").logger.filters) == 1
