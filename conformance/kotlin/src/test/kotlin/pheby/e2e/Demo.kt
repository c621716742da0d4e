package pheby.e2e

import java.io.File
import java.util.concurrent.TimeUnit
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.jsonObject
import pheby.protocol.PhebyJson
import pheby.protocol.text

/** Pheby's server with a simulated agent, in a process of its own. */
class Demo : AutoCloseable {
    private val process = start()
    private val told: JsonObject
    val url: String get() = told.text("url")
    val secret: String get() = told.text("secret")
    val home: File get() = File(told.text("home"))
    val port: Int get() = Regex(":(\\d+)/").find(url)!!.groupValues[1].toInt()

    init {
        Runtime.getRuntime().addShutdownHook(Thread(process::destroy))
        val line = checkNotNull(process.inputStream.bufferedReader().readLine()) { "the demo did not start" }
        told = PhebyJson.json.parseToJsonElement(line).jsonObject
    }

    private fun start(): Process {
        val python = File(checkNotNull(System.getProperty("python")) { "the build sets the property python" })
        check(python.exists()) { "$python is not there: make kotlin makes it" }
        return ProcessBuilder(python.path, "-P", "-m", "pheby", "demo", "--simulated", "--serve")
            .redirectError(ProcessBuilder.Redirect.INHERIT).start()
    }

    override fun close() {
        process.destroy()
        check(process.waitFor(20, TimeUnit.SECONDS)) { "the demo did not end" }
    }
}
