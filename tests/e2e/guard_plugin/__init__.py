"""For tests only: a tool that runs several commands at once, each in its thread, each behind Hermes's own guard."""

from __future__ import annotations

import contextvars
import json
import subprocess
import threading
from typing import Any

SCHEMA = {
    "name": "run_together",
    "description": "Runs commands at the same time.",
    "parameters": {
        "type": "object",
        "properties": {"commands": {"type": "array", "items": {"type": "string"}}},
        "required": ["commands"],
    },
}


def run_together(args: dict[str, Any], **context: Any) -> str:
    from tools.approval import check_all_command_guards

    commands: list[str] = args["commands"]
    outcomes: dict[str, str] = {}

    def run(command: str) -> None:
        verdict = check_all_command_guards(command, "local")
        if verdict.get("approved") is True:
            subprocess.run(command, shell=True, check=False)
            outcomes[command] = "ran"
        else:
            outcomes[command] = "BLOCKED"

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(run, command)) for command in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return json.dumps(outcomes)


def register(ctx: Any) -> None:
    ctx.register_tool(name="run_together", toolset="guard", schema=SCHEMA, handler=run_together)
