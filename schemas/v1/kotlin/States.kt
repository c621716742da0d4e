// Generated from the protocol's metamodel; changes here are lost.
package pheby.protocol

/** What an event does to a state. */
public sealed interface Step<out S> {
    /** The next state. */
    public data class To<out S>(public val state: S) : Step<S>

    /** The event is late or doubled; the state stays. */
    public data object Ignore : Step<Nothing>

    /** The event may not happen here. */
    public data object Refuse : Step<Nothing>
}

/** One state machine: every state has a step for every event. */
public abstract class StateTable<S, E> internal constructor() where S : Enum<S>, S : Wired, E : Enum<E>, E : Wired {
    public abstract val name: String
    public abstract val states: List<S>
    public abstract val events: List<E>
    public abstract val initial: S

    /** States that no event leaves. */
    public abstract val final: Set<S>

    public abstract fun step(state: S, event: E): Step<S>

    /** The state after the event: the same one when the event is ignored, null when it is refused. */
    public fun next(state: S, event: E): S? = when (val step = step(state, event)) {
        is Step.To -> step.state
        Step.Ignore -> state
        Step.Refuse -> null
    }

    /** The state of that name on the wire, null for an unknown one. */
    public fun stateOf(wire: String): S? = states.find { it.wire == wire }
}

public object ConnectionTable : StateTable<ConnectionTable.State, ConnectionTable.Event>() {
    public enum class State(override val wire: String) : Wired {
        AWAITING_HELLO("awaiting_hello"),
        SYNCING("syncing"),
        READY("ready"),
        DRAINING("draining"),
        CLOSING("closing"),
        CLOSED("closed"),
    }

    public enum class Event(override val wire: String) : Wired {
        HELLO("hello"),
        SYNCED("synced"),
        DRAIN("drain"),
        CLOSE("close"),
        LOST("lost"),
    }

    override val name: String get() = "connection"
    override val states: List<State> get() = State.entries
    override val events: List<Event> get() = Event.entries
    override val initial: State get() = State.AWAITING_HELLO
    override val final: Set<State> get() = setOf(State.CLOSED)

    override fun step(state: State, event: Event): Step<State> = when (state) {
        State.AWAITING_HELLO -> when (event) {
            Event.HELLO -> Step.To(State.SYNCING)
            Event.SYNCED -> Step.Refuse
            Event.DRAIN, Event.CLOSE -> Step.To(State.CLOSING)
            Event.LOST -> Step.To(State.CLOSED)
        }
        State.SYNCING -> when (event) {
            Event.HELLO -> Step.Refuse
            Event.SYNCED -> Step.To(State.READY)
            Event.DRAIN, Event.CLOSE -> Step.To(State.CLOSING)
            Event.LOST -> Step.To(State.CLOSED)
        }
        State.READY -> when (event) {
            Event.HELLO, Event.SYNCED -> Step.Refuse
            Event.DRAIN -> Step.To(State.DRAINING)
            Event.CLOSE -> Step.To(State.CLOSING)
            Event.LOST -> Step.To(State.CLOSED)
        }
        State.DRAINING -> when (event) {
            Event.HELLO, Event.SYNCED -> Step.Refuse
            Event.DRAIN -> Step.Ignore
            Event.CLOSE -> Step.To(State.CLOSING)
            Event.LOST -> Step.To(State.CLOSED)
        }
        State.CLOSING -> when (event) {
            Event.HELLO, Event.SYNCED, Event.DRAIN, Event.CLOSE -> Step.Ignore
            Event.LOST -> Step.To(State.CLOSED)
        }
        State.CLOSED -> when (event) {
            Event.HELLO, Event.SYNCED, Event.DRAIN, Event.CLOSE, Event.LOST -> Step.Ignore
        }
    }
}

public object RunTable : StateTable<RunTable.State, RunTable.Event>() {
    public enum class State(override val wire: String) : Wired {
        QUEUED("queued"),
        RUNNING("running"),
        WAITING("waiting"),
        CANCELLING("cancelling"),
        COMPLETED("completed"),
        FAILED("failed"),
        CANCELLED("cancelled"),
    }

    public enum class Event(override val wire: String) : Wired {
        START("start"),
        WAIT("wait"),
        CONTINUE("continue"),
        CANCEL("cancel"),
        COMPLETE("complete"),
        FAIL("fail"),
        CANCELLED("cancelled"),
    }

    override val name: String get() = "run"
    override val states: List<State> get() = State.entries
    override val events: List<Event> get() = Event.entries
    override val initial: State get() = State.QUEUED
    override val final: Set<State> get() = setOf(State.COMPLETED, State.FAILED, State.CANCELLED)

