package pheby.client

import java.util.concurrent.ConcurrentLinkedQueue
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import mockwebserver3.Dispatcher
import mockwebserver3.MockResponse
import mockwebserver3.MockWebServer
import mockwebserver3.RecordedRequest
import okhttp3.Headers
import okhttp3.WebSocket
import okhttp3.WebSocketListener
import pheby.protocol.ClientFrame
import pheby.protocol.ClientInfo
import pheby.protocol.DeviceId
import pheby.protocol.Hello
import pheby.protocol.PhebyJson

/** A server that says what the test says, behind a line that can be cut. */
class FakeServer : AutoCloseable {
    private val web = MockWebServer()
    private val lines = Channel<Line>(Channel.UNLIMITED)

    /** Answers before the upgrade, used up one by one. */
    val refusals = ConcurrentLinkedQueue<MockResponse>()

    /** Answers to requests for files. */
    val files = ConcurrentLinkedQueue<MockResponse>()

    /** Every HTTP request in order. */
    val requests = ConcurrentLinkedQueue<RecordedRequest>()

    init {
        web.dispatcher = object : Dispatcher() {
            override fun dispatch(request: RecordedRequest): MockResponse {
                requests += request
                if (request.headers["Upgrade"] == null) return files.poll() ?: MockResponse(code = 500)
                val line = Line(request.headers)
                return refusals.poll() ?: MockResponse.Builder().webSocketUpgrade(line).build()
            }
        }
        web.start()
    }

    private val proxy = TcpProxy(web.port)
    val url: String = "ws://127.0.0.1:${proxy.port}/prefix/v1/ws"

    fun config(requestMs: Long = 5_000): ClientConfig = ClientConfig(
        url,
        ClientInfo("test", "1", DeviceId("device")),
        requestMs = requestMs,
        firstDelayMs = 20,
        longestDelayMs = 100,
    )

    /** The next connection, its hello read. */
    suspend fun line(): Line = lines.receive().also { it.hello = it.receive() as Hello }

    /** The next connection, brought in step. */
    suspend fun inStep(seq: Long = 10, conversations: String = ""): Line = line().also { it.step(seq, conversations) }

    fun cut(): Unit = proxy.cut()

    override fun close() {
        proxy.close()
        web.close()
    }

    /** One WebSocket from the server's end. */
    inner class Line(val headers: Headers) : WebSocketListener() {
        private val received = Channel<String>(Channel.UNLIMITED)
        private lateinit var socket: WebSocket
        lateinit var hello: Hello
        val closed = Channel<Int>(Channel.UNLIMITED)
        val queued: Long get() = socket.queueSize()

        override fun onOpen(webSocket: WebSocket, response: okhttp3.Response) {
            socket = webSocket
            lines.trySend(this)
        }

        override fun onMessage(webSocket: WebSocket, text: String) {
            received.trySend(text)
        }

        override fun onClosing(webSocket: WebSocket, code: Int, reason: String) {
            closed.trySend(code)
            webSocket.close(code, null)
        }

        override fun onFailure(webSocket: WebSocket, t: Throwable, response: okhttp3.Response?) {
            closed.trySend(1006)
        }

        suspend fun receive(): ClientFrame = PhebyJson.decodeClientFrame(received.receive())

        /** What was received and not asked for. */
        fun left(): List<String> = generateSequence { received.tryReceive().getOrNull() }.toList()

        fun send(text: String) {
            socket.send(text)
        }

        fun end(code: Int) {
            socket.close(code, null)
        }

        fun step(seq: Long = 10, conversations: String = "") {
            welcome(resumed = false)
            send("""{"type":"snapshot","part":0,"last":true,"seq":$seq,"conversations":[$conversations],$NOTHING_OPEN}""")
            send("""{"type":"sync.completed","seq":$seq}""")
        }

        fun welcome(resumed: Boolean, since: Long = 0, maxFrameBytes: Long = 1_048_576) {
            send(
                """{"type":"welcome","id":"${hello.id}","protocol_version":1,"connection_id":"c","server":{"name":"fake",
                "version":"1","hermes_version":"1"},"server_time":5000,"capabilities":{},"access_mode":"full","limits":{
                "max_frame_bytes":$maxFrameBytes,"max_server_frame_bytes":1048576,"max_text_chars":100000,"max_list_limit":100,
                "max_history_limit":200,"max_pending_requests":64},"heartbeat_ms":30000,"schema_digest":"d","epoch":"e_1",
                "seq":10,"resumed":$resumed,"receipts_since":$since}""",
            )
        }
    }
}

const val NOTHING_OPEN: String = """"runs":[],"messages":[],"tool_calls":[],"approvals":[],"clarifications":[]"""

fun conversation(name: String, head: Long = 0): String =
    """{"conversation_id":"$name","title":"$name","title_source":"none","created_at":1,"updated_at":1,"last_activity_at":1,
    "history_id":"h_1","history_head":$head}"""

fun message(name: String, position: Long, more: String = """"status":"completed","text":"words""""): String =
    """{"message_id":"$name","conversation_id":"conv_1","position":$position,"role":"assistant","origin":"chat",
    "text_truncated":false,"attachments":[],"created_at":1,$more}"""

fun event(type: String, seq: Long, rest: String): String =
    """{"type":"$type","seq":$seq,"time":1,"conversation_id":"conv_1",$rest}"""

/** Runs a test against a server, with an end. */
fun withServer(test: suspend CoroutineScope.(FakeServer) -> Unit): Unit =
    FakeServer().use { server -> runBlocking { withTimeout(20_000) { test(server) } } }
