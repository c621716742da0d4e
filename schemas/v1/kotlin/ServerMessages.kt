// Generated from the protocol's metamodel; changes here are lost.
@file:OptIn(ExperimentalSerializationApi::class)
@file:UseSerializers(StrictString::class, StrictLong::class, StrictBoolean::class)
package pheby.protocol

import kotlinx.serialization.EncodeDefault
import kotlinx.serialization.ExperimentalSerializationApi
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.UseSerializers

/** The answer to hello. With `resumed` the missed events follow, else a snapshot; then `sync.completed`. */
@Serializable
public data class Welcome(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The version that is spoken from now on. */
    @SerialName("protocol_version")
    public val protocolVersion: Long,
    /** Names this connection in logs. */
    @SerialName("connection_id")
    public val connectionId: ConnectionId,
    /** Who answers. */
    public val server: ServerInfo,
    /** The server's clock. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("server_time")
    public val serverTime: Time,
    /** What the server can do; a name that is absent is false. */
    public val capabilities: Map<String, Boolean>,
    /** What the client's secret allows. */
    @SerialName("access_mode")
    public val accessMode: AccessMode,
    /** What the server accepts and sends. */
    public val limits: Limits,
    /** The server pings at this interval and drops a peer that is silent for half as long again. */
    @Serializable(with = MillisSerializer::class)
    @SerialName("heartbeat_ms")
    public val heartbeatMs: Millis,
    /** Names the exact set of messages and fields that the server was built with. */
    @SerialName("schema_digest")
    public val schemaDigest: String,
    /** Names the event log. */
    public val epoch: Epoch,
    /** The log's head. */
    @Serializable(with = SeqSerializer::class)
    public val seq: Seq,
    /** Whether the missed events follow; else a snapshot does. */
    public val resumed: Boolean,
    /** What was first sent before is not known here: never resend it without asking the owner. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("receipts_since")
    public val receiptsSince: Time,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "welcome"
    }
}

/**
 * One part of the server's state; the whole applies at the part with `last`. `runs`, `messages`, `tool_calls`,
 * `approvals`, `clarifications` list everything open: what a client has open and does not find is open no longer.
 * `conversations` is the first page and each one that another object names.
 */
@Serializable
public data class Snapshot(
    /** Number of this part, from 0. */
    @Serializable(with = CountSerializer::class)
    public val part: Count,
    /** Whether this is the last part; the whole applies then. */
    public val last: Boolean,
    /** What the snapshot includes of the log. */
    @Serializable(with = SeqSerializer::class)
    public val seq: Seq,
    /** The list's first page, and each conversation that another object names. */
    public val conversations: List<Conversation>,
    /** Cursor of the list's second page. */
    @SerialName("conversations_next")
    public val conversationsNext: ListCursor? = null,
    /** All runs that have not ended. */
    public val runs: List<Run>,
    /** All streaming and queued messages. */
    public val messages: List<Message>,
    /** All running tool calls. */
    @SerialName("tool_calls")
    public val toolCalls: List<ToolCall>,
    /** All open approvals. */
    public val approvals: List<Approval>,
    /** All open clarifications. */
    public val clarifications: List<Clarification>,
) : ServerFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "snapshot"
    }
}

/** The client is in step; live events follow. `seq` is its cursor now. */
@Serializable
public data class SyncCompleted(
    /** The client's cursor from now on. */
    @Serializable(with = SeqSerializer::class)
    public val seq: Seq,
) : ServerFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "sync.completed"
    }
}

/** Several events in one frame, in order; only for clients that offered the capability. */
@Serializable
public data class Batch(
    /** Events, in order. */
    public val events: List<Event>,
) : ServerFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "batch"
    }
}

/** The answer to ping. */
@Serializable
public data class Pong(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The server's clock. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("server_time")
    public val serverTime: Time,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "pong"
    }
}

/** A request failed, or (without id) a frame could not be attributed, or a close is announced. */
@Serializable
public data class ErrorFrame(
    /** The request that failed; absent when the frame could not be attributed, or for a close. */
    public val id: RequestId? = null,
    /** Stable code; decide by it, never by the text. */
    public val code: ErrorCode,
    /** A sentence for people. */
    public val message: String,
    /** Whether repeating can help. */
    public val retryable: Boolean,
    /** Repeat after this delay. */
    @Serializable(with = MillisSerializer::class)
    @SerialName("retry_after_ms")
    public val retryAfterMs: Millis? = null,
    /** What a client needs to act on it. */
    public val details: ErrorDetails? = null,
) : ServerFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "error"
    }
}

