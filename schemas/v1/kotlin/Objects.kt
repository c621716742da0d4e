// Generated from the protocol's metamodel; changes here are lost.
@file:OptIn(ExperimentalSerializationApi::class)
@file:UseSerializers(StrictString::class, StrictLong::class, StrictBoolean::class)
package pheby.protocol

import kotlinx.serialization.ExperimentalSerializationApi
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.UseSerializers
import kotlinx.serialization.json.JsonObject

/**
 * A question that only the owner may answer. Offer exactly `choices`, and none that the client does not know. `session`
 * and `always` approve the `pattern`, not this command alone. A truncated command can only be denied.
 */
@Serializable
public data class Approval(
    /** The approval. */
    @SerialName("approval_id")
    public val approvalId: ApprovalId,
    /** What is asked about. */
    public val kind: ApprovalKind,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The run. */
    @SerialName("run_id")
    public val runId: RunId? = null,
    /** The tool call. */
    @SerialName("tool_call_id")
    public val toolCallId: ToolCallId? = null,
    /** Place in the conversation's display order. */
    @Serializable(with = PositionSerializer::class)
    public val position: Position,
    /** For people: what it is about. */
    public val description: String,
    /** What would be run, redacted. */
    public val command: String,
    /** Whether the command was cut; a cut command can only be denied. */
    @SerialName("command_truncated")
    public val commandTruncated: Boolean,
    /** What the choices session and always would approve. */
    public val pattern: String? = null,
    /** What may be answered, in the order in which to offer it. */
    public val choices: List<String>,
    /** Whether an answer would be accepted now; it may become true by approval.updated. */
    public val answerable: Boolean,
    /** How it stands; offer an answer only while pending. */
    public val status: PromptStatus,
    /** The choice that was made. */
    public val decision: String? = null,
    /** Who decided. */
    @SerialName("decided_by")
    public val decidedBy: DecidedBy? = null,
    /** When it came into being. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("created_at")
    public val createdAt: Time,
    /** When it lapses by itself; absent: never. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("expires_at")
    public val expiresAt: Time? = null,
)

/** A file that the agent delivered. `path` is relative to the socket URL without `v1/ws`; never a server path. */
@Serializable
public data class Attachment(
    /** The attachment. */
    @SerialName("attachment_id")
    public val attachmentId: AttachmentId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The message. */
    @SerialName("message_id")
    public val messageId: MessageId,
    /** Name for people and for saving; never a path. */
    @SerialName("file_name")
    public val fileName: String,
    /** As sniffed, not only by the name. */
    @SerialName("media_type")
    public val mediaType: String,
    /** Bytes. */
    @Serializable(with = CountSerializer::class)
    public val size: Count,
    /** Of the bytes, as 64 lower-case hexadecimal digits. */
    public val sha256: String,
    /** Whether it may be shown as a picture in the conversation. */
    @SerialName("inline_image")
    public val inlineImage: Boolean,
    /** Size of the picture, where it is one. */
    public val image: ImageSize? = null,
    /** How it stands. */
    public val status: AttachmentState,
    /** When it came into being. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("created_at")
    public val createdAt: Time,
    /** When it lapses by itself; absent: never. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("expires_at")
    public val expiresAt: Time,
    /** Relative to the socket URL without v1/ws. */
    public val path: String,
)

/** A question of the agent, with or without choices. */
@Serializable
public data class Clarification(
    /** The clarification. */
    @SerialName("clarification_id")
    public val clarificationId: ClarificationId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The run. */
    @SerialName("run_id")
    public val runId: RunId? = null,
    /** The tool call. */
    @SerialName("tool_call_id")
    public val toolCallId: ToolCallId? = null,
    /** Place in the conversation's display order. */
    @Serializable(with = PositionSerializer::class)
    public val position: Position,
    /** What the agent wants to know. */
    public val question: String,
    /** What may be answered, in the order in which to offer it. */
    public val choices: List<ClarificationChoice>,
    /** Whether several choices may be picked. */
    public val multiple: Boolean,
    /** Whether an answer in words is accepted. */
    @SerialName("free_text")
    public val freeText: Boolean,
    /** Whether the question may be skipped. */
    public val skippable: Boolean,
    /** How it stands. */
    public val status: PromptStatus,
    /** What was answered, once it was. */
    public val answer: ClarificationAnswer? = null,
    /** Who answered. */
    @SerialName("answered_by")
    public val answeredBy: DecidedBy? = null,
    /** When it came into being. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("created_at")
    public val createdAt: Time,
    /** When it lapses by itself; absent: never. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("expires_at")
    public val expiresAt: Time? = null,
)

/** What the owner answered. */
@Serializable
public data class ClarificationAnswer(
    /** The choices that were picked; none for a free answer. */
    @SerialName("choice_ids")
    public val choiceIds: List<ChoiceId>,
    /** The text. */
    public val text: String? = null,
    /** Whether it was skipped. */
    public val skipped: Boolean = false,
)

/** One answer on offer; the label is never empty. */
@Serializable
public data class ClarificationChoice(
    /** Names the choice in an answer. */
    @SerialName("choice_id")
    public val choiceId: ChoiceId,
    /** What to show; never empty. */
    public val label: String,
)

/** Who connects. `device_id` is per installation and not part of backups. */
@Serializable
public data class ClientInfo(
    /** Name for people. */
    public val name: String,
    /** Version, for logs. */
    public val version: String,
    /** The device. */
    @SerialName("device_id")
    public val deviceId: DeviceId,
)

/**
 * One conversation of the owner with the agent. `last_activity_at` orders the list and changes only with a new message.
 * Unread is the client's matter: `history_head` above what it has shown.
 */
@Serializable
public data class Conversation(
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The id that the creating client minted. */
    @SerialName("client_conversation_id")
    public val clientConversationId: ClientConversationId? = null,
    /** Title for people; empty when there is none. */
    public val title: String,
    /** Who chose the title. */
    @SerialName("title_source")
    public val titleSource: TitleSource,
    /** When it came into being. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("created_at")
    public val createdAt: Time,
    /** When a field last changed. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("updated_at")
    public val updatedAt: Time,
    /** When the newest message came; orders the list. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("last_activity_at")
    public val lastActivityAt: Time,
    /** The beginning of the newest message, on one line. */
    @SerialName("last_message_preview")
    public val lastMessagePreview: String? = null,
    /** The run that is active, if any; a background delegation never is. */
    @SerialName("active_run_id")
    public val activeRunId: RunId? = null,
    /** Changes when finished history was changed; then cached pages are worth nothing. */
    @SerialName("history_id")
    public val historyId: HistoryId,
    /** Position of the newest item. */
    @Serializable(with = PositionSerializer::class)
    @SerialName("history_head")
    public val historyHead: Position,
    /** The model. */
    public val model: ModelChoice? = null,
    /** The effort in use, where it is known. */
    @SerialName("reasoning_effort")
    public val reasoningEffort: String? = null,
)

/** The last event that a client has applied. */
@Serializable
public data class Cursor(
    /** The event log; a cursor of another epoch is worth nothing. */
    public val epoch: String,
    /** Place in the event log. */
    public val seq: Long,
)

/** Who decided a prompt. */
@Serializable
public data class DecidedBy(
    /** Where the decision came from. */
    public val kind: DecisionSource,
    /** The device. */
    @SerialName("device_id")
    public val deviceId: DeviceId? = null,
    /** Name of the client that decided. */
    @SerialName("client_name")
    public val clientName: String? = null,
)

/** What a client needs to act on an error. */
@Serializable
public data class ErrorDetails(
    /** Protocol versions that the server serves. */
    public val supported: List<Long>? = null,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId? = null,
    /** What became of the send. */
    public val receipt: Receipt? = null,
    /** The whole approval. */
    public val approval: Approval? = null,
    /** The whole clarification. */
    public val clarification: Clarification? = null,
    /** What may be answered, in the order in which to offer it. */
    public val choices: List<String>? = null,
    /** Reasoning efforts on offer. */
    public val efforts: List<String>? = null,
    /** The bound that was exceeded. */
    @Serializable(with = CountSerializer::class)
    public val limit: Count? = null,
)

/** Pixels. */
@Serializable
public data class ImageSize(
    /** Pixels. */
    @Serializable(with = CountSerializer::class)
    public val width: Count,
    /** Pixels. */
    @Serializable(with = CountSerializer::class)
    public val height: Count,
)

/** What this server accepts and sends; see the reference for each. */
@Serializable
public data class Limits(
    /** Largest frame from a client; at least 6 x max_text_chars + 4096. */
    @Serializable(with = CountSerializer::class)
    @SerialName("max_frame_bytes")
    public val maxFrameBytes: Count,
    /** Largest frame from the server. */
    @Serializable(with = CountSerializer::class)
    @SerialName("max_server_frame_bytes")
    public val maxServerFrameBytes: Count,
    /** Most code points in a text; above it too_large. */
    @Serializable(with = CountSerializer::class)
    @SerialName("max_text_chars")
    public val maxTextChars: Count,
    /** Most conversations in a page of the list. */
    @Serializable(with = CountSerializer::class)
    @SerialName("max_list_limit")
    public val maxListLimit: Count,
    /** Most items in a page of history. */
    @Serializable(with = CountSerializer::class)
    @SerialName("max_history_limit")
    public val maxHistoryLimit: Count,
    /** Most requests without an answer; above it rate_limited. */
    @Serializable(with = CountSerializer::class)
    @SerialName("max_pending_requests")
    public val maxPendingRequests: Count,
)

/**
 * One chat message. A streaming message carries the `index` of the last change that its `text` includes. `position` is
 * absent while a message is queued. `delivery` follows the receipt of a send. `interim` marks what the agent says on
 * its way, `final` the answer itself.
 */
@Serializable
public data class Message(
    /** The message. */
    @SerialName("message_id")
    public val messageId: MessageId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** Place in the conversation's display order. */
    @Serializable(with = PositionSerializer::class)
    public val position: Position? = null,
    /** Whose words it holds. */
    public val role: MessageRole,
    /** What caused it. */
    public val origin: Origin,
    /** How it stands. */
    public val status: MessageState,
    /** The text. */
    public val text: String,
    /** Whether the text was cut to fit a frame; message.text has the whole. */
    @SerialName("text_truncated")
    public val textTruncated: Boolean,
    /** Number of the last change that the text includes; -1: none. */
    @Serializable(with = IndexSerializer::class)
    public val index: Index? = null,
    /** What the agent said on its way; more of the run followed. */
    public val interim: Boolean = false,
    /** The answer itself, declared by the agent. */
    public val final: Boolean = false,
    /** The run. */
    @SerialName("run_id")
    public val runId: RunId? = null,
    /** The id that the sending client minted; how it knows its own message again. */
    @SerialName("client_message_id")
    public val clientMessageId: ClientMessageId? = null,
    /** What became of the send; only on the owner's own messages. */
    public val delivery: ReceiptState? = null,
    /** Files that came with the message. */
    public val attachments: List<Attachment>,
    /** When it came into being. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("created_at")
    public val createdAt: Time,
    /** When the message ended. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("completed_at")
    public val completedAt: Time? = null,
)

/** One model as Hermes offers it. What Hermes does not tell is absent, never guessed. */
@Serializable
public data class Model(
    /** The model. */
    public val model: String,
    /** Name for people. */
    public val name: String,
    /** Tokens that fit the model's context. */
    @Serializable(with = CountSerializer::class)
    @SerialName("context_length")
    public val contextLength: Count? = null,
    /** Reasoning efforts on offer. */
    public val efforts: List<String>? = null,
    /** Whether the model can reason. */
    public val reasoning: Boolean? = null,
    /** Price of input tokens, in the provider's words. */
    @SerialName("price_input")
    public val priceInput: String? = null,
    /** Price of output tokens, in the provider's words. */
    @SerialName("price_output")
    public val priceOutput: String? = null,
)

/** The model that a conversation uses. */
@Serializable
public data class ModelChoice(
    /** The provider. */
    public val provider: String,
    /** The model. */
    public val model: String,
)

/** One provider with its models. No address and no key is ever part of it. */
@Serializable
public data class Provider(
    /** The provider. */
    public val provider: String,
    /** Name for people. */
    public val name: String,
    /** The provider's models. */
    public val models: List<Model>,
)

/** What became of a send. `duplicate` is true when this answer repeats an earlier one. */
@Serializable
public data class Receipt(
    /** The id that the sending client minted; how it knows its own message again. */
    @SerialName("client_message_id")
    public val clientMessageId: ClientMessageId,
    /** The message. */
    @SerialName("message_id")
    public val messageId: MessageId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** What was done with the send. */
    public val disposition: Disposition,
    /** How far it has come. */
    public val state: ReceiptState,
    /** The run. */
    @SerialName("run_id")
    public val runId: RunId,
    /** True when this answer repeats an earlier one. */
    public val duplicate: Boolean,
)

/** One turn of the agent. It ends exactly once. */
@Serializable
public data class Run(
    /** The run. */
    @SerialName("run_id")
    public val runId: RunId,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** What caused it. */
    public val origin: Origin,
    /** How it stands. */
    public val status: RunState,
    /** Why it ended as it did, where the status does not say. */
    public val reason: RunReason? = null,
    /** Why it failed. */
    public val error: RunError? = null,
    /** Tokens of the whole run. */
    public val usage: Usage? = null,
    /** The run that started this one. */
    @SerialName("parent_run_id")
    public val parentRunId: RunId? = null,
    /** The tool call that it belongs to. */
    @SerialName("parent_tool_call_id")
    public val parentToolCallId: ToolCallId? = null,
    /** For people: what it is about. */
    public val description: String? = null,
    /** When it came into being. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("created_at")
    public val createdAt: Time,
    /** When it began. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("started_at")
    public val startedAt: Time? = null,
    /** When it ended. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("ended_at")
    public val endedAt: Time? = null,
)

/** Why a run failed: a stable code and a sentence for people, never the provider's own text. */
@Serializable
public data class RunError(
    /** Stable code; decide by it, never by the text. */
    public val code: RunErrorCode,
    /** A sentence for people, never the provider's own. */
    public val message: String,
)

/** Who answers. */
@Serializable
public data class ServerInfo(
    /** Name for people. */
    public val name: String,
    /** Version, for logs. */
    public val version: String,
    /** Version of the Hermes behind the server. */
    @SerialName("hermes_version")
    public val hermesVersion: String,
)

/** One tool call; exactly one end per start. Arguments and preview are redacted and bounded. */
@Serializable
public data class ToolCall(
    /** The tool call. */
    @SerialName("tool_call_id")
    public val toolCallId: ToolCallId,
    /** Hermes's own id of the call. */
    @SerialName("hermes_call_id")
    public val hermesCallId: String? = null,
    /** The tool call that it belongs to. */
    @SerialName("parent_tool_call_id")
    public val parentToolCallId: ToolCallId? = null,
    /** The conversation. */
    @SerialName("conversation_id")
    public val conversationId: ConversationId,
    /** The run. */
    @SerialName("run_id")
    public val runId: RunId,
    /** Place in the conversation's display order. */
    @Serializable(with = PositionSerializer::class)
    public val position: Position,
    /** The tool's name. */
    public val name: String,
    /** For people: what it is about. */
    public val description: String? = null,
    /** The tool's arguments: redacted, long values cut. */
    public val arguments: JsonObject,
    /** Whether something of the arguments was cut. */
    @SerialName("arguments_truncated")
    public val argumentsTruncated: Boolean,
    /** How it stands. */
    public val status: ToolCallState,
    /** When it began. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("started_at")
    public val startedAt: Time,
    /** When it ended. */
    @Serializable(with = TimeSerializer::class)
    @SerialName("ended_at")
    public val endedAt: Time? = null,
    /** How long it ran. */
    @Serializable(with = MillisSerializer::class)
    @SerialName("duration_ms")
    public val durationMs: Millis? = null,
    /** The beginning of the result, redacted. */
    @SerialName("result_preview")
    public val resultPreview: String? = null,
    /** Whether the preview was cut. */
    public val truncated: Boolean,
    /** Why it failed. */
    public val error: ToolError? = null,
)

/** Why a tool call failed: a stable code and a safe sentence. */
@Serializable
public data class ToolError(
    /** Stable code; decide by it, never by the text. */
    public val code: ToolErrorCode,
    /** A sentence that is safe to show. */
    public val message: String,
)

/** Tokens, as far as the provider counted them. */
@Serializable
public data class Usage(
    /** Tokens that went to the model. */
    @Serializable(with = CountSerializer::class)
    @SerialName("input_tokens")
    public val inputTokens: Count? = null,
    /** Tokens that came from the model. */
    @Serializable(with = CountSerializer::class)
    @SerialName("output_tokens")
    public val outputTokens: Count? = null,
    /** All tokens. */
    @Serializable(with = CountSerializer::class)
    @SerialName("total_tokens")
    public val totalTokens: Count? = null,
)
