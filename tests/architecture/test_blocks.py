"""R-P1: what the documents show can be typed, loaded and compiled: every block, and every command within a sentence."""

from __future__ import annotations

import argparse
import ast
import configparser
import itertools
import json
import re
import shlex
import shutil
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import jsonschema
import pytest
import yaml
from pheby_hermes.config import SECRET_NAMES

from pheby import cli, config_check
from pheby.demo.lines import LINES
from pheby.install import edits, steps
from pheby_protocol.registry import REGISTRY

ROOT = Path(__file__).parents[2]
_LEFT_OUT: Final = {"node_modules", "build", "dist"}
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part in _LEFT_OUT or part.startswith(".") for part in path.relative_to(ROOT).parts)
)
LANGUAGES: Final = {"dotenv", "json", "kotlin", "mermaid", "python", "sh", "yaml", ""}
COMMANDS: Final = {
    # What is not ours and may be typed all the same.
    *("caddy", "cd", "cp", "curl", "export", "git", "hermes", "mkdir", "nginx", "npm", "openssl", "pip", "python3"),
    *("java", "node", "source", "sqlite3", "sudo", "systemctl", "tar", "unzip"),
}
SECRET: Final = "of-a-document-0123456789-abcdefghijklm"


@attrs.frozen
class Block:
    """One fenced block."""

    page: Path
    line: int
    language: str
    title: str | None
    heading: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^( *)```([^\n]*)\n(.*?)^\1```$", text, re.M | re.S):
        info = match[2].strip()
        title = re.search(r'title="([^"]*)"', info)
        line = text.count("\n", 0, match.start()) + 1
        heading = re.findall(r"^#+ (.*)$", text[: match.start()], re.M)[-1]
        yield Block(page, line, info.split(" ")[0], title and title[1], heading, textwrap.dedent(match[3]))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of(*languages: str) -> pytest.MarkDecorator:
    found = [block for block in BLOCKS if block.language in languages]
    assert found, languages
    return pytest.mark.parametrize("block", found, ids=str)


def test_the_blocks_are_found() -> None:
    """All of them: a fence that is not closed, or not where its opening stood, would hide what follows."""
    for page in PAGES:
        # Nor is there another way to show code.
        assert not re.search(r"^ *~~~|<pre|<code", page.read_text(), re.M), page
    assert len(BLOCKS) == sum(len(re.findall(r"^ *```", page.read_text(), re.M)) for page in PAGES) / 2
    assert {block.language for block in BLOCKS} <= LANGUAGES


# -- JSON


@of("json")
def test_json_is_what_the_schemas_allow(block: Block) -> None:
    """A frame by its own schema, an object by the one that its heading names, anything else as an HTTP body."""
    value = json.loads(block.text)
    assert isinstance(value, dict)
    assert value
    if value.get("type") in REGISTRY:
        definition(REGISTRY[value["type"]].cls.__name__).validate(value)
    elif block.heading in exported("pheby.schema.json")["$defs"]:
        definition(block.heading).validate(value)
    else:
        assert any(is_body(value, name) for name in exported("openapi.json")["components"]["schemas"]), value


def definition(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": exported("pheby.schema.json")["$defs"]})


def is_body(value: dict[str, Any], name: str) -> bool:
    components = exported("openapi.json")["components"]
    if not set(value) <= set(components["schemas"][name].get("properties", {})):
        return False
    schema = {"$ref": f"#/components/schemas/{name}", "components": components}
    return jsonschema.Draft202012Validator(schema).is_valid(value)


@cache
def exported(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "schemas" / "v1" / name).read_text())
    return found


# -- Settings


@of("yaml")
def test_settings_are_taken_as_they_stand(block: Block, tmp_path: Path) -> None:
    """R-K1: those of Pheby alone are put where a whole home would have them."""
    settings = yaml.safe_load(block.text)
    assert isinstance(settings, dict)
    check_places(settings)
    settings.setdefault("plugins", {"enabled": ["pheby"]})
    pheby = settings.setdefault("platforms", {}).setdefault("pheby", {})
    pheby.setdefault("enabled", True)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / ".env").write_text(f"PHEBY_SECRET={SECRET}\nPHEBY_ALLOWED_USERS=owner\n")
    assert config_check.check(tmp_path, {}).problems == ()


def check_places(settings: dict[str, Any]) -> None:
    """Each setting stands where Hermes or Pheby looks for it: under another name it would be passed over."""
    places = {
        "plugins": {"enabled"},
        "platforms": {"pheby"},
        "platforms.pheby": {"enabled", "extra"},
        "display": {"platforms"},
        "display.platforms": {"pheby"},
        "display.platforms.pheby": set(steps.SHOWN),
        "streaming": {"enabled"},
    }
    assert set(settings) <= {place.partition(".")[0] for place in places}, settings
    for place, known in places.items():
        found = edits.lookup(settings, tuple(place.split(".")))
        assert set(found or {}) <= known, place


