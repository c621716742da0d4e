"""R-P1: what the site's hooks do to pages, and that every page has its place. `make docs` itself is strict."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
INSTALL = PurePosixPath("docs/howto/install.md")


def load() -> Any:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks = load()


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        (INSTALL, "configuration.md", "configuration.md"),
        (INSTALL, "../protocol/index.md#rules", "../protocol/index.md#rules"),
        (INSTALL, "../../README.md", "../project/README.md"),
        (INSTALL, "../../schemas/v1/openapi.json", "../project/schemas/v1/openapi.json"),
        (INSTALL, "https://example.org/x", "https://example.org/x"),
        (INSTALL, "#update", "#update"),
        (PurePosixPath("README.md"), "docs/howto/install.md", "../howto/install.md"),
        (PurePosixPath("conformance/README.md"), "kotlin/README.md", "kotlin/README.md"),
    ],
)
def test_links_lead_to_where_things_are_in_the_site(page: PurePosixPath, link: str, expected: str) -> None:
    assert hooks.relinked(f"see [this]({link}).", page) == f"see [this]({expected})."


def test_a_link_to_a_folder_is_words() -> None:
    assert hooks.relinked("see [docs/adr](docs/adr/).", PurePosixPath("README.md")) == "see docs/adr."


def test_what_belongs_to_a_list_item_is_indented_by_four() -> None:
    page = "Like this:\n1. One\n\n   ```yaml\n   a:\n     b: 1\n   ```\n2. Two\n   and more\n\nNot this."
    wanted = "Like this:\n\n1. One\n\n    ```yaml\n    a:\n      b: 1\n    ```\n2. Two\n    and more\n\nNot this."
    assert hooks.indented(page) == wanted


def test_what_is_not_in_a_list_stays() -> None:
    page = "Words\n\n```sh\n- no list\n   indented\n```\n\n| a | b |"
    assert hooks.indented(page) == page


def test_every_page_has_one_place_in_the_navigation_and_a_section_that_is_meant() -> None:
    pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    sections = {title: items for section in hooks.navigation(pages) for title, items in section.items()}
    assert sorted(page for items in sections.values() for page in items) == pages
    assert sections["Project"] == ["requirements.md", "known-failures.md"]


EVERYTHING = {
    # What somebody looks for, by what it is about.
    *("howto/install.md", "kotlin.md", "protocol/index.md", "reference/python.md", "architecture.md", "adr/index.md"),
    *("howto/proxy.md", "howto/debugging.md", "howto/devices.md", "howto/embedding.md", "howto/writing-a-client.md"),
    *("threat-model.md", "performance.md", "limitations.md", "faq.md"),
}


def test_the_first_page_leads_to_everything() -> None:
    first = (ROOT / "docs" / "index.md").read_text()
    assert {link.partition("#")[0] for link in re.findall(r"\]\(([^)]*)\)", first)} >= EVERYTHING
    pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    shown = {page for section in hooks.navigation(pages)[:-1] for items in section.values() for page in items}
    assert shown >= EVERYTHING


def test_every_decision_is_in_the_list() -> None:
    listed = (ROOT / "docs" / "adr" / "index.md").read_text()
    for path in (ROOT / "docs" / "adr").glob("0*.md"):
        title = path.read_text().splitlines()[0].partition(". ")[2]
        assert f"- [{title}]({path.name})" in listed


def test_the_architecture_is_one_page_with_one_picture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert page.count("```mermaid") == 1
    assert len(page.splitlines()) < 80


def test_named_pages_exist() -> None:
    """The last of them comes with measurements."""
    for _, patterns in hooks.SECTIONS:
        for pattern in patterns:
            if "*" not in pattern and pattern != "performance.md":
                assert (ROOT / hooks.in_project(pattern)).is_file(), pattern
