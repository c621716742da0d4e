// Generated from the protocol's metamodel; changes here are lost.
package pheby.protocol

import kotlinx.serialization.KSerializer
import kotlinx.serialization.Serializable
import kotlinx.serialization.encoding.Encoder
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive

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

internal fun clientSerializer(tag: String): KSerializer<out ClientFrame>? = when (tag) {
    Hello.TYPE -> Hello.serializer()
    Ping.TYPE -> Ping.serializer()
    ConversationList.TYPE -> ConversationList.serializer()
    ConversationGet.TYPE -> ConversationGet.serializer()
    ConversationHistory.TYPE -> ConversationHistory.serializer()
    ConversationCreate.TYPE -> ConversationCreate.serializer()
    ConversationRename.TYPE -> ConversationRename.serializer()
    ConversationDelete.TYPE -> ConversationDelete.serializer()
    MessageSend.TYPE -> MessageSend.serializer()
    MessageReceipt.TYPE -> MessageReceipt.serializer()
    MessageText.TYPE -> MessageText.serializer()
    RunCancel.TYPE -> RunCancel.serializer()
    ApprovalRespond.TYPE -> ApprovalRespond.serializer()
    ClarificationRespond.TYPE -> ClarificationRespond.serializer()
    AttachmentGet.TYPE -> AttachmentGet.serializer()
    ModelList.TYPE -> ModelList.serializer()
    ModelSelect.TYPE -> ModelSelect.serializer()
    ReasoningList.TYPE -> ReasoningList.serializer()
    ReasoningSelect.TYPE -> ReasoningSelect.serializer()
    else -> null
}

internal fun eventSerializer(tag: String): KSerializer<out Event>? = when (tag) {
    ServerDraining.TYPE -> ServerDraining.serializer()
    ConversationCreated.TYPE -> ConversationCreated.serializer()
    ConversationUpdated.TYPE -> ConversationUpdated.serializer()
    ConversationDeleted.TYPE -> ConversationDeleted.serializer()
    HistoryChanged.TYPE -> HistoryChanged.serializer()
    MessageCreated.TYPE -> MessageCreated.serializer()
    MessageUpdated.TYPE -> MessageUpdated.serializer()
    MessageCompleted.TYPE -> MessageCompleted.serializer()
    MessageDelta.TYPE -> MessageDelta.serializer()
    MessageReplaced.TYPE -> MessageReplaced.serializer()
    RunStarted.TYPE -> RunStarted.serializer()
    RunUpdated.TYPE -> RunUpdated.serializer()
    RunEnded.TYPE -> RunEnded.serializer()
    RunProgress.TYPE -> RunProgress.serializer()
    ToolStarted.TYPE -> ToolStarted.serializer()
    ToolCompleted.TYPE -> ToolCompleted.serializer()
    ApprovalRequested.TYPE -> ApprovalRequested.serializer()
    ApprovalUpdated.TYPE -> ApprovalUpdated.serializer()
    ApprovalResolved.TYPE -> ApprovalResolved.serializer()
    ClarificationRequested.TYPE -> ClarificationRequested.serializer()
    ClarificationResolved.TYPE -> ClarificationResolved.serializer()
    AttachmentCreated.TYPE -> AttachmentCreated.serializer()
    AttachmentExpired.TYPE -> AttachmentExpired.serializer()
    ModelChanged.TYPE -> ModelChanged.serializer()
    ReasoningChanged.TYPE -> ReasoningChanged.serializer()
    else -> null
}

