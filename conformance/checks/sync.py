"""Coming back: replay after a cursor, or a snapshot."""

from __future__ import annotations

from typing import Any

from ..check import SCRIPTED, check, check_each, expect, same
from ..phone import Frame, Phone
from ..scene import Scene
from .snapshot import next_delta


def _logged(phone: Phone, conversation_id: str) -> list[Frame]:
    return [event for event in phone.events(conversation_id) if "seq" in event]


async def _until_step(scene: Scene, **hello: Any) -> Phone:
    return await scene.in_step(**hello)


@check("sync/replay", "P-SYNC-4", needs=("resume",))
async def replay(scene: Scene) -> None:
    """After a cursor come exactly the logged events behind it, as they were, in order; then sync.completed."""
    witness, phone = await scene.in_step(), await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await phone.fence()
    cursor = phone.cursor
    phone.cut()
    await scene.ended(witness, (await scene.say(witness, conversation_id, "say while away"))["run_id"], None)
    await witness.fence()
    back = await scene.in_step(phone.device_id, resume=cursor)
    same(back.welcome["resumed"], True, "resumed")
    expect(not [frame for frame in back.frames if frame["type"] == "snapshot"], "there is a snapshot, too")
    missed = [event for event in _logged(witness, conversation_id) if event["seq"] > cursor["seq"]]
    found = _logged(back, conversation_id)[: len(missed)]
    same([event["type"] for event in found], [event["type"] for event in missed], "types of the replayed events")
    same(found, missed, "the replayed events")


@check("sync/nothing-missed", "P-SYNC-4", needs=("resume",))
async def nothing_missed(scene: Scene) -> None:
    """Who has missed nothing is in step at once, of the same epoch."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await phone.fence()
    back = await scene.in_step(phone.device_id, resume=phone.cursor)
    same((back.welcome["resumed"], back.welcome["epoch"]), (True, phone.welcome["epoch"]), "resumed and epoch")
    place = next(place for place, frame in enumerate(back.frames) if frame["type"] == "sync.completed")
    same([frame for frame in back.frames[:place] if frame.get("conversation_id") == conversation_id], [], "replayed")


@check("sync/live-after-replay", "P-SYNC-4", needs=("resume",))
async def live_after_replay(scene: Scene) -> None:
    """Behind a replay live events follow, none twice."""
    phone = await scene.in_step()
    await phone.fence()
    back = await scene.in_step(resume=phone.cursor)
    conversation_id = await scene.conversation(phone)
    await back.seen("conversation.created", conversation_id=conversation_id)
    await back.fence()
    same(len(back.events(conversation_id, "conversation.created")), 1, "number of conversation.created")


@check_each(
    "sync/useless-cursor",
    "P-SYNC-5",
    "P-HELLO-11",
    cases={
        "foreign-epoch": {"epoch": "e_of_another_server"},
        "ahead": {"seq": 2**53 - 1},
        "just-ahead": {"seq": +1_000_000_000},
        "seq-as-text": {"seq": "812"},
        "seq-as-fraction": {"seq": 812.0},
        "negative-seq": {"seq": -1},
        "no-epoch": {"epoch": None},
        "no-seq": {"seq": None},
        "epoch-as-number": {"epoch": 7},
        "long-epoch": {"epoch": "e" * 10_000},
        "empty": {"epoch": None, "seq": None},
    },
)
async def useless_cursor(scene: Scene, change: dict[str, Any]) -> None:
    """A cursor that cannot be used costs a snapshot on the same socket"""
    first = await scene.in_step()
    cursor = first.cursor | change
    phone = await scene.in_step(resume={name: value for name, value in cursor.items() if value is not None})
    same(phone.welcome["resumed"], False, "resumed")
    await phone.seen("snapshot", last=True)
    await phone.fence()


@check_each("sync/cursor-of-another-shape", "P-SYNC-5", cases={"text": "e_1:812", "array": ["e_1", 812], "number": 812})
async def another_shape(scene: Scene, cursor: Any) -> None:
    """A cursor that is no object costs a snapshot on the same socket"""
    phone = await scene.in_step(resume=cursor)
    same(phone.welcome["resumed"], False, "resumed")
    await phone.seen("snapshot", last=True)


@check("sync/streaming", "P-SYNC-4", needs=(SCRIPTED, "resume", "streaming", "cancel"))
async def streaming(scene: Scene) -> None:
    """A streaming message comes as one message.replaced before sync.completed, and its deltas go on behind it."""
    phone, witness = await scene.in_step(), await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "slow 60")
    await phone.seen("message.delta", conversation_id=conversation_id)
    cursor = phone.cursor
    phone.cut()
    back = await scene.in_step(phone.device_id, resume=cursor)
    place = next(place for place, frame in enumerate(back.frames) if frame["type"] == "sync.completed")
    before = [frame for frame in back.frames[:place] if frame.get("conversation_id") == conversation_id]
    replaced = [frame for frame in before if frame["type"] == "message.replaced"]
    same(len(replaced), 1, "number of message.replaced")
    expect(not [frame for frame in before if frame["type"] == "message.delta"], "a delta came before sync.completed")
    following = await next_delta(back, replaced[0]["message_id"], replaced[0]["index"])
    same(following["index"], replaced[0]["index"] + 1, "index of the next delta")
    await witness.request("run.cancel", run_id=receipt["run_id"])
    completed = await back.seen("message.completed", conversation_id=conversation_id)
    expect(completed["message"]["text"].startswith(replaced[0]["text"] + following["text"]), "the texts do not add up")


@check("sync/while-it-goes-on", "P-SYNC-4", needs=(SCRIPTED, "resume"))
async def while_it_goes_on(scene: Scene) -> None:
    """Cut and resumed again and again while a run goes on: in the end everything has come, once."""
    witness = await scene.in_step()
    conversation_id = await scene.conversation(witness)
    await witness.fence()
    phone = await scene.in_step(resume=witness.cursor)
    receipt = await scene.say(witness, conversation_id, "tools")
    seen: list[Frame] = []
    for _ in range(6):
        await phone.fence()
        cursor = phone.cursor
        seen += [event for event in _logged(phone, conversation_id) if event["seq"] <= cursor["seq"]]
        phone.cut()
        phone = await scene.in_step(resume=cursor)
    await scene.ended(witness, receipt["run_id"])
    await scene.ended(phone, receipt["run_id"]) if receipt["run_id"] not in _ended(seen) else None
    await witness.fence()
    await phone.fence()
    seen += _logged(phone, conversation_id)
    wanted = _logged(witness, conversation_id)[-len(seen) :] if seen else []
    same([event["seq"] for event in seen], [event["seq"] for event in wanted], "the events' seqs")


def _ended(events: list[Frame]) -> set[str]:
    return {event["run"]["run_id"] for event in events if event["type"] == "run.ended"}


@check("sync/batches", "P-SYNC-13", needs=("batch", "resume"))
async def batches(scene: Scene) -> None:
    """Who offers batch may get batches of events, which add up to the same."""
    witness = await scene.in_step()
    await witness.fence()
    cursor = witness.cursor
    conversation_id = await scene.conversation(witness)
    await scene.ended(witness, (await scene.say(witness, conversation_id, "say together"))["run_id"], None)
    await witness.fence()
    back = await scene.in_step(resume=cursor, capabilities=["batch"])
    await back.fence()
    wanted = _logged(witness, conversation_id)
    same(_logged(back, conversation_id)[: len(wanted)], wanted, "the events")


@check("sync/long-replay", "P-SYNC-14", needs=("resume", "rename"))
async def long_replay(scene: Scene) -> None:
    """A replay of some hundred events reaches a client whole."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await phone.fence()
    cursor = phone.cursor
    titles = [scene.lab.name("title") for _ in range(200)]
    for title in titles:
        await phone.ask("conversation.rename", conversation_id=conversation_id, title=title)
    back = await scene.in_step(resume=cursor)
    found = [event["conversation"]["title"] for event in back.events(conversation_id, "conversation.updated")]
    same(list(dict.fromkeys(title for title in found if title in titles)), titles, "the titles")


