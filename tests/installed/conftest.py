"""An owner's machine: a Hermes of each line, a home written by hand, and the wheel of Pheby."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import attrs
import pytest
import pytest_asyncio

from pheby.demo.lines import LINES, HermesEnvironment, environment_folder, open_environment
from pheby.demo.model import ScriptedModel

ROOT = Path(__file__).parents[2]
NO_SOURCES = (".*", "__pycache__", "build", "*.egg-info", "node_modules", "target")

CONFIG = """\
# My Hermes.  Written by hand; do not tidy up!
model:
    provider: custom        # the machine in the cellar
    default: "scripted-1"
    base_url: {model_url}
    api_key: 'sk-mine'      # not a real one
    context_length: 200000

# --- what is on -------------------------------------------
plugins:
    # the list may grow
    enabled: []
display:
    skin: default   # no colours, please

    # per chat
    platforms:
        telegram: {{tool_progress: "all"}}   # I like to see it
terminal: {{backend: local, cwd: {work}}}
approvals:
    mode: manual
compression: {{enabled: false}}
memory: {{memory_enabled: false, user_profile_enabled: false}}
onboarding: {{profile_build: "off"}}
skills: {{creation_nudge_interval: 0}}
security: {{allow_lazy_installs: false, tirith_enabled: false}}
# the end, without a newline"""

ENVIRONMENT = "# keys\nOPENAI_API_KEY='sk-mine'   # quoted\nexport EDITOR=vi"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pheby as it is given to owners."""
    folder = tmp_path_factory.mktemp("wheel")
    copy, out = folder / "source", folder / "out"
    # Else pip would leave what it builds in the checkout.
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NO_SOURCES))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(copy)], check=True, timeout=300)
    (made,) = out.glob("pheby-*.whl")
    return made


@pytest.fixture(params=sorted(LINES))
def hermes(request: pytest.FixtureRequest) -> Iterator[HermesEnvironment]:
    """A copy of a line's environment, without Pheby. Its files are links: pip and Python replace them."""
    line = LINES[request.param]
    source = environment_folder(line)
    if not source.exists():
        pytest.fail(f"There is no {source}: make hermes")
    folder = source.with_name(f"{line.name}-installed")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder, symlinks=True, copy_function=_link)
    environment = open_environment(line, folder)
    for script in (environment.hermes, folder / "bin" / "pip"):
        text = script.read_text().replace(str(source), str(folder))
        script.unlink()
        script.write_text(text)
        script.chmod(0o755)
    pip = [
        str(environment.python),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "uninstall",
        "--quiet",
        "--yes",
        "pheby",
    ]
    subprocess.run(pip, check=True, timeout=300)
    yield environment
    shutil.rmtree(folder)


def _link(source: str, target: str) -> str:
    os.link(source, target, follow_symlinks=False)
    return target


@pytest_asyncio.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as model:
        yield model


@pytest.fixture
def home(tmp_path: Path, model: ScriptedModel) -> Path:
    """What an owner has had for a while."""
    return home_of_an_owner(tmp_path, "hermes home", model)


def home_of_an_owner(folder: Path, name: str, model: ScriptedModel) -> Path:
    home, work = folder / name, folder / "work"
    home.mkdir(mode=0o700)
    work.mkdir()
    (home / "config.yaml").write_text(CONFIG.format(model_url=model.url, work=work))
    (home / ".env").write_text(ENVIRONMENT)
    (home / ".env").chmod(0o600)
    return home


@attrs.frozen
class Owner:
    """Who types commands."""

    environment: HermesEnvironment
    home: Path

    def types(self, *words: str, code: int = 0) -> str:
        """One command of this Hermes's environment; what it prints."""
        done = self.tries(*words)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def tries(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The same, whatever comes of it."""
        program = str(self.environment.folder / "bin" / words[0])
        return subprocess.run(
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=self.home.parent,
            env=self._variables(),
        )

    def types_line(self, line: str, yes: int = 0) -> str:
        """A line of a shell, at a terminal, by somebody who says yes to that many questions; what is then seen."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            ["bash", "-c", line],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            cwd=self.home.parent,
            env=self._variables(),
        ) as process:
            os.close(theirs)
            os.write(ours, b"y\n" * yes)
            seen = b""
            # At its end a terminal has no end of file, but an error.
            with contextlib.suppress(OSError):
                while piece := os.read(ours, 4096):
                    seen += piece
            os.close(ours)
        said = seen.decode(errors="replace")
        assert process.returncode == 0, said
        return said

    def _variables(self) -> dict[str, str]:
        own = {"HOME": str(self.home.parent), "PATH": f"{self.environment.folder / 'bin'}:/usr/bin:/bin"}
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG", "LC_"))}
        return kept | own

    def pheby(self, *words: str, code: int = 0) -> str:
        """One command of Pheby's for the home."""
        return self.types("pheby", *words, "--home", str(self.home), code=code)


@pytest.fixture
def owner(hermes: HermesEnvironment, home: Path) -> Owner:
    return Owner(hermes, home)


@pytest.fixture
def newcomer(hermes: HermesEnvironment, tmp_path: Path, model: ScriptedModel) -> Owner:
    """One whose Hermes is where everybody's is, and who has nothing else."""
    return Owner(hermes, home_of_an_owner(tmp_path, ".hermes", model))
