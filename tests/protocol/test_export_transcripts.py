"""The reducer's transcripts: they play, they differ from each other, and each holds what it says."""

from __future__ import annotations

import pytest

from pheby_protocol.codec import decode_object, encode_object, structure, unstructure
from pheby_protocol.export.transcripts import transcripts
from pheby_protocol.messages.message import Message

ALL = transcripts()


def test_the_transcripts_are_the_same_every_time():
    assert transcripts() == ALL


@pytest.mark.parametrize("name", ALL)
def test_every_step_is_followed_by_a_digest(name):
    steps = ALL[name]["steps"]
    assert all(set(step) <= {"frame", "answer", "lost"} for step in steps[::2])
    assert all(len(step["digest"]) == 64 for step in steps[1::2])


@pytest.mark.parametrize("name", ALL)
def test_every_frame_is_a_frame(name):
    for step in ALL[name]["steps"]:
        if "frame" in step:
            assert structure(unstructure(structure(step["frame"]))) == structure(step["frame"])


def test_what_each_ends_in():
    def texts(name):
        return {key: message["text"] for key, message in ALL[name]["state"]["messages"].items()}

    assert texts("turn.json") == {"msg_1": "say hello", "msg_2": "Hello"}
    assert texts("gap.json")["msg_2"] == "something else!"
    assert texts("resumed.json")["msg_2"] == "Hello, world"
    assert ALL["resumed.json"]["state"]["conversations"]["conv_1"]["title"] == "Renamed"
    snapshot = ALL["snapshot.json"]["state"]
    assert (set(snapshot["conversations"]), set(snapshot["runs"]), set(snapshot["messages"])) == (
        {"conv_1"},
        {"run_9"},
        {"msg_1"},
    )
    assert ALL["tool-and-approval.json"]["state"]["approvals"]["appr_1"]["choices"][1] == "future_choice"
    assert ALL["clarification.json"]["state"]["runs"]["run_1"]["status"] == "paused_by_future"
    assert texts("history-changed.json") == {"msg_1": "say hello", "msg_7": "Hello again"}
    assert texts("another-history.json") == {}
    assert ALL["another-history.json"]["wishes"]["needs_history"] == {"conv_1": 0}
    deleted = ALL["deleted.json"]["state"]
    assert not any(deleted[name] for name in deleted if name not in ("cursor", "epoch"))
    assert texts("future.json")["msg_2"] == "ab"
    assert ALL["settings.json"]["state"]["attachments"]["att_1"]["status"] == "expired"


def test_shown_objects_are_wire_objects():
    for transcript in ALL.values():
        for message in transcript["state"]["messages"].values():
            text = encode_object(
                structure(
                    {"type": "message.created", "seq": 1, "time": 1, "conversation_id": "c", "message": message}
                ).message
            )
            assert encode_object(decode_object(text, Message)) == text
