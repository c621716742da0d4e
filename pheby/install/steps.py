"""What is done to a home: planned as a whole, shown, and only then carried out."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from pheby_hermes.config import SECTION

from pheby import config_check

from . import edits, env_file, package
from .edits import Change
from .env_file import Written
from .errors import CannotEditError, InstallError, ModifiedError
from .files import digest, make_folder, read_bytes, read_text, write
from .marker import FILE, FOLDER, ConfigEdit, Marker, read_marker, write_marker
from .target import other_profiles

DEFAULT_PORT: Final = 8786
SHOWN: Final[dict[str, Any]] = {
    "tool_progress": "off",
    "streaming": True,
    "interim_assistant_messages": True,
    "long_running_notifications": False,
    "busy_ack_detail": False,
    "busy_steer_ack_enabled": False,
}
"""How Hermes's own texts about its work are kept out of the conversation: Pheby tells of that itself."""

_MANIFEST: Final = str(FOLDER / "plugin.yaml")
_SHIM: Final = str(FOLDER / "__init__.py")
_STREAMS: Final = ("streaming", "enabled")
_USERS: Final = ("PHEBY_ALLOWED_USERS", "GATEWAY_ALLOWED_USERS")
_OWNER: Final = "owner"
_RESTART: Final = "It counts once the gateway has been started again: hermes gateway restart"


@attrs.frozen
class Step:
    """One thing that is going to be done."""

    what: str
    run: Callable[[], None] = attrs.field(repr=False)
    detail: str = ""


@attrs.frozen
class Plan:
    """What one command is going to do to a home, in this order."""

    action: str
    home: Path
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    after: str = ""
    """What is left to do for the owner once it is done."""

    def carry_out(self) -> None:
        """Do it. Raises InstallError; what was done until then is in the marker."""
        for step in self.steps:
            step.run()


@attrs.frozen(kw_only=True)
class Wishes:
    """What `pheby install` or `pheby update` was asked for."""

    port: int | None = None
    free_port: int = DEFAULT_PORT
    """The port where none is named."""
    streaming: bool = False
    entry_point: bool = False
    python: Path | None = None
    """What runs Hermes, if that is known."""
    pip: bool = False
    """Whether the package has to be installed there."""
    wheel: Path | None = None
    confirm_modified: bool = False


# Install


def streams(home: Path) -> bool:
    """Whether streaming is switched on for all platforms already. Raises InstallError."""
    return edits.lookup(edits.read(read_text(home / "config.yaml") or ""), _STREAMS) is True


def plan_install(home: Path, wishes: Wishes) -> Plan:
    """What is missing in a home. Raises InstallError where it cannot be put in."""
    config_text = read_text(home / "config.yaml") or ""
    env_text = read_text(home / ".env")
    old = _carried_out(read_marker(home), config_text, env_text or "")
    new_text, changes = _settings(config_text, attrs.evolve(wishes, free_port=_free_port(home)))
    entries = _environment(env_text or "")
    files = {} if wishes.entry_point else {_MANIFEST: package.manifest(), _SHIM: package.SHIM}
    _refuse_modified(home, old, files, wishes.confirm_modified)
    to_place = {name: text for name, text in files.items() if read_text(home / name) != text}
    marker = _grown(home, old, files, wishes)
    steps = _package_steps(wishes)
    if changes:
        marker = attrs.evolve(
            marker, config=(*marker.config, ConfigEdit(digest(config_text), digest(new_text), tuple(changes)))
        )
    if entries:
        new_env, written = env_file.append(env_text, entries)
        marker = attrs.evolve(marker, environment=(*marker.environment, written))
    if to_place or changes or entries or marker != old:
        steps.append(Step(f"note down what is done, in {FILE}", lambda: _record(home, marker)))
    steps += [
        Step(f"place {name}", lambda name=name, text=text: write(home / name, text, mode=0o644))  # type: ignore[misc]
        for name, text in to_place.items()
    ]
    if entries:
        what = "add " + " and ".join(f"{name}={_told(name, value)}" for name, value in entries.items()) + " to .env"
        steps.append(Step(what, lambda: _replace(home / ".env", env_text, new_env, mode=0o600)))
    if changes:
        # Last: with it Hermes loads what by now is there.
        steps.append(_config_step(home, config_text, new_text, changes, "+"))
    return Plan("install", home, tuple(steps), _install_notes(new_text, wishes), _RESTART)


def _free_port(home: Path) -> int:
    """The first port from the default one on that no other profile of this Hermes is set to."""
    taken = ports_of_others(home)
    return next(port for port in itertools.count(DEFAULT_PORT) if port not in taken)


