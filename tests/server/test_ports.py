"""What stands at the seams has their shape. The annotations are checked by mypy, the rest here."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from pheby_server import conversations, handlers, runs, session, transcript
from pheby_server.auth import Authenticator
from pheby_server.config import ServerConfig
from pheby_server.ports import Clock, GatewayEvents, HermesPort, IdSource, Timer
from pheby_server.server import Server
from pheby_server.simulated import SimulatedHermes
from pheby_server.system import RandomIds, SystemClock
from pheby_server.testing import CountedIds, FakeClock, ManualHermes, running_server


def lacks(instance: Any, protocol: type) -> list[str]:
    """Members of a protocol that the instance has not, or has with other parameters."""
    wanted = [name for name in vars(protocol) if not name.startswith("_")]
    wanted += [name for name in vars(protocol).get("__annotations__", {}) if not name.startswith("_")]
    missing = [name for name in wanted if not hasattr(instance, name)]
    for name in set(wanted) - set(missing):
        declared = vars(protocol).get(name)
        if inspect.isfunction(declared):
            own = getattr(instance, name)
            names = list(inspect.signature(declared).parameters)[1:]
            if list(inspect.signature(own).parameters)[: len(names)] != names:
                missing.append(name)
            if inspect.iscoroutinefunction(declared) != inspect.iscoroutinefunction(own):
                missing.append(name)
    return missing


def test_the_check_itself_finds_what_lacks() -> None:
    assert lacks(object(), Timer) == ["cancel"]
    assert "now_ms" in lacks(CountedIds(), Clock)


def test_clocks() -> None:
    real: Clock = SystemClock()
    fake: Clock = FakeClock()
    assert lacks(real, Clock) == lacks(fake, Clock) == []
    timer: Timer = fake.call_later(1.0, lambda: None)
    assert lacks(timer, Timer) == []


def test_sources_of_ids() -> None:
    real: IdSource = RandomIds()
    counted: IdSource = CountedIds()
    assert lacks(real, IdSource) == lacks(counted, IdSource) == []


@pytest.mark.parametrize("make", [lambda: SimulatedHermes(FakeClock()), ManualHermes])
async def test_ports_to_hermes(make: Any) -> None:
    port: HermesPort = make()
    assert lacks(port, HermesPort) == []
    assert port.features.version


async def test_the_servers_side(tmp_path: Path) -> None:
    async with running_server(str(tmp_path), ManualHermes()) as server:
        events: GatewayEvents = server.events
        assert lacks(events, GatewayEvents) == []
        host: session.Host = server
        assert lacks(host, session.Host) == []
        desks: handlers.Desks = server
        assert lacks(desks, handlers.Desks) == []
        for_runs: runs.Conversations = server.conversations
        assert lacks(for_runs, runs.Conversations) == []
        messages: runs.Messages = server.transcript
        assert lacks(messages, runs.Messages) == []
        for_transcript: transcript.Conversations = server.conversations
        assert lacks(for_transcript, transcript.Conversations) == []


def test_a_server_can_be_made_outside_of_a_loop(tmp_path: Path) -> None:
    server = Server(ServerConfig(storage=str(tmp_path / "later")), ManualHermes(), Authenticator(()))
    assert not (tmp_path / "later").exists()
    assert server.session_count == 0


def test_desks_do_not_import_each_other() -> None:
    names = {"conversations", "runs", "transcript"}
    for module in (conversations, runs, transcript):
        own = module.__name__.rpartition(".")[2]
        for other in names - {own}:
            assert f"from .{other} import" not in inspect.getsource(module)
