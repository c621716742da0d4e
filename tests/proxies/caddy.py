"""A real Caddy with TLS, by the Caddyfile that owners are given and with certificates of its own making."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from tests.proxies.conftest import free_ports, running
from tests.proxies.raw_http import Origin, closed

CADDYFILE = Path(__file__).parents[2] / "docs" / "howto" / "Caddyfile"
# No port, no file and no trust but the test's own; listens on this machine alone.
# Java sends no server name that has no dot in it.
FOR_A_TEST = """{
	admin off
	auto_https disable_redirects
	default_bind 127.0.0.1
	skip_install_trust
	default_sni localhost
"""


@attrs.frozen
class Front:
    """One of the example's two sites: where it is, and what stands before /v1."""

    origin: Origin
    prefix: str

    def path(self, attachment_id: str) -> str:
        return f"{self.prefix}/v1/attachments/{attachment_id}"


@attrs.frozen
class Caddy:
    """The running proxy."""

    sites: dict[str, Front]
    folder: Path
    root: Path
    """The certificate that those of the sites go back to."""

    def logs(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.glob("*.log")}


def adapted(pheby_port: int, ports: list[int], folder: Path) -> str:
    """The example with this test's places instead of an owner's."""
    text = CADDYFILE.read_text()
    for old, new in (
        ("\n{\n", f"\n{FOR_A_TEST}"),
        ("\npheby.example.org {", f"\nlocalhost:{ports[0]} {{"),
        ("\nhome.example.org {", f"\nlocalhost:{ports[1]} {{"),
        ("reverse_proxy 127.0.0.1:8786", f"reverse_proxy 127.0.0.1:{pheby_port}"),
        ("/var/log/caddy/pheby.log", str(folder / "pheby.log")),
        ("/var/log/caddy/home.log", str(folder / "home.log")),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@asynccontextmanager
async def in_front_of(pheby_port: int, folder: Path) -> AsyncIterator[Caddy]:
    folder.mkdir()
    ports = free_ports(2)
    configuration = folder / "Caddyfile"
    configuration.write_text(adapted(pheby_port, ports, folder))
    command = ["caddy", "run", "--config", str(configuration), "--adapter", "caddyfile"]
    async with running(command, ports[0], folder):
        root = folder / "data" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
        trust = ssl.create_default_context(cafile=str(root))
        own, shared = (Origin(port, trust) for port in ports)
        await _has_certificate(own)
        await _has_certificate(shared)
        yield Caddy({"own host": Front(own, ""), "path of a host": Front(shared, "/pheby")}, folder, root)


async def _has_certificate(origin: Origin) -> None:
    # Caddy makes its certificates after it listens.
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await origin.connect()
            except (ssl.SSLError, ConnectionError):
                await asyncio.sleep(0.02)
                continue
            await closed(writer)
            return
