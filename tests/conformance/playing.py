"""The suite for servers, played on a server with everything that the good one offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from good_server import GoodServer
from pheby_conformance.report import Report, Verdict
from pheby_conformance.server import Options, check_server


async def played(url: str, server: GoodServer, files: Path, *, patience: float = 20, **options: Any) -> Report:
    """The report on the server at this address, which is the good one or stands before it."""
    return await check_server(
        Options(
            url=url,
            secret=server.secret,
            read_only_secret=server.read_only_secret,
            scripted=True,
            files=files,
            patience=patience,
            **options,
        )
    )


def failed(report: Report) -> dict[str, str]:
    """What was wrong, by check."""
    return {result.id: result.detail for result in report.results if result.verdict is Verdict.FAILED}
