"""Every message and object against the wire contract, sections 2 to 8: fields, examples, freedom to grow."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from pheby_protocol.codec import DecodeError, UnknownMessage, decode, encode
from pheby_protocol.messages.approval import Approval, ApprovalKind, DecidedBy, DecisionSource, PromptStatus
from pheby_protocol.messages.attachment import Attachment, ImageSize
from pheby_protocol.messages.clarification import Clarification, ClarificationAnswer, ClarificationChoice
from pheby_protocol.messages.connection import (
    AccessMode,
    Batch,
    ClientInfo,
    Cursor,
    Error,
    ErrorDetails,
    Limits,
    ServerInfo,
)
from pheby_protocol.messages.conversation import Conversation, TitleSource
from pheby_protocol.messages.message import Disposition, IfBusy, Message, MessageRole, Origin, Receipt
from pheby_protocol.messages.model import Model, ModelChoice, Provider
from pheby_protocol.messages.run import Run, RunError, RunErrorCode, RunReason, Usage
from pheby_protocol.messages.tool import ToolCall, ToolError
from pheby_protocol.open_enum import OpenEnum
from pheby_protocol.registry import REGISTRY, Kind
from pheby_protocol.states import AttachmentState, MessageState, ReceiptState, RunState, ToolCallState

from .examples import (
    ALL_CLASSES,
    MAXIMAL,
    MINIMAL,
    TYPES,
    changed,
    frame_of,
    is_required,
    places,
    text_of,
    without,
    words,
)

# A field with ? may be absent.
MESSAGE_FIELDS = {
    "hello": "id protocol_versions client capabilities? resume?",
    "welcome": """id protocol_version connection_id server server_time capabilities access_mode limits heartbeat_ms
        schema_digest epoch seq resumed receipts_since""",
    "snapshot": """part last seq conversations conversations_next? runs messages tool_calls approvals
        clarifications""",
    "sync.completed": "seq",
    "batch": "events",
    "ping": "id",
    "pong": "id server_time",
    "error": "id? code message retryable retry_after_ms? details?",
    "server.draining": "reconnect_after_ms",
    "conversation.list": "id limit? cursor?",
    "conversation.list.result": "id conversations next? as_of_seq",
    "conversation.get": "id conversation_id",
    "conversation.get.result": "id conversation as_of_seq",
    "conversation.history": "id conversation_id limit? before? after?",
    "conversation.history.result": """id messages tool_calls runs approvals clarifications before? after? has_more
        as_of_seq""",
    "conversation.create": "id client_conversation_id title?",
    "conversation.create.result": "id conversation as_of_seq",
    "conversation.rename": "id conversation_id title",
    "conversation.rename.result": "id conversation as_of_seq",
    "conversation.delete": "id conversation_id",
    "conversation.delete.result": "id",
    "conversation.created": "seq time conversation_id conversation",
    "conversation.updated": "seq time conversation_id conversation",
    "conversation.deleted": "seq time conversation_id",
    "history.changed": "seq time conversation_id history_id history_head from_position",
    "message.send": "id conversation_id client_message_id text if_busy?",
    "message.send.result": "id receipt",
    "message.receipt": "id client_message_id",
    "message.receipt.result": "id receipt",
    "message.text": "id message_id cursor?",
    "message.text.result": "id text next? index status",
    "message.created": "seq time conversation_id message",
    "message.updated": "seq time conversation_id message",
    "message.completed": "seq time conversation_id message",
    "message.delta": "conversation_id run_id? message_id index last_index? text",
    "message.replaced": "conversation_id run_id? message_id index text",
    "run.cancel": "id run_id? client_message_id? drop_queued?",
    "run.cancel.result": "id run",
    "run.started": "seq time conversation_id run",
    "run.updated": "seq time conversation_id run",
    "run.ended": "seq time conversation_id run",
    "run.progress": "conversation_id run_id text",
    "tool.started": "seq time conversation_id tool_call",
    "tool.completed": "seq time conversation_id tool_call",
    "approval.respond": "id approval_id choice reason?",
    "approval.respond.result": "id approval",
    "approval.requested": "seq time conversation_id approval",
    "approval.updated": "seq time conversation_id approval",
    "approval.resolved": "seq time conversation_id approval",
    "clarification.respond": "id clarification_id choice_ids? text? skip?",
    "clarification.respond.result": "id clarification",
    "clarification.requested": "seq time conversation_id clarification",
    "clarification.resolved": "seq time conversation_id clarification",
    "attachment.get": "id attachment_id",
    "attachment.get.result": "id attachment",
    "attachment.created": "seq time conversation_id attachment",
    "attachment.expired": "seq time conversation_id attachment",
    "model.list": "id conversation_id",
    "model.list.result": "id providers current",
    "model.select": "id conversation_id provider model",
    "model.select.result": "id current",
    "reasoning.list": "id conversation_id",
    "reasoning.list.result": "id efforts current? known",
    "reasoning.select": "id conversation_id effort",
    "reasoning.select.result": "id current",
    "model.changed": "seq time conversation_id current",
    "reasoning.changed": "seq time conversation_id current",
}

OBJECT_FIELDS: dict[type[Any], str] = {
    ClientInfo: "name version device_id",
    ServerInfo: "name version hermes_version",
    Cursor: "epoch seq",
    Limits: """max_frame_bytes max_server_frame_bytes max_text_chars max_list_limit max_history_limit
        max_pending_requests""",
    ErrorDetails: "supported? conversation_id? receipt? approval? clarification? choices? efforts? limit?",
    Conversation: """conversation_id client_conversation_id? title title_source created_at updated_at last_activity_at
        last_message_preview? active_run_id? history_id history_head model? reasoning_effort?""",
    Message: """message_id conversation_id position? role origin status text text_truncated index? interim? final?
        run_id? client_message_id? delivery? attachments created_at completed_at?""",
    Run: """run_id conversation_id origin status reason? error? usage? parent_run_id? parent_tool_call_id?
        created_at started_at? ended_at?""",
    RunError: "code message",
    Usage: "input_tokens? output_tokens? total_tokens?",
    ToolCall: """tool_call_id hermes_call_id? parent_tool_call_id? conversation_id run_id position name description?
        arguments arguments_truncated status started_at ended_at? duration_ms? result_preview? truncated error?""",
    ToolError: "code message",
    Approval: """approval_id kind conversation_id run_id? tool_call_id? position description command command_truncated
        pattern? choices answerable status decision? decided_by? created_at expires_at?""",
    DecidedBy: "kind device_id? client_name?",
    Clarification: """clarification_id conversation_id run_id? tool_call_id? position question choices multiple
        free_text skippable status answer? answered_by? created_at expires_at?""",
    ClarificationChoice: "choice_id label",
    ClarificationAnswer: "choice_ids text? skipped?",
    Attachment: """attachment_id conversation_id message_id file_name media_type size sha256 inline_image image? status
        created_at expires_at path""",
    ImageSize: "width height",
    Receipt: "client_message_id message_id conversation_id disposition state run_id duplicate",
    Provider: "provider name models",
    Model: "model name context_length? efforts?",
    ModelChoice: "provider model",
}

ENUM_VALUES: dict[type[Any], str] = {
    AccessMode: "full manage read_only",
    TitleSource: "none generated manual",
    MessageRole: "user assistant notice",
    Origin: "chat cron background system",
    MessageState: "queued streaming completed failed cancelled",
    RunState: "queued running waiting cancelling completed failed cancelled",
    RunReason: "requested superseded deleted shutdown max_iterations guardrail",
    RunErrorCode: """provider_error provider_auth provider_rate_limited empty_response context_overflow
        interrupted_by_restart timed_out internal""",
    ToolCallState: "running completed failed cancelled",
    ApprovalKind: "command confirmation",
    PromptStatus: "pending resolved expired cancelled",
    DecisionSource: "device timeout run_end other_surface",
    AttachmentState: "available expired",
    Disposition: "started queued steered interrupted",
    ReceiptState: "admitted dispatched done expired indeterminate",
    IfBusy: "queue steer interrupt reject",
}

CLOSED_ENUMS = {IfBusy}


def assert_fields(cls: type[Any], documented: str) -> None:
    fields = attrs.fields_dict(cls)
    for word in words(documented):
        name = word.removesuffix("?")
        assert name in fields, name
        assert is_required(cls, name) != word.endswith("?"), name


# -- fields


@pytest.mark.parametrize(("tag", "documented"), MESSAGE_FIELDS.items(), ids=str)
def test_a_message_has_the_fields_of_the_contract(tag: str, documented: str) -> None:
    assert_fields(REGISTRY[tag].cls, documented)


@pytest.mark.parametrize(("cls", "documented"), OBJECT_FIELDS.items(), ids=lambda part: getattr(part, "__name__", ""))
def test_an_object_has_the_fields_of_the_contract(cls: type[Any], documented: str) -> None:
    assert_fields(cls, documented)


@pytest.mark.parametrize(("cls", "documented"), ENUM_VALUES.items(), ids=lambda part: getattr(part, "__name__", ""))
def test_an_enumeration_has_the_values_of_the_contract(cls: type[Any], documented: str) -> None:
    assert {member.value for member in cls} >= set(words(documented))


def test_every_message_has_its_fields_written_here() -> None:
    assert set(MESSAGE_FIELDS) == set(TYPES)


def test_every_enumeration_is_open_but_what_a_client_asks_for() -> None:
    """M10. A server cannot do what it does not know; a receiver of anything else keeps what it does not know."""
    closed = {kind for kind in ALL_CLASSES if not attrs.has(kind) and not issubclass(kind, OpenEnum)}
    assert closed == CLOSED_ENUMS


def test_a_send_is_queued_unless_it_says_otherwise() -> None:
    assert MINIMAL["message.send"].if_busy is IfBusy.QUEUE  # type: ignore[attr-defined]


def test_a_cancel_keeps_what_is_queued_unless_it_says_otherwise() -> None:
    assert MINIMAL["run.cancel"].drop_queued is False  # type: ignore[attr-defined]


@pytest.mark.parametrize("tag", [tag for tag in TYPES if REGISTRY[tag].kind is Kind.LOGGED_EVENT])
def test_a_logged_event_carries_the_whole_object_under_its_noun(tag: str) -> None:
    noun = {"tool": "tool_call"}.get(tag.partition(".")[0], tag.partition(".")[0])
    if tag in ("conversation.deleted", "history.changed"):
        expected: set[str] = set()
    else:
        expected = {"current"} if noun in ("model", "reasoning") else {noun}
    objects = {"conversation", "message", "run", "tool_call", "approval", "clarification", "attachment", "current"}
    assert attrs.fields_dict(REGISTRY[tag].cls).keys() & objects == expected


@pytest.mark.parametrize(
    "tag",
    [
        tag
        for tag in TYPES
        if REGISTRY[tag].kind is Kind.RESULT
        and {"conversation", "conversations", "messages", "run", "approval", "clarification", "attachment"}
        & attrs.fields_dict(REGISTRY[tag].cls).keys()
    ],
)
def test_a_result_that_carries_objects_says_as_of_when(tag: str) -> None:
    assert is_required(REGISTRY[tag].cls, "as_of_seq")


# -- examples: any new message is covered by being in the registry


@pytest.mark.parametrize("tag", TYPES)
def test_a_minimal_example_comes_back_as_it_was(tag: str) -> None:
    assert decode(encode(MINIMAL[tag])) == MINIMAL[tag]


@pytest.mark.parametrize("tag", TYPES)
def test_a_maximal_example_comes_back_as_it_was(tag: str) -> None:
    assert decode(encode(MAXIMAL[tag])) == MAXIMAL[tag]


@pytest.mark.parametrize("tag", TYPES)
@pytest.mark.parametrize("examples", [MINIMAL, MAXIMAL], ids=["minimal", "maximal"])
def test_an_example_is_written_as_the_contract_says(tag: str, examples: dict[str, Any]) -> None:
    """Against JSON written without the codec: the type tag first, absent fields left out, enumerations as text."""
    frame = json.loads(encode(examples[tag]))
    assert frame == frame_of(examples[tag])
    assert next(iter(frame)) == "type"
    assert None not in frame.values()


@pytest.mark.parametrize("tag", TYPES)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_an_example_is_read_however_its_text_is_escaped(tag: str, ascii_only: bool) -> None:
    assert decode(json.dumps(frame_of(MAXIMAL[tag]), ensure_ascii=ascii_only, indent=1)) == MAXIMAL[tag]


@pytest.mark.parametrize("tag", TYPES)
def test_the_order_of_fields_does_not_matter(tag: str) -> None:
    frame = frame_of(MAXIMAL[tag])
    assert decode(text_of(dict(reversed(frame.items())))) == MAXIMAL[tag]


@pytest.mark.parametrize("tag", TYPES)
def test_a_maximal_example_leaves_no_field_out(tag: str) -> None:
    """Else the tests here would hold less than they say."""
    assert frame_of(MAXIMAL[tag]).keys() == {"type", *attrs.fields_dict(REGISTRY[tag].cls)}
    assert frame_of(MINIMAL[tag]).keys() == {"type"} | {
        name for name in attrs.fields_dict(REGISTRY[tag].cls) if is_required(REGISTRY[tag].cls, name)
    }


# -- growth


def with_null_for_absent(cls: type[Any], frame: dict[str, Any]) -> dict[str, Any]:
    return {name: None for name in attrs.fields_dict(cls) if not is_required(cls, name)} | frame


@pytest.mark.parametrize("tag", TYPES)
def test_null_is_absent(tag: str) -> None:
    """M12."""
    assert decode(text_of(with_null_for_absent(REGISTRY[tag].cls, frame_of(MINIMAL[tag])))) == MINIMAL[tag]


@pytest.mark.parametrize("tag", TYPES)
def test_null_is_absent_at_every_depth(tag: str) -> None:
    """M12. Each optional field of the maximal example in turn, once null and once left out."""
    frame = frame_of(MAXIMAL[tag])
    for place in places(REGISTRY[tag].cls, frame):
        if place.is_field and not place.required:
            absent = without(frame, place.path)
            null = changed(frame, place.path, None)
            assert decode(text_of(null)) == decode(text_of(absent)) != MAXIMAL[tag], place.written


FUTURE = {"future": {"nested": [1, None, "x"]}, "": None, "x" * 1000: 1, "__class__": "x", "self": 1, "Type": "hello"}


def grown(value: Any) -> Any:
    """With fields that nobody knows in every object, apart from those that hold any JSON."""
    if isinstance(value, list):
        return [grown(item) for item in value]
    if isinstance(value, dict):
        return FUTURE | {
            name: item if name in ("arguments", "capabilities") else grown(item) for name, item in value.items()
        }
    return value


@pytest.mark.parametrize("tag", TYPES)
def test_unknown_fields_are_ignored_at_every_level(tag: str) -> None:
    """M9."""
    assert decode(text_of(grown(frame_of(MAXIMAL[tag])))) == MAXIMAL[tag]


@pytest.mark.parametrize("tag", TYPES)
def test_unknown_enum_values_are_kept_at_every_level(tag: str) -> None:
    """M10."""
    frame = frame_of(MAXIMAL[tag])
    for place in places(REGISTRY[tag].cls, frame):
        if isinstance(place.kind, type) and issubclass(place.kind, OpenEnum):
            future = changed(frame, place.path, "future-value")
            message = decode(text_of(future))
            found: Any = message
            for step in place.path:
                found = found[step] if isinstance(step, int) else getattr(found, step)
            assert (found, found.known, type(found)) == ("future-value", False, place.kind)
            assert json.loads(encode(message)) == future


def test_an_unknown_event_in_a_batch_is_kept_beside_the_known_ones() -> None:
    """M9."""
    known = MAXIMAL["message.created"]
    future = {"type": "future.x", "seq": 9, "anything": {"at": ["all", None]}}
    batch = decode(text_of({"type": "batch", "events": [future, frame_of(known)]}))
    assert batch == Batch(events=(UnknownMessage("future.x", future), known))  # type: ignore[arg-type]
    assert json.loads(encode(batch))["events"] == [future, frame_of(known)]


@pytest.mark.parametrize("tag", TYPES)
def test_a_batch_holds_events_and_nothing_else(tag: str) -> None:
    text = text_of({"type": "batch", "events": [frame_of(MINIMAL[tag])]})
    if REGISTRY[tag].kind in (Kind.LOGGED_EVENT, Kind.TRANSIENT_EVENT):
        assert decode(text) == Batch(events=(MINIMAL[tag],))  # type: ignore[arg-type]
    else:
        with pytest.raises(DecodeError, match=r"\$\.events\[0\]: expected an event"):
            decode(text)


def test_an_error_without_an_id_is_about_no_request() -> None:
    found = decode('{"type":"error","code":"internal","message":"m","retryable":true}')
    assert isinstance(found, Error)
    assert (found.id, found.details, found.retry_after_ms) == (None, None, None)


def test_tool_arguments_are_kept_as_they_are() -> None:
    """Null inside is content, not an absent field."""
    arguments = {"a": None, "b": [None, {"c": None}], "n": 1.0, "i": 1}
    frame = frame_of(MINIMAL["tool.started"])
    frame["tool_call"]["arguments"] = arguments
    message = decode(text_of(frame))
    assert message.tool_call.arguments == arguments  # type: ignore[union-attr]
    assert '"n":1.0,"i":1' in encode(message)


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        MINIMAL["ping"].id = "2"  # type: ignore[attr-defined]
