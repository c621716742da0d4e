"""What the checks that look at a whole run see of it."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from .phone import Frame, Record
from .scene import Lab


@attrs.define(eq=False)
class Sight:
    """Everything that was received. `count` grows with each thing that a check applied to: none is a failure."""

    lab: Lab
    records: list[Record]
    count: int = 0

    def frames(self, *types: str) -> Iterator[tuple[Record, Frame]]:
        """All frames, or those of these types, each with its connection."""
        for record in self.records:
            for frame in record.frames:
                if not types or frame.get("type") in types:
                    self.count += 1
                    yield record, frame

    def live(self, record: Record) -> list[Frame]:
        """What came behind the handshake."""
        for place, frame in enumerate(record.frames):
            if frame.get("type") == "sync.completed":
                return record.frames[place + 1 :]
        return []
