package pheby.client

import pheby.protocol.ClientInfo

/** Whom to connect to, as whom, and with how much patience. */
public data class ClientConfig(
    /** The socket's: `wss://host/v1/ws`, with the prefix of a proxy in front of `v1` where there is one. */
    public val url: String,
    /** The app, and its `device_id`: minted once per installation, and no part of backups. */
    public val client: ClientInfo,
    /** How often the line is tried; a dead one is noticed within twice that. */
    public val pingIntervalMs: Long = 20_000,
    /** The longest that a server may take from the first packet to its welcome. */
    public val welcomeMs: Long = 30_000,
    /** How long a request is tried, reconnecting included, before [NoAnswerException]. */
    public val requestMs: Long = 30_000,
    /** The first pause between attempts to connect; each is twice as long as the one before it. */
    public val firstDelayMs: Long = 250,
    /** The longest pause between attempts. */
    public val longestDelayMs: Long = 30_000,
    /** Takes a line for the app's log; holds no secret and no text of a message. */
    public val log: (String) -> Unit = {},
)

/** Where the secret comes from: the Keystore, or the owner. */
public fun interface SecretSource {
    /**
     * The secret for the next attempt; [refused] is the one that the server has just refused. Null, or the refused one
     * again, stops the client with [StopReason.SECRET_REFUSED].
     */
    public suspend fun secret(refused: String?): String?
}
