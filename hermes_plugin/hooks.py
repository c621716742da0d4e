"""Hermes's hooks, from whatever thread they come, to the loop of each adapter that listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from . import _hermes
from .bounds import bounded

HOOKS: Final = (
    "api_request_error",
    "on_session_end",
    "post_api_request",
    "post_approval_response",
    "post_llm_call",
    "post_tool_call",
    "pre_api_request",
    "pre_approval_request",
    "pre_llm_call",
    "pre_tool_call",
    "subagent_start",
    "subagent_stop",
)
"""No `on_stream_*`: registering one switches provider streaming on for every surface of the profile."""

_PLAIN: Final = (str, int, float, bool, type(None))
_KEPT: Final = {
    "api_request_error": frozenset({"error"}),
    "post_api_request": frozenset({"usage", "response"}),
    "pre_approval_request": frozenset({"pattern_keys"}),
}
"""Values that are not plain and are needed all the same."""
_COPIED: Final = {"pre_tool_call": frozenset({"args"}), "post_tool_call": frozenset({"result"})}
"""Values of any size and of Hermes's own: a small copy of them is taken while Hermes waits."""


class Listener(Protocol):
    """An adapter that wants to know."""

    def take_hook(self, name: str, facts: dict[str, object], chat_id: str) -> None:
        """Called in the hook's own thread; must neither wait nor raise."""


class HookRelay:
    """Registered once per plugin; adapters come and go."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> None:
        if listener not in self._listeners:
            self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def register(self, ctx: Any) -> None:
        """Register every hook that this Hermes has; none where it takes no hooks any more."""
        if not hasattr(ctx, "register_hook"):
            return
        known = _hermes.hook_names()
        for name in HOOKS:
            if known is None or name in known:
                ctx.register_hook(name, self._callback(name))

    def _callback(self, name: str) -> Callable[..., None]:
        def callback(**facts: Any) -> None:
            # A hook must never raise: on 0.22 that would block the tool that it is about.
            try:
                if not self._listeners:
                    return
                plain = _plain(name, facts)
                chat_id = _hermes.session_chat_id() if _hermes.session_platform() == "pheby" else ""
                for listener in list(self._listeners):
                    listener.take_hook(name, plain, chat_id)
            except Exception as failure:  # noqa: BLE001 - whatever it is
                # Here alone: most processes that load the plugin never need the core.
                from pheby_server.logs import log_of

                log_of(__name__).warning("hook.failed", exc_info=failure)

        callback.__name__ = f"pheby_{name}"
        return callback


def _plain(name: str, facts: dict[str, Any]) -> dict[str, object]:
    kept, copied = _KEPT.get(name, frozenset()), _COPIED.get(name, frozenset())
    return {
        key: bounded(value) if key in copied else value
        for key, value in facts.items()
        if isinstance(value, _PLAIN) or key in kept or key in copied
    }
