package pheby.client

import java.util.concurrent.CopyOnWriteArrayList
import kotlin.random.Random
import kotlin.time.TimeSource
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.async
import kotlinx.coroutines.cancel
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.supervisorScope
import kotlinx.coroutines.withTimeoutOrNull
import mockwebserver3.MockResponse
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.fail
import pheby.protocol.*

/** The client against a server that says what the test says. */
class PhebyClientTest {
    private val one = ConversationId("conv_1")

    private fun FakeServer.client(
        storage: Storage = MemoryStorage(), config: ClientConfig = config(), parent: CoroutineScope? = null,
        secrets: SecretSource = SecretSource { "secret" },
    ): PhebyClient = PhebyClient(config, secrets, storage, parent = parent).also { it.connect() }

    private suspend inline fun <reified E : Throwable> failing(block: suspend () -> Unit): E {
        try {
            block()
        } catch (error: Throwable) {
            return error as? E ?: throw error
        }
        fail("nothing was thrown")
    }

    private suspend fun PhebyClient.until(condition: (ClientState) -> Boolean): ClientState = state.first(condition)

    private suspend fun PhebyClient.stopped(): Link.Stopped = link.first { it is Link.Stopped } as Link.Stopped

    private suspend fun FakeServer.Line.sendReceipt(request: MessageSend, duplicate: Boolean = false): Unit = send(
        """{"type":"message.send.result","id":"${request.id}","receipt":{"client_message_id":"${request.clientMessageId}",
        "message_id":"msg_1","conversation_id":"conv_1","disposition":"started","state":"admitted","run_id":"run_1",
        "duplicate":$duplicate}}""",
    )

    // Connecting

    @Test
    fun `it says who it is and shows the snapshot`() = withServer { server ->
        val client = server.client()
        val line = server.inStep(conversations = conversation("conv_1"))
        assertEquals("Bearer secret", line.headers["Authorization"])
        assertEquals("/prefix/v1/ws", server.requests.single().url.encodedPath)
        assertNull(server.requests.single().url.query)
        assertEquals(Hello(line.hello.id, listOf(1), ClientInfo("test", "1", DeviceId("device")), listOf("batch")), line.hello)
        assertEquals("e_1", client.awaitInStep().epoch.value)
        val state = client.until { it.inStep }
        assertEquals(setOf(one), state.conversations.keys)
        assertEquals(10, state.cursor)
        client.close()
        assertEquals(1000, line.closed.receive())
    }

    @Test
    fun `a line that was cut is taken up by the cursor`() = withServer { server ->
        val client = server.client()
        val first = server.inStep()
        first.send(event("message.created", 12, """"message":${message("msg_1", 1024)}"""))
        client.until { it.cursor == 12L }
        server.cut()
        val second = server.line()
        assertEquals(Cursor("e_1", 12), second.hello.resume)
        second.welcome(resumed = true)
        second.send(event("message.created", 13, """"message":${message("msg_2", 2048)}"""))
        second.send("""{"type":"sync.completed","seq":14}""")
        val state = client.until { it.inStep && it.cursor == 14L }
        assertEquals(listOf("msg_1", "msg_2"), state.messages.keys.map { it.value })
        client.close()
    }

    @Test
    fun `cursor and effects are stored together, and another process goes on from there`() = withServer { server ->
        val saves = CopyOnWriteArrayList<Pair<ClientState, ClientState>>()
        val memory = MemoryStorage()
        val storage = object : Storage by memory {
            override suspend fun save(before: ClientState, after: ClientState) {
                saves += before to after
                memory.save(before, after)
            }
        }
        val client = server.client(storage)
        val line = server.inStep()
        for (number in 11L..30L) line.send(event("message.created", number, """"message":${message("msg_$number", number)}"""))
        client.until { it.cursor == 30L }
        client.close()
        for ((before, after) in saves) {
            assertEquals(maxOf(0, (after.cursor ?: 0) - 10), after.messages.size.toLong())
            assertTrue(saves.first().first == before || saves.any { it.second === before })
        }
        assertEquals(client.state.value.digest(), memory.load().state.digest())
        val next = server.client(storage)
        assertEquals(Cursor("e_1", 30), server.line().hello.resume)
        assertEquals(20, next.state.value.messages.size)
        next.close()
    }

