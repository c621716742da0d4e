"""Tool calls."""

from __future__ import annotations

from ..check import SCRIPTED, check, expect, same
from ..scene import Scene

_NEEDS = (SCRIPTED, "tools")


@check("tools/one", "P-TOOL-1", needs=_NEEDS)
async def one(scene: Scene) -> None:
    """A call is told by its start and its end, within its run, and stands in history."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    run = await scene.exchange(phone, conversation_id, "run echo hello")
    started, completed = phone.events(conversation_id, "tool.started", "tool.completed")
    call = started["tool_call"]
    same((call["status"], call["name"], call["run_id"]), ("running", "terminal", run["run_id"]), "start")
    same(call["arguments"].get("command"), "echo hello", "arguments.command")
    same(completed["tool_call"]["tool_call_id"], call["tool_call_id"], "id of the end")
    same(completed["tool_call"]["status"], "completed", "status of the end")
    page = await scene.history(phone, conversation_id)
    same([item["tool_call_id"] for item in page["tool_calls"]], [call["tool_call_id"]], "history")


@check("tools/parallel", "P-TOOL-2", needs=_NEEDS)
async def parallel(scene: Scene) -> None:
    """Two calls at once have ids of their own, and one end each."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await scene.exchange(phone, conversation_id, "tools")
    started = [event["tool_call"]["tool_call_id"] for event in phone.events(conversation_id, "tool.started")]
    ended = [event["tool_call"]["tool_call_id"] for event in phone.events(conversation_id, "tool.completed")]
    same(len(set(started)), 2, "number of calls")
    same(sorted(ended), sorted(started), "ends")


@check("tools/cancelled", "P-TOOL-1", needs=(*_NEEDS, "cancel"))
async def cancelled(scene: Scene) -> None:
    """A call of a cancelled run ends before the run does."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "run sleep 20")
    await phone.seen("tool.started", conversation_id=conversation_id)
    await phone.ask("run.cancel", run_id=receipt["run_id"])
    await scene.ended(phone, receipt["run_id"], "cancelled")
    types = [event["type"] for event in phone.events(conversation_id, "tool.completed", "run.ended")]
    same(types, ["tool.completed", "run.ended"], "ends")
    call = phone.events(conversation_id, "tool.completed")[0]["tool_call"]
    same(call["status"], "cancelled", "status of the call")


@check("tools/no-activity-text", "P-TOOL-4", needs=_NEEDS)
async def no_activity_text(scene: Scene) -> None:
    """What tools do is in no message: there are the two texts that the agent said, the first one interim."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    await scene.exchange(phone, conversation_id, "run echo quiet")
    page = await scene.history(phone, conversation_id)
    said = [(item["text"], item.get("interim", False)) for item in page["messages"] if item["role"] == "assistant"]
    same(said, [("Let me run that.", True), ("The command has ended.", False)], "texts")


@check("tools/subagent", "P-TOOL-2", needs=(*_NEEDS, "subagents"))
async def subagent(scene: Scene) -> None:
    """A subagent's calls are of its own run, and name the call that it works for."""
    phone = await scene.in_step()
    conversation_id = await scene.conversation(phone)
    receipt = await scene.say(phone, conversation_id, "delegate tools")
    inner = await phone.when(
        lambda frame: (
            frame.get("type") == "tool.started"
            and frame.get("conversation_id") == conversation_id
            and "parent_tool_call_id" in frame["tool_call"]
        ),
        "tool.started with parent_tool_call_id",
    )
    calls = {
        event["tool_call"]["tool_call_id"]: event["tool_call"]
        for event in phone.events(conversation_id, "tool.started")
    }
    parent = calls.get(inner["tool_call"]["parent_tool_call_id"])
    expect(parent is not None, "the parent is no call that was started")
    assert parent is not None
    same(parent["run_id"], receipt["run_id"], "the parent's run")
    expect(inner["tool_call"]["run_id"] != receipt["run_id"], "the call is of the parent's run")
    await phone.seen("run.ended", run_id=inner["tool_call"]["run_id"])
