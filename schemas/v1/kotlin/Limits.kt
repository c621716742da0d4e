// Generated from the protocol's metamodel; changes here are lost.
package pheby.protocol

/** Bounds and defaults of the protocol. What a server accepts is in the limits of its welcome. */
public object ProtocolLimits {
    /** The protocol version that these files speak. */
    public const val PROTOCOL_VERSION: Int = 1
    public const val MAX_INTEGER: Long = 9007199254740991L
    public const val MAX_DEPTH: Int = 32
    public const val MAX_TITLE_CHARS: Int = 100
    public const val MAX_TEXT_CHARS: Int = 100000
    public const val MAX_FRAME_BYTES: Int = 1048576
    public const val MAX_SERVER_FRAME_BYTES: Int = 1048576
    public const val MAX_LIST_LIMIT: Int = 100
    public const val DEFAULT_LIST_LIMIT: Int = 50
    public const val MAX_HISTORY_LIMIT: Int = 200
    public const val DEFAULT_HISTORY_LIMIT: Int = 50
    public const val MAX_PENDING_REQUESTS: Int = 64
    public const val HEARTBEAT_MS: Int = 30000
    public const val HELLO_DEADLINE_MS: Int = 10000
    public const val MAX_UNDECODABLE_FRAMES: Int = 10
    public const val MAX_CLOSE_REASON_BYTES: Int = 123
}

/** What a client may offer in hello. */
public object ClientCapabilities {
    /** Events may be joined into one batch frame. */
    public const val BATCH: String = "batch"
}

/** What a server announces in welcome; a name that is absent is false. */
public object ServerCapabilities {
    /** Events may be joined into one batch frame. */
    public const val BATCH: String = "batch"
    /** Events after a cursor can be replayed. */
    public const val RESUME: String = "resume"
    /** Assistant text arrives while it is written; else each message arrives whole. */
    public const val STREAMING: String = "streaming"
    /** Tool calls are reported. */
    public const val TOOLS: String = "tools"
    /** A run can be cancelled. */
    public const val CANCEL: String = "cancel"
    /** A message can be added to the active run (if_busy: steer). */
    public const val STEER: String = "steer"
    /** A message can replace the active run (if_busy: interrupt). */
    public const val INTERRUPT: String = "interrupt"
    /** Approvals are reported and answered. */
    public const val APPROVALS: String = "approvals"
    /** Clarifications are reported and answered. */
    public const val CLARIFICATIONS: String = "clarifications"
    /** The runs of subagents and their tools are reported. */
    public const val SUBAGENTS: String = "subagents"
    /** Files from the agent are reported and served. */
    public const val ATTACHMENTS: String = "attachments"
    /** Models can be listed and chosen. */
    public const val MODELS: String = "models"
    /** Reasoning effort can be listed and chosen. */
    public const val REASONING: String = "reasoning"
    /** Conversations can be renamed. */
    public const val RENAME: String = "rename"
    /** Conversations can be deleted. */
    public const val DELETE: String = "delete"
}
