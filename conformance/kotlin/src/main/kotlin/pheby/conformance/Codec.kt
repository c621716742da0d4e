package pheby.conformance

import java.io.BufferedReader
import java.io.PrintStream
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonObject
import pheby.protocol.Frame
import pheby.protocol.PhebyJson
import pheby.protocol.ProtocolException

/** Answers each line `{"id","target","wire"}` by `{"id","valid","wire"}`, the wire being what was read, written again. */
internal fun codec(lines: BufferedReader, out: PrintStream) {
    for (line in lines.lineSequence()) {
        val asked = PhebyJson.json.parseToJsonElement(line).jsonObject
        val answer: Map<String, JsonElement> = try {
            val frame = read(asked.text("target"), asked.text("wire"))
            mapOf("valid" to JsonPrimitive(true), "wire" to JsonPrimitive(PhebyJson.encode(frame)))
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
