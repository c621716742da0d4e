"""R-P1: what the site's hooks do to pages, and that every page has its place. `make docs` itself is strict."""

from __future__ import annotations

import importlib.util
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


def test_named_pages_exist() -> None:
    """The last of them comes with measurements."""
    for _, patterns in hooks.SECTIONS:
        for pattern in patterns:
            if "*" not in pattern and pattern != "performance.md":
                assert (ROOT / hooks.in_project(pattern)).is_file(), pattern
