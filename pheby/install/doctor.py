"""`pheby doctor`: what is right and wrong, found by trying it, each with the command that mends it."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import shutil
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import attrs
from pheby_hermes.config import SECRET_NAMES, SECTION

from pheby import config_check

from . import edits, env_file, gateway, package
from .errors import InstallError
from .files import read_text
from .marker import FOLDER, read_marker
from .status import Status, look
from .steps import DEFAULT_PORT, ports_of_others, streams
from .target import find_python, other_profiles, profile_of

Severity = Literal["ok", "warning", "error"]

OLDEST_HERMES: Final = (0, 19)
NEWEST_HERMES: Final = (0, 22)
OLDEST_PYTHON: Final = (3, 11)
NEWEST_PYTHON: Final = (3, 14)
GOOD_AIOHTTP: Final = (3, 14, 4)
_PACKAGE: Final = "pheby[cli]"
FEW_BYTES: Final = 100 * 2**20
SCARCE_BYTES: Final = 2**30
_WEB_SECONDS: Final = 5.0
_CLOCK_SECONDS: Final = 120.0
_WRITTEN_WHEN_RUNNING: Final = ("state.db", "gateway_state.json", "pheby/pheby.db", "config.yaml", ".env")


@attrs.frozen
class Finding:
    """One thing that was looked at."""

    code: str
    severity: Severity
    text: str
    mend: str = ""
    """The command that mends it, as it is typed into a shell; "" where there is none."""
    advice: str = ""
    """What else is to be done, or to be known."""


@attrs.frozen(kw_only=True)
class Scene:
    """What the checks look at."""

    home: Path
    status: Status
    named: Path | None
    """The Python that the owner named; what he is told to type names it as well."""
    python: Path | None
    probe: dict[str, Any] | None
    """What Hermes's environment says of itself; None if it could not be asked."""

    def command(self, words: str) -> str:
        """A command of Pheby's for this home."""
        command = f"pheby {words} --home {shlex.quote(str(self.home))}"
        if self.named is None or words.split()[0] not in ("install", "update"):
            return command
        return f"{command} --hermes-python {shlex.quote(str(self.named))}"

    def hermes(self, words: str) -> str:
        """A command of Hermes's for this home."""
        return f"HERMES_HOME={shlex.quote(str(self.home))} hermes {words}"

    def pip(self, *wanted: str) -> str:
        """An installation into Hermes's environment."""
        return shlex.join([str(self.python), "-m", "pip", "install", *wanted])


def examine(home: Path, named: Path | None) -> list[Finding]:
    """Look at everything; changes nothing. Raises InstallError."""
    marker = read_marker(home)
    try:
        python = find_python(named, marker.hermes_python if marker is not None else None, home)
    except InstallError:
        python = None
    probe = package.probe(python) if python is not None else None
    scene = Scene(home=home, status=look(home), named=named, python=python, probe=probe)
    return [finding for check in CHECKS for finding in check(scene)]


# Hermes's environment


def hermes(scene: Scene) -> Iterator[Finding]:
    """Hermes is there, of a line and on a Python that Pheby is made for."""
    if scene.python is None:
        yield Finding(
            "hermes-missing",
            "error",
            "The Python that runs Hermes was not found.",
            advice=f"Say where it is: {scene.command('doctor --hermes-python PATH')}",
        )
        return
    if scene.probe is None:
        mend = scene.pip(package.requirement(None))
        yield Finding("package-missing", "error", f"Pheby does not run with Hermes's Python, {scene.python}.", mend)
        return
    version = scene.probe["hermes"]
    known = _numbers(version)[:2]
    if known < OLDEST_HERMES:
        yield Finding(
            "hermes-version", "error", f"Hermes {version} is too old; Pheby needs 0.19.", scene.hermes("update")
        )
    elif known > NEWEST_HERMES:
        yield Finding(
            "hermes-version",
            "warning",
            f"Hermes {version} is newer than what Pheby was tried with, 0.19 to 0.22.",
            scene.pip("--upgrade", _PACKAGE),
            "It may work all the same.",
        )
    else:
        yield Finding("hermes-version", "ok", f"Hermes {version}")
    python = scene.probe["python"]
    if OLDEST_PYTHON <= _numbers(python)[:2] <= NEWEST_PYTHON:
        yield Finding("python-version", "ok", f"Python {python}")
    else:
        yield Finding(
            "python-version",
            "error",
            f"Hermes runs on Python {python}; Pheby needs 3.11 to 3.14.",
            advice="Install Hermes anew, on one of these.",
        )


