package pheby.client

import java.io.File
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext
import kotlinx.serialization.KSerializer
import kotlinx.serialization.builtins.ListSerializer
import pheby.protocol.ClientMessageId
import pheby.protocol.PhebyJson

/** Keeps everything in two files, each replaced as a whole: enough for an app whose histories are short. */
class FileStorage(private val folder: File) : Storage {
    private val lock = Mutex()
    private val items = ListSerializer(Outgoing.serializer())

    override suspend fun load(): Stored = withLock {
        Stored(read("state.json", ClientState.serializer()) ?: ClientState(), read("outbox.json", items).orEmpty())
    }

    override suspend fun save(before: ClientState, after: ClientState): Unit = withLock {
        write("state.json", ClientState.serializer(), after)
    }

    override suspend fun keep(outgoing: Outgoing): Unit = change { old ->
        if (old.none { it.clientMessageId == outgoing.clientMessageId }) old + outgoing
        else old.map { if (it.clientMessageId == outgoing.clientMessageId) outgoing else it }
    }

    override suspend fun forget(clientMessageId: ClientMessageId): Unit = change { old ->
        old.filter { it.clientMessageId != clientMessageId }
    }

    private suspend fun change(change: (List<Outgoing>) -> List<Outgoing>): Unit = withLock {
        write("outbox.json", items, change(read("outbox.json", items).orEmpty()))
    }

    private suspend fun <T> withLock(work: () -> T): T = withContext(Dispatchers.IO) { lock.withLock { work() } }

    private fun <T> read(name: String, serializer: KSerializer<T>): T? {
        val file = folder.resolve(name)
        return if (file.exists()) PhebyJson.json.decodeFromString(serializer, file.readText()) else null
    }

    private fun <T> write(name: String, serializer: KSerializer<T>, value: T) {
        val next = folder.resolve("$name.next")
        next.outputStream().use { out ->
            out.write(PhebyJson.json.encodeToString(serializer, value).encodeToByteArray())
            out.fd.sync()
        }
        check(next.renameTo(folder.resolve(name))) { "$name was not written" }
    }
}