    override fun step(state: State, event: Event): Step<State> = when (state) {
        State.QUEUED -> when (event) {
            Event.START -> Step.To(State.RUNNING)
            Event.WAIT, Event.CONTINUE, Event.CANCEL, Event.COMPLETE -> Step.Refuse
            Event.FAIL -> Step.To(State.FAILED)
            Event.CANCELLED -> Step.To(State.CANCELLED)
        }
        State.RUNNING -> when (event) {
            Event.START, Event.CONTINUE -> Step.Ignore
            Event.WAIT -> Step.To(State.WAITING)
            Event.CANCEL -> Step.To(State.CANCELLING)
            Event.COMPLETE -> Step.To(State.COMPLETED)
            Event.FAIL -> Step.To(State.FAILED)
            Event.CANCELLED -> Step.To(State.CANCELLED)
        }
        State.WAITING -> when (event) {
            Event.START, Event.WAIT -> Step.Ignore
            Event.CONTINUE -> Step.To(State.RUNNING)
            Event.CANCEL -> Step.To(State.CANCELLING)
            Event.COMPLETE -> Step.To(State.COMPLETED)
            Event.FAIL -> Step.To(State.FAILED)
            Event.CANCELLED -> Step.To(State.CANCELLED)
        }
        State.CANCELLING -> when (event) {
            Event.START, Event.WAIT, Event.CONTINUE, Event.CANCEL -> Step.Ignore
            Event.COMPLETE -> Step.To(State.COMPLETED)
            Event.FAIL -> Step.To(State.FAILED)
            Event.CANCELLED -> Step.To(State.CANCELLED)
        }
        State.COMPLETED -> when (event) {
            Event.START, Event.WAIT, Event.CONTINUE, Event.CANCEL, Event.COMPLETE, Event.FAIL, Event.CANCELLED -> Step.Ignore
        }
        State.FAILED -> when (event) {
            Event.START, Event.WAIT, Event.CONTINUE, Event.CANCEL, Event.COMPLETE, Event.FAIL, Event.CANCELLED -> Step.Ignore
        }
        State.CANCELLED -> when (event) {
            Event.START, Event.WAIT, Event.CONTINUE, Event.CANCEL, Event.COMPLETE, Event.FAIL, Event.CANCELLED -> Step.Ignore
        }
    }
}

public object MessageTable : StateTable<MessageTable.State, MessageTable.Event>() {
    public enum class State(override val wire: String) : Wired {
        QUEUED("queued"),
        STREAMING("streaming"),
        COMPLETED("completed"),
        FAILED("failed"),
        CANCELLED("cancelled"),
    }

    public enum class Event(override val wire: String) : Wired {
        CHANGE("change"),
        COMPLETE("complete"),
        FAIL("fail"),
        CANCEL("cancel"),
    }

    override val name: String get() = "message"
    override val states: List<State> get() = State.entries
    override val events: List<Event> get() = Event.entries
    override val initial: State get() = State.STREAMING
    override val final: Set<State> get() = setOf(State.COMPLETED, State.FAILED, State.CANCELLED)

    override fun step(state: State, event: Event): Step<State> = when (state) {
        State.QUEUED -> when (event) {
            Event.CHANGE -> Step.Refuse
            Event.COMPLETE -> Step.To(State.COMPLETED)
            Event.FAIL -> Step.To(State.FAILED)
            Event.CANCEL -> Step.To(State.CANCELLED)
        }
        State.STREAMING -> when (event) {
            Event.CHANGE -> Step.To(State.STREAMING)
            Event.COMPLETE -> Step.To(State.COMPLETED)
            Event.FAIL -> Step.To(State.FAILED)
            Event.CANCEL -> Step.To(State.CANCELLED)
        }
        State.COMPLETED -> when (event) {
            Event.CHANGE, Event.COMPLETE, Event.FAIL, Event.CANCEL -> Step.Ignore
        }
        State.FAILED -> when (event) {
            Event.CHANGE, Event.COMPLETE, Event.FAIL, Event.CANCEL -> Step.Ignore
        }
        State.CANCELLED -> when (event) {
            Event.CHANGE, Event.COMPLETE, Event.FAIL, Event.CANCEL -> Step.Ignore
        }
    }
}

public object ToolCallTable : StateTable<ToolCallTable.State, ToolCallTable.Event>() {
    public enum class State(override val wire: String) : Wired {
        RUNNING("running"),
        COMPLETED("completed"),
        FAILED("failed"),
        CANCELLED("cancelled"),
    }

