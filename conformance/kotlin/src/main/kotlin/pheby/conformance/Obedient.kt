package pheby.conformance

import java.io.BufferedReader
import java.io.File
import java.io.OutputStream
import java.io.PrintStream
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelChildren
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import pheby.client.ClientState
import pheby.client.PhebyClient
import pheby.client.PhebyException
import pheby.protocol.ApprovalId
import pheby.protocol.AttachmentId
import pheby.protocol.ChoiceId
import pheby.protocol.ClarificationId
import pheby.protocol.ConversationId
import pheby.protocol.PhebyJson
import pheby.protocol.RunId

/** A client that obeys the lines on its input until that ends, as the suite's README has them, and what [Seen] adds. */
internal suspend fun obey(client: PhebyClient, lines: BufferedReader, out: PrintStream) {
    coroutineScope {
        val seen = Seen(client, this)
        client.connect()
        while (true) {
            val line = withContext(Dispatchers.IO) { lines.readLine() } ?: break
            val order = PhebyJson.json.parseToJsonElement(line).jsonObject
            when (order.text("do")) {
                "state" -> out.tell(client.state.value.report())
                "seen" -> out.tell(seen.report(order.text("cursor").toLong()))
                // What is asked first is sent first; its answer is not waited for.
                else -> launch(Dispatchers.Unconfined) { client.attempt(order) }
            }
        }
        coroutineContext.cancelChildren()
    }
    client.close()
}

private fun PrintStream.tell(report: Map<String, JsonElement>) {
    println(JsonObject(report))
    flush()
}

internal fun ClientState.report(): Map<String, JsonElement> = mapOf("digest" to JsonPrimitive(digest()), "state" to shown())

/** What the server refuses is told, and the owner goes on. */
private suspend fun PhebyClient.attempt(order: JsonObject): Unit = try {
    carryOut(order)
} catch (error: PhebyException) {
    System.err.println("${order.text("do")}: ${error.message}")
}

private suspend fun PhebyClient.carryOut(order: JsonObject) {
    when (order.text("do")) {
        "send" -> send(ConversationId(order.text("conversation_id")), order.text("text"))
        "cancel" -> cancel(RunId(order.text("run_id")))
        "approve" -> {
            val known = ApprovalId(order.text("approval_id"))
            val choice = order.text("choice")
            // Its owner may have heard of it elsewhere first.
            val asked = state.first { known in it.approvals }.approvals.getValue(known)
            if (choice in asked.choices) approve(known, choice)
        }
        "answer" -> {
            val choices = (order["choice_ids"] as? JsonArray).orEmpty().map { ChoiceId(it.jsonPrimitive.content) }
            clarify(ClarificationId(order.text("clarification_id")), choices, order["text"]?.jsonPrimitive?.content)
        }
        "download" -> {
            val known = state.value.attachments.getValue(AttachmentId(order.text("attachment_id")))
            val file = order["file"]?.jsonPrimitive?.content
            (file?.let { File(it).outputStream() } ?: OutputStream.nullOutputStream()).use { download(known, it) }
        }
        else -> System.err.println("not known: $order")
    }
}

internal fun JsonObject.text(name: String): String = getValue(name).jsonPrimitive.content
