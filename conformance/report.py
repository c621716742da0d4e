"""Results, and how they are told: for people, as JSON, as JUnit XML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import attrs


class Verdict(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_OFFERED = "not offered"
    """The server says that it cannot do what the check is about, or the runner was not given what it needs."""
    EXPECTED_FAILURE = "expected failure"
    STALE = "stale expectation"
    """Expected to fail, and it passed or was not run: the expectation must go."""


BAD = (Verdict.FAILED, Verdict.STALE)


@attrs.frozen
class Result:
    """One check's end."""

    id: str
    level: str
    title: str
    rules: tuple[str, ...]
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0


@attrs.frozen
class Report:
    """All results of a run."""

    kind: str
    subject: str
    results: tuple[Result, ...]

    @property
    def passed(self) -> int:
        return sum(result.verdict in (Verdict.PASSED, Verdict.EXPECTED_FAILURE) for result in self.results)

    @property
    def failed(self) -> int:
        return sum(result.verdict in BAD for result in self.results)

    @property
    def exit_code(self) -> int:
        """1 with any failure, and when nothing was checked at all."""
        return 1 if self.failed or not self.passed else 0

    def closing_line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed"


def read_expected(file: Path) -> frozenset[str]:
    """Ids of checks that are expected to fail: one a line, `#` begins a remark."""
    lines = (line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines())
    return frozenset(line for line in lines if line)


def with_expected(results: Iterable[Result], expected: frozenset[str]) -> tuple[Result, ...]:
    """The results in the light of what was expected to fail; an expectation that did not come true fails itself."""
    found = []
    left = set(expected)
    for result in results:
        if result.id in expected:
            left.discard(result.id)
            failed = result.verdict is Verdict.FAILED
            detail = result.detail if failed else "it was expected to fail, and did not: remove it from the file"
            verdict = Verdict.EXPECTED_FAILURE if failed else Verdict.STALE
            result = attrs.evolve(result, verdict=verdict, detail=detail)
        found.append(result)
    unknown = [
        Result(
            name, "MUST", name, (), Verdict.STALE, "it was expected to fail, and was not run: remove it from the file"
        )
        for name in sorted(left)
    ]
    return (*found, *unknown)


_MANY: Final = 3
"""More failures for want of the same prerequisite are told in one line."""


def lines(report: Report, *, verbose: bool) -> Iterable[str]:
    """For people: what is wrong, what was not checked, and how many."""
    missing = Counter(result.detail for result in report.results if result.verdict in BAD and not verbose)
    for detail, count in missing.items():
        if count > _MANY and detail.startswith("prerequisite"):
            yield f"{count} FAILED: {detail}"
    for result in report.results:
        alike = missing[result.detail] > _MANY and result.detail.startswith("prerequisite")
        if verbose or (result.verdict in BAD and not alike):
            yield f"{result.verdict.upper():<16} {result.id} [{result.level} {', '.join(result.rules)}] {result.title}"
            yield from (f"    {line}" for line in result.detail.splitlines())
    left_out = [result for result in report.results if result.verdict is Verdict.NOT_OFFERED]
    if left_out and not verbose:
        reasons: dict[str, list[str]] = {}
        for result in left_out:
            reasons.setdefault(result.detail, []).append(result.id)
        for reason, names in reasons.items():
            yield f"{len(names)} not checked: {reason}"
    if not report.results:
        yield "nothing was checked: no check is of that name and level (`pheby conformance list`)"
    yield report.closing_line()


def as_json(report: Report) -> str:
    """The report as one JSON object."""
    content = {
        "kind": report.kind,
        "subject": report.subject,
        "passed": report.passed,
        "failed": report.failed,
        "checks": [attrs.asdict(result) for result in report.results],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def as_junit(report: Report) -> str:
    """The report as JUnit XML."""
    results: Sequence[Result] = report.results
    suite = ElementTree.Element(
        "testsuite",
        name=f"pheby-conformance-{report.kind}",
        tests=str(len(results)),
        failures=str(report.failed),
        skipped=str(sum(result.verdict is Verdict.NOT_OFFERED for result in results)),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        area, _, name = result.id.partition("/")
        case = ElementTree.SubElement(suite, "testcase", classname=area, name=name, time=f"{result.seconds:.3f}")
        if result.verdict in BAD:
            _child(case, "failure", message=_xml(f"{result.title}: {result.detail}"))
        elif result.verdict is Verdict.NOT_OFFERED:
            _child(case, "skipped", message=_xml(result.detail))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _child(parent: ElementTree.Element, tag: str, **attributes: Any) -> None:
    ElementTree.SubElement(parent, tag, **attributes)


def _xml(text: str) -> str:
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
