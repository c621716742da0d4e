package pheby.protocol

import kotlinx.serialization.descriptors.SerialDescriptor
import kotlinx.serialization.descriptors.StructureKind
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** The generated files hold what the metamodel holds, and nothing untyped. */
class SurfaceTest {
    private val messages = Project.metamodel.objects("messages")

    private fun descriptor(message: JsonObject): SerialDescriptor? {
        val tag = message.text("type")
        return (clientSerializer(tag) ?: serverSerializer(tag))?.descriptor
    }

    @Test
    fun `every message type is known in its direction only`() {
        for (message in messages) {
            val tag = message.text("type")
            val isClient = message.text("direction") == "client_to_server"
            assertEquals(isClient, clientSerializer(tag) != null, tag)
            assertEquals(!isClient, serverSerializer(tag) != null, tag)
            assertEquals(message.text("kind").endsWith("_event"), eventSerializer(tag) != null, tag)
        }
    }

    @Test
    fun `every field is there, optional where it should be`() {
        val structs = Project.metamodel.objects("objects").associateBy { it.text("name") }
        val seen = mutableSetOf<String>()
        for (message in messages) {
            compareFields(descriptor(message)!!, message, listOf("type"), structs, seen)
        }
        assertEquals(structs.keys, seen)
    }

    private fun compareFields(
        type: SerialDescriptor, struct: JsonObject, also: List<String>, structs: Map<String, JsonObject>, seen: MutableSet<String>,
    ) {
        val fields = struct.objects("fields").associateBy { it.text("name") }
        val names = (0 until type.elementsCount).map(type::getElementName)
        assertEquals(fields.keys + also, names.toSet(), struct.text("name"))
        for ((name, field) in fields) {
            val index = type.getElementIndex(name)
            assertEquals(field.text("optional"), type.isElementOptional(index).toString(), "${struct.text("name")}.$name")
            val nullable = field.text("optional") == "true" && "default" !in field
            assertEquals(nullable, type.getElementDescriptor(index).isNullable, "${struct.text("name")}.$name")
            val nested = structs[innermost(field.getValue("type").jsonObject)] ?: continue
            if (seen.add(nested.text("name"))) {
                compareFields(innermost(type.getElementDescriptor(index)), nested, emptyList(), structs, seen)
            }
        }
    }

    private fun innermost(type: JsonObject): String? =
        type["items"]?.let { innermost(it.jsonObject) } ?: type["name"]?.jsonPrimitive?.content

    private fun innermost(type: SerialDescriptor): SerialDescriptor = when (type.kind) {
        StructureKind.LIST -> innermost(type.getElementDescriptor(0))
        StructureKind.MAP -> innermost(type.getElementDescriptor(1))
        else -> type
    }

    @Test
    fun `no field is untyped but the declared extension points`() {
        val declared = (Project.metamodel.objects("objects") + messages).flatMap { struct ->
            struct.objects("fields").filter { it.getValue("type").jsonObject.text("kind") == "object" }
                .map { "${struct.text("name")}.${it.text("name")}" }
        }
        val found = mutableSetOf<String>()
        val seen = mutableSetOf<String>()
        fun walk(type: SerialDescriptor) {
            val owner = type.serialName.removeSuffix("?").substringAfterLast('.')
            if (!seen.add(type.serialName)) return
            for (index in 0 until type.elementsCount) {
                val inner = innermost(type.getElementDescriptor(index))
                if (inner.serialName.startsWith("kotlinx.serialization.json")) found += "$owner.${type.getElementName(index)}"
                else walk(inner)
            }
        }
        messages.forEach { walk(descriptor(it)!!) }
        assertEquals(declared.toSet(), found)
        val raw = Project.sources.associate { it.name to Regex("va[lr] \\w+: (JsonElement|JsonObject)").findAll(it.readText()).count() }
        // Beside the extension points: the raw content of the two unknown frames.
        assertEquals(declared.size + 2, raw.values.sum(), raw.toString())
    }

