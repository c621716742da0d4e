"""Changes to a hand-written config.yaml: one piece of text each, everything else stays as it is to the byte.

A YAML parser says where things are and proves afterwards that the file now says what it said before and what was added;
it never writes the file. Where that cannot be proved the file is left alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import attrs
import yaml

from .errors import CannotEditError

Path = tuple[str, ...]

# libyaml's, as in Hermes: it takes a tab before a comment, which the other one does not.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL: Final = "tag:yaml.org,2002:null"
_PLAIN: Final = re.compile(r"[a-z][a-z_]*")
_NOT_PLAIN: Final = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
# Between a key and the block below it: perhaps an anchor or a tag, perhaps a comment, lines of comment, indentation.
_KEY_LINE: Final = re.compile(r"[ \t]*:[ \t]*(?:[&!]\S*[ \t]*)*(?:#[^\r\n]*)?(?:\r\n|\n|\r)")
_LINE_REST: Final = re.compile(r"[ \t]*:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\n|\r|\Z)")
_BLANKS: Final = r"(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\n|\r))*"
_COMMA: Final = re.compile(r"\s*,[ \t]*")
_MARKS: Final = re.compile(r"(?:[&!]\S*\s+)*[\[{]")


@attrs.frozen
class Splice:
    """At this place of the text, this was replaced by that."""

    start: int
    old: str
    new: str

    def done(self, text: str) -> str:
        """The text with the change."""
        return text[: self.start] + self.new + text[self.start + len(self.old) :]

    def undone(self, text: str) -> str:
        """The text without the change."""
        return Splice(self.start, self.new, self.old).done(text)


@attrs.frozen
class Change:
    """One setting that was written: what is needed to take it back, exactly or by what it says."""

    kind: Literal["add", "item", "set"]
    path: Path
    value: Any
    """What was written: the value of the key, the item of the list, or the value in place of another."""
    made: int
    """So many of the path's first keys were there before; the others were made for this."""
    splice: Splice


def newline_of(text: str) -> str:
    """The line ending of a text, by its first line."""
    found = re.search(r"\r\n|\n|\r", text)
    return found[0] if found else "\n"


def read(text: str) -> Any:
    """What the text says. Raises CannotEditError."""
    return _parsed(text)[1]


def lookup(said: Any, path: Path) -> Any:
    """The value under a path; None where there is none."""
    for key in path:
        said = said.get(key) if isinstance(said, Mapping) else None
    return said


def add(text: str, path: Path, value: Any) -> Change | None:
    """Write a value where there is none; None if there is one already, whatever it is."""
    node, said = _parsed(text)
    if lookup(said, path) is not None:
        return None
    depth = _depth(said, path)
    nested: Any = value
    for key in reversed(path[depth + 1 :]):
        nested = {key: nested}
    if depth == len(path):
        # The key stands there without a value.
        splice = _fill(text, node, path, value)
    else:
        splice = _insert_key(text, node, path[:depth], path[depth], nested)
    expected = _copied(said) if said is not None else {}
    _put(expected, path, value)
    change = Change("add", path, value, depth, splice)
    return _proved(text, change, expected)


def put(text: str, path: Path, value: bool | int | str) -> Change | None:
    """Write a simple value, in place of another simple one if there is one; None if it stands there already."""
    node, said = _parsed(text)
    now = lookup(said, path)
    if now is None:
        return add(text, path, value)
    if now == value and type(now) is type(value):
        return None
    found = _find(text, node, path)
    if not isinstance(found.node, yaml.ScalarNode) or found.alias or found.node.style in ("|", ">"):
        raise _unclear(path)
    start, end = found.node.start_mark.index, found.node.end_mark.index
    splice = Splice(start, text[start:end], _scalar(value))
    expected = _copied(said)
    _put(expected, path, value)
    return _proved(text, Change("set", path, value, len(path), splice), expected)


