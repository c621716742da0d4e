"""Model, home and gateway together, with a stand-in for Hermes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from pheby.demo import stack as stack_module
from pheby.demo.errors import ForeignHomeError, GatewayFailedError, ModelUnreachableError
from pheby.demo.lines import HermesEnvironment
from pheby.demo.stack import DemoStack

Alive = Callable[[int], bool]
Start = Callable[..., DemoStack]


@pytest.fixture
def stack_of(environment: HermesEnvironment, plugin_source: Path) -> Start:
    def make(**more: Any) -> DemoStack:
        wanted: dict[str, Any] = {
            "environment": environment,
            "plugin_source": plugin_source,
            "progress": lambda text: None,
        }
        return DemoStack(**{**wanted, **more})

    return make


async def test_a_stack_is_ready_and_leaves_nothing(stack_of: Start, alive: Alive) -> None:
    async with stack_of() as stack:
        port = stack.url.removeprefix("ws://127.0.0.1:").removesuffix("/v1/ws")
        assert port.isdigit()
        assert f"PHEBY_SECRET={stack.secret}\n" in (stack.home / ".env").read_text()
        assert stack.hermes_version == "0.19.0"
        assert stack.model is not None
        assert stack.model_url == stack.model.url
        config = yaml.safe_load((stack.home / "config.yaml").read_text())
        assert config["model"]["base_url"] == stack.model_url
        assert config["platforms"]["pheby"]["extra"]["port"] == int(port)
        home, pid, model_url = stack.home, stack.gateway_pid, stack.model_url
        assert alive(pid)
    assert not home.exists()
    assert not alive(pid)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{model_url}/models")


async def test_a_given_home_is_kept_and_used_again(stack_of: Start, tmp_path: Path) -> None:
    async with stack_of(home=tmp_path / "mine") as stack:
        secret, model_url = stack.secret, stack.model_url
    assert (tmp_path / "mine" / "config.yaml").exists()
    async with stack_of(home=tmp_path / "mine") as stack:
        assert stack.secret == secret
        config = yaml.safe_load((stack.home / "config.yaml").read_text())
        assert config["model"]["base_url"] == stack.model_url != model_url


@pytest.mark.parametrize("kill", [True, False])
async def test_a_restart_keeps_home_port_and_model(stack_of: Start, alive: Alive, kill: bool) -> None:
    async with stack_of() as stack:
        before = (stack.url, stack.secret, stack.home, stack.model_url)
        first = stack.gateway_pid
        await stack.restart(kill=kill)
        assert (stack.url, stack.secret, stack.home, stack.model_url) == before
        assert stack.gateway_pid != first
        assert not alive(first)
        assert await stack.stop_gateway() == 0
        await stack.start_gateway()
        assert stack.gateway.running


async def test_options_reach_the_home(stack_of: Start) -> None:
    chosen = stack_of(
        hermes_defaults=True, secret="given", model_name="scripted-2", extra_config={"a": 1}, extra_env={"B": "2"}
    )
    async with chosen as stack:
        config = yaml.safe_load((stack.home / "config.yaml").read_text())
        assert "display" not in config
        assert config["model"]["default"] == "scripted-2"
        assert config["a"] == 1
        assert stack.secret == "given"
        assert "B=2" in (stack.home / "seen-environment.txt").read_text().splitlines()


async def test_a_gateway_that_fails_takes_the_rest_with_it(
    stack_of: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(GatewayFailedError):
        async with stack_of(extra_env={"FAKE_MODE": "exit"}):
            pytest.fail("it cannot be ready")
    assert not list(tmp_path.glob("pheby-demo-*"))
    assert len(asyncio.all_tasks()) == 1


async def test_a_foreign_home_is_refused_before_anything_starts(stack_of: Start, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(ForeignHomeError):
        await stack_of(home=tmp_path / "mine").__aenter__()


async def test_nothing_can_be_read_from_a_stack_that_was_not_started(stack_of: Start) -> None:
    with pytest.raises(RuntimeError, match="not started"):
        _ = stack_of().url


async def test_the_environment_is_made_when_none_is_given(
    stack_of: Start, environment: HermesEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def made(line: object, progress: Callable[[str], None]) -> HermesEnvironment:
        progress(f"making {line}")
        return environment

    monkeypatch.setattr(stack_module, "ensure", made)
    async with stack_of(environment=None, progress=said.append):
        pass
    assert said[0].startswith("making Line(name='0.19'")


@pytest.fixture
async def other_model(request: pytest.FixtureRequest) -> Any:
    """A model server of the person's own; the parameter is the body of its model list."""
    seen: list[str | None] = []

    async def models(asked: web.Request) -> web.Response:
        seen.append(asked.headers.get("Authorization"))
        return web.Response(text=request.param)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", seen
    await runner.cleanup()


LISTED = json.dumps({"data": [{"id": "mine-7b"}, {"id": "second"}]})


@pytest.mark.parametrize("other_model", [LISTED], indirect=True)
async def test_a_real_model_server_is_asked_for_its_first_model(
    stack_of: Start, other_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, seen = other_model
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-person")
    async with stack_of(model_url=f"{url}/") as stack:
        config = yaml.safe_load((stack.home / "config.yaml").read_text())
        assert (stack.model, stack.model_url) == (None, url)
        assert config["model"]["base_url"] == url
        assert (config["model"]["default"], config["model"]["api_key"]) == ("mine-7b", "sk-of-the-person")
    assert seen == ["Bearer sk-of-the-person"]


@pytest.mark.parametrize("other_model", [LISTED], indirect=True)
async def test_a_named_model_is_not_asked_for(
    stack_of: Start, other_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, seen = other_model
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with stack_of(model_url=url, model_name="chosen") as stack:
        config = yaml.safe_load((stack.home / "config.yaml").read_text())
        assert (config["model"]["default"], config["model"]["api_key"]) == ("chosen", "none")
    assert seen == []


@pytest.mark.parametrize("other_model", ["", "[]", '{"data": []}', '{"data": [{"id": 5}]}', "<html>"], indirect=True)
async def test_a_server_that_lists_no_models_is_named(stack_of: Start, other_model: Any) -> None:
    with pytest.raises(ModelUnreachableError, match="--model"):
        await stack_of(model_url=other_model[0]).__aenter__()


async def test_a_server_that_is_not_there_is_named(stack_of: Start) -> None:
    for url in ("http://127.0.0.1:9/v1", "no url at all"):
        with pytest.raises(ModelUnreachableError, match="did not list its models"):
            await stack_of(model_url=url).__aenter__()
