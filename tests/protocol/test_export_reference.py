"""The reference: a section for everything, links that lead somewhere, examples that decode."""

from __future__ import annotations

import json
import re

import pytest

from pheby_protocol.codec import decode
from pheby_protocol.export import reference
from pheby_protocol.export.metamodel import metamodel
from pheby_protocol.export.reference import reference_pages
from pheby_protocol.export.subjects import SUBJECTS, anchor, subject
from pheby_protocol.export.tables import mermaid
from pheby_protocol.registry import REGISTRY
from pheby_protocol.states import TABLES

MODEL = metamodel()
PAGES = reference_pages(MODEL)


def section(page: str, heading: str) -> str:
    """What stands under a heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGES[page], re.M | re.S)
    assert found, heading
    return found[1]


def blocks(text: str) -> list[str]:
    return re.findall(r"```json\n(.*?)\n```", text, re.S)


@pytest.mark.parametrize("tag", list(REGISTRY))
def test_every_message_has_a_section_with_its_fields_errors_and_example(tag: str) -> None:
    (message,) = (one for one in MODEL["messages"] if one["type"] == tag)
    text = section(f"{subject(tag)}.md", tag)
    assert message["description"] in text
    assert f"since version {message['since']}" in text
    for field in message["fields"]:
        assert re.search(rf"^\| `{field['name']}` \| .* \| {re.escape(field['description'])} \|$", text, re.M)
    for code in message.get("errors", []):
        assert f"[`{code}`](errors.md)" in text
    (example,) = blocks(text)
    assert decode(example).type == tag


@pytest.mark.parametrize("name", [found["name"] for found in MODEL["objects"]])
def test_every_object_has_a_section(name: str) -> None:
    (struct,) = (one for one in MODEL["objects"] if one["name"] == name)
    text = section("objects.md", name)
    for field in struct["fields"]:
        assert f"| `{field['name']}` |" in text
    assert all(isinstance(json.loads(block), dict) for block in blocks(text))


def test_every_enumeration_lists_its_values() -> None:
    for enum in MODEL["enums"]:
        text = section("enumerations.md", str(enum["name"]))
        values = enum["values"]
        assert isinstance(values, list)
        assert all(f"`{value}`" in text for value in values)
        assert ("Open:" in text) is enum["open"]


def test_every_code_limit_capability_and_scalar_is_there() -> None:
    wanted: dict[str, list[object]] = {
        "errors.md": [row["code"] for row in MODEL["errors"]],
        "close-codes.md": [row["code"] for row in MODEL["close_codes"]],
        "http-errors.md": [row["code"] for row in MODEL["http_errors"]],
        "limits.md": list(MODEL["limits"]),
        "capabilities.md": list(MODEL["capabilities"]["server"]),
    }
    for page, names in wanted.items():
        for name in names:
            assert f"`{name}`" in PAGES[page], name
    for scalar in MODEL["scalars"]:
        assert f"</a>{scalar['name']} |" in PAGES["identifiers-and-numbers.md"]


def test_every_state_table_with_its_diagram() -> None:
    for table in TABLES:
        text = section("states.md", table.name)
        assert f"```mermaid\n{mermaid(table)}```" in text
        for state in table.states:
            assert f"\n| `{state.value}` |" in text


def test_the_index_lists_every_message_and_page() -> None:
    for tag in REGISTRY:
        assert f"[`{tag}`]({subject(tag)}.md#{anchor(tag)})" in PAGES["index.md"]
    for name in PAGES:
        assert name == "index.md" or f"({name})" in PAGES["index.md"]
    assert set(SUBJECTS) <= {name.removesuffix(".md") for name in PAGES}


def test_every_link_within_the_reference_leads_somewhere() -> None:
    for name, text in PAGES.items():
        for file, fragment in re.findall(r"\]\(([a-z-]+\.md)(?:#([^)]*))?\)", text):
            assert file in PAGES, (name, file)
            target = PAGES[file]
            anchors = {anchor(heading) for heading in re.findall(r"^#+ (.*)$", target, re.M)}
            assert not fragment or fragment in anchors | set(re.findall(r'<a id="([^"]*)"', target)), (name, fragment)


def test_pages_are_tidy() -> None:
    for name, text in PAGES.items():
        assert text.startswith("<!-- Generated"), name
        assert text.endswith("\n"), name
        assert not text.endswith("\n\n"), name
        assert "\n\n\n" not in text, name
        assert not re.search(r"[ \t]$", text, re.M), name
        assert len(re.findall(r"^# ", text, re.M)) == 1, name


def test_json_breaks_only_where_a_line_would_grow_too_long() -> None:
    assert reference._laid_out({"a": [1, 2]}) == '{"a": [1, 2]}'
    assert reference._laid_out({}) == "{}"
    long = {"a": ["x" * 60, "y" * 60], "b": {}}
    assert reference._laid_out(long) == (
        '{\n  "a": [\n    "' + "x" * 60 + '",\n    "' + "y" * 60 + '"\n  ],\n  "b": {}\n}'
    )
    for text in PAGES.values():
        for block in blocks(text):
            assert all(len(line) <= 120 for line in block.splitlines())


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert reference._table(("a",), [("x|y",)]) == "| a |\n| --- |\n| x\\|y |"


def test_pages_are_made_alike_each_time() -> None:
    assert reference_pages(metamodel()) == PAGES
