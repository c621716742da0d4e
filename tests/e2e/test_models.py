"""Models and reasoning effort: what the next request to the provider names (R-H1, R-H2)."""

from __future__ import annotations

import hashlib
import json

import pytest
from plain_client import Frame, PlainClient, settle

from pheby.demo.dialogue import text_of
from pheby.demo.model import ModelRequest

pytestmark = pytest.mark.asyncio(loop_scope="session")


def requests(stack, text: str) -> list[ModelRequest]:
    """The requests to the model for the turn of this text."""
    return [
        entry
        for entry in stack.model.requests
        if not entry.auxiliary and any(text in paragraph for paragraph in paragraphs(entry))
    ]


def paragraphs(entry: ModelRequest) -> list[str]:
    """What the last message of the owner's side is made of, as the model reads it."""
    (content,) = [message["content"] for message in entry.messages if message["role"] == "user"][-1:]
    return text_of(content).split("\n\n")


def asked(stack, text: str) -> tuple[str, str | None]:
    """Model and effort of the last request for the turn of this text."""
    if stack.hermes_version == "simulated":
        names = {message.message_id for message in stack.hermes.handed_over if message.text == text}
        found = [(entry.model, entry.effort) for entry in stack.hermes.asked if entry.message_id in names]
    else:
        found = [(entry.model, entry.reasoning_effort) for entry in requests(stack, text)]
    assert found, f"nobody asked the model: {text}"
    return found[-1]


def settings(stack) -> str | None:
    """The digest of Hermes's settings; a simulated one has none."""
    if stack.hermes_version == "simulated":
        return None
    return hashlib.sha256((stack.home / "config.yaml").read_bytes()).hexdigest()


async def ask(client: PlainClient, type_: str, conversation_id: str, **fields: str) -> Frame:
    answer = await client.request(type_, conversation_id=conversation_id, **fields)
    assert answer["type"] == f"{type_}.result", answer
    return answer


async def choose(client: PlainClient, conversation_id: str, effort: str = "high") -> tuple[Frame, Frame]:
    """Choose the other model and an effort; the model that was in use and the one that is."""
    offer = await ask(client, "model.list", conversation_id)
    old = offer["current"]
    (provider,) = [entry for entry in offer["providers"] if entry["provider"] == old["provider"]]
    (other,) = {model["model"] for model in provider["models"]} - {old["model"]}
    new = {"provider": old["provider"], "model": other}
    assert (await ask(client, "model.select", conversation_id, **new))["current"] == new
    assert (await ask(client, "reasoning.select", conversation_id, effort=effort))["current"] == effort
    return old, new


async def test_what_there_is(stack, client, name):
    """R-H1, R-H2, I6: both models of the provider, every effort, and nothing else that Hermes knows."""
    conversation_id = await client.create(name)
    offer = await ask(client, "model.list", conversation_id)
    assert [provider["provider"] for provider in offer["providers"]] == [offer["current"]["provider"]]
    (provider,) = offer["providers"]
    assert [model["model"] for model in provider["models"]] == ["scripted-1", "scripted-2"]
    assert offer["current"]["model"] == "scripted-1"
    efforts = await ask(client, "reasoning.list", conversation_id)
    assert efforts["efforts"] == ["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"]
    assert (efforts["current"], efforts["known"]) == ("medium", False)
    assert await client.history(conversation_id) == []
    assert "http" not in json.dumps([offer, efforts])


async def test_a_choice_holds_for_this_conversation_alone(stack, client, name):
    """R-H1, R-H2, I1, I3: in every request from the next one on; another conversation and the settings stay."""
    before = settings(stack)
    conversation_id, other = await client.create(name), await client.create(f"o-{name}")
    await client.exchange(other, f"say other 1 {name}", f"o1-{name}")
    await client.exchange(conversation_id, f"say first {name}", f"m0-{name}")
    old, new = await choose(client, conversation_id)
    changed = [frame for frame in client.of(conversation_id) if frame["type"] in ("model.changed", "reasoning.changed")]
    assert [frame["current"] for frame in changed] == [new, "high"]
    for number in range(1, 4):
        text = f"say with it {number} {name}"
        assert (await client.exchange(conversation_id, text, f"m{number}-{name}"))["status"] == "completed"
        assert asked(stack, text) == (new["model"], "high")
    assert (await ask(client, "model.list", conversation_id))["current"] == new
    assert (await ask(client, "reasoning.list", conversation_id))["current"] == "high"
    untouched = asked(stack, f"say other 1 {name}")
    await client.exchange(other, f"say other 2 {name}", f"o2-{name}")
    assert asked(stack, f"say other 2 {name}") == untouched
    assert untouched[0] == old["model"]
    assert (await ask(client, "model.list", other))["current"] == old
    found = (await client.request("conversation.get", conversation_id=conversation_id))["conversation"]
    assert (found["model"], found["reasoning_effort"]) == (new, "high")
    texts = [(message["role"], message["text"]) for message in await client.history(conversation_id)]
    assert [text for role, text in texts if role == "user"] == [
        f"say first {name}",
        *(f"say with it {number} {name}" for number in range(1, 4)),
    ]
    assert {role for role, _ in texts} == {"user", "assistant"}
    assert settings(stack) == before


async def test_a_choice_before_the_first_message(stack, client, name):
    """R-H1: holds for the first one."""
    conversation_id = await client.create(name)
    _, new = await choose(client, conversation_id, "low")
    assert (await client.exchange(conversation_id, f"say hello {name}", f"m-{name}"))["status"] == "completed"
    assert asked(stack, f"say hello {name}") == (new["model"], "low")