def add_item(text: str, path: Path, item: str) -> Change | None:
    """Write an item into a list, and the list if there is none; None if it is in there already."""
    node, said = _parsed(text)
    now = lookup(said, path)
    if now is None:
        change = add(text, path, [item])
        return attrs.evolve(change, kind="item", value=item) if change is not None else None
    if not isinstance(now, list):
        raise CannotEditError(f"{'.'.join(path)} in config.yaml is not a list, so nothing can be added to it.")
    if item in now:
        return None
    found = _find(text, node, path)
    if found.alias:
        raise _unclear(path)
    if found.node.flow_style:
        splice = _insert_flow(text, found.node, _scalar(item))
    else:
        where, indent = _below_key(text, found)
        splice = Splice(where, "", f"{indent}- {_scalar(item)}{newline_of(text)}")
    expected = _copied(said)
    # First in its list; the order of plugins means nothing to Hermes.
    lookup(expected, path).insert(0, item)
    return _proved(text, Change("item", path, item, len(path), splice), expected)


def take_back(text: str, change: Change) -> str:
    """The text without a change, wherever it stands by now. What is not there any more needs no taking back."""
    node, said = _parsed(text)
    now = lookup(said, change.path)
    if now is None:
        return text
    if change.kind == "set":
        if not same(now, change.value):
            return text
        found = _find(text, node, change.path)
        start, end = found.node.start_mark.index, found.node.end_mark.index
        return Splice(start, text[start:end], change.splice.old).done(text)
    if change.kind == "item" and isinstance(now, list):
        if change.value not in now:
            return text
        if len(now) > 1 or change.made == len(change.path):
            return _without_item(text, node, said, change.path, change.value)
    path = change.path
    while len(path) > change.made + 1 and len(lookup(said, path[:-1])) == 1:
        path = path[:-1]
    return _without_key(text, node, said, path)


def same(one: Any, other: Any) -> bool:
    """Whether two parsed values are the same, types included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


# Finding


@attrs.frozen
class _Found:
    """A value, and the key that it belongs to."""

    path: Path
    key: Any
    node: Any
    in_flow: bool
    alias: bool


def _parsed(text: str) -> tuple[Any, Any]:
    counted = _countable(text)
    try:
        node, said = yaml.compose(counted, Loader=_LOADER), yaml.load(counted, Loader=_LOADER)  # noqa: S506 - a safe one
    except (yaml.YAMLError, ValueError, RecursionError) as failure:
        # What YAML says of it holds a piece of the file.
        mark = getattr(failure, "problem_mark", None)
        place = f" near line {mark.line + 1}" if mark is not None else ""
        raise CannotEditError(f"config.yaml is not YAML{place}.") from None
    if said is not None and not isinstance(said, dict):
        raise CannotEditError("config.yaml is not a mapping of settings.")
    return node, said


def _countable(text: str) -> str:
    """The text in which the parser's places are ours: a byte order mark is not counted by each of them."""
    return "\n" + text[1:] if text.startswith("\ufeff") else text


def _depth(said: Any, path: Path) -> int:
    """So many keys of the path are there."""
    for depth, key in enumerate(path):
        if said is None or (isinstance(said, dict) and key not in said):
            return depth
        if not isinstance(said, dict):
            raise CannotEditError(f"{'.'.join(path[:depth])} in config.yaml is not a mapping of settings.")
        said = said[key]
    return len(path)


def _find(text: str, node: Any, path: Path) -> _Found:
    found = _Found((), None, node, False, False)
    for depth, name in enumerate(path):
        within = found.node
        pairs = within.value if isinstance(within, yaml.MappingNode) else ()
        # The last one counts, where a key stands there twice.
        pair = next((pair for pair in reversed(pairs) if _names(pair[0], name)), None)
        if pair is None:
            raise _unclear(path)
        alias = found.alias or pair[1].start_mark.index < pair[0].end_mark.index
        in_flow = found.in_flow or bool(within.flow_style)
        found = _Found(path=path[: depth + 1], key=pair[0], node=pair[1], in_flow=in_flow, alias=alias)
    return found


def _names(key: Any, name: str) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == name


def _unclear(path: Path) -> CannotEditError:
    return CannotEditError(
        f"{'.'.join(path)} in config.yaml is written in a way that Pheby does not change by itself (an alias, or an "
        "unusual form). config.yaml was left as it is; docs/howto/install.md says what to write there by hand."
    )


# Writing


