"""Many clients, and what one of them can cost, on a real server. Takes minutes: `make load`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.client_state import ClientState, apply, digest, lost
from pheby_protocol.codec import structure
from pheby_protocol.messages.message import Origin
from pheby_server import server as server_module
from pheby_server.aiohttp_transport import websocket
from pheby_server.ports import Outcome, RunResult
from pheby_server.stores import Store
from pheby_server.testing import TEST_SECRET
from tests.transport.fake_files import FakeFiles
from tests.transport.rig import CLOSE, HOST, NAME, PING, TEXT, RawPeer, Rig, rigged

MIB = 2**20
ALL = 64_000_000
"""What any attack may cost together."""
ONE = 8_000_000
"""What one connection may cost."""
DONE = RunResult(outcome=Outcome.COMPLETED)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "DRAIN_SECONDS", 0.5)
    monkeypatch.setattr(websocket, "_CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(RawPeer, "patience", 60.0)


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Both ends of every connection are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8_192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory() -> int:
    """What of this process is in memory, both ends included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Growth:
    """The most that was seen beyond the beginning."""

    def __init__(self) -> None:
        self._before = memory()
        self.most = 0

    def look(self) -> None:
        self.most = max(self.most, memory() - self._before)


@contextmanager
def at_most(allowed: int) -> Iterator[Growth]:
    growth = Growth()
    yield growth
    growth.look()
    print(f"{growth.most / 1e6:.1f} MB")
    assert growth.most <= allowed, f"{growth.most / 1e6:.1f} MB"


async def in_step(rig: Rig, device_id: str = "raw", **fields: Any) -> RawPeer:
    raw = await rig.raw()
    client = {"name": "t", "version": "1", "device_id": device_id}
    raw.text(type="hello", id="hello", protocol_versions=[1], client=client, **fields)
    await raw.until_text("sync.completed")
    return raw


def freeze(raw: RawPeer) -> None:
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]


class Phone:
    """Applies what comes, as the reducer says; every frame is forgotten at once."""

    def __init__(self, rig: Rig, name: str) -> None:
        self._rig, self._name = rig, name
        self.state = ClientState()
        self.raw: RawPeer

    async def connect(self) -> dict[str, Any]:
        self.raw = await self._rig.raw()
        client = {"name": "t", "version": "1", "device_id": self._name}
        cursor = {"epoch": self.state.epoch, "seq": self.state.cursor} if self.state.cursor is not None else None
        fields = {"resume": cursor} if cursor else {}
        self.raw.text(type="hello", id="1", protocol_versions=[1], client=client, capabilities=["batch"], **fields)
        welcome = await self.until("welcome")
        await self.until("sync.completed")
        return welcome

    async def cut(self) -> None:
        await self.raw.cut()
        self.state = lost(self.state)

    async def until(self, type_: str) -> dict[str, Any]:
        while True:
            opcode, content = await self.raw.read()
            if opcode == CLOSE:
                raise ConnectionError(struct.unpack(">H", content[:2])[0])
            if opcode != TEXT:
                continue
            frame: dict[str, Any] = json.loads(content)
            if "id" not in frame or frame["type"] == "welcome":
                self.state = apply(self.state, structure(frame))
            for told in frame.get("events", [frame]):
                if told["type"] == type_:
                    return dict(told)


def talk(rig: Rig, messages: int, deltas: int) -> None:
    """A run that streams so many messages of so many pieces."""
    rig.server.events.run_started(NAME, None, Origin.BACKGROUND)
    for _ in range(messages):
        message_id = rig.server.events.message_started(NAME, "")
        for number in range(deltas):
            rig.server.events.message_appended(message_id, f"{number} ")
        rig.server.events.message_ended(message_id, interim=True)
    rig.server.events.run_ended(NAME, DONE)


async def test_one_frozen_client_and_a_hundred_thousand_events(tmp_path: Path) -> None:
    """K7, R-M2, R-I2: the other gets everything, the frozen one costs little and resumes exactly."""
    async with rigged(tmp_path, heartbeat_ms=600_000) as rig:
        frozen, other = Phone(rig, "frozen"), Phone(rig, "other")
        await other.connect()
        # What the same costs without the frozen one is not its.
        for _ in range(10):
            talk(rig, 10, 100)
            await other.until("run.ended")
        await frozen.connect()
        freeze(frozen.raw)
        with at_most(16 * MIB) as growth:
            for _ in range(100):
                talk(rig, 10, 100)
                await other.until("run.ended")
                growth.look()
        await rig.server.events.settled()
        other.raw.text(type="ping", id="p")
        await other.until("pong")
        await frozen.cut()
        welcome = await frozen.connect()
        assert welcome["resumed"] is True
        assert digest(frozen.state) == digest(other.state)
        assert frozen.state.cursor == other.state.cursor == rig.server.published_seq
        assert len(frozen.state.messages) >= 1_000


