package pheby.client

import java.io.IOException
import java.net.InetAddress
import java.net.ServerSocket
import java.net.Socket
import java.util.concurrent.ConcurrentHashMap
import kotlin.concurrent.thread

/** A line to a server on this machine that can be cut, as a phone's is. */
class TcpProxy(private val target: Int) : AutoCloseable {
    private val listening = ServerSocket(0, 50, InetAddress.getLoopbackAddress())
    private val open: MutableSet<Socket> = ConcurrentHashMap.newKeySet()
    val port: Int get() = listening.localPort

    /** Nobody gets through. */
    @Volatile
    var isDown: Boolean = false
        set(value) {
            field = value
            if (value) cut()
        }

    init {
        thread(isDaemon = true) { accept() }
    }

    /** Every line breaks, without a word. */
    fun cut() {
        for (socket in open) {
            open -= socket
            try {
                socket.setSoLinger(true, 0)
                socket.close()
            } catch (error: IOException) {
                // It had ended by itself.
            }
        }
    }

    override fun close() {
        listening.close()
        cut()
    }

    private fun accept() {
        try {
            while (true) join(listening.accept())
        } catch (error: IOException) {
            return
        }
    }

    private fun join(client: Socket) {
        if (isDown) return client.close()
        val server = try {
            Socket(InetAddress.getLoopbackAddress(), target)
        } catch (error: IOException) {
            return client.close()
        }
        open += listOf(client, server)
        thread(isDaemon = true) { pump(client, server) }
        thread(isDaemon = true) { pump(server, client) }
    }

    private fun pump(from: Socket, to: Socket) {
        try {
            from.getInputStream().transferTo(to.getOutputStream())
            to.shutdownOutput()
        } catch (error: IOException) {
            // One side is gone, and so the other.
            for (socket in listOf(from, to)) {
                open -= socket
                socket.close()
            }
        }
    }
}
