"""The reducer: however a stream is cut, replayed and doubled, the screens show the same in the end."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from pheby_protocol.client_state import ClientState, apply, digest, lost
from pheby_protocol.codec import structure, unstructure

NOW = 1_796_050_000_000


def conversation(name, **changes):
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


def message(name, where, **changes):
    return {
        "message_id": name,
        "conversation_id": where,
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


@attrs.define
class Server:
    """Makes a stream of frames as a server does, and knows what a reconnecting client must be sent."""

    frames: list = attrs.field(factory=list)
    seq: int = 0
    conversations: dict = attrs.field(factory=dict)
    texts: dict = attrs.field(factory=dict)
    made: int = 0

    def log(self, type_, where, **fields):
        self.seq += 1
        self.frames.append({"type": type_, "seq": self.seq, "time": NOW, "conversation_id": where, **fields})

    def step(self, choice, which, text):
        where = f"conv_{which % 2}"
        if where not in self.conversations:
            self.conversations[where] = conversation(where)
            self.log("conversation.created", where, conversation=self.conversations[where])
        streaming = sorted(name for name, found in self.texts.items() if found["conversation_id"] == where)
        match choice:
            case "begin":
                self.made += 1
                new = message(f"msg_{self.made}", where, position=self.made)
                self.texts[new["message_id"]] = new
                self.log("message.created", where, message=dict(new))
            case "append" | "replace" if streaming:
                name = streaming[which % len(streaming)]
                known = self.texts[name]
                known["index"] += 1
                known["text"] = known["text"] + text if choice == "append" else text
                kind = "message.delta" if choice == "append" else "message.replaced"
                frame = {"type": kind, "conversation_id": where, "message_id": name, "index": known["index"]}
                self.frames.append({**frame, "text": text})
            case "update" if streaming:
                name = streaming[which % len(streaming)]
                self.log("message.updated", where, message=dict(self.texts[name]))
            case "end" if streaming:
                ended = self.texts.pop(streaming[which % len(streaming)])
                self.log("message.completed", where, message={**ended, "status": "completed"})
            case "rename":
                self.conversations[where] = conversation(where, title=text, title_source="manual")
                self.log("conversation.updated", where, conversation=self.conversations[where])
            case "delete":
                del self.conversations[where]
                self.texts = {key: found for key, found in self.texts.items() if found["conversation_id"] != where}
                self.log("conversation.deleted", where)
            case "future":
                self.log("future.happening", where, something={"new": [text]})
            case _:
                pass

    def still_streaming(self):
        return [
            {
                "type": "message.replaced",
                "conversation_id": found["conversation_id"],
                "message_id": name,
                "index": found["index"],
                "text": found["text"],
            }
            for name, found in self.texts.items()
        ]


KINDS = ["begin"] * 4 + ["append"] * 8 + ["replace", "update", "end", "end", "rename", "future", "delete"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 8), st.text(max_size=4)), min_size=5, max_size=40)


def welcome(epoch="e1", resumed=True):
    return {
        "type": "welcome",
        "id": "1",
        "protocol_version": 1,
        "connection_id": "x",
        "server": {"name": "p", "version": "1", "hermes_version": "1"},
        "server_time": NOW,
        "capabilities": {},
        "access_mode": "full",
        "limits": dict.fromkeys(
            (
                "max_frame_bytes",
                "max_server_frame_bytes",
                "max_text_chars",
                "max_list_limit",
                "max_history_limit",
                "max_pending_requests",
            ),
            1,
        ),
        "heartbeat_ms": 30_000,
        "schema_digest": "d",
        "epoch": epoch,
        "seq": 0,
        "resumed": resumed,
        "receipts_since": 0,
    }


def feed(state, *frames):
    for frame in frames:
        state = apply(state, structure(frame))
    return state


def first_connection():
    snapshot = {name: [] for name in ("conversations", "runs", "messages", "tool_calls", "approvals", "clarifications")}
    return feed(
        ClientState(),
        welcome(resumed=False),
        {"type": "snapshot", "part": 0, "last": True, "seq": 0, **snapshot},
        {"type": "sync.completed", "seq": 0},
    )


@given(STEPS, st.data())
def test_cuts_replays_and_duplicates_end_in_the_same_digest(steps, data):
    """G1, G3, S5: a client that was cut off any number of times shows what one shows that never was."""
    server, control, cut_off = Server(), first_connection(), first_connection()
    online = True
    for choice, which, text in steps:
        before = len(server.frames)
        server.step(choice, which, text)
        for frame in server.frames[before:]:
            control = feed(control, frame)
            if online:
                cut_off = feed(cut_off, frame)
                if data.draw(st.booleans(), label="doubled"):
                    cut_off = feed(cut_off, frame)
        if data.draw(st.integers(0, 5), label="network") == 0:
            online = not online
            cut_off = lost(cut_off) if not online else reconnect(cut_off, server, data)
    if not online:
        cut_off = reconnect(cut_off, server, data)
    assert digest(cut_off) == digest(control)
    assert not cut_off.needs_text


def reconnect(state, server, data):
    """Resumed: the logged events after the cursor, perhaps some before it, then what still streams."""
    overlap = data.draw(st.integers(0, 5), label="overlap")
    after = (state.cursor or 0) - overlap
    replay = [frame for frame in server.frames if frame.get("seq", -1) > after]
    return feed(state, welcome(), *replay, *server.still_streaming(), {"type": "sync.completed", "seq": server.seq})


@given(STEPS)
def test_applying_leaves_the_old_state_alone(steps):
    server = Server()
    for choice, which, text in steps:
        server.step(choice, which, text)
    state = first_connection()
    for frame in server.frames:
        before = digest(state)
        after = feed(state, frame)
        assert digest(state) == before
        assert digest(feed(after, frame)) == digest(after)
        state = after


@given(STEPS, st.data())
def test_a_lost_frame_of_a_text_is_noticed_and_the_whole_text_heals_it(steps, data):
    """R-S5: a gap is never guessed over."""
    server = Server()
    for choice, which, text in steps:
        server.step(choice, which, text)
    control = feed(first_connection(), *server.frames)
    deltas = [number for number, frame in enumerate(server.frames) if frame["type"] == "message.delta"]
    missing = data.draw(st.sampled_from(deltas or [-1]), label="missing")
    state = feed(first_connection(), *(f for number, f in enumerate(server.frames) if number != missing))
    for name in state.needs_text:
        assert state.messages[name].index < control.messages[name].index
    healed = feed(state, *server.still_streaming())
    assert digest(healed) == digest(control)
    assert not healed.needs_text


def test_structure_and_unstructure_are_inverse_on_the_streams_used_here():
    for frame in (welcome(), {"type": "sync.completed", "seq": 0}):
        assert unstructure(structure(frame)) == frame
