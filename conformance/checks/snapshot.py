"""The whole state, for a device that comes without a cursor."""

from __future__ import annotations

from ..check import SCRIPTED, check, expect, same
from ..phone import Frame, Phone
from ..scene import Scene


@check("snapshot/parts", "P-SYNC-8")
async def parts(scene: Scene) -> None:
    """Without a cursor: numbered parts, the last one marked, all of one seq, then sync.completed."""
    phone = await scene.in_step()
    same(phone.welcome["resumed"], False, "resumed")
    found = [frame for frame in phone.frames if frame["type"] == "snapshot"]
    same([frame["part"] for frame in found], list(range(len(found))), "part numbers")
    same([frame["last"] for frame in found], [False] * (len(found) - 1) + [True], "last")
    same(len({frame["seq"] for frame in found}), 1, "number of different seqs")
    completed = await phone.seen("sync.completed")
    same(completed["seq"], found[0]["seq"], "seq of sync.completed")


@check("snapshot/conversations", "P-SYNC-8")
async def conversations(scene: Scene) -> None:
    """It names the newest conversations, and leads on where there are more."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    other = await scene.in_step()
    named = [item["conversation_id"] for item in other.in_snapshot("conversations")]
    expect(conversation_id in named, "a conversation that was just made is not in it")
    found = [frame["conversations_next"] for frame in other.frames if "conversations_next" in frame]
    for cursor in found:
        await other.ask("conversation.list", cursor=cursor)


async def _look(scene: Scene, kind: str, **fields: str) -> Frame:
    other = await scene.in_step()
    found = [item for item in other.in_snapshot(kind) if all(item.get(name) == value for name, value in fields.items())]
    same(len(found), 1, f"how often it is among the snapshot's {kind}")
    named = {item["conversation_id"] for item in other.in_snapshot("conversations")}
    expect(found[0]["conversation_id"] in named, "its conversation is not in the snapshot")
    return found[0]


async def _streaming(scene: Scene) -> tuple[Phone, str, Frame, Frame]:
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "slow 60")
    delta = await phone.seen("message.delta", conversation_id=conversation_id)
    return phone, conversation_id, receipt, delta


@check("snapshot/run", "P-SYNC-8", needs=(SCRIPTED, "cancel"))
async def run(scene: Scene) -> None:
    """An active run is in it."""
    phone, _, receipt, _ = await _streaming(scene)
    found = await _look(scene, "runs", run_id=receipt["run_id"])
    same(found["status"], "running", "status")
    await phone.request("run.cancel", run_id=receipt["run_id"])


@check("snapshot/streaming-message", "P-SYNC-8", needs=(SCRIPTED, "streaming", "cancel"))
async def streaming_message(scene: Scene) -> None:
    """A streaming message is in it, with the text so far and its index."""
    phone, _, receipt, delta = await _streaming(scene)
    found = await _look(scene, "messages", message_id=delta["message_id"])
    expect(found["text"].startswith("w1"), "the text so far is not in it")
    expect(found["index"] >= delta["index"], "its index is behind a delta that was sent before")
    await phone.request("run.cancel", run_id=receipt["run_id"])


@check("snapshot/deltas-go-on", "P-SYNC-10", needs=(SCRIPTED, "streaming", "cancel"))
async def deltas_go_on(scene: Scene) -> None:
    """Live deltas go on where the snapshot's text ends."""
    phone, _, receipt, delta = await _streaming(scene)
    other = await scene.in_step()
    found = next(item for item in other.in_snapshot("messages") if item["message_id"] == delta["message_id"])
    following = await next_delta(other, delta["message_id"], found["index"])
    same(following["index"], found["index"] + 1, "index of the next delta")
    await phone.request("run.cancel", run_id=receipt["run_id"])
    completed = await other.seen("message.completed", message_id=delta["message_id"])
    expect(completed["message"]["text"].startswith(found["text"] + following["text"]), "the texts do not add up")


async def next_delta(phone: Phone, message_id: str, own: int) -> Frame:
    """The first delta that says more than this index; those at or below it are skipped, as clients do."""
    return await phone.when(
        lambda frame: (
            frame.get("type") == "message.delta"
            and frame["message_id"] == message_id
            and max(frame["index"], frame.get("last_index", -1)) > own
        ),
        "delta behind the text so far",
    )


@check("snapshot/queued-message", "P-SYNC-8", needs=(SCRIPTED, "cancel"))
async def queued_message(scene: Scene) -> None:
    """A queued message and its run are in it."""
    phone, conversation_id, first, _ = await _streaming(scene)
    waiting = await scene.say(phone, conversation_id, "say waiting")
    found = await _look(scene, "messages", message_id=waiting["message_id"])
    same(found["status"], "queued", "status")
    same((await _look(scene, "runs", run_id=waiting["run_id"]))["status"], "queued", "status of its run")
    await phone.request("run.cancel", run_id=first["run_id"], drop_queued=True)


@check("snapshot/tool-call", "P-SYNC-8", needs=(SCRIPTED, "tools", "cancel"))
async def tool_call(scene: Scene) -> None:
    """A tool call that runs is in it."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "run sleep 20")
    call = (await phone.seen("tool.started", conversation_id=conversation_id))["tool_call"]
    same((await _look(scene, "tool_calls", tool_call_id=call["tool_call_id"]))["status"], "running", "status")
    await phone.request("run.cancel", run_id=receipt["run_id"])


@check("snapshot/nothing-that-ended", "P-SYNC-8", needs=(SCRIPTED,))
async def nothing_that_ended(scene: Scene) -> None:
    """What has ended is not in it."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await scene.exchange(phone, conversation_id, "run echo over")
    await phone.fence()
    other = await scene.in_step()
    for kind in ("runs", "messages", "tool_calls"):
        left = [item for item in other.in_snapshot(kind) if item["conversation_id"] == conversation_id]
        same(left, [], kind)
