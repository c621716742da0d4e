"""A chat in the terminal: streams answers, shows what the agent does, survives a lost connection."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pheby_protocol.ids import ConversationId, MessageId, RunId
from pheby_protocol.messages.approval import Approval, ApprovalRequested, ApprovalResolved, ApprovalUpdated
from pheby_protocol.messages.attachment import Attachment, AttachmentCreated
from pheby_protocol.messages.clarification import Clarification, ClarificationRequested, ClarificationResolved
from pheby_protocol.messages.connection import Snapshot
from pheby_protocol.messages.conversation import Conversation, ConversationUpdated
from pheby_protocol.messages.message import (
    IfBusy,
    Message,
    MessageCompleted,
    MessageCreated,
    MessageDelta,
    MessageReplaced,
    MessageRole,
)
from pheby_protocol.messages.model import ModelChoice
from pheby_protocol.messages.run import RunEnded, RunProgress, RunStarted
from pheby_protocol.messages.tool import ToolCompleted, ToolStarted
from pheby_protocol.states import AttachmentState, MessageState, RunState, ToolCallState

from .client import (
    AuthenticationError,
    Client,
    Connected,
    ConnectionLostError,
    Disconnected,
    Happening,
    RequestFailedError,
    SendInDoubtError,
)
from .download import DownloadError, free_name
from .terminal import PlainTerminal, Terminal, open_terminal

HELP: Final = """\
Type a message and press Enter. These words are for the chat itself; any other text goes to the agent as it is:
  /new [TITLE]   a new conversation      /list     your conversations
  /open NUMBER   open one of the list    /history  what was said here
  /title TITLE   rename this one         /delete yes   delete this one, everywhere and for good
  /steer TEXT    for what runs here, behind the tool that it is using
  /approve NUMBER CHOICE   decide what is asked, e.g. /approve 1 deny
  /answer NUMBER ANSWER    answer a question: by choices (2, or 1,3), in your own words, or skip
  /save NUMBER [FILE]      keep a file of the agent, e.g. /save 1
  /model [CHOICE]   the models for this conversation; choose one by number or name
  /effort [CHOICE]  the same for the reasoning effort
  /cancel        cancel what runs here
  /help          this text               /quit     leave (Ctrl-D, too)"""


START_SECONDS: Final = 10.0
"""So long the chat waits for the server at its start; later it comes back however long that takes."""

_TROUBLE = (AuthenticationError, ConnectionLostError, RequestFailedError, TimeoutError)
_CONTROL = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "�")
"""A model's text may hold sequences that a terminal obeys."""


Prompt = Approval | Clarification