def aiohttp(scene: Scene) -> Iterator[Finding]:
    """No aiohttp with known faults."""
    if scene.probe is None:
        return
    version = scene.probe["aiohttp"]
    mend = scene.pip("aiohttp>=3.14.4,<4")
    if version is None:
        yield Finding("aiohttp", "error", "aiohttp is missing from Hermes's environment.", mend)
    elif _numbers(version) < GOOD_AIOHTTP:
        yield Finding("aiohttp", "warning", f"aiohttp {version} has faults that 3.14.4 has not.", mend)
    else:
        yield Finding("aiohttp", "ok", f"aiohttp {version}")


def seams(scene: Scene) -> Iterator[Finding]:
    """What Pheby uses of Hermes is still where it was."""
    if scene.probe is None:
        return
    # An older Pheby there does not say; that it is older is said elsewhere.
    missing = scene.probe.get("missing", [])
    mend = scene.pip("--upgrade", _PACKAGE)
    for seam in missing:
        if seam["needed"]:
            text = f"This Hermes has no {seam['symbol']}: Pheby cannot start."
            yield Finding("seam-missing", "error", text, mend)
        else:
            lost = "; ".join(f"{part['name']}: {part['without']}" for part in seam["parts"])
            yield Finding("seam-optional", "warning", f"This Hermes has no {seam['symbol']}. {lost}.", mend)
    if not scene.probe.get("adapter", True) and not any(seam["needed"] for seam in missing):
        yield Finding("seam-missing", "error", "Pheby's adapter cannot be made of this Hermes's classes.", mend)
    elif not missing:
        yield Finding("seams", "ok", "All that Pheby uses of Hermes is there.")


def versions(scene: Scene) -> Iterator[Finding]:
    """The folder, the package and this command are of one version."""
    found = {"this command": package.version()}
    if scene.probe is not None and scene.probe["pheby"]:
        found["Hermes's environment"] = scene.probe["pheby"]
    placed = _placed_version(scene.home)
    if placed is not None:
        found["the plugin folder"] = placed
    elif scene.probe is not None and not scene.probe["entry_point"]:
        yield Finding("plugin-missing", "error", "Hermes has no way to find Pheby.", scene.command("install"))
    told = ", ".join(f"{version} in {where}" for where, version in found.items())
    if len(set(found.values())) > 1:
        # What was put there by hand is not updated, but put in anew.
        mend = scene.command("update" if read_marker(scene.home) is not None else "install")
        yield Finding("stale-copy", "warning", f"Copies of different versions: {told}.", mend)
    else:
        yield Finding("versions", "ok", f"Pheby {told}")


def _placed_version(home: Path) -> str | None:
    try:
        said = edits.read(read_text(home / FOLDER / "plugin.yaml") or "")
    except InstallError:
        return "unknown"
    return str(said.get("version")) if said else None


# The home


def plugin(scene: Scene) -> Iterator[Finding]:
    """Hermes is told to load the plugin, and a gateway that runs has done so."""
    status = scene.status
    if not status.enabled:
        yield Finding("plugin-disabled", "error", "config.yaml does not enable Pheby.", scene.command("install"))
        return
    if not status.gateway_running:
        yield Finding(
            "plugin-enabled", "ok", "Pheby is enabled; the gateway is not running.", scene.hermes("gateway run")
        )
    elif status.platform_state != "connected":
        yield Finding(
            "plugin-not-connected",
            "error",
            f"The gateway runs, but says of Pheby: {status.platform_state or 'nothing'}.",
            scene.hermes("gateway restart"),
            "If it stays so, logs/agent.log of the home says why.",
        )
    else:
        yield Finding("plugin-enabled", "ok", "The gateway runs with Pheby connected.")


def settings(scene: Scene) -> Iterator[Finding]:
    """Every setting is within its bounds, and the secret is strong and Pheby's own."""
    # Whether Hermes is told to load it has a check of its own.
    elsewhere = ("plugins.enabled", "platforms.pheby is", "platforms.pheby.enabled")
    problems = [each for each in scene.status.problems if not each.startswith(elsewhere)]
    for problem in problems:
        mend = _mend(scene, problem)
        yield Finding(*_kind(problem), problem, mend, "" if mend else f"Change it in {scene.home}.")
    for told in scene.status.ignored:
        advice = f"If it is none of a newer Hermes, take it out of {scene.home / 'config.yaml'}."
        yield Finding("setting-unknown", "warning", f"{told}.", advice=advice)
    if not problems:
        yield Finding("settings", "ok", "All settings are valid; the secret is strong.")


