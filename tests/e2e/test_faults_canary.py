"""What must not be told is told nowhere (R-L1, R-M3, R-G1, J12).

A word of its own is put into each place: the secret in the header, one in the query, the owner's message, the folder of
a file, an exception of Hermes's, a wrong setting. The owner's words are content: both databases and Hermes's own files
have them, no line of Pheby's does. The folder is known to Hermes alone. All others are only where they were put.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from plain_client import PlainClient
from test_files import delivered, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")


_BEGINS = re.compile(r"\d{4}-\d\d-\d\d |\d\d:\d\d:\d\d |(DEBUG|INFO|WARNING|ERROR|CRITICAL) ")


def canary(where: str) -> str:
    return f"canary-{where}-{secrets.token_hex(16)}"


def unsaid(text: str) -> str:
    """JSON that holds a text without one character of it."""
    return "".join(f"\\u{ord(character):04x}" for character in text)


class Told:
    """Everything that a client was told, and what processes are started with."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def get(self, stack: Any, path: str, secret: str | None = None) -> int:
        base = stack.url.replace("ws://", "http://").removesuffix("v1/ws")
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        async with aiohttp.ClientSession() as http, http.get(base + path, headers=headers) as answer:
            self.texts += [await answer.text(errors="replace"), str(answer.headers)]
            return answer.status

    def has(self, word: str) -> bool:
        return any(word in text for text in self.texts)


async def traffic(stack: Any, told: Told, words: str, query: str, folder: str, name: str) -> str:
    """Use of every kind; the conversation in which it was."""
    for path in (f"v1/ws?token={query}", f"v1/attachments/att_1?token={query}", f"v1/{query}"):
        assert await told.get(stack, path) == 401
        await told.get(stack, path, query)
        await told.get(stack, path, stack.secret)
    place = stack.home / "work" / folder
    place.mkdir(parents=True)
    (place / f"{name}.txt").write_text("content of a file")
    async with PlainClient(f"{stack.url}?token={query}", stack.secret, name) as client:
        await client.hello()
        conversation_id = await client.create(name)
        assert (await client.exchange(conversation_id, f"say {words}", f"1{name}"))["status"] == "completed"
        path = unsaid(str(place))
        said = f'{{"text": "MEDIA:{path}/{name}.txt\\nMEDIA:{path}/{name}-none.txt"}}'
        _, created = await delivered(client, conversation_id, f"reply {said}", f"2{name}")
        for attachment in created:
            _, body, headers = await fetch(stack, attachment)
            told.texts += [body.decode(), str(headers)]
        await client.history(conversation_id)
        for bad in (f'{{"type":"{query}","id":"1"}}', f'{{"{query}', f'{{"type":"ping","id":"{query * 5}"}}'):
            await client.send_text(bad)
        told.texts += [json.dumps(frame) for frame in client.frames]
    return conversation_id


def files_with(home: Path, word: str) -> set[str]:
    """The files of a home that hold a word, by their first folder or own name."""
    found = set()
    for file in home.rglob("*"):
        # What is written meanwhile may go meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if file.is_file() and not file.is_symlink() and word.encode() in file.read_bytes():
                found.add(str(file.relative_to(home)))
    return found


def lines_of_pheby(home: Path) -> str:
    """What Pheby wrote into any log, with the lines below that belong to it."""
    ours, kept = False, []
    for file in (home / "logs").rglob("*.log*"):
        for line in file.read_text(errors="replace").splitlines():
            if _BEGINS.match(line):
                ours = "pheby_" in line
            if ours:
                kept.append(line)
    return "\n".join(kept)


def started_with(pids: Iterable[int]) -> str:
    """Arguments of processes."""
    return "".join(_read(f"/proc/{pid}/cmdline") for pid in pids)


def surroundings(pids: Iterable[int]) -> str:
    """Environments of processes."""
    return "".join(_read(f"/proc/{pid}/environ") for pid in pids)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(errors="replace")
    except OSError:
        return ""


