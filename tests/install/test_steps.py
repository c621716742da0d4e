"""Installing, updating and taking out: what is in a home afterwards, and what an owner's own things have to fear."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from pheby import config_check
from pheby.install import edits, package, steps
from pheby.install.errors import InstallError
from pheby.install.marker import FILE, read_marker
from tests.install.conftest import CONFIG, Pheby, tree

CONFIGS = sorted((Path(__file__).parent / "configs").glob("*.yaml"))
ENV = "OPENAI_API_KEY='sk-mine'  # key\r\nexport A=1"


def secret_of(home: Path) -> str:
    found = re.search(r"^PHEBY_SECRET=(.*)$", (home / ".env").read_text(), re.M)
    assert found is not None
    return found[1]


def config_of(home: Path) -> Any:
    return edits.read((home / "config.yaml").read_text())


def test_a_home_has_all_that_it_needs_and_no_problem(home: Path, pheby: Pheby) -> None:
    """R-S1, R-K1: as `pheby config check` has it."""
    assert pheby("install", "--yes", "--port", "9001", "--streaming") == 0
    assert config_check.check(home, {}).problems == ()
    said = config_of(home)
    assert said["plugins"] == {"enabled": ["pheby"]}
    assert said["platforms"] == {"pheby": {"enabled": True, "extra": {"port": 9001}}}
    assert said["display"] == {"platforms": {"pheby": steps.SHOWN}}
    assert said["streaming"] == {"enabled": True}
    assert set(said) == {"model", "plugins", "platforms", "display", "streaming"}
    assert re.fullmatch("[0-9a-f]{64}", secret_of(home))
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (home / "plugins/pheby").iterdir()) == [
        ".pheby-install.json",
        "__init__.py",
        "plugin.yaml",
    ]


def test_the_setting_for_all_platforms_needs_consent(home: Path, pheby: Pheby) -> None:
    """R-S1: streaming.enabled is not Pheby's own."""
    assert pheby("install", "--yes") == 0
    assert "streaming" not in config_of(home)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
@pytest.mark.parametrize("env", [None, "", ENV])
def test_taken_out_again_the_home_is_as_it_was(config: Path, env: str | None, home: Path, pheby: Pheby) -> None:
    """R-S1: every byte, every mode, every folder."""
    shutil.copyfile(config, home / "config.yaml")
    (home / "config.yaml").chmod(0o640)
    if env is not None:
        (home / ".env").write_bytes(env.encode())
        (home / ".env").chmod(0o644)
    before = tree(home)
    assert pheby("install", "--yes", "--streaming") == 0
    assert pheby("install", "--yes", "--port", "9002") == 0
    assert tree(home) != before
    assert (home / "config.yaml").stat().st_mode & 0o777 == 0o640
    assert pheby("secret", "rotate", "--yes", "--keep-previous") == 0
    assert pheby("update", "--yes") == 0
    assert pheby("uninstall", "--yes") == 0
    assert tree(home) == before


