"""An answer as it grows, and the owner's decision where the agent asks for one. Needs: pip install pheby"""

import asyncio
import os
import sys
from collections.abc import Callable

from pheby import Client, Connected, Disconnected
from pheby_protocol.messages.approval import Approval, ApprovalRequested
from pheby_protocol.messages.message import MessageDelta
from pheby_protocol.messages.run import RunEnded
from pheby_protocol.messages.tool import ToolStarted

Decide = Callable[[Approval], str]


async def say(url: str, secret: str, text: str, decide: Decide) -> str:
    """Send a text and print what comes of it; how the run ended."""
    async with Client(url, secret, name="streaming-example") as client:
        conversation = await client.create_conversation()
        receipt = await client.send(conversation.conversation_id, text)
        async for happening in client.happenings():
            match happening:
                case MessageDelta(text=piece):
                    print(piece, end="", flush=True)
                case ToolStarted(tool_call=call):
                    print(f"\n[{call.name}]")
                case ApprovalRequested(approval=approval) if approval.answerable:
                    await client.decide(approval.approval_id, decide(approval))
                case Disconnected(final=False):
                    print("\n(the line is gone; the client comes back by itself)")
                case Connected(welcome) if not welcome.resumed:
                    print(f"(a snapshot from Hermes {welcome.server.hermes_version})")
                case RunEnded(run=run) if run.run_id == receipt.run_id:
                    print()
                    return run.status.value
    return "not known"


def ask(approval: Approval) -> str:
    """A person decides, by one of the choices that are offered: never a program."""
    print(f"\n{approval.description}: {approval.command}")
    while (choice := input(f"{' / '.join(approval.choices)}: ")) not in approval.choices:
        pass
    return choice


if __name__ == "__main__":
    print(asyncio.run(say(sys.argv[1], os.environ["PHEBY_SECRET"], sys.argv[2], ask)))
