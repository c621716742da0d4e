"""Pheby as a Hermes platform plugin. Light on purpose: every Hermes process imports it, most of them never listen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adapter import PhebyAdapter

PLATFORM = "pheby"

__all__ = ["PLATFORM", "register"]


def register(ctx: Any) -> None:
    """Hermes's entry point: announce the platform and the hooks. Opens nothing, reads nothing."""
    from .hooks import HookRelay

    relay = HookRelay()

    def make(platform_config: Any) -> PhebyAdapter:
        from ._hermes import indispensable

        _refuse_without(indispensable())
        from .adapter import PhebyAdapter

        return PhebyAdapter(platform_config, relay)

    wanted: dict[str, Any] = {
        "is_connected": _is_configured,
        "env_enablement_fn": _seed,
        "cron_deliver_env_var": "PHEBY_HOME_CONVERSATION",
        "standalone_sender_fn": _leave,
        # Any conversation can be named, also one that Hermes has not heard of.
        "parse_target_ref_fn": lambda reference: (reference, None),
        "required_env": ["PHEBY_SECRET"],
        "install_hint": "pip install pheby, into Hermes's own environment",
        "allowed_users_env": "PHEBY_ALLOWED_USERS",
        "max_message_length": 0,
        "setup_fn": _set_up,
        "emoji": "📱",
        "platform_hint": (
            "You are talking to your owner through Pheby, a native mobile app. Markdown is rendered. "
            "To hand over a file, put MEDIA:/absolute/path on a line of its own."
        ),
    }
    if not hasattr(ctx, "register_platform"):
        _refuse_without(("hermes_cli.plugins:PluginContext.register_platform",))
    try:
        ctx.register_platform(
            name=PLATFORM, label="Pheby", adapter_factory=make, check_fn=_can_run, **_known_options(wanted)
        )
    except TypeError:
        from ._hermes import indispensable

        _refuse_without(indispensable())
        raise
    relay.register(ctx)


def _refuse_without(gone: tuple[str, ...]) -> None:
    """Raise what Hermes logs where it has not what Pheby cannot do without."""
    if gone:
        raise RuntimeError(
            f"Pheby cannot start: this Hermes has no {', '.join(gone)}. A newer Pheby may know this Hermes; "
            "`pheby doctor` says how to get it"
        )


def _known_options(wanted: dict[str, Any]) -> dict[str, Any]:
    from ._hermes import platform_options

    known = platform_options()
    return {name: value for name, value in wanted.items() if name in known}


def _seed() -> dict[str, Any] | None:
    """Where Hermes delivers what belongs to no conversation; without one it complains in the owner's first."""
    if not _is_configured(None):
        return None
    from pheby_protocol.ids import ConversationId

    from ._hermes import home, read_secret
    from .chats import chat_of, home_chat

    named = read_secret("PHEBY_HOME_CONVERSATION")
    chat_id = chat_of(ConversationId(named)) if named else home_chat(str(home()))
    return {"home_channel": {"chat_id": chat_id, "name": "Pheby"}}


async def _leave(platform_config: Any, chat_id: str, message: str, **more: Any) -> dict[str, Any]:
    """What Hermes calls in a process that has no adapter, as `hermes send` and `hermes cron tick`."""
    from .outside import leave

    return await leave(platform_config, chat_id, message, more.get("media_files") or ())


def _set_up() -> None:
    """What `hermes gateway setup` calls on a terminal: the same steps as the command, which asks by itself."""
    import subprocess
    import sys

    from ._hermes import home

    words = ["install", "--home", str(home()), "--no-pip"]
    # A process of its own: nothing of it is loaded into Hermes, and it reads the files as they are by then.
    subprocess.run([sys.executable, "-m", "pheby", *words], check=False)  # noqa: S603 - of this very environment


def _can_run() -> bool:
    """Whether what Pheby needs is installed. Called from status displays: it must stay cheap and quiet."""
    from importlib.util import find_spec

    return all(
        find_spec(name) is not None for name in ("aiohttp", "attrs", "cattrs", "filetype", "imagesize", "pheby_server")
    )


def _is_configured(_: Any) -> bool:
    from ._hermes import read_secret

    return bool(read_secret("PHEBY_SECRET"))
