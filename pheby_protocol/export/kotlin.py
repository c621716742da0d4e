"""Kotlin for kotlinx.serialization, for an Android client: one file name and text each.

Strings with a rule (the ids) become value classes: an id in the wrong place does not compile, and at run time it is
a plain string. `@JvmInline` is part of the common standard library, so no JVM is needed for it. Integers with a rule
stay `Long`: they are compared, counted with and stored in columns, where a wrapper is only in the way; an alias names
their meaning, a serializer on the field keeps their bounds. Nothing is checked when a value is made, everything when
it is read or written, so a bad id from elsewhere is a failed request and no crash.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from .metamodel import FieldModel, Metamodel, StructModel, TypeModel

PACKAGE: Final = "pheby.protocol"

_WIDTH: Final = 120
_INT_MAX: Final = 2**31 - 1
_PLAIN: Final = {"string": "String", "integer": "Long", "boolean": "Boolean", "object": "JsonObject", "event": "Event"}
# These would hide what every Kotlin file imports by default.
_RENAMED: Final = {"Error": "ErrorFrame", "Result": "ResultFrame"}
_HARD_KEYWORDS: Final = frozenset(
    {"as", "break", "class", "continue", "do", "else", "false", "for", "fun", "if", "in", "interface", "is", "null"}
    | {"object", "package", "return", "super", "this", "throw", "true", "try", "typealias", "typeof", "val", "var"}
    | {"when", "while"}
)
# Names that an entry of an open enumeration may not take: they are used within it.
_TAKEN: Final = frozenset({"Unknown", "Companion", "String", "List"})
_KINDS: Final = {
    "result": "ResultFrame",
    "error": "ServerFrame",
    "sync": "ServerFrame",
    "logged_event": "LoggedEvent",
    "transient_event": "TransientEvent",
}
_INHERITED: Final = {"request": {"id"}, "result": {"id"}, "logged_event": {"seq", "time"}}


def kotlin_files(model: Metamodel, tables: Mapping[str, Any]) -> dict[str, str]:
    """Every Kotlin file by its name."""
    client = [message for message in model["messages"] if message["direction"] == "client_to_server"]
    server = [message for message in model["messages"] if message["direction"] == "server_to_client"]
    names = _Names(model)
    files = {
        "PhebyJson.kt": _PHEBY_JSON,
        "Serializers.kt": _SERIALIZERS + _leaves(model),
        "Scalars.kt": _scalars(model),
        "Enums.kt": _enums(model),
        "Objects.kt": _structs(model["objects"], names),
        "ClientMessages.kt": _structs(client, names),
        "ServerMessages.kt": _structs(server, names),
        "Frames.kt": _FRAMES + _unions(client, server),
        "Codes.kt": _codes(model),
        "Limits.kt": _limits(model),
        "States.kt": _STATES + "".join(_table(table) for table in tables["tables"]),
    }
    return {name: _HEADER + text.strip("\n") + "\n" for name, text in files.items()}


class _Names:
    """What a field's type needs to know of the types that have a name."""

    def __init__(self, model: Metamodel) -> None:
        self.integers = {str(scalar["name"]) for scalar in model["scalars"] if scalar["kind"] == "integer"}
        self.open = {str(enum["name"]): bool(enum["open"]) for enum in model["enums"]}
        self.tags = {message["type"]: _class_name(message["name"]) for message in model["messages"]}


# -- words


def _class_name(name: str) -> str:
    return _RENAMED.get(name, name)


