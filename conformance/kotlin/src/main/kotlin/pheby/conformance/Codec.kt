package pheby.conformance

import java.io.BufferedReader
import java.io.PrintStream
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import pheby.protocol.Frame
import pheby.protocol.PhebyJson
import pheby.protocol.ProtocolException

/**
 * One JSON object per line, `{"id","target","wire"}` as in the vectors, is answered by one: `{"id","valid":true,
 * "reencoded":{…}}`, or `{"id","valid":false,"flaw":"…"}`.
 */
internal fun codec(lines: BufferedReader, out: PrintStream) {
    for (line in lines.lineSequence()) {
        val asked = PhebyJson.json.parseToJsonElement(line).jsonObject
        val answer: Map<String, JsonElement> = try {
            val frame = read(asked.text("target"), asked.text("wire"))
            mapOf("valid" to JsonPrimitive(true), "reencoded" to PhebyJson.json.parseToJsonElement(PhebyJson.encode(frame)))
        } catch (error: ProtocolException) {
            mapOf("valid" to JsonPrimitive(false), "flaw" to JsonPrimitive(error.message))
        }
        out.println(JsonObject(asked.filterKeys { it == "id" } + answer))
        out.flush()
    }
}

private fun read(target: String, wire: String): Frame = when (target) {
    "client_frame" -> PhebyJson.decodeClientFrame(wire)
    "server_frame" -> PhebyJson.decodeServerFrame(wire)
    else -> PhebyJson.decodeFrame(wire)
}

private fun JsonObject.text(name: String): String = getValue(name).jsonPrimitive.content
