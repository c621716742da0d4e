"""As much of Hermes as the plugin touches, in either of its two shapes; in place only while a test wants it."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import inspect
import os
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pheby_hermes import seams

MODULES = (
    "agent",
    "agent.models_dev",
    "agent.redact",
    "agent.secret_scope",
    "gateway",
    "gateway.config",
    "gateway.platform_registry",
    "gateway.platforms",
    "gateway.platforms.base",
    "gateway.session_context",
    "hermes_cli",
    "hermes_cli.config",
    "hermes_cli.model_switch",
    "hermes_cli.plugins",
    "hermes_constants",
    "hermes_state",
)


class MessageType(enum.Enum):
    TEXT = "text"


class ProcessingOutcome(enum.Enum):
    SUCCESS = "success"
    CANCELLED = "cancelled"


@dataclass
class SendResult:
    success: bool
    message_id: str | None = None
    error: str | None = None


@dataclass
class OldMessageEvent:
    """As the older line has it."""

    text: str
    message_type: MessageType = MessageType.TEXT
    source: Any = None
    message_id: str | None = None
    internal: bool = False
    channel_context: str | None = None

    def is_command(self) -> bool:
        return self.text.startswith("/")

    def get_command(self) -> str | None:
        return self.text[1:].split()[0] if self.is_command() else None

    def get_command_args(self) -> str:
        return self.text.partition(" ")[2] if self.is_command() else self.text


@dataclass
class NewMessageEvent(OldMessageEvent):
    """As the newer line has it."""

    allow_gateway_control: bool = True


class BasePlatformAdapter:
    """What an adapter inherits. What Hermes would do with it is written down."""

    def __init__(self, config: Any, platform: Any) -> None:
        self.config, self.platform = config, platform
        self.gateway_runner: Any = None
        self._message_handler: Any = None
        self._active_sessions: dict[str, Any] = {}
        self.connected = False
        self.fatal: tuple[str, str, bool] | None = None
        self.handled: asyncio.Queue[Any] = asyncio.Queue()
        self.interrupts: list[tuple[str, str]] = []

    def set_message_handler(self, handler: Any) -> None:
        self._message_handler = handler

    def build_source(self, chat_id: str, **described: Any) -> Any:
        return SimpleNamespace(chat_id=chat_id, **described)

    def _mark_connected(self) -> None:
        self.connected, self.fatal = True, None

    def _mark_disconnected(self) -> None:
        self.connected = False

    def _set_fatal_error(self, code: str, message: str, *, retryable: bool) -> None:
        self.connected, self.fatal = False, (code, message, retryable)

    async def handle_message(self, event: Any) -> None:
        self.handled.put_nowait(event)

    async def interrupt_session_activity(self, session_key: str, chat_id: str, metadata: Any = None) -> None:
        self.interrupts.append((session_key, chat_id))

    async def cancel_background_tasks(self) -> None:
        pass

    async def send_clarify(self, **asked: Any) -> Any:
        raise AssertionError("Pheby has its own")


class Runner:
    """As much of Hermes's gateway as is looked at."""

    _running = True
    _startup_restore_in_progress = False

    def _handle_model_command(self) -> None: ...
    def _try_send_choice_picker(self) -> None: ...
    def _handle_reasoning_command(self) -> None: ...


@dataclass
class PlatformEntry:
    name: str
    label: str
    adapter_factory: Any
    check_fn: Any
    required_env: list[str] = field(default_factory=list)
    install_hint: str = ""
    is_connected: Any = None
    allowed_users_env: str = ""
    max_message_length: int = 0
    platform_hint: str = ""
    setup_fn: Any = None


class FakeApprovals:
    """Hermes's queue of questions: with ids or oldest first."""

    def __init__(self, shape: str) -> None:
        self.queues: dict[str, list[SimpleNamespace]] = {}
        self.module = ModuleType("tools.approval")
        self.module._lock = threading.Lock()  # type: ignore[attr-defined]
        self.module._gateway_queues = self.queues  # type: ignore[attr-defined]
        self.module.resolve_gateway_approval = self.resolve  # type: ignore[attr-defined]
        self.by_id = shape == "new"
        if self.by_id:
            self.module.list_gateway_approvals = self.listed  # type: ignore[attr-defined]
        self.asked: list[SimpleNamespace] = []

    def ask(self, session_key: str, command: str, request_id: str) -> Any:
        data = {"command": command, "request_id": request_id} if self.by_id else {"command": command}
        entry = SimpleNamespace(data=data, result=None, reason=None, event=threading.Event())
        self.queues.setdefault(session_key, []).append(entry)
        self.asked.append(entry)
        return entry

    def listed(self, session_key: str) -> list[dict[str, Any]]:
        return [dict(entry.data) for entry in self.queues.get(session_key, [])]

    @property
    def resolved(self) -> list[tuple[str, str, str | None]]:
        """Command, choice, reason of every question that was decided."""
        return [(entry.data["command"], entry.result, entry.reason) for entry in self.asked if entry.event.is_set()]

    def resolve(self, session_key: str, choice: str, *, reason: str | None, request_id: str) -> int:
        queue = self.queues.get(session_key, [])
        wanted = [entry for entry in queue if entry.data["request_id"] == request_id]
        for entry in wanted:
            queue.remove(entry)
            entry.result, entry.reason = choice, reason
            entry.event.set()
        return len(wanted)


