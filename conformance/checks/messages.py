"""Sending, receipts, and what is done while a run is active."""

from __future__ import annotations

from ..check import SCRIPTED, check, check_each, expect, same
from ..phone import Frame, Phone
from ..scene import Scene


@check("messages/round-trip", "P-MSG-9")
async def round_trip(scene: Scene) -> None:
    """One message and its answer: created, started, streamed, completed, ended, in this order, on every device."""
    phone, other = await scene.in_step(), await scene.in_step()
    conversation_id = await scene.conversation(phone)
    name = scene.lab.name("msg")
    receipt = await scene.say(phone, conversation_id, "say hello", client_message_id=name)
    same((receipt["disposition"], receipt["duplicate"]), ("started", False), "receipt")
    for each in (phone, other):
        await scene.ended(each, receipt["run_id"])
        _in_order(each, conversation_id, receipt)
        mine = await each.seen("message.created", message_id=receipt["message_id"])
        same(mine["message"].get("client_message_id"), name, "client_message_id")
        same((mine["message"]["role"], mine["message"]["text"]), ("user", "say hello"), "message")


def _in_order(phone: Phone, conversation_id: str, receipt: Frame) -> None:
    events = phone.events(conversation_id)
    answer = next(
        event["message"]
        for event in events
        if event["type"] == "message.completed" and event["message"].get("run_id") == receipt["run_id"]
    )
    expect(answer["text"] and answer["role"] == "assistant", "the answer has no text")
    places = [
        _place(events, "message.created", receipt["message_id"]),
        _place(events, "run.started", receipt["run_id"]),
        _place(events, "message.created", answer["message_id"]),
        _place(events, "message.completed", answer["message_id"]),
        _place(events, "run.ended", receipt["run_id"]),
    ]
    same(places, sorted(places), "order of created, started, created, completed, ended")


def _place(events: list[Frame], type_: str, name: str) -> int:
    for place, event in enumerate(events):
        item = event.get("message") or event.get("run") or {}
        if event["type"] == type_ and name in (item.get("message_id"), item.get("run_id")):
            return place
    return -1


@check("messages/streams", "P-SYNC-10", needs=(SCRIPTED, "streaming"))
async def streams(scene: Scene) -> None:
    """An answer comes in deltas, whose texts add up to what is completed."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await scene.exchange(phone, conversation_id, "slow 12")
    deltas = phone.events(conversation_id, "message.delta")
    expect(len(deltas) >= 2, f"there were {len(deltas)} deltas")
    completed = await phone.seen("message.completed", conversation_id=conversation_id)
    same(completed["message"]["text"], " ".join(f"w{number}" for number in range(1, 13)), "text")


@check("messages/events-before-receipt", "P-SYNC-11")
async def events_before_receipt(scene: Scene) -> None:
    """message.created of the owner's words comes before the receipt."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    answer = await scene.send(phone, conversation_id, "say early")
    created = await phone.seen("message.created", message_id=answer["receipt"]["message_id"])
    expect(phone.frames.index(created) < phone.frames.index(answer), "the receipt came first")


@check("messages/sent-again", "P-MSG-3")
async def sent_again(scene: Scene) -> None:
    """The same id and content give the same receipt, marked as a duplicate, and run nothing twice."""
    phone, other = await scene.in_step(), await scene.in_step()
    conversation_id = await scene.conversation(phone)
    name = scene.lab.name("msg")
    first = await scene.say(phone, conversation_id, "say once", client_message_id=name)
    again = await scene.say(other, conversation_id, "say once", client_message_id=name)
    await scene.ended(phone, first["run_id"], None)
    later = await scene.say(phone, conversation_id, "say once", client_message_id=name)
    for receipt in (again, later):
        same(receipt["duplicate"], True, "duplicate")
        same((receipt["message_id"], receipt["run_id"]), (first["message_id"], first["run_id"]), "receipt")
    await phone.fence()
    same(len({event["run"]["run_id"] for event in phone.events(conversation_id, "run.started")}), 1, "number of runs")


