"""Lines of a .env: added, changed and taken back without touching any other."""

from __future__ import annotations

import pytest

from pheby.install import env_file

ENTRIES = {"PHEBY_SECRET": "0123456789abcdef", "PHEBY_ALLOWED_USERS": "owner"}
TEXTS = [
    "",
    "# only a comment",
    "A=1\n",
    "A=1",
    "A='x y' # comment\r\nexport B=2\r\n",
    "A=1\r\nB=2",
    "\n\nA=1\n\n\n",
    "A=\u2028x\x0by\x85z\n",
]


@pytest.mark.parametrize("text", [*TEXTS, None])
def test_added_lines_are_bare_and_taken_back_to_the_byte(text: str | None) -> None:
    """R-S1: 0.19 takes quotes and comments for a part of the value."""
    new, written = env_file.append(text, ENTRIES)
    assert new.startswith(text or "")
    assert [line for line in new.splitlines() if line.startswith("PHEBY")] == [f"{k}={v}" for k, v in ENTRIES.items()]
    assert env_file.take_back(new, written) == text


@pytest.mark.parametrize("text", TEXTS)
def test_lines_that_others_added_since_stay(text: str) -> None:
    """R-S1: before and after Pheby's."""
    new, written = env_file.append(text, ENTRIES)
    kept = env_file.take_back("FIRST=1\n" + new + "LAST=2\n", written)
    assert kept is not None
    assert kept.startswith("FIRST=1\n" + text)
    assert kept.endswith("LAST=2\n")
    assert "PHEBY" not in kept


def test_what_was_written_is_known_by_its_digest_alone() -> None:
    """R-S1, R-A5: the record of an installation holds no secret."""
    assert ENTRIES["PHEBY_SECRET"] not in repr(env_file.append("", ENTRIES)[1])


def test_a_changed_line_is_noticed() -> None:
    """R-S1: and one that is gone is not: there is nothing of it to lose."""
    new, written = env_file.append("", ENTRIES)
    assert env_file.changed(new, written) == []
    assert env_file.changed(new.replace("=owner", "=owner,me"), written) == ["PHEBY_ALLOWED_USERS"]
    assert env_file.changed("", written) == []


@pytest.mark.parametrize(
    ("text", "value", "new"),
    [
        ("A=1\nS=old\nB=2\n", "new", "A=1\nS=new\nB=2\n"),
        ("export S='old'\r\nB=2", "new", "S=new\r\nB=2"),
        ("S=older\nS=old", "new", "S=older\nS=new"),
        ("A=1", "new", "A=1\nS=new\n"),
        ("A=1\nS=a\nB=2\nS=b", None, "A=1\nB=2\n"),
        ("#S=a\nTS=b\n", None, "#S=a\nTS=b\n"),
    ],
)
def test_a_value_is_replaced_where_it_stands(text: str, value: str | None, new: str) -> None:
    """R-S1: the last one is the one that counts."""
    assert env_file.replace(text, "S", value) == new
