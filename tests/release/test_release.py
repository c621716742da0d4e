"""R-P1: one version everywhere, and archives that are the same in each run. The whole of it is `make release`."""

from __future__ import annotations

import inspect
import io
import os
import re
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from pheby import Client
from pheby_server import ServerConfig
from release import make, try_wheel

ROOT = Path(__file__).parents[2]
WHEN = 1_796_050_000


def test_there_is_one_version() -> None:
    version = make.project_version()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert metadata.version("pheby") == version
    assert ServerConfig(storage="x").server_version == version
    assert inspect.signature(Client).parameters["version"].default == version
    assert yaml.safe_load((ROOT / "hermes_plugin" / "plugin.yaml").read_text())["version"] == version
    pom = (ROOT / "conformance" / "kotlin" / "pom.xml").read_text()
    assert re.findall(r"<artifactId>[^<]*</artifactId>\s*<version>([^<]*)</version>\s*<name>", pom) == [version]


def test_a_zip_is_the_same_whatever_the_order(tmp_path: Path) -> None:
    content = [("b/x.kt", b"x"), ("a.md", b"y" * 5_000)]
    make.archive(tmp_path / "one.zip", content, WHEN)
    make.archive(tmp_path / "two.zip", reversed(content), WHEN)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == ["a.md", "b/x.kt"]
        assert {info.date_time for info in archive.infolist()} == {(2026, 11, 30, 14, 46, 40)}


def packed(names: list[str], mtime: int, uid: int, mode: int) -> bytes:
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid, member.mode = len(name), mtime, uid, mode
            tar.addfile(member, io.BytesIO(name.encode()))
    return result.getvalue()


def test_an_sdist_is_the_same_whoever_packs_it_and_when() -> None:
    one = make.settled(packed(["p/a", "p/b"], 1_000, 0, 0o600), WHEN)
    two = make.settled(packed(["p/b", "p/a"], 2_000, 1_000, 0o664), WHEN)
    assert one == two
    with tarfile.open(fileobj=io.BytesIO(one)) as tar:
        assert [(member.name, member.mode, member.uid) for member in tar] == [("p/a", 0o644, 0), ("p/b", 0o644, 0)]
        content = tar.extractfile("p/b")
        assert content is not None
        assert content.read() == b"p/b"


def test_the_plugin_folder_is_what_the_installation_writes() -> None:
    """R-A1."""
    files = dict(make.plugin_files())
    assert set(files) == {"pheby/plugin.yaml", "pheby/__init__.py", "pheby/LICENSE"}
    assert b"from pheby_hermes import register" in files["pheby/__init__.py"]


def test_the_kotlin_sources_are_whole() -> None:
    """R-J3: the folder is the package, and nothing of the tests is among them."""
    files = dict(make.kotlin_files())
    for name, text in files.items():
        if name.endswith(".kt"):
            assert f"package {name.rpartition('/')[0].replace('/', '.')}".encode() in text, name
    assert {"pheby/client/PhebyClient.kt", "pheby/protocol/Objects.kt"} <= set(files)


def test_only_what_git_knows_is_released(tmp_path: Path) -> None:
    make.export(tmp_path, WHEN)
    assert (tmp_path / "pyproject.toml").is_file()
    assert not (tmp_path / ".venv").exists()
    assert os.stat(tmp_path / ".ci" / "run").st_mode & 0o777 == 0o755
    assert os.stat(tmp_path / "README.md").st_mode & 0o777 == 0o644


def test_a_python_that_is_another_one_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pyenv puts names on PATH that lead nowhere."""
    odd = tmp_path / "python3.14"
    odd.write_text("#!/bin/sh\nexit 127\n")
    odd.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    assert try_wheel.find("3.14") is None


@pytest.mark.parametrize(("here", "code"), [(("3.11", "3.13"), 0), ((), 1)])
def test_a_python_that_is_not_here_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], here: tuple[str, ...], code: int
) -> None:
    """R-P1: and no fault, as long as there is one at all; the suite is played once, on the newest."""
    done = []
    monkeypatch.setattr(try_wheel, "find", lambda version: f"python{version}" if version in here else None)
    monkeypatch.setattr(try_wheel, "try_with", lambda python, folder: done.append(python))
    monkeypatch.setattr(try_wheel, "try_sdist", lambda folder: None)
    monkeypatch.setattr(try_wheel, "try_archives", lambda folder: None)
    monkeypatch.setattr(try_wheel, "try_suite", lambda folder: "2 passed, 0 failed")
    assert try_wheel.main() == code
    said = capsys.readouterr().out.splitlines()
    assert sorted(done) == [f"python{version}" for version in here]
    if not code:
        assert [line for line in said if "is not here" in line] == [
            "Python 3.12 is not here",
            "Python 3.14 is not here",
        ]
        assert ["the suite" in line for line in said] == [False, False, True, False]


def test_checksums_are_as_sha256sum_writes_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert make.checksums([tmp_path / "a"]) == f"{empty}  a\n"
