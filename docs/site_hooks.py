"""What `make docs` does to the pages, which are written to be read in the checkout as well.

Links that lead out of docs/ take their target along; lists are indented as Python-Markdown wants them; every page gets
a place in the navigation; with MERMAID=FILE the diagrams' script is part of the site.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
OUTSIDE = "project"
"""Where in the site those files are that lie beside docs/."""
SECTIONS = (
    ("Pheby", ("index.md", "faq.md", "limitations.md", "project/CHANGELOG.md")),
    ("For owners", ("howto/install.md", "howto/proxy.md", "howto/configuration.md", "howto/devices.md",
                    "howto/upgrade-and-backup.md", "howto/debugging.md")),
    ("For clients", ("kotlin.md", "howto/python-client.md", "howto/writing-a-client.md", "howto/conformance.md",
                     "project/conformance/*")),
    ("Protocol", ("protocol/index.md", "protocol/frames.md", "protocol/handshake.md", "protocol/synchronisation.md",
                  "protocol/conversations.md", "protocol/messages-and-runs.md", "protocol/*.md")),
    ("Reference", ("protocol/reference/index.md", "protocol/reference/*.md")),
    ("How it works", ("architecture.md", "howto/embedding.md", "reference/*.md", "threat-model.md", "performance.md")),
    ("Decisions", ("adr/index.md", "adr/*.md")),
    ("Project", ("project/README.md", "project/CONTRIBUTING.md", "requirements.md", "known-failures.md", "*")),
)  # fmt: skip
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_FENCE = re.compile(r" *(```|~~~)")
_ITEM = re.compile(r" *([-*]|\d+\.) ")


# Where things are


def in_site(path: PurePosixPath) -> str:
    """A file of the project as a file of the site."""
    return path.relative_to("docs").as_posix() if path.parts[0] == "docs" else f"{OUTSIDE}/{path}"


def in_project(name: str) -> PurePosixPath:
    """The other way."""
    path = PurePosixPath(name)
    return path.relative_to(OUTSIDE) if path.parts[0] == OUTSIDE else PurePosixPath("docs") / path


def target(page: PurePosixPath, link: str) -> tuple[PurePosixPath, str] | None:
    """The file of the project that a page's link leads to, and the anchor there; None for links of any other kind."""
    file, mark, anchor = link.partition("#")
    if not file or re.match(r"[a-z]+:", file):
        return None
    return PurePosixPath(os.path.normpath(page.parent / file)), mark + anchor


def outside(pages: list[PurePosixPath]) -> Iterator[PurePosixPath]:
    """The files beside docs/ that pages lead to, and those that these lead to."""
    waiting, seen = list(pages), set(pages)
    while waiting:
        page = waiting.pop()
        for link in _LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            found = target(page, link)
            if found is None or found[0] in seen or not (ROOT / found[0]).is_file():
                continue
            seen.add(found[0])
            if found[0].parts[0] != "docs":
                yield found[0]
            if found[0].suffix == ".md":
                waiting.append(found[0])


# Pages


def relinked(text: str, page: PurePosixPath) -> str:
    """The links as they are within the site. One to a folder is words alone: there a site has no page."""

    def moved(match: re.Match[str]) -> str:
        found = target(page, match[1])
        if found is None or not (ROOT / found[0]).is_file():
            return match[0]
        here = PurePosixPath(in_site(page)).parent
        return f"]({os.path.relpath(in_site(found[0]), here)}{found[1]})"

    def folder(match: re.Match[str]) -> str:
        found = target(page, match[2])
        return match[1] if found is not None and (ROOT / found[0]).is_dir() else match[0]

    text = re.sub(r"\[([^][]*)\]\(([^()\s]+)\)", folder, text)
    return _LINK.sub(moved, text)


def indented(text: str) -> str:
    """Blocks within list items by four, and an empty line before a list: what other Markdown does not need."""
    lines: list[str] = []
    shift, fenced, listing = 0, False, False
    for line in text.split("\n"):
        if _FENCE.match(line):
            if not fenced:
                shift = 4 - _indent(line) if listing and _indent(line) in (2, 3) else 0
            fenced = not fenced
        elif not fenced:
            shift = 4 - _indent(line) if listing and _indent(line) in (2, 3) else 0
            if _ITEM.match(line) and not listing and lines and lines[-1].strip():
                lines.append("")
            listing = bool(_ITEM.match(line)) or (listing and (not line or line.startswith(" ")))
        lines.append(" " * shift + line if line else line)
    return "\n".join(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


# What mkdocs calls


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    pages = [in_project(file.src_uri) for file in files.documentation_pages()]
    pages += [PurePosixPath(name) for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    for path in sorted({*pages[-3:], *outside(pages)}):
        files.append(File.generated(config, in_site(path), abs_src_path=str(ROOT / path)))
    script = os.environ.get("MERMAID")
    if script:
        files.append(File.generated(config, "mermaid.min.js", abs_src_path=str(Path(script).absolute())))
        config.extra_javascript.append("mermaid.min.js")
    config.nav = navigation(sorted(file.src_uri for file in files.documentation_pages()))
    return files


def navigation(pages: list[str]) -> list[dict[str, list[str]]]:
    """Every page in its section, once."""
    left, found = list(pages), []
    for title, patterns in SECTIONS:
        items = [page for pattern in patterns for page in left if fnmatch(page, pattern)]
        items = list(dict.fromkeys(items))
        left = [page for page in left if page not in items]
        if items:
            found.append({title: items})
    return found


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return indented(relinked(markdown, in_project(page.file.src_uri)))