    @Test
    fun `what only streams is shown and not written`() = withServer { server ->
        var saves = 0
        val memory = MemoryStorage()
        val client = server.client(object : Storage by memory {
            override suspend fun save(before: ClientState, after: ClientState) {
                saves++
            }
        })
        val line = server.inStep()
        line.send(event("message.created", 11, """"message":${message("msg_1", 1, """"status":"streaming","text":"","index":-1""")}"""))
        client.until { it.cursor == 11L && it.inStep }
        val before = saves
        line.send("""{"type":"message.delta","conversation_id":"conv_1","message_id":"msg_1","index":0,"text":"word"}""")
        client.until { it.messages[MessageId("msg_1")]?.text == "word" }
        assertEquals(before, saves)
        client.close()
    }

    @Test
    fun `a secret that is refused is asked for`() = withServer { server ->
        val asked = CopyOnWriteArrayList<String?>()
        server.refusals += MockResponse(code = 401)
        val client = server.client(secrets = { refused -> asked += refused; if (refused == null) "old" else "new" })
        val line = server.inStep()
        assertEquals("Bearer new", line.headers["Authorization"])
        client.awaitInStep()
        line.end(4401)
        assertEquals(StopReason.SECRET_REFUSED, client.stopped().reason)
        assertEquals(listOf(null, "old", "new"), asked)
        assertEquals(StopReason.SECRET_REFUSED, failing<ClientStoppedException> { client.ping() }.reason)
        assertEquals(StopReason.SECRET_REFUSED, failing<ClientStoppedException> { client.send(one, "words") }.reason)
        client.close()
    }

    @Test
    fun `a client that was replaced stops until it is opened again`() = withServer { server ->
        val client = server.client()
        val line = server.inStep()
        client.awaitInStep()
        line.end(4409)
        assertEquals(Link.Stopped(StopReason.REPLACED, CloseCode.REPLACED), client.stopped())
        client.connect()
        server.inStep()
        client.awaitInStep()
        client.close()
        client.connect()
        assertEquals(StopReason.CLOSED, client.stopped().reason)
    }

    @Test
    fun `codes that end it end it`() {
        for ((code, reason) in listOf(4406 to StopReason.UPDATE_NEEDED, 4400 to StopReason.BUG, 1009 to StopReason.BUG)) {
            withServer { server ->
                val client = server.client()
                server.line().end(code)
                assertEquals(Link.Stopped(reason, CloseCode(code)), client.stopped())
                client.close()
            }
        }
    }

    @Test
    fun `a server that goes down is given the time that it asks for`() = withServer { server ->
        val client = server.client()
        val line = server.inStep()
        client.awaitInStep()
        server.refusals += MockResponse.Builder().code(503).setHeader("Retry-After", "1").build()
        val start = TimeSource.Monotonic.markNow()
        line.send("""{"type":"server.draining","reconnect_after_ms":400}""")
        line.end(4503)
        client.link.first { it is Link.Waiting }
        client.hurry()
        server.inStep()
        assertTrue(start.elapsedNow().inWholeMilliseconds >= 1_400)
        client.close()
    }

    @Test
    fun `a wait that nobody asked for can be cut short`() = withServer { server ->
        repeat(8) { server.refusals += MockResponse(code = 502) }
        val client = server.client(config = server.config().copy(firstDelayMs = 600_000, longestDelayMs = 600_000))
        val back = launch {
            while (true) {
                client.hurry()
                delay(10)
            }
        }
        server.inStep()
        assertEquals(9, server.requests.size)
        back.cancel()
        client.close()
    }

    @Test
    fun `a line that is dead and does not know it is left when the app is in a hurry`() = withServer { server ->
        val client = server.client(config = server.config().copy(pingIntervalMs = 2_000))
        val line = server.inStep()
        client.awaitInStep()
        client.hurry()
        val asked = line.receive() as Ping
        line.send("""{"type":"pong","id":"${asked.id}","server_time":1}""")
        client.hurry()
        assertTrue(line.receive() is Ping)
        // This one is not answered, though the socket's own pings are.
        server.inStep()
        client.awaitInStep()
        client.close()
    }

