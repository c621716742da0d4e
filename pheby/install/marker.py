"""What Pheby did to a home, written there before it is done: without it nothing is updated or taken out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import attrs
import cattrs

from .edits import Change
from .env_file import Written
from .errors import InstallError
from .files import read_text, write

FOLDER: Final = Path("plugins/pheby")
FILE: Final = FOLDER / ".pheby-install.json"
_FORMAT: Final = 1


@attrs.frozen
class ConfigEdit:
    """One time that config.yaml was changed."""

    before: str
    after: str
    """Digests of the whole file: while it is still the latter, the change is undone to the byte."""
    changes: tuple[Change, ...]


@attrs.frozen(kw_only=True)
class Marker:
    """The record. It holds no secret, only digests."""

    version: str
    hermes_python: str | None = None
    files: dict[str, str] = attrs.field(factory=dict)
    """What was placed, relative to the home, with its digest."""
    made: tuple[str, ...] = ()
    """Folders that were made for it, relative to the home."""
    config: tuple[ConfigEdit, ...] = ()
    environment: tuple[Written, ...] = ()


def _any_value(value: Any, _: Any) -> Any:
    return value


def _text(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


_converter = cattrs.Converter()
_converter.register_structure_hook(str, _text)
_converter.register_structure_hook_func(lambda kind: kind is Any, _any_value)


def read_marker(home: Path) -> Marker | None:
    """The record of a home; None where Pheby was not put in by `pheby install`. Raises InstallError."""
    text = read_text(home / FILE)
    if text is None:
        return None
    try:
        said = json.loads(text)
        if said.pop("format") != _FORMAT:
            raise ValueError
        return _converter.structure(said, Marker)
    except (ValueError, TypeError, KeyError, AttributeError, cattrs.BaseValidationError, RecursionError):
        raise InstallError(
            f"{home / FILE} is not readable, or of another version of Pheby. It says what belongs to Pheby in this "
            "home, so nothing was done."
        ) from None


def write_marker(home: Path, marker: Marker) -> None:
    """Write the record. Raises InstallError."""
    said = {"format": _FORMAT} | _converter.unstructure(marker)
    write(home / FILE, json.dumps(said, indent=2, ensure_ascii=False) + "\n", mode=0o600)
