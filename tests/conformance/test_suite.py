"""The suite itself: its rules, its reports, its data and its command line."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pheby_conformance import bundle
from pheby_conformance.check import CHECKS
from pheby_conformance.client import stored_scenarios
from pheby_conformance.codec import alike, check_codec, vectors, verdict
from pheby_conformance.process import process_peer
from pheby_conformance.report import Report, Result, Verdict, as_json, as_junit, lines, read_expected, with_expected
from pheby_conformance.rules import NOT_CHECKED, read_pages, requirements, rules
from pheby_conformance.scenarios import scenarios

from pheby.cli import main
from pheby_protocol.export.files import generated_files

ROOT = Path(__file__).parents[2]
CODEC = f"{sys.executable} {ROOT / 'conformance' / 'peers' / 'python_codec.py'}"


# Rules


def test_the_stored_rules_are_those_of_the_pages() -> None:
    """R-J4."""
    found = {rule.id: rule for rule in read_pages(ROOT)}
    assert found == rules()
    lines = [line for page in (ROOT / "docs/protocol").glob("*.md") for line in page.read_text().splitlines()]
    assert len(found) == sum(line.startswith("- **P-") for line in lines)


@pytest.mark.parametrize("side", ["server", "client"])
def test_every_rule_is_held_or_it_is_said_why_not(side: str) -> None:
    """R-J4: and nothing that is held is said not to be, nor held against whoever it does not bind."""
    held = {name for check in CHECKS.values() for name in check.rules}
    if side == "client":
        held = {name for scenario in scenarios().values() for name in scenario["rules"]}
    binding = {rule.id for rule in rules().values() if rule.side in (side, "both")}
    assert held <= binding
    assert binding - held == set(NOT_CHECKED[side])


def test_the_stored_rules_name_what_holds_them() -> None:
    assert {row["id"] for row in requirements()} == rules().keys()
    for row in requirements():
        assert row["checks"] or row["not_checked"], row["id"]
        for side, names in row["checks"].items():
            known = CHECKS if side == "server" else scenarios()
            assert set(names) <= set(known)


def test_there_is_enough() -> None:
    """R-J4."""
    assert len(CHECKS) > 300
    assert len(stored_scenarios()) == len(scenarios()) > 55


# Reports

RESULTS = (
    Result("a/good", "MUST", "Good", ("P-SYNC-1",), Verdict.PASSED, "", 0.5),
    Result("a/bad", "MUST", "Bad", ("P-SYNC-1",), Verdict.FAILED, "it is\x00 <bad>", 0.5),
    Result("b/other", "MUST", "Other", ("P-SYNC-1",), Verdict.NOT_OFFERED, "the server does not offer it", 0.5),
)


def test_a_report_tells_how_many() -> None:
    report = Report("server", "x", RESULTS)
    assert report.closing_line() == "1 passed, 1 failed"
    assert report.exit_code == 1
    assert json.loads(as_json(report))["checks"][1]["verdict"] == "failed"
    suite = ElementTree.fromstring(as_junit(report))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert suite[1][0].get("message") == "Bad: it is\ufffd <bad>"


def test_what_fails_for_want_of_one_thing_is_told_once() -> None:
    told = "prerequisite: no handshake with the server"
    results = [Result(f"a/{number}", "MUST", "A", (), Verdict.FAILED, told) for number in range(7)]
    report = Report("server", "x", (*results, RESULTS[1]))
    assert [line for line in lines(report, verbose=False) if told in line] == [f"7 FAILED: {told}"]
    assert "8 failed" in list(lines(report, verbose=False))[-1]
    assert any("a/bad" in line for line in lines(report, verbose=False))
    assert len([line for line in lines(report, verbose=True) if told in line]) == 7


def test_nothing_checked_is_no_success() -> None:
    assert "nothing was checked" in next(iter(lines(Report("server", "x", ()), verbose=False)))
    assert Report("server", "x", ()).exit_code == 1
    assert Report("server", "x", RESULTS[2:]).exit_code == 1
    assert Report("server", "x", RESULTS[:1]).exit_code == 0


def test_what_is_expected_to_fail_must_fail(tmp_path: Path) -> None:
    """A stale expectation is a failure, and so is one of a check that does not exist."""
    file = tmp_path / "expected.txt"
    file.write_text("# known\na/bad  # soon\n\na/good\nnot/there\n")
    expected = read_expected(file)
    assert expected == {"a/bad", "a/good", "not/there"}
    found = {result.id: result.verdict for result in with_expected(RESULTS, expected)}
    assert found == {
        "a/good": Verdict.STALE,
        "a/bad": Verdict.EXPECTED_FAILURE,
        "b/other": Verdict.NOT_OFFERED,
        "not/there": Verdict.STALE,
    }
    assert Report("server", "x", with_expected(RESULTS, frozenset({"a/bad"}))).exit_code == 0


# Codec


def test_a_right_codec_passes(tmp_path: Path) -> None:
    """R-J4: by the command line, with every kind of report."""
    outputs = ["--json", str(tmp_path / "report.json"), "--junit", str(tmp_path / "report.xml")]
    assert main(["conformance", "codec", "--command", CODEC, *outputs]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["passed"], report["failed"]) == (len(vectors()), 0)
    assert ElementTree.parse(tmp_path / "report.xml").getroot().get("failures") == "0"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("traps/duplicate_key.top", {"valid": True, "wire": "{}"}),
        ("ping/example/full", {"valid": False}),
        ("ping/example/full", {"valid": True, "wire": '{"type":"ping","id":7}'}),
        ("ping/example/full", {"valid": True, "wire": "{"}),
        ("ping/example/full", {"valid": True}),
        ("ping/example/full", {"valid": "true"}),
        ("run.cancel/example/full", {"valid": True, "wire": '{"type":"run.cancel","id":"c7","drop_queued":1}'}),
    ],
)
def test_a_wrong_verdict_is_noticed(name: str, answer: dict[str, object]) -> None:
    """R-J4."""
    vector = next(found for found in vectors() if found["id"] == name)
    assert verdict(vector, answer)


def test_values_are_compared_as_json_has_them() -> None:
    assert alike({"a": 1, "b": [1.0, "x"]}, {"b": [1, "x"], "a": 1})
    assert not alike({"a": True}, {"a": 1})
    assert not alike([1], [1, 1])
    assert not alike({"a": 1}, {"a": 1, "b": None})


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/nowhere/no-such-codec", "prerequisite"),
        (f"{sys.executable} -c pass", "closed its output"),
        (f"{sys.executable} -c 'print(7); input()'", "no JSON object"),
        (f"{sys.executable} -c 'print(\"{{}}\"); input()'", "is about None"),
        (f"{sys.executable} -c 'import time; time.sleep(60)'", "no line within"),
    ],
)
async def test_a_codec_that_does_not_answer_fails_everything(command: str, said: str) -> None:
    """R-J4: a missing prerequisite is a failure."""
    report = await check_codec(command, lambda: process_peer(command), only=("ping/*",), patience=1)
    assert report.passed == 0
    assert report.failed > 5
    assert said in report.results[0].detail


# Server and list, by the command line


def test_a_server_that_is_not_there_fails_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """R-J4: a missing prerequisite is a failure, also where nothing acts."""
    monkeypatch.setenv("SOME_SECRET", "x" * 40)
    report = tmp_path / "report.json"
    asked = ["conformance", "server", "--url", "ws://127.0.0.1:1/v1/ws", "--secret-env", "SOME_SECRET"]
    assert main([*asked, "--json", str(report), "--only", "all/*", "--only", "hello/versions.*"]) == 1
    verdicts = {check["verdict"] for check in json.loads(report.read_text())["checks"]}
    assert verdicts == {"failed"}
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 passed, ")


def test_without_a_secret_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("PHEBY_SECRET", raising=False)
    assert main(["conformance", "server", "--url", "ws://127.0.0.1:1/v1/ws"]) == 2
    assert "PHEBY_SECRET" in capsys.readouterr().err


def test_everything_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """R-J4."""
    assert main(["conformance", "list"]) == 0
    said = capsys.readouterr().out
    assert all(f" {name} [" in said for name in (*CHECKS, *scenarios()))
    assert main(["conformance", "list", "--rules"]) == 0
    said = capsys.readouterr().out
    assert all(f"{name} " in said for name in rules())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--json", "/nowhere/report.json"], "no folder /nowhere"),
        (["--junit", "/nowhere/report.xml"], "no folder /nowhere"),
        (["--expected-failures", "/nowhere/known.txt"], "no file /nowhere/known.txt"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_before_the_run(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-J4: not behind it, when its result is lost."""
    assert main(["conformance", "codec", "--command", "/nowhere/no-such-codec", *options]) == 2
    assert said in capsys.readouterr().err


