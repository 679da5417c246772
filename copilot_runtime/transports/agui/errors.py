"""HTTP error responses, in the format of CopilotKit's own server."""

from collections.abc import Iterable, Mapping

from copilot_runtime.base.errors import (
    RUN_FAILED,
    AgentNotFound,
    CopilotError,
    LimitExceeded,
    Misuse,
    NotFound,
)
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.transport import Refusal


def invalid(message: str, status: int = 400, headers: Mapping[str, str] | None = None) -> Refusal:
    """Return the refusal of a malformed request."""
    return Refusal(status, {"error": "invalid_request", "message": message}, headers)


def no_agent(name: str, agents: Iterable[str]) -> Refusal:
    """Return the refusal for an unknown agent; Node's body, with our `code` and `known`."""
    message = f"Agent '{name}' does not exist"
    body = {"error": "Agent not found", "message": message, "code": AgentNotFound.code}
    return Refusal(404, {**body, "known": sorted(agents)})


def no_json(details: str) -> Refusal:
    return Refusal(400, {"error": "Invalid request body", "details": details})


def refusal_of(error: Exception) -> Refusal:
    """Return the HTTP refusal for an error before a stream; unexpected errors are masked."""
    match error:
        case BadRequest():
            return invalid(error.message, error.status, error.headers)
        case LimitExceeded(status_code=429):
            body = {"error": error.code.lower(), "message": error.public}
        case Misuse() | LimitExceeded():
            body = {"error": "Invalid request body", "details": error.message}
        case NotFound():
            body = {"error": "Not found", "message": error.message}
        case CopilotError():
            body = {"error": error.code.lower(), "message": error.public}
        case _:
            return Refusal(500, {"error": "internal_error", "message": RUN_FAILED.message})
    return Refusal(error.status_code, body)