    @Test
    fun `a redirect does not take the secret elsewhere`() = withServer { server ->
        server.refusals += MockResponse.Builder().code(302).setHeader("Location", server.url.replace("ws:", "http:") + "/other").build()
        val client = server.client()
        server.inStep()
        client.awaitInStep()
        assertTrue(server.requests.all { it.url.encodedPath == "/prefix/v1/ws" })
        client.close()
    }

    @Test
    fun `a server without a word is left`() = withServer { server ->
        val client = server.client(config = server.config().copy(welcomeMs = 100))
        server.line()
        server.inStep()
        client.awaitInStep()
        client.close()
    }

    @Test
    fun `what cannot be read or is unknown is skipped`() = withServer { server ->
        val lines = CopyOnWriteArrayList<String>()
        val client = server.client(config = server.config().copy(log = { lines += it }))
        val line = server.inStep()
        line.send("{")
        line.send("""{"type":"message.created","seq":11,"message":"private"}""")
        line.send("""{"type":"future.event","seq":12}""")
        client.until { it.cursor == 12L }
        assertEquals(2, lines.count { "could not be read" in it })
        assertTrue(lines.none { "private" in it })
        client.close()
    }

    @Test
    fun `events come in order behind the state that has them`() = withServer { server ->
        val client = server.client()
        val line = server.inStep()
        client.awaitInStep()
        val events = async(start = CoroutineStart.UNDISPATCHED) {
            client.events.take(3).toList().map { (it as MessageCreated).message.messageId.value to client.state.value.cursor!! }
        }
        val batched = listOf(11L, 12L).joinToString(",") { event("message.created", it, """"message":${message("msg_$it", it)}""") }
        line.send("""{"type":"batch","events":[$batched]}""")
        line.send("""{"type":"batch","events":[$batched]}""")
        line.send(event("message.created", 13, """"message":${message("msg_13", 13)}"""))
        val found = events.await()
        assertEquals(listOf("msg_11", "msg_12", "msg_13"), found.map { it.first })
        assertTrue(found.all { (name, cursor) -> "msg_$cursor" >= name })
        client.close()
    }

    @Test
    fun `a slow storage slows the server, and fills no memory`() = withServer { server ->
        val gate = CompletableDeferred<Unit>()
        val memory = MemoryStorage()
        val client = server.client(object : Storage by memory {
            override suspend fun save(before: ClientState, after: ClientState) {
                gate.await()
                memory.save(before, after)
            }
        })
        val line = server.inStep()
        val random = Random(1)
        val words = String(CharArray(100_000) { ' ' + random.nextInt(3, 59) })
        var number = 10L
        suspend fun isStuck(): Boolean = line.queued > 4_000_000 && withTimeoutOrNull(500) { while (line.queued > 4_000_000) delay(5) } == null
        // What the sockets between take has an end, and so has this.
        while (!isStuck()) {
            assertTrue(++number < 1_000, "everything was read")
            line.send(event("message.created", number, """"message":${message("msg_$number", number, """"status":"completed","text":"$words"""")}"""))
        }
        gate.complete(Unit)
        client.until { it.cursor == number }
        client.close()
    }

    @Test
    fun `a storage that fails stops the client`() = withServer { server ->
        val client = server.client(object : Storage by MemoryStorage() {
            override suspend fun save(before: ClientState, after: ClientState): Unit = throw IllegalStateException("disk full")
        })
        server.inStep()
        val stopped = client.stopped()
        assertEquals(StopReason.FAILED, stopped.reason)
        assertEquals("disk full", stopped.cause!!.message)
        client.close()
    }

    // Requests

    @Test
    fun `a request is repeated when the line breaks, under another id`() = withServer { server ->
        val client = server.client()
        val first = server.inStep()
        val renamed = async { client.rename(one, "new") }
        val asked = first.receive() as ConversationRename
        server.cut()
        val second = server.inStep()
        val again = second.receive() as ConversationRename
        assertEquals(asked.copy(id = again.id), again)
        assertTrue(asked.id != again.id)
        second.send("""{"type":"conversation.rename.result","id":"${again.id}","conversation":${conversation("conv_1")},"as_of_seq":10}""")
        assertEquals(one, renamed.await().conversationId)
        assertEquals(setOf(one), client.state.value.conversations.keys)
        client.close()
    }