class Screen:
    """What is shown of one conversation, written as it comes."""

    def __init__(self, terminal: Terminal, conversation: Conversation, *, chatty: bool = True) -> None:
        self._terminal = terminal
        self._chatty = chatty
        """Whether to say that the agent works."""
        self.conversation = conversation
        self._writing: MessageId | None = None
        self._shown = ""
        """So much of the message that is being written has been seen."""
        self._growing = ""
        """The unfinished line at its end."""
        self._interrupted: dict[MessageId, str] = {}
        """What was shown of a message before something else was; shown again as a whole if more comes."""
        self._seen: set[MessageId] = set()
        """Messages that were shown to their end."""
        self.prompts: dict[int, Prompt] = {}
        """What was asked, in any conversation, by number; a number means one question for ever."""
        self._last_number = 0
        self.files: list[Attachment] = []
        """The files that were shown, in the order of their numbers from 1."""
        self._still_asked: set[str] = set()
        """Prompts that the parts of a snapshot name."""
        self._away = False
        self._unanswered: set[RunId] = set()
        self._still_open: set[RunId] = set()
        """Runs that the parts of a snapshot name."""
        self._answered = asyncio.Event()
        self._answered.set()

    @property
    def away(self) -> bool:
        """Whether the connection is gone."""
        return self._away

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._unanswered)

    def asked(self, run_id: RunId) -> None:
        """A message was sent; its answer is to come."""
        self._unanswered.add(run_id)
        self._answered.clear()

    async def answered(self) -> None:
        """Returns when every message that was sent has its answer."""
        await self._answered.wait()

    def open(self, conversation: Conversation) -> None:
        """Show another conversation from now on."""
        self.conversation = conversation
        self.line(f"-- {_title(conversation)} --")
        for number, prompt in self.prompts.items():
            self._show_prompt(number, prompt)

    def line(self, text: str) -> None:
        """One line of its own."""
        self._stop_writing()
        self._terminal.line(text.translate(_CONTROL))

    def catch_up(self, messages: Iterable[Message]) -> None:
        """Show what was said while the connection was gone."""
        for message in messages:
            if message.role is not MessageRole.USER and message.message_id not in self._seen:
                self._write_whole(message)

    def already(self, message: Message, mark: str) -> None:
        """Show a message of the history."""
        self.line(f"{_speaker(message)}: {message.text}{mark}")
        self._seen.add(message.message_id)
        for file in message.attachments:
            self._show_file(file)

    def _show_file(self, file: Attachment) -> None:
        known = [found.attachment_id for found in self.files]
        if file.attachment_id not in known:
            self.files.append(file)
            known.append(file.attachment_id)
        number = known.index(file.attachment_id) + 1
        picture = f", {file.image.width} x {file.image.height}" if file.image is not None else ""
        kept = "expired" if file.status is AttachmentState.EXPIRED else f"/save {number}"
        self.line(f"📎 {number} {file.file_name} ({_bytes(file.size)}, {file.media_type}{picture})  {kept}")

    def _write_whole(self, message: Message) -> None:
        self._become(message.message_id, message.text)
        self._stop_writing()
        self._interrupted.pop(message.message_id, None)
        self._seen.add(message.message_id)

    def _ended(self, runs: set[RunId]) -> None:
        self._unanswered -= runs
        if not self._unanswered:
            self._answered.set()

    def show(self, happening: Happening) -> None:
        """Show what happened, where it belongs to this conversation."""
        match happening:
            case RunEnded(run=run):
                self._ended({run.run_id})
            case Disconnected(final=True):
                self._ended(set(self._unanswered))
            case Snapshot():
                self._take_snapshot(happening)
            case ApprovalRequested(approval=prompt) | ApprovalUpdated(approval=prompt):
                self._asked_for(prompt)
            case ClarificationRequested(clarification=question):
                self._asked_for(question)
            case ApprovalResolved(approval=prompt):
                self._over(prompt, f"{prompt.decision or prompt.status}: {prompt.command}")
            case ClarificationResolved(clarification=question):
                self._over(question, f"{_answer(question)}: {question.question}")
            case _:
                pass
        match happening:
            case Disconnected(final=False):
                self._away = True
                self.line("… connection lost, trying again")
            case Disconnected():
                self.line("… disconnected")
            case Connected() if self._away:
                self._away = False
                self.line("… connected again")
            case _ if getattr(happening, "conversation_id", None) != self.conversation.conversation_id:
                pass
            case ConversationUpdated(conversation=conversation):
                self.conversation = conversation
            case MessageCreated(message=message):
                self._created(message)
            case MessageDelta(message_id=message_id, text=text):
                self._append(message_id, text)
            case MessageReplaced(message_id=message_id, text=text):
                self._become(message_id, text)
            case MessageCompleted(message=message):
                self._write_whole(message)
            case RunProgress(text=text):
                self.line(f"… {text}")
            case AttachmentCreated(attachment=file):
                self._show_file(file)
            case ToolStarted(tool_call=call):
                self.line(f"⚙ {call.name}: {call.description}" if call.description else f"⚙ {call.name}")
            case ToolCompleted(tool_call=call) if call.status is not ToolCallState.COMPLETED:
                self.line(f"⚙ {call.name}: {call.status}")
            case RunStarted(run=run) if run.parent_run_id is not None:
                self.line(f"⚙ subagent: {run.description}" if run.description else "⚙ subagent")
            case RunEnded(run=run) if run.parent_run_id is not None:
                self.line(f"⚙ subagent: {run.status}")
            case RunStarted() if self._chatty:
                self.line("… working")
            case RunEnded(run=run) if run.status is RunState.FAILED:
                self.line(f"! {run.error.message if run.error else 'The run failed.'}")
            case RunEnded(run=run) if run.status is RunState.CANCELLED:
                self.line("… cancelled")
            case _:
                pass

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.part == 0:
            self._still_asked = set()
        prompts: tuple[Prompt, ...] = (*snapshot.approvals, *snapshot.clarifications)
        for prompt in prompts:
            self._still_asked.add(_id(prompt))
            self._asked_for(prompt)
        if snapshot.last:
            # What was answered while the connection was gone is not told again.
            self.prompts = {number: asked for number, asked in self.prompts.items() if _id(asked) in self._still_asked}
        if not self._away:
            return
        self._still_open = ({*self._still_open} if snapshot.part else set()) | {run.run_id for run in snapshot.runs}
        if snapshot.last:
            # What ended while the connection was gone is not told again.
            self._ended(self._unanswered - self._still_open)

    def _number(self, prompt: Prompt) -> int | None:
        return next((number for number, known in self.prompts.items() if _id(known) == _id(prompt)), None)

    def _asked_for(self, prompt: Prompt) -> None:
        number = self._number(prompt)
        if number is None:
            self._last_number += 1
            number = self._last_number
        elif self.prompts[number] == prompt:
            return
        self.prompts[number] = prompt
        self._show_prompt(number, prompt)

    def _show_prompt(self, number: int, prompt: Prompt) -> None:
        if prompt.conversation_id != self.conversation.conversation_id:
            return
        if isinstance(prompt, Clarification):
            self.line(f"? {prompt.question}")
            for place, choice in enumerate(prompt.choices, 1):
                self.line(f"  {place} {choice.label}")
            self.line(f"  /answer {number} {' | '.join(_ways(prompt))}")
            return
        self.line(f"? {prompt.description}: {prompt.command}")
        if prompt.answerable:
            self.line(f"  /approve {number} {' | '.join(prompt.choices)}")
        else:
            self.line("  (after the one before it)")

    def _over(self, prompt: Prompt, how: str) -> None:
        number = self._number(prompt)
        if number is not None:
            del self.prompts[number]
        if prompt.conversation_id == self.conversation.conversation_id:
            self.line(f"  {how}")

    def _created(self, message: Message) -> None:
        if message.role is MessageRole.ASSISTANT and message.status is MessageState.STREAMING:
            self._append(message.message_id, message.text)
        elif message.role is not MessageRole.USER:
            self.line(f"{_speaker(message)}: {message.text}")
            self._seen.add(message.message_id)

    def _append(self, message_id: MessageId, text: str) -> None:
        if not text:
            return
        if self._writing != message_id:
            self._stop_writing()
            self._writing, self._growing = message_id, "hermes: "
        text = text.translate(_CONTROL)
        self._shown += text
        *whole, self._growing = (self._growing + text).split("\n")
        for line in whole:
            self._terminal.line(line)
        self._terminal.unfinished(self._growing)

    def _become(self, message_id: MessageId, text: str) -> None:
        text = text.translate(_CONTROL)
        if self._writing == message_id and text.startswith(self._shown):
            self._append(message_id, text[len(self._shown) :])
        elif self._writing == message_id or text != self._interrupted.get(message_id):
            self._stop_writing()
            self._append(message_id, text)

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._interrupted[self._writing] = self._shown
            self._terminal.line(self._growing)
        self._writing, self._shown, self._growing = None, "", ""