    public enum class Event(override val wire: String) : Wired {
        COMPLETE("complete"),
        FAIL("fail"),
        CANCEL("cancel"),
    }

    override val name: String get() = "tool_call"
    override val states: List<State> get() = State.entries
    override val events: List<Event> get() = Event.entries
    override val initial: State get() = State.RUNNING
    override val final: Set<State> get() = setOf(State.COMPLETED, State.FAILED, State.CANCELLED)

    override fun step(state: State, event: Event): Step<State> = when (state) {
        State.RUNNING -> when (event) {
            Event.COMPLETE -> Step.To(State.COMPLETED)
            Event.FAIL -> Step.To(State.FAILED)
            Event.CANCEL -> Step.To(State.CANCELLED)
        }
        State.COMPLETED -> when (event) {
            Event.COMPLETE, Event.FAIL, Event.CANCEL -> Step.Ignore
        }
        State.FAILED -> when (event) {
            Event.COMPLETE, Event.FAIL, Event.CANCEL -> Step.Ignore
        }
        State.CANCELLED -> when (event) {
            Event.COMPLETE, Event.FAIL, Event.CANCEL -> Step.Ignore
        }
    }
}

public object ApprovalTable : StateTable<ApprovalTable.State, ApprovalTable.Event>() {
    public enum class State(override val wire: String) : Wired {
        QUEUED("queued"),
        PENDING("pending"),
        RESOLVING("resolving"),
        RESOLVED("resolved"),
        EXPIRED("expired"),
        CANCELLED("cancelled"),
    }

    public enum class Event(override val wire: String) : Wired {
        PROMOTE("promote"),
        ANSWER("answer"),
        ANSWER_FAILED("answer_failed"),
        RESOLVE("resolve"),
        EXPIRE("expire"),
        CANCEL("cancel"),
    }

    override val name: String get() = "approval"
    override val states: List<State> get() = State.entries
    override val events: List<Event> get() = Event.entries
    override val initial: State get() = State.PENDING
    override val final: Set<State> get() = setOf(State.RESOLVED, State.EXPIRED, State.CANCELLED)

    override fun step(state: State, event: Event): Step<State> = when (state) {
        State.QUEUED -> when (event) {
            Event.PROMOTE -> Step.To(State.PENDING)
            Event.ANSWER, Event.ANSWER_FAILED -> Step.Refuse
            Event.RESOLVE -> Step.To(State.RESOLVED)
            Event.EXPIRE -> Step.To(State.EXPIRED)
            Event.CANCEL -> Step.To(State.CANCELLED)
        }
        State.PENDING -> when (event) {
            Event.PROMOTE -> Step.Ignore
            Event.ANSWER -> Step.To(State.RESOLVING)
            Event.ANSWER_FAILED -> Step.Refuse
            Event.RESOLVE -> Step.To(State.RESOLVED)
            Event.EXPIRE -> Step.To(State.EXPIRED)
            Event.CANCEL -> Step.To(State.CANCELLED)
        }
        State.RESOLVING -> when (event) {
            Event.PROMOTE -> Step.Ignore
            Event.ANSWER -> Step.Refuse
            Event.ANSWER_FAILED -> Step.To(State.PENDING)
            Event.RESOLVE -> Step.To(State.RESOLVED)
            Event.EXPIRE -> Step.To(State.EXPIRED)
            Event.CANCEL -> Step.To(State.CANCELLED)
        }
        State.RESOLVED -> when (event) {
            Event.PROMOTE, Event.ANSWER, Event.ANSWER_FAILED, Event.RESOLVE, Event.EXPIRE, Event.CANCEL -> Step.Ignore
        }
        State.EXPIRED -> when (event) {
            Event.PROMOTE, Event.ANSWER, Event.ANSWER_FAILED, Event.RESOLVE, Event.EXPIRE, Event.CANCEL -> Step.Ignore
        }
        State.CANCELLED -> when (event) {
            Event.PROMOTE, Event.ANSWER, Event.ANSWER_FAILED, Event.RESOLVE, Event.EXPIRE, Event.CANCEL -> Step.Ignore
        }
    }
}

public object ClarificationTable : StateTable<ClarificationTable.State, ClarificationTable.Event>() {
    public enum class State(override val wire: String) : Wired {
        PENDING("pending"),
        RESOLVING("resolving"),
        RESOLVED("resolved"),
        EXPIRED("expired"),
        CANCELLED("cancelled"),
    }

    public enum class Event(override val wire: String) : Wired {
        ANSWER("answer"),
        ANSWER_FAILED("answer_failed"),
        RESOLVE("resolve"),
        EXPIRE("expire"),
        CANCEL("cancel"),
    }

