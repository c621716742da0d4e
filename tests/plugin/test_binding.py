"""Messages that were seen live, and the rows that they are."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st
from pheby_hermes.binding import Bound, LiveMessage, bind
from pheby_hermes.history import HistoryRow, Mark


def user(message_id: str, text: str = "hi") -> LiveMessage:
    return LiveMessage(message_id, "user", text)


def said(message_id: str, text: str) -> LiveMessage:
    return LiveMessage(message_id, "assistant", text)


def row(
    key: str, text: str, role: str = "assistant", message_id: str | None = None, mark: Mark | None = None
) -> HistoryRow:
    return HistoryRow(key, (f"also-{key}",), role, text, 0, message_id, mark=mark)  # type: ignore[arg-type]


def pairs(live: list[LiveMessage], rows: list[HistoryRow], bound: set[str] | None = None) -> list[tuple[str, str]]:
    return [(pair.message_id, pair.key) for pair in bind(live, rows, bound or set())]


def test_a_run() -> None:
    live = [user("m1", "run ls"), said("a", "Let me."), said("b", "Done.")]
    rows = [row("1", "run ls", "user", "m1"), row("2", "Let me."), row("t", "", "tool"), row("3", "Done.")]
    assert bind(live, rows, set()) == [Bound("m1", "1"), Bound("a", "2"), Bound("b", "3")]


def test_a_user_row_is_found_by_its_message_id_whatever_its_text() -> None:
    rows = [row("1", "hi", "user", "m0"), row("2", "[decorated]", "user", "m1")]
    assert pairs([user("m1")], rows) == [("m1", "2")]


def test_a_user_row_without_an_id_is_found_by_how_it_ends() -> None:
    rows = [row("1", "other", "user"), row("2", "[The user sent a document]\n\n hi\n", "user")]
    assert pairs([user("m1")], rows) == [("m1", "2")]


def test_equal_user_rows_go_in_order() -> None:
    rows = [row("1", "hi", "user"), row("2", "hi", "user")]
    assert pairs([user("m1"), user("m2"), user("m3")], rows) == [("m1", "1"), ("m2", "2")]


def test_a_row_of_another_message_is_not_taken() -> None:
    assert pairs([user("m1")], [row("1", "hi", "user", "m0")]) == []


def test_an_empty_text_is_nobodys_row() -> None:
    assert pairs([user("m1", " ")], [row("1", "hi", "user")]) == []


def test_bound_rows_are_left_alone() -> None:
    rows = [row("1", "Done."), row("2", "Done.")]
    assert pairs([said("a", "Done.")], rows, {"1"}) == [("a", "2")]
    assert pairs([said("a", "Done.")], rows, {"also-1", "2"}) == []


def test_white_space_and_media_tags_do_not_count() -> None:
    assert pairs([said("a", "\n\nHere  is\nit")], [row("1", "Here is it\nMEDIA:/c/a.png")]) == [("a", "1")]


def test_what_was_never_stored_stays_unbound() -> None:
    live = [said("n", "Retrying ..."), said("a", "One."), said("n2", "Hm."), said("b", "Two.")]
    assert pairs(live, [row("1", "One."), row("2", "Two.")]) == [("a", "1"), ("b", "2")]


def test_what_was_never_shown_stays_unbound() -> None:
    assert pairs([said("b", "Two.")], [row("1", "One."), row("2", "Two.")]) == [("b", "2")]


def test_the_order_decides_between_equal_texts() -> None:
    live = [said("a", "Done."), said("b", "One."), said("c", "Two.")]
    rows = [row("1", "One."), row("2", "Two."), row("3", "Done.")]
    assert pairs(live, rows) == [("b", "1"), ("c", "2")]


def test_a_footer_is_shown_and_not_stored() -> None:
    live = [said("a", "One."), said("b", "Two.\n\n-- 1 file was not changed"), said("c", "Three.")]
    assert pairs(live, [row("1", "One."), row("2", "Two."), row("3", "Three.")]) == [("a", "1"), ("b", "2"), ("c", "3")]


def test_a_row_that_was_shown_in_parts() -> None:
    live = [said("a", "One "), said("b", "two "), said("c", "three."), said("d", "End.")]
    assert pairs(live, [row("1", "One two three."), row("2", "End.")]) == [
        ("a", "1"),
        ("b", "1"),
        ("c", "1"),
        ("d", "2"),
    ]


def test_an_interrupted_row_may_hold_more_than_was_shown() -> None:
    assert pairs([said("a", "w1 w2")], [row("1", "w1 w2 w3", mark="interrupted")]) == [("a", "1")]
    assert pairs([said("a", "w1 w2")], [row("1", "w1 w2 w3")]) == []


def test_notices_and_tools_are_no_partners() -> None:
    assert pairs([said("a", "x")], [row("1", "x", "notice"), row("2", "x", "tool")]) == []


def test_a_very_long_run_is_bound_quickly() -> None:
    live = [said(f"a{n}", f"text {n % 7}") for n in range(3000)]
    rows = [row(f"{n}", f"text {n % 7}") for n in range(3000)]
    began = time.process_time()
    assert len(pairs(live, rows)) == 3000
    assert pairs(live, [row(f"{n}", "nothing alike") for n in range(3000)]) == []
    assert time.process_time() - began < 5


TEXTS = st.sampled_from(["", " ", "a", "a b", "b", "ab", "abc", "MEDIA:/x", "\n"])
LIVE = st.lists(
    st.builds(LiveMessage, st.sampled_from("123456"), st.sampled_from(["user", "assistant"]), TEXTS), max_size=8
)
ROWS = st.lists(
    st.builds(
        HistoryRow,
        st.sampled_from("abcdefgh"),
        st.just(()),
        st.sampled_from(["user", "assistant", "tool", "notice"]),
        TEXTS,
        st.just(0),
        st.sampled_from([None, None, "1", "2"]),
        mark=st.sampled_from([None, "interrupted"]),
    ),
    max_size=8,
    unique_by=lambda row: row.key,
)


@given(LIVE, ROWS, st.sets(st.sampled_from("abcdefgh"), max_size=3))
def test_any_run_can_be_bound(live: list[LiveMessage], rows: list[HistoryRow], bound: set[str]) -> None:
    result = bind(live, rows, bound)
    roles = {row.key: row.role for row in rows}
    spoken = {(message.message_id, message.role) for message in live}
    assert all((pair.message_id, roles[pair.key]) in spoken for pair in result)
    assert not bound & {pair.key for pair in result}
    assert bind(live, rows, bound) == result
    places = [[row.key for row in rows].index(p.key) for p in result if roles[p.key] == "assistant"]
    if len({message.message_id for message in live}) == len(live):
        assert places == sorted(places)