internal fun serverSerializer(tag: String): KSerializer<out ServerFrame>? = when (tag) {
    Welcome.TYPE -> Welcome.serializer()
    Snapshot.TYPE -> Snapshot.serializer()
    SyncCompleted.TYPE -> SyncCompleted.serializer()
    Batch.TYPE -> Batch.serializer()
    Pong.TYPE -> Pong.serializer()
    ErrorFrame.TYPE -> ErrorFrame.serializer()
    ConversationListResult.TYPE -> ConversationListResult.serializer()
    ConversationGetResult.TYPE -> ConversationGetResult.serializer()
    ConversationHistoryResult.TYPE -> ConversationHistoryResult.serializer()
    ConversationCreateResult.TYPE -> ConversationCreateResult.serializer()
    ConversationRenameResult.TYPE -> ConversationRenameResult.serializer()
    ConversationDeleteResult.TYPE -> ConversationDeleteResult.serializer()
    MessageSendResult.TYPE -> MessageSendResult.serializer()
    MessageReceiptResult.TYPE -> MessageReceiptResult.serializer()
    MessageTextResult.TYPE -> MessageTextResult.serializer()
    RunCancelResult.TYPE -> RunCancelResult.serializer()
    ApprovalRespondResult.TYPE -> ApprovalRespondResult.serializer()
    ClarificationRespondResult.TYPE -> ClarificationRespondResult.serializer()
    AttachmentGetResult.TYPE -> AttachmentGetResult.serializer()
    ModelListResult.TYPE -> ModelListResult.serializer()
    ModelSelectResult.TYPE -> ModelSelectResult.serializer()
    ReasoningListResult.TYPE -> ReasoningListResult.serializer()
    ReasoningSelectResult.TYPE -> ReasoningSelectResult.serializer()
    else -> eventSerializer(tag)
}

internal fun writeClient(encoder: Encoder, frame: ClientFrame): Unit = when (frame) {
    is Hello -> encoder.encodeSerializableValue(Hello.serializer(), frame)
    is Ping -> encoder.encodeSerializableValue(Ping.serializer(), frame)
    is ConversationList -> encoder.encodeSerializableValue(ConversationList.serializer(), frame)
    is ConversationGet -> encoder.encodeSerializableValue(ConversationGet.serializer(), frame)
    is ConversationHistory -> encoder.encodeSerializableValue(ConversationHistory.serializer(), frame)
    is ConversationCreate -> encoder.encodeSerializableValue(ConversationCreate.serializer(), frame)
    is ConversationRename -> encoder.encodeSerializableValue(ConversationRename.serializer(), frame)
    is ConversationDelete -> encoder.encodeSerializableValue(ConversationDelete.serializer(), frame)
    is MessageSend -> encoder.encodeSerializableValue(MessageSend.serializer(), frame)
    is MessageReceipt -> encoder.encodeSerializableValue(MessageReceipt.serializer(), frame)
    is MessageText -> encoder.encodeSerializableValue(MessageText.serializer(), frame)
    is RunCancel -> encoder.encodeSerializableValue(RunCancel.serializer(), frame)
    is ApprovalRespond -> encoder.encodeSerializableValue(ApprovalRespond.serializer(), frame)
    is ClarificationRespond -> encoder.encodeSerializableValue(ClarificationRespond.serializer(), frame)
    is AttachmentGet -> encoder.encodeSerializableValue(AttachmentGet.serializer(), frame)
    is ModelList -> encoder.encodeSerializableValue(ModelList.serializer(), frame)
    is ModelSelect -> encoder.encodeSerializableValue(ModelSelect.serializer(), frame)
    is ReasoningList -> encoder.encodeSerializableValue(ReasoningList.serializer(), frame)
    is ReasoningSelect -> encoder.encodeSerializableValue(ReasoningSelect.serializer(), frame)
    is UnknownClientFrame -> encoder.encodeSerializableValue(JsonObject.serializer(), frame.raw)
}

