"""History: pages in both directions, and the same as what was seen live."""

from __future__ import annotations

from typing import Any

from ..check import SCRIPTED, check, check_each, expect, same
from ..phone import Frame, Phone
from ..scene import Scene

_KINDS = ("messages", "tool_calls", "approvals", "clarifications")


def _positions(page: Frame) -> list[int]:
    found: list[int] = sorted(item["position"] for kind in _KINDS for item in page[kind] if "position" in item)
    return found


async def _talk(scene: Scene, phone: Phone) -> str:
    """A conversation with some exchanges and a tool call in it."""
    conversation_id = await scene.conversation(phone)
    for words in ("say one", "run echo two", "say three", "tools"):
        await scene.exchange(phone, conversation_id, words)
    return conversation_id


async def _whole(scene: Scene, phone: Phone, conversation_id: str) -> Frame:
    return await scene.history(phone, conversation_id, limit=scene.limits["max_history_limit"])


@check("history/empty", "P-CONV-2")
async def empty(scene: Scene) -> None:
    """A new conversation has an empty history, of the history_id that it names."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    page = await scene.history(phone, conversation_id)
    same((page["messages"], page["has_more"]), ([], False), "page")
    found = await phone.ask("conversation.get", conversation_id=conversation_id)
    same(page["history_id"], found["conversation"]["history_id"], "history_id")


@check("history/as-seen", "P-CONV-3")
async def as_seen(scene: Scene) -> None:
    """History gives the ids, texts and order that were sent live."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await scene.ended(phone, (await scene.say(phone, conversation_id, "say the same"))["run_id"], None)
    await phone.fence()
    live: dict[str, Frame] = {}
    for event in phone.events(conversation_id, "message.created", "message.updated", "message.completed"):
        live[event["message"]["message_id"]] = event["message"]
    page = await scene.history(phone, conversation_id)
    wanted = sorted(live.values(), key=lambda message: message["position"])
    same(_told(page["messages"]), _told(wanted), "messages")


def _told(messages: list[Frame]) -> list[tuple[Any, ...]]:
    return [(item["message_id"], item["role"], item["text"], item["status"], item["position"]) for item in messages]


@check_each("history/pages", "P-CONV-2", cases={"back": "before", "forward": "after"}, needs=(SCRIPTED,))
async def pages(scene: Scene, direction: str) -> None:
    """Pages in one direction name every item once, as the whole does"""
    phone = await scene.in_step()
    conversation_id = await _talk(scene, phone)
    whole = await _whole(scene, phone, conversation_id)
    expect(not whole["has_more"], "there is more than what was said")
    cursor = 2**53 - 1 if direction == "before" else 0
    found: list[int] = []
    for _ in range(100):
        page = await scene.history(phone, conversation_id, limit=2, **{direction: cursor})
        positions = _positions(page)
        expect(len(positions) <= 2, "a page is longer than its limit")
        found += positions
        if not positions or not page["has_more"]:
            break
        same((page["before"], page["after"]), (positions[0], positions[-1]), "the page's own before and after")
        cursor = page[direction]
    same(sorted(found), _positions(whole), "the positions")


@check("history/newest-first-page", "P-CONV-2", needs=(SCRIPTED,))
async def newest(scene: Scene) -> None:
    """Without a position it is the newest page; `before` its first position leads on without a gap."""
    phone = await scene.in_step()
    conversation_id = await _talk(scene, phone)
    whole = _positions(await _whole(scene, phone, conversation_id))
    page = await scene.history(phone, conversation_id, limit=3)
    same((_positions(page), page["has_more"]), (whole[-3:], True), "newest page")
    older = await scene.history(phone, conversation_id, limit=3, before=page["before"])
    same(_positions(older), whole[-6:-3], "the page before it")


@check("history/positions", "P-CONV-5", needs=(SCRIPTED,))
async def positions(scene: Scene) -> None:
    """Positions are unique, ascend, and stay while history_id is the same; history_head is the last."""
    phone = await scene.in_step()
    conversation_id = await _talk(scene, phone)
    first = await _whole(scene, phone, conversation_id)
    found = _positions(first)
    same(len(set(found)), len(found), "number of different positions")
    for kind in _KINDS:
        same(first[kind], sorted(first[kind], key=lambda item: int(item["position"])), f"order of {kind}")
    await scene.exchange(phone, conversation_id, "say more")
    second = await _whole(scene, phone, conversation_id)
    if second["history_id"] == first["history_id"]:
        same(_positions(second)[: len(found)], found, "positions after another exchange")
    conversation = (await phone.ask("conversation.get", conversation_id=conversation_id))["conversation"]
    same(conversation["history_head"], _positions(second)[-1], "history_head")


@check("history/both-directions", "P-FRAME-9")
async def both(scene: Scene) -> None:
    """`before` and `after` together are invalid_message."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await phone.refused("invalid_message", "conversation.history", conversation_id=conversation_id, before=9, after=1)


@check("history/limit", "P-CONV-11")
async def limit(scene: Scene) -> None:
    """A limit above the announced bound is lowered."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await scene.history(phone, conversation_id, limit=1_000_000)


@check("history/queued-last", "P-CONV-2", needs=(SCRIPTED, "cancel"))
async def queued_last(scene: Scene) -> None:
    """The newest page ends with the queued messages, which have no position yet."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    first = await scene.say(phone, conversation_id, "slow 60")
    await phone.seen("message.delta", conversation_id=conversation_id)
    waiting = await scene.say(phone, conversation_id, "say queued")
    last = (await scene.history(phone, conversation_id))["messages"][-1]
    same((last["message_id"], last["status"]), (waiting["message_id"], "queued"), "the last message")
    expect("position" not in last, "a queued message has a position")
    await phone.request("run.cancel", run_id=first["run_id"], drop_queued=True)


@check("history/words-of-the-owner", "P-CONV-10", needs=(SCRIPTED,))
async def owners_words(scene: Scene) -> None:
    """Only what the owner wrote has the role user."""
    phone = await scene.in_step()
    conversation_id = await _talk(scene, phone)
    page = await _whole(scene, phone, conversation_id)
    said = [message["text"] for message in page["messages"] if message["role"] == "user"]
    same(said, ["say one", "run echo two", "say three", "tools"], "what the owner said")
