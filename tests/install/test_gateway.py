"""Whether the gateway runs, and who has the port."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pheby.install import gateway


def record(home: Path, **said: Any) -> None:
    known = {"pid": os.getpid(), "start_time": gateway._started(os.getpid()), "gateway_state": "running"}
    (home / "gateway_state.json").write_text(json.dumps(known | said))


@contextmanager
def answering(status: int, text: str, secret: str | None = None) -> Iterator[int]:
    """A server that says one thing, to strangers only that it is well; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stranger = secret is not None and self.headers["Authorization"] != f"Bearer {secret}"
            self.send_response(401 if stranger and not self.path.endswith("/healthz") else status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("secret", "known"), [(None, True), ("right", True), ("another", False)])
def test_a_secret_is_tried_on_who_answers(secret: str | None, known: bool) -> None:
    """R-S1, R-M1: also behind a path; who does not say is believed."""
    with answering(200, "", secret) as port:
        assert gateway.knows("127.0.0.1", port, "/pheby", "right") is known
    assert gateway.knows("127.0.0.1", port, "", "right")


def test_a_gateway_runs_that_says_so_and_is_there(home: Path) -> None:
    """R-S1: by Hermes's record and the process of that number."""
    assert not gateway.running(home)
    record(home)
    assert gateway.running(home)
    assert gateway.running(home) is not gateway.running(home.parent)


@pytest.mark.parametrize(
    "said",
    [
        {"gateway_state": "stopped"},
        {"gateway_state": None},
        {"start_time": 1},
        {"pid": 2**22 + 1},
        {"pid": 0},
        {"pid": -1},
        {"pid": "1"},
        {"pid": True},
    ],
)
def test_a_gateway_that_is_gone_does_not_run(home: Path, said: dict[str, Any]) -> None:
    """R-S1: also if another process has its number by now."""
    record(home, **said)
    assert not gateway.running(home)


@pytest.mark.parametrize(
    ("served", "platforms", "state"),
    [
        (["default", "work"], {"pheby": {"state": "connected"}, "work:pheby": {"state": "fatal"}}, "fatal"),
        (["default", "work"], {"pheby": {"state": "connected"}}, "connected"),
        (["default", "play"], {"pheby": {"state": "connected"}}, None),
        (None, {"pheby": {"state": "connected"}}, None),
        ("work", {"pheby": {"state": "connected"}}, None),
    ],
)
def test_another_profiles_gateway_may_serve_a_home(
    home: Path, served: Any, platforms: dict[str, Any], state: str | None
) -> None:
    """R-S1, R-A8: then it is in that one's record, and what an own gateway said long ago does not count."""
    work = home / "profiles" / "work"
    work.mkdir(parents=True)
    record(work, gateway_state="stopped", platforms={"pheby": {"state": "disconnected"}})
    record(home, served_profiles=served, platforms=platforms)
    assert gateway.running(work) is (state is not None)
    assert gateway.platform_state(work) == state
    assert gateway.platform_state(home) == "connected"


@pytest.mark.parametrize("platforms", [None, [], {}, {"pheby": None}, {"pheby": {"state": 1}}])
def test_what_hermes_does_not_say_is_not_known(home: Path, platforms: Any) -> None:
    """R-A7: its record may look otherwise one day."""
    record(home, platforms=platforms)
    assert gateway.platform_state(home) is None
    record(home, platforms={"pheby": {"state": "connected"}})
    assert gateway.platform_state(home) == "connected"


@pytest.mark.parametrize(
    ("status", "text", "who"),
    [
        (200, '{"status":"ok"}', "pheby"),
        (503, '{"code":"unavailable","message":"x"}', "pheby"),
        (200, "ok", "other"),
        (200, "[]", "other"),
        (503, "[1]", "other"),
        (404, '{"status":"ok"}', "other"),
    ],
)
def test_who_answers_on_a_port(status: int, text: str, who: str) -> None:
    """R-S1: a Pheby that starts or stops is one, too."""
    with answering(status, text) as port:
        assert gateway.ask("127.0.0.1", port) == who
        assert not gateway.can_listen("127.0.0.1", port)


def test_nobody_answers_on_a_free_port() -> None:
    """R-S1: and it can be had."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert gateway.ask("127.0.0.1", port) == "nothing"
    assert gateway.can_listen("127.0.0.1", port)


def test_who_takes_connections_and_says_nothing_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-S1: within a bounded time."""
    monkeypatch.setattr(gateway, "_SECONDS", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert gateway.ask("127.0.0.1", silent.getsockname()[1]) == "other"
