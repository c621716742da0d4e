package pheby.protocol

import java.io.File
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive

/** The project's files that the tests compare with; their places come from the build. */
object Project {
    val metamodel: JsonObject by lazy { read(folder("schemas").resolve("metamodel.json")).jsonObject }
    val states: JsonObject by lazy { read(folder("schemas").resolve("states.json")).jsonObject }
    val sources: List<File> by lazy { files(folder("schemas").resolve("kotlin"), "kt") }
    val client: List<File> by lazy { files(folder("client"), "kt") }
    val vectors: List<JsonObject> by lazy {
        files(folder("vectors"), "json").flatMap { read(it).jsonObject.objects("vectors") }
    }

    val transcripts: List<JsonObject> by lazy {
        files(folder("transcripts").resolve("reducer"), "json").map { read(it).jsonObject }
    }

    /** The events of a run as they are stored, in short, for every line but those that differ. */
    fun run(name: String): List<JsonObject> =
        read(folder("transcripts").resolve("runs/$name.json")).jsonObject.objects("events")

    private fun folder(property: String): File =
        File(checkNotNull(System.getProperty(property)) { "the build sets the property $property" })

    private fun files(folder: File, extension: String): List<File> {
        val found = folder.listFiles { file -> file.extension == extension }.orEmpty().sorted()
        check(found.isNotEmpty()) { "nothing in $folder" }
        return found
    }

    private fun read(file: File): JsonElement = PhebyJson.json.parseToJsonElement(file.readText())
}

fun JsonObject.text(name: String): String = getValue(name).jsonPrimitive.content

fun JsonObject.objects(name: String): List<JsonObject> = getValue(name).jsonArray.map { it.jsonObject }

fun JsonObject.texts(name: String): List<String> = getValue(name).jsonArray.map { it.jsonPrimitive.content }

/** Whether two JSON values are the same, numbers by what they are and not by how they are written. */
fun sameValue(one: JsonElement, other: JsonElement): Boolean = when (one) {
    is JsonObject ->
        other is JsonObject && one.keys == other.keys && one.all { (name, value) -> sameValue(value, other.getValue(name)) }
    is JsonArray ->
        other is JsonArray && one.size == other.size && one.indices.all { sameValue(one[it], other[it]) }
    is JsonNull -> other is JsonNull
    is JsonPrimitive -> other is JsonPrimitive && other !is JsonNull && samePrimitive(one, other)
}

private fun samePrimitive(one: JsonPrimitive, other: JsonPrimitive): Boolean {
    if (one.isString || other.isString) return one.isString == other.isString && one.content == other.content
    if (one.content == other.content) return true
    val number = one.content.toBigDecimalOrNull() ?: return false
    return other.content.toBigDecimalOrNull()?.compareTo(number) == 0
}
