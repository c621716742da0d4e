package pheby.client

import kotlinx.serialization.Serializable
import pheby.protocol.ClientMessageId
import pheby.protocol.ConversationId
import pheby.protocol.ErrorCode
import pheby.protocol.IfBusy
import pheby.protocol.Time

/**
 * Where an app keeps what must survive its process. Each call is one transaction and returns when it is on disk; calls
 * may come from several coroutines, those of [save] one after the other. What it throws stops the client.
 */
public interface Storage {
    /** What was stored last; an empty one where nothing was. */
    public suspend fun load(): Stored

    /**
     * Stores a state together with its cursor. [before] is what was stored last: its maps differ from those of [after]
     * in the rows to write and to delete, and an object that did not change is the same object.
     */
    public suspend fun save(before: ClientState, after: ClientState)

    /** Stores what the owner sends, new or changed. */
    public suspend fun keep(outgoing: Outgoing)

    /** Forgets what was sent. */
    public suspend fun forget(clientMessageId: ClientMessageId)
}

/** What a [Storage] gives back when the app starts. [outbox] in the order in which it was kept. */
public data class Stored(public val state: ClientState = ClientState(), public val outbox: List<Outgoing> = emptyList())

/** The owner's words on their way to the server. */
@Serializable
public data class Outgoing(
    /** Under which they are sent, however often. */
    public val clientMessageId: ClientMessageId,
    /** The conversation. */
    public val conversationId: ConversationId,
    /** The words. */
    public val text: String,
    /** What becomes of them while a run is active. */
    public val ifBusy: IfBusy = IfBusy.QUEUE,
    /** By the server's clock, null before the first attempt. */
    public val firstSentAt: Time? = null,
    /** The server cannot tell any more whether it had this: only the owner sends it again. */
    public val askOwner: Boolean = false,
    /** The server refused it while nobody waited for the answer. */
    public val refused: ErrorCode? = null,
) {
    internal val isWaiting: Boolean get() = !askOwner && refused == null
}

/** Keeps everything in memory: for tests, and for clients that start from a snapshot each time. */
public class MemoryStorage : Storage {
    private var state = ClientState()
    private val outbox = LinkedHashMap<ClientMessageId, Outgoing>()

    override suspend fun load(): Stored = synchronized(outbox) { Stored(state, outbox.values.toList()) }

    override suspend fun save(before: ClientState, after: ClientState): Unit = synchronized(outbox) { state = after }

    override suspend fun keep(outgoing: Outgoing): Unit = synchronized(outbox) {
        outbox[outgoing.clientMessageId] = outgoing
    }

    override suspend fun forget(clientMessageId: ClientMessageId): Unit = synchronized(outbox) {
        outbox.remove(clientMessageId)
    }
}