@of("dotenv")
def test_lines_of_an_env_file_are_known(block: Block, tmp_path: Path) -> None:
    """R-K1."""
    (tmp_path / "config.yaml").write_text("plugins: {enabled: [pheby]}\nplatforms: {pheby: {enabled: true}}\n")
    lines = dict(line.split("=", 1) for line in block.text.splitlines() if line and not line.startswith("#"))
    assert set(lines) <= {*SECRET_NAMES, "PHEBY_ALLOWED_USERS", "PHEBY_HOME_CONVERSATION"}
    lines |= {"PHEBY_ALLOWED_USERS": lines.get("PHEBY_ALLOWED_USERS", "owner")}
    lines |= {"PHEBY_SECRET": lines.get("PHEBY_SECRET", SECRET)}
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    assert config_check.check(tmp_path, {}).problems == ()


UNITS = sorted((ROOT / "docs").rglob("*.service"))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_can_be_read(path: Path) -> None:
    """A systemd unit: its sections, and what it starts."""
    unit = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    unit.read_string(path.read_text(encoding="utf-8"))
    assert {"Unit", "Service", "Install"} <= set(unit.sections())
    assert unit["Service"]["ExecStart"].startswith(("/", "%h/"))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_units(path: Path, tmp_path: Path) -> None:
    # The program is not on this machine.
    unit = tmp_path / path.name
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", path.read_text(), flags=re.M))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# -- Commands


def commands_of(block: Block) -> Iterator[list[str]]:
    """Its commands as a shell takes them apart, without variables in front."""
    joined = block.text.replace("\\\n", " ")
    for line in joined.splitlines():
        shell = shlex.shlex(line, posix=True, punctuation_chars=True)
        shell.wordchars += "$…:,@#%+!{}[]^"
        shell.commenters = ""
        words = list(itertools.takewhile(lambda word: not word.startswith("#"), shell))
        for operator, command in itertools.groupby(words, lambda word: word in ("|", "||", "&&", ";", "&")):
            found = list(command)
            while not operator and found and re.fullmatch(r"[A-Z_]+=.*", found[0]):
                found.pop(0)
            if not operator and found:
                yield found


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("  # c isn't one", []),
        ("A=b c d  # e", [["c", "d"]]),
        ("a 'b | c' | d && e; f", [["a", "b | c"], ["d"], ["e"], ["f"]]),
        ("HERMES_ENV/bin/pip install 'x[y]' ~/.z", [["HERMES_ENV/bin/pip", "install", "x[y]", "~/.z"]]),
        ('curl -H "A: $B" http://c/d?e=1', [["curl", "-H", "A: $B", "http://c/d?e=1"]]),
    ],
)
def test_a_line_is_taken_apart_as_a_shell_does(line: str, commands: list[list[str]]) -> None:
    """Else what stands behind an `&&` would never be looked at."""
    assert list(commands_of(Block(ROOT / "x.md", 1, "sh", None, "", line))) == commands


@of("sh")
def test_a_shell_can_read_it(block: Block) -> None:
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)


