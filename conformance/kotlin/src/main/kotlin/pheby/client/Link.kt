package pheby.client

import pheby.protocol.CloseCode
import pheby.protocol.Welcome

/** How the client stands with the server. */
public sealed interface Link {
    /** [PhebyClient.connect] was not called yet. */
    public data object Idle : Link

    /** On the way: connecting, or catching up. */
    public data object Connecting : Link

    /** In step: what is shown is what the server has. [welcome] says what the server can do. */
    public class InStep internal constructor(public val welcome: Welcome, internal val connection: Connection) : Link {
        override fun toString(): String = "InStep(${welcome.connectionId})"
    }

    /** The connection is gone; the next attempt comes by itself. Why, as far as it is known. */
    public data class Waiting(
        /** How long, from the moment when this was told. */
        public val delayMs: Long,
        /** By which the server closed the connection. */
        public val code: CloseCode? = null,
        /** Of the answer that came in place of a connection. */
        public val status: Int? = null,
        /** What went wrong on the way: no network, no such host, a certificate that is not trusted. */
        public val cause: Throwable? = null,
    ) : Link

    /** The client does not come back by itself; [PhebyClient.connect] starts it again, unless it was closed. */
    public data class Stopped(
        /** Why, and so what to do. */
        public val reason: StopReason,
        /** By which the server closed the connection. */
        public val code: CloseCode? = null,
        /** What the app's own part threw, for [StopReason.FAILED]. */
        public val cause: Throwable? = null,
    ) : Link
}

/** Why a client has stopped, and so what to do. */
public enum class StopReason {
    /** [PhebyClient.close] was called. */
    CLOSED,

    /** The server refused the secret, and the app had no other one: ask the owner for it. */
    SECRET_REFUSED,

    /** A newer connection of this device took over: connect when the app is opened again. */
    REPLACED,

    /** Server and app have no version in common: ask the owner to update. */
    UPDATE_NEEDED,

    /** The server could not make sense of what was sent: report. */
    BUG,

    /** The app's own storage or source of secrets failed; see the cause. */
    FAILED,
}
