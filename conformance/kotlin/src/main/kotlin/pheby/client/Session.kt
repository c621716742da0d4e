package pheby.client

import java.util.Collections
import java.util.concurrent.ConcurrentHashMap
import kotlin.time.TimeMark
import kotlin.time.TimeSource
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.cancelChildren
import kotlinx.coroutines.channels.BufferOverflow
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.channels.ReceiveChannel
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.MutableSharedFlow
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.launch
import kotlinx.coroutines.withTimeoutOrNull
import okhttp3.OkHttpClient
import okhttp3.Request as HttpRequest
import pheby.protocol.*

/** What a client shows to its app. */
internal class Board {
    val state = MutableStateFlow(ClientState())
    val link = MutableStateFlow<Link>(Link.Idle)
    val events = MutableSharedFlow<Event>(extraBufferCapacity = EVENTS, onBufferOverflow = BufferOverflow.DROP_OLDEST)

    private companion object {
        const val EVENTS = 1_000
    }
}

/** The connections of a client, one after the other. One coroutine folds what comes; nothing else changes the state. */
internal class Session(
    private val config: ClientConfig,
    private val secrets: SecretSource,
    private val storage: Storage,
    private val http: OkHttpClient,
    private val outbox: Outbox,
    private val nextId: () -> RequestId,
    private val wake: ReceiveChannel<Unit>,
    private val board: Board,
) {
    private val reconnect = Reconnect(config.firstDelayMs, config.longestDelayMs)
    private var state = ClientState()
    private var saved = ClientState()
    private var announcedMs: Long? = null
    private var inStepSince: TimeMark? = null

    /** Runs until the client is closed or has to stop. */
    suspend fun run() {
        val how = try {
            load()
            keepUp()
        } catch (error: CancellationException) {
            throw error
        } catch (error: Exception) {
            Link.Stopped(StopReason.FAILED, cause = error)
        }
        config.log("stopped: ${how.reason} ${how.code?.code ?: ""}")
        outbox.stop(how.reason)
        // The last of all: whoever sees it may begin anew.
        board.link.value = how
    }

    private suspend fun load() {
        val stored = storage.load()
        state = stored.state.lost()
        saved = state
        board.state.value = state
        outbox.load(stored.outbox)
    }

    private suspend fun keepUp(): Link.Stopped {
        var refused: String? = null
        while (true) {
            board.link.value = Link.Connecting
            val secret = secrets.secret(refused)
            if (secret == null || secret == refused) return Link.Stopped(StopReason.SECRET_REFUSED)
            val ending = connect(secret)
            val inStepMs = inStepSince?.elapsedNow()?.inWholeMilliseconds
            if (inStepMs != null) refused = null
            state = state.lost()
            board.state.value = state
            config.log("connection ended: code ${ending.code?.code}, status ${ending.status}, ${ending.cause}")
            when (val next = reconnect.next(ending, inStepMs, announcedMs)) {
                is Next.AskSecret -> refused = secret
                is Next.Stop -> return Link.Stopped(next.reason, ending.code)
                is Next.Wait -> {
                    board.link.value = Link.Waiting(next.delayMs, ending.code, ending.status, ending.cause)
                    if (next.isAsked) delay(next.delayMs) else withTimeoutOrNull(next.delayMs) { wake.receive() }
                }
            }
        }
    }

    // One connection

    private suspend fun connect(secret: String): Ending = coroutineScope {
        announcedMs = null
        inStepSince = null
        val request = HttpRequest.Builder().url(config.url).header("Authorization", "Bearer $secret").build()
        val inbox = Channel<Inbound>(INBOX)
        val socket = http.newWebSocket(request, SocketListener(PhebyJson.encode(hello()), inbox))
        var connection: Connection? = null
        try {
            val welcome = when (val first = welcome(inbox)) {
                is Inbound.End -> return@coroutineScope first.ending
                is Inbound.Text -> PhebyJson.decodeServerFrame(first.text) as Welcome
            }
            connection = Connection(socket, welcome.limits)
            Incoming(welcome, connection, this).run(inbox)
        } finally {
            connection?.end()
            inbox.cancel()
            // In good order where that is possible; what does not answer is cut off a minute later.
            socket.close(CloseCode.NORMAL.code, null)
            coroutineContext.cancelChildren()
        }
    }

    private fun hello(): Hello = Hello(
        nextId(),
        listOf(ProtocolLimits.PROTOCOL_VERSION.toLong()),
        config.client,
        listOf(ClientCapabilities.BATCH),
        state.cursor?.let { cursor -> state.epoch?.let { Cursor(it.value, cursor) } },
    )

    /** The welcome, or how it went without one. */
    private suspend fun welcome(inbox: ReceiveChannel<Inbound>): Inbound = withTimeoutOrNull(config.welcomeMs) {
        var found: Inbound? = null
        while (found == null) {
            val item = inbox.receive()
            found = if (item is Inbound.Text && decoded(item.text) !is Welcome) null else item
        }
        found
    } ?: Inbound.End(Ending())

    private fun decoded(text: String): ServerFrame? = try {
        PhebyJson.decodeServerFrame(text).also { if (it is ErrorFrame && it.id == null) announcedMs = it.retryAfterMs }
    } catch (error: ProtocolException) {
        config.log("a frame could not be read: ${error.message}")
        null
    }

    /** What comes on a connection that was welcomed. */
    private inner class Incoming(
        private val welcome: Welcome,
        private val connection: Connection,
        private val scope: CoroutineScope,
    ) {
        private var isDurable = true
        private val told = ArrayList<Event>()
        private val answers = ArrayList<() -> Unit>()
        private var isInStep = false

        suspend fun run(inbox: ReceiveChannel<Inbound>): Ending {
            fold(welcome)
            while (true) {
                val ending = take(inbox)
                commit()
                if (ending != null) return ending
            }
        }

        /** What has come meanwhile is applied together, and stored once. */
        private suspend fun take(inbox: ReceiveChannel<Inbound>): Ending? {
            var item: Inbound? = inbox.receive()
            var count = 0
            while (item != null) {
                when (item) {
                    is Inbound.End -> return item.ending
                    is Inbound.Text -> read(item.text)
                }
                item = if (++count < MOST_TOGETHER) inbox.tryReceive().getOrNull() else null
            }
            return null
        }

        private fun read(text: String) {
            try {
                fold(PhebyJson.decodeServerFrame(text))
            } catch (error: ProtocolException) {
                config.log("a frame could not be read: ${error.message}")
                val asked = connection.find(error.requestId) ?: return
                answers += { asked.answer.completeExceptionally(undecodable(asked.request.id)) }
            }
        }

        private fun fold(frame: ServerFrame) {
            when (frame) {
                is ResultFrame -> if (frame is Welcome) state = state.apply(frame) else answered(frame)
                is ErrorFrame -> failed(frame)
                is SyncCompleted -> {
                    state = state.apply(frame)
                    isInStep = true
                }
                is Batch -> frame.events.forEach(::fold)
                is Event -> {
                    val next = state.apply(frame)
                    // What was applied before is no news.
                    if (frame !is LoggedEvent || next !== state) told += frame
                    state = next
                    if (frame is ServerDraining) announcedMs = frame.reconnectAfterMs
                }
                is Snapshot -> state = state.apply(frame)
            }
            // What only streams need not be written: the next event or snapshot has it.
            if (frame !is TransientEvent && frame !is Batch) isDurable = true
        }

        private fun answered(result: ResultFrame) {
            val asked = connection.find(result.id) ?: return
            if (!fits(asked.request, result)) {
                config.log("${asked.request.type} was answered by ${result.type}")
                answers += { asked.answer.completeExceptionally(undecodable(result.id)) }
                return
            }
            val next = asked.fold?.invoke(state, result) ?: state.answered(asked.request, result)
            // A page that the app asked for need not be all that is missing.
            val isPage = result is ConversationHistoryResult && asked.fold == null
            state = if (isPage) next.copy(needsHistory = state.needsHistory + next.needsHistory) else next
            answers += { asked.answer.complete(result) }
        }

        private fun failed(error: ErrorFrame) {
            if (error.id == null) announcedMs = error.retryAfterMs ?: announcedMs
            val asked = connection.find(error.id) ?: return
            answers += { asked.answer.completeExceptionally(RequestFailedException(error)) }
        }

        private suspend fun commit() {
            // An answer in flight is compared with what has changed since; without one the marks are of no use.
            if (state.changedAt.size > MOST_MARKS && connection.isQuiet) state = state.copy(changedAt = emptyMap())
            if (isDurable) {
                storage.save(saved, state)
                saved = state
                isDurable = false
            }
            board.state.value = state
            if (isInStep && inStepSince == null) start()
            told.forEach { board.events.emit(it) }
            answers.forEach { it() }
            told.clear()
            answers.clear()
        }

        private fun start() {
            inStepSince = TimeSource.Monotonic.markNow()
            board.link.value = Link.InStep(welcome, connection)
            scope.launch { untilLost { Delivery(outbox, connection, welcome, nextId, config).run() } }
            scope.launch { untilLost { Healing(board.state, connection, welcome, nextId, config).run() } }
            scope.launch { untilLost { probe() } }
        }

        /** Each time when the app is in a hurry: a line that slept with the phone may be dead and not know it. */
        private suspend fun probe() {
            for (hurried in wake) {
                withTimeoutOrNull(minOf(config.pingIntervalMs, PROBE_MS)) { isThere() } ?: connection.cut()
            }
        }

        private suspend fun isThere(): Boolean = try {
            connection.ask(Ping(nextId()))
            true
        } catch (error: RequestFailedException) {
            // An answer, too.
            true
        }
    }

    private suspend fun untilLost(work: suspend () -> Unit) {
        try {
            work()
        } catch (error: ConnectionLostException) {
            config.log("interrupted")
        }
    }

    private companion object {
        const val INBOX = 16
        const val MOST_TOGETHER = 64
        const val MOST_MARKS = 1_000
        const val PROBE_MS = 5_000L
    }
}

