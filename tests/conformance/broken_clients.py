"""Broken clients: the right one with one rule wrong, and the scenarios that must notice."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import attrs
from aiohttp import WSServerHandshakeError

from pheby import AuthenticationError
from pheby.client import RequestFailedError
from pheby.download import download
from pheby_protocol.client_state import apply
from pheby_protocol.codec import UnknownMessage
from pheby_protocol.connection import Connection, ProtocolError
from pheby_protocol.messages._base import LoggedEvent, Result
from pheby_protocol.messages.approval import ApprovalRequested
from pheby_protocol.messages.connection import (
    Batch,
    ClientInfo,
    Cursor,
    ServerDraining,
    Snapshot,
    SyncCompleted,
    Welcome,
)
from pheby_protocol.messages.conversation import ConversationDeleted, ConversationListResult
from pheby_protocol.messages.message import MessageCompleted, MessageCreated, MessageDelta
from pheby_protocol.states import RunState

SCRIPT = Path(__file__).parents[2] / "conformance" / "peers" / "python_client.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("conformance_python_client", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


right = _load()
RightClient: Any = right.ShowingClient
CLIENTS: dict[str, type[BrokenClient]] = {}


class BrokenClient(RightClient):  # type: ignore[misc]
    """`caught` are the scenarios that must fail, and no other."""

    caught: ClassVar[tuple[str, ...]] = ()
    patches: ClassVar[dict[str, Any]] = {}
    """What is another one in `pheby.client` for this client."""


def broken(*caught: str, **patches: Any) -> Callable[[type[BrokenClient]], type[BrokenClient]]:
    def register(cls: type[BrokenClient]) -> type[BrokenClient]:
        cls.caught, cls.patches = caught, patches
        CLIENTS[cls.__name__] = cls
        return cls

    return register


class _Rewriting:
    """A socket whose text is changed on its way out."""

    def __init__(self, socket: Any, change: Callable[[str], str]) -> None:
        self._socket, self._change = socket, change

    async def send_str(self, text: str) -> None:
        await self._socket.send_str(self._change(text))


@broken("connect/secret")
class SecretInAddress(BrokenClient):
    def __init__(self, url: str, secret: str) -> None:
        super().__init__(f"{url}?token={secret}", secret)

    async def download(self, attachment: Any, target: Path) -> None:
        await download(self._url.partition("?")[0], self._secret, attachment, target)


@broken("connect/hello", SUPPORTED_VERSIONS=(2,))
class AnotherVersion(BrokenClient):
    pass


@broken("connect/same-device")
class ManyDevices(BrokenClient):
    @property
    def _info(self) -> ClientInfo:
        return attrs.evolve(self.__info, device_id=secrets.token_hex(8))

    @_info.setter
    def _info(self, info: ClientInfo) -> None:
        self.__info = info


@broken("connect/no-cursor")
class InventedCursor(BrokenClient):
    _first = True

    @property
    def _cursor(self) -> Cursor | None:
        if self._first and self.welcome is None:
            return Cursor(epoch="e_0", seq=0)
        return self.__cursor

    @_cursor.setter
    def _cursor(self, cursor: Cursor | None) -> None:
        self.__cursor = cursor


@broken("connect/capabilities")
class StrictCapabilities(BrokenClient):
    def _receive(self, message: object) -> None:
        if isinstance(message, Welcome) and "teleport" in message.capabilities:
            raise ConnectionError("what is that?")
        super()._receive(message)


@broken("connect/ids")
class OneId(BrokenClient):
    @property
    def _socket(self) -> Any:
        return self.__socket and _Rewriting(self.__socket, self._renumbered)

    def _renumbered(self, text: str) -> str:
        return re.sub(r'"id":"c\d+"', '"id":"c1"', text) if '"text":"text ' in text else text

    @_socket.setter
    def _socket(self, socket: Any) -> None:
        self.__socket = socket


@broken("state/turn")
class EndsByText(BrokenClient):
    def _receive(self, message: object) -> None:
        super()._receive(message)
        if isinstance(message, MessageCompleted) and message.message.final:
            run = self.state.runs[message.message.run_id]
            self.state = attrs.evolve(self.state, runs={run.run_id: attrs.evolve(run, status=RunState.COMPLETED)})


@broken("state/failed-run")
class BelievesText(BrokenClient):
    def told(self) -> dict[str, Any]:
        changed = {
            name: attrs.evolve(run, status=RunState.COMPLETED, error=None) if run.error else run
            for name, run in self.state.runs.items()
        }
        self.state = attrs.evolve(self.state, runs=changed)
        return dict(super().told())


@broken("state/old-delta")
class AppliesOldDeltas(BrokenClient):
    def _receive(self, message: object) -> None:
        if isinstance(message, MessageDelta):
            known = self.state.messages[message.message_id]
            last = message.index if message.last_index is None else message.last_index
            if known.index is not None and last <= known.index:
                changed = attrs.evolve(known, text=known.text + message.text)
                self.state = attrs.evolve(self.state, messages={**self.state.messages, known.message_id: changed})
        super()._receive(message)


@broken("state/delta-gap")
class OverlooksGaps(BrokenClient):
    async def _fetch_text(self, name: str) -> None:
        pass


@broken("state/seen-event")
class AppliesSeenEvents(BrokenClient):
    def _receive(self, message: object) -> None:
        if isinstance(message, LoggedEvent) and self.state.cursor is not None and message.seq <= self.state.cursor:
            cursor = self.state.cursor
            self.state = apply(attrs.evolve(self.state, cursor=message.seq - 1), message)
            self.state = attrs.evolve(self.state, cursor=cursor)
            return
        super()._receive(message)


@broken("state/seq-gap")
class FearsGaps(BrokenClient):
    def _receive(self, message: object) -> None:
        if isinstance(message, LoggedEvent) and self.state.cursor and 1_000 < message.seq - self.state.cursor < 9_000:
            raise ConnectionError("something is missing")
        super()._receive(message)


@broken("state/unknown-fields")
class NullIsAValue(BrokenClient):
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = super().told()
        if self.state.changed_at.get("conv_1") == self.state.cursor == 1 and any(
            not item["title"] for item in found["state"]["conversations"].values()
        ):
            return {"digest": "another"}
        return found


@broken("state/unknown-values")
class TakesUnknownForDone(BrokenClient):
    def _receive(self, message: object) -> None:
        super()._receive(message)
        changed = {
            name: run if run.status in list(RunState) else attrs.evolve(run, status=RunState.COMPLETED)
            for name, run in self.state.runs.items()
        }
        self.state = attrs.evolve(self.state, runs=changed)


class _Lenient(Connection):
    def receive_text(self, text: str) -> Any:
        try:
            return super().receive_text(text)
        except ProtocolError:
            frame = json.loads(text)
            if type(frame.get("seq")) is int and type(frame.get("time")) is int:
                return UnknownMessage(type=frame["type"], content=frame)
            raise


@broken("state/undecodable-object", Connection=_Lenient)
class TakesBadForUnknown(BrokenClient):
    pass


class _Careless(Connection):
    def receive_text(self, text: str) -> Any:
        try:
            return super().receive_text(text)
        except ProtocolError:
            frame = json.loads(text)
            if type(frame.get("conversation", {}).get("title", "")) is int:
                frame["conversation"]["title"] = str(frame["conversation"]["title"])
                return super().receive_text(json.dumps(frame))
            raise


@broken("state/undecodable-object", Connection=_Careless)
class TakesNumbersForText(BrokenClient):
    pass


@broken("state/identifiers")
class IgnoresCase(BrokenClient):
    def _receive(self, message: object) -> None:
        super()._receive(message)
        kept = {name.lower(): item for name, item in self.state.conversations.items()}
        self.state = attrs.evolve(self.state, conversations=kept)


@broken("state/arguments")
class KnowsArguments(BrokenClient):
    def _receive(self, message: object) -> None:
        super()._receive(message)
        changed = {
            name: attrs.evolve(call, arguments={key: item for key, item in call.arguments.items() if item is not None})
            for name, call in self.state.tool_calls.items()
        }
        self.state = attrs.evolve(self.state, tool_calls=changed)


@broken("state/batch")
class SkipsBatches(BrokenClient):
    def _receive(self, message: object) -> None:
        if not isinstance(message, Batch):
            super()._receive(message)


@broken("state/batch", "resume/unknown-event")
class StaysAtTheUnknown(BrokenClient):
    def _receive(self, message: object) -> None:
        if not isinstance(message, UnknownMessage):
            super()._receive(message)


@broken("state/another-history")
class KeepsAnyHistory(BrokenClient):
    def _receive(self, message: object) -> None:
        if isinstance(message, Snapshot):
            known = {name: item.history_id for name, item in self.state.conversations.items()}
            kept = [
                attrs.evolve(item, history_id=known.get(item.conversation_id, item.history_id))
                for item in message.conversations
            ]
            message = attrs.evolve(message, conversations=tuple(kept))
        super()._receive(message)


@broken("state/history-changed", "state/answer-from-before", "state/another-history", "state/deleted-for-good")
class NeverFetches(BrokenClient):
    async def _fetch_history(self, where: str) -> None:
        pass


@broken("state/deleted-for-good")
class ForgetsWhatWasDeleted(BrokenClient):
    def _receive(self, message: object) -> None:
        super()._receive(message)
        if isinstance(message, ConversationDeleted):
            known = {name: seq for name, seq in self.state.changed_at.items() if name != message.conversation_id}
            self.state = attrs.evolve(self.state, changed_at=known)


@broken("state/answer-from-before", "state/deleted-for-good")
class TheAnswerWins(BrokenClient):
    def _receive(self, message: object) -> None:
        if isinstance(message, Result):
            self.state = attrs.evolve(self.state, changed_at={})
        super()._receive(message)


@broken("resume/cursor")
class RoundsCursors(BrokenClient):
    @property
    def _cursor(self) -> Cursor | None:
        return self.__cursor

    @_cursor.setter
    def _cursor(self, cursor: Cursor | None) -> None:
        if cursor is not None and cursor.seq > 10**15:
            cursor = attrs.evolve(cursor, seq=cursor.seq // 10 * 10)
        self.__cursor = cursor


@broken("resume/another-epoch")
class KeepsTheHighest(BrokenClient):
    @property
    def _cursor(self) -> Cursor | None:
        return self.__cursor

    @_cursor.setter
    def _cursor(self, cursor: Cursor | None) -> None:
        old = getattr(self, "_highest", None)
        if cursor is not None and (old is None or cursor.seq > old.seq):
            self._highest = cursor
        self.__cursor = getattr(self, "_highest", None) if cursor is not None else None


@broken("snapshot/whole")
class PartByPart(BrokenClient):
    def _receive(self, message: object) -> None:
        if isinstance(message, Snapshot) and not message.last:
            named = {item.conversation_id: item for item in message.conversations}
            self.state = attrs.evolve(self.state, conversations={**self.state.conversations, **named})
        super()._receive(message)


@broken("snapshot/whole", "snapshot/open-prompts")
class LeavesOpen(BrokenClient):
    def _receive(self, message: object) -> None:
        before = self.state
        super()._receive(message)
        if isinstance(message, Snapshot) and message.last:
            kept = {kind: {**getattr(before, kind), **getattr(self.state, kind)} for kind in ("approvals", "messages")}
            self.state = attrs.evolve(self.state, **kept)


@broken("snapshot/unnamed")
class NeverLists(BrokenClient):
    async def _fetch_list(self) -> None:
        pass


@broken("snapshot/unnamed")
class TakesAPageForAll(BrokenClient):
    def _receive(self, message: object) -> None:
        if isinstance(message, ConversationListResult):
            message = attrs.evolve(message, next=None)
        super()._receive(message)


@broken("snapshot/unnamed")
class ForgetsWhatIsNotNamed(BrokenClient):
    def _receive(self, message: object) -> None:
        super()._receive(message)
        if isinstance(message, Snapshot) and message.last:
            known = self.state.conversations
            named = {name: item for name, item in known.items() if name not in self.state.unconfirmed}
            self.state = attrs.evolve(self.state, conversations=named)


class _Sends(BrokenClient):
    """Sends by itself what it should not."""

    def again(self) -> None:
        self.start(f"again {secrets.token_hex(4)}", super().send("conv_1", "once only"))


@broken("send/cut-before-the-receipt")
class AnotherIdEachTime(BrokenClient):
    _fresh = False

    async def send(self, conversation_id: Any, text: str, **more: Any) -> Any:
        while True:
            attempt = asyncio.ensure_future(super().send(conversation_id, text, **more))
            lost = asyncio.ensure_future(self._cut.wait())
            await asyncio.wait([attempt, lost], return_when=asyncio.FIRST_COMPLETED)
            lost.cancel()
            if attempt.done():
                return attempt.result()
            attempt.cancel()
            await self.connected()

    def __init__(self, url: str, secret: str) -> None:
        super().__init__(url, secret)
        self._cut = asyncio.Event()

    def _lost(self, code: int | None, *, final: bool) -> None:
        # Before those who wait are told, so that it is this one that sends again.
        self._cut.set()
        self._cut = asyncio.Event()
        super()._lost(code, final=final)


@broken("send/conflict")
class Insists(_Sends):
    async def send(self, conversation_id: Any, text: str, **more: Any) -> Any:
        try:
            return await super().send(conversation_id, text, **more)
        except RequestFailedError:
            self.again()


@broken("send/retryable", _again_after=lambda _failure, _tries: None)
class TriesOnce(BrokenClient):
    pass


@broken("send/retryable", _again_after=lambda failure, _: 0.1 if failure.retryable else None)
class TriesTooEarly(BrokenClient):
    pass


@broken("send/retryable", _again_after=lambda failure, _: 1.0 if failure.code == "rate_limited" else None)
class TakesUnknownForFinal(BrokenClient):
    pass


@broken("send/too-old")
class SendsForEver(BrokenClient):
    def _server_now(self) -> None:
        pass


@broken("send/receipt", "send/indeterminate")
class SendsAllAgain(_Sends):
    _sent = False
    _greeted = 0

    async def send(self, conversation_id: Any, text: str, **more: Any) -> Any:
        receipt = await super().send(conversation_id, text, **more)
        self._sent = text == "once only"
        return receipt

    def _receive(self, message: object) -> None:
        super()._receive(message)
        self._greeted += isinstance(message, SyncCompleted)
        if isinstance(message, SyncCompleted) and self._greeted > 1 and self._sent and not self._answers:
            self._sent = False
            self.again()


@broken("send/indeterminate")
class DecidesForTheOwner(_Sends):
    def _receive(self, message: object) -> None:
        super()._receive(message)
        if isinstance(message, MessageCreated) and message.message.delivery == "indeterminate":
            self.again()


@broken("send/cancel-loses")
class CancelledIsCancelled(BrokenClient):
    _cancelled: ClassVar[set[str]] = set()

    async def cancel(self, run_id: Any, **more: Any) -> Any:
        self._over = run_id
        return await super().cancel(run_id, **more)

    def _receive(self, message: object) -> None:
        super()._receive(message)
        run = self.state.runs.get(getattr(self, "_over", ""))
        if run is not None:
            changed = attrs.evolve(run, status=RunState.CANCELLED)
            self.state = attrs.evolve(self.state, runs={**self.state.runs, run.run_id: changed})


@broken("prompts/never-by-itself")
class ApprovesInTime(BrokenClient):
    def _receive(self, message: object) -> None:
        super()._receive(message)
        if isinstance(message, ApprovalRequested) and message.approval.expires_at:
            self.start("approve", self.decide(message.approval.approval_id, "once"))


@broken("prompts/approve")
class OnlyOnce(BrokenClient):
    async def decide(self, approval_id: Any, choice: str, reason: str | None = None) -> Any:
        return await super().decide(approval_id, "once", reason)


@broken("prompts/not-offered")
class SendsAnyChoice(BrokenClient):
    def _is_offered(self, approval_id: Any, choice: str) -> bool:
        return True


@broken("prompts/answer")
class OneAnswer(BrokenClient):
    async def answer(self, clarification_id: Any, choice_ids: Any = (), **more: Any) -> Any:
        return await super().answer(clarification_id, choice_ids[:1], **more)


@broken("close/locked-out-at-the-door")
class TakesTheLockForAWrongSecret(BrokenClient):
    async def _connect_once(self) -> int | None:
        try:
            return await super()._connect_once()  # type: ignore[no-any-return]
        except WSServerHandshakeError as failure:
            if failure.status == 429:
                raise AuthenticationError("the server refused the secret") from None
            raise


@broken("close/4401", "close/4406", "close/4409", "close/no-common-version", _is_final=lambda _: False)
class AlwaysBack(BrokenClient):
    pass


@broken("close/1012", _is_final=lambda code: code in (4401, 4406, 4409, 1012))
class GivesUp(BrokenClient):
    pass


@broken("close/unauthorized")
class TriesTheSecretAgain(BrokenClient):
    async def _keep_up(self) -> None:
        while True:
            try:
                await super()._keep_up()
            except AuthenticationError:
                await asyncio.sleep(0.1)


@broken("close/draining-at-the-door", "close/locked-out-at-the-door", _retry_after=lambda _: 0.0)
class KnocksAgain(BrokenClient):
    pass


@broken("close/draining")
class KnowsNoDraining(BrokenClient):
    def _receive(self, message: object) -> None:
        if not isinstance(message, ServerDraining):
            super()._receive(message)


@broken("close/forbidden-at-the-door")
class GivesUpAtAnyRefusal(BrokenClient):
    async def _connect_once(self) -> int | None:
        try:
            return await super()._connect_once()  # type: ignore[no-any-return]
        except WSServerHandshakeError as failure:
            if failure.status == 403:
                raise AuthenticationError("the server refused the secret") from None
            raise


@broken("close/back-off", "close/back-off-grows", LONGEST_DELAY=0.01, FIRST_DELAY=0.01)
class Hammers(BrokenClient):
    pass


@broken("close/back-off-grows", LONGEST_DELAY=0.6, FIRST_DELAY=0.6)
class WaitsAlwaysTheSame(BrokenClient):
    pass


@broken("close/back-off-grows", random=SimpleNamespace(uniform=lambda _, high: high))
class KnowsNoChance(BrokenClient):
    pass


@broken("close/at-once")
class TakesItsTime(BrokenClient):
    _waited = False

    async def _connect_once(self) -> int | None:
        if self.welcome is not None:
            await asyncio.sleep(2.8)
        return await super()._connect_once()  # type: ignore[no-any-return]


def start(cls: type[Any]) -> Any:
    """How the runner starts a client of this class, in this process."""
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def started(url: str, env: dict[str, str]) -> Any:
        lines = asyncio.StreamReader(limit=2**25)
        told: asyncio.Queue[str] = asyncio.Queue()
        client = cls(url, env["PHEBY_SECRET"])
        serving = asyncio.create_task(right.serve(client, lines, told.put_nowait))
        try:
            yield _InProcess(lines, told, serving)
        finally:
            lines.feed_eof()
            await serving

    return started


class _InProcess:
    def __init__(self, lines: asyncio.StreamReader, told: asyncio.Queue[str], serving: asyncio.Task[None]) -> None:
        self._lines, self._told, self._serving = lines, told, serving

    async def tell(self, line: dict[str, Any]) -> None:
        self._lines.feed_data(json.dumps(line).encode() + b"\n")

    async def hear(self, patience: float) -> dict[str, Any]:
        async with asyncio.timeout(patience):
            found: dict[str, Any] = json.loads(await self._told.get())
        return found

    async def ended(self) -> str:
        await asyncio.wait([self._serving])
        return "it has ended by itself"
