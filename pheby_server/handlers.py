"""What each request does: one small function per type, with the access mode that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

import attrs

from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import DeviceId, Index, Seq, Time
from pheby_protocol.messages import attachment, conversation, message, model, run
from pheby_protocol.messages._base import Request, Result
from pheby_protocol.messages.approval import ApprovalRespond, ApprovalRespondResult
from pheby_protocol.messages.clarification import (
    ClarificationAnswer,
    ClarificationRespond,
    ClarificationRespondResult,
)
from pheby_protocol.messages.connection import AccessMode, Ping, Pong
from pheby_protocol.messages.history import ConversationHistory, ConversationHistoryResult

from .approvals import ApprovalDesk
from .attachments import AttachmentDesk
from .boundary import RequestError
from .clarifications import ClarificationDesk
from .conversations import ConversationDesk
from .deletion import DeletionDesk
from .models import ModelDesk
from .ports import Clock, HermesFeatures
from .runs import RunDesk
from .transcript import Transcript

R = TypeVar("R", bound=Request)


class Desks(Protocol):
    """Where requests are dealt with."""

    conversations: ConversationDesk
    transcript: Transcript
    runs: RunDesk
    approvals: ApprovalDesk
    clarifications: ClarificationDesk
    deletions: DeletionDesk
    attachments: AttachmentDesk
    models: ModelDesk
    clock: Clock

    @property
    def features(self) -> HermesFeatures: ...

    @property
    def published_seq(self) -> Seq: ...


class Caller(Protocol):
    """Who asks."""

    access_mode: AccessMode
    device_id: DeviceId | None
    client_name: str


@attrs.frozen
class Handler:
    """How one type of request is answered, and for whom."""

    access: AccessMode
    answer: Callable[[Desks, Any, Caller], Awaitable[Result]]


_RANK: Final = {AccessMode.READ_ONLY: 0, AccessMode.MANAGE: 1, AccessMode.FULL: 2}
HANDLERS: Final[dict[type[Request], Handler]] = {}


def _handles(
    cls: type[R], access: AccessMode
) -> Callable[[Callable[[Desks, R, Caller], Awaitable[Result]]], Callable[[Desks, R, Caller], Awaitable[Result]]]:
    def register(
        answer: Callable[[Desks, R, Caller], Awaitable[Result]],
    ) -> Callable[[Desks, R, Caller], Awaitable[Result]]:
        HANDLERS[cls] = Handler(access, answer)
        return answer

    return register


async def answer(desks: Desks, caller: Caller, request: Request) -> Result:
    """The result of a request. Raises RequestError, or whatever went wrong."""
    handler = HANDLERS.get(type(request))
    if handler is None:
        raise RequestError(ErrorCode.UNKNOWN_TYPE)
    if _RANK.get(caller.access_mode, -1) < _RANK[handler.access]:
        raise RequestError(ErrorCode.FORBIDDEN)
    return await handler.answer(desks, request, caller)


@_handles(Ping, AccessMode.READ_ONLY)
async def _ping(desks: Desks, request: Ping, _: Caller) -> Result:
    return Pong(id=request.id, server_time=Time(desks.clock.now_ms()))


@_handles(conversation.ConversationList, AccessMode.READ_ONLY)
async def _list(desks: Desks, request: conversation.ConversationList, _: Caller) -> Result:
    if request.cursor is None:
        await desks.conversations.refresh()
    page, after = desks.conversations.page(request.limit, request.cursor)
    return conversation.ConversationListResult(
        id=request.id, conversations=page, next=after, as_of_seq=desks.published_seq
    )


@_handles(conversation.ConversationGet, AccessMode.READ_ONLY)
async def _get(desks: Desks, request: conversation.ConversationGet, _: Caller) -> Result:
    found = desks.conversations.get(request.conversation_id)
    return conversation.ConversationGetResult(id=request.id, conversation=found, as_of_seq=desks.published_seq)


@_handles(ConversationHistory, AccessMode.READ_ONLY)
async def _history(desks: Desks, request: ConversationHistory, _: Caller) -> Result:
    page = await desks.transcript.page(request.conversation_id, request.limit, request.before, request.after)
    return ConversationHistoryResult(
        id=request.id,
        conversation_id=request.conversation_id,
        messages=page.messages,
        tool_calls=page.tool_calls,
        runs=page.runs,
        approvals=page.approvals,
        clarifications=page.clarifications,
        before=page.before,
        after=page.after,
        has_more=page.has_more,
        history_id=page.history_id,
        as_of_seq=page.as_of_seq,
    )


@_handles(conversation.ConversationCreate, AccessMode.MANAGE)
async def _create(desks: Desks, request: conversation.ConversationCreate, _: Caller) -> Result:
    made = await desks.conversations.create(request.client_conversation_id, request.title)
    return conversation.ConversationCreateResult(id=request.id, conversation=made, as_of_seq=desks.published_seq)


@_handles(conversation.ConversationRename, AccessMode.MANAGE)
async def _rename(desks: Desks, request: conversation.ConversationRename, _: Caller) -> Result:
    renamed = await desks.conversations.rename(request.conversation_id, request.title)
    return conversation.ConversationRenameResult(id=request.id, conversation=renamed, as_of_seq=desks.published_seq)


@_handles(conversation.ConversationDelete, AccessMode.FULL)
async def _delete(desks: Desks, request: conversation.ConversationDelete, _: Caller) -> Result:
    await desks.deletions.delete(request.conversation_id)
    return conversation.ConversationDeleteResult(id=request.id)


@_handles(message.MessageSend, AccessMode.MANAGE)
async def _send(desks: Desks, request: message.MessageSend, _: Caller) -> Result:
    receipt = await desks.runs.send(request.conversation_id, request.client_message_id, request.text, request.if_busy)
    return message.MessageSendResult(id=request.id, receipt=receipt)


@_handles(run.RunCancel, AccessMode.MANAGE)
async def _cancel(desks: Desks, request: run.RunCancel, _: Caller) -> Result:
    cancelled = await desks.runs.cancel(request.run_id, request.client_message_id, drop_queued=request.drop_queued)
    return run.RunCancelResult(id=request.id, run=cancelled, as_of_seq=desks.published_seq)


@_handles(message.MessageReceipt, AccessMode.READ_ONLY)
async def _receipt(desks: Desks, request: message.MessageReceipt, _: Caller) -> Result:
    # Nothing is acknowledged that is not stored yet.
    await desks.runs.settled()
    return message.MessageReceiptResult(id=request.id, receipt=desks.runs.receipt(request.client_message_id))


@_handles(message.MessageText, AccessMode.READ_ONLY)
async def _text(desks: Desks, request: message.MessageText, _: Caller) -> Result:
    part, after, found = await desks.transcript.text(request.message_id, request.cursor)
    return message.MessageTextResult(
        id=request.id,
        text=part,
        next=after,
        index=found.index if found.index is not None else Index(-1),
        status=found.status,
    )


@_handles(ApprovalRespond, AccessMode.FULL)
async def _approve(desks: Desks, request: ApprovalRespond, caller: Caller) -> Result:
    decided = await desks.approvals.respond(
        request.approval_id, request.choice, request.reason, caller.device_id, caller.client_name
    )
    return ApprovalRespondResult(id=request.id, approval=decided, as_of_seq=desks.published_seq)


@_handles(ClarificationRespond, AccessMode.MANAGE)
async def _clarify(desks: Desks, request: ClarificationRespond, caller: Caller) -> Result:
    answer = ClarificationAnswer(choice_ids=request.choice_ids, text=request.text, skipped=request.skip)
    answered = await desks.clarifications.respond(
        request.clarification_id, answer, caller.device_id, caller.client_name
    )
    return ClarificationRespondResult(id=request.id, clarification=answered, as_of_seq=desks.published_seq)


@_handles(attachment.AttachmentGet, AccessMode.READ_ONLY)
async def _attachment(desks: Desks, request: attachment.AttachmentGet, _: Caller) -> Result:
    found = await desks.attachments.get(request.attachment_id)
    return attachment.AttachmentGetResult(id=request.id, attachment=found, as_of_seq=desks.published_seq)


@_handles(model.ModelList, AccessMode.READ_ONLY)
async def _list_models(desks: Desks, request: model.ModelList, _: Caller) -> Result:
    _must_offer(desks.features.models)
    offer = await desks.models.models(request.conversation_id)
    return model.ModelListResult(id=request.id, providers=offer.providers, current=offer.current)


@_handles(model.ModelSelect, AccessMode.FULL)
async def _select_model(desks: Desks, request: model.ModelSelect, _: Caller) -> Result:
    _must_offer(desks.features.models)
    choice = model.ModelChoice(provider=request.provider, model=request.model)
    current = await desks.models.select_model(request.conversation_id, choice)
    return model.ModelSelectResult(id=request.id, current=current)


@_handles(model.ReasoningList, AccessMode.READ_ONLY)
async def _list_efforts(desks: Desks, request: model.ReasoningList, _: Caller) -> Result:
    _must_offer(desks.features.reasoning)
    offer = await desks.models.efforts(request.conversation_id)
    return model.ReasoningListResult(id=request.id, efforts=offer.efforts, current=offer.current, known=offer.known)


@_handles(model.ReasoningSelect, AccessMode.FULL)
async def _select_effort(desks: Desks, request: model.ReasoningSelect, _: Caller) -> Result:
    _must_offer(desks.features.reasoning)
    current = await desks.models.select_effort(request.conversation_id, request.effort)
    return model.ReasoningSelectResult(id=request.id, current=current)


def _must_offer(offered: bool) -> None:
    if not offered:
        text = "This server does not offer that; see capabilities in welcome."
        raise RequestError(ErrorCode.UNAVAILABLE, text, retryable=False)
