"""The whole demo as one context: a scripted model, a home, and a real Hermes gateway with Pheby in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from pheby.demo.errors import ModelUnreachableError
from pheby.demo.gateway import Gateway
from pheby.demo.home import DemoHome, Plugin, prepare_home
from pheby.demo.lines import LINES, HermesEnvironment, Progress, ensure
from pheby.demo.model import MODELS, ScriptedModel

READY_TIMEOUT = 90.0
_NEVER_GIVEN = range(20_000, 32_000)
"""Ports below those that systems give to connections: a gateway that is started again must find its own free."""


class DemoStack:
    """`async with DemoStack() as stack:` has a gateway ready at `stack.url`, and leaves nothing running."""

    def __init__(
        self,
        line: str = "0.19",
        *,
        environment: HermesEnvironment | None = None,
        model_url: str | None = None,
        model_name: str | None = None,
        home: Path | None = None,
        port: int | None = None,
        secret: str | None = None,
        hermes_defaults: bool = False,
        plugin: Plugin = "folder",
        plugin_source: Path | None = None,
        extra_config: Mapping[str, Any] | None = None,
        extra_env: Mapping[str, str] | None = None,
        progress: Progress = print,
    ) -> None:
        self._line = LINES[line]
        self._environment = environment
        self._given_model_url = model_url
        self._model_name = model_name
        self._given_home = home
        self._port = port
        self._given_secret = secret
        self.hermes_defaults = hermes_defaults
        """Whether Hermes shows things by its own settings."""
        self._plugin = plugin
        self._plugin_source = plugin_source
        self._extra_config = extra_config
        self._extra_env = extra_env
        self._progress = progress
        self._exits = contextlib.AsyncExitStack()
        self.model: ScriptedModel | None = None
        self.model_key = secrets.token_hex(16)
        """What Hermes shows the scripted model as its key; any would do."""
        self._started: tuple[HermesEnvironment, DemoHome, Gateway, str] | None = None

    @property
    def url(self) -> str:
        """Where a client connects."""
        return f"ws://127.0.0.1:{self._parts[1].port}/v1/ws"

    @property
    def secret(self) -> str:
        """What a client authenticates with."""
        return self._parts[1].secret

    @property
    def home(self) -> Path:
        """The Hermes home."""
        return self._parts[1].path

    @property
    def environment(self) -> HermesEnvironment:
        """Where Hermes is installed."""
        return self._parts[0]

    @property
    def hermes_version(self) -> str:
        """The version of the Hermes distribution that runs."""
        return self._parts[0].version

    @property
    def model_url(self) -> str:
        """The base URL of the model server."""
        return self._parts[3]

    @property
    def gateway(self) -> Gateway:
        """The gateway of this stack."""
        return self._parts[2]

    @property
    def gateway_pid(self) -> int:
        """The process id of the gateway; another one after a restart."""
        return self.gateway.pid

    async def start_gateway(self) -> None:
        """Start the gateway and wait until it is ready."""
        await self.gateway.start()
        await self.gateway.wait_ready(READY_TIMEOUT)

    async def stop_gateway(self) -> int:
        """Stop the gateway politely; its exit code."""
        return await self.gateway.stop()

    async def restart(self, *, kill: bool = False) -> None:
        """Stop the gateway (or kill it, as a crash would) and start it again with the same home and port."""
        await (self.gateway.kill() if kill else self.gateway.stop())
        await self.start_gateway()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as exits:
            environment = self._environment
            if environment is None:
                environment = await asyncio.to_thread(ensure, self._line, self._progress)
            folder = self._given_home or _temporary_folder(exits)
            model_url, model_name, api_key = await self._choose_model(exits)
            home = prepare_home(
                folder,
                model_url=model_url,
                model_name=model_name,
                api_key=api_key,
                port=self._port or free_port(),
                secret=self._given_secret,
                hermes_defaults=self.hermes_defaults,
                plugin=self._plugin,
                plugin_source=self._plugin_source,
                extra=self._extra_config,
            )
            gateway = Gateway(environment, home, extra_env=self._extra_env)
            exits.push_async_callback(gateway.close)
            self._started = (environment, home, gateway, model_url)
            self._progress(f"Starting Hermes {self._line.name} ...")
            await self.start_gateway()
            self._exits = exits.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exits.aclose()

    @property
    def _parts(self) -> tuple[HermesEnvironment, DemoHome, Gateway, str]:
        if self._started is None:
            raise RuntimeError("the demo stack was not started")
        return self._started

    async def _choose_model(self, exits: contextlib.AsyncExitStack) -> tuple[str, str, str]:
        if self._given_model_url is None:
            self.model = await exits.enter_async_context(ScriptedModel())
            return self.model.url, self._model_name or MODELS[0], self.model_key
        url = self._given_model_url.rstrip("/")
        key = os.environ.get("OPENAI_API_KEY") or "none"
        return url, self._model_name or await _first_model(url, key), key


def free_port() -> int:
    """A port on 127.0.0.1 that nothing listens on at this moment, and that no outgoing connection is given later."""
    for port in random.sample(_NEVER_GIVEN, len(_NEVER_GIVEN)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def _temporary_folder(exits: contextlib.AsyncExitStack) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pheby-demo-"))
    # Errors are ignored: a process that was just killed may still be writing.
    exits.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


async def _first_model(url: str, key: str) -> str:
    problem = f"The model server at {url} did not list its models; give the name with --model."
    try:
        async with (
            aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(total=20)) as session,
            session.get(f"{url}/models", headers={"Authorization": f"Bearer {key}"}) as response,
        ):
            answer = await response.json(content_type=None)
            name = answer["data"][0]["id"]
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError):
        raise ModelUnreachableError(problem) from None
    if not isinstance(name, str):
        raise ModelUnreachableError(problem)
    return name
