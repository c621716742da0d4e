// Generated from the protocol's metamodel; changes here are lost.
package pheby.protocol

import kotlin.jvm.JvmInline
import kotlinx.serialization.Serializable

/** The client's, unique among its open requests. */
@Serializable(with = RequestIdSerializer::class)
@JvmInline
public value class RequestId(public val value: String) {
    override fun toString(): String = value
}

internal object RequestIdSerializer : TextLeaf<RequestId>(
    "RequestId", 1, 64, null, ::RequestId, RequestId::value,
)

/** Opaque, stable for ever; starts with conv_. */
@Serializable(with = ConversationIdSerializer::class)
@JvmInline
public value class ConversationId(public val value: String) {
    override fun toString(): String = value
}

internal object ConversationIdSerializer : TextLeaf<ConversationId>(
    "ConversationId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::ConversationId, ConversationId::value,
)

/** Opaque; starts with msg_. */
@Serializable(with = MessageIdSerializer::class)
@JvmInline
public value class MessageId(public val value: String) {
    override fun toString(): String = value
}

internal object MessageIdSerializer : TextLeaf<MessageId>(
    "MessageId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::MessageId, MessageId::value,
)

/** Opaque; starts with run_. */
@Serializable(with = RunIdSerializer::class)
@JvmInline
public value class RunId(public val value: String) {
    override fun toString(): String = value
}

internal object RunIdSerializer : TextLeaf<RunId>(
    "RunId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::RunId, RunId::value,
)

/** Opaque; starts with tool_. */
@Serializable(with = ToolCallIdSerializer::class)
@JvmInline
public value class ToolCallId(public val value: String) {
    override fun toString(): String = value
}

internal object ToolCallIdSerializer : TextLeaf<ToolCallId>(
    "ToolCallId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::ToolCallId, ToolCallId::value,
)

/** Opaque; starts with appr_. */
@Serializable(with = ApprovalIdSerializer::class)
@JvmInline
public value class ApprovalId(public val value: String) {
    override fun toString(): String = value
}

internal object ApprovalIdSerializer : TextLeaf<ApprovalId>(
    "ApprovalId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::ApprovalId, ApprovalId::value,
)

/** Opaque; starts with clar_. */
@Serializable(with = ClarificationIdSerializer::class)
@JvmInline
public value class ClarificationId(public val value: String) {
    override fun toString(): String = value
}

internal object ClarificationIdSerializer : TextLeaf<ClarificationId>(
    "ClarificationId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::ClarificationId, ClarificationId::value,
)

/** Opaque; starts with att_. */
@Serializable(with = AttachmentIdSerializer::class)
@JvmInline
public value class AttachmentId(public val value: String) {
    override fun toString(): String = value
}

internal object AttachmentIdSerializer : TextLeaf<AttachmentId>(
    "AttachmentId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::AttachmentId, AttachmentId::value,
)

/** Minted by the client, one per message that its user sends. */
@Serializable(with = ClientMessageIdSerializer::class)
@JvmInline
public value class ClientMessageId(public val value: String) {
    override fun toString(): String = value
}

internal object ClientMessageIdSerializer : TextLeaf<ClientMessageId>(
    "ClientMessageId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::ClientMessageId, ClientMessageId::value,
)

/** Minted by the client, one per conversation that it creates. */
@Serializable(with = ClientConversationIdSerializer::class)
@JvmInline
public value class ClientConversationId(public val value: String) {
    override fun toString(): String = value
}

internal object ClientConversationIdSerializer : TextLeaf<ClientConversationId>(
    "ClientConversationId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::ClientConversationId, ClientConversationId::value,
)

/** Per installation of the app; not part of backups. */
@Serializable(with = DeviceIdSerializer::class)
@JvmInline
public value class DeviceId(public val value: String) {
    override fun toString(): String = value
}

internal object DeviceIdSerializer : TextLeaf<DeviceId>(
    "DeviceId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::DeviceId, DeviceId::value,
)

/** One per connection, for logs on both sides. */
@Serializable(with = ConnectionIdSerializer::class)
@JvmInline
public value class ConnectionId(public val value: String) {
    override fun toString(): String = value
}

internal object ConnectionIdSerializer : TextLeaf<ConnectionId>(
    "ConnectionId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::ConnectionId, ConnectionId::value,
)

/** Names one unbroken event log; a cursor is worth nothing in another epoch. */
@Serializable(with = EpochSerializer::class)
@JvmInline
public value class Epoch(public val value: String) {
    override fun toString(): String = value
}

internal object EpochSerializer : TextLeaf<Epoch>(
    "Epoch", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::Epoch, Epoch::value,
)

/** Changes when finished history was changed, removed or re-ordered. */
@Serializable(with = HistoryIdSerializer::class)
@JvmInline
public value class HistoryId(public val value: String) {
    override fun toString(): String = value
}

internal object HistoryIdSerializer : TextLeaf<HistoryId>(
    "HistoryId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::HistoryId, HistoryId::value,
)

/** One choice of one clarification. */
@Serializable(with = ChoiceIdSerializer::class)
@JvmInline
public value class ChoiceId(public val value: String) {
    override fun toString(): String = value
}

internal object ChoiceIdSerializer : TextLeaf<ChoiceId>(
    "ChoiceId", 1, 64, Regex("[A-Za-z0-9_-]{1,64}"), ::ChoiceId, ChoiceId::value,
)

/** Opaque; from an earlier answer's next. */
@Serializable(with = ListCursorSerializer::class)
@JvmInline
public value class ListCursor(public val value: String) {
    override fun toString(): String = value
}

internal object ListCursorSerializer : TextLeaf<ListCursor>(
    "ListCursor", 1, 512, null, ::ListCursor, ListCursor::value,
)

/** Place in the event log; strictly increasing in an epoch, gaps are normal. */
public typealias Seq = Long

internal object SeqSerializer : IntegerLeaf("Seq", 0L, 9007199254740991L)

/** Display order within a conversation; gaps are normal. */
public typealias Position = Long

internal object PositionSerializer : IntegerLeaf("Position", 0L, 9007199254740991L)

/** Number of the last change that a streamed text includes; -1: none. */
public typealias Index = Long

internal object IndexSerializer : IntegerLeaf("Index", -1L, 9007199254740991L)

/** A number of things. */
public typealias Count = Long

internal object CountSerializer : IntegerLeaf("Count", 0L, 9007199254740991L)

/** A length of time in milliseconds. */
public typealias Millis = Long

internal object MillisSerializer : IntegerLeaf("Millis", 0L, 9007199254740991L)

/** Milliseconds since 1970-01-01 UTC. */
public typealias Time = Long

internal object TimeSerializer : IntegerLeaf("Time", 0L, 9007199254740991L)
