"""What a LangGraph server refuses, and what breaks on the way to it, as our errors.

What the server says of it is for the log: it may speak of the graph's inner life.
"""

from copilot_runtime.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    NetworkError,
    NotFound,
    RateLimited,
    RunStalled,
    ThreadBusy,
)

_LONGEST_REASON = 2_000


def refusal(agent: str, status: int, reason: str) -> CopilotError:
    """Return the error for an answer that is not 2xx; `reason` is what the server says of it."""
    said = f"The LangGraph server said, with HTTP {status}: {reason[:_LONGEST_REASON]}"
    match status:
        case 401 | 403:
            return AuthenticationFailed(
                f"The agent {agent!r} may not be asked: its server refused the key or the sign-in.",
                hint=f"{said} Is api_key right? Does the page pass `authorization`?",
            )
        case 404:
            return NotFound(f"The agent {agent!r} is not there.", hint=said)
        case 409:
            return ThreadBusy(f"The agent {agent!r} is still busy in this thread.", hint=said)
        case 429:
            return RateLimited(f"The agent {agent!r} is asked too often.", hint=said)
        case _ if status >= 500:
            return NetworkError(f"The agent {agent!r} is not well (HTTP {status}).", hint=said)
        case _:
            return ConfigurationFailed(
                f"The agent {agent!r} refused the request (HTTP {status}).", hint=said
            )


def strange(agent: str) -> ConfigurationFailed:
    """Return the error for an answer that no LangGraph server gives."""
    return ConfigurationFailed(
        f"The agent {agent!r} answered with something that is not LangGraph's API.",
        hint="Is its URL that of a LangGraph server, without a path such as /runs?",
    )


def broken(agent: str, error: NetworkError) -> NetworkError:
    """Say what broke; where we asked is for the log."""
    _, found, reason = error.message.partition("API error: ")
    if not found:
        return error  # it is of this agent already
    if isinstance(error, RunStalled):
        return RunStalled(f"The agent {agent!r} is silent. {reason}", hint=error.hint)
    return NetworkError(
        f"The agent {agent!r} did not answer. {reason}",
        status_code=error.status_code,
        hint=error.hint,
    )
