"""The good server, once for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent))

from good_server import GoodServer, good_server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[GoodServer]:
    """The server that is right."""
    async with good_server() as found:
        yield found
