package pheby.client

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.channels.SendChannel
import kotlinx.coroutines.channels.trySendBlocking
import kotlinx.coroutines.sync.Semaphore
import kotlinx.coroutines.sync.withPermit
import okhttp3.Response
import okhttp3.WebSocket
import okhttp3.WebSocketListener
import okio.ByteString
import pheby.protocol.CloseCode
import pheby.protocol.ErrorCode
import pheby.protocol.ErrorFrame
import pheby.protocol.Hello
import pheby.protocol.Limits
import pheby.protocol.PhebyJson
import pheby.protocol.Ping
import pheby.protocol.Pong
import pheby.protocol.Request
import pheby.protocol.RequestId
import pheby.protocol.ResultFrame
import pheby.protocol.Welcome

/** How the state changes by an answer, where that is not [ClientState.applyAnswer]. */
internal typealias Fold = (ClientState, ResultFrame) -> ClientState

/** The requests of one connection that wait for their answers. */
internal class Connection(private val socket: WebSocket, private val limits: Limits) {
    private val pending = HashMap<RequestId, Pending>()
    private val permits = Semaphore(limits.maxPendingRequests.coerceIn(1, Int.MAX_VALUE.toLong()).toInt())
    private var isOver = false

    /** A request whose answer is awaited. */
    class Pending(val request: Request<*>, val fold: Fold?) {
        val answer = CompletableDeferred<ResultFrame>()
    }

    val isQuiet: Boolean get() = synchronized(pending) { pending.isEmpty() }

    /** Sends and waits. Throws [RequestFailedException] or [ConnectionLostException]. */
    suspend fun ask(request: Request<*>, fold: Fold? = null): ResultFrame = permits.withPermit {
        val text = PhebyJson.encode(request)
        if (text.encodeToByteArray().size > limits.maxFrameBytes) throw tooLarge(request.id)
        val waiting = Pending(request, fold)
        synchronized(pending) {
            if (isOver) throw ConnectionLostException()
            pending[request.id] = waiting
        }
        try {
            if (!socket.send(text)) throw ConnectionLostException()
            waiting.answer.await()
        } finally {
            synchronized(pending) { pending.remove(request.id) }
        }
    }

    /** The request that a frame answers; null when whoever asked has given up. */
    fun find(id: RequestId?): Pending? = synchronized(pending) { pending[id] }

    /** The line is dead, whatever it says. */
    fun cut(): Unit = socket.cancel()

    /** Nothing will be answered any more. */
    fun end() {
        val left = synchronized(pending) {
            isOver = true
            pending.values.toList()
        }
        left.forEach { it.answer.completeExceptionally(ConnectionLostException()) }
    }

    private fun tooLarge(id: RequestId): RequestFailedException =
        RequestFailedException(ErrorFrame(id, ErrorCode.TooLarge, "The frame is larger than the server takes.", false))
}

/** Whether a result is the one that belongs to the request. */
internal fun fits(request: Request<*>, result: ResultFrame): Boolean = result.type == when (request) {
    is Hello -> Welcome.TYPE
    is Ping -> Pong.TYPE
    else -> "${request.type}.result"
}

/** What comes from a socket. */
internal sealed interface Inbound {
    data class Text(val text: String) : Inbound

    data class End(val ending: Ending) : Inbound
}

/** Hands over what comes. A full inbox stops the reading, and so in the end the server. */
internal class SocketListener(private val hello: String, private val inbox: SendChannel<Inbound>) : WebSocketListener() {
    override fun onOpen(webSocket: WebSocket, response: Response) {
        webSocket.send(hello)
    }

    override fun onMessage(webSocket: WebSocket, text: String) {
        inbox.trySendBlocking(Inbound.Text(text))
    }

    override fun onMessage(webSocket: WebSocket, bytes: ByteString) {
        webSocket.close(CloseCode.UNSUPPORTED_DATA.code, null)
    }

    override fun onClosing(webSocket: WebSocket, code: Int, reason: String) {
        webSocket.close(CloseCode.NORMAL.code, null)
        inbox.trySendBlocking(Inbound.End(Ending(CloseCode(code))))
    }

    override fun onFailure(webSocket: WebSocket, t: Throwable, response: Response?) {
        val status = response?.code?.takeIf { it != SWITCHING }
        inbox.trySendBlocking(Inbound.End(Ending(status = status, retryAfterMs = response?.retryAfterMs(), cause = t)))
    }

    private companion object {
        const val SWITCHING = 101
    }
}

/** The header, where it is a number of seconds. */
internal fun Response.retryAfterMs(): Long? = header("Retry-After")?.toLongOrNull()?.coerceIn(0, MOST_SECONDS)?.times(1_000)

private const val MOST_SECONDS = 86_400L
