package pheby.client

import java.io.File
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.launch
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import pheby.protocol.*

// What docs/kotlin.md and conformance/kotlin/README.md show.

/** The whole of a first chat: the words are sent once, and the answer is there when this returns. */
suspend fun firstChat(url: String, deviceId: String, secrets: SecretSource, storage: Storage): String {
    val info = ClientInfo(name = "My app", version = "1.0", deviceId = DeviceId(deviceId))
    val client = PhebyClient(ClientConfig(url, info), secrets, storage)
    client.connect()
    val conversation = client.create()
    val receipt = client.send(conversation.conversationId, "say hello")
    val ended = client.state.first { it.runs[receipt.runId]?.endedAt != null }
    val answer = ended.messages.values.filter { it.runId == receipt.runId && it.role == MessageRole.Assistant }
    client.close()
    return answer.joinToString("\n") { it.text }
}

/** What the screens of one conversation show, drawn again with every change. */
suspend fun show(client: PhebyClient, conversationId: ConversationId, draw: (List<String>) -> Unit): Unit =
    client.state.collect { state ->
        val messages = state.messages.values.filter { it.conversationId == conversationId }.sortedBy { it.position }
        val asked = state.approvals.values.filter { it.conversationId == conversationId && it.answerable }
        draw(messages.map { "${it.role.wire}: ${it.text}" } + asked.map { "${it.command}? ${it.choices}" })
    }

/** A frame by its kind: how a client of one's own reads the socket. */
fun kindOf(text: String): String = when (val frame = PhebyJson.decodeServerFrame(text)) {
    is LoggedEvent -> "store ${frame.seq} together with what it changes"
    is TransientEvent -> "show"
    is ResultFrame -> "the answer to ${frame.id}"
    is ErrorFrame -> "no, because of ${frame.code.wire}"
    is Snapshot -> "collect until the last part"
    is SyncCompleted -> "in step"
    is Batch -> "each of ${frame.events.size} as if it had come alone"
    is UnknownServerFrame -> "of a later version: skip, but move the cursor"
}

/** What conformance/kotlin/README.md shows: the lines that an app needs, and what it has of its own. */
abstract class LinesOfAnApp(
    private val installationId: String, private val storage: Storage, private val appScope: CoroutineScope,
) {
    abstract suspend fun secretOrAsk(refused: String?): String?
    abstract fun show(messages: Map<*, *>, approvals: Map<*, *>, clarifications: Map<*, *>)
    abstract fun explain(reason: StopReason)

    suspend fun lines(approval: Approval, attachment: Attachment, temporaryFile: File) {
        val info = ClientInfo("My app", "1.0", DeviceId(installationId))   // minted once per installation, not in backups
        val client = PhebyClient(ClientConfig("wss://host/v1/ws", info), { refused -> secretOrAsk(refused) }, storage, parent = appScope)
        client.connect()

        appScope.launch { client.state.collect { show(it.messages, it.approvals, it.clarifications) } }
        appScope.launch { client.link.collect { link -> if (link is Link.Stopped) explain(link.reason) } }

        val conversation = client.create()
        client.send(conversation.conversationId, "Are the backups complete?")
        client.approve(approval.approvalId, "once")                        // only ever by the owner's hand
        client.download(attachment, temporaryFile.outputStream())
    }
}

class ExampleTest {
    @Test
    fun `the first chat has its answer`() = withServer { server ->
        val config = server.config()
        launch {
            val line = server.inStep()
            val create = line.receive() as ConversationCreate
            line.send("""{"type":"conversation.create.result","id":"${create.id}","as_of_seq":10,"conversation":${conversation("conv_1")}}""")
            val send = line.receive() as MessageSend
            assertEquals("say hello", send.text)
            line.send(
                """{"type":"message.send.result","id":"${send.id}","receipt":{"client_message_id":"${send.clientMessageId}",
                "message_id":"msg_1","conversation_id":"conv_1","disposition":"started","state":"admitted","run_id":"run_1",
                "duplicate":false}}""",
            )
            val said = message("msg_2", 2048, """"status":"completed","text":"Hello!","run_id":"run_1"""")
            line.send(event("message.created", 11, """"message":$said"""))
            line.send(
                event(
                    "run.ended", 12,
                    """"run":{"run_id":"run_1","conversation_id":"conv_1","origin":"chat","status":"completed",
                    "created_at":1,"started_at":1,"ended_at":2}""",
                ),
            )
        }
        assertEquals("Hello!", firstChat(config.url, "device", { "secret" }, MemoryStorage()))
    }

    @Test
    fun `a screen is drawn with every change`() = withServer { server ->
        val client = PhebyClient(server.config(), { "secret" })
        client.connect()
        val line = server.inStep()
        line.send(event("message.created", 11, """"message":${message("msg_1", 1024)}"""))
        client.state.first { it.cursor == 11L }
        val drawn = CompletableDeferred<List<String>>()
        val drawing = launch { show(client, ConversationId("conv_1")) { drawn.complete(it) } }
        assertEquals(listOf("words"), drawn.await().map { it.substringAfter(": ") })
        drawing.cancel()
        client.close()
    }

    @Test
    fun `each frame has its kind`() {
        assertEquals("in step", kindOf("""{"type":"sync.completed","seq":1}"""))
        assertEquals("of a later version: skip, but move the cursor", kindOf("""{"type":"star.born","seq":2}"""))
        assertEquals("no, because of busy", kindOf("""{"type":"error","id":"c1","code":"busy","message":"","retryable":true}"""))
    }
}
