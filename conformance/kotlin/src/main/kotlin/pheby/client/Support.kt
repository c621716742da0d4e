package pheby.client

import java.util.concurrent.TimeUnit
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.mapNotNull
import okhttp3.OkHttpClient
import pheby.protocol.ErrorCode
import pheby.protocol.ErrorFrame
import pheby.protocol.RequestId

/** The first thing that is found in a value of the flow. */
internal suspend fun <T, R : Any> Flow<T>.firstOf(find: (T) -> R?): R = mapNotNull { find(it) }.first()

/** What a request fails with when its answer makes no sense. */
internal fun undecodable(id: RequestId): RequestFailedException =
    RequestFailedException(ErrorFrame(id, ErrorCode.Internal, "The answer could not be read.", false))

/** With pings; and without redirects, which would take the secret to another place. */
internal fun OkHttpClient.forSockets(config: ClientConfig): OkHttpClient = newBuilder()
    .pingInterval(config.pingIntervalMs, TimeUnit.MILLISECONDS)
    .connectTimeout(CONNECT_SECONDS, TimeUnit.SECONDS)
    .followRedirects(false)
    .followSslRedirects(false)
    .build()

private const val CONNECT_SECONDS = 10L
