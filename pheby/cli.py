"""The `pheby` command."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from pheby_conformance import command as conformance

from . import config_check, schema
from .demo import command as demo
from .install import command as install
from .install.errors import InstallError
from .install.target import find_home

SECRET = "PHEBY_SECRET"  # noqa: S105 - the variable's name
DEFAULT_URL = "ws://127.0.0.1:8786/v1/ws"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code."""
    args = parser().parse_args(arguments)
    try:
        result: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it has seen enough, as `head` does; nothing more can be told there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return result


def parser() -> argparse.ArgumentParser:
    """Every command with its options; the parsed arguments carry `run`."""
    result = argparse.ArgumentParser(
        prog="pheby", description="Talk to your own Hermes Agent, and prove that it works."
    )
    subparsers = result.add_subparsers(required=True, metavar="COMMAND")
    demo.add_parser(subparsers)
    install.add_parsers(subparsers)
    config_check.add_parser(subparsers)
    schema.add_parser(subparsers)
    conformance.add_parser(subparsers)
    chat = subparsers.add_parser(
        "chat",
        help="chat in the terminal with a Hermes that has Pheby",
        description=f"The secret is taken from the environment ({SECRET}) or from a Hermes home on this machine, "
        "never from the command line.",
    )
    where = chat.add_mutually_exclusive_group()
    where.add_argument("--url", default=DEFAULT_URL, help="default: %(default)s")
    where.add_argument("--home", type=Path, metavar="PATH", help="address and secret of this Hermes home")
    where.add_argument("--profile", metavar="NAME", help="or of a Hermes profile; `default` is the first one")
    chat.add_argument("--say", metavar="TEXT", help="send one message, print the answer and end")
    chat.set_defaults(run=_chat)
    return result


def _chat(args: argparse.Namespace) -> int:
    from .chat import chat, say

    try:
        url, secret = _server(args)
    except InstallError as problem:
        print(f"pheby: {problem}", file=sys.stderr)
        return 2
    try:
        return asyncio.run(chat(url, secret) if args.say is None else say(url, secret, args.say))
    except KeyboardInterrupt:
        return 130


def _server(args: argparse.Namespace) -> tuple[str, str]:
    """Address and secret. Raises InstallError."""
    if args.home is not None or args.profile is not None:
        try:
            from .install.pairing import local
        except ImportError:
            raise InstallError(install.WITHOUT_YAML) from None
        found = local(find_home(args.home, args.profile, os.environ))
        return found.url, found.secret
    secret = os.environ.get(SECRET)
    if not secret:
        raise InstallError(
            f"set {SECRET} to the secret that Hermes's Pheby plugin was given, or name the Hermes home: --home PATH"
        )
    return args.url, secret


if __name__ == "__main__":
    sys.exit(main())