    @Test
    fun `the sources use nothing of the JVM and no type Any`() {
        for (source in Project.sources) {
            val text = source.readText()
            assertTrue("\npackage pheby.protocol\n" in text, source.name)
            assertTrue(Regex("[:<,(=] *Any\\b").find(text) == null, source.name)
            assertTrue(Regex("\\b(java|javax|android|okhttp3)\\.").find(text) == null, source.name)
            assertTrue(Regex("kotlin\\.jvm\\.(?!JvmInline)").find(text) == null, source.name)
        }
    }

    @Test
    fun `the client uses of Java only what Android has from its beginning`() {
        val allowed = setOf(
            "java.io.IOException", "java.io.OutputStream", "java.math.BigDecimal", "java.math.MathContext",
            "java.security.MessageDigest", "java.util.Collections", "java.util.UUID", "java.util.concurrent.ConcurrentHashMap", "java.util.concurrent.TimeUnit",
            "java.util.concurrent.atomic.AtomicLong",
        )
        val found = Project.client.flatMap { Regex("\\bjavax?\\.[\\w.]+").findAll(it.readText()).map { match -> match.value } }.toSet()
        assertEquals(emptySet<String>(), found - allowed)
        for (source in Project.client) {
            val text = source.readText()
            assertTrue(Regex("kotlin\\.reflect|::class|\\.javaClass|Class\\.forName|Thread\\.").find(text) == null, source.name)
            assertTrue("\npackage pheby.client\n" in "\n$text", source.name)
        }
    }

    @Test
    fun `what an app sees of the client is described`() {
        for (source in Project.client) {
            val lines = source.readLines()
            for ((number, line) in lines.withIndex()) {
                if (!line.trim().startsWith("public ")) continue
                val above = lines.take(number).last { !it.trim().startsWith("@") }
                assertTrue(above.trim().endsWith("*/"), "${source.name}:${number + 1}")
            }
        }
    }

    @Test
    fun `the enumerations are those of the metamodel`() {
        for (enum in Project.metamodel.objects("enums")) {
            val leaf = leaves.getValue("pheby.protocol.${enum.text("name")}")
            for (value in enum.texts("values")) {
                val read = PhebyJson.json.decodeFromString(leaf, "\"$value\"") as Wired
                assertEquals(value, read.wire)
                assertTrue(read.javaClass.simpleName != "Unknown", value)
            }
            val other = runCatching { PhebyJson.json.decodeFromString(leaf, "\"x_future\"") as Wired }
            assertEquals(enum.text("open") == "true", other.isSuccess, enum.text("name"))
        }
    }

    @Test
    fun `the tables of codes are those of the metamodel`() {
        for (row in Project.metamodel.objects("errors")) {
            val info = ErrorCode.of(row.text("code")).info!!
            assertEquals(row.text("message"), info.message)
            assertEquals(row.text("retryable"), info.retryable.toString())
            assertEquals(row.text("client"), info.client)
        }
        assertNull(ErrorCode.of("x_future").info)
        for (row in Project.metamodel.objects("close_codes")) {
            val code = CloseCode(row.text("code").toInt())
            assertTrue(code in CloseCode.known)
            assertEquals(row.text("meaning"), code.info!!.meaning)
            assertEquals(row.text("client"), code.client.wire)
        }
        assertEquals(Project.metamodel.objects("close_codes").size, CloseCode.known.size)
        assertEquals(AfterClose.RECONNECT, CloseCode(1006).client)
        for (row in Project.metamodel.objects("http_errors")) {
            val info = HttpErrorCode.of(row.text("code")).info!!
            assertEquals(row.text("message"), info.message)
            assertEquals(row.texts("statuses"), info.statuses.map { it.toString() })
        }
        assertNull(HttpErrorCode.of("x_future").info)
    }
}
