// Generated from the protocol's metamodel; changes here are lost.
package pheby.protocol

import kotlin.jvm.JvmInline
import kotlinx.serialization.Serializable

/** A value with a name on the wire. */
public interface Wired {
    public val wire: String
}

/** A set of named values that may grow: an unknown one keeps its text and goes back as it came. */
public interface OpenEnum : Wired

/** What a credential may do. Open: a later version may send other values. */
@Serializable(with = AccessModeSerializer::class)
public sealed interface AccessMode : OpenEnum {
    public data object Full : AccessMode { override val wire: String get() = "full" }
    public data object Manage : AccessMode { override val wire: String get() = "manage" }
    public data object ReadOnly : AccessMode { override val wire: String get() = "read_only" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : AccessMode

    public companion object {
        /** The values of this version. */
        public val known: List<AccessMode> get() = listOf(Full, Manage, ReadOnly)

        public fun of(wire: String): AccessMode = when (wire) {
            "full" -> Full
            "manage" -> Manage
            "read_only" -> ReadOnly
            else -> Unknown(wire)
        }
    }
}

internal object AccessModeSerializer : OpenEnumLeaf<AccessMode>("AccessMode", AccessMode.Companion::of)

/** What is asked about. Open: a later version may send other values. */
@Serializable(with = ApprovalKindSerializer::class)
public sealed interface ApprovalKind : OpenEnum {
    public data object Command : ApprovalKind { override val wire: String get() = "command" }
    public data object Confirmation : ApprovalKind { override val wire: String get() = "confirmation" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : ApprovalKind

    public companion object {
        /** The values of this version. */
        public val known: List<ApprovalKind> get() = listOf(Command, Confirmation)

        public fun of(wire: String): ApprovalKind = when (wire) {
            "command" -> Command
            "confirmation" -> Confirmation
            else -> Unknown(wire)
        }
    }
}

internal object ApprovalKindSerializer : OpenEnumLeaf<ApprovalKind>("ApprovalKind", ApprovalKind.Companion::of)

/** Of one attachment. Open: a later version may send other values. */
@Serializable(with = AttachmentStateSerializer::class)
public sealed interface AttachmentState : OpenEnum {
    public data object Available : AttachmentState { override val wire: String get() = "available" }
    public data object Expired : AttachmentState { override val wire: String get() = "expired" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : AttachmentState

    public companion object {
        /** The values of this version. */
        public val known: List<AttachmentState> get() = listOf(Available, Expired)

        public fun of(wire: String): AttachmentState = when (wire) {
            "available" -> Available
            "expired" -> Expired
            else -> Unknown(wire)
        }
    }
}

internal object AttachmentStateSerializer : OpenEnumLeaf<AttachmentState>("AttachmentState", AttachmentState.Companion::of)

/** Where a decision came from. Open: a later version may send other values. */
@Serializable(with = DecisionSourceSerializer::class)
public sealed interface DecisionSource : OpenEnum {
    public data object Device : DecisionSource { override val wire: String get() = "device" }
    public data object Timeout : DecisionSource { override val wire: String get() = "timeout" }
    public data object RunEnd : DecisionSource { override val wire: String get() = "run_end" }
    public data object OtherSurface : DecisionSource { override val wire: String get() = "other_surface" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : DecisionSource

    public companion object {
        /** The values of this version. */
        public val known: List<DecisionSource> get() = listOf(Device, Timeout, RunEnd, OtherSurface)

        public fun of(wire: String): DecisionSource = when (wire) {
            "device" -> Device
            "timeout" -> Timeout
            "run_end" -> RunEnd
            "other_surface" -> OtherSurface
            else -> Unknown(wire)
        }
    }
}

internal object DecisionSourceSerializer : OpenEnumLeaf<DecisionSource>("DecisionSource", DecisionSource.Companion::of)

/** What was done with a send. Open: a later version may send other values. */
@Serializable(with = DispositionSerializer::class)
public sealed interface Disposition : OpenEnum {
    public data object Started : Disposition { override val wire: String get() = "started" }
    public data object Queued : Disposition { override val wire: String get() = "queued" }
    public data object Steered : Disposition { override val wire: String get() = "steered" }
    public data object Interrupted : Disposition { override val wire: String get() = "interrupted" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : Disposition

