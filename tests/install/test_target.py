"""Which home is meant, and which Python runs its Hermes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pheby.install import target
from pheby.install.errors import InstallError


def test_the_home_is_named_by_its_path(home: Path) -> None:
    """R-S1, R-A8."""
    assert target.find_home(home, None, {}) == home


@pytest.mark.parametrize("given", [(None, None), (Path("/x"), "default")])
def test_the_home_is_never_guessed(given: tuple[Path | None, str | None], home: Path) -> None:
    """R-S1: also where there is one that could be meant."""
    with pytest.raises(InstallError, match="--home PATH or --profile NAME"):
        target.find_home(*given, {"HERMES_HOME": str(home)})


def test_a_profile_is_found_where_hermes_keeps_it(home: Path) -> None:
    """R-S1, R-A8: from the first home, and from another profile's."""
    work = home / "profiles" / "work"
    work.mkdir(parents=True)
    (work / "config.yaml").touch()
    for told in (home, work):
        assert target.find_home(None, "work", {"HERMES_HOME": str(told)}) == work
        assert target.find_home(None, "default", {"HERMES_HOME": str(told)}) == home


@pytest.mark.parametrize("profile", ["", "..", "a/b", "../x", "Work", "-x", "a" * 65])
def test_a_profiles_name_is_no_path(profile: str) -> None:
    """R-S1: as Hermes has it."""
    with pytest.raises(InstallError, match="profile's name"):
        target.profile_home(profile, {})


def test_a_folder_that_is_no_hermes_home_is_refused(tmp_path: Path) -> None:
    """R-S1: nothing is made there."""
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InstallError, match="not a Hermes home"):
            target.find_home(folder, None, {})
    assert list(tmp_path.iterdir()) == []


def environment(folder: Path, script: str) -> tuple[Path, Path]:
    """A virtual environment as far as it is looked at: its Python and its `hermes`."""
    (folder / "bin").mkdir(parents=True)
    python, hermes = folder / "bin" / "python3", folder / "bin" / "hermes"
    python.symlink_to(sys.executable)
    hermes.write_text(script.format(python=python))
    hermes.chmod(0o755)
    return python, hermes


SCRIPTS = [
    "#!{python}\nimport sys\n",
    "#! {python}\n",
    "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\nimport sys\n",
    "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\nimport sys\n",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_python_is_found_by_the_command(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-S1, R-A7: the link itself, since what it leads to is not of Hermes's environment."""
    python, hermes = environment(tmp_path / "venv", script)
    monkeypatch.setenv("PATH", str(hermes.parent))
    assert target.find_python(None, None, tmp_path) == python


@pytest.mark.parametrize("script", ["#!/bin/sh\nexec elsewhere\n", "#!/usr/bin/env python3\n", "\x7fELF", ""])
def test_a_command_that_does_not_tell_is_not_guessed_at(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-S1: the owner is asked instead."""
    _, hermes = environment(tmp_path / "venv", script)
    monkeypatch.setenv("PATH", str(hermes.parent))
    with pytest.raises(InstallError, match="--hermes-python PATH"):
        target.find_python(None, None, tmp_path)


def test_python_is_found_by_what_the_gateway_last_ran(tmp_path: Path, home: Path) -> None:
    """R-S1: by its script, or by its module."""
    python, hermes = environment(tmp_path / "venv", SCRIPTS[0])
    (home / "gateway_state.json").write_text(json.dumps({"argv": [str(hermes), "gateway", "run"]}))
    assert target.find_python(None, None, home) == python
    module = tmp_path / "other" / "lib" / "python3.11" / "site-packages" / "hermes_cli" / "main.py"
    module.parent.mkdir(parents=True)
    module.touch()
    (tmp_path / "other" / "bin").mkdir()
    (tmp_path / "other" / "bin" / "python").symlink_to(sys.executable)
    (home / "gateway_state.json").write_text(json.dumps({"argv": [str(module)]}))
    assert target.find_python(None, None, home) == tmp_path / "other" / "bin" / "python"


@pytest.mark.parametrize(
    "record", ["", "{", "[]", '{"argv": "x"}', '{"argv": []}', '{"argv": [1]}', '{"argv": ["hermes"]}']
)
def test_a_record_that_is_not_readable_is_none(record: str, home: Path) -> None:
    """R-S1: it belongs to Hermes, which may write it otherwise."""
    (home / "gateway_state.json").write_text(record)
    with pytest.raises(InstallError, match="was not found"):
        target.find_python(None, None, home)


def test_what_was_named_counts_more_than_what_was_used_before(tmp_path: Path, home: Path) -> None:
    """R-S1: and what is named and is no program is refused."""
    named, _ = environment(tmp_path / "a", SCRIPTS[0])
    recorded, _ = environment(tmp_path / "b", SCRIPTS[0])
    assert target.find_python(named, str(recorded), home) == named
    assert target.find_python(None, str(recorded), home) == recorded
    with pytest.raises(InstallError, match="is no program"):
        target.find_python(home / "config.yaml", None, home)
