"""The command line of `pheby install`, `status`, `doctor`, `update`, `uninstall`, `pair` and `secret rotate`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import InstallError

if TYPE_CHECKING:
    from .doctor import Finding
    from .steps import Plan, Wishes

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

Command = Callable[[argparse.Namespace], int]

_STREAMING = (
    "Hermes 0.22 shows answers while they are written only if streaming.enabled is on, and that counts for all your "
    "platforms, not only for Pheby. Switch it on?"
)


def add_parsers(subparsers: Subparsers) -> None:
    """Add the commands to the command line; the parsed arguments carry `run`."""
    _add_install(subparsers)
    _add(subparsers, "status", "what there is of Pheby in a Hermes home, and whether it runs", _status)
    doctor = _add(subparsers, "doctor", "find what is wrong, each with the command that mends it", _doctor)
    _hermes_python(doctor)
    update = _add_changing(subparsers, "update", "bring what `pheby install` has put in to this version", _update)
    _package(update)
    uninstall = _add_changing(subparsers, "uninstall", "take out what `pheby install` has put in", _uninstall)
    uninstall.add_argument("--purge", action="store_true", help="remove the conversations that Pheby keeps as well")
    uninstall.add_argument("--with-package", action="store_true", help="remove the package as well")
    _hermes_python(uninstall)
    pair = _add(subparsers, "pair", "show address and secret for the app, on a terminal alone", _pair)
    pair.add_argument("--show", action="store_true", help="without asking whether nobody looks over your shoulder")
    secret = subparsers.add_parser("secret", help="change the secret").add_subparsers(required=True, metavar="ACTION")
    rotate = _add_changing(secret, "rotate", "put a new secret in the place of the old one", _rotate)
    rotate.add_argument("--keep-previous", action="store_true", help="the old one stays valid beside the new one")


def _add_install(subparsers: Subparsers) -> None:
    install = _add_changing(subparsers, "install", "put Pheby into a Hermes home", _install)
    _package(install)
    install.add_argument("--port", type=_port, metavar="N", help="where Pheby listens (default: 8786)")
    install.add_argument(
        "--entry-point", action="store_true", help="no plugin folder: Hermes finds the package in its own environment"
    )
    streaming = install.add_mutually_exclusive_group()
    streaming.add_argument("--streaming", action="store_true", help="switch streaming.enabled on, for all platforms")
    streaming.add_argument("--no-streaming", action="store_true", help="leave streaming.enabled as it is, unasked")


def _add(subparsers: Subparsers, name: str, text: str, run: Command) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("--home", type=Path, metavar="PATH", help="the Hermes home")
    parser.add_argument("--profile", metavar="NAME", help="or a Hermes profile by its name; `default` is the first one")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=lambda args: _refused(run, args))
    return parser


def _add_changing(subparsers: Subparsers, name: str, text: str, run: Command) -> argparse.ArgumentParser:
    parser = _add(subparsers, name, text, run)
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    parser.add_argument("--yes", action="store_true", help="go on without asking")
    parser.add_argument(
        "--confirm-modified", action="store_true", help="also overwrite or remove what was changed since Pheby wrote it"
    )
    return parser


def _package(parser: argparse.ArgumentParser) -> None:
    _hermes_python(parser)
    parser.add_argument("--wheel", type=Path, metavar="PATH", help="the wheel to install (default: this version)")
    parser.add_argument("--no-pip", action="store_true", help="the package is in Hermes's environment already")


def _hermes_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hermes-python", type=Path, metavar="PATH", help="the Python that runs Hermes (default: looked for)"
    )


WITHOUT_YAML: Final = f"this needs PyYAML: {sys.executable} -m pip install 'pheby[cli]'"


def _refused(run: Command, args: argparse.Namespace) -> int:
    """What a command cannot do is one plain sentence on standard error, and exit code 1."""
    try:
        return run(args)
    except ImportError:
        print(f"pheby: {WITHOUT_YAML}", file=sys.stderr)
    except InstallError as failure:
        print(f"pheby: {failure}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number")
    return int(text)


# The commands. What they need is imported late: it is not everywhere, and the other commands are to start fast.


def _home(args: argparse.Namespace) -> Path:
    from .target import find_home

    return find_home(args.home, args.profile, os.environ)


def _python(args: argparse.Namespace, home: Path) -> Path:
    from .marker import read_marker
    from .target import find_python

    marker = read_marker(home)
    return find_python(args.hermes_python, marker.hermes_python if marker is not None else None, home)


def _wishes(args: argparse.Namespace, home: Path, *, streaming: bool = False) -> Wishes:
    from .package import runs_here
    from .steps import Wishes

    try:
        python = _python(args, home)
    except InstallError:
        if not args.no_pip:
            raise
        python = None
    # Whoever runs the command with Hermes's own Python has the package there.
    there = python is not None and runs_here(python) and args.wheel is None
    return Wishes(
        port=getattr(args, "port", None),
        streaming=streaming,
        entry_point=getattr(args, "entry_point", False),
        python=python,
        pip=not args.no_pip and not there,
        wheel=args.wheel,
        confirm_modified=args.confirm_modified,
    )


def _install(args: argparse.Namespace) -> int:
    from .output import agreed, interactive
    from .steps import plan_install, streams

    home = _home(args)
    streaming = args.streaming
    if not (streaming or args.no_streaming or args.yes or args.json or args.dry_run or streams(home)) and interactive():
        streaming = agreed(_STREAMING)
    return _offered(args, plan_install(home, _wishes(args, home, streaming=streaming)))


def _update(args: argparse.Namespace) -> int:
    from .steps import plan_update

    home = _home(args)
    return _offered(args, plan_update(home, _wishes(args, home)))


def _uninstall(args: argparse.Namespace) -> int:
    from .gateway import running
    from .steps import plan_uninstall

    home = _home(args)
    if args.purge and running(home):
        raise InstallError("The gateway is running and uses what --purge removes: stop it first (hermes gateway stop).")
    python = _python(args, home) if args.with_package else None
    plan = plan_uninstall(home, purge=args.purge, confirm_modified=args.confirm_modified, python=python)
    return _offered(args, plan)


def _rotate(args: argparse.Namespace) -> int:
    from .steps import plan_rotation

    return _offered(args, plan_rotation(_home(args), args.keep_previous))


def _offered(args: argparse.Namespace, plan: Plan) -> int:
    from .output import offer

    return 0 if offer(plan, dry_run=args.dry_run, yes=args.yes, as_json=args.json) else 1


def _status(args: argparse.Namespace) -> int:
    import attrs

    from .output import print_json
    from .status import look

    status = look(_home(args))
    if args.json:
        print_json(attrs.asdict(status) | {"listening": status.listening})
    else:
        print(status.as_text())
    return 0


def _doctor(args: argparse.Namespace) -> int:
    import attrs

    from .doctor import examine
    from .output import print_json

    findings = examine(_home(args), args.hermes_python)
    bad = [finding for finding in findings if finding.severity != "ok"]
    if args.json:
        print_json({"ok": not bad, "findings": [attrs.asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            _print_finding(finding)
        print(f"{len(bad)} to look at." if bad else "All is well.")
    return 1 if bad else 0


def _print_finding(finding: Finding) -> None:
    from .output import coloured

    print(f"{coloured(f'{finding.severity:8}', finding.severity, sys.stdout)}{finding.text}  [{finding.code}]")
    if finding.mend:
        print(f"        -> {finding.mend}")
    if finding.advice:
        print(f"        {finding.advice}")


def _pair(args: argparse.Namespace) -> int:
    from .output import agreed, interactive
    from .pairing import pairing

    if args.json or not interactive():
        raise InstallError("The secret is only shown on a terminal.")
    found = pairing(_home(args))
    if not args.show and not agreed("This shows the secret. Is nobody looking over your shoulder?"):
        return 1
    print(found.as_text())
    return 0
