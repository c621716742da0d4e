"""Files of the agent on real gateways: announced with their message, fetched by HTTP byte for byte, never a path."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import zlib
from pathlib import Path

import aiohttp
import pytest
from plain_client import Frame, PlainClient, fold, settle

from pheby.demo.scripts import PICTURE

pytestmark = pytest.mark.asyncio(loop_scope="session")


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + bytes([number % 256]) * (width * 3) for number in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


PDF = b"%PDF-1.7\n" + os.urandom(70_000) + b"\n%%EOF\n"


def make(stack, file_name: str, content: bytes) -> Path:
    """A file where the agent works."""
    folder = stack.home / "work"
    folder.mkdir(exist_ok=True)
    file = folder / file_name
    file.write_bytes(content)
    return file


async def fetch(stack, attachment: Frame, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """An independent client's answer: status, bytes, headers."""
    url = stack.url.replace("ws://", "http://").removesuffix("v1/ws") + attachment["path"]
    wanted = {"Authorization": f"Bearer {stack.secret}"} | headers
    async with aiohttp.ClientSession(auto_decompress=False) as http, http.get(url, headers=wanted) as answer:
        return answer.status, await answer.read(), dict(answer.headers)


async def delivered(client: PlainClient, conversation_id: str, text: str, name: str) -> tuple[Frame, list[Frame]]:
    """The run of a message, and the files that came of it."""
    run = await client.exchange(conversation_id, text, name)
    await settle(client)
    created = [e["attachment"] for e in client.of(conversation_id) if e["type"] == "attachment.created"]
    return run, created


def told(client: PlainClient, conversation_id: str) -> str:
    """What the server said by itself: the owner's own words name a path here, and so may a title made of them."""
    events = [event for event in client.of(conversation_id) if not event["type"].startswith("conversation.")]
    return json.dumps([event for event in events if event.get("message", {}).get("role") != "user"])


@pytest.mark.parametrize(
    ("file_name", "content", "kind", "inline"),
    [
        ("report 1.pdf", PDF, "application/pdf", False),
        ("Größe & mehr.png", png(31, 17), "image/png", True),
        ("notes", b"plain words\n", "text/plain", False),
        ("nothing.txt", b"", "text/plain", False),
        ("film.mp4", b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + bytes(3_000), "video/mp4", False),
        ("sound.mp3", b"ID3\x04\0\0\0\0\0\0" + bytes(2_000), "audio/mpeg", False),
    ],
    ids=["document", "image", "text", "empty", "video", "audio"],
)
async def test_a_file_reaches_the_owner_byte_for_byte(stack, client, name, file_name, content, kind, inline):
    """R-G1, R-G3: with its message, in the run, before the run's end."""
    file = make(stack, f"{name}-{file_name}", content)
    conversation_id = await client.create(name)
    run, (attachment,) = await delivered(client, conversation_id, f"media {file}", f"m-{name}")
    assert run["status"] == "completed"
    assert attachment["file_name"] == file.name
    assert (attachment["media_type"], attachment["size"]) == (kind, len(content))
    assert attachment["sha256"] == hashlib.sha256(content).hexdigest()
    assert (attachment["inline_image"], attachment.get("image")) == (
        inline,
        {"width": 31, "height": 17} if inline else None,
    )
    # What becomes of the original is of no matter.
    file.unlink()
    status, body, headers = await fetch(stack, attachment)
    assert (status, body) == (200, content)
    assert headers["X-Content-Type-Options"] == "nosniff"
    events = client.of(conversation_id)
    types = [event["type"] for event in events]
    assert types.index("attachment.created") < types.index("run.ended")
    message = fold(events)[attachment["message_id"]]
    assert message["attachments"] == [attachment]
    assert (message["role"], message["run_id"]) == ("assistant", run["run_id"])
    assert "Here is the file." in message["text"]
    assert "That was it." in message["text"]
    assert str(stack.home) not in told(client, conversation_id)
    history = await client.history(conversation_id)
    assert next(found for found in history if found["message_id"] == message["message_id"]) == message


