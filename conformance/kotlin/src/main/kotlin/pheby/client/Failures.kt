package pheby.client

import pheby.protocol.ErrorCode
import pheby.protocol.ErrorFrame

/** What goes wrong with a request or a download. */
public sealed class PhebyException(message: String) : Exception(message)

/** The server answered with an error. Decide by [code], and by `error.retryable` where the code is unknown. */
public class RequestFailedException(
    /** All that the server has said about it. */
    public val error: ErrorFrame,
) : PhebyException("${error.code.wire}: ${error.message}") {
    /** What to decide by; `code.info` says what to do. */
    public val code: ErrorCode get() = error.code
}

/** No answer in time. Whether the request was carried out is unknown; every request may be repeated. */
public class NoAnswerException : PhebyException("no answer in time")

/** The client has stopped and does not come back by itself. */
public class ClientStoppedException(public val reason: StopReason) : PhebyException("the client has stopped: $reason")

/** The file was not fetched. [status] is the server's answer, null where none came: 410 says that it has expired. */
public class DownloadException(message: String, public val status: Int? = null) : PhebyException(message)

/** The connection went away before the answer came. */
internal class ConnectionLostException : Exception("the connection went away")