async def test_the_default_effort_can_be_chosen(stack, client, name):
    """R-H2: 0.19 sends none by itself, and says that medium is in use."""
    conversation_id = await client.create(name)
    await ask(client, "reasoning.select", conversation_id, effort="medium")
    await client.exchange(conversation_id, f"say hello {name}", f"m-{name}")
    assert asked(stack, f"say hello {name}")[1] == "medium"


@pytest.mark.parametrize("kill", [False, True])
async def test_a_choice_outlives_the_gateway(stack, name, kill):
    """I1, R-H2: Hermes forgets an effort with its process; the next request carries both all the same."""
    before = settings(stack)
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        conversation_id, other = await client.create(name), await client.create(f"o-{name}")
        await client.exchange(conversation_id, f"say before {name}", f"m1-{name}")
        _, new = await choose(client, conversation_id)
        _, listed = await choose(client, other, "low")
        await client.exchange(conversation_id, f"say chosen {name}", f"m2-{name}")
        assert asked(stack, f"say chosen {name}") == (new["model"], "high")
    await stack.restart(kill=kill)
    async with PlainClient(stack.url, stack.secret) as client:
        await client.hello()
        for number in range(2):
            text = f"say after {number} {name}"
            assert (await client.exchange(conversation_id, text, f"a{number}-{name}"))["status"] == "completed"
            assert asked(stack, text) == (new["model"], "high")
            # What Hermes has kept by itself is not told to the model as news.
            if stack.hermes_version != "simulated":
                assert "scripted-" not in " ".join(paragraphs(requests(stack, text)[-1]))
        assert (await ask(client, "model.list", other))["current"] == listed
        assert (await ask(client, "reasoning.list", other))["current"] == "low"
        told = [frame["type"] for frame in client.of(conversation_id)]
        assert "model.changed" not in told
        assert "reasoning.changed" not in told
    assert settings(stack) == before


async def test_a_choice_in_the_middle_of_a_run(stack, client, name):
    """I5: refused, the run goes on as it was; at its end it is free, and the next request names it."""
    conversation_id = await client.create(name)
    offer = await ask(client, "model.list", conversation_id)
    provider = offer["current"]["provider"]
    text = f"slow 15 {name}"
    receipt = await client.say(conversation_id, text, f"m-{name}")
    await client.run_started(receipt["run_id"])
    for type_, fields in (
        ("model.select", {"provider": provider, "model": "scripted-2"}),
        ("reasoning.select", {"effort": "high"}),
    ):
        refused = await client.request(type_, conversation_id=conversation_id, **fields)
        assert refused["code"] == "busy", refused
    assert (await ask(client, "model.list", conversation_id))["current"] == offer["current"]
    assert (await client.run_end(receipt["run_id"]))["status"] == "completed"
    assert asked(stack, text)[0] == "scripted-1"
    await ask(client, "model.select", conversation_id, provider=provider, model="scripted-2")
    await client.exchange(conversation_id, f"say next {name}", f"n-{name}")
    assert asked(stack, f"say next {name}")[0] == "scripted-2"
    notices = [message for message in await client.history(conversation_id) if message["role"] == "notice"]
    assert notices == []


async def test_what_is_not_offered(stack, client, name):
    """R-H1, I4: refused with what there is, and nothing has changed."""
    before = settings(stack)
    conversation_id = await client.create(name)
    current = (await ask(client, "model.list", conversation_id))["current"]
    for wrong in (
        {**current, "model": "no-such-model"},
        {**current, "provider": "no-such-provider"},
        {"provider": "moa", "model": "default"},
    ):
        refused = await client.request("model.select", conversation_id=conversation_id, **wrong)
        assert refused["code"] == "invalid_model", refused
    for effort in ("bogus", "show", "hide", "reset"):
        refused = await client.request("reasoning.select", conversation_id=conversation_id, effort=effort)
        assert refused["code"] == "invalid_effort", refused
        assert "high" in refused["details"]["efforts"]
    assert (await client.exchange(conversation_id, f"say next {name}", f"m-{name}"))["status"] == "completed"
    assert asked(stack, f"say next {name}")[0] == current["model"]
    assert settings(stack) == before


async def test_a_send_beside_a_choice(stack, client, name):
    """I5: whichever is first, each message runs once and is no command's business."""
    conversation_id = await client.create(name)
    await client.exchange(conversation_id, f"say first {name}", f"m0-{name}")
    provider = (await ask(client, "model.list", conversation_id))["current"]["provider"]
    for number in range(4):
        model = ("scripted-2", "scripted-1")[number % 2]
        fields = {"conversation_id": conversation_id, "provider": provider, "model": model}
        await client.send_text(json.dumps({"type": "model.select", "id": f"x{number}", **fields}))
        text = f"say beside {number} {name}"
        run = await client.exchange(conversation_id, text, f"b{number}-{name}")
        assert run["status"] == "completed"
        assert asked(stack, text)[0] == model
    texts = [message["text"] for message in await client.history(conversation_id) if message["role"] == "user"]
    assert texts == [f"say first {name}", *(f"say beside {number} {name}" for number in range(4))]


async def test_no_key_leaves(stack, client, name):
    """I6: the provider's key is in Hermes's settings, and in no frame, stored file or log of Pheby's."""
    if stack.hermes_version == "simulated":
        pytest.skip("a simulated Hermes has no key")
    conversation_id = await client.create(name)
    await choose(client, conversation_id)
    await client.exchange(conversation_id, f"say hello {name}", f"m-{name}")
    await ask(client, "model.list", conversation_id)
    await settle(client)
    key = stack.model_key
    assert key in (stack.home / "config.yaml").read_text()
    assert key not in json.dumps(client.frames)
    assert stack.model_url not in json.dumps(client.frames)
    for folder in ("pheby", "logs"):
        for file in (stack.home / folder).rglob("*"):
            if file.is_file():
                assert key.encode() not in file.read_bytes(), file.name