def _insert_key(text: str, root: Any, parent: Path, key: str, value: Any) -> Splice:
    if not parent:
        return _insert_top(text, root, key, value)
    found = _find(text, root, parent)
    if found.alias:
        raise _unclear((*parent, key))
    if isinstance(found.node, yaml.MappingNode):
        if found.node.flow_style:
            return _insert_flow(text, found.node, f"{key}: {flow(value)}")
        where, indent = _below_key(text, found)
        return Splice(where, "", _block(key, value, indent, newline_of(text)))
    return _fill(text, root, parent, {key: value})


def _fill(text: str, root: Any, path: Path, value: Any) -> Splice:
    """Give a value to a key that stands there without one."""
    found = _find(text, root, path)
    node = found.node
    if found.alias or not isinstance(node, yaml.ScalarNode) or node.tag != _NULL:
        raise _unclear(path)
    start, end = node.start_mark.index, node.end_mark.index
    if start != end:
        return Splice(start, text[start:end], flow(value))
    if found.in_flow or not isinstance(value, dict):
        return Splice(start, "", f" {flow(value)}")
    rest = _LINE_REST.match(text, found.key.end_mark.index)
    if rest is None:
        raise _unclear(path)
    nl = newline_of(text)
    indent = " " * (found.key.start_mark.column + 2)
    glue = "" if rest[0].endswith(("\n", "\r")) else nl
    return Splice(rest.end(), "", glue + "".join(_block(key, each, indent, nl) for key, each in value.items()))


def _insert_top(text: str, root: Any, key: str, value: Any) -> Splice:
    nl = newline_of(text)
    if isinstance(root, yaml.MappingNode) and root.flow_style:
        return _insert_flow(text, root, f"{key}: {flow(value)}")
    indent = " " * root.start_mark.column if isinstance(root, yaml.MappingNode) else ""
    where = _end_of_document(text)
    glue = nl if where > 0 and text[where - 1] not in "\r\n" and text[:where] != "\ufeff" else ""
    block = _block(key, value, indent, nl)
    last = Splice(where, "", glue + block)
    first = root.start_mark.index - root.start_mark.column if isinstance(root, yaml.MappingNode) else where
    try:
        same_before = same(_without(read(last.done(text)), key), read(text) or {})
    except CannotEditError:
        same_before = False
    # A text at the end of the file may take everything below it as its own.
    return last if same_before else Splice(first, "", block)


def _end_of_document(text: str) -> int:
    """The place of the line `...`, or the end of the text."""
    for event in yaml.parse(_countable(text), Loader=_LOADER):
        if isinstance(event, yaml.DocumentEndEvent) and event.explicit and event.start_mark is not None:
            return event.start_mark.index
    return len(text)


def _without(said: Any, key: str) -> Any:
    return {name: value for name, value in said.items() if name != key}


def _below_key(text: str, found: _Found) -> tuple[int, str]:
    """The start of the line below a key, and how the block there is indented."""
    line = _KEY_LINE.match(text, found.key.end_mark.index)
    if line is None:
        raise _unclear(found.path)
    first = found.node.value[0]
    mark = first[0].start_mark if isinstance(first, tuple) else first.start_mark
    dash = "" if isinstance(first, tuple) else r"-[ \t]*"
    between = re.compile(rf"{_BLANKS}([ ]*){dash}").fullmatch(text, line.end(), mark.index)
    if between is None:
        raise _unclear(found.path)
    return line.end(), between[1]


def _insert_flow(text: str, node: Any, entry: str) -> Splice:
    opening = _MARKS.match(text, node.start_mark.index)
    assert opening is not None
    where = opening.end()
    if node.value:
        entry += "," if text[where] in " \t\r\n" else ", "
    return Splice(where, "", entry)


def _block(key: str, value: Any, indent: str, nl: str) -> str:
    if isinstance(value, dict) and (
        len(value) > 1 or not indent or any(isinstance(each, dict) for each in value.values())
    ):
        return f"{indent}{key}:{nl}" + "".join(_block(name, each, f"{indent}  ", nl) for name, each in value.items())
    return f"{indent}{key}: {flow(value)}{nl}"


def flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return _scalar(value)


