"""The generated Kotlin, as far as Python can tell; compiling and running it is in conformance/kotlin."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest

from pheby_protocol.export.kotlin import kotlin_files
from pheby_protocol.export.metamodel import Metamodel, metamodel
from pheby_protocol.export.tables import states


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return kotlin_files(metamodel(), states())


@pytest.fixture(scope="module")
def text(files: dict[str, str]) -> str:
    return "".join(files.values())


@pytest.fixture
def model() -> Metamodel:
    return deepcopy(metamodel())


def struct(model: Metamodel, name: str) -> Any:
    return next(found for found in [*model["objects"], *model["messages"]] if found["name"] == name)


def code(text: str) -> str:
    """The text without its comments and string literals."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', "", text, flags=re.DOTALL)


def test_the_same_model_gives_the_same_files(files: dict[str, str]) -> None:
    assert kotlin_files(metamodel(), states()) == files


def test_every_file_names_its_package_and_says_that_it_is_generated(files: dict[str, str]) -> None:
    for name, content in files.items():
        assert re.fullmatch(r"[A-Z][A-Za-z]+\.kt", name)
        assert content.startswith("// Generated")
        assert content.count("package pheby.protocol\n") == 1, name
        assert content.endswith("\n")
        assert not content.endswith("\n\n")
        assert not re.search(r"[ \t]$", content, re.MULTILINE), name


def test_brackets_are_balanced(files: dict[str, str]) -> None:
    for name, content in files.items():
        # Character literals of brackets are in the scanner of PhebyJson.kt alone.
        bare = re.sub(r"'[^'\n]{1,2}'", "", code(content))
        assert all(bare.count(left) == bare.count(right) for left, right in ("{}", "()", "[]")), name


def test_every_message_is_a_data_class_with_its_tag(text: str) -> None:
    for message in metamodel()["messages"]:
        name = "ErrorFrame" if message["name"] == "Error" else message["name"]
        found = re.search(
            rf"^public data class {name}\(\n(.*?)^\) : (\S+) {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL
        )
        assert found, name
        assert f'const val TYPE: String = "{message["type"]}"' in found[3]
        assert len(re.findall(r"\bval \S+:", found[1])) == len(message["fields"])
        assert f"{name}.TYPE -> {name}.serializer()" in text
        assert f"is {name} -> encoder.encodeSerializableValue({name}.serializer(), frame)" in text


@pytest.mark.parametrize(
    ("name", "parent"),
    [
        ("ConversationGet", "Request<ConversationGetResult>"),
        ("ConversationGetResult", "ResultFrame"),
        ("MessageCompleted", "LoggedEvent"),
        ("MessageDelta", "TransientEvent"),
        ("ErrorFrame", "ServerFrame"),
        ("Batch", "ServerFrame"),
    ],
)
def test_a_message_has_its_part_in_the_exchange(text: str, name: str, parent: str) -> None:
    assert re.search(rf"^public data class {name}\([^)]*(?:\([^)]*\)[^)]*)*\n\) : {parent} {{", text, re.MULTILINE)


def test_every_object_enumeration_and_scalar_is_there(text: str) -> None:
    model = metamodel()
    for found in model["objects"]:
        assert f"public data class {found['name']}(\n" in text
    for enum in model["enums"]:
        assert f"public {'sealed interface' if enum['open'] else 'enum class'} {enum['name']}" in text
        for value in enum["values"]:  # type: ignore[attr-defined]
            assert f'"{value}"' in text
    for scalar in model["scalars"]:
        word = "typealias" if scalar["kind"] == "integer" else "value class"
        assert re.search(rf"public {word} {scalar['name']}\b", text)


def test_every_table_limit_and_capability_is_there(files: dict[str, str]) -> None:
    for table in states()["tables"]:
        assert f'"{table["name"]}"' in files["States.kt"]
    for name, value in metamodel()["limits"].items():
        assert re.search(rf"const val {name.upper()}: (Int|Long) = {value}L?\n", files["Limits.kt"])
    for name in metamodel()["capabilities"]["server"]:
        assert f'"{name}"' in files["Limits.kt"]