async def say(url: str, secret: str, text: str) -> int:
    """One exchange, both sides printed; 0 when the agent answered."""
    try:
        async with _connected(url, secret, "pheby-say") as client:
            conversation = await client.create_conversation()
            screen = Screen(PlainTerminal(), conversation, chatty=False)
            screen.line(f"you: {text}")
            receipt = await client.send(conversation.conversation_id, text)
            screen.asked(receipt.run_id)
            async for happening in client.happenings():
                screen.show(happening)
                if not screen.waits:
                    break
            await _catch_up(client, screen)
            page = await client.history(conversation.conversation_id)
            ended = [run.status for run in page.runs if run.run_id == receipt.run_id]
            return 0 if ended == [RunState.COMPLETED] else 1
    except _TROUBLE as failure:
        print(f"pheby: {failure}", file=sys.stderr)
    return 1


async def chat(url: str, secret: str) -> int:
    """Chat until the owner leaves; the exit code."""
    try:
        async with _connected(url, secret, "pheby-chat") as client:
            known = (await client.conversations(limit=1)).conversations
            conversation = known[0] if known else await client.create_conversation()
            with open_terminal() as terminal:
                screen = Screen(terminal, conversation)
                screen.open(conversation)
                if known:
                    await _show_history(client, screen)
                watcher = asyncio.create_task(_watch(client, screen))
                try:
                    await _converse(client, screen, terminal)
                finally:
                    watcher.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await watcher
        return 0
    except _TROUBLE as failure:
        print(f"pheby: {failure}", file=sys.stderr)
        return 1


