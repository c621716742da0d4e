"""Sees every event on its way to the clients: what is worth a line in the log, and what is counted."""

from __future__ import annotations

from typing import Any

from pheby_protocol.messages._base import Event, LoggedEvent
from pheby_protocol.messages.approval import Approval, ApprovalRequested, ApprovalResolved
from pheby_protocol.messages.attachment import Attachment, AttachmentCreated, AttachmentExpired
from pheby_protocol.messages.clarification import Clarification, ClarificationRequested, ClarificationResolved
from pheby_protocol.messages.conversation import ConversationCreated, ConversationDeleted
from pheby_protocol.messages.message import Message, MessageCreated, MessageRole
from pheby_protocol.messages.run import Run, RunEnded, RunStarted
from pheby_protocol.messages.tool import ToolCompleted, ToolStarted
from pheby_protocol.states import RunState

from .logs import log_of
from .metrics import Metrics

log = log_of(__name__)


def observe(event: Event, metrics: Metrics) -> None:
    """Take notice of one event; nothing of its content is logged."""
    metrics.events += isinstance(event, LoggedEvent)
    match event:
        case MessageCreated(message=message) if message.role is MessageRole.USER:
            log.info("send.admitted", extra=_send(message))
        case RunStarted(run=run):
            log.info("run.started", extra=_run(run))
        case RunEnded(run=run):
            _run_ended(run, metrics)
        case ToolStarted(tool_call=call):
            log.debug("tool.started", extra={"tool_call_id": call.tool_call_id, "run_id": call.run_id})
        case ToolCompleted(tool_call=call):
            log.debug("tool.ended", extra={"tool_call_id": call.tool_call_id, "status": call.status.value})
        case ApprovalRequested(approval=approval):
            log.info("approval.requested", extra=_approval(approval))
        case ApprovalResolved(approval=approval):
            log.info("approval.resolved", extra=_approval(approval) | _end(approval))
        case ClarificationRequested(clarification=clarification):
            log.info("clarification.requested", extra=_clarification(clarification))
        case ClarificationResolved(clarification=clarification):
            log.info("clarification.resolved", extra=_clarification(clarification) | _end(clarification))
        case AttachmentCreated(attachment=attachment):
            metrics.attachments["created"] += 1
            log.info("attachment.created", extra=_attachment(attachment))
        case AttachmentExpired(attachment=attachment):
            metrics.attachments["expired"] += 1
            log.info("attachment.expired", extra={"attachment_id": attachment.attachment_id})
        case ConversationCreated(conversation=conversation):
            log.info("conversation.created", extra={"conversation_id": conversation.conversation_id})
        case ConversationDeleted():
            log.info("conversation.deleted", extra={"conversation_id": event.conversation_id})


def _run_ended(run: Run, metrics: Metrics) -> None:
    metrics.runs[run.status.value] += 1
    about = _run(run) | {"status": run.status.value, "reason": None if run.reason is None else run.reason.value}
    if run.status is RunState.FAILED:
        log.warning("run.ended", extra=about | {"error": None if run.error is None else run.error.code.value})
    else:
        log.info("run.ended", extra=about)


def _send(message: Message) -> dict[str, Any]:
    return {
        "conversation_id": message.conversation_id,
        "message_id": message.message_id,
        "run_id": message.run_id,
    }


def _attachment(attachment: Attachment) -> dict[str, Any]:
    return {
        "attachment_id": attachment.attachment_id,
        "conversation_id": attachment.conversation_id,
        "bytes": attachment.size,
    }


def _run(run: Run) -> dict[str, Any]:
    return {"run_id": run.run_id, "conversation_id": run.conversation_id, "origin": run.origin.value}


def _approval(approval: Approval) -> dict[str, Any]:
    return {"approval_id": approval.approval_id, "conversation_id": approval.conversation_id, "run_id": approval.run_id}


def _clarification(prompt: Clarification) -> dict[str, Any]:
    return {
        "clarification_id": prompt.clarification_id,
        "conversation_id": prompt.conversation_id,
        "run_id": prompt.run_id,
    }


def _end(prompt: Approval | Clarification) -> dict[str, Any]:
    by = prompt.decided_by if isinstance(prompt, Approval) else prompt.answered_by
    return {"status": prompt.status.value, "by": None if by is None else by.kind.value}
