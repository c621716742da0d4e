"""The settings of one profile: what is accepted, and that a refusal names the setting and no secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pheby_hermes.config import DEFAULT_HOST, DEFAULT_PORT, PluginConfig, read_config

from pheby_protocol.messages.connection import AccessMode
from pheby_server.config import ConfigError

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
    assert config.storage == "/home/owner/.hermes/pheby"


@pytest.mark.parametrize(
    ("given_host", "host"), [("localhost", "127.0.0.1"), ("::1", "::1"), ("192.168.1.5", "192.168.1.5")]
)
def test_hosts(given_host: str, host: str) -> None:
    assert read({"host": given_host}).host == host


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


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["host", "port", "storage", "path_prefix", "other"]), anything))
def test_any_settings_are_accepted_or_refused_by_name(extra: dict[str, Any]) -> None:
    """A file that a person wrote may hold anything: nothing but ConfigError may come of it."""
    refused = ""
    try:
        config = read(extra)
    except ConfigError as failure:
        refused = str(failure)
    else:
        assert 0 <= config.port <= 65_535
        assert config.storage.strip()
    assert SECRET not in refused
    assert not refused or any(f"platforms.pheby.extra.{key}" in refused for key in extra)
