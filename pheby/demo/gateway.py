"""A real Hermes gateway as a child process that never outlives its owner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from pheby.demo import tether
from pheby.demo.errors import GatewayFailedError
from pheby.demo.home import DemoHome
from pheby.demo.lines import LINES, HermesEnvironment, environment_folder

_LOG_LINES_SHOWN = 20
_POLL = 0.05
# Of these the gateway must see only what it is given here, or it would reach into the person's own set-up.
_OWN_PREFIXES = ("HERMES_", "PHEBY_", "PYTHON", "XDG_")
# A gateway that must first abandon an open run was seen to take 12 s.
_PATIENCE = {signal.SIGINT: 20.0, signal.SIGTERM: 5.0, signal.SIGKILL: 5.0}


class Gateway:
    """`async with Gateway(environment, home) as gateway:` starts it; leaving the block stops it, whatever happened."""

    def __init__(
        self, environment: HermesEnvironment, home: DemoHome, *, extra_env: Mapping[str, str] | None = None
    ) -> None:
        self._environment = environment
        self._home = home
        self._extra_env = dict(extra_env or {})
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0
        self._swept = True

    @property
    def pid(self) -> int:
        """The process id of the gateway; also of its group."""
        return self._running().pid

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def log(self) -> Path:
        """What the gateway printed, over all its starts."""
        return self._home.path / "logs" / "gateway-demo.log"

    async def start(self) -> None:
        """Start the process; it is not ready yet."""
        if self.running:
            raise RuntimeError("the gateway is running already")
        # Whoever listens there would otherwise be taken for the gateway that could not start.
        if not _port_is_free(self._home.port):
            raise GatewayFailedError(f"Port {self._home.port} is in use by another program. Choose another port.")
        hermes = [str(self._environment.python), str(self._environment.hermes), "gateway", "run", "-v"]
        tied = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *hermes]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._log_start = os.fstat(output).st_size
            self._process = await asyncio.create_subprocess_exec(
                *tied,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._home.path,
                env=self._child_environment(),
                start_new_session=True,
            )
            self._swept = False
        finally:
            os.close(output)

    async def wait_ready(self, timeout: float = 60.0) -> None:
        """Return when the plugin says it is ready; raise GatewayFailedError with the log's end when it will not be."""
        process = self._running()
        url = f"http://127.0.0.1:{self._home.port}/healthz"
        try:
            async with asyncio.timeout(timeout), aiohttp.ClientSession() as session:
                while not await _healthy(session, url):
                    if process.returncode is not None:
                        self._sweep()
                        raise self._failed(f"The gateway ended with exit code {process.returncode} before it was ready")
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            raise self._failed(f"The gateway was not ready after {timeout:g} seconds") from None

    async def stop(self) -> int:
        """End the gateway, politely first; the exit code. Nothing of its group is left."""
        process = self._running()
        try:
            for sign, patience in _PATIENCE.items():
                # Only the gateway is asked: it ends its own children, and they would die unasked otherwise.
                _signal(process, sign)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        return await process.wait()
            raise self._failed("The gateway could not be ended")
        finally:
            self._sweep()
            if process.returncode is None:
                await process.wait()

    async def kill(self) -> int:
        """End the gateway and its group at once, as a crash would; the exit code."""
        self._sweep()
        return await self._running().wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the gateway if it runs; safe to call at any time, also while being cancelled."""
        if self.running:
            await self.stop()
        self._sweep()

    async def command(self, *words: str, timeout: float = 120.0) -> tuple[int, str]:
        """Run `hermes WORDS` in another process beside the gateway; its exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            str(self._environment.python),
            str(self._environment.hermes),
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._home.path,
            env=self._child_environment(),
        )
        try:
            async with asyncio.timeout(timeout):
                printed, _ = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, printed.decode(errors="replace")

    def _sweep(self) -> None:
        # Once only: later the number may belong to somebody else.
        if not self._swept:
            self._swept = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._running().pid, signal.SIGKILL)

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the gateway was not started")
        return self._process

    def _child_environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_PREFIXES)}
        for name in ("VIRTUAL_ENV", "__PYVENV_LAUNCHER__"):
            inherited.pop(name, None)
        home = str(self._home.path)
        loopback = "127.0.0.1,localhost"
        own = {
            "HOME": home,
            "HERMES_HOME": home,
            "NO_PROXY": loopback,
            "no_proxy": loopback,
            "PYTHONUNBUFFERED": "1",
            "PATH": os.pathsep.join([str(self._environment.folder / "bin"), inherited.get("PATH", os.defpath)]),
        }
        locales = environment_folder(LINES["0.19"]) / "locales"
        # The packaging of the 0.22 line left its texts out; the older line's fit.
        if self._environment.line.name == "0.22" and locales.is_dir():
            own["HERMES_BUNDLED_LOCALES"] = str(locales)
        return inherited | own | self._extra_env

    def _failed(self, what: str) -> GatewayFailedError:
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            text = log.read().decode(errors="replace").replace(self._home.secret, "(secret)")
        tail = "\n".join(f"    {line}" for line in text.splitlines()[-_LOG_LINES_SHOWN:])
        return GatewayFailedError(f"{what}. The whole log is {self.log}; it ends with:\n{tail}")


async def _healthy(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=2)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: the remains of a killed gateway's connections are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _signal(process: asyncio.subprocess.Process, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(sign)
