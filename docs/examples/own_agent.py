"""Pheby's core with an agent of one's own in the place of Hermes: one that counts down. Needs: pip install pheby"""

import asyncio
import os
from collections.abc import Container, Sequence

import attrs

from pheby_protocol.ids import ConversationId
from pheby_protocol.messages.connection import AccessMode
from pheby_protocol.messages.conversation import TitleSource
from pheby_protocol.messages.message import MessageRole, Origin
from pheby_server import GatewayEvents, Server, ServerConfig
from pheby_server.aiohttp_transport import Listener
from pheby_server.auth import Authenticator
from pheby_server.ports import (
    Bound,
    EffortOffer,
    HandOver,
    HermesConversation,
    HermesFeatures,
    HermesMessage,
    LiveMessage,
    ModelOffer,
    Outcome,
    RunResult,
    Unavailable,
)
from pheby_server.system import SystemClock


@attrs.define
class Kept:
    """What this agent keeps of a conversation. A real one keeps it on disk."""

    created_at: int
    title: str = ""
    messages: list[HermesMessage] = attrs.field(factory=list)


class CountingAgent:
    """A HermesPort: counts down from the number that it is told. No tools, no questions, no choice of models."""

    features = HermesFeatures(version="counting-1.0", streaming=True, cancel=True, rename=True, delete=True)

    def __init__(self, pause: float = 0.2) -> None:
        self._pause = pause
        self._now = SystemClock().now_ms
        self._kept: dict[ConversationId, Kept] = {}
        self._runs: dict[ConversationId, asyncio.Task[None]] = {}
        self._events: GatewayEvents | None = None

    def start(self, events: GatewayEvents) -> None:
        self._events = events

    async def stop(self) -> None:
        runs, self._events = list(self._runs.values()), None
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    # Runs

    async def ready(self, conversation_id: ConversationId) -> None:
        run = self._runs.get(conversation_id)
        if run is not None:
            await asyncio.wait([run])

    async def hand_over(self, message: HandOver) -> None:
        if self._events is None or message.conversation_id in self._runs:
            raise Unavailable
        self._store(message.conversation_id, MessageRole.USER, message.text)
        self._runs[message.conversation_id] = asyncio.create_task(self._run(self._events, message))

    async def interrupt(self, conversation_id: ConversationId) -> None:
        if conversation_id in self._runs:
            # Behind its first step: a task that is cancelled before it never tells of its end.
            asyncio.get_running_loop().call_soon(self._runs[conversation_id].cancel)

    async def _run(self, events: GatewayEvents, message: HandOver) -> None:
        conversation_id = message.conversation_id
        events.run_started(conversation_id, message.message_id, Origin.CHAT)
        outcome, said = Outcome.COMPLETED, ""
        try:
            text_id = events.message_started(conversation_id, "")
            for number in range(int(message.text), -1, -1):
                said += f"{number} "
                events.message_appended(text_id, f"{number} ")
                await asyncio.sleep(self._pause)
            events.message_ended(text_id, interim=False)
        except ValueError:
            outcome = Outcome.FAILED
        except asyncio.CancelledError:
            if self._events is None:
                raise
            outcome = Outcome.CANCELLED
        self._store(conversation_id, MessageRole.ASSISTANT, said)
        del self._runs[conversation_id]
        events.run_ended(conversation_id, RunResult(outcome=outcome))

    # What is kept

    def _store(self, conversation_id: ConversationId, role: MessageRole, text: str) -> None:
        kept = self._kept.setdefault(conversation_id, Kept(self._now()))
        key = f"{conversation_id}:{len(kept.messages)}"
        if text:
            kept.messages.append(HermesMessage(key=key, role=role, text=text, created_at=self._now()))

    async def conversations(self) -> Sequence[HermesConversation]:
        return [self._described(conversation_id, kept) for conversation_id, kept in self._kept.items()]

    async def conversation(self, conversation_id: ConversationId) -> HermesConversation | None:
        kept = self._kept.get(conversation_id)
        return None if kept is None else self._described(conversation_id, kept)

    def _described(self, conversation_id: ConversationId, kept: Kept) -> HermesConversation:
        return HermesConversation(
            conversation_id=conversation_id,
            title=kept.title,
            title_source=TitleSource.MANUAL if kept.title else TitleSource.GENERATED,
            created_at=kept.created_at,
            last_activity_at=kept.messages[-1].created_at if kept.messages else kept.created_at,
        )

    async def rename(self, conversation_id: ConversationId, title: str) -> None:
        if conversation_id in self._kept:
            self._kept[conversation_id].title = title

    async def delete(self, conversation_id: ConversationId) -> None:
        await self.interrupt(conversation_id)
        await self.ready(conversation_id)
        self._kept.pop(conversation_id, None)

    async def history(self, conversation_id: ConversationId) -> Sequence[HermesMessage]:
        return list(self._kept[conversation_id].messages) if conversation_id in self._kept else []

    async def bind(
        self, conversation_id: ConversationId, live: Sequence[LiveMessage], bound: Container[str]
    ) -> Sequence[Bound]:
        free = [row for row in await self.history(conversation_id) if row.key not in bound]
        found = []
        for message in live:
            row = next((row for row in free if (row.role, row.text) == (message.role, message.text)), None)
            if row is not None:
                free.remove(row)
                found.append(Bound(message_id=message.message_id, key=row.key))
        return found

    # What `features` does not promise is never asked for.

    async def steer(self, message: HandOver) -> bool:
        return False

    async def resolve_approval(
        self, conversation_id: ConversationId, key: str, choice: str, reason: str | None
    ) -> bool:
        return False

    async def resolve_clarification(
        self, conversation_id: ConversationId, key: str, chosen: tuple[int, ...], text: str | None, *, skip: bool
    ) -> bool:
        return False

    async def interrupt_subagent(self, conversation_id: ConversationId, key: str) -> bool:
        return False

    async def models(self, conversation_id: ConversationId) -> ModelOffer:
        raise Unavailable

    async def select_model(self, conversation_id: ConversationId, provider: str, model: str) -> None:
        raise Unavailable

    async def efforts(self, conversation_id: ConversationId) -> EffortOffer:
        raise Unavailable

    async def select_effort(self, conversation_id: ConversationId, effort: str) -> None:
        raise Unavailable


async def serve(storage: str, secret: str, port: int, listening: asyncio.Future[int], stop: asyncio.Event) -> None:
    """Run until `stop` is set. `listening` gets the port."""
    agent = CountingAgent()
    server = Server(ServerConfig(storage=storage), agent, Authenticator(((AccessMode.FULL, secret),)))
    await server.start()
    listener = Listener(server, "127.0.0.1", port)
    await listener.start()
    agent.start(server.events)
    listening.set_result(listener.port)
    try:
        await stop.wait()
    finally:
        await agent.stop()
        await server.stop()
        await listener.stop()


async def main() -> None:
    loop = asyncio.get_running_loop()
    await serve("own-agent", os.environ["PHEBY_SECRET"], 8786, loop.create_future(), asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main())