internal fun writeServer(encoder: Encoder, frame: ServerFrame): Unit = when (frame) {
    is Welcome -> encoder.encodeSerializableValue(Welcome.serializer(), frame)
    is Snapshot -> encoder.encodeSerializableValue(Snapshot.serializer(), frame)
    is SyncCompleted -> encoder.encodeSerializableValue(SyncCompleted.serializer(), frame)
    is Batch -> encoder.encodeSerializableValue(Batch.serializer(), frame)
    is Pong -> encoder.encodeSerializableValue(Pong.serializer(), frame)
    is ErrorFrame -> encoder.encodeSerializableValue(ErrorFrame.serializer(), frame)
    is ServerDraining -> encoder.encodeSerializableValue(ServerDraining.serializer(), frame)
    is ConversationListResult -> encoder.encodeSerializableValue(ConversationListResult.serializer(), frame)
    is ConversationGetResult -> encoder.encodeSerializableValue(ConversationGetResult.serializer(), frame)
    is ConversationHistoryResult -> encoder.encodeSerializableValue(ConversationHistoryResult.serializer(), frame)
    is ConversationCreateResult -> encoder.encodeSerializableValue(ConversationCreateResult.serializer(), frame)
    is ConversationRenameResult -> encoder.encodeSerializableValue(ConversationRenameResult.serializer(), frame)
    is ConversationDeleteResult -> encoder.encodeSerializableValue(ConversationDeleteResult.serializer(), frame)
    is ConversationCreated -> encoder.encodeSerializableValue(ConversationCreated.serializer(), frame)
    is ConversationUpdated -> encoder.encodeSerializableValue(ConversationUpdated.serializer(), frame)
    is ConversationDeleted -> encoder.encodeSerializableValue(ConversationDeleted.serializer(), frame)
    is HistoryChanged -> encoder.encodeSerializableValue(HistoryChanged.serializer(), frame)
    is MessageSendResult -> encoder.encodeSerializableValue(MessageSendResult.serializer(), frame)
    is MessageReceiptResult -> encoder.encodeSerializableValue(MessageReceiptResult.serializer(), frame)
    is MessageTextResult -> encoder.encodeSerializableValue(MessageTextResult.serializer(), frame)
    is MessageCreated -> encoder.encodeSerializableValue(MessageCreated.serializer(), frame)
    is MessageUpdated -> encoder.encodeSerializableValue(MessageUpdated.serializer(), frame)
    is MessageCompleted -> encoder.encodeSerializableValue(MessageCompleted.serializer(), frame)
    is MessageDelta -> encoder.encodeSerializableValue(MessageDelta.serializer(), frame)
    is MessageReplaced -> encoder.encodeSerializableValue(MessageReplaced.serializer(), frame)
    is RunCancelResult -> encoder.encodeSerializableValue(RunCancelResult.serializer(), frame)
    is RunStarted -> encoder.encodeSerializableValue(RunStarted.serializer(), frame)
    is RunUpdated -> encoder.encodeSerializableValue(RunUpdated.serializer(), frame)
    is RunEnded -> encoder.encodeSerializableValue(RunEnded.serializer(), frame)
    is RunProgress -> encoder.encodeSerializableValue(RunProgress.serializer(), frame)
    is ToolStarted -> encoder.encodeSerializableValue(ToolStarted.serializer(), frame)
    is ToolCompleted -> encoder.encodeSerializableValue(ToolCompleted.serializer(), frame)
    is ApprovalRespondResult -> encoder.encodeSerializableValue(ApprovalRespondResult.serializer(), frame)
    is ApprovalRequested -> encoder.encodeSerializableValue(ApprovalRequested.serializer(), frame)
    is ApprovalUpdated -> encoder.encodeSerializableValue(ApprovalUpdated.serializer(), frame)
    is ApprovalResolved -> encoder.encodeSerializableValue(ApprovalResolved.serializer(), frame)
    is ClarificationRespondResult -> encoder.encodeSerializableValue(ClarificationRespondResult.serializer(), frame)
    is ClarificationRequested -> encoder.encodeSerializableValue(ClarificationRequested.serializer(), frame)
    is ClarificationResolved -> encoder.encodeSerializableValue(ClarificationResolved.serializer(), frame)
    is AttachmentGetResult -> encoder.encodeSerializableValue(AttachmentGetResult.serializer(), frame)
    is AttachmentCreated -> encoder.encodeSerializableValue(AttachmentCreated.serializer(), frame)
    is AttachmentExpired -> encoder.encodeSerializableValue(AttachmentExpired.serializer(), frame)
    is ModelListResult -> encoder.encodeSerializableValue(ModelListResult.serializer(), frame)
    is ModelSelectResult -> encoder.encodeSerializableValue(ModelSelectResult.serializer(), frame)
    is ReasoningListResult -> encoder.encodeSerializableValue(ReasoningListResult.serializer(), frame)
    is ReasoningSelectResult -> encoder.encodeSerializableValue(ReasoningSelectResult.serializer(), frame)
    is ModelChanged -> encoder.encodeSerializableValue(ModelChanged.serializer(), frame)
    is ReasoningChanged -> encoder.encodeSerializableValue(ReasoningChanged.serializer(), frame)
    is UnknownServerFrame -> encoder.encodeSerializableValue(JsonObject.serializer(), frame.raw)
}