class FakeClarifications:
    """Hermes's questions that wait for an answer: with skipping and several choices or without."""

    def __init__(self, shape: str) -> None:
        self.entries: dict[str, SimpleNamespace] = {}
        self.answers: list[tuple[str, str]] = []
        self.locked: list[bool] = []
        """Whether Hermes's lock was held, for each answer."""
        self.seconds: object = 600
        self.gateway, self.tool = ModuleType("tools.clarify_gateway"), ModuleType("tools.clarify_tool")
        self.gateway._lock = threading.RLock()  # type: ignore[attr-defined]
        self.gateway._entries = self.entries  # type: ignore[attr-defined]
        self.gateway.resolve_gateway_clarify = self.resolve  # type: ignore[attr-defined]
        self.gateway.get_pending_for_session = self.pending  # type: ignore[attr-defined]
        self.gateway.get_clarify_timeout = lambda: self.seconds  # type: ignore[attr-defined]
        self.new = shape == "new"
        if self.new:
            self.gateway.SKIPPED, self.gateway.CANCELLED = "\0skipped", "\0cancelled"  # type: ignore[attr-defined]
            self.tool.strip_recommended = (  # type: ignore[attr-defined]
                lambda label: label.removesuffix("(Recommended)").strip()
            )

    def ask(self, session_key: str, clarify_id: str, *, several: bool = False) -> Any:
        entry = SimpleNamespace(clarify_id=clarify_id, session_key=session_key, event=threading.Event())
        if self.new:
            entry.multi_select = several
        self.entries[clarify_id] = entry
        return entry

    @property
    def waiting(self) -> list[SimpleNamespace]:
        """Those that have no answer yet."""
        return [entry for entry in self.entries.values() if not entry.event.is_set()]

    def pending(self, session_key: str, *, include_choice_prompts: bool) -> Any:
        assert include_choice_prompts
        return next((entry for entry in self.entries.values() if entry.session_key == session_key), None)

    def resolve(self, clarify_id: str, response: str) -> bool:
        """As the real ones: an answered entry stays until its waiter wakes; on 0.19 a second answer replaces it."""
        entry = self.entries.get(clarify_id)
        if entry is None or (self.new and entry.event.is_set()):
            return False
        entry.event.set()
        self.answers.append((clarify_id, response))
        self.locked.append(self.gateway._lock._is_owned())  # type: ignore[attr-defined]
        return True


class NeverOpened:
    """Hermes's store of sessions, of a home that has none yet."""

    def __init__(self, database: Path, read_only: bool = False) -> None:
        raise AssertionError("there is no database")

    def close(self) -> None: ...
    def get_messages(self, session_id: str, include_inactive: bool = False) -> None: ...


class UnscopedSecretError(RuntimeError):
    pass