@of("sh")
def test_every_command_can_be_typed(block: Block) -> None:
    """R-P1: its program is known, and of our own every word."""
    for words in commands_of(block):
        check_command(words, whole=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_within_a_sentence_exists(page: Path) -> None:
    """There only the beginning of a command may stand."""
    prose = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for command in re.findall(r"`((?:make|pheby|python -m) [a-z][^`\n]*)`", prose):
        check_command(shlex.split(command), whole=False)


def check_command(words: list[str], *, whole: bool) -> None:
    match [Path(words[0]).name, *words[1:]]:
        case ["make", *rest]:
            check_make(rest)
        case ["pheby", *rest]:
            check_pheby(rest, whole=whole)
        case ["python" | "python3", "-m", module, *_]:
            check_module(module)
        case ["python", script, *_]:
            assert (ROOT / script).is_file(), words
        case ["curl", *rest]:
            check_curl(rest)
        case ["mvn", *rest]:
            assert (ROOT / rest[rest.index("-f") + 1]).is_file(), words
        case ["pip", "install", *rest]:
            check_pip(rest)
        case ["run.sh", *_]:
            assert (ROOT / words[0]).is_file(), words
        case [program, *_]:
            assert program in COMMANDS, words


def check_make(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, given, _ = word.partition("=")
        if given:
            assert re.search(rf"\$\({name}\)|\$\(or \$\({name}\)|^{name} \?=", makefile, re.M), word
            if name in ("ARGS", "HERMES", "LINE"):
                check_value(name, word.partition("=")[2])
        else:
            assert word in targets(), word


def check_value(name: str, value: str) -> None:
    """What a variable of `make` is given: the demo's own options, or a line that there is."""
    if name == "ARGS":
        parser_of_pheby().parse_args(["demo", *shlex.split(value)])
    else:
        assert value in LINES or value == "simulated", value


def check_curl(words: list[str]) -> None:
    """It asks for something that the server has."""
    (url,) = [word for word in words if word.startswith("http")]
    assert urlsplit(url).path in exported("openapi.json")["paths"], words


@cache
def targets() -> frozenset[str]:
    listed = subprocess.run(
        ["make", "-C", str(ROOT), "--print-data-base", "--question", "--no-builtin-rules", "help"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return frozenset(re.findall(r"^([a-z][\w.-]*):(?!=)", listed, re.M))


def check_pheby(words: list[str], *, whole: bool) -> None:
    parser = parser_of_pheby()
    if whole:
        inner = getattr(parser.parse_args(words), "command", None)
        if isinstance(inner, str):
            check_command(shlex.split(inner), whole=True)
        return
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in parser._option_string_actions, words
        else:
            parser = below(parser, word) or parser
    assert parser.prog != "pheby", words


@cache
def parser_of_pheby() -> argparse.ArgumentParser:
    return cli.parser()


def below(parser: argparse.ArgumentParser, word: str) -> argparse.ArgumentParser | None:
    """The parser of a command's own command. Words that are no command are an option's value."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            assert word in action.choices, (parser.prog, word)
            found: argparse.ArgumentParser = action.choices[word]
            return found
    return None


def check_module(module: str) -> None:
    path = ROOT / module.replace(".", "/")
    assert module in ("pip", "venv") or path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def check_pip(words: list[str]) -> None:
    """What is installed with an extra, has that extra."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in re.findall(r"\[([a-z,]+)\]", " ".join(words)):
        assert set(extra.split(",")) <= set(extras), words


# -- Programs


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def stands_in(block: Block, path: Path) -> bool:
    """Whether its lines are lines of that file, one behind the other."""
    wanted, there = lines_of(block.text), lines_of(path.read_text(encoding="utf-8"))
    return any(there[start : start + len(wanted)] == wanted for start in range(len(there)))


@of("python")
def test_python_compiles(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.title], ids=str)
def test_a_block_with_a_file_name_is_of_that_file(block: Block) -> None:
    """Those files are programs that tests run or build (tests/client/test_examples.py, `make kotlin`)."""
    assert block.title is not None
    assert stands_in(block, ROOT / block.title)
    assert block.language == {".py": "python", ".kt": "kotlin"}[Path(block.title).suffix]
    if block.language == "python":
        assert Path(block.title).parent == Path("docs/examples")


@of("kotlin")
def test_kotlin_is_of_a_file_that_is_compiled(block: Block) -> None:
    """Named or not; what is shown of a test is run by it as well."""
    compiled = [*(ROOT / "conformance" / "kotlin" / "src").rglob("*.kt"), *(ROOT / "schemas").rglob("*.kt")]
    found = [path for path in compiled if stands_in(block, path)]
    assert found
    assert block.title is None or ROOT / block.title in found


def test_what_an_app_depends_on_is_what_the_kotlin_client_is_built_with() -> None:
    """R-P1: the lines for Gradle, which is not run here."""
    pom = (ROOT / "conformance" / "kotlin" / "pom.xml").read_text()
    built = set(re.findall(r"<(?:kotlin|serialization|coroutines|okhttp)\.version>([\d.]+)<", pom))
    (gradle,) = [block.text for block in BLOCKS if "implementation(" in block.text]
    assert set(re.findall(r'(?:version "|:)(\d[\d.]+)"', gradle)) == built
    assert f"minSdk = {re.search(r'android-api-level-([0-9]+)', pom)[1]} " in gradle  # type: ignore[index]


def test_longer_programs_are_files_with_a_test() -> None:
    """A block that imports something is a program, and stands in a file that is run."""
    for block in BLOCKS:
        if block.language == "python" and re.search(r"^(import|from) ", block.text, re.M):
            assert block.title or block.page == ROOT / "README.md", str(block)
            path = ROOT / (block.title or "docs/examples/first_chat.py")
            assert stands_in(block, path), str(block)


def test_the_first_page_shows_owners_the_same_commands_as_theirs() -> None:
    """tests/installed types those of the other one, word by word."""
    shown = [
        [line.partition("#")[0].strip() for line in block.text.splitlines()]
        for block in BLOCKS
        if block.language == "sh" and block.text.startswith("HERMES_ENV/bin/pip install ") and "pair" in block.text
    ]
    assert len(shown) == 2
    assert shown[0] == shown[1]


def test_commands_stand_in_blocks_of_commands() -> None:
    """So that none is overlooked."""
    for block in BLOCKS:
        if block.language == "":
            assert not re.search(r"(^ *|/)(make|pheby|pip|curl|mvn|hermes) [a-z-]", block.text, re.M), str(block)
