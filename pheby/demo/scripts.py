"""What the scripted model answers: one small function per thing a person can type."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pheby.demo.dialogue import Turn

LONGEST = 100_000
RAW_PROVIDER_TEXT = "raw provider text: do not show"
THINKING = "secret"
CANARY = "sk-canary-0123456789abcdefghijklmnop"
"""What looks like a key; `leak` puts it wherever a model could."""


@dataclass(frozen=True)
class Text:
    """One content chunk."""

    text: str


@dataclass(frozen=True)
class Pause:
    """Silence for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Call:
    """One tool call; the calls of a reply are sent together at its end."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Refuse:
    """An HTTP error instead of a reply; only as the first step."""

    status: int


@dataclass(frozen=True)
class Cut:
    """The connection breaks here."""


@dataclass(frozen=True)
class CutOnce:
    """The connection breaks inside the arguments of this call; asked again, the call is made."""

    call: Call


Step = Text | Pause | Call | Refuse | Cut | CutOnce
Script = Callable[[str, Turn], Iterator[Step]]


def reply_to(turn: Turn) -> tuple[str, Iterator[Step]]:
    """The name and the steps of the script that answers this request."""
    if not turn.paragraphs:
        return "notice", _notice(turn)
    name, argument = _chosen(turn.paragraphs)
    return name, SCRIPTS.get(name, _echo)(argument, turn)


def checksum_holds(text: str) -> bool:
    """Whether the last line of a `long N` reply matches what precedes it."""
    body, _, last = text.rpartition("\n")
    return last == _checksum(body)


def _chosen(paragraphs: tuple[str, ...]) -> tuple[str, str]:
    # A run that ended without an answer leaves its text in front of the next one, so the last script
    # counts, and what follows a script other than `say` was typed after that script was over.
    for place, paragraph in reversed(list(enumerate(paragraphs))):
        first_line = paragraph.splitlines()[0].strip()
        name, _, argument = first_line.partition(" ")
        name, argument = name.lower(), argument.strip()
        last = place == len(paragraphs) - 1
        if name in SCRIPTS and (argument or name in _BARE) and (last or name == "say"):
            return name, argument
    return "echo", paragraphs[-1].splitlines()[0].strip()


def _words(text: str, pause: float = 0.03) -> Iterator[Step]:
    for place, word in enumerate(text.split(" ")):
        yield Text(word if place == 0 else f" {word}")
        yield Pause(pause)


def _echo(argument: str, turn: Turn) -> Iterator[Step]:
    yield from _words(f'You wrote: "{argument}". I am a scripted model; type "help" for what I can do.')


def _notice(turn: Turn) -> Iterator[Step]:
    if "cut off" in turn.notice:
        yield from _words("and here is the rest.")
    elif "empty response" in turn.notice:
        return  # only `empty` brings this about, and it stays empty
    elif turn.notice.startswith("[ASYNC DELEGATION"):
        yield from _words("The delegated work is done.")
    else:
        yield from _words("Noted.")


def _help(argument: str, turn: Turn) -> Iterator[Step]:
    yield Text("I answer to:\n")
    for line in USAGE:
        yield Text(f"- {line}\n")
        yield Pause(0.01)


def _say(argument: str, turn: Turn) -> Iterator[Step]:
    yield from _words(f"{argument[:1].upper()}{argument[1:]}! You asked me to say: {argument}")


def _long(argument: str, turn: Turn) -> Iterator[Step]:
    size = min(_number(argument, 1000), LONGEST)
    shortest = len(_checksum("")) + 2
    if size < shortest:
        yield Text(f"I need at least {shortest} characters for that.")
        return
    room = size - len(_checksum("")) - 1
    lines = "".join(f"Line {number} of a long reply.\n" for number in range(1, room // 20 + 2))
    body = lines[: room - 1] + "."
    text = f"{body}\n{_checksum(body)}"
    step = max(1, -(-size // 40))
    for start in range(0, size, step):
        yield Text(text[start : start + step])
        yield Pause(0.045)


def _slow(argument: str, turn: Turn) -> Iterator[Step]:
    for number in range(1, _number(argument, 20) + 1):
        yield Text(f"w{number}" if number == 1 else f" w{number}")
        yield Pause(0.1)


def _wait(argument: str, turn: Turn) -> Iterator[Step]:
    yield Pause(_number(argument, 5))
    yield from _words(f"I waited {_number(argument, 5)} seconds.")


def _fail(argument: str, turn: Turn) -> Iterator[Step]:
    status = _number(argument, 500)
    yield Refuse(status if 400 <= status <= 599 else 500)


def _empty(argument: str, turn: Turn) -> Iterator[Step]:
    yield from ()


def _unicode(argument: str, turn: Turn) -> Iterator[Step]:
    # The joiners are cut off from what they join on purpose: a chunk may end anywhere.
    yield from _chunks("Family: 👩", "\u200d👩\u200d", "👧\u200d👦, flag: 🇪", "🇺, skin: 👍", "🏽.\n")
    yield from _chunks("CJK: 漢字と", "かな 한국어.\n", "RTL: שלום ", "עולם, مرحبا.\n", "Combining: e", "\u0301.")


def _think(argument: str, turn: Turn) -> Iterator[Step]:
    yield from _chunks("<thi", f"nk>{THINKING}</th", "ink>Hi", " after thinking.")


def _midthink(argument: str, turn: Turn) -> Iterator[Step]:
    yield from _chunks("Visible start ", f"<think>{THINKING} more", " and more</th", "ink>", "visible end.")


def _media(argument: str, turn: Turn) -> Iterator[Step]:
    half = len(argument) // 2
    yield from _chunks("Here is the file.\n", "MED", f"IA:{argument[:half]}", argument[half:], "\nThat was it.")


PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAIAAAA2iEnWAAAAGElEQVR4nGNgqDgBQhoVJ4CIIaDiBBABAFCNCHHcwdc+AAAAAElFTkSuQmCC"
"""A small picture, two pixels wide and three high, in base64."""


def _produce(argument: str, turn: Turn) -> Iterator[Step]:
    if turn.rounds == 0:
        yield from _words("I will make it.")
        content = f"echo {PICTURE} | base64 -d" if argument.endswith(".png") else "echo made by a tool"
        yield Call("terminal", {"command": f"{content} > '{argument}'"})
    else:
        yield from _chunks("Here it is.\n", f"MEDIA:{argument}")


def _reply(argument: str, turn: Turn) -> Iterator[Step]:
    yield from _chunks(str(_object(argument).get("text", "")))


def _run(argument: str, turn: Turn) -> Iterator[Step]:
    if turn.rounds == 0:
        yield from _words("Let me run that.")
        yield Call("terminal", {"command": argument})
    else:
        yield from _words("The command has ended.")


def _tools(argument: str, turn: Turn) -> Iterator[Step]:
    paths = [path.strip() for path in argument.split("|") if path.strip()] or ["/etc/hosts", "/etc/hostname"]
    if turn.rounds == 0:
        yield from _words(f"I will read {len(paths)} files.")
        for path in paths:
            yield Call("read_file", {"path": path})
    else:
        yield from _words(f"I have read {len(turn.results)} files.")


def _danger(argument: str, turn: Turn) -> Iterator[Step]:
    if turn.rounds == 0:
        yield from _words("This needs your approval.")
        yield Call("terminal", {"command": f"rm -rf {argument}"})
    elif "BLOCKED" in "".join(turn.results):
        yield from _words("You did not allow it.")
    else:
        yield from _words("It is gone.")


def _ask(argument: str, turn: Turn, several: bool = False) -> Iterator[Step]:
    if turn.rounds == 0:
        asked = [_question(part, several) for part in argument.split("&&")]
        # An older Hermes takes one question at a time, with one answer.
        batched = "questions" in turn.tools.get("clarify", {}) or "clarify" not in turn.tools
        yield Call("clarify", {"questions": asked} if batched else asked[0])
    else:
        yield from _words(f"Thank you. The answer came back as: {turn.results[-1] if turn.results else ''}")


def _question(text: str, several: bool) -> dict[str, Any]:
    question, *choices = [part.strip() for part in text.split("|")]
    return (
        {"question": question} | ({"choices": choices} if choices else {}) | ({"multi_select": True} if several else {})
    )


def _choose(argument: str, turn: Turn) -> Iterator[Step]:
    yield from _ask(argument, turn, several=True)


def _call(argument: str, turn: Turn) -> Iterator[Step]:
    name, _, text = argument.partition(" ")
    if turn.rounds == 0:
        yield from _words("As you wish.")
        wanted = Call(name, _object(text))
        if name not in turn.tools and "tool_call" in turn.tools:
            # A newer Hermes offers tools of plugins behind another one.
            wanted = Call("tool_call", {"calls": [{"name": name, "arguments": wanted.arguments}]})
        yield wanted
    else:
        yield from _words("The tool has answered.")


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _leak(argument: str, turn: Turn) -> Iterator[Step]:
    leaks = [
        Call("terminal", {"command": f"echo api_key={CANARY}"}),
        Call("terminal", {"command": f"echo token={CANARY} >&2; exit 3"}),
        Call("read_file", {"path": f"/nowhere/{CANARY}"}),
        Call("search_files", {"pattern": f"[{CANARY}", "path": f"https://user:{CANARY}@host/"}),
        Call("terminal", {"command": f"rm -rf /nowhere/at-all; echo password={CANARY}"}),
    ]
    if turn.rounds < len(leaks):
        yield leaks[turn.rounds]
    else:
        yield from _words("I have shown no key.")


def _delegate(argument: str, turn: Turn) -> Iterator[Step]:
    if turn.rounds == 0:
        yield from _words("I will hand that on.")
        alone = "goal" in turn.tools.get("delegate_task", {})
        task = {"goal": argument}
        yield Call("delegate_task", task if alone else {"tasks": [task]})
    else:
        yield from _words("I have handed it on.")


def _surrogate(argument: str, turn: Turn) -> Iterator[Step]:
    yield from _chunks("Half a pair: ", "\ud83d", " and on.")


def _drop(argument: str, turn: Turn) -> Iterator[Step]:
    yield from _words("This reply breaks off", 0.1)
    yield Cut()


def _dropcall(argument: str, turn: Turn) -> Iterator[Step]:
    if turn.rounds == 0:
        yield from _words("I will run that.")
        yield CutOnce(Call("terminal", {"command": argument}))
    else:
        yield from _words("The command has ended.")


def _markdown(argument: str, turn: Turn) -> Iterator[Step]:
    yield from _chunks(
        "A code block:\n\n```text\n", "first line\n", "MEDIA:/tmp/not-a-file.txt\n", "```\n\nand **after** it."
    )


def _chunks(*texts: str) -> Iterator[Step]:
    for text in texts:
        yield Text(text)
        yield Pause(0.3)


def _number(text: str, otherwise: int) -> int:
    first = text.split(" ")[0]
    return int(first) if first.isascii() and first.isdigit() and len(first) < 8 else otherwise


def _checksum(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


SCRIPTS: dict[str, Script] = {
    "say": _say,
    "long": _long,
    "slow": _slow,
    "wait": _wait,
    "fail": _fail,
    "empty": _empty,
    "unicode": _unicode,
    "think": _think,
    "midthink": _midthink,
    "media": _media,
    "produce": _produce,
    "reply": _reply,
    "run": _run,
    "tools": _tools,
    "danger": _danger,
    "ask": _ask,
    "choose": _choose,
    "call": _call,
    "leak": _leak,
    "delegate": _delegate,
    "surrogate": _surrogate,
    "drop": _drop,
    "dropcall": _dropcall,
    "markdown": _markdown,
    "help": _help,
}

# These need no argument; any other name without one is an ordinary word.
_BARE = {"empty", "leak", "unicode", "think", "midthink", "tools", "surrogate", "drop", "markdown", "help"}

USAGE = (
    "say TEXT: a friendly reply that contains TEXT",
    "long N: exactly N characters, the last line is a checksum of the rest",
    "slow N: N words, ten a second",
    "wait N: nothing for N seconds, then a reply",
    "fail CODE: the HTTP error 401, 429 or 500",
    "empty: an empty reply",
    "unicode: emoji, Chinese, Japanese, Korean, Hebrew, Arabic",
    "think: hidden reasoning first",
    "midthink: hidden reasoning in the middle of a line",
    "media PATH: sends the file at PATH",
    'reply JSON: exactly the text in {"text": "…"}',
    "produce PATH: makes a file at PATH by a tool (a picture where it ends in .png) and sends it",
    "run COMMAND: runs COMMAND in the terminal tool",
    "tools [PATH|PATH]: two tool calls in one message",
    "danger PATH: asks for approval of rm -rf PATH",
    "ask QUESTION|A|B|C: asks you to choose; without choices, to write; more questions after &&",
    "choose QUESTION|A|B|C: asks you to choose some of them, where Hermes knows that",
    "call TOOL JSON: calls any tool with these arguments",
    "leak: what looks like a key in arguments, results, errors and a dangerous command",
    "delegate TEXT: hands TEXT to a subagent, which follows the same table",
    "surrogate: half of a surrogate pair",
    "drop: the connection breaks in the middle",
    "dropcall COMMAND: as run, and the connection breaks inside the tool call once",
    "markdown: a code block with a MEDIA: line inside",
    "anything else: is repeated to you",
)
