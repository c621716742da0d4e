"""Renames symbols of Hermes while its sources are read. A scratch environment begins with a copy of this.

A name of its own is renamed in all of Hermes, as whoever maintains it would. A word that many things are called is
renamed where it is defined: in its class, its function or its module.
"""

from __future__ import annotations

import ast
import json
import re
import site
import sys
from importlib import util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

COMMON = frozenset(
    {
        "CANCELLED",
        "SKIPPED",
        "TEXT",
        "_entries",
        "_lock",
        "clarify_id",
        "close",
        "config",
        "connect",
        "context_window",
        "cursor",
        "data",
        "disconnect",
        "enabled",
        "error",
        "event",
        "internal",
        "is_connected",
        "message_id",
        "message_type",
        "name",
        "reason",
        "reasoning",
        "resolve",
        "result",
        "send",
        "source",
        "streaming",
        "success",
        "text",
    }
)
_SYMBOL = re.compile(r"([\w.]+)(?::([\w.]+)|~(\w+))?(?:\((\w+)\)|\[(\w+)\])?")
NEW = "_renamed"


class Renaming:
    """What becomes of each source."""

    def __init__(self, symbol: str) -> None:
        found = _SYMBOL.fullmatch(symbol)
        assert found is not None, symbol
        self.module, path, mentioned, self.parameter, member = found.groups()
        self.names = path.split(".") if path else []
        self.word = mentioned or member or self.parameter or (self.names[-1] if self.names else "")

    def of(self, source: str, module: str) -> str:
        if not self.word:
            return self._import(source, module)
        if self.word not in source:
            return source
        if self.parameter:
            return self._parameter(source)
        if self.word not in COMMON:
            return re.sub(rf"\b{self.word}\b", self.word + NEW, source)
        if len(self.names) > 1:
            source = re.sub(rf"\b{self.names[-2]}\.{self.word}\b", f"{self.names[-2]}.{self.word}{NEW}", source)
            return self._in(source, ast.ClassDef, self.names[-2], rf"\b{self.word}\b")
        return re.sub(rf"\b{self.word}\b", self.word + NEW, source) if module == self.module else source

    def _import(self, source: str, package: str) -> str:
        """Where the module is imported, in whatever way."""
        parent, _, leaf = self.module.rpartition(".")
        if leaf not in source:
            return source
        lines = source.splitlines(keepends=True)
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.ImportFrom):
                continue
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            target = ".".join([*above, *([node.module] if node.module else [])])
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                if target == self.module and node.level:
                    lines[number] = re.sub(rf"(from\s+\.+[\w.]*\b{leaf})\b", rf"\1{NEW}", lines[number])
                elif target == parent and any(name.name == leaf for name in node.names):
                    lines[number] = re.sub(rf"(?<![\w.]){leaf}\b(?! as)", f"{leaf}{NEW} as {leaf}", lines[number])
                    lines[number] = re.sub(rf"(?<![\w.]){leaf} as\b(?! {leaf})", f"{leaf}{NEW} as", lines[number])
        return re.sub(rf"(?<![\w.]){re.escape(self.module)}\b", self.module + NEW, "".join(lines))

    def _parameter(self, source: str) -> str:
        if self.names[-1][0].isupper():
            source = self._in_calls(source)
            if re.search(rf"^class {self.names[-1]}\b", source, re.M) is None:
                return source
            # The field of a dataclass, or what is given to `__init__`.
            return self._in(source, ast.ClassDef, self.names[-1], rf"(?<!\.)\b{self.word}\b(?=\s*[:=,)])")
        return self._in(source, (ast.FunctionDef, ast.AsyncFunctionDef), self.names[-1], rf"(?<![.\"'])\b{self.word}\b")

    def _in_calls(self, source: str) -> str:
        """Where Hermes itself gives it to the class."""
        if f"{self.names[-1]}(" not in source:
            return source
        lines = source.encode().splitlines(keepends=True)
        calls = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call)]
        given = [word for call in calls if getattr(call.func, "id", "") == self.names[-1] for word in call.keywords]
        # From the end, since what stands behind it on a line moves.
        for word in sorted(given, key=lambda each: (each.lineno, each.col_offset), reverse=True):
            if word.arg == self.word:
                line, end = lines[word.lineno - 1], word.col_offset + len(self.word.encode())
                lines[word.lineno - 1] = line[:end] + NEW.encode() + line[end:]
        return b"".join(lines).decode()

    def _in(self, source: str, kind: Any, name: str, pattern: str) -> str:
        """Only within the definitions of this name."""
        lines = source.splitlines(keepends=True)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, kind) and node.name == name:
                for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                    lines[number] = re.sub(pattern, self.word + NEW, lines[number])
        return "".join(lines)


class _Moved:
    """Finds a module that was renamed where it lies, and no more under its old name."""

    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name == self.module:
            raise ModuleNotFoundError(name, name=name)
        if name != self.module + NEW:
            return None
        for place in path or sys.path:
            file = Path(place) / f"{self.module.rpartition('.')[2]}.py"
            if file.is_file():
                return util.spec_from_file_location(name, file)
        return None


def apply(symbols: list[str], packages: str) -> None:
    """From now on Hermes is imported as if it had other names for these symbols."""
    renamings, plain = [Renaming(symbol) for symbol in symbols], SourceFileLoader.get_code
    own = json.loads((Path(__file__).parent / "hermes.json").read_text())

    def get_code(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        # By its place: plugins are loaded under other names.
        if path.startswith(packages) and Path(path).relative_to(packages).parts[0].removesuffix(".py") in own:
            source = renamed = Path(path).read_text(encoding="utf-8")
            package = fullname if path.endswith("__init__.py") else fullname.rpartition(".")[0]
            for renaming in renamings:
                renamed = renaming.of(renamed, fullname if renaming.word else package)
            if renamed != source:
                return compile(renamed, path, "exec", dont_inherit=True)
        return plain(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    for renaming in renamings:
        if not renaming.word:
            sys.meta_path.insert(0, _Moved(renaming.module))  # type: ignore[arg-type]


def start() -> None:
    """What the scratch environment does at its start: the packages of the real one, with the symbols renamed."""
    here = Path(__file__).parent
    packages = (here / "packages.txt").read_text()
    site.addsitedir(packages)
    apply((here / "symbols.txt").read_text().splitlines(), packages)
