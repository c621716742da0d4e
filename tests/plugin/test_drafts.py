"""Streamed text: what of it may be seen, and how that changes."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pheby_hermes.drafts import Append, DraftTail, Replace, clean_text, visible, whole_characters


def stream(*texts: str, cursor: str = "") -> list[Append | Replace | None]:
    """The changes of one segment that arrives in these pieces."""
    draft = DraftTail(cursor)
    return [draft.update("".join(texts[: n + 1]), final=n == len(texts) - 1) for n in range(len(texts))]


def every_prefix(text: str) -> list[tuple[str, Append | Replace | None]]:
    """The visible text and the change after each character, and after the end."""
    draft = DraftTail("")
    steps = []
    for end in range(1, len(text) + 1):
        change = draft.update(text[:end])
        steps.append((draft.text, change))
    change = draft.update(text, final=True)
    return [*steps, (draft.text, change)]


# -- growing -----------------------------------------------------------------------------------------------------


def test_text_grows() -> None:
    assert stream("Hel", "lo", "") == [Append("Hel"), Append("lo"), None]


def test_the_cursor_is_no_text() -> None:
    draft = DraftTail()
    assert draft.update("Hello ▉") == Append("Hello")
    assert draft.update("Hello there ▉") == Append(" there")
    assert draft.update("Hello there", final=True) is None


def test_another_cursor() -> None:
    draft = DraftTail("_")
    assert draft.update("Hello_") == Append("Hello")
    assert draft.update("_") == Replace("")


def test_white_space_at_the_end_waits() -> None:
    assert stream("a\n", "\n", "b ", " ") == [Append("a"), None, Append("\n\nb"), None]


def test_blank_lines_at_the_start_are_dropped() -> None:
    assert stream("\n", "\n \t\r\n", "  code") == [None, None, Append("  code")]


def test_text_that_is_not_continued_is_replaced() -> None:
    draft = DraftTail()
    draft.update("one two")
    assert draft.update("one three") == Replace("one three")
    assert draft.text == "one three"


@pytest.mark.parametrize("text", ["", " ", "\n\n", " ▉"])
def test_nothing_is_visible(text: str) -> None:
    assert visible(text, final=False, cursor=" ▉") == visible(text, final=True, cursor=" ▉") == ""
    assert DraftTail().update(text) is None


# -- characters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\ud83d b", "a\ufffd b"),
        ("a \ude00b", "a \ufffdb"),
        ("\ud83d\ude00!", "\U0001f600!"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("\U0001f600", "\U0001f600"),
    ],
)
def test_surrogates(text: str, expected: str) -> None:
    assert whole_characters(text) == expected
    assert clean_text(text) == expected


def test_half_a_character_waits_for_the_other_half() -> None:
    assert stream("a\ud83d", "\ude00") == [Append("a"), Append("\U0001f600")]
    assert stream("a\ud83d", " b", "") == [Append("a"), Append("\ufffd b"), None]
    assert stream("a", "\ud83d") == [Append("a"), Append("\ufffd")]


@given(st.text(st.characters(), max_size=40))
def test_any_text_can_be_encoded_afterwards(text: str) -> None:
    clean_text(text).encode()
    assert clean_text(clean_text(text)) == clean_text(clean_text(clean_text(text)))


# -- reasoning (B4) ----------------------------------------------------------------------------------------------


def test_reasoning_split_over_deltas_is_never_seen() -> None:
    assert stream("<thi", "nk>secret</th", "ink>Hi") == [None, None, Append("Hi")]


def test_unclosed_reasoning_is_hidden_to_the_end() -> None:
    assert stream("<thi", "nk>secret</th", "in") == [None, None, None]
    assert stream("Seen <think>", "secret", "") == [Append("Seen"), None, None]


def test_a_draft_says_that_reasoning_hides_its_end() -> None:
    draft = DraftTail()
    draft.update("Seen <think>secret")
    assert draft.unclosed
    draft.update("Seen <think>secret</think> end", final=True)
    assert not draft.unclosed


@pytest.mark.parametrize(
    "name", ["think", "thinking", "reasoning", "thought", "REASONING_SCRATCHPAD", "THINK", "Think"]
)
def test_every_reasoning_tag(name: str) -> None:
    assert clean_text(f"a <{name}>secret</{name}> b") == "a b"
    assert clean_text(f"a <{name} kind='x'>secret</{name.swapcase()} > b") == "a b"
    for seen, change in every_prefix(f"a <{name}>secret</{name}> b"):
        assert "s" not in seen
        assert "<" not in seen
        assert not isinstance(change, Replace)


def test_reasoning_on_its_own_lines() -> None:
    assert clean_text("a\n<think>\nx\n</think>\nb") == "a\nb"


def test_a_closing_tag_alone_is_dropped() -> None:
    assert clean_text("a</think> b") == "a b"
    assert clean_text("<think/>a") == "a"


@pytest.mark.parametrize("text", ["<thinker>a", "a < b", "x <t", "<thin air>", "<b>bold</b>", "1 <", "<thinks>"])
def test_other_tags_are_text(text: str) -> None:
    assert clean_text(text) == text
    assert every_prefix(text + " end")[-1][0] == text + " end"


@pytest.mark.parametrize(
    "text", ["Use `<think>` here", "```\n<think>x\n```\nafter", "~~~\n</think>\n~~~", "``<think>` ``"]
)
def test_quoted_tags_stay(text: str) -> None:
    assert clean_text(text) == text


def test_reasoning_behind_a_stray_backtick_is_hidden() -> None:
    for seen, change in every_prefix("it`s <think>secret\nmore</think>so"):
        assert "secret" not in seen
        assert not isinstance(change, Replace)
    assert clean_text("it`s <think>secret</think>so") == "it`s so"


# -- MEDIA tags and directives (J3, J4) ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen", "paths"),
    [
        ("MEDIA:/c/My Doc/a b.md", "", ("/c/My Doc/a b.md",)),
        ("MEDIA:/c/1.pngMEDIA:/c/2.png", "", ("/c/1.png", "/c/2.png")),
        ("MEDIA:/c/1.png<|eos|>", "", ("/c/1.png",)),
        ("MEDIA:/c/1.png<|im_end|><|eos|> so", "so", ("/c/1.png",)),
        ("a\nMEDIA:/c/1.png\nb", "a\nb", ("/c/1.png",)),
        ("a MEDIA:/c/1.png b", "a b", ("/c/1.png",)),
        ('a MEDIA:"/c/a b" b', "a b", ("/c/a b",)),
        ("a MEDIA:'/c/a' b", "a b", ("/c/a",)),
        ("a MEDIA:`/c/a.png` b", "a b", ("/c/a.png",)),
        ("a **MEDIA:/c/a_b.pdf** b", "a b", ("/c/a_b.pdf",)),
        ("_MEDIA: ~/a.pdf_", "", ("~/a.pdf",)),
        ("see MEDIA:/c/a.tar.gz. Done", "see . Done", ("/c/a.tar.gz",)),
        ("(MEDIA:/c/a(1).png)", "()", ("/c/a(1).png",)),
        ("MEDIA:C:\\Users\\a b\\c.docx", "", ("C:\\Users\\a b\\c.docx",)),
        ("MEDIA:/c/no_extension\nso", "so", ("/c/no_extension",)),
        ("MEDIA:/c/a.png MEDIA:/c/a.png", "", ("/c/a.png",)),
        ("[[as_document]]\nMEDIA:/c/a.png\nso [[audio_as_voice]]", "so", ("/c/a.png",)),
        ("MEDIA:/c/a.png\uff0cso", "\uff0cso", ("/c/a.png",)),
    ],
)
def test_media_tags_are_taken_out(text: str, seen: str, paths: tuple[str, ...]) -> None:
    draft = DraftTail()
    draft.update(text, final=True)
    assert draft.text.strip() == seen
    assert draft.media == paths
    for partly, change in every_prefix(text):
        assert "MED" not in partly
        assert "c/" not in partly
        assert not isinstance(change, Replace)


@pytest.mark.parametrize(
    "text",
    [
        "MEDIA: is a tag",
        "MEDIA:name",
        'MEDIA:"name"',
        'MEDIA:"/c/never closed',
        "MULTIMEDIA:/c/a.png",
        "MEDIAN",
        "[[as_picture]]",
        "[link](x)",
        "`MEDIA:/c/a.png`",
        "```\nMEDIA:/c/a.png\n[[as_document]]\n```",
        "> ~~~\n> MEDIA:/c/a.png\n> ~~~",
        "````\n```\nMEDIA:/c/a.png\n````",
        "Here: ```\nMEDIA:/c/a.png\n```",
        "```\nMEDIA:/c/never closed.png",
    ],
)
def test_what_is_no_media_tag_stays(text: str) -> None:
    draft = DraftTail()
    draft.update(text, final=True)
    assert draft.text == text
    assert draft.media == ()
    assert every_prefix(text)[-1][0] == text


def test_code_ends_where_its_fence_ends() -> None:
    assert clean_text("```\nMEDIA:/c/a.png\n```\nMEDIA:/c/b.png\nso") == "```\nMEDIA:/c/a.png\n```\nso"
    assert clean_text("`a`MEDIA:/c/b.png `c`") == "`a` `c`"
    assert clean_text("a ` b\nMEDIA:/c/b.png\nso ` d") == "a ` b\nso ` d"
    assert clean_text("```` x ``` MEDIA:/c/b.png") == "```` x ```"


@pytest.mark.parametrize(
    "tail", ["M", "ME", "MED", "MEDIA", "MEDIA:", "**", "*ME", "[", "[[as_doc", "<", "</", "<think x"]
)
def test_a_tail_that_may_become_a_tag_waits(tail: str) -> None:
    draft = DraftTail()
    draft.update(f"a {tail}")
    assert draft.text == "a"
    draft.update(f"a {tail}!", final=True)
    assert draft.text == f"a {tail}!"


@pytest.mark.parametrize("tail", ["NAME", "HTM", "MEX", "[x", "[[x", "<p", "a * b", "x_y"])
def test_ordinary_words_do_not_wait(tail: str) -> None:
    assert visible(f"a {tail}", final=False) == f"a {tail}"


def test_a_long_line_behind_a_path_without_an_ending_is_shown_before_it_ends() -> None:
    words = "one two three four five six seven eight nine ten"
    assert visible(f"MEDIA:/c/x {words}", final=False).endswith(words)


# -- properties --------------------------------------------------------------------------------------------------

SECRET = "q"
PLAIN = st.text(st.sampled_from("ab \n*_[<>/MEDIA:.t|\"'"), max_size=8)
NAMES = st.sampled_from(["think", "THINK", "thinking", "reasoning", "thought", "REASONING_SCRATCHPAD"])
HIDDEN = st.builds(lambda name, mid, count: f"<{name}>{SECRET}{mid}{SECRET * count}</{name}>", NAMES, PLAIN, st.just(2))
MEDIA = st.sampled_from(["MEDIA:/c/1.png", "MEDIA:/c/x y.pdf ", 'MEDIA:"/c/2.png"', "[[as_document]]", "MEDIA:/c/z\n"])
CODE = st.sampled_from(["`", "``", "```", "```\n", "~~~\n", "`code`", "\n```py\nx\n```\n"])
PROSE = st.lists(st.one_of(PLAIN, HIDDEN, MEDIA), max_size=8).map("".join)
ANYTHING = st.lists(st.one_of(PLAIN, HIDDEN, MEDIA, CODE, st.text(max_size=3)), max_size=10).map("".join)


def cuts(text: str, data: st.DataObject) -> list[int]:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    return sorted(places)


@given(ANYTHING, st.data())
def test_folding_the_changes_gives_the_text(text: str, data: st.DataObject) -> None:
    draft, folded = DraftTail(""), ""
    steps = [(text[:end], False) for end in cuts(text, data)] + [(text, True)]
    for so_far, final in steps:
        before = draft.text
        change = draft.update(so_far, final=final)
        if isinstance(change, Append):
            assert change.text
            folded += change.text
        elif isinstance(change, Replace):
            assert not change.text.startswith(before)
            folded = change.text
        else:
            assert draft.text == before
        assert folded == draft.text == visible(so_far, final=final)
        assert draft.text == draft.text.rstrip()
    assert draft.text == clean_text(text)


@given(PROSE)
@example("<think>q</think><think>q")
@example("**MEDIA:/c/1.png** a")
def test_outside_code_reasoning_is_never_seen_and_text_only_grows(text: str) -> None:
    # Where emphasised tags are glued together, the emphasis turns out to belong to a tag only later.
    assume("*MEDIA:" not in text.partition("MEDIA:")[2])
    for seen, change in every_prefix(text)[:-1]:
        assert SECRET not in seen
        assert not isinstance(change, Replace)
    assert SECRET not in clean_text(text)


@given(st.text(st.sampled_from("ab \n\t<>/MEDIA:[]*_."), max_size=30))
def test_code_is_verbatim(text: str) -> None:
    fenced = f"```\n<think>{text}</think>\nMEDIA:/c/a.png\n```"
    assert clean_text(fenced) == fenced


# -- speed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "piece",
    [
        "The quick brown *fox* jumps over `the` lazy <b>dog</b>, MAX [see](x).\n",
        "```py\nprint(1)\n```\nand `this` one.\n",
        "<think>hidden</think> seen ",
        "MEDIA:/c/a.png ",
        "MEDIA:/c/a",
        "` x ",
        "<",
        "[[",
        "`` ``` ",
        "漢字\ud83d",
    ],
)
def test_a_long_reply_is_cheap(piece: str) -> None:
    text = (piece * (100_000 // len(piece) + 1))[:100_000]
    draft, began = DraftTail(), time.process_time()
    for end in range(2_000, 100_001, 2_000):
        draft.update(text[:end])
    draft.update(text, final=True)
    # 50 edits. Ordinary text takes some 0.05 s; the bound only finds what grows with the square.
    assert time.process_time() - began < 3
