"""The enums of the v1 schema. On the wire each value is its name."""

from enum import Enum

import strawberry


@strawberry.enum(description="The role of the message")
class MessageRole(Enum):
    user = "user"
    assistant = "assistant"
    system = "system"
    tool = "tool"
    developer = "developer"


@strawberry.enum
class MessageStatusCode(Enum):
    Pending = "Pending"
    Success = "Success"
    Failed = "Failed"


@strawberry.enum
class ResponseStatusCode(Enum):
    Pending = "Pending"
    Success = "Success"
    Failed = "Failed"


@strawberry.enum
class FailedResponseStatusReason(Enum):
    GUARDRAILS_VALIDATION_FAILED = "GUARDRAILS_VALIDATION_FAILED"
    MESSAGE_STREAM_INTERRUPTED = "MESSAGE_STREAM_INTERRUPTED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


@strawberry.enum(description="Meta event types")
class MetaEventName(Enum):
    LangGraphInterruptEvent = "LangGraphInterruptEvent"
    CopilotKitLangGraphInterruptEvent = "CopilotKitLangGraphInterruptEvent"


@strawberry.enum(description="The type of Copilot request")
class CopilotRequestType(Enum):
    Chat = "Chat"
    Task = "Task"
    TextareaCompletion = "TextareaCompletion"
    TextareaPopover = "TextareaPopover"
    Suggestion = "Suggestion"


@strawberry.enum(description="The availability of the frontend action")
class ActionInputAvailability(Enum):
    disabled = "disabled"
    enabled = "enabled"
    remote = "remote"
