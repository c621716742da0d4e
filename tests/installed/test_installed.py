"""From a Hermes without Pheby to an exchange, and back, as an owner does it: a wheel, a few commands, real gateways."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from pheby import Client
from pheby.demo.gateway import Gateway
from pheby.demo.home import DemoHome
from pheby.demo.lines import HermesEnvironment, open_environment
from pheby_protocol.messages.message import MessageDelta
from pheby_protocol.messages.run import RunEnded
from tests.install.conftest import tree
from tests.installed.conftest import Owner

ROOT = Path(__file__).parents[2]
OURS = re.compile(r"plugins/pheby(/|$)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def secret_of(home: Path) -> str:
    found = re.search(r"^PHEBY_SECRET=(.*)$", (home / ".env").read_text(), re.M)
    assert found is not None
    return found[1]


async def exchange(port: int, secret: str) -> str:
    """Say something; the answer as it was streamed."""
    async with asyncio.timeout(60), Client(f"ws://127.0.0.1:{port}/v1/ws", secret) as client:
        conversation = await client.create_conversation()
        receipt = await client.send(conversation.conversation_id, "say hello")
        streamed = 0
        async for happening in client.happenings():
            streamed += isinstance(happening, MessageDelta)
            if isinstance(happening, RunEnded) and happening.run.run_id == receipt.run_id:
                break
        page = await client.history(conversation.conversation_id)
    assert streamed > 0
    return page.messages[-1].text


def findings(owner: Owner) -> list[str]:
    """What doctor finds, without what is well."""
    said = json.loads(owner.pheby("doctor", "--json"))
    return [finding["text"] for finding in said["findings"] if finding["severity"] != "ok"]


async def in_thread(owner: Owner, *words: str, code: int = 0) -> str:
    """A command while the gateway, whose end is watched here, runs on."""
    return await asyncio.to_thread(owner.pheby, *words, code=code)


async def test_from_nothing_to_an_exchange_and_back(owner: Owner, wheel: Path) -> None:
    """R-S1, R-A1, R-A7, R-P1: two commands before the gateway's own, all well, and afterwards not a byte is left."""
    home, port = owner.home, free_port()
    before = tree(home)
    owner.types("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[cli]")
    owner.pheby("install", "--yes", "--streaming", "--port", str(port))
    assert findings(owner) == []
    # Before anything has run, there and back is nothing at all.
    installed = tree(home)
    owner.pheby("uninstall", "--yes")
    assert tree(home) == before
    owner.pheby("install", "--yes", "--streaming", "--port", str(port))
    assert tree(home).keys() == installed.keys()

    async with Gateway(owner.environment, DemoHome(home, secret_of(home), port)) as gateway:
        await gateway.wait_ready(90)
        assert await exchange(port, secret_of(home)) == "Hello! You asked me to say: hello"
        status = json.loads(await in_thread(owner, "status", "--json"))
        assert (status["listening"], status["gateway_running"], status["platform_state"]) == (True, True, "connected")
        assert await asyncio.to_thread(findings, owner) == []
        await in_thread(owner, "uninstall", "--yes", "--purge", code=1)
    assert json.loads(owner.pheby("status", "--json"))["gateway_running"] is False

    owner.pheby("uninstall", "--yes", "--purge")
    after = tree(home)
    assert {name: after.get(name) for name in before} == before
    assert [name for name in after if OURS.match(name) or name.startswith("pheby")] == []


def quick_start() -> list[str]:
    """The commands of the page for owners: the package, the installation, the gateway, pairing."""
    page = (ROOT / "docs" / "howto" / "install.md").read_text(encoding="utf-8")
    block = re.search(r"## Quick start\n\n```sh\n(.*?)```", page, re.S)
    assert block is not None
    return [line.partition("#")[0].strip() for line in block[1].splitlines()]


async def kotlin_says(port: int, secret: str, text: str) -> str:
    """The answer that the Kotlin client prints."""
    url = f"ws://127.0.0.1:{port}/v1/ws"
    words = ("say", "--url", url, "--secret-env", "OF_THE_APP", text)
    process = await asyncio.create_subprocess_exec(
        str(ROOT / "conformance" / "kotlin" / "run.sh"),
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"OF_THE_APP": secret},
    )
    printed, complained = await process.communicate()
    assert process.returncode == 0, complained.decode()
    return printed.decode().strip()


