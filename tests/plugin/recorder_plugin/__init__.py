"""A platform plugin that only writes down what Hermes does with it. It answers on loopback to `tests.plugin.record`.

Not imported by any test: it runs inside a real gateway, under the name of the real plugin.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import json
import threading
import time
from pathlib import Path
from typing import Any

from aiohttp import web
from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendResult
from gateway.session_context import get_session_env
from hermes_cli.plugins import VALID_HOOKS
from hermes_constants import get_hermes_home

# Streaming hooks change what Hermes does; the classification hook is asked, not told.
UNWANTED_HOOKS = ("on_stream_", "transform_api_error_classification", "on_kanban_", "kanban_")
LONGEST_TEXT = 400
# These repeat the whole conversation, and the system prompt says much about the machine.
NAMED_ONLY = {"request_messages", "request", "conversation_history", "system_prompt", "middleware_trace"}


class Recording:
    """JSON lines, one for each call, written at once: the process may be killed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._events: list[Any] = []  # kept, so that no two of them ever have one id

    def write(self, kind: str, name: str, **more: Any) -> None:
        with self._lock:
            names = ("HERMES_SESSION_PLATFORM", "HERMES_SESSION_CHAT_ID", "HERMES_SESSION_KEY")
            line = {
                "t": round(time.monotonic() - self._began, 3),
                "kind": kind,
                "name": name,
                "thread": threading.current_thread().name,
                "ctx": [get_session_env(variable) or "" for variable in names],
            }
            self._file.write(json.dumps(line | more, ensure_ascii=True) + "\n")
            self._file.flush()

    def plain(self, value: Any, depth: int = 0, cut: bool = True) -> Any:
        """The value as JSON; objects are named by their type, long texts cut."""
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            value = value.replace(HOME, "/HOME")  # before it is cut, or a part of it would stay
            return value if not cut or len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}<{len(value)} chars>"
        if isinstance(value, MessageEvent):
            return self._event(value)
        if isinstance(value, dict) and depth < 4:
            return {str(key): self._named(str(key), item, depth) for key, item in value.items()}
        if isinstance(value, list | tuple) and depth < 4:
            return [self.plain(item, depth + 1) for item in value[:20]]
        return f"<{type(value).__name__}>"

    def _named(self, name: str, value: Any, depth: int = 0) -> Any:
        if name not in NAMED_ONLY:
            return self.plain(value, depth + 1)
        return f"<{type(value).__name__} {len(value)}>" if hasattr(value, "__len__") else f"<{type(value).__name__}>"

    def keywords(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: self._named(name, value) for name, value in values.items()}

    def _event(self, event: MessageEvent) -> dict[str, Any]:
        number = next((n for n, known in enumerate(self._events) if known is event), None)
        if number is None:
            number = len(self._events)
            self._events.append(event)
        return {
            "event": number,
            "chat": event.source.chat_id,
            "message_id": event.message_id,
            "text": self.plain(event.text),
            "internal": bool(getattr(event, "internal", False)),
        }


HOME = str(get_hermes_home())
RECORDING = Recording(Path(HOME) / "recording.jsonl")


def recorded(*whole: str) -> Any:
    """Writes a call of the decorated coroutine method down; the arguments named in `whole` are not cut."""

    def decorate(method: Any) -> Any:
        @functools.wraps(method)
        async def call(self: Any, *a: Any, **k: Any) -> Any:
            plain = RECORDING.keywords(k)
            plain |= {name: RECORDING.plain(k[name], cut=False) for name in whole if name in k}
            RECORDING.write("call", method.__name__, a=[RECORDING.plain(v) for v in a], k=plain)
            return await method(self, *a, **k)

        return call

    return decorate


