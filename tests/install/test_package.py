"""Pheby's code in Hermes's own environment: which command puts it there, and what that environment says of itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pheby import cli
from pheby.demo.lines import checkout
from pheby.install import package
from pheby.install.errors import InstallError
from pheby.install.marker import read_marker
from tests.install.conftest import Pheby


def program(file: Path, script: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!{sys.executable}\n{script}")
    file.chmod(0o755)
    return file


NOTES_ITS_ARGUMENTS = """
import json, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
sys.exit({code} if "-m" in sys.argv or "pip" in sys.argv[1] else {has_pip})
"""


def python(folder: Path, *, code: int = 0, has_pip: int = 0) -> tuple[Path, Path]:
    """A Python that only notes what it was told, and where it does."""
    log = folder / "log"
    script = NOTES_ITS_ARGUMENTS.format(log=str(log), code=code, has_pip=has_pip)
    return program(folder / "bin" / "python", script), log


def told(log: Path) -> list[list[str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    (tmp_path / "pheby-1-py3-none-any.whl").touch()
    return tmp_path / "pheby-1-py3-none-any.whl"


def test_pip_of_that_environment_is_used(tmp_path: Path) -> None:
    """R-S1, R-A1: never another's."""
    there, log = python(tmp_path)
    package.install(there, "pheby==1")
    pip = [words[words.index("pip") + 1 :] for words in told(log) if "pip" in words]
    assert [words[-1] for words in pip] == ["pheby==1", "pheby==1"]
    assert all("--no-input" in words for words in pip)


def test_an_environment_without_pip_is_filled_by_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-S1: Hermes's own installer makes such ones."""
    there, log = python(tmp_path, has_pip=1)
    with pytest.raises(InstallError, match="no pip"):
        package.install(there, "pheby==1")
    program(tmp_path / "tools" / "uv", NOTES_ITS_ARGUMENTS.format(log=str(log), code=0, has_pip=0))
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    package.install(there, "pheby==1")
    used = [words for words in told(log) if words[0] == "pip"]
    assert all(words[:4] == ["pip", "install", "--python", str(there)] and words[-1] == "pheby==1" for words in used)
    assert used


def test_what_pip_says_of_a_failure_is_told(tmp_path: Path) -> None:
    """R-S1: the end of it."""
    there = program(tmp_path / "bin" / "python", "import sys\nprint('no such thing')\nsys.exit('-c' not in sys.argv)")
    with pytest.raises(InstallError, match="no such thing"):
        package.install(there, "pheby==1")


def test_what_is_no_python_is_said(tmp_path: Path) -> None:
    """R-S1: not as a traceback."""
    broken = tmp_path / "python"
    broken.write_text("not a program")
    broken.chmod(0o755)
    with pytest.raises(InstallError, match="cannot be run"):
        package.install(broken, "pheby==1")


def test_what_is_installed(wheel: Path, tmp_path: Path) -> None:
    """R-S1: the wheel that was named, else what this command is of."""
    assert package.requirement(wheel) == f"pheby[cli] @ {wheel.as_uri()}"
    root = checkout()
    assert root is not None
    assert package.requirement(None) == f"pheby[cli] @ {root.as_uri()}"
    for wrong in (tmp_path / "none.whl", tmp_path):
        with pytest.raises(InstallError, match="is not a wheel"):
            package.requirement(wrong)


def test_the_package_comes_before_all_else(wheel: Path, home: Path, tmp_path: Path, pheby: Pheby) -> None:
    """R-S1: a home that says `enabled` without a package would be worse than none; where it fails nothing is done."""
    there, log = python(tmp_path)
    words = ("install", "--yes", "--wheel", str(wheel), "--hermes-python", str(there))
    assert pheby(*words) == 0
    assert any(f"pheby[cli] @ {wheel.as_uri()}" in words for words in told(log))
    assert pheby("uninstall", "--yes", "--with-package") == 0
    assert told(log)[-1][-2:] == ["--yes", "pheby"]
    failing, _ = python(tmp_path / "failing", code=1)
    assert pheby(*words[:-1], str(failing)) == 1
    assert [path.name for path in home.iterdir()] == ["config.yaml"]


def test_in_hermes_s_own_environment_there_is_nothing_to_install(home: Path, pheby: Pheby) -> None:
    """R-S1: the command came with the package; which Python that is, is noted all the same."""
    words = ["--yes", "--hermes-python", sys.executable, "--home", str(home)]
    assert cli.main(["install", *words]) == 0
    marker = read_marker(home)
    assert marker is not None
    assert marker.hermes_python == sys.executable


PROBE = """
import json, os, sys
home = os.environ["HERMES_HOME"]
print("something that Hermes says")
print(json.dumps({"argv": sys.argv[1:], "home": home, "cwd": os.getcwd(), "secret": os.environ.get("PHEBY_SECRET")}))
open(os.path.join(home, "SOUL.md"), "w").close()
"""


def test_the_probe_has_a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-S1: Hermes's modules make files in the home that they find; they find an empty one that is then removed."""
    monkeypatch.setenv("PHEBY_SECRET", "of-this-shell")
    said = package.probe(program(tmp_path / "python", PROBE))
    assert said is not None
    assert said["argv"] == ["-m", "pheby_hermes.probe"]
    assert said["secret"] is None
    assert said["home"] == said["cwd"]
    assert not Path(said["home"]).exists()


@pytest.mark.parametrize("script", ["", "print('x')", "print('[]')", "import sys; sys.exit(1)"])
def test_a_probe_that_says_nothing_useful_is_none(script: str, tmp_path: Path) -> None:
    """R-A7."""
    assert package.probe(program(tmp_path / "python", script)) is None
    assert package.probe(tmp_path / "none") is None
