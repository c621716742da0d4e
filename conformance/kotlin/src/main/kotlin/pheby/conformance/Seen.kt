package pheby.conformance

import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.atomic.AtomicInteger
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.async
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.update
import kotlinx.coroutines.launch
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonPrimitive
import pheby.client.ClientState
import pheby.client.Link
import pheby.client.PhebyClient
import pheby.protocol.LoggedEvent
import pheby.protocol.Message
import pheby.protocol.MessageId
import pheby.protocol.MessageState

/** What an app would notice of a bad line. Told beside the state, once the client has heard of a place in the log. */
internal class Seen(private val client: PhebyClient, scope: CoroutineScope) {
    private val seqs = MutableStateFlow(emptyList<Long>())
    private val inStep = AtomicInteger()
    private val rewritten = CopyOnWriteArrayList<MessageId>()
    /** Where it began: no event is told of what was before that. */
    private val start = scope.async(start = CoroutineStart.UNDISPATCHED) { client.state.first { it.inStep }.cursor!! }

    init {
        fun watch(work: suspend () -> Unit) = scope.launch(start = CoroutineStart.UNDISPATCHED) { work() }
        watch { client.events.collect { event -> if (event is LoggedEvent) seqs.update { it + event.seq } } }
        watch { client.link.collect { if (it is Link.InStep) inStep.incrementAndGet() } }
        watch {
            var before = client.state.value
            client.state.collect { now ->
                rewritten += before.messages.values.filter { it.isRewritten(now) }.map { it.messageId }
                before = now
            }
        }
    }

    /** Whether its text is now anything but a longer one. */
    private fun Message.isRewritten(now: ClientState): Boolean =
        status == MessageState.Streaming && now.messages[messageId]?.text?.startsWith(text) != true

    suspend fun report(cursor: Long): Map<String, JsonElement> {
        val state = client.state.first { it.isWhole && (it.cursor ?: -1) >= cursor }
        val start = start.await()
        val heard = seqs.first { (it.lastOrNull() ?: start) >= cursor }
        return state.report() + mapOf(
            "seqs" to JsonArray(heard.map { JsonPrimitive(it) }),
            "in_step" to JsonPrimitive(inStep.get()),
            "rewritten" to JsonArray(rewritten.map { JsonPrimitive(it.value) }),
        )
    }

    private val ClientState.isWhole: Boolean
        get() = inStep && needsText.isEmpty() && needsHistory.isEmpty() && unconfirmed.isEmpty()
}
