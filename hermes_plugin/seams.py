"""Every name of Hermes's that Pheby uses, by what is lost without it. Pure data: `_hermes.there` looks.

A symbol is `module:name.name`, followed by `(parameter)` or `[member]` where that is what is used. `module~name` is a
name that Hermes looks for on Pheby's adapter: the module mentions it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

_BASE: Final = "gateway.platforms.base:"
_ADAPTER: Final = f"{_BASE}BasePlatformAdapter."
_RUNNER: Final = "gateway.run:GatewayRunner."
_SESSIONS: Final = "hermes_state:SessionDB"
_HOOKS: Final = "hermes_cli.plugins:VALID_HOOKS"
_APPROVAL: Final = "tools.approval:"
_CLARIFY: Final = "tools.clarify_gateway:"
_ENTRY: Final = "gateway.platform_registry:PlatformEntry"

LINES: Final = ("0.19", "0.22")


@dataclass(frozen=True, eq=False)
class Part:
    """Something that Pheby does with these symbols, and does not do where one of them is missing."""

    name: str
    without: str
    symbols: tuple[str, ...]
    """On every line."""
    of_line: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """On one line alone."""
    capabilities: tuple[str, ...] = ()
    """What `welcome` then says no to."""
    needed: bool = False
    """Whether Pheby does not start without it."""

    def on(self, line: str) -> tuple[str, ...]:
        """The symbols that a line is expected to have."""
        return (*self.symbols, *self.of_line.get(line, ()))


def _all(prefix: str, names: str, form: str = "{}") -> tuple[str, ...]:
    return tuple(prefix + form.format(name) for name in names.split())


PARTS: Final = (
    Part(
        "Pheby itself",
        "Pheby does not start, and says which name is missing",
        (
            *_all("hermes_cli.plugins:PluginContext.register_platform", "name label adapter_factory check_fn", "({})"),
            *_all(_ENTRY, "is_connected allowed_users_env", "({})"),
            "gateway.config:Platform",
            "hermes_constants:get_hermes_home",
            *_all(_ADAPTER, "connect disconnect send edit_message get_chat_info set_message_handler handle_message"),
            *_all(_ADAPTER, "build_source interrupt_session_activity on_processing_start on_processing_complete"),
            *_all(_ADAPTER, "_mark_connected _mark_disconnected _set_fatal_error gateway_runner _message_handler"),
            *_all(f"{_ADAPTER}build_source", "chat_name chat_type user_id user_name", "({})"),
            f"{_ADAPTER}_set_fatal_error(retryable)",
            *_all(f"{_BASE}SendResult", "success message_id error", "({})"),
            *_all(f"{_BASE}MessageEvent", "text message_type source message_id", "({})"),
            f"{_BASE}MessageEvent.internal",
            *_all(f"{_BASE}MessageEvent.", "is_command get_command get_command_args"),
            f"{_BASE}MessageType.TEXT",
        ),
        needed=True,
    ),
    Part(
        "typed texts",
        "a subclass of Hermes's event keeps them from being commands, as on 0.19",
        (),
        {"0.22": (f"{_BASE}MessageEvent(allow_gateway_control)",)},
    ),
    Part(
        "tools",
        "no tool calls are shown",
        _all(_HOOKS, "pre_tool_call post_tool_call", "[{}]"),
        capabilities=("tools",),
    ),
    Part(
        "runs",
        "how a run ended and what was said on the way to a tool is told by what Hermes sends alone",
        (
            "hermes_cli.plugins:PluginContext.register_hook",
            *_all(_HOOKS, "pre_llm_call post_llm_call pre_api_request post_api_request", "[{}]"),
            *_all(_HOOKS, "api_request_error on_session_end", "[{}]"),
        ),
    ),
    Part(
        "list of hooks",
        "all hooks are registered, and believed to be fired",
        (_HOOKS,),
    ),
    Part(
        "chat of a hook",
        "runs that began without a message of the owner are not recognised by their hooks",
        ("gateway.session_context:get_session_env",),
    ),
    Part(
        "subagents",
        "what a subagent does is not told apart",
        _all(_HOOKS, "subagent_start subagent_stop", "[{}]"),
        capabilities=("subagents",),
    ),
    Part(
        "cancelling a subagent",
        "its run is ended for the clients after two seconds, it works on",
        ("tools.delegate_tool:interrupt_subagent",),
    ),
    Part(
        "approvals",
        "no approval can be given by the app: Hermes's own time runs out, and nothing dangerous is done",
        _all(_HOOKS, "pre_approval_request post_approval_response", "[{}]"),
        {
            "0.19": (
                "gateway.run~send_exec_approval",
                *_all(_APPROVAL, "_lock _gateway_queues"),
                *_all(f"{_APPROVAL}_ApprovalEntry.", "data event result reason"),
            ),
            "0.22": (
                *_all(_ADAPTER, "send_exec_approval supports_exec_approval_buttons"),
                f"{_APPROVAL}list_gateway_approvals",
                *_all(f"{_APPROVAL}resolve_gateway_approval", "reason request_id", "({})"),
            ),
        },
        capabilities=("approvals",),
    ),
    Part("time of an approval", "no `expires_at` is told", ("hermes_cli.config:load_config",)),
    Part(
        "time of an approval where none is set",
        "no `expires_at` is told",
        (),
        {
            "0.19": (f"{_APPROVAL}_get_approval_timeout",),
            "0.22": ("tools.approval_context:_get_approval_timeout",),
        },
    ),
    Part(
        "clarifications",
        "a question of the agent comes as a text, and is answered by a message",
        (
            f"{_ADAPTER}send_clarify",
            *_all(_CLARIFY, "resolve_gateway_clarify _lock _entries"),
            f"{_CLARIFY}get_pending_for_session(include_choice_prompts)",
            *_all(f"{_CLARIFY}_ClarifyEntry.", "clarify_id event"),
        ),
        capabilities=("clarifications",),
    ),
    Part("time of a clarification", "no `expires_at` is told", (f"{_CLARIFY}get_clarify_timeout",)),
    Part("skipping a clarification", "`skippable` is false", (), {"0.22": (f"{_CLARIFY}SKIPPED",)}),
    Part(
        "cancelling a clarification",
        "a run that is cancelled while it asks gets `[cancelled]` for an answer, in words",
        (),
        {"0.22": (f"{_CLARIFY}CANCELLED",)},
    ),
    Part("several answers", "`multiple` is false", (), {"0.22": (f"{_CLARIFY}_ClarifyEntry.multi_select",)}),
    Part(
        "end of a clarification",
        "a card whose time has run out stays until its run ends",
        (),
        {"0.22": ("gateway.run_inbound~retire_clarify_card",)},
    ),
    Part(
        "labels of choices",
        "labels are shown as Hermes shows them",
        (),
        {"0.22": ("tools.clarify_tool:strip_recommended",)},
    ),
    Part(
        "attachments",
        "no file is sent",
        (
            f"{_BASE}validate_media_delivery_path",
            *_all(_ADAPTER, "send_document send_image_file send_video send_voice send_multiple_images send_image"),
        ),
        capabilities=("attachments",),
    ),
    Part(
        "models",
        "models can neither be listed nor chosen",
        ("hermes_cli.model_switch:resolve_persist_behavior(is_session)", f"{_RUNNER}_handle_model_command"),
        {
            "0.19": ("gateway.slash_commands~send_model_picker",),
            "0.22": ("gateway.slash_commands_model~send_model_picker",),
        },
        capabilities=("models",),
    ),
    Part(
        "reasoning effort",
        "efforts can neither be listed nor chosen",
        _all(_RUNNER, "_handle_reasoning_command _try_send_choice_picker"),
        {
            "0.19": ("gateway.slash_commands~send_choice_picker",),
            "0.22": ("gateway.slash_commands_model~send_choice_picker",),
        },
        capabilities=("reasoning",),
    ),
    Part(
        "models over a restart",
        "what Hermes has kept is chosen once more, and the model gets a note about it",
        (
            *_all(_RUNNER, "_session_model_overrides session_store"),
            "gateway.session:SessionStore.get_model_override",
        ),
    ),
    Part(
        "facts about models",
        "ids and names only",
        (
            *_all("agent.models_dev:", "fetch_models_dev get_model_info"),
            *_all("agent.models_dev:ModelInfo.", "name context_window reasoning cost_input cost_output"),
        ),
    ),
    Part(
        "confirmations",
        "what Hermes wants confirmed lapses by itself after five minutes",
        (f"{_ADAPTER}send_slash_confirm", "tools.slash_confirm:resolve"),
    ),
    Part(
        "streaming",
        "streaming is not promised",
        (
            f"{_RUNNER}config",
            "gateway.config:GatewayConfig.streaming",
            "gateway.config:StreamingConfig.enabled",
        ),
        capabilities=("streaming",),
    ),
    Part("cursor", "it is taken to be the default glyph", ("gateway.config:StreamingConfig.cursor",)),
    Part(
        "edits of streamed texts",
        "a text may stay unfinished until its run ends",
        (f"{_ADAPTER}REQUIRES_EDIT_FINALIZE", f"{_ADAPTER}edit_message(finalize)"),
        {
            "0.19": ("gateway.run~SUPPORTS_MESSAGE_EDITING",),
            "0.22": ("gateway.run_turn~SUPPORTS_MESSAGE_EDITING",),
        },
    ),
    Part(
        "long texts",
        "Hermes cuts a long text in pieces while it streams",
        (f"{_ADAPTER}streaming_overflow_limit",),
    ),
    Part("progress", "no `run.progress` is told", ("gateway.run~send_or_update_status",)),
    Part("typing", "Hermes sends its sign of life where nobody looks for it", (f"{_ADAPTER}send_typing",)),
    Part(
        "typing after an approval",
        "Hermes's sign of life stays off until the next message",
        (f"{_ADAPTER}resume_typing_for_chat",),
    ),
    Part(
        "when a message may be handed over",
        "handed over at once; Hermes replays what comes early",
        (*_all(_RUNNER, "_running _startup_restore_in_progress"), f"{_ADAPTER}_active_sessions"),
    ),
    Part(
        "what the owner was shown meanwhile",
        "the agent does not hear of it",
        (f"{_BASE}MessageEvent.channel_context",),
    ),
    Part(
        "history of Hermes",
        "only what Pheby has kept itself is shown; after a crash a message that was handed over is `indeterminate`",
        (
            f"{_SESSIONS}(read_only)",
            f"{_SESSIONS}.close",
            f"{_SESSIONS}.get_messages(include_inactive)",
            f"{_SESSIONS}.list_sessions_rich(source)",
        ),
        capabilities=("rename", "delete"),
    ),
    Part(
        "the whole history of Hermes",
        "of a long conversation, or of many, only the newest part is seen",
        (
            *_all(f"{_SESSIONS}.list_sessions_rich", "include_children project_compression_tips", "({})"),
            *_all(f"{_SESSIONS}.list_sessions_rich", "include_archived compact_rows limit", "({})"),
        ),
    ),
    Part("renaming", "a title is Hermes's own", (f"{_SESSIONS}.set_session_title",), capabilities=("rename",)),
    Part("deleting", "conversations cannot be deleted", (f"{_SESSIONS}.delete_session",), capabilities=("delete",)),
    Part(
        "deleting as a whole",
        "what Hermes has put aside of a conversation may stay",
        (),
        {"0.22": _all(f"{_SESSIONS}.delete_session", "include_compression_chain exclude_active_write_guards", "({})")},
    ),
    Part(
        "profiles",
        "all profiles of one gateway have the secret of the process's environment",
        ("agent.secret_scope:get_secret",),
    ),
    Part(
        "where the sessions of a profile are",
        "each profile is taken to have its own: in a gateway of 0.19 for several only what Pheby has kept is shown",
        (f"{_ADAPTER}_session_store", "gateway.session:SessionStore._db", f"{_SESSIONS}.db_path"),
    ),
    Part(
        "the process's own profile",
        "it is told by `HERMES_HOME`",
        ("hermes_constants:get_process_hermes_home",),
    ),
    Part(
        "redaction",
        "secrets in tool calls are masked by Pheby's own patterns alone",
        ("agent.redact:redact_sensitive_text(force)",),
    ),
    Part(
        "comforts of Hermes's own commands",
        "Hermes does not show it in its set-up, or cannot deliver from another process",
        (
            *_all(
                _ENTRY, "env_enablement_fn cron_deliver_env_var standalone_sender_fn required_env install_hint", "({})"
            ),
            *_all(_ENTRY, "max_message_length setup_fn emoji platform_hint", "({})"),
        ),
        {"0.22": (f"{_ENTRY}(parse_target_ref_fn)",)},
    ),
)


def line_of(version: str) -> str:
    """The line that a version of Hermes is of: the newest that is not newer; of one that is not told, the newest."""
    numbers = tuple(int(each) for each in version.split(".")[:2] if each.isdigit())
    older = [line for line in LINES if not numbers or tuple(map(int, line.split("."))) <= numbers]
    return older[-1] if older else LINES[0]


def named(line: str) -> dict[str, tuple[Part, ...]]:
    """Every symbol of a line, with all that they stand in (modules, classes), by what is lost without it."""
    rows = {symbol: part for part in PARTS for symbol in part.on(line)}
    found: dict[str, tuple[Part, ...]] = {}
    for symbol, part in rows.items():
        for each in (symbol, *holders(symbol)):
            # A list that is used by itself can be gone without its members being missed.
            parts = (rows[each],) if each in rows else (*found.get(each, ()), part)
            found[each] = tuple(dict.fromkeys(parts))
    return found


def holders(symbol: str) -> Iterator[str]:
    """What a symbol is a part of, the nearest first, up to its module."""
    if symbol.endswith((")", "]")):
        symbol = symbol[: symbol.rindex("(" if symbol.endswith(")") else "[")]
        yield symbol
    module, separator, path = symbol.partition("~" if "~" in symbol else ":")
    names = path.split(".")
    for count in range(len(names) - 1, 0, -1):
        yield f"{module}{separator}{'.'.join(names[:count])}"
    if separator:
        yield module


def outermost(symbol: str, there: Callable[[str], bool]) -> str:
    """The outermost of a missing symbol and what it stands in that is missing."""
    return next((each for each in reversed([symbol, *holders(symbol)]) if not there(each)), symbol)


def missing(line: str, there: Callable[[str], bool]) -> dict[str, tuple[Part, ...]]:
    """What is not there, each with what is lost; not what stands in something that is missing itself."""
    symbols = named(line)
    gone = {symbol for symbol in symbols if not there(symbol)}
    return {symbol: symbols[symbol] for symbol in symbols if symbol in gone and not gone & set(holders(symbol))}
