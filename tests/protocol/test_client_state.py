"""The reducer, rule by rule (wire contract, sections 3, 4, 6)."""

from __future__ import annotations

import attrs
import pytest

from pheby_protocol.client_state import ClientState, apply, apply_answer, digest, lost
from pheby_protocol.codec import structure

NOW = 1_796_050_000_000


def logged(seq, type_, where="conv_1", **fields):
    return structure({"type": type_, "seq": seq, "time": NOW, "conversation_id": where, **fields})


def conversation(name="conv_1", **changes):
    return {
        "conversation_id": name,
        "title": "",
        "title_source": "none",
        "created_at": NOW,
        "updated_at": NOW,
        "last_activity_at": NOW,
        "history_id": "h1",
        "history_head": 0,
        **changes,
    }


def message(name="msg_1", **changes):
    return {
        "message_id": name,
        "conversation_id": "conv_1",
        "position": 1024,
        "role": "assistant",
        "origin": "chat",
        "status": "streaming",
        "text": "",
        "text_truncated": False,
        "index": -1,
        "attachments": [],
        "created_at": NOW,
        **changes,
    }


def run(status, **changes):
    return {
        "run_id": "run_1",
        "conversation_id": "conv_1",
        "origin": "chat",
        "status": status,
        "created_at": NOW,
        **changes,
    }


def delta(index, text, **changes):
    return structure(
        {
            "type": "message.delta",
            "conversation_id": "conv_1",
            "message_id": "msg_1",
            "index": index,
            "text": text,
            **changes,
        }
    )


def snapshot(part, last, seq, **objects):
    empty = {name: [] for name in ("conversations", "runs", "messages", "tool_calls", "approvals", "clarifications")}
    return structure({"type": "snapshot", "part": part, "last": last, "seq": seq, **empty, **objects})


def welcome(epoch, *, resumed):
    limits = (
        "max_frame_bytes max_server_frame_bytes max_text_chars max_list_limit max_history_limit max_pending_requests"
    )
    return structure(
        {
            "type": "welcome",
            "id": "1",
            "protocol_version": 1,
            "connection_id": "x",
            "server": {"name": "p", "version": "1", "hermes_version": "1"},
            "server_time": NOW,
            "capabilities": {},
            "access_mode": "full",
            "limits": dict.fromkeys(limits.split(), 1),
            "heartbeat_ms": 1,
            "schema_digest": "d",
            "epoch": epoch,
            "seq": 9,
            "resumed": resumed,
            "receipts_since": 0,
        }
    )


@pytest.fixture
def state():
    """A conversation in which a message streams; the cursor is 2."""
    known = ClientState()
    for frame in (
        logged(1, "conversation.created", conversation=conversation()),
        logged(2, "message.created", message=message()),
    ):
        known = apply(known, frame)
    return known


def after(known, *frames):
    for frame in frames:
        known = apply(known, frame)
    return known


def test_an_event_at_or_below_the_cursor_is_dropped(state):
    renamed = after(state, logged(5, "conversation.updated", conversation=conversation(title="new")))
    again = after(renamed, logged(4, "conversation.updated", conversation=conversation(title="old")))
    assert again == renamed
    assert again.cursor == 5


def test_an_unknown_event_moves_the_cursor_and_nothing_else(state):
    """M9."""
    later = after(state, structure({"type": "future.thing", "seq": 7, "time": NOW, "stuff": 1}))
    assert later == attrs.evolve(state, cursor=7)


def test_deltas_append_in_order_and_repeats_are_skipped(state):
    later = after(state, delta(0, "a"), delta(0, "a"), delta(1, "b"), delta(2, "cd", last_index=3), delta(3, "d"))
    assert later.messages["msg_1"].text == "abcd"
    assert later.messages["msg_1"].index == 3
    assert not later.needs_text


