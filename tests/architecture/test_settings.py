"""The page of settings says what the code says (R-K1, R-P1)."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
from pheby_hermes.config import KEYS

from pheby_server.config import OWNER_LIMITS, ServerConfig, bounds

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "configuration.md").read_text(encoding="utf-8")


def test_every_key_is_there() -> None:
    first = PAGE.split("| limit |")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", first, re.M)) == KEYS


def test_every_limit_is_there_with_its_bounds() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.M)
    fields = attrs.fields_dict(ServerConfig)
    told = {name: (int(low), int(high), int(default)) for name, low, high, default in rows}
    assert told == {name: (*bounds(name), fields[name].default) for name in OWNER_LIMITS}
