// Generated from the protocol's metamodel; changes here are lost.
@file:UseSerializers(StrictString::class)
package pheby.protocol

import kotlin.jvm.JvmInline
import kotlinx.serialization.Serializable
import kotlinx.serialization.UseSerializers

/** One row of the error table: a text for people, whether repeating can help, what the client does. */
public data class ErrorInfo(public val message: String, public val retryable: Boolean, public val client: String)

/** One row of the close table: name, meaning, and what the client does. */
public data class CloseInfo(public val name: String, public val meaning: String, public val client: AfterClose)

/** One row of the HTTP table: the statuses that a code comes with, and a text for people. */
public data class HttpErrorInfo(public val statuses: List<Int>, public val message: String)

/** The body of an HTTP error. */
@Serializable
public data class HttpError(public val code: HttpErrorCode, public val message: String)

/** What the code's table says; null for a code of a later version. */
public val ErrorCode.info: ErrorInfo?
    get() = when (this) {
        ErrorCode.InvalidMessage -> ErrorInfo("The frame could not be understood.", false, "A bug: report, do not resend.")
        ErrorCode.UnknownType -> ErrorInfo("This server does not know that request.", false, "Do without; check the capability.")
        ErrorCode.UnsupportedVersion -> ErrorInfo("No protocol version in common.", false, "Ask the user to update.")
        ErrorCode.NotReady -> ErrorInfo("The connection is not in step yet.", true, "Wait for sync.completed, then repeat.")
        ErrorCode.Forbidden -> ErrorInfo("The access mode does not allow that.", false, "Hide the action; see access_mode in welcome.")
        ErrorCode.NotFound -> ErrorInfo("There is no such thing here.", false, "Remove it from the screen.")
        ErrorCode.Conflict -> ErrorInfo("That id was used with other content.", false, "Compare with details.receipt; use a new id.")
        ErrorCode.TitleConflict -> ErrorInfo("Another conversation has that title.", false, "Ask for another title.")
        ErrorCode.InvalidTitle -> ErrorInfo("That title is not allowed.", false, "Ask for another title.")
        ErrorCode.Busy -> ErrorInfo("A run is active in this conversation.", true, "Wait for run.ended, or queue.")
        ErrorCode.NotAnswerable -> ErrorInfo("That prompt cannot be answered now.", true, "Wait for approval.updated.")
        ErrorCode.AlreadyResolved -> ErrorInfo("That prompt was decided already.", false, "Show the decision in details.")
        ErrorCode.Expired -> ErrorInfo("That prompt is no longer open.", false, "Close it on the screen.")
        ErrorCode.InvalidChoice -> ErrorInfo("That choice was not offered.", false, "Offer the choices in details; it is still open.")
        ErrorCode.InvalidModel -> ErrorInfo("That model is not offered.", false, "List the models again.")
        ErrorCode.InvalidEffort -> ErrorInfo("That effort is not offered.", false, "Offer the efforts in details.")
        ErrorCode.TooLarge -> ErrorInfo("That text is too long.", false, "Shorten it; see limits in welcome.")
        ErrorCode.RateLimited -> ErrorInfo("Too many requests.", true, "Repeat after retry_after_ms.")
        ErrorCode.Unavailable -> ErrorInfo("That is not available now.", true, "Repeat after retry_after_ms; check the capability.")
        ErrorCode.Internal -> ErrorInfo("Something went wrong in the server.", true, "Repeat once, then tell the user.")
        is ErrorCode.Unknown -> null
    }

/** What a client does after a close. */
public enum class AfterClose(override val wire: String) : Wired {
    RECONNECT("reconnect"),
    RECONNECT_AFTER_DELAY("reconnect_after_delay"),
    REPORT("report"),
    ASK_SECRET("ask_secret"),
    UPDATE("update"),
    STOP_UNTIL_OPENED("stop_until_opened"),
}

