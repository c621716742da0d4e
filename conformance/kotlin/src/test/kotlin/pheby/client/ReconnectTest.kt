package pheby.client

import kotlin.random.Random
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import pheby.protocol.AfterClose
import pheby.protocol.CloseCode

/** What follows the end of a connection is what the tables say. */
class ReconnectTest {
    private val reconnect = Reconnect(100, 3_000, Random(1))

    private fun wait(ending: Ending, inStepMs: Long? = null, announcedMs: Long? = null): Long =
        (reconnect.next(ending, inStepMs, announcedMs) as Next.Wait).delayMs

    @Test
    fun `attempts in vain are further and further apart, with jitter and a bound`() {
        val delays = List(12) { wait(Ending()) }
        for ((tries, delay) in delays.withIndex()) {
            val full = minOf(3_000L, 100L shl tries)
            assertTrue(delay in full / 2..full, "$tries: $delay")
        }
        assertTrue(delays.takeLast(6).toSet().size > 1)
        wait(Ending(CloseCode(1006)), inStepMs = 5_000)
        assertTrue(wait(Ending()) <= 100)
    }

    @Test
    fun `a line that was in step is taken up at once, and not over and over`() {
        assertEquals(0, wait(Ending(CloseCode(1006)), inStepMs = 10))
        assertTrue(wait(Ending(CloseCode(1006)), inStepMs = 10) >= 50)
        assertEquals(0, wait(Ending(CloseCode(1006)), inStepMs = 2_000))
        assertEquals(0, wait(Ending(CloseCode(1006)), inStepMs = 2_000))
        assertTrue(wait(Ending(CloseCode(1011)), inStepMs = 2_000) >= 50)
        // A line that comes and goes does not get worse.
        repeat(20) { assertTrue(wait(Ending(CloseCode(1006)), inStepMs = 10) <= 400) }
    }

    @Test
    fun `what the server asks to wait is waited, and a little more`() {
        for (ending in listOf(Ending(CloseCode(4503)), Ending(CloseCode(1001)), Ending(CloseCode(4429)))) {
            val next = reconnect.next(ending, 5_000, 3_000) as Next.Wait
            assertTrue(next.isAsked && next.delayMs in 3_000..3_100, next.toString())
        }
        assertTrue(wait(Ending(status = 503, retryAfterMs = 1_000)) in 1_000..1_100)
        assertTrue(wait(Ending(status = 429, retryAfterMs = 2_000)) in 2_000..2_100)
        assertTrue(wait(Ending(status = 429, retryAfterMs = 3_000_000)) in 3_000_000..3_000_100)
        assertTrue(wait(Ending(CloseCode(4503)), announcedMs = Long.MAX_VALUE) in 3_600_000..3_600_100)
        assertTrue(wait(Ending(CloseCode(4503)), inStepMs = 5_000) in 50..100)
    }

    @Test
    fun `every code of the table has its consequence`() {
        for (code in CloseCode.known) {
            val expected = when (code.client) {
                AfterClose.RECONNECT, AfterClose.RECONNECT_AFTER_DELAY -> null
                AfterClose.ASK_SECRET -> Next.AskSecret
                AfterClose.STOP_UNTIL_OPENED -> Next.Stop(StopReason.REPLACED)
                AfterClose.UPDATE -> Next.Stop(StopReason.UPDATE_NEEDED)
                AfterClose.REPORT -> Next.Stop(StopReason.BUG)
            }
            val next = reconnect.next(Ending(code), 5_000, null)
            assertEquals(expected, next.takeUnless { it is Next.Wait }, code.toString())
        }
        assertEquals(Next.AskSecret, reconnect.next(Ending(status = 401), null, null))
    }
}
