package pheby.client

import java.math.BigDecimal
import java.math.MathContext
import java.security.MessageDigest
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive

/** JSON with sorted keys, without white space, printable text as it is: the same text for the same value everywhere. */
internal fun canonical(element: JsonElement): String = StringBuilder().also { write(element, it) }.toString()

/** As hexadecimal digits. */
internal fun sha256(bytes: ByteArray): String = hexadecimal(MessageDigest.getInstance("SHA-256").digest(bytes))

internal fun hexadecimal(bytes: ByteArray): String =
    bytes.joinToString("") { byte -> (byte.toInt() and 0xff).toString(16).padStart(2, '0') }

private fun write(element: JsonElement, out: StringBuilder) {
    when (element) {
        is JsonObject -> element.entries.sortedWith { one, other -> compareCodePoints(one.key, other.key) }
            .joinTo(out, ",", "{", "}") { (key, value) -> "${quoted(key)}:${canonical(value)}" }
        is JsonArray -> element.joinTo(out, ",", "[", "]") { canonical(it) }
        is JsonNull -> out.append("null")
        is JsonPrimitive -> out.append(if (element.isString) quoted(element.content) else literal(element.content))
    }
}

/** By code points: the order of UTF-16 units puts what needs two of them in the wrong place. */
private fun compareCodePoints(one: String, other: String): Int {
    val place = one.indices.firstOrNull { it >= other.length || one[it] != other[it] } ?: return one.length - other.length
    if (place >= other.length) return 1
    val (a, b) = one[place] to other[place]
    return if (a.isSurrogate() != b.isSurrogate()) (if (a.isSurrogate()) 1 else -1) else a.compareTo(b)
}

private fun quoted(text: String): String = buildString(text.length + 2) {
    append('"')
    for (char in text) {
        when (char) {
            '"' -> append("\\\"")
            '\\' -> append("\\\\")
            '\n' -> append("\\n")
            '\r' -> append("\\r")
            '\t' -> append("\\t")
            '\b' -> append("\\b")
            '\u000c' -> append("\\f")
            else -> if (char < ' ') append("\\u").append(char.code.toString(16).padStart(4, '0')) else append(char)
        }
    }
    append('"')
}

private fun literal(text: String): String = when {
    text == "true" || text == "false" -> text
    text.all { it == '-' || it in '0'..'9' } -> if (text == "-0") "0" else text
    else -> shortest(text.toDouble())
}

/** The fewest digits that are read as the same number; with an exponent below 1e-4 and from 1e16 on. */
private fun shortest(number: Double): String {
    if (number == 0.0) return if (1 / number < 0) "-0.0" else "0.0"
    val exact = BigDecimal(number)
    val short = (1..17).map { exact.round(MathContext(it)) }.first { it.toDouble() == number }.stripTrailingZeros()
    val digits = short.unscaledValue().abs().toString()
    val exponent = digits.length - 1 - short.scale()
    val sign = if (number < 0) "-" else ""
    return sign + if (exponent in -4..15) plain(digits, exponent) else scientific(digits, exponent)
}

private fun plain(digits: String, exponent: Int): String = when {
    exponent < 0 -> "0." + "0".repeat(-exponent - 1) + digits
    digits.length <= exponent + 1 -> digits.padEnd(exponent + 1, '0') + ".0"
    else -> digits.substring(0, exponent + 1) + "." + digits.substring(exponent + 1)
}

private fun scientific(digits: String, exponent: Int): String {
    val fraction = if (digits.length > 1) "." + digits.substring(1) else ""
    val size = (if (exponent < 0) -exponent else exponent).toString().padStart(2, '0')
    return "${digits[0]}${fraction}e${if (exponent < 0) "-" else "+"}$size"
}