/** A WebSocket close code. Any code that has no row is the network or a proxy: reconnect with back-off. */
@JvmInline
public value class CloseCode(public val code: Int) {
    /** What the code's table says; null for any other code. */
    public val info: CloseInfo?
        get() = when (code) {
            1000 -> CloseInfo("normal", "Closed in good order.", AfterClose.RECONNECT)
            1001 -> CloseInfo("going_away", "The server is going away.", AfterClose.RECONNECT_AFTER_DELAY)
            1003 -> CloseInfo("unsupported_data", "A binary frame.", AfterClose.REPORT)
            1009 -> CloseInfo("too_big", "A frame above max_frame_bytes.", AfterClose.REPORT)
            1011 -> CloseInfo("internal", "Something went wrong in the server.", AfterClose.RECONNECT)
            4400 -> CloseInfo("protocol_error", "Too many undecodable frames, or no hello first.", AfterClose.REPORT)
            4401 -> CloseInfo("credential_invalid", "The credential is no longer valid.", AfterClose.ASK_SECRET)
            4406 -> CloseInfo("no_common_version", "No protocol version in common.", AfterClose.UPDATE)
            4408 -> CloseInfo("hello_timeout", "No hello in time.", AfterClose.RECONNECT)
            4409 -> CloseInfo("replaced", "A newer connection of this device took over.", AfterClose.STOP_UNTIL_OPENED)
            4413 -> CloseInfo("too_slow", "Live events could not be delivered fast enough.", AfterClose.RECONNECT)
            4429 -> CloseInfo("too_many_requests", "Too many requests.", AfterClose.RECONNECT_AFTER_DELAY)
            4503 -> CloseInfo("draining", "The server takes no new connections.", AfterClose.RECONNECT_AFTER_DELAY)
            else -> null
        }

    /** What to do now. */
    public val client: AfterClose get() = info?.client ?: AfterClose.RECONNECT

    public companion object {
        /** Closed in good order. */
        public val NORMAL: CloseCode = CloseCode(1000)
        /** The server is going away. */
        public val GOING_AWAY: CloseCode = CloseCode(1001)
        /** A binary frame. */
        public val UNSUPPORTED_DATA: CloseCode = CloseCode(1003)
        /** A frame above max_frame_bytes. */
        public val TOO_BIG: CloseCode = CloseCode(1009)
        /** Something went wrong in the server. */
        public val INTERNAL: CloseCode = CloseCode(1011)
        /** Too many undecodable frames, or no hello first. */
        public val PROTOCOL_ERROR: CloseCode = CloseCode(4400)
        /** The credential is no longer valid. */
        public val CREDENTIAL_INVALID: CloseCode = CloseCode(4401)
        /** No protocol version in common. */
        public val NO_COMMON_VERSION: CloseCode = CloseCode(4406)
        /** No hello in time. */
        public val HELLO_TIMEOUT: CloseCode = CloseCode(4408)
        /** A newer connection of this device took over. */
        public val REPLACED: CloseCode = CloseCode(4409)
        /** Live events could not be delivered fast enough. */
        public val TOO_SLOW: CloseCode = CloseCode(4413)
        /** Too many requests. */
        public val TOO_MANY_REQUESTS: CloseCode = CloseCode(4429)
        /** The server takes no new connections. */
        public val DRAINING: CloseCode = CloseCode(4503)

        /** Those of the table. */
        public val known: List<CloseCode>
            get() = listOf(NORMAL, GOING_AWAY, UNSUPPORTED_DATA, TOO_BIG, INTERNAL, PROTOCOL_ERROR, CREDENTIAL_INVALID, NO_COMMON_VERSION, HELLO_TIMEOUT, REPLACED, TOO_SLOW, TOO_MANY_REQUESTS, DRAINING)
    }
}

/** Stable code in the body of an HTTP error. Open: a later version may send other values. */
@Serializable(with = HttpErrorCodeSerializer::class)
public sealed interface HttpErrorCode : OpenEnum {
    public data object Unauthorized : HttpErrorCode { override val wire: String get() = "unauthorized" }
    public data object LockedOut : HttpErrorCode { override val wire: String get() = "locked_out" }
    public data object Forbidden : HttpErrorCode { override val wire: String get() = "forbidden" }
    public data object NotFound : HttpErrorCode { override val wire: String get() = "not_found" }
    public data object Expired : HttpErrorCode { override val wire: String get() = "expired" }
    public data object Unavailable : HttpErrorCode { override val wire: String get() = "unavailable" }
    public data object InvalidRange : HttpErrorCode { override val wire: String get() = "invalid_range" }
    public data object PreconditionFailed : HttpErrorCode { override val wire: String get() = "precondition_failed" }
    public data object UpgradeRequired : HttpErrorCode { override val wire: String get() = "upgrade_required" }
    public data object BodyRefused : HttpErrorCode { override val wire: String get() = "body_refused" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : HttpErrorCode

    public companion object {
        /** The values of this version. */
        public val known: List<HttpErrorCode> get() = listOf(Unauthorized, LockedOut, Forbidden, NotFound, Expired, Unavailable, InvalidRange, PreconditionFailed, UpgradeRequired, BodyRefused)

        public fun of(wire: String): HttpErrorCode = when (wire) {
            "unauthorized" -> Unauthorized
            "locked_out" -> LockedOut
            "forbidden" -> Forbidden
            "not_found" -> NotFound
            "expired" -> Expired
            "unavailable" -> Unavailable
            "invalid_range" -> InvalidRange
            "precondition_failed" -> PreconditionFailed
            "upgrade_required" -> UpgradeRequired
            "body_refused" -> BodyRefused
            else -> Unknown(wire)
        }
    }
}

internal object HttpErrorCodeSerializer : OpenEnumLeaf<HttpErrorCode>("HttpErrorCode", HttpErrorCode.Companion::of)

/** What the code's table says; null for a code of a later version. */
public val HttpErrorCode.info: HttpErrorInfo?
    get() = when (this) {
        HttpErrorCode.Unauthorized -> HttpErrorInfo(listOf(401), "The secret is missing or wrong.")
        HttpErrorCode.LockedOut -> HttpErrorInfo(listOf(429), "Too many wrong secrets from this address.")
        HttpErrorCode.Forbidden -> HttpErrorInfo(listOf(403), "Web pages may not connect.")
        HttpErrorCode.NotFound -> HttpErrorInfo(listOf(404), "There is no such file.")
        HttpErrorCode.Expired -> HttpErrorInfo(listOf(410), "The file has expired.")
        HttpErrorCode.Unavailable -> HttpErrorInfo(listOf(503), "The server takes no connections now.")
        HttpErrorCode.InvalidRange -> HttpErrorInfo(listOf(416), "The file has no such range.")
        HttpErrorCode.PreconditionFailed -> HttpErrorInfo(listOf(412), "The file is another one than the request is about.")
        HttpErrorCode.UpgradeRequired -> HttpErrorInfo(listOf(426), "This address speaks WebSocket.")
        HttpErrorCode.BodyRefused -> HttpErrorInfo(listOf(413, 415), "A request here has no body.")
        is HttpErrorCode.Unknown -> null
    }
