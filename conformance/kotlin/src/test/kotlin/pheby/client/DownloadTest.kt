package pheby.client

import java.io.ByteArrayOutputStream
import java.io.IOException
import java.io.OutputStream
import kotlin.random.Random
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.launch
import mockwebserver3.MockResponse
import mockwebserver3.SocketEffect
import okio.Buffer
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.fail
import pheby.protocol.*

/** A file arrives whole and checked, or not at all. */
class DownloadTest {
    private val bytes = Random(1).nextBytes(200_000)
    private val file = Attachment(
        AttachmentId("att_1"), ConversationId("conv_1"), MessageId("msg_1"), "a.bin", "application/octet-stream",
        bytes.size.toLong(), sha256(bytes), false, null, AttachmentState.Available, 1, 2, "v1/attachments/att_1",
    )

    private fun answer(content: ByteArray, code: Int = 200): MockResponse.Builder =
        MockResponse.Builder().code(code).body(Buffer().write(content))

    /** Says how much will come, and breaks off before. */
    private fun cut(start: Int, end: Int): MockResponse = answer(bytes.copyOfRange(start, end), if (start == 0) 200 else 206)
        .setHeader("Content-Length", bytes.size - start).onResponseEnd(SocketEffect.ShutdownConnection).build()

    private fun FakeServer.client(): PhebyClient = PhebyClient(config(), { "secret" })

    private suspend fun FakeServer.refused(vararg answers: MockResponse, attachment: Attachment = file): DownloadException {
        files += answers
        try {
            client().download(attachment, ByteArrayOutputStream())
        } catch (error: DownloadException) {
            return error
        }
        fail("nothing was thrown")
    }

    @Test
    fun `it goes on where the line broke`() = withServer { server ->
        server.files += listOf(cut(0, 50_000), MockResponse(code = 503), cut(50_000, 120_000), answer(bytes.copyOfRange(120_000, 200_000), 206).build())
        val out = ByteArrayOutputStream()
        server.client().download(file, out)
        assertArrayEquals(bytes, out.toByteArray())
        val requests = server.requests.toList()
        assertEquals(listOf(null, "bytes=50000-", "bytes=50000-", "bytes=120000-"), requests.map { it.headers["Range"] })
        assertEquals("\"${file.sha256}\"", requests.last().headers["If-Range"])
        assertNull(requests.first().headers["If-Range"])
        for (request in requests) {
            assertEquals("/prefix/v1/attachments/att_1", request.url.encodedPath)
            assertEquals("Bearer secret", request.headers["Authorization"])
            assertEquals("identity", request.headers["Accept-Encoding"])
        }
    }

    @Test
    fun `a server that begins again is followed`() = withServer { server ->
        server.files += listOf(cut(0, 50_000), answer(bytes).build())
        val out = ByteArrayOutputStream()
        server.client().download(file, out)
        assertArrayEquals(bytes, out.toByteArray())
    }

    @Test
    fun `what is not the file is refused`() = withServer { server ->
        val other = bytes.copyOf().also { it[100_000] = (it[100_000] + 1).toByte() }
        assertEquals("what came is not the file", server.refused(answer(other).build()).message)
        assertEquals("more came than there is", server.refused(answer(bytes + 0).build()).message)
    }

    @Test
    fun `a server that says no is asked once`() = withServer { server ->
        for (status in listOf(401, 404, 410, 416, 302)) {
            server.requests.clear()
            assertEquals(status, server.refused(MockResponse(code = status)).status)
            assertEquals(1, server.requests.size)
        }
    }

    @Test
    fun `a line that brings nothing is given up`() = withServer { server ->
        assertEquals(503, server.refused(*Array(20) { MockResponse(code = 503) }).status)
        assertEquals(10, server.requests.size)
    }

    @Test
    fun `an empty file is a file`() = withServer { server ->
        val none = ByteArray(0)
        server.files += answer(none).build()
        server.client().download(file.copy(size = 0, sha256 = sha256(none)), ByteArrayOutputStream())
    }

    @Test
    fun `a full disk is no broken line`() = withServer { server ->
        server.files += answer(bytes).build()
        val full = object : OutputStream() {
            override fun write(b: Int): Unit = throw IOException("disk full")
        }
        try {
            server.client().download(file, full)
            fail("nothing was thrown")
        } catch (error: IOException) {
            assertEquals("disk full", error.message)
        }
        assertEquals(1, server.requests.size)
    }

    @Test
    fun `who gives up waiting ends it`() = withServer { server ->
        server.files += answer(bytes).throttleBody(1_000, 1, java.util.concurrent.TimeUnit.SECONDS).build()
        val begun = CompletableDeferred<Unit>()
        val out = object : OutputStream() {
            override fun write(b: Int) {
                begun.complete(Unit)
            }
        }
        val job = launch { server.client().download(file, out) }
        begun.await()
        job.cancelAndJoin()
    }
}
