"""One example of every message and object, to learn from: built from good values that were written by hand.

A field without a value here is an error, as one without a description is: whoever adds a field says what it looks like.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from .descriptions import UndescribedError
from .metamodel import FieldModel, Metamodel, StructModel, TypeModel

Json = dict[str, Any]

_ABSENT: Final = object()
"""In a table below: an optional field that does not go with the others."""

_TIME: Final = 1_796_050_000_123

_FIELDS: Final[dict[str, object]] = {
    "access_mode": "full",
    "active_run_id": "run_17960500001230003",
    "answerable": False,
    "approval_id": "appr_17960500054000008",
    "arguments": {"command": "du -sh /srv/backup/*", "timeout": 60},
    "arguments_truncated": False,
    "as_of_seq": 812,
    "attachment_id": "att_17960500090000012",
    "choice": "once",
    "choice_id": "1",
    "choice_ids": ["1", "3"],
    "clarification_id": "clar_17960500070000010",
    "client_conversation_id": "c3b0a7c2-5d0e-4f6e-9a53-0d8f5c2e7a11",
    "client_message_id": "6f1d2c1e-8f0b-4a55-9c1d-3b5a7e9f0c24",
    "client_name": "Pheby for Android",
    "command": "rm -r /srv/backup/2025-11",
    "command_truncated": False,
    "completed_at": _TIME + 9_200,
    "connection_id": "3f9c2a7b51d84e06",
    "context_length": 200_000,
    "conversation_id": "conv_17960500001230001",
    "conversations_next": "eyJhIjoxNzk2MDUwMDAwMTIzfQ",
    "created_at": _TIME,
    "cursor": "eyJhIjoxNzk2MDUwMDAwMTIzfQ",
    "decision": "once",
    "delivery": "done",
    "device_id": "7d2f6c0e-41ab-4c39-8e57-90b6a1f3d5c8",
    "disposition": "started",
    "drop_queued": True,
    "duplicate": False,
    "duration_ms": 1_840,
    "effort": "high",
    "efforts": ["low", "medium", "high"],
    "ended_at": _TIME + 9_250,
    "epoch": "e_1795900000000",
    "expires_at": _TIME + 305_000,
    "file_name": "backup report.pdf",
    "final": True,
    "free_text": True,
    "from_position": 4_096,
    "has_more": True,
    "heartbeat_ms": 30_000,
    "height": 800,
    "hermes_call_id": "call_9f8e7d6c",
    "hermes_version": "0.22.2",
    "history_head": 6_144,
    "history_id": "h_17960500001230001",
    "id": "c7",
    "if_busy": "queue",
    "index": 41,
    "inline_image": False,
    "input_tokens": 2_310,
    "interim": False,
    "known": True,
    "label": "The oldest month",
    "last": True,
    "last_activity_at": _TIME + 9_200,
    "last_index": 43,
    "last_message_preview": "All three months are complete. The oldest one takes 41 GB.",
    "limit": 50,
    "media_type": "application/pdf",
    "message_id": "msg_17960500020000004",
    "model": "acme/large-2",
    "multiple": True,
    "name": "pheby",
    "next": "eyJhIjoxNzk2MDUwMDAwMTIzfQ",
    "origin": "chat",
    "output_tokens": 184,
    "parent_run_id": "run_17960500001230003",
    "parent_tool_call_id": "tool_17960500031000006",
    "part": 0,
    "path": "v1/attachments/att_17960500090000012",
    "pattern": "recursive delete",
    "position": 6_144,
    "price_input": "$5.00 per million tokens",
    "price_output": "$25.00 per million tokens",
    "protocol_version": 1,
    "protocol_versions": [1],
    "provider": "openrouter",
    "question": "Which of these may I delete once they are copied?",
    "reason": "Not before the copy has finished.",
    "reasoning": True,
    "reasoning_effort": "medium",
    "receipts_since": 1_795_900_000_000,
    "reconnect_after_ms": 3_000,
    "result_preview": "41G\t/srv/backup/2025-11\n38G\t/srv/backup/2025-12",
    "resumed": True,
    "retry_after_ms": 2_000,
    "retryable": True,
    "role": "assistant",
    "run_id": "run_17960500001230003",
    "schema_digest": "5f1d0c7a9b3e4d26",
    "seq": 812,
    "server_time": _TIME + 60_000,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "size": 48_213,
    "skip": False,
    "skippable": True,
    "skipped": False,
    "started_at": _TIME + 350,
    "state": "dispatched",
    "status": "completed",
    "supported": [1],
    "text": "All three months are complete. The oldest one takes 41 GB.",
    "text_truncated": False,
    "time": _TIME + 9_260,
    "title": "Backup of the photo server",
    "title_source": "generated",
    "tool_call_id": "tool_17960500031000006",
    "total_tokens": 2_494,
    "truncated": False,
    "updated_at": _TIME + 9_200,
    "version": "0.1.0",
    "width": 1_280,
}
"""By the field's name."""

