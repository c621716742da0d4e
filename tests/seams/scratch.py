"""A scratch environment: a line's real one, in which symbols of Hermes have other names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pheby.demo.lines import LINES, HermesEnvironment, environment_folder, open_environment

HERE = Path(__file__).parent


def installed(line: str) -> HermesEnvironment:
    """The real environment of a line."""
    return open_environment(LINES[line], environment_folder(LINES[line]))


def scratch(line: str, folder: Path, *symbols: str) -> HermesEnvironment:
    """Make it; a few links and files."""
    real = installed(line)
    (packages,) = real.folder.glob("lib/python3*/site-packages")
    own = folder / packages.relative_to(real.folder)
    own.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(real.python.resolve())
    shutil.copy2(real.hermes, folder / "bin" / "hermes")
    shutil.copy2(real.folder / "pyvenv.cfg", folder / "pyvenv.cfg")
    for name in ("locales", "optional-mcps"):
        if (real.folder / name).exists():
            (folder / name).symlink_to(real.folder / name)
    shutil.copy2(HERE / "renaming.py", own / "pheby_renaming.py")
    (own / "packages.txt").write_text(str(packages.resolve()))
    (own / "symbols.txt").write_text("\n".join(symbols))
    (own / "hermes.json").write_text(json.dumps(sorted(modules_of(line, packages))))
    (own / "pheby_renaming.pth").write_text("import pheby_renaming; pheby_renaming.start()\n")
    return open_environment(LINES[line], folder)


def modules_of(line: str, packages: Path) -> set[str]:
    """What a line's distribution brings, by the names of its packages and modules."""
    (info,) = packages.glob(f"{LINES[line].distribution.replace('-', '_')}-*.dist-info")
    files = (row.split(",")[0] for row in (info / "RECORD").read_text().splitlines())
    return {file.partition("/")[0].removesuffix(".py") for file in files if file.endswith(".py") and ".." not in file}
