package pheby.conformance

import java.io.InputStream
import java.io.OutputStream
import java.io.PrintStream
import kotlin.concurrent.thread
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.launch
import kotlinx.coroutines.selects.select
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import pheby.client.ClientConfig
import pheby.client.ClientState
import pheby.client.Link
import pheby.client.PhebyClient
import pheby.client.PhebyException
import pheby.protocol.AttachmentState
import pheby.protocol.ClientInfo
import pheby.protocol.Conversation
import pheby.protocol.DeviceId
import pheby.protocol.PromptStatus

/**
 * A client whose owner does what the scenario's name begins with, once for each thing that it finds: `send`, `approve`,
 * `deny`, `clarify`, `cancel`, `history`, `download`; anything else only watches. It ends when the client has stopped or
 * the input has ended, with one line: `{"digest","cursor","stopped"?}`.
 */
internal suspend fun watch(url: String, secret: String, scenario: String, input: InputStream, out: PrintStream) {
    val info = ClientInfo("pheby-kotlin", "1", DeviceId("kotlin-conformance"))
    val config = ClientConfig(url, info, firstDelayMs = 50, log = System.err::println)
    val client = PhebyClient(config, { refused -> secret.takeIf { refused == null } })
    client.connect()
    val stopped = coroutineScope {
        val owner = launch { own(client, scenario.substringAfterLast('/').substringBefore('-')) }
        val ended = ended(input)
        val stopping = launch { client.link.first { it is Link.Stopped } }
        val how = select<Link.Stopped?> {
            stopping.onJoin { client.link.value as? Link.Stopped }
            ended.onAwait { null }
        }
        listOf(owner, stopping).forEach { it.cancel() }
        how
    }
    val state = client.state.value
    client.close()
    out.println(told(state, stopped))
    out.flush()
}

/** By a thread that nobody waits for: reading cannot be interrupted. */
private fun ended(input: InputStream): CompletableDeferred<Unit> {
    val end = CompletableDeferred<Unit>()
    thread(isDaemon = true) {
        while (input.read() >= 0) continue
        end.complete(Unit)
    }
    return end
}

private fun told(state: ClientState, stopped: Link.Stopped?): JsonObject = JsonObject(
    buildMap {
        put("digest", JsonPrimitive(state.digest()))
        put("cursor", JsonPrimitive(state.cursor))
        stopped?.let { put("stopped", JsonPrimitive(it.reason.name.lowercase())) }
    },
)

private suspend fun own(client: PhebyClient, act: String) {
    val done = HashSet<String>()
    client.link.first { it is Link.InStep }
    if (act == "send") client.attempt { send(anyConversation().conversationId, "say hello") }
    client.state.collect { state ->
        for ((name, todo) in acts(act, state)) if (done.add(name)) client.attempt(todo)
    }
}

private suspend fun PhebyClient.anyConversation(): Conversation = state.value.conversations.values.firstOrNull() ?: create()

/** What the server refuses is told, and the owner goes on. */
private suspend fun PhebyClient.attempt(todo: suspend PhebyClient.() -> Unit): Unit = try {
    todo()
} catch (error: PhebyException) {
    System.err.println("refused: ${error.message}")
}

private fun acts(act: String, state: ClientState): Map<String, suspend PhebyClient.() -> Unit> = when (act) {
    "approve" -> state.approvals.values.filter { it.status == PromptStatus.Pending && it.answerable }
        .associate { it.approvalId.value to { approve(it.approvalId, it.choices.first()) } }
    "deny" -> state.approvals.values.filter { it.status == PromptStatus.Pending && it.answerable }
        .associate { it.approvalId.value to { approve(it.approvalId, "deny") } }
    "clarify" -> state.clarifications.values.filter { it.status == PromptStatus.Pending }.associate { asked ->
        asked.clarificationId.value to {
            val choice = asked.choices.take(1).map { it.choiceId }
            clarify(asked.clarificationId, choice, "Ada".takeIf { choice.isEmpty() })
        }
    }
    "cancel" -> state.conversations.values.mapNotNull { it.activeRunId }.associate { it.value to { cancel(it) } }
    "history" -> state.conversations.keys.associate { it.value to { history(it) } }
    "download" -> state.attachments.values.filter { it.status == AttachmentState.Available }
        .associate { it.attachmentId.value to { download(it, OutputStream.nullOutputStream()) } }
    else -> emptyMap()
}