class RecorderAdapter(BasePlatformAdapter):
    MAX_MESSAGE_LENGTH = 1_000_000
    REQUIRES_EDIT_FINALIZE = True

    def __init__(self, config: Any) -> None:
        super().__init__(config, Platform("pheby"))
        self._port = int(config.extra["port"])
        self._numbers = 0
        self._site: web.AppRunner | None = None
        self._clarify_ids: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- life -----------------------------------------------------------------------------------------------------

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        RECORDING.write("call", "connect", a=[], k={})
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_post("/do", self._do)
        self._site = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._site.setup()
        await web.TCPSite(self._site, "127.0.0.1", self._port).start()
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        RECORDING.write("call", "disconnect", a=[], k={})
        if self._site:
            await self._site.cleanup()

    @recorded()
    async def cancel_background_tasks(self) -> None:
        await super().cancel_background_tasks()

    # -- what Hermes sends ----------------------------------------------------------------------------------------

    def _sent(self) -> SendResult:
        self._numbers += 1
        RECORDING.write("result", "message", id=f"o{self._numbers}")
        return SendResult(success=True, message_id=f"o{self._numbers}")

    @recorded("content")
    async def send(self, chat_id: str, content: str, reply_to: Any = None, metadata: Any = None) -> SendResult:
        return self._sent()

    @recorded("content")
    async def edit_message(
        self, chat_id: str, message_id: str, content: str, *, finalize: bool = False, metadata: Any = None
    ) -> SendResult:
        return SendResult(success=True, message_id=message_id)

    @recorded()
    async def send_or_update_status(self, chat_id: str, status_key: str, text: str, **k: Any) -> SendResult:
        return self._sent()

    @recorded()
    async def send_document(self, chat_id: str, file_path: str, *a: Any, **k: Any) -> SendResult:
        return self._sent()

    @recorded()
    async def send_image_file(self, chat_id: str, image_path: str, *a: Any, **k: Any) -> SendResult:
        return self._sent()

    @recorded()
    async def send_exec_approval(self, chat_id: str, command: str, session_key: str, *a: Any, **k: Any) -> SendResult:
        return self._sent()

    async def _send_exec_approval_prompt(self, prompt: Any) -> SendResult:
        # The newer line shows buttons only if this is overridden, and calls send_exec_approval, which is above.
        return self._sent()

    @recorded()
    async def send_clarify(
        self, chat_id: str, question: str, choices: Any, clarify_id: str, session_key: str, metadata: Any = None
    ) -> SendResult:
        self._clarify_ids[chat_id] = clarify_id
        return self._sent()

    @recorded()
    async def retire_clarify_card(self, clarify_id: str, notice: Any = None) -> None:
        pass

    @recorded()
    async def send_slash_confirm(self, chat_id: str, *a: Any, **k: Any) -> SendResult:
        return self._sent()

    async def send_typing(self, chat_id: str, metadata: Any = None) -> None:
        pass

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        return {"name": f"Chat {chat_id}", "type": "dm"}

    # -- what Hermes says about its work --------------------------------------------------------------------------

    @recorded()
    async def handle_message(self, event: MessageEvent) -> None:
        await super().handle_message(event)

    @recorded()
    async def on_processing_start(self, event: MessageEvent) -> None:
        pass

    @recorded()
    async def on_processing_complete(self, event: MessageEvent, outcome: Any) -> None:
        pass

    @recorded()
    async def interrupt_session_activity(self, session_key: str, chat_id: str, metadata: Any = None) -> None:
        await super().interrupt_session_activity(session_key, chat_id)

    @recorded()
    async def cancel_session_processing(self, session_key: str, **k: Any) -> None:
        await super().cancel_session_processing(session_key, **k)

    # -- what the script asks for ---------------------------------------------------------------------------------

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _do(self, request: web.Request) -> web.Response:
        asked = await request.json()
        RECORDING.write("do", asked["op"], asked=asked)
        answer = await getattr(self, f"_do_{asked.pop('op')}")(**asked)
        return web.json_response({"answer": answer})

    def _key(self, chat: str) -> str:
        return f"agent:main:pheby:dm:{chat}"

    async def _do_say(self, chat: str, text: str, mid: str) -> None:
        source = self.build_source(
            chat_id=chat, chat_name=f"Chat {chat}", chat_type="dm", user_id="owner", user_name="Owner", message_id=mid
        )
        event = MessageEvent(text=text, source=source, message_id=mid)
        task = asyncio.get_running_loop().create_task(self.handle_message(event))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do_interrupt(self, chat: str) -> None:
        await self.interrupt_session_activity(self._key(chat), chat)

    async def _do_approve(self, chat: str, choice: str) -> Any:
        from tools.approval import resolve_gateway_approval

        return resolve_gateway_approval(self._key(chat), choice)

    async def _do_answer(self, chat: str, text: str) -> Any:
        from tools.clarify_gateway import resolve_gateway_clarify

        return resolve_gateway_clarify(self._clarify_ids[chat], text)

    async def _do_busy(self, chat: str) -> bool:
        return self._key(chat) in self._active_sessions

    async def _do_rows(self, chat: str) -> int:
        rows = await asyncio.to_thread(_rows, chat)
        for row in rows:
            RECORDING.write("row", str(row.get("role")), v=row)
        return len(rows)


def _rows(chat: str) -> list[dict[str, Any]]:
    """Every row of every session of the chat, as the public reads of the session database give them."""
    from hermes_state import SessionDB

    database = SessionDB(read_only=True)
    sessions = database.list_sessions_rich(
        source="pheby", limit=10_000, include_children=True, project_compression_tips=False, include_archived=True
    )
    rows = [
        row
        for session in sessions
        if session.get("chat_id") == chat
        for row in database.get_messages(session["id"], include_inactive=True)
    ]
    rows.sort(key=lambda row: row["id"])
    return [RECORDING.keywords(dict(row)) | {"content": RECORDING.plain(row["content"], cut=False)} for row in rows]


def _hook(name: str) -> Any:
    def hook(**k: Any) -> None:
        RECORDING.write("hook", name, v=RECORDING.keywords(k))

    hook.__name__ = name
    return hook


def register(ctx: Any) -> None:
    for name in sorted(VALID_HOOKS):
        if not name.startswith(UNWANTED_HOOKS):
            ctx.register_hook(name, _hook(name))
    ctx.register_platform(
        name="pheby",
        label="Pheby recorder",
        adapter_factory=RecorderAdapter,
        check_fn=lambda: True,
        allowed_users_env="PHEBY_ALLOWED_USERS",
    )
