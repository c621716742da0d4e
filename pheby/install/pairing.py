"""`pheby pair`: what the app must be given, as text and as a picture of squares. Shown on request alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Final

import attrs

from pheby import config_check
from pheby_server.config import ConfigError, check_secret

from . import env_file
from .errors import InstallError
from .files import read_text
from .status import address

_SECRET: Final = "PHEBY_SECRET"  # noqa: S105 - the variable's name
_SCHEMES: Final = {"http": "ws", "https": "wss"}


@attrs.frozen
class Pairing:
    """Where the app connects to, and its secret."""

    url: str
    secret: str = attrs.field(repr=False)
    reachable: bool
    """Whether the address is one that a phone can have: of a public host."""

    def as_code(self) -> str:
        """What the code holds. JSON and not an address, so that no scanner hands it to whichever app claims such."""
        return json.dumps({"pheby": 1, "url": self.url, "secret": self.secret}, separators=(",", ":"))

    def as_text(self) -> str:
        """Address, secret and the code, for a terminal."""
        lines = [f"address  {self.url}", f"secret   {self.secret}", "", _picture(self.as_code())]
        if not self.reachable:
            lines.append(
                "This address is for this machine alone. Once there is a proxy with TLS, set "
                "platforms.pheby.extra.public_url in config.yaml (docs/howto/install.md)."
            )
        return "\n".join(lines)


def pairing(home: Path) -> Pairing:
    """What a phone needs to reach the Pheby of a home, by its settings. Raises InstallError."""
    found, report = _local(home)
    public = next((str(each.value) for each in report.settings if each.name.endswith("extra.public_url")), "")
    if not public:
        return found
    scheme, _, rest = public.partition("://")
    return attrs.evolve(found, url=f"{_SCHEMES.get(scheme, scheme)}://{rest}/v1/ws", reachable=True)


def local(home: Path) -> Pairing:
    """The same for a program on this machine. Raises InstallError."""
    return _local(home)[0]


def _local(home: Path) -> tuple[Pairing, config_check.Report]:
    report = config_check.check(home, {})
    secret = env_file.values(read_text(home / ".env") or "").get(_SECRET)
    if not secret:
        raise InstallError(f"There is no {_SECRET} in {home / '.env'}: run `pheby install` first.")
    try:
        check_secret(_SECRET, secret)
    except ConfigError as problem:
        raise InstallError(f"{problem}: run `pheby secret rotate`.") from None
    host, port, prefix = address(report)
    url = f"ws://{f'[{host}]' if ':' in host else host}:{port}{prefix}/v1/ws"
    return Pairing(url, secret, reachable=False), report


def _picture(text: str) -> str:
    try:
        import segno
    except ImportError:
        return "(For a code to scan: pip install 'pheby[cli]')"
    drawn = io.StringIO()
    segno.make(text, error="m", micro=False).terminal(drawn, compact=True)
    return drawn.getvalue()