/** The server is about to go; reconnect after the delay. */
@Serializable
public data class ServerDraining(
    /** Reconnect after this delay. */
    @Serializable(with = MillisSerializer::class)
    @SerialName("reconnect_after_ms")
    public val reconnectAfterMs: Millis,
) : TransientEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "server.draining"
    }
}

/** A page of conversations; `next` is there while there are more. */
@Serializable
public data class ConversationListResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** Conversations, newest activity first. */
    public val conversations: List<Conversation>,
    /** Cursor of what follows; absent: nothing does. */
    public val next: ListCursor? = null,
    /** The log's head when the answer was made; it replaces nothing that a later event changed. */
    @Serializable(with = SeqSerializer::class)
    @SerialName("as_of_seq")
    public val asOfSeq: Seq,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.list.result"
    }
}

/** One conversation. */
@Serializable
public data class ConversationGetResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The whole conversation. */
    public val conversation: Conversation,
    /** The log's head when the answer was made; it replaces nothing that a later event changed. */
    @Serializable(with = SeqSerializer::class)
    @SerialName("as_of_seq")
    public val asOfSeq: Seq,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.get.result"
    }
}

/**
 * A page of history, each list ascending by position; the newest page ends with the queued messages. `before` and
 * `after` are the first and last position of the page: the cursors for the pages around it.
 */
@Serializable
public data class ConversationHistoryResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** Messages, ascending by position, those without one last. */
    public val messages: List<Message>,
    /** Tool calls, ascending by position. */
    @SerialName("tool_calls")
    public val toolCalls: List<ToolCall>,
    /** Runs that the other objects belong to. */
    public val runs: List<Run>,
    /** Approvals, ascending by position. */
    public val approvals: List<Approval>,
    /** Clarifications, ascending by position. */
    public val clarifications: List<Clarification>,
    /** Position of the page's first item: the cursor of older pages. */
    @Serializable(with = PositionSerializer::class)
    public val before: Position? = null,
    /** Position of the page's last item: the cursor of newer pages. */
    @Serializable(with = PositionSerializer::class)
    public val after: Position? = null,
    /** Whether there are more items in the direction of the page. */
    @SerialName("has_more")
    public val hasMore: Boolean,
    /** Changes when finished history was changed; then cached pages are worth nothing. */
    @SerialName("history_id")
    public val historyId: HistoryId,
    /** The log's head when the answer was made; it replaces nothing that a later event changed. */
    @Serializable(with = SeqSerializer::class)
    @SerialName("as_of_seq")
    public val asOfSeq: Seq,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.history.result"
    }
}

/** The conversation that was created, now or by an earlier request with the same client id. */
@Serializable
public data class ConversationCreateResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The whole conversation. */
    public val conversation: Conversation,
    /** The log's head when the answer was made; it replaces nothing that a later event changed. */
    @Serializable(with = SeqSerializer::class)
    @SerialName("as_of_seq")
    public val asOfSeq: Seq,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.create.result"
    }
}

/** The renamed conversation. */
@Serializable
public data class ConversationRenameResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The whole conversation. */
    public val conversation: Conversation,
    /** The log's head when the answer was made; it replaces nothing that a later event changed. */
    @Serializable(with = SeqSerializer::class)
    @SerialName("as_of_seq")
    public val asOfSeq: Seq,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.rename.result"
    }
}

/** It is deleted, now or already. */
@Serializable
public data class ConversationDeleteResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.delete.result"
    }
}

/** A conversation exists. */
@Serializable
public data class ConversationCreated(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole conversation. */
    public val conversation: Conversation,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.created"
    }
}

/** A field of a conversation changed; not sent per delta. */
@Serializable
public data class ConversationUpdated(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole conversation. */
    public val conversation: Conversation,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.updated"
    }
}

/** A conversation is gone; nothing of it follows. */
@Serializable
public data class ConversationDeleted(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "conversation.deleted"
    }
}