def _kind(problem: str) -> tuple[str, Severity]:
    return ("secret" if problem.startswith("PHEBY_SECRET") else "setting"), "error"


def _mend(scene: Scene, problem: str) -> str:
    """The command for a wrong setting; "" for what only the owner can decide."""
    match problem.split()[0]:
        case "PHEBY_SECRET":
            return scene.command("install" if "is not set" in problem else "secret rotate")
        case "PHEBY_SECRET_PREVIOUS":
            return scene.command("secret rotate")
        case "platforms.pheby.extra.port":
            return _other_port(scene)
        case "PHEBY_ALLOWED_USERS" if "PHEBY_ALLOWED_USERS" not in env_file.values(_environment(scene)):
            return scene.command("install")
    return ""


def _environment(scene: Scene) -> str:
    return read_text(scene.home / ".env") or ""


def _other_port(scene: Scene) -> str:
    """The command for a port that is free here."""
    host, taken = scene.status.host, ports_of_others(scene.home)
    ports = (each for each in range(DEFAULT_PORT, 65_536) if each not in taken and gateway.can_listen(host, each))
    free = next(ports, DEFAULT_PORT)
    return scene.command(f"install --port {free}")


def streaming(scene: Scene) -> Iterator[Finding]:
    """Whether answers come while they are written. Either way is the owner's choice."""
    if streams(scene.home):
        yield Finding("streaming", "ok", "Answers are shown while they are written.")
    elif scene.probe is not None and _numbers(scene.probe["hermes"])[:2] >= NEWEST_HERMES:
        yield Finding("streaming", "ok", "Answers arrive whole.", scene.command("install --streaming"))


def port(scene: Scene) -> Iterator[Finding]:
    """The port is free for the gateway, or it is its Pheby that has it."""
    status = scene.status
    where = f"{status.host}:{status.port}"
    if status.port == 0:
        yield Finding("port", "warning", "Port 0 is another port at each start.", _other_port(scene))
    elif status.listening:
        yield Finding("port", "ok", f"Pheby answers on {where}.")
        yield from _secret_in_use(scene)
    elif status.answers == "pheby":
        yield Finding("port", "error", f"On {where} another home's Pheby answers.", _other_port(scene))
    elif status.answers == "other" or not gateway.can_listen(status.host, status.port):
        yield Finding("port", "error", f"{where} is taken by another program.", _other_port(scene))
    elif status.gateway_running:
        mend = scene.hermes("gateway restart")
        yield Finding("port", "error", f"The gateway runs, but nobody answers on {where}.", mend)
    else:
        yield Finding("port", "ok", f"{where} is free.")


def _secret_in_use(scene: Scene) -> Iterator[Finding]:
    """The gateway that runs knows the secret that the file has: it reads it at its start alone."""
    status, secret = scene.status, env_file.values(_environment(scene)).get("PHEBY_SECRET")
    prefix = str(status.settings.get(f"{SECTION}.path_prefix") or "")
    if secret and not gateway.knows(status.host, status.port, prefix, secret):
        yield Finding(
            "secret-in-use",
            "error",
            "The running gateway does not know the secret in .env, which was changed since it started.",
            scene.hermes("gateway restart"),
        )


def profiles(scene: Scene) -> Iterator[Finding]:
    """No other profile has this one's port or secret, as after `hermes profile create --clone`."""
    right, own = True, _secrets(scene.home)
    for other in other_profiles(scene.home):
        name, report = profile_of(other), config_check.check(other, {})
        said = {setting.name: setting.value for setting in report.settings}
        if said["platforms.pheby.enabled"] is not True:
            continue
        if scene.status.port == said.get(f"{SECTION}.port") != 0:
            right = False
            yield Finding(
                "profile-port",
                "error",
                f"The profile {name} is set to port {scene.status.port}, too.",
                _other_port(scene),
            )
        if own & _secrets(other):
            right = False
            yield Finding(
                "profile-secret",
                "error",
                f"The profile {name} has the same secret: whoever may talk to one may talk to the other.",
                scene.command("secret rotate"),
            )
    if right:
        yield Finding("profiles", "ok", "No other profile has this port or this secret.")


def _secrets(home: Path) -> set[str]:
    try:
        said = env_file.values(read_text(home / ".env") or "")
    except InstallError:
        return set()
    return {value for name, value in said.items() if name in SECRET_NAMES and name.startswith("PHEBY_") and value}