@pytest.mark.parametrize("ending", ["png", "txt"])
async def test_what_a_tool_has_made_reaches_the_owner(stack, client, name, ending):
    """R-G1, R-G2: made by a tool of the agent, deleted by it a moment later."""
    if stack.hermes_version == "simulated":
        return  # its tools make nothing
    file = stack.home / "work" / f"{name}.{ending}"
    file.parent.mkdir(exist_ok=True)
    conversation_id = await client.create(name)
    run, (attachment,) = await delivered(client, conversation_id, f"produce {file}", f"m-{name}")
    assert run["status"] == "completed"
    content = base64.b64decode(PICTURE) if ending == "png" else b"made by a tool\n"
    assert file.read_bytes() == content
    file.write_bytes(b"something else")
    status, body, _ = await fetch(stack, attachment)
    assert (status, body) == (200, content)
    assert attachment.get("image") == ({"width": 2, "height": 3} if ending == "png" else None)


async def test_files_are_the_same_after_a_restart(stack, name):
    """R-G4: descriptions and bytes survive; the owner fetches part of one."""
    file = make(stack, f"{name}.pdf", PDF)
    async with PlainClient(stack.url, stack.secret, f"d-{name}") as client:
        await client.hello()
        conversation_id = await client.create(name)
        _, (attachment,) = await delivered(client, conversation_id, f"media {file}", f"m-{name}")
    await stack.restart(kill=True)
    async with PlainClient(stack.url, stack.secret, f"d-{name}") as back:
        await back.hello()
        answer = await back.request("attachment.get", attachment_id=attachment["attachment_id"])
        assert answer["attachment"] == attachment
        assert [m["attachments"] for m in await back.history(conversation_id) if m["attachments"]] == [[attachment]]
    status, body, headers = await fetch(stack, attachment, Range="bytes=1000-1999")
    assert (status, body) == (206, PDF[1_000:2_000])
    assert headers["Content-Range"] == f"bytes 1000-1999/{len(PDF)}"


@pytest.mark.parametrize("which", ["missing", "directory", "link", "own database"])
async def test_what_may_not_be_sent_is_a_notice(stack, client, name, which):
    """R-G2, J1, J6: visible, without a path, whoever has refused it."""
    secret = f"contents of {name}"
    target = make(stack, f"{name}.secret", secret.encode())
    file = {
        "missing": stack.home / "work" / f"{name}-none.pdf",
        "directory": stack.home / "work",
        "link": stack.home / "work" / f"{name}-link.pdf",
        "own database": stack.home / "pheby" / "pheby.db",
    }[which]
    if which == "link":
        file.symlink_to("/etc/passwd" if stack.hermes_version != "simulated" else "/proc/self/status")
    conversation_id = await client.create(name)
    run, created = await delivered(client, conversation_id, f"media {file}", f"m-{name}")
    assert (run["status"], created) == ("completed", [])
    messages = [m for m in fold(client.of(conversation_id)).values() if m["role"] == "notice"]
    (notice,) = messages
    assert file.name in notice["text"] or which == "link"
    assert notice["run_id"] == run["run_id"]
    shown = told(client, conversation_id)
    assert str(stack.home) not in shown
    assert "root:x" not in shown
    assert secret not in shown
    assert target.exists()


async def test_two_pictures_and_a_document_come_in_one_answer(stack, client, name):
    """J4: one attachment for each file, also where the same one is named twice."""
    first, second = make(stack, f"{name}-1.png", png(3, 4)), make(stack, f"{name}-2.png", png(5, 6))
    third = make(stack, f"{name}-3.pdf", PDF)
    conversation_id = await client.create(name)
    tags = f"{first}\nMEDIA:{second}\nMEDIA:{third}\nMEDIA:{first}"
    said = json.dumps({"text": f"MEDIA:{tags}"})
    run, created = await delivered(client, conversation_id, f"reply {said}", f"m-{name}")
    assert run["status"] == "completed"
    assert sorted(a["file_name"] for a in created) == sorted([first.name, second.name, third.name])
    # Files alone have a message with empty text.
    (message,) = [m for m in fold(client.of(conversation_id)).values() if m["attachments"]]
    assert (message["text"], message["status"], len(message["attachments"])) == ("", "completed", 3)
