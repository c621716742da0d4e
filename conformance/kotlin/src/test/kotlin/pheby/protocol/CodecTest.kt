package pheby.protocol

import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.buildJsonObject
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows

/** What a client relies on and no vector can say. */
class CodecTest {
    private val delta = """{"type":"message.delta","conversation_id":"conv_1","message_id":"msg_1","index":0,"text":"hi"}"""

    private fun refused(text: String): ProtocolException = assertThrows<ProtocolException> { PhebyJson.decodeServerFrame(text) }

    @Test
    fun `a request is written with its type, by whichever serializer`() {
        val request = ConversationRename(RequestId("c7"), ConversationId("conv_1"), "Grüße")
        val text = """{"id":"c7","conversation_id":"conv_1","title":"Grüße","type":"conversation.rename"}"""
        assertEquals(text, PhebyJson.encode(request))
        assertEquals(text, PhebyJson.json.encodeToString(ConversationRename.serializer(), request))
        assertEquals(text, PhebyJson.json.encodeToString(ClientFrame.serializer(), request))
    }

    @Test
    fun `defaults are not written`() {
        val send = MessageSend(RequestId("c7"), ConversationId("conv_1"), ClientMessageId("m1"), "hi")
        assertFalse("if_busy" in PhebyJson.encode(send))
        assertTrue("\"if_busy\":\"steer\"" in PhebyJson.encode(send.copy(ifBusy = IfBusy.STEER)))
    }

    @Test
    fun `the answer's type follows from the request's`() {
        fun <R : ResultFrame> call(request: Request<R>, answer: (Request<R>) -> R): R = answer(request)
        val pong: Pong = call(Ping(RequestId("c7"))) { Pong(it.id, 7) }
        assertEquals(7L, pong.serverTime)
    }

    @Test
    fun `an unknown event keeps everything and moves the cursor`() {
        val text = """{"type":"weather.changed","seq":813,"time":1,"sky":null}"""
        val event = PhebyJson.decodeServerFrame(text) as UnknownServerFrame
        assertEquals(813L, event.seq)
        assertEquals("weather.changed", event.type)
        assertNull(event.id)
        assertEquals(text, PhebyJson.encode(event))
        assertFalse("sky" in event.toString())
        for (seq in listOf("-1", "\"813\"", "1.5", "null", "{}")) {
            val other = PhebyJson.decodeServerFrame("""{"type":"weather.changed","seq":$seq}""") as UnknownServerFrame
            assertNull(other.seq)
        }
    }

    /** Compiles as long as these are all the kinds of frames that a server sends. */
    private fun kind(frame: ServerFrame): String = when (frame) {
        is LoggedEvent -> "logged"
        is TransientEvent -> "transient"
        is ResultFrame -> "result"
        is ErrorFrame -> "error"
        is Snapshot, is SyncCompleted -> "sync"
        is Batch -> frame.events.joinToString { kind(it) }
        is UnknownServerFrame -> "unknown"
    }

    @Test
    fun `a batch holds events of every kind`() {
        val deleted = """{"type":"conversation.deleted","seq":1,"time":1,"conversation_id":"conv_1"}"""
        val text = """{"type":"batch","events":[$delta,$deleted,{"type":"x"}]}"""
        assertEquals("transient, logged, unknown", kind(PhebyJson.decodeServerFrame(text)))
    }

    @Test
    fun `an unknown value stays itself`() {
        val state = RunState.of("paused")
        assertTrue(state is RunState.Unknown)
        assertEquals("paused", state.wire)
        assertEquals(RunState.of("paused"), state)
        assertEquals(RunState.Running, RunState.of("running"))
        assertFalse(state in RunState.known)
        assertEquals(7, RunState.known.size)
    }

    @Test
    fun `a failure says where and whose it is, and no value`() {
        val error = refused(
            """{"type":"conversation.list.result","id":"c7","as_of_seq":1,"conversations":[{"conversation_id":"secret!"}]}""",
        )
        assertEquals(Flaw.BAD_FIELD, error.flaw)
        assertEquals("$.conversations[0].conversation_id", error.path)
        assertEquals(RequestId("c7"), error.requestId)
        assertFalse("secret" in error.toString())
        assertNull(error.cause)
    }

    @Test
    fun `a failure names the flaw`() {
        val deep = "[".repeat(ProtocolLimits.MAX_DEPTH) + "]".repeat(ProtocolLimits.MAX_DEPTH)
        for ((text, flaw, path) in listOf(
            Triple("{", Flaw.NOT_JSON, null),
            Triple("""{"type":"x","n":[1]2]}""", Flaw.NOT_JSON, null),
            Triple("""{"type":"x","n":01}""", Flaw.NOT_JSON, null),
            Triple("[1]", Flaw.NOT_AN_OBJECT, null),
            Triple("""{"type":"x","type":"x"}""", Flaw.DUPLICATE_KEY, null),
            Triple("""{"type":"x","n":9007199254740992}""", Flaw.NUMBER_OUT_OF_RANGE, null),
            Triple("""{"type":"x","n":NaN}""", Flaw.NUMBER_OUT_OF_RANGE, null),
            Triple("""{"type":"x","n":1e400}""", Flaw.NUMBER_OUT_OF_RANGE, null),
            Triple("""{"type":"x","n":$deep}""", Flaw.TOO_DEEP, null),
            Triple("""{"type":"x","n":"\ud800"}""", Flaw.LONE_SURROGATE, null),
            Triple("""{"type":"x","\u0000":1}""", Flaw.NUL_CHARACTER, null),
            Triple("""{"id":"c7"}""", Flaw.NO_TYPE, "$.type"),
            Triple("""{"type":"ping","id":"c7"}""", Flaw.BAD_FIELD, "$"),
            Triple("""{"type":"sync.completed"}""", Flaw.BAD_FIELD, "$.seq"),
            Triple("""{"type":"sync.completed","seq":"7"}""", Flaw.BAD_FIELD, "$.seq"),
            Triple("""{"type":"batch","events":[{"type":"error"}]}""", Flaw.BAD_FIELD, "$.events[0]"),
            Triple("""{"type":"batch","events":[$delta,{"type":"server.draining"}]}""", Flaw.BAD_FIELD, "$.events[1].reconnect_after_ms"),
        )) {
            val error = refused(text)
            assertEquals(flaw, error.flaw, text)
            assertEquals(path, error.path, text)
        }
    }

    @Test
    fun `what no frame can carry is not written`() {
        val ping = Ping(RequestId("c7"))
        for (frame in listOf(
            ping.copy(id = RequestId("")),
            ConversationGet(ping.id, ConversationId("a b")),
            ConversationList(ping.id, limit = -1),
            ConversationRename(ping.id, ConversationId("conv_1"), "\ud800"),
            ConversationRename(ping.id, ConversationId("conv_1"), "\u0000"),
            Hello(ping.id, listOf(Long.MAX_VALUE), ClientInfo("a", "1", DeviceId("d"))),
            UnknownClientFrame(buildJsonObject { put("type", JsonPrimitive("x")); put("n", JsonPrimitive(Double.NaN)) }),
        )) {
            assertThrows<ProtocolException>(frame.toString()) { PhebyJson.encode(frame) }
        }
    }

    @Test
    fun `an HTTP error is read`() {
        val error = PhebyJson.decodeHttpError("""{"code":"locked_out","message":"Too many."}""")
        assertEquals(HttpErrorCode.LockedOut, error.code)
        assertEquals(listOf(429), error.code.info!!.statuses)
        assertThrows<ProtocolException> { PhebyJson.decodeHttpError("<html>") }
    }
}