def test_a_gap_asks_for_the_text_and_the_answer_heals_it(state):
    gap = after(state, delta(0, "a"), delta(2, "c"))
    assert gap.messages["msg_1"].text == "a"
    assert gap.needs_text == {"msg_1"}
    asked = structure({"type": "message.text", "id": "1", "message_id": "msg_1"})
    answer = structure({"type": "message.text.result", "id": "1", "text": "abc", "index": 2, "status": "streaming"})
    healed = apply_answer(gap, asked, answer)
    assert healed.messages["msg_1"].text == "abc"
    assert not healed.needs_text
    assert after(healed, delta(3, "d")).messages["msg_1"].text == "abcd"


def test_a_replacement_becomes_the_text(state):
    replaced = structure(
        {
            "type": "message.replaced",
            "conversation_id": "conv_1",
            "message_id": "msg_1",
            "index": 4,
            "text": "other",
        }
    )
    assert after(state, delta(0, "a"), replaced, delta(5, "!")).messages["msg_1"].text == "other!"
    assert after(state, replaced, replaced) == after(state, replaced)


def test_a_replayed_update_does_not_take_back_what_deltas_brought(state):
    ahead = after(state, delta(0, "a"), delta(1, "b"))
    later = after(ahead, logged(3, "message.updated", message=message(text="a", index=0)))
    assert later.messages["msg_1"].text == "ab"
    ended = after(later, logged(4, "message.completed", message=message(text="a!", index=5, status="failed")))
    assert ended.messages["msg_1"].text == "a!"


def test_late_deltas_of_an_ended_message_change_nothing(state):
    ended = after(state, logged(3, "message.completed", message=message(text="x", index=0, status="completed")))
    assert after(ended, delta(1, "late")) == ended


def test_deleting_a_conversation_takes_everything_of_it(state):
    gone = after(
        state,
        logged(3, "run.started", run=run("running", started_at=NOW)),
        delta(1, "gap"),
        logged(4, "conversation.deleted"),
    )
    assert not gone.conversations
    assert not gone.messages
    assert not gone.runs
    assert not gone.needs_text
    old = structure({"type": "conversation.get.result", "id": "1", "conversation": conversation(), "as_of_seq": 3})
    asked = structure({"type": "conversation.get", "id": "1", "conversation_id": "conv_1"})
    assert not apply_answer(gone, asked, old).conversations


def test_an_older_answer_does_not_replace_what_an_event_changed(state):
    """Section 4: as_of_seq."""
    renamed = after(state, logged(5, "conversation.updated", conversation=conversation(title="new")))
    asked = structure({"type": "conversation.get", "id": "1", "conversation_id": "conv_1"})
    for as_of, title in ((4, "new"), (5, "newest")):
        answer = structure(
            {
                "type": "conversation.get.result",
                "id": "1",
                "conversation": conversation(title="newest"),
                "as_of_seq": as_of,
            }
        )
        assert apply_answer(renamed, asked, answer).conversations["conv_1"].title == title


def test_changed_history_drops_ended_items_from_there_and_asks_for_them(state):
    known = after(
        state,
        logged(3, "message.created", message=message("msg_2", position=2048, status="completed")),
        logged(4, "message.created", message=message("msg_3", position=512, status="completed")),
        logged(5, "history.changed", history_id="h2", history_head=4096, from_position=1024),
    )
    assert set(known.messages) == {"msg_1", "msg_3"}, "what still streams and what lies before stay"
    assert known.conversations["conv_1"].history_id == "h2"
    assert known.needs_history == {"conv_1": 1024}


def cached(*found):
    """A client that has an ended message and one that streams, of the history h1, and then what was found."""
    known = after(
        ClientState(),
        logged(1, "conversation.created", conversation=conversation()),
        logged(2, "message.created", message=message("msg_1", position=512, status="completed")),
        logged(3, "message.created", message=message("msg_2")),
        logged(4, "message.created", message=message("msg_3", status="cancelled") | {"position": None}),
    )
    return after(known, *found)


