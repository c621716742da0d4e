"""Settings of one profile: config.yaml's `platforms.pheby.extra`, secrets from the profile's environment."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from pheby_protocol.messages.connection import AccessMode
from pheby_server.auth import Authenticator
from pheby_server.config import ConfigError, check_secret

from .chats import HOME_CHAT_ID

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8786
DEFAULT_RETENTION_DAYS = 7


@attrs.frozen(kw_only=True)
class PluginConfig:
    """What one adapter needs to listen. The secret is only in the authenticator, which does not show it."""

    host: str
    port: int
    storage: str
    retention_days: int
    home_conversation: str
    """A conversation's id, or a chat's."""
    path_prefix: str
    authenticator: Authenticator


def read_config(extra: Mapping[str, Any], home: str, secret: Callable[[str], str | None]) -> PluginConfig:
    """Check every setting. Raises ConfigError that names the key and what is allowed, never a secret's value."""
    return PluginConfig(
        host=_host(extra.get("host", DEFAULT_HOST)),
        port=_port(extra.get("port", DEFAULT_PORT)),
        storage=storage(extra, home),
        retention_days=_days(extra.get("retention_days", DEFAULT_RETENTION_DAYS)),
        home_conversation=secret("PHEBY_HOME_CONVERSATION") or HOME_CHAT_ID,
        path_prefix=_prefix(extra.get("path_prefix", "")),
        authenticator=_authenticator(secret),
    )


def storage(extra: Mapping[str, Any], home: str) -> str:
    """The folder of everything that Pheby keeps. Raises ConfigError."""
    return _text("storage", extra.get("storage", f"{home}/pheby"))


def _days(value: object) -> int:
    if type(value) is not int or not 1 <= value <= 3_650:
        raise ConfigError("platforms.pheby.extra.retention_days must be an integer from 1 to 3650")
    return value


def _authenticator(secret: Callable[[str], str | None]) -> Authenticator:
    forbidden = secret("API_SERVER_KEY")
    secrets = [(AccessMode.FULL, check_secret("PHEBY_SECRET", secret("PHEBY_SECRET"), not_equal=forbidden))]
    for name, mode in (("PHEBY_SECRET_MANAGE", AccessMode.MANAGE), ("PHEBY_SECRET_READ_ONLY", AccessMode.READ_ONLY)):
        value = secret(name)
        if value:
            secrets.append((mode, check_secret(name, value, not_equal=forbidden)))
    if len({value for _, value in secrets}) != len(secrets):
        raise ConfigError("PHEBY_SECRET, PHEBY_SECRET_MANAGE and PHEBY_SECRET_READ_ONLY must differ")
    return Authenticator(tuple(secrets))


def _host(value: object) -> str:
    host = _text("host", value)
    if host == "localhost":
        return DEFAULT_HOST
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError("platforms.pheby.extra.host must be an IP address or localhost") from None
    return host


def _port(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        value = int(value)
    if type(value) is not int or not 0 <= value <= 65_535:
        raise ConfigError("platforms.pheby.extra.port must be an integer from 0 to 65535")
    return value


def _prefix(value: object) -> str:
    prefix = _text("path_prefix", value, empty=True).rstrip("/")
    if prefix and not (prefix.startswith("/") and prefix.replace("/", "").replace("-", "").isalnum()):
        raise ConfigError("platforms.pheby.extra.path_prefix must be empty or like /pheby")
    return prefix


def _text(key: str, value: object, *, empty: bool = False) -> str:
    if not isinstance(value, str) or "\0" in value or not (value.strip() or empty):
        raise ConfigError(f"platforms.pheby.extra.{key} must be a text")
    return value
