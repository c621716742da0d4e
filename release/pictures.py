"""`make pictures`: the terminal client as it looks, in docs/pictures.

Each is a real chat on a simulated server, played in a pseudo terminal and drawn as SVG; a test plays them again.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unicodedata
from pathlib import Path
from xml.sax.saxutils import escape

import attrs

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
COLUMNS, ROWS = 76, 40
SECONDS = 30.0
CELL, LINE, MARGIN = 8.4, 20, 16
STYLE = (
    "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dae0;white-space:pre}"
    ".typed{fill:#7fd1ff}.asked{fill:#ffd479}.work{fill:#8f97a3}"
)

SCENES: dict[str, tuple[tuple[str, str], ...]] = {
    # What is typed, and what is on the screen when the next line may be.
    "chat": (("run du -sh /srv/photos", "⚙ terminal: du -sh /srv/photos\nhermes: The command has ended.\n>"),),
    "approval": (
        ("danger /srv/photos/2019", " | deny\n>"),
        ("/approve 1 deny", "⚙ terminal: failed\nhermes: You did not allow it.\n>"),
    ),
    "question": (
        ("ask Which of them may go?|the newest|the oldest", " | your own words | skip\n>"),
        ("/answer 1 2", "hermes: Thank you. The answer came back as: the oldest\n>"),
    ),
}

_PIECE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b.|[\r\n\b]|[^\x1b\r\n\b]", re.S)


@attrs.define
class Screen:
    """As much of a terminal as a line editor and plain lines need."""

    lines: list[list[str]] = attrs.field(factory=lambda: [[]])
    row: int = 0
    column: int = 0

    def feed(self, text: str) -> None:
        for match in _PIECE.finditer(text):
            if match[2]:
                self._obey(match[1], match[2])
            elif match[0] == "\r":
                self.column = 0
            elif match[0] == "\n":
                self._go(self.row + 1)
            elif match[0] == "\b":
                self.column = max(0, self.column - 1)
            elif match[0][0] != "\x1b":
                self._put(match[0])

    def text(self) -> str:
        """What is seen; the cell behind a wide character holds nothing."""
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip("\n")

    def _obey(self, numbers: str, letter: str) -> None:
        line = self.lines[self.row]
        count = int(numbers) if numbers.isdigit() else 1
        match letter:
            case "A":
                self.row = max(0, self.row - count)
            case "C":
                self.column += count
            case "D":
                self.column = max(0, self.column - count)
            case "K" if numbers in ("", "0"):
                del line[self.column :]
            case "J" if numbers in ("", "0"):
                del line[self.column :], self.lines[self.row + 1 :]
            case "h" | "l" | "m":
                pass
            case _:
                raise ValueError(f"this terminal does not know {numbers}{letter}")

    def _go(self, row: int) -> None:
        self.row = row
        while len(self.lines) <= row:
            self.lines.append([])

    def _put(self, character: str) -> None:
        line = self.lines[self.row]
        line.extend(" " * (self.column - len(line)))
        cells = [character, ""] if unicodedata.east_asian_width(character) in "WF" else [character]
        line[self.column : self.column + len(cells)] = cells
        self.column += len(cells)


def played(steps: tuple[tuple[str, str], ...]) -> str:
    """The screen at the end of a chat."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "pheby", "demo", "--simulated"]
    with tempfile.TemporaryDirectory(prefix="pheby-picture-") as home:
        # Nobody answers there where the cursor is.
        said = {"HOME": home, "TERM": "xterm", "LC_ALL": "C.UTF-8", "PROMPT_TOOLKIT_NO_CPR": "1"}
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=os.environ | said
        ) as chat:
            os.close(theirs)
            try:
                screen = Screen()
                _until(ours, screen, "--\n>", "")
                for typed, seen in steps:
                    before = screen.text()
                    os.write(ours, f"{typed}\r".encode())
                    _until(ours, screen, seen, before)
                return screen.text()
            finally:
                chat.terminate()
                os.close(ours)


def _until(terminal: int, screen: Screen, seen: str, before: str) -> None:
    """Read on until the screen ends like this, and is not what it was before."""
    end = time.monotonic() + SECONDS
    while not screen.text().endswith(seen) or screen.text() == before:
        if not select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError(f"{seen!r} was not seen:\n{screen.text()}")
        screen.feed(os.read(terminal, 65_536).decode())


def drawn(text: str) -> str:
    """The same text as a picture."""
    lines = text.split("\n")
    width, height = COLUMNS * CELL + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    rows = [
        f'<text x="{MARGIN}" y="{MARGIN + (number + 0.75) * LINE:g}" class="{_kind(line)}">{escape(line)}</text>'
        for number, line in enumerate(lines)
        if line
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
            f"<style>{STYLE}</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#1b1e24"/>',
            *rows,
            "</svg>\n",
        ]
    )


def _kind(line: str) -> str:
    """What a line is: typed, asked, about the work, or said."""
    return {">": "typed", "?": "asked", "⚙": "work", "…": "work", "-": "work"}.get(line[0], "said")


def main() -> int:
    """Play all, write all; the exit code."""
    FOLDER.mkdir(exist_ok=True)
    for name, steps in SCENES.items():
        file = FOLDER / f"{name}.svg"
        file.write_text(drawn(played(steps)), encoding="utf-8")
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
