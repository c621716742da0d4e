"""The `pheby` command."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from pheby_conformance import command as conformance

from . import config_check, schema
from .demo import command as demo
from .install import command as install

SECRET_VARIABLE = "PHEBY_SECRET"  # noqa: S105 - the variable's name


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code."""
    args = parser().parse_args(arguments)
    result: int = args.run(args)
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
        description=f"The secret is taken from the environment ({SECRET_VARIABLE}), never from the command line.",
    )
    chat.add_argument("--url", default="ws://127.0.0.1:8786/v1/ws", help="default: %(default)s")
    chat.add_argument("--say", metavar="TEXT", help="send one message, print the answer and end")
    chat.set_defaults(run=_chat)
    return result


def _chat(args: argparse.Namespace) -> int:
    from .chat import chat, say

    secret = os.environ.get(SECRET_VARIABLE)
    if not secret:
        print(f"pheby: set {SECRET_VARIABLE} to the secret that Hermes's Pheby plugin was given", file=sys.stderr)
        return 2
    try:
        return asyncio.run(chat(args.url, secret) if args.say is None else say(args.url, secret, args.say))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
