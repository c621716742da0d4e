"""The desk for clarifications: an answer that fits reaches exactly the question that it answers, once."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from pheby_protocol.errors import ErrorCode
from pheby_protocol.ids import ChoiceId, ClarificationId, ConversationId, Count, DeviceId, RunId, Time
from pheby_protocol.messages.approval import DecidedBy, DecisionSource, PromptStatus
from pheby_protocol.messages.clarification import (
    Clarification,
    ClarificationAnswer,
    ClarificationChoice,
    ClarificationRequested,
    ClarificationResolved,
)
from pheby_protocol.messages.connection import ErrorDetails
from pheby_protocol.states import CLARIFICATION, ClarificationEvent

from .boundary import RequestError, sendable
from .ports import ClarificationPrompt
from .prompts import OpenPrompt, PromptDesk
from .sequencer import Change
from .stores import Statement, read_clarification, read_open_clarifications, save_clarification

MAX_ANSWER_CHARS: Final = 10_000


class ClarificationDesk(PromptDesk[Clarification, ClarificationAnswer]):
    """Open clarifications."""

    table = CLARIFICATION

    def requested(self, conversation_id: ConversationId, run_id: RunId | None, prompt: ClarificationPrompt) -> Change:
        """Hermes asks. `prompt.key` is its name for the question."""
        clarification = Clarification(
            clarification_id=ClarificationId(f"clar_{self._ids.token()}"),
            conversation_id=conversation_id,
            run_id=run_id,
            tool_call_id=self._tool_call(run_id, prompt.call_id),
            position=self._places.next_position(conversation_id),
            question=sendable(prompt.question),
            choices=tuple(
                ClarificationChoice(choice_id=ChoiceId(f"choice_{number}"), label=sendable(label))
                for number, label in enumerate(prompt.labels, 1)
            ),
            multiple=prompt.multiple,
            free_text=prompt.free_text,
            skippable=prompt.skippable,
            status=PromptStatus.PENDING,
            created_at=Time(self._clock.now_ms()),
            expires_at=None if prompt.expires_at is None else Time(prompt.expires_at),
        )
        self._open[clarification.clarification_id] = OpenPrompt(prompt.key, CLARIFICATION.initial, clarification)
        event = partial(ClarificationRequested, conversation_id=conversation_id, clarification=clarification)
        change = Change((event,), (save_clarification(clarification),))
        return change + self._conversations.item_added(conversation_id, clarification.position)

    def closed(self, key: str, by: DecisionSource) -> Change:
        """Hermes's own word that a question is over without an answer of ours."""
        entry = self._named(key)
        if entry is None:
            return Change()
        event = ClarificationEvent.EXPIRE if by is DecisionSource.TIMEOUT else ClarificationEvent.CANCEL
        return self._close(entry, event, None, DecidedBy(kind=by))

    async def respond(
        self,
        clarification_id: ClarificationId,
        answer: ClarificationAnswer,
        device_id: DeviceId | None,
        client_name: str,
    ) -> Clarification:
        """Answer one clarification. Raises RequestError."""
        if len(answer.text or "") > MAX_ANSWER_CHARS:
            raise RequestError(
                ErrorCode.TOO_LARGE,
                f"An answer has at most {MAX_ANSWER_CHARS} characters.",
                details=ErrorDetails(limit=Count(MAX_ANSWER_CHARS)),
            )
        return await self._respond(clarification_id, answer, device_id, client_name)

    # For PromptDesk

    def _read_open(self) -> Statement[list[Clarification]]:
        return read_open_clarifications()

    def _id(self, prompt: Clarification) -> str:
        return prompt.clarification_id

    def _read(self, prompt_id: str) -> Statement[Clarification | None]:
        return read_clarification(ClarificationId(prompt_id))

    def _details(self, prompt: Clarification) -> ErrorDetails:
        return ErrorDetails(clarification=prompt)

    def _check(self, prompt: Clarification, answer: ClarificationAnswer) -> None:
        problem = _problem(prompt, answer)
        if problem is not None:
            ids = tuple(choice.choice_id for choice in prompt.choices)
            details = ErrorDetails(choices=ids, clarification=prompt)
            raise RequestError(ErrorCode.INVALID_CHOICE, problem, details=details)

    async def _tell_hermes(self, entry: OpenPrompt[Clarification], answer: ClarificationAnswer) -> bool:
        numbers = {choice.choice_id: number for number, choice in enumerate(entry.prompt.choices)}
        chosen = tuple(numbers[choice_id] for choice_id in answer.choice_ids)
        text = None if answer.text is None else answer.text.strip()
        conversation_id = entry.prompt.conversation_id
        return await self._port.resolve_clarification(conversation_id, entry.key, chosen, text, skip=answer.skipped)

    def _ended(
        self, prompt: Clarification, status: PromptStatus, answer: ClarificationAnswer | None, by: DecidedBy
    ) -> Clarification:
        return attrs.evolve(prompt, status=status, answer=answer, answered_by=by)

    def _is_answer_of(self, prompt: Clarification, answer: ClarificationAnswer, device_id: DeviceId | None) -> bool:
        mine = prompt.answered_by is not None and prompt.answered_by.device_id == device_id
        return mine and prompt.answer == answer

    def _announce_end(self, prompt: Clarification) -> Change:
        event = partial(ClarificationResolved, conversation_id=prompt.conversation_id, clarification=prompt)
        return Change((event,), (save_clarification(prompt),))


def _problem(prompt: Clarification, answer: ClarificationAnswer) -> str | None:
    """Why an answer does not fit the question; None: it does."""
    chosen, text = answer.choice_ids, answer.text
    known = {choice.choice_id for choice in prompt.choices}
    if answer.skipped:
        if not prompt.skippable:
            return "This question cannot be skipped."
        return "A skipped question has no answer." if chosen or text is not None else None
    if text is not None and not prompt.free_text:
        return "This question is answered by its choices."
    if text is not None and (not text.strip() or "\0" in text):
        return "The text is empty, or not a text."
    if len(set(chosen)) < len(chosen) or not known.issuperset(chosen):
        return "Each choice is one of the question's, and named once."
    if not chosen and text is None:
        return "There is no answer."
    if not prompt.multiple and len(chosen) + (text is not None) > 1:
        return "This question takes one answer."
    return None
