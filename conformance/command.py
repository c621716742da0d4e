"""`pheby conformance`: run the suite from the command line."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .report import Report, as_json, as_junit, lines, read_expected, with_expected
from .rules import requirements

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]
    Parser = argparse.ArgumentParser

WORDS_OF_A_WRITER: Final = ("send", "cancel", "approve", "answer")
WORDS: Final = (*WORDS_OF_A_WRITER, "download")
"""What the owner of a client may want: the commands of the scenarios."""


def add_parser(subparsers: Subparsers) -> None:
    """Add `conformance` to the command line; the parsed arguments carry `run`."""
    parser = subparsers.add_parser("conformance", help="prove a server, a client or a codec right against the protocol")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_server(actions)
    _add_client(actions)
    _add_codec(actions)
    _add_list(actions)


def _add_server(actions: Subparsers) -> None:
    server = actions.add_parser(
        "server",
        help="check a server by its URL",
        description="Secrets are taken from the environment, never from the command line.",
    )
    server.add_argument("--url", required=True, help="where clients connect: ws://…/v1/ws")
    server.add_argument(
        "--secret-env",
        default="PHEBY_SECRET",
        metavar="NAME",
        help="the variable with the secret (default: %(default)s)",
    )
    server.add_argument("--read-only-secret-env", metavar="NAME", help="the variable with a secret that may only read")
    server.add_argument(
        "--scripted", action="store_true", help="its agent answers as the scripted model of `pheby demo` does"
    )
    server.add_argument(
        "--files",
        type=Path,
        metavar="DIR",
        help="where this process can write and the agent can deliver from (with --scripted: a temporary folder)",
    )
    server.add_argument("--jobs", type=int, default=8, metavar="N", help="checks at a time (default: %(default)s)")
    server.add_argument(
        "--patience", type=float, default=20.0, metavar="SECONDS", help="so long for each answer (default: %(default)s)"
    )
    _add_common(server)
    server.set_defaults(run=_server)


def _add_client(actions: Subparsers) -> None:
    client = actions.add_parser(
        "client",
        help="check a client: a command that is given the address of a server that the runner plays",
        description="The address is appended to the command; PHEBY_SECRET and PHEBY_SCENARIO are in its environment.",
    )
    client.add_argument("--command", required=True, help="starts the client; it is ended when its input ends")
    client.add_argument("--jobs", type=int, default=4, metavar="N", help="clients at a time (default: %(default)s)")
    client.add_argument(
        "--patience", type=float, default=20.0, metavar="SECONDS", help="so long for each step (default: %(default)s)"
    )
    client.add_argument(
        "--without",
        action="append",
        choices=WORDS,
        help="what the client cannot do: scenarios in which its owner wants that are not played; may be repeated",
    )
    client.add_argument(
        "--read-only", action="store_true", help=f"it only shows: --without {' --without '.join(WORDS_OF_A_WRITER)}"
    )
    client.add_argument(
        "--newer-server",
        action="store_true",
        help="play a server of a later version, with fields, capabilities and events that version 1 does not know",
    )
    _add_common(client)
    client.set_defaults(run=_client)


def _add_codec(actions: Subparsers) -> None:
    codec = actions.add_parser(
        "codec",
        help="check a codec: a command that reads and writes JSON Lines",
        description='In: {"id", "target", "wire"}, one a line. Out: {"id", "valid"} and, of a valid one, "wire".',
    )
    codec.add_argument("--command", required=True, help="starts the codec; it serves until its input ends")
    codec.add_argument(
        "--patience", type=float, default=20.0, metavar="SECONDS", help="so long for each answer (default: %(default)s)"
    )
    _add_common(codec)
    codec.set_defaults(run=_codec)


def _add_common(parser: Parser) -> None:
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="checks by id, as in 'sync/*'; may be repeated"
    )
    parser.add_argument(
        "--level", choices=("MUST", "SHOULD"), default="SHOULD", help="MUST: leave out what only should be"
    )
    parser.add_argument(
        "--expected-failures",
        type=Path,
        metavar="FILE",
        help="ids that are known to fail; one that does not is a failure",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the report as JUnit XML")
    parser.add_argument("--verbose", action="store_true", help="tell of every check")


def _add_list(actions: Subparsers) -> None:
    listed = actions.add_parser("list", help="list the checks, or the rules that they hold")
    listed.add_argument("--rules", action="store_true", help="each rule with the checks that hold it")
    listed.set_defaults(run=_list)
    archive = actions.add_parser(
        "archive", help="write everything that a runner in another language needs into one file"
    )
    archive.add_argument("file", type=Path, metavar="FILE.zip")
    archive.set_defaults(run=_archive)


def _server(args: argparse.Namespace) -> int:
    from .server import Options, check_server

    secret = os.environ.get(args.secret_env)
    read_only = os.environ.get(args.read_only_secret_env) if args.read_only_secret_env else None
    for name, value in ((args.secret_env, secret), (args.read_only_secret_env, read_only)):
        if name and not value:
            return _wrong(f"set {name} to the secret")
    assert secret is not None
    if not args.url.startswith(("ws://", "wss://", "http://", "https://")):
        return _wrong(f"{args.url} is no address: it begins with ws:// or wss://")
    with ExitStack() as exits:
        files = args.files
        if files is None and args.scripted:
            files = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="pheby-conformance-")))
        options = Options(
            url=args.url,
            secret=secret,
            read_only_secret=read_only,
            scripted=args.scripted,
            files=files,
            only=args.only or ("*",),
            level=args.level,
            patience=args.patience,
            jobs=max(1, args.jobs),
        )
        return _reported(args, lambda: check_server(options))


def _client(args: argparse.Namespace) -> int:
    from .client import check_client
    from .process import process_peer

    return _reported(
        args,
        lambda: check_client(
            args.command,
            lambda url, env: process_peer(args.command, url, env=env),
            only=args.only or ("*",),
            level=args.level,
            without=WORDS_OF_A_WRITER if args.read_only else args.without or (),
            patience=args.patience,
            jobs=max(1, args.jobs),
            newer=args.newer_server,
        ),
    )


def _codec(args: argparse.Namespace) -> int:
    from .codec import check_codec
    from .process import process_peer

    return _reported(
        args,
        lambda: check_codec(
            args.command,
            lambda: process_peer(args.command),
            only=args.only or ("*",),
            level=args.level,
            patience=args.patience,
        ),
    )


def _reported(args: argparse.Namespace, check: Callable[[], Coroutine[Any, Any, Report]]) -> int:
    """Check, unless it is clear before that nothing could be told of it."""
    for file in (args.json, args.junit):
        if file is not None and not file.parent.is_dir():
            return _wrong(f"there is no folder {file.parent} for {file.name}")
    if args.expected_failures is not None and not args.expected_failures.is_file():
        return _wrong(f"there is no file {args.expected_failures}")
    return finish(asyncio.run(check()), args)


def finish(report: Report, args: argparse.Namespace) -> int:
    """Tell and write what was found; the exit code."""
    if args.expected_failures is not None:
        report = Report(
            report.kind, report.subject, with_expected(report.results, read_expected(args.expected_failures))
        )
    if args.json is not None:
        args.json.write_text(as_json(report), encoding="utf-8")
    if args.junit is not None:
        args.junit.write_text(as_junit(report), encoding="utf-8")
    _print(lines(report, verbose=args.verbose))
    return report.exit_code


def _list(args: argparse.Namespace) -> int:
    _print(_rules() if args.rules else _checks())
    return 0


def _checks() -> Iterable[str]:
    from .check import CHECKS
    from .client import level_of as level_of_scenario
    from .client import stored_scenarios
    from .codec import vectors
    from .server import level_of

    for check in CHECKS.values():
        yield f"server {check.id} [{level_of(check)} {', '.join(check.rules)}] {check.title}"
    for found in stored_scenarios():
        yield f"client {found['id']} [{level_of_scenario(found)} {', '.join(found['rules'])}] {found['title']}"
    yield f"codec  {len(vectors())} vectors"


def _rules() -> Iterable[str]:
    for row in requirements():
        held = [name for names in row["checks"].values() for name in names]
        yield f"{row['id']} {row['level']} ({row['side']}): {row['text']}"
        if held:
            yield f"    held by {', '.join(held)}"
        for side, reason in row.get("not_checked", {}).items():
            yield f"    not held for a {side}: {reason}"


def _archive(args: argparse.Namespace) -> int:
    from .bundle import write_archive

    try:
        print(f"{write_archive(args.file)} files in {args.file}")
    except OSError as failure:
        return _wrong(f"{args.file} cannot be written: {failure.strerror}")
    return 0


def _wrong(text: str) -> int:
    print(f"pheby: {text}", file=sys.stderr)
    return 2


def _print(texts: Iterable[str]) -> None:
    for text in texts:
        print(text)
