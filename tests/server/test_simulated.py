"""The scripted Hermes behaves at the port as recorded gateways do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pheby_protocol.ids import ConversationId, MessageId, RunId
from pheby_protocol.messages.message import MessageRole
from pheby_protocol.messages.run import RunErrorCode
from pheby_server.ports import HandOver, LiveMessage, Unavailable
from pheby_server.simulated import Fail, Pause, Say, Segment, SimulatedHermes, Step
from pheby_server.testing import FakeClock, MemoryTransport, client_and_server

NAME = ConversationId("conv_1")


def message(number: int, text: str = "hi") -> HandOver:
    return HandOver(
        conversation_id=NAME, message_id=MessageId(f"msg_{number}"), run_id=RunId(f"run_{number}"), text=text
    )


class Recorder:
    """The other side: notes what Hermes tells."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.ended = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        def note(*args: Any, **kwargs: Any) -> str:
            self.calls.append((name, *args, *kwargs.values()))
            if name == "run_ended":
                self.ended.set()
            return f"id_{len(self.calls)}"

        return note

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


async def played(*steps: Step) -> tuple[Recorder, SimulatedHermes]:
    recorder = Recorder()
    hermes = SimulatedHermes(FakeClock(), lambda _: steps)
    hermes.start(recorder)  # type: ignore[arg-type]
    await hermes.hand_over(message(1))
    await recorder.ended.wait()
    return recorder, hermes


async def test_an_answer_is_streamed_and_declared() -> None:
    recorder, hermes = await played(Say("Hel"), Say("lo"))
    assert recorder.names() == ["run_started", "message_started", "message_appended", "run_ended"]
    assert recorder.calls[-1][2].final_text == "Hello"
    rows = await hermes.history(NAME)
    assert [(row.role, row.text) for row in rows] == [(MessageRole.USER, "hi"), (MessageRole.ASSISTANT, "Hello")]


async def test_a_segment_ends_a_text_as_interim() -> None:
    recorder, hermes = await played(Say("one"), Segment(), Say("two"))
    assert ("message_ended", "id_2", True) in recorder.calls
    assert [row.text for row in await hermes.history(NAME)] == ["hi", "one", "two"]


async def test_a_failed_answer_leaves_no_row() -> None:
    recorder, hermes = await played(Say("half"), Fail(RunErrorCode.PROVIDER_ERROR))
    assert recorder.calls[-1][2].error is RunErrorCode.PROVIDER_ERROR
    assert [row.text for row in await hermes.history(NAME)] == ["hi"]


async def test_no_answer_is_an_empty_response() -> None:
    recorder, _ = await played()
    assert recorder.calls[-1][2].error is RunErrorCode.EMPTY_RESPONSE


async def test_a_script_that_raises_ends_its_run_as_failed() -> None:
    """B6: one terminal event on every path."""

    def broken(_: str) -> Iterable[Step]:
        yield Say("half")
        raise RuntimeError("script")

    recorder = Recorder()
    hermes = SimulatedHermes(FakeClock(), broken)
    hermes.start(recorder)  # type: ignore[arg-type]
    await hermes.hand_over(message(1))
    async with asyncio.timeout(1):
        await recorder.ended.wait()
        await hermes.ready(NAME)
    assert recorder.calls[-1][2].error is RunErrorCode.INTERNAL


@pytest.mark.parametrize(
    "steps",
    [
        (Say(" "), Say(" hi")),
        (Say("  lead"), Say("ing")),
        (Say("a\ud800"), Say("\udc00b\x00")),
        (Say(""), Say("x")),
    ],
)
async def test_what_is_streamed_is_what_is_stored(tmp_path: Path, steps: tuple[Step, ...]) -> None:
    """R-B3: live and history are the same messages, whatever the pieces are."""
    async with client_and_server(str(tmp_path), lambda _: steps) as (client, _, hermes):
        made = await client.request("conversation.create", client_conversation_id="c")
        name = made["conversation"]["conversation_id"]
        await client.request("message.send", conversation_id=name, client_message_id="m", text="hi")
        await client.until("run.ended")
        done = next(frame for frame in client.seen if frame["type"] == "message.completed")["message"]
        page = await client.request("conversation.history", conversation_id=name)
        assert [found["message_id"] for found in page["messages"]][1:] == [done["message_id"]]
        assert (await hermes.history(name))[-1].text == done["text"]


async def test_one_run_at_a_time_in_a_conversation() -> None:
    hermes = SimulatedHermes(FakeClock(), lambda _: (Pause(60),))
    hermes.start(Recorder())  # type: ignore[arg-type]
    await hermes.hand_over(message(1))
    with pytest.raises(Unavailable):
        await hermes.hand_over(message(2))
    waiting = asyncio.create_task(hermes.ready(NAME))
    await asyncio.sleep(0)
    assert not waiting.done()
    await hermes.stop()
    waiting.cancel()
    assert [taken.message_id for taken in hermes.handed_over] == ["msg_1"]


