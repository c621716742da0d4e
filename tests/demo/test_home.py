"""The demo's Hermes home: made once, reused, and never somebody else's."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from pheby.demo.errors import BrokenHomeError, DemoError, ForeignHomeError
from pheby.demo.home import MARKER, STAND_IN, DemoHome, prepare_home


def prepare(path: Path, source: Path | None, **more: Any) -> DemoHome:
    wanted: dict[str, Any] = {"model_url": "http://127.0.0.1:1/v1", "api_key": "key", "port": 4000}
    return prepare_home(path, plugin_source=source, **{**wanted, **more})


def config_of(home: DemoHome) -> Any:
    return yaml.safe_load((home.path / "config.yaml").read_text())


def edit(home: DemoHome, change: dict[str, Any]) -> None:
    config = config_of(home)
    config.update(change)
    (home.path / "config.yaml").write_text(yaml.safe_dump(config))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_home_has_what_a_gateway_needs(tmp_path: Path, plugin_source: Path) -> None:
    home = prepare(tmp_path / "a" / "home", plugin_source)
    config = config_of(home)
    assert config["model"] == {
        "provider": "custom",
        "context_length": 200_000,
        "base_url": "http://127.0.0.1:1/v1",
        "default": "scripted-1",
        "api_key": "key",
    }
    assert config["providers"] == {"custom": {"name": "Demo", "base_url": "http://127.0.0.1:1/v1", "api_key": "key"}}
    assert config["plugins"] == {"enabled": [STAND_IN]}
    assert config["platforms"]["pheby"] == {"enabled": True, "extra": {"port": 4000}}
    assert config["streaming"]["enabled"] is True
    assert config["display"]["platforms"]["pheby"]["tool_progress"] == "off"
    assert config["approvals"]["mode"] == "manual"
    assert config["security"] == {"allow_lazy_installs": False, "tirith_enabled": False}
    assert "tool_progress: 'off'" in (home.path / "config.yaml").read_text()
    assert Path(config["terminal"]["cwd"]).is_dir()


def test_the_secret_is_bare_private_and_not_shown(tmp_path: Path, plugin_source: Path) -> None:
    home = prepare(tmp_path / "home", plugin_source)
    assert (home.path / ".env").read_text() == f"PHEBY_SECRET={home.secret}\nPHEBY_ALLOWED_USERS=owner\n"
    assert len(home.secret) == 64
    assert home.secret not in repr(home)
    assert mode(home.path / ".env") == mode(home.path / "config.yaml") == 0o600
    assert mode(home.path) == 0o700
    assert prepare(tmp_path / "other", plugin_source).secret != home.secret


@pytest.mark.parametrize("secret", ["", "a b", "a\nPHEBY_ALLOWED_USERS=all", "ü"])
def test_a_secret_that_cannot_stand_in_an_environment_file_is_refused(
    tmp_path: Path, plugin_source: Path, secret: str
) -> None:
    with pytest.raises(ValueError, match="one word"):
        prepare(tmp_path / "home", plugin_source, secret=secret)
    assert not (tmp_path / "home").exists()


def test_hermes_defaults_leave_the_display_alone(tmp_path: Path, plugin_source: Path) -> None:
    config = config_of(prepare(tmp_path / "home", plugin_source, hermes_defaults=True))
    assert not {"streaming", "display"} & set(config)


def test_extra_settings_are_merged_in_depth(tmp_path: Path, plugin_source: Path) -> None:
    extra = {"platforms": {"pheby": {"extra": {"limits": {"a": 1}}}}, "approvals": {"timeout": 5}, "new": [1]}
    config = config_of(prepare(tmp_path / "home", plugin_source, extra=extra))
    assert config["platforms"]["pheby"] == {"enabled": True, "extra": {"port": 4000, "limits": {"a": 1}}}
    assert config["approvals"] == {"mode": "manual", "timeout": 5}
    assert config["new"] == [1]


def test_a_home_of_the_demo_is_reused(tmp_path: Path, plugin_source: Path) -> None:
    first = prepare(tmp_path / "home", plugin_source)
    edit(first, {"approvals": {"mode": "off"}, "mine": "kept"})
    (first.path / "state.db").write_text("state")
    with (first.path / ".env").open("a") as env:
        env.write("# mine\nOTHER=1\n")
    again = prepare(first.path, plugin_source, model_url="http://127.0.0.1:2/v1", port=4001)
    assert (again.secret, again.port) == (first.secret, 4001)
    config = config_of(again)
    assert config["model"]["base_url"] == "http://127.0.0.1:2/v1"
    assert config["providers"]["custom"]["base_url"] == "http://127.0.0.1:2/v1"
    assert config["platforms"]["pheby"]["extra"]["port"] == 4001
    assert (config["mine"], config["approvals"]) == ("kept", {"mode": "off"})
    assert (again.path / "state.db").read_text() == "state"
    lines = (again.path / ".env").read_text().splitlines()
    assert {"# mine", "OTHER=1", f"PHEBY_SECRET={first.secret}", "PHEBY_ALLOWED_USERS=owner"} == set(lines)
    assert len(lines) == 4


def test_preparing_twice_changes_nothing(tmp_path: Path, plugin_source: Path) -> None:
    home = prepare(tmp_path / "home", plugin_source)
    before = {path: path.read_bytes() for path in home.path.rglob("*") if path.is_file()}
    assert prepare(home.path, plugin_source) == home
    assert {path: path.read_bytes() for path in home.path.rglob("*") if path.is_file()} == before


def test_another_model_is_taken_over_with_its_key_but_an_edited_one_is_kept(
    tmp_path: Path, plugin_source: Path
) -> None:
    home = prepare(tmp_path / "home", plugin_source)
    edit(home, {"model": {**config_of(home)["model"], "default": "edited"}})
    assert config_of(prepare(home.path, plugin_source))["model"]["default"] == "edited"
    other = config_of(prepare(home.path, plugin_source, model_name="other", api_key="k2"))["model"]
    assert (other["default"], other["api_key"]) == ("other", "k2")


def test_a_given_secret_wins(tmp_path: Path, plugin_source: Path) -> None:
    assert prepare(tmp_path / "home", plugin_source, secret="aa11").secret == "aa11"
    assert prepare(tmp_path / "home", plugin_source).secret == "aa11"
    assert prepare(tmp_path / "home", plugin_source, secret="bb22").secret == "bb22"
    assert "aa11" not in (tmp_path / "home" / ".env").read_text()


def test_a_home_that_was_only_begun_is_finished(tmp_path: Path, plugin_source: Path) -> None:
    home = prepare(tmp_path / "home", plugin_source)
    (home.path / MARKER).write_text(json.dumps({"made_by": "pheby demo", "format": 1, "model": None}))
    (home.path / "config.yaml").unlink()
    (home.path / ".env").unlink()
    assert config_of(prepare(home.path, plugin_source))["model"]["default"] == "scripted-1"


def test_what_the_demo_did_not_make_is_left_alone(tmp_path: Path, plugin_source: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.yaml").write_text("model: mine\n")
    with pytest.raises(ForeignHomeError, match="left alone") as caught:
        prepare(foreign, plugin_source)
    assert str(foreign) in str(caught.value)
    assert [path.name for path in foreign.iterdir()] == ["config.yaml"]
    a_file = tmp_path / "file"
    a_file.touch()
    with pytest.raises(ForeignHomeError):
        prepare(a_file, plugin_source)


@pytest.mark.parametrize("marker", ["", "[]", '{"format": 2}'])
def test_a_home_of_another_format_is_left_alone(tmp_path: Path, plugin_source: Path, marker: str) -> None:
    home = prepare(tmp_path / "home", plugin_source)
    (home.path / MARKER).write_text(marker)
    with pytest.raises(ForeignHomeError, match="another version"):
        prepare(home.path, plugin_source)


def test_an_empty_folder_may_become_a_home(tmp_path: Path, plugin_source: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    assert mode(prepare(tmp_path / "home", plugin_source).path) == 0o700


def test_a_configuration_that_was_broken_by_hand_is_named(tmp_path: Path, plugin_source: Path) -> None:
    home = prepare(tmp_path / "home", plugin_source)
    (home.path / "config.yaml").write_text("a: [")
    with pytest.raises(BrokenHomeError, match=r"config\.yaml"):
        prepare(home.path, plugin_source)
    assert (home.path / "config.yaml").read_text() == "a: ["


def test_the_plugin_is_a_shim_over_the_installed_package(tmp_path: Path) -> None:
    home = prepare(tmp_path / "home", None)
    folder = home.path / "plugins" / "pheby"
    assert sorted(path.name for path in folder.iterdir()) == ["__init__.py", "plugin.yaml"]
    assert yaml.safe_load((folder / "plugin.yaml").read_text())["name"] == "pheby"
    assert "from pheby_hermes import register" in (folder / "__init__.py").read_text()
    assert config_of(home)["plugins"] == {"enabled": ["pheby"]}


def test_an_entry_point_needs_no_folder(tmp_path: Path) -> None:
    home = prepare(tmp_path / "home", None)
    assert (home.path / "plugins" / "pheby").is_dir()
    prepare(home.path, None, plugin="entry_point")
    assert not list((home.path / "plugins").iterdir())
    assert config_of(home)["plugins"] == {"enabled": ["pheby"]}


def test_a_stand_in_is_copied_anew_under_a_name_of_its_own(tmp_path: Path, plugin_source: Path) -> None:
    home = prepare(tmp_path / "home", plugin_source)
    folder = home.path / "plugins" / STAND_IN
    assert yaml.safe_load((folder / "plugin.yaml").read_text())["name"] == STAND_IN
    (plugin_source / "__init__.py").write_text("changed = True\n")
    (folder / "stale.py").touch()
    prepare(home.path, plugin_source)
    assert (folder / "__init__.py").read_text() == "changed = True\n"
    assert sorted(path.name for path in folder.iterdir()) == ["__init__.py", "plugin.yaml"]


def test_pheby_and_its_stand_in_take_turns_beside_other_plugins(tmp_path: Path, plugin_source: Path) -> None:
    home = prepare(tmp_path / "home", None)
    edit(home, {"plugins": {"enabled": ["mine", "pheby"]}})
    assert config_of(prepare(home.path, plugin_source))["plugins"] == {"enabled": ["mine", STAND_IN]}
    assert [entry.name for entry in (home.path / "plugins").iterdir()] == [STAND_IN]
    assert config_of(prepare(home.path, None))["plugins"] == {"enabled": ["mine", "pheby"]}
    assert [entry.name for entry in (home.path / "plugins").iterdir()] == ["pheby"]


@pytest.mark.parametrize("edited", [{"plugins": None}, {"plugins": {"enabled": None}}, {"model": "x", "platforms": []}])
def test_settings_cut_short_by_hand_are_completed(tmp_path: Path, edited: dict[str, Any]) -> None:
    home = prepare(tmp_path / "home", None)
    edit(home, edited)
    config = config_of(prepare(home.path, None))
    assert config["plugins"]["enabled"] == ["pheby"]
    assert config["model"]["base_url"] == "http://127.0.0.1:1/v1"
    assert config["platforms"]["pheby"]["extra"]["port"] == 4000


def test_an_installation_without_the_manifest_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DemoError, match="manifest"):
        prepare(tmp_path / "home", None)
