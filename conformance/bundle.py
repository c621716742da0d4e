"""What the suite consists of besides its runners: data, frozen for each version of the protocol, and its archive."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import zipfile
from collections.abc import Collection, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import attrs

from . import checks as checks  # registers them
from .check import CHECKS
from .rules import NOT_CHECKED, Rule, read_pages, rules
from .scenarios import scenario_files, scenarios

FOLDER: Final = "conformance"
REQUIREMENTS: Final = f"{FOLDER}/requirements/v1.json"
HOLDING: Final = f"{FOLDER}/requirements/v1-held.json"
"""What holds each rule. It is not frozen: checks may be added."""
MANIFEST: Final = f"{FOLDER}/manifest.json"
SCENARIOS: Final = f"{FOLDER}/transcripts/client"
GENERATED_FOLDERS: Final = (SCENARIOS,)
SUITE: Final = "1"
_DATA: Final = ("requirements", "transcripts", "vectors")
_BESIDE: Final = {"protocol": "docs/protocol", "schemas": "schemas/v1"}
"""What belongs to the archive and stands elsewhere in a checkout, by its name in the installed package."""
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the archive, so that equal content is an equal archive."""


def generated(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """The suite's generated files for a checkout, by path. `files` are those that the protocol generates."""
    found = read_pages(folder) or list(rules().values())
    own = {f"{SCENARIOS}/{name}": text for name, text in scenario_files().items()}
    own[REQUIREMENTS] = _json({"protocol_version": 1, "requirements": [attrs.asdict(rule) for rule in found]})
    own[HOLDING] = _holding(found)
    own |= _with_frozen_vectors(folder, files)
    data = _data_files(folder) | {name: text for name, text in {**files, **own}.items() if _is_data(name)}
    own[MANIFEST] = _json(_manifest(data, _frozen(folder)))
    return own


def broken_promises(folder: Path, files: Mapping[str, str] | None = None) -> list[str]:
    """Files of a frozen version that are no longer what they were: as stored, or as they would be written."""
    found = []
    for version, row in _frozen(folder).items():
        for name, checksum in row["files"].items():
            path = f"{FOLDER}/{name}"
            # What is not generated is as it is stored.
            text = (files or {}).get(path) or _stored(folder, path)
            if text is None or _checksum(text) != checksum:
                found.append(f"{path} (version {version})")
    return found


def _stored(folder: Path, path: str) -> str | None:
    file = folder / path
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _with_frozen_vectors(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Frozen vectors as they are; what is generated anew beside them goes into a file of its own."""
    found = {}
    for row in _frozen(folder).values():
        for path in (f"{FOLDER}/{name}" for name in row["files"] if name.startswith("vectors/")):
            frozen = _stored(folder, path)
            if frozen is None or files.get(path, frozen) == frozen:
                continue
            old = {vector["id"]: vector for vector in json.loads(frozen)["vectors"]}
            more = [vector for vector in json.loads(files[path])["vectors"] if vector != old.get(vector["id"])]
            for vector in more:
                vector["id"] += "/added" if vector["id"] in old else ""
            found[path] = frozen
            found |= {path.replace(".json", "-added.json"): _json({"vectors": more})} if more else {}
    return found


def _holding(found: list[Rule]) -> str:
    """What holds each rule, or why nothing does."""
    held: dict[str, dict[str, list[str]]] = {rule.id: {"server": [], "client": []} for rule in found}
    for check in CHECKS.values():
        for name in check.rules:
            held[name]["server"].append(check.id)
    for scenario in scenarios().values():
        for name in scenario["rules"]:
            held[name]["client"].append(scenario["id"])
    rows = {}
    for rule in found:
        reasons = {side: reason[rule.id] for side, reason in NOT_CHECKED.items() if rule.id in reason}
        checked = {side: names for side, names in held[rule.id].items() if names}
        rows[rule.id] = {"checks": checked} | ({"not_checked": reasons} if reasons else {})
    return _json({"protocol_version": 1, "held": rows})


def _is_data(name: str) -> bool:
    return name.endswith(".json") and any(name.startswith(f"{FOLDER}/{part}/") for part in _DATA)


def _data_files(folder: Path) -> dict[str, str]:
    """What is written by hand or was seen on gateways: it is only counted here."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for part in _DATA
        for path in sorted((folder / FOLDER / part).rglob("*.json"))
        if not path.is_relative_to(folder / SCENARIOS)
    }


def _frozen(folder: Path) -> dict[str, Any]:
    """The versions of the stored manifest that may not change any more."""
    file = folder / MANIFEST
    if not file.is_file():
        return {}
    versions: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")).get("versions", {})
    return {name: row for name, row in versions.items() if row.get("status") == "frozen"}


def _manifest(data: dict[str, str], frozen: dict[str, Any]) -> dict[str, Any]:
    files = {name.removeprefix(f"{FOLDER}/"): _checksum(text) for name, text in sorted(data.items()) if name != HOLDING}
    old = {name for row in frozen.values() for name in row["files"]}
    rows = {name: {"status": "frozen", "files": row["files"]} for name, row in frozen.items()}
    rows = rows or {"1": {"status": "draft", "files": files}}
    added = {name: checksum for name, checksum in files.items() if name not in old} if frozen else {}
    return {"suite": SUITE, "checks": len(CHECKS), "scenarios": len(scenarios()), "versions": rows, "added": added}


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_archive(file: Path) -> int:
    """Write all that somebody needs who has nothing else, and no Python, into one zip file; how many files it has."""
    files = _archived()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(f"pheby-conformance/{name}", _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return len(files)


def _archived() -> dict[str, bytes]:
    """Every file of the archive: the suite's own, and the pages and schemas that they speak of."""
    root = resources.files(__package__)
    found = {name: root / name for name in ("README.md", "manifest.json")}
    for part in _DATA:
        found |= _walk(root / part, part)
    found |= _walk(root / "peers", "peers", (".py", ".js", ".json", ".md"))
    for name, folder in _BESIDE.items():
        installed = root / name
        # In a checkout they stand where they are kept.
        found |= _walk(installed if installed.is_dir() else Path(__file__).parents[1] / folder, folder)
    texts = {name: item.read_text(encoding="utf-8") for name, item in found.items()}
    for name in texts:
        if name.endswith(".md"):
            texts[name] = _with_own_links(name, texts[name], texts.keys())
    return {name: text.encode() for name, text in texts.items()}


def _with_own_links(page: str, text: str, names: Collection[str]) -> str:
    """A page whose links stay in the archive; of others the words are left."""

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match.groups(default="")
        if "://" in target or not target:
            return match[0]
        # The suite's folder is the archive's root.
        stands = posixpath.join(FOLDER, page) if page == "README.md" else page
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(stands), target)).removeprefix(f"{FOLDER}/")
        if meant not in names:
            return words
        return f"[{words}]({posixpath.relpath(meant, posixpath.dirname(page) or '.')}{anchor})"

    return _LINK.sub(link, text)


def _walk(folder: Traversable, name: str, ends: tuple[str, ...] = (".json", ".md")) -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for item in folder.iterdir():
        if item.name == "node_modules":
            continue
        if item.is_dir():
            found |= _walk(item, f"{name}/{item.name}", ends)
        elif item.name.endswith(ends):
            found[f"{name}/{item.name}"] = item
    return found
