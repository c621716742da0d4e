"""The reference as Markdown pages: every message, object, code, limit and state table, straight from the model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from pheby_protocol.machine import Verdict
from pheby_protocol.registry import COMMON_ERRORS
from pheby_protocol.states import TABLES

from .examples import Json, example, variants
from .metamodel import FieldModel, Metamodel, StructModel, TypeModel
from .subjects import SUBJECTS, anchor, by_subject
from .tables import mermaid

_GENERATED: Final = "<!-- Generated from the classes in pheby_protocol; do not edit. -->\n\n"
_WIDTH: Final = 110
_KINDS: Final = {
    "request": "request",
    "result": "result",
    "error": "error",
    "logged_event": "event, logged",
    "transient_event": "event, transient",
    "sync": "synchronisation",
}
_DIRECTIONS: Final = {"client_to_server": "client to server", "server_to_client": "server to client"}
_LIMITS: Final = {
    "max_integer": "Largest integer, also as a negative one; what every JSON reader keeps exact.",
    "max_depth": "Objects and arrays within each other in one frame.",
    "max_title_chars": "Code points of a title.",
    "max_text_chars": "Code points of one text that a client may send; that much always fits a server's frame.",
    "max_frame_bytes": "Bytes of a client's frame.",
    "max_server_frame_bytes": "Bytes of a server's frame.",
    "max_list_limit": "Conversations in a page.",
    "default_list_limit": "Conversations in a page when the request names no limit.",
    "max_history_limit": "Items in a page of history.",
    "default_history_limit": "Items in a page of history when the request names no limit.",
    "max_pending_requests": "Requests without an answer on one connection.",
    "heartbeat_ms": "Interval of the server's pings, in milliseconds.",
    "hello_deadline_ms": "How long a new connection may take for its hello, in milliseconds.",
    "max_undecodable_frames": "Undecodable frames in a row, after which the connection is closed.",
    "max_close_reason_bytes": "Bytes of the reason in a close frame.",
}
_AFTER_CLOSE: Final = {
    "reconnect": "reconnect with back-off, resume",
    "reconnect_after_delay": "reconnect after the announced delay, resume",
    "report": "a bug of the client: report it",
    "ask_secret": "ask for the secret",
    "update": "ask the user to update",
    "stop_until_opened": "stop until the app is opened again",
}


def reference_pages(model: Metamodel) -> dict[str, str]:
    """File name to Markdown."""
    writer = _Writer(model)
    pages = {f"{name}.md": writer.subject(name, messages) for name, messages in by_subject(model).items()}
    pages |= {
        "objects.md": writer.objects(),
        "enumerations.md": writer.enumerations(),
        "identifiers-and-numbers.md": writer.scalars(),
        "errors.md": writer.errors(),
        "close-codes.md": writer.close_codes(),
        "http-errors.md": writer.http_errors(),
        "limits.md": writer.limits(),
        "capabilities.md": writer.capabilities(),
        "states.md": writer.states(),
    }
    return {"index.md": writer.index(), **pages}


class _Writer:
    def __init__(self, model: Metamodel) -> None:
        self._model = model
        self._pages = {str(scalar["name"]): "identifiers-and-numbers.md" for scalar in model["scalars"]}
        self._pages |= {str(enum["name"]): "enumerations.md" for enum in model["enums"]}
        self._pages |= {struct["name"]: "objects.md" for struct in model["objects"]}
        self._scalars = {str(scalar["name"]): scalar for scalar in model["scalars"]}
        self._places = {
            message["type"]: f"{name}.md#{anchor(message['type'])}"
            for name, messages in by_subject(model).items()
            for message in messages
        }

    # -- pages

    def index(self) -> str:
        rows = [
            (self._message_link(message["type"]), _KINDS[message["kind"]], message["description"])
            for message in self._model["messages"]
        ]
        others = (
            ("objects.md", "Objects"),
            ("enumerations.md", "Enumerations"),
            ("identifiers-and-numbers.md", "Identifiers and numbers"),
            ("errors.md", "Error codes"),
            ("close-codes.md", "Close codes"),
            ("http-errors.md", "HTTP errors"),
            ("limits.md", "Limits"),
            ("capabilities.md", "Capabilities"),
            ("states.md", "State tables"),
        )
        return _page(
            f"Reference of protocol version {self._model['protocol_version']}",
            "What each field and code is. How they play together is told in [the pages before it](../index.md).",
            "## By subject",
            "\n".join(f"- [{title}]({name}.md)" for name, title in SUBJECTS.items()),
            "\n".join(f"- [{title}]({file})" for file, title in others),
            "## Every message",
            _table(("type", "kind", "what it is"), rows),
        )

    def subject(self, name: str, messages: list[StructModel]) -> str:
        return _page(SUBJECTS[name], *(self._message(message) for message in messages))

    def objects(self) -> str:
        return _page(
            "Objects", "What messages carry, in alphabetical order.", *map(self._object, self._model["objects"])
        )

    def enumerations(self) -> str:
        sections = []
        for enum in self._model["enums"]:
            values = enum["values"]
            assert isinstance(values, list)
            kind = (
                "Open: a receiver keeps values that it does not know."
                if enum["open"]
                else "Closed: others are refused."
            )
            sections.append(f"## {enum['name']}\n\n{enum['description']} {kind}\n\n{' · '.join(map(_code, values))}")
        return _page(
            "Enumerations", "Strings. Values are compared exactly; new ones may come in any release.", *sections
        )

    def scalars(self) -> str:
        rows = [
            (f'<a id="{anchor(name)}"></a>{name}', str(scalar["kind"]), self._bounds(name), str(scalar["description"]))
            for name, scalar in self._scalars.items()
        ]
        return _page(
            "Identifiers and numbers",
            "Lengths are in code points. A pattern holds for the whole text. Every integer is exact.",
            _table(("name", "JSON type", "allowed", "meaning"), rows),
        )

    def errors(self) -> str:
        asked: dict[str, list[str]] = {}
        for message in self._model["messages"]:
            for code in message.get("errors", []):
                asked.setdefault(code, []).append(self._message_link(message["type"]))
        common = {code.value for code in COMMON_ERRORS}
        rows = []
        for row in self._model["errors"]:
            code = str(row["code"])
            of = "any request" if code in common else ", ".join(asked.get(code, [])) or "a type that is not known"
            rows.append((_code(code), str(row["message"]), _yes(row["retryable"]), str(row["client"]), of))
        return _page(
            "Error codes",
            f"Of the {self._message_link('error')} frame. Later versions may add codes: treat an unknown one by its "
            "`retryable`.",
            _table(("code", "default text", "retryable", "what a client does", "answers"), rows),
        )

    def close_codes(self) -> str:
        rows = [
            (_code(row["code"]), str(row["meaning"]), _AFTER_CLOSE[str(row["client"])])
            for row in self._model["close_codes"]
        ]
        rows.append(("any other", "The network or a proxy.", _AFTER_CLOSE["reconnect"]))
        return _page("Close codes", _table(("code", "meaning", "what a client does"), rows))

    def http_errors(self) -> str:
        rows = []
        for row in self._model["http_errors"]:
            statuses = row["statuses"]
            assert isinstance(statuses, list)
            rows.append((", ".join(map(str, statuses)), _code(row["code"]), str(row["message"])))
        first = self._model["http_errors"][0]
        return _page(
            "HTTP errors",
            "The body of every HTTP error is one JSON object:",
            _json({"code": first["code"], "message": first["message"]}),
            _table(("status", "code", "default text"), rows),
        )

    def limits(self) -> str:
        rows = [(_code(name), f"{value:,}", _LIMITS[name]) for name, value in self._model["limits"].items()]
        return _page(
            "Limits",
            f"Defaults of this version. What holds on a connection is said in {self._message_link('welcome')}.",
            _table(("name", "value", "meaning"), rows),
        )

    def capabilities(self) -> str:
        sides = self._model["capabilities"]
        titles = (("server", "Announced by the server in `welcome`"), ("client", "Offered by the client in `hello`"))
        sections = [
            f"## {title}\n\n" + _table(("name", "meaning"), [(_code(name), text) for name, text in sides[side].items()])
            for side, title in titles
        ]
        return _page("Capabilities", "A name that is absent is false; an unknown one is ignored.", *sections)

    def states(self) -> str:
        sections = []
        for table in TABLES:
            rows = []
            for state in table.states:
                cells = [table.cells[state, event] for event in table.events]
                written = [f"*{cell.value}*" if isinstance(cell, Verdict) else _code(cell.value) for cell in cells]
                rows.append((_code(state.value), *written))
            diagram = f"```mermaid\n{mermaid(table)}```"
            heading = (("state", *(event.value for event in table.events)), rows)
            sections.append(f"## {table.name}\n\n{_prose(table.states)}\n\n{diagram}\n\n{_table(*heading)}")
        return _page(
            "State tables",
            "For each state and event the next state, or *ignore* (late or doubled: nothing changes), or *refuse* (the "
            "event may not happen there). The diagrams leave these two out.",
            *sections,
        )

    # -- sections

    def _message(self, message: StructModel) -> str:
        facts = [_KINDS[message["kind"]], _DIRECTIONS[message["direction"]], f"since version {message['since']}"]
        parts = [f"## {message['type']}", message["description"], f"*{', '.join(facts)}*"]
        if "result" in message:
            codes = [f"[`{code}`](errors.md)" for code in message["errors"]]
            parts.append(
                f"Answered by {self._message_link(message['result'])}, or by an {self._message_link('error')}: "
                + ", ".join([*codes, "[what any request may be answered with](errors.md)"])
                + "."
            )
        parts.append(self._fields(message) if message["fields"] else "No fields.")
        parts.append(_json(example(self._model, message["name"])))
        return "\n\n".join(parts)

    def _object(self, struct: StructModel) -> str:
        name = struct["name"]
        parts = [f"## {name}", struct["description"], self._fields(struct), _json(example(self._model, name))]
        shown = [(kind, _json(example(self._model, name, variant=kind))) for kind in variants(name)]
        if shown:
            inner = "\n\n".join(f"{kind}:\n\n{text}" for kind, text in shown)
            parts.append(f"<details><summary>Others</summary>\n\n{inner}\n\n</details>")
        return "\n\n".join(parts)

    def _fields(self, struct: StructModel) -> str:
        rows = [
            (
                _code(field["name"]),
                self._type(field["type"]),
                self._allowed(field["type"]),
                _presence(field),
                field["description"],
            )
            for field in struct["fields"]
        ]
        return _table(("field", "type", "allowed", "", "meaning"), rows)

    def _type(self, kind: TypeModel) -> str:
        match kind["kind"]:
            case "ref":
                name = kind["name"]
                return f"[{name}]({self._pages[name]}#{anchor(name)})"
            case "array":
                return f"array of {self._type(kind['items'])}"
            case "map":
                return f"map to {self._type(kind['items'])}"
            case "event":
                return "any event"
            case plain:
                return plain

    def _allowed(self, kind: TypeModel) -> str:
        if kind["kind"] == "array":
            return self._allowed(kind["items"])
        return self._bounds(kind["name"]) if kind.get("name") in self._scalars else ""

    def _bounds(self, name: str) -> str:
        scalar = self._scalars[name]
        if scalar["kind"] == "integer":
            greatest = scalar["maximum"]
            limit = "2^53 - 1" if greatest == self._model["limits"]["max_integer"] else str(greatest)
            return f"{scalar['minimum']} to {limit}"
        length = f"{scalar['min_length']} to {scalar['max_length']} characters"
        return f"`{scalar['pattern']}`" if "pattern" in scalar else length

    def _message_link(self, tag: str) -> str:
        return f"[`{tag}`]({self._places[tag]})"


def _page(title: str, *parts: str) -> str:
    return _GENERATED + "\n\n".join([f"# {title}", *parts]) + "\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _json(value: Json) -> str:
    return f"```json\n{_laid_out(value)}\n```"


def _laid_out(value: object, indent: str = "", room: int = _WIDTH) -> str:
    """JSON that breaks only where a line would grow too long."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= room or not isinstance(value, dict | list) or not value:
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        names = [f"{json.dumps(name, ensure_ascii=False)}: " for name in value]
        parts = [
            name + _laid_out(item, inner, _WIDTH - len(inner) - len(name))
            for name, item in zip(names, value.values(), strict=True)
        ]
    else:
        parts = [_laid_out(item, inner, _WIDTH - len(inner)) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}{closing}"


def _code(value: object) -> str:
    return f"`{value}`"


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _presence(field: FieldModel) -> str:
    if not field["optional"]:
        return "required"
    if "default" not in field:
        return "optional"
    return f"default {_code(json.dumps(field['default']))}"


def _prose(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split())
