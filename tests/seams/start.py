"""Run in an environment of Hermes: what is there of each symbol, and how Pheby starts with it. Prints a JSON object."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import sys
from typing import Any

from pheby_hermes import _hermes, probe, seams

NEW = "_renamed"


def of_hermes(module: str, name: str) -> Any:
    """A name of Hermes's, whether or not it was renamed."""
    for each in (module, module + NEW):
        try:
            found = importlib.import_module(each)
        except ImportError:
            continue
        return getattr(found, name, None) or getattr(found, name + NEW)
    raise ImportError(module)


class Said(logging.Handler):
    """What Hermes logs of it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def features(adapter: Any) -> dict[str, Any]:
    """What a client would be told, of an adapter that listens."""
    runner_class = of_hermes("gateway.run", "GatewayRunner")
    runner, config = object.__new__(runner_class), of_hermes("gateway.config", "GatewayConfig")()
    streaming = getattr(config, "streaming", None)
    if hasattr(streaming, "enabled"):
        streaming.enabled = True
    symbol = os.environ.get("RENAMED", "")
    setattr(runner, "config" + (NEW if symbol == "gateway.run:GatewayRunner.config" else ""), config)
    adapter.gateway_runner = runner
    try:
        if not await adapter.connect():
            return {}
        told = adapter._features()
        return {name: getattr(told, name) for name in told.__slots__ if name not in ("version", "__weakref__")}
    finally:
        await adapter.disconnect()


def main(line: str, *, start: bool) -> dict[str, Any]:
    said = Said()
    logging.getLogger().addHandler(said)
    table = {symbol: _hermes.there(symbol) for symbol in seams.named(line)}
    if not start:
        return {"there": table, "asked": {symbol: _hermes.there(symbol) for symbol in sys.argv[2:]}}
    found = probe.examine()
    of_hermes("hermes_cli.plugins", "discover_plugins")()
    platform_config = of_hermes("gateway.config", "PlatformConfig")(enabled=True, extra={"port": 0})
    registry = of_hermes("gateway.platform_registry", "platform_registry")
    adapter = registry.create_adapter("pheby", platform_config)
    told = asyncio.run(features(adapter)) if adapter is not None else {}
    return {"there": table, "probe": found, "features": told, "said": said.lines}


if __name__ == "__main__":
    answer, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(main(sys.argv[1], start="--start" in sys.argv)), file=answer)
