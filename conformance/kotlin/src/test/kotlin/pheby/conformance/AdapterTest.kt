package pheby.conformance

import java.io.ByteArrayOutputStream
import java.io.InputStream
import java.io.PipedInputStream
import java.io.PipedOutputStream
import java.io.PrintStream
import kotlinx.coroutines.async
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonObject
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import pheby.client.ClientState
import pheby.client.NOTHING_OPEN
import pheby.client.conversation
import pheby.client.withServer
import pheby.protocol.ApprovalRespond
import pheby.protocol.MessageSend
import pheby.protocol.PhebyJson
import pheby.protocol.Project
import pheby.protocol.sameValue
import pheby.protocol.text

/** What the conformance suite talks to. */
class AdapterTest {
    private fun json(text: String): JsonObject = PhebyJson.json.parseToJsonElement(text).jsonObject

    @Test
    fun `the codec answers each vector with what it makes of it`() {
        val vectors = Project.vectors.take(300) + Project.vectors.filter { it.text("id").startsWith("traps/") }
        val asked = vectors.joinToString("\n") { vector -> JsonObject(vector.filterKeys { it in setOf("id", "target", "wire") }).toString() }
        val out = ByteArrayOutputStream()
        codec(asked.reader().buffered(), PrintStream(out, false, "UTF-8"))
        val answers = out.toString("UTF-8").lines().filter { it.isNotEmpty() }.map(::json)
        assertEquals(vectors.size, answers.size)
        for ((vector, answer) in vectors zip answers) {
            assertEquals(vector["id"], answer["id"])
            if (vector.text("valid") != "either") assertEquals(vector["valid"], answer["valid"], vector.text("id"))
            val expected = vector["reencoded"] ?: continue
            answer["reencoded"]?.let { assertTrue(sameValue(expected, it), vector.text("id")) }
        }
    }

    @Test
    fun `the client does as its owner, and tells at the end of its input what it shows`() = withServer { server ->
        val input = PipedInputStream()
        val end = PipedOutputStream(input)
        val out = ByteArrayOutputStream()
        val running = async { watch(server.url, "secret", "send-twice", input, PrintStream(out)) }
        val line = server.inStep(conversations = conversation("conv_1"))
        assertEquals("say hello", (line.receive() as MessageSend).text)
        end.close()
        running.await()
        val told = json(out.toString("UTF-8"))
        val snapshot = """{"type":"snapshot","part":0,"last":true,"seq":10,"conversations":[${conversation("conv_1")}],$NOTHING_OPEN}"""
        val epoch = ClientState(epoch = pheby.protocol.Epoch("e_1"))
        assertEquals(epoch.apply(PhebyJson.decodeServerFrame(snapshot)).digest(), told.text("digest"))
        assertEquals(JsonPrimitive(10), told["cursor"])
    }

    @Test
    fun `a client that was stopped says why`() = withServer { server ->
        val out = ByteArrayOutputStream()
        val never = object : InputStream() {
            override fun read(): Int = Thread.sleep(60_000).let { -1 }
        }
        val running = async { watch(server.url, "secret", "approve", never, PrintStream(out)) }
        val line = server.inStep()
        val approval = """{"approval_id":"appr_1","kind":"command","conversation_id":"conv_1","position":1,"description":"d","command":"rm",
            "command_truncated":false,"choices":["once","deny"],"answerable":true,"status":"pending","created_at":1}"""
        line.send("""{"type":"approval.requested","seq":11,"time":1,"conversation_id":"conv_1","approval":$approval}""")
        assertEquals("once", (line.receive() as ApprovalRespond).choice)
        line.end(4409)
        running.await()
        assertEquals("replaced", json(out.toString("UTF-8")).text("stopped"))
    }
}