def _scalar(value: bool | int | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (_PLAIN.fullmatch(value) and value not in _NOT_PLAIN):
        return str(value)
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _copied(said: Any) -> Any:
    """A copy in which nothing is at two places: a change to what is used elsewhere must not look as expected."""
    if isinstance(said, dict):
        return {key: _copied(value) for key, value in said.items()}
    return [_copied(each) for each in said] if isinstance(said, list) else said


def _put(said: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        if said.get(key) is None:
            said[key] = {}
        said = said[key]
    said[path[-1]] = _copied(value)


def _proved(text: str, change: Change, expected: Any) -> Change:
    try:
        said = read(change.splice.done(text))
    except CannotEditError:
        raise _unclear(change.path) from None
    if not same(said, expected):
        raise _unclear(change.path)
    return change


# Taking away


def _without_key(text: str, root: Any, said: Any, path: Path) -> str:
    within, found = _find(text, root, path[:-1]), _find(text, root, path)
    if within.alias:
        raise _unclear(path)
    if within.node.flow_style:
        spans = [(key.start_mark.index, _end(text, key, value)) for key, value in within.node.value]
        index = next(index for index, (key, _) in enumerate(within.node.value) if key is found.key)
        start, end = _flow_span(text, spans, index)
    else:
        start, end = _lines(text, found.key, _end(text, found.key, found.node), r"[ \t]*")
    expected = _copied(said)
    parent = lookup(expected, path[:-1])
    del parent[path[-1]]
    if not parent and not within.node.flow_style:
        expected = _emptied(expected, path[:-1])
    return _checked(text, start, end, expected, path)


def _without_item(text: str, root: Any, said: Any, path: Path, item: str) -> str:
    found = _find(text, root, path)
    items = found.node.value
    index = next((index for index, node in enumerate(items) if _names(node, item)), None)
    if found.alias or index is None:
        raise _unclear(path)
    if found.node.flow_style:
        start, end = _flow_span(text, [(node.start_mark.index, node.end_mark.index) for node in items], index)
    else:
        start, end = _lines(text, items[index], items[index].end_mark.index, r"[ \t]*-[ \t]+")
    expected = _copied(said)
    listed = lookup(expected, path)
    listed.remove(item)
    if not listed and not found.node.flow_style:
        expected = _emptied(expected, path)
    return _checked(text, start, end, expected, path)


def _emptied(said: Any, path: Path) -> Any:
    """A block of which nothing is left leaves a key without a value."""
    if not path:
        return None
    _put(said, path, None)
    return said


def _lines(text: str, first: Any, end: int, before: str) -> tuple[int, int]:
    """Whole lines, from the one in which a node begins to the one in which something ends."""
    mark = first.start_mark
    start = mark.index - mark.column
    if re.fullmatch(before, text[start : mark.index]) is None:
        raise CannotEditError("config.yaml was changed to a form that Pheby does not change by itself.")
    if text[end - 1] not in "\r\n":
        rest = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)").match(text, end)
        assert rest is not None
        end = rest.end()
    return start, end


def _flow_span(text: str, spans: list[tuple[int, int]], index: int) -> tuple[int, int]:
    comma = _COMMA.match(text, spans[index][1])
    if comma is not None:
        return spans[index][0], comma.end()
    if index:
        return spans[index - 1][1], spans[index][1]
    return spans[0]


def _end(text: str, key: Any, node: Any) -> int:
    """Where a value ends, without the comments and blank lines that a parser counts to it."""
    if node.start_mark.index < key.end_mark.index:
        # An alias: its name ends with the word.
        alias = re.compile(r"[ \t]*:[ \t]*\*[^\s,\]}]+").match(text, key.end_mark.index)
        return alias.end() if alias else int(key.end_mark.index)
    return max(_ends(text, node))


def _ends(text: str, node: Any) -> Iterator[int]:
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        yield node.end_mark.index
        return
    last = node.value[-1]
    if isinstance(last, tuple):
        yield _end(text, *last)
    elif last.start_mark.index >= node.start_mark.index:
        yield from _ends(text, last)


def _checked(text: str, start: int, end: int, expected: Any, path: Path) -> str:
    rest = text[:start] + text[end:]
    if not same(read(rest), expected):
        raise _unclear(path)
    return rest
