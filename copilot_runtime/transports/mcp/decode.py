"""From a call of a tool to a run, and from the request that brought it to the caller."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.errors import Misuse
from copilot_runtime.interfaces import Caller, RunInput
from copilot_runtime.messages import TextMessage, new_id
from copilot_runtime.transports.program_runs import ProgramRuns

CALLER = "copilot_runtime.caller"
"""The key of the caller in the ASGI scope of an MCP request."""


def get_caller(request: Any, owner: Caller) -> Caller:
    """Return who sent a request; behind pipes there is none, and the owner of the process calls."""
    return owner if request is None else request.scope[CALLER]


def build_question(
    program_runs: ProgramRuns, caller: Caller, agent: str, arguments: Mapping[str, Any]
) -> RunInput:
    """Return the run that asks an agent. Raises `Misuse` for a question that is none."""
    text = arguments.get("message")
    if not isinstance(text, str) or not text.strip():
        raise Misuse("The argument `message` must be a text.")
    messages = [TextMessage(id=new_id(), role="user", content=text)]
    return program_runs.build_run(caller, agent=agent, messages=messages, operation="tools/call")