/** Sends what the owner has sent, in order and without waiting for each other, each until a receipt is there. */
internal class Delivery(
    private val outbox: Outbox,
    private val connection: Connection,
    private val welcome: Welcome,
    private val nextId: () -> RequestId,
    private val config: ClientConfig,
) {
    private val since = TimeSource.Monotonic.markNow()
    private val changes = Channel<Unit>(Channel.CONFLATED)
    private val sending: MutableSet<ClientMessageId> = Collections.newSetFromMap(ConcurrentHashMap())

    suspend fun run(): Unit = coroutineScope {
        launch { outbox.items.collect { changes.send(Unit) } }
        for (change in changes) {
            while (true) {
                val item = next() ?: break
                sending += item.clientMessageId
                val marked = marked(item)
                // Up to where it waits for the answer, so that what was said first is sent first.
                launch(start = CoroutineStart.UNDISPATCHED) {
                    deliver(marked)
                    sending -= item.clientMessageId
                    changes.send(Unit)
                }
            }
        }
    }

    private fun next(): Outgoing? = outbox.items.value.firstOrNull { it.isWaiting && it.clientMessageId !in sending }
        ?.takeIf { sending.size < MOST_AT_ONCE }

    private suspend fun marked(item: Outgoing): Outgoing {
        if (item.firstSentAt != null) return item
        val now = welcome.serverTime + since.elapsedNow().inWholeMilliseconds
        outbox.change(item.clientMessageId) { it.copy(firstSentAt = now) }
        return item.copy(firstSentAt = now)
    }

    private suspend fun deliver(item: Outgoing) {
        val isOld = item.firstSentAt!! < welcome.receiptsSince
        var tries = 0
        while (true) {
            try {
                withTimeoutOrNull(config.requestMs) { if (isOld) lookUp(item) else send(item) } ?: continue
                return
            } catch (error: RequestFailedException) {
                if (!error.isPassing() || ++tries > MOST_TRIES) return outbox.refused(item.clientMessageId, error.error)
                delay(error.error.retryAfterMs ?: (config.firstDelayMs shl tries))
            }
        }
    }

    private suspend fun send(item: Outgoing) {
        val request = MessageSend(nextId(), item.conversationId, item.clientMessageId, item.text, item.ifBusy)
        outbox.done((connection.ask(request) as MessageSendResult).receipt)
    }

    /** What the server may have forgotten is not sent again unless the owner wants it. */
    private suspend fun lookUp(item: Outgoing) {
        try {
            val request = MessageReceipt(nextId(), item.clientMessageId)
            outbox.done((connection.ask(request) as MessageReceiptResult).receipt)
        } catch (error: RequestFailedException) {
            if (error.code != ErrorCode.NotFound) throw error
            outbox.change(item.clientMessageId) { it.copy(askOwner = true) }
        }
    }

    private companion object {
        const val MOST_TRIES = 5
        const val MOST_AT_ONCE = 8
    }
}

