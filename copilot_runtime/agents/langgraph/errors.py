"""Maps failures of a LangGraph server, and of the connection to it, to our errors.

The server's own text goes into the hint, which is for the log: it may reveal details of the graph.
"""

from copilot_runtime.agents.forwarding import map_refusal
from copilot_runtime.errors import ConfigurationFailed, CopilotError

_LONGEST_REASON = 2_000


def map_status_error(agent: str, status: int, reason: str) -> CopilotError:
    """Return the error for a status that is not 2xx; `reason` is the server's text."""
    hint = f"The LangGraph server said, with HTTP {status}: {reason[:_LONGEST_REASON]}"
    if status in (401, 403):
        hint = f"{hint} Is api_key right? Does the page pass `authorization`?"
    return map_refusal(agent, status, hint)


def invalid_response_error(agent: str) -> ConfigurationFailed:
    """Return the error for a response that is not of LangGraph's API."""
    return ConfigurationFailed(
        f"The agent {agent!r} answered with something that is not LangGraph's API.",
        hint="Is its URL that of a LangGraph server, without a path such as /runs?",
    )
