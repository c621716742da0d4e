package pheby.e2e

import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonObject
import pheby.protocol.Event
import pheby.protocol.PhebyJson
import pheby.protocol.objects
import pheby.protocol.text
import pheby.protocol.texts

/** Events in short, as conformance/transcripts/runs has them: ids are numbered, times and positions left out. */
class Seen(private val folder: String) {
    private val names = LinkedHashMap<String, String>()

    fun of(events: List<Event>): List<JsonObject> {
        val short = events.mapNotNull(::short)
        // Between runs that go on at the same time, the order is not promised; nor of calls that run together.
        val several = short.any { "parent_run_id" in it }
        return together(if (several) short.sortedBy { it.text("run_id") } else short)
    }

    private fun short(event: Event): JsonObject? {
        val frame = PhebyJson.json.parseToJsonElement(PhebyJson.encode(event)).jsonObject
        val noun = event.type.substringBefore('.').let { if (it == "tool") "tool_call" else it }
        val item = frame[noun] as? JsonObject ?: return null
        val fields = kept[noun] ?: return null
        return JsonObject(mapOf("type" to JsonPrimitive(event.type)) + item.filterKeys { it in fields } + ids(item) + more(noun, item))
    }

    private fun ids(item: JsonObject): Map<String, JsonElement> = idFields.filter { it in item }.associateWith { field ->
        val kind = field.removePrefix("parent_").removeSuffix("_id").replace('_', '-')
        JsonPrimitive(names.getOrPut(item.text(field)) { "$kind-${names.values.count { it.startsWith(kind) } + 1}" })
    }

    private fun more(noun: String, item: JsonObject): Map<String, JsonElement> = buildMap {
        val status = item.text("status")
        if (noun == "message" && status != "streaming" && status != "queued") {
            // How far a cancelled text came is a matter of time; what a tool answers is Hermes's own.
            val text = item.text("text").replace(folder, "FOLDER").replace(Regex("(came back as: ).*", RegexOption.DOT_MATCHES_ALL), "$1…")
            put("text", JsonPrimitive(if (status == "cancelled") "…" else text))
        }
        item["error"]?.let { put("error", it.jsonObject.getValue("code")) }
        for (field in listOf("decided_by", "answered_by")) item[field]?.let { put(field, it.jsonObject.getValue("kind")) }
        if (noun == "clarification") putAll(answer(item))
    }

    private fun answer(item: JsonObject): Map<String, JsonElement> = buildMap {
        val labels = item.objects("choices").associate { it.text("choice_id") to it.getValue("label") }
        put("labels", JsonArray(labels.values.toList()))
        val answer = item["answer"]?.jsonObject ?: return@buildMap
        put("answer", JsonArray(answer.texts("choice_ids").map(labels::getValue) + listOfNotNull(answer["text"])))
    }

    private fun together(events: List<JsonObject>): List<JsonObject> {
        val sorted = ArrayList<JsonObject>()
        var start = 0
        while (start < events.size) {
            val type = events[start].text("type")
            var end = start + 1
            while (type in setOf("tool.started", "tool.completed") && end < events.size && events[end].text("type") == type) end++
            sorted += events.subList(start, end).sortedBy { it["tool_call_id"].toString() }
            start = end
        }
        return sorted
    }

    private companion object {
        val idFields = listOf(
            "message_id", "run_id", "tool_call_id", "approval_id", "clarification_id", "parent_run_id", "parent_tool_call_id",
        )
        val kept = mapOf(
            "message" to setOf("role", "origin", "status", "interim", "final", "delivery"),
            "run" to setOf("origin", "status", "reason", "description"),
            "tool_call" to setOf("name", "status"),
            "approval" to setOf("kind", "choices", "answerable", "status", "decision"),
            "clarification" to setOf("question", "multiple", "free_text", "status"),
        )
    }
}
