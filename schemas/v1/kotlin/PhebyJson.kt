// Generated from the protocol's metamodel; changes here are lost.
@file:OptIn(ExperimentalSerializationApi::class)
package pheby.protocol

import kotlinx.serialization.ExperimentalSerializationApi
import kotlinx.serialization.KSerializer
import kotlinx.serialization.SerializationException
import kotlinx.serialization.descriptors.SerialDescriptor
import kotlinx.serialization.descriptors.StructureKind
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive

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
