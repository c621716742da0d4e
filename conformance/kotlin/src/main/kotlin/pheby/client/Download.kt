package pheby.client

import java.io.IOException
import java.io.OutputStream
import java.security.MessageDigest
import kotlin.coroutines.resume
import kotlin.coroutines.resumeWithException
import kotlinx.coroutines.CancellableContinuation
import kotlinx.coroutines.delay
import kotlinx.coroutines.suspendCancellableCoroutine
import okhttp3.Call
import okhttp3.Callback
import okhttp3.OkHttpClient
import okhttp3.Request
import okhttp3.Response
import pheby.protocol.Attachment

private const val TRIES = 10
private const val LONGEST_DELAY_MS = 10_000L
private const val CHUNK = 65_536
private const val OK = 200
private const val PARTIAL = 206
private val passing = setOf(429, 502, 503, 504)

/** Where an attachment is: its path beside the socket's, with the socket's prefix. */
internal fun address(socketUrl: String, attachment: Attachment): String = socketUrl.removeSuffix("v1/ws") + attachment.path

/** Fetches a file however often the line breaks, as long as each few tries bring something. */
internal suspend fun download(
    http: OkHttpClient,
    config: ClientConfig,
    secret: String,
    attachment: Attachment,
    out: OutputStream,
) {
    val got = Got(out, attachment)
    val base = Request.Builder().url(address(config.url, attachment))
        .header("Authorization", "Bearer $secret").header("Accept-Encoding", "identity").build()
    var tries = 0
    var delayMs = config.firstDelayMs
    while (true) {
        val before = got.size
        val answer = http.fetch(if (before == 0L) base else got.resuming(base), got)
        if (answer.isWhole) break
        if (got.size > before) {
            tries = 0
            delayMs = config.firstDelayMs
        } else if (++tries >= TRIES) {
            throw DownloadException("the line broke too often", answer.status)
        }
        delay(maxOf(delayMs, answer.retryAfterMs ?: 0))
        delayMs = minOf(delayMs * 2, LONGEST_DELAY_MS, config.longestDelayMs)
    }
    got.check()
}

/** What one request brought. */
private class Answer(val isWhole: Boolean, val status: Int? = null, val retryAfterMs: Long? = null)

/** What has come so far. */
private class Got(private val out: OutputStream, private val attachment: Attachment) {
    private val digest = MessageDigest.getInstance("SHA-256")
    private val etag = "\"${attachment.sha256}\""
    private val buffer = ByteArray(CHUNK)
    var size = 0L
        private set

    fun resuming(request: Request): Request =
        request.newBuilder().header("Range", "bytes=$size-").header("If-Range", etag).build()

    /** Takes a body up to its end or break. Runs in a thread that may wait. */
    fun take(response: Response): Answer {
        if (response.code in passing) return Answer(false, response.code, response.retryAfterMs())
        if (response.code != OK && response.code != PARTIAL) {
            throw DownloadException("the server answered ${response.code}", response.code)
        }
        val body = response.body.byteStream()
        try {
            // The bytes of an attachment never change: what came before is the beginning of the whole, too.
            var skip = if (response.code == OK) size else 0
            while (true) {
                val count = body.read(buffer)
                if (count < 0) break
                val old = minOf(skip, count.toLong()).toInt()
                skip -= old
                if (count > old) keep(old, count - old)
            }
        } catch (error: IOException) {
            if (error is WriteException) throw error.error
        }
        return Answer(size == attachment.size, response.code)
    }

    private fun keep(start: Int, count: Int) {
        if (size + count > attachment.size) throw DownloadException("more came than there is")
        try {
            out.write(buffer, start, count)
        } catch (error: IOException) {
            throw WriteException(error)
        }
        digest.update(buffer, start, count)
        size += count
    }

    fun check() {
        if (hexadecimal(digest.digest()) != attachment.sha256) throw DownloadException("what came is not the file")
    }
}

/** Told apart from a line that broke. */
private class WriteException(val error: IOException) : IOException(error)

private suspend fun OkHttpClient.fetch(request: Request, got: Got): Answer = suspendCancellableCoroutine { waiting ->
    val call = newCall(request)
    waiting.invokeOnCancellation { call.cancel() }
    call.enqueue(Fetch(got, waiting))
}

private class Fetch(private val got: Got, private val waiting: CancellableContinuation<Answer>) : Callback {
    override fun onFailure(call: Call, e: IOException): Unit = waiting.resume(Answer(false))

    override fun onResponse(call: Call, response: Response) {
        val answer = try {
            response.use(got::take)
        } catch (error: Exception) {
            return waiting.resumeWithException(error)
        }
        waiting.resume(answer)
    }
}