_OWN: Final[dict[str, object]] = {
    "Approval.choices": ["once", "session", "always", "deny"],
    "Approval.created_at": _TIME + 5_400,
    "Approval.description": "Delete a folder and everything in it",
    "Approval.kind": "command",
    "Approval.position": 4_096,
    "Approval.status": "resolved",
    "Attachment.created_at": _TIME + 9_000,
    "Attachment.expires_at": _TIME + 604_800_000,
    # A picture has a size of its own; see the variant.
    "Attachment.image": _ABSENT,
    "Attachment.status": "available",
    "Clarification.created_at": _TIME + 7_000,
    "Clarification.position": 5_120,
    "Clarification.status": "resolved",
    "ClarificationAnswer.text": "and keep the newest one",
    "ClarificationRespond.text": "and keep the newest one",
    "ClientInfo.name": "Pheby for Android",
    "ClientInfo.version": "1.4.0",
    "ConversationHistory.after": _ABSENT,
    "ConversationHistory.before": 7_168,
    "ConversationHistoryResult.after": 6_144,
    "ConversationHistoryResult.before": 1_024,
    "ConversationRename.title": "Photo server: clean-up",
    "DecidedBy.kind": "device",
    "Error.code": "rate_limited",
    "Error.message": "Too many requests.",
    "ErrorDetails.choices": ["once", "deny"],
    "ErrorDetails.limit": 64,
    "Hello.capabilities": ["batch"],
    "Hello.id": "1",
    "MessageDelta.index": 42,
    "MessageDelta.text": " The oldest one takes",
    "MessageReplaced.index": 44,
    "MessageReplaced.text": "All three months are complete.",
    "MessageTextResult.index": 43,
    "MessageSend.text": "Are the backups of the photo server complete?",
    "Message.index": 43,
    "Message.completed_at": _TIME + 9_200,
    "Message.created_at": _TIME + 2_000,
    # Only the owner's own messages carry these; see the variants.
    "Message.client_message_id": _ABSENT,
    "Message.delivery": _ABSENT,
    "Model.name": "Acme Large 2",
    "Model.model": "acme/large-2",
    "Provider.name": "OpenRouter",
    # A run that went well has neither; those of a subagent have parents and a description. See the variants.
    "Run.description": _ABSENT,
    "Run.error": _ABSENT,
    "Run.parent_run_id": _ABSENT,
    "Run.parent_tool_call_id": _ABSENT,
    "Run.reason": _ABSENT,
    "RunCancel.client_message_id": _ABSENT,
    "RunError.code": "provider_rate_limited",
    "RunError.message": "The model's provider asks to wait.",
    "RunProgress.text": "reading the backup folders",
    "ReasoningListResult.current": "medium",
    "ReasoningSelectResult.current": "high",
    "ReasoningChanged.current": "high",
    "Receipt.message_id": "msg_17960500001230002",
    "Snapshot.seq": 815,
    "SyncCompleted.seq": 815,
    "ToolCall.description": "Run a command in the terminal",
    "ToolCall.ended_at": _TIME + 4_940,
    "ToolCall.error": _ABSENT,
    "ToolCall.name": "terminal",
    # A call that a subagent made has one.
    "ToolCall.parent_tool_call_id": _ABSENT,
    "ToolCall.position": 3_072,
    "ToolCall.started_at": _TIME + 3_100,
    "ToolError.code": "timed_out",
    "ToolError.message": "The tool did not finish in time.",
    "Welcome.id": "1",
    "Welcome.seq": 815,
    "Welcome.capabilities": {
        "batch": True,
        "resume": True,
        "streaming": True,
        "tools": True,
        "cancel": True,
        "approvals": True,
        "attachments": False,
    },
}
"""By class and field, where the name alone does not say."""

_LEAST: Final[dict[str, object]] = {
    # The others approve a pattern, and the least approval has none.
    "Approval.choices": ["once", "deny"],
}
"""What the least example has instead, so that it makes sense without the optional fields."""

_USER_MESSAGE: Final[dict[str, object]] = {
    "message_id": "msg_17960500001230002",
    "position": 1_024,
    "role": "user",
    "status": "completed",
    "text": "Are the backups of the photo server complete?",
    "index": _ABSENT,
    "interim": _ABSENT,
    "final": _ABSENT,
    "client_message_id": "6f1d2c1e-8f0b-4a55-9c1d-3b5a7e9f0c24",
    "attachments": [],
    "created_at": _TIME,
    "completed_at": _TIME,
}

