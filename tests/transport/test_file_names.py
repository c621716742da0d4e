"""J10, R-G3: a header for any file name, which cannot be left and says the name."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pheby_server.aiohttp_transport.file_names import MAX_BYTES, MAX_CHARS, content_disposition, safe_name

# RFC 6266 and RFC 8187, as far as they are used: a quoted string of plain characters, and an extended value.
FORM = re.compile(
    r"(?P<kind>attachment|inline); "
    r'filename="(?P<plain>[\x20\x21\x23-\x5b\x5d-\x7e]+)"; '
    r"filename\*=UTF-8''(?P<coded>(?:[A-Za-z0-9!#$&+.^_`|~-]|%[0-9A-F]{2})+)"
)


def read(value: str) -> tuple[str, str, str]:
    """Kind, plain name, whole name."""
    found = FORM.fullmatch(value)
    assert found, value
    return found["kind"], found["plain"], unquote(found["coded"], errors="strict")


@pytest.mark.parametrize(
    ("given_name", "plain", "whole"),
    [
        ("report.pdf", "report.pdf", "report.pdf"),
        ("disk usage.png", "disk usage.png", "disk usage.png"),
        ("отчёт.pdf", "_____.pdf", "отчёт.pdf"),
        ('a"b.txt', "ab.txt", "ab.txt"),
        ("x\r\nSet-Cookie: y", "xSet-Cookie: y", "xSet-Cookie: y"),
        ("a\\b/c.txt", "abc.txt", "abc.txt"),
        ("../../etc/passwd", "....etcpasswd", "....etcpasswd"),
        ("a\0b\x7f\x85c", "abc", "abc"),
        ("invoice\u202egpj.exe", "invoicegpj.exe", "invoicegpj.exe"),
        ("a\u2028b\u2029c\u2066d\u061ce", "abcde", "abcde"),
        ("a\ud800b.txt", "ab.txt", "ab.txt"),
        ("100%.txt", "100_.txt", "100%.txt"),
        ("a;b=c'd.txt", "a;b=c'd.txt", "a;b=c'd.txt"),
        ("👨\u200d👩\u200d👧.png", "_____.png", "👨\u200d👩\u200d👧.png"),
        (".bashrc", ".bashrc", ".bashrc"),
        ("  x  ", "x", "x"),
        ("", "attachment", "attachment"),
        ("..", "attachment", "attachment"),
        ('\r\n"/', "attachment", "attachment"),
    ],
)
def test_the_name_is_told_and_nothing_else(given_name: str, plain: str, whole: str) -> None:
    """J10."""
    assert read(content_disposition(given_name, inline=False)) == ("attachment", plain, whole)


def test_two_hundred_emoji() -> None:
    """J10: whole, and short enough for a proxy that takes 4 KiB of headers."""
    value = content_disposition("😀" * 200, inline=True)
    assert read(value)[0] == "inline"
    assert read(value)[2] == "😀" * 200
    assert len(value) < 2_900


@pytest.mark.parametrize("char", ["x", "é", "ह", "😀"])
def test_a_long_name_keeps_its_ending(char: str) -> None:
    """J10."""
    name = safe_name(char * 100_000 + ".tar.gz")
    assert name.endswith(char + ".gz")
    assert len(name) <= MAX_CHARS
    assert MAX_BYTES - 4 < len(name.encode()) <= MAX_BYTES or len(name) == MAX_CHARS


@given(st.text(max_size=400) | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "So"]), max_size=400))
@example("." * 400)
@example("a." + "b" * 400)
@example("x" * 299 + "." + "é" * 16)
def test_any_text_makes_a_header_of_the_form(name: str) -> None:
    """J10, R-G3."""
    for inline in (True, False):
        _, plain, whole = read(content_disposition(name, inline=inline))
        assert whole == safe_name(name)
        assert len(plain) <= 100
        assert len(whole) <= MAX_CHARS
        assert len(whole.encode()) <= MAX_BYTES
        assert whole.strip(".")
        assert not set(whole) & set('"\\/\r\n\0')
        assert not any(unicodedata.bidirectional(char) in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI") for char in whole)
