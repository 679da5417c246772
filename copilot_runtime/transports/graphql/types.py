"""The scalars, enums and statuses of the v1 schema. The wire format of an enum is its name."""

from datetime import datetime
from enum import Enum
from typing import Annotated, Any, NewType

import strawberry
from strawberry.schema.config import StrawberryConfig
from strawberry.schema.name_converter import NameConverter
from strawberry.utils.str_converters import to_camel_case

from copilot_runtime.api.events import ActionExecutionResult, Event, RunFailed, RunFinished
from copilot_runtime.base.errors import AgentNotFound, ErrorReport, Refused

_ECMA_404 = "http://www.ecma-international.org/publications/files/ECMA-ST/ECMA-404.pdf"

_EXCEPTIONS = {
    "to_deprecate_full_context": "toDeprecate_fullContext",
    "openai_assistant_api": "openaiAssistantAPI",
}


def graphql_name(name: str) -> str:
    """Return the GraphQL name of a Python field or argument: camel case, with two exceptions."""
    return _EXCEPTIONS.get(name) or to_camel_case(name)


class Names(NameConverter):
    """Strawberry's hook for the naming rule of `graphql_name`."""

    def apply_naming_config(self, name: str) -> str:
        return graphql_name(name)


DateTimeISO = NewType("DateTimeISO", datetime)
JSON = NewType("JSON", object)
JSONObject = NewType("JSONObject", dict[str, Any])


def _parse_date(value: object) -> datetime:
    if not isinstance(value, str):
        raise ValueError(f"DateTimeISO cannot represent non string value: {value!r}")
    return datetime.fromisoformat(value)


def _parse_object(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"JSONObject cannot represent non-object value: {value!r}")
    return value


def iso(moment: datetime) -> str:
    """Format a time of UTC as JavaScript does: milliseconds, `Z`."""
    return f"{moment.isoformat(timespec='milliseconds')[:23]}Z"


CONFIG = StrawberryConfig(
    name_converter=Names(),
    enable_experimental_incremental_execution=True,
    scalar_map={
        DateTimeISO: strawberry.scalar(
            name="DateTimeISO",
            description="A date-time string at UTC, such as 2007-12-03T10:15:30.000Z (RFC 3339).",
            serialize=iso,
            parse_value=_parse_date,
        ),
        JSON: strawberry.scalar(
            name="JSON",
            description=f"The `JSON` scalar type represents JSON values as specified by "
            f"[ECMA-404]({_ECMA_404}).",
            specified_by_url=_ECMA_404,
        ),
        JSONObject: strawberry.scalar(
            name="JSONObject",
            description=f"The `JSONObject` scalar type represents JSON objects as specified by "
            f"[ECMA-404]({_ECMA_404}).",
            specified_by_url=_ECMA_404,
            parse_value=_parse_object,
        ),
    },
)


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


@strawberry.type
class PendingMessageStatus:
    code: MessageStatusCode = MessageStatusCode.Pending


@strawberry.type
class SuccessMessageStatus:
    code: MessageStatusCode = MessageStatusCode.Success


@strawberry.type
class FailedMessageStatus:
    code: MessageStatusCode = MessageStatusCode.Failed
    reason: str = ""


MessageStatus = Annotated[
    PendingMessageStatus | SuccessMessageStatus | FailedMessageStatus,
    strawberry.union("MessageStatus"),
]


@strawberry.interface
class BaseResponseStatus:
    code: ResponseStatusCode


@strawberry.type
class PendingResponseStatus(BaseResponseStatus):
    code: ResponseStatusCode = ResponseStatusCode.Pending


@strawberry.type
class SuccessResponseStatus(BaseResponseStatus):
    code: ResponseStatusCode = ResponseStatusCode.Success


@strawberry.type
class FailedResponseStatus(BaseResponseStatus):
    code: ResponseStatusCode = ResponseStatusCode.Failed
    reason: FailedResponseStatusReason = FailedResponseStatusReason.UNKNOWN_ERROR
    details: JSON | None = None


ResponseStatus = Annotated[
    PendingResponseStatus | SuccessResponseStatus | FailedResponseStatus,
    strawberry.union("ResponseStatus"),
]


def message_status(
    end: Event | None, failure: str
) -> PendingMessageStatus | SuccessMessageStatus | FailedMessageStatus:
    """Return the status of a message, given its last event; `failure` is the failure reason.

    A call that has its result before its end was cut off. It stays pending, because a client
    completes the arguments of any other call of its own actions, and runs it, whatever its result.
    """
    if isinstance(end, ActionExecutionResult):
        return PendingMessageStatus()
    if not isinstance(end, RunFailed):
        return SuccessMessageStatus()
    if end.error.code == Refused.code:
        failure = f"Interrupted due to Guardrails validation failure. Reason: {end.error.message}"
    return FailedMessageStatus(reason=failure)


def response_status(
    last: Event,
) -> PendingResponseStatus | SuccessResponseStatus | FailedResponseStatus:
    """Return the status of a response, given the latest event of its run."""
    match last:
        case RunFinished():
            return SuccessResponseStatus()
        case RunFailed(error=error) if error.code == Refused.code:
            return FailedResponseStatus(
                reason=FailedResponseStatusReason.GUARDRAILS_VALIDATION_FAILED,
                details=JSON({"guardrailsReason": error.message}),
            )
        case RunFailed(error=error):
            return FailedResponseStatus(details=JSON(_details(error)))
        case _:
            return PendingResponseStatus()


def error_extensions(error: ErrorReport) -> dict[str, Any]:
    """Return the `extensions` by which the v1 client chooses a banner, a toast or no display."""
    return {
        "name": "CopilotError",
        "code": error.code,
        # Node's for an unknown agent
        "statusCode": 500 if error.code == AgentNotFound.code else error.status_code,
        "severity": error.severity,
        "visibility": error.visibility,
        "troubleshootingUrl": error.help_url,
        "originalError": {"message": error.message},
    }


def _details(error: ErrorReport) -> dict[str, Any]:
    extensions = error_extensions(error)
    fields = ("code", "statusCode", "severity", "visibility")
    return {
        "description": error.message,
        "originalError": {
            **{field: extensions[field] for field in fields},
            "originalErrorType": error.kind,
            "extensions": extensions,
        },
    }
