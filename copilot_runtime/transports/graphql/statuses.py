"""The status types of the v1 schema, and which end of a run gives which status."""

from typing import Annotated, Any

import strawberry

from copilot_runtime.api.events import Event, RunFailed, RunFinished
from copilot_runtime.base.errors import ErrorReport, Refused
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


def message_status(end: Event | None, failure: str) -> SuccessMessageStatus | FailedMessageStatus:
    """Return the status of a message by the event that ended it; `failure` says why it failed."""
    if not isinstance(end, RunFailed):
        return SuccessMessageStatus()
    if end.error.code == Refused.code:
        failure = f"Interrupted due to Guardrails validation failure. Reason: {end.error.message}"
    return FailedMessageStatus(reason=failure)


def response_status(
    last: Event,
) -> PendingResponseStatus | SuccessResponseStatus | FailedResponseStatus:
    """Return the status of a response by the last event there is of its run."""
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
