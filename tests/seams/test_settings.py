"""R-A7, R-K1: the keys that Hermes itself puts into the settings of a platform, on each line, and one of a later."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from pheby_hermes.config import PLATFORM_KEYS

from pheby.demo.stack import DemoStack
from tests.seams.scratch import installed

# 0.22 has a list of what it copies; 0.19 has it in its code alone.
ASK = """
import dataclasses, inspect, json, re
from gateway import config
keys = {field.name for field in dataclasses.fields(config.PlatformConfig)}
try:
    from gateway.config_loader import _SHARED_KEYS
    keys |= {key for key, *_ in _SHARED_KEYS}
except ImportError:
    keys |= set(re.findall(r'bridged\\["(\\w+)"\\]', inspect.getsource(config)))
print(json.dumps(sorted(keys)))
"""


def test_every_key_of_hermes_is_known(line: str, tmp_path: Path) -> None:
    """R-A7: else an owner who sets it is told that nobody knows it."""
    done = subprocess.run(
        [str(installed(line).python), "-c", ASK],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HERMES_HOME": str(tmp_path)},
        check=True,
    )
    keys = set(json.loads(done.stdout.splitlines()[-1]))
    assert len(keys) > 20
    assert keys - PLATFORM_KEYS == set()


async def test_a_key_of_a_later_hermes_does_not_stop_the_start(line: str) -> None:
    """R-A7, R-K1: beside `extra` 0.22 moves it there; it is named in the log."""
    pheby = {"send_read_receipts": True, "of_a_later_hermes": 1, "extra": {"of_another": 2}}
    async with DemoStack(line, extra_config={"platforms": {"pheby": pheby}}, progress=lambda _: None) as stack:
        log = stack.gateway.log.read_text()
    assert "platforms.pheby.extra.of_another is unknown" in log
    assert ("platforms.pheby.extra.of_a_later_hermes is unknown" in log) == (line == "0.22")
    assert "send_read_receipts" not in log