    @Test
    fun `an error is thrown with its code`() = withServer { server ->
        val client = server.client()
        val line = server.inStep()
        supervisorScope {
            val failed = async { failing<RequestFailedException> { client.approve(ApprovalId("appr_1"), "once") } }
            val request = line.receive() as ApprovalRespond
            line.send("""{"type":"error","id":"${request.id}","code":"x_future","message":"No.","retryable":true}""")
            val error = failed.await()
            assertEquals("x_future", error.code.wire)
            assertTrue(error.error.retryable)
        }
        client.close()
    }

    @Test
    fun `an answer that makes no sense fails its request alone`() = withServer { server ->
        val client = server.client()
        val line = server.inStep()
        for (answer in listOf("""{"type":"pong","id":"ID"}""", """{"type":"conversation.delete.result","id":"ID"}""")) {
            val failed = async { failing<RequestFailedException> { client.ping() } }
            line.send(answer.replace("ID", (line.receive() as Ping).id.value))
            assertEquals(ErrorCode.Internal, failed.await().code)
        }
        val pong = async { client.ping() }
        line.send("""{"type":"pong","id":"${(line.receive() as Ping).id}","server_time":7}""")
        assertEquals(7, pong.await().serverTime)
        client.close()
    }

    @Test
    fun `nobody waits for ever`() = withServer { server ->
        val client = server.client(config = server.config(requestMs = 200))
        failing<NoAnswerException> { client.ping() }
        val line = server.inStep()
        failing<NoAnswerException> { client.ping() }
        assertEquals(1, line.left().size)
        client.close()
    }

    @Test
    fun `a frame that the server does not take is not sent`() = withServer { server ->
        val client = server.client()
        val line = server.line()
        line.welcome(resumed = true, maxFrameBytes = 1_000)
        line.send("""{"type":"sync.completed","seq":10}""")
        assertEquals(ErrorCode.TooLarge, failing<RequestFailedException> { client.send(one, "é".repeat(600)) }.code)
        assertEquals(ErrorCode.TooLarge, failing<RequestFailedException> { client.rename(one, "é".repeat(600)) }.code)
        assertEquals(emptyList<String>(), line.left())
        assertEquals(emptyList<Outgoing>(), client.outbox.value)
        client.close()
    }

    @Test
    fun `closing ends everything`() = withServer { server ->
        val client = server.client()
        val line = server.inStep()
        val sent = async { failing<ClientStoppedException> { client.send(one, "words") } }
        line.receive()
        val asked = async { failing<ClientStoppedException> { client.ping() } }
        line.receive()
        client.close()
        assertEquals(StopReason.CLOSED, sent.await().reason)
        assertEquals(StopReason.CLOSED, asked.await().reason)
        assertEquals(listOf("words"), client.outbox.value.map { it.text })
        assertEquals(1000, line.closed.receive())
    }

    @Test
    fun `the end of its parent is its end`() = withServer { server ->
        val parent = CoroutineScope(Dispatchers.Default + Job())
        val client = server.client(parent = parent)
        val line = server.inStep()
        client.awaitInStep()
        parent.cancel()
        assertEquals(StopReason.CLOSED, client.stopped().reason)
        assertEquals(1000, line.closed.receive())
    }

    // Sending

    @Test
    fun `words are stored, then sent under one id until a receipt is there`() = withServer { server ->
        val storage = MemoryStorage()
        val client = server.client(storage)
        val first = server.inStep()
        val receipt = async { client.send(one, "words", IfBusy.STEER) }
        val sent = first.receive() as MessageSend
        val kept = storage.load().outbox.single()
        assertEquals(sent.clientMessageId, kept.clientMessageId)
        assertTrue(kept.firstSentAt!! >= 5_000)
        server.cut()
        val second = server.inStep()
        val again = second.receive() as MessageSend
        assertEquals(sent.copy(id = again.id), again)
        second.sendReceipt(again, duplicate = true)
        assertTrue(receipt.await().duplicate)
        assertEquals(emptyList<Outgoing>(), client.outbox.value)
        assertEquals(emptyList<Outgoing>(), storage.load().outbox)
        client.close()
    }