def ports_of_others(home: Path) -> set[object]:
    """The ports that the other profiles of this Hermes are set to."""
    others = [config_check.check(other, {}).settings for other in other_profiles(home)]
    said = [{setting.name: setting.value for setting in settings} for settings in others]
    return {settings.get(f"{SECTION}.port") for settings in said if settings["platforms.pheby.enabled"] is True}


def _carried_out(marker: Marker | None, config_text: str, env_text: str) -> Marker | None:
    """The record without what was noted down but not done, as when an installation was cut off."""
    if marker is None:
        return None
    names = env_file.values(env_text)
    return attrs.evolve(
        marker,
        config=tuple(edit for edit in marker.config if edit.before != digest(config_text)),
        environment=tuple(
            written for written in marker.environment if any(line.name in names for line in written.lines)
        ),
    )


def _settings(text: str, wishes: Wishes) -> tuple[str, list[Change]]:
    """config.yaml with Pheby's settings; what an owner has chosen there already is kept."""
    said = edits.read(text)
    if "pheby" in (edits.lookup(said, ("plugins", "disabled")) or ()):
        raise CannotEditError("plugins.disabled in config.yaml names pheby. Take it out there, then try again.")
    changes: list[Change] = []

    def done(change: Change | None) -> None:
        nonlocal text
        if change is not None:
            changes.append(change)
            text = change.splice.done(text)

    platform = ("platforms", "pheby")
    done(edits.add(text, platform, {"enabled": True, "extra": {"port": wishes.port or wishes.free_port}}))
    done(edits.put(text, (*platform, "enabled"), True))
    if wishes.port is not None:
        done(edits.put(text, (*platform, "extra", "port"), wishes.port))
    shown = ("display", "platforms", "pheby")
    done(edits.add(text, shown, SHOWN))
    for name, value in SHOWN.items():
        done(edits.add(text, (*shown, name), value))
    if wishes.streaming:
        done(edits.put(text, _STREAMS, True))
    done(edits.add_item(text, ("plugins", "enabled"), "pheby"))
    return text, changes


def _environment(text: str) -> dict[str, str]:
    """The lines that .env needs and does not have."""
    said = env_file.values(text)
    named = {user.strip() for name in _USERS for user in said.get(name, "").split(",")}
    if "PHEBY_ALLOWED_USERS" in said and not named & {_OWNER, "*"}:
        raise InstallError(f"PHEBY_ALLOWED_USERS in .env must hold {_OWNER}. Add it there, then try again.")
    wanted = {"PHEBY_SECRET": new_secret(), "PHEBY_ALLOWED_USERS": _OWNER}
    return {name: value for name, value in wanted.items() if not said.get(name)}


def new_secret() -> str:
    """64 hexadecimal digits."""
    return secrets.token_hex(32)


def _told(name: str, value: str) -> str:
    return value if name == "PHEBY_ALLOWED_USERS" else "(a new secret)"


def _grown(home: Path, old: Marker | None, files: dict[str, str], wishes: Wishes) -> Marker:
    """The record with these files, and with the folders that will be made."""
    folders = [FOLDER, *list(FOLDER.parents)[:-1]]
    made = tuple(str(folder) for folder in folders if not (home / folder).exists())
    before = old or Marker(version=package.version())
    return attrs.evolve(
        before,
        version=package.version(),
        hermes_python=str(wishes.python) if wishes.python else before.hermes_python,
        files=before.files | {name: digest(text) for name, text in files.items()},
        made=before.made or made,
    )


def _record(home: Path, marker: Marker) -> None:
    for folder in (*reversed(list(FOLDER.parents)[:-1]), FOLDER):
        if not (home / folder).exists():
            make_folder(home / folder)
    write_marker(home, marker)


def _refuse_modified(home: Path, old: Marker | None, files: dict[str, str], confirmed: bool) -> None:
    """A file that is there must be as Pheby wrote it, or as it is going to write it."""
    modified = []
    for name in {*files, *(old.files if old is not None else ())}:
        content = read_bytes(home / name)
        ours = {digest(files[name])} if name in files else set()
        if old is not None and name in old.files:
            ours.add(old.files[name])
        if content is not None and digest(content) not in ours:
            modified.append(name)
    if modified and not confirmed:
        raise ModifiedError(sorted(modified))


def _package_steps(wishes: Wishes) -> list[Step]:
    python = wishes.python
    if python is None or not wishes.pip:
        return []
    wanted = package.requirement(wishes.wheel)
    return [Step(f"install {wanted} into Hermes's environment ({python})", lambda: package.install(python, wanted))]


