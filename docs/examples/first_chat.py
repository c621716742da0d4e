"""One message, and the answer to it. Needs: pip install pheby"""

import asyncio
import os
import sys

from pheby import Client
from pheby_protocol.messages.run import RunEnded


async def main(url: str, secret: str) -> None:
    async with Client(url, secret) as client:
        conversation = await client.create_conversation()
        receipt = await client.send(conversation.conversation_id, "say hello")
        async for happening in client.happenings():
            if isinstance(happening, RunEnded) and happening.run.run_id == receipt.run_id:
                break
        page = await client.history(conversation.conversation_id)
        print(page.messages[-1].text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.environ["PHEBY_SECRET"]))