    @Test
    fun `words that were on their way when the app ended are sent by the next one, in order`() = withServer { server ->
        val storage = MemoryStorage()
        val client = server.client(storage)
        val callers = listOf("one", "two").map { launch(start = CoroutineStart.UNDISPATCHED) { client.send(one, it) } }
        client.outbox.first { it.size == 2 }
        server.line()
        callers.forEach { it.cancelAndJoin() }
        client.close()
        val next = server.client(storage)
        val line = server.inStep()
        for (text in listOf("one", "two")) {
            val sent = line.receive() as MessageSend
            assertEquals(text, sent.text)
            line.sendReceipt(sent)
        }
        next.outbox.first { it.isEmpty() }
        next.close()
    }

    @Test
    fun `words do not wait for each other's receipts, and keep their order`() = withServer { server ->
        val client = server.client()
        val line = server.inStep()
        val receipts = (1..20).map { async(start = CoroutineStart.UNDISPATCHED) { client.send(one, "$it") } }
        val sent = ArrayList(List(8) { line.receive() as MessageSend })
        assertEquals(emptyList<String>(), line.left())
        for (place in 0 until 20) {
            line.sendReceipt(sent[place])
            if (sent.size < 20) sent += line.receive() as MessageSend
        }
        assertEquals(sent.map { it.clientMessageId }, receipts.map { it.await().clientMessageId })
        assertEquals((1..20).map { "$it" }, sent.map { it.text })
        client.close()
    }

    @Test
    fun `what the server may have forgotten is sent again by the owner alone`() = withServer { server ->
        val storage = MemoryStorage()
        val id = ClientMessageId("m1")
        storage.keep(Outgoing(id, one, "words", firstSentAt = 100))
        val client = server.client(storage)
        val line = server.line()
        line.welcome(resumed = true, since = 101)
        line.send("""{"type":"sync.completed","seq":10}""")
        val asked = line.receive() as MessageReceipt
        line.send("""{"type":"error","id":"${asked.id}","code":"not_found","message":"No.","retryable":false}""")
        client.outbox.first { it.single().askOwner }
        assertTrue(storage.load().outbox.single().askOwner)
        assertEquals(emptyList<String>(), line.left())
        client.sendAgain(id)
        val sent = line.receive() as MessageSend
        assertEquals(id, sent.clientMessageId)
        line.sendReceipt(sent)
        client.outbox.first { it.isEmpty() }
        client.close()
    }

    @Test
    fun `words that are refused do not vanish, and hold nothing up`() = withServer { server ->
        val storage = MemoryStorage()
        storage.keep(Outgoing(ClientMessageId("m1"), one, "refused"))
        storage.keep(Outgoing(ClientMessageId("m2"), one, "later"))
        val client = server.client(storage)
        val line = server.inStep()
        fun refuse(request: MessageSend, code: String) =
            line.send("""{"type":"error","id":"${request.id}","code":"$code","message":"No.","retryable":false}""")
        refuse(line.receive() as MessageSend, "not_found")
        val later = line.receive() as MessageSend
        assertEquals("later", later.text)
        refuse(later, "rate_limited")
        val again = line.receive() as MessageSend
        assertEquals(later.copy(id = again.id), again)
        line.sendReceipt(again)
        val left = client.outbox.first { it.size == 1 }.single()
        assertEquals(ErrorCode.NotFound, left.refused)
        client.discard(left.clientMessageId)
        assertEquals(emptyList<Outgoing>(), storage.load().outbox)
        client.close()
    }