def test_an_archive_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "archive", "/nowhere/suite.zip"]) == 2
    assert "/nowhere/suite.zip cannot be written" in capsys.readouterr().err


def test_what_is_no_address_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PHEBY_SECRET", "x" * 40)
    assert main(["conformance", "server", "--url", "127.0.0.1:8786"]) == 2
    assert "ws://" in capsys.readouterr().err


# Data


def test_the_archive_has_everything_and_is_the_same_each_time(tmp_path: Path) -> None:
    """R-J4: for whoever does not use Python."""
    files = [tmp_path / "one.zip", tmp_path / "two.zip"]
    for file in files:
        assert main(["conformance", "archive", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    manifest = json.loads((ROOT / bundle.MANIFEST).read_text())
    with zipfile.ZipFile(files[0]) as archive:
        names = set(archive.namelist())
        assert {f"pheby-conformance/{name}" for name in manifest["versions"]["1"]["files"]} <= names
        assert {"pheby-conformance/README.md", "pheby-conformance/manifest.json"} <= names


def test_every_link_in_the_archive_leads_into_the_archive(tmp_path: Path) -> None:
    """R-J4: its reader has nothing else."""
    assert main(["conformance", "archive", str(tmp_path / "suite.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "suite.zip") as archive:
        archive.extractall(tmp_path)
    root = tmp_path / "pheby-conformance"
    links = {
        (page.relative_to(root).as_posix(), target)
        for page in root.rglob("*.md")
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text())
        if "://" not in target
    }
    assert ("README.md", "docs/protocol/index.md") in links
    assert [(page, target) for page, target in links if not (root / page).parent.joinpath(target).exists()] == []
    assert (root / "schemas/v1/pheby.schema.json").is_file()
    assert {rule["anchor"].partition("#")[0] for rule in requirements()} <= {
        page.relative_to(root).as_posix() for page in root.rglob("*.md")
    }


def test_version_1_is_frozen() -> None:
    """R-J3, R-J4: what to do where a file of it must be another one stands in docs/adr/0010-frozen-versions.md."""
    version = json.loads((ROOT / bundle.MANIFEST).read_text())["versions"]["1"]
    assert version["status"] == "frozen"
    assert {name.partition("/")[0] for name in version["files"]} == {"requirements", "transcripts", "vectors"}
    assert bundle.broken_promises(ROOT) == []
    assert bundle.broken_promises(ROOT, generated_files() | bundle.generated(ROOT, generated_files())) == []


def test_a_frozen_version_cannot_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R-J3: neither by hand nor by an export."""
    assert main(["schema", "export", str(tmp_path)]) == 0
    file = tmp_path / bundle.MANIFEST
    manifest = json.loads(file.read_text())
    manifest["versions"]["1"]["status"] = "frozen"
    frozen = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    file.write_text(frozen)
    assert main(["schema", "check", str(tmp_path)]) == 0
    changed = tmp_path / "conformance/vectors/run.json"
    changed.write_text(changed.read_text() + " ")
    capsys.readouterr()
    assert main(["schema", "check", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "frozen, and changed: conformance/vectors/run.json" in told
    assert "docs/adr/0010-frozen-versions.md" in told
    assert main(["schema", "export", str(tmp_path)]) == 1
    assert changed.read_text().endswith(" ")


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    """A checkout whose version 1 is frozen."""
    assert main(["schema", "export", str(tmp_path)]) == 0
    file = tmp_path / bundle.MANIFEST
    manifest = json.loads(file.read_text())
    manifest["versions"]["1"]["status"] = "frozen"
    file.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    return tmp_path


def test_to_a_frozen_version_a_file_can_be_added(frozen: Path) -> None:
    """R-J3, R-J4: it is listed as added, and what is frozen stays."""
    before = json.loads((frozen / bundle.MANIFEST).read_text())
    assert before["added"] == {}
    (frozen / "conformance/transcripts/runs").mkdir(exist_ok=True)
    (frozen / "conformance/transcripts/runs/new.json").write_text("{}")
    assert main(["schema", "export", str(frozen)]) == 0
    after = json.loads((frozen / bundle.MANIFEST).read_text())
    assert list(after["added"]) == ["transcripts/runs/new.json"]
    assert after["versions"] == before["versions"]
    assert main(["schema", "check", str(frozen)]) == 0


def test_to_a_frozen_version_a_message_can_be_added(frozen: Path) -> None:
    """R-J3: its vectors go into a file of their own, and so do those that have changed."""
    files = generated_files()
    name = "conformance/vectors/run.json"
    vectors_now = json.loads(files[name])
    first = vectors_now["vectors"][0]
    vectors_now["vectors"][0] = first | {"wire": "{}"}
    vectors_now["vectors"].append(first | {"id": "run.paint/example/full"})
    found = bundle.generated(frozen, {**files, name: json.dumps(vectors_now)})
    assert found[name] == (frozen / name).read_text()
    added = json.loads(found["conformance/vectors/run-added.json"])["vectors"]
    assert [vector["id"] for vector in added] == [f"{first['id']}/added", "run.paint/example/full"]
    assert list(json.loads(found[bundle.MANIFEST])["added"]) == ["vectors/run-added.json"]


def test_the_words_of_a_frozen_rule_cannot_change(frozen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R-J3, R-J4: neither may a rule be added: whoever was right before would be wrong."""
    pages = frozen / "docs/protocol"
    for page in (ROOT / "docs/protocol").glob("*.md"):
        (pages / page.name).write_text(page.read_text())
    assert main(["schema", "check", str(frozen)]) == 0
    page = pages / "conversations.md"
    page.write_text(page.read_text() + f"- **P-CONV-{99}** MUST (client; R-B2): be another one.\n")
    assert main(["schema", "check", str(frozen)]) == 1
    assert f"frozen, and changed: {bundle.REQUIREMENTS}" in capsys.readouterr().err
