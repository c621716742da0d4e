"""Changes to hand-written config.yaml files: what was there stays to the byte, and every change can be taken back."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pheby.install import edits
from pheby.install.edits import Change
from pheby.install.errors import CannotEditError

CONFIGS = sorted((Path(__file__).parent / "configs").glob("*.yaml"))
SHOWN = {"tool_progress": "off", "streaming": True, "interim_assistant_messages": True}
EXTRA = {"enabled": True, "extra": {"port": 8786}}

Edit = Callable[[str], Change | None]
EDITS: dict[str, Edit] = {
    "plugins": lambda text: edits.add_item(text, ("plugins", "enabled"), "pheby"),
    "platforms": lambda text: edits.add(text, ("platforms", "pheby"), EXTRA),
    "enabled": lambda text: edits.put(text, ("platforms", "pheby", "enabled"), True),
    "display": lambda text: edits.add(text, ("display", "platforms", "pheby"), SHOWN),
    "streaming": lambda text: edits.put(text, ("streaming", "enabled"), True),
    "port": lambda text: edits.put(text, ("platforms", "pheby", "extra", "port"), 9_001),
}


def text_of(config: Path) -> str:
    return config.read_bytes().decode()


@pytest.fixture(params=CONFIGS, ids=lambda config: config.stem)
def text(request: pytest.FixtureRequest) -> str:
    return text_of(request.param)


def done(text: str, names: list[str]) -> tuple[str, list[Change]]:
    changes = []
    for name in names:
        change = EDITS[name](text)
        if change is not None:
            changes.append(change)
            text = change.splice.done(text)
    return text, changes


def said(text: str) -> Any:
    return edits.read(text) or {}


def test_there_are_configs() -> None:
    """R-S1: a folder that was not found would make every other test here pass."""
    assert len(CONFIGS) > 30


def test_all_changes_say_what_they_should_and_nothing_else(text: str) -> None:
    """R-S1: by a YAML parser: the settings of before, and Pheby's."""
    before, after = said(text), said(done(text, list(EDITS))[0])
    assert "pheby" in after["plugins"]["enabled"]
    assert after["platforms"]["pheby"]["enabled"] is True
    assert "pheby" in after["display"]["platforms"]
    assert after["streaming"]["enabled"] is True
    _forget(after, before, ("plugins", "enabled"), "pheby")
    for path in (("platforms", "pheby"), ("display", "platforms", "pheby"), ("streaming", "enabled")):
        _forget(after, before, path[:-1], path[-1])
    assert edits.same(_without_nothing(after), _without_nothing(before))


def _forget(after: Any, before: Any, path: tuple[str, ...], name: str) -> None:
    for said in (after, before):
        parent = edits.lookup(said, path)
        if isinstance(parent, list) and name in parent:
            parent.remove(name)
        elif isinstance(parent, dict):
            parent.pop(name, None)


def _without_nothing(said: Any) -> Any:
    """A section that is empty says as much as one that is not there."""
    if not isinstance(said, dict):
        return said
    kept = {key: _without_nothing(value) for key, value in said.items()}
    return {key: value for key, value in kept.items() if value not in (None, {}, [])}


def test_what_was_there_stays_to_the_byte(text: str) -> None:
    """R-S1: the file of before is what is left when the inserted pieces are cut out again."""
    new = text
    for edit in EDITS.values():
        change = edit(new)
        if change is None:
            continue
        piece = change.splice
        changed = piece.done(new)
        assert changed[: piece.start] == new[: piece.start]
        assert changed[piece.start + len(piece.new) :] == new[piece.start + len(piece.old) :]
        assert piece.old.lower() in ("", "false", "null", "~", "8786", "9000")
        new = changed


def test_line_endings_are_kept(text: str) -> None:
    """R-S1: in a file with CRLF no line ends with LF alone."""
    new = done(text, list(EDITS))[0]
    if "\r\n" in text:
        assert new.count("\n") == new.count("\r\n")
    else:
        assert "\r" not in new


def test_changes_are_undone_exactly_in_reverse(text: str) -> None:
    """R-S1: in any order of doing."""
    for seed in range(3):
        names = list(EDITS)
        random.Random(seed).shuffle(names)
        new, changes = done(text, names)
        for change in reversed(changes):
            new = change.splice.undone(new)
        assert new == text


def test_a_second_time_there_is_nothing_to_do(text: str) -> None:
    """R-S1: what is set already is left alone."""
    new = done(text, list(EDITS))[0]
    assert [edit(new) for edit in EDITS.values()] == [None] * len(EDITS)


def test_changes_are_taken_back_by_what_they_say(text: str) -> None:
    """R-S1: where the file was edited since, in its first and last line, Pheby's settings go and all else stays."""
    new, changes = done(text, list(EDITS))
    new = "# edited since\n" + new if not new.startswith(("%", "\ufeff")) else new
    for change in reversed(changes):
        new = edits.take_back(new, change)
    assert edits.same(_without_nothing(said(new)), _without_nothing(said(text)))
    left = [line.strip() for line in new.splitlines() if line.strip()]
    for line in text.splitlines():
        # A value in a flow list that stood last may lose the comma of before.
        if line.strip() and not line.strip().startswith(("platforms", "display", "streaming", "plugins", "enabled:")):
            assert line.strip() in left, line