def _config_step(home: Path, before: str, after: str, changes: Sequence[Change], sign: str) -> Step:
    # Not the lines themselves: beside Pheby's settings they may hold a key of the owner's.
    detail = "\n".join(f"{sign} {_said(change)}" for change in changes)
    return Step("change config.yaml", lambda: _replace(home / "config.yaml", before, after, mode=0o600), detail)


def _said(change: Change) -> str:
    was = f" (before: {change.splice.old})" if change.kind == "set" else ""
    return f"{'.'.join(change.path)}: {edits.flow(change.value)}{was}"


def _replace(file: Path, before: str | None, after: str | None, *, mode: int) -> None:
    """Write a file that nobody has changed since it was read. Raises InstallError."""
    # While the owner was asked, Hermes may have written it.
    if read_text(file) != before:
        raise InstallError(f"{file} was changed by another program meanwhile. Run the command again.")
    if after is not None:
        write(file, after, mode=mode)
    elif before is not None:
        file.unlink()


def _install_notes(text: str, wishes: Wishes) -> tuple[str, ...]:
    notes = []
    if edits.lookup(edits.read(text), _STREAMS) is not True:
        notes.append(
            "Hermes 0.22 sends answers whole: streaming.enabled is a setting for all platforms, so it is only "
            "written with --streaming."
        )
    if wishes.entry_point:
        notes.append("Without the plugin folder, Hermes finds Pheby by the package in its own environment.")
    return tuple(notes)


# Update


def plan_update(home: Path, wishes: Wishes) -> Plan:
    """Bring what Pheby placed to this version. Raises InstallError where it was not put in by `pheby install`."""
    old = _installed(home)
    now = {_MANIFEST: package.manifest(), _SHIM: package.SHIM}
    files = {name: text for name, text in now.items() if name in old.files}
    _refuse_modified(home, old, files, wishes.confirm_modified)
    marker = _grown(home, old, files, wishes)
    steps = _package_steps(wishes)
    if marker != old:
        steps.append(Step(f"note down what is done, in {FILE}", lambda: _record(home, marker)))
    steps += [
        Step(f"place {name}", lambda name=name, text=text: write(home / name, text, mode=0o644))  # type: ignore[misc]
        for name, text in files.items()
        if read_text(home / name) != text
    ]
    return Plan("update", home, tuple(steps), (), _RESTART)


def _installed(home: Path) -> Marker:
    marker = read_marker(home)
    if marker is None:
        raise InstallError(f"Pheby was not put into {home} by `pheby install`: there is no {FILE}.")
    return marker


# Uninstall


def plan_uninstall(home: Path, *, purge: bool, confirm_modified: bool, python: Path | None) -> Plan:
    """Take out what Pheby put in, and nothing else. Raises InstallError."""
    marker = _installed(home)
    config_text = read_text(home / "config.yaml")
    env_text = read_text(home / ".env")
    modified = _modified(home, marker, config_text, env_text)
    if modified and not confirm_modified:
        raise ModifiedError(modified)
    steps: list[Step] = []
    if config_text is not None:
        rest = _without_settings(config_text, marker)
        if rest != config_text:
            changes = [change for edit in marker.config for change in edit.changes]
            steps.append(_config_step(home, config_text, rest, changes, "-"))
    if env_text is not None:
        kept = _without_lines(env_text, marker)
        if kept != env_text:
            names = ", ".join(line.name for written in marker.environment for line in written.lines)
            steps.append(Step(f"take {names} out of .env", lambda: _replace(home / ".env", env_text, kept, mode=0o600)))
    steps += [Step(f"remove {name}", (home / name).unlink) for name in sorted(marker.files) if (home / name).exists()]
    if purge:
        steps += _purge_steps(home)
    steps.append(Step(f"remove {FILE}", lambda: _tidy(home, marker)))
    if python is not None:
        steps.append(Step(f"remove the package from Hermes's environment ({python})", lambda: package.remove(python)))
    return Plan("uninstall", home, tuple(steps), _uninstall_notes(home, marker, purge, python), _RESTART)