    public companion object {
        /** The values of this version. */
        public val known: List<Disposition> get() = listOf(Started, Queued, Steered, Interrupted)

        public fun of(wire: String): Disposition = when (wire) {
            "started" -> Started
            "queued" -> Queued
            "steered" -> Steered
            "interrupted" -> Interrupted
            else -> Unknown(wire)
        }
    }
}

internal object DispositionSerializer : OpenEnumLeaf<Disposition>("Disposition", Disposition.Companion::of)

/**
 * Stable code of an `error` frame. A client decides by the code, never by the text. Open: a later version may send
 * other values.
 */
@Serializable(with = ErrorCodeSerializer::class)
public sealed interface ErrorCode : OpenEnum {
    public data object InvalidMessage : ErrorCode { override val wire: String get() = "invalid_message" }
    public data object UnknownType : ErrorCode { override val wire: String get() = "unknown_type" }
    public data object UnsupportedVersion : ErrorCode { override val wire: String get() = "unsupported_version" }
    public data object NotReady : ErrorCode { override val wire: String get() = "not_ready" }
    public data object Forbidden : ErrorCode { override val wire: String get() = "forbidden" }
    public data object NotFound : ErrorCode { override val wire: String get() = "not_found" }
    public data object Conflict : ErrorCode { override val wire: String get() = "conflict" }
    public data object TitleConflict : ErrorCode { override val wire: String get() = "title_conflict" }
    public data object InvalidTitle : ErrorCode { override val wire: String get() = "invalid_title" }
    public data object Busy : ErrorCode { override val wire: String get() = "busy" }
    public data object NotAnswerable : ErrorCode { override val wire: String get() = "not_answerable" }
    public data object AlreadyResolved : ErrorCode { override val wire: String get() = "already_resolved" }
    public data object Expired : ErrorCode { override val wire: String get() = "expired" }
    public data object InvalidChoice : ErrorCode { override val wire: String get() = "invalid_choice" }
    public data object InvalidModel : ErrorCode { override val wire: String get() = "invalid_model" }
    public data object InvalidEffort : ErrorCode { override val wire: String get() = "invalid_effort" }
    public data object TooLarge : ErrorCode { override val wire: String get() = "too_large" }
    public data object RateLimited : ErrorCode { override val wire: String get() = "rate_limited" }
    public data object Unavailable : ErrorCode { override val wire: String get() = "unavailable" }
    public data object Internal : ErrorCode { override val wire: String get() = "internal" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : ErrorCode

    public companion object {
        /** The values of this version. */
        public val known: List<ErrorCode> get() = listOf(InvalidMessage, UnknownType, UnsupportedVersion, NotReady, Forbidden, NotFound, Conflict, TitleConflict, InvalidTitle, Busy, NotAnswerable, AlreadyResolved, Expired, InvalidChoice, InvalidModel, InvalidEffort, TooLarge, RateLimited, Unavailable, Internal)

        public fun of(wire: String): ErrorCode = when (wire) {
            "invalid_message" -> InvalidMessage
            "unknown_type" -> UnknownType
            "unsupported_version" -> UnsupportedVersion
            "not_ready" -> NotReady
            "forbidden" -> Forbidden
            "not_found" -> NotFound
            "conflict" -> Conflict
            "title_conflict" -> TitleConflict
            "invalid_title" -> InvalidTitle
            "busy" -> Busy
            "not_answerable" -> NotAnswerable
            "already_resolved" -> AlreadyResolved
            "expired" -> Expired
            "invalid_choice" -> InvalidChoice
            "invalid_model" -> InvalidModel
            "invalid_effort" -> InvalidEffort
            "too_large" -> TooLarge
            "rate_limited" -> RateLimited
            "unavailable" -> Unavailable
            "internal" -> Internal
            else -> Unknown(wire)
        }
    }
}

internal object ErrorCodeSerializer : OpenEnumLeaf<ErrorCode>("ErrorCode", ErrorCode.Companion::of)

/** What a send asks for while a run is active. The receipt says what was done. */
@Serializable(with = IfBusySerializer::class)
public enum class IfBusy(override val wire: String) : Wired {
    QUEUE("queue"),
    STEER("steer"),
    INTERRUPT("interrupt"),
    REJECT("reject"),
}

internal object IfBusySerializer : ClosedEnumLeaf<IfBusy>("IfBusy", IfBusy.entries)

/**
 * Whose words a message holds. `notice` is the system's, about the conversation. Open: a later version may send other
 * values.
 */
@Serializable(with = MessageRoleSerializer::class)
public sealed interface MessageRole : OpenEnum {
    public data object User : MessageRole { override val wire: String get() = "user" }
    public data object Assistant : MessageRole { override val wire: String get() = "assistant" }
    public data object Notice : MessageRole { override val wire: String get() = "notice" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : MessageRole

