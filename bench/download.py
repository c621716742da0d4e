"""A large file over HTTP, and whether the server's memory stays as it is."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pheby_server.testing import TEST_SECRET

from .loading import HOST
from .measuring import NotInstalledError, Samples, interleaved, pin, repeats, server_core
from .workers import Worker, clients, server

ROWS = ("download-rate", "download-memory")

CONFIG = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  sendfile on;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen {host}:{port}; root {root}; }}
}}
"""


@contextmanager
def nginx(root: Path) -> Iterator[int]:
    """An nginx that serves a folder, on the server's core; its port."""
    # Debian has it where only an administrator's path leads.
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        raise NotInstalledError("nginx is not installed: make tools")
    with socket.socket() as held:
        held.bind((HOST, 0))
        port = held.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "nginx.conf"
        config.write_text(CONFIG.format(folder=folder, host=HOST, port=port, root=root))
        # As an administrator its worker would be somebody else, who may not read the file.
        root.chmod(0o755)
        process = subprocess.Popen(
            [program, "-e", f"{folder}/error.log", "-c", str(config)], preexec_fn=partial(pin, server_core())
        )
        try:
            _listens(process, port)
            yield port
        finally:
            process.terminate()
            process.wait()


def _listens(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection((HOST, port)).close()
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.02)
    raise RuntimeError("nginx does not listen")


def rate(load: Worker, port: int, path: str, size: int, token: str = "") -> float:
    """MB a second."""
    return size / load.ask("download", port=port, path=path, size=size, token=token)["seconds"] / 1e6


def measure(quick: bool) -> Samples:
    size = (8 if quick else 512) << 20
    with tempfile.TemporaryDirectory() as folder, clients() as load:
        root = Path(folder) / "root"
        root.mkdir()
        file = root / "file.bin"
        with file.open("wb") as out:
            for _ in range(size >> 20):
                out.write(os.urandom(1 << 20))
        file.chmod(0o644)
        Path(folder).chmod(0o755)
        with nginx(root) as nginx_port, server("pheby", f"{folder}/storage") as serving:
            port = serving.answer()["port"]
            path = serving.ask("attach", path=str(file), name="file.bin")["path"]

            def pheby() -> dict[str, float]:
                before = serving.ask("memory")["bytes"]
                found = rate(load, port, path, size, TEST_SECRET)
                grown = (serving.ask("peak")["bytes"] - before) / 2**20
                return {"download-rate": found, "download-memory": grown}

            first = pheby()["download-memory"]
            rate(load, nginx_port, "/file.bin", size)

            def theirs() -> dict[str, float]:
                return {"download-rate": rate(load, nginx_port, "/file.bin", size), "download-memory": first}

            return interleaved(repeats(quick), pheby, theirs)
