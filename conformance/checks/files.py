"""Files of the agent, by HTTP."""

from __future__ import annotations

import hashlib
import re
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

from ..check import FILES, SCRIPTED, check, check_each, expect, same
from ..phone import Frame, Phone
from ..scene import Response, Scene

_NEEDS = (SCRIPTED, FILES, "attachments")
_CONTENT = b"%PDF-1.7\n" + bytes(range(256)) * 40 + b"\n%%EOF\n"


async def _delivered(scene: Scene, name: str = "report 1.pdf", content: bytes = _CONTENT) -> tuple[Phone, Frame]:
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    return phone, await scene.delivered(phone, conversation_id, name, content)


async def _fetch(scene: Scene, attachment: Frame, method: str = "GET", **headers: Any) -> Response:
    return await scene.request(attachment["path"], method, **headers)


@check("files/described", "P-ATT-3", needs=_NEEDS)
async def described(scene: Scene) -> None:
    """A file is described with its message: name, size, SHA-256; by attachment.get and in history the same."""
    phone, attachment = await _delivered(scene)
    same(attachment["file_name"], "report 1.pdf", "file_name")
    same((attachment["size"], attachment["status"]), (len(_CONTENT), "available"), "size and status")
    same(attachment["sha256"], hashlib.sha256(_CONTENT).hexdigest(), "sha256")
    found = await phone.ask("attachment.get", attachment_id=attachment["attachment_id"])
    same(found["attachment"], attachment, "attachment.get")
    page = await scene.history(phone, attachment["conversation_id"])
    listed = [item for message in page["messages"] for item in message["attachments"]]
    same(listed, [attachment], "in history")
    types = [event["type"] for event in phone.events(attachment["conversation_id"])]
    expect(types.index("attachment.created") < types.index("run.ended"), "it came after its run's end")


@check("files/no-path", "P-ATT-2", needs=_NEEDS)
async def no_path(scene: Scene) -> None:
    """No path of the server's machine is shown, neither in the description nor in the answer."""
    _, attachment = await _delivered(scene)
    answer = await _fetch(scene, attachment)
    assert scene.lab.files is not None
    told = repr(attachment) + repr(dict(answer.headers))
    expect(str(scene.lab.files) not in told, "the folder is named")
    expect(not attachment["path"].startswith("/") and "://" not in attachment["path"], "path is not relative")


@check("files/get", "P-ATT-4", needs=_NEEDS)
async def get(scene: Scene) -> None:
    """GET gives the bytes, their length and a strong ETag of their SHA-256."""
    _, attachment = await _delivered(scene)
    answer = await _fetch(scene, attachment)
    same((answer.status, answer.body == _CONTENT), (200, True), "status and content")
    same(answer.headers.get("Content-Length"), str(len(_CONTENT)), "Content-Length")
    same(answer.headers.get("ETag"), f'"{attachment["sha256"]}"', "ETag")
    same(answer.headers.get("Accept-Ranges"), "bytes", "Accept-Ranges")


@check("files/head", "P-ATT-4", needs=_NEEDS)
async def head(scene: Scene) -> None:
    """HEAD gives the same headers without bytes, also with a Range."""
    _, attachment = await _delivered(scene)
    for headers in ({}, {"Range": "bytes=0-9"}):
        answer = await _fetch(scene, attachment, "HEAD", **headers)
        same((answer.status, answer.body), (200, b""), "status and body")
        same(answer.headers.get("Content-Length"), str(len(_CONTENT)), "Content-Length")


