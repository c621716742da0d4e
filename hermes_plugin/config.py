"""Settings of one profile: config.yaml's `platforms.pheby.extra`, secrets from the profile's environment."""

from __future__ import annotations

import ipaddress
import os.path
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import attrs

from pheby_protocol.messages.connection import AccessMode
from pheby_server.auth import Authenticator
from pheby_server.config import OWNER_LIMITS, ConfigError, ServerConfig, bounds, check_secret

from .chats import conversation_of, home_chat

T = TypeVar("T")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SECTION: Final = "platforms.pheby.extra"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8786
DEFAULT_RETENTION_DAYS: Final = 7
DEFAULT_ORIGINS: Final[tuple[str, ...]] = ()
DEFAULT_PROXIES: Final[tuple[Network, ...]] = (ipaddress.ip_network("127.0.0.1/32"), ipaddress.ip_network("::1/128"))
"""Caddy on the same machine."""
MAX_PROXIES: Final = 32
MAX_ORIGINS: Final = 32
MAX_PATH_CHARS: Final = 1_024

KEYS: Final = (
    "host",
    "port",
    "public_bind",
    "public_url",
    "path_prefix",
    "trusted_proxies",
    "allowed_origins",
    "storage",
    "retention_days",
    "verbose",
    "log_content",
    "metrics",
    "limits",
)
HERMES_KEYS: Final = frozenset(
    {
        "allow_admin_from",
        "allow_from",
        "allowed_chats",
        "allowed_topics",
        "channel_prompts",
        "channel_skill_bindings",
        "cron_continuable_surface",
        "dm_policy",
        "exclusive_bot_mentions",
        "free_response_channels",
        "gateway_restart_notification",
        "group_allow_admin_from",
        "group_allow_from",
        "group_allowed_chats",
        "group_policy",
        "group_sessions_per_user",
        "group_user_allowed_commands",
        "mention_patterns",
        "notice_delivery",
        "observe_unmentioned_group_messages",
        "reply_in_thread",
        "reply_prefix",
        "reply_to_mode",
        "require_mention",
        "send_read_receipts",
        "thread_sessions_per_user",
        "typing_indicator",
        "typing_status_text",
        "unauthorized_dm_behavior",
        "user_allowed_commands",
    }
)
"""What Hermes itself copies there from its settings; beside it, names that begin with an underscore."""
PLATFORM_KEYS: Final = HERMES_KEYS | {"enabled", "extra", "token", "api_key", "home_channel", "channel_overrides"}
"""What Hermes knows directly under a platform."""

# Shorter than any secret that is accepted, so that one that was put in the wrong place is not shown.
_SHOWABLE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,29}")
_ALMOST: Final = 0.75
"""How much a key is like one of Pheby's that was meant."""
_SECRETS: Final = (
    ("PHEBY_SECRET", AccessMode.FULL),
    ("PHEBY_SECRET_PREVIOUS", AccessMode.FULL),
    ("PHEBY_SECRET_MANAGE", AccessMode.MANAGE),
    ("PHEBY_SECRET_READ_ONLY", AccessMode.READ_ONLY),
)
SECRET_NAMES: Final = (*(name for name, _ in _SECRETS), "API_SERVER_KEY")
"""Whose values nothing may show."""


@attrs.frozen(kw_only=True)
class PluginConfig:
    """What one adapter needs to listen. The secrets are only in the authenticator, which does not show them."""

    host: str
    port: int
    path_prefix: str
    public_url: str
    """What clients are to connect to; "" when it is not known."""
    trusted_proxies: tuple[Network, ...]
    """Whose word counts for the address of a client."""
    allowed_origins: tuple[str, ...]
    """Web pages of these may connect."""
    ignored: tuple[str, ...]
    """Keys that nobody knows, each in a sentence."""
    server: ServerConfig
    authenticator: Authenticator


@attrs.frozen
class Setting:
    """One setting in force, and where it comes from. Of a secret it holds only whether it is set."""

    name: str
    value: object
    source: str


@attrs.frozen
class Examined:
    """Everything that is set, everything that is wrong, and the settings if nothing is."""

    settings: tuple[Setting, ...]
    problems: tuple[str, ...]
    ignored: tuple[str, ...]
    """Keys that nobody knows and that do no harm."""
    config: PluginConfig | None


def read_config(extra: Mapping[Any, Any], home: str, secret: Callable[[str], str | None]) -> PluginConfig:
    """Check every setting. Raises ConfigError that names each bad key and what is allowed, never a value."""
    examined = examine(extra, home, secret)
    if examined.config is None:
        raise ConfigError("; ".join(examined.problems))
    return examined.config


