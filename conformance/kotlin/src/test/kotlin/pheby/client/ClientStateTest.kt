package pheby.client

import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonObject
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.TestFactory
import pheby.protocol.ClientFrame
import pheby.protocol.PhebyJson
import pheby.protocol.Project
import pheby.protocol.ServerFrame
import pheby.protocol.objects
import pheby.protocol.text

/** The reducer of the protocol's own transcripts: after each step the screens show what they show everywhere. */
class ClientStateTest {
    @TestFactory
    fun transcripts(): List<DynamicTest> = Project.transcripts.map { transcript ->
        dynamicTest(transcript.text("name")) {
            var state = ClientState()
            for ((number, step) in transcript.objects("steps").withIndex()) {
                if ("digest" in step) assertEquals(step.text("digest"), state.digest(), "step $number: ${canonical(state.shown())}")
                else state = played(state, step)
            }
            assertEquals(canonical(transcript.getValue("state")), canonical(state.shown()))
            val wishes = JsonObject(
                mapOf(
                    "needs_text" to JsonArray(state.needsText.map { it.value }.sorted().map(::JsonPrimitive)),
                    "needs_history" to JsonObject(state.needsHistory.entries.associate { it.key.value to JsonPrimitive(it.value) }),
                ),
            )
            assertEquals(canonical(transcript.getValue("wishes")), canonical(wishes))
        }
    }

    @Test
    fun `each event may come twice`() {
        for (transcript in Project.transcripts) {
            var state = ClientState()
            for (step in transcript.objects("steps").filter { "digest" !in it }) {
                state = played(state, step)
                val frame = step["frame"] ?: continue
                // A snapshot's part or a welcome is no event.
                if (frame.jsonObject.text("type") in setOf("welcome", "snapshot")) continue
                assertEquals(state, state.apply(server(frame)), transcript.text("name"))
            }
        }
    }

    @Test
    fun `a stored state shows the same`() {
        for (transcript in Project.transcripts) {
            val state = transcript.objects("steps").filter { "digest" !in it }.fold(ClientState(), ::played)
            val text = PhebyJson.json.encodeToString(ClientState.serializer(), state)
            val read = PhebyJson.json.decodeFromString(ClientState.serializer(), text)
            assertEquals(state.digest(), read.digest())
            assertEquals(state.lost().copy(changedAt = emptyMap()), read)
        }
    }

    @Test
    fun `an object that did not change is the same object`() {
        val transcript = Project.transcripts.single { it.text("name") == "turn" }
        var state = ClientState()
        for (step in transcript.objects("steps").filter { "digest" !in it }) {
            val next = played(state, step)
            for ((id, message) in state.messages) if (next.messages[id] == message) assertTrue(next.messages[id] === message)
            state = next
        }
        assertTrue(state.messages.size > 1)
    }

    @Test
    fun `the files of messages in a snapshot are known`() {
        val file = """{"attachment_id":"att_1","conversation_id":"conv_1","message_id":"msg_1","file_name":"a","media_type":"text/plain",
            "size":1,"sha256":"${"0".repeat(64)}","inline_image":false,"status":"available","path":"v1/attachments/att_1",
            "created_at":1,"expires_at":2}"""
        val said = message("msg_1", 1024, """"status":"streaming","index":-1,"text":""""").replace(""""attachments":[]""", """"attachments":[$file]""")
        val parts = """{"type":"snapshot","part":0,"last":true,"seq":1,"conversations":[],$NOTHING_OPEN}"""
            .replace(""""messages":[]""", """"messages":[$said]""")
        assertEquals(listOf("att_1"), ClientState().apply(PhebyJson.decodeServerFrame(parts)).attachments.keys.map { it.value })
    }

    @Test
    fun `canonical JSON is the same text everywhere`() {
        for ((given, expected) in listOf(
            """{ "b": [1, true, null], "a": {} }""" to """{"a":{},"b":[1,true,null]}""",
            """{"\ud83d\ude00":1,"\uffee":2,"ab":3,"a":4}""" to """{"a":4,"ab":3,"￮":2,"😀":1}""",
            """"\u00e9\u0001\u007f\u2028\"\\\/\b\f\n\r\t"""" to "\"é\\u0001\u007f\u2028\\\"\\\\/\\b\\f\\n\\r\\t\"",
            """[0,-0,-7,9007199254740991]""" to """[0,0,-7,9007199254740991]""",
            """[1.0,-0.0,0.5,1e5,1.50,0.1,123456.789]""" to """[1.0,-0.0,0.5,100000.0,1.5,0.1,123456.789]""",
            """[1e15,1e16,1.25e22,1e-4,0.00001,-1.5e-7,1e100]""" to """[1000000000000000.0,1e+16,1.25e+22,0.0001,1e-05,-1.5e-07,1e+100]""",
            """[2e-3,5e-324,1.7976931348623157e308,0.30000000000000004]""" to
                """[0.002,5e-324,1.7976931348623157e+308,0.30000000000000004]""",
        )) {
            assertEquals(expected, canonical(PhebyJson.json.parseToJsonElement(given)))
        }
        assertNotEquals(ClientState().digest(), ClientState(cursor = 1).digest())
    }
}

internal fun server(frame: JsonElement): ServerFrame = PhebyJson.decodeServerFrame(frame.toString())

internal fun played(state: ClientState, step: JsonObject): ClientState {
    step["frame"]?.let { return state.apply(server(it)) }
    val answer = step["answer"]?.jsonObject ?: return state.lost()
    val request: ClientFrame = PhebyJson.decodeClientFrame(answer.getValue("request").toString())
    return state.answered(request, server(answer.getValue("result")))
}
