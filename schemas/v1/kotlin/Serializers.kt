// Generated from the protocol's metamodel; changes here are lost.
package pheby.protocol

import kotlinx.serialization.KSerializer
import kotlinx.serialization.SerializationException
import kotlinx.serialization.descriptors.PrimitiveKind
import kotlinx.serialization.descriptors.PrimitiveSerialDescriptor
import kotlinx.serialization.descriptors.SerialDescriptor
import kotlinx.serialization.descriptors.buildClassSerialDescriptor
import kotlinx.serialization.encoding.Decoder
import kotlinx.serialization.encoding.Encoder
import kotlinx.serialization.json.JsonDecoder
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive

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

internal val leaves: Map<String, Leaf<*>> by lazy {
    listOf(
        StrictString,
        StrictLong,
        StrictBoolean,
        RequestIdSerializer,
        ConversationIdSerializer,
        MessageIdSerializer,
        RunIdSerializer,
        ToolCallIdSerializer,
        ApprovalIdSerializer,
        ClarificationIdSerializer,
        AttachmentIdSerializer,
        ClientMessageIdSerializer,
        ClientConversationIdSerializer,
        DeviceIdSerializer,
        ConnectionIdSerializer,
        EpochSerializer,
        HistoryIdSerializer,
        ChoiceIdSerializer,
        ListCursorSerializer,
        SeqSerializer,
        PositionSerializer,
        IndexSerializer,
        CountSerializer,
        MillisSerializer,
        TimeSerializer,
        AccessModeSerializer,
        ApprovalKindSerializer,
        AttachmentStateSerializer,
        DecisionSourceSerializer,
        DispositionSerializer,
        ErrorCodeSerializer,
        IfBusySerializer,
        MessageRoleSerializer,
        MessageStateSerializer,
        OriginSerializer,
        PromptStatusSerializer,
        ReceiptStateSerializer,
        RunErrorCodeSerializer,
        RunReasonSerializer,
        RunStateSerializer,
        TitleSourceSerializer,
        ToolCallStateSerializer,
        ToolErrorCodeSerializer,
    ).associateBy { it.descriptor.serialName }
}