_VARIANTS: Final[dict[str, dict[str, dict[str, object]]]] = {
    "Approval": {
        "pending": {"status": "pending", "answerable": True, "decision": _ABSENT, "decided_by": _ABSENT},
        "confirmation": {
            "kind": "confirmation",
            "description": "Send the report by mail",
            "command": "mail report to accountant",
            "pattern": _ABSENT,
            "choices": ["once", "deny"],
            "status": "pending",
            "decision": _ABSENT,
            "decided_by": _ABSENT,
        },
        "resolved": {},
    },
    "Attachment": {
        "available": {},
        "expired": {"status": "expired"},
        "image": {
            "file_name": "disk usage.png",
            "media_type": "image/png",
            "inline_image": True,
            "image": {"width": 1_280, "height": 800},
        },
    },
    "Clarification": {
        "pending": {"status": "pending", "answer": _ABSENT, "answered_by": _ABSENT},
        "resolved": {},
    },
    "ClarificationChoice": {
        "first": {},
        "second": {"choice_id": "2", "label": "The newest month"},
        "third": {"choice_id": "3", "label": "Duplicates"},
    },
    "Conversation": {
        "new": {
            "title": "",
            "title_source": "none",
            "updated_at": _TIME,
            "last_activity_at": _TIME,
            "last_message_preview": _ABSENT,
            "active_run_id": _ABSENT,
            "history_head": 0,
            "reasoning_effort": _ABSENT,
        },
        "idle": {"active_run_id": _ABSENT},
        "renamed": {"title": "Photo server: clean-up", "title_source": "manual", "active_run_id": _ABSENT},
    },
    "ErrorDetails": {
        "limit": dict.fromkeys(
            ("supported", "conversation_id", "receipt", "approval", "clarification", "choices", "efforts"), _ABSENT
        ),
    },
    "Message": {
        "user": _USER_MESSAGE | {"delivery": "admitted"},
        "delivered": _USER_MESSAGE | {"delivery": "done"},
        "interim": {
            "message_id": "msg_17960500011000003",
            "position": 2_048,
            "text": "Let me look at the folders.",
            "index": 4,
            "interim": True,
            "final": _ABSENT,
            "attachments": [],
            "created_at": _TIME + 1_100,
            "completed_at": _TIME + 3_000,
        },
        "notice": {
            "message_id": "msg_17960500099000013",
            "position": 7_168,
            "role": "notice",
            "origin": "system",
            "text": "The agent starts afresh; what was said before stays here.",
            "index": _ABSENT,
            "interim": _ABSENT,
            "final": _ABSENT,
            "run_id": _ABSENT,
            "attachments": [],
        },
        "streaming": {
            "status": "streaming",
            "index": 41,
            "text": "All three months are complete.",
            "final": _ABSENT,
            "interim": _ABSENT,
            "attachments": [],
            "completed_at": _ABSENT,
        },
        "completed": {"attachments": []},
        "queued": _USER_MESSAGE
        | {
            "message_id": "msg_17960500040000007",
            "position": _ABSENT,
            "status": "queued",
            "text": "And how much is free?",
            "run_id": "run_17960500040000009",
            "client_message_id": "a2c4e6f8-1b3d-4f57-8a9c-0e2d4c6b8a10",
            "delivery": "admitted",
            "created_at": _TIME + 4_000,
            "completed_at": _ABSENT,
        },
    },
    "Run": {
        "running": {"status": "running", "usage": _ABSENT, "ended_at": _ABSENT},
        "waiting": {"status": "waiting", "usage": _ABSENT, "ended_at": _ABSENT},
        "cancelling": {"status": "cancelling", "usage": _ABSENT, "ended_at": _ABSENT},
        "completed": {},
        "failed": {
            "run_id": "run_17960500068000011",
            "origin": "background",
            "status": "failed",
            "reason": "guardrail",
            "error": {"code": "provider_rate_limited", "message": "The model's provider asks to wait."},
            "parent_run_id": "run_17960500001230003",
            "parent_tool_call_id": "tool_17960500031000006",
            "description": "Compare the backup folders",
        },
    },
    "ToolCall": {
        "running": {"status": "running", "ended_at": _ABSENT, "duration_ms": _ABSENT, "result_preview": _ABSENT},
        "completed": {},
        "failed": {
            "tool_call_id": "tool_17960500035000007",
            "parent_tool_call_id": "tool_17960500031000006",
            "status": "failed",
            "result_preview": _ABSENT,
            "error": {"code": "timed_out", "message": "The tool did not finish in time."},
        },
    },
}
"""How an object stands: what differs from its values above."""

