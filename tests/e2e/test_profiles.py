"""Two profiles of one Hermes, in one gateway and in one each: nobody sees anything of the other (R-A8)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import attrs
import pytest
import pytest_asyncio
import yaml
from plain_client import Frame, PlainClient, settle

from pheby.demo.gateway import Gateway
from pheby.demo.home import DemoHome
from pheby.demo.lines import HermesEnvironment
from pheby.demo.model import ScriptedModel
from pheby.demo.stack import free_port
from pheby.install.env_file import values

pytestmark = pytest.mark.asyncio(loop_scope="session")


def config(model_url: str, work: Path, arrangement: str) -> dict[str, object]:
    """A home's settings before Pheby; the answers stream, and the counters can be read."""
    return {
        "model": {
            "provider": "custom",
            "default": "scripted-1",
            "base_url": model_url,
            "api_key": "any",
            "context_length": 200_000,
        },
        # Of a profile's own provider everything is offered under its name.
        "providers": {"custom": {"name": work.parent.name, "base_url": model_url, "api_key": "any"}},
        "platforms": {"pheby": {"extra": {"metrics": True}}},
        "terminal": {"backend": "local", "cwd": str(work)},
        "approvals": {"mode": "manual", "timeout": 300},
        "compression": {"enabled": False},
        "memory": {"memory_enabled": False, "user_profile_enabled": False},
        "onboarding": {"profile_build": "off"},
        "skills": {"creation_nudge_interval": 0},
        "security": {"allow_lazy_installs": False, "tirith_enabled": False},
        "gateway": {"multiplex_profiles": True} if arrangement == "together" else {"standalone": True},
    }


@attrs.define
class Profile:
    """One of the two, with a model of its own."""

    name: str
    home: Path
    port: int
    model: ScriptedModel
    secret: str = attrs.field(default="", repr=False)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/ws"

    def client(self, device: str = "phone") -> PlainClient:
        return PlainClient(self.url, self.secret, f"{device}-{self.name}")

    async def get(self, path: str, secret: str) -> tuple[int, str]:
        """Status and body."""
        url = f"http://127.0.0.1:{self.port}/{path}"
        async with (
            aiohttp.ClientSession() as http,
            http.get(url, headers={"Authorization": f"Bearer {secret}"}) as answer,
        ):
            return answer.status, await answer.text()