    override val name: String get() = "clarification"
    override val states: List<State> get() = State.entries
    override val events: List<Event> get() = Event.entries
    override val initial: State get() = State.PENDING
    override val final: Set<State> get() = setOf(State.RESOLVED, State.EXPIRED, State.CANCELLED)

    override fun step(state: State, event: Event): Step<State> = when (state) {
        State.PENDING -> when (event) {
            Event.ANSWER -> Step.To(State.RESOLVING)
            Event.ANSWER_FAILED -> Step.Refuse
            Event.RESOLVE -> Step.To(State.RESOLVED)
            Event.EXPIRE -> Step.To(State.EXPIRED)
            Event.CANCEL -> Step.To(State.CANCELLED)
        }
        State.RESOLVING -> when (event) {
            Event.ANSWER -> Step.Refuse
            Event.ANSWER_FAILED -> Step.To(State.PENDING)
            Event.RESOLVE -> Step.To(State.RESOLVED)
            Event.EXPIRE -> Step.To(State.EXPIRED)
            Event.CANCEL -> Step.To(State.CANCELLED)
        }
        State.RESOLVED -> when (event) {
            Event.ANSWER, Event.ANSWER_FAILED, Event.RESOLVE, Event.EXPIRE, Event.CANCEL -> Step.Ignore
        }
        State.EXPIRED -> when (event) {
            Event.ANSWER, Event.ANSWER_FAILED, Event.RESOLVE, Event.EXPIRE, Event.CANCEL -> Step.Ignore
        }
        State.CANCELLED -> when (event) {
            Event.ANSWER, Event.ANSWER_FAILED, Event.RESOLVE, Event.EXPIRE, Event.CANCEL -> Step.Ignore
        }
    }
}

public object AttachmentTable : StateTable<AttachmentTable.State, AttachmentTable.Event>() {
    public enum class State(override val wire: String) : Wired {
        AVAILABLE("available"),
        EXPIRED("expired"),
    }

    public enum class Event(override val wire: String) : Wired {
        EXPIRE("expire"),
    }

    override val name: String get() = "attachment"
    override val states: List<State> get() = State.entries
    override val events: List<Event> get() = Event.entries
    override val initial: State get() = State.AVAILABLE
    override val final: Set<State> get() = setOf(State.EXPIRED)

    override fun step(state: State, event: Event): Step<State> = when (state) {
        State.AVAILABLE -> when (event) {
            Event.EXPIRE -> Step.To(State.EXPIRED)
        }
        State.EXPIRED -> when (event) {
            Event.EXPIRE -> Step.Ignore
        }
    }
}

public object ReceiptTable : StateTable<ReceiptTable.State, ReceiptTable.Event>() {
    public enum class State(override val wire: String) : Wired {
        ADMITTED("admitted"),
        DISPATCHED("dispatched"),
        DONE("done"),
        EXPIRED("expired"),
        INDETERMINATE("indeterminate"),
    }

    public enum class Event(override val wire: String) : Wired {
        HAND_OVER("hand_over"),
        FINISH("finish"),
        LAPSE("lapse"),
        LOSE_SIGHT("lose_sight"),
    }

    override val name: String get() = "receipt"
    override val states: List<State> get() = State.entries
    override val events: List<Event> get() = Event.entries
    override val initial: State get() = State.ADMITTED
    override val final: Set<State> get() = setOf(State.DONE, State.EXPIRED, State.INDETERMINATE)

    override fun step(state: State, event: Event): Step<State> = when (state) {
        State.ADMITTED -> when (event) {
            Event.HAND_OVER -> Step.To(State.DISPATCHED)
            Event.FINISH -> Step.To(State.DONE)
            Event.LAPSE -> Step.To(State.EXPIRED)
            Event.LOSE_SIGHT -> Step.Refuse
        }
        State.DISPATCHED -> when (event) {
            Event.HAND_OVER -> Step.Ignore
            Event.FINISH -> Step.To(State.DONE)
            Event.LAPSE -> Step.Refuse
            Event.LOSE_SIGHT -> Step.To(State.INDETERMINATE)
        }
        State.DONE -> when (event) {
            Event.HAND_OVER, Event.FINISH, Event.LAPSE, Event.LOSE_SIGHT -> Step.Ignore
        }
        State.EXPIRED -> when (event) {
            Event.HAND_OVER, Event.FINISH, Event.LAPSE, Event.LOSE_SIGHT -> Step.Ignore
        }
        State.INDETERMINATE -> when (event) {
            Event.HAND_OVER, Event.FINISH, Event.LAPSE, Event.LOSE_SIGHT -> Step.Ignore
        }
    }
}