def examine(
    extra: Mapping[Any, Any],
    home: str,
    secret: Callable[[str], str | None],
    source_of: Callable[[str], str] = lambda _: "environment",
) -> Examined:
    """Look at every setting. `source_of` says where a value of the environment comes from."""
    notes = _Notes()
    section = _Section(notes, SECTION, extra, KEYS, HERMES_KEYS)
    host = section.read("host", _host, DEFAULT_HOST)
    public = section.read("public_bind", _flag, False)
    if not public and not ipaddress.ip_address(host).is_loopback:
        notes.problems.append(
            f"{SECTION}.host is not a loopback address: other machines could connect without TLS. "
            f"If that is wanted, set {SECTION}.public_bind: true"
        )
    port = section.read("port", _port, DEFAULT_PORT)
    prefix = section.read("path_prefix", _prefix, "")
    public_url = section.read("public_url", _url, "")
    proxies = section.read("trusted_proxies", _networks, DEFAULT_PROXIES)
    origins = section.read("allowed_origins", _origins, DEFAULT_ORIGINS)
    settings = {
        "storage": section.read("storage", lambda value: _folder(value, home), f"{home}/pheby"),
        "retention_ms": section.read("retention_days", _whole(1, 3_650), DEFAULT_RETENTION_DAYS) * 24 * 3_600_000,
        "verbose": section.read("verbose", _flag, False),
        "log_content": section.read("log_content", _flag, False),
        "metrics": section.read("metrics", _flag, False),
    }
    settings |= _limits(notes, extra.get("limits", {}))
    home_conversation = _home_conversation(notes, home_chat(home), secret, source_of)
    authenticator = _authenticator(notes, secret, source_of)
    server = _server(notes, settings | {"home_conversation": conversation_of(home_conversation)})
    config = None
    if server is not None and authenticator is not None and not notes.problems:
        config = PluginConfig(
            host=host,
            port=port,
            path_prefix=prefix,
            public_url=public_url,
            trusted_proxies=proxies,
            allowed_origins=origins,
            ignored=tuple(notes.ignored),
            server=server,
            authenticator=authenticator,
        )
    return Examined(tuple(notes.settings), tuple(notes.problems), tuple(notes.ignored), config)


def storage(extra: Mapping[Any, Any], home: str) -> str:
    """The folder of everything that Pheby keeps. Raises ConfigError."""
    notes = _Notes()
    found = _Section(notes, SECTION, extra, extra.keys()).read(
        "storage", lambda value: _folder(value, home), f"{home}/pheby"
    )
    if notes.problems:
        raise ConfigError(notes.problems[0])
    return found


# What is noted on the way


@attrs.define
class _Notes:
    settings: list[Setting] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)
    ignored: list[str] = attrs.field(factory=list)


class _Section:
    """One mapping of config.yaml. A value that is refused is a problem, and its default stands in for it."""

    def __init__(
        self,
        notes: _Notes,
        where: str,
        values: Mapping[Any, Any],
        known: Collection[str],
        ignored: Collection[str] = (),
    ) -> None:
        self._notes = notes
        self._where = where
        self._values = values
        for key in values:
            if key in known or key in ignored or (ignored and isinstance(key, str) and key.startswith("_")):
                continue
            (notes.ignored if ignored and harmless(key) else notes.problems).append(unknown(where, key, known))

    def read(self, key: str, check: Callable[[object], T], default: T) -> T:
        """The checked value, or the default."""
        value, source = default, "default"
        if key in self._values:
            source = "config.yaml"
            try:
                value = check(self._values[key])
            except ConfigError as refused:
                self._notes.problems.append(f"{self._where}.{key} must be {refused}")
                return default
        self._notes.settings.append(Setting(f"{self._where}.{key}", _shown(value), source))
        return value


def harmless(key: object) -> bool:
    """Whether an unknown key may be one of a newer Hermes: it is nothing like one of Pheby's, and like no secret."""
    return (
        isinstance(key, str)
        and _SHOWABLE_KEY.fullmatch(key) is not None
        and not _secret_like(key)
        and not get_close_matches(key.lower(), KEYS, 1, _ALMOST)
    )


def _secret_like(key: str) -> bool:
    return any(word in key.lower() for word in ("secret", "token"))


