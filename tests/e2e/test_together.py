"""Several questions of one conversation at once: each answer decides its own command and no other (R-E2, D1).

Hermes by itself asks one at a time; a plugin for tests calls its guard from several threads.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from plain_client import Frame, PlainClient

pytestmark = pytest.mark.asyncio(loop_scope="session")


@contextlib.contextmanager
def guard_plugin(home: Path) -> Any:
    """The plugin in the home, enabled; what was there before is there again afterwards."""
    folder, file = home / "plugins" / "guard", home / "config.yaml"
    before = file.read_text()
    config = yaml.safe_load(before)
    config["plugins"]["enabled"] = [*config["plugins"]["enabled"], "guard"]
    shutil.copytree(Path(__file__).parent / "guard_plugin", folder, ignore=shutil.ignore_patterns("__pycache__"))
    file.write_text(yaml.safe_dump(config))
    try:
        yield
    finally:
        shutil.rmtree(folder)
        file.write_text(before)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def guarded(stack: Any) -> AsyncIterator[Any]:
    """The stack with the plugin."""
    if stack.hermes_version == "simulated" or stack.hermes_defaults:
        yield stack
        return
    with guard_plugin(stack.home):
        await stack.restart()
        yield stack
    await stack.restart()


async def asked_together(client: PlainClient, conversation_id: str, name: str, commands: list[str]) -> list[Frame]:
    """The approvals of commands that are asked for at once, in the order of the commands."""
    call = json.dumps({"commands": commands})
    await client.say(conversation_id, f"call run_together {call}", f"m-{name}")
    found: dict[str, Frame] = {}
    while len(found) < len(commands):
        approval = (await client.until("approval.requested", conversation_id=conversation_id))["approval"]
        found[approval["command"]] = approval
    return [found[command] for command in commands]


def newest(client: PlainClient, conversation_id: str, approval: Frame) -> Frame:
    """An approval as the client knows it now."""
    known = [event["approval"] for event in client.of(conversation_id) if event["type"].startswith("approval.")]
    return [found for found in known if found["approval_id"] == approval["approval_id"]][-1]


@pytest.mark.parametrize("answered_first", [0, 1])
@pytest.mark.parametrize("granted", [0, 1])
async def test_each_answer_decides_its_own(guarded, client_of, name, tmp_path, answered_first, granted):
    if guarded.hermes_version == "simulated" or guarded.hermes_defaults:
        return  # settings of the display change nothing; simulated scripts ask one at a time
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    client = client_of
    conversation_id = await client.create(name)
    approvals = await asked_together(client, conversation_id, name, [f"rm -rf {folder}" for folder in folders])
    order = [answered_first, 1 - answered_first]
    for which in order:
        choice = "once" if which == granted else "deny"
        approval = newest(client, conversation_id, approvals[which])
        answer = await client.request("approval.respond", approval_id=approval["approval_id"], choice=choice)
        if answer["type"] == "error":
            # Oldest first: this one has to wait for the other.
            assert guarded.hermes_version.startswith("0.19")
            assert (answer["code"], approval["answerable"]) == ("not_answerable", False)
            order.append(which)
            continue
        assert answer["approval"]["command"] == f"rm -rf {folders[which]}"
        assert answer["approval"]["decision"] == choice
    run_id = approvals[0]["run_id"]
    assert (await client.run_end(run_id))["status"] == "completed"
    assert [folder.exists() for folder in folders] == [which != granted for which in range(2)]
    over = [event["approval"] for event in client.of(conversation_id) if event["type"] == "approval.resolved"]
    decided = {approval["command"]: approval["decision"] for approval in over}
    assert decided == {
        f"rm -rf {folder}": "once" if which == granted else "deny" for which, folder in enumerate(folders)
    }
    if guarded.hermes_version.startswith("0.22"):
        assert [approval["answerable"] for approval in approvals] == [True, True]


@pytest_asyncio.fixture(loop_scope="session")
async def client_of(guarded: Any) -> AsyncIterator[PlainClient]:
    """A client that is in step with the stack that has the plugin."""
    async with PlainClient(guarded.url, guarded.secret) as plain:
        await plain.hello()
        yield plain
