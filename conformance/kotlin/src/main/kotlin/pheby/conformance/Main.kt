/** The tools that run.sh starts: `codec`, `client URL` and `say TEXT`. Not part of the client that an app copies. */
package pheby.conformance

import java.io.File
import java.util.UUID
import kotlin.system.exitProcess
import kotlinx.coroutines.runBlocking
import okhttp3.OkHttpClient
import pheby.client.ClientConfig
import pheby.client.PhebyClient
import pheby.protocol.ClientInfo
import pheby.protocol.DeviceId

private const val CODEC = "codec"
private const val CLIENT = "client [--ca FILE] URL"
private const val SAY = "say --url URL --secret-env NAME [--ca FILE] TEXT"
private const val PING_MS = 5_000L

public fun main(arguments: Array<String>) {
    val out = System.out
    val lines = System.`in`.bufferedReader()
    val code = runBlocking {
        when (arguments.firstOrNull()) {
            CODEC -> {
                codec(lines, out)
                0
            }
            "client" -> {
                val (options, url) = parse(arguments, setOf("--ca"), CLIENT)
                obey(client(url, secret("PHEBY_SECRET"), "kotlin-conformance", options), lines, out)
                0
            }
            "say" -> {
                val (options, text) = parse(arguments, setOf("--url", "--secret-env", "--ca"), SAY)
                val url = options["--url"] ?: usage(SAY)
                val secret = secret(options["--secret-env"] ?: usage(SAY))
                say(client(url, secret, "say-${UUID.randomUUID()}", options), text, out)
            }
            else -> usage("$CODEC | $CLIENT | $SAY")
        }
    }
    // The threads of the HTTP client end a minute later.
    exitProcess(code)
}

/** Options with their values, and what stands behind them. */
private fun parse(arguments: Array<String>, known: Set<String>, how: String): Pair<Map<String, String>, String> {
    val words = arguments.drop(1)
    val pairs = words.dropLast(1).chunked(2)
    if (words.isEmpty() || pairs.any { it.size < 2 || it[0] !in known }) usage(how)
    return pairs.associate { it[0] to it[1] } to words.last()
}

private fun client(url: String, secret: String, device: String, options: Map<String, String>): PhebyClient {
    val config = ClientConfig(url, ClientInfo("pheby-kotlin", "1", DeviceId(device)), pingIntervalMs = PING_MS, log = System.err::println)
    val http = options["--ca"]?.let { trusting(File(it)) } ?: OkHttpClient()
    return PhebyClient(config, { refused -> secret.takeIf { refused == null } }, http = http)
}

private fun secret(variable: String): String = System.getenv(variable) ?: usage("set $variable")

private fun usage(text: String): Nothing {
    System.err.println(text)
    exitProcess(2)
}
