"""The documents say what the code says: examples decode, links lead somewhere, every id that is named exists."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from pheby_protocol.codec import UnknownMessage, decode
from pheby_protocol.connection import Connection, Role
from pheby_protocol.export.subjects import anchor, subject
from pheby_protocol.registry import REGISTRY

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROTOCOL = DOCS / "protocol"
REFERENCE = PROTOCOL / "reference"
NORMATIVE = sorted(PROTOCOL.glob("*.md"))
PAGES = sorted(DOCS.rglob("*.md")) + sorted(ROOT.glob("*.md"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
VECTORS = sorted((ROOT / "conformance" / "vectors").glob("*.json"))

WITH_DIAGRAMS = (
    "handshake",
    "synchronisation",
    "messages-and-runs",
    "tools",
    "approvals",
    "clarifications",
    "attachments",
    "errors-and-closing",
)

REQUIREMENT = re.compile(r"\bR-([A-Z]\d+)\b")
RULE = re.compile(r"\bP-[A-Z]+-\d+\b")
RULE_LINE = re.compile(
    r"^- \*\*(?P<id>P-[A-Z]+-\d+)\*\* (?P<level>MUST|SHOULD) "
    r"\((?P<side>client|server|both); (?P<serves>R-[A-Z]\d+(, R-[A-Z]\d+)*)\): (?P<text>\S.*)$"
)
_IDS = r"(?:R-)?[A-Z]\d+(?:, (?:R-)?[A-Z]\d+)*"
NAMED_IN_FRONT = re.compile(rf"^({_IDS})(?=[.:,])")
NAMED_IN_BRACKETS = re.compile(rf"\(({_IDS})\)")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def json_blocks(text: str) -> list[str]:
    return re.findall(r"^```json\n(.*?)^```$", text, re.M | re.S)


def requirements() -> set[str]:
    """Ids of docs/requirements.md, without R-."""
    return set(re.findall(r"^- ([A-Z]\d+) ", read(DOCS / "requirements.md"), re.M))


def known_failures() -> set[str]:
    return set(re.findall(r"^### ([A-Z]\d+):", read(DOCS / "known-failures.md"), re.M))


def docstrings(text: str) -> Iterator[str]:
    """Of a module and everything in it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found:
                yield found


def named_ids(docstring: str) -> Iterator[str]:
    """The ids that a docstring names, in front or in brackets: requirements with R-, known failures (mostly) bare."""
    lists = [*NAMED_IN_FRONT.findall(docstring), *NAMED_IN_BRACKETS.findall(docstring)]
    for one in lists:
        yield from one.split(", ")


# -- examples


@pytest.mark.parametrize("path", [*NORMATIVE, ROOT / "README.md"], ids=name)
def test_every_json_block_is_json_and_every_frame_decodes(path: Path) -> None:
    for block in json_blocks(read(path)):
        value = json.loads(block)
        if "type" in value:
            message = decode(block)
            assert not isinstance(message, UnknownMessage), block


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*.md")), ids=name)
def test_every_frame_of_the_reference_decodes(path: Path) -> None:
    for block in json_blocks(read(path)):
        value = json.loads(block)
        if value.get("type") in REGISTRY:
            assert decode(block).type == value["type"]


def test_the_pages_have_diagrams_of_what_goes_on() -> None:
    for page in WITH_DIAGRAMS:
        diagrams = re.findall(r"^```mermaid\nsequenceDiagram\n(.*?)^```$", read(PROTOCOL / f"{page}.md"), re.M | re.S)
        assert diagrams, page
        for diagram in diagrams:
            opened = len(re.findall(r"^ *(?:alt|loop|opt|par) ", diagram, re.M))
            assert opened == len(re.findall(r"^ *end$", diagram, re.M))


def test_frames_that_a_diagram_names_exist() -> None:
    for path in NORMATIVE:
        for diagram in re.findall(r"^```mermaid\n(.*?)^```$", read(path), re.M | re.S):
            for tag in re.findall(r"\b([a-z]+\.[a-z]+(?:\.result)?)\b", diagram):
                assert tag in REGISTRY, (name(path), tag)


def test_the_handshake_page_can_be_played() -> None:
    hello, welcome = (
        next(block for block in json_blocks(read(PROTOCOL / "handshake.md")) if f'"type": "{tag}"' in block)
        for tag in ("hello", "welcome")
    )
    server, client = Connection(Role.SERVER), Connection(Role.CLIENT)
    message = server.receive_text(hello)
    client.send(message)  # type: ignore[arg-type]
    client.receive_text(server.send(decode(welcome)))  # type: ignore[arg-type]


# -- completeness