def test_nothing_is_untyped_and_nothing_is_of_the_jvm_only(files: dict[str, str]) -> None:
    for name, content in files.items():
        bare = code(content)
        assert not re.search(r"\bAny\b", bare), name
        assert not re.search(r"\b(java|javax|android)\.", bare), name
        assert set(re.findall(r"kotlin\.jvm\.\w+", bare)) <= {"kotlin.jvm.JvmInline"}, name
    objects = re.findall(r"val (\w+): JsonObject", files["Objects.kt"] + files["ServerMessages.kt"])
    assert objects == ["arguments"]


def test_everything_public_says_so(files: dict[str, str]) -> None:
    for name, content in files.items():
        for line in code(content).splitlines():
            if re.match(r"\s*(data class|class|object|interface|sealed|enum|typealias|const|fun) ", line):
                # Members of what is internal need no modifier.
                assert name in ("Serializers.kt", "PhebyJson.kt"), f"{name}: {line}"


def test_a_comment_cannot_be_ended_or_nested_by_a_description(model: Metamodel) -> None:
    struct(model, "Ping")["description"] = "before */ public class Evil /* after"
    struct(model, "Ping")["fields"][0]["description"] = "*/*/"
    text = kotlin_files(model, states())["ClientMessages.kt"]
    assert "Evil" in text
    assert "Evil" not in code(text)
    assert text.count("/*") == text.count("*/")


def test_a_long_description_is_wrapped(model: Metamodel) -> None:
    struct(model, "Ping")["description"] = "lengthy " * 60
    text = kotlin_files(model, states())["ClientMessages.kt"]
    assert text.count("lengthy") == 60
    assert all(len(line) <= 120 for line in text.splitlines())


def test_text_in_tables_is_escaped(model: Metamodel) -> None:
    model["errors"][0]["message"] = 'a "b" $c \\ \n'
    assert '"a \\"b\\" \\$c \\\\ \\n"' in kotlin_files(model, states())["Codes.kt"]


def test_a_field_named_like_a_keyword_is_quoted(model: Metamodel) -> None:
    struct(model, "Ping")["fields"].append(
        {"name": "when", "type": {"kind": "string"}, "optional": True, "description": "x"}
    )
    assert "public val `when`: String? = null," in kotlin_files(model, states())["ClientMessages.kt"]


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ({"type": {"kind": "boolean"}, "default": False}, "Boolean = false"),
        ({"type": {"kind": "boolean"}, "default": True}, "Boolean = true"),
        ({"type": {"kind": "integer"}, "default": 7}, "Long = 7L"),
        ({"type": {"kind": "string"}, "default": "a$"}, 'String = "a\\$"'),
        ({"type": {"kind": "ref", "name": "IfBusy"}, "default": "queue"}, "IfBusy = IfBusy.QUEUE"),
        ({"type": {"kind": "ref", "name": "RunState"}, "default": "queued"}, "RunState = RunState.Queued"),
        ({"type": {"kind": "array", "items": {"kind": "string"}}, "default": []}, "List<String> = emptyList()"),
        ({"type": {"kind": "map", "items": {"kind": "boolean"}}, "optional": False}, "Map<String, Boolean>"),
        ({"type": {"kind": "ref", "name": "RunId"}}, "RunId? = null"),
    ],
)
def test_a_field_has_its_type_and_default(model: Metamodel, field: dict[str, Any], written: str) -> None:
    struct(model, "Ping")["fields"].append({"name": "x_new", "optional": True, "description": "x", **field})
    assert f"public val xNew: {written},\n" in kotlin_files(model, states())["ClientMessages.kt"]


def test_what_cannot_be_said_in_kotlin_is_refused(model: Metamodel) -> None:
    items = {"kind": "array", "items": {"kind": "ref", "name": "Count"}}
    broken = deepcopy(model)
    struct(broken, "Ping")["fields"].append({"name": "x", "type": items, "optional": False, "description": "x"})
    with pytest.raises(TypeError):
        kotlin_files(broken, states())
    broken = deepcopy(model)
    struct(broken, "Usage")["fields"].clear()
    with pytest.raises(ValueError, match="needs a field"):
        kotlin_files(broken, states())
    broken = deepcopy(model)
    broken["enums"][0]["values"] = ["fine", "unknown"]
    with pytest.raises(ValueError, match="cannot be named"):
        kotlin_files(broken, states())