private fun RequestFailedException.isPassing(): Boolean =
    code == ErrorCode.RateLimited || code == ErrorCode.Unavailable || code == ErrorCode.NotReady ||
        code == ErrorCode.Internal || (code is ErrorCode.Unknown && error.retryable)

/** Asks for what the state lacks: texts with a gap, history that was changed, conversations that may be gone. */
internal class Healing(
    private val states: StateFlow<ClientState>,
    private val connection: Connection,
    private val welcome: Welcome,
    private val nextId: () -> RequestId,
    private val config: ClientConfig,
) {
    /** What the server did not give; asked again on the next connection. */
    private val refused = HashSet<Wish>()

    private sealed interface Wish {
        data class Text(val messageId: MessageId) : Wish

        data class History(val conversationId: ConversationId, val from: Position) : Wish

        data object List : Wish
    }

    suspend fun run(): Nothing {
        while (true) {
            val wish = states.firstOf { state -> wishes(state).firstOrNull { it !in refused } }
            try {
                withTimeoutOrNull(WISH_MS) { fulfil(wish) } ?: refused.add(wish)
            } catch (error: RequestFailedException) {
                config.log("could not heal: ${error.code.wire}")
                refused.add(wish)
            }
        }
    }

    private fun wishes(state: ClientState): Sequence<Wish> = sequence {
        yieldAll(state.needsText.map { Wish.Text(it) })
        yieldAll(state.needsHistory.map { Wish.History(it.key, it.value) })
        if (state.unconfirmed.isNotEmpty()) yield(Wish.List)
    }

    private suspend fun fulfil(wish: Wish): Unit = when (wish) {
        is Wish.Text -> text(wish)
        is Wish.History -> history(wish)
        is Wish.List -> list()
    }

    /** The parts of a long text belong together where all of them are of the same change. */
    private suspend fun text(wish: Wish.Text) {
        val parts = ArrayList<MessageTextResult>()
        do {
            val request = MessageText(nextId(), wish.messageId, parts.lastOrNull()?.next)
            parts += connection.ask(request) { state, result ->
                val last = result as MessageTextResult
                val all = parts + last
                if (last.next != null || all.any { it.index != last.index }) state
                else state.applyAnswer(request.copy(cursor = null), last.copy(text = all.joinToString("") { it.text }))
            } as MessageTextResult
        } while (parts.last().next != null)
        if (parts.any { it.index != parts.last().index }) refused.add(wish)
    }

    /** From the newest page back to where the change began. The wish stays until all of it is there. */
    private suspend fun history(wish: Wish.History) {
        var before: Position? = null
        do {
            val request = ConversationHistory(nextId(), wish.conversationId, welcome.limits.maxHistoryLimit, before)
            val page = connection.ask(request) { state, result ->
                val wanted = state.needsHistory[wish.conversationId]
                val next = state.applyAnswer(request, result as ConversationHistoryResult)
                val done = isLast(result, wish) && wanted == wish.from
                if (done || wanted == null) next
                else next.copy(needsHistory = mapOf(wish.conversationId to wanted) + next.needsHistory)
            } as ConversationHistoryResult
            before = page.before
        } while (!isLast(page, wish))
    }

    private fun isLast(page: ConversationHistoryResult, wish: Wish.History): Boolean {
        val first = page.before
        return !page.hasMore || first == null || first <= wish.from
    }

    private suspend fun list() {
        var cursor: ListCursor? = null
        do {
            val page = connection.ask(ConversationList(nextId(), welcome.limits.maxListLimit, cursor)) as ConversationListResult
            cursor = page.next
        } while (cursor != null && states.value.unconfirmed.isNotEmpty())
    }

    private companion object {
        const val WISH_MS = 60_000L
    }
}
