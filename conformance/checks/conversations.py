"""Conversations: creating, listing, renaming, deleting."""

from __future__ import annotations

from typing import Any

from ..check import SCRIPTED, check, check_each, expect, same
from ..phone import Frame, Phone
from ..scene import Scene


@check("conversations/create", "P-CONV-1")
async def create(scene: Scene) -> None:
    """A created conversation is announced to every device, found and listed, under the same id."""
    phone, other = await scene.in_step(), await scene.in_step()
    conversation_id = await scene.conversation(phone)
    for each in (phone, other):
        await each.seen("conversation.created", conversation_id=conversation_id)
        found = await each.ask("conversation.get", conversation_id=conversation_id)
        same(found["conversation"]["conversation_id"], conversation_id, "id")
        listed = await each.ask("conversation.list", limit=scene.limits["max_list_limit"])
        expect(conversation_id in [item["conversation_id"] for item in listed["conversations"]], "it is not listed")


@check("conversations/create-again", "P-CONV-6")
async def create_again(scene: Scene) -> None:
    """A repeated client_conversation_id gives the same conversation, also on another device."""
    phone, other = await scene.in_step(), await scene.in_step()
    name = scene.lab.name("twice")
    answers = [await each.ask("conversation.create", client_conversation_id=name) for each in (phone, phone, other)]
    ids = {answer["conversation"]["conversation_id"] for answer in answers}
    scene.lab.conversations += ids
    same(len(ids), 1, "number of conversations")
    same(answers[0]["conversation"].get("client_conversation_id"), name, "client_conversation_id")
    same(len(phone.events(*ids, "conversation.created")), 1, "number of conversation.created")


@check("conversations/create-at-once", "P-CONV-6")
async def create_at_once(scene: Scene) -> None:
    """Two devices create with the same id at the same time: one conversation."""
    phones = [await scene.in_step(), await scene.in_step()]
    name = scene.lab.name("race")
    asked = [(each, await each.send("conversation.create", client_conversation_id=name)) for each in phones * 3]
    answers = [await each.answer(request_id) for each, request_id in asked]
    ids = {answer["conversation"]["conversation_id"] for answer in answers}
    scene.lab.conversations += ids
    same(len(ids), 1, "number of conversations")


@check("conversations/create-with-title", "P-CONV-9")
async def create_with_title(scene: Scene) -> None:
    """A title that is given at once is a manual one."""
    phone = await scene.in_step()
    title = scene.lab.name("Title with Ünïcode 😀")
    conversation_id = await scene.conversation(phone, title=title)
    found = (await phone.ask("conversation.get", conversation_id=conversation_id))["conversation"]
    same((found["title"], found["title_source"]), (title, "manual"), "title")


@check("conversations/deleted-id", "P-CONV-6", needs=("delete",))
async def deleted_id(scene: Scene) -> None:
    """A client_conversation_id whose conversation was deleted is not_found, for ever."""
    phone = await scene.in_step()
    name = scene.lab.name("gone")
    made = await phone.ask("conversation.create", client_conversation_id=name)
    await phone.ask("conversation.delete", conversation_id=made["conversation"]["conversation_id"])
    await phone.refused("not_found", "conversation.create", client_conversation_id=name)


@check_each(
    "conversations/bad-title",
    "P-CONV-9",
    cases={"empty": "", "101-characters": "x" * 101, "control": "a\x07b", "line-break": "a\nb", "white-space": "  "},
    needs=("rename",),
)
async def bad_title(scene: Scene, title: str) -> None:
    """A title that is not allowed is invalid_title, and changes nothing"""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    before = await _get(phone, conversation_id)
    await phone.refused("invalid_title", "conversation.rename", conversation_id=conversation_id, title=title)
    same((await _get(phone, conversation_id))["title"], before["title"], "title")


async def _get(phone: Phone, conversation_id: str) -> Frame:
    found: Frame = (await phone.ask("conversation.get", conversation_id=conversation_id))["conversation"]
    return found


@check("conversations/rename", "P-CONV-9", needs=("rename",))
async def rename(scene: Scene) -> None:
    """A rename reaches every device as conversation.updated, with a manual title."""
    phone, other = await scene.in_step(), await scene.in_step()
    conversation_id = await scene.conversation(phone)
    title = scene.lab.name("x" * 60)
    answer = await phone.ask("conversation.rename", conversation_id=conversation_id, title=title)
    same(answer["conversation"]["title"], title, "title in the result")
    for each in (phone, other):
        event = await each.seen("conversation.updated", conversation_id=conversation_id, title=title)
        same(event["conversation"]["title_source"], "manual", "title_source")


@check("conversations/title-stays", "P-CONV-9", needs=("rename",))
async def title_stays(scene: Scene) -> None:
    """The owner's title is still there after an exchange."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    title = scene.lab.name("Mine")
    await phone.ask("conversation.rename", conversation_id=conversation_id, title=title)
    await scene.ended(phone, (await scene.say(phone, conversation_id, "say something"))["run_id"], None)
    found = await _get(phone, conversation_id)
    same((found["title"], found["title_source"]), (title, "manual"), "title")


@check("conversations/title-conflict", "P-ERR-1", needs=("rename",))
async def title_conflict(scene: Scene) -> None:
    """A title that another conversation has is title_conflict, with the other's id."""
    phone = await scene.in_step()
    first, second = await scene.conversation(phone), await scene.conversation(phone)
    title = scene.lab.name("Same")
    await phone.ask("conversation.rename", conversation_id=first, title=title)
    error = await phone.refused("title_conflict", "conversation.rename", conversation_id=second, title=title)
    same(error.get("details", {}).get("conversation_id"), first, "details.conversation_id")
    # Its own title again is no conflict.
    await phone.ask("conversation.rename", conversation_id=first, title=title)


