"""`pheby status`: what there is of Pheby in a home, and whether it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from pheby import config_check
from pheby.config_check import Report

from . import gateway, package
from .marker import read_marker


@attrs.frozen(kw_only=True)
class Status:
    """The answer. It holds no secret."""

    home: str
    version: str
    installed_version: str | None
    """What `pheby install` has put in; None if it has not."""
    enabled: bool
    gateway_running: bool
    platform_state: str | None
    """What the gateway says of Pheby; None where it says nothing."""
    host: str
    port: int
    answers: gateway.Answer
    """Who answers there."""
    settings: dict[str, Any]
    problems: tuple[str, ...]
    ignored: tuple[str, ...]
    """Keys that nobody knows."""

    @property
    def listening(self) -> bool:
        """Whether this home's gateway runs and its Pheby answers."""
        return self.gateway_running and self.answers == "pheby"

    def as_text(self) -> str:
        """A few lines for people."""
        installed = self.installed_version or "not by `pheby install`"
        state = f" (Hermes says: {self.platform_state})" if self.platform_state else ""
        lines = [
            f"Hermes home   {self.home}",
            f"Pheby         {self.version}, installed here: {installed}",
            f"plugin        {'enabled' if self.enabled else 'not enabled'}",
            f"gateway       {'running' if self.gateway_running else 'not running'}{state}",
            f"port          {self.host}:{self.port}, {_ANSWERS[self.answers]}",
        ]
        lines += [f"  {name} = {value}" for name, value in sorted(self.settings.items())]
        return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in self.problems)])


_ANSWERS: dict[gateway.Answer, str] = {
    "pheby": "Pheby answers",
    "other": "another program answers",
    "nothing": "nobody answers",
}


def look(home: Path) -> Status:
    """Read a home and ask its port; changes nothing. Raises InstallError."""
    report = config_check.check(home, {})
    settings = {setting.name: setting.value for setting in report.settings}
    marker = read_marker(home)
    host, port, prefix = address(report)
    # Of an older start: what it said then is over.
    running = gateway.running(home)
    return Status(
        home=str(home),
        version=package.version(),
        installed_version=marker.version if marker is not None else None,
        enabled=settings["plugins.enabled"] is True and settings["platforms.pheby.enabled"] is True,
        gateway_running=running,
        platform_state=gateway.platform_state(home) if running else None,
        host=host,
        port=port,
        answers=gateway.ask(host, port, prefix),
        settings=settings,
        problems=report.problems,
        ignored=report.ignored,
    )


def address(report: Report) -> tuple[str, int, str]:
    """Host, port and path prefix that the settings name, or the defaults where those are wrong."""
    said = {setting.name.rpartition(".")[2]: setting.value for setting in report.settings}
    host, port, prefix = said.get("host", "127.0.0.1"), said.get("port", 8786), said.get("path_prefix", "")
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(host), str(host))  # noqa: S104 - asked, not listened on
    return reachable, int(str(port)), str(prefix)
