package pheby.conformance

import java.io.PrintStream
import kotlinx.coroutines.TimeoutCancellationException
import kotlinx.coroutines.flow.combine
import kotlinx.coroutines.flow.filterNotNull
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.withTimeout
import pheby.client.ClientState
import pheby.client.Link
import pheby.client.PhebyClient
import pheby.client.PhebyException
import pheby.protocol.ConversationId
import pheby.protocol.MessageRole
import pheby.protocol.PromptStatus
import pheby.protocol.Run
import pheby.protocol.RunId
import pheby.protocol.RunState

private const val LONGEST_MS = 300_000L

/** Why there is no answer, for people. */
private class Unanswered(message: String) : Exception(message)

/** One exchange in a conversation of its own: prints the answer, or on the error output why there is none; the exit code. */
internal suspend fun say(client: PhebyClient, text: String, out: PrintStream): Int {
    val trouble = try {
        out.println(withTimeout(LONGEST_MS) { client.ask(text) })
        return 0
    } catch (error: PhebyException) {
        error.message
    } catch (error: Unanswered) {
        error.message
    } catch (error: TimeoutCancellationException) {
        "no answer in time"
    } finally {
        client.close()
    }
    System.err.println("say: $trouble")
    return 1
}

private suspend fun PhebyClient.ask(text: String): String {
    connect()
    val conversationId = create().conversationId
    val runId = send(conversationId, text).runId
    val run = combine(state, link) { state, link -> outcome(state, link, conversationId, runId) }.filterNotNull().first()
    if (run.endedAt == null) {
        cancel(runId)
        throw Unanswered("the agent asks something that only its owner can answer")
    }
    if (run.status != RunState.Completed) throw Unanswered(run.error?.message ?: "the run ended as ${run.status.wire}")
    return answer(runId).ifEmpty { throw Unanswered("the agent said nothing") }
}

/** The run once it has ended, or waits for what only an owner decides. */
private fun outcome(state: ClientState, link: Link, conversationId: ConversationId, runId: RunId): Run? {
    if (link is Link.Stopped) throw Unanswered("the client has stopped: ${link.reason}")
    val asked = state.approvals.values.any { it.conversationId == conversationId && it.status == PromptStatus.Pending } ||
        state.clarifications.values.any { it.conversationId == conversationId && it.status == PromptStatus.Pending }
    return state.runs[runId]?.takeIf { asked || it.endedAt != null }
}

private suspend fun PhebyClient.answer(runId: RunId): String {
    val messages = state.value.messages.values.filter { it.runId == runId && it.role == MessageRole.Assistant }
    return messages.sortedBy { it.position ?: Long.MAX_VALUE }.map { if (it.textTruncated) text(it.messageId) else it.text }
        .filter { it.isNotEmpty() }.joinToString("\n")
}