def test_it_is_taken_back_from_a_file_that_was_written_anew() -> None:
    """R-S1: Hermes writes the whole file again when it changes a setting."""
    for config in CONFIGS:
        text = text_of(config)
        new, changes = done(text, list(EDITS))
        for flow in (True, False, None):
            again = yaml.safe_dump(said(new), default_flow_style=flow, sort_keys=False)
            for change in reversed(changes):
                again = edits.take_back(again, change)
            assert edits.same(_without_nothing(said(again)), _without_nothing(said(text))), config.stem


def test_a_plugin_that_was_added_since_stays() -> None:
    """R-S1: the list was made for Pheby, but holds another one by now."""
    change = edits.add_item("model: {}\n", ("plugins", "enabled"), "pheby")
    assert change is not None
    text = change.splice.done("model: {}\n").replace("[pheby]", "[notes, pheby, calendar]")
    assert said(edits.take_back(text, change))["plugins"]["enabled"] == ["notes", "calendar"]


def test_a_setting_that_stands_there_twice_by_now_is_left_alone() -> None:
    """R-S1: without the one that counts the other would come into force."""
    text = "platforms:\n  telegram: {}\n"
    change = edits.add(text, ("platforms", "pheby"), EXTRA)
    assert change is not None
    twice = change.splice.done(text) + "  pheby: {enabled: true, extra: {port: 8786}}\n"
    with pytest.raises(CannotEditError):
        edits.take_back(twice, change)


def test_a_section_that_was_filled_since_stays() -> None:
    """R-S1: `display` was made for Pheby, but holds the owner's choice by now."""
    change = edits.add("model: {}\n", ("display", "platforms", "pheby"), SHOWN)
    assert change is not None
    text = change.splice.done("model: {}\n").replace("display:\n", "display:\n  skin: mono   # nice\n")
    assert edits.take_back(text, change) == "model: {}\ndisplay:\n  skin: mono   # nice\n"


def test_a_value_that_was_put_gives_its_place_back_only_while_it_is_ours() -> None:
    """R-S1: what the owner chose since is the owner's."""
    change = edits.put("streaming:\n  enabled: no  # slow\n", ("streaming", "enabled"), True)
    assert change is not None
    new = change.splice.done("streaming:\n  enabled: no  # slow\n")
    assert new == "streaming:\n  enabled: true  # slow\n"
    assert edits.take_back("a: 1\n" + new, change) == "a: 1\nstreaming:\n  enabled: no  # slow\n"
    assert edits.take_back("streaming:\n  enabled: 1\n", change) == "streaming:\n  enabled: 1\n"
    assert edits.take_back("a: 1\n", change) == "a: 1\n"


REFUSED = {
    "not YAML": "a: [1\n",
    "not YAML: a tab": "platforms:\n\ttelegram: 1\n",
    "a list": "- a\n- b\n",
    "a text": "hello\n",
    "several documents": "a: 1\n---\nb: 2\n",
    "platforms is a text": "platforms: none\n",
    "platforms is a list": "platforms: [telegram]\n",
    "platforms is an alias": "base: &b\n  telegram: {enabled: true}\nplatforms: *b\n",
    "platforms is used elsewhere": "platforms: &p\n  telegram: {enabled: true}\nother: *p\n",
    "a question mark": "? platforms\n: telegram: {enabled: true}\n",
    "an empty key in a flow set": "{platforms}\n",
    "an unknown tag": "platforms: !mine {a: 1}\n",
    "a key twice, the second being nothing": "platforms: {a: 1}\nplatforms: *x\n",
    "itself": "a: &a\n  b: *a\nplatforms: *a\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_changed_safely_is_left_alone(text: str) -> None:
    """R-S1: refused in plain words, without a piece of the file."""
    with pytest.raises(CannotEditError) as refused:
        edits.add(text, ("platforms", "pheby"), EXTRA)
    assert "config.yaml" in str(refused.value)
    assert "telegram" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "plugins: {enabled: notes}\n",
        "plugins:\n  enabled: &e\n    - a\nother: *e\n",
        "e: &e [a]\nplugins: {enabled: *e}\n",
    ],
)
def test_a_list_that_cannot_be_added_to_is_left_alone(text: str) -> None:
    """R-S1: also where another place would change with it."""
    with pytest.raises(CannotEditError):
        edits.add_item(text, ("plugins", "enabled"), "pheby")


@pytest.mark.parametrize(
    "text",
    ["s: &s {enabled: false}\nstreaming: *s\n", "streaming: {enabled: [1]}\n", "streaming: {enabled: |\n  x\n}\n"],
)
def test_a_value_that_cannot_be_replaced_is_left_alone(text: str) -> None:
    """R-S1: an alias, a list, a block of text."""
    with pytest.raises(CannotEditError):
        edits.put(text, ("streaming", "enabled"), True)


def test_same_tells_what_python_calls_equal_apart() -> None:
    """R-S1: the proof after a change would else miss a `yes` that became a 1."""
    assert not edits.same({"a": True}, {"a": 1})
    assert not edits.same([1], [1.0])
    assert not edits.same([1], [1, 1])
    assert edits.same([float("nan")], [float("nan")])
    assert edits.same(copy.deepcopy(EXTRA), EXTRA)