    public companion object {
        /** The values of this version. */
        public val known: List<MessageRole> get() = listOf(User, Assistant, Notice)

        public fun of(wire: String): MessageRole = when (wire) {
            "user" -> User
            "assistant" -> Assistant
            "notice" -> Notice
            else -> Unknown(wire)
        }
    }
}

internal object MessageRoleSerializer : OpenEnumLeaf<MessageRole>("MessageRole", MessageRole.Companion::of)

/** Of one chat message. Open: a later version may send other values. */
@Serializable(with = MessageStateSerializer::class)
public sealed interface MessageState : OpenEnum {
    public data object Queued : MessageState { override val wire: String get() = "queued" }
    public data object Streaming : MessageState { override val wire: String get() = "streaming" }
    public data object Completed : MessageState { override val wire: String get() = "completed" }
    public data object Failed : MessageState { override val wire: String get() = "failed" }
    public data object Cancelled : MessageState { override val wire: String get() = "cancelled" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : MessageState

    public companion object {
        /** The values of this version. */
        public val known: List<MessageState> get() = listOf(Queued, Streaming, Completed, Failed, Cancelled)

        public fun of(wire: String): MessageState = when (wire) {
            "queued" -> Queued
            "streaming" -> Streaming
            "completed" -> Completed
            "failed" -> Failed
            "cancelled" -> Cancelled
            else -> Unknown(wire)
        }
    }
}

internal object MessageStateSerializer : OpenEnumLeaf<MessageState>("MessageState", MessageState.Companion::of)

/** What caused a message or run. Open: a later version may send other values. */
@Serializable(with = OriginSerializer::class)
public sealed interface Origin : OpenEnum {
    public data object Chat : Origin { override val wire: String get() = "chat" }
    public data object Cron : Origin { override val wire: String get() = "cron" }
    public data object Background : Origin { override val wire: String get() = "background" }
    public data object System : Origin { override val wire: String get() = "system" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : Origin

    public companion object {
        /** The values of this version. */
        public val known: List<Origin> get() = listOf(Chat, Cron, Background, System)

        public fun of(wire: String): Origin = when (wire) {
            "chat" -> Chat
            "cron" -> Cron
            "background" -> Background
            "system" -> System
            else -> Unknown(wire)
        }
    }
}

internal object OriginSerializer : OpenEnumLeaf<Origin>("Origin", Origin.Companion::of)

/** Of an approval or a clarification, as clients see it. Open: a later version may send other values. */
@Serializable(with = PromptStatusSerializer::class)
public sealed interface PromptStatus : OpenEnum {
    public data object Pending : PromptStatus { override val wire: String get() = "pending" }
    public data object Resolved : PromptStatus { override val wire: String get() = "resolved" }
    public data object Expired : PromptStatus { override val wire: String get() = "expired" }
    public data object Cancelled : PromptStatus { override val wire: String get() = "cancelled" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : PromptStatus

    public companion object {
        /** The values of this version. */
        public val known: List<PromptStatus> get() = listOf(Pending, Resolved, Expired, Cancelled)

        public fun of(wire: String): PromptStatus = when (wire) {
            "pending" -> Pending
            "resolved" -> Resolved
            "expired" -> Expired
            "cancelled" -> Cancelled
            else -> Unknown(wire)
        }
    }
}

internal object PromptStatusSerializer : OpenEnumLeaf<PromptStatus>("PromptStatus", PromptStatus.Companion::of)

/** Of one send, from its durable admission on. Open: a later version may send other values. */
@Serializable(with = ReceiptStateSerializer::class)
public sealed interface ReceiptState : OpenEnum {
    public data object Admitted : ReceiptState { override val wire: String get() = "admitted" }
    public data object Dispatched : ReceiptState { override val wire: String get() = "dispatched" }
    public data object Done : ReceiptState { override val wire: String get() = "done" }
    public data object Expired : ReceiptState { override val wire: String get() = "expired" }
    public data object Indeterminate : ReceiptState { override val wire: String get() = "indeterminate" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : ReceiptState