@pytest.mark.parametrize("tag", list(REGISTRY))
def test_every_type_is_in_every_export(tag: str) -> None:
    cls = REGISTRY[tag].cls.__name__
    definitions: dict[str, Any] = json.loads(read(ROOT / "schemas" / "v1" / "pheby.schema.json"))["$defs"]
    assert definitions[cls]["properties"]["type"]["const"] == tag
    assert (ROOT / "schemas" / "v1" / "messages" / f"{tag}.json").is_file()
    assert f"\n## {tag}\n" in read(REFERENCE / f"{subject(tag)}.md")
    assert f'"id": "{tag}/example/full"' in read(ROOT / "conformance" / "vectors" / f"{subject(tag)}.json")
    assert tag in {one["name"] for one in _asyncapi()["components"]["messages"].values()}
    kotlin = ROOT / "schemas" / "v1" / "kotlin"
    if kotlin.is_dir():
        assert any(f'"{tag}"' in read(path) for path in kotlin.rglob("*.kt"))


def _asyncapi() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(ROOT / "schemas" / "v1" / "asyncapi.json"))
    return found


@pytest.mark.parametrize("tag", [tag for tag in REGISTRY if not tag.endswith(".result")])
def test_every_type_but_plain_results_is_told_of_in_the_pages(tag: str) -> None:
    noun, _, verb = tag.partition(".")
    wanted = {tag} | ({f"{noun}.*"} if verb else set())
    assert any(word in read(path) for path in NORMATIVE for word in wanted)


# -- ids


def test_the_lists_of_ids_are_read() -> None:
    assert {"A1", "C2", "J3", "S5"} <= requirements()
    assert {"A4", "M9"} <= known_failures()


def test_named_ids_are_found() -> None:
    assert list(named_ids("R-A5, K3, J12: 401 for no secret.")) == ["R-A5", "K3", "J12"]
    assert list(named_ids("M9. Its seq moves the cursor.")) == ["M9"]
    assert list(named_ids("Who may connect (R-M1, K1).")) == ["R-M1", "K1"]
    assert list(named_ids("Nothing is named: UTF8 and (T) and A4 in passing.")) == []


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_every_id_that_a_test_names_exists(path: Path) -> None:
    known, failures = requirements(), known_failures()
    for docstring in docstrings(read(path)):
        for named in named_ids(docstring):
            if named.startswith("R-"):
                assert named[2:] in known, named
            else:
                assert named in failures | known, named
        if path != Path(__file__):
            assert set(REQUIREMENT.findall(docstring)) <= known


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_requirement_that_a_page_names_exists(path: Path) -> None:
    assert set(REQUIREMENT.findall(read(path))) <= requirements()


def test_every_rule_has_its_form_and_an_id_of_its_own() -> None:
    found: list[str] = []
    for path in NORMATIVE:
        for line in read(path).splitlines():
            if line.startswith("- **P-"):
                match = RULE_LINE.match(line)
                assert match, (name(path), line)
                found.append(match["id"])
    assert [one for one, count in Counter(found).items() if count > 1] == []
    by_area: dict[str, list[int]] = {}
    for one in found:
        _, area, number = one.split("-")
        by_area.setdefault(area, []).append(int(number))
    for area, numbers in by_area.items():
        assert numbers == list(range(1, len(numbers) + 1)), area


def test_every_rule_that_is_named_exists() -> None:
    rules = {match["id"] for path in NORMATIVE for match in map(RULE_LINE.match, read(path).splitlines()) if match}
    for path in [*PAGES, *TESTS]:
        assert set(RULE.findall(read(path))) <= rules, name(path)


# -- links


def anchors(text: str) -> set[str]:
    """What a link may point at within a page."""
    found: Counter[str] = Counter()
    result = set(re.findall(r'<a id="([^"]*)"', text))
    for heading in re.findall(r"^#{1,6} (.*?) *#*$", prose(text), re.M):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = anchor(plain)
        result.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return result


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_link_within_the_project_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\[[^][]*\]\(([^()\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(read(path)))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = unquote(target).partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.is_relative_to(ROOT), target
        assert place.exists(), target
        if fragment:
            assert fragment in anchors(read(place)), target


@pytest.mark.parametrize("path", VECTORS, ids=name)
def test_every_vector_points_to_where_it_is_said(path: Path) -> None:
    targets = {vector["spec"] for vector in json.loads(read(path))["vectors"]}
    known: dict[str, set[str]] = {}
    for target in targets:
        file, _, fragment = target.partition("#")
        if file not in known:
            known[file] = anchors(read(ROOT / file))
        assert fragment in known[file], target


def test_the_pages_are_in_the_index() -> None:
    index = read(PROTOCOL / "index.md")
    for path in NORMATIVE:
        assert path.name == "index.md" or f"({path.name})" in index, path.name
