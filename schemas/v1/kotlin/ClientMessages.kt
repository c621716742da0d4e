// Generated from the protocol's metamodel; changes here are lost.
@file:OptIn(ExperimentalSerializationApi::class)
@file:UseSerializers(StrictString::class, StrictLong::class, StrictBoolean::class)
package pheby.protocol

import kotlinx.serialization.EncodeDefault
import kotlinx.serialization.ExperimentalSerializationApi
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.UseSerializers

/** The first frame of a client. Errors of its own: unsupported_version. */
@Serializable
public data class Hello(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The versions that the client speaks. */
    @SerialName("protocol_versions")
    public val protocolVersions: List<Long>,
    /** Who connects. */
    public val client: ClientInfo,
    /** What the client can do beyond the version. */
    public val capabilities: List<String> = emptyList(),
    /** The last event that the client has applied. */
    public val resume: Cursor? = null,
) : Request<Welcome> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "hello"
    }
}

/** Ask whether the other side is there. */
@Serializable
public data class Ping(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
) : Request<Pong> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "ping"
    }
}

/** Ask for a page of conversations, newest activity first. */
@Serializable
public data class ConversationList(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** At most so many; larger values are lowered to the limit in welcome. */
    @Serializable(with = CountSerializer::class)
    public val limit: Count? = null,
    /** From an earlier answer's next. */
    public val cursor: ListCursor? = null,
) : Request<ConversationListResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.list"
    }
}

/** Ask for one conversation. Errors of its own: not_found. */
@Serializable
public data class ConversationGet(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
) : Request<ConversationGetResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.get"
    }
}

/**
 * Ask for a page of history: before or after a position (exclusive), or the newest page. Errors of its own: not_found.
 */
@Serializable
public data class ConversationHistory(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** At most so many; larger values are lowered to the limit in welcome. */
    @Serializable(with = CountSerializer::class)
    public val limit: Count? = null,
    /** Position; only older items, exclusive. */
    @Serializable(with = PositionSerializer::class)
    public val before: Position? = null,
    /** Position; only newer items, exclusive. */
    @Serializable(with = PositionSerializer::class)
    public val after: Position? = null,
) : Request<ConversationHistoryResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.history"
    }
}

/**
 * Create a conversation. Repeating the same client id returns the same conversation. Errors of its own: not_found,
 * invalid_title.
 */
@Serializable
public data class ConversationCreate(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** Minted by the client; repeating it returns the same conversation. */
    @SerialName("client_conversation_id")
    public val clientConversationId: ClientConversationId,
    /** A title by hand; without one Hermes makes one. */
    public val title: String? = null,
) : Request<ConversationCreateResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.create"
    }
}

/** Give a conversation a title by hand. Errors of its own: not_found, invalid_title, title_conflict. */
@Serializable
public data class ConversationRename(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The new title. */
    public val title: String,
) : Request<ConversationRenameResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.rename"
    }
}

/** Delete a conversation for good; its active run is cancelled first. */
@Serializable
public data class ConversationDelete(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
) : Request<ConversationDeleteResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.delete"
    }
}

/**
 * Send the owner's words. Safe to repeat with the same client id and content: nothing runs twice. Errors of its own:
 * not_found, conflict, busy, too_large.
 */
@Serializable
public data class MessageSend(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** Minted by the client; repeating it with the same content runs nothing twice. */
    @SerialName("client_message_id")
    public val clientMessageId: ClientMessageId,
    /** The owner's words; at most max_text_chars code points. */
    public val text: String,
    /** What to do while a run is active. */
    @SerialName("if_busy")
    public val ifBusy: IfBusy = IfBusy.QUEUE,
) : Request<MessageSendResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.send"
    }
}

/** Ask what became of a send; `not_found` means it was never admitted. Errors of its own: not_found. */
@Serializable
public data class MessageReceipt(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The id that the sending client minted; how it knows its own message again. */
    @SerialName("client_message_id")
    public val clientMessageId: ClientMessageId,
) : Request<MessageReceiptResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.receipt"
    }
}

/** Ask for a message's whole text, in parts when it is long. Errors of its own: not_found. */
@Serializable
public data class MessageText(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The message. */
    @SerialName("message_id")
    public val messageId: MessageId,
    /** From an earlier answer's next. */
    public val cursor: ListCursor? = null,
) : Request<MessageTextResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.text"
    }
}

/**
 * Cancel a run, named by its id or by the send that caused it. An ended run is answered as it is. Errors of its own:
 * not_found.
 */
@Serializable
public data class RunCancel(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The run. */
    @SerialName("run_id")
    public val runId: RunId? = null,
    /** The id that the sending client minted; how it knows its own message again. */
    @SerialName("client_message_id")
    public val clientMessageId: ClientMessageId? = null,
    /** Whether sends that wait in the conversation are dropped, too. */
    @SerialName("drop_queued")
    public val dropQueued: Boolean = false,
) : Request<RunCancelResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "run.cancel"
    }
}

/**
 * Decide one approval. A choice that was not offered is refused and the approval stays open. Errors of its own:
 * expired, already_resolved, invalid_choice, not_answerable, too_large.
 */
@Serializable
public data class ApprovalRespond(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The approval. */
    @SerialName("approval_id")
    public val approvalId: ApprovalId,
    /** One of the approval's choices. */
    public val choice: String,
    /** Why, in the owner's words; the agent is told. */
    public val reason: String? = null,
) : Request<ApprovalRespondResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "approval.respond"
    }
}

/**
 * Answer a clarification. An answer that does not fit is refused and the question stays open. Errors of its own:
 * expired, already_resolved, invalid_choice, too_large.
 */
@Serializable
public data class ClarificationRespond(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The clarification. */
    @SerialName("clarification_id")
    public val clarificationId: ClarificationId,
    /** The choices that were picked; none for a free answer. */
    @SerialName("choice_ids")
    public val choiceIds: List<ChoiceId> = emptyList(),
    /** The text. */
    public val text: String? = null,
    /** Go on without an answer. */
    public val skip: Boolean = false,
) : Request<ClarificationRespondResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "clarification.respond"
    }
}

/** Ask for one attachment's description. Errors of its own: not_found. */
@Serializable
public data class AttachmentGet(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The attachment. */
    @SerialName("attachment_id")
    public val attachmentId: AttachmentId,
) : Request<AttachmentGetResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "attachment.get"
    }
}

/** Ask which models a conversation may use. Errors of its own: not_found. */
@Serializable
public data class ModelList(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
) : Request<ModelListResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "model.list"
    }
}

/**
 * Choose the model for the next runs of one conversation; refused with `busy` while a run is active. Errors of its own:
 * not_found, busy, invalid_model.
 */
@Serializable
public data class ModelSelect(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The provider. */
    public val provider: String,
    /** The model. */
    public val model: String,
) : Request<ModelSelectResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "model.select"
    }
}

/** Ask which reasoning efforts a conversation may use. Errors of its own: not_found. */
@Serializable
public data class ReasoningList(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
) : Request<ReasoningListResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "reasoning.list"
    }
}

/**
 * Choose the reasoning effort for the next runs of one conversation. Errors of its own: not_found, busy,
 * invalid_effort.
 */
@Serializable
public data class ReasoningSelect(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** One of the efforts on offer. */
    public val effort: String,
) : Request<ReasoningSelectResult> {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "reasoning.select"
    }
}