@asynccontextmanager
async def _connected(url: str, secret: str, name: str) -> AsyncIterator[Client]:
    client = Client(url, secret, name=name)
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(START_SECONDS):
                await stack.enter_async_context(client)
        except TimeoutError:
            why = client.trouble or "no answer came"
            raise ConnectionLostError(
                f"no server at {url} ({why}); is it the address, and does the gateway run?"
            ) from None
        yield client


async def _watch(client: Client, screen: Screen) -> None:
    async for happening in client.happenings():
        was_away = screen.away
        screen.show(happening)
        if was_away and isinstance(happening, Connected):
            await _catch_up(client, screen)


async def _catch_up(client: Client, screen: Screen) -> None:
    with contextlib.suppress(ConnectionLostError, RequestFailedError, TimeoutError):
        screen.catch_up((await client.history(screen.conversation.conversation_id)).messages)


async def _converse(client: Client, screen: Screen, terminal: Terminal) -> None:
    listed: list[ConversationId] = []
    async for line in terminal.typed():
        word, _, rest = line.strip().partition(" ")
        try:
            match word:
                case "":
                    pass
                case "/quit":
                    return
                case "/help":
                    screen.line(HELP)
                case "/new":
                    screen.open(await client.create_conversation(rest.strip() or None))
                case "/list":
                    page = await client.conversations(limit=20)
                    listed = [found.conversation_id for found in page.conversations]
                    for number, found in enumerate(page.conversations, 1):
                        screen.line(f"{number:3} {_title(found)} {found.last_message_preview or ''}"[:100])
                case "/open":
                    await _open(client, screen, listed, rest)
                case "/approve":
                    await _decide(client, screen, rest)
                case "/answer":
                    await _answer_question(client, screen, rest)
                case "/steer":
                    receipt = await client.send(screen.conversation.conversation_id, rest, if_busy=IfBusy.STEER)
                    screen.asked(receipt.run_id)
                    screen.line(f"… {receipt.disposition}")
                case "/model":
                    await _choose_model(client, screen, rest.strip())
                case "/effort":
                    await _choose_effort(client, screen, rest.strip())
                case "/title":
                    renamed = await client.rename(screen.conversation.conversation_id, rest)
                    screen.line(f"-- {_title(renamed)} --")
                case "/delete":
                    await _delete(client, screen, rest.strip())
                case "/save":
                    await _save(client, screen, rest)
                case "/cancel":
                    active = screen.conversation.active_run_id
                    if active is None:
                        screen.line("! nothing runs here")
                    else:
                        await client.cancel(active)
                case "/history":
                    await _show_history(client, screen)
                case _:
                    receipt = await client.send(screen.conversation.conversation_id, line)
                    screen.asked(receipt.run_id)
                    if receipt.disposition != "started":
                        screen.line(f"… {receipt.disposition}")
        except RequestFailedError as failure:
            screen.line(f"! {failure}")
        except SendInDoubtError as failure:
            screen.line(f"! {failure}; look at /history before you send it again")
        except ConnectionLostError:
            screen.line("! not connected; try again in a moment")
    if isinstance(terminal, PlainTerminal):
        # Nobody left: what was piped in has an end, and its answers are wanted.
        await screen.answered()


async def _delete(client: Client, screen: Screen, sure: str) -> None:
    if sure != "yes":
        screen.line("! that cannot be taken back: /delete yes")
        return
    await client.delete(screen.conversation.conversation_id)
    left = (await client.conversations(limit=1)).conversations
    screen.open(left[0] if left else await client.create_conversation())


async def _choose_model(client: Client, screen: Screen, typed: str) -> None:
    name = screen.conversation.conversation_id
    offer = await client.list_models(name)
    offered = [
        ModelChoice(provider=entry.provider, model=model.model) for entry in offer.providers for model in entry.models
    ]
    names = [f"{choice.model} {choice.provider}" for choice in offered]
    place = _choice(screen, typed, names, offered.index(offer.current) if offer.current in offered else None)
    if place is not None:
        chosen = await client.select_model(name, offered[place].provider, offered[place].model)
        screen.line(f"… {chosen.model} {chosen.provider}, from the next message on")


async def _choose_effort(client: Client, screen: Screen, typed: str) -> None:
    name = screen.conversation.conversation_id
    offer = await client.list_efforts(name)
    current = offer.efforts.index(offer.current) if offer.current in offer.efforts else None
    place = _choice(screen, typed, offer.efforts, current)
    if place is not None:
        chosen = await client.select_effort(name, offer.efforts[place])
        screen.line(f"… {chosen}, from the next message on")