@attrs.define
class Two:
    """Both profiles, running."""

    environment: HermesEnvironment
    root: Path
    profiles: tuple[Profile, Profile]
    gateways: list[Gateway]

    async def pheby(self, *words: str, code: int = 0) -> str:
        """A command of ours, for a profile by its name."""
        return await self._run(Path(sys.executable).with_name("pheby"), *words, code=code)

    async def hermes(self, *words: str) -> str:
        return await self._run(self.environment.hermes, *words)

    async def _run(self, program: Path, *words: str, code: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(
            str(program),
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.root,
            env={"HOME": str(self.root), "HERMES_HOME": str(self.root), "PATH": "/usr/bin:/bin", "NO_PROXY": "*"},
        )
        printed, complained = await process.communicate()
        assert process.returncode == code, (printed + complained).decode()
        return printed.decode()

    async def start(self) -> None:
        for gateway in self.gateways:
            await gateway.start()
            await gateway.wait_ready(90)
        for profile in self.profiles:
            await listening(profile)

    async def stop(self) -> None:
        for gateway in self.gateways:
            await gateway.stop()


async def listening(profile: Profile) -> None:
    """In one gateway the second profile comes a moment after the first."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                if (await profile.get("healthz", ""))[0] == 200:
                    return
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["together", "apart"])
async def two(stack, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Two]:
    """Made and set up as an owner does it: `hermes profile create`, `pheby install --profile`."""
    if stack.hermes_version == "simulated" or stack.hermes_defaults:
        pytest.skip("profiles are Hermes's, and the same however it shows things")
    root = tmp_path_factory.mktemp("profiles")
    async with ScriptedModel() as first, ScriptedModel() as second:
        profiles = (
            Profile("default", root, free_port(), first),
            Profile("work", root / "profiles" / "work", free_port(), second),
        )
        two = Two(stack.environment, root, profiles, [])
        await two.hermes("profile", "create", "work", "--no-alias", "--no-skills")
        for profile in profiles:
            (profile.home / "work").mkdir(exist_ok=True)
            said = config(profile.model.url, profile.home / "work", request.param)
            (profile.home / "config.yaml").write_text(yaml.safe_dump(said))
            where = ("--profile", profile.name, "--hermes-python", str(stack.environment.python))
            await two.pheby("install", *where, "--port", str(profile.port), "--yes", "--streaming", "--no-pip")
            profile.secret = values((profile.home / ".env").read_text())["PHEBY_SECRET"]
        for profile in profiles if request.param == "apart" else profiles[:1]:
            home = DemoHome(profile.home, profile.secret, profile.port)
            two.gateways.append(Gateway(stack.environment, home, extra_env={"HOME": str(root)}))
        try:
            await two.start()
            yield two
        finally:
            for gateway in two.gateways:
                await gateway.close()


async def conversations(client: PlainClient) -> list[str]:
    answer = await client.request("conversation.list", limit=100)
    return [found["conversation_id"] for found in answer["conversations"]]


async def refused(client: PlainClient, type_: str, **fields: str) -> str:
    """The code of the error that a request is answered with."""
    answer = await client.request(type_, **fields)
    assert answer["type"] == "error", answer
    return str(answer["code"])


def everything(*clients: PlainClient) -> str:
    return json.dumps([client.frames for client in clients])


async def test_what_is_said_stays_in_its_profile(two: Two, name: str) -> None:
    """R-A8, R-A5: live, in the list, in the history, for the model; and by the other's secret nothing can be had."""
    mine, other = two.profiles
    async with mine.client() as one, other.client() as two_:
        await one.hello()
        await two_.hello()
        first = await one.create(f"a-{name}")
        second = await two_.create(f"b-{name}")
        await asyncio.gather(
            one.exchange(first, f"say apples {name}", f"m-{name}"),
            two_.exchange(second, f"say pears {name}", f"m-{name}"),
        )
        for client, own, foreign in ((one, first, second), (two_, second, first)):
            await settle(client, 0.3)
            texts = [message["text"] for message in await client.history(own)]
            assert len(texts) == 2
            assert foreign not in await conversations(client)
            assert await refused(client, "conversation.history", conversation_id=foreign) == "not_found"
            assert await refused(client, "message.receipt", client_message_id=f"n-{name}") == "not_found"
        assert "pears" not in everything(one)
        assert "apples" not in everything(two_)
    for profile, foreign in ((mine, "pears"), (other, "apples")):
        assert foreign not in json.dumps([asked.messages for asked in profile.model.requests])
    for profile, stranger in ((mine, other), (other, mine)):
        with pytest.raises(aiohttp.WSServerHandshakeError) as failure:
            await PlainClient(profile.url, stranger.secret).__aenter__()
        assert failure.value.status == 401


async def test_files_stay_in_their_profile(two: Two, name: str) -> None:
    """R-A8, R-G2: neither the other's port nor the other's secret gives one out."""
    mine, other = two.profiles
    file = mine.home / "work" / f"{name}.txt"
    file.write_text(f"for me alone {name}")
    async with mine.client() as client:
        await client.hello()
        conversation_id = await client.create(name)
        await client.exchange(conversation_id, f"media {file}", f"m-{name}")
        await settle(client, 0.5)
        (created,) = [e["attachment"] for e in client.of(conversation_id) if e["type"] == "attachment.created"]
    assert await mine.get(created["path"], mine.secret) == (200, f"for me alone {name}")
    assert (await mine.get(created["path"], other.secret))[0] == 401
    assert (await other.get(created["path"], other.secret))[0] == 404


async def test_a_question_is_asked_and_answered_in_its_profile_alone(two: Two, name: str, tmp_path: Path) -> None:
    """R-A8, R-E1: both ask the same at the same time; each answer reaches its own."""
    async with two.profiles[0].client() as one, two.profiles[1].client() as two_:
        asked: list[Frame] = []
        runs = []
        for client, folder in ((one, "a"), (two_, "b")):
            await client.hello()
            conversation_id = await client.create(f"{folder}-{name}")
            (tmp_path / folder).mkdir()
            runs.append((await client.say(conversation_id, f"danger {tmp_path / folder}", f"m-{name}"))["run_id"])
            asked.append((await client.until("approval.requested"))["approval"])
        for client, foreign in ((one, asked[1]), (two_, asked[0])):
            for approval_id in (foreign["approval_id"], "appr_17960500054000008"):
                # As one that never was.
                code = await refused(client, "approval.respond", approval_id=approval_id, choice="once")
                assert code == "expired"
        async with two.profiles[0].client("tablet") as late:
            await late.hello()
            assert [a["approval_id"] for a in late.snapshot("approvals")] == [asked[0]["approval_id"]]
        await one.request("approval.respond", approval_id=asked[0]["approval_id"], choice="deny")
        await two_.request("approval.respond", approval_id=asked[1]["approval_id"], choice="once")
        for client, run_id in ((one, runs[0]), (two_, runs[1])):
            await client.run_end(run_id)
    assert ((tmp_path / "a").exists(), (tmp_path / "b").exists()) == (True, False)


async def test_models_are_those_of_the_profile(two: Two, name: str) -> None:
    """R-A8, R-H1: each offers its own provider's, and what is chosen in one is not chosen in the other."""
    used = []
    for profile, model in zip(two.profiles, ("scripted-2", "scripted-1"), strict=True):
        async with profile.client() as client:
            await client.hello()
            conversation_id = await client.create(f"{profile.name}-{name}")
            offer = await client.request("model.list", conversation_id=conversation_id)
            (provider,) = offer["providers"]
            assert provider["name"] == profile.home.name
            chosen = {"provider": provider["provider"], "model": model}
            await client.request("model.select", conversation_id=conversation_id, **chosen)
            await client.exchange(conversation_id, f"say which {name}", f"m-{name}")
        used.append([asked.model for asked in profile.model.requests if not asked.auxiliary][-1])
    assert used == ["scripted-2", "scripted-1"]


async def test_the_home_conversations_are_two(two: Two, name: str) -> None:
    """R-A8, R-I1: what is left for one profile, and what runs there meanwhile, is not seen in the other's.

    Were they of one id, 0.19 would have one session for both, words and all.
    """
    async with two.profiles[0].client() as one, two.profiles[1].client() as two_:
        homes = []
        for client, profile, words in ((one, "default", f"for me {name}"), (two_, "work", f"for work {name}")):
            await client.hello()
            await two.hermes("-p", profile, "send", "-t", "pheby", words)
            event = await client.until("message.created")
            assert event["message"]["text"] == words
            homes.append(event["conversation_id"])
        # The other's turn begins, streams and ends while this one's is under way.
        slow = (await one.say(homes[0], "slow 40", f"s-{name}"))["run_id"]
        await one.run_started(slow)
        await two_.exchange(homes[1], f"say pears {name}", f"p-{name}")
        assert (await one.run_end(slow))["status"] == "completed"
        for client, home, own, foreign in ((one, homes[0], "w40", "pears"), (two_, homes[1], "pears", "w40")):
            texts = [message["text"] for message in await client.history(home)]
            assert [text for text in texts if own in text] != []
            assert [text for text in texts if foreign in text] == []
        assert f"for work {name}" not in everything(one)
        assert f"for me {name}" not in everything(two_)
    for profile, foreign in zip(two.profiles, ("pears", "slow 40"), strict=True):
        assert foreign not in json.dumps([asked.messages for asked in profile.model.requests])


async def test_counters_and_lockouts_are_the_profiles_own(two: Two) -> None:
    """R-A8, R-M1, K4: whoever guesses at one is refused there, and counted there."""
    mine, other = two.profiles

    async def failures(profile: Profile) -> float:
        status, text = await profile.get("v1/metrics", profile.secret)
        assert status == 200
        (line,) = [line for line in text.splitlines() if line.startswith("pheby_authentication_failures_total ")]
        return float(line.split()[1])

    before = await failures(mine), await failures(other)
    assert (await mine.get("v1/metrics", other.secret))[0] == 401
    statuses = [(await mine.get("v1/metrics", "wrong" * 8))[0] for _ in range(60)]
    assert statuses[-1] == 429
    assert (await other.get("v1/metrics", "wrong" * 8))[0] == 401
    assert (await failures(mine) - before[0], await failures(other) - before[1]) == (61, 1)


async def test_each_profile_is_well_by_its_name(two: Two) -> None:
    """R-S1, R-A8: also the one that another profile's gateway serves; it is not purged while that runs."""
    served = json.loads((two.root / "gateway_state.json").read_text()).get("served_profiles") or []
    assert sorted(served) == (["default", "work"] if len(two.gateways) == 1 else [])
    for profile in two.profiles:
        said = json.loads(await two.pheby("doctor", "--profile", profile.name, "--json"))
        assert [finding for finding in said["findings"] if finding["severity"] != "ok"] == []
        status = json.loads(await two.pheby("status", "--profile", profile.name, "--json"))
        assert (status["listening"], status["platform_state"]) == (True, "connected")
        await two.pheby("uninstall", "--profile", profile.name, "--yes", "--purge", code=1)


async def test_what_hermes_keeps_is_told_apart_too(two: Two, name: str) -> None:
    """R-A8, R-B3: 0.19 has the rows of both in one database. With Pheby's own store lost, each gets its own back."""
    mine, other = two.profiles
    known = []
    for profile, fruit in ((mine, "apples"), (other, "pears")):
        async with profile.client() as client:
            await client.hello()
            conversation_id = await client.create(f"{profile.name}-{name}")
            await client.exchange(conversation_id, f"say {fruit} {name}", f"m-{name}")
            await settle(client, 0.5)
            known.append((conversation_id, [message["text"] for message in await client.history(conversation_id)]))
    await two.stop()
    for profile in two.profiles:
        shutil.rmtree(profile.home / "pheby")
    await two.start()
    for profile, own, foreign in ((mine, *known), (other, *reversed(known))):
        async with profile.client() as client:
            await client.hello()
            listed = await conversations(client)
            assert own[0] in listed
            assert foreign[0] not in listed
            assert [message["text"] for message in await client.history(own[0])] == own[1]
            assert await refused(client, "conversation.history", conversation_id=foreign[0]) == "not_found"
            answer = await client.request("conversation.delete", conversation_id=own[0])
            assert answer["type"] == "conversation.delete.result"
