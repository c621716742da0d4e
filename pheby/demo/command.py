"""`pheby demo`: a real Hermes with a scripted model, to talk to from the keyboard or from a test."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pheby.demo.errors import DemoError
from pheby.demo.lines import LINES, ensure

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_INTERRUPTED = 130


class Running(Protocol):
    """What the command needs to know of a stack that is ready."""

    @property
    def url(self) -> str: ...
    @property
    def secret(self) -> str: ...
    @property
    def home(self) -> Path | None: ...
    @property
    def hermes_version(self) -> str: ...
    @property
    def model_url(self) -> str | None: ...
    @property
    def gateway_pid(self) -> int: ...


def add_parser(subparsers: Subparsers) -> None:
    """Add `demo` to the command line; the parsed arguments carry `run`."""
    parser = subparsers.add_parser(
        "demo",
        help="try Pheby on a real Hermes with a scripted model, without a network or a key",
        description="Starts a real Hermes gateway with Pheby in it and a scripted model, then lets you chat with it.",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--say", metavar="TEXT", help="send one message, print the answer and end")
    action.add_argument("--serve", action="store_true", help="print one line of JSON when ready and run until Ctrl-C")
    parser.add_argument("--hermes", choices=sorted(LINES), default="0.19", help="the Hermes line (default: 0.19)")
    parser.add_argument("--model-url", metavar="URL", help="a real model server; the key is taken from OPENAI_API_KEY")
    parser.add_argument("--model", metavar="NAME", help="the model to use")
    parser.add_argument(
        "--home", type=Path, metavar="PATH", help="keep the Hermes home here (default: a temporary one)"
    )
    parser.add_argument("--port", type=_port, metavar="N", help="where Pheby listens (default: any free port)")
    parser.add_argument("--simulated", action="store_true", help="no Hermes at all: a simulated one, in this process")
    parser.add_argument(
        "--hermes-defaults", action="store_true", help="leave Hermes's own display settings as they come"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the demo; the exit code. Nothing is left running, and a known failure is one plain sentence."""
    try:
        if not args.simulated:
            # Before minutes of work: what it needs may be missing.
            import_module("pheby.demo.stack")
            # Before the loop runs, so that a signal ends the installation in the ordinary way.
            ensure(LINES[args.hermes], _progress)
        return asyncio.run(_run(args))
    except DemoError as error:
        _progress(str(error))
        return 1
    except ImportError as missing:
        _progress(f"The demo needs {missing.name}: {sys.executable} -m pip install 'pheby[cli]'")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0 if args.serve else _INTERRUPTED


async def _run(args: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    # The first signal stops the gateway politely; one more cancels that, and so kills it.
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, task.cancel)
    async with _stack(args) as stack:
        if args.serve:
            print(json.dumps(_described(stack)), flush=True)
            await asyncio.Event().wait()
        from pheby.chat import chat, say

        if args.say is not None:
            return await say(stack.url, stack.secret, args.say)
        _progress(f"Ready: Hermes {stack.hermes_version}. Type help to see what the scripted model can do.")
        return await chat(stack.url, stack.secret)


def _stack(args: argparse.Namespace) -> AbstractAsyncContextManager[Running]:
    if args.simulated:
        from pheby.demo.simulated import SimulatedStack

        return SimulatedStack(port=args.port)
    from pheby.demo.stack import DemoStack

    return DemoStack(
        args.hermes,
        model_url=args.model_url,
        model_name=args.model,
        home=args.home,
        port=args.port,
        hermes_defaults=args.hermes_defaults,
        progress=_progress,
    )


def _described(stack: Running) -> dict[str, str | int | None]:
    return {
        "url": stack.url,
        "secret": stack.secret,
        "home": str(stack.home) if stack.home is not None else None,
        "hermes_version": stack.hermes_version,
        "model_url": stack.model_url,
        "gateway_pid": stack.gateway_pid,
    }


def _progress(text: str) -> None:
    # Standard output belongs to the answer, or to the line of JSON.
    print(text, file=sys.stderr, flush=True)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number")
    return int(text)