    public companion object {
        /** The values of this version. */
        public val known: List<ReceiptState> get() = listOf(Admitted, Dispatched, Done, Expired, Indeterminate)

        public fun of(wire: String): ReceiptState = when (wire) {
            "admitted" -> Admitted
            "dispatched" -> Dispatched
            "done" -> Done
            "expired" -> Expired
            "indeterminate" -> Indeterminate
            else -> Unknown(wire)
        }
    }
}

internal object ReceiptStateSerializer : OpenEnumLeaf<ReceiptState>("ReceiptState", ReceiptState.Companion::of)

/** Why a run failed. Open: a later version may send other values. */
@Serializable(with = RunErrorCodeSerializer::class)
public sealed interface RunErrorCode : OpenEnum {
    public data object ProviderError : RunErrorCode { override val wire: String get() = "provider_error" }
    public data object ProviderAuth : RunErrorCode { override val wire: String get() = "provider_auth" }
    public data object ProviderRateLimited : RunErrorCode { override val wire: String get() = "provider_rate_limited" }
    public data object EmptyResponse : RunErrorCode { override val wire: String get() = "empty_response" }
    public data object ContextOverflow : RunErrorCode { override val wire: String get() = "context_overflow" }
    public data object InterruptedByRestart : RunErrorCode { override val wire: String get() = "interrupted_by_restart" }
    public data object TimedOut : RunErrorCode { override val wire: String get() = "timed_out" }
    public data object Internal : RunErrorCode { override val wire: String get() = "internal" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : RunErrorCode

    public companion object {
        /** The values of this version. */
        public val known: List<RunErrorCode> get() = listOf(ProviderError, ProviderAuth, ProviderRateLimited, EmptyResponse, ContextOverflow, InterruptedByRestart, TimedOut, Internal)

        public fun of(wire: String): RunErrorCode = when (wire) {
            "provider_error" -> ProviderError
            "provider_auth" -> ProviderAuth
            "provider_rate_limited" -> ProviderRateLimited
            "empty_response" -> EmptyResponse
            "context_overflow" -> ContextOverflow
            "interrupted_by_restart" -> InterruptedByRestart
            "timed_out" -> TimedOut
            "internal" -> Internal
            else -> Unknown(wire)
        }
    }
}

internal object RunErrorCodeSerializer : OpenEnumLeaf<RunErrorCode>("RunErrorCode", RunErrorCode.Companion::of)

/** Why a run ended as it did, where the status alone does not say. Open: a later version may send other values. */
@Serializable(with = RunReasonSerializer::class)
public sealed interface RunReason : OpenEnum {
    public data object Requested : RunReason { override val wire: String get() = "requested" }
    public data object Superseded : RunReason { override val wire: String get() = "superseded" }
    public data object Deleted : RunReason { override val wire: String get() = "deleted" }
    public data object Shutdown : RunReason { override val wire: String get() = "shutdown" }
    public data object MaxIterations : RunReason { override val wire: String get() = "max_iterations" }
    public data object Guardrail : RunReason { override val wire: String get() = "guardrail" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : RunReason

    public companion object {
        /** The values of this version. */
        public val known: List<RunReason> get() = listOf(Requested, Superseded, Deleted, Shutdown, MaxIterations, Guardrail)

        public fun of(wire: String): RunReason = when (wire) {
            "requested" -> Requested
            "superseded" -> Superseded
            "deleted" -> Deleted
            "shutdown" -> Shutdown
            "max_iterations" -> MaxIterations
            "guardrail" -> Guardrail
            else -> Unknown(wire)
        }
    }
}

internal object RunReasonSerializer : OpenEnumLeaf<RunReason>("RunReason", RunReason.Companion::of)

/** Of one run, one turn of the agent. Open: a later version may send other values. */
@Serializable(with = RunStateSerializer::class)
public sealed interface RunState : OpenEnum {
    public data object Queued : RunState { override val wire: String get() = "queued" }
    public data object Running : RunState { override val wire: String get() = "running" }
    public data object Waiting : RunState { override val wire: String get() = "waiting" }
    public data object Cancelling : RunState { override val wire: String get() = "cancelling" }
    public data object Completed : RunState { override val wire: String get() = "completed" }
    public data object Failed : RunState { override val wire: String get() = "failed" }
    public data object Cancelled : RunState { override val wire: String get() = "cancelled" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : RunState