def page(history_id, **request):
    """A page of history as an answer: of one message, as of event 9."""
    asked = structure({"type": "conversation.history", "id": "1", "conversation_id": "conv_1", **request})
    lists = {kind: [] for kind in ("tool_calls", "runs", "approvals", "clarifications")}
    found = {"messages": [message("msg_7", position=256, status="completed")], "has_more": False}
    more = {"history_id": history_id, "as_of_seq": 9}
    answer = {"type": "conversation.history.result", "id": "1", "conversation_id": "conv_1", **lists, **found, **more}
    return asked, structure(answer)


def test_another_history_id_in_an_event_drops_all_that_ended():
    known = cached(logged(5, "conversation.updated", conversation=conversation(history_id="h2")))
    assert set(known.messages) == {"msg_2", "msg_3"}, "what still streams and what has no position stay"
    assert known.needs_history == {"conv_1": 0}
    same = cached(logged(5, "conversation.updated", conversation=conversation(history_head=7)))
    assert set(same.messages) == {"msg_1", "msg_2", "msg_3"}
    assert same.needs_history == {}


def test_after_history_changed_the_new_id_drops_no_more():
    known = cached(
        logged(5, "history.changed", history_id="h2", history_head=4096, from_position=1024),
        logged(6, "conversation.updated", conversation=conversation(history_id="h2")),
    )
    assert set(known.messages) == {"msg_1", "msg_2", "msg_3"}
    assert known.needs_history == {"conv_1": 1024}


def test_another_history_id_in_a_snapshot_drops_all_that_ended():
    known = cached(snapshot(0, True, 20, conversations=[conversation(history_id="h2")], messages=[message("msg_2")]))
    assert set(known.messages) == {"msg_2", "msg_3"}
    assert known.needs_history == {"conv_1": 0}


def test_of_what_was_never_fetched_nothing_is_fetched_again():
    known = after(
        ClientState(),
        logged(1, "conversation.created", conversation=conversation()),
        snapshot(0, True, 20, conversations=[conversation(history_id="h2")]),
    )
    assert known.conversations["conv_1"].history_id == "h2"
    assert known.needs_history == {}


@pytest.mark.parametrize("kind", ["conversation.get", "conversation.list"])
def test_another_history_id_in_an_answer_drops_all_that_ended(kind):
    named = {"conversation_id": "conv_1"} if kind == "conversation.get" else {}
    asked = structure({"type": kind, "id": "1", **named})
    found = conversation(history_id="h2")
    shown = {"conversation": found} if kind == "conversation.get" else {"conversations": [found]}
    for as_of, left in ((9, {"msg_2", "msg_3"}), (0, {"msg_1", "msg_2", "msg_3"})):
        answer = structure({"type": f"{kind}.result", "id": "1", **shown, "as_of_seq": as_of})
        assert set(apply_answer(cached(), asked, answer).messages) == left, "an older answer says nothing"


def test_a_page_of_another_history_takes_the_place_of_what_was_cached():
    known = apply_answer(cached(), *page("h2"))
    assert set(known.messages) == {"msg_2", "msg_3", "msg_7"}
    assert known.conversations["conv_1"].history_id == "h2"
    assert known.needs_history == {}


@pytest.mark.parametrize("asked", [{"before": 512}, {"after": 128}])
def test_a_page_asked_for_by_a_position_of_another_history_is_not_taken(asked):
    known = apply_answer(cached(), *page("h2", **asked))
    assert set(known.messages) == {"msg_2", "msg_3"}
    assert known.needs_history == {"conv_1": 0}
    same = apply_answer(cached(), *page("h1", **asked))
    assert set(same.messages) == {"msg_1", "msg_2", "msg_3", "msg_7"}