@dataclass
class FakeHermes:
    """The stand-in, as a test may change it."""

    modules: dict[str, ModuleType]
    home: Path
    process_home: Path
    approvals: FakeApprovals
    clarifications: FakeClarifications
    confirmed: list[tuple[str, str, str]] = field(default_factory=list)
    """What was answered to Hermes's confirmations of commands."""
    subagents: set[str] = field(default_factory=set)
    """Those at work, by Hermes's name."""
    denied: set[str] = field(default_factory=set)
    """Paths that Hermes's rule does not let out."""
    secrets: dict[str, str] = field(default_factory=dict)
    catalogue: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is known of models, by provider."""
    unscoped: bool = False
    """A gateway for several profiles, asked outside of any profile."""

    def model_info(self, provider: str, model: str) -> Any:
        return self.catalogue.get(provider, {}).get(model)

    def without(self, monkeypatch: pytest.MonkeyPatch, module: str, name: str | None = None) -> None:
        """A Hermes that does not have this module, or this name in it."""
        if name is None:
            # None makes the import fail, also where a real Hermes is installed.
            monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
            parent, _, leaf = module.rpartition(".")
            monkeypatch.delattr(self.modules[parent], leaf)
        else:
            monkeypatch.delattr(self.modules[module], name)


def install(monkeypatch: pytest.MonkeyPatch, home: Path, *, shape: str = "new") -> FakeHermes:
    """Put the stand-in where Hermes would be."""
    modules = {name: ModuleType(name) for name in MODULES}
    hermes = FakeHermes(modules, home, home, FakeApprovals(shape), FakeClarifications(shape))
    modules |= {
        "tools": ModuleType("tools"),
        "tools.approval": hermes.approvals.module,
        "tools.clarify_gateway": hermes.clarifications.gateway,
        "tools.clarify_tool": hermes.clarifications.tool,
        "tools.delegate_tool": ModuleType("tools.delegate_tool"),
        "tools.slash_confirm": ModuleType("tools.slash_confirm"),
    }
    modules["tools"].__path__ = []  # else `from tools import …` finds None where a module is missing
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(modules[parent], leaf, module)

    def fill(module: str, **names: Any) -> None:
        for name, value in names.items():
            setattr(modules[module], name, value)

    def get_secret(name: str) -> str | None:
        if hermes.unscoped:
            raise UnscopedSecretError(name)
        return hermes.secrets.get(name)

    def deliverable(path: str) -> str | None:
        # As the real one: links are resolved first, and only a file that exists is let out.
        real = os.path.realpath(os.path.expanduser(path))
        return real if os.path.isfile(real) and not {path, real} & hermes.denied else None

    async def confirm(session_key: str, confirm_id: str, choice: str) -> None:
        hermes.confirmed.append((session_key, confirm_id, choice))

    fill("tools.slash_confirm", resolve=confirm)
    fill("tools.delegate_tool", interrupt_subagent=lambda name: name in hermes.subagents)
    fill(
        "gateway.platforms.base",
        BasePlatformAdapter=BasePlatformAdapter,
        MessageEvent=NewMessageEvent if shape == "new" else OldMessageEvent,
        MessageType=MessageType,
        SendResult=SendResult,
        validate_media_delivery_path=deliverable,
    )
    fill("agent.redact", redact_sensitive_text=lambda text, force=False: text.replace("hunter2", "***"))
    fill("gateway.config", Platform=lambda name: SimpleNamespace(value=name))
    fill("gateway.platform_registry", PlatformEntry=PlatformEntry)
    fill("gateway.session_context", get_session_env=lambda name: None)
    fill("hermes_cli.plugins", VALID_HOOKS={"pre_llm_call", "on_session_end", "on_stream_delta"})
    fill("hermes_cli.config", load_config=dict)
    fill("hermes_cli.model_switch", resolve_persist_behavior=lambda is_global, is_session: False)
    fill("agent.models_dev", fetch_models_dev=lambda: hermes.catalogue, get_model_info=hermes.model_info)
    fill("hermes_state", SessionDB=NeverOpened)  # a new home has no database to open
    fill("agent.secret_scope", get_secret=get_secret)
    fill(
        "hermes_constants",
        get_hermes_home=lambda: str(hermes.home),
        get_process_hermes_home=lambda: hermes.process_home,
    )
    _add_the_rest(monkeypatch, modules, "0.22" if shape == "new" else "0.19")
    return hermes


def _add_the_rest(monkeypatch: pytest.MonkeyPatch, modules: dict[str, ModuleType], line: str) -> None:
    """What is only looked at: every symbol of the line is there, but for the hooks, which a test names."""
    mentioned: dict[str, set[str]] = {}
    for symbol in seams.named(line):
        if "[" in symbol:
            continue
        holder, _, parameter = symbol.rstrip(")").partition("(")
        name, kind, rest = holder.partition("~" if "~" in holder else ":")
        if name not in modules:
            modules[name] = ModuleType(name)
            monkeypatch.setitem(sys.modules, name, modules[name])
            parent, _, leaf = name.rpartition(".")
            setattr(modules[parent], leaf, modules[name])
        if kind == "~":
            mentioned.setdefault(name, set()).add(rest)
            continue
        found: Any = modules[name]
        path = rest.split(".") if rest else []
        for count, part in enumerate(path, 1):
            if part not in getattr(found, "__dataclass_fields__", ()) and not hasattr(found, part):
                stand_in: Any = type(part, (), {}) if count < len(path) else lambda *args: None
                monkeypatch.setattr(found, part, stand_in, raising=False)
            found = getattr(found, part, None)
        if parameter:
            known = inspect.signature(found).parameters
            names = [*(each for each in known if each not in ("args", "more", "described")), parameter]
            wanted = [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in dict.fromkeys(names)]
            if parameter not in known:
                monkeypatch.setattr(found, "__signature__", inspect.Signature(wanted), raising=False)
    for name, words in mentioned.items():
        code = compile("\n".join(sorted(words)), name, "exec")
        loader = SimpleNamespace(get_code=lambda _, code=code: code)
        monkeypatch.setattr(modules[name], "__spec__", SimpleNamespace(loader=loader))


def command_words(event: Any) -> tuple[bool, str | None]:
    """What Hermes would take this event for: whether a command is allowed in it, and which it is."""
    allowed = getattr(event, "allow_gateway_control", True)
    return bool(allowed and event.is_command()), event.get_command() if allowed else None


def field_names(cls: type) -> set[str]:
    return {each.name for each in dataclasses.fields(cls)}
