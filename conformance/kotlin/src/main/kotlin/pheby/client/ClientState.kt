package pheby.client

import kotlinx.serialization.KSerializer
import kotlinx.serialization.Serializable
import kotlinx.serialization.Transient
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import pheby.protocol.*

/**
 * Everything that a client knows, by id. Store it as a whole, or row by row together with [cursor] and [epoch].
 *
 * A value: [apply], [applyAnswer] and [lost] return a new state and leave this one alone. Applying an event twice changes
 * nothing. What to ask for next stands in [needsText], [needsHistory] and [unconfirmed].
 */
@Serializable
public data class ClientState(
    /** The server's count of events that [cursor] belongs to. */
    public val epoch: Epoch? = null,
    /** The last event that is in this state: where the next connection goes on. */
    public val cursor: Seq? = null,
    /** Whether what is shown is what the server has now; false while the connection is gone or catches up. */
    @Transient
    public val inStep: Boolean = false,
    /** Those that the server has named so far; for a whole list call [PhebyClient.list] until there is no `next`. */
    public val conversations: Map<ConversationId, Conversation> = emptyMap(),
    /** What was said. Order a screen by `position`; what has none yet comes last. */
    public val messages: Map<MessageId, Message> = emptyMap(),
    /** The agent's turns. One is over when it has an `endedAt`. */
    public val runs: Map<RunId, Run> = emptyMap(),
    /** What the agent does, with its place among the messages. */
    public val toolCalls: Map<ToolCallId, ToolCall> = emptyMap(),
    /** What the owner decides, or has decided; offer those that are `answerable`. */
    public val approvals: Map<ApprovalId, Approval> = emptyMap(),
    /** What the owner is asked, or has answered. */
    public val clarifications: Map<ClarificationId, Clarification> = emptyMap(),
    /** Files of messages; [PhebyClient.download] fetches one. */
    public val attachments: Map<AttachmentId, Attachment> = emptyMap(),
    /** The last phrase of each active run; for a status line. */
    public val progress: Map<RunId, String> = emptyMap(),
    /** Streaming messages with a gap: ask `message.text`. */
    public val needsText: Set<MessageId> = emptySet(),
    /** Conversations whose cached items from this position on are worth nothing: fetch them again. */
    public val needsHistory: Map<ConversationId, Position> = emptyMap(),
    /** Conversations that the last snapshot did not name; deleted when a full walk of the list does not name them. */
    public val unconfirmed: Set<ConversationId> = emptySet(),
    /** The event that last changed or deleted an object; an answer that is older does not replace it. */
    @Transient
    internal val changedAt: Map<String, Seq> = emptyMap(),
    /** Parts of a snapshot that is not whole yet. */
    @Transient
    internal val parts: List<Snapshot> = emptyList(),
) {
    /** The owner's messages of which nobody knows whether the agent got them. Show them; only the owner sends again. */
    public val indeterminate: List<Message>
        get() = messages.values.filter { it.delivery == ReceiptState.Indeterminate }

    /** The state after a frame of the server: welcome, snapshot, sync.completed, any event. Others change nothing. */
    public fun apply(frame: ServerFrame): ClientState = when (frame) {
        is Welcome -> welcome(frame)
        is Snapshot -> snapshot(frame)
        is SyncCompleted -> copy(cursor = frame.seq, inStep = true)
        is Batch -> frame.events.fold(this) { state, event -> state.apply(event) }
        is LoggedEvent -> if (seen(frame.seq)) this else logged(frame).copy(cursor = frame.seq)
        // Of a later version: skipped, and the cursor moves past it.
        is UnknownServerFrame -> frame.seq?.takeUnless(::seen)?.let { copy(cursor = it) } ?: this
        is MessageDelta -> delta(frame)
        is MessageReplaced -> replaced(frame)
        is RunProgress -> copy(progress = progress + (frame.runId to frame.text))
        else -> this
    }

    /** The state after the answer to one of the client's requests. Answers without objects change nothing. */
    public fun <R : ResultFrame> applyAnswer(request: Request<R>, result: R): ClientState = answered(request, result)

    /** The state after the connection is gone: shown as before, marked as not in step. */
    public fun lost(): ClientState = copy(inStep = false, parts = emptyList())

    /** What the screens show, as JSON: objects by id, cursor, epoch. Progress, wishes and bookkeeping are left out. */
    public fun shown(): JsonObject = JsonObject(
        mapOf(
            "cursor" to JsonPrimitive(cursor),
            "epoch" to (epoch?.let { JsonPrimitive(it.value) } ?: JsonNull),
            "conversations" to objects(conversations, Conversation.serializer()) { it.value },
            "messages" to objects(messages, Message.serializer()) { it.value },
            "runs" to objects(runs, Run.serializer()) { it.value },
            "tool_calls" to objects(toolCalls, ToolCall.serializer()) { it.value },
            "approvals" to objects(approvals, Approval.serializer()) { it.value },
            "clarifications" to objects(clarifications, Clarification.serializer()) { it.value },
            "attachments" to objects(attachments, Attachment.serializer()) { it.value },
        ),
    )

    /** SHA-256 of [shown] as canonical JSON: two clients with the same digest show the same. */
    public fun digest(): String = sha256(canonical(shown()).encodeToByteArray())

    private fun <K, V> objects(items: Map<K, V>, serializer: KSerializer<V>, name: (K) -> String): JsonObject =
        JsonObject(items.entries.associate { name(it.key) to element(serializer, it.value) })

    private fun <V> element(serializer: KSerializer<V>, item: V): JsonElement =
        PhebyJson.json.encodeToJsonElement(serializer, item)

    // Synchronisation

    private fun seen(seq: Seq): Boolean = cursor != null && seq <= cursor

    private fun welcome(frame: Welcome): ClientState {
        if (frame.resumed) return lost()
        // A snapshot comes: the old cursor and the old marks belong to another count of events.
        val marks = if (frame.epoch == epoch) changedAt else emptyMap()
        return copy(epoch = frame.epoch, cursor = null, inStep = false, parts = emptyList(), changedAt = marks)
    }

    private fun snapshot(frame: Snapshot): ClientState {
        val all = (if (frame.part == 0L) emptyList() else parts) + frame
        if (!frame.last) return copy(parts = all)
        return withHistories(all.flatMap { it.conversations }).found(all)
    }

    private fun found(all: List<Snapshot>): ClientState {
        val named = all.flatMap { it.conversations }.associateBy { it.conversationId }
        val open = all.flatMap { it.messages }
        // What is open is exactly what was found; what ended stays. An open item that is missing has ended unseen.
        return copy(
            parts = emptyList(),
            cursor = all.last().seq,
            conversations = conversations + named,
            unconfirmed = conversations.keys - named.keys,
            needsText = emptySet(),
            progress = emptyMap(),
            attachments = attachments + open.flatMap { it.attachments }.associateBy { it.attachmentId },
            messages = messages.filterValues { !it.isOpen } + open.associateBy { it.messageId },
            runs = runs.filterValues { !it.isOpen } + all.flatMap { it.runs }.associateBy { it.runId },
            toolCalls = toolCalls.filterValues { !it.isOpen } + all.flatMap { it.toolCalls }.associateBy { it.toolCallId },
            approvals = approvals.filterValues { !it.isOpen } + all.flatMap { it.approvals }.associateBy { it.approvalId },
            clarifications = clarifications.filterValues { !it.isOpen } +
                all.flatMap { it.clarifications }.associateBy { it.clarificationId },
        )
    }

    // Logged events

    private fun logged(event: LoggedEvent): ClientState = when (event) {
        is ConversationCreated -> putConversation(event.conversation, event.seq)
        is ConversationUpdated -> putConversation(event.conversation, event.seq)
        is ConversationDeleted -> drop(event.conversationId).marked(event.conversationId.value, event.seq)
        is HistoryChanged -> historyChanged(event)
        is MessageCreated -> putMessage(event.message, event.seq)
        is MessageUpdated -> putMessage(event.message, event.seq)
        is MessageCompleted -> putMessage(event.message, event.seq)
        is RunStarted -> putRun(event.run, event.seq)
        is RunUpdated -> putRun(event.run, event.seq)
        is RunEnded -> putRun(event.run, event.seq)
        is ToolStarted -> putTool(event.toolCall, event.seq)
        is ToolCompleted -> putTool(event.toolCall, event.seq)
        is ApprovalRequested -> putApproval(event.approval, event.seq)
        is ApprovalUpdated -> putApproval(event.approval, event.seq)
        is ApprovalResolved -> putApproval(event.approval, event.seq)
        is ClarificationRequested -> putClarification(event.clarification, event.seq)
        is ClarificationResolved -> putClarification(event.clarification, event.seq)
        is AttachmentCreated -> putAttachment(event.attachment, event.seq)
        is AttachmentExpired -> putAttachment(event.attachment, event.seq)
        is ModelChanged -> changeConversation(event.conversationId, event.seq) { it.copy(model = event.current) }
        is ReasoningChanged ->
            changeConversation(event.conversationId, event.seq) { it.copy(reasoningEffort = event.current) }
    }

    private fun marked(key: String, seq: Seq): ClientState = copy(changedAt = changedAt + (key to seq))

    private fun putConversation(new: Conversation, seq: Seq): ClientState {
        val name = new.conversationId
        val state = withHistories(listOf(new))
        return state.copy(conversations = conversations + (name to new), unconfirmed = unconfirmed - name).marked(name.value, seq)
    }

    private fun putRun(new: Run, seq: Seq): ClientState = copy(
        runs = runs + (new.runId to new),
        progress = if (new.endedAt == null) progress else progress - new.runId,
    ).marked(new.runId.value, seq)

    private fun putTool(new: ToolCall, seq: Seq): ClientState =
        copy(toolCalls = toolCalls + (new.toolCallId to new)).marked(new.toolCallId.value, seq)

    private fun putApproval(new: Approval, seq: Seq): ClientState =
        copy(approvals = approvals + (new.approvalId to new)).marked(new.approvalId.value, seq)

    private fun putClarification(new: Clarification, seq: Seq): ClientState =
        copy(clarifications = clarifications + (new.clarificationId to new)).marked(new.clarificationId.value, seq)

    private fun putAttachment(new: Attachment, seq: Seq): ClientState =
        copy(attachments = attachments + (new.attachmentId to new)).marked(new.attachmentId.value, seq)

    private fun putMessage(told: Message, seq: Seq): ClientState {
        val old = messages[told.messageId]
        val bothStream = old != null && old.isStreaming && told.isStreaming
        // Deltas ran ahead of what a replay says now.
        val ahead = bothStream && old.ownIndex > told.ownIndex
        val new = if (ahead) told.copy(text = old.text, index = old.index) else told
        val behind = new.isStreaming && old != null && old.ownIndex >= new.ownIndex
        val state = copy(messages = messages + (new.messageId to new)).marked(new.messageId.value, seq)
        val whole = new.attachments.fold(state) { before, item -> before.putAttachment(item, seq) }
        // A whole text that is newer than what is shown has closed any gap in it.
        return if (behind) whole else whole.copy(needsText = needsText - new.messageId)
    }

    private fun changeConversation(name: ConversationId, seq: Seq, change: (Conversation) -> Conversation): ClientState {
        val known = conversations[name] ?: return this
        return copy(conversations = conversations + (name to change(known))).marked(name.value, seq)
    }

    private fun historyChanged(event: HistoryChanged): ClientState =
        changeConversation(event.conversationId, event.seq) {
            it.copy(historyId = event.historyId, historyHead = event.historyHead)
        }.withoutHistory(event.conversationId, event.fromPosition)

    /** Nothing is left of a history that is not the one of the conversation as it was found now. */
    private fun withHistories(found: List<Conversation>): ClientState = found.fold(this) { state, item ->
        val known = state.conversations[item.conversationId]
        if (known == null || known.historyId == item.historyId) state
        // Of what was never fetched nothing is fetched again.
        else state.withoutHistory(item.conversationId, 0).takeIf { it.cached < state.cached } ?: state
    }

    private val cached: Int get() = messages.size + toolCalls.size + approvals.size + clarifications.size

    /** Without what ended at this position or behind it: it is to be fetched again. */
    private fun withoutHistory(name: ConversationId, start: Position): ClientState {
        fun stays(of: ConversationId, position: Position?, isOpen: Boolean): Boolean =
            of != name || position == null || position < start || isOpen
        return copy(
            messages = messages.filterValues { stays(it.conversationId, it.position, it.isOpen) },
            toolCalls = toolCalls.filterValues { stays(it.conversationId, it.position, it.isOpen) },
            approvals = approvals.filterValues { stays(it.conversationId, it.position, it.isOpen) },
            clarifications = clarifications.filterValues { stays(it.conversationId, it.position, it.isOpen) },
            needsHistory = needsHistory + (name to minOf(start, needsHistory[name] ?: start)),
        )
    }

    private fun drop(name: ConversationId): ClientState {
        val keptMessages = messages.filterValues { it.conversationId != name }
        val keptRuns = runs.filterValues { it.conversationId != name }
        return copy(
            conversations = conversations - name,
            messages = keptMessages,
            runs = keptRuns,
            toolCalls = toolCalls.filterValues { it.conversationId != name },
            approvals = approvals.filterValues { it.conversationId != name },
            clarifications = clarifications.filterValues { it.conversationId != name },
            attachments = attachments.filterValues { it.conversationId != name },
            unconfirmed = unconfirmed - name,
            needsHistory = needsHistory - name,
            needsText = needsText.filterTo(mutableSetOf()) { it in keptMessages },
            progress = progress.filterKeys { it in keptRuns },
        )
    }

    // Streaming texts

    private fun delta(frame: MessageDelta): ClientState {
        val known = messages[frame.messageId] ?: return this
        val last = frame.lastIndex ?: frame.index
        if (!known.isStreaming || last <= known.ownIndex) return this
        if (frame.index != known.ownIndex + 1) return copy(needsText = needsText + frame.messageId)
        return showText(known, known.text + frame.text, last)
    }

    private fun replaced(frame: MessageReplaced): ClientState {
        val known = messages[frame.messageId] ?: return this
        if (!known.isStreaming || frame.index <= known.ownIndex) return this
        return showText(known, frame.text, frame.index)
    }

    private fun wholeText(name: MessageId, result: MessageTextResult): ClientState {
        val known = messages[name]
        if (known == null || !known.isStreaming || result.index < known.ownIndex) return copy(needsText = needsText - name)
        return showText(known, result.text, result.index)
    }

    private fun showText(known: Message, text: String, index: Index): ClientState = copy(
        messages = messages + (known.messageId to known.copy(text = text, index = index)),
        needsText = needsText - known.messageId,
    )

    // Answers

    internal fun answered(request: ClientFrame, result: ServerFrame): ClientState = when {
        request is ConversationList && result is ConversationListResult -> listPage(result)
        result is ConversationGetResult -> take(result.asOfSeq, conversations = listOf(result.conversation))
        result is ConversationCreateResult -> take(result.asOfSeq, conversations = listOf(result.conversation))
        result is ConversationRenameResult -> take(result.asOfSeq, conversations = listOf(result.conversation))
        request is ConversationHistory && result is ConversationHistoryResult -> historyPage(request, result)
        request is MessageText && result is MessageTextResult && request.cursor == null && result.next == null ->
            wholeText(request.messageId, result)
        else -> this
    }

    private fun listPage(result: ConversationListResult): ClientState {
        val state = take(result.asOfSeq, conversations = result.conversations)
        val still = unconfirmed - result.conversations.mapTo(mutableSetOf()) { it.conversationId }
        if (result.next != null) return state.copy(unconfirmed = still)
        return still.fold(state) { before, gone -> before.drop(gone) }.copy(unconfirmed = emptySet())
    }

    private fun historyPage(request: ConversationHistory, result: ConversationHistoryResult): ClientState {
        val name = result.conversationId
        val known = conversations[name]
        val isNews = known != null && known.historyId != result.historyId && !isOlder(name, result.asOfSeq)
        if (known == null || !isNews) return pageTaken(result)
        val anew = withoutHistory(name, 0).copy(conversations = conversations + (name to known.copy(historyId = result.historyId)))
        // It was asked for by a position of the history that is no more.
        return if (request.before != null || request.after != null) anew else anew.pageTaken(result)
    }

    private fun pageTaken(result: ConversationHistoryResult): ClientState = take(
        result.asOfSeq,
        messages = result.messages,
        attachments = result.messages.flatMap { it.attachments },
        runs = result.runs,
        toolCalls = result.toolCalls,
        approvals = result.approvals,
        clarifications = result.clarifications,
    ).copy(needsHistory = needsHistory - result.conversationId)

    /** Whether a later event than that of an answer has changed or deleted the conversation. */
    private fun isOlder(name: ConversationId, asOf: Seq): Boolean = (changedAt[name.value] ?: 0) > asOf

    /** Objects of an answer, where no later event has changed or deleted them or their conversation. */
    private fun take(
        asOf: Seq,
        conversations: List<Conversation> = emptyList(),
        messages: List<Message> = emptyList(),
        runs: List<Run> = emptyList(),
        toolCalls: List<ToolCall> = emptyList(),
        approvals: List<Approval> = emptyList(),
        clarifications: List<Clarification> = emptyList(),
        attachments: List<Attachment> = emptyList(),
    ): ClientState {
        fun isCurrent(key: String, of: ConversationId): Boolean {
            val deletedAt = if (of in this.conversations) 0 else changedAt[of.value] ?: 0
            return maxOf(changedAt[key] ?: 0, deletedAt) <= asOf
        }
        fun <K, V> Map<K, V>.taken(items: List<V>, key: (V) -> K, text: (K) -> String, of: (V) -> ConversationId): Map<K, V> =
            if (items.isEmpty()) this else this + items.filter { isCurrent(text(key(it)), of(it)) }.associateBy(key)
        val state = withHistories(conversations.filter { !isOlder(it.conversationId, asOf) })
        return state.copy(
            conversations = state.conversations.taken(conversations, { it.conversationId }, { it.value }, { it.conversationId }),
            messages = state.messages.taken(messages, { it.messageId }, { it.value }, { it.conversationId }),
            runs = state.runs.taken(runs, { it.runId }, { it.value }, { it.conversationId }),
            toolCalls = state.toolCalls.taken(toolCalls, { it.toolCallId }, { it.value }, { it.conversationId }),
            approvals = state.approvals.taken(approvals, { it.approvalId }, { it.value }, { it.conversationId }),
            clarifications =
                state.clarifications.taken(clarifications, { it.clarificationId }, { it.value }, { it.conversationId }),
            attachments = state.attachments.taken(attachments, { it.attachmentId }, { it.value }, { it.conversationId }),
        )
    }
}

private val Message.isStreaming: Boolean get() = status == MessageState.Streaming

private val Message.ownIndex: Index get() = index ?: -1

internal val Message.isOpen: Boolean get() = isStreaming || status == MessageState.Queued

internal val Run.isOpen: Boolean
    get() = status != RunState.Completed && status != RunState.Failed && status != RunState.Cancelled

internal val ToolCall.isOpen: Boolean get() = status == ToolCallState.Running

internal val Approval.isOpen: Boolean get() = status == PromptStatus.Pending

internal val Clarification.isOpen: Boolean get() = status == PromptStatus.Pending