@check_each(
    "files/range",
    "P-ATT-4",
    needs=_NEEDS,
    cases={
        "from": ("bytes=1024-", slice(1024, None)),
        "first-byte": ("bytes=0-0", slice(0, 1)),
        "between": ("bytes=100-199", slice(100, 200)),
        "beyond-the-end": ("bytes=100-999999", slice(100, None)),
        "suffix": ("bytes=-500", slice(-500, None)),
        "suffix-of-more": ("bytes=-999999", slice(0, None)),
    },
)
async def range_(scene: Scene, case: tuple[str, slice]) -> None:
    """One range gives 206 and exactly those bytes"""
    header, part = case
    _, attachment = await _delivered(scene)
    answer = await _fetch(scene, attachment, Range=header)
    same((answer.status, answer.body == _CONTENT[part]), (206, True), "status and content")
    start, stop, _ = part.indices(len(_CONTENT))
    same(answer.headers.get("Content-Range"), f"bytes {start}-{stop - 1}/{len(_CONTENT)}", "Content-Range")


@check_each(
    "files/range-ignored",
    "P-ATT-4",
    needs=_NEEDS,
    cases={"several": "bytes=0-9,20-29", "other-unit": "lines=1-2", "nonsense": "bytes=x-y", "backwards": "bytes=9-1"},
)
async def range_ignored(scene: Scene, header: str) -> None:
    """A range that cannot be served as one is ignored: 200 with the whole"""
    _, attachment = await _delivered(scene)
    answer = await _fetch(scene, attachment, Range=header)
    same((answer.status, answer.body == _CONTENT), (200, True), "status and content")


@check_each(
    "files/no-such-range", "P-ATT-4", needs=_NEEDS, cases={"beyond": "bytes=999999-", "empty-suffix": "bytes=-0"}
)
async def no_such_range(scene: Scene, header: str) -> None:
    """A range that the file has not is 416, which says how long it is"""
    _, attachment = await _delivered(scene)
    answer = await _fetch(scene, attachment, Range=header)
    same(answer.status, 416, "status")
    same(answer.headers.get("Content-Range"), f"bytes */{len(_CONTENT)}", "Content-Range")


@check_each(
    "files/if-range",
    "P-ATT-4",
    needs=_NEEDS,
    cases={
        "its-etag": (lambda etag: etag, 206),
        "another-etag": (lambda _: '"0000"', 200),
        "weak-etag": (lambda etag: f"W/{etag}", 200),
        "date": (lambda _: formatdate(usegmt=True), 200),
    },
)
async def if_range(scene: Scene, case: tuple[Any, int]) -> None:
    """If-Range gives the rest for this very ETag, else the whole"""
    make, status = case
    _, attachment = await _delivered(scene)
    answer = await _fetch(scene, attachment, Range="bytes=1000-", If_Range=make(f'"{attachment["sha256"]}"'))
    same(answer.status, status, "status")
    same(answer.body == (_CONTENT[1000:] if status == 206 else _CONTENT), True, "content is right")


@check_each(
    "files/conditions",
    "P-ATT-4",
    needs=_NEEDS,
    cases={
        "none-match-its": ("If-None-Match", lambda etag: etag, 304),
        "none-match-weak": ("If-None-Match", lambda etag: f"W/{etag}", 304),
        "none-match-star": ("If-None-Match", lambda _: "*", 304),
        "none-match-another": ("If-None-Match", lambda _: '"0000"', 200),
        "match-its": ("If-Match", lambda etag: f'"0000", {etag}', 200),
        "match-another": ("If-Match", lambda _: '"0000"', 412),
    },
)
async def conditions(scene: Scene, case: tuple[str, Any, int]) -> None:
    """Conditions of RFC 9110 are kept"""
    header, make, status = case
    _, attachment = await _delivered(scene)
    answer = await _fetch(scene, attachment, **{header: make(f'"{attachment["sha256"]}"')})
    same(answer.status, status, "status")


@check("files/unknown", "P-ATT-4")
async def unknown(scene: Scene) -> None:
    """An unknown file is 404, by attachment.get not_found."""
    for path in ("att_0", "..%2F..%2Fetc%2Fpasswd", "a" * 300):
        same((await scene.request(f"v1/attachments/{path}")).status, 404, f"status of {path[:30]}")


@check("files/unknown-description", "P-ERR-1", needs=("attachments",))
async def unknown_description(scene: Scene) -> None:
    """attachment.get of an unknown file is not_found."""
    await (await scene.in_step()).refused("not_found", "attachment.get", attachment_id="att_0")