async def test_two_hundred_come_back_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-I2, R-M2: all resume, a few at a time read from the log."""
    reading, most = 0, 0
    wanted: list[Any] = []
    read, replays = Store.read, server_module.read_events

    def marked(*args: Any) -> Any:
        wanted.append(replays(*args))
        return wanted[-1]

    async def counted(store: Store, what: Any) -> Any:
        nonlocal reading, most
        if what not in wanted:
            return await read(store, what)
        reading += 1
        most = max(most, reading)
        try:
            return await read(store, what)
        finally:
            reading -= 1

    async with rigged(tmp_path, heartbeat_ms=600_000) as rig:
        phones = [Phone(rig, f"phone-{number}") for number in range(200)]
        for phone in phones:
            await phone.connect()
        await asyncio.gather(*(phone.cut() for phone in phones))
        await rig.sessions(0)
        talk(rig, 100, 2)
        await rig.server.events.settled()
        monkeypatch.setattr(Store, "read", counted)
        monkeypatch.setattr(server_module, "read_events", marked)
        welcomes = await asyncio.gather(*(phone.connect() for phone in phones))
        assert {welcome["resumed"] for welcome in welcomes} == {True}
        assert len({digest(phone.state) for phone in phones}) == 1
        assert {phone.state.cursor for phone in phones} == {rig.server.published_seq}
        assert 1 <= most <= server_module.MAX_REPLAYS


async def test_two_hundred_come_back_at_once_and_read_nothing(tmp_path: Path) -> None:
    """R-M2: what waits for them is bounded, and others are served meanwhile."""
    async with rigged(tmp_path, heartbeat_ms=600_000, max_connections=300) as rig:
        phone = Phone(rig, "phone")
        await phone.connect()
        cursor = {"epoch": phone.state.epoch, "seq": phone.state.cursor}
        rig.server.events.run_started(NAME, None, Origin.BACKGROUND)
        for number in range(60):
            message_id = rig.server.events.message_started(NAME, f"{number}" + "x" * 99_000)
            rig.server.events.message_ended(message_id, interim=True)
            await phone.until("message.completed")
        rig.server.events.run_ended(NAME, DONE)
        await phone.until("run.ended")
        with at_most(ALL) as growth:
            for number in range(200):
                raw = await rig.raw()
                freeze(raw)
                client = {"name": "t", "version": "1", "device_id": f"frozen-{number}"}
                raw.text(type="hello", id="1", protocol_versions=[1], client=client, resume=cursor)
                growth.look()
            for _ in range(100):
                phone.raw.text(type="ping", id="p")
                await phone.until("pong")
                growth.look()
        fresh = Phone(rig, "fresh")
        await fresh.connect()


async def test_a_thousand_idle_clients(tmp_path: Path) -> None:
    """R-M2: both ends together in the bound for one attack; nobody is dropped, and one event reaches all."""
    async with rigged(tmp_path, heartbeat_ms=600_000, max_connections=1_000, max_pending_connections=1_000) as rig:
        with at_most(ALL):
            peers = [await in_step(rig, f"d{number}") for number in range(1_000)]
            assert rig.server.session_count == 1_000
        rig.server.events.run_started(NAME, None, Origin.BACKGROUND)
        rig.server.events.run_ended(NAME, DONE)
        await asyncio.gather(*(peer.until_text("run.ended") for peer in peers))
        assert rig.server.session_count == 1_000


async def test_a_flood_on_many_connections(tmp_path: Path) -> None:
    """R-M2."""
    async with rigged(tmp_path, heartbeat_ms=600_000) as rig:
        other = await in_step(rig, "other")
        flooders = [await in_step(rig, f"d{number}") for number in range(20)]
        frame = json.dumps({"type": "ping", "id": "x"}).encode()
        piece = (bytes([0x81, 0x80 | len(frame)]) + b"\0\0\0\0" + frame) * 100

        async def flood(raw: RawPeer) -> int:
            with contextlib.suppress(ConnectionError):
                for _ in range(100):
                    raw.writer.write(piece)
                    await raw.writer.drain()
            return await raw.close_code()

        with at_most(ALL) as growth:
            flooding = [asyncio.create_task(flood(raw)) for raw in flooders]
            while not all(task.done() for task in flooding):
                growth.look()
                await asyncio.sleep(0.02)
        assert {task.result() for task in flooding} == {4429}
        other.text(type="ping", id="p")
        await other.until_text("pong")


@pytest.mark.parametrize("pieces", [1, 1_000])
async def test_a_frame_of_64_megabytes(tmp_path: Path, pieces: int) -> None:
    """K5: also in a thousand fragments."""
    async with rigged(tmp_path, heartbeat_ms=600_000) as rig:
        raw, other = await in_step(rig), await in_step(rig, "other")
        content = b"x" * (64 * MIB // pieces)
        with at_most(ONE + len(content)) as growth:
            with contextlib.suppress(ConnectionError):
                for number in range(pieces):
                    raw.frame(TEXT if number == 0 else 0, content, final=number == pieces - 1)
                    growth.look()
                    await raw.writer.drain()
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                assert await raw.close_code() == 1009
        await rig.sessions(1)
        other.text(type="ping", id="p")
        await other.until_text("pong")


async def test_who_asks_for_everything_and_reads_nothing(tmp_path: Path) -> None:
    """R-M2: ten at once, each with as many requests as it may have open, again and again."""
    async with rigged(tmp_path, heartbeat_ms=600_000) as rig:
        other = await in_step(rig, "other")
        rig.server.events.run_started(NAME, None, Origin.BACKGROUND)
        for number in range(8):
            message_id = rig.server.events.message_started(NAME, f"{number}" + "x" * 99_000)
            rig.server.events.message_ended(message_id, interim=True)
        rig.server.events.run_ended(NAME, DONE)
        await other.until_text("run.ended")
        hostile = [await in_step(rig, f"d{number}") for number in range(10)]
        with at_most(ALL) as growth:
            for raw in hostile:
                freeze(raw)
            for round_ in range(20):
                for raw in hostile:
                    for number in range(20):
                        name = f"{round_}-{number}"
                        raw.text(type="conversation.history", id=name, conversation_id=NAME, limit=200)
                for _ in range(5):
                    await asyncio.sleep(0.01)
                    growth.look()
            assert rig.server._queued.bytes <= server_module.MAX_QUEUED_BYTES
        other.text(type="ping", id="p")
        await other.until_text("pong")


async def test_a_thousand_downloads_that_are_cut_leave_no_file_open(tmp_path: Path) -> None:
    """R-G3, R-M4."""
    async with rigged(tmp_path) as rig:
        files = FakeFiles(tmp_path)
        files.serve_for(rig.server)
        attachment_id = files.add(b"x" * 8 * MIB)
        head = f"GET /v1/attachments/{attachment_id} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TEST_SECRET}\r\n\r\n"

        async def cut() -> None:
            reader, writer = await asyncio.open_connection(HOST, rig.port)
            writer.write(head.encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.read(1_000)
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

        async def closed() -> int:
            async with asyncio.timeout(5):
                while not all(file.closed for file in files.opened):
                    await asyncio.sleep(0.01)
            return len(list(Path("/proc/self/fd").iterdir()))

        await cut()
        before = await closed()
        for _ in range(1_000):
            await cut()
        assert await closed() <= before
        assert len(files.opened) == 1_001


def _answering(port: int, pinged: threading.Event, stop: threading.Event) -> None:
    """A client in a thread of its own: its pong comes while the server's loop stands still."""
    with socket.create_connection((HOST, port)) as line:
        line.sendall(
            (
                "GET /v1/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                f"Authorization: Bearer {TEST_SECRET}\r\n\r\n"
            ).encode()
        )
        hello = json.dumps(
            {
                "type": "hello",
                "id": "h",
                "protocol_versions": [1],
                "client": {"name": "t", "version": "1", "device_id": "d"},
            }
        ).encode()
        line.sendall(bytes([0x81, 0xFE]) + struct.pack(">H", len(hello)) + b"\0\0\0\0" + hello)
        line.settimeout(0.05)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                # A ping without content is two bytes, and comes alone on an idle line.
                if line.recv(65_536) == bytes([0x80 | PING, 0]):
                    pinged.set()
                    time.sleep(0.5)
                    line.sendall(bytes([0x80 | 10, 0x80]) + b"\0\0\0\0")


async def test_a_loop_that_stands_still_for_two_seconds_drops_nobody(tmp_path: Path) -> None:
    """R-M4: somebody else's code in Hermes's loop, at the worst moment."""
    async with rigged(tmp_path, heartbeat_ms=4_400) as rig:
        pinged, stop = threading.Event(), threading.Event()
        client = threading.Thread(target=_answering, args=(rig.port, pinged, stop))
        client.start()
        try:
            await rig.sessions(1)
            for _ in range(2):
                while not pinged.is_set():
                    await asyncio.sleep(0.01)
                pinged.clear()
                time.sleep(2.0)
                await asyncio.sleep(0.5)
                assert rig.server.session_count == 1
        finally:
            stop.set()
            await asyncio.to_thread(client.join)