@check_each(
    "conversations/unknown",
    "P-ERR-1",
    cases={
        "get": ("conversation.get", {}),
        "history": ("conversation.history", {}),
        "rename": ("conversation.rename", {"title": "x"}),
        "send": ("message.send", {"client_message_id": "unknown-1", "text": "x"}),
    },
)
async def unknown(scene: Scene, case: tuple[str, Any]) -> None:
    """A request about an unknown conversation is not_found"""
    phone = await scene.in_step()
    await phone.refused("not_found", case[0], conversation_id="conv_0", **case[1])


@check("conversations/list-pages", "P-CONV-2")
async def list_pages(scene: Scene) -> None:
    """Walking the list page by page names every conversation once, newest activity first, then by id."""
    phone = await scene.in_step()
    mine = {await scene.conversation(phone) for _ in range(5)}
    seen: list[Frame] = []
    cursor: dict[str, str] = {}
    for _ in range(1_000):
        page = await phone.ask("conversation.list", limit=2, **cursor)
        expect(len(page["conversations"]) <= 2, "a page is longer than its limit")
        seen += page["conversations"]
        if "next" not in page or mine <= {item["conversation_id"] for item in seen}:
            break
        cursor = {"cursor": page["next"]}
    found = [item for item in seen if item["conversation_id"] in mine]
    same(len(found), len(mine), "how often the five conversations were named")
    same(found, sorted(found, key=lambda item: (-item["last_activity_at"], item["conversation_id"])), "order")


@check("conversations/list-end", "P-CONV-2")
async def list_end(scene: Scene) -> None:
    """The walk ends: the last page has no next."""
    phone = await scene.in_step()
    await scene.conversation(phone)
    page = await phone.ask("conversation.list", limit=scene.limits["max_list_limit"])
    cursors = set()
    while "next" in page:
        expect(page["next"] not in cursors, "the walk goes round")
        cursors.add(page["next"])
        page = await phone.ask("conversation.list", limit=scene.limits["max_list_limit"], cursor=page["next"])


@check("conversations/list-limit", "P-CONV-11")
async def list_limit(scene: Scene) -> None:
    """A limit above the announced bound is lowered."""
    phone = await scene.in_step()
    page = await phone.ask("conversation.list", limit=1_000_000)
    expect(len(page["conversations"]) <= scene.limits["max_list_limit"], "the page is longer than the bound")


@check("conversations/delete", "P-CONV-7", needs=("delete",))
async def delete(scene: Scene) -> None:
    """A deleted conversation is told to every device, and is gone from list and snapshot."""
    phone, other = await scene.in_step(), await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await phone.ask("conversation.delete", conversation_id=conversation_id)
    for each in (phone, other):
        await each.seen("conversation.deleted", conversation_id=conversation_id)
    listed = await phone.ask("conversation.list", limit=scene.limits["max_list_limit"])
    expect(conversation_id not in [item["conversation_id"] for item in listed["conversations"]], "it is still listed")
    fresh = await scene.in_step()
    expect(
        conversation_id not in [item["conversation_id"] for item in fresh.in_snapshot("conversations")],
        "it is still in the snapshot",
    )


@check("conversations/delete-again", "P-CONV-8", needs=("delete",))
async def delete_again(scene: Scene) -> None:
    """Deleting what is deleted succeeds, and is told once."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    for _ in range(3):
        await phone.ask("conversation.delete", conversation_id=conversation_id)
    same(len(phone.events(conversation_id, "conversation.deleted")), 1, "number of conversation.deleted")


@check_each(
    "conversations/after-delete",
    "P-CONV-8",
    needs=("delete",),
    cases={
        "get": ("conversation.get", {}),
        "history": ("conversation.history", {}),
        "rename": ("conversation.rename", {"title": "x"}),
        "send": ("message.send", {"client_message_id": "after-delete", "text": "x"}),
    },
)
async def after_delete(scene: Scene, case: tuple[str, Any]) -> None:
    """Every other request for a deleted conversation is not_found"""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await phone.ask("conversation.delete", conversation_id=conversation_id)
    await phone.refused("not_found", case[0], conversation_id=conversation_id, **case[1])


@check("conversations/delete-while-running", "P-CONV-7", needs=("delete", SCRIPTED))
async def delete_while_running(scene: Scene) -> None:
    """An active run ends, cancelled, before conversation.deleted; then nothing of that conversation comes."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "slow 100")
    await phone.seen("message.delta", conversation_id=conversation_id)
    await phone.ask("conversation.delete", conversation_id=conversation_id)
    await scene.exchange(phone, await scene.conversation(phone), "say later")
    events = phone.events(conversation_id)
    types = [event["type"] for event in events]
    expect("run.ended" in types, "the run has not ended")
    run = next(event["run"] for event in events if event["type"] == "run.ended")
    same((run["run_id"], run["status"]), (receipt["run_id"], "cancelled"), "the run")
    same(types[-1], "conversation.deleted", "the last event of the conversation")