@check_each("files/no-secret", "P-HELLO-2", cases={"none": None, "wrong": "wrong-wrong-wrong-wrong-wrong-wrong-wrong"})
async def no_secret(scene: Scene, secret: str | None) -> None:
    """Without the secret every file is 401, known or not"""
    answer = await scene.request("v1/attachments/att_0", secret=secret)
    same(answer.status, 401, "status")


@check("files/known-without-secret", "P-ATT-4", needs=_NEEDS)
async def known_without_secret(scene: Scene) -> None:
    """A file that is there is 401 without the secret, also when the secret is in the address."""
    _, attachment = await _delivered(scene)
    same((await _fetch(scene, attachment, secret=None)).status, 401, "status without")
    answer = await _fetch(scene, attachment, secret=None, params={"token": scene.lab.secret})
    same(answer.status, 401, "status with the secret in the address")


@check("files/deleted", "P-ATT-4", needs=(*_NEEDS, "delete"))
async def deleted(scene: Scene) -> None:
    """With its conversation a file is gone: 404."""
    phone, attachment = await _delivered(scene)
    await phone.ask("conversation.delete", conversation_id=attachment["conversation_id"])
    same((await _fetch(scene, attachment)).status, 404, "status")
    await phone.refused("not_found", "attachment.get", attachment_id=attachment["attachment_id"])


@check_each("files/other-methods", "P-ATT-4", needs=_NEEDS, cases={"post": "POST", "put": "PUT", "delete": "DELETE"})
async def other_methods(scene: Scene, method: str) -> None:
    """Any other method is answered as an unknown address, and changes nothing"""
    _, attachment = await _delivered(scene)
    same((await _fetch(scene, attachment, method)).status, 404, "status")
    same((await _fetch(scene, attachment)).body == _CONTENT, True, "content is right afterwards")


@check("files/headers", "P-ATT-5", needs=_NEEDS)
async def headers(scene: Scene) -> None:
    """nosniff, a private and immutable copy, and nothing compressed."""
    _, attachment = await _delivered(scene)
    answer = await _fetch(scene, attachment, Accept_Encoding="gzip, deflate, br")
    same(answer.headers.get("X-Content-Type-Options"), "nosniff", "X-Content-Type-Options")
    expect("Content-Encoding" not in answer.headers, "it is compressed")
    control = answer.headers.get("Cache-Control", "")
    for word in ("private", "immutable", "no-transform", "max-age="):
        expect(word in control, f"Cache-Control lacks {word}")
    same(answer.headers.get("Content-Type", "").partition(";")[0], attachment["media_type"], "Content-Type")


@check_each(
    "files/name",
    "P-ATT-5",
    needs=_NEEDS,
    cases={
        "plain": "report.pdf",
        "space": "two words.pdf",
        "unicode": "Größe 漢字 😀.pdf",
        "signs": "100% & (b).pdf",
        "no-ending": "README",
    },
)
async def name(scene: Scene, file_name: str) -> None:
    """Content-Disposition carries any name safely, as filename*"""
    _, attachment = await _delivered(scene, file_name)
    same(attachment["file_name"], file_name, "file_name")
    found = (await _fetch(scene, attachment)).headers.get("Content-Disposition", "")
    expect(found.startswith("attachment;"), f"not an attachment: {found}")
    match = re.search(r"filename\*=UTF-8''([A-Za-z0-9!#$&+.^_`|~%-]*)", found)
    expect(match, f"no filename*: {found}")
    assert match is not None
    same(unquote(match[1]), file_name, "filename*")


@check("files/empty", "P-ATT-4", needs=_NEEDS)
async def empty(scene: Scene) -> None:
    """A file of no bytes is a file."""
    _, attachment = await _delivered(scene, "nothing.txt", b"")
    answer = await _fetch(scene, attachment)
    same((answer.status, answer.body, attachment["size"]), (200, b"", 0), "status, content, size")