@check("messages/sent-again-after-a-cut", "P-MSG-2")
async def after_a_cut(scene: Scene) -> None:
    """What was admitted when the line broke is found by its receipt, and is not admitted again."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    name = scene.lab.name("msg")
    receipt = await scene.say(phone, conversation_id, "say durable", client_message_id=name)
    phone.cut()
    other = await scene.in_step()
    found = (await other.ask("message.receipt", client_message_id=name))["receipt"]
    same(found["message_id"], receipt["message_id"], "receipt")
    again = await scene.say(other, conversation_id, "say durable", client_message_id=name)
    same((again["message_id"], again["duplicate"]), (receipt["message_id"], True), "receipt of the second send")


@check("messages/sent-at-once", "P-MSG-3")
async def sent_at_once(scene: Scene) -> None:
    """Two devices send the same id and content at the same time: one message, one run, one receipt."""
    phones = [await scene.in_step(), await scene.in_step()]
    conversation_id = await scene.conversation(phones[0])
    fields = {"conversation_id": conversation_id, "client_message_id": scene.lab.name("msg"), "text": "say race"}
    scene.lab.texts.add("say race")
    asked = [(each, await each.send("message.send", **fields)) for each in phones * 3]
    receipts = [(await each.answer(request_id))["receipt"] for each, request_id in asked]
    same(len({receipt["message_id"] for receipt in receipts}), 1, "number of messages")
    same(len({receipt["run_id"] for receipt in receipts}), 1, "number of runs")
    same(sum(not receipt["duplicate"] for receipt in receipts), 1, "number of first receipts")


@check_each("messages/conflict", "P-MSG-3", cases={"other-text": True, "other-conversation": False})
async def conflict(scene: Scene, other_text: bool) -> None:
    """The same id with other content is conflict, with the receipt of what the id stands for"""
    phone = await scene.in_step()
    first, second = await scene.conversation(phone), await scene.conversation(phone)
    name = scene.lab.name("msg")
    receipt = await scene.say(phone, first, "say mine", client_message_id=name)
    where, text = (first, "say other") if other_text else (second, "say mine")
    error = await scene.send(phone, where, text, client_message_id=name)
    same((error["type"], error.get("code")), ("error", "conflict"), "answer")
    same(error.get("details", {}).get("receipt", {}).get("message_id"), receipt["message_id"], "details.receipt")
    await scene.ended(phone, receipt["run_id"], None)


@check("messages/unknown-receipt", "P-MSG-2")
async def unknown_receipt(scene: Scene) -> None:
    """A receipt of what was never admitted is not_found."""
    phone = await scene.in_step()
    await phone.refused("not_found", "message.receipt", client_message_id=scene.lab.name("never"))


@check("messages/receipt-ends-done", "P-MSG-2")
async def receipt_done(scene: Scene) -> None:
    """When the run has ended the receipt is done, and so says message.updated."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    name = scene.lab.name("msg")
    receipt = await scene.say(phone, conversation_id, "say done", client_message_id=name)
    await scene.ended(phone, receipt["run_id"], None)
    await phone.seen("message.updated", message_id=receipt["message_id"], delivery="done")
    same((await phone.ask("message.receipt", client_message_id=name))["receipt"]["state"], "done", "state")


@check("messages/empty", "P-ERR-1")
async def empty(scene: Scene) -> None:
    """An empty text is invalid_message."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    answer = await scene.send(phone, conversation_id, "")
    same((answer["type"], answer.get("code")), ("error", "invalid_message"), "answer")


@check_each(
    "messages/verbatim",
    "P-CONV-3",
    cases={
        "unicode": "say 😀 漢字 é e\u0301 שלום \u200d \u2028 end",
        "lines": "say one\n\n  two\ttabs",
        "slash": "/notacommand at all",
        "markup": "say <b>&amp;</b> \\ \" ' ${x} {{y}}",
    },
)
async def verbatim(scene: Scene, text: str) -> None:
    """The owner's words come back as they were sent, live and in history"""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, text)
    created = await phone.seen("message.created", message_id=receipt["message_id"])
    same(created["message"]["text"], text, "live")
    await scene.ended(phone, receipt["run_id"], None)
    page = await scene.history(phone, conversation_id)
    same([item["text"] for item in page["messages"] if item["role"] == "user"], [text], "history")


@check("messages/whole-text", "P-MSG-10", needs=(SCRIPTED,))
async def whole_text(scene: Scene) -> None:
    """A reply of 100,000 characters is whole in message.completed, and in message.text."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await scene.exchange(phone, conversation_id, "long 100000")
    message = (await phone.seen("message.completed", conversation_id=conversation_id))["message"]
    same((len(message["text"]), message["text_truncated"]), (100_000, False), "length and text_truncated")
    same(await _text(phone, message["message_id"]), message["text"], "message.text")


async def _text(phone: Phone, message_id: str) -> str:
    texts: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        part = await phone.ask("message.text", message_id=message_id, **cursor)
        texts.append(part["text"])
        if "next" not in part:
            return "".join(texts)
        cursor = {"cursor": part["next"]}


@check("messages/text-while-streaming", "P-SYNC-10", needs=(SCRIPTED, "streaming", "cancel"))
async def text_while_streaming(scene: Scene) -> None:
    """message.text of what streams has an index, and the text up to it."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "slow 60")
    delta = await phone.seen("message.delta", conversation_id=conversation_id)
    part = await phone.ask("message.text", message_id=delta["message_id"])
    expect(part["index"] >= delta["index"], "the index is behind a delta that was sent before")
    upto = [
        event["text"]
        for event in phone.events(conversation_id, "message.delta")
        if event.get("last_index", event["index"]) <= part["index"]
    ]
    expect(part["text"].startswith("".join(upto)), "the text is not that of the deltas")
    await phone.request("run.cancel", run_id=receipt["run_id"])


@check("messages/unknown-text", "P-ERR-1")
async def unknown_text(scene: Scene) -> None:
    """message.text of an unknown message is not_found."""
    await (await scene.in_step()).refused("not_found", "message.text", message_id="msg_0")