    @Test
    fun `a send that nobody can tell of is shown and not repeated`() = withServer { server ->
        val client = server.client()
        val line = server.inStep()
        val user = message("msg_1", 1, """"status":"completed","text":"words","client_message_id":"m1","delivery":"indeterminate"""")
        line.send(event("message.updated", 11, """"message":$user"""))
        assertEquals(listOf("msg_1"), client.until { it.cursor == 11L }.indeterminate.map { it.messageId.value })
        val pong = async { client.ping() }
        line.send("""{"type":"pong","id":"${(line.receive() as Ping).id}","server_time":7}""")
        pong.await()
        assertEquals(emptyList<String>(), line.left())
        client.close()
    }

    // Healing

    @Test
    fun `a gap in a text is closed by asking for it, in parts`() = withServer { server ->
        val client = server.client()
        val line = server.inStep()
        line.send(event("message.created", 11, """"message":${message("msg_1", 1, """"status":"streaming","text":"","index":-1""")}"""))
        line.send("""{"type":"message.delta","conversation_id":"conv_1","message_id":"msg_1","index":3,"text":"late"}""")
        val first = line.receive() as MessageText
        assertNull(first.cursor)
        line.send("""{"type":"message.text.result","id":"${first.id}","text":"one ","next":"4","index":5,"status":"streaming"}""")
        val second = line.receive() as MessageText
        assertEquals("4", second.cursor!!.value)
        line.send("""{"type":"message.text.result","id":"${second.id}","text":"two","index":5,"status":"streaming"}""")
        val state = client.until { it.needsText.isEmpty() && it.messages.isNotEmpty() && it.messages.values.first().index == 5L }
        assertEquals("one two", state.messages.values.single().text)
        client.close()
    }

    @Test
    fun `history that was changed is fetched again, back to where the change began`() = withServer { server ->
        val storage = MemoryStorage()
        val client = server.client(storage)
        val line = server.inStep(conversations = conversation("conv_1", head = 4))
        for (number in 1L..4L) line.send(event("message.created", 10 + number, """"message":${message("old_$number", number)}"""))
        line.send(event("history.changed", 15, """"history_id":"h_2","history_head":9,"from_position":2"""))
        fun page(request: ConversationHistory, more: Boolean, vararg positions: Long) {
            val found = positions.joinToString(",") { message("new_$it", it) }
            line.send(
                """{"type":"conversation.history.result","id":"${request.id}","conversation_id":"conv_1","messages":[$found],
                "tool_calls":[],"runs":[],"approvals":[],"clarifications":[],"before":${positions.first()},
                "after":${positions.last()},"has_more":$more,"history_id":"h_2","as_of_seq":15}""",
            )
        }
        val newest = line.receive() as ConversationHistory
        assertNull(newest.before)
        page(newest, true, 6, 7)
        val older = line.receive() as ConversationHistory
        assertEquals(6, older.before)
        // Half of it is no more than none: another process begins again.
        assertEquals(mapOf(one to 2L), storage.load().state.needsHistory)
        page(older, true, 2, 4)
        val state = client.until { it.needsHistory.isEmpty() && it.messages.size == 5 }
        assertEquals(listOf("new_2", "new_4", "new_6", "new_7", "old_1"), state.messages.keys.map { it.value }.sorted())
        client.close()
    }

    @Test
    fun `conversations that a snapshot does not name are looked for in the list`() = withServer { server ->
        val storage = MemoryStorage()
        val known = listOf("conv_1", "conv_2", "conv_3").joinToString(",") { conversation(it) }
        val client = server.client(storage)
        server.inStep(conversations = known)
        client.awaitInStep()
        client.close()
        val next = server.client(storage)
        val line = server.inStep(conversations = conversation("conv_1"))
        val first = line.receive() as ConversationList
        line.send("""{"type":"conversation.list.result","id":"${first.id}","conversations":[${conversation("conv_1")}],"next":"n","as_of_seq":10}""")
        val second = line.receive() as ConversationList
        assertEquals("n", second.cursor!!.value)
        line.send("""{"type":"conversation.list.result","id":"${second.id}","conversations":[${conversation("conv_3")}],"as_of_seq":10}""")
        val state = next.until { it.inStep && it.unconfirmed.isEmpty() }
        assertEquals(listOf("conv_1", "conv_3"), state.conversations.keys.map { it.value })
        next.close()
    }

    @Test
    fun `what the server does not give is not asked for over and over`() = withServer { server ->
        val client = server.client()
        val line = server.inStep()
        line.send(event("message.created", 11, """"message":${message("msg_1", 1, """"status":"streaming","text":"","index":-1""")}"""))
        line.send("""{"type":"message.delta","conversation_id":"conv_1","message_id":"msg_1","index":3,"text":"late"}""")
        val asked = line.receive() as MessageText
        line.send("""{"type":"error","id":"${asked.id}","code":"internal","message":"No.","retryable":true}""")
        val pong = async { client.ping() }
        val ping = line.receive() as Ping
        line.send("""{"type":"pong","id":"${ping.id}","server_time":7}""")
        pong.await()
        assertEquals(emptyList<String>(), line.left())
        client.close()
    }
}