/** Finished items were changed, removed, re-ordered or re-identified: drop the cache from there, fetch again. */
@Serializable
public data class HistoryChanged(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** Changes when finished history was changed; then cached pages are worth nothing. */
    @SerialName("history_id")
    public val historyId: HistoryId,
    /** Position of the newest item. */
    @Serializable(with = PositionSerializer::class)
    @SerialName("history_head")
    public val historyHead: Position,
    /** Drop cached items from here on. */
    @Serializable(with = PositionSerializer::class)
    @SerialName("from_position")
    public val fromPosition: Position,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "history.changed"
    }
}

/** The send is durable; the receipt says what was done with it. */
@Serializable
public data class MessageSendResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** What became of the send. */
    public val receipt: Receipt,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.send.result"
    }
}

/** What became of a send. */
@Serializable
public data class MessageReceiptResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** What became of the send. */
    public val receipt: Receipt,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.receipt.result"
    }
}

/** A part of a message's text; `index` is the last change that the whole includes. */
@Serializable
public data class MessageTextResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** A part of the text. */
    public val text: String,
    /** Cursor of what follows; absent: nothing does. */
    public val next: ListCursor? = null,
    /** The last change that the whole text includes; -1: none. */
    @Serializable(with = IndexSerializer::class)
    public val index: Index,
    /** How it stands. */
    public val status: MessageState,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.text.result"
    }
}

/** A message exists. Created in a final status it gets no `message.completed`. */
@Serializable
public data class MessageCreated(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole message. */
    public val message: Message,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.created"
    }
}

/** Something about a message changed, its text's end apart. */
@Serializable
public data class MessageUpdated(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole message. */
    public val message: Message,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.updated"
    }
}

/** A message has ended, see its status; it carries the whole text. */
@Serializable
public data class MessageCompleted(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole message. */
    public val message: Message,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.completed"
    }
}

/** Text was appended. Skipped when `last_index` (or `index`) is not above the receiver's own index. */
@Serializable
public data class MessageDelta(
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The run. */
    @SerialName("run_id")
    public val runId: RunId? = null,
    /** The message. */
    @SerialName("message_id")
    public val messageId: MessageId,
    /** Number of this change; append it when it is the receiver's own index + 1. */
    @Serializable(with = IndexSerializer::class)
    public val index: Index,
    /** The last change that this frame includes, where it joins several. */
    @Serializable(with = IndexSerializer::class)
    @SerialName("last_index")
    public val lastIndex: Index? = null,
    /** What was appended. */
    public val text: String,
) : TransientEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.delta"
    }
}

/** The whole text so far is this one now. */
@Serializable
public data class MessageReplaced(
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The run. */
    @SerialName("run_id")
    public val runId: RunId? = null,
    /** The message. */
    @SerialName("message_id")
    public val messageId: MessageId,
    /** Number of this change. */
    @Serializable(with = IndexSerializer::class)
    public val index: Index,
    /** The whole text as it is now. */
    public val text: String,
) : TransientEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "message.replaced"
    }
}

/** The run as it is now. */
@Serializable
public data class RunCancelResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The whole run. */
    public val run: Run,
    /** The log's head when the answer was made; it replaces nothing that a later event changed. */
    @Serializable(with = SeqSerializer::class)
    @SerialName("as_of_seq")
    public val asOfSeq: Seq,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "run.cancel.result"
    }
}

/** The agent works on it. */
@Serializable
public data class RunStarted(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole run. */
    public val run: Run,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "run.started"
    }
}

/** A run is queued, waits for the owner, goes on, or is being cancelled. */
@Serializable
public data class RunUpdated(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole run. */
    public val run: Run,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "run.updated"
    }
}

/** The one terminal event of a run. */
@Serializable
public data class RunEnded(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole run. */
    public val run: Run,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "run.ended"
    }
}

/** A phrase about what goes on, for a status line; not part of the transcript. */
@Serializable
public data class RunProgress(
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The run. */
    @SerialName("run_id")
    public val runId: RunId,
    /** A phrase for a status line. */
    public val text: String,
) : TransientEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "run.progress"
    }
}

/** A tool call began. */
@Serializable
public data class ToolStarted(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole tool call. */
    @SerialName("tool_call")
    public val toolCall: ToolCall,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "tool.started"
    }
}

