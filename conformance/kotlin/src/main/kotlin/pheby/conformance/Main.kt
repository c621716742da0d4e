/** What the conformance suite runs: `codec`, and `client URL`. Tools, not part of the client that an app copies. */
package pheby.conformance

import kotlin.system.exitProcess
import kotlinx.coroutines.runBlocking

public fun main(arguments: Array<String>) {
    when {
        arguments.contentEquals(arrayOf("codec")) -> codec(System.`in`.bufferedReader(), System.out)
        arguments.size == 2 && arguments[0] == "client" -> {
            val secret = System.getenv("PHEBY_SECRET") ?: usage("set PHEBY_SECRET")
            runBlocking { obey(arguments[1], secret, System.`in`.bufferedReader(), System.out) }
            // The threads of the HTTP client end a minute later.
            exitProcess(0)
        }
        else -> usage("codec | client URL")
    }
}

private fun usage(text: String): Nothing {
    System.err.println(text)
    exitProcess(2)
}
