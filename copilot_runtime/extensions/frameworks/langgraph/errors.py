"""Maps failures of a LangGraph server, and of the connection to it, to our errors.

The server's own text goes into the hint, which is for the log: it may reveal details of the graph.
"""

import re
from collections.abc import Set as AbstractSet

from copilot_runtime.agents.forwarding import map_refusal
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, LimitExceeded, Misuse

_LONGEST_REASON = 2_000
_STEPS = re.compile(r"Recursion limit of (\d+) reached")
_MISSING_FIELD = re.compile(r"^(\S+)\n  Field required \[type=missing", re.MULTILINE)


def explain_failure(
    agent: str, kind: str, reason: str, missing: AbstractSet[str]
) -> CopilotError | None:
    """Return an error with advice for a known exception of a graph, or `None` for others.

    `kind` is the name of its class and `reason` its text, which may be confidential: the error
    contains only a number from it, and names in `missing`, the unset keys of the graph's input.
    """
    hint = f"{kind}: {reason[:_LONGEST_REASON]}"
    match kind:
        case "GraphRecursionError" if steps := _STEPS.search(reason):
            return LimitExceeded(
                f"The agent {agent!r} reached its recursion limit of {steps[1]} steps without "
                "coming to an end. A higher `recursion_limit` in its config allows more.",
                hint=hint,
            )
        case "EmptyInputError":
            return Misuse(f"The agent {agent!r} received no input.", hint=hint)
        case "KeyError":
            names = {reason.strip("'\"")}
        case "ValidationError":
            names = {*_MISSING_FIELD.findall(reason)}
        case _:
            return None
    if not names or not names <= missing:
        return None
    lacking = ", ".join(sorted(names))
    return Misuse(f"The agent {agent!r} needs more input: its state lacks {lacking}.", hint=hint)


def map_status_error(agent: str, status: int, reason: str) -> CopilotError:
    """Return the error for a status that is not 2xx; `reason` is the server's text."""
    hint = f"The LangGraph server said, with HTTP {status}: {reason[:_LONGEST_REASON]}"
    if status in (401, 403):
        hint = f"{hint} Is api_key right? Does the page pass `authorization`?"
    return map_refusal(agent, status, hint)


def invalid_response_error(agent: str) -> ConfigurationFailed:
    """Return the error for a response that does not follow LangGraph's API."""
    return ConfigurationFailed(
        f"The agent {agent!r} answered with something that is not LangGraph's API.",
        hint="Is its URL that of a LangGraph server, without a path such as /runs?",
    )
