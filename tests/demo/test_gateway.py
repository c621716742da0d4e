"""The gateway as a child process, with a stand-in for Hermes."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pheby.demo import gateway as gateway_module
from pheby.demo.errors import GatewayFailedError
from pheby.demo.gateway import Gateway
from pheby.demo.home import DemoHome
from pheby.demo.lines import LINES, HermesEnvironment

Alive = Callable[[int], bool]


def child_of(home: DemoHome) -> int:
    return int((home.path / "child.pid").read_text())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_it_becomes_ready_and_stops_politely(
    environment: HermesEnvironment, home: DemoHome, alive: Alive
) -> None:
    async with Gateway(environment, home) as gateway:
        await gateway.wait_ready(10)
        assert alive(gateway.pid)
        assert gateway.running
        child = child_of(home)
        assert alive(child)
        assert await gateway.stop() == 0
        assert not gateway.running
    until(lambda: not alive(child))
    assert "fake hermes ends" in gateway.log.read_text()
    assert stat.S_IMODE(gateway.log.stat().st_mode) == 0o600


async def test_leaving_the_block_stops_it(environment: HermesEnvironment, home: DemoHome, alive: Alive) -> None:
    async with Gateway(environment, home) as gateway:
        await gateway.wait_ready(10)
        pid, child = gateway.pid, child_of(home)
    assert not alive(pid)
    until(lambda: not alive(child))


async def test_it_can_be_killed_and_started_again(environment: HermesEnvironment, home: DemoHome, alive: Alive) -> None:
    async with Gateway(environment, home) as gateway:
        await gateway.wait_ready(10)
        first, child = gateway.pid, child_of(home)
        assert await gateway.kill() == -signal.SIGKILL
        until(lambda: not alive(child))
        await gateway.start()
        await gateway.wait_ready(10)
        assert gateway.pid != first
    assert gateway.log.read_text().count("fake hermes starts") == 2


async def test_an_early_end_shows_the_log_without_the_secret(
    environment: HermesEnvironment, home: DemoHome, alive: Alive
) -> None:
    async with Gateway(environment, home, extra_env={"FAKE_MODE": "exit"}) as gateway:
        began = time.monotonic()
        with pytest.raises(GatewayFailedError, match="exit code 3") as caught:
            await gateway.wait_ready(30)
        assert time.monotonic() - began < 10
    assert "cannot start; PHEBY_SECRET=(secret)" in str(caught.value)
    assert home.secret not in str(caught.value)
    assert str(gateway.log) in str(caught.value)
    until(lambda: not alive(child_of(home)))


async def test_the_log_shown_is_that_of_the_last_start(environment: HermesEnvironment, home: DemoHome) -> None:
    gateway = Gateway(environment, home)
    gateway.log.write_text("an older story\n")
    async with Gateway(environment, home, extra_env={"FAKE_MODE": "exit"}) as gateway:
        with pytest.raises(GatewayFailedError) as caught:
            await gateway.wait_ready(30)
    assert "an older story" not in str(caught.value)
    assert gateway.log.read_text().startswith("an older story\n")


async def test_not_ready_in_time(environment: HermesEnvironment, home: DemoHome) -> None:
    async with Gateway(environment, home, extra_env={"FAKE_MODE": "never"}) as gateway:
        with pytest.raises(GatewayFailedError, match=r"not ready after 0\.5 seconds"):
            await gateway.wait_ready(0.5)


@pytest.mark.parametrize(("manners", "code"), [("stubborn", -signal.SIGTERM), ("immortal", -signal.SIGKILL)])
async def test_who_does_not_listen_is_asked_less_politely(
    environment: HermesEnvironment, home: DemoHome, monkeypatch: pytest.MonkeyPatch, manners: str, code: int
) -> None:
    monkeypatch.setattr(gateway_module, "_PATIENCE", {signal.SIGINT: 0.3, signal.SIGTERM: 0.3, signal.SIGKILL: 5.0})
    async with Gateway(environment, home, extra_env={"FAKE_MODE": manners}) as gateway:
        await gateway.wait_ready(10)
        assert await gateway.stop() == code


async def test_a_cancelled_block_leaves_nothing(environment: HermesEnvironment, home: DemoHome, alive: Alive) -> None:
    async def block() -> None:
        async with Gateway(environment, home) as gateway:
            pids.append(gateway.pid)
            await gateway.wait_ready(10)
            pids.append(child_of(home))
            await asyncio.sleep(60)

    pids: list[int] = []
    task = asyncio.create_task(block())
    while len(pids) < 2:
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    until(lambda: not any(map(alive, pids)))


async def test_a_stop_that_is_cancelled_kills(environment: HermesEnvironment, home: DemoHome, alive: Alive) -> None:
    async with Gateway(environment, home, extra_env={"FAKE_MODE": "immortal"}) as gateway:
        await gateway.wait_ready(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gateway.stop(), 0.3)
        assert not gateway.running


async def test_the_persons_own_settings_do_not_reach_it(
    environment: HermesEnvironment, home: DemoHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", "/somewhere/else")
    monkeypatch.setenv("HERMES_PROFILE", "work")
    monkeypatch.setenv("PHEBY_SECRET", "the person's own")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/somewhere/else")
    monkeypatch.setenv("KEPT", "yes")
    async with Gateway(environment, home, extra_env={"HERMES_EXTRA": "given"}) as gateway:
        await gateway.wait_ready(10)
    seen = dict(line.split("=", 1) for line in (home.path / "seen-environment.txt").read_text().splitlines())
    assert seen["HOME"] == seen["HERMES_HOME"] == str(home.path)
    assert (seen["HERMES_EXTRA"], seen["KEPT"], seen["PYTHONUNBUFFERED"]) == ("given", "yes", "1")
    assert "127.0.0.1" in seen["NO_PROXY"]
    assert not {"HERMES_PROFILE", "PHEBY_SECRET", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"} & set(seen)


async def test_the_older_lines_texts_are_lent_to_a_packaging_without_any(
    environment: HermesEnvironment, home: DemoHome, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gateway_module, "environment_folder", lambda line: tmp_path / line.name)
    newer = Gateway(replace(environment, line=LINES["0.22"]), home)
    assert "HERMES_BUNDLED_LOCALES" not in newer._child_environment()
    (tmp_path / "0.19" / "locales").mkdir(parents=True)
    assert newer._child_environment()["HERMES_BUNDLED_LOCALES"] == str(tmp_path / "0.19" / "locales")
    assert "HERMES_BUNDLED_LOCALES" not in Gateway(environment, home)._child_environment()


async def test_a_port_that_is_taken_is_named(environment: HermesEnvironment, home: DemoHome) -> None:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(nothing, "127.0.0.1", home.port):
        with pytest.raises(GatewayFailedError, match=f"Port {home.port} is in use"):
            await Gateway(environment, home).start()


async def test_it_is_used_in_the_right_order(environment: HermesEnvironment, home: DemoHome) -> None:
    gateway = Gateway(environment, home)
    await gateway.close()
    for early in (gateway.stop, gateway.kill, gateway.wait_ready):
        with pytest.raises(RuntimeError, match="not started"):
            await early()
    async with gateway:
        with pytest.raises(RuntimeError, match="running already"):
            await gateway.start()
        await gateway.kill()
    assert gateway.log.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_parent(
    environment: HermesEnvironment, home: DemoHome, alive: Alive, tmp_path: Path, sign: signal.Signals
) -> None:
    code = textwrap.dedent(f"""
        import asyncio
        from pathlib import Path
        from pheby.demo.gateway import Gateway
        from pheby.demo.home import DemoHome
        from pheby.demo.lines import LINES, HermesEnvironment

        async def main():
            environment = HermesEnvironment(LINES["0.19"], Path({str(environment.folder)!r}),
                Path({str(environment.python)!r}), Path({str(environment.hermes)!r}), "0.19.0")
            async with Gateway(environment, DemoHome(Path({str(home.path)!r}), "none", {home.port})) as gateway:
                await gateway.wait_ready()
                print(gateway.pid, flush=True)
                await asyncio.sleep(60)

        asyncio.run(main())
    """)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(sign)
    until(lambda: not alive(pid))
    # The stand-in's own child has no such tie.
    os.kill(child_of(home), signal.SIGKILL)
