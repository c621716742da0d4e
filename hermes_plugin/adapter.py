"""The platform adapter: each of Hermes's calls is one call into the relay, each wish of the core one of Hermes's."""

from __future__ import annotations

import asyncio
import contextlib
import os.path
import secrets
import time
from functools import partial
from typing import Any
from urllib.parse import unquote

from pheby_server import Server
from pheby_server.aiohttp_transport import Listener
from pheby_server.config import ConfigError
from pheby_server.logs import kind, log_of
from pheby_server.logs import secrets as kept_secrets
from pheby_server.ports import AgentFile, HermesFeatures
from pheby_server.stores import StoreError, StoreUnavailableError

from . import PLATFORM, _hermes
from ._hermes import BasePlatformAdapter, MessageEvent, SendResult
from .chats import conversation_of
from .config import PluginConfig, read_config
from .hooks import HookRelay
from .pickers import EffortPicker, ModelPicker, Pickers
from .port import HermesSide
from .questions import answer
from .relay import Relay
from .tool_calls import redactor
from .typed import neutralise

log = log_of(__name__)

OWNER = "owner"
INTERRUPT_SECONDS = 0.3
"""So long an interruption takes to be noticed at most."""
STOP_SECONDS = 4.0
"""Hermes cuts `disconnect` off after five."""


