"""What a server counts about itself. One object, which whoever does something counts in; it knows nothing by itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of Prometheus's text format."""


@attrs.define
class Metrics:
    """Counts since the server was made."""

    connections: int = 0
    authentication_failures: int = 0
    resumes: Counter[str] = attrs.field(factory=Counter)
    """By kind: replay, snapshot."""
    closes: Counter[int] = attrs.field(factory=Counter)
    """By close code."""
    frames: Counter[str] = attrs.field(factory=Counter)
    """By direction: in, out."""
    bytes: Counter[str] = attrs.field(factory=Counter)
    """By direction, without what the socket adds."""
    outbox_bytes: int = 0
    """The most that has waited for one client."""
    events: int = 0
    runs: Counter[str] = attrs.field(factory=Counter)
    """By outcome."""
    attachments: Counter[str] = attrs.field(factory=Counter)
    """By what became of them: created, refused, expired."""
    attachment_bytes: int = 0
    """Bytes of files that were sent."""
    spool_entries: int = 0

    def frame(self, direction: str, text: str) -> int:
        """Count a frame; its bytes."""
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        self.frames[direction] += 1
        self.bytes[direction] += size
        return size


@attrs.frozen
class Measure:
    """One measured thing: a number, or numbers by a label's values."""

    name: str
    kind: str
    help: str
    values: int | Mapping[str, int]
    label: str = ""


def measures(metrics: Metrics, *, open_connections: int, outbox_bytes: int) -> Sequence[Measure]:
    """Everything that is measured. What comes from now, not from before, is given."""
    peak = max(metrics.outbox_bytes, outbox_bytes)
    return (
        Measure("pheby_connections", "gauge", "Connections that are open.", open_connections),
        _total("connections", "Connections that were opened.", metrics.connections),
        _total("authentication_failures", "Requests without the right secret.", metrics.authentication_failures),
        _total("resumes", "Handshakes by what the client got.", metrics.resumes, "kind", ("replay", "snapshot")),
        _total("closes", "Connections that ended, by close code.", metrics.closes, "code"),
        _total("frames", "Frames of clients.", metrics.frames, "direction", ("in", "out")),
        _total("frame_bytes", "Bytes of these frames.", metrics.bytes, "direction", ("in", "out")),
        Measure("pheby_outbox_peak_bytes", "gauge", "The most that has waited for one client.", peak),
        _total("events", "Events written to the log.", metrics.events),
        _total("runs", "Runs that ended.", metrics.runs, "outcome", ("completed", "failed", "cancelled")),
        _total("attachments", "Files of the agent.", metrics.attachments, "event", ("created", "refused", "expired")),
        _total("attachment_bytes_served", "Bytes of files that were sent.", metrics.attachment_bytes),
        _total("spool_entries", "What other processes left and was taken in.", metrics.spool_entries),
    )


def as_text(measured: Sequence[Measure]) -> str:
    """Prometheus's text format."""
    lines = []
    for measure in measured:
        lines += [f"# HELP {measure.name} {measure.help}", f"# TYPE {measure.name} {measure.kind}"]
        if isinstance(measure.values, int):
            lines.append(f"{measure.name} {measure.values}")
        else:
            lines += [f'{measure.name}{{{measure.label}="{key}"}} {n}' for key, n in measure.values.items()]
    return "\n".join(lines) + "\n"


def as_json(measured: Sequence[Measure]) -> str:
    """The same as one object: a number, or an object of numbers, by name."""
    return json.dumps({measure.name: measure.values for measure in measured})


def _total(
    name: str,
    description: str,
    counted: int | Mapping[str, int] | Mapping[int, int],
    label: str = "",
    always: Sequence[str] = (),
) -> Measure:
    if not isinstance(counted, int):
        # One that has not happened yet is zero, not absent.
        counted = dict.fromkeys(always, 0) | {str(key): number for key, number in sorted(counted.items())}
    return Measure(f"pheby_{name}_total", "counter", description, counted, label)