def test_a_page_from_before_history_changed_drops_nothing():
    changed = logged(10, "history.changed", history_id="h2", history_head=4096, from_position=1024)
    known = apply_answer(cached(changed), *page("h1"))
    assert known.conversations["conv_1"].history_id == "h2"
    assert "msg_1" in known.messages


def test_a_snapshot_applies_as_a_whole_and_closes_what_it_does_not_name(state):
    known = after(state, logged(3, "run.started", run=run("running", started_at=NOW)))
    known = apply(known, logged(4, "conversation.created", "conv_2", conversation=conversation("conv_2")))
    begun = after(
        lost(known),
        welcome("e2", resumed=False),
        snapshot(0, False, 9, conversations=[conversation(title="fresh")]),
    )
    assert begun.messages == known.messages, "nothing changes before the last part"
    whole = after(begun, snapshot(1, True, 9), structure({"type": "sync.completed", "seq": 9}))
    assert not whole.messages
    assert not whole.runs
    assert whole.conversations["conv_1"].title == "fresh"
    assert whole.unconfirmed == {"conv_2"}
    assert (whole.cursor, whole.epoch, whole.in_step) == (9, "e2", True)


def test_a_full_walk_of_the_list_deletes_what_it_does_not_name(state):
    known = apply(state, logged(3, "conversation.created", "conv_2", conversation=conversation("conv_2")))
    known = after(known, welcome("e2", resumed=False), snapshot(0, True, 9))
    assert known.unconfirmed == {"conv_1", "conv_2"}
    pages = ((conversation("conv_1"), "more"), (conversation("conv_3"), None))
    for item, following in pages:
        asked = structure({"type": "conversation.list", "id": "1"})
        page = {"type": "conversation.list.result", "id": "1", "conversations": [item], "as_of_seq": 9}
        known = apply_answer(known, asked, structure(page | ({"next": following} if following else {})))
    assert set(known.conversations) == {"conv_1", "conv_3"}
    assert not known.unconfirmed


def test_a_new_count_of_events_forgets_the_old_cursor(state):
    """S5: a gap discards the old cursor; the new log may count from 1 again."""
    known = after(state, welcome("e2", resumed=False), snapshot(0, True, 0))
    assert known.cursor == 0
    later = apply(known, logged(1, "conversation.updated", conversation=conversation(title="counted anew")))
    assert later.conversations["conv_1"].title == "counted anew"


def test_progress_is_shown_while_the_run_lasts_and_is_no_part_of_the_digest(state):
    running = apply(state, logged(3, "run.started", run=run("running", started_at=NOW)))
    phrase = structure({"type": "run.progress", "conversation_id": "conv_1", "run_id": "run_1", "text": "reading"})
    shown = apply(running, phrase)
    assert shown.progress == {"run_1": "reading"}
    assert digest(shown) == digest(running)
    ended = apply(shown, logged(4, "run.ended", run=run("completed", ended_at=NOW)))
    assert not ended.progress


def test_a_batch_is_its_events(state):
    events = [
        {"type": "future.thing", "seq": 3, "time": NOW},
        {
            "type": "message.delta",
            "conversation_id": "conv_1",
            "message_id": "msg_1",
            "index": 0,
            "text": "a",
        },
    ]
    batch = apply(state, structure({"type": "batch", "events": events}))
    assert batch == after(state, *[structure(event) for event in events])


def test_models_and_efforts_change_their_conversation(state):
    changed = after(
        state,
        logged(3, "model.changed", current={"provider": "p", "model": "m"}),
        logged(4, "reasoning.changed", current="high"),
    )
    assert changed.conversations["conv_1"].model.model == "m"
    assert changed.conversations["conv_1"].reasoning_effort == "high"


def test_the_digest_is_canonical(state):
    other = after(ClientState(), *[logged(1, "conversation.created", conversation=conversation())])
    other = apply(other, logged(2, "message.created", message=dict(reversed(message().items()))))
    assert digest(other) == digest(state)
    assert digest(after(state, delta(0, "a"))) != digest(state)
