package pheby.client

import java.util.concurrent.ConcurrentHashMap
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext
import pheby.protocol.ClientMessageId
import pheby.protocol.ErrorFrame
import pheby.protocol.Receipt

/** What the owner has sent and the server has not acknowledged, on disk before anything is sent. */
internal class Outbox(private val storage: Storage) {
    private val lock = Mutex()
    private val waiters = ConcurrentHashMap<ClientMessageId, CompletableDeferred<Receipt>>()
    private val _items = MutableStateFlow<List<Outgoing>>(emptyList())
    val items: StateFlow<List<Outgoing>> get() = _items

    @Volatile
    private var stopped: StopReason? = null

    fun start() {
        stopped = null
    }

    suspend fun load(stored: List<Outgoing>): Unit = lock.withLock {
        val known = _items.value.mapTo(HashSet()) { it.clientMessageId }
        _items.value = stored.filter { it.clientMessageId !in known } + _items.value
    }

    /** Keeps an item and waits for its receipt. Who gives up waiting leaves the item where it is. */
    suspend fun send(item: Outgoing): Receipt {
        val waiter = CompletableDeferred<Receipt>()
        lock.withLock {
            storage.keep(item)
            waiters[item.clientMessageId] = waiter
            _items.value = _items.value.filter { it.clientMessageId != item.clientMessageId } + item
        }
        stopped?.let { stop(it) }
        try {
            return waiter.await()
        } finally {
            withContext(NonCancellable) { lock.withLock { waiters.remove(item.clientMessageId, waiter) } }
        }
    }

    /** Changes an item where it stands. */
    suspend fun change(id: ClientMessageId, change: (Outgoing) -> Outgoing): Unit = lock.withLock {
        val old = _items.value.find { it.clientMessageId == id } ?: return
        val new = change(old)
        storage.keep(new)
        _items.value = _items.value.map { if (it.clientMessageId == id) new else it }
    }

    suspend fun discard(id: ClientMessageId): Unit = lock.withLock {
        remove(id)
        waiters.remove(id)?.cancel()
    }

    suspend fun done(receipt: Receipt): Unit = lock.withLock {
        remove(receipt.clientMessageId)
        waiters.remove(receipt.clientMessageId)?.complete(receipt)
    }

    /** The owner's words do not vanish: who waits is told, else the item stays and says so. */
    suspend fun refused(id: ClientMessageId, error: ErrorFrame) {
        val waiter = lock.withLock { waiters.remove(id) }
        if (waiter == null) return change(id) { it.copy(refused = error.code) }
        lock.withLock { remove(id) }
        waiter.completeExceptionally(RequestFailedException(error))
    }

    /** Nothing is sent for now: the items stay, those who wait are told. */
    fun stop(reason: StopReason) {
        stopped = reason
        waiters.values.forEach { it.completeExceptionally(ClientStoppedException(reason)) }
    }

    private suspend fun remove(id: ClientMessageId) {
        storage.forget(id)
        _items.value = _items.value.filter { it.clientMessageId != id }
    }
}