async def test_a_new_owner_needs_three_commands_of_ours(newcomer: Owner, wheel: Path) -> None:
    """R-S1, R-P1, R-A1: as the page says them, in a clean HOME; then the app's own client chats.

    Afterwards only what is ours is gone, and the conversations only when that is asked for.
    """
    home, port = newcomer.home, free_port()
    before = tree(home)
    package, install, restart, _ = (
        line.replace("HERMES_ENV", str(newcomer.environment.folder)).replace("'.[cli]'", f"'{wheel}[cli]'")
        for line in quick_start()
    )
    newcomer.types_line(f"{package} --quiet")
    assert "Done." in newcomer.types_line(f"{install} --port {port}", yes=2)
    assert "All is well." in newcomer.types_line("pheby doctor --home ~/.hermes")
    assert restart == "hermes gateway restart"
    assert {path.name for path in home.parent.iterdir()} <= {".hermes", "work", ".cache"}
    async with Gateway(newcomer.environment, DemoHome(home, secret_of(home), port)) as gateway:
        await gateway.wait_ready(90)
        secret = secret_of(home)
        if shutil.which("mvn") is not None or "CI" in os.environ:
            assert await kotlin_says(port, secret, "say hello from afar") == (
                "Hello from afar! You asked me to say: hello from afar"
            )
        assert await exchange(port, secret) == "Hello! You asked me to say: hello"

    kept = tree(home / "pheby")
    assert any(name.endswith("pheby.db") for name in kept)
    newcomer.pheby("uninstall", "--yes")
    after = tree(home)
    assert {name: after.get(name) for name in before} == before
    assert tree(home / "pheby") == kept
    assert [name for name in after if OURS.match(name)] == []
    newcomer.pheby("install", "--yes", "--port", str(port))
    newcomer.pheby("uninstall", "--yes", "--purge")
    assert not (home / "pheby").exists()
    assert {name: tree(home).get(name) for name in before} == before


async def test_by_the_package_alone(owner: Owner, wheel: Path) -> None:
    """R-S1, R-A1: without a plugin folder; the package is put into Hermes's environment by the command itself."""
    home, port = owner.home, free_port()
    before = tree(home)
    pheby = Owner(_here(owner), home)
    python = ("--hermes-python", str(owner.environment.python))
    pheby.pheby("install", "--yes", "--streaming", "--entry-point", "--port", str(port), "--wheel", str(wheel), *python)
    async with Gateway(owner.environment, DemoHome(home, secret_of(home), port)) as gateway:
        await gateway.wait_ready(90)
        assert await exchange(port, secret_of(home)) == "Hello! You asked me to say: hello"
        # The Python of Hermes is in the record by now.
        assert await asyncio.to_thread(findings, pheby) == []
    pheby.pheby("uninstall", "--yes", "--purge", "--with-package")
    after = tree(home)
    assert {name: after.get(name) for name in before} == before
    assert [name for name in after if OURS.match(name) or name.startswith("pheby")] == []
    assert not (owner.environment.folder / "bin" / "pheby").exists()


async def test_hermes_itself_fetches_the_plugin_from_a_repository(newcomer: Owner, wheel: Path, tmp_path: Path) -> None:
    """R-A1, R-S1: `hermes plugins install`, from a repository on this machine; no objection of Hermes's own scan.

    0.22 fetches a Python of its own before it puts a plugin in its place: without a network the test ends there.
    """
    home, port = newcomer.home, free_port()
    repository = tmp_path / "repository"
    shutil.copytree(ROOT / "hermes_plugin", repository / "hermes_plugin", ignore=shutil.ignore_patterns("__pycache__"))
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(repository), *words], check=True)
    fetched = newcomer.tries("hermes", "plugins", "install", f"file://{repository}#hermes_plugin", "--no-enable")
    said = " ".join((fetched.stdout + fetched.stderr).split())
    if fetched.returncode:
        assert "python: install failed: download failed" in said, said
        assert "Security scan" not in said
        return
    before = tree(home / "plugins")
    newcomer.types("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[cli]")
    newcomer.pheby("install", "--yes", "--entry-point", "--port", str(port))
    assert findings(newcomer) == []
    async with Gateway(newcomer.environment, DemoHome(home, secret_of(home), port)) as gateway:
        await gateway.wait_ready(90)
        assert await exchange(port, secret_of(home)) == "Hello! You asked me to say: hello"
    newcomer.pheby("uninstall", "--yes", "--purge")
    # What Hermes has fetched is Hermes's to remove.
    assert tree(home / "plugins") == before


def _here(owner: Owner) -> HermesEnvironment:
    """The environment that the tests run in: an owner's pipx, so to say."""
    return open_environment(owner.environment.line, Path(sys.prefix))
