"""Faults that are brought about on a running gateway, and what each may cost (R-M2, R-M4).

The gateway is one of its own. An attack may cost 8 MB a connection and 64 MB in all:
growth of the gateway's memory beyond what it had after calm use. Databases: test_store_faults, kills: test_kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from plain_client import Frame, PlainClient
from test_files import delivered, fetch, make

from tests.transport.rig import TEXT, RawPeer

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALL = 64_000_000
ONE = 8_000_000
DAY = 86_400
HEARTBEAT = 8.0
Stack = Any


def memory(pid: int) -> int:
    """What of a process is in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextlib.asynccontextmanager
async def at_most(stack: Stack, allowed: int) -> AsyncIterator[None]:
    """What happens inside may make the gateway grow by so much, at any moment."""
    before = most = memory(stack.gateway_pid)

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, memory(stack.gateway_pid))
            await asyncio.sleep(0.02)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
    grown = max(most, memory(stack.gateway_pid)) - before
    print(f"{grown / 1e6:.1f} MB")
    assert grown <= allowed, f"{grown / 1e6:.1f} MB"


_open: list[asyncio.StreamWriter] = []


async def connected(**where: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A line that is cut at the end of the test, if not before."""
    reader, writer = await asyncio.open_connection(**where)
    _open.append(writer)
    return reader, writer


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def _cut() -> AsyncIterator[None]:
    yield
    for writer in _open:
        writer.transport.abort()
    for writer in _open:
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    _open.clear()


async def raw_peer(stack: Stack, device_id: str | None = None, *, window: int | None = None) -> RawPeer:
    """A client that writes what it likes and answers nothing; with a device's name it is in step."""
    line = socket.socket()
    if window is not None:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    line.setblocking(False)
    await asyncio.get_running_loop().sock_connect(line, ("127.0.0.1", port_of(stack)))
    reader, writer = await connected(sock=line)
    writer.write(
        (
            "GET /v1/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Authorization: Bearer {stack.secret}\r\n\r\n"
        ).encode()
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    raw = RawPeer(reader, writer)
    raw.patience = 60.0
    if device_id is not None:
        raw.hello(device_id)
        await raw.until_text("sync.completed")
    return raw


def port_of(stack: Stack) -> int:
    return int(stack.url.split(":")[2].split("/")[0])


def http_of(stack: Stack, path: str) -> str:
    return f"http://127.0.0.1:{port_of(stack)}/{path}"


async def status_of(stack: Stack, secret: str, address: str | None = None) -> tuple[int, str]:
    """What a client from there is answered, and when it may come again."""
    headers = {"Authorization": f"Bearer {secret}"} | ({"X-Forwarded-For": address} if address else {})
    async with aiohttp.ClientSession() as http, http.get(http_of(stack, "v1/metrics"), headers=headers) as answer:
        return answer.status, answer.headers.get("Retry-After", "")


async def counted(stack: Stack) -> dict[str, Any]:
    """The gateway's own counters."""
    headers = {"Authorization": f"Bearer {stack.secret}", "Accept": "application/json"}
    async with aiohttp.ClientSession() as http, http.get(http_of(stack, "v1/metrics"), headers=headers) as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def connections(stack: Stack, count: int) -> None:
    """Returns when so many are open."""
    async with asyncio.timeout(30):
        while (await counted(stack))["pheby_connections"] != count:
            await asyncio.sleep(0.05)


async def bring_about(client: PlainClient, name: str, kind: str, value: str) -> None:
    """Have somebody else's code in the gateway do this."""
    conversation_id = await client.create(f"fault-{name}")
    said = f"call fault {json.dumps({'kind': kind, 'value': value})}"
    assert (await client.exchange(conversation_id, said, f"fault-{name}"))["status"] == "completed"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def calm(faulty: Stack) -> Stack:
    """The gateway after use of every kind, so that what grows afterwards is the attack's."""
    if faulty is None:
        return None
    async with PlainClient(faulty.url, faulty.secret, "calm") as client:
        await client.hello()
        conversation_id = await client.create("calm")
        for number in range(2):
            assert (await client.exchange(conversation_id, "long 100000", f"calm{number}"))["status"] == "completed"
            await client.history(conversation_id)
    await asyncio.gather(*(one_exchange(faulty, f"calm-{number}", "say calm") for number in range(4)))
    return faulty


async def one_exchange(stack: Stack, name: str, text: str) -> Frame:
    async with PlainClient(stack.url, stack.secret, name) as client:
        await client.hello()
        run = await client.exchange(await client.create(name), text, name)
        assert run["status"] == "completed"
        return run


# Strangers


async def test_a_thousand_wrong_secrets_lock_their_address_out_and_nobody_else(calm, name):
    """R-M1, K4: also where each comes from another address; the log and the memory stay small."""
    if calm is None:
        return
    assert (await status_of(calm, "wrong", "203.0.113.1"))[0] == 401
    async with at_most(calm, ONE):
        answers = [await status_of(calm, "wrong", "203.0.113.1") for _ in range(500)]
        others = [await status_of(calm, "wrong", f"198.51.{n // 250}.{n % 250}") for n in range(500)]
    assert {status for status, _ in answers} == {401, 429}
    assert int(answers[-1][1]) > 0
    assert others == [(401, "")] * 500
    assert (await status_of(calm, calm.secret, "203.0.113.1"))[0] == 200
    assert (await status_of(calm, "wrong"))[0] == 401


async def test_a_hundred_heads_that_never_end_are_cut_off(calm, name):
    """R-M2: while they are open a client gets in; within the deadline all of them are gone."""
    if calm is None:
        return
    before = open_files(calm.gateway_pid)
    async with at_most(calm, ALL):
        lines = [await connected(host="127.0.0.1", port=port_of(calm)) for _ in range(100)]
        for _, writer in lines:
            writer.write(b"GET /v1/ws HTTP/1.1\r\nHost: x\r\nX-Filling: " + b"x" * 16_000)
        await one_exchange(calm, name, "say it works")
        async with asyncio.timeout(10):
            await asyncio.gather(*(ended(reader) for reader, _ in lines))
    for _, writer in lines:
        writer.close()
    async with asyncio.timeout(10):
        while open_files(calm.gateway_pid) > before:
            await asyncio.sleep(0.05)


async def ended(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()


# Clients that are hostile or broken


async def test_ten_thousand_malformed_frames(calm, name):
    """R-M2, R-M3, K5: typed errors, then 4400; others go on, and the gateway has not grown."""
    if calm is None:
        return
    kinds = (
        b"{",
        b"[" * 100_000,
        b'{"type":"ping","id":"1","n":' + b"9" * 5_000 + b"}",
        b'{"type":"ping","id":"1","n":NaN}',
        b'{"type":"ping","id":"1","n":"\\ud83d"}',
        b'{"type":"ping","id":"1","id":"2"}',
        b'{"type":"ping","id":"1","n":"\\u0000"}',
        b'{"type":"ping","id":"1","n":"\0"}',
        b'{"type":5}',
        b"{" * 500,
    )

    async def malformed(number: int) -> int:
        raw = await raw_peer(calm, f"malformed-{number}")
        for place in range(100):
            raw.frame(TEXT, kinds[(place + number) % len(kinds)])
        code, errors = 0, 0
        # Where a client is still writing when its line is closed, its system may keep the close from it.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not code:
                opcode, content = await raw.read()
                if opcode == TEXT:
                    assert json.loads(content)["code"] == "invalid_message"
                    errors += 1
                elif opcode == 8:
                    code = int.from_bytes(content[:2], "big")
        await raw.cut()
        assert (code, errors) == (4400, 10) or (code == 0 and errors <= 10)
        return code

    async with PlainClient(calm.url, calm.secret, "other") as other:
        await other.hello()
        codes = [await malformed(0)]
        async with at_most(calm, ONE):
            for number in range(100):
                codes.append(await malformed(number))
                if number % 10 == 0:
                    assert (await other.request("ping"))["type"] == "pong"
        assert codes.count(4400) > 50


async def test_a_flood_is_refused_then_closed_with_4429(calm, name):
    """R-M2: ten at once; another client's answer comes meanwhile."""
    if calm is None:
        return
    frame = json.dumps({"type": "ping", "id": "x"}).encode()
    piece = (bytes([0x81, 0x80 | len(frame)]) + b"\0\0\0\0" + frame) * 100
    flooders = [await raw_peer(calm, f"flood-{number}") for number in range(10)]

    async def flood(raw: RawPeer) -> int:
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                raw.writer.write(piece)
                await raw.writer.drain()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            return await raw.close_code()
        # Where a client is still writing when its line is closed, its system may keep the close from it.
        return 0

    async def served() -> None:
        async with PlainClient(calm.url, calm.secret, name) as client:
            await client.hello()
            for _ in range(20):
                assert (await client.request("ping"))["type"] == "pong"

    before = await counted(calm)
    async with at_most(calm, ALL):
        codes, _ = await asyncio.gather(asyncio.gather(*map(flood, flooders)), served())
    await connections(calm, 0)
    after = await counted(calm)
    assert after["pheby_closes_total"]["4429"] - before["pheby_closes_total"].get("4429", 0) == len(flooders)
    assert 4429 in codes
    assert set(codes) <= {0, 4429}


async def test_who_asks_for_everything_and_reads_nothing_is_cut_off(calm, name):
    """K7, R-M2: with bounded memory; whoever reads gets each word of the answer meanwhile, and is not slower."""
    if calm is None:
        return
    async with PlainClient(calm.url, calm.secret, name) as client:
        await client.hello()
        conversation_id = await client.create(name)
        await client.exchange(conversation_id, "long 100000", f"1{name}")
        alone, _ = await timed(client, conversation_id, f"2{name}")
        frozen = [await raw_peer(calm, f"frozen-{number}", window=4_096) for number in range(3)]
        before = await counted(calm)
        async with at_most(calm, 3 * ONE):
            asking = asyncio.gather(*(ask_on(raw, conversation_id) for raw in frozen))
            together, words = await timed(client, conversation_id, f"3{name}")
            async with asyncio.timeout(30):
                await asking
        assert words == " ".join(f"w{number}" for number in range(1, 41))
        assert together < 2 * alone + 1
    await connections(calm, 0)
    after = await counted(calm)
    was = before["pheby_closes_total"]
    closes = {code: number - was.get(code, 0) for code, number in after["pheby_closes_total"].items()}
    assert closes.get("4413", 0) + closes.get("4429", 0) == 3


async def timed(client: PlainClient, conversation_id: str, name: str) -> tuple[float, str]:
    """How long an answer of forty words takes, and what it says."""
    since = time.monotonic()
    run = await client.exchange(conversation_id, "slow 40", name)
    assert run["status"] == "completed"
    taken = time.monotonic() - since
    return taken, (await client.history(conversation_id))[-1]["text"]


async def ask_on(raw: RawPeer, conversation_id: str) -> None:
    """Ask for all there is, without reading any of it, until the line is cut."""
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    with contextlib.suppress(ConnectionError):
        for number in range(10_000):
            raw.text(type="conversation.history", id=f"h{number}", conversation_id=conversation_id, limit=200)
            await raw.writer.drain()
            await asyncio.sleep(0.001)
    raw.writer.transport.abort()


async def test_a_line_that_is_dead_is_noticed_within_one_and_a_half_heartbeats(calm, name):
    """L3: nothing comes from there, neither data nor an end."""
    if calm is None:
        return
    await connections(calm, 0)
    raw = await raw_peer(calm, name)
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    since = time.monotonic()
    await connections(calm, 1)
    await connections(calm, 0)
    assert time.monotonic() - since < 1.5 * HEARTBEAT + 1
    await raw.cut()


async def test_two_hundred_come_back_at_once(calm, name):
    """R-I2, R-M2: all with their cursors into the middle of a run, and all are in step."""
    if calm is None:
        return
    async with PlainClient(calm.url, calm.secret, name) as client:
        welcome = await client.hello()
        conversation_id = await client.create(name)
        cursor = {"epoch": welcome["epoch"], "seq": welcome["seq"]}
        await client.exchange(conversation_id, "long 10000", f"1{name}")

        async def back(number: int) -> int:
            async with PlainClient(calm.url, calm.secret, f"storm-{number}") as returned:
                assert (await returned.hello(resume=cursor))["resumed"] is True
                return len(returned.of(conversation_id))

        async with at_most(calm, ALL):
            heard = await asyncio.gather(*(back(number) for number in range(200)))
        assert len(set(heard)) == 1
        assert heard[0] > 0
    await one_exchange(calm, f"2{name}", "say it goes on")


# Files


async def test_a_copy_that_was_exchanged_is_gone(calm, name):
    """R-G2, J9: for a link, another name of another file, a pipe, a shorter one and one with other bytes: 410."""
    if calm is None:
        return
    content, stolen = os.urandom(5_000), b"stolen" * 1_000
    outside = make(calm, f"{name}-outside", stolen)
    files = [make(calm, f"{name}-{number}.bin", content) for number in range(len(EXCHANGES))]
    said = json.dumps({"text": "\n".join(f"MEDIA:{file}" for file in files)})
    async with PlainClient(calm.url, calm.secret, name) as client:
        await client.hello()
        _, created = await delivered(client, await client.create(name), f"reply {said}", f"m-{name}")
    for attachment, exchange in zip(created, EXCHANGES, strict=True):
        assert (await fetch(calm, attachment))[:2] == (200, content)
        exchange(calm.home / "pheby" / "files" / attachment["attachment_id"], outside)
        async with asyncio.timeout(5):
            status, body, _ = await fetch(calm, attachment)
        assert status == 410, exchange
        assert b"stolen" not in body
        assert str(calm.home).encode() not in body


def _link(copy: Path, other: Path) -> None:
    copy.unlink()
    copy.symlink_to(other)


def _hard_link(copy: Path, other: Path) -> None:
    copy.unlink()
    copy.hardlink_to(other)


def _pipe(copy: Path, other: Path) -> None:
    copy.unlink()
    os.mkfifo(copy)


def _shorter(copy: Path, other: Path) -> None:
    os.truncate(copy, 100)


def _overwritten(copy: Path, other: Path) -> None:
    with copy.open("r+b") as file:
        file.write(other.read_bytes()[:5_000])


EXCHANGES: Sequence[Callable[[Path, Path], None]] = (_link, _hard_link, _pipe, _shorter, _overwritten)


async def test_a_thousand_downloads_that_are_cut_leave_no_file_open(calm, name):
    """R-G3, R-M2: and one that is made shorter meanwhile breaks off."""
    if calm is None:
        return
    file = make(calm, f"{name}.bin", os.urandom(32_000_000))
    async with PlainClient(calm.url, calm.secret, name) as client:
        await client.hello()
        _, (attachment,) = await delivered(client, await client.create(name), f"media {file}", f"m-{name}")
    head = f"GET /{attachment['path']} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {calm.secret}\r\n\r\n".encode()

    async def begin() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            reader, writer = await connected(host="127.0.0.1", port=port_of(calm))
            writer.write(head)
            status = (await reader.readuntil(b"\r\n\r\n")).split()[1]
            if status == b"200":
                await reader.readexactly(1_000)
                return reader, writer
            # As many as there may be at once are not quite gone yet.
            assert status == b"503"
            writer.close()
            await asyncio.sleep(0.05)

    async def cut() -> None:
        _, writer = await begin()
        writer.transport.abort()

    before = open_files(calm.gateway_pid)
    await cut()
    async with at_most(calm, ALL):
        for _ in range(100):
            await asyncio.gather(*(cut() for _ in range(10)))
    async with asyncio.timeout(10):
        while open_files(calm.gateway_pid) > before:
            await asyncio.sleep(0.05)
    reader, writer = await begin()
    os.truncate(calm.home / "pheby" / "files" / attachment["attachment_id"], 1_000_000)
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            assert len(await reader.read(-1)) < 32_000_000 - 1_000
    writer.close()


# The gateway's own process


async def test_a_loop_that_stands_still_for_two_seconds_drops_nobody(calm, name):
    """L2, R-M4: somebody else's code in Hermes's loop, in the middle of an answer."""
    if calm is None:
        return
    others = [PlainClient(calm.url, calm.secret, f"{name}-{number}") for number in range(3)]
    async with contextlib.AsyncExitStack() as exits:
        for other in others:
            await exits.enter_async_context(other)
            await other.hello()
        talking, *listening = others
        conversation_id = await talking.create(name)
        receipt = await talking.say(conversation_id, "slow 60", f"1{name}")
        await talking.run_started(receipt["run_id"])
        since = time.monotonic()
        heard = asyncio.gather(*(other.run_end(receipt["run_id"]) for other in listening))
        await bring_about(talking, name, "stall", "2.0")
        assert time.monotonic() - since > 2.0
        ends = [await talking.run_end(receipt["run_id"]), *await heard]
        assert {run["status"] for run in ends} == {"completed"}
        assert (await talking.history(conversation_id))[-1]["text"] == " ".join(f"w{n}" for n in range(1, 61))


async def test_a_clock_that_is_set_by_a_day_changes_nothing(calm, name):
    """R-M4: neither way; who is locked out stays so, nobody is dropped, nothing expires and nothing is refused."""
    if calm is None:
        return
    file = make(calm, f"{name}.txt", b"kept")
    async with PlainClient(calm.url, calm.secret, name) as client:
        await client.hello()
        conversation_id = await client.create(name)
        _, (attachment,) = await delivered(client, conversation_id, f"media {file}", f"m-{name}")
        address = "203.0.113.7"
        while (await status_of(calm, "wrong", address))[0] != 429:
            pass
        for number, ahead in enumerate((DAY, -DAY, 0)):
            receipt = await client.say(conversation_id, "slow 10", f"{number}{name}")
            await client.run_started(receipt["run_id"])
            await bring_about(client, f"{name}-{number}", "clock", str(ahead))
            assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
            _, _, headers = await fetch(calm, attachment)
            assert 0 < int(headers["Cache-Control"].split("max-age=")[1].split(",")[0]) <= 8 * DAY
            server_time = (await client.request("ping"))["server_time"]
            assert abs(server_time / 1_000 - time.time() - ahead) < 60
            status, seconds = await status_of(calm, "wrong", address)
            assert status == 401 or 0 < int(seconds) <= 900
        history = await client.history(conversation_id)
        words = " ".join(f"w{n}" for n in range(1, 11))
        # Where the clock is set in mid-stream, 0.19 may take the model for slow and have it go on behind its last word.
        answers = [message["text"] for message in history if message["text"].startswith(words)]
        assert len(answers) == 3, history
        assert [message["position"] for message in history] == sorted(message["position"] for message in history)


async def test_sigterm_closes_everybody_in_time_and_a_secret_that_was_replaced_is_wrong(calm, name):
    """L1, G9, R-M1, R-M4: drained within five seconds, whoever is frozen; then a secret is another one."""
    if calm is None:
        return
    client = PlainClient(calm.url, calm.secret, name)
    await client.__aenter__()
    welcome = await client.hello()
    conversation_id = await client.create(name)
    await client.exchange(conversation_id, "say before", f"1{name}")
    frozen = await raw_peer(calm, f"frozen-{name}")
    frozen.writer.transport.pause_reading()  # type: ignore[attr-defined]
    receipt = await client.say(conversation_id, "slow 100", f"2{name}")
    await client.run_started(receipt["run_id"])
    os.kill(calm.gateway_pid, signal.SIGTERM)
    await client.until("server.draining")
    since = time.monotonic()
    assert await client.closed() == 1001
    seq = max(frame.get("seq", 0) for frame in client.frames)
    await client.__aexit__(None, None, None)
    while await listens(calm):
        await asyncio.sleep(0.05)
    assert time.monotonic() - since < 5
    await frozen.cut()
    await calm.stop_gateway()
    old, calm.manage_secret = calm.manage_secret, os.urandom(32).hex()
    file = calm.home / ".env"
    file.write_text(file.read_text().replace(old, calm.manage_secret))
    show_frames(calm.home / "config.yaml")
    await calm.start_gateway()
    assert (await status_of(calm, old))[0] == 401
    async with PlainClient(calm.url, calm.manage_secret, name) as client:
        again = await client.hello(resume={"epoch": welcome["epoch"], "seq": seq})
        assert again["resumed"] is True
        run = next(
            run
            for run in (await client.request("conversation.history", conversation_id=conversation_id))["runs"]
            if run["run_id"] == receipt["run_id"]
        )
        assert run["status"] in ("failed", "cancelled")


def show_frames(file: Path) -> None:
    """From the next start on each frame is in the log: for the tests of other files that come behind these."""
    config = yaml.safe_load(file.read_text())
    config["platforms"]["pheby"]["extra"]["verbose"] = True
    file.write_text(yaml.safe_dump(config))


async def listens(stack: Stack) -> bool:
    try:
        _, writer = await connected(host="127.0.0.1", port=port_of(stack))
    except ConnectionError:
        return False
    writer.close()
    return True
