"""`make release`: wheel, sdist and archives into dist/, of what is committed, the same bytes in each run.

The time of everything is that of the last commit, or SOURCE_DATE_EPOCH; modes, owners and order are fixed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

from pheby_conformance.bundle import write_archive

from pheby.install.package import SHIM

ROOT = Path(__file__).parents[1]
KOTLIN = {
    "pheby/protocol": ROOT / "schemas" / "v1" / "kotlin",
    "pheby/client": ROOT / "conformance" / "kotlin" / "src" / "main" / "kotlin" / "pheby" / "client",
}


def main() -> int:
    """Make everything twice, as two people would, and compare; the exit code."""
    with tempfile.TemporaryDirectory(prefix="pheby-release-") as folder:
        first = make(Path(folder) / "first", umask=0o022, zone="UTC")
        second = make(Path(folder) / "second", umask=0o077, zone="Asia/Tokyo")
        differing = [path.name for path in first if path.read_bytes() != (second[0].parent / path.name).read_bytes()]
        if differing:
            print(f"not the same in two runs: {', '.join(differing)}", file=sys.stderr)
            return 1
        packages = [str(path) for path in first if path.suffix == ".whl" or path.name.endswith(".tar.gz")]
        run([sys.executable, "-m", "twine", "--no-color", "check", "--strict", *packages])
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(first[0].parent, ROOT / "dist")
    sums = checksums(sorted((ROOT / "dist").iterdir()))
    (ROOT / "dist" / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums, end="")
    return 0


def make(folder: Path, *, umask: int, zone: str) -> list[Path]:
    """Everything that is released, in a new folder; sorted by name."""
    when, version = source_time(), project_version()
    source, made = folder / "source", folder / "dist"
    export(source, when)
    made.mkdir()
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(when), "TZ": zone}
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(source)]
    run(build, env=environment, umask=umask)
    for sdist in made.glob("*.tar.gz"):
        sdist.write_bytes(settled(sdist.read_bytes(), when))
    for wheel in made.glob("*.whl"):
        archive(wheel, content_of(wheel), when)
    archive(made / f"pheby-plugin-{version}.zip", plugin_files(), when)
    archive(made / f"pheby-kotlin-{version}-sources.jar", kotlin_files(), when)
    write_archive(made / f"pheby-conformance-{version}.zip")
    return sorted(made.iterdir())


def run(command: list[str], env: dict[str, str] | None = None, umask: int = -1) -> None:
    """Run it quietly; if it fails, what it printed is shown and this run is over."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, umask=umask)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def source_time() -> int:
    """Seconds since 1970 UTC."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or _git("log", "-1", "--format=%ct"))


def project_version() -> str:
    """The one that pyproject.toml names; a test compares it with all others."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def export(folder: Path, when: int) -> None:
    """The files that git knows, as they are now; nothing that lies about in a checkout gets into a package."""
    for name in _git("ls-files", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())
            copy.chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)
            os.utime(copy, (when, when))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def settled(packed: bytes, when: int) -> bytes:
    """A .tar.gz without what differs between machines and runs: times, owners, modes, order."""
    result = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packed)) as given,
        gzip.GzipFile(fileobj=result, mode="wb", filename="", mtime=when) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member in sorted(given.getmembers(), key=lambda member: member.name):
            fixed = tarfile.TarInfo(member.name)
            fixed.type, fixed.size, fixed.mtime = member.type, member.size, when
            fixed.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            tar.addfile(fixed, given.extractfile(member) if member.isfile() else None)
    return result.getvalue()


def archive(file: Path, content: Iterable[tuple[str, bytes]], when: int) -> None:
    """A zip with names, times, modes and order of its own. Zip knows no time before 1980."""
    date = time.gmtime(max(when, 315_532_800))[:6]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        # A wheel's own description is to stand at its end.
        for name, data in sorted(content, key=lambda item: (".dist-info/" in item[0], item[0])):
            info = zipfile.ZipInfo(name, date)
            info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, 0o100644 << 16
            packed.writestr(info, data)


def content_of(file: Path) -> list[tuple[str, bytes]]:
    """What is in a zip."""
    with zipfile.ZipFile(file) as packed:
        return [(info.filename, packed.read(info)) for info in packed.infolist() if not info.is_dir()]


def plugin_files() -> list[tuple[str, bytes]]:
    """What `pheby install` puts into `plugins/` of a Hermes home; the code is the wheel's."""
    manifest = (ROOT / "hermes_plugin" / "plugin.yaml").read_bytes()
    return [("pheby/plugin.yaml", manifest), ("pheby/__init__.py", SHIM.encode()), _licence("pheby/LICENSE")]


def kotlin_files() -> list[tuple[str, bytes]]:
    """The protocol's types and the client, to be compiled with an app."""
    sources = [(f"{name}/{path.name}", path.read_bytes()) for name, at in KOTLIN.items() for path in at.glob("*.kt")]
    readme = ROOT / "conformance" / "kotlin" / "README.md"
    return [*sources, ("META-INF/README.md", readme.read_bytes()), _licence("META-INF/LICENSE")]


def _licence(name: str) -> tuple[str, bytes]:
    return name, (ROOT / "LICENSE").read_bytes()


def checksums(files: list[Path]) -> str:
    """As `sha256sum -c` reads them."""
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


if __name__ == "__main__":
    sys.exit(main())
