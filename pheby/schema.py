"""`pheby schema`: write the generated files, or tell which of them are out of date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `schema` to the command line; the parsed arguments carry `run`."""
    parser = subparsers.add_parser(
        "schema", help="write the protocol's schemas, Kotlin, vectors and reference, or check them"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    export = actions.add_parser("export", help="write all generated files below a folder")
    export.add_argument("folder", type=Path, metavar="DIR")
    export.set_defaults(run=_export)
    check = actions.add_parser("check", help="compare the files below a folder with what the classes say")
    check.add_argument("folder", type=Path, metavar="DIR", nargs="?", default=Path())
    check.set_defaults(run=_check)


def _files(folder: Path) -> dict[str, str]:
    from pheby_conformance.bundle import generated

    from pheby_protocol.export.descriptions import UndescribedError
    from pheby_protocol.export.files import generated_files

    try:
        files = generated_files()
        return files | generated(folder, files)
    except UndescribedError as missing:
        raise SystemExit(f"pheby: {missing}") from None


def _export(args: argparse.Namespace) -> int:
    files = _files(args.folder)
    if _breaks_a_promise(args.folder, files):
        return 1
    for stale in _stale(args.folder, files):
        (args.folder / stale).unlink()
    for name, text in files.items():
        path = args.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    print(f"{len(files)} files below {args.folder}")
    return 0


def _check(args: argparse.Namespace) -> int:
    files = _files(args.folder)
    if _breaks_a_promise(args.folder) or _breaks_a_promise(args.folder, files):
        return 1
    wrong = [f"stale: {name}" for name in _stale(args.folder, files)]
    for name, text in files.items():
        path = args.folder / name
        if not path.exists():
            wrong.append(f"missing: {name}")
        elif path.read_text(encoding="utf-8") != text:
            wrong.append(f"out of date: {name}")
    if not wrong:
        return 0
    print("\n".join(wrong), file=sys.stderr)
    print(f"The generated files do not match the classes. Run: pheby schema export {args.folder}", file=sys.stderr)
    return 1


def _breaks_a_promise(folder: Path, files: dict[str, str] | None = None) -> bool:
    """Whether what is frozen is not as it was, as stored or as it would be written; that is told."""
    from pheby_conformance.bundle import broken_promises

    promises = broken_promises(folder, files)
    if promises:
        print("\n".join(f"frozen, and changed: {name}" for name in promises), file=sys.stderr)
        print("What was frozen with a version stays as it is; see docs/adr/0010-frozen-versions.md.", file=sys.stderr)
    return bool(promises)


def _stale(folder: Path, files: dict[str, str]) -> list[str]:
    """Files in folders of generated files that are not generated any more."""
    from pheby_conformance import bundle

    from pheby_protocol.export.files import GENERATED_FOLDERS

    found = [
        path.relative_to(folder).as_posix()
        for generated in (*GENERATED_FOLDERS, *bundle.GENERATED_FOLDERS)
        for path in (folder / generated).rglob("*")
        if path.is_file()
    ]
    return sorted(name for name in found if name not in files)
