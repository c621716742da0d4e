"""Conversation ids and chat ids: one from the other, whatever chat id Hermes comes with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pheby_hermes.chats import HOME_CHAT_ID, chat_of, conversation_of, home_chat

from pheby_protocol.ids import ConversationId, is_id

# 42 bytes are what the escape has room for.
short = st.text(max_size=42).filter(lambda text: _encodable(text) and len(text.encode()) <= 42)
plain = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,56}", fullmatch=True).filter(lambda text: not text.startswith("x-"))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@given(st.integers(min_value=10**15, max_value=10**18 - 1))
def test_an_ordinary_chat_is_seen_in_its_conversation(number: int) -> None:
    assert conversation_of(str(number)) == f"conv_{number}"
    assert chat_of(ConversationId(f"conv_{number}")) == str(number)


@given(plain | short)
def test_a_conversation_names_its_chat(chat_id: str) -> None:
    assert chat_of(conversation_of(chat_id)) == chat_id


@given(st.text())
def test_any_chat_has_a_conversation_with_a_valid_id(chat_id: str) -> None:
    """Cron accepts any chat id, overlong ones and half characters too."""
    assert is_id(conversation_of(chat_id))


@given(plain | short, plain | short)
def test_two_chats_are_two_conversations(one: str, other: str) -> None:
    assert (conversation_of(one) == conversation_of(other)) == (one == other)


@given(plain | short)
def test_no_chat_takes_the_place_of_an_escaped_one(chat_id: str) -> None:
    """A chat that is named like the escape of another one is escaped itself."""
    conversation_id = conversation_of(chat_id)
    named_alike = conversation_id.removeprefix("conv_")
    assert named_alike == chat_id or conversation_of(named_alike) != conversation_id


@pytest.mark.parametrize(
    "chat_id", ["", "x-", "x-abc", "-1001234", "a b", "user@host", "/etc/passwd", "漢字", "a" * 57, "x-" + "a" * 30]
)
def test_notable_chat_ids_come_back(chat_id: str) -> None:
    assert is_id(conversation_of(chat_id))
    assert chat_of(conversation_of(chat_id)) == chat_id


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_any_valid_id_names_some_chat(conversation_id: str) -> None:
    """Clients choose nothing here, but nothing that they send may raise."""
    assert isinstance(chat_of(ConversationId(conversation_id)), str)


def test_the_home_chat_can_be_addressed_from_outside() -> None:
    assert HOME_CHAT_ID.isdigit()
    assert 16 <= len(HOME_CHAT_ID) <= 18


def test_each_profile_has_a_home_conversation_of_its_own() -> None:
    """R-A8: the same at each start, and as addressable as the first one's."""
    homes = [home_chat(f"/srv/hermes{profile}") for profile in ("", "/profiles/work", "/profiles/play")]
    assert homes == [HOME_CHAT_ID, "1942465684034574", "1291676888052163"]
    assert all(chat_id.isdigit() and len(chat_id) == 16 for chat_id in homes)


@given(plain | short)
def test_a_conversation_that_is_addressed_by_its_own_name_is_itself(chat_id: str) -> None:
    """R-I1: as whoever copies it from a client does."""
    conversation_id = conversation_of(chat_id)
    assert conversation_of(conversation_id) == conversation_id


@pytest.mark.parametrize("chat_id", ["conv_a b", "conv_" + "a" * 60, "conv_\n", "CONV_1"])
def test_what_only_looks_like_a_conversations_name_is_a_chat(chat_id: str) -> None:
    assert is_id(conversation_of(chat_id))
    assert conversation_of(chat_id) != chat_id
