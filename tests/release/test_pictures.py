"""R-P1: the pictures of the terminal client show what it shows."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from release.pictures import FOLDER, SCENES, Screen, drawn, played

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", SCENES)
def test_a_picture_is_as_the_chat_is_now(name: str) -> None:
    """Played once more in a pseudo terminal; `make pictures` draws it anew."""
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == drawn(played(SCENES[name]))


def test_every_picture_is_of_a_scene_and_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    assert {picture.stem for picture in FOLDER.iterdir()} == set(SCENES)
    for picture in FOLDER.iterdir():
        assert f"pictures/{picture.name})" in pages, picture.name


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("one\r\ntwo", "one\ntwo"),
        ("> \b\bx", "x"),
        ("abc\x1b[2D_", "a_c"),
        ("ab\x1b[2Cc", "ab  c"),
        ("one\r\ntwo\x1b[A\r\x1b[J", ""),
        ("one\r\ntwo\r\x1b[Ano\x1b[K", "no\ntwo"),
        ("\x1b[?25l\x1b[0;38;5;102m📎 1\x1b[0m", "📎 1"),
        ("📎\x1b[Dx", "📎x"),
    ],
)
def test_a_screen_shows_what_a_terminal_would(written: str, seen: str) -> None:
    screen = Screen()
    screen.feed(written)
    assert screen.text() == seen


def test_a_sequence_that_is_not_known_is_no_picture() -> None:
    with pytest.raises(ValueError, match="does not know 5H"):
        Screen().feed("\x1b[5H")


def test_what_is_drawn_says_the_same() -> None:
    picture = ElementTree.fromstring(drawn("> a <b> & c\n\n… d"))
    assert [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")] == ["> a <b> & c", "… d"]