def _modified(home: Path, marker: Marker, config_text: str | None, env_text: str | None) -> list[str]:
    """What was changed by somebody since, and would be lost."""
    found = []
    for name, ours in sorted(marker.files.items()):
        content = read_bytes(home / name)
        if content is not None and digest(content) != ours:
            found.append(name)
    said = edits.read(config_text or "")
    changes = [change for edit in marker.config for change in edit.changes if change.kind == "add"]
    for change in changes:
        expected = _as_of_now(change, changes, marker)
        now = edits.lookup(said, change.path)
        if now is not None and not edits.same(now, expected):
            found.append(f"{'.'.join(change.path)} in config.yaml")
    for written in marker.environment:
        found += [f"{name} in .env" for name in env_file.changed(env_text or "", written)]
    return found


def _as_of_now(change: Change, added: list[Change], marker: Marker) -> Any:
    """What Pheby itself has made of a value since it added it."""
    value = change.value
    for edit in marker.config:
        for later in edit.changes:
            inside = later.path[len(change.path) :]
            if inside and later.path[: len(change.path)] == change.path and isinstance(value, dict):
                value = _with(value, inside, later.value)
    return value


def _with(value: dict[str, Any], path: tuple[str, ...], inner: Any) -> dict[str, Any]:
    first, rest = path[0], path[1:]
    return value | {first: _with(value.get(first) or {}, rest, inner) if rest else inner}


def _without_settings(text: str, marker: Marker) -> str:
    """Undone to the byte as long as nobody else has changed the file, else by what it says."""
    for edit in reversed(marker.config):
        exact = digest(text) == edit.after
        for change in reversed(edit.changes):
            text = change.splice.undone(text) if exact else edits.take_back(text, change)
    return text


def _without_lines(text: str, marker: Marker) -> str | None:
    rest: str | None = text
    for written in reversed(marker.environment):
        if rest is not None:
            rest = env_file.take_back(rest, written)
    return rest


def _purge_steps(home: Path) -> list[Step]:
    kept = home / "pheby"
    return [Step(f"remove {kept} with all conversations", lambda: shutil.rmtree(kept))] if kept.is_dir() else []


def _tidy(home: Path, marker: Marker) -> None:
    (home / FILE).unlink(missing_ok=True)
    shutil.rmtree(home / FOLDER / "__pycache__", ignore_errors=True)
    for folder in marker.made:
        # Whatever else somebody has put there stays.
        with contextlib.suppress(OSError):
            (home / folder).rmdir()


def _uninstall_notes(home: Path, marker: Marker, purge: bool, python: Path | None) -> tuple[str, ...]:
    notes = []
    if (home / "pheby").is_dir() and not purge:
        notes.append(f"{home / 'pheby'} holds the conversations and is kept; --purge removes it.")
    if python is None and marker.hermes_python is not None:
        notes.append(
            "The package stays in Hermes's environment, since other profiles may use it. To remove it: "
            f"{marker.hermes_python} -m pip uninstall pheby"
        )
    return tuple(notes)


# The secret


def plan_rotation(home: Path, keep_previous: bool) -> Plan:
    """Put another secret in the place of the one in .env. Raises InstallError."""
    text = read_text(home / ".env") or ""
    old = env_file.values(text).get("PHEBY_SECRET")
    if not old:
        raise InstallError(f"There is no PHEBY_SECRET in {home / '.env'}.")
    secret = new_secret()
    new_text = env_file.replace(text, "PHEBY_SECRET", secret)
    new_text = env_file.replace(new_text, "PHEBY_SECRET_PREVIOUS", old if keep_previous else None)
    marker = read_marker(home)
    steps = []
    if marker is not None:
        renewed = _renewed(marker, {"PHEBY_SECRET": secret} | ({"PHEBY_SECRET_PREVIOUS": old} if keep_previous else {}))
        steps.append(Step(f"note down what is done, in {FILE}", lambda: write_marker(home, renewed)))
    kept = (
        "; the old one stays valid as PHEBY_SECRET_PREVIOUS" if keep_previous else "; the old one is not valid any more"
    )
    steps.append(
        Step(f"write a new PHEBY_SECRET into .env{kept}", lambda: _replace(home / ".env", text, new_text, mode=0o600))
    )
    return Plan("rotate", home, tuple(steps), (), _RESTART)


def _renewed(marker: Marker, values: dict[str, str]) -> Marker:
    """The record with what these lines say by now. A secret that was the owner's own stays the owner's."""
    known = {line.name for written in marker.environment for line in written.lines}
    if "PHEBY_SECRET" not in known:
        return marker
    lines = tuple(env_file.Line(name, digest(value)) for name, value in values.items())
    others = tuple(
        attrs.evolve(written, lines=tuple(line for line in written.lines if line.name not in values))
        for written in marker.environment
    )
    return attrs.evolve(marker, environment=(*others, Written(True, "", lines)))