class PhebyAdapter(BasePlatformAdapter):
    """One per gateway and profile. Hermes may make a new one to reconnect, so nothing is kept outside."""

    MAX_MESSAGE_LENGTH = 1_000_000
    SUPPORTS_MESSAGE_EDITING = True
    REQUIRES_EDIT_FINALIZE = True
    supports_code_blocks = True

    def __init__(self, platform_config: Any, hooks: HookRelay) -> None:
        super().__init__(platform_config, _hermes.platform(PLATFORM))
        # Hermes would put "gateway online" into the home conversation at every start; a client sees that by itself.
        platform_config.gateway_restart_notification = False
        self._hooks = hooks
        self._extra = dict(getattr(platform_config, "extra", None) or {})
        # Bound here: in a gateway for several profiles, only now is this the right one.
        self._home = _hermes.home()
        self._version = _hermes.version()
        kept_secrets.keep([_hermes.read_secret("API_SERVER_KEY")])
        self._settings: PluginConfig | ConfigError
        try:
            self._settings = read_config(self._extra, str(self._home), _hermes.read_secret)
        except ConfigError as failure:
            self._settings = failure
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._listener: Listener | None = None
        self._relay: Relay | None = None
        self._handler: Any = None
        self._restarts: set[asyncio.Future[None]] = set()
        self._commanded: set[str] = set()
        """Chats in which a command of Pheby's own is on its way."""
        self._pickers = Pickers()

    # Hermes: life cycle

    def set_message_handler(self, handler: Any) -> None:
        super().set_message_handler(handler)
        self._handler = handler

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        if isinstance(self._settings, ConfigError):
            log.error("config.refused", extra={"problems": str(self._settings)})
            self._set_fatal_error("pheby_config", str(self._settings), retryable=False)
            return False
        for told in self._settings.ignored:
            log.warning("config.ignored", extra={"setting": told})
        try:
            await self._stop()
            await self._start(self._settings)
        except Exception as failure:
            place = {"host": self._settings.host, "port": self._settings.port}
            log.error("connect.failed", extra=place, exc_info=failure)
            await self._stop()
            why = f"cannot start on {self._settings.host}:{self._settings.port} ({kind(failure)})"
            self._set_fatal_error("pheby_listen", why, retryable=True)
            return False
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        self._mark_disconnected()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._stop()

    async def _start(self, settings: PluginConfig) -> None:
        self._loop = asyncio.get_running_loop()
        sessions = _hermes.sessions_of(self, self._home, PLATFORM)
        port = HermesSide(self, self._features, sessions, _hermes.model_facts)
        self._server = Server(settings.server, port, settings.authenticator)
        self._server.on_damaged = self._start_anew
        await self._server.start()
        self._relay = Relay(
            self._server.events,
            partial(secrets.token_hex, 8),
            self._loop.call_later,
            cursor=_hermes.streaming_cursor(self),
            platform=PLATFORM,
            redact=redactor(_hermes.redact, settings.authenticator.values()),
            command_on_card=_hermes.command_on_card,
            canonical=_canonical,
        )
        self._hooks.add(self)
        self._listener = Listener(
            self._server,
            settings.host,
            settings.port,
            prefix=settings.path_prefix,
            trusted_proxies=settings.trusted_proxies,
            allowed_origins=settings.allowed_origins,
        )
        await self._listener.start()

    def _start_anew(self) -> None:
        """The store is damaged: a new start puts it aside. Hermes's own history is not touched."""
        if isinstance(self._settings, PluginConfig):
            self._restarts.add(asyncio.ensure_future(self._restart(self._settings)))

    async def _restart(self, settings: PluginConfig) -> None:
        try:
            await self._stop()
            await self._start(settings)
        except Exception as failure:
            log.error("restart.failed", exc_info=failure)
            self._set_fatal_error("pheby_store", f"cannot restart: {type(failure).__name__}", retryable=True)

    async def _stop(self) -> None:
        self._hooks.remove(self)
        relay, server, listener = self._relay, self._server, self._listener
        self._relay = self._server = self._listener = None
        try:
            if server is not None:
                with contextlib.suppress(StoreError):
                    if relay is not None:
                        # Its thread waits for an answer: on 0.19 the gateway would not end before it.
                        _hermes.cancel_clarifications(relay.waiting_questions())
                        relay.shut_down()
                        # Clients that are still there hear how their runs ended.
                        await server.events.settled()
                    await server.stop()
        finally:
            # Whatever became of the rest: the next adapter needs the port.
            if listener is not None:
                await listener.stop()

    def _features(self) -> HermesFeatures:
        return HermesFeatures(
            version=self._version,
            streaming=_hermes.streaming_enabled(self, PLATFORM),
            cancel=True,
            tools=_hermes.fires("pre_tool_call", "post_tool_call"),
            approvals=_hermes.approvals_offered(),
            subagents=_hermes.fires("subagent_start", "subagent_stop"),
            steer=True,
            rename=_hermes.renaming_offered(),
            delete=_hermes.deleting_offered(),
            clarifications=_hermes.clarifications_offered(),
            attachments=_hermes.files_offered(),
            models=_hermes.model_picker_offered(),
            reasoning=_hermes.effort_picker_offered(),
        )

    # Hermes: what the agent says

    async def send(
        self, chat_id: str, content: str, reply_to: str | None = None, metadata: dict[str, Any] | None = None
    ) -> SendResult:
        relay, server = self._relay, self._server
        if relay is None or server is None:
            return SendResult(success=False, error="not connected")
        delivery = relay.outside(chat_id, content, metadata)
        if delivery is None:
            return await _told(server, relay.send(chat_id, content, metadata))
        try:
            message_id = await server.events.deliver(conversation_of(chat_id), delivery)
        except StoreError:
            # Nobody has seen it: Hermes may tell it some other way.
            return SendResult(success=False, error="not stored")
        relay.delivered(chat_id, message_id)
        return SendResult(success=True, message_id=message_id)

    async def send_document(
        self,
        chat_id: str,
        file_path: str,
        caption: str | None = None,
        file_name: str | None = None,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> SendResult:
        return await self._file(chat_id, file_path, caption, metadata, file_name)

    async def send_image_file(
        self,
        chat_id: str,
        image_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> SendResult:
        return await self._file(chat_id, image_path, caption, metadata)

    async def send_video(
        self,
        chat_id: str,
        video_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> SendResult:
        return await self._file(chat_id, video_path, caption, metadata)

    async def send_voice(
        self,
        chat_id: str,
        audio_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> SendResult:
        return await self._file(chat_id, audio_path, caption, metadata)

    async def send_multiple_images(
        self,
        chat_id: str,
        images: list[tuple[str, str]],
        metadata: dict[str, Any] | None = None,
        human_delay: float = 0.0,
    ) -> SendResult:
        results = []
        for address, caption in images:
            if address.startswith("file://"):
                path = unquote(address.removeprefix("file://"))
                results.append(await self._file(chat_id, path, caption or None, metadata))
            else:
                results.append(await self.send_image(chat_id, address, caption or None, metadata=metadata))
        return next((result for result in results if result.success), SendResult(success=not results))

    async def send_image(
        self,
        chat_id: str,
        image_url: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> SendResult:
        """A picture by its address: nothing is fetched here, and in a run the answer's own text has the address."""
        if self._relay is None or self._relay.in_run(chat_id):
            return SendResult(success=self._relay is not None, message_id=secrets.token_hex(8))
        return await self.send(chat_id, f"![{caption or ''}]({image_url})", reply_to, metadata)

    async def _file(
        self, chat_id: str, path: str, caption: str | None, metadata: dict[str, Any] | None, name: str | None = None
    ) -> SendResult:
        """A file that Hermes delivers: copied before this returns. What is refused has a notice that the owner sees."""
        relay, server = self._relay, self._server
        if relay is None or server is None:
            return SendResult(success=False, error="not connected")
        if caption and not relay.in_run(chat_id):
            await self.send(chat_id, caption, metadata=metadata)
        place = relay.file_place(chat_id, path)
        if place is None:
            return SendResult(success=True, message_id=secrets.token_hex(8))
        # By Hermes's own rule once more: what it names may have been changed since.
        real = await asyncio.to_thread(_hermes.deliverable, path)
        file = AgentFile(path=real, name=name or os.path.basename(path))
        try:
            taken = await server.events.attach(place.conversation_id, file, place.message_id)
        except StoreError:
            return SendResult(success=False, error="not stored")
        return SendResult(success=taken, message_id=secrets.token_hex(8), error=None if taken else "file refused")

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, *, finalize: bool = False, metadata: Any = None
    ) -> SendResult:
        if self._relay is not None:
            self._relay.edit(message_id, content, final=finalize)
        return SendResult(success=True, message_id=message_id)

    async def send_or_update_status(
        self, chat_id: str, status_key: str, content: str, *, metadata: Any = None
    ) -> SendResult:
        if self._relay is not None:
            self._relay.status(chat_id, content)
        return SendResult(success=True, message_id=status_key)

    @classmethod
    def supports_exec_approval_buttons(cls) -> bool:
        return True

    async def send_exec_approval(
        self,
        chat_id: str,
        command: str,
        session_key: str,
        description: str | None = None,
        metadata: Any = None,
        allow_permanent: bool = True,
        allow_session: bool = True,
        smart_denied: bool = False,
        **more: Any,
    ) -> SendResult:
        relay, server = self._relay, self._server
        if relay is None or server is None:
            return SendResult(success=False, error="not connected")
        choices = ["once"]
        if allow_session and not smart_denied:
            choices += ["session", "always"] if allow_permanent else ["session"]
        seconds = _hermes.approval_seconds()
        key = relay.approval(
            chat_id,
            session_key,
            command,
            description or "",
            (*choices, "deny"),
            _hermes.find_question,
            None if seconds is None else int((time.time() + seconds) * 1_000),
        )
        # Nobody has to be connected: it waits, and is in the next snapshot.
        return await _told(server, key)

    async def send_clarify(
        self,
        chat_id: str,
        question: str,
        choices: list[str] | None,
        clarify_id: str,
        session_key: str,
        metadata: Any = None,
        **more: Any,
    ) -> SendResult:
        relay, server = self._relay, self._server
        if relay is None or server is None:
            return SendResult(success=False, error="not connected")
        if not _hermes.clarifications_offered():
            # As a text, which the next message answers.
            return await super().send_clarify(chat_id, question, choices, clarify_id, session_key, metadata)
        seconds = _hermes.clarification_seconds()
        relay.clarification(
            chat_id,
            session_key,
            clarify_id,
            question,
            choices or (),
            multiple=_hermes.takes_several(session_key, clarify_id),
            skip_answer=_hermes.skip_answer(),
            undecorated=_hermes.undecorated,
            expires_at=None if seconds is None else int((time.time() + seconds) * 1_000),
        )
        return await _told(server, clarify_id)

    async def retire_clarify_card(self, clarify_id: str, notice: str = "", **more: Any) -> None:
        """Nobody has answered: the card is over."""
        if self._relay is not None:
            self._relay.clarification_over(clarify_id)

    async def send_slash_confirm(
        self, chat_id: str, title: str, message: str, session_key: str, confirm_id: str, metadata: Any = None
    ) -> SendResult:
        """Answered by rule: text of the owner is never a command, so only what Pheby itself asks for is confirmed."""
        await _hermes.confirm(session_key, confirm_id, yes=chat_id in self._commanded)
        return SendResult(success=True, message_id=confirm_id)

    async def send_model_picker(
        self,
        chat_id: str,
        providers: list[dict[str, Any]],
        current_model: str,
        current_provider: str,
        session_key: str,
        on_model_selected: Any,
        metadata: Any = None,
        **more: Any,
    ) -> SendResult:
        """Opened by a command of Pheby's own. Refused, Hermes would say in a text what it offers, addresses and all."""
        kept = _hermes.kept_model(self, session_key)
        picker = ModelPicker(providers or (), current_model or "", current_provider or "", on_model_selected, kept)
        self._pickers.take(chat_id, picker)
        return SendResult(success=True, message_id=secrets.token_hex(8))

    async def send_choice_picker(
        self,
        chat_id: str,
        title: str,
        choices: list[dict[str, Any]],
        session_key: str,
        on_choice_selected: Any,
        metadata: Any = None,
        **more: Any,
    ) -> SendResult:
        """As send_model_picker."""
        self._pickers.take(chat_id, EffortPicker(choices or (), on_choice_selected))
        return SendResult(success=True, message_id=secrets.token_hex(8))

    async def send_typing(self, chat_id: str, metadata: Any = None) -> None:
        """Nothing: the run's own state says that the agent works."""

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        return {"name": f"Pheby {chat_id}", "type": "dm", "chat_id": chat_id}

    def streaming_overflow_limit(self) -> int:
        return self.MAX_MESSAGE_LENGTH

    # Hermes: what becomes of a message

    async def handle_message(self, event: MessageEvent) -> None:
        if event.internal and not event.text:
            # After a restart Hermes would run the model again by itself, where the owner did not ask for it.
            log.info("resume.declined")
            return
        await super().handle_message(event)

    async def on_processing_start(self, event: MessageEvent) -> None:
        if self._relay is not None:
            self._relay.processing_started(
                event.source.chat_id, id(event), event.message_id, event.text, bool(event.internal)
            )

    async def on_processing_complete(self, event: MessageEvent, outcome: Any) -> None:
        if self._relay is not None:
            name = getattr(outcome, "name", str(outcome))
            self._relay.processing_completed(event.source.chat_id, id(event), name)

    async def interrupt_session_activity(self, session_key: str, chat_id: str, metadata: Any = None) -> None:
        if self._relay is not None:
            self._relay.interrupted(chat_id)
        await super().interrupt_session_activity(session_key, chat_id, metadata)

    # Hermes: hooks, in whatever thread they come

    def take_hook(self, name: str, facts: dict[str, object], chat_id: str) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hook, name, facts, chat_id)

    def _hook(self, name: str, facts: dict[str, object], chat_id: str) -> None:
        if self._relay is not None:
            self._relay.hook(name, facts, chat_id)

    # The core's wishes (port.Gateway)

    def is_open(self) -> bool:
        # Without a relay nobody would see what becomes of a message: starting, stopping.
        return self._relay is not None and _hermes.gateway_open(self)

    def is_free(self, chat_id: str) -> bool:
        turns = self._relay.turns if self._relay is not None else None
        if turns is not None and (turns.open_turn(chat_id) or turns.open_envelopes(chat_id)):
            return False
        return not _hermes.session_busy(self, f":{PLATFORM}:dm:{chat_id}")

    async def deliver(self, chat_id: str, text: str, message_id: str, context: str | None) -> None:
        await self.handle_message(_hermes.typed_event(neutralise(text), self._source(chat_id), message_id, context))
        if self._relay is not None:
            self._relay.handed_over(chat_id, message_id)

    def _source(self, chat_id: str) -> Any:
        return self.build_source(chat_id, chat_name=f"Pheby {chat_id}", chat_type="dm", user_id=OWNER, user_name=OWNER)

    def resolve_approval(self, key: str, choice: str, reason: str | None) -> bool:
        relay = self._relay
        card = relay.cards.named(key) if relay is not None else None
        if relay is None or card is None or not relay.may_answer(card, choice):
            return False
        if not _hermes.resolve_approval(card.session_key, choice, reason, card.question):
            return False
        relay.approval_answered(card)
        resume = getattr(self, "resume_typing_for_chat", None)
        if resume is not None:
            resume(card.chat_id)
        return True

    def resolve_clarification(self, key: str, chosen: tuple[int, ...], text: str | None, *, skip: bool) -> bool:
        relay = self._relay
        question = relay.may_clarify(key) if relay is not None else None
        if relay is None or question is None:
            return False
        said = answer(question, chosen, text, skip=skip, undecorated=_hermes.undecorated)
        if said is None or not _hermes.resolve_clarification(key, said):
            return False
        relay.clarification_answered(key)
        return True

    def interrupt_subagent(self, key: str) -> bool:
        subagent_id = self._relay.subagents.hermes_id(key) if self._relay is not None else None
        return subagent_id is not None and _hermes.interrupt_subagent(subagent_id)

    async def steer(self, chat_id: str, text: str, message_id: str) -> bool:
        turn = self._relay.turns.open_turn(chat_id) if self._relay is not None else None
        if turn is None or not text.strip():
            return False
        # Hermes's own command for it: by the handler alone, so that what it answers is for nobody.
        await self._command(f"/steer {neutralise(text).strip()}", chat_id, message_id)
        return True

    async def reset(self, chat_id: str) -> None:
        """Have Hermes begin a new session in a chat: else 0.19 keeps the agent, and with it the old conversation."""
        self._commanded.add(chat_id)
        try:
            await self._command("/new", chat_id, secrets.token_hex(8))
        finally:
            self._commanded.discard(chat_id)

    async def open_picker(self, chat_id: str, command: str) -> ModelPicker | EffortPicker | None:
        return await self._pickers.opened_by(chat_id, self._command(command, chat_id, secrets.token_hex(8)))

    async def _command(self, text: str, chat_id: str, message_id: str) -> None:
        """Have Hermes obey a command of Pheby's own: no turn begins, and what it answers is for nobody."""
        event = _hermes.command(text, self._source(chat_id), message_id)
        await (self._handler or self._message_handler)(event)

    async def interrupt(self, chat_id: str) -> None:
        suffix = f":{PLATFORM}:dm:{chat_id}"
        session_key = _hermes.session_key(self, suffix) or f"agent:main{suffix}"
        await self.interrupt_session_activity(session_key, chat_id)
        # A question holds the agent's thread until it is answered; answered too early, the run would go on.
        await asyncio.sleep(INTERRUPT_SECONDS)
        if self._relay is not None:
            _hermes.cancel_clarifications(self._relay.waiting_questions(chat_id))


def _canonical(path: str) -> str:
    """A path that may be anything a model writes, without links and abbreviations where it is one."""
    try:
        return os.path.realpath(os.path.expanduser(path))
    except ValueError:
        return path


async def _told(server: Server, message_id: str) -> SendResult:
    """What Hermes hears of something that was told to the core under this id, when it is stored."""
    try:
        await server.events.settled()
    except StoreUnavailableError:
        # It waits for the store, in its place: sent again it would come twice.
        pass
    except StoreError:
        return SendResult(success=False, error="not connected")
    return SendResult(success=True, message_id=message_id)
