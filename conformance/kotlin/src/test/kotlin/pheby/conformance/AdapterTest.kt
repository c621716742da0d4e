package pheby.conformance

import java.io.ByteArrayOutputStream
import java.io.PipedInputStream
import java.io.PipedOutputStream
import java.io.PrintStream
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.jsonObject
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import pheby.client.ClientState
import pheby.client.NOTHING_OPEN
import pheby.client.PhebyClient
import pheby.client.conversation
import pheby.client.withServer
import pheby.protocol.ApprovalRespond
import pheby.protocol.ClarificationRespond
import pheby.protocol.Epoch
import pheby.protocol.MessageSend
import pheby.protocol.PhebyJson
import pheby.protocol.Project
import pheby.protocol.RunCancel
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
            if (answer.text("valid") == "true") assertTrue(sameValue(expected, json(answer.text("wire"))), vector.text("id"))
        }
    }

    @Test
    fun `the client does what it is told, and tells what it shows`() = withServer { server ->
        val asked = """{"type":"approval.requested","seq":11,"time":1,"conversation_id":"conv_1","approval":{"approval_id":"appr_1",
            "kind":"command","conversation_id":"conv_1","position":1,"description":"d","command":"c","command_truncated":false,
            "choices":["once","deny"],"answerable":true,"status":"pending","created_at":1}}"""
        val orders = PipedOutputStream()
        val out = PipedOutputStream()
        val told = PipedInputStream(out).bufferedReader()
        val lines = PipedInputStream(orders).bufferedReader()
        val running = async(Dispatchers.Default) { obey(PhebyClient(server.config(), { "secret" }), lines, PrintStream(out)) }
        fun order(line: String) {
            orders.write("$line\n".toByteArray())
            orders.flush()
        }
        order("""{"do":"send","conversation_id":"conv_1","text":"words"}""")
        order("""{"do":"cancel","run_id":"run_1"}""")
        order("""{"do":"answer","clarification_id":"clar_1","choice_ids":["1"],"text":"and"}""")
        val line = server.inStep(conversations = conversation("conv_1"))
        line.send(asked)
        do order("""{"do":"state"}""") while ("appr_1" !in told.readLine())
        order("""{"do":"approve","approval_id":"appr_1","choice":"nonsense"}""")
        order("""{"do":"approve","approval_id":"appr_1","choice":"once"}""")
        val received = List(4) { line.receive() }
        assertEquals("words", received.filterIsInstance<MessageSend>().single().text)
        assertEquals("run_1", received.filterIsInstance<RunCancel>().single().runId!!.value)
        assertEquals("once", received.filterIsInstance<ApprovalRespond>().single().choice)
        assertEquals(listOf("1"), received.filterIsInstance<ClarificationRespond>().single().choiceIds.map { it.value })
        order("""{"do":"state"}""")
        val snapshot = """{"type":"snapshot","part":0,"last":true,"seq":10,"conversations":[${conversation("conv_1")}],$NOTHING_OPEN}"""
        val before = ClientState(epoch = Epoch("e_1")).apply(PhebyJson.decodeServerFrame(snapshot))
        val expected = before.apply(PhebyJson.decodeServerFrame(asked))
        val answer = json(told.readLine())
        assertEquals(expected.digest(), answer.text("digest"))
        assertTrue(sameValue(expected.shown(), answer.getValue("state")))
        orders.close()
        running.await()
    }
}
