"""R-A7: a real gateway of a Hermes with renamed names: what each was for is missing, and people go on talking."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from pheby_hermes import seams

from pheby.demo.gateway import Gateway
from pheby.demo.home import prepare_home
from pheby.demo.stack import DemoStack, free_port
from pheby.install import doctor
from tests.seams.scratch import scratch

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from plain_client import PlainClient

EACH = {
    "tools": "hermes_cli.plugins:VALID_HOOKS[pre_tool_call]",
    "subagents": "hermes_cli.plugins:VALID_HOOKS[subagent_start]",
    "approvals": {
        "0.19": "tools.approval:_gateway_queues",
        "0.22": "tools.approval:list_gateway_approvals",
    },
    "clarifications": "tools.clarify_gateway:resolve_gateway_clarify",
    "attachments": "gateway.platforms.base:validate_media_delivery_path",
    "models": "hermes_cli.model_switch:resolve_persist_behavior",
    "reasoning": "gateway.run:GatewayRunner._try_send_choice_picker",
    "streaming": "gateway.config:GatewayConfig.streaming",
    "rename": "hermes_state:SessionDB.set_session_title",
    "delete": "hermes_state:SessionDB.list_sessions_rich",
}


# Together, since each start of a gateway takes seconds.
GROUPS = (
    ("tools", "approvals", "models"),
    ("subagents", "clarifications", "reasoning", "rename"),
    ("attachments", "streaming", "delete"),
)


def test_each_capability_has_one() -> None:
    """R-A7."""
    assert set(EACH) == {name for part in seams.PARTS for name in part.capabilities}


@pytest.mark.parametrize("group", GROUPS, ids="-".join)
async def test_a_gateway_goes_on_without_it(line: str, group: tuple[str, ...], tmp_path: Path) -> None:
    """R-A7: `welcome` says what is missing, and nothing else; `doctor` names each; an exchange works."""
    symbols = [each if isinstance(each, str) else each[line] for each in map(EACH.__getitem__, group)]
    environment = scratch(line, tmp_path / "environment", *symbols)
    lost = {name for symbol in symbols for part in seams.named(line)[symbol] for name in part.capabilities}
    assert lost >= set(group)
    async with (
        DemoStack(line, environment=environment, progress=lambda _: None) as stack,
        PlainClient(stack.url, stack.secret) as client,
    ):
        welcome = await client.hello()
        assert {name for name, offered in welcome["capabilities"].items() if offered is False} == lost
        found = await asyncio.to_thread(doctor.examine, stack.home, environment.python)
        named = [finding.text.split()[4].rstrip(".") for finding in found if finding.code == "seam-optional"]
        assert sorted(named) == sorted(symbols)
        conversation_id = await client.create("1")
        run = await client.exchange(conversation_id, "say hello", "1")
        assert run["status"] == "completed"
        texts = [message["text"] for message in await client.history(conversation_id)]
        assert texts[0] == "say hello"
        assert "hello" in texts[1]


async def test_a_gateway_that_pheby_cannot_do_without_says_so(line: str, tmp_path: Path) -> None:
    """R-A7: Hermes's own log has the name; Pheby does not start half."""
    symbol = "gateway.platforms.base:BasePlatformAdapter._mark_connected"
    environment = scratch(line, tmp_path / "environment", symbol)
    home = prepare_home(tmp_path / "home", model_url="http://127.0.0.1:9", api_key="none", port=free_port())
    async with Gateway(environment, home) as gateway:
        while "Pheby cannot start" not in gateway.log.read_text():
            assert gateway.running
            await asyncio.sleep(0.05)
    assert f"Pheby cannot start: this Hermes has no {symbol}" in gateway.log.read_text()
