package pheby.protocol

import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.jsonObject
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.TestFactory

/** The Kotlin tables say, cell by cell, what the exported ones say. */
class StateTableTest {
    private val tables: List<StateTable<*, *>> = listOf(
        ConnectionTable, RunTable, MessageTable, ToolCallTable, ApprovalTable, ClarificationTable, AttachmentTable, ReceiptTable,
    )

    @Test
    fun `every table is there`() {
        assertEquals(Project.states.objects("tables").map { it.text("name") }.toSet(), tables.map { it.name }.toSet())
    }

    @TestFactory
    fun cells(): List<DynamicTest> = Project.states.objects("tables").map { expected ->
        dynamicTest(expected.text("name")) { check(expected, tables.first { it.name == expected.text("name") }) }
    }

    private fun <S, E> check(expected: JsonObject, table: StateTable<S, E>) where S : Enum<S>, S : Wired, E : Enum<E>, E : Wired {
        assertEquals(expected.texts("states"), table.states.map { it.wire })
        assertEquals(expected.texts("events"), table.events.map { it.wire })
        assertEquals(expected.text("initial"), table.initial.wire)
        assertEquals(expected.texts("final").toSet(), table.final.map { it.wire }.toSet())
        val cells = expected.getValue("cells").jsonObject
        for (state in table.states) {
            assertEquals(state, table.stateOf(state.wire))
            for (event in table.events) {
                val cell = cells.getValue(state.wire).jsonObject.getValue(event.wire).jsonObject
                val (step, next) = when (cell["verdict"]?.let { cell.text("verdict") }) {
                    null -> table.stateOf(cell.text("next"))!!.let { Step.To(it) to it }
                    "ignore" -> Step.Ignore to state
                    else -> Step.Refuse to null
                }
                assertEquals(step, table.step(state, event), "${state.wire}, ${event.wire}")
                assertEquals(next, table.next(state, event), "${state.wire}, ${event.wire}")
            }
        }
    }
}
