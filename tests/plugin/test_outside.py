"""What another process of Hermes leaves for the owner."""

from __future__ import annotations

import json
import logging
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pheby_hermes.outside import leave

from pheby_server.spool import Entry, spool_of, waiting
from tests.plugin import fake_hermes
from tests.plugin.fake_hermes import FakeHermes

CHAT = "1000000000000001"
JOB = "Cronjob Response: daily\n(job_id: 0123abcd)\n-------------\n\nAll is well."


@pytest.fixture(params=["old", "new"])
def hermes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHermes:
    monkeypatch.setattr(sys, "argv", ["hermes", "send", "-t", "pheby"])
    return fake_hermes.install(monkeypatch, tmp_path, shape=request.param)


def config(**extra: Any) -> Any:
    return SimpleNamespace(extra=extra)


def left(home: Path) -> list[Entry]:
    return waiting(spool_of(str(home / "pheby")))


async def test_a_text_is_left_where_the_gateway_looks(hermes: FakeHermes) -> None:
    """H2, H4: it is on the disk when success is said."""
    answer = await leave(config(), CHAT, "  news\n", ())
    (entry,) = left(hermes.home)
    assert answer == {"success": True, "message_id": entry.name}
    assert (entry.conversation_id, entry.delivery.text) == (f"conv_{CHAT}", "  news")
    assert (entry.delivery.origin, entry.delivery.role, entry.delivery.for_model) == ("system", "assistant", True)


async def test_the_folder_is_the_one_that_is_configured(hermes: FakeHermes, tmp_path: Path) -> None:
    """A8."""
    hermes.home = tmp_path / "other"
    await leave(SimpleNamespace(extra=None), CHAT, "home", ())
    await leave(config(storage=str(tmp_path / "elsewhere")), CHAT, "elsewhere", ())
    assert [entry.delivery.text for entry in left(tmp_path / "other")] == ["home"]
    assert [entry.delivery.text for entry in waiting(spool_of(str(tmp_path / "elsewhere")))] == ["elsewhere"]
    assert stat.S_IMODE((tmp_path / "elsewhere" / "spool").stat().st_mode) == 0o700


@pytest.mark.parametrize("argv", [["hermes", "cron", "tick"], ["hermes", "-v", "cron"], ["hermes", "send"]])
@pytest.mark.parametrize("text", ["All is well.", JOB])
async def test_a_jobs_result_is_told_from_a_message(
    hermes: FakeHermes, monkeypatch: pytest.MonkeyPatch, argv: list[str], text: str
) -> None:
    """R-I1: by its command or by its header."""
    monkeypatch.setattr(sys, "argv", argv)
    await leave(config(), CHAT, text, ())
    (entry,) = left(hermes.home)
    assert (entry.delivery.origin == "cron") == ("cron" in argv or text == JOB)


@pytest.mark.parametrize("text", ["", "  \n", "\n\n", "<think>only thoughts</think>", None])
async def test_nothing_is_not_left(hermes: FakeHermes, text: str | None) -> None:
    """H7."""
    answer = await leave(config(), CHAT, text, ())  # type: ignore[arg-type]
    assert answer["success"] is True
    assert left(hermes.home) == []


async def test_files_are_copied_at_once_in_their_order(hermes: FakeHermes, tmp_path: Path) -> None:
    """R-G2, J4: as Hermes describes them, a path or a path and whether it is a voice."""
    for name in ("a.pdf", "b.ogg"):
        (tmp_path / name).write_bytes(name.encode())
    await leave(config(), CHAT, "", [str(tmp_path / "a.pdf"), (str(tmp_path / "b.ogg"), True)])
    for name in ("a.pdf", "b.ogg"):
        (tmp_path / name).unlink()
    (entry,) = left(hermes.home)
    assert [file.name for file in entry.delivery.files] == ["a.pdf", "b.ogg"]
    assert [Path(file.path or "").read_bytes() for file in entry.delivery.files] == [b"a.pdf", b"b.ogg"]
    assert all(file.spooled for file in entry.delivery.files)


@pytest.mark.parametrize("which", ["denied", "missing", "folder", "a NUL", "half a character"])
async def test_a_file_that_is_refused_is_noted_without_its_path(hermes: FakeHermes, tmp_path: Path, which: str) -> None:
    """J1, J6: the owner is told when it is taken in."""
    file = tmp_path / "x.pdf"
    file.write_bytes(b"secret")
    path = {
        "denied": str(file),
        "missing": str(tmp_path / "none.pdf"),
        "folder": str(tmp_path),
        "a NUL": f"{tmp_path}/a\0.pdf",
        "half a character": f"{tmp_path}/\ud800.pdf",
    }[which]
    hermes.denied.add(str(file))
    answer = await leave(config(), CHAT, "text", [path])
    assert answer["success"] is True
    (entry,) = left(hermes.home)
    assert [file.path for file in entry.delivery.files] == [None]
    spooled = (tmp_path / "pheby" / "spool" / f"{entry.name}.json").read_text()
    assert str(tmp_path) not in spooled
    assert json.loads(spooled)["files"][0]["copy"] is False


@pytest.mark.parametrize("extra", [{"storage": ""}, {"storage": "a\0b"}, {"storage": 7}, {"storage": "/proc/none"}])
async def test_what_cannot_be_left_is_said_without_a_path(
    hermes: FakeHermes, caplog: pytest.LogCaptureFixture, extra: dict[str, Any]
) -> None:
    """H4."""
    caplog.set_level(logging.DEBUG)
    answer = await leave(config(**extra), CHAT, "text", ())
    assert answer == {"error": "Pheby could not store the message"}
    assert "/proc/none" not in caplog.text


@pytest.mark.parametrize("chat_id", ["conv_1000000000000001", "user@host", "", "x" * 300])
async def test_any_chat_has_a_conversation(hermes: FakeHermes, chat_id: str) -> None:
    """R-I1."""
    answer = await leave(config(), chat_id, "text", ())
    assert answer["success"] is True
    assert len(left(hermes.home)) == 1
