"""What the client's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pheby import client as client_module
from tests.client.house import NO_JITTER, FastTime, House


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """An open one; its Hermes says back what it is told."""
    house = House(str(tmp_path / "store"))
    await house.open()
    yield house
    await house.close()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FastTime:
    """No waiting in the client, and no chance."""
    time = FastTime()
    monkeypatch.setattr(client_module, "asyncio", time)
    monkeypatch.setattr(client_module, "random", NO_JITTER)
    return time
