"""A stand-in for Hermes's command and for an interpreter, so that these tests need neither a network nor Hermes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pheby.demo.home import DemoHome, prepare_home
from pheby.demo.lines import LINES, HermesEnvironment
from pheby.demo.stack import free_port

FAKE_HERMES = '''
"""What `hermes gateway run` looks like from outside: /healthz, signals, an exit code. FAKE_MODE chooses its manners."""
import http.server, os, pathlib, signal, subprocess, sys, time

import yaml

assert sys.argv[1:] == ["gateway", "run", "-v"], sys.argv
home = pathlib.Path(os.environ["HERMES_HOME"])
(home / "seen-environment.txt").write_text("\\n".join(f"{k}={v}" for k, v in sorted(os.environ.items())))
mode = os.environ.get("FAKE_MODE", "")
print("fake hermes starts", mode, flush=True)
child = subprocess.Popen(["sleep", "300"])
(home / "child.pid").write_text(str(child.pid))
if mode == "exit":
    print("cannot start;", (home / ".env").read_text(), flush=True)
    sys.exit(3)
if mode == "never":
    time.sleep(300)
if mode in ("stubborn", "immortal"):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
if mode == "immortal":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
started = time.monotonic()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path == "/healthz" and time.monotonic() - started > 0.2
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *args):
        pass

port = yaml.safe_load((home / "config.yaml").read_text())["platforms"]["pheby"]["extra"]["port"]
try:
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever(poll_interval=0.05)
except KeyboardInterrupt:
    print("fake hermes ends", flush=True)
'''


@pytest.fixture(autouse=True)
def strange_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the person's own home."""
    home = tmp_path_factory.mktemp("person")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return home


@pytest.fixture
def plugin_source(tmp_path: Path) -> Path:
    """Some other plugin than Pheby."""
    folder = tmp_path / "plugin-source"
    folder.mkdir()
    (folder / "plugin.yaml").write_text("name: pheby\n")
    (folder / "__init__.py").write_text("def register(ctx):\n    pass\n")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> HermesEnvironment:
    """An environment whose Hermes is the stand-in."""
    folder = tmp_path / "environment"
    folder.mkdir()
    hermes = folder / "hermes"
    hermes.write_text(FAKE_HERMES)
    return HermesEnvironment(LINES["0.19"], folder, Path(sys.executable), hermes, "0.19.0")


@pytest.fixture
def home(tmp_path: Path, plugin_source: Path) -> DemoHome:
    """A prepared home on a free port."""
    return prepare_home(
        tmp_path / "home",
        model_url="http://127.0.0.1:9/v1",
        api_key="none",
        port=free_port(),
        plugin_source=plugin_source,
    )


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process runs; one that has ended but was not collected yet does not."""

    def check(pid: int) -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state != "Z"

    return check
