"""The status types of the v1 schema, and which end of a run gives which status."""

from typing import Annotated, Any

import strawberry

from copilot_runtime.errors import ErrorReport, Refused
from copilot_runtime.events import RunFailed, RunFinished
from copilot_runtime.transports.graphql.types import (
    JSON,
    FailedResponseStatusReason,
    MessageStatusCode,
    ResponseStatusCode,
)


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

TEXT_BROKEN = "Error streaming message content"
ACTION_BROKEN = "An unknown error has occurred in the action execution argument stream"


def message_status(
    last: RunFinished | RunFailed | None, broken: str
) -> SuccessMessageStatus | FailedMessageStatus:
    """Return the status of a message that ended by itself (`last` is None) or with its run."""
    if not isinstance(last, RunFailed):
        return SuccessMessageStatus()
    if last.error.code == Refused.code:
        broken = f"Interrupted due to Guardrails validation failure. Reason: {last.error.message}"
    return FailedMessageStatus(reason=broken)


def response_status(
    last: RunFinished | RunFailed,
) -> SuccessResponseStatus | FailedResponseStatus:
    """Return the status of the whole response."""
    if isinstance(last, RunFinished):
        return SuccessResponseStatus()
    error = last.error
    if error.code == Refused.code:
        return FailedResponseStatus(
            reason=FailedResponseStatusReason.GUARDRAILS_VALIDATION_FAILED,
            details=JSON({"guardrailsReason": error.message}),
        )
    return FailedResponseStatus(details=JSON(_details(error)))


def error_extensions(error: ErrorReport) -> dict[str, Any]:
    """Return the `extensions` by which the v1 client chooses between banner, toast and silence."""
    return {
        "name": "CopilotError",
        "code": error.code,
        "statusCode": error.status_code,
        "severity": error.severity,
        "visibility": error.visibility,
        "troubleshootingUrl": error.help_url,
        "originalError": {"message": error.message},
    }


def _details(error: ErrorReport) -> dict[str, Any]:
    return {
        "description": error.message,
        "originalError": {
            "code": error.code,
            "statusCode": error.status_code,
            "severity": error.severity,
            "visibility": error.visibility,
            "originalErrorType": error.kind,
            "extensions": error_extensions(error),
        },
    }
