"""The chat in a terminal, with what is piped into it, and `say`: what is seen of both sides."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest

from pheby import chat as chat_module
from pheby.chat import HELP, Screen, _converse, _watch, chat, say
from pheby.client import Client, Connected, Disconnected
from pheby_protocol.errors import CloseCode
from pheby_protocol.ids import (
    ApprovalId,
    ConversationId,
    HistoryId,
    Index,
    MessageId,
    Millis,
    Position,
    RunId,
    Seq,
    Time,
)
from pheby_protocol.messages.approval import (
    Approval,
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalUpdated,
    PromptStatus,
)
from pheby_protocol.messages.connection import ServerDraining, Snapshot
from pheby_protocol.messages.conversation import Conversation, ConversationUpdated, TitleSource
from pheby_protocol.messages.message import (
    Message,
    MessageCompleted,
    MessageCreated,
    MessageDelta,
    MessageReplaced,
    MessageRole,
    Origin,
)
from pheby_protocol.messages.run import Run, RunEnded, RunError, RunErrorCode, RunProgress, RunStarted
from pheby_protocol.states import MessageState, RunState
from pheby_server.simulated import Approve, Ask, Begin, End, Fail, Say, Segment, Step
from tests.client.house import SECRET, House

HERE, THERE = ConversationId("conv_1"), ConversationId("conv_2")


def respond(text: str) -> Iterable[Step]:
    """`fail` fails, `two` says two texts, anything else is said back."""
    if text == "fail":
        return [Fail(RunErrorCode.PROVIDER_AUTH)]
    if text == "two":
        return [Say("First."), Segment(), Say("Second.")]
    return [Say("You said: "), Say(text)]


@pytest.fixture
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    house = House(str(tmp_path / "store"), getattr(request, "param", respond))
    await house.open()
    yield house
    await house.close()


class Keyboard:
    """Standard input, piped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def types(self, *lines: str) -> None:
        self._monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Keyboard:
    return Keyboard(monkeypatch)


# Saying one thing


@pytest.mark.parametrize(
    ("text", "shown", "code"),
    [
        ("hello", ["you: hello", "hermes: You said: hello"], 0),
        ("/etc/hosts what is it?", ["you: /etc/hosts what is it?", "hermes: You said: /etc/hosts what is it?"], 0),
        ("two", ["you: two", "hermes: First.", "hermes: Second."], 0),
        ("fail", ["you: fail", "! The model provider refused the credentials."], 1),
    ],
)
async def test_say_shows_both_sides(
    house: House, capsys: pytest.CaptureFixture[str], text: str, shown: list[str], code: int
) -> None:
    assert await asyncio.wait_for(say(house.url, SECRET, text), 5) == code
    out, err = capsys.readouterr()
    assert out.splitlines() == shown
    assert err == ""


async def say_hello(url: str, secret: str) -> int:
    return await say(url, secret, "hello")


async def test_say_with_a_wrong_secret(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    """K3."""
    wrong = "wrong-0123456789abcdef-0123456789abcdef"
    assert await say(house.url, wrong, "hello") == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "pheby: the server refused the secret\n")


async def test_say_with_nothing_to_say(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    assert await say(house.url, SECRET, "") == 1
    assert "invalid_message" in capsys.readouterr().err


async def test_say_ends_when_another_takes_over(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.server is not None
    answer = house.server.answer

    async def replaced(session: Any, request: Any) -> Any:
        if request.type == "message.send":
            session.close(CloseCode.REPLACED)
        return await answer(session, request)

    house.server.answer = replaced  # type: ignore[method-assign]
    assert await asyncio.wait_for(say(house.url, SECRET, "hello"), 5) == 1
    assert capsys.readouterr().err == "pheby: closed with 4409\n"


@pytest.mark.parametrize("speak", [say_hello, chat])
async def test_a_server_that_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], speak: Any
) -> None:
    """R-A4: not waited for without a word."""
    monkeypatch.setattr(chat_module, "START_SECONDS", 0.5)
    with socket.socket() as nobody:
        # Bound and not listening: nobody else can listen there meanwhile.
        nobody.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{nobody.getsockname()[1]}/v1/ws"
        assert await speak(url, SECRET) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"pheby: no server at {url} (nobody listens there)")
    assert len(err.splitlines()) == 1


