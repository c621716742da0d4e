"""The settings of one profile: what is accepted, and that a refusal names the setting and no secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pheby_hermes.chats import HOME_CHAT_ID, home_chat
from pheby_hermes.config import DEFAULT_HOST, DEFAULT_PORT, KEYS, PluginConfig, examine, read_config

from pheby_protocol.messages.connection import AccessMode
from pheby_server.config import OWNER_LIMITS, ConfigError, bounds

SECRET = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2
THIRD = "aAbBcCdDeEfFgGhH" * 2


def secrets(**values: str) -> Callable[[str], str | None]:
    return {"PHEBY_SECRET": SECRET, **values}.get


def read(extra: Mapping[str, Any] | None = None, **values: str) -> PluginConfig:
    return read_config(extra or {}, "/home/owner/.hermes", secrets(**values))


def refusal(extra: Mapping[str, Any] | None = None, **values: str) -> str:
    with pytest.raises(ConfigError) as refused:
        read(extra, **values)
    return str(refused.value)


def test_without_settings_it_listens_on_loopback() -> None:
    """K2."""
    config = read()
    assert (config.host, config.port, config.path_prefix) == (DEFAULT_HOST, DEFAULT_PORT, "")
    assert config.host == "127.0.0.1"
    assert config.server.storage == "/home/owner/.hermes/pheby"


@pytest.mark.parametrize(
    ("given_host", "host"), [("localhost", "127.0.0.1"), ("::1", "::1"), ("127.0.0.2", "127.0.0.2")]
)
def test_hosts(given_host: str, host: str) -> None:
    assert read({"host": given_host}).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "8.8.8.8", "fe80::1"])
def test_other_machines_may_connect_only_when_that_is_said(host: str) -> None:
    """R-A4: the setting that allows it is named."""
    assert "platforms.pheby.extra.public_bind: true" in refusal({"host": host})
    assert "public_bind" in refusal({"host": host, "public_bind": "true"})
    assert read({"host": host, "public_bind": True}).host == host


@pytest.mark.parametrize("host", ["", " ", "example.org", "127.0.0.1:80", "0", 7, None, "127.0.0.1\0"])
def test_a_host_is_an_address(host: object) -> None:
    assert "host" in refusal({"host": host})


@pytest.mark.parametrize(("given_port", "port"), [(0, 0), (65_535, 65_535), ("8786", 8786), ("00080", 80)])
def test_ports(given_port: object, port: int) -> None:
    assert read({"port": given_port}).port == port


@pytest.mark.parametrize("port", [-1, 65_536, True, 1.0, "", "x", "²", "-1", "9" * 5_000, None, [80]])
def test_a_port_is_a_number_in_range(port: object) -> None:
    assert "port" in refusal({"port": port})


@pytest.mark.parametrize(("given_prefix", "prefix"), [("", ""), ("/", ""), ("/pheby", "/pheby"), ("/a/b-2/", "/a/b-2")])
def test_prefixes(given_prefix: str, prefix: str) -> None:
    assert read({"path_prefix": given_prefix}).path_prefix == prefix


@pytest.mark.parametrize("prefix", ["pheby", "/a b", "/a?b", "/{x}", 5, None])
def test_a_prefix_is_a_path(prefix: object) -> None:
    assert "path_prefix" in refusal({"path_prefix": prefix})


def test_the_home_conversation_is_fixed_or_the_owners_choice() -> None:
    """R-I1."""
    assert read().server.home_conversation == f"conv_{HOME_CHAT_ID}"
    assert read(PHEBY_HOME_CONVERSATION="").server.home_conversation == f"conv_{HOME_CHAT_ID}"
    work = read_config({}, "/srv/hermes/profiles/work", {"PHEBY_SECRET": SECRET}.get)
    assert work.server.home_conversation == f"conv_{home_chat('/srv/hermes/profiles/work')}"
    assert read(PHEBY_HOME_CONVERSATION="conv_7").server.home_conversation == "conv_7"


@pytest.mark.parametrize("storage", ["", "  ", 5, None, "/a\0b"])
def test_storage_names_a_folder(storage: object) -> None:
    assert "storage" in refusal({"storage": storage})


@pytest.mark.parametrize("value", ["", "abc", "0123456789abcdef0123456789abcde", "a" * 64, "é" * 40, "a b" * 20])
def test_a_weak_secret_is_refused(value: str) -> None:
    """K2."""
    text = refusal(PHEBY_SECRET=value)
    assert "PHEBY_SECRET" in text
    assert not value or value not in text


def test_no_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="PHEBY_SECRET is not set"):
        read_config({}, "/home", {}.get)


@pytest.mark.parametrize("name", ["PHEBY_SECRET", "PHEBY_SECRET_MANAGE", "PHEBY_SECRET_READ_ONLY"])
def test_the_secret_is_not_that_of_the_api_server(name: str) -> None:
    text = refusal(**{name: OTHER, "API_SERVER_KEY": OTHER})
    assert name in text
    assert OTHER not in text


def test_each_secret_gives_its_access() -> None:
    config = read(PHEBY_SECRET_MANAGE=OTHER, PHEBY_SECRET_READ_ONLY=THIRD)
    access = {value: config.authenticator.access([f"Bearer {value}"]) for value in (SECRET, OTHER, THIRD, "x" * 32)}
    assert access == {
        SECRET: AccessMode.FULL,
        OTHER: AccessMode.MANAGE,
        THIRD: AccessMode.READ_ONLY,
        "x" * 32: None,
    }


@pytest.mark.parametrize("name", ["PHEBY_SECRET_MANAGE", "PHEBY_SECRET_READ_ONLY"])
def test_secrets_differ(name: str) -> None:
    text = refusal(**{name: SECRET})
    assert name in text
    assert SECRET not in text


def test_a_weak_second_secret_is_refused() -> None:
    assert "PHEBY_SECRET_MANAGE" in refusal(PHEBY_SECRET_MANAGE="short")


def test_settings_do_not_show_a_secret() -> None:
    """J12."""
    assert SECRET not in repr(read())


def test_the_secret_before_the_last_change_still_opens() -> None:
    """R-M1: while the clients are changed one after the other."""
    config = read(PHEBY_SECRET_PREVIOUS=OTHER)
    assert config.authenticator.access([f"Bearer {OTHER}"]) is AccessMode.FULL
    assert "PHEBY_SECRET_PREVIOUS" in refusal(PHEBY_SECRET_PREVIOUS=SECRET)
    assert "PHEBY_SECRET_PREVIOUS" in refusal(PHEBY_SECRET_PREVIOUS=OTHER, API_SERVER_KEY=OTHER)


@pytest.mark.parametrize("value", ["x" * 201, "a\nb", "a\x1bb"])
def test_a_home_conversation_is_an_id(value: str) -> None:
    text = refusal(PHEBY_HOME_CONVERSATION=value)
    assert "PHEBY_HOME_CONVERSATION" in text
    assert value not in text


# What is known


@pytest.mark.parametrize(
    ("given_key", "hint"),
    [("prot", "port"), ("Host", "host"), ("retention_day", "retention_days"), ("log-content", "log_content")],
)
def test_a_key_that_was_mistyped_gets_the_nearest(given_key: str, hint: str) -> None:
    """R-K1."""
    text = refusal({given_key: 1})
    assert f"platforms.pheby.extra.{given_key} is unknown: did you mean {hint}?" in text


def test_an_unknown_key_is_named_with_all_that_are_allowed() -> None:
    """R-K1, R-A7: a newer Hermes may have put it there, so Pheby starts all the same."""
    (text,) = read({"zzz": 1}).ignored
    assert "platforms.pheby.extra.zzz is unknown" in text
    assert "did you mean" not in text
    assert all(key in text for key in KEYS)
    assert read({"port": 1}).ignored == ()


def test_an_unknown_limit_is_nobody_elses() -> None:
    """R-K1: Hermes copies nothing into that mapping."""
    assert "platforms.pheby.extra.limits.zzz is unknown" in refusal({"limits": {"zzz": 1}})


@pytest.mark.parametrize("key", ["secret", "PHEBY_SECRET", "api_token"])
def test_a_secret_in_the_file_is_sent_to_where_it_belongs(key: str) -> None:
    text = refusal({key: OTHER})
    assert "environment" in text
    assert OTHER not in text


@pytest.mark.parametrize("key", [SECRET, 7, None, "a b", "x\ny", "x" * 40, ("a",), ""])
def test_a_key_that_may_be_anything_is_not_repeated(key: object) -> None:
    """R-L1: nor is a secret that slipped to where a name belongs."""
    text = refusal({key: 1})  # type: ignore[dict-item]
    assert "platforms.pheby.extra has a key" in text
    assert SECRET not in text
    assert "\n" not in text


def test_what_hermes_puts_there_itself_is_not_unknown() -> None:
    """R-A7: it copies keys of its own into the section."""
    assert read({"_enabled_explicit": True, "require_mention": False, "allow_from": ["owner"]})
    # Put there by every gateway of both lines when it makes an adapter.
    assert read({"group_sessions_per_user": True, "thread_sessions_per_user": False})


def test_everything_that_is_wrong_is_told_at_once() -> None:
    text = refusal({"host": "x", "port": -1, "prot": 1}, PHEBY_SECRET="short", PHEBY_SECRET_MANAGE="short")
    for named in ("host", "port", "prot", "PHEBY_SECRET ", "PHEBY_SECRET_MANAGE"):
        assert named in text


def test_every_key_has_a_default_and_is_told() -> None:
    """R-K1."""
    found = examine({}, "/home/owner/.hermes", secrets())
    named = {setting.name.removeprefix("platforms.pheby.extra."): setting.source for setting in found.settings}
    assert {key: named[key] for key in KEYS if key != "limits"} == dict.fromkeys(set(KEYS) - {"limits"}, "default")
    assert {f"limits.{name}" for name in OWNER_LIMITS} <= named.keys()


def test_two_profiles_share_nothing() -> None:
    """R-A8."""
    one, other = read({"limits": {"heartbeat_ms": 5_000}, "verbose": True}), read()
    assert (one.server.heartbeat_ms, other.server.heartbeat_ms) == (5_000, 30_000)
    assert (one.server.verbose, other.server.verbose) == (True, False)


# Values


@pytest.mark.parametrize("key", ["verbose", "log_content", "metrics", "public_bind"])
@pytest.mark.parametrize("value", [1, 0, "true", "yes", None, []])
def test_a_switch_is_true_or_false(key: str, value: object) -> None:
    assert f"platforms.pheby.extra.{key} must be true or false" in refusal({key: value})


def test_switches_reach_the_server() -> None:
    server = read({"verbose": True, "log_content": True, "metrics": True}).server
    assert (server.verbose, server.log_content, server.metrics) == (True, True, True)
    assert (read().server.verbose, read().server.log_content, read().server.metrics) == (False, False, False)


@pytest.mark.parametrize("name", OWNER_LIMITS)
def test_every_limit_has_its_bounds(name: str) -> None:
    """R-K1, R-M2."""
    low, high = bounds(name)
    room = {"max_frame_bytes": bounds("max_frame_bytes")[1]}
    for right in (low, high) if name != "max_frame_bytes" else (high,):
        assert getattr(read({"limits": room | {name: right}}).server, name) == right
    for wrong in (low - 1, high + 1, True, str(low), float(high), None):
        text = refusal({"limits": {name: wrong}})
        assert f"platforms.pheby.extra.limits.{name} must be an integer from {low} to {high}" in text


def test_limits_that_do_not_fit_together_are_named() -> None:
    assert "platforms.pheby.extra.limits.max_frame_bytes" in refusal({"limits": {"max_text_chars": 1_000_000}})


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_limits_are_a_mapping(value: object) -> None:
    assert "platforms.pheby.extra.limits must be a mapping of: max_text_chars" in refusal({"limits": value})


def test_an_unknown_limit_is_named() -> None:
    assert "platforms.pheby.extra.limits.heartbeat is unknown: did you mean heartbeat_ms?" in refusal(
        {"limits": {"heartbeat": 1}}
    )


@pytest.mark.parametrize("value", [0, 3_651, True, 1.5, "7", None])
def test_days_are_bounded(value: object) -> None:
    assert "platforms.pheby.extra.retention_days must be an integer from 1 to 3650" in refusal(
        {"retention_days": value}
    )


def test_days_reach_the_server() -> None:
    """R-G4."""
    assert read({"retention_days": 30}).server.retention_ms == 30 * 24 * 3_600_000


@pytest.mark.parametrize(
    "url", ["https://pheby.example.org", "http://10.0.0.5:8786", "https://x.example/pheby", "https://[::1]:8786"]
)
def test_addresses_for_clients(url: str) -> None:
    assert read({"public_url": url}).public_url == url
    assert read({"public_url": url + "/"}).public_url == url


@pytest.mark.parametrize(
    "url",
    [
        "pheby.example.org",
        "ftp://x",
        "https://",
        "https://:80",
        "https://owner:password@x",
        "https://x?secret=1",
        "https://x#y",
        "https://x y",
        "https://x:99999",
        "https://[::1",
        "https://x\n",
        "https://" + "x" * 600,
        5,
        None,
    ],
)
def test_an_address_holds_nothing_else(url: object) -> None:
    text = refusal({"public_url": url})
    assert "platforms.pheby.extra.public_url must be" in text
    assert "password" not in text


def test_proxies() -> None:
    """R-M1: who may say for whom it asks."""
    assert [str(network) for network in read().trusted_proxies] == ["127.0.0.1/32", "::1/128"]
    assert read({"trusted_proxies": []}).trusted_proxies == ()
    given = ["10.0.0.0/8", "192.168.1.7", "fd00::/8"]
    assert [str(network) for network in read({"trusted_proxies": given}).trusted_proxies] == [
        "10.0.0.0/8",
        "192.168.1.7/32",
        "fd00::/8",
    ]


@pytest.mark.parametrize(
    "value",
    ["10.0.0.1", ["x"], [7], [None], {"a": 1}, None, ["10.0.0.1/8"], ["0.0.0.0/0"], ["::/0"], ["10.0.0.1"] * 33],
)
def test_proxies_are_addresses_or_networks(value: object) -> None:
    assert "platforms.pheby.extra.trusted_proxies must be a list" in refusal({"trusted_proxies": value})


def test_web_pages_that_may_connect() -> None:
    """R-M1."""
    assert read().allowed_origins == ()
    given = ["https://app.example.org", "http://localhost:3000", "http://[::1]:80"]
    assert read({"allowed_origins": given}).allowed_origins == tuple(given)


@pytest.mark.parametrize(
    "value",
    [
        "https://x",
        ["*"],
        ["https://App.example"],
        ["https://x/"],
        ["x"],
        [7],
        {"https://x": 1},
        None,
        ["http://x"] * 33,
    ],
)
def test_origins_are_as_browsers_write_them(value: object) -> None:
    assert "platforms.pheby.extra.allowed_origins must be a list" in refusal({"allowed_origins": value})


def test_a_relative_folder_is_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never where Hermes happens to be started."""
    monkeypatch.setenv("HOME", "/home/owner")
    assert read({"storage": "elsewhere"}).server.storage == "/home/owner/.hermes/elsewhere"
    assert read({"storage": "/var/pheby"}).server.storage == "/var/pheby"
    assert read({"storage": "~/pheby"}).server.storage == "/home/owner/pheby"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*KEYS, "other"]), anything))
def test_any_settings_are_accepted_or_refused_by_name(extra: dict[str, Any]) -> None:
    """A file that a person wrote may hold anything: nothing but ConfigError may come of it."""
    refused = ""
    try:
        config = read(extra)
    except ConfigError as failure:
        refused = str(failure)
    else:
        assert 0 <= config.port <= 65_535
        assert config.server.storage.startswith("/")
    assert SECRET not in refused
    assert not refused or any(f"platforms.pheby.extra.{key}" in refused for key in extra)
