package pheby.protocol

import kotlinx.serialization.json.JsonObject
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.TestFactory
import org.junit.jupiter.api.fail

/** Every vector of the conformance suite. */
class VectorTest {
    @TestFactory
    fun vectors(): List<DynamicTest> = Project.vectors.map { dynamicTest(it.text("id")) { check(it) } }

    private fun check(vector: JsonObject) {
        // The report does not name dynamic tests.
        val id = vector.text("id")
        val frame = try {
            decode(vector.text("target"), vector.text("wire"))
        } catch (error: ProtocolException) {
            assertTrue(vector.text("valid") != "true", "$id: refused: ${error.message}")
            return
        }
        assertTrue(vector.text("valid") != "false", "$id: read as $frame")
        val written = PhebyJson.encode(frame)
        val expected = vector["reencoded"]
        if (expected != null) {
            val found = PhebyJson.json.parseToJsonElement(written)
            if (!sameValue(expected, found)) fail("$id: written as\n$found\nand not as\n$expected")
        }
        assertEquals(written, PhebyJson.encode(decode(vector.text("target"), written)), id)
    }

    private fun decode(target: String, wire: String): Frame = when (target) {
        "client_frame" -> PhebyJson.decodeClientFrame(wire)
        "server_frame" -> PhebyJson.decodeServerFrame(wire)
        "frame" -> PhebyJson.decodeFrame(wire)
        else -> fail("no such target: $target")
    }
}