    public companion object {
        /** The values of this version. */
        public val known: List<RunState> get() = listOf(Queued, Running, Waiting, Cancelling, Completed, Failed, Cancelled)

        public fun of(wire: String): RunState = when (wire) {
            "queued" -> Queued
            "running" -> Running
            "waiting" -> Waiting
            "cancelling" -> Cancelling
            "completed" -> Completed
            "failed" -> Failed
            "cancelled" -> Cancelled
            else -> Unknown(wire)
        }
    }
}

internal object RunStateSerializer : OpenEnumLeaf<RunState>("RunState", RunState.Companion::of)

/**
 * Who chose a title. A manual title is never overwritten by a generated one. Open: a later version may send other
 * values.
 */
@Serializable(with = TitleSourceSerializer::class)
public sealed interface TitleSource : OpenEnum {
    public data object None : TitleSource { override val wire: String get() = "none" }
    public data object Generated : TitleSource { override val wire: String get() = "generated" }
    public data object Manual : TitleSource { override val wire: String get() = "manual" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : TitleSource

    public companion object {
        /** The values of this version. */
        public val known: List<TitleSource> get() = listOf(None, Generated, Manual)

        public fun of(wire: String): TitleSource = when (wire) {
            "none" -> None
            "generated" -> Generated
            "manual" -> Manual
            else -> Unknown(wire)
        }
    }
}

internal object TitleSourceSerializer : OpenEnumLeaf<TitleSource>("TitleSource", TitleSource.Companion::of)

/** Of one tool call. Open: a later version may send other values. */
@Serializable(with = ToolCallStateSerializer::class)
public sealed interface ToolCallState : OpenEnum {
    public data object Running : ToolCallState { override val wire: String get() = "running" }
    public data object Completed : ToolCallState { override val wire: String get() = "completed" }
    public data object Failed : ToolCallState { override val wire: String get() = "failed" }
    public data object Cancelled : ToolCallState { override val wire: String get() = "cancelled" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : ToolCallState

    public companion object {
        /** The values of this version. */
        public val known: List<ToolCallState> get() = listOf(Running, Completed, Failed, Cancelled)

        public fun of(wire: String): ToolCallState = when (wire) {
            "running" -> Running
            "completed" -> Completed
            "failed" -> Failed
            "cancelled" -> Cancelled
            else -> Unknown(wire)
        }
    }
}

internal object ToolCallStateSerializer : OpenEnumLeaf<ToolCallState>("ToolCallState", ToolCallState.Companion::of)

/** Why a tool call failed. Open: a later version may send other values. */
@Serializable(with = ToolErrorCodeSerializer::class)
public sealed interface ToolErrorCode : OpenEnum {
    public data object Failed : ToolErrorCode { override val wire: String get() = "failed" }
    public data object Denied : ToolErrorCode { override val wire: String get() = "denied" }
    public data object TimedOut : ToolErrorCode { override val wire: String get() = "timed_out" }
    public data object ApprovalUnavailable : ToolErrorCode { override val wire: String get() = "approval_unavailable" }
    public data object Indeterminate : ToolErrorCode { override val wire: String get() = "indeterminate" }

    /** A value of a later version. */
    @JvmInline
    public value class Unknown internal constructor(override val wire: String) : ToolErrorCode

    public companion object {
        /** The values of this version. */
        public val known: List<ToolErrorCode> get() = listOf(Failed, Denied, TimedOut, ApprovalUnavailable, Indeterminate)

        public fun of(wire: String): ToolErrorCode = when (wire) {
            "failed" -> Failed
            "denied" -> Denied
            "timed_out" -> TimedOut
            "approval_unavailable" -> ApprovalUnavailable
            "indeterminate" -> Indeterminate
            else -> Unknown(wire)
        }
    }
}

internal object ToolErrorCodeSerializer : OpenEnumLeaf<ToolErrorCode>("ToolErrorCode", ToolErrorCode.Companion::of)
