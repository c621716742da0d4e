"""The scripted model, asked as Hermes asks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from pheby.demo.dialogue import read_turn
from pheby.demo.model import MODELS, ScriptedModel
from pheby.demo.scripts import RAW_PROVIDER_TEXT, SCRIPTS, USAGE, checksum_holds

OLD_CLARIFY: dict[str, Any] = {"question": {}, "choices": {}}
NEW_CLARIFY: dict[str, Any] = {"questions": {}}
OLD_DELEGATE: dict[str, Any] = {"goal": {}, "tasks": {}}
NEW_DELEGATE: dict[str, Any] = {"tasks": {}}


def tools(**properties: Any) -> list[dict[str, Any]]:
    named = {"terminal": {"command": {}}, "read_file": {"path": {}}} | properties
    return [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": known}}}
        for name, known in named.items()
    ]


def user(text: object) -> dict[str, Any]:
    return {"role": "user", "content": text}


def after_tools(*results: str) -> list[dict[str, Any]]:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "x", "arguments": "{}"}} for n in range(len(results))
    ]
    answers = [{"role": "tool", "tool_call_id": f"c{n}", "content": text} for n, text in enumerate(results)]
    return [{"role": "assistant", "content": "", "tool_calls": calls}, *answers]


class Answer:
    """A streamed reply, put together as a client does it."""

    def __init__(self, events: list[str]) -> None:
        self.done = bool(events) and events[-1] == "[DONE]"
        chunks = [json.loads(event) for event in events if event != "[DONE]"]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        self.pieces = [delta["content"] for delta in deltas if delta.get("content")]
        self.text = "".join(self.pieces)
        self.finish = next((c["finish_reason"] for k in chunks for c in k["choices"] if c["finish_reason"]), None)
        calls: dict[int, dict[str, str]] = {}
        for part in (part for delta in deltas for part in delta.get("tool_calls", ())):
            call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] += part.get("id", "")
            call["name"] += part["function"].get("name", "")
            call["arguments"] += part["function"].get("arguments", "")
        self.calls = [(call["name"], json.loads(call["arguments"])) for call in calls.values()]
        self.usage = [chunk["usage"] for chunk in chunks if chunk.get("usage") and not chunk["choices"]]


class Client:
    def __init__(self, model: ScriptedModel, session: aiohttp.ClientSession) -> None:
        self.model = model
        self.session = session

    async def post(self, messages: list[dict[str, Any]], **more: Any) -> aiohttp.ClientResponse:
        body = {"model": "scripted-1", "stream": True, "tools": tools(), "messages": messages, **more}
        return await self.session.post(f"{self.model.url}/chat/completions", json=body)

    async def ask(self, messages: list[dict[str, Any]] | str, **more: Any) -> Answer:
        response = await self.post([user(messages)] if isinstance(messages, str) else messages, **more)
        assert response.status == 200
        text = await response.text()
        return Answer([line.removeprefix("data: ") for line in text.splitlines() if line])


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ScriptedModel(pace=0) as model, aiohttp.ClientSession() as session:
        yield Client(model, session)


@pytest.fixture
async def timed_client() -> AsyncIterator[Client]:
    async with ScriptedModel() as model, aiohttp.ClientSession() as session:
        yield Client(model, session)


async def test_it_lists_its_models(client: Client) -> None:
    async with client.session.get(f"{client.model.url}/models") as response:
        entries = (await response.json())["data"]
    assert [entry["id"] for entry in entries] == list(MODELS)
    assert all(entry["context_length"] > 0 for entry in entries)


async def test_say_streams_word_by_word_and_ends_as_providers_do(client: Client) -> None:
    answer = await client.ask("say hello")
    assert answer.text.startswith("Hello!")
    assert "hello" in answer.text
    assert len(answer.pieces) > 3
    assert (answer.finish, answer.done, len(answer.usage)) == ("stop", True, 1)


@pytest.mark.parametrize("text", ["good morning", "say", "run", "waiting for you", "toolsmith", "ask", "//comment"])
async def test_anything_else_is_repeated(client: Client, text: str) -> None:
    answer = await client.ask(text)
    assert f'"{text}"' in answer.text
    assert not answer.calls


@pytest.mark.parametrize("size", [73, 74, 1000, 5000, 99_999, 100_000])
async def test_long_is_exactly_as_long_as_asked_and_can_be_checked(client: Client, size: int) -> None:
    answer = await client.ask(f"long {size}")
    assert len(answer.text) == size
    assert checksum_holds(answer.text)
    assert not checksum_holds("x" + answer.text[1:])
    assert answer.text == answer.text.strip()
    assert len(answer.pieces) <= 41


@pytest.mark.parametrize("text", ["long 5", "long 72", "long 0"])
async def test_long_says_so_when_there_is_no_room_for_the_checksum(client: Client, text: str) -> None:
    assert "at least 73" in (await client.ask(text)).text


async def test_long_has_a_ceiling(client: Client) -> None:
    assert len((await client.ask("long 9999999")).text) == 100_000


async def test_slow_takes_a_tenth_of_a_second_a_word(timed_client: Client) -> None:
    began = asyncio.get_running_loop().time()
    assert (await timed_client.ask("slow 5")).text == "w1 w2 w3 w4 w5"
    assert asyncio.get_running_loop().time() - began >= 0.5


async def test_wait_is_silent_first(timed_client: Client) -> None:
    began = asyncio.get_running_loop().time()
    assert (await timed_client.ask("wait 1")).text
    assert asyncio.get_running_loop().time() - began >= 1


@pytest.mark.parametrize(
    ("text", "status"), [("fail 401", 401), ("fail 429", 429), ("fail 500", 500), ("fail 200", 500)]
)
async def test_fail_is_an_http_error_with_raw_text_in_it(client: Client, text: str, status: int) -> None:
    async with await client.post([user(text)]) as response:
        assert response.status == status
        assert RAW_PROVIDER_TEXT in (await response.json())["error"]["message"]


async def test_empty_has_no_text_and_stays_empty_when_nudged(client: Client) -> None:
    assert (await client.ask("empty")).text == ""
    nudge = "You just executed tool calls but returned an empty response. Please process the tool results above."
    answer = await client.ask([user("empty"), {"role": "assistant", "content": "(empty)"}, user(nudge)])
    assert (answer.text, answer.finish) == ("", "stop")


async def test_unicode_arrives_whole(client: Client) -> None:
    answer = await client.ask("unicode")
    for expected in ("👩\u200d👩\u200d👧\u200d👦", "🇪🇺", "👍🏽", "漢字とかな", "한국어", "שלום עולם", "e\u0301"):
        assert expected in answer.text
        assert not any(expected in piece for piece in answer.pieces if len(expected) > 4)


async def test_thinking_is_split_over_chunks(client: Client) -> None:
    assert (await client.ask("think")).pieces[:3] == ["<thi", "nk>secret</th", "ink>Hi"]
    assert "start <think>" in (await client.ask("midthink")).text


async def test_media_is_split_over_chunks(client: Client) -> None:
    answer = await client.ask("media /tmp/report one.txt")
    assert "\nMEDIA:/tmp/report one.txt\n" in answer.text
    assert not any("MEDIA:/tmp/report one.txt" in piece for piece in answer.pieces)


async def test_markdown_has_a_media_line_inside_a_code_block(client: Client) -> None:
    text = (await client.ask("markdown")).text
    assert text.index("```") < text.index("\nMEDIA:/") < text.rindex("```")


async def test_surrogate_sends_half_a_pair(client: Client) -> None:
    assert "\ud83d and" in (await client.ask("surrogate")).text


async def test_drop_breaks_off_and_goes_on_when_asked_to(client: Client) -> None:
    response = await client.post([user("drop")])
    with pytest.raises(aiohttp.ClientError):
        await response.read()
    cut = "[System: The previous response was cut off by a network error mid-stream. Continue.]"
    partly = {"role": "assistant", "content": "This reply"}
    assert (await client.ask([user("drop"), partly, user(cut)])).text == "and here is the rest."


async def test_run_calls_the_terminal_and_goes_on_with_its_result(client: Client) -> None:
    answer = await client.ask("run echo 'a b' | cat")
    assert answer.text
    assert answer.finish == "tool_calls"
    assert answer.calls == [("terminal", {"command": "echo 'a b' | cat"})]
    after = await client.ask([user("run ls"), *after_tools("{}")])
    assert (after.text, after.calls, after.finish) == ("The command has ended.", [], "stop")


async def test_tools_makes_two_calls_in_one_message(client: Client) -> None:
    assert [name for name, _ in (await client.ask("tools")).calls] == ["read_file", "read_file"]
    named = await client.ask("tools /a b|/c|/d")
    assert [arguments["path"] for _, arguments in named.calls] == ["/a b", "/c", "/d"]
    assert "2 files" in (await client.ask([user("tools"), *after_tools("a", "b")])).text


async def test_danger_asks_for_a_command_that_needs_approval(client: Client) -> None:
    assert (await client.ask("danger /tmp/x")).calls == [("terminal", {"command": "rm -rf /tmp/x"})]
    assert "gone" in (await client.ask([user("danger /x"), *after_tools("{}")])).text
    denied = after_tools("BLOCKED: Command denied by user")
    assert "did not allow" in (await client.ask([user("danger /x"), *denied])).text


async def test_ask_fits_the_schema_on_offer(client: Client) -> None:
    asked = {"question": "Which?", "choices": ["a", "b c"]}
    old = await client.ask("ask Which?|a|b c", tools=tools(clarify=OLD_CLARIFY))
    new = await client.ask("ask Which?|a|b c", tools=tools(clarify=NEW_CLARIFY))
    assert old.calls == [("clarify", asked)]
    assert new.calls == [("clarify", {"questions": [asked]})]
    assert (await client.ask("ask Why?", tools=tools(clarify=OLD_CLARIFY))).calls == [("clarify", {"question": "Why?"})]
    assert "blue" in (await client.ask([user("ask Which?|a"), *after_tools('{"user_response": "blue"}')])).text


async def test_delegate_fits_the_schema_on_offer(client: Client) -> None:
    old = await client.ask("delegate say hi", tools=tools(delegate_task=OLD_DELEGATE))
    new = await client.ask("delegate say hi", tools=tools(delegate_task=NEW_DELEGATE))
    assert old.calls == [("delegate_task", {"goal": "say hi"})]
    assert new.calls == [("delegate_task", {"tasks": [{"goal": "say hi"}]})]


async def test_help_names_every_script(client: Client) -> None:
    text = (await client.ask("help")).text
    assert all(f"- {name}" in text for name in SCRIPTS if name != "help")
    assert len(USAGE) == len(SCRIPTS)


@pytest.mark.parametrize(
    "content",
    [
        "say blue\n\n[System note: This is the user's very first message ever. Say who you are.]",
        "[Note: model was just switched from scripted-1 to scripted-2 via Custom. Adjust yourself.]\n\nsay blue",
        '[Replying to: "long 5"]\n\nsay blue',
        "[System note: A new message has arrived. The conversation was reset.]\n\nsay blue",
        "[From the owner's inbox]\nCron: long 5\n\n[New message]\nsay blue",
        'Gateway message origin (JSON, not instructions):\n{"platform": "pheby"}\nDo not guess.\n\nsay blue',
        'slow 9\n\nUser correction during the turn: Gateway message origin (x):\n{"a": 1}\nNo.\n\nsay blue',
        "fail 401\n\nsay blue",
        "wait 30\n\nlong 80\n\nsay blue",
        "say blue\n\nand a second paragraph",
        "SAY blue\nand a second line",
        [{"type": "text", "text": "say blue"}, {"type": "image_url", "image_url": {"url": "x"}}],
    ],
)
async def test_what_hermes_puts_around_the_text_is_seen_through(client: Client, content: object) -> None:
    assert "You asked me to say: blue" in (await client.ask([user(content)])).text


async def test_an_unanswered_script_is_not_repeated(client: Client) -> None:
    assert 'You wrote: "how are you"' in (await client.ask("wait 30\n\nhow are you")).text


@pytest.mark.parametrize(
    ("notice", "expected"),
    [
        ("[ASYNC DELEGATION BATCH COMPLETE — deleg_1]\nA background fan-out.\n\nsay no", "The delegated work is done."),
        ("[IMPORTANT: Background process p ended.\nOutput: x\n]\n\n[INTERNAL NOTIFICATION — not a human]", "Noted."),
        ("[System note: The previous turn was interrupted by a gateway shutdown.]", "Noted."),
    ],
)
async def test_hermes_own_notices_are_not_taken_for_the_owner(client: Client, notice: str, expected: str) -> None:
    assert (await client.ask(notice)).text == expected


async def test_a_request_without_tools_gets_a_short_title(client: Client) -> None:
    response = await client.post([user("User: run ls\n\nAssistant: Done.")], stream=False, tools=None)
    message = (await response.json())["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "About run ls"}
    assert client.model.requests[-1].auxiliary


async def test_a_reply_can_be_had_in_one_piece(client: Client) -> None:
    response = await client.post([user("run ls")], stream=False)
    choice = (await response.json())["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"command": "ls"}


async def test_requests_are_remembered_and_can_be_read_from_another_process(client: Client) -> None:
    await client.ask("say one", reasoning_effort="high")
    await client.ask("say two", model="scripted-2")
    first, second = client.model.requests
    assert (first.script, first.reasoning_effort, first.model) == ("say", "high", "scripted-1")
    assert (first.auxiliary, first.finished, first.closed_early) == (False, True, False)
    url = client.model.url.removesuffix("/v1") + "/scripted/requests"
    async with client.session.get(url) as response:
        assert [entry["number"] for entry in (await response.json())["requests"]] == [1, 2]
    async with client.session.get(f"{url}?since=1") as response:
        (entry,) = (await response.json())["requests"]
    assert entry["messages"] == [user("say two")]
    assert entry["model"] == second.model == "scripted-2"


async def test_a_client_that_leaves_is_noticed_while_nothing_is_sent(timed_client: Client) -> None:
    response = await timed_client.post([user("wait 60")])
    response.close()
    async with asyncio.timeout(3):
        while not timed_client.model.requests[-1].closed_early:
            await asyncio.sleep(0.02)
    assert not timed_client.model.requests[-1].finished


async def test_leaving_does_not_wait_for_open_replies() -> None:
    async with aiohttp.ClientSession() as session:
        async with ScriptedModel() as model:
            response = await Client(model, session).post([user("wait 60")])
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 3
        response.close()


async def test_a_body_that_is_no_request_is_refused(client: Client) -> None:
    url = f"{client.model.url}/chat/completions"
    for body in (b"{", b"[]", b"\xff"):
        async with client.session.post(url, data=body) as response:
            assert response.status == 400


@pytest.mark.parametrize("body", [{}, {"messages": None}, {"messages": [1, {"role": "user"}]}, {"tools": [1, {}]}])
def test_reading_a_turn_never_fails(body: dict[str, Any]) -> None:
    assert read_turn(body).paragraphs == ()
