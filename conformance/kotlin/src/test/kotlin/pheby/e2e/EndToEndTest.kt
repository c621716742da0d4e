package pheby.e2e

import java.io.ByteArrayOutputStream
import java.io.File
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.atomic.AtomicInteger
import kotlin.random.Random
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.mapNotNull
import kotlinx.coroutines.isActive
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeout
import kotlinx.serialization.json.JsonObject
import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.TestFactory
import org.junit.jupiter.api.TestInstance
import pheby.client.ClientConfig
import pheby.client.ClientState
import pheby.client.Link
import pheby.client.MemoryStorage
import pheby.client.PhebyClient
import pheby.client.RequestFailedException
import pheby.client.Storage
import pheby.client.TcpProxy
import pheby.protocol.*

/** The client with Pheby's own server: what an owner does, and what a bad line does to it. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class EndToEndTest {
    private val demo = Demo()
    private val devices = AtomicInteger()

    @AfterAll
    fun end(): Unit = demo.close()

    private fun config(url: String = demo.url): ClientConfig =
        ClientConfig(url, ClientInfo("end to end", "1", DeviceId("device-${devices.incrementAndGet()}")))

    private fun client(storage: Storage = MemoryStorage(), config: ClientConfig = config(), demo: Demo = this.demo): PhebyClient =
        PhebyClient(config, { demo.secret }, storage)

    /** A client in step, all events that it gets, and an end. */
    private fun chat(seconds: Long = 60, test: suspend CoroutineScope.(Chat) -> Unit): Unit = runBlocking {
        withTimeout(seconds * 1_000) {
            val client = client()
            val events = CopyOnWriteArrayList<Event>()
            val collector = launch(Dispatchers.Default, CoroutineStart.UNDISPATCHED) { client.events.collect { events += it } }
            client.connect()
            client.awaitInStep()
            test(Chat(client, events, client.create().conversationId))
            client.close()
            collector.cancel()
        }
    }

    private class Chat(val client: PhebyClient, private val all: List<Event>, val conversationId: ConversationId) {
        val events: List<Event> get() = all.filter { "\"conversation_id\":\"$conversationId\"" in PhebyJson.encode(it) }

        suspend fun say(text: String): RunId = client.send(conversationId, text).runId

        suspend fun ended(runId: RunId): Run = client.state.mapNotNull { it.runs[runId] }.first { it.endedAt != null }

        suspend fun pending(): Approval = client.state.mapNotNull { state -> state.approvals.values.find { it.isMine() } }.first()

        private fun Approval.isMine() = status == PromptStatus.Pending && conversationId == this@Chat.conversationId

        suspend fun asked(): Clarification = client.state.mapNotNull { state ->
            state.clarifications.values.find { it.status == PromptStatus.Pending && it.conversationId == conversationId }
        }.first()

        suspend fun streaming(): Message = client.state.mapNotNull { state ->
            state.messages.values.find { it.status == MessageState.Streaming && it.text.isNotEmpty() && it.conversationId == conversationId }
        }.first()
    }

    // What happens in a run

    private val scenarios: Map<String, suspend (Chat) -> Unit> = mapOf(
        "plain" to { it.ended(it.say("say hello")) },
        "tool-then-text" to { it.ended(it.say("run echo hello")) },
        "two-parallel-tools" to { it.ended(it.say("tools")) },
        "approval-once" to { it.decide("once") },
        "approval-session" to { it.decide("session") },
        "approval-deny" to { it.decide("deny") },
        "clarification-by-choice" to { it.clarify("ask Which colour?|red|green", "green") },
        "clarification-by-text" to { it.clarify("ask Which colour?|red|green", text = "pink") },
        "clarification-open" to { it.clarify("ask What is your name?", text = "Ada") },
        "clarification-of-several" to { it.clarify("choose Which colours?|red|green|blue", "red", "blue") },
        "cancel-in-mid-stream" to {
            val run = it.say("slow 200")
            it.streaming()
            it.client.cancel(run)
            it.ended(run)
            it.ended(it.say("say next"))
        },
        "cancel-what-is-queued" to {
            val first = it.say("slow 200")
            it.streaming()
            val second = it.say("say never")
            it.client.cancel(second)
            it.client.cancel(first)
            it.ended(first)
        },
        "provider-error" to { it.ended(it.say("fail 401")) },
        "empty-reply" to { it.ended(it.say("empty")) },
        "subagent-with-two-tools" to { chat ->
            chat.say("delegate tools")
            chat.client.state.first { state -> state.runs.values.count { it.conversationId == chat.conversationId && it.endedAt != null } == 3 }
        },
    )

    private suspend fun Chat.decide(choice: String) {
        val run = say("danger ${doomed.path}")
        val asked = pending()
        assertTrue(choice in asked.choices)
        assertEquals(choice, client.approve(asked.approvalId, choice).decision)
        ended(run)
    }

    private suspend fun Chat.clarify(question: String, vararg labels: String, text: String? = null) {
        val run = say(question)
        val asked = asked()
        client.clarify(asked.clarificationId, asked.choices.filter { it.label in labels }.map { it.choiceId }, text)
        ended(run)
    }

    private val doomed: File by lazy { demo.home.resolve("doomed").also { it.mkdir() } }

    @TestFactory
    fun `what happens in a run is what is stored of it`(): List<DynamicTest> = scenarios.map { (name, play) ->
        dynamicTest(name) {
            chat { chat ->
                play(chat)
                val expected = Project.run(name)
                // Some of it comes a moment behind the end of the run.
                val found = eventually({ Seen(doomed.path).of(chat.events) }) { it.size >= expected.size }
                assertEquals(expected.joinToString("\n"), found.joinToString("\n") { ordered(it, expected) })
            }
        }
    }

    /** With the keys in the order of what is compared. */
    private fun ordered(found: JsonObject, expected: List<JsonObject>): String =
        (expected.find { it == found } ?: found).toString()

    // Requests

    @Test
    fun `conversations are made, listed, named and deleted on every device`() = chat { chat ->
        val client = chat.client
        val other = client()
        other.connect()
        assertEquals(chat.conversationId, client.conversation(chat.conversationId).conversationId)
        assertEquals("Mine", client.rename(chat.conversationId, "Mine").title)
        other.state.first { it.conversations[chat.conversationId]?.title == "Mine" }
        val copy = client.create()
        val conflict = runCatching { client.rename(copy.conversationId, "Mine") }.exceptionOrNull() as RequestFailedException
        assertEquals(ErrorCode.TitleConflict, conflict.code)
        val newest = client.list(limit = 1)
        assertEquals(1, newest.conversations.size)
        assertTrue(client.list(limit = 1, cursor = newest.next).conversations.single() != newest.conversations.single())
        client.delete(copy.conversationId)
        client.delete(copy.conversationId)
        other.state.first { it.inStep && copy.conversationId !in it.conversations }
        val gone = runCatching { client.history(copy.conversationId) }.exceptionOrNull() as RequestFailedException
        assertEquals(ErrorCode.NotFound, gone.code)
        assertTrue(client.ping().serverTime > 0)
        other.close()
    }

    @Test
    fun `a receipt, a text and a cancel by the send`() = chat { chat ->
        val client = chat.client
        val id = ClientMessageId("mine-${devices.incrementAndGet()}")
        val sent = client.send(chat.conversationId, "slow 200", clientMessageId = id)
        assertEquals(Disposition.Started, sent.disposition)
        chat.streaming()
        val busy = runCatching { client.send(chat.conversationId, "no", IfBusy.REJECT) }.exceptionOrNull() as RequestFailedException
        assertEquals(ErrorCode.Busy, busy.code)
        client.cancel(id)
        assertEquals(RunState.Cancelled, chat.ended(sent.runId).status)
        val receipt = client.receipt(id)
        assertEquals(sent.messageId, receipt.messageId)
        assertTrue(receipt.duplicate || receipt.state == ReceiptState.Done)
        assertTrue(client.send(chat.conversationId, "slow 200", clientMessageId = id).duplicate)
        assertEquals("slow 200", client.text(sent.messageId))
        assertEquals(emptyList<Any>(), client.outbox.value)
    }

    @Test
    fun `models and efforts are listed where the server has them`() = chat { chat ->
        val welcome = chat.client.awaitInStep()
        for ((capability, ask) in mapOf<String, suspend () -> ResultFrame>(
            ServerCapabilities.MODELS to { chat.client.models(chat.conversationId) },
            ServerCapabilities.REASONING to { chat.client.efforts(chat.conversationId) },
        )) {
            val answer = runCatching { ask() }
            if (welcome.capabilities[capability] == true) answer.getOrThrow()
            else assertEquals(ErrorCode.Unavailable, (answer.exceptionOrNull() as RequestFailedException).code)
        }
    }

    @Test
    fun `a long reply arrives whole`() = chat { chat ->
        chat.ended(chat.say("long 100000"))
        val reply = chat.client.state.value.messages.values.single { it.role == MessageRole.Assistant && it.conversationId == chat.conversationId }
        assertEquals(100_000, reply.text.length)
        assertEquals(reply.text, chat.client.text(reply.messageId))
    }

    // A bad line

    @Test
    fun `a file arrives over a line that breaks`() = chat { chat ->
        val bytes = Random(1).nextBytes(8_000_000)
        val file = demo.home.resolve("work").also { it.mkdir() }.resolve("data.bin")
        file.writeBytes(bytes)
        chat.say("media ${file.path}")
        val attachment = chat.client.state.mapNotNull { state -> state.attachments.values.find { it.conversationId == chat.conversationId } }.first()
        assertEquals(attachment.attachmentId, chat.client.attachment(attachment.attachmentId).attachmentId)
        TcpProxy(demo.port).use { proxy ->
            var cuts = 0
            val out = object : ByteArrayOutputStream() {
                override fun write(b: ByteArray, off: Int, len: Int) {
                    super.write(b, off, len)
                    if (size() > (cuts + 1) * 2_000_000) {
                        cuts++
                        proxy.cut()
                    }
                }
            }
            client(config = config(demo.through(proxy))).download(attachment, out)
            assertArrayEquals(bytes, out.toByteArray())
            assertEquals(3, cuts)
        }
    }

    private fun Demo.through(proxy: TcpProxy): String = url.replace(":$port/", ":${proxy.port}/")

    @Test
    fun `a line that is cut again and again loses nothing and doubles nothing`() = runBlocking {
        val seconds = System.getProperty("cut.seconds").toInt()
        // One of its own: the phone is there from the beginning.
        Demo().use { own ->
            TcpProxy(own.port).use { proxy -> withTimeout((seconds + 60) * 1_000L) { cutAgainAndAgain(own, proxy, seconds) } }
        }
    }

    private suspend fun cutAgainAndAgain(own: Demo, proxy: TcpProxy, seconds: Int) = withContext(Dispatchers.Default) {
        val storage = MemoryStorage()
        val config = config(own.through(proxy))
        var phone = client(storage, config, own)
        val desk = client(config = config(own.url), demo = own)
        val (atPhone, atDesk) = listOf(phone, desk).map { it.seqs(this) }
        listOf(phone, desk).forEach { it.connect() }
        listOf(phone, desk).forEach { it.awaitInStep() }
        val conversation = phone.create().conversationId
        val beside = phone.create().conversationId
        var lines = 0
        var cuts = 0
        val texts = ArrayList<String>()
        val watcher = launch { phone.link.collect { if (it is Link.InStep) lines++ } }
        val reader = launch { phone.state.collect { state -> state.reply(conversation)?.let { texts += it.text } } }
        val cutter = launch {
            // Long enough for something to be missed.
            while (isActive) {
                phone.link.first { it is Link.InStep }
                delay(1_400)
                cuts++
                proxy.isDown = true
                delay(600)
                proxy.isDown = false
            }
        }
        phone.send(conversation, "slow ${seconds * 10}")
        // Words that are sent while it breaks: each is answered once, and what comes of it is missed by turns.
        val said = (1..3).map { number -> launch { repeat(seconds / 2) { phone.send(beside, "say $number-$it") } } }
        said.forEach { it.join() }
        desk.state.first { state -> state.runs.size == 1 + 3 * (seconds / 2) && state.runs.values.none { it.endedAt == null } }
        cutter.cancel()
        proxy.isDown = false
        phone.state.first { it.inStep }
        watcher.cancel()
        reader.cancel()
        assertTrue(cuts >= 2 && lines >= cuts, "$cuts cuts, in step $lines times")

        // The phone got what the desk got, in order, each once; and another process goes on from what was stored.
        eventually({ atPhone.toList() to atDesk.toList() }) { (a, b) -> a == b && a.last() == phone.state.value.cursor }
        assertEquals(atDesk.toList(), atPhone.toList())
        assertEquals(atPhone.toSortedSet().toList(), atPhone.toList())
        // What streamed grew, and nothing else.
        val words = (1..seconds * 10).joinToString(" ") { "w$it" }
        for ((before, after) in texts.zipWithNext()) assertTrue(words.startsWith(after) && after.startsWith(before), "$before | $after")
        assertEquals(words, phone.state.value.reply(conversation)!!.text)
        val owner = phone.state.value.messages.values.filter { it.role == MessageRole.User }.map { it.text }
        assertEquals(1 + 3 * (seconds / 2), owner.size)
        assertEquals(owner.toSet().size, owner.size)
        phone.close()
        phone = client(storage, config, own)
        phone.connect()
        phone.awaitInStep()

        // Who was not there and reads the history shows the same.
        val fresh = client(config = config(own.url), demo = own)
        fresh.connect()
        fresh.awaitInStep()
        fresh.readAll()
        val digests = eventually({ listOf(phone, desk, fresh).map { it.state.value } }) { all -> all.map { it.digest() }.toSet().size == 1 }
        for (state in digests) assertEquals(sorted(digests.last()), sorted(state))
        assertEquals(1, digests.map { it.digest() }.toSet().size)
        listOf(phone, desk, fresh).forEach { it.close() }
    }

    private fun PhebyClient.seqs(scope: CoroutineScope): MutableList<Long> {
        val found = CopyOnWriteArrayList<Long>()
        val job = scope.launch(start = CoroutineStart.UNDISPATCHED) { events.collect { if (it is LoggedEvent) found += it.seq } }
        scope.launch { link.first { it is Link.Stopped }.also { job.cancel() } }
        return found
    }

    /** For people: where two states differ. */
    private fun sorted(state: ClientState): String = state.shown().entries.joinToString("\n") { (kind, items) ->
        kind + " " + ((items as? JsonObject)?.entries?.sortedBy { it.key }?.joinToString("\n") ?: items)
    }

    private fun ClientState.reply(conversation: ConversationId): Message? =
        messages.values.find { it.conversationId == conversation && it.role == MessageRole.Assistant }

    private suspend fun PhebyClient.readAll() {
        for (conversation in state.value.conversations.keys) {
            var before: Position? = null
            do {
                val page = history(conversation, limit = 7, before = before)
                before = page.before
            } while (page.hasMore)
        }
    }

    /** What is found once it is as it should be, or what it is after ten seconds. */
    private suspend fun <T> eventually(find: () -> T, isRight: (T) -> Boolean): T {
        var found = find()
        repeat(200) {
            if (isRight(found)) return found
            delay(50)
            found = find()
        }
        return found
    }
}