@pytest.mark.parametrize("words", [["install"], ["uninstall"], ["update"], ["secret", "rotate"]])
def test_a_dry_run_changes_nothing(
    words: list[str], home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1: and says what would be done, without a secret or a line of the owner's."""
    if words != ["install"]:
        assert pheby("install", "--yes") == 0
    secret = secret_of(home) if words != ["install"] else CONFIG
    before = tree(home)
    capsys.readouterr()
    assert pheby(*words, "--dry-run") == 0
    assert pheby(*words, "--dry-run", "--json") == 0
    assert tree(home) == before
    said = capsys.readouterr()
    assert secret not in said.out
    assert "sk-" not in said.out
    assert said.err == ""


def test_where_nobody_can_be_asked_nothing_is_done(
    home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1: standard input is no terminal here."""
    before = tree(home)
    assert pheby("install") == 1
    assert "--yes" in capsys.readouterr().err
    assert tree(home) == before


def test_a_second_installation_finds_nothing_to_do(
    home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1: it can be said again at any time."""
    assert pheby("install", "--yes") == 0
    before = tree(home)
    capsys.readouterr()
    assert pheby("install", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["steps"] == []
    assert tree(home) == before


def test_what_an_owner_has_chosen_already_stays(home: Path, pheby: Pheby) -> None:
    """R-S1: a secret, a port, how tools are shown."""
    (home / "config.yaml").write_text(
        "platforms:\n  pheby: {extra: {port: 9}, enabled: false}\n"
        "display:\n  platforms:\n    pheby: {tool_progress: all}\n"
    )
    mine = "PHEBY_SECRET=an-owners-own-secret-0123456789abcdef\n"
    (home / ".env").write_text(mine)
    before = tree(home)
    assert pheby("install", "--yes") == 0
    said = config_of(home)
    assert said["platforms"]["pheby"] == {"enabled": True, "extra": {"port": 9}}
    assert said["display"]["platforms"]["pheby"] == steps.SHOWN | {"tool_progress": "all"}
    assert (home / ".env").read_text() == mine + "PHEBY_ALLOWED_USERS=owner\n"
    assert pheby("uninstall", "--yes") == 0
    assert tree(home) == before


def test_after_use_only_what_is_pheby_s_goes(home: Path, pheby: Pheby) -> None:
    """R-S1: Hermes has filled the home meanwhile, and written config.yaml anew; the owner has edited both files."""
    assert pheby("install", "--yes") == 0
    said = config_of(home)
    said["plugins"]["enabled"].append("notes")
    said["display"]["skin"] = "mono"
    (home / "config.yaml").write_text("# by Hermes\n" + json.dumps(said, indent=2))
    (home / ".env").write_text("FIRST=1\n" + (home / ".env").read_text() + "LAST=2\n")
    (home / "state.db").touch()
    (home / "pheby").mkdir()
    (home / "pheby" / "pheby.db").touch()
    (home / "plugins" / "pheby" / "__pycache__").mkdir()
    (home / "plugins" / "pheby" / "__pycache__" / "__init__.pyc").touch()
    (home / "plugins" / "notes").mkdir()
    assert pheby("uninstall", "--yes") == 0
    assert config_of(home) == {
        "model": said["model"],
        "plugins": {"enabled": ["notes"]},
        "display": {"skin": "mono"},
    }
    assert (home / ".env").read_text() == "FIRST=1\nLAST=2\n"
    assert sorted(tree(home)) == [
        ".env",
        "config.yaml",
        "pheby",
        "pheby/pheby.db",
        "plugins",
        "plugins/notes",
        "state.db",
    ]


def test_the_conversations_go_only_if_that_is_said(home: Path, pheby: Pheby) -> None:
    """R-S1."""
    assert pheby("install", "--yes") == 0
    (home / "pheby" / "files").mkdir(parents=True)
    assert pheby("uninstall", "--yes", "--purge") == 0
    assert sorted(tree(home)) == ["config.yaml"]


def test_conversations_in_use_are_not_removed(
    home: Path, pheby: Pheby, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1, R-M4: a gateway would go on writing into files that have no name any more."""
    assert pheby("install", "--yes") == 0
    record = {"pid": os.getpid(), "start_time": None, "gateway_state": "running"}
    (home / "gateway_state.json").write_text(json.dumps(record))
    before = tree(home)
    assert pheby("uninstall", "--yes", "--purge") == 1
    assert "stop it first" in capsys.readouterr().err
    assert tree(home) == before


# What others have changed


def by_hand_in_the_folder(home: Path) -> str:
    (home / "plugins/pheby/plugin.yaml").write_text("name: pheby\nmine: true\n")
    return "plugins/pheby/plugin.yaml"


def by_hand_in_config(home: Path) -> str:
    text = (home / "config.yaml").read_text()
    (home / "config.yaml").write_text(text.replace("port: 8786", "port: 9999"))
    return "platforms.pheby in config.yaml"


def by_hand_in_env(home: Path) -> str:
    (home / ".env").write_text(f"PHEBY_SECRET={'my-own-' * 6}\nPHEBY_ALLOWED_USERS=owner\n")
    return "PHEBY_SECRET in .env"


@pytest.mark.parametrize("change", [by_hand_in_the_folder, by_hand_in_config, by_hand_in_env])
def test_what_was_changed_since_is_not_removed_unasked(
    change: Any, home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1: refused as a whole, naming what it is about and not what it says."""
    before = tree(home)
    assert pheby("install", "--yes") == 0
    named = change(home)
    changed = tree(home)
    assert pheby("uninstall", "--yes") == 1
    error = capsys.readouterr().err
    assert named in error
    assert "my-own" not in error
    assert tree(home) == changed
    assert pheby("uninstall", "--yes", "--confirm-modified") == 0
    assert tree(home) == before


def test_a_changed_file_is_not_overwritten_unasked(
    home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1: by install or update."""
    assert pheby("install", "--yes") == 0
    by_hand_in_the_folder(home)
    changed = tree(home)
    for words in (["install", "--yes"], ["update", "--yes"]):
        assert pheby(*words) == 1
        assert "--confirm-modified" in capsys.readouterr().err
        assert tree(home) == changed
    assert pheby("update", "--yes", "--confirm-modified") == 0
    assert (home / "plugins/pheby/plugin.yaml").read_text() == package.manifest()


def test_a_folder_of_somebody_else_is_not_taken(home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]) -> None:
    """R-S1: there is no record that it is Pheby's."""
    (home / "plugins/pheby").mkdir(parents=True)
    (home / "plugins/pheby/__init__.py").write_text("mine = True\n")
    before = tree(home)
    assert pheby("install", "--yes") == 1
    assert "plugins/pheby/__init__.py" in capsys.readouterr().err
    assert tree(home) == before


@pytest.mark.parametrize("words", [["update"], ["uninstall"]])
def test_without_a_record_nothing_is_done(
    words: list[str], home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1: put in by hand is taken out by hand."""
    assert pheby(*words, "--yes") == 1
    assert "was not put into" in capsys.readouterr().err


@pytest.mark.parametrize(
    "record", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1}', '{"format": 1, "version": []}']
)
def test_a_record_that_is_not_understood_stops_everything(
    record: str, home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1: it may be a newer Pheby's."""
    (home / FILE).parent.mkdir(parents=True)
    (home / FILE).write_text(record)
    before = tree(home)
    for words in (["install"], ["update"], ["uninstall"]):
        assert pheby(*words, "--yes") == 1
        assert "nothing was done" in capsys.readouterr().err
    assert tree(home) == before


# On the way


@pytest.mark.parametrize("last", range(5))
def test_an_installation_that_was_cut_off_can_be_taken_out(last: int, home: Path, pheby: Pheby) -> None:
    """R-S1, R-M4: after any of its steps; the record comes first."""
    before = tree(home)
    plan = steps.plan_install(home, steps.Wishes(streaming=True))
    assert len(plan.steps) == 5
    for step in plan.steps[: last + 1]:
        step.run()
    assert pheby("uninstall", "--yes") == 0
    assert tree(home) == before


@pytest.mark.parametrize("last", range(5))
def test_an_installation_that_was_cut_off_can_be_finished(last: int, home: Path, pheby: Pheby) -> None:
    """R-S1, R-M4: by saying it again; and taken out after that."""
    before = tree(home)
    plan = steps.plan_install(home, steps.Wishes())
    for step in plan.steps[: last + 1]:
        step.run()
    assert pheby("install", "--yes") == 0
    assert config_check.check(home, {}).problems == ()
    assert pheby("uninstall", "--yes") == 0
    assert tree(home) == before


def test_a_removal_that_was_cut_off_can_be_finished(home: Path, pheby: Pheby) -> None:
    """R-S1, R-M4: the record goes last."""
    before = tree(home)
    assert pheby("install", "--yes") == 0
    plan = steps.plan_uninstall(home, purge=False, confirm_modified=False, python=None)
    for step in plan.steps[:2]:
        step.run()
    assert pheby("uninstall", "--yes") == 0
    assert tree(home) == before


def test_a_file_that_was_changed_while_the_owner_thought_is_not_overwritten(home: Path) -> None:
    """R-S1: Hermes writes config.yaml when a model is chosen."""
    plan = steps.plan_install(home, steps.Wishes())
    (home / "config.yaml").write_text("model: {default: another}\n")
    with pytest.raises(InstallError, match="changed by another program"):
        plan.carry_out()
    assert (home / "config.yaml").read_text() == "model: {default: another}\n"


def test_a_link_stays_a_link(home: Path, tmp_path: Path, pheby: Pheby) -> None:
    """R-S1: people keep such files elsewhere."""
    kept = tmp_path / "dotfiles"
    kept.mkdir()
    (home / "config.yaml").rename(kept / "config.yaml")
    (home / "config.yaml").symlink_to(kept / "config.yaml")
    before = tree(home)
    assert pheby("install", "--yes") == 0
    assert (home / "config.yaml").is_symlink()
    assert "pheby" in (kept / "config.yaml").read_text()
    assert pheby("uninstall", "--yes") == 0
    assert tree(home) == before
    assert (kept / "config.yaml").read_text() == CONFIG


@pytest.mark.parametrize(
    ("config", "env", "named"),
    [
        ("plugins: {disabled: [pheby]}\n", "", "plugins.disabled"),
        ("platforms: [1]\n", "", "platforms"),
        ("a: [\n", "", "not YAML"),
        ("a: \xe9\n".encode("latin-1"), "", "UTF-8"),
        (CONFIG, "PHEBY_ALLOWED_USERS=somebody\n", "must hold owner"),
    ],
)
def test_what_stands_against_it_is_said_and_nothing_done(
    config: str | bytes, env: str, named: str, home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-S1, R-K1."""
    (home / "config.yaml").write_bytes(config.encode() if isinstance(config, str) else config)
    (home / ".env").write_text(env)
    before = tree(home)
    assert pheby("install", "--yes") == 1
    assert named in capsys.readouterr().err
    assert tree(home) == before


def test_no_folder_where_the_package_is_enough(home: Path, pheby: Pheby) -> None:
    """R-A1, R-S1: only the record is placed."""
    before = tree(home)
    assert pheby("install", "--yes", "--entry-point") == 0
    assert [path.name for path in (home / "plugins/pheby").iterdir()] == [".pheby-install.json"]
    assert pheby("update", "--yes") == 0
    assert [path.name for path in (home / "plugins/pheby").iterdir()] == [".pheby-install.json"]
    assert pheby("uninstall", "--yes") == 0
    assert tree(home) == before


def test_an_older_version_is_brought_up_to_date(home: Path, pheby: Pheby, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-S1: its files are replaced, since nobody but Pheby wrote them."""
    before = tree(home)
    with monkeypatch.context() as older:
        older.setattr(package, "version", lambda: "0.0.9")
        older.setattr(package, "manifest", lambda: "name: pheby\nversion: 0.0.9\n")
        assert pheby("install", "--yes") == 0
    assert pheby("update", "--yes") == 0
    marker = read_marker(home)
    assert marker is not None
    assert marker.version == package.version()
    assert (home / "plugins/pheby/plugin.yaml").read_text() == package.manifest()
    assert pheby("uninstall", "--yes") == 0
    assert tree(home) == before


# The secret


@pytest.mark.parametrize("keep", [True, False])
def test_a_secret_is_changed(keep: bool, home: Path, pheby: Pheby) -> None:
    """R-M1, R-A5: with an overlap if that is asked for; both are accepted settings."""
    assert pheby("install", "--yes") == 0
    old = secret_of(home)
    assert pheby("secret", "rotate", "--yes", *(["--keep-previous"] if keep else [])) == 0
    assert secret_of(home) != old
    assert (f"PHEBY_SECRET_PREVIOUS={old}" in (home / ".env").read_text()) is keep
    assert config_check.check(home, {}).problems == ()
    assert pheby("secret", "rotate", "--yes") == 0
    assert "PREVIOUS" not in (home / ".env").read_text()
    assert pheby("uninstall", "--yes") == 0
    assert not (home / ".env").exists()


def test_a_secret_that_is_not_there_is_not_changed(
    home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-M1."""
    assert pheby("secret", "rotate", "--yes") == 1
    assert "There is no PHEBY_SECRET" in capsys.readouterr().err


def test_the_record_and_the_plan_hold_no_secret(home: Path, pheby: Pheby, capsys: pytest.CaptureFixture[str]) -> None:
    """R-L1, R-A5: nor anything else that is said."""
    assert pheby("install", "--yes") == 0
    first = secret_of(home)
    assert pheby("secret", "rotate", "--yes", "--keep-previous", "--json") == 0
    said = capsys.readouterr()
    for secret in (first, secret_of(home)):
        assert secret not in (home / FILE).read_text() + said.out + said.err
