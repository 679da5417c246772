"""Maps failures of a LangGraph server, and of the connection to it, to our errors.

The server's own text goes into the hint, which is for the log: it may reveal details of the graph.
"""

from copilot_runtime.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    NetworkError,
    NotFound,
    RateLimited,
    ThreadBusy,
)

_LONGEST_REASON = 2_000


def map_status_error(agent: str, status: int, reason: str) -> CopilotError:
    """Return the error for a status that is not 2xx; `reason` is the server's text."""
    hint = f"The LangGraph server said, with HTTP {status}: {reason[:_LONGEST_REASON]}"
    match status:
        case 401 | 403:
            return AuthenticationFailed(
                f"The agent {agent!r} may not be asked: its server refused the key or the sign-in.",
                hint=f"{hint} Is api_key right? Does the page pass `authorization`?",
            )
        case 404:
            return NotFound(f"The agent {agent!r} is not there.", hint=hint)
        case 409:
            return ThreadBusy(f"The agent {agent!r} is still busy in this thread.", hint=hint)
        case 429:
            return RateLimited(f"The agent {agent!r} is asked too often.", hint=hint)
        case _ if status >= 500:
            return NetworkError(f"The agent {agent!r} is not well (HTTP {status}).", hint=hint)
        case _:
            return ConfigurationFailed(
                f"The agent {agent!r} refused the request (HTTP {status}).", hint=hint
            )


def invalid_response_error(agent: str) -> ConfigurationFailed:
    """Return the error for a response that is not of LangGraph's API."""
    return ConfigurationFailed(
        f"The agent {agent!r} answered with something that is not LangGraph's API.",
        hint="Is its URL that of a LangGraph server, without a path such as /runs?",
    )