def _pascal(wire: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[._-]", wire))


def _camel(wire: str) -> str:
    name = _pascal(wire)
    name = name[:1].lower() + name[1:]
    return f"`{name}`" if name in _HARD_KEYWORDS else name


def _constant(wire: str) -> str:
    return re.sub(r"[._-]", "_", wire).upper()


def _text(value: str) -> str:
    """A Kotlin string literal."""
    return json.dumps(value, ensure_ascii=False).replace("$", "\\$")


def _doc(text: str, indent: str = "") -> str:
    """A KDoc comment. Comments nest in Kotlin, so both marks are broken up."""
    safe = text.replace("*/", "*&#47;").replace("/*", "/&#42;")
    if len(indent) + len(safe) <= _WIDTH - len("/**  */"):
        return f"{indent}/** {safe} */\n"
    lines = textwrap.wrap(safe, _WIDTH, initial_indent=f"{indent} * ", subsequent_indent=f"{indent} * ")
    return "\n".join([f"{indent}/**", *lines, f"{indent} */"]) + "\n"


def _lines(lines: Iterable[str], indent: str = "    ") -> str:
    return "".join(f"{indent}{line}\n" for line in lines)


def _block(head: str, lines: Iterable[str]) -> str:
    return f"{head} {{\n{_lines(lines)}}}\n"


def _wired(doc: str, name: str, values: Iterable[str], indent: str = "") -> str:
    """An enumeration that is closed, its values by their names on the wire."""
    members = _lines((f"{_constant(value)}({_text(value)})," for value in values), indent + "    ")
    return f"{doc}{indent}public enum class {name}(override val wire: String) : Wired {{\n{members}{indent}}}\n"


# -- types


def _type(kind: TypeModel) -> str:
    match kind["kind"]:
        case "ref":
            return _class_name(kind["name"])
        case "array":
            return f"List<{_type(kind['items'])}>"
        case "map":
            return f"Map<String, {_type(kind['items'])}>"
        case plain:
            return _PLAIN[plain]


def _default(field: FieldModel, names: _Names) -> str:
    value = field.get("default")
    kind = field["type"]
    if value is None:
        return "null"
    if kind["kind"] == "ref" and kind["name"] in names.open:
        member = _pascal(str(value)) if names.open[kind["name"]] else _constant(str(value))
        return f"{kind['name']}.{member}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}L"
    if value == []:
        return "emptyList()"
    if isinstance(value, str) and kind["kind"] == "string":
        return _text(value)
    raise TypeError(f"no Kotlin for the default of {field['name']}")


def _scalars(model: Metamodel) -> str:
    parts = [_imports("kotlin.jvm.JvmInline", "kotlinx.serialization.Serializable")]
    for scalar in model["scalars"]:
        name, doc = str(scalar["name"]), _doc(str(scalar["description"]))
        if scalar["kind"] == "integer":
            parts.append(f"""
{doc}public typealias {name} = Long

internal object {name}Serializer : IntegerLeaf({_text(name)}, {scalar["minimum"]}L, {scalar["maximum"]}L)
""")
            continue
        pattern = f"Regex({_text(str(scalar['pattern']))})" if "pattern" in scalar else "null"
        parts.append(f"""
{doc}@Serializable(with = {name}Serializer::class)
@JvmInline
public value class {name}(public val value: String) {{
    override fun toString(): String = value
}}

internal object {name}Serializer : TextLeaf<{name}>(
    {_text(name)}, {scalar["min_length"]}, {scalar["max_length"]}, {pattern}, ::{name}, {name}::value,
)
""")
    return "".join(parts)


def _enums(model: Metamodel) -> str:
    parts = [_imports("kotlin.jvm.JvmInline", "kotlinx.serialization.Serializable"), _OPEN_ENUM]
    for enum in model["enums"]:
        name, values, doc = str(enum["name"]), cast("list[str]", enum["values"]), str(enum["description"])
        parts.append(_open_enum(name, values, doc) if enum["open"] else _closed_enum(name, values, doc))
    return "".join(parts)


def _open_enum(name: str, values: list[str], doc: str) -> str:
    members = {value: _pascal(value) for value in values}
    if _TAKEN & set(members.values()) or len(set(members.values())) != len(values):
        raise ValueError(f"{name} has a value that cannot be named")
    lines = [
        f"public data object {member} : {name} {{ override val wire: String get() = {_text(value)} }}"
        for value, member in members.items()
    ]
    cases = [f"{_text(value)} -> {member}" for value, member in members.items()]
    return f"""
{_doc(f"{doc} Open: a later version may send other values.")}@Serializable(with = {name}Serializer::class)
public sealed interface {name} : OpenEnum {{
{_lines(lines)}
    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : {name}

    public companion object {{
        /** The values of this version. */
        public val known: List<{name}> get() = listOf({", ".join(members.values())})

        public fun of(wire: String): {name} = when (wire) {{
{_lines(cases, " " * 12)}            else -> Unknown(wire)
        }}
    }}
}}

internal object {name}Serializer : OpenEnumLeaf<{name}>({_text(name)}, {name}.Companion::of)
"""


def _closed_enum(name: str, values: list[str], doc: str) -> str:
    head = f"{_doc(doc)}@Serializable(with = {name}Serializer::class)\n"
    return f"""
{_wired(head, name, values)}
internal object {name}Serializer : ClosedEnumLeaf<{name}>({_text(name)}, {name}.entries)
"""


def _leaves(model: Metamodel) -> str:
    """What the explanation of a failure looks up: every serializer of a single value."""
    names = [str(one["name"]) for one in [*model["scalars"], *model["enums"]]]
    entries = ["StrictString", "StrictLong", "StrictBoolean", *(f"{name}Serializer" for name in names)]
    return f"""
internal val leaves: Map<String, Leaf<*>> by lazy {{
    listOf(
{_lines((f"{entry}," for entry in entries), " " * 8)}    ).associateBy {{ it.descriptor.serialName }}
}}
"""


# -- objects and messages


def _structs(structs: Iterable[StructModel], names: _Names) -> str:
    head = (
        "@file:OptIn(ExperimentalSerializationApi::class)\n"
        "@file:UseSerializers(StrictString::class, StrictLong::class, StrictBoolean::class)\n"
    )
    text = "".join(_struct(struct, names) for struct in structs)
    used = [
        name
        for name in ("EncodeDefault", "SerialName", "Serializable", "json.JsonObject")
        if re.search(rf"\b{name.rpartition('.')[2]}\b", text)
    ]
    imports = _imports(
        *(f"kotlinx.serialization.{name}" for name in ("ExperimentalSerializationApi", "UseSerializers", *used))
    )
    return head + imports + text


def _struct(struct: StructModel, names: _Names) -> str:
    if not struct["fields"]:
        raise ValueError(f"{struct['name']}: a data class needs a field")
    inherited = _INHERITED.get(struct.get("kind", ""), set())
    fields = "".join(_field(field, names, field["name"] in inherited) for field in struct["fields"])
    head = f"\n{_struct_doc(struct)}@Serializable\npublic data class {_class_name(struct['name'])}(\n{fields})"
    if "type" not in struct:
        return head + "\n"
    if struct["kind"] == "request":
        parent = f"Request<{names.tags[struct['result']]}>"
    else:
        parent = _KINDS[struct["kind"]]
    return f"""{head} : {parent} {{
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {{
        public const val TYPE: String = {_text(struct["type"])}
    }}
}}
"""


def _struct_doc(struct: StructModel) -> str:
    doc = struct["description"]
    if struct.get("errors"):
        doc += f" Errors of its own: {', '.join(struct['errors'])}."
    return _doc(doc)


def _field(field: FieldModel, names: _Names, inherited: bool) -> str:
    kind, name = field["type"], _camel(field["name"])
    marks = ""
    if kind["kind"] == "ref" and kind["name"] in names.integers:
        marks += f"    @Serializable(with = {kind['name']}Serializer::class)\n"
    if "items" in kind and kind["items"].get("name") in names.integers:
        raise TypeError(f"{field['name']}: items of a plain Kotlin type have no serializer of their own")
    if name != field["name"]:
        marks += f"    @SerialName({_text(field['name'])})\n"
    written = _type(kind)
    if field["optional"]:
        written += ("" if "default" in field else "?") + f" = {_default(field, names)}"
    modifier = "override" if inherited else "public"
    return f"{_doc(field['description'], '    ')}{marks}    {modifier} val {name}: {written},\n"


def _unions(client: list[StructModel], server: list[StructModel]) -> str:
    events = [message for message in server if message["kind"] in ("logged_event", "transient_event")]
    others = [message for message in server if message not in events]
    return "".join(
        [
            _by_tag("clientSerializer", "ClientFrame", client, "null"),
            _by_tag("eventSerializer", "Event", events, "null"),
            _by_tag("serverSerializer", "ServerFrame", others, "eventSerializer(tag)"),
            _writer("writeClient", "ClientFrame", client),
            _writer("writeServer", "ServerFrame", server),
        ]
    )


def _by_tag(function: str, result: str, messages: list[StructModel], otherwise: str) -> str:
    cases = [f"{_class_name(one['name'])}.TYPE -> {_class_name(one['name'])}.serializer()" for one in messages]
    head = f"\ninternal fun {function}(tag: String): KSerializer<out {result}>? = when (tag)"
    return _block(head, [*cases, f"else -> {otherwise}"])


def _writer(function: str, parent: str, messages: list[StructModel]) -> str:
    names = [_class_name(one["name"]) for one in messages]
    cases = [f"is {name} -> encoder.encodeSerializableValue({name}.serializer(), frame)" for name in names]
    cases.append(f"is Unknown{parent} -> encoder.encodeSerializableValue(JsonObject.serializer(), frame.raw)")
    return _block(f"\ninternal fun {function}(encoder: Encoder, frame: {parent}): Unit = when (frame)", cases)


# -- tables of codes, limits, states


def _codes(model: Metamodel) -> str:
    head = "@file:UseSerializers(StrictString::class)\n" + _imports(
        "kotlin.jvm.JvmInline", "kotlinx.serialization.Serializable", "kotlinx.serialization.UseSerializers"
    )
    http_codes = [str(row["code"]) for row in model["http_errors"]]
    parts = [head, _CODES]
    parts.append(_info("ErrorCode", "ErrorInfo", {str(row["code"]): _error_row(row) for row in model["errors"]}))
    actions = list(dict.fromkeys(str(row["client"]) for row in model["close_codes"]))
    parts.append("\n" + _wired(_doc("What a client does after a close."), "AfterClose", actions))
    parts.append(_close_code(model))
    parts.append(_open_enum("HttpErrorCode", http_codes, "Stable code in the body of an HTTP error."))
    rows = {str(row["code"]): _http_row(row) for row in model["http_errors"]}
    parts.append(_info("HttpErrorCode", "HttpErrorInfo", rows))
    return "".join(parts)


def _error_row(row: dict[str, object]) -> str:
    retryable = "true" if row["retryable"] else "false"
    return f"ErrorInfo({_text(str(row['message']))}, {retryable}, {_text(str(row['client']))})"


def _http_row(row: dict[str, object]) -> str:
    statuses = ", ".join(str(status) for status in cast("list[int]", row["statuses"]))
    return f"HttpErrorInfo(listOf({statuses}), {_text(str(row['message']))})"


def _info(name: str, result: str, rows: dict[str, str]) -> str:
    cases = [f"{name}.{_pascal(code)} -> {row}" for code, row in rows.items()]
    return f"""
/** What the code's table says; null for a code of a later version. */
public val {name}.info: {result}?
    get() = when (this) {{
{_lines(cases, "        ")}        is {name}.Unknown -> null
    }}
"""


def _close_code(model: Metamodel) -> str:
    rows = model["close_codes"]
    cases = "".join(
        f"            {row['code']} -> CloseInfo({_text(str(row['name']))}, {_text(str(row['meaning']))}, "
        f"AfterClose.{_constant(str(row['client']))})\n"
        for row in rows
    )
    constants = "".join(
        f"{_doc(str(row['meaning']), '        ')}"
        f"        public val {_constant(str(row['name']))}: CloseCode = CloseCode({row['code']})\n"
        for row in rows
    )
    return f"""
/** A WebSocket close code. Any code that has no row is the network or a proxy: reconnect with back-off. */
@JvmInline
public value class CloseCode(public val code: Int) {{
    /** What the code's table says; null for any other code. */
    public val info: CloseInfo?
        get() = when (code) {{
{cases}            else -> null
        }}

    /** What to do now. */
    public val client: AfterClose get() = info?.client ?: AfterClose.RECONNECT

    public companion object {{
{constants}
        /** Those of the table. */
        public val known: List<CloseCode>
            get() = listOf({", ".join(_constant(str(row["name"])) for row in rows)})
    }}
}}
"""


def _limits(model: Metamodel) -> str:
    version = [
        _doc("The protocol version that these files speak.").strip(),
        f"public const val PROTOCOL_VERSION: Int = {model['protocol_version']}",
    ]
    limits = [
        f"public const val {name.upper()}: " + (f"Int = {value}" if value <= _INT_MAX else f"Long = {value}L")
        for name, value in model["limits"].items()
    ]
    doc = "Bounds and defaults of the protocol. What a server accepts is in the limits of its welcome."
    parts = [_imports(), _block(f"\n{_doc(doc)}public object ProtocolLimits", [*version, *limits])]
    for side, doc in (
        ("client", "What a client may offer in hello."),
        ("server", "What a server announces in welcome; a name that is absent is false."),
    ):
        lines = []
        for name, meaning in model["capabilities"][side].items():
            lines += [_doc(meaning).strip(), f"public const val {_constant(name)}: String = {_text(name)}"]
        parts.append(_block(f"\n{_doc(doc)}public object {_pascal(side)}Capabilities", lines))
    return "".join(parts)


def _table(table: Mapping[str, Any]) -> str:
    name = f"{_pascal(table['name'])}Table"
    rows = []
    for state, cells in table["cells"].items():
        targets: dict[str, list[str]] = {}
        for event, cell in cells.items():
            step = f"Step.To(State.{_constant(cell['next'])})" if "next" in cell else f"Step.{_pascal(cell['verdict'])}"
            targets.setdefault(step, []).append(f"Event.{_constant(event)}")
        rows.append(f"        State.{_constant(state)} -> when (event) {{\n")
        rows += [f"            {', '.join(events)} -> {step}\n" for step, events in targets.items()]
        rows.append("        }\n")
    final = ", ".join(f"State.{_constant(state)}" for state in table["final"])
    return f"""
public object {name} : StateTable<{name}.State, {name}.Event>() {{
{_wired("", "State", table["states"], "    ")}
{_wired("", "Event", table["events"], "    ")}
    override val name: String get() = {_text(table["name"])}
    override val states: List<State> get() = State.entries
    override val events: List<Event> get() = Event.entries
    override val initial: State get() = State.{_constant(table["initial"])}
    override val final: Set<State> get() = setOf({final})

    override fun step(state: State, event: Event): Step<State> = when (state) {{
{"".join(rows)}    }}
}}
"""


# -- what is the same whatever the messages are


def _imports(*names: str) -> str:
    return f"package {PACKAGE}\n" + ("\n" if names else "") + "".join(f"import {name}\n" for name in sorted(names))


_HEADER: Final = "// Generated from the protocol's metamodel; changes here are lost.\n"

_PHEBY_JSON: Final = (
    "@file:OptIn(ExperimentalSerializationApi::class)\n"
    + _imports(
        "kotlinx.serialization.ExperimentalSerializationApi",
        "kotlinx.serialization.KSerializer",
        "kotlinx.serialization.SerializationException",
        "kotlinx.serialization.descriptors.SerialDescriptor",
        "kotlinx.serialization.descriptors.StructureKind",
        "kotlinx.serialization.json.Json",
        "kotlinx.serialization.json.JsonArray",
        "kotlinx.serialization.json.JsonElement",
        "kotlinx.serialization.json.JsonNull",
        "kotlinx.serialization.json.JsonObject",
        "kotlinx.serialization.json.JsonPrimitive",
    )
    + r"""
/** What was wrong with a frame. */
public enum class Flaw {
    NOT_JSON,
    NOT_AN_OBJECT,
    DUPLICATE_KEY,
    NUMBER_OUT_OF_RANGE,
    TOO_DEEP,
    LONE_SURROGATE,
    NUL_CHARACTER,
    NO_TYPE,
    BAD_FIELD,
}

/**
 * A frame could not be read or written. [path] says where, as far as that is known; [requestId] is the id of the frame,
 * so that the request that waits for it can be failed. The text names fields and expectations, never a value.
 */
public class ProtocolException internal constructor(
    public val flaw: Flaw,
    public val path: String? = null,
    public val expected: String? = null,
    public val requestId: RequestId? = null,
) : Exception(
    listOfNotNull(flaw.name.lowercase(), path?.let { "at $it" }, expected?.let { "expected $it" }).joinToString(" "),
)

/** Text to frame and back. Throws [ProtocolException] and nothing else, whatever the text. */
public object PhebyJson {
    /** The configuration that every type of this package needs, for a client that stores objects as JSON. */
    public val json: Json = Json {
        ignoreUnknownKeys = true
        explicitNulls = false
        coerceInputValues = true
        encodeDefaults = false
    }

    /** Reads what a server sent. An unknown type gives an [UnknownServerFrame]. */
    public fun decodeServerFrame(text: String): ServerFrame = decode(parse(text), ServerFrameSerializer)

    /** Reads what a client sent. An unknown type gives an [UnknownClientFrame]. */
    public fun decodeClientFrame(text: String): ClientFrame = decode(parse(text), ClientFrameSerializer)

    /** Reads what either side sent, for tools; an unknown type is taken for a server's. */
    public fun decodeFrame(text: String): Frame {
        val frame = parse(text)
        val isRequest = textOrNull(frame["type"])?.let(::clientSerializer) != null
        return if (isRequest) decode(frame, ClientFrameSerializer) else decode(frame, ServerFrameSerializer)
    }

    /** Reads the body of an HTTP error. */
    public fun decodeHttpError(text: String): HttpError = decodeBody(parse(text), HttpError.serializer(), null)

    /** Writes a frame, its type always included. */
    public fun encode(frame: Frame): String {
        val element = try {
            when (frame) {
                is ClientFrame -> json.encodeToJsonElement(ClientFrameSerializer, frame)
                is ServerFrame -> json.encodeToJsonElement(ServerFrameSerializer, frame)
            }
        } catch (error: BadValue) {
            throw ProtocolException(Flaw.BAD_FIELD, expected = error.expected)
        } catch (error: SerializationException) {
            throw ProtocolException(Flaw.BAD_FIELD)
        }
        checkElement(element, 0)
        return element.toString()
    }

    private fun <T> decode(frame: JsonObject, serializer: TaggedSerializer<T>): T where T : Frame {
        val id = requestIdOrNull(frame["id"])
        if (textOrNull(frame["type"]).isNullOrEmpty()) throw ProtocolException(Flaw.NO_TYPE, "$.type", "a string", id)
        return decodeBody(frame, serializer, id)
    }

    private fun <T> decodeBody(frame: JsonObject, serializer: KSerializer<T>, id: RequestId?): T = try {
        json.decodeFromJsonElement(serializer, frame)
    } catch (error: IllegalArgumentException) { // and so every SerializationException
        val flaw = explain(serializer.descriptor, frame, "$")
        throw ProtocolException(Flaw.BAD_FIELD, flaw?.path ?: "$", flaw?.expected, id)
    }

    private fun parse(text: String): JsonObject {
        val members = scan(text)
        val element = try {
            json.parseToJsonElement(text)
        } catch (error: SerializationException) {
            throw ProtocolException(Flaw.NOT_JSON)
        }
        val kept = checkElement(element, 0)
        if (element !is JsonObject) throw ProtocolException(Flaw.NOT_AN_OBJECT)
        // A member that a later one of the same name has replaced is missing in the tree.
        if (kept != members) throw ProtocolException(Flaw.DUPLICATE_KEY)
        return element
    }
}

internal fun textOrNull(element: JsonElement?): String? =
    (element as? JsonPrimitive)?.takeIf { it.isString }?.content

internal fun requestIdOrNull(element: JsonElement?): RequestId? =
    (element as? JsonPrimitive)?.let(RequestIdSerializer::read)

/**
 * What the JSON reader lets pass and only the text shows: control characters in strings, too many levels, and more than
 * one end of an array, as in `[1]2]`. Returns the number of members of all objects, by the colons outside of strings.
 */
private fun scan(text: String): Int {
    var depth = 0
    var arrays = 0
    var members = 0
    var quoted = false
    var escaped = false
    for (char in text) {
        if (quoted) {
            if (char < ' ') throw ProtocolException(Flaw.NOT_JSON)
            if (escaped) escaped = false else if (char == '\\') escaped = true else if (char == '"') quoted = false
        } else {
            when (char) {
                '"' -> quoted = true
                ':' -> members++
                '[' -> { depth++; arrays++ }
                ']' -> { depth--; arrays-- }
                '{' -> depth++
                '}' -> depth--
            }
            if (depth > ProtocolLimits.MAX_DEPTH) throw ProtocolException(Flaw.TOO_DEEP)
        }
    }
    if (depth != 0 || arrays != 0) throw ProtocolException(Flaw.NOT_JSON)
    return members
}

private val numberPattern = Regex("-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?")

/** What no frame may hold, in either direction. Returns the number of members of all objects. */
private fun checkElement(element: JsonElement, depth: Int): Int {
    when (element) {
        is JsonObject -> {
            if (depth >= ProtocolLimits.MAX_DEPTH) throw ProtocolException(Flaw.TOO_DEEP)
            var members = element.size
            for ((name, value) in element) {
                checkText(name)
                members += checkElement(value, depth + 1)
            }
            return members
        }
        is JsonArray -> {
            if (depth >= ProtocolLimits.MAX_DEPTH) throw ProtocolException(Flaw.TOO_DEEP)
            return element.sumOf { checkElement(it, depth + 1) }
        }
        is JsonNull -> {}
        is JsonPrimitive -> if (element.isString) checkText(element.content) else checkLiteral(element.content)
    }
    return 0
}

private fun checkText(text: String) {
    for (index in text.indices) {
        val char = text[index]
        if (char == '\u0000') throw ProtocolException(Flaw.NUL_CHARACTER)
        val paired = when {
            char.isHighSurrogate() -> index + 1 < text.length && text[index + 1].isLowSurrogate()
            char.isLowSurrogate() -> index > 0 && text[index - 1].isHighSurrogate()
            else -> true
        }
        if (!paired) throw ProtocolException(Flaw.LONE_SURROGATE)
    }
}

/** Unquoted words: the reader takes any for a literal. */
private fun checkLiteral(word: String) {
    if (word == "true" || word == "false") return
    if (word == "NaN" || word == "Infinity" || word == "-Infinity") throw ProtocolException(Flaw.NUMBER_OUT_OF_RANGE)
    if (!numberPattern.matches(word)) throw ProtocolException(Flaw.NOT_JSON)
    val isInteger = word.all { it == '-' || it in '0'..'9' }
    val inRange = if (isInteger) integerOrNull(word) != null else word.toDouble().let { it - it == 0.0 }
    if (!inRange) throw ProtocolException(Flaw.NUMBER_OUT_OF_RANGE)
}

private class Found(val path: String, val expected: String)

/** Where the first flaw of a value is, when reading it has failed. */
private fun explain(type: SerialDescriptor, value: JsonElement, path: String): Found? {
    val leaf = leaves[type.serialName.removeSuffix("?")]
    if (leaf != null) return if (leaf.accepts(value)) null else Found(path, leaf.expected)
    val union = unions[type.serialName]
    return when {
        union != null -> explainTagged(union, value, path)
        type.kind == StructureKind.LIST ->
            if (value !is JsonArray) Found(path, "an array")
            else firstOf(value.indices) { explain(type.getElementDescriptor(0), value[it], "$path[$it]") }
        value !is JsonObject -> Found(path, "an object")
        type.kind == StructureKind.MAP ->
            firstOf(value.keys) { explain(type.getElementDescriptor(1), value.getValue(it), path) }
        type.kind == StructureKind.CLASS -> firstOf(0 until type.elementsCount) { index ->
            val name = type.getElementName(index)
            val field = value[name]
            when {
                field != null && field !is JsonNull -> explain(type.getElementDescriptor(index), field, "$path.$name")
                type.isElementOptional(index) -> null
                else -> Found("$path.$name", "a value")
            }
        }
        else -> null
    }
}

private fun explainTagged(union: TaggedSerializer<*>, value: JsonElement, path: String): Found? {
    if (value !is JsonObject) return Found(path, "an object")
    val serializer = try {
        union.serializerOf(value)
    } catch (error: BadValue) {
        return Found(path, error.expected)
    }
    return serializer?.let { explain(it.descriptor, value, path) }
}

private fun <T> firstOf(items: Iterable<T>, find: (T) -> Found?): Found? = items.firstNotNullOfOrNull(find)
"""
)

_SERIALIZERS: Final = (
    _imports(
        "kotlinx.serialization.KSerializer",
        "kotlinx.serialization.SerializationException",
        "kotlinx.serialization.descriptors.PrimitiveKind",
        "kotlinx.serialization.descriptors.PrimitiveSerialDescriptor",
        "kotlinx.serialization.descriptors.SerialDescriptor",
        "kotlinx.serialization.descriptors.buildClassSerialDescriptor",
        "kotlinx.serialization.encoding.Decoder",
        "kotlinx.serialization.encoding.Encoder",
        "kotlinx.serialization.json.JsonDecoder",
        "kotlinx.serialization.json.JsonElement",
        "kotlinx.serialization.json.JsonObject",
        "kotlinx.serialization.json.JsonPrimitive",
    )
    + r"""
internal class BadValue(val expected: String) : SerializationException("expected $expected")

/** A single value, read and written strictly: nothing is coerced. */
internal abstract class Leaf<T>(name: String, kind: PrimitiveKind, val expected: String) : KSerializer<T> {
    final override val descriptor: SerialDescriptor = PrimitiveSerialDescriptor("pheby.protocol.$name", kind)

    /** The value, or null where the JSON is not one. */
    abstract fun read(value: JsonPrimitive): T?

    /** Writes the value, or returns false where it breaks the rule. */
    protected abstract fun write(encoder: Encoder, value: T): Boolean

    fun accepts(element: JsonElement): Boolean = element is JsonPrimitive && read(element) != null

    final override fun deserialize(decoder: Decoder): T =
        ((decoder as JsonDecoder).decodeJsonElement() as? JsonPrimitive)?.let(::read) ?: throw BadValue(expected)

    final override fun serialize(encoder: Encoder, value: T) {
        if (!write(encoder, value)) throw BadValue(expected)
    }
}

internal object StrictString : Leaf<String>("String", PrimitiveKind.STRING, "a string") {
    override fun read(value: JsonPrimitive): String? = textOrNull(value)

    override fun write(encoder: Encoder, value: String): Boolean {
        encoder.encodeString(value)
        return true
    }
}

internal object StrictBoolean : Leaf<Boolean>("Boolean", PrimitiveKind.BOOLEAN, "true or false") {
    override fun read(value: JsonPrimitive): Boolean? = when {
        value.isString -> null
        value.content == "true" -> true
        value.content == "false" -> false
        else -> null
    }

    override fun write(encoder: Encoder, value: Boolean): Boolean {
        encoder.encodeBoolean(value)
        return true
    }
}

internal abstract class IntegerLeaf(name: String, private val minimum: Long, private val maximum: Long) :
    Leaf<Long>(name, PrimitiveKind.LONG, "an integer from $minimum to $maximum") {
    override fun read(value: JsonPrimitive): Long? =
        if (value.isString) null else integerOrNull(value.content)?.takeIf { it in minimum..maximum }

    override fun write(encoder: Encoder, value: Long): Boolean {
        if (value !in minimum..maximum) return false
        encoder.encodeLong(value)
        return true
    }
}

internal object StrictLong : IntegerLeaf("Long", -ProtocolLimits.MAX_INTEGER, ProtocolLimits.MAX_INTEGER)

internal abstract class TextLeaf<T>(
    name: String,
    private val minimum: Int,
    private val maximum: Int,
    private val pattern: Regex?,
    private val wrap: (String) -> T,
    private val unwrap: (T) -> String,
) : Leaf<T>(
    name,
    PrimitiveKind.STRING,
    if (pattern == null) "$minimum to $maximum characters" else "text that matches ${pattern.pattern}",
) {
    override fun read(value: JsonPrimitive): T? = textOrNull(value)?.takeIf(::fits)?.let(wrap)

    override fun write(encoder: Encoder, value: T): Boolean {
        val text = unwrap(value)
        if (!fits(text)) return false
        encoder.encodeString(text)
        return true
    }

    private fun fits(text: String): Boolean =
        codePoints(text) in minimum..maximum && (pattern == null || pattern.matches(text))
}

internal abstract class OpenEnumLeaf<T : OpenEnum>(name: String, private val of: (String) -> T) :
    Leaf<T>(name, PrimitiveKind.STRING, "a string") {
    override fun read(value: JsonPrimitive): T? = textOrNull(value)?.let(of)

    override fun write(encoder: Encoder, value: T): Boolean {
        encoder.encodeString(value.wire)
        return true
    }
}

internal abstract class ClosedEnumLeaf<T>(name: String, private val entries: List<T>) :
    Leaf<T>(name, PrimitiveKind.STRING, "one of " + entries.joinToString { it.wire }) where T : Enum<T>, T : Wired {
    override fun read(value: JsonPrimitive): T? = entries.find { it.wire == textOrNull(value) }

    override fun write(encoder: Encoder, value: T): Boolean {
        encoder.encodeString(value.wire)
        return true
    }
}

/**
 * Frames told apart by their type: an unknown one is kept as it came, a known one with a flaw fails. The type is a
 * property of every message, so it is written once, whichever serializer is used.
 */
internal abstract class TaggedSerializer<T : Frame>(name: String) : KSerializer<T> {
    final override val descriptor: SerialDescriptor = buildClassSerialDescriptor("pheby.protocol.$name")

    /** The serializer of a type, null for one of a later version; BadValue for one that has no place here. */
    protected abstract fun known(tag: String): KSerializer<out T>?

    protected abstract fun unknown(raw: JsonObject): T

    fun serializerOf(frame: JsonObject): KSerializer<out T>? {
        val tag = textOrNull(frame["type"])
        if (tag.isNullOrEmpty()) throw BadValue("a type")
        return known(tag)
    }

    final override fun deserialize(decoder: Decoder): T {
        decoder as JsonDecoder
        val frame = decoder.decodeJsonElement() as? JsonObject ?: throw BadValue("an object")
        val serializer = serializerOf(frame) ?: return unknown(frame)
        return decoder.json.decodeFromJsonElement(serializer, frame)
    }
}

private val integerPattern = Regex("-?(0|[1-9][0-9]{0,15})")

/** The integer that a JSON number says, if every reader keeps it exact; 1.0 and 1e3 are none. */
internal fun integerOrNull(literal: String): Long? {
    if (!integerPattern.matches(literal)) return null
    return literal.toLong().takeIf { it in -ProtocolLimits.MAX_INTEGER..ProtocolLimits.MAX_INTEGER }
}

internal fun codePoints(text: String): Int = text.count { !it.isLowSurrogate() }

internal val unions: Map<String, TaggedSerializer<*>> by lazy {
    listOf(ClientFrameSerializer, ServerFrameSerializer, EventSerializer).associateBy { it.descriptor.serialName }
}
"""
)

_OPEN_ENUM: Final = """
/** A value with a name on the wire. */
public interface Wired {
    public val wire: String
}

/** A set of named values that may grow: an unknown one keeps its text and goes back as it came. */
public interface OpenEnum : Wired
"""

_FRAMES: Final = (
    _imports(
        "kotlinx.serialization.KSerializer",
        "kotlinx.serialization.Serializable",
        "kotlinx.serialization.encoding.Encoder",
        "kotlinx.serialization.json.JsonObject",
        "kotlinx.serialization.json.JsonPrimitive",
    )
    + """
/** One WebSocket text frame. */
public sealed interface Frame {
    /** The tag that tells frames apart. */
    public val type: String
}

/** What a client sends. */
@Serializable(with = ClientFrameSerializer::class)
public sealed interface ClientFrame : Frame

/** What a server sends. */
@Serializable(with = ServerFrameSerializer::class)
public sealed interface ServerFrame : Frame

/** Answered by exactly one [R] or [ErrorFrame] that carries the same id. */
public sealed interface Request<out R : ResultFrame> : ClientFrame {
    public val id: RequestId
}

/** The answer to the request with this id. */
public sealed interface ResultFrame : ServerFrame {
    public val id: RequestId
}

/** What nobody asked for. */
@Serializable(with = EventSerializer::class)
public sealed interface Event : ServerFrame

/** An event with a place in the log: committed before it is sent, replayed after a reconnect. */
public sealed interface LoggedEvent : Event {
    public val seq: Seq
    public val time: Time
}

/** An event that is never replayed; what it changes is in the next logged event or snapshot. */
public sealed interface TransientEvent : Event

/** A client's frame of a type that this version does not know. */
@ConsistentCopyVisibility
public data class UnknownClientFrame internal constructor(public val raw: JsonObject) : ClientFrame {
    override val type: String get() = (raw["type"] as JsonPrimitive).content
    public val id: RequestId? get() = requestIdOrNull(raw["id"])

    override fun toString(): String = "UnknownClientFrame(type=$type)"
}

/** A server's frame of a type that this version does not know. Skip it; its [seq], if any, still moves the cursor. */
@ConsistentCopyVisibility
public data class UnknownServerFrame internal constructor(public val raw: JsonObject) : Event {
    override val type: String get() = (raw["type"] as JsonPrimitive).content
    public val id: RequestId? get() = requestIdOrNull(raw["id"])
    public val seq: Seq? get() = (raw["seq"] as? JsonPrimitive)?.let { SeqSerializer.read(it) }

    override fun toString(): String = "UnknownServerFrame(type=$type)"
}

internal object ClientFrameSerializer : TaggedSerializer<ClientFrame>("ClientFrame") {
    override fun known(tag: String): KSerializer<out ClientFrame>? =
        clientSerializer(tag) ?: if (serverSerializer(tag) == null) null else throw BadValue("a client's frame")

    override fun unknown(raw: JsonObject): ClientFrame = UnknownClientFrame(raw)
    override fun serialize(encoder: Encoder, value: ClientFrame): Unit = writeClient(encoder, value)
}

internal object ServerFrameSerializer : TaggedSerializer<ServerFrame>("ServerFrame") {
    override fun known(tag: String): KSerializer<out ServerFrame>? =
        serverSerializer(tag) ?: if (clientSerializer(tag) == null) null else throw BadValue("a server's frame")

    override fun unknown(raw: JsonObject): ServerFrame = UnknownServerFrame(raw)
    override fun serialize(encoder: Encoder, value: ServerFrame): Unit = writeServer(encoder, value)
}

internal object EventSerializer : TaggedSerializer<Event>("Event") {
    override fun known(tag: String): KSerializer<out Event>? {
        val isOther = eventSerializer(tag) == null && (serverSerializer(tag) != null || clientSerializer(tag) != null)
        return if (isOther) throw BadValue("an event") else eventSerializer(tag)
    }

    override fun unknown(raw: JsonObject): Event = UnknownServerFrame(raw)
    override fun serialize(encoder: Encoder, value: Event): Unit = writeServer(encoder, value)
}
"""
)

_CODES: Final = """
/** One row of the error table: a text for people, whether repeating can help, what the client does. */
public data class ErrorInfo(public val message: String, public val retryable: Boolean, public val client: String)

/** One row of the close table: name, meaning, and what the client does. */
public data class CloseInfo(public val name: String, public val meaning: String, public val client: AfterClose)

/** One row of the HTTP table: the statuses that a code comes with, and a text for people. */
public data class HttpErrorInfo(public val statuses: List<Int>, public val message: String)

/** The body of an HTTP error. */
@Serializable
public data class HttpError(public val code: HttpErrorCode, public val message: String)
"""

_STATES: Final = (
    _imports()
    + """
/** What an event does to a state. */
public sealed interface Step<out S> {
    /** The next state. */
    public data class To<out S>(public val state: S) : Step<S>

    /** The event is late or doubled; the state stays. */
    public data object Ignore : Step<Nothing>

    /** The event may not happen here. */
    public data object Refuse : Step<Nothing>
}

/** One state machine: every state has a step for every event. */
public abstract class StateTable<S, E> internal constructor() where S : Enum<S>, S : Wired, E : Enum<E>, E : Wired {
    public abstract val name: String
    public abstract val states: List<S>
    public abstract val events: List<E>
    public abstract val initial: S

    /** States that no event leaves. */
    public abstract val final: Set<S>

    public abstract fun step(state: S, event: E): Step<S>

    /** The state after the event: the same one when the event is ignored, null when it is refused. */
    public fun next(state: S, event: E): S? = when (val step = step(state, event)) {
        is Step.To -> step.state
        Step.Ignore -> state
        Step.Refuse -> null
    }

    /** The state of that name on the wire, null for an unknown one. */
    public fun stateOf(wire: String): S? = states.find { it.wire == wire }
}
"""
)