async def test_a_wrong_address_of_the_right_server_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chat_module, "START_SECONDS", 0.5)
    assert await say(house.url.replace("v1/ws", "nothing"), SECRET, "hello") == 1
    assert "(the answer there is HTTP 404)" in capsys.readouterr().err


# A chat


async def chatted(house: House, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """A whole chat; what was shown of it."""
    assert await asyncio.wait_for(chat(house.url, SECRET), 5) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert SECRET not in out
    return out.splitlines()


async def test_what_is_typed_is_answered_before_the_chat_ends(
    house: House, keyboard: Keyboard, capsys: pytest.CaptureFixture[str]
) -> None:
    keyboard.types("hello", "and you?")
    lines = await chatted(house, capsys)
    assert lines[0] == "-- (no title) --"
    assert [line for line in lines if line.startswith("hermes: ")] == [
        "hermes: You said: hello",
        "hermes: You said: and you?",
    ]
    assert [message.text for message in house.hermes.handed_over] == ["hello", "and you?"]


@pytest.mark.parametrize(
    "text", ["/etc/hosts what is it?", "/stop", "//", "/", "  /etc/hosts", "/unknown", "/newer", "!ls", "help"]
)
async def test_what_is_no_word_of_the_chat_goes_to_the_agent_as_it_is(
    house: House, keyboard: Keyboard, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """B10."""
    keyboard.types(text)
    lines = await chatted(house, capsys)
    assert [message.text for message in house.hermes.handed_over] == [text]
    assert f"hermes: You said: {text}" in lines


async def test_an_empty_line_is_nothing(house: House, keyboard: Keyboard, capsys: pytest.CaptureFixture[str]) -> None:
    keyboard.types("", "   ")
    await chatted(house, capsys)
    assert house.hermes.handed_over == []


async def test_quit_leaves_at_once(house: House, keyboard: Keyboard, capsys: pytest.CaptureFixture[str]) -> None:
    keyboard.types("/quit", "hello")
    await chatted(house, capsys)
    assert house.hermes.handed_over == []


async def test_help_names_every_word(house: House, keyboard: Keyboard, capsys: pytest.CaptureFixture[str]) -> None:
    keyboard.types("/help")
    lines = await chatted(house, capsys)
    assert "\n".join(lines).endswith(HELP)
    assert all(
        word in HELP
        for word in ("/new", "/list", "/open", "/history", "/approve", "/answer", "/cancel", "/help", "/quit")
    )
    assert "/model" in HELP
    assert "/effort" in HELP


async def test_conversations_are_made_listed_and_opened(
    house: House, keyboard: Keyboard, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Client(house.url, SECRET) as client:
        groceries = await client.create_conversation("Groceries")
        await client.send(groceries.conversation_id, "milk")
        async for happening in client.happenings():
            if isinstance(happening, RunEnded):
                break
    keyboard.types("/new Garden", "/list", "/open 2", "/history", "/open 3", "/open x", "/open")
    lines = [line for line in await chatted(house, capsys) if not line.startswith("…")]
    assert lines[0] == "-- Groceries --"
    assert lines[1:3] == ["you: milk", "hermes: You said: milk"]
    assert lines[3] == "-- Garden --"
    listed = [line for line in lines if line.startswith("  ")]
    assert [line.split()[:2] for line in listed] == [["1", "Garden"], ["2", "Groceries"]]
    assert lines[lines.index(listed[1]) + 1 :] == [
        "-- Groceries --",
        *["you: milk", "hermes: You said: milk"] * 2,
        *["! give a number of the /list"] * 3,
    ]


async def test_a_failed_run_is_told(house: House, keyboard: Keyboard, capsys: pytest.CaptureFixture[str]) -> None:
    keyboard.types("fail")
    assert "! The model provider refused the credentials." in await chatted(house, capsys)


async def test_a_refused_request_does_not_end_the_chat(
    house: House, keyboard: Keyboard, capsys: pytest.CaptureFixture[str]
) -> None:
    keyboard.types("x" * 100_001, "hello")
    lines = await chatted(house, capsys)
    assert [line for line in lines if line.startswith("! too_large")]
    assert "hermes: You said: hello" in lines


async def test_a_chat_with_a_wrong_secret(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "wrong-0123456789abcdef-0123456789abcdef"
    assert await chat(house.url, wrong) == 1
    assert capsys.readouterr() == ("", "pheby: the server refused the secret\n")


# What is shown of what happens


class Paper:
    """A terminal that keeps what is on it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.growing = ""

    def line(self, text: str) -> None:
        self.lines.append(text)
        self.growing = ""

    def unfinished(self, text: str) -> None:
        self.growing = text

    def typed(self) -> Any:
        raise AssertionError("nothing is typed here")


def conversation(conversation_id: ConversationId = HERE, title: str = "") -> Conversation:
    return Conversation(
        conversation_id=conversation_id,
        title=title,
        title_source=TitleSource.MANUAL if title else TitleSource.NONE,
        created_at=Time(1),
        updated_at=Time(1),
        last_activity_at=Time(1),
        history_id=HistoryId("h1"),
        history_head=Position(0),
    )


def message(
    text: str, role: MessageRole = MessageRole.ASSISTANT, *, streams: bool = False, name: str = "msg_1"
) -> Message:
    return Message(
        message_id=MessageId(name),
        conversation_id=HERE,
        position=Position(1),
        role=role,
        origin=Origin.CHAT,
        status=MessageState.STREAMING if streams else MessageState.COMPLETED,
        text=text,
        text_truncated=False,
        index=Index(0) if streams else None,
        attachments=(),
        created_at=Time(1),
        completed_at=None if streams else Time(2),
    )


def run_ended(status: RunState, error: RunError | None = None) -> RunEnded:
    run = Run(
        run_id=RunId("run_1"),
        conversation_id=HERE,
        origin=Origin.CHAT,
        status=status,
        created_at=Time(1),
        ended_at=Time(2),
        error=error,
    )
    return RunEnded(seq=Seq(1), time=Time(1), conversation_id=HERE, run=run)


def created(found: Message) -> MessageCreated:
    return MessageCreated(seq=Seq(1), time=Time(1), conversation_id=HERE, message=found)


def finished(found: Message) -> MessageCompleted:
    return MessageCompleted(seq=Seq(1), time=Time(1), conversation_id=HERE, message=found)


def delta(text: str, index: int = 1, where: ConversationId = HERE) -> MessageDelta:
    return MessageDelta(conversation_id=where, message_id=MessageId("msg_1"), index=Index(index), text=text)


@pytest.fixture
def paper() -> Paper:
    return Paper()


@pytest.fixture
async def screen(paper: Paper) -> Screen:
    return Screen(paper, conversation())


async def test_a_text_grows_line_by_line(screen: Screen, paper: Paper) -> None:
    screen.show(created(message("", streams=True)))
    screen.show(delta("one\ntw"))
    assert (paper.lines, paper.growing) == (["hermes: one"], "tw")
    screen.show(delta("o"))
    assert paper.growing == "two"
    screen.show(finished(message("one\ntwo")))
    assert (paper.lines, paper.growing) == (["hermes: one", "two"], "")


async def test_a_text_that_was_replaced_is_shown_again(screen: Screen, paper: Paper) -> None:
    screen.show(created(message("one", streams=True)))
    replaced = MessageReplaced(conversation_id=HERE, message_id=MessageId("msg_1"), index=Index(1), text="two")
    screen.show(replaced)
    screen.show(finished(message("two")))
    assert paper.lines == ["hermes: one", "hermes: two"]


async def test_the_end_of_a_text_brings_what_was_missed(screen: Screen, paper: Paper) -> None:
    screen.show(created(message("one", streams=True)))
    screen.show(finished(message("one two")))
    assert paper.lines == ["hermes: one two"]


async def test_what_comes_between_does_not_lose_the_text(screen: Screen, paper: Paper) -> None:
    screen.show(created(message("one", streams=True)))
    screen.show(RunProgress(conversation_id=HERE, run_id=RunId("run_1"), text="thinking"))
    screen.show(finished(message("one two")))
    assert paper.lines[:2] == ["hermes: one", "… thinking"]
    assert paper.lines[-1] == "hermes: one two"


async def test_whole_texts_and_notices_are_shown(screen: Screen, paper: Paper) -> None:
    screen.show(created(message("mine", MessageRole.USER)))
    screen.show(created(message("theirs")))
    screen.show(created(message("Compressed.", MessageRole.NOTICE)))
    assert paper.lines == ["hermes: theirs", "notice: Compressed."]


async def test_other_conversations_are_not_shown(screen: Screen, paper: Paper) -> None:
    """A11."""
    screen.show(delta("elsewhere", where=THERE))
    screen.show(ServerDraining(reconnect_after_ms=Millis(1)))
    assert (paper.lines, paper.growing) == ([], "")


@pytest.mark.parametrize(
    ("status", "error", "lines"),
    [
        (RunState.COMPLETED, None, []),
        (RunState.CANCELLED, None, ["… cancelled"]),
        (RunState.FAILED, RunError(code=RunErrorCode.INTERNAL, message="It broke."), ["! It broke."]),
        (RunState.FAILED, None, ["! The run failed."]),
    ],
)
async def test_ends_of_runs(
    screen: Screen, paper: Paper, status: RunState, error: RunError | None, lines: list[str]
) -> None:
    """B6: never silent about a failure."""
    screen.show(run_ended(status, error))
    assert paper.lines == lines


def approval(name: str = "appr_1", where: ConversationId = HERE, **fields: Any) -> Approval:
    return Approval(
        approval_id=ApprovalId(name),
        kind=ApprovalKind.COMMAND,
        conversation_id=where,
        position=Position(1),
        description="recursive delete",
        command=f"rm -rf {name}",
        command_truncated=False,
        choices=("once", "deny"),
        created_at=Time(1),
        **{"answerable": True, "status": PromptStatus.PENDING, **fields},
    )


def requested(found: Approval) -> ApprovalRequested:
    return ApprovalRequested(seq=Seq(1), time=Time(1), conversation_id=found.conversation_id, approval=found)


async def test_each_question_has_a_number_of_its_own(screen: Screen, paper: Paper) -> None:
    """What was typed for the question on the screen never decides another one that came meanwhile."""
    screen.show(requested(approval("appr_1")))
    screen.show(requested(approval("appr_2", answerable=False)))
    screen.show(requested(approval("appr_3", THERE)))
    decided = approval("appr_1", status=PromptStatus.RESOLVED, answerable=False, decision="deny")
    screen.show(ApprovalResolved(seq=Seq(2), time=Time(1), conversation_id=HERE, approval=decided))
    screen.show(ApprovalUpdated(seq=Seq(3), time=Time(1), conversation_id=HERE, approval=approval("appr_2")))
    assert paper.lines == [
        "? recursive delete: rm -rf appr_1",
        "  /approve 1 once | deny",
        "? recursive delete: rm -rf appr_2",
        "  (after the one before it)",
        "  deny: rm -rf appr_1",
        "? recursive delete: rm -rf appr_2",
        "  /approve 2 once | deny",
    ]
    screen.open(conversation(THERE))
    assert paper.lines[-2:] == ["? recursive delete: rm -rf appr_3", "  /approve 3 once | deny"]


async def test_a_question_that_was_asked_before_is_asked_once_more(screen: Screen, paper: Paper) -> None:
    """D7."""
    snapshot = Snapshot(
        part=0,
        last=True,
        seq=Seq(1),
        conversations=(),
        runs=(),
        messages=(),
        tool_calls=(),
        approvals=(approval(),),
        clarifications=(),
    )
    screen.show(snapshot)
    screen.show(snapshot)
    assert paper.lines == ["? recursive delete: rm -rf appr_1", "  /approve 1 once | deny"]
    screen.show(attrs.evolve(snapshot, approvals=()))
    assert screen.prompts == {}


class Answering(Paper):
    """A terminal whose owner answers when asked."""

    def __init__(self, *answers: str) -> None:
        super().__init__()
        self._answers = answers
        self._asked = asyncio.Event()

    def line(self, text: str) -> None:
        super().line(text)
        if "/approve 1" in text or "/answer 1" in text:
            self._asked.set()

    async def typed(self) -> Any:
        yield "go"
        await self._asked.wait()
        for answer in self._answers:
            yield answer


class Typing(Paper):
    """A terminal on which these lines are typed."""

    def __init__(self, *typed: str) -> None:
        super().__init__()
        self._typed = typed

    async def typed(self) -> Any:
        for line in self._typed:
            yield line


def asking(text: str) -> Iterable[Step]:
    call = Begin("terminal", {"command": "rm -rf a"})
    question = Approve(call, "recursive delete", "rm -rf a")
    yield call
    yield question
    yield End(call, "done")
    yield Say(f"It was {question.decision}.")


@pytest.mark.parametrize("house", [asking], indirect=True)
async def test_a_question_is_decided_by_its_number_and_a_choice(house: House) -> None:
    paper = Answering("/approve", "/approve once", "/approve 2 once", "/approve 1 banana", "/approve 1 once")
    async with Client(house.url, SECRET) as client, asyncio.TaskGroup() as tasks:
        screen = Screen(paper, await client.create_conversation("Here"))
        watching = tasks.create_task(_watch(client, screen))
        await asyncio.wait_for(_converse(client, screen, paper), 5)
        await asyncio.wait_for(screen.answered(), 5)
        watching.cancel()
    assert paper.lines.count("! give the number of what is asked, and a choice") == 3
    assert [line for line in paper.lines if "invalid_choice" in line]
    assert paper.growing == "" or "It was once." in paper.growing
    assert any("It was once." in line for line in [*paper.lines, paper.growing])


async def test_the_connection_is_told(screen: Screen, paper: Paper) -> None:
    screen.show(Disconnected(1006, final=False))
    screen.show(Connected(welcome=None))  # type: ignore[arg-type]
    screen.show(Disconnected(4409, final=True))
    assert paper.lines == ["… connection lost, trying again", "… connected again", "… disconnected"]


async def test_a_new_title_is_kept(screen: Screen, paper: Paper) -> None:
    named = conversation(title="Groceries")
    screen.show(ConversationUpdated(seq=Seq(1), time=Time(1), conversation_id=HERE, conversation=named))
    screen.open(screen.conversation)
    assert paper.lines == ["-- Groceries --"]


async def test_what_was_asked_is_answered_when_its_run_has_ended(screen: Screen) -> None:
    await screen.answered()
    screen.asked(RunId("run_1"))
    waiting = asyncio.create_task(screen.answered())
    await asyncio.sleep(0)
    assert not waiting.done()
    screen.show(run_ended(RunState.COMPLETED))
    await asyncio.wait_for(waiting, 5)


def wondering(labels: tuple[str, ...] = (), *, multiple: bool = False) -> Any:
    def steps(text: str) -> Iterable[Step]:
        call = Begin("clarify", {"question": "Which?"})
        question = Ask(call, "Which?", labels, multiple)
        yield call
        yield question
        yield End(call, "")
        yield Say(f"It was {question.answers}.")

    return steps


@pytest.mark.parametrize(
    ("house", "answer", "said"),
    [
        (wondering(("red", "green")), "2", ("green",)),
        (wondering(("red", "green")), "pink", ("pink",)),
        (wondering(("red", "green")), "7", ("7",)),
        (wondering(("red", "green", "blue"), multiple=True), "1, 3", ("red", "blue")),
        (wondering(("red", "green")), "skip", ()),
        (wondering(), "1", ("1",)),
    ],
    indirect=["house"],
)
async def test_a_question_is_answered_by_choices_words_or_not_at_all(
    house: House, answer: str, said: tuple[str, ...]
) -> None:
    paper = Answering("/answer", "/answer 1", "/answer 2 red", f"/answer 1 {answer}")
    async with Client(house.url, SECRET) as client, asyncio.TaskGroup() as tasks:
        screen = Screen(paper, await client.create_conversation("Here"))
        watching = tasks.create_task(_watch(client, screen))
        await asyncio.wait_for(_converse(client, screen, paper), 5)
        await asyncio.wait_for(screen.answered(), 5)
        watching.cancel()
    assert paper.lines.count("! give the number of a question, and an answer") == 3
    assert f"hermes: It was {said}." in paper.lines
    assert f"  {', '.join(said) or 'skipped'}: Which?" in paper.lines
    assert screen.prompts == {}


async def test_a_subagent_is_shown_by_what_it_works_on(screen: Screen, paper: Paper) -> None:
    child = Run(
        run_id=RunId("run_2"),
        conversation_id=HERE,
        origin=Origin.BACKGROUND,
        status=RunState.RUNNING,
        parent_run_id=RunId("run_1"),
        description="look",
        created_at=Time(1),
    )
    screen.asked(RunId("run_1"))
    screen.show(RunStarted(seq=Seq(1), time=Time(1), conversation_id=HERE, run=child))
    over = attrs.evolve(child, status=RunState.COMPLETED)
    screen.show(RunEnded(seq=Seq(2), time=Time(2), conversation_id=HERE, run=over))
    assert paper.lines == ["⚙ subagent: look", "⚙ subagent: completed"]
    assert screen.waits


async def test_a_conversation_is_renamed_and_deleted(house: House) -> None:
    paper = Typing("/title Better", "/delete", "/delete yes")
    async with Client(house.url, SECRET) as client:
        await client.create_conversation("Other")
        mine = await client.create_conversation("Mine")
        screen = Screen(paper, mine)
        await asyncio.wait_for(_converse(client, screen, paper), 5)
        left = (await client.conversations()).conversations
    assert "-- Better --" in paper.lines
    assert "! that cannot be taken back: /delete yes" in paper.lines
    assert [found.title for found in left] == ["Other"]
    assert screen.conversation.title == "Other"


@pytest.mark.parametrize("typed", ["2", "scripted-2", "scripted-2 scripted"])
async def test_a_model_is_chosen_by_number_or_name(house: House, typed: str) -> None:
    """R-H1: the list marks the one in use, and the next message asks the one that was chosen."""
    paper = Typing("/model", f"/model {typed}", "/model", "/model 3", "/model nope", "hello")
    async with Client(house.url, SECRET) as client:
        screen = Screen(paper, await client.create_conversation())
        await asyncio.wait_for(_converse(client, screen, paper), 5)
        await until_a_run_ended(client)
    assert [line for line in paper.lines if "scripted" in line] == [
        "*  1 scripted-1 scripted",
        "   2 scripted-2 scripted",
        "… scripted-2 scripted, from the next message on",
        "   1 scripted-1 scripted",
        "*  2 scripted-2 scripted",
    ]
    assert paper.lines.count("! that is not one of them") == 2
    assert [asked.model for asked in house.hermes.asked] == ["scripted-2"]


@pytest.mark.parametrize("typed", ["5", "high"])
async def test_an_effort_is_chosen_by_number_or_name(house: House, typed: str) -> None:
    """R-H2: the same for the effort."""
    paper = Typing("/effort", f"/effort {typed}", "/effort", "hello")
    async with Client(house.url, SECRET) as client:
        screen = Screen(paper, await client.create_conversation())
        await asyncio.wait_for(_converse(client, screen, paper), 5)
        await until_a_run_ended(client)
    marked = [line for line in paper.lines if line.startswith("*")]
    assert marked == ["*  4 medium", "*  5 high"]
    assert "… high, from the next message on" in paper.lines
    assert [asked.effort for asked in house.hermes.asked] == ["high"]


async def until_a_run_ended(client: Client) -> None:
    async with asyncio.timeout(5):
        async for happening in client.happenings():
            if isinstance(happening, RunEnded):
                return