async def test_before_the_start_and_after_the_stop_nothing_is_taken() -> None:
    hermes = SimulatedHermes(FakeClock())
    with pytest.raises(Unavailable):
        await hermes.hand_over(message(1))
    hermes.start(Recorder())  # type: ignore[arg-type]
    await hermes.ready(NAME)
    await hermes.stop()
    with pytest.raises(Unavailable):
        await hermes.hand_over(message(1))


async def test_rows_outlive_the_gateway_and_describe_the_conversation() -> None:
    _, hermes = await played(Say("Hello"))
    await hermes.stop()
    assert len(await hermes.history(NAME)) == 2
    found = await hermes.conversation(NAME)
    assert found is not None
    assert found.title == "hi"
    assert list(await hermes.conversations()) == [found]
    assert await hermes.conversation(ConversationId("conv_none")) is None


async def test_equal_texts_are_bound_once_each_in_order() -> None:
    _, hermes = await played(Say("Hello"))
    live = [LiveMessage(message_id=MessageId(f"msg_{n}"), role=MessageRole.ASSISTANT, text="Hello") for n in (1, 2)]
    found = await hermes.bind(NAME, live, ())
    assert [pair.message_id for pair in found] == ["msg_1"]
    assert await hermes.bind(NAME, live, {found[0].key}) == []


async def test_two_conversations_stream_at_once_without_cross_talk(tmp_path: Path) -> None:
    """A11."""

    begun = set()

    def count(text: str) -> Iterable[Step]:
        begun.add(text)
        while len(begun) < 2:
            # One that begins alone waits for the other.
            yield Pause(0)
        for number in range(200):
            yield Say(f"{text}{number} ")

    async with client_and_server(str(tmp_path), count) as (client, server, _):
        other = MemoryTransport(server)
        await other.hello("another")
        names = {}
        for letter in "ab":
            made = await client.request("conversation.create", client_conversation_id=letter)
            names[letter] = made["conversation"]["conversation_id"]
        for letter, name in names.items():
            client.send(
                {
                    "type": "message.send",
                    "id": letter,
                    "conversation_id": name,
                    "client_message_id": letter,
                    "text": letter,
                }
            )
        for reader in (client, other):
            for _ in names:
                await reader.until("run.ended")
            for letter, name in names.items():
                deltas = [
                    frame["text"]
                    for frame in reader.seen
                    if frame["type"] == "message.delta" and frame["conversation_id"] == name
                ]
                assert "".join(deltas) == "".join(f"{letter}{number} " for number in range(200))
        order = [frame["conversation_id"] for frame in client.seen if frame["type"] == "message.delta"]
        assert order != sorted(order)
        assert order != sorted(order, reverse=True)
        other.cut()


async def test_models_and_efforts_as_on_real_gateways() -> None:
    """R-H1, R-H2: any model is taken, no unknown provider; an effort is forgotten with the process, a model is not."""
    recorder, hermes = await played(Say("Hello"))
    assert (hermes.asked[0].model, hermes.asked[0].effort) == ("scripted-1", "medium")
    await hermes.select_model(NAME, "nobody", "scripted-2")
    assert (await hermes.models(NAME)).current.model == "scripted-1"
    await hermes.select_model(NAME, "scripted", "scripted-2")
    await hermes.select_effort(NAME, "bogus")
    await hermes.select_effort(NAME, "high")
    assert (await hermes.models(NAME)).current.model == "scripted-2"
    assert (await hermes.efforts(NAME)).current == "high"
    await hermes.stop()
    with pytest.raises(Unavailable):
        await hermes.models(NAME)
    hermes.start(recorder)  # type: ignore[arg-type]
    assert (await hermes.models(NAME)).current.model == "scripted-2"
    assert (await hermes.efforts(NAME)).current == "medium"
    hermes.begin_anew(NAME)
    assert (await hermes.models(NAME)).current.model == "scripted-1"
    assert recorder.calls[-1] == ("began_anew", NAME)


async def test_pickers_open_only_while_nothing_runs() -> None:
    """R-H1."""
    hermes = SimulatedHermes(FakeClock(), lambda _: [Pause(60.0)])
    hermes.start(Recorder())  # type: ignore[arg-type]
    await hermes.hand_over(message(1))
    for work in (
        hermes.models(NAME),
        hermes.efforts(NAME),
        hermes.select_model(NAME, "scripted", "scripted-2"),
        hermes.select_effort(NAME, "high"),
    ):
        with pytest.raises(Unavailable):
            await work
    await hermes.stop()