def below(pid: int) -> set[int]:
    """The processes that one has started, and theirs."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(str(task)).split():
            found |= {int(child)} | below(int(child))
    return found


async def test_no_canary_is_told_anywhere_by_a_gateway(faulty, name):
    """R-L1, R-D3, R-M3, R-G1, J12, L2: with every frame in the log, on a real gateway."""
    if faulty is None:
        return
    file = faulty.home / "config.yaml"
    before = file.read_text()
    config = yaml.safe_load(before)
    if not config["platforms"]["pheby"]["extra"].get("verbose"):
        config["platforms"]["pheby"]["extra"]["verbose"] = True
        file.write_text(yaml.safe_dump(config))
        await faulty.restart()
    words, query, folder, failure = map(canary, ("words", "query", "folder", "failure"))
    told = Told()
    conversation_id = await traffic(faulty, told, words, query, folder, name)
    async with PlainClient(faulty.url, faulty.secret, f"2{name}") as client:
        await client.hello()
        other_id = await client.create(f"2{name}")
        for value in (failure[::-1], ""):
            call = json.dumps({"kind": "unreadable", "value": value})
            await client.exchange(other_id, f"call fault {call}", f"{len(value)}{name}")
            asked = await client.request("conversation.history", conversation_id=conversation_id)
            await client.request("conversation.list")
            if value:
                refused = asked
        receipt = await client.say(other_id, "run sleep 3", f"3{name}")
        await client.until("tool.started")
        children = set[int]()
        while not any("sleep" in started_with([pid]) for pid in children):
            await asyncio.sleep(0.05)
            children = below(faulty.gateway_pid)
        arguments = started_with({*children, faulty.gateway_pid})
        around = surroundings(children)
        assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
        told.texts += [json.dumps(frame) for frame in client.frames]
    assert refused["type"] in ("error", "conversation.history.result")
    assert await told.get(faulty, "v1/metrics", faulty.secret) == 200
    ours = lines_of_pheby(faulty.home)
    assert "frame.received" in ours
    assert "frame.sent" in ours
    # Each was brought about: else nothing is shown by its absence.
    assert told.has(words)
    assert told.has(f"{name}.txt")
    assert "RuntimeError" in ours
    for word in (faulty.secret, faulty.manage_secret, faulty.watch_secret, query, folder, failure):
        assert not told.has(word), word
        assert word not in arguments, word
    for word in (words, query, folder, failure, faulty.secret):
        assert word not in ours, word
    assert files_with(faulty.home, faulty.secret) == {".env"}
    assert files_with(faulty.home, query) == set()
    assert files_with(faulty.home, failure) == set()
    assert {found for found in files_with(faulty.home, folder) if found.startswith("pheby/")} == set()
    assert {found for found in files_with(faulty.home, words) if found.startswith("pheby/")} <= {
        "pheby/pheby.db",
        "pheby/pheby.db-wal",
    }
    if faulty.environment.line.name != "0.19":
        # 0.19 keeps no secret of an added platform from the agent's commands (docs/limitations.md).
        for secret in (faulty.secret, faulty.manage_secret, faulty.watch_secret):
            assert secret not in around
    file.write_text(before)


async def test_no_wrong_setting_is_told(faulty, name):
    """R-K1, R-L1, R-M3: the key is named, what stands there is not."""
    if faulty is None:
        return
    file, word = faulty.home / "config.yaml", canary("setting")
    before = file.read_text()
    config = yaml.safe_load(before)
    extra = config["platforms"]["pheby"]["extra"]
    extra |= {
        "port": word,
        "trusted_proxies": [word],
        "storage": f"\0{word}",
        word: word,
        "limits": {"log_events": word},
    }
    await faulty.stop_gateway()
    begin = faulty.gateway.log.stat().st_size
    file.write_text(yaml.safe_dump(config))
    try:
        await faulty.gateway.start()
        async with asyncio.timeout(60):
            while b"config.refused" not in (said := faulty.gateway.log.read_bytes()[begin:]):
                await asyncio.sleep(0.05)
        arguments = started_with({faulty.gateway_pid, *below(faulty.gateway_pid)})
    finally:
        await faulty.gateway.kill()
        file.write_text(before)
    assert b"platforms.pheby.extra.port" in said
    assert word not in arguments
    # 0.22 keeps copies of its settings.
    assert {found for found in files_with(faulty.home, word) if not found.startswith("backups/config/")} == set()
    await faulty.start_gateway()


async def test_no_canary_is_told_anywhere_by_a_server(stack, name, caplog, capfd):
    """R-L1, R-D3, R-M3, R-G1, J12: the same without Hermes, with what the whole process writes."""
    if stack.hermes_version != "simulated":
        return
    caplog.set_level(logging.DEBUG)
    words, query, folder = map(canary, ("words", "query", "folder"))
    told = Told()
    await traffic(stack, told, words, query, folder, name)
    written = caplog.text + "".join(capfd.readouterr())
    ours = "\n".join(line for line in written.splitlines() if "pheby_" in line)
    assert "client.connected" in ours
    for word in (stack.secret, query, folder):
        assert not told.has(word), word
        assert word not in ours, word
        assert files_with(stack.home, word) == set()
    assert told.has(words)
    assert words not in ours
    assert files_with(stack.home, words) <= {"pheby/pheby.db", "pheby/pheby.db-wal"}
