package pheby.client

import java.io.OutputStream
import java.util.UUID
import java.util.concurrent.atomic.AtomicLong
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.flow.asSharedFlow
import kotlinx.coroutines.flow.asStateFlow
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.launch
import kotlinx.coroutines.withTimeoutOrNull
import okhttp3.OkHttpClient
import pheby.protocol.*

/**
 * One connection to an owner's agent that is kept up: [state] is what the screens show, requests are suspend functions.
 *
 * ```
 * val client = PhebyClient(ClientConfig(url, info), { refused -> keystore.secret(refused) }, storage)
 * client.connect()
 * client.state.collect { show(it) }
 * ```
 *
 * Every request waits until the client is in step, and is repeated when the connection goes away before its answer: the
 * protocol makes that safe. It throws [RequestFailedException] when the server says no, [NoAnswerException] when that
 * takes too long, and [ClientStoppedException] when the client does not come back by itself.
 *
 * All functions may be called from any thread. [close] ends everything, and so does the end of [parent].
 */
public class PhebyClient(
    private val config: ClientConfig,
    private val secrets: SecretSource,
    private val storage: Storage = MemoryStorage(),
    http: OkHttpClient = OkHttpClient(),
    parent: CoroutineScope? = null,
) {
    private val job = SupervisorJob(parent?.coroutineContext?.get(Job))
    private val scope = CoroutineScope(Dispatchers.Default + job)
    private val http = http.forSockets(config)
    private val numbers = AtomicLong()
    private val outboxItems = Outbox(storage)
    private val board = Board()
    private val wake = Channel<Unit>(Channel.CONFLATED)
    private var keeper: Job? = null

    init {
        job.invokeOnCompletion {
            board.link.value = Link.Stopped(StopReason.CLOSED)
            outboxItems.stop(StopReason.CLOSED)
        }
    }

    /** What the screens show: the last state that was stored, and what streams. */
    public val state: StateFlow<ClientState> = board.state.asStateFlow()

    /** How the client stands with the server. */
    public val link: StateFlow<Link> = board.link.asStateFlow()

    /**
     * Events in order, each after [state] has it; for sounds and notifications. A collector that is 1,000 events behind
     * misses the oldest; [state] and [Storage] never do.
     */
    public val events: Flow<Event> = board.events.asSharedFlow()

    /** What the owner has sent and the server has not acknowledged yet, in order. */
    public val outbox: StateFlow<List<Outgoing>> get() = outboxItems.items

    /** Starts, or starts again after [Link.Stopped]. Returns at once. */
    public fun connect(): Unit = synchronized(job) {
        val isRunning = keeper?.isActive == true && link.value !is Link.Stopped
        if (isRunning || !job.isActive) return
        outboxItems.start()
        val session = Session(config, secrets, storage, http, outboxItems, ::nextId, wake, board)
        board.link.value = Link.Connecting
        keeper = scope.launch { session.run() }
    }

    /** Ends everything: the connection, the requests, what is being sent. What was not acknowledged stays stored. */
    public suspend fun close(): Unit = job.cancelAndJoin()

    /**
     * The network is back, or the app is opened: do not wait for the next attempt, and find out at once whether a line
     * that seems to be there still is. What the server asked to wait is waited.
     */
    public fun hurry() {
        wake.trySend(Unit)
    }

    /** Returns when in step with the server. Throws [ClientStoppedException]. */
    public suspend fun awaitInStep(): Welcome = inStep().welcome

    // Requests

    /** Asks whether the server is there. */
    public suspend fun ping(): Pong = request { Ping(it) }

    /** A page of the conversations, newest activity first; [cursor] is the `next` of the page before it. */
    public suspend fun list(limit: Int? = null, cursor: ListCursor? = null): ConversationListResult =
        request { ConversationList(it, limit?.toLong(), cursor) }

    /** One conversation. */
    public suspend fun conversation(conversationId: ConversationId): Conversation =
        request { ConversationGet(it, conversationId) }.conversation

    /** A page of history: before or after a position, or the newest one. */
    public suspend fun history(
        conversationId: ConversationId,
        limit: Int? = null,
        before: Position? = null,
        after: Position? = null,
    ): ConversationHistoryResult = request { ConversationHistory(it, conversationId, limit?.toLong(), before, after) }

    /** A new conversation. To repeat it after the app was ended, give the same id. */
    public suspend fun create(
        title: String? = null,
        clientConversationId: ClientConversationId = ClientConversationId(UUID.randomUUID().toString()),
    ): Conversation = request { ConversationCreate(it, clientConversationId, title) }.conversation

    /** Gives a conversation a title by hand. */
    public suspend fun rename(conversationId: ConversationId, title: String): Conversation =
        request { ConversationRename(it, conversationId, title) }.conversation

    /** Deletes a conversation, for good and everywhere. */
    public suspend fun delete(conversationId: ConversationId) {
        request { ConversationDelete(it, conversationId) }
    }

    /**
     * Sends the owner's words once, however often the connection goes away. They are in the [Storage] before anything
     * is sent, and in [outbox] until the server has them: also when the caller gives up waiting, or the app is ended.
     */
    public suspend fun send(
        conversationId: ConversationId,
        text: String,
        ifBusy: IfBusy = IfBusy.QUEUE,
        clientMessageId: ClientMessageId = ClientMessageId(UUID.randomUUID().toString()),
    ): Receipt {
        (link.value as? Link.Stopped)?.let { throw ClientStoppedException(it.reason) }
        return outboxItems.send(Outgoing(clientMessageId, conversationId, text, ifBusy))
    }

    /** The owner wants an item of the [outbox] sent again that says `askOwner` or `refused`. */
    public suspend fun sendAgain(clientMessageId: ClientMessageId): Unit =
        outboxItems.change(clientMessageId) { it.copy(firstSentAt = null, askOwner = false, refused = null) }

    /** The owner does not want an item of the [outbox] sent any more. It may have reached the server already. */
    public suspend fun discard(clientMessageId: ClientMessageId): Unit = outboxItems.discard(clientMessageId)

    /** What became of a send. */
    public suspend fun receipt(clientMessageId: ClientMessageId): Receipt =
        request { MessageReceipt(it, clientMessageId) }.receipt

    /** A message's whole text, also where it was too long for a frame. */
    public suspend fun text(messageId: MessageId): String = buildString {
        var cursor: ListCursor? = null
        do {
            val part = request { MessageText(it, messageId, cursor) }
            append(part.text)
            cursor = part.next
        } while (cursor != null)
    }

    /** Cancels a run; the run as it is then. It may yet be faster than the cancel, and end `completed`. */
    public suspend fun cancel(runId: RunId, dropQueued: Boolean = false): Run =
        request { RunCancel(it, runId, dropQueued = dropQueued) }.run

    /** Cancels the run of a send while its id is not known yet. */
    public suspend fun cancel(clientMessageId: ClientMessageId, dropQueued: Boolean = false): Run =
        request { RunCancel(it, clientMessageId = clientMessageId, dropQueued = dropQueued) }.run

    /** The owner's decision of an approval, by one of its choices. Never call it without the owner. */
    public suspend fun approve(approvalId: ApprovalId, choice: String, reason: String? = null): Approval =
        request { ApprovalRespond(it, approvalId, choice, reason) }.approval

    /** The owner's answer to a question: by choices, in words, or not at all. */
    public suspend fun clarify(
        clarificationId: ClarificationId,
        choiceIds: List<ChoiceId> = emptyList(),
        text: String? = null,
        skip: Boolean = false,
    ): Clarification = request { ClarificationRespond(it, clarificationId, choiceIds, text, skip) }.clarification

    /** The models that a conversation may use. */
    public suspend fun models(conversationId: ConversationId): ModelListResult = request { ModelList(it, conversationId) }

    /** Chooses the model of the next runs. */
    public suspend fun selectModel(conversationId: ConversationId, choice: ModelChoice): ModelChoice =
        request { ModelSelect(it, conversationId, choice.provider, choice.model) }.current

    /** The reasoning efforts that a conversation may use. */
    public suspend fun efforts(conversationId: ConversationId): ReasoningListResult =
        request { ReasoningList(it, conversationId) }

    /** Chooses the reasoning effort of the next runs. */
    public suspend fun selectEffort(conversationId: ConversationId, effort: String): String =
        request { ReasoningSelect(it, conversationId, effort) }.current

    /** A file's description, as it is now. */
    public suspend fun attachment(attachmentId: AttachmentId): Attachment =
        request { AttachmentGet(it, attachmentId) }.attachment

    /**
     * Fetches a file, going on where a broken line left it, and checks it. What was written counts only when this
     * returns: write into a temporary file. [out] is not closed. Throws [DownloadException], and what [out] throws.
     */
    public suspend fun download(attachment: Attachment, out: OutputStream) {
        val secret = secrets.secret(null) ?: throw DownloadException("there is no secret", UNAUTHORIZED)
        download(http, config, secret, attachment, out)
    }

    /** Any request: `request { id -> Ping(id) }`. It may be sent several times, each time under another id. */
    public suspend fun <R : ResultFrame> request(make: (RequestId) -> Request<R>): R {
        val result = withTimeoutOrNull(config.requestMs) { persist(make) } ?: throw NoAnswerException()
        @Suppress("UNCHECKED_CAST") // The connection has compared the types on the wire.
        return result as R
    }

    private suspend fun persist(make: (RequestId) -> Request<*>): ResultFrame {
        var failed: Connection? = null
        while (true) {
            val connection = inStep(after = failed).connection
            try {
                return connection.ask(make(nextId()))
            } catch (error: ConnectionLostException) {
                failed = connection
            }
        }
    }

    private suspend fun inStep(after: Connection? = null): Link.InStep {
        val found = link.first { it is Link.Stopped || it is Link.InStep && it.connection !== after }
        if (found is Link.Stopped) throw ClientStoppedException(found.reason)
        return found as Link.InStep
    }

    private fun nextId(): RequestId = RequestId("c${numbers.incrementAndGet()}")

    private companion object {
        const val UNAUTHORIZED = 401
    }
}