async def _busy(scene: Scene) -> tuple[Phone, str, Frame]:
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "slow 60")
    await phone.seen("message.delta", conversation_id=conversation_id)
    return phone, conversation_id, receipt


@check("messages/queue", "P-MSG-7", needs=(SCRIPTED, "cancel"))
async def queue(scene: Scene) -> None:
    """While a run is active a send waits: queued, without a position, its run announced."""
    phone, conversation_id, first = await _busy(scene)
    receipt = await scene.say(phone, conversation_id, "say next")
    same(receipt["disposition"], "queued", "disposition")
    created = (await phone.seen("message.created", message_id=receipt["message_id"]))["message"]
    same(created["status"], "queued", "status")
    expect("position" not in created, "it has a position")
    same((await phone.seen("run.updated", run_id=receipt["run_id"]))["run"]["status"], "queued", "its run")
    await phone.request("run.cancel", run_id=first["run_id"])
    await scene.ended(phone, receipt["run_id"])


@check("messages/queued-position", "P-MSG-11", needs=(SCRIPTED, "cancel"))
async def queued_position(scene: Scene) -> None:
    """A queued message gets its position by message.updated before its run starts."""
    phone, conversation_id, first = await _busy(scene)
    receipt = await scene.say(phone, conversation_id, "say turn")
    await phone.request("run.cancel", run_id=first["run_id"])
    await scene.ended(phone, receipt["run_id"])
    events = phone.events(conversation_id)
    placed = [
        place
        for place, event in enumerate(events)
        if event["type"] == "message.updated"
        and event["message"]["message_id"] == receipt["message_id"]
        and "position" in event["message"]
    ]
    expect(placed, "it never got a position by message.updated")
    expect(placed[0] < _place(events, "run.started", receipt["run_id"]), "its run started first")


@check("messages/reject", "P-MSG-7", needs=(SCRIPTED, "cancel"))
async def reject(scene: Scene) -> None:
    """`reject` while a run is active is busy, and stores nothing."""
    phone, conversation_id, first = await _busy(scene)
    name = scene.lab.name("msg")
    error = await scene.send(phone, conversation_id, "say no", client_message_id=name, if_busy="reject")
    same((error["type"], error.get("code"), error.get("retryable")), ("error", "busy", True), "answer")
    await phone.refused("not_found", "message.receipt", client_message_id=name)
    await phone.request("run.cancel", run_id=first["run_id"])
    await scene.ended(phone, first["run_id"], None)
    again = await scene.say(phone, conversation_id, "say no", client_message_id=name, if_busy="reject")
    same(again["disposition"], "started", "disposition when nothing is active")


@check("messages/interrupt", "P-MSG-7", needs=(SCRIPTED, "interrupt"))
async def interrupt(scene: Scene) -> None:
    """`interrupt` cancels the active run, then starts its own."""
    phone, conversation_id, first = await _busy(scene)
    receipt = await scene.say(phone, conversation_id, "say instead", if_busy="interrupt")
    same(receipt["disposition"], "interrupted", "disposition")
    await scene.ended(phone, first["run_id"], "cancelled")
    await scene.ended(phone, receipt["run_id"])


@check("messages/steer", "P-MSG-7", needs=(SCRIPTED, "steer"))
async def steer(scene: Scene) -> None:
    """`steer` while a tool runs: steered into that run, or queued, and the receipt says which."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    first = await scene.say(phone, conversation_id, "run sleep 2")
    await phone.seen("tool.started", conversation_id=conversation_id)
    receipt = await scene.say(phone, conversation_id, "say aside", if_busy="steer")
    expect(receipt["disposition"] in ("steered", "queued"), f"disposition {receipt['disposition']}")
    if receipt["disposition"] == "steered":
        same(receipt["run_id"], first["run_id"], "the receipt's run")
        placed = await phone.when(
            lambda frame: (
                frame["type"] in ("message.created", "message.updated")
                and frame["message"]["message_id"] == receipt["message_id"]
                and "position" in frame["message"]
            ),
            "position of the steered message",
        )
        expect(placed["message"]["status"] != "queued", "it is still queued")
    await scene.ended(phone, first["run_id"], None)


@check("messages/order", "P-MSG-8", needs=(SCRIPTED, "cancel"))
async def order(scene: Scene) -> None:
    """Sends of one connection are admitted in the order in which they came."""
    phone, conversation_id, first = await _busy(scene)
    scene.lab.texts |= {f"say {number}" for number in range(6)}
    asked = [
        await phone.send(
            "message.send",
            conversation_id=conversation_id,
            client_message_id=scene.lab.name("msg"),
            text=f"say {number}",
        )
        for number in range(6)
    ]
    for request_id in asked:
        same((await phone.answer(request_id))["type"], "message.send.result", "answer")
    created = [event["message"]["text"] for event in phone.events(conversation_id, "message.created")]
    said = [text for text in created if text.startswith("say ")]
    same(said, [f"say {number}" for number in range(6)], "order")
    await phone.request("run.cancel", run_id=first["run_id"], drop_queued=True)
