package pheby.conformance

import java.io.File
import java.security.KeyStore
import java.security.cert.CertificateFactory
import javax.net.ssl.SSLContext
import javax.net.ssl.TrustManagerFactory
import javax.net.ssl.X509TrustManager
import okhttp3.OkHttpClient

/** Takes a server whose certificate goes back to one in the file, and no other. */
internal fun trusting(pem: File): OkHttpClient {
    val store = KeyStore.getInstance(KeyStore.getDefaultType()).apply { load(null) }
    val found = pem.inputStream().use { CertificateFactory.getInstance("X.509").generateCertificates(it) }
    found.forEachIndexed { number, certificate -> store.setCertificateEntry("$number", certificate) }
    val factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm()).apply { init(store) }
    val manager = factory.trustManagers.filterIsInstance<X509TrustManager>().single()
    val context = SSLContext.getInstance("TLS").apply { init(null, arrayOf(manager), null) }
    return OkHttpClient.Builder().sslSocketFactory(context.socketFactory, manager).build()
}
