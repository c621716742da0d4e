"""The state as frames that each fit, complete and in one piece at `last`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pheby_protocol.codec import encode
from pheby_protocol.ids import ConversationId, HistoryId, ListCursor, MessageId, Position, RunId, Seq, Time
from pheby_protocol.messages.conversation import Conversation, TitleSource
from pheby_protocol.messages.message import Message, MessageRole, Origin
from pheby_protocol.messages.run import Run
from pheby_protocol.states import MessageState, RunState
from pheby_server.snapshot import snapshot_parts


def conversation(number: int, title: str = "") -> Conversation:
    return Conversation(
        conversation_id=ConversationId(f"conv_{number}"),
        title=title,
        title_source=TitleSource.NONE,
        created_at=Time(1),
        updated_at=Time(1),
        last_activity_at=Time(1),
        history_id=HistoryId("h"),
        history_head=Position(0),
    )


def message(number: int, text: str) -> Message:
    return Message(
        message_id=MessageId(f"msg_{number}"),
        conversation_id=ConversationId("conv_1"),
        role=MessageRole.USER,
        origin=Origin.CHAT,
        status=MessageState.QUEUED,
        text=text,
        text_truncated=False,
        attachments=(),
        created_at=Time(1),
    )


def run(number: int) -> Run:
    return Run(
        run_id=RunId(f"run_{number}"),
        conversation_id=ConversationId("conv_1"),
        origin=Origin.CHAT,
        status=RunState.QUEUED,
        created_at=Time(1),
    )


def test_nothing_is_one_empty_last_part() -> None:
    (only,) = snapshot_parts(Seq(7), 1_000, [], None, [], [], [], [], [])
    assert (only.part, only.last, only.seq) == (0, True, 7)
    assert (only.conversations, only.runs, only.messages) == ((), (), ())


def test_the_cursor_of_the_list_is_on_the_last_part_alone() -> None:
    parts = snapshot_parts(
        Seq(1), 300, [conversation(n) for n in range(10)], ListCursor("next"), [run(1)], [message(1, "x")], [], [], []
    )
    assert len(parts) > 3
    assert [part.conversations_next for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1].conversations_next == "next"


@given(
    st.lists(st.text(max_size=40), max_size=20),
    st.integers(0, 20),
    st.lists(st.text(max_size=400), max_size=20),
    st.integers(1_000, 4_000),
)
def test_every_part_fits_and_together_they_are_everything(
    titles: list[str], runs: int, texts: list[str], room: int
) -> None:
    conversations = [conversation(number, title) for number, title in enumerate(titles)]
    all_runs = [run(number) for number in range(runs)]
    messages = [message(number, text) for number, text in enumerate(texts)]
    parts = snapshot_parts(Seq(5), room, conversations, None, all_runs, messages, [], [], [])
    assert [part.part for part in parts] == list(range(len(parts)))
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert {part.seq for part in parts} == {5}
    assert [found for part in parts for found in part.conversations] == conversations
    assert [found for part in parts for found in part.runs] == all_runs
    assert [found for part in parts for found in part.messages] == messages
    for part in parts:
        items = len(part.conversations) + len(part.runs) + len(part.messages)
        one_large = items == 1 and part.messages
        assert one_large or len(encode(part).encode()) <= room + 300 + items