/** A tool call ended, see its status. */
@Serializable
public data class ToolCompleted(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole tool call. */
    @SerialName("tool_call")
    public val toolCall: ToolCall,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "tool.completed"
    }
}

/** The approval as decided. */
@Serializable
public data class ApprovalRespondResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The whole approval. */
    public val approval: Approval,
    /** The log's head when the answer was made; it replaces nothing that a later event changed. */
    @Serializable(with = SeqSerializer::class)
    @SerialName("as_of_seq")
    public val asOfSeq: Seq,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "approval.respond.result"
    }
}

/** The agent waits for the owner's decision. */
@Serializable
public data class ApprovalRequested(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole approval. */
    public val approval: Approval,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "approval.requested"
    }
}

/** Something about an open approval changed, for example that it can be answered now. */
@Serializable
public data class ApprovalUpdated(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole approval. */
    public val approval: Approval,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "approval.updated"
    }
}

/** An approval is closed: decided, expired or cancelled. */
@Serializable
public data class ApprovalResolved(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole approval. */
    public val approval: Approval,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "approval.resolved"
    }
}

/** The clarification as answered. */
@Serializable
public data class ClarificationRespondResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The whole clarification. */
    public val clarification: Clarification,
    /** The log's head when the answer was made; it replaces nothing that a later event changed. */
    @Serializable(with = SeqSerializer::class)
    @SerialName("as_of_seq")
    public val asOfSeq: Seq,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "clarification.respond.result"
    }
}

/** The agent waits for the owner's answer. */
@Serializable
public data class ClarificationRequested(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole clarification. */
    public val clarification: Clarification,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "clarification.requested"
    }
}

/** A clarification is closed: answered, expired or cancelled. */
@Serializable
public data class ClarificationResolved(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole clarification. */
    public val clarification: Clarification,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "clarification.resolved"
    }
}

/** One attachment's description. */
@Serializable
public data class AttachmentGetResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The whole attachment. */
    public val attachment: Attachment,
    /** The log's head when the answer was made; it replaces nothing that a later event changed. */
    @Serializable(with = SeqSerializer::class)
    @SerialName("as_of_seq")
    public val asOfSeq: Seq,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "attachment.get.result"
    }
}

/** A file is there to be fetched. */
@Serializable
public data class AttachmentCreated(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole attachment. */
    public val attachment: Attachment,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "attachment.created"
    }
}

/** A file is gone; its description stays. */
@Serializable
public data class AttachmentExpired(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The whole attachment. */
    public val attachment: Attachment,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "attachment.expired"
    }
}

/** The models on offer and the one in use. */
@Serializable
public data class ModelListResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** Providers with their models. */
    public val providers: List<Provider>,
    /** The model in use. */
    public val current: ModelChoice,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "model.list.result"
    }
}

/** The model now in use. */
@Serializable
public data class ModelSelectResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The model now in use. */
    public val current: ModelChoice,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "model.select.result"
    }
}

/** The efforts on offer. `known` is false where Hermes does not say what the current model supports. */
@Serializable
public data class ReasoningListResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** Reasoning efforts on offer. */
    public val efforts: List<String>,
    /** The effort in use, where it is known. */
    public val current: String? = null,
    /** False where Hermes does not say what the model supports. */
    public val known: Boolean,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "reasoning.list.result"
    }
}

/** The effort now in use. */
@Serializable
public data class ReasoningSelectResult(
    /** The request's id; its one answer carries the same. */
    override val id: RequestId,
    /** The effort now in use. */
    public val current: String,
) : ResultFrame {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "reasoning.select.result"
    }
}

/** The model of a conversation changed. */
@Serializable
public data class ModelChanged(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The model now in use. */
    public val current: ModelChoice,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "model.changed"
    }
}

/** The reasoning effort of a conversation changed. */
@Serializable
public data class ReasoningChanged(
    /** Place in the event log. */
    @Serializable(with = SeqSerializer::class)
    override val seq: Seq,
    /** When the event was logged. */
    @Serializable(with = TimeSerializer::class)
    override val time: Time,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The effort now in use. */
    public val current: String,
) : LoggedEvent {
    @EncodeDefault
    @SerialName("type")
    override val type: String = TYPE

    public companion object {
        public const val TYPE: String = "reasoning.changed"
    }
}
