"""`pheby schema`: what is generated is written whole, and drift is told with the command that mends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pheby_conformance.bundle import generated

from pheby.cli import main
from pheby_protocol.export import descriptions
from pheby_protocol.export.files import GENERATED_FOLDERS, generated_files

ROOT = Path(__file__).parents[2]


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    assert main(["schema", "export", str(tmp_path)]) == 0
    return tmp_path


def check(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["schema", "check", str(folder)])
    return code, capsys.readouterr().err


def test_the_repository_is_in_step_with_the_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(ROOT, capsys) == (0, "")


def test_a_field_that_lacks_its_sentence_is_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who adds a field is told what is missing, and in which file."""
    fields = {name: text for name, text in descriptions._FIELDS.items() if name != "conversation_id"}
    monkeypatch.setattr(descriptions, "_FIELDS", fields)
    with pytest.raises(SystemExit, match=r"conversation_id: add it to .*descriptions\.py"):
        main(["schema", "export", str(tmp_path)])


def test_what_was_exported_is_in_step(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert check(exported, capsys) == (0, "")
    found = {path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()}
    assert found == set(generated_files()) | set(generated(exported, generated_files()))


@pytest.mark.parametrize("name", ["schemas/v1/metamodel.json", "schemas/v1/kotlin/Frames.kt"])
def test_a_file_that_differs_is_named_with_the_command_that_mends_it(
    exported: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (exported / name).write_text("old", encoding="utf-8")
    code, said = check(exported, capsys)
    assert code == 1
    assert f"out of date: {name}" in said
    assert f"pheby schema export {exported}" in said
    assert main(["schema", "export", str(exported)]) == 0
    assert main(["schema", "check", str(exported)]) == 0


def test_a_missing_file_and_a_stale_one_are_named(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = exported / "schemas/v1/states.json"
    gone.unlink()
    stale = exported / GENERATED_FOLDERS[0] / "messages/gone.event.json"
    stale.write_text("{}", encoding="utf-8")
    code, said = check(exported, capsys)
    assert code == 1
    assert "missing: schemas/v1/states.json" in said
    assert "stale: schemas/v1/messages/gone.event.json" in said
    assert main(["schema", "export", str(exported)]) == 0
    assert gone.exists()
    assert not stale.exists()


def test_generating_twice_gives_the_same(exported: Path) -> None:
    assert generated_files() == generated_files()
    assert {name: (exported / name).read_text(encoding="utf-8") for name in generated_files()} == generated_files()
