"""R-A2, R-A7: nothing of Hermes is used that has no row in `pheby_hermes.seams`; read off the sources."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pheby_hermes
from pheby_hermes import _hermes, hooks, port, seams

SYMBOLS = {symbol for line in seams.LINES for symbol in seams.named(line)}
WORDS = {word for symbol in SYMBOLS for word in re.findall(r"\w+", symbol)}
TREE = ast.parse(Path(_hermes.__file__).read_text())
OF_ALL_ADAPTERS = {"MAX_MESSAGE_LENGTH", "supports_code_blocks"}
"""Read by Hermes with a default that does."""


def imported() -> Iterator[tuple[str, str, str]]:
    """Every import of Hermes's: the module, the name, and what it is called here."""
    tops = {symbol.split(":")[0].split("~")[0].split(".")[0] for symbol in SYMBOLS}
    for node in ast.walk(TREE):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in tops:
            for name in node.names:
                yield node.module, name.name, name.asname or name.name


def test_every_import_has_a_row() -> None:
    """R-A7: a module, or a name in one."""
    for module, name, _ in imported():
        assert f"{module}:{name}" in SYMBOLS or f"{module}.{name}" in SYMBOLS, (module, name)


def test_every_name_in_a_module_has_a_row() -> None:
    """R-A7: what is read of a module that was imported."""
    modules = {called: f"{module}.{name}" for module, name, called in imported() if f"{module}.{name}" in SYMBOLS}
    used = {
        (modules[node.value.id], node.attr)
        for node in ast.walk(TREE)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
    }
    assert ("tools.approval", "_gateway_queues") in used
    assert {f"{module}:{name}" for module, name in used} <= SYMBOLS


def test_every_attribute_that_is_asked_for_has_a_row() -> None:
    """R-A7: `getattr` and `hasattr`, with a default or without."""
    for node in ast.walk(TREE):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant):
                assert name.value in WORDS, name.value


def test_every_keyword_that_hermes_is_given_has_a_row() -> None:
    """R-A7: of what is called on a module or a store of Hermes's."""
    called = {each for _, _, each in imported()} | {"store", "cls"}
    for node in ast.walk(TREE):
        if isinstance(node, ast.Call):
            first = node.func
            while isinstance(first, ast.Attribute):
                first = first.value
            if isinstance(first, ast.Name) and first.id in called:
                assert {each.arg for each in node.keywords if each.arg} <= WORDS, ast.unparse(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "store":
            assert f"hermes_state:SessionDB.{node.attr}" in SYMBOLS


def test_every_field_and_option_that_is_looked_for_has_a_row() -> None:
    """R-A7: fields and parameters that only one line has are given only where they are known."""
    looked_for = {
        node.left.value
        for node in ast.walk(TREE)
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and isinstance(node.ops[0], ast.In)
    }
    given = {
        key.value
        for node in ast.walk(TREE)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and isinstance(node.value, ast.Dict)
        and ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target) in ("wanted", "options")
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    }  # fmt: skip
    assert {"allow_gateway_control", "channel_context"} <= looked_for
    assert {"include_children", "compact_rows", "include_compression_chain"} <= given
    assert looked_for | given <= WORDS


def test_every_hook_has_a_row() -> None:
    """R-A7."""
    assert {f"hermes_cli.plugins:VALID_HOOKS[{hook}]" for hook in hooks.HOOKS} <= SYMBOLS


def test_every_option_of_the_platform_has_a_row() -> None:
    """R-A7: what `register` announces."""
    tree: Any = ast.parse(inspect.getsource(pheby_hermes.register))
    wanted = next(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "wanted"
    )
    names = {key.value for key in wanted.keys}
    assert "is_connected" in names
    assert {f"gateway.platform_registry:PlatformEntry({name})" for name in names} <= SYMBOLS


def test_every_method_that_hermes_calls_has_a_row() -> None:
    """R-A7: what Pheby's adapter has beside what the core asks of it."""
    source = Path(_hermes.__file__).with_name("adapter.py").read_text()
    (cls,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    core = {name for name in vars(port.Gateway) if not name.startswith("_")} | {"take_hook"}
    methods = {node.name for node in cls.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    called = {name for name in methods - core if not name.startswith("_")}
    assert {"send", "send_clarify", "retire_clarify_card"} <= called
    assert called <= WORDS
    # What is Hermes's own of `self`, and is read or called.
    inherited = {
        node.attr
        for node in ast.walk(cls)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "super()")
    }
    given = {node.attr for node in ast.walk(cls) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    fields = {ast.unparse(node.target) for node in cls.body if isinstance(node, ast.AnnAssign)}
    constants = {ast.unparse(target) for node in cls.body if isinstance(node, ast.Assign) for target in node.targets}
    assert inherited - core - methods - given - fields - constants <= WORDS | {"__init__"}
    assert constants <= WORDS | OF_ALL_ADAPTERS
