"""What is counted, and how it is told."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.connection import AccessMode
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_server.config import ConfigError, ServerConfig
from pheby_server.metrics import Measure, Metrics, as_json, as_text, measures
from pheby_server.ports import AgentFile, Delivery, Outcome, RunResult
from pheby_server.server import Server
from pheby_server.spool import leave, spool_of
from pheby_server.testing import ManualHermes, MemoryTransport, deliver_text, running_server

NAME = ConversationId("conv_1")


def told(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(as_json(server.measures()))
    return found


def test_everything_is_there_from_the_start() -> None:
    """A counter that appears with its first event has no rate before it."""
    found = json.loads(as_json(measures(Metrics(), open_connections=0, outbox_bytes=0)))
    assert found.pop("pheby_closes_total") == {}
    assert {name for name, value in found.items() if isinstance(value, dict)} == {
        "pheby_resumes_total",
        "pheby_frames_total",
        "pheby_frame_bytes_total",
        "pheby_runs_total",
        "pheby_attachments_total",
    }
    assert {n for value in found.values() for n in (value.values() if isinstance(value, dict) else [value])} == {0}


def test_the_text_is_prometheuss() -> None:
    counted = Metrics(connections=3)
    counted.closes[4409] += 2
    text = as_text(measures(counted, open_connections=1, outbox_bytes=7))
    assert 'pheby_closes_total{code="4409"} 2\n' in text
    assert "# TYPE pheby_connections gauge\npheby_connections 1\n" in text
    assert "pheby_connections_total 3\n" in text
    assert "pheby_outbox_peak_bytes 7\n" in text
    line = re.compile(r'# (HELP|TYPE) pheby_\w+ [ -~]+|pheby_\w+(\{\w+="\w+"\})? \d+')
    assert all(line.fullmatch(each) for each in text.splitlines())
    assert text.endswith("\n")


def test_every_counter_is_named_as_one() -> None:
    for measure in measures(Metrics(), open_connections=0, outbox_bytes=0):
        assert isinstance(measure, Measure)
        assert measure.kind == ("counter" if measure.name.endswith("_total") else "gauge")


def test_a_frame_is_counted_in_bytes() -> None:
    counted = Metrics()
    assert counted.frame("in", "abc") == 3
    assert counted.frame("in", "é😀") == 6
    assert counted.frame("out", "\ud800") == 1
    assert (counted.frames, counted.bytes) == ({"in": 2, "out": 1}, {"in": 9, "out": 1})


async def test_connections_frames_and_closes(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        first, second = MemoryTransport(server), MemoryTransport(server)
        welcome = await first.hello("one")
        await second.hello("two")
        during = told(server)
        first.cut()
        cursor = {"epoch": welcome["epoch"], "seq": welcome["seq"]}
        again = MemoryTransport(server, AccessMode.READ_ONLY)
        await again.hello("two", resume=cursor)
        with contextlib.suppress(ConnectionError):
            while True:
                await second.receive()
        after = told(server)
    assert (during["pheby_connections"], during["pheby_connections_total"]) == (2, 2)
    assert (after["pheby_connections"], after["pheby_connections_total"]) == (1, 3)
    assert after["pheby_resumes_total"] == {"replay": 1, "snapshot": 2}
    # Cut, and replaced by the newer connection of its device.
    assert after["pheby_closes_total"] == {"1006": 1, "4409": 1}
    assert after["pheby_frames_total"]["in"] == 3
    sent = [*first.seen, *second.seen, *again.seen]
    assert after["pheby_frames_total"]["out"] == len(sent)
    assert after["pheby_frame_bytes_total"]["out"] > 100 * len(sent) / 2


async def test_a_connection_ends_once(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = MemoryTransport(server)
        client.cut()
        client.cut()
        assert told(server)["pheby_closes_total"] == {"1006": 1}


async def test_runs_events_and_the_outbox(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        client = MemoryTransport(server)
        await client.hello()
        before = told(server)["pheby_events_total"]
        for outcome in (Outcome.COMPLETED, Outcome.COMPLETED, Outcome.FAILED, Outcome.CANCELLED):
            server.events.run_started(NAME, None, Origin.CRON)
            server.events.run_ended(NAME, RunResult(outcome=outcome))
        await server.events.settled()
        waiting = told(server)["pheby_outbox_peak_bytes"]
        client.cut()
        found = told(server)
    assert found["pheby_runs_total"] == {"completed": 2, "failed": 1, "cancelled": 1}
    assert found["pheby_events_total"] - before >= 8
    assert found["pheby_outbox_peak_bytes"] == waiting > 0


async def test_files_and_the_spool(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    leave(spool_of(str(tmp_path / "s")), NAME, Delivery(text="left", origin=Origin.CRON, role=MessageRole.ASSISTANT))
    async with running_server(str(tmp_path / "s"), ManualHermes()) as server:
        await deliver_text(server.events, NAME, "text")
        assert await server.events.attach(NAME, AgentFile(path=str(tmp_path / "a.txt"), name="a.txt"))
        assert not await server.events.attach(NAME, AgentFile(path=str(tmp_path / "none.txt"), name="none.txt"))
        found = told(server)
    assert found["pheby_attachments_total"] == {"created": 1, "refused": 1, "expired": 0}
    assert found["pheby_spool_entries_total"] == 1


@pytest.mark.parametrize("name", ["verbose", "log_content", "metrics"])
def test_a_switch_is_true_or_false(name: str) -> None:
    wrong: dict[str, Any] = {name: 1}
    with pytest.raises(ConfigError, match=name):
        ServerConfig(storage="folder", **wrong)