@check_each(
    "sync/events-before-result",
    "P-SYNC-11",
    cases={
        "create": "conversation.created",
        "rename": "conversation.updated",
        "delete": "conversation.deleted",
    },
    needs=("rename", "delete"),
)
async def events_before_result(scene: Scene, wanted: str) -> None:
    """What a request causes is told before its result, which knows of it"""
    phone = await scene.in_step()
    answer = await phone.ask("conversation.create", client_conversation_id=scene.lab.name("conv"))
    conversation_id = answer["conversation"]["conversation_id"]
    scene.lab.conversations.append(conversation_id)
    fields = {"conversation_id": conversation_id}
    if wanted == "conversation.updated":
        answer = await phone.ask("conversation.rename", title=scene.lab.name("title"), **fields)
    elif wanted == "conversation.deleted":
        answer = await phone.ask("conversation.delete", **fields)
    event = await phone.seen(wanted, conversation_id=conversation_id)
    expect(phone.frames.index(event) < phone.frames.index(answer), "the result came first")
    if "as_of_seq" in answer:
        expect(answer["as_of_seq"] >= event["seq"], "as_of_seq is below the event's seq")


@check("sync/as-of", "P-SYNC-11")
async def as_of(scene: Scene) -> None:
    """as_of_seq of what is read is not below the events that came before."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await phone.fence()
    last = phone.cursor["seq"]
    for answer in (
        await phone.ask("conversation.get", conversation_id=conversation_id),
        await phone.ask("conversation.list"),
        await scene.history(phone, conversation_id),
    ):
        expect(answer["as_of_seq"] >= last, f"as_of_seq {answer['as_of_seq']} of {answer['type']} is below {last}")