def proxy(scene: Scene) -> Iterator[Finding]:
    """Clients' addresses are believed to the proxy alone, and the public address leads here."""
    said = {name.rpartition(".")[2]: value for name, value in scene.status.settings.items()}
    public, proxies = str(said.get("public_url") or ""), said.get("trusted_proxies") or ()
    if not public:
        yield Finding("proxy", "ok", "No public_url is set: whether the proxy leads here is not looked at.")
        return
    if not proxies:
        yield Finding(
            "proxy-untrusted",
            "warning",
            "trusted_proxies is empty: behind a proxy all clients have one address, and lock each other out.",
            advice='Under platforms.pheby.extra in config.yaml: trusted_proxies: ["127.0.0.1", "::1"]',
        )
    elif any(not _is_single(str(each)) for each in proxies):
        yield Finding(
            "proxy-trusted",
            "ok",
            "trusted_proxies names whole networks: everybody there can claim any address.",
        )
    if not scene.status.listening:
        yield Finding("proxy", "ok", f"{public} is not asked while the gateway is not running.")
        return
    problem = _unreachable(public)
    if problem is None:
        yield Finding("proxy", "ok", f"{public} leads here.")
    else:
        advice = "docs/howto/proxy.md has a Caddyfile and an nginx.conf that lead here."
        yield Finding("proxy", "warning", f"{public} does not lead here: {problem}.", advice=advice)


def _is_single(network: str) -> bool:
    return network.endswith(("/32", "/128")) or "/" not in network


def _unreachable(public: str) -> str | None:
    """Why a public address does not lead to Pheby; None if it does."""
    try:
        with urllib.request.urlopen(f"{public}/healthz", timeout=_WEB_SECONDS) as answer:  # noqa: S310 - http or https
            said = answer.read(200)
    except urllib.error.HTTPError as failure:
        return f"it answers {failure.code}"
    except (OSError, http.client.HTTPException, ValueError) as failure:
        return type(getattr(failure, "reason", failure)).__name__
    return None if b'"status":"ok"' in said.replace(b" ", b"") else "somebody else answers"


# The machine


def clock(scene: Scene) -> Iterator[Finding]:
    """The clock is not behind what was written already."""
    newest = max((_changed(scene.home / name) for name in _WRITTEN_WHEN_RUNNING), default=0.0)
    if newest - time.time() > _CLOCK_SECONDS:
        yield Finding(
            "clock",
            "warning",
            "The clock is behind the times at which files of this home were written.",
            "timedatectl set-ntp true",
        )
    else:
        yield Finding("clock", "ok", "The clock is not behind the home's files.")


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def disk(scene: Scene) -> Iterator[Finding]:
    """There is room for what is to be kept."""
    folder = _storage(scene)
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(existing).free
    told = f"{free // 2**20} MiB are free where {folder} is."
    if free < SCARCE_BYTES:
        yield Finding(
            "disk",
            "error" if free < FEW_BYTES else "warning",
            told,
            advice="Make room there, or keep it elsewhere: platforms.pheby.extra.storage in config.yaml.",
        )
    else:
        yield Finding("disk", "ok", told)


def permissions(scene: Scene) -> Iterator[Finding]:
    """Secrets and conversations are the owner's alone."""
    right = True
    for file, mode in ((scene.home / ".env", "600"), (_storage(scene), "700")):
        if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
            right = False
            yield Finding(
                "permissions", "warning", f"Others can read {file}.", f"chmod {mode} {shlex.quote(str(file))}"
            )
        if file.exists() and not os.access(file, os.R_OK | os.W_OK):
            right = False
            advice = "Run this as the user that runs Hermes, or give the file to that user."
            yield Finding("permissions", "error", f"{file} cannot be read and written.", advice=advice)
    if right:
        yield Finding("permissions", "ok", ".env and the storage are private.")


def _storage(scene: Scene) -> Path:
    named = next((value for name, value in scene.status.settings.items() if name.endswith("extra.storage")), None)
    return Path(str(named)) if named else scene.home / "pheby"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version.split("+")[0])[:3])


CHECKS: Final[tuple[Callable[[Scene], Iterator[Finding]], ...]] = (
    hermes,
    aiohttp,
    seams,
    versions,
    plugin,
    settings,
    streaming,
    port,
    profiles,
    proxy,
    clock,
    disk,
    permissions,
)
