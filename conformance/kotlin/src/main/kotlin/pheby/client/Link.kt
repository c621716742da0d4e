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

    /**
     * The connection is gone; the next attempt comes by itself after [delayMs]. Why, as far as it is known: by a close
     * [code] of the server, by the [status] of an answer in place of a connection, or by a [cause] on the way.
     */
    public data class Waiting(
        public val delayMs: Long,
        public val code: CloseCode? = null,
        public val status: Int? = null,
        public val cause: Throwable? = null,
    ) : Link

    /** The client does not come back by itself; [PhebyClient.connect] starts it again, unless it was closed. */
    public data class Stopped(
        public val reason: StopReason,
        public val code: CloseCode? = null,
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