_SHOWN: Final[dict[str, dict[str, str | tuple[str, ...]]]] = {
    "approval.requested": {"approval": "pending"},
    "approval.resolved": {"approval": "resolved"},
    "approval.respond.result": {"approval": "resolved"},
    "approval.updated": {"approval": "pending"},
    "attachment.created": {"attachment": "image"},
    "attachment.expired": {"attachment": "expired"},
    "batch": {"events": ("run.progress", "message.delta", "tool.started")},
    "clarification.requested": {"clarification": "pending"},
    "Clarification": {"choices": ("first", "second", "third")},
    "conversation.create.result": {"conversation": "new"},
    "conversation.created": {"conversation": "new"},
    "conversation.history.result": {
        "messages": ("delivered", "completed"),
        "runs": ("completed",),
        "tool_calls": ("completed",),
        "approvals": ("resolved",),
        "clarifications": ("resolved",),
    },
    "conversation.list.result": {"conversations": ("idle",)},
    "conversation.rename.result": {"conversation": "renamed"},
    "conversation.updated": {"conversation": "renamed"},
    "error": {"details": "limit"},
    "ErrorDetails": {"approval": "resolved"},
    "message.completed": {"message": "completed"},
    "message.created": {"message": "user"},
    "message.updated": {"message": "delivered"},
    "run.cancel.result": {"run": "cancelling"},
    "run.ended": {"run": "completed"},
    "run.started": {"run": "running"},
    "run.updated": {"run": "waiting"},
    "snapshot": {
        "runs": ("waiting",),
        "messages": ("streaming", "queued"),
        "tool_calls": ("running",),
        "approvals": ("pending",),
        "clarifications": ("pending",),
    },
    "tool.started": {"tool_call": "running"},
}
"""Which variant of an object a message (or another object) shows in a field; of a list, which items."""


def example(model: Metamodel, name: str, *, full: bool = True, variant: str = "") -> Json:
    """A valid example of a message or object by its class name, or the least that is valid."""
    return copy.deepcopy(_Builder(model, full).struct(name, variant))


def examples(model: Metamodel, *, full: bool = True) -> dict[str, Json]:
    """One example per message, by type tag, in the model's order."""
    builder = _Builder(model, full)
    found = {message["type"]: builder.struct(message["name"], "") for message in model["messages"]}
    # The tables' own lists and objects stay what they are, whatever is done with an example.
    return copy.deepcopy(found)


def variants(name: str) -> tuple[str, ...]:
    """The ways in which an object can be shown, by name; empty for one that is always shown alike."""
    return tuple(_VARIANTS.get(name, ()))


class _Builder:
    def __init__(self, model: Metamodel, full: bool) -> None:
        self._full = full
        self._structs = {struct["name"]: struct for struct in [*model["objects"], *model["messages"]]}
        self._names = {message["type"]: message["name"] for message in model["messages"]}
        self._enums = {str(enum["name"]) for enum in model["enums"]}
        self._limits = model["limits"]

    def struct(self, name: str, variant: str) -> Json:
        struct = self._structs[name]
        own = _VARIANTS[name][variant] if variant else {}
        found: Json = {"type": struct["type"]} if "type" in struct else {}
        for field in struct["fields"]:
            if field["optional"] and not self._full:
                continue
            value = self._value(struct, field, own)
            if value is not _ABSENT:
                found[field["name"]] = value
        return found

    def _value(self, struct: StructModel, field: FieldModel, own: dict[str, object]) -> object:
        name = field["name"]
        if name in own:
            return own[name]
        shown = _SHOWN.get(struct.get("type", struct["name"]), {}).get(name, "")
        place = f"{struct['name']}.{name}"
        if not self._full and place in _LEAST:
            return _LEAST[place]
        written = _OWN.get(place, _FIELDS.get(name))
        found = self._by_type(field["type"], shown, written)
        if found is None and name in self._limits:
            return self._limits[name]
        if found is None:
            place = "pheby_protocol/export/examples.py"
            raise UndescribedError(f"no example value for {struct['name']}.{name}: add it to {place}")
        return found

    def _by_type(self, kind: TypeModel, shown: str | tuple[str, ...], written: object) -> object:
        """The value for a type; None where the tables have none."""
        if kind["kind"] == "ref" and kind["name"] in self._structs:
            if isinstance(written, dict) or written is _ABSENT:
                return written
            return self.struct(kind["name"], shown if isinstance(shown, str) else "")
        if kind["kind"] == "array":
            return self._array(kind["items"], shown, written)
        if kind["kind"] in ("object", "map") and not self._full:
            return {}
        return written

    def _array(self, items: TypeModel, shown: str | tuple[str, ...], written: object) -> object:
        names = shown if isinstance(shown, tuple) else ("",)
        if items["kind"] == "event":
            return [self.struct(self._names[name], "") for name in names] if self._full else []
        if items["kind"] == "ref" and items["name"] in self._structs:
            return [self.struct(items["name"], name) for name in names] if self._full else []
        return written