def unknown(where: str, key: object, known: Iterable[str]) -> str:
    """What is said of a key that is unknown in a section, with what is allowed; never more of it than its name."""
    if not isinstance(key, str) or not _SHOWABLE_KEY.fullmatch(key):
        return f"{where} has a key that is not one of: {', '.join(known)}"
    if _secret_like(key):
        return f"{where}.{key} is unknown: a secret belongs in the environment, as PHEBY_SECRET"
    near = get_close_matches(key.lower(), known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{where}.{key} is unknown: {hint}Allowed are: {', '.join(known)}"


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return [str(each) for each in value]
    return value


def _limits(notes: _Notes, values: object) -> dict[str, Any]:
    where = f"{SECTION}.limits"
    if not isinstance(values, Mapping):
        notes.problems.append(f"{where} must be a mapping of: {', '.join(OWNER_LIMITS)}")
        return {}
    section = _Section(notes, where, values, OWNER_LIMITS)
    fields = attrs.fields_dict(ServerConfig)
    return {name: section.read(name, _whole(*bounds(name)), fields[name].default) for name in OWNER_LIMITS}


def _server(notes: _Notes, settings: dict[str, Any]) -> ServerConfig | None:
    try:
        return ServerConfig(**settings)
    except ConfigError as refused:
        # Every value has been looked at by itself: it is the limits that do not fit together.
        notes.problems.append(f"{SECTION}.limits.{refused}")
        return None


# Environment


def _home_conversation(
    notes: _Notes, default: str, secret: Callable[[str], str | None], source_of: Callable[[str], str]
) -> str:
    name = "PHEBY_HOME_CONVERSATION"
    value = secret(name)
    if value and (len(value) > 200 or not value.isprintable()):
        notes.problems.append(f"{name} must be the id of a conversation or of a chat")
        return default
    notes.settings.append(Setting(name, value or default, source_of(name) if value else "default"))
    return value or default


def _authenticator(
    notes: _Notes, secret: Callable[[str], str | None], source_of: Callable[[str], str]
) -> Authenticator | None:
    forbidden = secret("API_SERVER_KEY")
    secrets: list[tuple[AccessMode, str]] = []
    for name, mode in _SECRETS:
        value = secret(name)
        # The first is needed, the others need not be there.
        if value or name == _SECRETS[0][0]:
            try:
                checked = check_secret(name, value, not_equal=forbidden)
            except ConfigError as refused:
                notes.problems.append(str(refused))
                continue
            if checked in (other for _, other in secrets):
                notes.problems.append(f"{name} must differ from the other secrets")
            secrets.append((mode, checked))
        notes.settings.append(Setting(name, "set" if value else "not set", source_of(name) if value else "default"))
    return Authenticator(tuple(secrets)) if secrets else None


# Checks: each returns the value as it is used, or raises ConfigError saying what it must be


def _host(value: object) -> str:
    host = _text(value, 100)
    if host == "localhost":
        return DEFAULT_HOST
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError("an IP address or localhost") from None
    return host


def _port(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        value = int(value)
    return _whole(0, 65_535)(value)


def _prefix(value: object) -> str:
    prefix = value.rstrip("/") if isinstance(value, str) else None
    if prefix is None or not re.fullmatch(r"(?:/[A-Za-z0-9-]+)*", prefix) or len(prefix) > 200:
        raise ConfigError("empty or a path like /pheby")
    return prefix


def _url(value: object) -> str:
    expected = "an address like https://pheby.example.org, without user name, query or fragment"
    url = value if isinstance(value, str) else ""
    if not re.fullmatch(r"https?://[!-~]{1,500}", url) or re.search(r"[?#@\\<>\"]", url):
        raise ConfigError(expected)
    try:
        parts = urlsplit(url)
        # Reading the port is what checks it.
        named = parts.hostname and (parts.port or True)
    except ValueError:
        named = False
    if not named:
        raise ConfigError(expected)
    return url.rstrip("/")


def _networks(value: object) -> tuple[Network, ...]:
    expected = f"a list of at most {MAX_PROXIES} IP addresses or networks, like 10.0.0.0/8"
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) > MAX_PROXIES:
        raise ConfigError(expected)
    try:
        # Numbers would be taken for addresses.
        networks = tuple(ipaddress.ip_network(_text(each, 100)) for each in value)
    except ValueError:
        raise ConfigError(expected) from None
    if any(network.prefixlen == 0 for network in networks):
        raise ConfigError(f"{expected}; a network of all addresses would let anybody claim any address")
    return networks


def _origins(value: object) -> tuple[str, ...]:
    expected = f"a list of at most {MAX_ORIGINS} origins, like https://app.example.org"
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) > MAX_ORIGINS:
        raise ConfigError(expected)
    # As a browser writes them: in small letters, without a path.
    if not all(isinstance(each, str) and re.fullmatch(r"https?://[a-z0-9.\[\]:-]{1,250}", each) for each in value):
        raise ConfigError(expected)
    return tuple(value)


def _folder(value: object, home: str) -> str:
    path = os.path.expanduser(_text(value, MAX_PATH_CHARS))
    # Not from where Hermes happens to be started.
    return os.path.join(home, path)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError("true or false")
    return value


def _whole(low: int, high: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ConfigError(f"an integer from {low} to {high}")
        return value

    return check


def _text(value: object, most: int) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value.strip() or len(value) > most:
        raise ConfigError(f"a text of at most {most} characters")
    return value
