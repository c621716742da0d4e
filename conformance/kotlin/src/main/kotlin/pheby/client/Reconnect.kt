package pheby.client

import kotlin.random.Random
import pheby.protocol.AfterClose
import pheby.protocol.CloseCode

/** How a connection ended: a close code, or the status of a refused handshake, or neither, and then mostly with a cause. */
internal data class Ending(
    val code: CloseCode? = null,
    val status: Int? = null,
    val retryAfterMs: Long? = null,
    val cause: Throwable? = null,
)

/** What to do after a connection has ended. */
internal sealed interface Next {
    /** [isAsked]: by the server, so that nothing makes it shorter. */
    data class Wait(val delayMs: Long, val isAsked: Boolean = false) : Next

    data object AskSecret : Next

    data class Stop(val reason: StopReason) : Next
}

/** The table of close codes and of handshake answers, with back-off and jitter. Remembers what was tried in vain. */
internal class Reconnect(private val firstMs: Long, private val longestMs: Long, private val random: Random = Random) {
    private var failures = 0
    private var wasAtOnce = false

    /** [inStepMs] is how long the connection was in step, null for never; [announcedMs] what the server asked to wait. */
    fun next(ending: Ending, inStepMs: Long?, announcedMs: Long?): Next {
        if (ending.status == UNAUTHORIZED) return Next.AskSecret
        val steady = inStepMs != null && inStepMs >= STEADY_MS
        // A line that comes and goes is a bad line, no server in trouble.
        if (inStepMs != null) failures = if (steady) 0 else minOf(failures, MOST_IN_STEP)
        val asked = announcedMs ?: ending.retryAfterMs
        return when (ending.code?.client ?: AfterClose.RECONNECT) {
            AfterClose.RECONNECT -> wait(asked, atOnce = isNetwork(ending) && mayBeAtOnce(inStepMs, steady))
            AfterClose.RECONNECT_AFTER_DELAY -> wait(asked, atOnce = false)
            AfterClose.ASK_SECRET -> Next.AskSecret
            AfterClose.STOP_UNTIL_OPENED -> Next.Stop(StopReason.REPLACED)
            AfterClose.UPDATE -> Next.Stop(StopReason.UPDATE_NEEDED)
            AfterClose.REPORT -> Next.Stop(StopReason.BUG)
        }
    }

    private fun isNetwork(ending: Ending): Boolean =
        ending.status == null && (ending.code?.info == null || ending.code == CloseCode.NORMAL)

    /** A line that was in step is taken up again at once, but not over and over. */
    private fun mayBeAtOnce(inStepMs: Long?, steady: Boolean): Boolean = inStepMs != null && (steady || !wasAtOnce)

    private fun wait(announcedMs: Long?, atOnce: Boolean): Next {
        wasAtOnce = atOnce
        if (announcedMs != null) return Next.Wait(later(announcedMs.coerceIn(0, LONGEST_ANNOUNCED_MS)), isAsked = true)
        if (atOnce) return Next.Wait(0)
        val full = minOf(longestMs, firstMs shl minOf(failures++, MOST_DOUBLINGS))
        return Next.Wait(random.nextLong(full / 2, full + 1))
    }

    /** Not before, and not all clients at the same moment. */
    private fun later(ms: Long): Long = ms + random.nextLong(minOf(ms / 4, firstMs) + 1)

    private companion object {
        const val UNAUTHORIZED = 401
        const val STEADY_MS = 1_000L
        const val MOST_DOUBLINGS = 20
        const val MOST_IN_STEP = 2
        const val LONGEST_ANNOUNCED_MS = 3_600_000L
    }
}
