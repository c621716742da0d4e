"""What kind of file something is (R-G1)."""

from __future__ import annotations

import io
import struct
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pheby_server.media_types import HEAD_BYTES, INLINE_IMAGES, UNKNOWN, image_size, media_type


def png(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(header)) + chunk + struct.pack(">I", zlib.crc32(chunk))


def jpeg(width: int, height: int, orientation: int = 1) -> bytes:
    tiff = b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x112, 3, 1, orientation, 0, 0)
    exif = b"Exif\0\0" + tiff
    frame = struct.pack(">BHHB", 8, height, width, 3) + b"\1\x11\0\2\x11\1\3\x11\1"
    return (
        b"\xff\xd8\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
        + b"\xff\xc0" + struct.pack(">H", len(frame) + 2) + frame + b"\xff\xd9"
    )  # fmt: skip


GIF = b"GIF89a" + struct.pack("<HH", 7, 9) + b"\0\0\0;"
WEBP = b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f" + struct.pack("<I", (7 - 1) | (9 - 1) << 14) + bytes(9)
ZIP = b"PK\x03\x04" + bytes(40)
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)


@pytest.mark.parametrize(
    ("head", "name", "kind"),
    [
        (png(1, 1), "a.png", "image/png"),
        (png(1, 1), "a.html", "image/png"),
        (png(1, 1), "a", "image/png"),
        (jpeg(1, 1), "a.jpeg", "image/jpeg"),
        (GIF, "a.gif", "image/gif"),
        (WEBP, "a.webp", "image/webp"),
        (b"%PDF-1.7\n", "a.pdf", "application/pdf"),
        (b"%PDF-1.7\n", "a.txt", "application/pdf"),
        (ZIP, "a.zip", "application/zip"),
        (ZIP, "a.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        (ZIP, "a.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        (ZIP, "a.odt", "application/vnd.oasis.opendocument.text"),
        (ZIP, "a.epub", "application/epub+zip"),
        (ZIP, "a.apk", "application/vnd.android.package-archive"),
        (b"words\n", "a.docx", "text/plain"),
        (ZIP, "a.html", "application/zip"),
        (ZIP, "a.svg", "application/zip"),
        (OLE, "a.html", UNKNOWN),
        (b"words\n", "a.txt", "text/plain"),
        (b"words\n", "a.md", "text/markdown"),
        (b"words\n", "A.MD", "text/markdown"),
        (b"words\n", "a.csv", "text/csv"),
        (b"words\n", "notes", "text/plain"),
        (b"words\n", "a.png", "text/plain"),
        (b"words\n", "a.pdf", "text/plain"),
        (b"words\n", "a.exe", "text/plain"),
        (b"<html><script>x</script>", "a.html", "text/html"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "a.svg", "image/svg+xml"),
        (b"{}", "a.json", "application/json"),
        ("Größe".encode(), "a.txt", "text/plain"),
        (b"", "a.txt", "text/plain"),
        (b"", "a.png", "text/plain"),
        (b"", "", "text/plain"),
        (b"\0\1\2", "a.txt", UNKNOWN),
        (b"\xff\xfe\xfa", "a.html", UNKNOWN),
        (bytes(100), "a.png", UNKNOWN),
        (b"words", "data:text/html,x", "text/html"),
        (b"\0", "data:text/html,x", UNKNOWN),
        (b"words", "." * 300, "text/plain"),
    ],
)
def test_content_counts_before_the_name(head: bytes, name: str, kind: str) -> None:
    """J10: nothing that is no picture is one, whatever it is called."""
    assert media_type(head, name) == kind


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_a_character_that_is_cut_off_is_still_text(cut: int) -> None:
    text = ("x" * (HEAD_BYTES - 3 + cut) + "\U0001f600").encode()[:HEAD_BYTES]
    assert media_type(text, "a.txt") == "text/plain"
    assert media_type(b"\xff" + text[1:], "a.txt") == UNKNOWN


@given(st.binary(max_size=300), st.text(max_size=60))
def test_anything_has_a_type_that_a_header_can_carry(head: bytes, name: str) -> None:
    """J10."""
    kind = media_type(head, name)
    main, slash, rest = kind.partition("/")
    assert main
    assert slash
    assert rest
    assert kind.isascii()
    assert kind.isprintable()
    assert not set(' ;",') & set(kind)


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (png(31, 17), (31, 17)),
        (GIF, (7, 9)),
        (WEBP, (7, 9)),
        (jpeg(31, 17), (31, 17)),
        (jpeg(31, 17, orientation=6), (17, 31)),
        (png(0, 17), None),
        (png(2**31, 17), None),
        (b"\x89PNG\r\n\x1a\n", None),
        (b"\xff\xd8\xff", None),
        (b"", None),
        (b"words", None),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><!ENTITY", None),
    ],
)
def test_a_pictures_size_is_that_in_which_it_is_shown(content: bytes, size: tuple[int, int] | None) -> None:
    """R-G1: a camera's picture that lies on its side is turned by who shows it."""
    assert image_size(io.BytesIO(content)) == size


def test_pictures_that_are_shown_hold_no_script() -> None:
    assert "image/svg+xml" not in INLINE_IMAGES


def test_a_picture_without_an_end_is_given_up_soon() -> None:
    """R-M2: where the library looks byte by byte for a mark that does not come."""

    class Counted(io.BytesIO):
        asked = 0

        def read(self, size: int | None = -1) -> bytes:
            self.asked += 1
            return super().read(size)

    endless = Counted(b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(20_000_000))
    assert image_size(endless) is None
    assert endless.asked < 10


def test_entities_of_a_drawing_are_not_blown_up() -> None:
    """R-M2."""
    layers = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(12))
    bomb = f'<!DOCTYPE svg [<!ENTITY a0 "{"x" * 100}">{layers}]><svg width="&a12;" height="1">&a12;</svg>'
    began = time.process_time()
    assert image_size(io.BytesIO(bomb.encode())) is None
    assert time.process_time() - began < 2


@given(st.sampled_from([png(3, 4), jpeg(3, 4, 6), GIF, WEBP]), st.data())
def test_a_damaged_picture_has_a_size_or_none(content: bytes, data: st.DataObject) -> None:
    """R-M2."""
    at = data.draw(st.integers(0, len(content) - 1))
    damaged = content[:at] + data.draw(st.binary(max_size=4)) + content[at + data.draw(st.integers(0, 4)) :]
    size = image_size(io.BytesIO(damaged))
    assert size is None or (size[0] > 0 and size[1] > 0)