def _choice(screen: Screen, typed: str, names: Sequence[str], current: int | None) -> int | None:
    """Which was typed, by its number, its name, or the first word of that; where nothing was, all are shown."""
    if not typed:
        for place, name in enumerate(names):
            screen.line(f"{'*' if place == current else ' '}{place + 1:3} {name}")
        return None
    if typed.isdecimal() and 1 <= int(typed) <= len(names):
        return int(typed) - 1
    found = [place for place, name in enumerate(names) if typed in (name, name.partition(" ")[0])]
    if not found:
        screen.line("! that is not one of them")
    return found[0] if found else None


async def _decide(client: Client, screen: Screen, typed: str) -> None:
    number, _, choice = typed.strip().partition(" ")
    approval = screen.prompts.get(int(number)) if number.isdecimal() else None
    if not isinstance(approval, Approval):
        screen.line("! give the number of what is asked, and a choice")
    else:
        await client.decide(approval.approval_id, choice.strip())


async def _answer_question(client: Client, screen: Screen, typed: str) -> None:
    number, _, said = typed.strip().partition(" ")
    question, said = screen.prompts.get(int(number)) if number.isdecimal() else None, said.strip()
    if not isinstance(question, Clarification) or not said:
        screen.line("! give the number of a question, and an answer")
        return
    places = [place.strip() for place in said.split(",")]
    if question.choices and all(place.isdecimal() and 1 <= int(place) <= len(question.choices) for place in places):
        chosen = [question.choices[int(place) - 1].choice_id for place in places]
        await client.answer(question.clarification_id, chosen)
    elif said == "skip" and question.skippable:
        await client.answer(question.clarification_id, skip=True)
    else:
        await client.answer(question.clarification_id, text=said)


async def _save(client: Client, screen: Screen, typed: str) -> None:
    number, _, where = typed.strip().partition(" ")
    if not (number.isdecimal() and 1 <= int(number) <= len(screen.files)):
        screen.line("! give the number of a file")
        return
    file = screen.files[int(number) - 1]
    target = _target(where.strip(), file)
    try:
        await client.download(file, target)
    except FileExistsError:
        screen.line("! there is such a file already; give another name")
    except (DownloadError, OSError) as failure:
        screen.line(f"! not saved: {failure}")
    else:
        screen.line(f"… saved as {target}")


def _target(typed: str, file: Attachment) -> Path:
    return Path(typed).expanduser() if typed else free_name(Path(), file.file_name)


async def _open(client: Client, screen: Screen, listed: list[ConversationId], number: str) -> None:
    page = await client.conversations()
    wanted = listed or [found.conversation_id for found in page.conversations]
    if not (number.isdigit() and 1 <= int(number) <= len(wanted)):
        screen.line("! give a number of the /list")
        return
    name = wanted[int(number) - 1]
    found = next((found for found in page.conversations if found.conversation_id == name), None)
    if found is None:
        screen.line("! it is gone; ask for the /list again")
        return
    screen.open(found)
    await _show_history(client, screen)


async def _show_history(client: Client, screen: Screen) -> None:
    page = await client.history(screen.conversation.conversation_id)
    for message in page.messages:
        mark = "" if message.status is MessageState.COMPLETED else f" ({message.status})"
        screen.already(message, mark)


def _id(prompt: Prompt) -> str:
    return prompt.clarification_id if isinstance(prompt, Clarification) else prompt.approval_id


def _ways(question: Clarification) -> list[str]:
    """How a question can be answered."""
    ways = [("NUMBERS, like 1,2" if question.multiple else "NUMBER")] if question.choices else []
    ways += ["your own words"] if question.free_text else []
    return ways + (["skip"] if question.skippable else [])


def _answer(question: Clarification) -> str:
    """What became of a question."""
    if question.answer is None:
        return question.status
    labels = {choice.choice_id: choice.label for choice in question.choices}
    said = [labels.get(name, name) for name in question.answer.choice_ids]
    said += [question.answer.text] if question.answer.text is not None else []
    return ", ".join(said) or "skipped"


def _speaker(message: Message) -> str:
    return {MessageRole.USER: "you", MessageRole.ASSISTANT: "hermes"}.get(message.role, "notice")


def _bytes(size: int) -> str:
    """A size for people."""
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB"):
        if amount < 1_000:
            break
        amount, unit = amount / 1_000, larger
    return f"{amount:.1f} {unit}" if amount < 10 and unit != "B" else f"{amount:.0f} {unit}"


def _title(conversation: Conversation) -> str:
    return conversation.title or "(no title)"
