package pheby.client

import java.io.File
import java.net.UnknownHostException
import javax.net.ssl.SSLException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.launch
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir
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

/** Address and secret from a code that `pheby pair` shows; null for a code of anything else. */
fun paired(code: String): Pair<String, String>? {
    val found = runCatching { PhebyJson.json.parseToJsonElement(code).jsonObject }.getOrNull() ?: return null
    if (found["pheby"] != JsonPrimitive(1)) return null
    return found.getValue("url").jsonPrimitive.content to found.getValue("secret").jsonPrimitive.content
}

/** What stands above every screen: nothing while the client is in step. */
fun banner(link: Link): String? = when (link) {
    is Link.InStep -> null
    is Link.Idle, is Link.Connecting -> "Connecting …"
    is Link.Waiting -> when {
        link.cause is SSLException -> "The server's certificate is not trusted."
        link.status == 404 || link.cause is UnknownHostException -> "Nothing answers at that address."
        else -> "No connection."
    }
    is Link.Stopped -> when (link.reason) {
        StopReason.SECRET_REFUSED -> "The server does not take this secret any more. Pair again."
        StopReason.REPLACED -> "This device is connected from somewhere else."
        StopReason.UPDATE_NEEDED -> "Update the app or the server."
        StopReason.BUG, StopReason.FAILED -> "Something went wrong. Please report it."
        StopReason.CLOSED -> null
    }
}

/** Does what the owner asked for, and tells what came of it where that is not on the screen anyway. */
suspend fun attempt(tell: (String) -> Unit, work: suspend () -> Unit): Unit = try {
    work()
} catch (error: RequestFailedException) {
    when (error.code) {
        ErrorCode.AlreadyResolved, ErrorCode.Expired -> tell("That was decided elsewhere.")
        ErrorCode.NotFound -> tell("That is gone.")
        ErrorCode.TooLarge -> tell("That text is too long.")
        else -> tell(error.error.message)
    }
} catch (error: NoAnswerException) {
    tell("No answer. Try again.")
} catch (error: DownloadException) {
    tell(if (error.status == 410) "The file has expired." else "The file did not arrive.")
} catch (error: ClientStoppedException) {
    // The banner says it.
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
    fun `what is in files is there after a restart`(@TempDir folder: File) = withServer { server ->
        val storage = FileStorage(folder)
        val words = listOf("one", "two").map { Outgoing(ClientMessageId(it), ConversationId("conv_1"), it) }
        words.forEach { storage.keep(it) }
        storage.keep(words[0].copy(askOwner = true))
        storage.forget(words[1].clientMessageId)
        val client = PhebyClient(server.config(), { "secret" }, storage)
        client.connect()
        val line = server.inStep()
        line.send(event("message.created", 11, """"message":${message("msg_1", 1024)}"""))
        client.state.first { it.cursor == 11L }
        client.close()
        val stored = FileStorage(folder).load()
        assertEquals(listOf(words[0].copy(askOwner = true)), stored.outbox)
        assertEquals(client.state.value.digest(), stored.state.digest())
    }

    @Test
    fun `a code to scan has address and secret`() {
        assertEquals("wss://h.example/v1/ws" to "s", paired("""{"pheby":1,"url":"wss://h.example/v1/ws","secret":"s"}"""))
        for (other in listOf("https://h.example", "[1]", "{}", """{"pheby":2}""")) assertEquals(null, paired(other), other)
    }

    @Test
    fun `what goes wrong is told in words`() = withServer { server ->
        assertEquals("No connection.", banner(Link.Waiting(10)))
        assertEquals("Nothing answers at that address.", banner(Link.Waiting(10, cause = UnknownHostException())))
        for (reason in StopReason.entries) assertEquals(reason == StopReason.CLOSED, banner(Link.Stopped(reason)) == null)
        val told = ArrayList<String>()
        val client = PhebyClient(server.config(), { "secret" })
        client.connect()
        val line = server.inStep()
        launch {
            val asked = line.receive() as ConversationRename
            line.send("""{"type":"error","id":"${asked.id}","code":"not_found","message":"","retryable":false}""")
        }
        attempt(told::add) { client.rename(ConversationId("conv_1"), "Title") }
        assertEquals(listOf("That is gone."), told)
        client.close()
        attempt(told::add) { client.ping() }
        assertEquals(1, told.size)
    }

    @Test
    fun `each frame has its kind`() {
        assertEquals("in step", kindOf("""{"type":"sync.completed","seq":1}"""))
        assertEquals("of a later version: skip, but move the cursor", kindOf("""{"type":"star.born","seq":2}"""))
        assertEquals("no, because of busy", kindOf("""{"type":"error","id":"c1","code":"busy","message":"","retryable":true}"""))
    }
}
